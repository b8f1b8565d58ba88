"""Leaves: fixed runs of rows. Every sum is formed leaf by leaf, so bits do not depend on chunks or workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALLEST_LEAF = 4096


def default_leaf_rows(n_items: int) -> int:
    """Rows per leaf: 4,096, and more for many items, so that adding statistics costs little beside the rows.

    Examples
    --------
    >>> default_leaf_rows(100), default_leaf_rows(20_000)
    (4096, 65536)
    """
    return max(SMALLEST_LEAF, 1 << (2 * n_items - 1).bit_length())


def cut_leaves(n_rows: int, leaf_rows: int, group_starts: NDArray[np.bool_] | None = None) -> list[int]:
    """Number of rows of each leaf of a partition.

    Leaves have `leaf_rows` rows; the last has the rest. With groups a leaf ends earlier, after the last
    group that fits. A group larger than a leaf is a leaf of its own.

    Parameters
    ----------
    group_starts : (n_rows,)
        True if a row is the first of its group.

    Examples
    --------
    >>> cut_leaves(10, 4)
    [4, 4, 2]
    >>> cut_leaves(6, 4, np.array([True, False, False, True, False, False]))
    [3, 3]
    """
    if group_starts is None:
        full, rest = divmod(n_rows, leaf_rows)
        return [leaf_rows] * full + ([rest] if rest else [])
    boundaries = np.append(np.flatnonzero(group_starts), n_rows)
    leaves = []
    start = 0
    while start < n_rows:
        last_that_fits = boundaries[np.searchsorted(boundaries, start + leaf_rows, side="right") - 1]
        end = int(last_that_fits)
        if end <= start:
            end = int(boundaries[np.searchsorted(boundaries, start, side="right")])
        leaves.append(end - start)
        start = end
    return leaves
