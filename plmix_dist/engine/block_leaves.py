"""A block in memory, cut into the leaves that a store of the same rows would have."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.rankings.leaves import cut_leaves, default_leaf_rows
from plmix_dist.rankings.ranges import check_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class BlockLeaves:
    """The leaves of a block.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> BlockLeaves(RankingBlock.from_array([[0, 1], [1, 0]])).n_leaves
    1
    """

    # The rows are in memory already.
    decoded_bytes = 0.0

    def __init__(self, block: RankingBlock) -> None:
        self.block = block

    @cached_property
    def leaf_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        groups = self.block.groups
        starts = None if groups is None else np.concatenate([[True], groups[1:] != groups[:-1]])
        rows = cut_leaves(self.block.n_rankings, default_leaf_rows(self.block.n_items), starts)
        return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])

    @property
    def n_rankings(self) -> int:
        """The number of rows."""
        return self.block.n_rankings

    @property
    def n_entries(self) -> int:
        """How many items all rows list together."""
        return len(self.block.items)

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.leaf_bounds) - 1

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn, as views."""
        del labels  # they are in memory anyway
        return PartOfBlock(self.block, 0, self.leaf_bounds).iter_leaves(start, stop)

    def lazy_rows(self, start: int, stop: int) -> None:
        """None: nothing is left to be computed."""
        del start, stop

    def only(self, start: int, stop: int) -> PartOfBlock:
        """Copies of the rows of some leaves; views would carry the whole block along when they travel."""
        bounds = self.leaf_bounds[start : stop + 1]
        first_row = int(bounds[0])
        rows = self.block[first_row : int(bounds[-1])]
        check_ranges(rows, first_row=first_row)
        return PartOfBlock(rows.take(np.arange(rows.n_rankings)), start, bounds - first_row, first_row)


class PartOfBlock:
    """The rows of a run of leaves, with the number of the first leaf, where each begins, and the first row.

    The numbers of each leaf are checked when it is asked for.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> part = PartOfBlock(RankingBlock.from_array([[0, 1], [1, 0]]), first_leaf=7, bounds=np.array([0, 1, 2]))
    >>> [block.n_rankings for block in part.iter_leaves(7, 9)]
    [1, 1]
    """

    def __init__(
        self, rows: RankingBlock, first_leaf: int, bounds: NDArray[np.int64], first_row: int = 0
    ) -> None:
        self.rows = rows
        self.first_leaf = first_leaf
        self.bounds = bounds
        self.first_row = first_row

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn, as views."""
        del labels
        end = None if stop is None else stop - self.first_leaf + 1
        for first, last in pairwise(self.bounds[start - self.first_leaf : end].tolist()):
            block = self.rows[first:last]
            check_ranges(block, first_row=self.first_row + first)
            yield block
