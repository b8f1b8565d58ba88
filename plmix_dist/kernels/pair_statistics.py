"""Pairwise wins weighted by posteriors: what M-steps need that break rankings into pairs, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.kernels.e_step import memberships_at, row_posteriors
from plmix_dist.kernels.memberships import Memberships
from plmix_dist.kernels.pairwise import pairwise_wins
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.rankings import RankingBlock


class PairStatistics(NamedTuple):
    """Sums over rows. The statistics of two blocks can be added.

    Parameters
    ----------
    log_likelihood : ()
        Of the rows, at the parameters that gave the posteriors.
    shares : (n_components,)
        Sum of weight times posterior, over persons.
    wins : (n_components, n_items, n_items)
        Entry [k, i, j] is the sum of weight times posterior over all rows that rank i before j.
    """

    log_likelihood: NDArray[np.float64]
    shares: NDArray[np.float64]
    wins: NDArray[np.float64]


def pair_statistics(block: RankingBlock, current: Prepared, frozen: Prepared | None = None) -> PairStatistics:
    """The pairwise wins of a block, weighted by the posteriors at the current parameters, or at `frozen` ones.

    An ordered item wins against every item on offer that comes after it or is not ordered. All rows of a group have the
    posterior of their person.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.log([[3.0, 1.0], [1.0, 3.0]]), np.log([0.5, 0.5]))
    >>> pair_statistics(RankingBlock.from_array([[0, 1]]), params).wins.round(6).tolist()
    [[[0.0, 0.75], [0.0, 0.0]], [[0.0, 0.25], [0.0, 0.0]]]
    """
    block = without_ties(block)
    at = persons_of(block, current if frozen is None else frozen)
    return PairStatistics(
        np.array((at.weights * at.log_likelihoods).sum()),
        (at.weights[:, None] * at.posteriors).sum(axis=0),
        pairwise_wins(block, at.by_row),
    )


def without_ties(block: RankingBlock) -> RankingBlock:
    """The block, ties in last place unordered; an error if others are left.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> without_ties(RankingBlock.from_array([[0, 1]])).n_rankings
    1
    """
    if not block.has_ties:
        return block
    block = unorder_last_ties(block)
    if TiedRows.of(block) is not None:
        raise SettingsError('this M-step takes rankings without ties; choose m_step="mm", or ties="expand"')
    return block


def persons_of(block: RankingBlock, params: Prepared) -> Memberships:
    """The membership of every person: of every row, if there are no groups.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.log([[3.0, 1.0], [1.0, 3.0]]), np.log([0.5, 0.5]))
    >>> persons_of(RankingBlock.from_array([[0, 1]]), params).posteriors.round(6).tolist()
    [[0.75, 0.25]]
    """
    if block.groups is not None:
        return memberships_at(block, params)
    log_likelihoods, posteriors = row_posteriors(block, params)
    return Memberships(log_likelihoods, block.row_weights, posteriors, np.arange(block.n_rankings))
