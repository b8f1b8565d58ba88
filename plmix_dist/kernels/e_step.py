"""The E-step of a block with any kind of row: groups share a membership, ties are summed over.

Without groups, ties and shares by person this is one fused kernel (`em_pass.py`). With them it has three parts: the
log-probability of each row under each component, the membership of each person, and the sums at these memberships.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.kernels.em_pass import EmStatistics, row_statistics, statistics_at
from plmix_dist.kernels.memberships import Memberships, memberships, shares_by_row
from plmix_dist.kernels.posteriors import single_posteriors
from plmix_dist.kernels.row_logs import row_logs
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.kernels.tied_rows import PlaceSums
    from plmix_dist.rankings import RankingBlock


def em_statistics(
    block: RankingBlock, current: Prepared, frozen: Prepared | None = None, *, with_rates: bool = False
) -> EmStatistics:
    """The statistics of a block at the current parameters. `plain.py` specifies them.

    Parameters
    ----------
    block
        The rankings. Rows of a group share one membership. A row with ties is the set of all its orders. Persons may
        have shares of their own (`log_shares`).
    current
        The parameters.
    frozen
        If given, the posteriors are those at `frozen`, as in the inner loop of an exact M-step.
    with_rates
        Whether to add up the rates, which LSR needs. There are none for rows with ties.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> found = em_statistics(block, prepare(np.log([[0.5, 0.25, 0.25]]), np.zeros(1)))
    >>> found.wins.tolist(), found.expected_wins.round(3).tolist()
    ([[1.0, 1.0, 0.0]], [[1.167, 0.25, 0.583]])
    """
    if is_plain(block):
        return row_statistics(block, current, frozen, with_rates=with_rates)
    block = unorder_last_ties(block)
    ties = TiedRows.of(block)
    here = None if ties is None else ties.places(current)
    at_frozen = here if frozen is None or ties is None else ties.places(frozen)
    logs = _logs(block, frozen or current, ties, at_frozen)
    at = memberships(block, logs, frozen or current)
    log_likelihood = float((at.weights * at.log_likelihoods).sum())
    posteriors = at.by_row
    shares = (at.weights[:, None] * at.posteriors).sum(axis=0)
    if ties is None or here is None:
        sums = statistics_at(block, current, posteriors, log_likelihood, with_rates=with_rates)
        return sums._replace(shares=shares)
    if with_rates:
        raise SettingsError('rates are not computed for rows with ties; choose m_step="mm", or ties="expand"')
    plain = np.setdiff1d(np.arange(block.n_rankings), ties.numbers)
    sums = statistics_at(block.take(plain), current, posteriors[plain], log_likelihood)
    expected_log_likelihood, wins, expected_wins = ties.sums(current, here, posteriors[ties.numbers])
    return sums._replace(
        shares=shares,
        expected_log_likelihood=sums.expected_log_likelihood + expected_log_likelihood,
        wins=sums.wins + wins,
        expected_wins=sums.expected_wins + expected_wins,
    )


def is_plain(block: RankingBlock) -> bool:
    """Whether the fused kernel can take a block: no groups, no ties, the same shares for all rows.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> is_plain(block), is_plain(block.replace(groups=np.array([7])))
    (True, False)
    """
    return block.groups is None and block.log_shares is None and not block.has_ties


def component_logs(block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    """(n_rankings, n_components): log Pr(row | component), summed over the orders of tied items.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import Ranking, RankingBlock
    >>> block = RankingBlock.from_rows([Ranking(((0, 1), (2,)), (), "absent", 1.0)], n_items=3)
    >>> np.exp(component_logs(block, prepare(np.zeros((1, 3)), np.zeros(1)))).round(6).tolist()
    [[0.333333]]
    """
    block = unorder_last_ties(block)
    ties = TiedRows.of(block)
    return _logs(block, params, ties, None if ties is None else ties.places(params))


def _logs(
    block: RankingBlock, params: Prepared, ties: TiedRows | None, at: PlaceSums | None
) -> NDArray[np.float64]:
    logs = row_logs(block, params)
    if ties is not None and at is not None:
        logs[ties.numbers] = ties.logs(at)
    return logs


def memberships_at(block: RankingBlock, params: Prepared) -> Memberships:
    """The membership of every person of a block at given parameters.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.log([[3.0, 1.0], [1.0, 3.0]]), np.log([0.5, 0.5]))
    >>> block = RankingBlock.from_array([[0, 1], [0, 1]]).replace(groups=np.array([4, 4]))
    >>> memberships_at(block, params).posteriors.round(6).tolist()
    [[0.9, 0.1]]
    """
    return memberships(block, component_logs(block, params), params)


def row_posteriors(block: RankingBlock, params: Prepared) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, n_components) of each row.

    All rows of a group have the posterior of their person. The log-likelihood of a row is then that of the row given
    the rows of the same person before it, divided by its weight: weights times log-likelihoods add up to that of the
    person.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.log([[3.0, 1.0], [1.0, 3.0]]), np.log([0.5, 0.5]))
    >>> block = RankingBlock.from_array([[0, 1], [0, 1]])
    >>> np.exp(row_posteriors(block, params)[0]).round(6).tolist()
    [0.5, 0.5]
    >>> logs, posteriors = row_posteriors(block.replace(groups=np.array([4, 4])), params)
    >>> np.exp(logs).round(6).tolist(), posteriors.round(6).tolist()
    ([0.5, 0.625], [[0.9, 0.1], [0.9, 0.1]])
    """
    if is_plain(block):
        return single_posteriors(block, params)
    block = unorder_last_ties(block)
    logs = component_logs(block, params)
    at = memberships(block, logs, params)
    if block.groups is None:
        return at.log_likelihoods, at.posteriors
    return shares_by_row(block, logs, params), at.by_row
