"""Kernel: the log-probability of each row under each component."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import store4, unpack
from plmix_dist.kernels.compiled.choices import evaluate_row, log_likelihood4, row_at, scratch_at
from plmix_dist.kernels.compiled.jit import kernel
from plmix_dist.kernels.entries import Rows
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.row_logs import FilledLogs
from plmix_dist.kernels.scratch import Slots


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
