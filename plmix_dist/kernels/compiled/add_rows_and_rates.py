"""Kernel: the sums of an EM pass with rates, as LSR needs them."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import load, unpack
from plmix_dist.kernels.compiled.choices import row_at, scratch_at
from plmix_dist.kernels.compiled.jit import kernel
from plmix_dist.kernels.compiled.rates import add_rates, add_what_is_queued
from plmix_dist.kernels.compiled.row_sums import add_row, evaluate_rows
from plmix_dist.kernels.em_pass import PassSums
from plmix_dist.kernels.entries import Rows
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.rate_sums import RateSums
from plmix_dist.kernels.scratch import Slots


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
