"""From leaves to tasks: few, long tasks of nearly equal work, cut where they leave few open nodes of the tree."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Cuts are multiples of a power of two near this share of a task, which bounds both idle time and nodes that travel.
_GRANULES_PER_TASK = 16


def leaf_ranges(n_leaves: int, n_tasks: int, first: int = 0) -> list[tuple[int, int]]:
    """Runs of `n_leaves` leaves from the `first` on, for at most `n_tasks` tasks of equal work.

    Examples
    --------
    >>> leaf_ranges(100, 2)
    [(0, 50), (50, 100)]
    >>> leaf_ranges(3, 8)
    [(0, 1), (1, 2), (2, 3)]
    """
    n_tasks = max(1, min(n_tasks, n_leaves))
    return [run for run in shared_ranges(n_leaves, [1] * n_tasks, first) if run[0] < run[1]]


def shared_ranges(n_leaves: int, shares: Sequence[int], first: int = 0) -> list[tuple[int, int]]:
    """One run of leaves per share, in proportion to it; with few leaves some runs are empty.

    Examples
    --------
    >>> shared_ranges(100, [1, 3])
    [(0, 25), (25, 100)]
    >>> shared_ranges(1, [1, 1, 1])
    [(0, 0), (0, 1), (1, 1)]
    """
    total = sum(shares)
    granule = 1
    while granule * 2 * _GRANULES_PER_TASK * total <= n_leaves * min(shares):
        granule *= 2
    cuts = (round((first + n_leaves * done / total) / granule) * granule for done in accumulate(shares[:-1]))
    inside = (min(max(cut, first), first + n_leaves) for cut in cuts)
    return list(pairwise([first, *inside, first + n_leaves]))
