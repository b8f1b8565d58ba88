"""The leaves of a store. A part of it knows the partitions it needs and no others."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.store import RankingStore
from plmix_dist.store.manifest import read_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class StoreLeaves:
    """The leaves of a store.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=9_000, n_items=5, random_state=0)
    >>> leaves = StoreLeaves(store)
    >>> leaves.n_leaves, leaves.leaf_bounds.tolist()
    (3, [0, 4096, 8192, 9000])
    """

    def __init__(self, store: RankingStore) -> None:
        self.store = store

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return self.store.n_leaves

    @property
    def n_rankings(self) -> int:
        """The number of rows."""
        return self.store.n_rankings

    @property
    def n_entries(self) -> int:
        """How many items all rows list together."""
        return self.store.n_entries

    @property
    def decoded_bytes(self) -> float:
        """About how many bytes all rows take as blocks."""
        return self.store.decoded_bytes

    @property
    def leaf_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        return self._survey[0]

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that any partition has."""
        return self._survey[1]

    @cached_property
    def _survey(self) -> tuple[NDArray[np.int64], frozenset[str]]:
        """Every index is read once and let go: a store of many rows has many leaves."""
        rows = [np.zeros(1, np.int64)]
        columns: set[str] = set()
        for number, summary in enumerate(self.store.manifest.partitions):
            index = read_index(self.store.location, number, summary.index_sha256)
            rows.append(np.array(index.leaf_rows, np.int64))
            columns.update(index.columns)
        return np.cumsum(np.concatenate(rows)), frozenset(columns)

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        return self.store.iter_leaves(start, stop, labels=labels)

    def lazy_rows(self, start: int, stop: int) -> None:
        """None: workers read the store themselves."""
        del start, stop

    def only(self, start: int, stop: int) -> PartOfStore:
        """The partitions that hold these leaves."""
        counts = [partition.n_leaves for partition in self.store.manifest.partitions]
        first_leaves = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        first = int(np.searchsorted(first_leaves, start, side="right")) - 1
        last = int(np.searchsorted(first_leaves, stop, side="left"))
        partitions = self.store.manifest.partitions[first:last]
        manifest = replace(self.store.manifest, partitions=partitions, history=[])
        part = RankingStore(self.store.location, manifest, first_partition=first)
        return PartOfStore(part, int(first_leaves[first]))


class PartOfStore:
    """Neighbouring partitions of a store, with the number of their first leaf."""

    def __init__(self, store: RankingStore, first_leaf: int) -> None:
        self.store = store
        self.first_leaf = first_leaf

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        end = None if stop is None else stop - self.first_leaf
        return self.store.iter_leaves(start - self.first_leaf, end, labels=labels)
