"""The statistics of one EM pass over a block: wins, expected wins and, for LSR, the rates between items.

With q the probability of a component for a row of weight w, and S the sum of worths on offer at a choice:

- wins[k, i] adds w q for every choice that i won;
- expected_wins[k, i] adds w q worth_i / S for every choice that offered i, so that wins - expected_wins is the gradient
  of the log-likelihood in the log-worths, and the MM step multiplies worths by wins / expected_wins;
- rates[k, j, i] adds w q worth_j / S for every choice that j won while i was on offer: the rate from i to j times the
  worth of j. Scaled so, no entry exceeds the weight of the data, whatever the range of the worths.

What is added up row by row is w q / S alone, called offers here, which worths scaled about 1 keep within float64; the
worths, the same for all rows, are multiplied in at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.kernels.choices import (
    Slots,
    evaluate_row,
    is_listed,
    log_likelihood4,
    logs_of,
    posterior_of_row,
    probabilities_of,
    row_at,
    scratch_at,
    slots_for,
)
from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.jit import kernel, kernel_part
from plmix_dist.kernels.pointers import load, load4, load_index, pointers, store, store4, unpack
from plmix_dist.kernels.posteriors import padded_posteriors
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.rates import (
    RateSums,
    add_rates,
    add_what_is_queued,
    rate_sums,
    rates_by_component,
)
from plmix_dist.kernels.simd import splat4
from plmix_dist.kernels.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.pointers import Room
    from plmix_dist.rankings import RankingBlock

# Sums over unlisted items are formed in one go as long as no more than this share of digits is lost to cancellation.
_WORTH_SPREADING = 1e-4


class EmStatistics(NamedTuple):
    """Sums over rows; those of two blocks add up.

    Parameters
    ----------
    log_likelihood : ()
        Of the observed rows at the current parameters or, with frozen posteriors, at the frozen ones.
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


def em_statistics(
    block: RankingBlock, current: Prepared, frozen: Prepared | None = None, *, with_rates: bool = False
) -> EmStatistics:
    """The statistics of a block at the current parameters.

    With `frozen` parameters the posteriors are those at `frozen`, as in the inner loop of an exact M-step.
    """
    workspace = Workspace.of_thread()
    n_items, width, n_components = current.n_items, current.width, current.n_components
    rows = rows_of(block, width, workspace)
    given = None if frozen is None else padded_posteriors(rows, frozen, workspace)
    probabilities = probabilities_of(rows.n_rows, workspace)
    added = workspace.zeros("sums", (3 * n_items + 2) * width)
    sums = added.array[: 2 * n_items * width].reshape(n_items, 2, width)
    shares, expected = added.array[-2 * width :].reshape(2, width)
    pass_sums = _PassSums(
        probabilities.totals,
        probabilities.scales,
        0 if given is None else given[1],
        added,
        added.address + 16 * n_items * width,
        added.address + 24 * n_items * width,
        added.address + 24 * n_items * width + 8 * width,
    )
    slots = slots_for(rows, current, workspace)
    passed = pointers(rows), workspace.pointers_of(current), pointers(slots), pointers(pass_sums)
    if with_rates:
        rate = rate_sums(block, current, workspace)
        _add_rows_and_rates(*passed, pointers(rate))
        rates = rates_by_component(rate, current)
    else:
        _add_rows(*passed)
        rates = np.zeros((0, n_items, 0))
    if block.below.any():
        _spread_below(passed[1], passed[3])
    logs = logs_of(probabilities) if given is None else given[0]
    offers = sums[:, 0] * current.worths.reshape(n_items, width)
    return EmStatistics(
        log_likelihood=np.array(np.sum(rows.weights.array * logs)),
        expected_log_likelihood=expected[:n_components].copy(),
        shares=shares[:n_components].copy(),
        wins=sums[:, 1, :n_components].T.copy(),
        expected_wins=offers[:, :n_components].T.copy(),
        rates=rates,
    )


class _PassSums(NamedTuple):
    """What a pass adds up.

    `totals` and `scales` get the probability of each row; `given` has the posterior of each row, or is 0. `sums` has
    for each item the offers to it and its wins, `below` the offers noted by `_correct_below`.
    """

    totals: Room
    scales: Room
    given: NDArray[np.float64] | int
    sums: Room
    below: int
    shares: int
    expected: int


@kernel
def _add_rows(rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any) -> None:
    """Add up all rows, without rates: what MM needs."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, sums = unpack(Slots, slots_fields), unpack(_PassSums, sums_fields)
    for first in range(0, rows.n_rows, slots.n_slots):
        end = min(first + slots.n_slots, rows.n_rows)
        _evaluate_rows(first, end, rows, params, slots, sums)
        for index in range(first, end):
            _add_row(row_at(index, rows), params, scratch_at(index - first, slots, params.width), sums)


@kernel
def _add_rows_and_rates(
    rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any, rates_fields: Any
) -> None:
    """Add up all rows, with rates: what LSR needs."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, sums = unpack(Slots, slots_fields), unpack(_PassSums, sums_fields)
    rates = unpack(RateSums, rates_fields)
    for first in range(0, rows.n_rows, slots.n_slots):
        end = min(first + slots.n_slots, rows.n_rows)
        _evaluate_rows(first, end, rows, params, slots, sums)
        for index in range(first, end):
            row, scratch = row_at(index, rows), scratch_at(index - first, slots, params.width)
            _add_row(row, params, scratch, sums)
            add_rates(row, load(rows.weights, index), params, scratch, rates)
    add_what_is_queued(params, rates)


