"""Parts that evaluate rows and add one row to the sums of an EM pass, and to the rates between items."""

from __future__ import annotations

from typing import Any

import numpy as np

from plmix_dist.kernels.compiled.choices import (
    evaluate_row,
    is_listed,
    item_at,
    leaves_few,
    log_likelihood4,
    posterior_of_row,
    row_at,
    scratch_at,
)
from plmix_dist.kernels.compiled.jit import kernel_part
from plmix_dist.kernels.compiled.vectors import (
    load,
    load4,
    load_index,
    load_uint8,
    power_of_two4,
    splat4,
    store,
    store4,
    store_index,
    where_greater4,
)
from plmix_dist.kernels.em_pass import BY_LINE, BY_PAIR, QUEUE, SIDE_BY_SIDE

# Offers to unlisted items are noted once if the first offer is at least this share of all offers of the row. Below
# that, subtracting them from listed items would lose too many digits.
_WORTH_SPREADING = 1e-4


@kernel_part
def evaluate_rows(first: int, end: int, rows: Any, params: Any, slots: Any, sums: Any) -> None:
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
def posteriors_of_row(index: int, weight: float, params: Any, scratch: Any, sums: Any, batch: Any) -> None:
    """Fill the posteriors of a row in all mixtures of a batch; note its probability in each as total * 2**scale."""
    n_components = batch.n_components
    for lane in range(0, params.width, 4):
        store4(scratch.exponent, lane, load4(scratch.exponent, lane) + load4(params.share_exponents, lane))
        store4(scratch.mantissa, lane, load4(scratch.mantissa, lane) * load4(params.share_mantissas, lane))
    for mixture in range(batch.n_mixtures):
        scale = -np.inf
        for lane in range(mixture * n_components, (mixture + 1) * n_components):
            scale = max(scale, load(scratch.exponent, lane))
        store(sums.scales, mixture * batch.n_rows + index, scale)
        for lane in range(mixture * n_components, (mixture + 1) * n_components):
            store(scratch.posterior, lane, scale)
    for lane in range(0, params.width, 4):
        power = power_of_two4(load4(scratch.exponent, lane) - load4(scratch.posterior, lane))
        store4(scratch.posterior, lane, load4(scratch.mantissa, lane) * power)
    for mixture in range(batch.n_mixtures):
        total = 0.0
        for lane in range(mixture * n_components, (mixture + 1) * n_components):
            total += load(scratch.posterior, lane)
        store(sums.totals, mixture * batch.n_rows + index, total)
        factor = weight / total
        for lane in range(mixture * n_components, (mixture + 1) * n_components):
            store(scratch.posterior, lane, load(scratch.posterior, lane) * factor)


@kernel_part
def add_row(row: Any, params: Any, scratch: Any, sums: Any) -> None:
    """Add one row that was evaluated to all sums but the rates."""
    for lane in range(0, params.width, 4):
        share = load4(scratch.posterior, lane)
        store4(sums.shares, lane, load4(sums.shares, lane) + share)
        if sums.expected != 0:
            logs = log_likelihood4(scratch, lane)
            store4(sums.expected, lane, load4(sums.expected, lane) + share * logs)
        _add_wins(row, lane, params, share, scratch, sums.sums)
    if row.below and not leaves_few(row, params):
        for component in range(params.n_components):
            _correct_below(row, component, params, scratch, sums.sums, sums.below)


@kernel_part
def add_member(row: Any, component: int, params: Any, scratch: Any, sums: Any) -> None:
    """Add one row that was evaluated, and is a member of one component, to shares, wins and offers."""
    lane = component // 4 * 4
    share = load4(scratch.posterior, lane)
    store4(sums.shares, lane, load4(sums.shares, lane) + share)
    _add_wins(row, lane, params, share, scratch, sums.sums)
    if row.below and not leaves_few(row, params):
        _correct_below(row, component, params, scratch, sums.sums, sums.below)


@kernel_part
def _take_posterior(given: int, weight: float, width: int, scratch: Any) -> None:
    """The posterior of a row from where it is given."""
    for lane in range(0, width, 4):
        store4(scratch.posterior, lane, load4(given, lane) * splat4(weight))


@kernel_part
def _add_wins(row: Any, lane: int, params: Any, share: Any, scratch: Any, sums: int) -> None:
    """Offers to listed items, and to unlisted ones if they are few; wins of ordered items; of four components."""
    width, inverse = params.width, scratch.inverse
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
    if row.below and leaves_few(row, params):
        for number in range(load_index(scratch.first_unlisted, 0)):
            entry = 2 * load_index(scratch.others, number) + lane
            store4(sums, entry, load4(sums, entry) + offers)


