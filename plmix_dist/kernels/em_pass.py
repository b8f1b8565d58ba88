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

from plmix_dist.kernels.jit import kernel, kernel_part
from plmix_dist.kernels.likelihood import padded_posteriors
from plmix_dist.kernels.memory import (
    address_of,
    aligned_zeros,
    load,
    load4,
    load_index,
    load_uint8,
    store,
    store4,
)
from plmix_dist.kernels.prepared import parameters_of
from plmix_dist.kernels.rates import (
    NO_RATES,
    add_rates,
    add_what_is_queued,
    rate_sums,
    rates_by_component,
    rates_of,
)
from plmix_dist.kernels.row import (
    evaluate_row,
    is_listed,
    log_likelihood4,
    logs_of_rows,
    posterior_of_row,
    row_at,
    scratch_at,
    scratch_memory,
    slots_of,
    totals_and_scales,
)
from plmix_dist.kernels.rows import addresses_of, rows_of
from plmix_dist.kernels.simd import splat4

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.prepared import Prepared
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
    n_items, width, n_components = current.n_items, current.width, current.n_components
    rows = rows_of(block, width)
    n_rows = block.n_rankings
    sums, below_sums = aligned_zeros(n_items, 2, width), np.zeros((n_items, width))
    shares, expected = np.zeros((2, width))
    rates = rate_sums(block, current) if with_rates else NO_RATES
    totals, scales = totals_and_scales(n_rows)
    logs, given = (totals, np.empty((0, width))) if frozen is None else padded_posteriors(rows, frozen)
    memory = scratch_memory(rows, current)
    _accumulate(rows, current, given, memory, totals, scales, sums, below_sums, shares, expected, rates)
    if frozen is None:
        logs_of_rows(totals, scales)
    if block.below.any():
        _spread_below(current, below_sums, sums)
    offers = sums[:, 0] * current.worths.reshape(n_items, width)
    return EmStatistics(
        log_likelihood=np.array(np.sum(rows.weights * logs[:n_rows])),
        expected_log_likelihood=expected[:n_components],
        shares=shares[:n_components],
        wins=np.ascontiguousarray(sums[:, 1, :n_components].T),
        expected_wins=np.ascontiguousarray(offers[:, :n_components].T),
        rates=rates_by_component(rates, current),
    )


@kernel
def _accumulate(
    rows_in: Any,
    prepared: Any,
    given: Any,
    memory: Any,
    totals: Any,
    scales: Any,
    sums: Any,
    below_sums: Any,
    shares: Any,
    expected: Any,
    rate_sums: Any,
) -> None:
    """Run over all rows, with posteriors that are given or else those at the current parameters."""
    params, slots = parameters_of(prepared), slots_of(memory)
    rows, rates = addresses_of(rows_in), rates_of(rate_sums)
    totals_into, scales_into = address_of(totals), address_of(scales)
    into, below_into = address_of(sums), address_of(below_sums)
    shares_into, expected_into = address_of(shares), address_of(expected)
    is_given, given_from = given.shape[0] > 0, address_of(given)
    width = params.width
    for first in range(0, rows.n_rows, slots.n_slots):
        end = min(first + slots.n_slots, rows.n_rows)
        for index in range(first, end):
            evaluate_row(row_at(index, rows), params, scratch_at(index - first, slots, width))
        for index in range(first, end):
            scratch, weight = scratch_at(index - first, slots, width), load(rows.weights, index)
            if is_given:
                _take_posterior(given_from + 8 * index * width, weight, width, scratch)
            else:
                total, scale = posterior_of_row(weight, params, scratch)
                store(totals_into, index, total)
                store(scales_into, index, scale)
        for index in range(first, end):
            row, scratch = row_at(index, rows), scratch_at(index - first, slots, width)
            for lane in range(0, width, 4):
                share = load4(scratch.posterior, lane)
                store4(shares_into, lane, load4(shares_into, lane) + share)
                logs = log_likelihood4(scratch, lane)
                store4(expected_into, lane, load4(expected_into, lane) + share * logs)
                _add_wins(row, lane, width, share, scratch.inverse, into)
            if row.below:
                _correct_below(row, params, scratch, into, below_into)
            if rates.padded > 0:
                way = load_uint8(rates.ways, index)
                add_rates(row, way, load(rows.weights, index), params, scratch, rates)
    if rate_sums.n_queued.shape[0] > 0:
        add_what_is_queued(params, rates)


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
def _spread_below(params: Any, below_sums: Any, sums: Any) -> None:
    """Give every item what was noted for the places at or before its own in the order by falling worth."""
    for component in range(params.n_components):
        carried = 0.0
        for place in range(params.n_items):
            item = np.intp(params.order[component * params.n_items + place])
            carried += below_sums[place, component]
            sums[item, 0, component] += carried
