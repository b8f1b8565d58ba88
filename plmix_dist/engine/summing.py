"""The work of one task: the statistics of several requests over a run of leaves, combined as far as the tree allows."""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.engine.tree import TreeSum
from plmix_dist.errors import FitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor

    from plmix_dist.engine.request import Request
    from plmix_dist.engine.tree import Nodes
    from plmix_dist.rankings import RankingBlock

    NumberedBlocks = Iterable[tuple[int, RankingBlock]]


class Failure(NamedTuple):
    """Stands in for the statistic of leaves where a request has failed. Combined with anything, it stays a failure."""

    error: FitError


class Summed(NamedTuple):
    """Nodes of the tree of each request, and the seconds they took: of the slowest task, and of combining."""

    nodes: list[Nodes]
    pass_seconds: float
    reduce_seconds: float


def sum_leaves(runs: Sequence[NumberedBlocks], n_leaves: int, requests: Sequence[Request], threads: Executor) -> Summed:
    """Statistics of several runs of numbered blocks, one run per thread.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from plmix_dist.engine.request import Aggregation, Request
    >>> from plmix_dist.rankings import RankingBlock
    >>> request = Request(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings))
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]])
    >>> with ThreadPoolExecutor(2) as threads:
    ...     sum_leaves([[(0, block)], [(1, block)]], 2, [request], threads).nodes
    [{(1, 0): 4}]
    """
    prepared = [_guarded(request.aggregation.prepare, request.params) for request in requests]

    def sum_run(run: NumberedBlocks) -> Summed:
        return _sum_run(run, n_leaves, requests, prepared)

    if len(runs) == 1:
        return sum_run(runs[0])
    return join(n_leaves, requests, list(threads.map(sum_run, runs)))


def _sum_run(
    run: NumberedBlocks, n_leaves: int, requests: Sequence[Request], prepared: Sequence[Any]
) -> Summed:
    begun = time.perf_counter()
    trees = [_tree(request, n_leaves) for request in requests]
    ready = list(prepared)
    for leaf, block in run:
        for number, request in enumerate(requests):
            place = leaf if request.leaves is None else _place_of(leaf, request.leaves)
            if place is None:
                continue
            if not isinstance(ready[number], Failure):
                found = _guarded(request.aggregation.leaf, leaf, block, ready[number])
                if isinstance(found, Failure):
                    # The request has failed as a whole: its other leaves need not be computed.
                    where = f"leaf {leaf} ({block.n_rankings} rankings)"
                    ready[number] = Failure(type(found.error)(f"{where}: {found.error}"))
                else:
                    trees[number].add_leaf(place, found)
                    continue
            trees[number].add_leaf(place, ready[number])
    return Summed([tree.nodes for tree in trees], time.perf_counter() - begun, 0.0)


def join(n_leaves: int, requests: Sequence[Request], parts: Sequence[Summed]) -> Summed:
    """The statistics of several tasks, siblings combined."""
    begun = time.perf_counter()
    trees = [_tree(request, n_leaves) for request in requests]
    for part in parts:
        for tree, nodes in zip(trees, part.nodes, strict=True):
            tree.add_nodes(nodes)
    slowest = max(part.pass_seconds for part in parts)
    earlier = max(part.reduce_seconds for part in parts)
    return Summed([tree.nodes for tree in trees], slowest, earlier + time.perf_counter() - begun)


def total_of(n_leaves: int, request: Request, nodes: Nodes) -> Any:
    """The statistic of a request over all its leaves, or its failure."""
    tree = _tree(request, n_leaves)
    tree.add_nodes(nodes)
    return tree.root()


def finished(total: Any, function: Callable[[Any], Any]) -> Any:
    """What a finishing function makes of a total; a failure stays one."""
    return total if isinstance(total, Failure) else _guarded(function, total)


def wanted_leaves(requests: Sequence[Request], start: int, stop: int) -> list[int] | range:
    """The leaves from `start` to `stop` that any of the requests goes through.

    Examples
    --------
    >>> from plmix_dist.engine.request import Aggregation, Request
    >>> some = Request(Aggregation("none", leaf=lambda number, block, params: 0), leaves=(1, 3, 8))
    >>> wanted_leaves([some], 2, 9)
    [3, 8]
    """
    if any(request.leaves is None for request in requests):
        return range(start, stop)
    chosen = {leaf for request in requests for leaf in request.leaves or () if start <= leaf < stop}
    return sorted(chosen)


def _tree(request: Request, n_leaves: int) -> TreeSum:
    """The tree of a request; over some of the leaves it is that of their places among these."""
    size = n_leaves if request.leaves is None else len(request.leaves)
    return TreeSum(size, _Combine(request.aggregation.combine))


class _Combine:
    """The combination of two statistics, either of which may be a failure; the left one is told first."""

    def __init__(self, combine: Callable[[Any, Any], Any]) -> None:
        self.combine = combine

    def __call__(self, left: Any, right: Any) -> Any:
        if isinstance(left, Failure):
            return left
        return right if isinstance(right, Failure) else self.combine(left, right)


def _place_of(leaf: int, leaves: tuple[int, ...]) -> int | None:
    place = bisect_left(leaves, leaf)
    return place if place < len(leaves) and leaves[place] == leaf else None


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, or the failure of the fit it works for. Other errors concern the whole pass."""
    try:
        return function(*arguments)
    except FitError as error:
        return Failure(error)
