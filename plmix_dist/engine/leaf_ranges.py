"""From leaves to tasks: few, long tasks of nearly equal work, cut where they leave few open nodes of the tree."""

from __future__ import annotations

import itertools

# Cuts are multiples of a power of two near this share of a task, which bounds both idle time and nodes that travel.
_GRANULES_PER_TASK = 16


def leaf_ranges(n_leaves: int, n_tasks: int) -> list[tuple[int, int]]:
    """Runs of leaves for at most `n_tasks` tasks.

    Examples
    --------
    >>> leaf_ranges(100, 2)
    [(0, 50), (50, 100)]
    >>> leaf_ranges(3, 8)
    [(0, 1), (1, 2), (2, 3)]
    """
    n_tasks = max(1, min(n_tasks, n_leaves))
    per_task = n_leaves / n_tasks
    granule = 1
    while granule * 2 * _GRANULES_PER_TASK <= per_task:
        granule *= 2
    cuts = sorted({round(n_leaves * task / n_tasks / granule) * granule for task in range(1, n_tasks)})
    bounds = [0, *(cut for cut in cuts if 0 < cut < n_leaves), n_leaves]
    return list(itertools.pairwise(bounds))
