"""LeafSource: where the rows of a pass come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from plmix_dist.rankings import RankingBlock, check_ranges
from plmix_dist.rankings.groups import cut_leaves, default_leaf_rows
from plmix_dist.store import RankingStore
from plmix_dist.store.manifest import read_index

if TYPE_CHECKING:
    from plmix_dist.passes.dask_leaves import DaskLeaves
    from plmix_dist.passes.rankings import Rankings


class Leaves(Protocol):
    """Some leaves, by their numbers in the whole source: what travels to a worker."""

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The block of each leaf in turn; ids are left out unless `labels`."""
        ...


class LazyRows(NamedTuple):
    """Rows that a cluster computes first: a Dask array (rows, places), and how its values become leaves."""

    array: Any
    leaves_of: Callable[[NDArray[np.integer]], Leaves]


# Rows by leaves, numbered from 0. All of these know n_leaves, n_rankings, n_entries (how many items all rows list
# together, or have room for), leaf_bounds (n_leaves + 1,), and decoded_bytes (bytes of all rows as blocks; 0 where they
# are in memory already). `only` gives some leaves with nothing that others need, `lazy_rows` those that a cluster has
# to compute, or None where a worker reads them itself.
LeafSource: TypeAlias = "BlockLeaves | StoreLeaves | DaskLeaves | Rankings"


def read_leaves(source: Leaves, leaves: Sequence[int]) -> Iterator[tuple[int, RankingBlock]]:
    """The blocks of some leaves with their numbers; neighbours are read together."""
    for _, run in groupby(enumerate(leaves), key=lambda numbered: numbered[1] - numbered[0]):
        numbers = [leaf for _, leaf in run]
        yield from enumerate(source.iter_leaves(numbers[0], numbers[-1] + 1, labels=False), start=numbers[0])


def leaves_for_task(source: LeafSource, start: int, stop: int, name: str | None = None) -> Any:
    """What a task reads its leaves from: a part of the source, or rows that the cluster computes first, with a name."""
    from dask.delayed import delayed

    lazy = source.lazy_rows(start, stop)
    if lazy is None:
        return source.only(start, stop)
    return delayed(lazy.leaves_of, pure=False, traverse=False)(lazy.array, dask_key_name=name)


# A block in memory, cut into the leaves that a store of the same rows would have.


class BlockLeaves:
    """The leaves of a block."""

    # The rows are in memory already.
    decoded_bytes = 0.0

    def __init__(self, block: RankingBlock) -> None:
        self.block = block
        self.n_rankings, self.n_entries = block.n_rankings, len(block.items)

    @cached_property
    def leaf_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        groups = self.block.groups
        starts = None if groups is None else np.concatenate([[True], groups[1:] != groups[:-1]])
        rows = cut_leaves(self.block.n_rankings, default_leaf_rows(self.block.n_items), starts)
        return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.leaf_bounds) - 1

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn, as views."""
        del labels  # they are in memory anyway
        return _PartOfBlock(self.block, 0, self.leaf_bounds).iter_leaves(start, stop)

    def lazy_rows(self, _start: int, _stop: int) -> LazyRows | None:
        """None: nothing is left to be computed."""
        return None

    def only(self, start: int, stop: int) -> _PartOfBlock:
        """Copies of the rows of some leaves; views would carry the whole block along when they travel."""
        bounds = self.leaf_bounds[start : stop + 1]
        first_row = int(bounds[0])
        rows = self.block[first_row : int(bounds[-1])]
        check_ranges(rows, first_row=first_row)
        return _PartOfBlock(rows.take(np.arange(rows.n_rankings)), start, bounds - first_row, first_row)


class _PartOfBlock:
    """The rows of a run of leaves, with the number of the first leaf, where each begins, and the first row.

    The numbers of each leaf are checked when it is asked for.
    """

    def __init__(self, rows: RankingBlock, first_leaf: int, bounds: NDArray[np.int64], first_row: int = 0) -> None:
        self.rows = rows
        self.first_leaf = first_leaf
        self.bounds = bounds
        self.first_row = first_row

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn, as views."""
        del labels
        end = None if stop is None else stop - self.first_leaf + 1
        for first, last in pairwise(self.bounds[start - self.first_leaf : end].tolist()):
            block = self.rows[first:last]
            check_ranges(block, first_row=self.first_row + first)
            yield block


# The leaves of a store. A part of it knows the partitions it needs and no others.


class StoreLeaves:
    """The leaves of a store, or of neighbouring partitions of it, with the number of their first leaf."""

    def __init__(self, store: RankingStore, first_leaf: int = 0) -> None:
        self.store, self.first_leaf = store, first_leaf
        self.n_leaves, self.n_rankings, self.n_entries = store.n_leaves, store.n_rankings, store.n_entries
        self.decoded_bytes = store.decoded_bytes

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

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        end = None if stop is None else stop - self.first_leaf
        return self.store.iter_leaves(start - self.first_leaf, end, labels=labels)

    def lazy_rows(self, _start: int, _stop: int) -> LazyRows | None:
        """None: workers read the store themselves."""
        return None

    def only(self, start: int, stop: int) -> StoreLeaves:
        """The partitions that hold these leaves."""
        counts = [partition.n_leaves for partition in self.store.manifest.partitions]
        first_leaves = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        first = int(np.searchsorted(first_leaves, start, side="right")) - 1
        last = int(np.searchsorted(first_leaves, stop, side="left"))
        partitions = self.store.manifest.partitions[first:last]
        manifest = replace(self.store.manifest, partitions=partitions, history=[])
        part = RankingStore(self.store.location, manifest, first, self.store.features)
        return StoreLeaves(part, int(first_leaves[first]))
