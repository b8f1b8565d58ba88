"""The leaves of a Dask array: canonical runs of rows, whatever its chunks."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.submission import Job, results_of, submit
from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.passes.leaves import LazyRows
from plmix_dist.rankings import RankingBlock, Unranked, default_leaf_rows, item_dtype

if TYPE_CHECKING:
    from distributed import Client


# How many leaves of the array this process computes at a time.
_LEAVES_AT_ONCE = 16


def check_dask_array(array: Any) -> None:
    """An error if a Dask array cannot hold rankings, found without computing it."""
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise SettingsError(
            f"expected an integer array (rankings, places), but got {array.dtype} of shape {array.shape}"
        )
    if np.isnan(array.shape).any():
        raise SettingsError("the Dask array has chunks of unknown sizes; call compute_chunk_sizes() first")
    if 0 in array.shape:
        raise SettingsError(f"no rankings in a Dask array of shape {array.shape}")


def item_range(array: Any, client: Client | None = None) -> tuple[int, int]:
    """The smallest and the largest item of a Dask array; -1 and -1 if no row has an item."""
    ones = tuple((1,) * n for n in array.numblocks)
    # Minus the smallest, so that one maximum finds both.
    ends = [array.map_blocks(_end_of_chunk, smallest, chunks=ones, dtype=np.int64).max() for smallest in (True, False)]
    if client is None:
        import dask

        smallest, largest = dask.compute(*ends, scheduler=_local_scheduler(array))  # type: ignore[attr-defined, no-untyped-call]
    else:
        futures = submit(client, ends, optimize_graph=True)
        smallest, largest = results_of(client, futures, Job("the search for the largest item"))
    return (-int(smallest) if largest >= 0 else -1), int(largest)


def _local_scheduler(array: Any) -> Any:
    """Dask's scheduler for this process: the one that the user has set, but never a cluster."""
    import dask

    distributed: Any = sys.modules.get("distributed")
    if distributed is not None and distributed.futures_of(array):
        raise SettingsError(
            "a cluster holds the Dask array (it was persisted), but this call runs in this process; pass the client of "
            "that cluster, or call compute() on the array first"
        )
    chosen = dask.config.get("scheduler", None)
    is_cluster = hasattr(chosen, "scheduler_info") or "distributed" in str(chosen)
    return "threads" if chosen is None or is_cluster else chosen


def _end_of_chunk(chunk: NDArray[Any], smallest: bool) -> NDArray[np.int64]:
    """(1, 1): the largest item of one chunk, or minus its smallest one."""
    found = np.asarray(chunk)
    if found.ndim != 2 or found.dtype.kind not in "iu":
        raise RankingError(
            f"the Dask array promises integers (rankings, places), but computing gave {found.dtype} of shape "
            f"{found.shape}"
        )
    far = np.iinfo(np.int64).max - 1
    if smallest:
        listed = found[found >= 0]
        end = -int(listed.min()) if listed.size else -far
    else:
        end = int(found.max()) if found.size else -1
    return np.full((1, 1), max(-far, min(end, far)), np.int64)


class DaskLeaves:
    """The leaves of a Dask array (rows, places)."""

    def __init__(self, array: Any, n_items: int, unranked: Unranked | None) -> None:
        check_dask_array(array)
        self.array = array
        self.n_items = n_items
        self.unranked = unranked
        self.n_rankings, n_places = map(int, array.shape)
        self.n_entries = self.n_rankings * n_places
        self.n_leaves = -(-self.n_rankings // default_leaf_rows(n_items))

    @cached_property
    def leaf_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        starts = np.arange(0, self.n_rankings, default_leaf_rows(self.n_items), dtype=np.int64)
        return np.append(starts, self.n_rankings)

    @property
    def decoded_bytes(self) -> float:
        """Bytes of all rows as blocks."""
        width = item_dtype(self.n_items).itemsize
        return float(self.n_entries * width + self.n_rankings * (2 * width + 9))

    def only(self, _start: int, _stop: int) -> DaskLeaves:
        """The same leaves: a cluster is given `lazy_rows` instead."""
        return self

    def lazy_rows(self, start: int, stop: int) -> LazyRows:
        """The rows of leaves `start` to `stop`, still lazy."""
        bounds = self.leaf_bounds[start : stop + 1]
        rows = self.array[int(bounds[0]) : int(bounds[-1])]
        make = partial(_RowLeaves, start, int(bounds[0]), len(rows), self.n_items, self.unranked)
        return LazyRows(rows, make)

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn, computed in this process, some leaves at a time."""
        del labels
        end = self.n_leaves if stop is None else stop
        for first in range(start, end, _LEAVES_AT_ONCE):
            last = min(first + _LEAVES_AT_ONCE, end)
            array, leaves_of = self.lazy_rows(first, last)
            rows = array.compute(scheduler=_local_scheduler(array))
            yield from leaves_of(rows).iter_leaves(first, last)


@dataclass
class _RowLeaves:
    """Leaves whose rows are in memory as an array (rows, places), checked when they are asked for."""

    first_leaf: int
    first_row: int
    n_rows: int
    n_items: int
    unranked: Unranked | None
    rows: NDArray[np.integer]

    def __post_init__(self) -> None:
        self.rows = np.asarray(self.rows)
        if self.rows.ndim != 2 or len(self.rows) != self.n_rows:
            raise RankingError(
                f"the Dask array promises {self.n_rows:,} rows from row {self.first_row:,} on, but computing them gave "
                f"an array of shape {self.rows.shape}; if its chunks have other sizes than it says, call "
                "compute_chunk_sizes() first"
            )

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The block of each leaf in turn."""
        del labels
        leaf_rows = default_leaf_rows(self.n_items)
        first = (start - self.first_leaf) * leaf_rows
        last = len(self.rows) if stop is None else min(len(self.rows), (stop - self.first_leaf) * leaf_rows)
        for row in range(first, last, leaf_rows):
            rows = self.rows[row : row + leaf_rows]
            yield RankingBlock.from_array(
                rows, n_items=self.n_items, unranked=self.unranked, first_row=self.first_row + row
            )


# Rows of an array in blocks, whether it is in memory or a Dask array still to be computed.


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
        return [RowBlock(array[start : start + step], start, len(array[start : start + step])) for start in starts]
    if any(math.isnan(size) for size in array.chunks[0]):
        raise SettingsError("the chunks of the Dask array have unknown sizes; call compute_chunk_sizes() first")
    whole_rows = array.rechunk({1: -1})
    first_rows = np.concatenate([[0], np.cumsum(whole_rows.chunks[0])]).tolist()
    return [
        RowBlock(whole_rows.blocks[number], first_rows[number], size)
        for number, size in enumerate(whole_rows.chunks[0])
    ]
