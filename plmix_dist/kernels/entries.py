"""The rows of a block as kernels read them: in the same types for every block."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.native import Kernel
from plmix_dist.kernels.pointers import pointers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.pointers import Room
    from plmix_dist.kernels.workspace import Workspace
    from plmix_dist.rankings import RankingBlock


class Rows(NamedTuple):
    """Row r lists `entries[offsets[r]:offsets[r + 1]]`; the first `n_ordered[r]` of them are in order.

    An entry is the number of an item times a width. It says where the numbers of that item begin in an array that has
    `width` numbers per item. Multiplying at every look-up would cost as much as the look-up itself.

    Parameters
    ----------
    entries : (total listed,)
    offsets : (n_rows + 1,)
    n_ordered, below, weights : (n_rows,)
        `below` is 1 if unlisted items rank below the listed ones, 0 if they were not on offer.
    longest
        How many items the longest row lists; 1 if there are no rows.
    """

    entries: Room
    offsets: NDArray[np.int64]
    n_ordered: Room
    below: NDArray[np.bool_]
    weights: Room
    n_rows: int
    longest: int


class Items(NamedTuple):
    """Item numbers of `item_bytes` bytes each, and the entries to make of them."""

    items: NDArray[np.unsignedinteger]
    n_listed: int
    item_bytes: int
    width: int
    entries: Room


_fill_entries = Kernel("fill_entries", Items)


def rows_of(block: RankingBlock, width: int, workspace: Workspace) -> Rows:
    """The rows of a block. Narrow item numbers become wider here, leaf by leaf, and nowhere else.

    Examples
    --------
    >>> from plmix_dist.kernels.workspace import Workspace
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[2, 0, 1], [1, 2, 0]])
    >>> rows_of(block, 4, Workspace()).entries.array.tolist()
    [8, 0, 4, 4, 8, 0]
    """
    items, n_rows = np.ascontiguousarray(block.items), block.n_rankings
    entries = workspace.empty("entries", len(items), np.int32)
    _fill_entries(pointers(Items(items, len(items), items.itemsize, width, entries)))
    n_ordered, weights = workspace.empty("n_ordered", n_rows, np.int32), workspace.empty("weights", n_rows)
    n_ordered.array[:] = block.n_ordered
    weights.array[:] = 1.0 if block.weights is None else block.weights
    return Rows(
        entries,
        np.ascontiguousarray(block.offsets, np.int64),
        n_ordered,
        np.ascontiguousarray(block.below, np.bool_),
        weights,
        n_rows,
        int(block.n_listed.max(initial=1)),
    )
