"""Parts that evaluate the choices of one row: sums of worths on offer, and the probability under each component.

A choice is won by an ordered item out of the items still on offer, with probability worth / sum of worths. The sums are
formed from the last place backwards: subtracting from a running total would lose all digits where one item dominates.
Where unlisted items rank below, their worths are added up one by one if they are few. If they are many, take the items
by falling worth and begin with the first unlisted one. The sum of worths from there on is known; the listed items among
them are subtracted. So this sum, too, is never the small difference of two large numbers.

Four choices share one division, the slowest operation: the inverses of four sums follow from the inverse of their
product. Probabilities are kept as mantissa * 2**exponent. This costs neither logarithms nor exponentials, and gives
posteriors with all their digits, however unlikely a long row is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from plmix_dist.kernels.compiled.jit import kernel_part
from plmix_dist.kernels.compiled.vectors import (
    exponent4,
    highest_lane4,
    load,
    load4,
    load_index,
    load_uint8,
    load_uint63,
    log4_of_scaled,
    mantissa4,
    power_of_two4,
    splat4,
    store,
    store4,
    store_index,
    sum_lanes4,
)

# The chance of a single choice can be as small as float64 holds: products of chances start that much higher.
_LOG2_HEADROOM = 100.0
_HEADROOM = 2.0**100
# Unlisted items are added up one by one if the row lists at least one of this many: whole vectors are added, and no
# component needs an order of its own.
_FEW_PER_LISTED = 8


class Row(NamedTuple):
    """A row for the parts of kernels: where its items are, how many it lists and how many of these won a choice.

    Items are given by where the numbers of each begin in the array of worths: `entries[place]` is item * width.
    `number` counts rows from 1; `below`: whether items it does not list rank below.
    """

    entries: int
    number: int
    n_listed: int
    n_choices: int
    below: bool


@kernel_part
def row_at(index: int, rows: Any) -> Any:
    """The row of an index."""
    start, end = load_uint63(rows.offsets, index), load_uint63(rows.offsets, index + 1)
    n_ordered, below = load_index(rows.n_ordered, index), load_uint8(rows.below, index) != 0
    # The last of all items on offer is left over: it wins nothing.
    n_choices = n_ordered if below or n_ordered < end - start else n_ordered - 1
    return Row(rows.entries + 4 * start, index + 1, end - start, n_choices, below)


class Scratch(NamedTuple):
    """Where the working memory for one row is.

    Of float64: `inverse[a * width + k]` is 1 / (sum of worths on offer at choice a) for component k; `mantissa[k]` and
    `exponent[k]` the probability of the row under component k; `posterior[k]` the weight of the row times that of
    component k for it; `unlisted[k]` the sum over unlisted items. Of int32: `first_unlisted[k]` is the place of the
    first such item by falling worth, or `first_unlisted[0]` the number of unlisted items if they are few, and `others`
    their entries; `stamp[item]` the number of the last row that listed an item.
    """

    mantissa: int
    exponent: int
    posterior: int
    unlisted: int
    inverse: int
    first_unlisted: int
    stamp: int
    others: int


@kernel_part
def scratch_at(slot: int, slots: Any, width: int) -> Any:
    """The scratch of one slot."""
    floats = slots.floats + slots.float_bytes * slot
    integers = slots.integers + slots.integer_bytes * slot
    step = 8 * width
    return Scratch(
        floats,
        floats + step,
        floats + 2 * step,
        floats + 3 * step,
        floats + 4 * step,
        integers,
        integers + 4 * width,
        integers + (slots.integer_bytes + 4 * width) // 2,
    )


@kernel_part
def evaluate_row(row: Any, params: Any, scratch: Any) -> None:
    """Fill the scratch for one row, but for its posterior."""
    width = params.width
    if row.below:
        for place in range(row.n_listed):
            store_index(scratch.stamp, item_at(place, row, params), row.number)
        if leaves_few(row, params):
            _sum_few(row, params, scratch)
        else:
            _sum_unlisted(row, params, scratch)
    for lane in range(0, width, 4):
        total = load4(scratch.unlisted, lane) if row.below else splat4(0.0)
        for place in range(row.n_choices, row.n_listed):
            total = total + load4(params.worths, load_index(row.entries, place) + lane)
        _evaluate_choices(row, total, lane, params, scratch)


@kernel_part
def _evaluate_choices(row: Any, total: Any, lane: int, params: Any, scratch: Any) -> None:
    """Inverse sums and probability of all choices for four components; `total` is the sum of what no choice took."""
    width, worths = params.width, params.worths
    one = splat4(1.0)
    chance, exponent = one, splat4(0.0)
    place = row.n_choices - 1
    while place >= 0:
        stop = max(place - params.stride, -1)
        chance = chance * splat4(_HEADROOM)
        while place - 3 > stop:
            # Four places at once: sums depend on each other only from one group to the next.
            worth_0 = load4(worths, load_index(row.entries, place) + lane)
            worth_1 = load4(worths, load_index(row.entries, place - 1) + lane)
            worth_2 = load4(worths, load_index(row.entries, place - 2) + lane)
            worth_3 = load4(worths, load_index(row.entries, place - 3) + lane)
            sum_0 = total + worth_0
            sum_1 = total + (worth_0 + worth_1)
            sum_2 = sum_1 + worth_2
            sum_3 = sum_1 + (worth_2 + worth_3)
            total = sum_3
            product_01 = sum_0 * sum_1
            product_23 = sum_2 * sum_3
            inverse = one / (product_01 * product_23)
            inverse_01 = inverse * product_23
            inverse_23 = inverse * product_01
            entry = place * width + lane
            store4(scratch.inverse, entry, inverse_01 * sum_1)
            store4(scratch.inverse, entry - width, inverse_01 * sum_0)
            store4(scratch.inverse, entry - 2 * width, inverse_23 * sum_3)
            store4(scratch.inverse, entry - 3 * width, inverse_23 * sum_2)
            chance = chance * ((worth_0 * worth_1) * (worth_2 * worth_3) * inverse)
            place -= 4
        while place > stop:
            worth = load4(worths, load_index(row.entries, place) + lane)
            total = total + worth
            inverse = one / total
            store4(scratch.inverse, place * width + lane, inverse)
            chance = chance * worth * inverse
            place -= 1
        exponent = exponent + (exponent4(chance) - splat4(_LOG2_HEADROOM))
        chance = mantissa4(chance)
    store4(scratch.mantissa, lane, chance)
    store4(scratch.exponent, lane, exponent)


@kernel_part
def leaves_few(row: Any, params: Any) -> bool:
    """Whether the items that a row does not list are added up one by one."""
    return params.n_items <= _FEW_PER_LISTED * row.n_listed


@kernel_part
def _sum_few(row: Any, params: Any, scratch: Any) -> None:
    """The entries of the items that a row does not list, and the sum of their worths, for each component."""
    width, n_others = params.width, 0
    for item in range(params.n_items):
        if not is_listed(row, item, scratch):
            store_index(scratch.others, n_others, item * width)
            n_others += 1
    store_index(scratch.first_unlisted, 0, n_others)
    for lane in range(0, width, 4):
        total = splat4(0.0)
        for place in range(n_others):
            total = total + load4(params.worths, load_index(scratch.others, place) + lane)
        store4(scratch.unlisted, lane, total)


@kernel_part
def _sum_unlisted(row: Any, params: Any, scratch: Any) -> None:
    """The sum of worths over all items that a row does not list, for each component."""
    width, n_items = params.width, params.n_items
    for component in range(params.n_components):
        first = 0
        while is_listed(row, load_index(params.order, component * n_items + first), scratch):
            first += 1
        store_index(scratch.first_unlisted, component, first)
        total = load(params.tails, first * width + component)
        for place in range(row.n_listed):
            entry = load_index(row.entries, place) + component
            if load_index(params.rank, entry) >= first:
                total -= load(params.worths, entry)
        store(scratch.unlisted, component, total)


@kernel_part
def is_listed(row: Any, item: int, scratch: Any) -> bool:
    """Whether a row with unlisted items, for which the scratch was filled, lists an item."""
    return load_index(scratch.stamp, item) == row.number


@kernel_part
def item_at(place: int, row: Any, params: Any) -> int:
    """The item that a row has at a place."""
    return load_index(params.item_of, load_index(row.entries, place) >> 2)


@kernel_part
def posterior_of_row(weight: float, params: Any, scratch: Any) -> Any:
    """Fill the posterior of a row that was evaluated; gives its probability as total * 2**scale."""
    scale = -np.inf
    for lane in range(0, params.width, 4):
        exponents = load4(scratch.exponent, lane) + load4(params.share_exponents, lane)
        scale = max(scale, highest_lane4(exponents))
    sums = splat4(0.0)
    for lane in range(0, params.width, 4):
        exponents = load4(scratch.exponent, lane) + load4(params.share_exponents, lane)
        mantissas = load4(scratch.mantissa, lane) * load4(params.share_mantissas, lane)
        joint = mantissas * power_of_two4(exponents - splat4(scale))
        store4(scratch.posterior, lane, joint)
        sums = sums + joint
    total = sum_lanes4(sums)
    factor = splat4(weight / total)
    for lane in range(0, params.width, 4):
        store4(scratch.posterior, lane, load4(scratch.posterior, lane) * factor)
    return total, scale


@kernel_part
def log_likelihood4(scratch: Any, lane: int) -> Any:
    """Log-probability of a row that was evaluated, under four components."""
    return log4_of_scaled(load4(scratch.mantissa, lane), load4(scratch.exponent, lane))
