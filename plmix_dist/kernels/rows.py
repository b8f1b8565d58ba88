"""The columns of a block in the types that kernels take: one variant of each kernel is compiled, whatever the data."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.kernels.jit import kernel, kernel_part
from plmix_dist.kernels.memory import address_of, load_uint8, load_uint16, load_uint32, store_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


# Entries beyond these, 32 MB, are not those of a leaf; their memory is not kept.
_MOST_KEPT_ENTRIES = 1 << 23


class Rows(NamedTuple):
    """Rows for kernels: row r lists `entries[offsets[r]:offsets[r + 1]]`, the first `n_ordered[r]` of them in order.

    An entry is the number of an item times a width: where the numbers of that item begin in an array with so many for
    each. To multiply wherever an item is looked up would cost as much as the look-up itself. Entries are good until the
    same thread asks for the rows of another block.
    """

    entries: NDArray[np.int32]
    offsets: NDArray[np.int64]
    n_ordered: NDArray[np.int32]
    below: NDArray[np.bool_]
    weights: NDArray[np.float64]
    longest: int


class RowAddresses(NamedTuple):
    """What kernels make of `Rows`: where its arrays are."""

    entries: int
    offsets: int
    n_ordered: int
    below: int
    weights: int
    n_rows: int


@kernel_part
def addresses_of(rows: Any) -> Any:
    """The addresses of rows."""
    return RowAddresses(
        address_of(rows.entries),
        address_of(rows.offsets),
        address_of(rows.n_ordered),
        address_of(rows.below),
        address_of(rows.weights),
        rows.weights.shape[0],
    )


def rows_of(block: RankingBlock, width: int = 1) -> Rows:
    """The rows of a block; its narrow numbers become wider here, leaf by leaf, and nowhere else."""
    weights = np.ones(block.n_rankings) if block.weights is None else block.weights
    entries = _memory_for_entries(len(block.items))
    _fill_entries(_writable(block.items).view(np.uint8), block.items.itemsize, width, entries)
    return Rows(
        entries,
        block.offsets,
        np.ascontiguousarray(block.n_ordered, np.int32),
        _writable(block.below),
        _writable(weights),
        int(block.n_listed.max(initial=1)),
    )


class _Kept(threading.local):
    """What a thread keeps for the next block."""

    def __init__(self) -> None:
        self.entries: NDArray[np.int32] = np.empty(0, np.int32)


_kept = _Kept()


def _memory_for_entries(size: int) -> NDArray[np.int32]:
    """Memory for entries, the same for every leaf that a thread works on.

    Dask's workers return what is freed to the system at once (MALLOC_TRIM_THRESHOLD_), so that each leaf of 4,096 rows
    of 20 items began with 80 page faults there, which processes of their own did not have.
    """
    if size > _MOST_KEPT_ENTRIES:
        return np.empty(size, np.int32)
    if size > len(_kept.entries):
        _kept.entries = np.empty(size, np.int32)
    return _kept.entries[:size]


@kernel
def _fill_entries(items: Any, item_bytes: int, width: int, entries: Any) -> None:
    """Make items, passed as the bytes they are made of, into entries."""
    start, into = address_of(items), address_of(entries)
    if item_bytes == 1:
        for place in range(entries.shape[0]):
            store_index(into, place, width * load_uint8(start, place))
    elif item_bytes == 2:
        for place in range(entries.shape[0]):
            store_index(into, place, width * load_uint16(start, place))
    else:
        for place in range(entries.shape[0]):
            store_index(into, place, width * load_uint32(start, place))


def _writable(column: NDArray[Any]) -> NDArray[Any]:
    """A contiguous array that may be written: read-only ones, as Dask hands out, are another type to numba."""
    return column if column.flags.c_contiguous and column.flags.writeable else column.copy()
