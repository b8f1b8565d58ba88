"""Kernel: the sums of a Gibbs sweep, with a component drawn for each row and an exponential for each choice."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import load, load4, load_index, store, store4, unpack
from plmix_dist.kernels.compiled.choices import evaluate_row, posterior_of_row, row_at, scratch_at
from plmix_dist.kernels.compiled.jit import kernel, kernel_part
from plmix_dist.kernels.compiled.row_sums import add_member
from plmix_dist.kernels.compiled.simd import splat4
from plmix_dist.kernels.em_pass import PassSums
from plmix_dist.kernels.entries import Rows
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.scratch import Slots
from plmix_dist.kernels.sweep_sums import RandomNumbers


@kernel
def add_draws(
    rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any, random_fields: Any
) -> None:
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
