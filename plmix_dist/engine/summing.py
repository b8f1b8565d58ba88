"""The work of one task: the statistics of several requests over a run of leaves, combined as far as the tree allows."""

from __future__ import annotations

import time
from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.engine.leaf_ranges import leaf_ranges
from plmix_dist.engine.tree import TreeSum
from plmix_dist.errors import FitError
from plmix_dist.interruption import check_stopped
from plmix_dist.rankings.ranges import check_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor

    from plmix_dist.engine.request import Aggregation, Request
    from plmix_dist.engine.tree import Nodes
    from plmix_dist.rankings import RankingBlock

    NumberedBlocks = Iterable[tuple[int, RankingBlock]]
    Combine = Callable[[Any, Any], Any]
    # Gives the blocks of some leaves with their numbers.
    Reader = Callable[[Sequence[int]], NumberedBlocks]


class Failure(NamedTuple):
    """Stands in for the statistic of leaves where a request has failed. Combined with anything, it stays a failure."""

    error: FitError


class Summed(NamedTuple):
    """Nodes of the tree of each request, and the seconds they took: of the slowest task, and of combining."""

    nodes: list[Nodes]
    pass_seconds: float
    reduce_seconds: float


class Places(NamedTuple):
    """Where leaves of a run stand in the tree of a request.

    Parameters
    ----------
    size
        The number of leaves of that tree.
    leaves
        The leaves of the run that the request goes through; None for all of them, and each leaf is its own place.
    first
        The place of the first of these leaves.
    """

    size: int
    leaves: tuple[int, ...] | None = None
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
    """The places of the leaves from `start` to `stop` in the tree of a request.

    Examples
    --------
    >>> from plmix_dist.engine.request import Aggregation, Request
    >>> some = Request(Aggregation("none", leaf=lambda number, block, params: 0), leaves=(1, 3, 8))
    >>> places_in(some, 10, start=2, stop=9)
    Places(size=3, leaves=(3, 8), first=1)
    """
    if request.leaves is None:
        return Places(n_leaves)
    first, last = bisect_left(request.leaves, start), bisect_left(request.leaves, stop)
    return Places(len(request.leaves), request.leaves[first:last], first)


def wanted_leaves(places: Iterable[Places], start: int, stop: int) -> Sequence[int]:
    """The leaves from `start` to `stop` that any request goes through.

    Examples
    --------
    >>> wanted_leaves([Places(3, (3, 8), 1), Places(1, (4,))], 2, 9)
    [3, 4, 8]
    """
    chosen: set[int] = set()
    for place in places:
        if place.leaves is None:
            return range(start, stop)
        chosen.update(place.leaves)
    return sorted(chosen)


def cut_leaves_for(leaves: Sequence[int], n_threads: int) -> list[Sequence[int]]:
    """Leaves cut into runs of nearly equal length, one per thread.

    Examples
    --------
    >>> cut_leaves_for(range(4, 10), 2)
    [range(4, 7), range(7, 10)]
    """
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
    """Statistics of several requests over some leaves, summed by several threads.

    Parameters
    ----------
    read
        Gives the blocks of some of the leaves with their numbers.
    leaves
        The numbers of the leaves, rising.
    work
        The requests.
    threads, n_threads
        What runs the threads, and how many of them; without threads everything is done by the caller's.
    beat
        Called after each leaf: a sign of life.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from plmix_dist.engine.request import Aggregation
    >>> from plmix_dist.rankings import RankingBlock
    >>> rows = Work(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings), None, Places(2))
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]])
    >>> with ThreadPoolExecutor(2) as threads:
    ...     sum_leaves(lambda leaves: ((leaf, block) for leaf in leaves), range(2), [rows], threads, 2).nodes
    [{(1, 0): 4}]
    """
    prepared = [_guarded(one.aggregation.prepare, one.params) for one in work]
    sum_run = partial(_sum_run, read, work, prepared, beat)
    if threads is None:
        return sum_run(leaves)
    runs = cut_leaves_for(leaves, n_threads)
    trees = [(one.aggregation.combine, one.places.size) for one in work]
    return join(trees, list(threads.map(sum_run, runs)))


def _sum_run(
    read: Reader,
    work: Sequence[Work],
    prepared: Sequence[Any],
    beat: Callable[[], None] | None,
    leaves: Sequence[int],
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

    Examples
    --------
    >>> import operator
    >>> join([(operator.add, 2)], [Summed([{(0, 0): 1}], 0.1, 0.0), Summed([{(0, 1): 2}], 0.2, 0.0)]).nodes
    [{(1, 0): 3}]
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
    """The statistic over all leaves of a tree of `size` leaves, or its failure.

    Examples
    --------
    >>> total_of({(1, 0): 4}, 2)
    4
    """
    tree = TreeSum(size)
    tree.nodes = nodes
    return tree.root()


def finished(total: Any, function: Callable[[Any], Any]) -> Any:
    """What a finishing function makes of a total; a failure stays one.

    Examples
    --------
    >>> finished(-4, abs)
    4
    """
    return total if isinstance(total, Failure) else _guarded(function, total)


def _tree(combine: Combine, size: int) -> TreeSum:
    return TreeSum(size, partial(_combined, combine))


def _combined(combine: Combine, left: Any, right: Any) -> Any:
    """Two statistics combined, either of which may be a failure; that of the lower leaf is told."""
    if isinstance(left, Failure):
        return left
    return right if isinstance(right, Failure) else combine(left, right)


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, or the failure of the fit it works for. Other errors concern the whole pass."""
    try:
        return function(*arguments)
    except FitError as error:
        return Failure(error)
