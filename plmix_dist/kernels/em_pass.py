"""The E-step of a block, and the statistics of one EM pass: wins, expected wins and, for LSR, the rates between items.

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

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.kernels import prepared
from plmix_dist.kernels.loading import Kernel
from plmix_dist.kernels.memberships import (
    Memberships,
    conditional_log_likelihoods,
    memberships,
    padded_posteriors,
    row_logs,
    single_posteriors,
)
from plmix_dist.kernels.prepared import Prepared, Probabilities, Room, Rows, rows_of
from plmix_dist.kernels.tied_choices import tie_logs
from plmix_dist.kernels.tied_rows import PlaceSums, TiedRows
from plmix_dist.kernels.utilities import LinearRows
from plmix_dist.rankings import Floats, RankingBlock, unorder_last_ties

# Rates between items, as LSR needs them: for every choice that j won while i was on offer, one number is added.

# With up to this many items all rows are treated side by side.
_MOST_ITEMS_SIDE_BY_SIDE = 40
# Numbers that fit into the cache: with more of them, components side by side cost more to rearrange than they save.
_MOST_NUMBERS_SIDE_BY_SIDE = 1 << 19
# Rows for which one line is loaded and stored once.
QUEUE = 4
SIDE_BY_SIDE, QUEUED, BY_LINE, BY_PAIR = 0, 1, 2, 3


class RateSums(NamedTuple):
    """Rates being added up."""

    # (n_rankings,): how each row is treated.
    ways: NDArray[np.uint8]
    # (n_items * n_items * width,) or empty: By winner, then beaten item, components side by side.
    side_by_side: Room
    # (n_components * n_items * padded,) or empty: By component, then winner; lines end on whole vectors.
    lines: Floats
    # (n_components * QUEUE * padded,): of each queued row the place of each item.
    places: Room
    # (n_components * QUEUE * n_items,): of each queued row what each winner adds to the items it beat.
    queued: Room
    # (n_components,)
    n_queued: Room
    # (2 * n_items,): the entries of a row, with those of items it does not list behind them.
    on_offer: Room
    # Length of a line.
    padded: int
    # n_components, or 0 without lines.
    n_queues: int


def _rate_sums(block: RankingBlock, params: Prepared) -> RateSums:
    """Room for the rates of a block, all zero."""
    n_items, ways, workspace = params.n_items, _ways(block, params), prepared.Workspace.of_thread()
    with_lines = params.n_components if (ways != SIDE_BY_SIDE).any() else 0
    is_side_by_side = bool((ways == SIDE_BY_SIDE).any())
    padded = -(-n_items // prepared.LANES) * prepared.LANES
    return RateSums(
        ways,
        workspace.zeros("side by side", n_items * n_items * params.width if is_side_by_side else 0),
        prepared.aligned_zeros(with_lines * n_items * padded),
        workspace.zeros("queued places", with_lines * QUEUE * padded),
        workspace.zeros("queued rates", with_lines * QUEUE * n_items),
        workspace.zeros("queue lengths", with_lines, np.int32),
        # Twice as many, because a row could list an item twice if it was changed during a fit.
        workspace.zeros("on offer", 2 * n_items, np.int32),
        padded,
        with_lines,
    )


def _ways(block: RankingBlock, params: Prepared) -> NDArray[np.uint8]:
    """(n_rankings,): how each row is best treated."""
    n_items = params.n_items
    if n_items <= _MOST_ITEMS_SIDE_BY_SIDE:
        return np.full(block.n_rankings, SIDE_BY_SIDE, np.uint8)
    n_ordered, n_listed = block.n_ordered.astype(np.int64), block.n_listed.astype(np.int64)
    if n_items * n_items * params.width <= _MOST_NUMBERS_SIDE_BY_SIDE:
        listed = np.full(block.n_rankings, SIDE_BY_SIDE, np.uint8)
    else:
        listed = np.where(2 * n_listed > n_items, np.uint8(BY_LINE), np.uint8(BY_PAIR))
    # A queue is swept with every item for a winner. Few winners of many items are treated by line, and rows that
    # list but some of all items, for which a line is mostly zeros, as pairs.
    listed = np.where(4 * n_ordered > 3 * n_items, np.uint8(QUEUED), listed)
    below = np.where(2 * n_ordered > n_items, np.uint8(QUEUED), np.uint8(BY_LINE))
    return np.where(block.below, below, listed)


def _rates_by_component(rates: RateSums, params: Prepared) -> Floats:
    """(n_components, n_items, n_items): everything added up."""
    n_items, n_components = params.n_items, params.n_components
    lines = rates.lines.reshape(-1, n_items, rates.padded)[:, :, :n_items]
    side_by_side = rates.side_by_side.array.reshape(-1, n_items, params.width)[:, :, :n_components].transpose(2, 0, 1)
    if lines.size and side_by_side.size:
        return side_by_side + lines
    if lines.size or side_by_side.size:
        # Side by side they lie in a workspace, and must be copied.
        return np.ascontiguousarray(lines) if lines.size else side_by_side.copy()
    return np.zeros((n_components, n_items, n_items))


class EmStatistics(NamedTuple):
    """Sums over rows. The statistics of two blocks can be added."""

    # (): the log-likelihood of the rows at the current parameters or, with frozen posteriors, at the frozen ones.
    log_likelihood: Floats
    # (n_components,): sum of w q log Pr(row | component) at the current parameters.
    expected_log_likelihood: Floats
    # (n_components,): sum of w q.
    shares: Floats
    # wins, expected_wins (n_components, n_items)
    wins: Floats
    expected_wins: Floats
    # (n_components, n_items, n_items), or empty where not asked for
    rates: Floats


class PassSums(NamedTuple):
    """What a pass adds up."""

    # totals, scales (n_rows,): the probability of each row as total * 2**scale.
    totals: Room
    scales: Room
    # (n_rows, width) or 0: The posterior of each row, or 0 for those at the current parameters.
    given: Floats | int
    # (n_items, 2, width): the offers to each item, and its wins.
    sums: Room
    # (n_items, width): offers to unlisted items, noted at places in the order by falling worth.
    below: int
    # shares, expected (width,): sums of w q, and of w q log Pr(row | component).
    shares: int
    expected: int


_add_rows = Kernel("add_rows", Rows, Prepared, prepared.Slots, PassSums)
_add_rows_and_rates = Kernel("add_rows_and_rates", Rows, Prepared, prepared.Slots, PassSums, RateSums)
_spread_below = Kernel("spread_below", Prepared, PassSums)


def _row_statistics(
    block: RankingBlock, current: Prepared, frozen: Prepared | None = None, *, with_rates: bool = False
) -> EmStatistics:
    """The statistics of a block in which every row is a person of its own, and no items are tied.

    Groups are ignored; listed items that are tied count as ordered. Posteriors are those at `frozen`, if given, as in
    the inner loop of an exact M-step. The rates, which LSR needs, are added up `with_rates`.
    """
    rows = rows_of(block, current.width)
    if frozen is None:
        return _summed(block, rows, current, with_rates=with_rates)
    logs, posteriors = padded_posteriors(rows, frozen)
    return _summed(block, rows, current, posteriors, np.sum(rows.weights.array * logs), with_rates=with_rates)


def reweighted_statistics(block: RankingBlock, weightings: Iterable[tuple[Floats, Prepared]]) -> list[EmStatistics]:
    """The statistics of rows for several weights (n_rankings,) of the same rows, each at its own parameters.

    The rows are made ready for the kernel once.
    """
    rows, found = None, []
    for weights, params in weightings:
        if rows is None:
            rows = rows_of(block, params.width)
        rows.weights.array[:] = weights
        found.append(_summed(block, rows, params))
    return found


def statistics_at(
    block: RankingBlock, current: Prepared, posteriors: Floats, log_likelihood: float, *, with_rates: bool = False
) -> EmStatistics:
    """The statistics of a block whose posteriors (n_rankings, n_components) and log-likelihood are known."""
    padded = np.zeros((block.n_rankings, current.width))
    padded[:, : current.n_components] = posteriors
    return _summed(block, rows_of(block, current.width), current, padded, log_likelihood, with_rates=with_rates)


def _summed(
    block: RankingBlock,
    rows: Rows,
    current: Prepared,
    given: Floats | None = None,
    log_likelihood: float = 0.0,
    *,
    with_rates: bool = False,
) -> EmStatistics:
    """Run the kernel over all rows; with posteriors (n_rows, width) that are given, so is the log-likelihood there."""
    probabilities, sums = room_for_pass(rows.n_rows, current, given)
    rates = np.zeros((0, current.n_items, 0))
    if with_rates:
        added_rates = _rate_sums(block, current)
        run_pass(_add_rows_and_rates, rows, current, sums, added_rates)
        rates = _rates_by_component(added_rates, current)
    else:
        run_pass(_add_rows, rows, current, sums)
    if given is None:
        log_likelihood = np.sum(rows.weights.array * probabilities.logs())
    return statistics_of(log_likelihood, sums, rates, current)


def room_for_pass(n_rows: int, params: Prepared, given: Floats | None = None) -> tuple[Probabilities, PassSums]:
    """Room for the sums of a pass, all zero; one after the other in one room, in the order of `PassSums`."""
    per_item, probabilities = params.n_items * params.width, Probabilities.of(n_rows)
    sums = prepared.Workspace.of_thread().zeros("sums", 3 * per_item + 2 * params.width)
    below = sums.address + 8 * 2 * per_item
    shares, posteriors = below + 8 * per_item, 0 if given is None else given
    return probabilities, PassSums(*probabilities[:2], posteriors, sums, below, shares, shares + 8 * params.width)


def run_pass(kernel: Kernel, rows: Rows, params: Prepared, sums: PassSums, *more: Any) -> None:
    """Run a kernel of a pass over rows; offers to unlisted items are given to these at the end."""
    prepared.run_over(kernel, rows, params, sums, *more)
    if rows.below.any():
        _spread_below(prepared.Workspace.of_thread().pointers_of(params), prepared.pointers(sums))


def statistics_of(log_likelihood: float, added: PassSums, rates: Floats, params: Prepared) -> EmStatistics:
    """The statistics from the sums of a pass, which lie in a workspace and are copied."""
    n_items, width, n_components = params.n_items, params.width, params.n_components
    sums = added.sums.array
    by_item = sums[: 2 * n_items * width].reshape(n_items, 2, width)
    shares, expected = sums[-2 * width :].reshape(2, width)
    expected_wins = by_item[:, 0] * params.worths.reshape(n_items, width)
    return EmStatistics(
        log_likelihood=np.array(log_likelihood),
        expected_log_likelihood=expected[:n_components].copy(),
        shares=shares[:n_components].copy(),
        wins=by_item[:, 1, :n_components].T.copy(),
        expected_wins=expected_wins[:, :n_components].T.copy(),
        rates=rates,
    )


# The E-step of a block with any kind of row: groups share a membership, ties are summed over. Without groups, ties and
# shares by person this is one fused kernel. With them it has three parts: the log-probability of each row under each
# component, the membership of each person, and the sums at these memberships.


def em_statistics(
    block: RankingBlock, current: Prepared, frozen: Prepared | None = None, *, with_rates: bool = False
) -> EmStatistics:
    """The statistics of a block at the current parameters; posteriors at `frozen` ones, if given. See `plain.py`.

    Rows of a group share one membership. A row with ties is the set of all its orders. Persons may have shares of
    their own (`log_shares`). The rates, which LSR needs, are added up `with_rates`; rows with ties have none.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> found = em_statistics(block, prepare(np.log([[0.5, 0.25, 0.25]]), np.zeros(1)))
    >>> found.wins.tolist(), found.expected_wins.round(3).tolist()
    ([[1.0, 1.0, 0.0]], [[1.167, 0.25, 0.583]])
    """
    if is_plain(block) or (block.within is not None and current.n_components == 1 and block.log_shares is None):
        return _row_statistics(block, current, frozen, with_rates=with_rates)
    block = unorder_last_ties(block)
    ties = TiedRows.of(block)
    here = None if ties is None else ties.places(current)
    at_frozen = here if frozen is None or ties is None else ties.places(frozen)
    logs = _logs(block, frozen or current, ties, at_frozen)
    at = memberships(block, logs, frozen or current)
    log_likelihood = float((at.weights * at.log_likelihoods).sum())
    if ties is None or here is None:
        sums = statistics_at(block, current, at.by_row, log_likelihood, with_rates=with_rates)
    elif with_rates:
        raise SettingsError('rates are not computed for rows with ties; choose m_step="mm", or ties="expand"')
    else:
        sums = statistics_with_ties(block, ties, here, current, at.by_row, log_likelihood)
    return sums._replace(shares=(at.weights[:, None] * at.posteriors).sum(axis=0))


def statistics_with_ties(
    block: RankingBlock, ties: TiedRows, at: PlaceSums, current: Prepared, posteriors: Floats, log_likelihood: float
) -> EmStatistics:
    """As `statistics_at`, for a block that has tied rows, from what is known of their places at the parameters."""
    plain = np.setdiff1d(np.arange(block.n_rankings), ties.numbers)
    sums = statistics_at(block.take(plain), current, posteriors[plain], log_likelihood)
    expected_log_likelihood, wins, expected_wins = ties.sums(current, at, posteriors[ties.numbers])
    return sums._replace(
        expected_log_likelihood=sums.expected_log_likelihood + expected_log_likelihood,
        wins=sums.wins + wins,
        expected_wins=sums.expected_wins + expected_wins,
    )


def is_plain(block: RankingBlock) -> bool:
    """Whether the fused kernel can take a block: no groups, no ties, the same shares for all rows."""
    return block.groups is None and block.log_shares is None and not block.has_ties


def component_logs(block: RankingBlock, params: Prepared | LinearRows) -> Floats:
    """(n_rankings, n_components): log Pr(row | component): the sum over orders of tied items, or ties are outcomes."""
    if isinstance(params, LinearRows):
        return params.logs(block)
    if params.n_orders:
        return tie_logs(block, params)
    block = unorder_last_ties(block)
    ties = TiedRows.of(block)
    return _logs(block, params, ties, None if ties is None else ties.places(params))


def _logs(block: RankingBlock, params: Prepared, ties: TiedRows | None, at: PlaceSums | None) -> Floats:
    logs = row_logs(block, params)
    if ties is not None and at is not None:
        logs[ties.numbers] = ties.logs(at)
    return logs


def memberships_at(block: RankingBlock, params: Prepared | LinearRows) -> Memberships:
    """The membership of every person of a block at given parameters."""
    return memberships(block, component_logs(block, params), params)


def row_posteriors(block: RankingBlock, params: Prepared | LinearRows) -> tuple[Floats, Floats]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, n_components) of each row.

    All rows of a group have the posterior of their person. The log-likelihood of a row is then that of the row given
    the rows of the same person before it, divided by its weight: weights times log-likelihoods add up to that of the
    person.
    """
    if isinstance(params, Prepared) and is_plain(block) and not params.n_orders:
        return single_posteriors(block, params)
    if isinstance(params, Prepared) and not params.n_orders:
        block = unorder_last_ties(block)
    logs = component_logs(block, params)
    at = memberships(block, logs, params)
    if block.groups is None or block.within is not None:
        return at.log_likelihoods[at.person], at.by_row
    return conditional_log_likelihoods(block, logs, params), at.by_row
