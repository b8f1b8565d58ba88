"""Kernel: the sums of an EM pass without rates, as MM needs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from plmix_dist.kernels.batch import BatchSums
from plmix_dist.kernels.compiled.choices import (
    evaluate_row,
    item_at,
    log_likelihood4,
    posterior_of_row,
    row_at,
    scratch_at,
)
from plmix_dist.kernels.compiled.jit import kernel, kernel_part
from plmix_dist.kernels.compiled.sums import (
    add,
    add_member,
    add_rates,
    add_row,
    add_what_is_queued,
    evaluate_rows,
    posteriors_of_row,
)
from plmix_dist.kernels.compiled.ties import add_tied_row
from plmix_dist.kernels.compiled.vectors import (
    load,
    load4,
    load_index,
    load_uint8,
    load_uint16,
    load_uint32,
    load_uint63,
    log4,
    splat4,
    store,
    store4,
    store_index,
    unpack,
    where_greater4,
)
from plmix_dist.kernels.draws import RandomNumbers
from plmix_dist.kernels.em_pass import PassSums, RateSums
from plmix_dist.kernels.information import InformationSums
from plmix_dist.kernels.memberships import FilledLogs, FilledPosteriors
from plmix_dist.kernels.pairs import Surprises, WinSums
from plmix_dist.kernels.prepared import Items, Prepared, Probabilities, Rows, Slots
from plmix_dist.kernels.tied_choices import TieSums


@kernel
def add_rows(rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any) -> None:
    """Add up all rows, without rates: what MM needs."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, sums = unpack(Slots, slots_fields), unpack(PassSums, sums_fields)
    first = 0
    while first < rows.n_rows:
        end = min(first + slots.n_slots, rows.n_rows)
        evaluate_rows(first, end, rows, params, slots, sums)
        for index in range(first, end):
            add_row(row_at(index, rows), params, scratch_at(index - first, slots, params.width), sums)
        first = end


# Kernel: the same for several mixtures, whose components lie side by side.


@kernel
def add_batch(rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any, batch_fields: Any) -> None:
    """Add up all rows for each mixture of a batch, without rates."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, sums = unpack(Slots, slots_fields), unpack(PassSums, sums_fields)
    batch = unpack(BatchSums, batch_fields)
    first = 0
    while first < rows.n_rows:
        end = min(first + slots.n_slots, rows.n_rows)
        for index in range(first, end):
            evaluate_row(row_at(index, rows), params, scratch_at(index - first, slots, params.width))
        for index in range(first, end):
            scratch = scratch_at(index - first, slots, params.width)
            posteriors_of_row(index, load(rows.weights, index), params, scratch, sums, batch)
        for index in range(first, end):
            add_row(row_at(index, rows), params, scratch_at(index - first, slots, params.width), sums)
        first = end


# Kernel: the sums of an EM pass with rates, as LSR needs them.


@kernel
def add_rows_and_rates(
    rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any, rates_fields: Any
) -> None:
    """Add up all rows, with rates: what LSR needs."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, sums = unpack(Slots, slots_fields), unpack(PassSums, sums_fields)
    rates = unpack(RateSums, rates_fields)
    first = 0
    while first < rows.n_rows:
        end = min(first + slots.n_slots, rows.n_rows)
        evaluate_rows(first, end, rows, params, slots, sums)
        for index in range(first, end):
            row, scratch = row_at(index, rows), scratch_at(index - first, slots, params.width)
            add_row(row, params, scratch, sums)
            add_rates(row, load(rows.weights, index), params, scratch, rates)
        first = end
    add_what_is_queued(params, rates)


# Kernel: the sums of a Gibbs sweep, with a component drawn for each row and an exponential for each choice.