@kernel_part
def _evaluate_rows(first: int, end: int, rows: Any, params: Any, slots: Any, sums: Any) -> None:
    """Fill the scratch of some rows, with posteriors that are given or else those at the current parameters."""
    width = params.width
    for index in range(first, end):
        evaluate_row(row_at(index, rows), params, scratch_at(index - first, slots, width))
    for index in range(first, end):
        scratch, weight = scratch_at(index - first, slots, width), load(rows.weights, index)
        if sums.given != 0:
            _take_posterior(sums.given + 8 * index * width, weight, width, scratch)
        else:
            total, scale = posterior_of_row(weight, params, scratch)
            store(sums.totals, index, total)
            store(sums.scales, index, scale)


@kernel_part
def _add_row(row: Any, params: Any, scratch: Any, sums: Any) -> None:
    """Add one row that was evaluated to all sums but the rates."""
    for lane in range(0, params.width, 4):
        share = load4(scratch.posterior, lane)
        store4(sums.shares, lane, load4(sums.shares, lane) + share)
        logs = log_likelihood4(scratch, lane)
        store4(sums.expected, lane, load4(sums.expected, lane) + share * logs)
        _add_wins(row, lane, params.width, share, scratch.inverse, sums.sums)
    if row.below:
        _correct_below(row, params, scratch, sums.sums, sums.below)


@kernel_part
def _take_posterior(given: int, weight: float, width: int, scratch: Any) -> None:
    """The posterior of a row from where it is given."""
    for lane in range(0, width, 4):
        store4(scratch.posterior, lane, load4(given, lane) * splat4(weight))


@kernel_part
def _add_wins(row: Any, lane: int, width: int, share: Any, inverse: int, sums: int) -> None:
    """Offers to all listed items, and wins of the ordered ones, of four components."""
    offers = splat4(0.0)
    place = 0
    while place + 4 <= row.n_choices:
        # Four places at once: sums depend on each other only from one group to the next.
        entry = place * width + lane
        added_0 = share * load4(inverse, entry)
        added_1 = share * load4(inverse, entry + width)
        added_2 = share * load4(inverse, entry + 2 * width)
        added_3 = share * load4(inverse, entry + 3 * width)
        offers_0 = offers + added_0
        offers_1 = offers + (added_0 + added_1)
        offers_2 = offers_1 + added_2
        offers = offers_1 + (added_2 + added_3)
        _add_win(load_index(row.entries, place), lane, width, offers_0, share, sums)
        _add_win(load_index(row.entries, place + 1), lane, width, offers_1, share, sums)
        _add_win(load_index(row.entries, place + 2), lane, width, offers_2, share, sums)
        _add_win(load_index(row.entries, place + 3), lane, width, offers, share, sums)
        place += 4
    while place < row.n_choices:
        offers = offers + share * load4(inverse, place * width + lane)
        _add_win(load_index(row.entries, place), lane, width, offers, share, sums)
        place += 1
    while place < row.n_listed:
        entry = 2 * load_index(row.entries, place) + lane
        store4(sums, entry, load4(sums, entry) + offers)
        place += 1


@kernel_part
def _add_win(entry: int, lane: int, width: int, offers: Any, share: Any, sums: int) -> None:
    """One choice won by an item, after all its offers."""
    entry = 2 * entry + lane
    store4(sums, entry, load4(sums, entry) + offers)
    store4(sums, entry + width, load4(sums, entry + width) + share)


@kernel_part
def _correct_below(row: Any, params: Any, scratch: Any, sums: int, below_sums: int) -> None:
    """Offers to unlisted items: noted once for all of a component's order from the first unlisted item on.

    Listed items further down that order get the same in `_spread_below`; here it is taken off again. Where that would
    leave a small difference of large numbers, the unlisted items are gone through one by one instead.
    """
    width, n_items = params.width, params.n_items
    for component in range(params.n_components):
        total = 0.0
        for place in range(row.n_choices):
            total += load(scratch.inverse, place * width + component)
        offers = load(scratch.posterior, component) * total
        if load(scratch.inverse, component) < _WORTH_SPREADING * total:
            for item in range(n_items):
                if not is_listed(row, item, scratch):
                    _add(sums, item * 2 * width + component, offers)
        else:
            first = load_index(scratch.first_unlisted, component)
            _add(below_sums, first * width + component, offers)
            for place in range(row.n_listed):
                entry = load_index(row.entries, place)
                if load_index(params.rank, entry + component) >= first:
                    _add(sums, 2 * entry + component, -offers)


@kernel_part
def _add(sums: int, entry: int, value: float) -> None:
    store(sums, entry, load(sums, entry) + value)


@kernel
def _spread_below(params_fields: Any, sums_fields: Any) -> None:
    """Give every item what was noted for the places at or before its own in the order by falling worth."""
    params, sums = unpack(Prepared, params_fields), unpack(_PassSums, sums_fields)
    width, n_items = params.width, params.n_items
    for component in range(params.n_components):
        carried = 0.0
        for place in range(n_items):
            item = load_index(params.order, component * n_items + place)
            carried += load(sums.below, place * width + component)
            _add(sums.sums, item * 2 * width + component, carried)
