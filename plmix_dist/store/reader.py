"""RankingStore: a finished store, read by leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import zarr
from numpy.typing import NDArray

from plmix_dist.display.notebook import store_card
from plmix_dist.errors import InvalidRowsError
from plmix_dist.rankings import RankingBlock, check_ranges, concatenate
from plmix_dist.rankings.columns import BETWEEN_CELLS, item_dtype, joined_labels
from plmix_dist.store import arrays, manifest, sealed
from plmix_dist.store.location import AnyPath, Location

_LABEL_COLUMNS = frozenset(name for name in arrays.COLUMNS if name.startswith(("ids", "persons")))


class RankingStore:
    """Rankings in a chunked, compressed, checksummed Zarr store.

    Every byte is checked against the digest recorded when it was written, so damage is an error and never a
    wrong number. An open store does not change when others append to it.

    Examples
    --------
    >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5, random_state=0)
    >>> store.n_rankings, store.n_items, store.n_leaves
    (100, 5, 1)
    >>> store.leaves(0, 1).n_rankings
    100
    """

    def __init__(
        self, location: Location, manifest: manifest.Manifest, first_partition: int = 0, features: tuple[int, ...] = ()
    ) -> None:
        self.location = location
        self.manifest = manifest
        # Not 0 for a part of a store, whose manifest lists neighbouring partitions only.
        self.first_partition = first_partition
        # The columns of features that blocks have, by their place among all.
        self.features = features
        self._opened: dict[int, _OpenPartition] = {}

    def with_features(self, places: Sequence[int]) -> RankingStore:
        """The same store, whose blocks have some columns of features."""
        return RankingStore(self.location, self.manifest, self.first_partition, tuple(places))

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
        return int(self._first_leaves[-1])

    @property
    def n_partitions(self) -> int:
        """The number of partitions."""
        return len(self.manifest.partitions)

    @property
    def item_names(self) -> tuple[str, ...]:
        """The name of each item."""
        return tuple(self.manifest.item_names)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features that every listed item has; `fit(store, features=[...])` reads them."""
        return tuple(self.manifest.feature_names)

    @property
    def person_columns(self) -> dict[str, list[str]]:
        """The columns about persons, each with its levels; none of numbers. `membership_covariates` names them."""
        return dict(self.manifest.person_columns)

    @property
    def total_weight(self) -> float:
        """The sum of all weights."""
        return self.manifest.total_weight

    def __repr__(self) -> str:
        return f"RankingStore({self.location.url!r}: {self.n_rankings:,} rankings of {self.n_items:,} items)"

    def _repr_html_(self) -> str:
        return store_card(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return RankingStore, (self.location, self.manifest, self.first_partition, self.features)

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
        """The number of listed items over all rows."""
        return sum(partition.n_entries for partition in self.manifest.partitions)

    @property
    def decoded_bytes(self) -> float:
        """The approximate number of bytes that all rows take in memory, without labels."""
        width = item_dtype(self.n_items).itemsize
        per_entry = width + _FEATURE_BYTES * len(self.features)
        return float(self.n_entries * per_entry + self.n_rankings * (2 * width + 9))

    def index(self, partition: int) -> manifest.PartitionIndex:
        """The index of one partition, checked against the manifest.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> store.index(0).leaf_rows
        [100]
        """
        return self._open(partition).index

    def leaves(self, start: int, stop: int, *, labels: bool = True) -> RankingBlock:
        """The rows of leaves `start` to `stop` (exclusive) as one block; without ids unless `labels`.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> store.leaves(0, 1).n_rankings
        100
        """
        blocks = [block for block, _ in self._runs(start, stop, labels)]
        return concatenate(blocks or [RankingBlock.from_array(np.empty((0, 0), np.int64), n_items=self.n_items)])

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of each leaf, one leaf after the other. Neighbouring leaves are read together.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> [leaf.n_rankings for leaf in store.iter_leaves()]
        [100]
        """
        for block, leaf_rows in self._runs(start, self.n_leaves if stop is None else stop, labels):
            bounds = np.concatenate([[0], np.cumsum(leaf_rows)])
            for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                yield block[first:end]

    def partition(self, number: int, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of one partition, leaf by leaf.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> sum(leaf.n_rankings for leaf in store.partition(0))
        100
        """
        first, last = int(self._first_leaves[number]), int(self._first_leaves[number + 1])
        return self.iter_leaves(first, last, labels=labels)

    def block(self) -> RankingBlock:
        """The whole store in memory as one block, for small data.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> store.block().to_array().shape
        (100, 5)
        """
        return self.leaves(0, self.n_leaves)

    def column(self, name: str, partition: int) -> NDArray[Any] | None:
        """A whole column of one partition, or None if the partition does not have it.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> store.column("n_listed", 0)[:3].tolist(), store.column("weights", 0)
        ([5, 5, 5], None)
        """
        opened = self._open(partition)
        return opened.column(name, slice(None)) if name in opened.arrays else None

    def components(self) -> NDArray[np.integer] | None:
        """(n_rankings,): the true component of each row of a simulated store; None for any other store.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> set(store.components().tolist())
        {0}
        """
        columns = [self.column("component", number) for number in range(self.n_partitions)]
        known = [column for column in columns if column is not None]
        return np.concatenate(known) if known and len(known) == len(columns) else None

    def label_kind(self, name: str) -> Literal["none", "number", "text"]:
        """Whether "ids" or "groups" are numbers, text, or absent.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> store.label_kind("ids")
        'none'
        """
        columns = {column for number in range(self.n_partitions) for column in self.index(number).columns}
        if f"{name}_lengths" in columns:
            return "text"
        return "number" if name in columns else "none"

    def profiles(self) -> tuple[list[list[str]], NDArray[np.int64]]:
        """The different rows of cells about persons, and (n_rankings,) which of them each ranking has."""
        numbers: dict[str, int] = {}
        rows = [np.zeros(0, np.int64)]
        for partition in range(self.n_partitions):
            opened = self._open(partition)
            there = {name: opened.column(name, slice(None)) for name in opened.arrays if name.startswith("persons")}
            if there:
                texts, codes = arrays.coded_labels("persons", there)
                table = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
                rows.append(table[codes])
        return [text.split(BETWEEN_CELLS) for text in numbers], np.concatenate(rows)

    def rejected_rows(self, partitions: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
        """Every row that was rejected when the store, or some partitions, were made: reason, file, line, item, message.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> list(store.rejected_rows())
        []
        """
        for number in range(self.n_partitions) if partitions is None else partitions:
            if "rejected.jsonl" in self.index(number).files:
                data = self._open(number).store.read_whole("rejected.jsonl")
                yield from (json.loads(line) for line in data.decode().split("\n") if line)

    def label_twice(self, name: str, partitions: Sequence[int]) -> int | str | None:
        """An id of several rows, or a group whose rows are not consecutive; None if there is none.

        Examples
        --------
        >>> store = plm.simulate(tmp / "s", n_rankings=100, n_items=5)
        >>> store.label_twice("ids", range(store.n_partitions)) is None
        True
        """
        seen: list[NDArray[Any]] = []
        for number in partitions:
            if not any(column.startswith(name) for column in self.index(number).columns):
                continue
            for block in self.partition(number):
                labels = getattr(block, name)
                seen.append(labels if name == "ids" else labels[block.group_starts])
        if not seen:
            return None
        together = joined_labels(seen)
        assert together is not None
        values, counts = np.unique(together, return_counts=True)
        twice: list[int | str] = values[counts > 1][:1].tolist()
        return twice[0] if twice else None

    def _open(self, partition: int) -> _OpenPartition:
        if partition not in self._opened:
            number = self.first_partition + partition
            index = manifest.read_index(self.location, number, self.manifest.partitions[partition].index_sha256)
            name = manifest.partition_name(number)
            files = self.location.zarr_store(name, read_only=True)
            self._opened[partition] = _OpenPartition(arrays.CheckedStore(files, index, f"{self.location.url}/{name}"))
        return self._opened[partition]

    def _runs(self, start: int, stop: int, labels: bool) -> Iterator[tuple[RankingBlock, list[int]]]:
        """Leaves `start` to `stop` in runs of about _READ_ENTRIES entries. No run crosses a partition's end."""
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
                end = opened.run_end(low, high, len(self.features))
                yield opened.read(low, end, self.n_items, labels, self.features), opened.index.leaf_rows[low:end]
                low = end


_READ_ENTRIES = 1 << 23
_FEATURE_BYTES = 4


class _OpenPartition:
    """The arrays of one partition, opened once."""

    def __init__(self, store: arrays.CheckedStore) -> None:
        self.store = store
        self.index = store.index
        self.arrays: dict[str, zarr.Array[Any]] = {
            name: arrays.open_column(store, name) for name in store.index.columns
        }
        wrong = self.index.miscounts()
        if wrong:
            raise store.damaged(manifest.INDEX, f"has wrong counts: {wrong[0]}")
        self.row_bounds = self.index.row_bounds()
        self.item_bounds = self.index.item_bounds()
        self._byte_bounds: dict[str, NDArray[np.int64]] = {}

    def run_end(self, low: int, high: int, n_features: int) -> int:
        """The end of a run of leaves from `low` that is read at once."""
        limit = self.item_bounds[low] + _READ_ENTRIES // (1 + n_features)
        return min(high, max(low + 1, int(np.searchsorted(self.item_bounds, limit, side="right")) - 1))

    def read(self, low: int, high: int, n_items: int, labels: bool, features: tuple[int, ...]) -> RankingBlock:
        """The rows of leaves `low` to `high` of this partition, with some features."""
        of_leaves = {"row": self.row_bounds, "item": self.item_bounds}
        bounds = {along: (int(ends[low]), int(ends[high])) for along, ends in of_leaves.items()}
        columns: dict[str, NDArray[Any]] = {}
        for name in self.arrays:
            if name in ("component", "features") or (name in _LABEL_COLUMNS and not labels):
                continue
            start, stop = bounds.get(arrays.COLUMNS[name].along) or self._bytes_of(name, *bounds["row"])
            columns[name] = self.column(name, slice(start, stop))
        if features:
            columns["features"] = self._features(*bounds["item"], features)
        block = arrays.block_from(columns, n_items)
        # Digests show that bytes are as they were written, not that they make sense.
        where = f"{self.store.where}, leaves {low} to {high - 1} of this partition"
        check_ranges(block, where, bounds["row"][0], InvalidRowsError)
        return block

    def _features(self, first: int, end: int, places: tuple[int, ...]) -> NDArray[Any]:
        """(n_entries, n_features): some columns of features of a run of entries."""
        if "features" not in self.arrays:
            raise self.store.damaged("features", "is missing, though other partitions have it")
        width = self.arrays["features"].shape[0] // max(1, int(self.item_bounds[-1]))
        if max(places) >= width:
            raise self.store.damaged("features", f"has {width} columns, where more are expected")
        found = self.column("features", slice(first * width, end * width)).reshape(-1, width)
        return found if places == tuple(range(width)) else found[:, places]

    def column(self, name: str, entries: slice) -> NDArray[Any]:
        """Some entries of one array."""
        return arrays.read_column(self.store, name, self.arrays[name], entries)

    def _bytes_of(self, name: str, first_row: int, last_row: int) -> tuple[int, int]:
        """The first byte and the end of the text of a run of rows, in a column of UTF-8 bytes."""
        if name not in self._byte_bounds:
            lengths = self.column(name.replace("_utf8", "_lengths"), slice(None))
            self._byte_bounds[name] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        bounds = self._byte_bounds[name]
        return int(bounds[first_row]), int(bounds[last_row])


def open_store(path: AnyPath | Location, storage_options: dict[str, Any] | None = None) -> RankingStore:
    """Open a finished store on local disk or behind an fsspec URL.

    Parameters
    ----------
    path
        A folder, or a URL such as ``s3://bucket/store``.
    storage_options
        Options for fsspec, such as credentials.

    Examples
    --------
        >>> _ = plm.simulate(tmp / "store", n_rankings=10, n_items=4, random_state=0)
    >>> plm.open_store(tmp / "store").item_names
    ('1', '2', '3', '4')
    """
    location = Location.of(path, storage_options)
    return RankingStore(location, manifest.read_manifest(location))


def digest_of_store(store: RankingStore) -> str:
    """A digest of all rows of a store."""
    return sealed.sha256(" ".join(part.index_sha256 for part in store.manifest.partitions).encode())
