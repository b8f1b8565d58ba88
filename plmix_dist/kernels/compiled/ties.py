"""Parts for rows whose choices may end in ties (Davidson 1970; Turner et al. 2020), of up to `n_orders` items.

A set T of g items is chosen from A with probability delta_g (product of worths)^(1/g) / Z. The sum over all sets of d
items is an elementary symmetric polynomial: Z = sum over d of delta_d e_d(worth_i^(1/d) : i in A). Going from the last
item backwards, an item in front changes e_j to e_j + x e_(j-1); all terms are positive. The polynomials at each place
are kept, so that expected wins follow in one sweep from the first place on: `adjoints` are the derivatives of the sum
of log Z so far by the polynomials of what is left.
"""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.jit import kernel_part
from plmix_dist.kernels.compiled.vectors import (
    load,
    load4,
    load_index,
    load_uint8,
    load_uint63,
    log4,
    splat4,
    store4,
    store_index,
)


@kernel_part
def add_tied_row(index: int, rows: Any, params: Any, sums: Any) -> None:
    """The log-probability of one row and, where its posterior is given, what it adds to all sums."""
    start, end = load_uint63(rows.offsets, index), load_uint63(rows.offsets, index + 1)
    n_ordered, n_offered = load_index(rows.n_ordered, index), end - start
    for place in range(n_offered):
        entry = load_index(rows.entries, start + place)
        store_index(sums.offered, place, entry)
        store_index(sums.listed, load_index(params.item_of, entry // 4), index + 1)
    if load_uint8(rows.below, index) != 0:
        for item in range(params.n_items):
            if load_index(sums.listed, item) != index + 1:
                store_index(sums.offered, n_offered, item * params.width)
                n_offered += 1
    for lane in range(0, params.width, 4):
        _fill_polynomials(n_offered, lane, params, sums)
        logs, place = splat4(0.0), 0
        while place < n_ordered and place < n_offered - 1:
            size = load_index(sums.sizes, start + place)
            shown = load4(params.tie_weights, (size - 1) * params.width + lane)
            for tied in range(place, place + size):
                entry = load_index(sums.offered, tied)
                shown = shown + load4(params.powers, entry + lane) * splat4(1.0 / size)
            logs = logs + shown - log4(_normaliser(place, lane, params, sums))
            place += size
        store4(sums.logs, index * params.width + lane, logs)
        if sums.posteriors != 0:
            share = load4(sums.posteriors, index * params.width + lane) * splat4(load(rows.weights, index))
            _add_choices(start, n_ordered, n_offered, lane, share, params, sums)


@kernel_part
def _fill_polynomials(n_offered: int, lane: int, params: Any, sums: Any) -> None:
    """The polynomials of what is on offer from each place on; d of them for ties of d items."""
    step, table = sums.n_polynomials * 4, params.n_items * params.width
    for number in range(sums.n_polynomials):
        store4(sums.polynomials, n_offered * step + 4 * number, splat4(0.0))
    place = n_offered - 1
    while place >= 0:
        entry, here, first = load_index(sums.offered, place), place * step, 0
        for order in range(1, params.n_orders + 1):
            power = load4(params.powers, order * table + entry + lane)
            fewer = splat4(1.0)
            for number in range(first, first + order):
                after = load4(sums.polynomials, here + step + 4 * number)
                store4(sums.polynomials, here + 4 * number, after + power * fewer)
                fewer = after
            first += order
        place -= 1


@kernel_part
def _normaliser(place: int, lane: int, params: Any, sums: Any) -> Any:
    """The sum over all sets that may be chosen at a place."""
    total, last = splat4(0.0), -1
    for order in range(1, params.n_orders + 1):
        last += order
        weight = load4(params.tie_weights, (params.n_orders + order - 1) * params.width + lane)
        total = total + weight * load4(sums.polynomials, 4 * (place * sums.n_polynomials + last))
    return total


@kernel_part
def _add_choices(start: int, n_ordered: int, n_offered: int, lane: int, share: Any, params: Any, sums: Any) -> None:
    """Wins, ties, and what is expected of both, of four components."""
    width, step, table = params.width, sums.n_polynomials * 4, params.n_items * params.width
    ties = 2 * table + lane
    for number in range(sums.n_polynomials):
        store4(sums.adjoints, 4 * number, splat4(0.0))
    begins = 0
    for place in range(n_offered):
        entry = load_index(sums.offered, place)
        if place == begins and place < n_ordered and place < n_offered - 1:
            size = load_index(sums.sizes, start + place)
            begins = place + size
            for tied in range(place, begins):
                won = 2 * load_index(sums.offered, tied) + width + lane
                store4(sums.sums, won, load4(sums.sums, won) + share * splat4(1.0 / size))
            tie = ties + (2 * size - 1) * width
            store4(sums.sums, tie, load4(sums.sums, tie) + share)
            offers, last = share / _normaliser(place, lane, params, sums), -1
            for order in range(1, params.n_orders + 1):
                last += order
                added = offers * load4(params.tie_weights, (params.n_orders + order - 1) * width + lane)
                store4(sums.adjoints, 4 * last, load4(sums.adjoints, 4 * last) + added)
                tie = ties + (2 * order - 2) * width
                expected = added * load4(sums.polynomials, place * step + 4 * last)
                store4(sums.sums, tie, load4(sums.sums, tie) + expected)
        total, first = splat4(0.0), 0
        for order in range(1, params.n_orders + 1):
            power = load4(params.powers, order * table + entry + lane)
            fewer, added = splat4(1.0), splat4(0.0)
            for number in range(first, first + order):
                adjoint = load4(sums.adjoints, 4 * number)
                added = added + adjoint * fewer
                if number > first:
                    store4(sums.adjoints, 4 * number - 4, load4(sums.adjoints, 4 * number - 4) + power * adjoint)
                fewer = load4(sums.polynomials, (place + 1) * step + 4 * number)
            total = total + power * added * splat4(1.0 / order)
            first += order
        store4(sums.sums, 2 * entry + lane, load4(sums.sums, 2 * entry + lane) + total)
