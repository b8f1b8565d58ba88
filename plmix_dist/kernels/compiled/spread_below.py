"""Kernel: what was noted for places in the order by falling worth, given to items."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import load, load_index, store, unpack
from plmix_dist.kernels.compiled.jit import kernel
from plmix_dist.kernels.em_pass import PassSums
from plmix_dist.kernels.prepared import Prepared


@kernel
def spread_below(params_fields: Any, sums_fields: Any) -> None:
    """Add to each item what was noted for its own place and all places before it."""
    params, sums = unpack(Prepared, params_fields), unpack(PassSums, sums_fields)
    width, n_items = params.width, params.n_items
    for component in range(params.n_components):
        carried = 0.0
        for place in range(n_items):
            item = load_index(params.order, component * n_items + place)
            carried += load(sums.below, place * width + component)
            entry = item * 2 * width + component
            store(sums.sums, entry, load(sums.sums, entry) + carried)
