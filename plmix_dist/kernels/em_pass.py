"""The statistics of one EM pass over a block: wins, expected wins and, for LSR, the rates between items.

With q the posterior of a component for a row of weight w, and S the sum of worths on offer at a choice:

- wins[k, i] adds w q for every choice that i won;
- expected_wins[k, i] adds w q worth_i / S for every choice that offered i. So wins - expected_wins is the gradient of
  the log-likelihood in the log-worths, and the MM step multiplies worths by wins / expected_wins;
- rates[k, j, i] adds w q worth_j / S for every choice that j won while i was on offer: the rate from i to j times the
  worth of j. Scaled so, no entry exceeds the weight of the data, whatever the range of the worths.

The kernels add up w q / S alone, called offers here. With worths scaled about 1 these stay within float64. The worths
are the same for all rows, so they are multiplied in at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.native import Kernel
from plmix_dist.kernels.pointers import pointers
from plmix_dist.kernels.posteriors import padded_posteriors
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.rate_sums import RateSums, rate_sums, rates_by_component
from plmix_dist.kernels.scratch import Slots, logs_of, probabilities_of, slots_for
from plmix_dist.kernels.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from plmix_dist.kernels.pointers import Room
    from plmix_dist.kernels.scratch import Probabilities
    from plmix_dist.rankings import RankingBlock


class EmStatistics(NamedTuple):
    """Sums over rows. The statistics of two blocks can be added.

    Parameters
    ----------
    log_likelihood : ()
        The log-likelihood of the rows at the current parameters or, with frozen posteriors, at the frozen ones.
    expected_log_likelihood : (n_components,)
        Sum of w q log Pr(row | component) at the current parameters.
    shares : (n_components,)
        Sum of w q.
    wins, expected_wins : (n_components, n_items)
    rates : (n_components, n_items, n_items), or empty where not asked for
    """

    log_likelihood: NDArray[np.float64]
    expected_log_likelihood: NDArray[np.float64]
    shares: NDArray[np.float64]
    wins: NDArray[np.float64]
    expected_wins: NDArray[np.float64]
    rates: NDArray[np.float64]


class PassSums(NamedTuple):
    """What a pass adds up.

    Parameters
    ----------
    totals, scales : (n_rows,)
        The probability of each row as total * 2**scale.
    given : (n_rows, width) or 0
        The posterior of each row, or 0 for those at the current parameters.
    sums : (n_items, 2, width)
        The offers to each item, and its wins.
    below : (n_items, width)
        Offers to unlisted items, noted at places in the order by falling worth.
    shares, expected : (width,)
        Sums of w q, and of w q log Pr(row | component).
    """

    totals: Room
    scales: Room
    given: NDArray[np.float64] | int
    sums: Room
    below: int
    shares: int
    expected: int


_add_rows = Kernel("add_rows", Rows, Prepared, Slots, PassSums)
_add_rows_and_rates = Kernel("add_rows_and_rates", Rows, Prepared, Slots, PassSums, RateSums)
spread_below = Kernel("spread_below", Prepared, PassSums)


class GivenPosteriors(NamedTuple):
    """Posteriors (n_rows, width) that a pass takes as they are, and the log-likelihood () of the rows there."""

    log_likelihood: NDArray[np.float64]
    posteriors: NDArray[np.float64]


def row_statistics(
    block: RankingBlock, current: Prepared, frozen: Prepared | None = None, *, with_rates: bool = False
) -> EmStatistics:
    """The statistics of a block in which every row is a person of its own, and no items are tied.

    Parameters
    ----------
    block
        The rankings. Groups are not looked at; listed items that are tied count as ordered.
    current
        The parameters.
    frozen
        If given, the posteriors are those at `frozen`, as in the inner loop of an exact M-step.
    with_rates
        Whether to add up the rates, which LSR needs.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> found = row_statistics(block, prepare(np.log([[0.5, 0.25, 0.25]]), np.zeros(1)))
    >>> found.wins.tolist(), found.expected_wins.round(3).tolist()
    ([[1.0, 1.0, 0.0]], [[1.167, 0.25, 0.583]])
    """
    workspace = Workspace.of_thread()
    rows = rows_of(block, current.width, workspace)
    given = None
    if frozen is not None:
        logs, posteriors = padded_posteriors(rows, frozen, workspace)
        given = GivenPosteriors(np.array(np.sum(rows.weights.array * logs)), posteriors)
    return _summed(block, rows, current, given, workspace, with_rates)


def reweighted_statistics(
    block: RankingBlock, weightings: Iterable[tuple[NDArray[np.float64], Prepared]]
) -> list[EmStatistics]:
    """The statistics of rows for several weights (n_rankings,) of the same rows, each at its own parameters.

    The rows are made ready for the kernel once.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block, params = RankingBlock.from_array([[0, 1], [1, 0]]), prepare(np.zeros((1, 2)), np.zeros(1))
    >>> weights = (np.array([1.0, 0.0]), np.array([2.0, 3.0]))
    >>> [found.wins.tolist() for found in reweighted_statistics(block, [(own, params) for own in weights])]
    [[[1.0, 0.0]], [[2.0, 3.0]]]
    """
    workspace, rows, found = Workspace.of_thread(), None, []
    for weights, params in weightings:
        if rows is None:
            rows = rows_of(block, params.width, workspace)
        rows.weights.array[:] = weights
        found.append(_summed(block, rows, params, None, workspace, with_rates=False))
    return found


def statistics_at(
    block: RankingBlock,
    current: Prepared,
    posteriors: NDArray[np.float64],
    log_likelihood: float,
    *,
    with_rates: bool = False,
) -> EmStatistics:
    """The statistics of a block whose posteriors (n_rankings, n_components) and log-likelihood are known.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.zeros((2, 2)), np.log([0.5, 0.5]))
    >>> statistics_at(RankingBlock.from_array([[1, 0]]), params, np.array([[0.75, 0.25]]), 0.0).wins.tolist()
    [[0.0, 0.75], [0.0, 0.25]]
    """
    workspace = Workspace.of_thread()
    rows = rows_of(block, current.width, workspace)
    padded = np.zeros((block.n_rankings, current.width))
    padded[:, : current.n_components] = posteriors
    given = GivenPosteriors(np.array(log_likelihood), padded)
    return _summed(block, rows, current, given, workspace, with_rates)


def _summed(
    block: RankingBlock,
    rows: Rows,
    current: Prepared,
    given: GivenPosteriors | None,
    workspace: Workspace,
    with_rates: bool,
) -> EmStatistics:
    """Run the kernel over all rows."""
    probabilities = probabilities_of(rows.n_rows, workspace)
    sums = pass_sums(probabilities, None if given is None else given.posteriors, current, workspace)
    slots = slots_for(rows, current, workspace)
    passed = pointers(rows), workspace.pointers_of(current), pointers(slots), pointers(sums)
    rates = np.zeros((0, current.n_items, 0))
    if with_rates:
        added_rates = rate_sums(block, current, workspace)
        _add_rows_and_rates(*passed, pointers(added_rates))
        rates = rates_by_component(added_rates, current)
    else:
        _add_rows(*passed)
    if block.below.any():
        spread_below(passed[1], passed[3])
    if given is None:
        log_likelihood = np.array(np.sum(rows.weights.array * logs_of(probabilities)))
    else:
        log_likelihood = given.log_likelihood
    return statistics_of(log_likelihood, sums.sums.array, rates, current)


def pass_sums(
    probabilities: Probabilities,
    given: NDArray[np.float64] | None,
    params: Prepared,
    workspace: Workspace,
) -> PassSums:
    """Room for the sums of a pass, all zero; one after the other in one room, in the order of `PassSums`."""
    per_item = params.n_items * params.width
    sums = workspace.zeros("sums", 3 * per_item + 2 * params.width)
    below = sums.address + 8 * 2 * per_item
    shares = below + 8 * per_item
    return PassSums(
        probabilities.totals,
        probabilities.scales,
        0 if given is None else given,
        sums,
        below,
        shares,
        shares + 8 * params.width,
    )


def statistics_of(
    log_likelihood: NDArray[np.float64],
    sums: NDArray[np.float64],
    rates: NDArray[np.float64],
    params: Prepared,
) -> EmStatistics:
    """The statistics from the sums of a pass, which lie in a workspace and are copied."""
    n_items, width, n_components = params.n_items, params.width, params.n_components
    by_item = sums[: 2 * n_items * width].reshape(n_items, 2, width)
    shares, expected = sums[-2 * width :].reshape(2, width)
    expected_wins = by_item[:, 0] * params.worths.reshape(n_items, width)
    return EmStatistics(
        log_likelihood=log_likelihood,
        expected_log_likelihood=expected[:n_components].copy(),
        shares=shares[:n_components].copy(),
        wins=by_item[:, 1, :n_components].T.copy(),
        expected_wins=expected_wins[:, :n_components].T.copy(),
        rates=rates,
    )
