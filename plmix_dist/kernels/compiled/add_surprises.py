"""Kernel: the choices that each item lost beyond what one model expects."""

from __future__ import annotations

from typing import Any

import numpy as np

from plmix_dist.kernels.compiled.at_addresses import load, load_index, load_uint63, store, unpack
from plmix_dist.kernels.compiled.jit import kernel
from plmix_dist.kernels.entries import Rows
from plmix_dist.kernels.surprise import Surprises


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