@kernel
def add_draws(rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any, random_fields: Any) -> None:
    """Draw the component of each row, or take the given one, and add up wins and exponentials there."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, sums = unpack(Slots, slots_fields), unpack(PassSums, sums_fields)
    random = unpack(RandomNumbers, random_fields)
    width = params.width
    first, used = 0, 0
    while first < rows.n_rows:
        end = min(first + slots.n_slots, rows.n_rows)
        for index in range(first, end):
            evaluate_row(row_at(index, rows), params, scratch_at(index - first, slots, width))
        for index in range(first, end):
            row, scratch = row_at(index, rows), scratch_at(index - first, slots, width)
            if random.given != 0:
                chosen = load_index(random.given, index)
            else:
                total, scale = posterior_of_row(1.0, params, scratch)
                store(sums.totals, index, total)
                store(sums.scales, index, scale)
                chosen = _drawn_component(load(random.uniforms, index), params, scratch)
            lane = chosen // 4 * 4
            for component in range(width):
                store(scratch.posterior, component, 0.0)
            store(scratch.posterior, chosen, load(rows.weights, index))
            for place in range(row.n_choices):
                entry = place * width + lane
                exponential = splat4(load(random.exponentials, used + place))
                store4(scratch.inverse, entry, load4(scratch.inverse, entry) * exponential)
            used += row.n_choices
            add_member(row, chosen, params, scratch, sums)
        first = end


@kernel_part
def _drawn_component(uniform: float, params: Any, scratch: Any) -> int:
    """The first component at which the sum of posteriors exceeds a uniform number."""
    reached, chosen = 0.0, params.n_components - 1
    for component in range(params.n_components):
        before = reached
        reached += load(scratch.posterior, component)
        if before <= uniform and uniform < reached:
            chosen = component
    return chosen


# Kernel: scores of rows, and what the variances of choices are made of.

# Components with less than this share of a row are left out of it: curvature guides steps, and is not a result.
_LEAST_POSTERIOR = 1e-6


@kernel
def add_information(rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any) -> None:
    """Fill scores q s, and add up what the variances of choices are made of.

    `own[k, i]` adds w q times the variance of item i alone; `shared[k, i, j]`, of two items, w q worth_i times the sum
    of 1 / S^2 over the choices that offered both, in the row of the one that left first.
    """
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    sums = unpack(InformationSums, sums_fields)
    scratch = scratch_at(0, unpack(Slots, slots_fields), params.width)
    n_items, n_components = params.n_items, params.n_components
    for index in range(rows.n_rows):
        row = row_at(index, rows)
        evaluate_row(row, params, scratch)
        _fill_places(row, params, sums)
        for component in range(n_components):
            share = load(sums.posteriors, index * n_components + component)
            if share >= _LEAST_POSTERIOR:
                of_component = InformationSums(
                    sums.posteriors,
                    sums.own + 8 * component * n_items,
                    sums.shared + 8 * component * n_items * sums.padded,
                    sums.scores + 8 * (index * n_components + component) * n_items,
                    sums.places,
                    sums.padded,
                )
                weight = share * load(rows.weights, index)
                _add_component(row, component, share, weight, params, scratch, of_component)


@kernel_part
def _fill_places(row: Any, params: Any, sums: Any) -> None:
    """The place of each item: it is on offer at all choices up to that one.

    Items that are not ordered are on offer at all choices, absent ones at none.
    """
    for item in range(sums.padded):
        store(sums.places, item, np.float64(row.n_choices) if row.below and item < params.n_items else -1.0)
    for place in range(row.n_listed):
        store(sums.places, item_at(place, row, params), np.float64(min(place, row.n_choices)))


@kernel_part
def _add_component(row: Any, component: int, share: float, weight: float, params: Any, scratch: Any, sums: Any) -> None:
    """Add one row to the sums of one component, whose addresses are given."""
    width, places, padded = params.width, sums.places, sums.padded
    offers, squares = 0.0, 0.0
    for place in range(row.n_choices):
        item = item_at(place, row, params)
        inverse = load(scratch.inverse, place * width + component)
        worth = load(params.worths, item * width + component)
        offers += inverse
        squares += inverse * inverse
        store(sums.scores, item, share * (1.0 - worth * offers))
        store(sums.own, item, load(sums.own, item) + weight * (worth * offers - worth * worth * squares))
        here, added = splat4(np.float64(place)), splat4(weight * (worth * squares))
        for other in range(item * padded, (item + 1) * padded, 4):
            with_both = where_greater4(load4(places, other - item * padded), here, added)
            store4(sums.shared, other, load4(sums.shared, other) + with_both)
    for item in range(params.n_items):
        if load(places, item) == row.n_choices:
            worth = load(params.worths, item * width + component)
            store(sums.scores, item, -share * (worth * offers))
            store(sums.own, item, load(sums.own, item) + weight * (worth * offers - worth * worth * squares))
            for other in range(item + 1, params.n_items):
                if load(places, other) == row.n_choices:
                    entry = item * padded + other
                    store(sums.shared, entry, load(sums.shared, entry) + weight * (worth * squares))


# Kernel: the choices that each item lost beyond what one model expects.


@kernel
def add_surprises(rows_fields: Any, sums_fields: Any) -> None:
    """Add up the surprises of all rows."""
    rows, sums = unpack(Rows, rows_fields), unpack(Surprises, sums_fields)
    for row in range(rows.n_rows):
        start, stop = load_uint63(rows.offsets, row), load_uint63(rows.offsets, row + 1)
        for entry in range(start, start + load_index(rows.n_ordered, row)):
            log_worth = load(sums.log_worths, load_index(rows.entries, entry))
            for later in range(entry + 1, stop):
                # The probability that the later one would have come first.
                other = load(sums.log_worths, load_index(rows.entries, later))
                upset = 1.0 / (1.0 + np.exp(log_worth - other))
                store(sums.surprises, entry, load(sums.surprises, entry) - upset)
                store(sums.surprises, later, load(sums.surprises, later) + upset)


# Kernel: how often each item was ranked before each other.


@kernel
def count_wins(rows_fields: Any, sums_fields: Any) -> None:
    """Add up the wins of all rows."""
    rows, sums = unpack(Rows, rows_fields), unpack(WinSums, sums_fields)
    for row in range(rows.n_rows):
        start, stop = load_uint63(rows.offsets, row), load_uint63(rows.offsets, row + 1)
        below = load_uint8(rows.below, row) != 0
        for entry in range(start, stop):
            store_index(sums.listed, load_index(rows.entries, entry), row + 1)
        for component in range(sums.n_components):
            weight = load(rows.weights, row)
            added = weight * load(sums.memberships, row * sums.n_components + component)
            if added != 0.0:
                for entry in range(start, start + load_index(rows.n_ordered, row)):
                    winner = component * sums.n_items + load_index(rows.entries, entry)
                    line = winner * sums.n_items
                    for other in range(entry + 1, stop):
                        add(sums.wins, line + load_index(rows.entries, other), added)
                    if below:
                        _add_to_unlisted(line, row + 1, added, sums)


@kernel_part
def _add_to_unlisted(line: int, number: int, added: float, sums: Any) -> None:
    """Add wins of one item over all items that a row does not list."""
    for item in range(sums.n_items):
        if load_index(sums.listed, item) != number:
            add(sums.wins, line + item, added)


# Kernel: entries of items, which may be numbers of one, two or four bytes.


@kernel
def fill_entries(fields: Any) -> None:
    """Make entries of items."""
    of = unpack(Items, fields)
    if of.item_bytes == 1:
        for place in range(of.n_listed):
            store_index(of.entries, place, of.width * load_uint8(of.items, place))
    elif of.item_bytes == 2:
        for place in range(of.n_listed):
            store_index(of.entries, place, of.width * load_uint16(of.items, place))
    else:
        for place in range(of.n_listed):
            store_index(of.entries, place, of.width * load_uint32(of.items, place))


# Kernel: the log-probability of each row under each component.


@kernel
def fill_logs(rows_fields: Any, params_fields: Any, slots_fields: Any, filled_fields: Any) -> None:
    """Fill the log-probability of each row under each component."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, filled = unpack(Slots, slots_fields), unpack(FilledLogs, filled_fields)
    scratch = scratch_at(0, slots, params.width)
    for index in range(rows.n_rows):
        evaluate_row(row_at(index, rows), params, scratch)
        for lane in range(0, params.width, 4):
            store4(filled.logs, index * params.width + lane, log_likelihood4(scratch, lane))


