"""Kernel: the sums of an EM pass without rates, as MM needs them."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import unpack
from plmix_dist.kernels.compiled.choices import row_at, scratch_at
from plmix_dist.kernels.compiled.jit import kernel
from plmix_dist.kernels.compiled.row_sums import add_row, evaluate_rows
from plmix_dist.kernels.em_pass import PassSums
from plmix_dist.kernels.entries import Rows
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.scratch import Slots


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
