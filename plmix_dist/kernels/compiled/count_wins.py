"""Kernel: how often each item was ranked before each other."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import (
    load,
    load_index,
    load_uint8,
    load_uint63,
    store,
    store_index,
    unpack,
)
from plmix_dist.kernels.compiled.jit import kernel, kernel_part
from plmix_dist.kernels.entries import Rows
from plmix_dist.kernels.pairwise import WinSums


@kernel
def count_wins(rows_fields: Any, sums_fields: Any) -> None:
    """Add up the wins of all rows."""
    rows, sums = unpack(Rows, rows_fields), unpack(WinSums, sums_fields)
    for row in range(rows.n_rows):
        start, stop = load_uint63(rows.offsets, row), load_uint63(rows.offsets, row + 1)
        below = load_uint8(rows.below, row) != 0
        for entry in range(start, stop):
            store_index(sums.listed, load_index(rows.entries, entry), row + 1)
        for component in range(sums.n_components):
            weight = load(rows.weights, row)
            added = weight * load(sums.memberships, row * sums.n_components + component)
            if added != 0.0:
                for entry in range(start, start + load_index(rows.n_ordered, row)):
                    winner = component * sums.n_items + load_index(rows.entries, entry)
                    line = winner * sums.n_items
                    for other in range(entry + 1, stop):
                        _add(sums.wins, line + load_index(rows.entries, other), added)
                    if below:
                        _add_to_unlisted(line, row + 1, added, sums)


@kernel_part
def _add_to_unlisted(line: int, number: int, added: float, sums: Any) -> None:
    """Add wins of one item over all items that a row does not list."""
    for item in range(sums.n_items):
        if load_index(sums.listed, item) != number:
            _add(sums.wins, line + item, added)


@kernel_part
def _add(sums: int, entry: int, value: float) -> None:
    store(sums, entry, load(sums, entry) + value)