@kernel_part
def _add_win(entry: int, lane: int, width: int, offers: Any, share: Any, sums: int) -> None:
    """One choice won by an item, after all its offers."""
    entry = 2 * entry + lane
    store4(sums, entry, load4(sums, entry) + offers)
    store4(sums, entry + width, load4(sums, entry + width) + share)


@kernel_part
def _correct_below(row: Any, component: int, params: Any, scratch: Any, sums: int, below_sums: int) -> None:
    """Offers to unlisted items: noted once, at the first unlisted item in a component's order by falling worth.

    The kernel `spread_below` gives them to that item and to all items after it. Listed items among these must not get
    them, so the offers are subtracted from theirs here. Where that would leave a small difference of large numbers,
    the offers are added to the unlisted items one by one instead.
    """
    width, n_items = params.width, params.n_items
    total = 0.0
    for place in range(row.n_choices):
        total += load(scratch.inverse, place * width + component)
    offers = load(scratch.posterior, component) * total
    if load(scratch.inverse, component) < _WORTH_SPREADING * total:
        for item in range(n_items):
            if not is_listed(row, item, scratch):
                add(sums, item * 2 * width + component, offers)
    else:
        first = load_index(scratch.first_unlisted, component)
        add(below_sums, first * width + component, offers)
        for place in range(row.n_listed):
            entry = load_index(row.entries, place)
            if load_index(params.rank, entry + component) >= first:
                add(sums, 2 * entry + component, -offers)


@kernel_part
def add(sums: int, entry: int, value: float) -> None:
    """Add a number to an entry of an array."""
    store(sums, entry, load(sums, entry) + value)


# Rates of one row, in one of the four ways of `em_pass.py`.

# A component that has less than this share of a row adds nothing to its rates: a bounded error, far below rounding.
_NEGLIGIBLE = 1e-15
# The place of unlisted items that rank below all listed ones.
_BELOW = 1e9


@kernel_part
def add_rates(row: Any, weight: float, params: Any, scratch: Any, rates: Any) -> None:
    """Rates from everything still on offer to the winner of each choice of a row."""
    way = load_uint8(rates.ways, row.number - 1)
    if way == SIDE_BY_SIDE:
        _add_side_by_side(row, params, scratch, rates)
    else:
        for component in range(params.n_components):
            # NaN is not negligible: it must propagate.
            if not load(scratch.posterior, component) < _NEGLIGIBLE * weight:
                if way == BY_PAIR:
                    _add_by_pair(row, component, params, scratch, rates)
                elif way == BY_LINE:
                    _add_by_line(row, component, params, scratch, rates)
                else:
                    _add_queued(row, component, params, scratch, rates)


@kernel_part
def _add_side_by_side(row: Any, params: Any, scratch: Any, rates: Any) -> None:
    """Add to every pair of a winner and an item it beat, four components at once."""
    width, side_by_side = params.width, rates.side_by_side
    entries, n_on_offer = row.entries, row.n_listed
    if row.below:
        _fill_on_offer(row, params, scratch, rates)
        entries, n_on_offer = rates.on_offer, params.n_items
    for lane in range(0, width, 4):
        share = load4(scratch.posterior, lane)
        for place in range(row.n_choices):
            winner = load_index(entries, place)
            chance = load4(scratch.inverse, place * width + lane) * load4(params.worths, winner + lane)
            rate = share * chance
            line = winner * params.n_items + lane
            for other in range(place + 1, n_on_offer):
                entry = line + load_index(entries, other)
                store4(side_by_side, entry, load4(side_by_side, entry) + rate)


@kernel_part
def _fill_on_offer(row: Any, params: Any, scratch: Any, rates: Any) -> None:
    """Listed items in their order, and behind them those not listed."""
    for place in range(row.n_listed):
        store_index(rates.on_offer, place, load_index(row.entries, place))
    place = row.n_listed
    for item in range(params.n_items):
        if not is_listed(row, item, scratch):
            store_index(rates.on_offer, place, item * params.width)
            place += 1


@kernel_part
def _rate_at(place: int, row: Any, component: int, params: Any, scratch: Any) -> float:
    """What the winner of a choice adds to each item it beat, in one component."""
    inverse = load(scratch.inverse, place * params.width + component)
    chance = inverse * load(params.worths, load_index(row.entries, place) + component)
    return load(scratch.posterior, component) * chance


