"""What users hand in as rankings - a store, a path, an array, a Dask array, a block - as leaves that a fit can use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from plmix_dist.engine.block_leaves import BlockLeaves
from plmix_dist.engine.dask_arrays import is_dask_array
from plmix_dist.engine.dask_leaves import DaskLeaves, check_dask_array, largest_item
from plmix_dist.engine.leaf_source import LazyRows
from plmix_dist.engine.memory_needed import check_memory
from plmix_dist.engine.store_leaves import StoreLeaves
from plmix_dist.errors import SettingsError
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.ranges import LARGEST_WEIGHT, SMALLEST_TOTAL, check_ranges
from plmix_dist.rankings.ties import unorder_last_ties
from plmix_dist.rankings.validate import check_rows
from plmix_dist.store import RankingStore, open_store
from plmix_dist.store.location import Location
from plmix_dist.values import numbers, one_of, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.engine.leaf_source import LeafSource, Leaves
    from plmix_dist.rankings import Unranked


@dataclass(frozen=True)
class LeafRows:
    """Where each leaf of a run begins and, if the user gave weights, the weights of its rows."""

    bounds: NDArray[np.int64]
    first_leaf: int
    weights: NDArray[np.float64] | None

    def first_row(self, leaf: int) -> int:
        """The number of the first row of a leaf in the whole source."""
        return int(self.bounds[leaf - self.first_leaf])

    def weights_of(self, leaf: int) -> NDArray[np.float64] | None:
        """The weights that the user gave to the rows of a leaf."""
        if self.weights is None:
            return None
        first, last = self.bounds[leaf - self.first_leaf : leaf - self.first_leaf + 2] - self.bounds[0]
        return self.weights[first:last]


@dataclass(frozen=True)
class UsableLeaves:
    """Leaves as fits take them: with the user's weights, without rows of weight zero, ties checked.

    This is what travels to a worker.
    """

    leaves: Leaves
    item_names: tuple[str, ...]
    rows: LeafRows

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        blocks = self.leaves.iter_leaves(start, stop, labels=labels)
        return (self._usable(block, leaf) for leaf, block in enumerate(blocks, start=start))

    def _usable(self, block: RankingBlock, leaf: int) -> RankingBlock:
        weights = self.rows.weights_of(leaf)
        kept = None
        if weights is not None:
            block = block.replace(weights=weights)
            if (weights == 0).any():
                kept = np.flatnonzero(weights)
                block = block.take(kept)
        block = unorder_last_ties(block)
        if block.has_ties:
            self._refuse_ties(block, self.rows.first_row(leaf), kept)
        return block

    def _refuse_ties(self, block: RankingBlock, first_row: int, kept: NDArray[np.intp] | None) -> NoReturn:
        """An error that names the first tie by its row in the user's data; `kept` has the rows that are left."""
        assert block.tied is not None
        entry = int(np.flatnonzero(block.tied)[0])
        row = int(np.searchsorted(block.offsets, entry, side="right")) - 1
        row = first_row + (row if kept is None else int(kept[row]))
        raise SettingsError(
            f"row {row}: item {self.item_names[int(block.items[entry])]!r} is tied with another, and "
            "ties cannot be fitted yet; leave such rows out, or break the ties first"
        )


@dataclass(frozen=True)
class Rankings:
    """Rankings ready to be fitted or scored: leaves of a store, a Dask array or a block.

    Examples
    --------
    >>> rankings = as_rankings([[0, 1, 2], [2, 1, 0]], sample_weight=[1.0, 0.0])
    >>> rankings.n_rankings, rankings.n_weighted, rankings.n_leaves
    (2, 1, 1)
    >>> [block.n_rankings for block in rankings.iter_leaves()]
    [1]
    """

    source: LeafSource
    n_items: int
    item_names: tuple[str, ...]
    weights: NDArray[np.float64] | None = None

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return self.source.n_leaves

    @property
    def n_rankings(self) -> int:
        """The number of rows."""
        return self.source.n_rankings

    @property
    def leaf_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        return self.source.leaf_bounds

    @property
    def n_weighted(self) -> int:
        """The number of rows that have a weight."""
        return self.n_rankings if self.weights is None else int(np.count_nonzero(self.weights))

    @property
    def n_entries(self) -> int:
        """How many items all rows list together, or have room for."""
        return self.source.n_entries

    @property
    def mean_listed(self) -> float:
        """How many items a row lists, or has room for, on average."""
        return max(1.0, self.n_entries / self.n_rankings)

    @property
    def decoded_bytes(self) -> float:
        """Bytes of all rows as blocks in memory; 0 where they are in memory already."""
        return self.source.decoded_bytes

    @property
    def is_lazy(self) -> bool:
        """Whether results should be lazy too: for stores and Dask arrays."""
        return not isinstance(self.source, BlockLeaves)

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        rows = self._leaf_rows(start, self.n_leaves if stop is None else stop)
        return UsableLeaves(self.source, self.item_names, rows).iter_leaves(start, stop, labels=labels)

    def only(self, start: int, stop: int) -> UsableLeaves:
        """The leaves from `start` to `stop`, with rows and weights of no others."""
        return UsableLeaves(self.source.only(start, stop), self.item_names, self._leaf_rows(start, stop))

    def lazy_rows(self, start: int, stop: int) -> LazyRows | None:
        """The rows of some leaves where a cluster has to compute them."""
        lazy = self.source.lazy_rows(start, stop)
        if lazy is None:
            return None
        rows = self._leaf_rows(start, stop)
        return LazyRows(lazy.array, partial(_usable_leaves, lazy.leaves_of, self.item_names, rows))

    def _leaf_rows(self, start: int, stop: int) -> LeafRows:
        bounds = self.leaf_bounds[start : stop + 1]
        weights = None if self.weights is None else self.weights[bounds[0] : bounds[-1]]
        return LeafRows(bounds, start, weights)


