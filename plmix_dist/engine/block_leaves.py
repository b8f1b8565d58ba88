"""A block in memory, cut into the leaves that a store of the same rows would have."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.rankings.leaves import cut_leaves, default_leaf_rows

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

    def __init__(
        self, block: RankingBlock, bounds: NDArray[np.int64] | None = None, first_row: int = 0
    ) -> None:
        self.block = block
        self._bounds = bounds
        self._first_row = first_row

    def only(self, start: int, stop: int) -> BlockLeaves:
        """The same leaves by the same numbers, with the rows of no others."""
        first, last = int(self.bounds[start]), int(self.bounds[stop])
        rows = self.block[first - self._first_row : last - self._first_row]
        # Copies, since views would carry the whole block along when they travel.
        return BlockLeaves(rows.take(np.arange(rows.n_rankings)), self.bounds, first)

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        if self._bounds is not None:
            return self._bounds
        groups = self.block.groups
        starts = None if groups is None else np.concatenate([[True], groups[1:] != groups[:-1]])
        rows = cut_leaves(self.block.n_rankings, default_leaf_rows(self.block.n_items), starts)
        return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])

    @property
    def n_entries(self) -> int:
        """How many items all rows list together."""
        return len(self.block.items)

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.bounds) - 1

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The rows of each leaf in turn, as views."""
        del labels  # they are in memory anyway
        for leaf in range(start, self.n_leaves if stop is None else stop):
            yield self.block[
                int(self.bounds[leaf]) - self._first_row : int(self.bounds[leaf + 1]) - self._first_row
            ]
