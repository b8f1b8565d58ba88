"""Rows of an array in blocks, whether it is in memory or a Dask array still to be computed."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from plmix_dist.errors import SettingsError


@dataclass(frozen=True)
class RowBlock:
    """A run of rows of an array; `data` is what an executor takes as input, computed already or not."""

    data: Any
    first_row: int
    n_rows: int


def is_dask_array(source: Any) -> bool:
    """Whether this is a Dask array, found out without importing dask."""
    dask_array = sys.modules.get("dask.array")
    return dask_array is not None and isinstance(source, dask_array.Array)


def row_blocks(array: Any, n_entries: int) -> list[RowBlock]:
    """An array (rows, places) cut into runs of rows: Dask arrays at their chunks, others every `n_entries`."""
    if array.ndim != 2:
        raise SettingsError(f"expected an array of shape (rankings, places), but got shape {array.shape}")
    if not is_dask_array(array):
        step = max(1, n_entries // max(1, array.shape[1]))
        starts = range(0, max(1, len(array)), step)
        return [
            RowBlock(array[start : start + step], start, len(array[start : start + step])) for start in starts
        ]
    if any(math.isnan(size) for size in array.chunks[0]):
        raise SettingsError(
            "the chunks of the Dask array have unknown sizes; call compute_chunk_sizes() first"
        )
    whole_rows = array.rechunk({1: -1})
    first_rows = np.concatenate([[0], np.cumsum(whole_rows.chunks[0])]).tolist()
    return [
        RowBlock(whole_rows.blocks[number], first_rows[number], size)
        for number, size in enumerate(whole_rows.chunks[0])
    ]
