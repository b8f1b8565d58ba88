"""What users hand in as rankings - a store, a path, an array, a Dask array, a block - as leaves that a fit can use."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.engine.dask_arrays import is_dask_array
from plmix_dist.engine.block_leaves import BlockLeaves
from plmix_dist.errors import SettingsError
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.leaves import cut_leaves, default_leaf_rows
from plmix_dist.rankings.ties import unorder_last_ties
from plmix_dist.store import RankingStore, open_store
from plmix_dist.store.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.rankings import Unranked


@dataclass(frozen=True)
class Rankings:
    """Rankings ready to be fitted or scored: a source of leaves, with weights of the user's where given.

    Ties that are no ties are treated here, rows of weight zero left out, and what a fit cannot use yet refused.
    """

    source: Any
    n_items: int
    item_names: tuple[str, ...]
    weights: NDArray[np.float64] | None = None
    first_row: int = 0
    leaf_bounds: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return int(self.source.n_leaves)

    @property
    def n_rankings(self) -> int:
        """The number of rows."""
        return int(self.leaf_bounds[-1])

    @property
    def n_weighted(self) -> int:
        """The number of rows that have a weight."""
        return self.n_rankings if self.weights is None else int(np.count_nonzero(self.weights))

    @property
    def n_entries(self) -> int:
        """How many items all rows list together, or have room for."""
        return int(self.source.n_entries)

    @property
    def mean_listed(self) -> float:
        """How many items a row lists, or has room for, on average."""
        return max(1.0, self.n_entries / self.n_rankings)

    @property
    def decoded_bytes(self) -> float:
        """Bytes of all blocks in memory; 0 where they are there already."""
        return float(getattr(self.source, "decoded_bytes", 0.0))

    @property
    def is_lazy(self) -> bool:
        """Whether results should be lazy too: for stores and Dask arrays."""
        return not isinstance(self.source, BlockLeaves)

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        blocks = self.source.iter_leaves(start, stop, labels=labels)
        return (self._usable(block, leaf) for leaf, block in enumerate(blocks, start=start))

    def usable_leaves(self, blocks: Iterator[RankingBlock], start: int) -> list[RankingBlock]:
        """Blocks that came another way than by `iter_leaves`, made ready all the same."""
        return [self._usable(block, leaf) for leaf, block in enumerate(blocks, start=start)]

    def only(self, start: int, stop: int) -> Rankings:
        """The same leaves by the same numbers, but with the weights of no others: what travels to a worker."""
        first, last = int(self.leaf_bounds[start]), int(self.leaf_bounds[stop])
        weights = (
            None if self.weights is None else self.weights[first - self.first_row : last - self.first_row]
        )
        only = getattr(self.source, "only", None)
        source = self.source if only is None else only(start, stop)
        return replace(self, source=source, weights=weights, first_row=first)

    def _usable(self, block: RankingBlock, leaf: int) -> RankingBlock:
        if self.weights is not None:
            first, last = int(self.leaf_bounds[leaf]), int(self.leaf_bounds[leaf + 1])
            weights = self.weights[first - self.first_row : last - self.first_row]
            block = block.replace(weights=weights)
            if (weights == 0).any():
                block = block.take(weights > 0)
        block = unorder_last_ties(block)
        if block.has_ties:
            assert block.tied is not None
            entry = int(np.flatnonzero(block.tied)[0])
            row = int(np.searchsorted(block.offsets, entry, side="right")) - 1
            raise SettingsError(
                f"leaf {leaf}, row {row}: item {self.item_names[int(block.items[entry])]!r} is tied with another, and "
                "ties cannot be fitted yet; leave such rows out, or break the ties first"
            )
        return block


def as_rankings(
    source: Any,
    *,
    n_items: int | None = None,
    unranked: Unranked | None = None,
    sample_weight: ArrayLike | None = None,
    item_names: tuple[str, ...] | None = None,
) -> Rankings:
    """Whatever the user gave, as leaves; an error that says what is wrong with it.

    `item_names` are those of a fitted model: a source that names its items must name the same.
    """
    if isinstance(source, Rankings):
        return source
    if isinstance(source, str | os.PathLike | Location):
        source = open_store(source)
    if isinstance(source, RankingStore):
        return _from_store(source, n_items, unranked, sample_weight, item_names)
    known = len(item_names) if item_names is not None else n_items
    if n_items is not None and known != n_items:
        raise SettingsError(f"n_items is {n_items}, but the model has {known} items")
    if is_dask_array(source):
        return _from_dask(source, known, unranked, sample_weight, item_names)
    if isinstance(source, RankingBlock):
        block = source
        if known is not None and known != block.n_items:
            raise SettingsError(f"the block has {block.n_items} items, but {known} are expected")
    else:
        block = RankingBlock.from_array(source, n_items=known, unranked=unranked)
    if block.n_rankings == 0:
        raise SettingsError("there are no rankings")
    if block.groups is not None:
        raise SettingsError(_NO_GROUPS)
    leaves = BlockLeaves(block)
    names = item_names or tuple(str(number) for number in range(block.n_items))
    weights = _weights(sample_weight, block.n_rankings)
    return Rankings(leaves, block.n_items, names, weights, leaf_bounds=leaves.bounds)


_NO_GROUPS = "rankings with groups cannot be fitted yet; leave the groups out"


def _from_store(
    store: RankingStore,
    n_items: int | None,
    unranked: Unranked | None,
    sample_weight: ArrayLike | None,
    item_names: tuple[str, ...] | None,
) -> Rankings:
    if unranked is not None:
        raise SettingsError("a store says itself what unranked items mean; leave out unranked")
    if n_items is not None and n_items != store.n_items:
        raise SettingsError(f"n_items is {n_items}, but the store has {store.n_items} items")
    if item_names is not None and store.item_names != item_names:
        raise SettingsError(
            f"the store at {store.location.url} has other items than the model: "
            f"{first_difference(store.item_names, item_names)}"
        )
    if any(
        name.startswith("groups")
        for number in range(store.n_partitions)
        for name in store.index(number).columns
    ):
        raise SettingsError(_NO_GROUPS)
    weights = _weights(sample_weight, store.n_rankings)
    return Rankings(store, store.n_items, store.item_names, weights, leaf_bounds=store.leaf_bounds)


def _from_dask(
    array: Any,
    n_items: int | None,
    unranked: Unranked | None,
    sample_weight: ArrayLike | None,
    item_names: tuple[str, ...] | None,
) -> Rankings:
    if n_items is None:
        n_items = int(array.max().compute()) + 1
    leaves = DaskLeaves(array, n_items, unranked)
    names = item_names or tuple(str(number) for number in range(n_items))
    weights = _weights(sample_weight, array.shape[0])
    return Rankings(leaves, n_items, names, weights, leaf_bounds=leaves.bounds)


class DaskLeaves:
    """The leaves of a Dask array (rows, places): canonical runs of rows, whatever its chunks."""

    def __init__(self, array: Any, n_items: int, unranked: Unranked | None) -> None:
        if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
            raise SettingsError(
                f"expected an integer array (rankings, places), but got {array.dtype} of shape {array.shape}"
            )
        if np.isnan(array.shape[0]):
            raise SettingsError(
                "the Dask array has chunks of unknown sizes; call compute_chunk_sizes() first"
            )
        self.array = array
        self.n_items = n_items
        self.unranked = unranked

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        rows = cut_leaves(int(self.array.shape[0]), default_leaf_rows(self.n_items))
        return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.bounds) - 1

    @property
    def n_entries(self) -> int:
        """How many items all rows have room for."""
        return int(self.array.shape[0] * self.array.shape[1])

    @property
    def decoded_bytes(self) -> float:
        """Bytes of all rows as blocks."""
        return float(self.array.shape[0] * (self.array.shape[1] + 11))

    def only(self, start: int, stop: int) -> DaskLeaves:
        """The same leaves by the same numbers without the array: its rows travel as the input of a task."""
        del start, stop
        light = DaskLeaves.__new__(DaskLeaves)
        light.__dict__.update(self.__dict__ | {"array": None, "bounds": self.bounds})
        return light

    def rows(self, start: int, stop: int) -> Any:
        """The rows of leaves `start` to `stop`, still lazy."""
        return self.array[int(self.bounds[start]) : int(self.bounds[stop])]

    def leaves_of(self, rows: NDArray[Any], start: int, stop: int) -> Iterator[RankingBlock]:
        """The blocks of leaves `start` to `stop`, from their rows."""
        first = int(self.bounds[start])
        for leaf in range(start, stop):
            low, high = int(self.bounds[leaf]) - first, int(self.bounds[leaf + 1]) - first
            yield RankingBlock.from_array(
                rows[low:high], n_items=self.n_items, unranked=self.unranked, first_row=first + low
            )

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn, computed in this process, some leaves at a time."""
        del labels
        end = self.n_leaves if stop is None else stop
        for first in range(start, end, 16):
            last = min(first + 16, end)
            yield from self.leaves_of(np.asarray(self.rows(first, last).compute()), first, last)


def _weights(sample_weight: ArrayLike | None, n_rankings: int) -> NDArray[np.float64] | None:
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, np.float64)
    if weights.shape != (n_rankings,):
        raise SettingsError(
            f"expected {n_rankings} sample weights, one a ranking, but got shape {weights.shape}"
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise SettingsError(
            f"sample_weight[{int(bad[0])}] is {weights[bad[0]]}, but must be finite and not negative"
        )
    if not weights.any():
        raise SettingsError("all sample weights are zero")
    return weights


def first_difference(found: tuple[str, ...], expected: tuple[str, ...]) -> str:
    """Where two lists of item names differ, in words."""
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=False)):
        if mine != theirs:
            return f"item {number} is {mine!r} here and {theirs!r} there"
    return f"{len(found)} items here and {len(expected)} there"
