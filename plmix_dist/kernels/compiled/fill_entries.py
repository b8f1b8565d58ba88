"""Kernel: entries of items, which may be numbers of one, two or four bytes."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import load_uint8, load_uint16, load_uint32, store_index, unpack
from plmix_dist.kernels.compiled.jit import kernel
from plmix_dist.kernels.entries import Items


@kernel
def fill_entries(fields: Any) -> None:
    """Make entries of items."""
    of = unpack(Items, fields)
    if of.item_bytes == 1:
        for place in range(of.n_listed):
            store_index(of.entries, place, of.width * load_uint8(of.items, place))
    elif of.item_bytes == 2:
        for place in range(of.n_listed):
            store_index(of.entries, place, of.width * load_uint16(of.items, place))
    else:
        for place in range(of.n_listed):
            store_index(of.entries, place, of.width * load_uint32(of.items, place))
