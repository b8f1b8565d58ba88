"""Passes in threads of this process."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from plmix_dist.engine.leaf_ranges import leaf_ranges
from plmix_dist.engine.request import Answer, Timing
from plmix_dist.engine.residency import free_memory, stays_in_memory
from plmix_dist.engine.summing import Failure, finished, sum_leaves, total_of, wanted_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plmix_dist.engine.leaf_source import LeafSource
    from plmix_dist.engine.request import Request
    from plmix_dist.engine.residency import Residency
    from plmix_dist.engine.summing import Summed
    from plmix_dist.rankings import RankingBlock

# Up to this many listed items, waking threads takes longer than the work itself.
_LITTLE_WORK = 100_000


class ThreadedPasses:
    """Runs passes over one source of leaves in threads of this process.

    Parameters
    ----------
    source
        The leaves.
    residency
        Whether blocks stay in memory from pass to pass.
    n_threads
        The number of threads; by default one per core, and one alone where there is little work.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.request import Aggregation, Request
    >>> rows = Request(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings))
    >>> passes = ThreadedPasses(as_rankings([[0, 1], [1, 0]]))
    >>> passes.run([rows])[0].results
    (2,)
    """

    def __init__(
        self, source: LeafSource, *, residency: Residency = "auto", n_threads: int | None = None
    ) -> None:
        self.source = source
        self.n_threads = n_threads or os.cpu_count() or 1
        self.in_memory = stays_in_memory(residency, source.decoded_bytes, free_memory())
        n_tasks = 1 if n_threads is None and source.n_entries <= _LITTLE_WORK else self.n_threads
        self._ranges = leaf_ranges(source.n_leaves, n_tasks)
        self._kept: dict[int, list[RankingBlock]] = {}
        self._threads = ThreadPoolExecutor(self.n_threads, thread_name_prefix="pass")
        self.n_passes = 0

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests in one pass."""
        self.n_passes += 1
        begun = time.perf_counter()
        runs = [self._numbered(number, requests) for number in range(len(self._ranges))]
        summed = sum_leaves(runs, self.source.n_leaves, requests, self._threads)
        return [self._answer(request, number, summed, begun) for number, request in enumerate(requests)]

    def release(self) -> None:
        """Let go of blocks and threads; a later pass reads the blocks again."""
        self._kept.clear()
        self._threads.shutdown()
        self._threads = ThreadPoolExecutor(self.n_threads, thread_name_prefix="pass")

    def _answer(self, request: Request, number: int, summed: Summed, begun: float) -> Answer:
        total = total_of(self.source.n_leaves, request, summed.nodes[number])
        results = tuple(finished(total, finish.function) for finish in request.finish)
        failure = next((result for result in results if isinstance(result, Failure)), None)
        timing = Timing(time.perf_counter() - begun, summed.pass_seconds, summed.reduce_seconds)
        return Answer(results, None, timing) if failure is None else Answer((), failure.error, timing)

    def _numbered(self, number: int, requests: Sequence[Request]) -> Iterator[tuple[int, RankingBlock]]:
        # A generator, so that blocks are read in the thread that goes through them.
        start, stop = self._ranges[number]
        if self.in_memory and number not in self._kept:
            self._kept[number] = list(self.source.iter_leaves(start, stop, labels=False))
        leaves, kept = wanted_leaves(requests, start, stop), self._kept.get(number)
        if kept is None:
            yield from read_leaves(self.source, leaves)
        else:
            yield from ((leaf, kept[leaf - start]) for leaf in leaves)


def read_leaves(source: LeafSource, leaves: Sequence[int]) -> Iterator[tuple[int, RankingBlock]]:
    """The blocks of some leaves with their numbers, read run by run of neighbours.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> [(leaf, block.n_rankings) for leaf, block in read_leaves(as_rankings([[0, 1], [1, 0]]), [0])]
    [(0, 2)]
    """
    first = 0
    while first < len(leaves):
        last = first + 1
        while last < len(leaves) and leaves[last] == leaves[last - 1] + 1:
            last += 1
        start, stop = leaves[first], leaves[last - 1] + 1
        yield from enumerate(source.iter_leaves(start, stop, labels=False), start=start)
        first = last
