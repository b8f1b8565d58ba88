"""Rankings: leaves of a store, a Dask array or a block, with the user's weights and covariates, as fits take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.passes.leaves import BlockLeaves, LazyRows, LeafSource, Leaves
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.checks import LARGEST_WEIGHT, SMALLEST_TOTAL
from plmix_dist.rankings.choice_models import ChoiceModel
from plmix_dist.rankings.features import check_finite
from plmix_dist.rankings.ties import MARGINAL, TieTreatment
from plmix_dist.settings import numbers

# The user's covariates of persons, checked.


def checked_covariates(covariates: ArrayLike | None, n_rankings: int) -> Floats | None:
    """(n_rankings, n_columns): covariates from a table, or from one column (n_rankings,).

    An error if they are not one line of finite numbers per row.
    """
    if covariates is None:
        return None
    table = numbers("membership_covariates", covariates)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or len(table) != n_rankings:
        raise SettingsError(
            f"membership_covariates must have {n_rankings} rows, one per ranking, but has shape {table.shape}"
        )
    check_finite("membership_covariates", table, "leave the ranking out, or fill the value in")
    return table


def _check_persons(covariates: Floats, starts: NDArray[np.bool_], first_row: int) -> None:
    """An error if rows of one person have different covariates (n_rankings, n_columns).

    `starts` (n_rankings,) is true where a row is the first of its person; `first_row` is for messages.
    """
    differs = (covariates[1:] != covariates[:-1]) & ~starts[1:, None]
    bad = np.argwhere(differs)
    if len(bad):
        row, column = int(bad[0, 0]) + 1, int(bad[0, 1])
        raise SettingsError(
            f"membership_covariates[{first_row + row}, {column}] is {covariates[row, column]:g}, but the row before "
            f"has {covariates[row - 1, column]:g}, and both rankings are of one person (group); give all rankings of "
            "a person the same values"
        )


@dataclass(frozen=True)
class _UsableLeaves:
    """Leaves as fits take them: with the user's weights and covariates, ties treated, groups numbered.

    Rows of weight zero are left out. This is what travels to a worker: weights and covariates are those of the rows of
    a run of leaves from `first_leaf` on, which begin at `bounds`.
    """

    leaves: Leaves
    first_leaf: int
    bounds: NDArray[np.int64]
    weights: Floats | None
    covariates: Floats | None
    ties: TieTreatment
    choices: ChoiceModel | None = None

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        blocks = self.leaves.iter_leaves(start, stop, labels=labels)
        bounds = self.bounds[start - self.first_leaf :].tolist()
        return (self._usable(block, *ends) for block, ends in zip(blocks, pairwise(bounds), strict=False))

    def _usable(self, block: RankingBlock, first_row: int, end: int) -> RankingBlock:
        rows = slice(first_row - int(self.bounds[0]), end - int(self.bounds[0]))
        if block.groups is not None:
            # Numbers take less memory than labels. That of a group is its first row, which no other leaf has.
            starts = np.where(block.group_starts, np.arange(block.n_rankings), 0)
            block = block.replace(groups=first_row + np.maximum.accumulate(starts))
        if self.covariates is not None:
            if block.groups is not None:
                _check_persons(self.covariates[rows], block.group_starts, first_row)
            block = block.replace(covariates=self.covariates[rows])
        if self.weights is not None:
            block = block.replace(weights=self.weights[rows])
            if (self.weights[rows] == 0).any():
                block = block.take(np.flatnonzero(self.weights[rows]))
        block = self.ties.on_reading(block)
        return block if self.choices is None else self.choices.rows(block)


@dataclass(frozen=True)
class Rankings:
    """Rankings ready to be fitted or scored: leaves of a store, a Dask array or a block."""

    source: LeafSource
    n_items: int
    item_names: tuple[str, ...]
    weights: Floats | None = None
    ties: TieTreatment = MARGINAL
    covariates: Floats | None = None
    covariate_names: tuple[str, ...] = ()
    # What the choices of a row are, where these become the rows of a fit; items are then their alternatives.
    choices: ChoiceModel | None = None
    # Of the columns of features that the rows have.
    feature_names: tuple[str, ...] = ()

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

        Where ties become linear extensions, the first leaf shows how much larger blocks get.
        """
        as_stored = self.source.decoded_bytes
        if not as_stored or not self.ties.extends or "tied" not in getattr(self.source, "columns", ()):
            return as_stored
        leaf = next(iter(self.source.iter_leaves(0, 1, labels=False)))
        return as_stored * self.ties.on_reading(leaf).nbytes / leaf.nbytes

    @property
    def is_lazy(self) -> bool:
        """Whether results should be lazy too: for stores and Dask arrays."""
        return not isinstance(self.source, BlockLeaves)

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn."""
        return self._usable(self.source, start, stop).iter_leaves(start, stop, labels=labels)

    def only(self, start: int, stop: int) -> _UsableLeaves:
        """The leaves from `start` to `stop`, with rows and weights of no others."""
        return self._usable(self.source.only(start, stop), start, stop)

    def lazy_rows(self, start: int, stop: int) -> LazyRows | None:
        """The rows of some leaves where a cluster has to compute them."""
        lazy = self.source.lazy_rows(start, stop)
        if lazy is None:
            return None
        return LazyRows(lazy.array, partial(_of_computed, self._usable(None, start, stop), lazy.leaves_of))

    def _usable(self, leaves: Any, start: int, stop: int | None) -> _UsableLeaves:
        bounds = self.leaf_bounds[start : None if stop is None else stop + 1]
        weights = None if self.weights is None else self.weights[bounds[0] : bounds[-1]]
        covariates = None if self.covariates is None else self.covariates[bounds[0] : bounds[-1]]
        return _UsableLeaves(leaves, start, bounds, weights, covariates, self.ties, self.choices)


def _of_computed(
    usable: _UsableLeaves, leaves_of: Callable[[NDArray[np.integer]], Leaves], rows: NDArray[np.integer]
) -> _UsableLeaves:
    """From computed rows to leaves that fits take."""
    return replace(usable, leaves=leaves_of(rows))


# The weights that users give to their rows, and checks of total weight.


def checked_weights(sample_weight: ArrayLike | None, n_rankings: int) -> Floats | None:
    """(n_rankings,): the weights; an error if they are not one finite number per row, from 0 on."""
    if sample_weight is None:
        return None
    weights = numbers("sample_weight", sample_weight)
    if weights.shape != (n_rankings,):
        raise SettingsError(f"expected {n_rankings} sample weights, one per ranking, but got shape {weights.shape}")
    bad = np.flatnonzero(~((weights >= 0) & (weights <= LARGEST_WEIGHT)))
    if len(bad):
        raise SettingsError(
            f"sample_weight[{int(bad[0])}] is {weights[bad[0]]}, but must be finite, not negative, and at most "
            f"{LARGEST_WEIGHT:g}"
        )
    check_total(float(weights.sum()))
    return weights


def check_total(weight: float) -> None:
    """An error if all weights together are zero, or so small that sums of them lose digits."""
    if weight < SMALLEST_TOTAL:
        raise SettingsError(
            f"all weights together are {weight:g}, which is too little: at least {SMALLEST_TOTAL:g}; multiply them"
            if weight
            else "all weights are zero"
        )
