"""What workers do in a pass: load blocks, sum leaves, join sums, finish. One task per worker, threads inside."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from plmix_dist.engine.leaf_source import read_leaves
from plmix_dist.engine.summing import (
    Work,
    cut_leaves_for,
    finished,
    sum_leaves,
    total_of,
    wanted_leaves,
)
from plmix_dist.engine.worker_threads import TaskThreads, libraries_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plmix_dist.engine.leaf_source import Leaves
    from plmix_dist.engine.request import Aggregation
    from plmix_dist.engine.summing import Places, Summed
    from plmix_dist.rankings import RankingBlock


class HeldBlocks:
    """The blocks of a run of leaves in the memory of a worker.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]])
    >>> held = HeldBlocks(5, [block, block])
    >>> len(list(held.iter_leaves(6, 7)))
    1
    """

    def __init__(self, first_leaf: int, blocks: list[RankingBlock]) -> None:
        self.first_leaf = first_leaf
        self.blocks = blocks

    def __sizeof__(self) -> int:
        # So that Dask knows what it would cost to move these elsewhere.
        return sum(block.nbytes for block in self.blocks)

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        """The block of each leaf in turn."""
        del labels
        return iter(self.blocks[start - self.first_leaf : None if stop is None else stop - self.first_leaf])


def load_task(leaves: Leaves, start: int, stop: int, report_every: float) -> HeldBlocks:
    """The blocks of leaves `start` to `stop`, read by all threads of a worker, to be kept by it.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> len(load_task(as_rankings([[0, 1], [1, 0]]), 0, 1, report_every=5.0).blocks)
    1
    """
    threads = TaskThreads(report_every)
    runs = cut_leaves_for(range(start, stop), threads.n_threads)
    with libraries_held():
        parts = list(threads.pool.map(partial(_load_run, leaves, threads), runs))
    return HeldBlocks(start, [block for part in parts for block in part])


def _load_run(leaves: Leaves, threads: TaskThreads, run: Sequence[int]) -> list[RankingBlock]:
    blocks = []
    for _, block in read_leaves(leaves, run):
        blocks.append(block)
        threads.beat()
    return blocks


def sum_task(
    leaves: Leaves,
    start: int,
    stop: int,
    what: Sequence[tuple[Aggregation, Any]],
    places: Sequence[Places],
    report_every: float,
) -> Summed:
    """The statistics of all requests over leaves `start` to `stop`, summed by all threads of a worker.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.request import Aggregation
    >>> from plmix_dist.engine.summing import Places
    >>> rows = Aggregation("rows", leaf=lambda number, block, params: block.n_rankings)
    >>> sum_task(as_rankings([[0, 1], [1, 0]]), 0, 1, [(rows, None)], [Places(1)], report_every=5.0).nodes
    [{(0, 0): 2}]
    """
    threads = TaskThreads(report_every)
    work = [Work(*both, where) for both, where in zip(what, places, strict=True)]
    wanted = wanted_leaves(places, start, stop)
    read = partial(read_leaves, leaves)
    with libraries_held():
        return sum_leaves(read, wanted, work, threads.pool, threads.n_threads, threads.beat)


def finish_task(summed: Summed, number: int, size: int, function: Callable[[Any], Any]) -> Any:
    """What a finishing function makes of the statistic of one request, over all its `size` leaves.

    Examples
    --------
    >>> from plmix_dist.engine.summing import Summed
    >>> finish_task(Summed([{(0, 0): -2}], 0.0, 0.0), 0, 1, abs)
    2
    """
    with libraries_held():
        return finished(total_of(summed.nodes[number], size), function)


def collect_task(results: list[Any], summed: Summed) -> tuple[list[Any], float, float]:
    """The end of a pass: all results, and its seconds over leaves and for combining.

    Examples
    --------
    >>> from plmix_dist.engine.summing import Summed
    >>> collect_task([2], Summed([], 1.0, 0.5))
    ([2], 1.0, 0.5)
    """
    return list(results), summed.pass_seconds, summed.reduce_seconds