# Kernel: rows with ties as outcomes of choices.


@kernel
def add_tied_rows(rows_fields: Any, params_fields: Any, sums_fields: Any) -> None:
    """Fill the log-probability of each row; add up wins and ties at posteriors, where they are given."""
    rows, params, sums = unpack(Rows, rows_fields), unpack(Prepared, params_fields), unpack(TieSums, sums_fields)
    for index in range(rows.n_rows):
        add_tied_row(index, rows, params, sums)


# Kernel: the posterior and the probability of each row.


@kernel
def fill_posteriors(rows_fields: Any, params_fields: Any, slots_fields: Any, filled_fields: Any) -> None:
    """Fill the posterior of each row, and its probability as total * 2**scale."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, filled = unpack(Slots, slots_fields), unpack(FilledPosteriors, filled_fields)
    scratch = scratch_at(0, slots, params.width)
    for index in range(rows.n_rows):
        evaluate_row(row_at(index, rows), params, scratch)
        total, scale = posterior_of_row(1.0, params, scratch)
        store(filled.totals, index, total)
        store(filled.scales, index, scale)
        for lane in range(0, params.width, 4):
            store4(filled.posteriors, index * params.width + lane, load4(scratch.posterior, lane))


# Kernel: what was noted for places in the order by falling worth, given to items.


@kernel
def spread_below(params_fields: Any, sums_fields: Any) -> None:
    """Add to each item what was noted for its own place and all places before it."""
    params, sums = unpack(Prepared, params_fields), unpack(PassSums, sums_fields)
    width, n_items = params.width, params.n_items
    for component in range(params.n_components):
        carried = 0.0
        for place in range(n_items):
            item = load_index(params.order, component * n_items + place)
            carried += load(sums.below, place * width + component)
            entry = item * 2 * width + component
            add(sums.sums, entry, carried)


# Kernel: logarithms of probabilities.


@kernel
def take_logs(fields: Any) -> None:
    """Replace each total by log(total * 2**scale), in whole vectors of four."""
    of = unpack(Probabilities, fields)
    log_2 = splat4(np.log(2.0))
    for row in range(0, of.size // 4 * 4, 4):
        store4(of.totals, row, log4(load4(of.totals, row)) + load4(of.scales, row) * log_2)