@kernel_part
def _add_by_pair(row: Any, component: int, params: Any, scratch: Any, rates: Any) -> None:
    """Add to every pair of a winner and an item it beat."""
    for place in range(row.n_choices):
        rate = _rate_at(place, row, component, params, scratch)
        line = (component * params.n_items + item_at(place, row, params)) * rates.padded
        for other in range(place + 1, row.n_listed):
            entry = line + item_at(other, row, params)
            store(rates.lines, entry, load(rates.lines, entry) + rate)


@kernel_part
def _add_by_line(row: Any, component: int, params: Any, scratch: Any, rates: Any) -> None:
    """Add a line for each winner."""
    slot = component * QUEUE + load_index(rates.n_queued, component)
    first = slot * rates.padded
    _fill_places(row, first, params, rates)
    for place in range(row.n_choices):
        rate = splat4(_rate_at(place, row, component, params, scratch))
        here = splat4(np.float64(place))
        line = (component * params.n_items + item_at(place, row, params)) * rates.padded
        for loser in range(0, rates.padded, 4):
            beaten = where_greater4(load4(rates.places, first + loser), here, rate)
            store4(rates.lines, line + loser, load4(rates.lines, line + loser) + beaten)


@kernel_part
def _fill_places(row: Any, first: int, params: Any, rates: Any) -> None:
    """The place of each item: it is on offer at all choices up to that; an unlisted one at all or at none."""
    if row.n_listed < rates.padded:
        for item in range(rates.padded):
            store(rates.places, first + item, _BELOW if row.below else -1.0)
    for place in range(row.n_listed):
        store(rates.places, first + item_at(place, row, params), np.float64(place))


@kernel_part
def _add_queued(row: Any, component: int, params: Any, scratch: Any, rates: Any) -> None:
    """Let a row wait until there are enough of its component, then add a line for each item as a winner."""
    n_items = params.n_items
    n_queued = load_index(rates.n_queued, component)
    slot = component * QUEUE + n_queued
    _fill_places(row, slot * rates.padded, params, rates)
    for item in range(n_items):
        store(rates.queued, slot * n_items + item, 0.0)
    for place in range(row.n_choices):
        rate = _rate_at(place, row, component, params, scratch)
        store(rates.queued, slot * n_items + item_at(place, row, params), rate)
    n_queued += 1
    if n_queued == QUEUE:
        _sweep_queue(component, n_items, rates)
        n_queued = 0
    store_index(rates.n_queued, component, n_queued)


@kernel_part
def _sweep_queue(component: int, n_items: int, rates: Any) -> None:
    """Add the rates of the queued rows of a component, line by line."""
    lines, padded = rates.lines, rates.padded
    places_0 = rates.places + 8 * component * QUEUE * padded
    places_1, places_2, places_3 = places_0 + 8 * padded, places_0 + 16 * padded, places_0 + 24 * padded
    queued_0 = rates.queued + 8 * component * QUEUE * n_items
    queued_1, queued_2, queued_3 = queued_0 + 8 * n_items, queued_0 + 16 * n_items, queued_0 + 24 * n_items
    for winner in range(n_items):
        here_0, here_1 = splat4(load(places_0, winner)), splat4(load(places_1, winner))
        here_2, here_3 = splat4(load(places_2, winner)), splat4(load(places_3, winner))
        rate_0, rate_1 = splat4(load(queued_0, winner)), splat4(load(queued_1, winner))
        rate_2, rate_3 = splat4(load(queued_2, winner)), splat4(load(queued_3, winner))
        line = (component * n_items + winner) * padded
        for loser in range(0, padded, 4):
            beaten_0 = where_greater4(load4(places_0, loser), here_0, rate_0)
            beaten_1 = where_greater4(load4(places_1, loser), here_1, rate_1)
            beaten_2 = where_greater4(load4(places_2, loser), here_2, rate_2)
            beaten_3 = where_greater4(load4(places_3, loser), here_3, rate_3)
            added = (beaten_0 + beaten_1) + (beaten_2 + beaten_3)
            store4(lines, line + loser, load4(lines, line + loser) + added)


@kernel_part
def add_what_is_queued(params: Any, rates: Any) -> None:
    """Add the rates of rows that still wait after the last; empty slots of a queue add nothing."""
    n_items = params.n_items
    for component in range(rates.n_queues):
        n_queued = load_index(rates.n_queued, component)
        if n_queued > 0:
            first = component * QUEUE * n_items
            for entry in range(first + n_queued * n_items, first + QUEUE * n_items):
                store(rates.queued, entry, 0.0)
            _sweep_queue(component, n_items, rates)
