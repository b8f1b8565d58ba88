"""Kernel: scores of rows, and what the variances of choices are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from plmix_dist.kernels.compiled.at_addresses import load, load4, store, store4, unpack
from plmix_dist.kernels.compiled.choices import evaluate_row, item_at, row_at, scratch_at
from plmix_dist.kernels.compiled.jit import kernel, kernel_part
from plmix_dist.kernels.compiled.simd import splat4, where_greater4
from plmix_dist.kernels.entries import Rows
from plmix_dist.kernels.observed_information import InformationSums
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.scratch import Slots

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
def _add_component(
    row: Any, component: int, share: float, weight: float, params: Any, scratch: Any, sums: Any
) -> None:
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
