"""The canonical tree: one way to add up statistics over leaves, whoever computes which of them.

Node (level, index) covers the leaves index * 2**level up to (index + 1) * 2**level. A node is the sum of its two
halves, left plus right, or the left half alone where the data end before the right one begins. Any task that has summed
some nodes can hand them on; siblings are joined wherever they meet, so that the bits of the root depend on nothing but
the leaves.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.errors import FitError
from plmix_dist.rankings import RankingBlock, check_ranges
from plmix_dist.threads import check_stopped

if TYPE_CHECKING:
    from plmix_dist.passes.request import Aggregation, Request

    NumberedBlocks = Iterable[tuple[int, RankingBlock]]
    Combine = Callable[[Any, Any], Any]
    Reader = Callable[[Sequence[int]], NumberedBlocks]

Nodes = dict[tuple[int, int], Any]


def add_statistics(left: Any, right: Any) -> Any:
    """The sum of two arrays, or of two tuples of such, named or not, field by field."""
    if not isinstance(left, tuple):
        return left + right
    sums = (add_statistics(mine, theirs) for mine, theirs in zip(left, right, strict=True))
    return tuple(sums) if type(left) is tuple else type(left)(*sums)


class TreeSum:
    """Adds up leaves as they come and joins siblings at once, so that few sums are held at a time.

    Examples
    --------
    >>> from collections import namedtuple
    >>> import numpy as np
    >>> Total = namedtuple("Total", ["sum"])
    >>> tree = TreeSum(n_leaves=3)
    >>> for leaf in (2, 0, 1):
    ...     tree.add_leaf(leaf, Total(np.array([float(leaf)])))
    >>> tree.root()
    Total(sum=array([3.]))
    """

    def __init__(self, n_leaves: int, combine: Callable[[Any, Any], Any] = add_statistics) -> None:
        self.n_leaves = n_leaves
        self.combine = combine
        self.nodes: Nodes = {}

    def add_leaf(self, leaf: int, statistics: Any) -> None:
        """Add the statistics of one leaf."""
        self._insert(0, leaf, statistics)

    def add_nodes(self, nodes: Nodes) -> None:
        """Add nodes that were summed elsewhere."""
        for (level, index), statistics in nodes.items():
            self._insert(level, index, statistics)

    def root(self) -> Any:
        """The sum over all leaves; an error where some are missing."""
        if len(self.nodes) != 1:
            raise ValueError(f"the sum is not complete: {sorted(self.nodes)} of {self.n_leaves} leaves")
        ((level, index), statistics) = next(iter(self.nodes.items()))
        assert index == 0, "the root covers the first leaf"
        assert 1 << level >= self.n_leaves, "the root covers the last leaf"
        return statistics

    def _insert(self, level: int, index: int, statistics: Any) -> None:
        """Put a node in, and climb as long as its sibling is there or lies beyond the data."""
        while 1 << level < self.n_leaves:
            sibling = self.nodes.pop((level, index ^ 1), None)
            if sibling is not None:
                pair = (statistics, sibling) if index % 2 == 0 else (sibling, statistics)
                statistics = self.combine(*pair)
            elif index % 2 == 1 or (index + 1) << level < self.n_leaves:
                break
            level, index = level + 1, index // 2
        self.nodes[level, index] = statistics


# From leaves to tasks: few, long tasks of nearly equal work, cut where they leave few open nodes of the tree.

# Cuts are multiples of a power of two near this share of a task, which bounds both idle time and nodes that travel.
_GRANULES_PER_TASK = 16


def leaf_ranges(n_leaves: int, n_tasks: int, first: int = 0) -> list[tuple[int, int]]:
    """Runs of `n_leaves` leaves from the `first` on, for at most `n_tasks` tasks of equal work."""
    n_tasks = max(1, min(n_tasks, n_leaves))
    return [run for run in shared_ranges(n_leaves, [1] * n_tasks, first) if run[0] < run[1]]


def shared_ranges(n_leaves: int, shares: Sequence[int], first: int = 0) -> list[tuple[int, int]]:
    """One run of leaves per share, in proportion to it; with few leaves some runs are empty."""
    total = sum(shares)
    granule = 1
    while granule * 2 * _GRANULES_PER_TASK * total <= n_leaves * min(shares):
        granule *= 2
    cuts = (round((first + n_leaves * done / total) / granule) * granule for done in accumulate(shares[:-1]))
    inside = (min(max(cut, first), first + n_leaves) for cut in cuts)
    return list(pairwise([first, *inside, first + n_leaves]))


# The work of one task: the statistics of several requests over a run of leaves, combined as far as the tree allows.


class Failure(NamedTuple):
    """Stands in for the statistic of leaves where a request has failed. Combined with anything, it stays a failure."""

    error: FitError


class Summed(NamedTuple):
    """Nodes of the tree of each request, and the seconds they took: of the slowest task, and of combining."""

    nodes: list[Nodes]
    pass_seconds: float
    reduce_seconds: float


class Places(NamedTuple):
    """Where leaves of a run stand in the tree of a request."""

    # The number of leaves of that tree.
    size: int
    # The leaves of the run that the request goes through; None for all of them, and each leaf is its own place.
    leaves: tuple[int, ...] | None = None
    # The place of the first of these leaves.
    first: int = 0

    def of(self, leaf: int) -> int | None:
        """The place of a leaf; None if the request leaves it out."""
        if self.leaves is None:
            return leaf
        place = bisect_left(self.leaves, leaf)
        return self.first + place if place < len(self.leaves) and self.leaves[place] == leaf else None


class Work(NamedTuple):
    """What a task must know of a request."""

    aggregation: Aggregation
    params: Any
    places: Places


def places_in(request: Request, n_leaves: int, start: int, stop: int) -> Places:
    """The places of the leaves from `start` to `stop` in the tree of a request."""
    if request.leaves is None:
        return Places(n_leaves)
    first, last = bisect_left(request.leaves, start), bisect_left(request.leaves, stop)
    return Places(len(request.leaves), request.leaves[first:last], first)


def wanted_leaves(places: Iterable[Places], start: int, stop: int) -> Sequence[int]:
    """The leaves from `start` to `stop` that any request goes through."""
    chosen: set[int] = set()
    for place in places:
        if place.leaves is None:
            return range(start, stop)
        chosen.update(place.leaves)
    return sorted(chosen)


def cut_leaves_for(leaves: Sequence[int], n_threads: int) -> list[Sequence[int]]:
    """Leaves cut into runs of nearly equal length, one per thread."""
    first = leaves[0] if isinstance(leaves, range) and leaves else 0
    ranges = leaf_ranges(len(leaves), n_threads, first)
    return [leaves[start - first : stop - first] for start, stop in ranges]


def sum_leaves(
    read: Reader,
    leaves: Sequence[int],
    work: Sequence[Work],
    threads: Executor | None,
    n_threads: int,
    beat: Callable[[], None] | None = None,
) -> Summed:
    """Statistics of several requests over some leaves, given by rising numbers, summed by several threads.

    `read` gives the blocks of some of the leaves with their numbers. Without `threads` the caller's thread does it all.
    `beat` is called after each leaf, as a sign of life.
    """
    prepared = [_guarded(one.aggregation.prepare, one.params) for one in work]
    sum_run = partial(_sum_run, read, work, prepared, beat)
    if threads is None:
        return sum_run(leaves)
    runs = cut_leaves_for(leaves, n_threads)
    trees = [(one.aggregation.combine, one.places.size) for one in work]
    return join(trees, list(threads.map(sum_run, runs)))


def _sum_run(
    read: Reader, work: Sequence[Work], prepared: Sequence[Any], beat: Callable[[], None] | None, leaves: Sequence[int]
) -> Summed:
    begun = time.perf_counter()
    trees = [_tree(one.aggregation.combine, one.places.size) for one in work]
    ready = list(prepared)
    for leaf, block in read(leaves):
        # In every pass: blocks that are kept in memory may be changed there.
        check_ranges(block, f"leaf {leaf}, rows counted from its first")
        for number, (aggregation, _, places) in enumerate(work):
            check_stopped()
            place = places.of(leaf)
            if place is None:
                continue
            found = ready[number]
            if not isinstance(found, Failure):
                found = _guarded(aggregation.leaf, leaf, block, found)
                if isinstance(found, Failure):
                    # The request has failed as a whole: its other leaves need not be computed.
                    where = f"leaf {leaf} ({block.n_rankings} rankings)"
                    found = ready[number] = Failure(type(found.error)(f"{where}: {found.error}"))
            trees[number].add_leaf(place, found)
        if beat is not None:
            beat()
    return Summed([tree.nodes for tree in trees], time.perf_counter() - begun, 0.0)


def join(trees: Sequence[tuple[Combine, int]], parts: Sequence[Summed]) -> Summed:
    """The statistics of several tasks, siblings combined.

    `trees` has, for each request, how two statistics combine, and the number of leaves of its tree.
    """
    begun = time.perf_counter()
    sums = [_tree(combine, size) for combine, size in trees]
    for part in parts:
        for tree, nodes in zip(sums, part.nodes, strict=True):
            tree.add_nodes(nodes)
    slowest = max(part.pass_seconds for part in parts)
    earlier = max(part.reduce_seconds for part in parts)
    return Summed([tree.nodes for tree in sums], slowest, earlier + time.perf_counter() - begun)


def total_of(nodes: Nodes, size: int) -> Any:
    """The statistic over all leaves of a tree of `size` leaves, or its failure."""
    tree = TreeSum(size)
    tree.nodes = nodes
    return tree.root()


def finished(total: Any, function: Callable[[Any], Any]) -> Any:
    """What a finishing function makes of a total; a failure stays one."""
    return total if isinstance(total, Failure) else _guarded(function, total)


def _tree(combine: Combine, size: int) -> TreeSum:
    return TreeSum(size, partial(_combined, combine))


def _combined(combine: Combine, left: Any, right: Any) -> Any:
    """Two statistics combined, either of which may be a failure; that of the lower leaf is kept."""
    if isinstance(left, Failure):
        return left
    return right if isinstance(right, Failure) else combine(left, right)


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, or the failure of the fit it works for. Other errors concern the whole pass."""
    try:
        return function(*arguments)
    except FitError as error:
        return Failure(error)
