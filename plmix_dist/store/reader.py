"""RankingStore: a finished store, read by leaves."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from plmix_dist.rankings.block import RankingBlock, concatenate
from plmix_dist.rankings.columns import item_dtype, joined_labels
from plmix_dist.store.arrays import CheckedStore, open_column, read_column
from plmix_dist.store.location import Location
from plmix_dist.store.manifest import INDEX, partition_name, read_index, read_manifest
from plmix_dist.store.schema import COLUMNS, block_from

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    import zarr
    from numpy.typing import NDArray

    from plmix_dist.store.manifest import Manifest, PartitionIndex

LABEL_COLUMNS = frozenset(name for name in COLUMNS if name.startswith(("ids", "groups")))


class RankingStore:
    """Rankings in a chunked, compressed, checksummed Zarr store.

    Every byte read is checked against the digest recorded when it was written: what comes out is what went
    in, or an error. A store that is open keeps its view when others append to it.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5, random_state=0)
    >>> store.n_rankings, store.n_items, store.n_leaves
    (100, 5, 1)
    >>> store.leaves(0, 1).n_rankings
    100
    """

    def __init__(self, location: Location, manifest: Manifest) -> None:
        self.location = location
        self.manifest = manifest
        self._opened: dict[int, OpenPartition] = {}

    @property
    def n_rankings(self) -> int:
        """The number of rows."""
        return self.manifest.n_rankings

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.manifest.n_items

    @property
    def n_leaves(self) -> int:
        """The number of leaves over all partitions."""
        return self.manifest.n_leaves

    @property
    def n_partitions(self) -> int:
        """The number of partitions."""
        return len(self.manifest.partitions)

    @property
    def item_names(self) -> tuple[str, ...]:
        """The name of each item."""
        return tuple(self.manifest.item_names)

    @property
    def total_weight(self) -> float:
        """The sum of all weights."""
        return self.manifest.total_weight

    def __repr__(self) -> str:
        return f"RankingStore({self.location.url!r}: {self.n_rankings:,} rankings of {self.n_items:,} items)"

    def __reduce__(self) -> tuple[Any, ...]:
        return RankingStore, (self.location, self.manifest)

    @cached_property
    def _first_leaves(self) -> NDArray[np.int64]:
        """(n_partitions + 1,): the number of the first leaf of each partition, and the end."""
        counts = [partition.n_leaves for partition in self.manifest.partitions]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])

    @cached_property
    def leaf_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        rows = [count for number in range(self.n_partitions) for count in self.index(number).leaf_rows]
        return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])

    @property
    def n_entries(self) -> int:
        """How many items all rows list together."""
        return int(self.manifest.n_entries)

    @property
    def decoded_bytes(self) -> float:
        """About how many bytes all rows take in memory, labels left out."""
        width = item_dtype(self.n_items).itemsize
        return float(self.manifest.n_entries * width + self.n_rankings * (2 * width + 9))

    def index(self, partition: int) -> PartitionIndex:
        """The index of one partition, checked against the manifest."""
        return self._open(partition).index

    def leaves(self, start: int, stop: int, *, labels: bool = True) -> RankingBlock:
        """The rows of leaves `start` to `stop` as one block, ids and groups left out unless `labels`."""
        blocks = [block for block, _ in self._runs(start, stop, labels)]
        return concatenate(blocks) if blocks else _no_rankings(self.n_items)

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn; neighbouring leaves are read together."""
        for block, leaf_rows in self._runs(start, self.n_leaves if stop is None else stop, labels):
            bounds = np.concatenate([[0], np.cumsum(leaf_rows)])
            for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                yield block[first:end]

    def partition(self, number: int, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of one partition, leaf by leaf."""
        first, last = int(self._first_leaves[number]), int(self._first_leaves[number + 1])
        return self.iter_leaves(first, last, labels=labels)

    def block(self) -> RankingBlock:
        """The whole store in memory as one block, for data known to be small."""
        return self.leaves(0, self.n_leaves)

    def column(self, name: str, partition: int) -> NDArray[Any] | None:
        """A whole column of one partition, or None where the partition has none."""
        arrays = self._open(partition).arrays
        return self._open(partition).column(name, slice(None)) if name in arrays else None

    def components(self) -> NDArray[np.integer] | None:
        """(n_rankings,): the component each row was drawn from, in a simulated store; None in any other."""
        columns = [self.column("component", number) for number in range(self.n_partitions)]
        known = [column for column in columns if column is not None]
        return np.concatenate(known) if known and len(known) == len(columns) else None

    def label_kind(self, name: str) -> Literal["none", "number", "text"]:
        """Whether ids or groups are numbers, text, or not there."""
        columns = {column for number in range(self.n_partitions) for column in self.index(number).columns}
        if f"{name}_lengths" in columns:
            return "text"
        return "number" if name in columns else "none"

    def rejected_rows(self) -> Iterator[dict[str, Any]]:
        """Every row that was turned away when the store was made: reason, file, line, item, message."""
        for number in range(self.n_partitions):
            if "rejected.jsonl" in self.index(number).files:
                data = self._open(number).read_file("rejected.jsonl")
                yield from (json.loads(line) for line in data.decode().split("\n") if line)

    def label_twice(self, name: str, partitions: Sequence[int]) -> Any:
        """An id that several rows have, or a group whose rows do not stand together; None where there is none."""
        seen: list[NDArray[Any]] = []
        for number in partitions:
            if not any(column.startswith(name) for column in self.index(number).columns):
                continue
            for block in self.partition(number):
                labels = getattr(block, name)
                seen.append(labels if name == "ids" else labels[block.group_starts])
        if not seen:
            return None
        together: Any = joined_labels(seen)
        values, counts = np.unique(together, return_counts=True)
        twice = np.flatnonzero(counts > 1)
        return values[twice[0]] if len(twice) else None

    def _open(self, partition: int) -> OpenPartition:
        if partition not in self._opened:
            expected = self.manifest.partitions[partition].index_sha256
            self._opened[partition] = OpenPartition.of(self.location, partition, expected)
        return self._opened[partition]

    def _runs(self, start: int, stop: int, labels: bool) -> Iterator[tuple[RankingBlock, list[int]]]:
        """Leaves from `start` to `stop` in runs of about READ_ENTRIES entries, none across partitions."""
        if not 0 <= start <= stop <= self.n_leaves:
            raise IndexError(f"leaves {start} to {stop} are not within 0 to {self.n_leaves}")
        first = int(np.searchsorted(self._first_leaves, start, side="right")) - 1
        for partition in range(first, self.n_partitions):
            base = int(self._first_leaves[partition])
            low, high = max(start - base, 0), min(stop - base, self.manifest.partitions[partition].n_leaves)
            if low >= high:
                if base >= stop:
                    return
                continue
            opened = self._open(partition)
            while low < high:
                end = opened.run_end(low, high)
                yield opened.read(low, end, self.n_items, labels), opened.index.leaf_rows[low:end]
                low = end


READ_ENTRIES = 1 << 23


class OpenPartition:
    """The arrays of one partition, opened once."""

    def __init__(self, store: CheckedStore) -> None:
        self.store = store
        self.index = store.index
        self.arrays: dict[str, zarr.Array[Any]] = {
            name: open_column(store, name) for name in store.index.columns
        }
        wrong = self.index.miscounts()
        if wrong:
            raise store.damaged(INDEX, f"does not add up: {wrong[0]}")
        self.row_bounds = self.index.row_bounds()
        self.item_bounds = self.index.item_bounds()
        self._byte_bounds: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def of(cls, location: Location, number: int, index_sha256: str) -> OpenPartition:
        """Open a partition whose index has this digest."""
        index = read_index(location, number, index_sha256)
        name = partition_name(number)
        return cls(CheckedStore(location.zarr_store(name, read_only=True), index, f"{location.url}/{name}"))

    def read_file(self, key: str) -> bytes:
        """A file of the partition that is no array, checked like every other."""
        return self.store.read_whole(key)

    def run_end(self, low: int, high: int) -> int:
        """Where a run of leaves from `low` should end so that it is read at once."""
        limit = self.item_bounds[low] + READ_ENTRIES
        return min(high, max(low + 1, int(np.searchsorted(self.item_bounds, limit, side="right")) - 1))

    def read(self, low: int, high: int, n_items: int, labels: bool) -> RankingBlock:
        """The rows of leaves `low` to `high` of this partition."""
        bounds = {
            "row": (int(self.row_bounds[low]), int(self.row_bounds[high])),
            "item": (int(self.item_bounds[low]), int(self.item_bounds[high])),
        }
        columns: dict[str, NDArray[Any]] = {}
        for name in self.arrays:
            if name == "component" or (name in LABEL_COLUMNS and not labels):
                continue
            start, stop = bounds.get(COLUMNS[name].along) or self._bytes_of(name, *bounds["row"])
            columns[name] = self.column(name, slice(start, stop))
        return block_from(columns, n_items)

    def column(self, name: str, entries: slice) -> NDArray[Any]:
        """Some entries of one array."""
        return read_column(self.store, name, self.arrays[name], entries)

    def _bytes_of(self, name: str, first_row: int, last_row: int) -> tuple[int, int]:
        """Where the text of a run of rows stands in a column of UTF-8 bytes."""
        if name not in self._byte_bounds:
            lengths = self.column(name.replace("_utf8", "_lengths"), slice(None))
            self._byte_bounds[name] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        bounds = self._byte_bounds[name]
        return int(bounds[first_row]), int(bounds[last_row])


def _no_rankings(n_items: int) -> RankingBlock:
    return RankingBlock.from_array(np.empty((0, 0), np.int64), n_items=n_items)


def open_store(
    path: str | os.PathLike[str] | Location, storage_options: dict[str, Any] | None = None
) -> RankingStore:
    """Open a finished store on local disk or behind an fsspec URL.

    Parameters
    ----------
    path
        A folder, or a URL such as ``s3://bucket/store``.
    storage_options
        What fsspec needs to reach the URL.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> path = tempfile.mkdtemp() + "/store"
    >>> _ = plmix_dist.simulate(path, n_rankings=10, n_items=4, random_state=0)
    >>> plmix_dist.open_store(path).item_names
    ('1', '2', '3', '4')
    """
    location = Location.of(path, storage_options)
    return RankingStore(location, read_manifest(location))