def _usable_leaves(
    leaves_of: Callable[[NDArray[np.integer]], Leaves],
    item_names: tuple[str, ...],
    leaf_rows: LeafRows,
    rows: NDArray[np.integer],
) -> UsableLeaves:
    """From computed rows to leaves that fits take."""
    return UsableLeaves(leaves_of(rows), item_names, leaf_rows)


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

    Examples
    --------
    >>> as_rankings([[0, 1, 2], [2, 1, 0]]).n_items
    3
    """
    if isinstance(source, Rankings):
        return source
    n_items = _checked_arguments(n_items, unranked)
    if isinstance(source, str | os.PathLike | Location):
        source = open_store(source)
    if isinstance(source, RankingStore):
        return _from_store(source, n_items, unranked, sample_weight, item_names)
    known = len(item_names) if item_names is not None else n_items
    if n_items is not None and known != n_items:
        raise SettingsError(f"n_items is {n_items}, but the model has {known} items")
    if is_dask_array(source):
        return _from_dask(source, known, unranked, sample_weight, item_names)
    block = _block_of(source, known, unranked)
    names = item_names or tuple(str(number) for number in range(block.n_items))
    return Rankings(BlockLeaves(block), block.n_items, names, _weights(sample_weight, block.n_rankings))


def _checked_arguments(n_items: Any, unranked: Any) -> int | None:
    if unranked is not None:
        one_of("unranked", unranked, ("below", "absent"))
    if n_items is None:
        return None
    check_memory(whole_number("n_items", n_items, at_least=1))
    return int(n_items)


def _block_of(source: Any, n_items: int | None, unranked: Unranked | None) -> RankingBlock:
    """A block that a fit can use, from an array or from a block, which may have been made by hand."""
    if isinstance(source, RankingBlock):
        block = source
        check_ranges(block)
        check_rows(block.replace(weights=None))  # here a row may have weight zero
        if n_items is not None and n_items != block.n_items:
            raise SettingsError(f"the block has {block.n_items} items, but {n_items} are expected")
        if block.n_rankings:
            _check_total(block.total_weight)
    else:
        block = RankingBlock.from_array(source, n_items=n_items, unranked=unranked)
    check_memory(block.n_items)
    if block.n_rankings == 0:
        raise SettingsError("there are no rankings")
    if block.groups is not None:
        raise SettingsError(_NO_GROUPS)
    return block


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
    leaves = StoreLeaves(store)
    _check_total(store.total_weight)
    if any(name.startswith("groups") for name in leaves.columns):
        raise SettingsError(_NO_GROUPS)
    weights = _weights(sample_weight, store.n_rankings)
    return Rankings(leaves, store.n_items, store.item_names, weights)


def _from_dask(
    array: Any,
    n_items: int | None,
    unranked: Unranked | None,
    sample_weight: ArrayLike | None,
    item_names: tuple[str, ...] | None,
) -> Rankings:
    check_dask_array(array)
    if n_items is None:
        n_items = largest_item(array) + 1
        check_memory(n_items)
    leaves = DaskLeaves(array, n_items, unranked)
    names = item_names or tuple(str(number) for number in range(n_items))
    weights = _weights(sample_weight, array.shape[0])
    return Rankings(leaves, n_items, names, weights)


def _weights(sample_weight: ArrayLike | None, n_rankings: int) -> NDArray[np.float64] | None:
    if sample_weight is None:
        return None
    weights = numbers("sample_weight", sample_weight)
    if weights.shape != (n_rankings,):
        raise SettingsError(
            f"expected {n_rankings} sample weights, one per ranking, but got shape {weights.shape}"
        )
    bad = np.flatnonzero(~((weights >= 0) & (weights <= LARGEST_WEIGHT)))
    if len(bad):
        raise SettingsError(
            f"sample_weight[{int(bad[0])}] is {weights[bad[0]]}, but must be finite, not negative, and at most "
            f"{LARGEST_WEIGHT:g}"
        )
    _check_total(float(weights.sum()))
    return weights


def _check_total(weight: float) -> None:
    if weight < SMALLEST_TOTAL:
        raise SettingsError(
            f"all weights together are {weight:g}, which is too little: at least {SMALLEST_TOTAL:g}; multiply them"
            if weight
            else "all weights are zero"
        )


def first_difference(found: tuple[str, ...], expected: tuple[str, ...]) -> str:
    """Where two lists of item names differ, in words.

    Examples
    --------
    >>> first_difference(("tea", "mate"), ("tea", "milk"))
    "item 1 is 'mate' here and 'milk' there"
    """
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=False)):
        if mine != theirs:
            return f"item {number} is {mine!r} here and {theirs!r} there"
    return f"{len(found)} items here and {len(expected)} there"
