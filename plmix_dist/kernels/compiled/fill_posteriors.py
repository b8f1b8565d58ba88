"""Kernel: the posterior and the probability of each row."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import load4, store, store4, unpack
from plmix_dist.kernels.compiled.choices import evaluate_row, posterior_of_row, row_at, scratch_at
from plmix_dist.kernels.compiled.jit import kernel
from plmix_dist.kernels.entries import Rows
from plmix_dist.kernels.posteriors import FilledPosteriors
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.scratch import Slots


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
