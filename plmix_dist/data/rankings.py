"""Rankings: leaves of a store, a Dask array or a block, with the user's weights and covariates, as fits take them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.data.covariates import check_persons
from plmix_dist.engine.block_leaves import BlockLeaves
from plmix_dist.engine.leaf_source import LazyRows
from plmix_dist.rankings.tie_treatments import MARGINAL
from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from plmix_dist.engine.leaf_source import LeafSource, Leaves
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.rankings.tie_treatments import TieTreatment


@dataclass(frozen=True)
class LeafRows:
    """Where each leaf of a run begins and, if the user gave them, weights and covariates of its rows."""

    bounds: NDArray[np.int64]
    first_leaf: int
    weights: NDArray[np.float64] | None
    covariates: NDArray[np.float64] | None = None

    def first_row(self, leaf: int) -> int:
        """The number of the first row of a leaf in the whole source."""
        return int(self.bounds[leaf - self.first_leaf])

    def weights_of(self, leaf: int) -> NDArray[np.float64] | None:
        """The weights that the user gave to the rows of a leaf."""
        return None if self.weights is None else self.weights[self._rows_of(leaf)]

    def covariates_of(self, leaf: int) -> NDArray[np.float64] | None:
        """The covariates that the user gave to the rows of a leaf."""
        return None if self.covariates is None else self.covariates[self._rows_of(leaf)]

    def _rows_of(self, leaf: int) -> slice:
        first, last = self.bounds[leaf - self.first_leaf : leaf - self.first_leaf + 2] - self.bounds[0]
        return slice(first, last)


@dataclass(frozen=True)
class UsableLeaves:
    """Leaves as fits take them: with the user's weights and covariates, ties treated, groups numbered.

    Rows of weight zero are left out. This is what travels to a worker.
    """

    leaves: Leaves
    rows: LeafRows
    ties: TieTreatment = MARGINAL

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        blocks = self.leaves.iter_leaves(start, stop, labels=labels)
        return (self._usable(block, leaf) for leaf, block in enumerate(blocks, start=start))

    def _usable(self, block: RankingBlock, leaf: int) -> RankingBlock:
        if block.groups is not None:
            # Numbers take less memory than labels. That of a group is its first row, which no other leaf has.
            starts = np.where(block.group_starts, np.arange(block.n_rankings), 0)
            block = block.replace(groups=self.rows.first_row(leaf) + np.maximum.accumulate(starts))
        covariates = self.rows.covariates_of(leaf)
        if covariates is not None:
            if block.groups is not None:
                check_persons(covariates, block.group_starts, self.rows.first_row(leaf))
            block = block.replace(covariates=covariates)
        weights = self.rows.weights_of(leaf)
        if weights is not None:
            block = block.replace(weights=weights)
            if (weights == 0).any():
                block = block.take(np.flatnonzero(weights))
        return self.ties.on_reading(unorder_last_ties(block))


@dataclass(frozen=True)
class Rankings:
    """Rankings ready to be fitted or scored: leaves of a store, a Dask array or a block.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
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
    ties: TieTreatment = MARGINAL
    covariates: NDArray[np.float64] | None = None

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
        """Bytes of all rows as blocks in memory; 0 where they are in memory already.

        Where ties become linear extensions, the first leaf tells how much larger blocks get.
        """
        as_stored = self.source.decoded_bytes
        if not as_stored or not self.ties.extends or "tied" not in getattr(self.source, "columns", ()):
            return as_stored
        leaf = unorder_last_ties(next(iter(self.source.iter_leaves(0, 1, labels=False))))
        return as_stored * self.ties.on_reading(leaf).nbytes / leaf.nbytes

    @property
    def is_lazy(self) -> bool:
        """Whether results should be lazy too: for stores and Dask arrays."""
        return not isinstance(self.source, BlockLeaves)

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        rows = self._leaf_rows(start, self.n_leaves if stop is None else stop)
        return UsableLeaves(self.source, rows, self.ties).iter_leaves(start, stop, labels=labels)

    def only(self, start: int, stop: int) -> UsableLeaves:
        """The leaves from `start` to `stop`, with rows and weights of no others."""
        return UsableLeaves(self.source.only(start, stop), self._leaf_rows(start, stop), self.ties)

    def lazy_rows(self, start: int, stop: int) -> LazyRows | None:
        """The rows of some leaves where a cluster has to compute them."""
        lazy = self.source.lazy_rows(start, stop)
        if lazy is None:
            return None
        rows = self._leaf_rows(start, stop)
        return LazyRows(lazy.array, partial(_usable_leaves, lazy.leaves_of, rows, self.ties))

    def _leaf_rows(self, start: int, stop: int) -> LeafRows:
        bounds = self.leaf_bounds[start : stop + 1]
        weights = None if self.weights is None else self.weights[bounds[0] : bounds[-1]]
        covariates = None if self.covariates is None else self.covariates[bounds[0] : bounds[-1]]
        return LeafRows(bounds, start, weights, covariates)


def _usable_leaves(
    leaves_of: Callable[[NDArray[np.integer]], Leaves],
    leaf_rows: LeafRows,
    ties: TieTreatment,
    rows: NDArray[np.integer],
) -> UsableLeaves:
    """From computed rows to leaves that fits take."""
    return UsableLeaves(leaves_of(rows), leaf_rows, ties)
