"""Passes in threads of this process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from plmix_dist.passes.leaves import LeafSource, read_leaves
from plmix_dist.passes.memory import Residency, free_memory, stays_in_memory
from plmix_dist.passes.request import Answer, Request, Timing, answer_of, check_leaves
from plmix_dist.passes.tree import Work, finished, places_in, sum_leaves, total_of, wanted_leaves
from plmix_dist.rankings import RankingBlock
from plmix_dist.threads import StoppableThreads

# Up to this many listed items, waking threads takes longer than the work itself.
LITTLE_WORK = 100_000


class ThreadedPasses:
    """Runs passes over one source of leaves in threads of this process: one per core, and one alone for little work.

    `residency` says whether blocks stay in memory from pass to pass.
    """

    def __init__(self, source: LeafSource, *, residency: Residency = "auto", n_threads: int | None = None) -> None:
        self.source = source
        little = n_threads is None and source.n_entries <= LITTLE_WORK
        self.n_threads = 1 if little else n_threads or os.cpu_count() or 1
        self.in_memory = stays_in_memory(residency, source.decoded_bytes, free_memory())
        self._kept: dict[int, RankingBlock] = {}
        # The main thread cannot be interrupted inside compiled code. So it works itself only where there is little.
        self._threads = None if little else StoppableThreads(self.n_threads, "pass")
        self.n_passes = 0

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests in one pass."""
        begun = time.perf_counter()
        n_leaves = self.source.n_leaves
        check_leaves(requests, n_leaves)
        self.n_passes += 1
        work = [
            Work(request.aggregation, request.params, places_in(request, n_leaves, 0, n_leaves)) for request in requests
        ]
        leaves = wanted_leaves((one.places for one in work), 0, n_leaves)
        try:
            summed = sum_leaves(self._read, leaves, work, self._threads, self.n_threads)
        except BaseException:
            self._stop_threads()
            raise
        results = [
            [finished(total_of(nodes, one.places.size), finish.function) for finish in request.finish]
            for request, one, nodes in zip(requests, work, summed.nodes, strict=True)
        ]
        timing = Timing(time.perf_counter() - begun, summed.pass_seconds, summed.reduce_seconds)
        return [answer_of(one, timing) for one in results]

    def release(self) -> None:
        """Let go of blocks and threads; a later pass reads the blocks again."""
        self._kept.clear()
        self._stop_threads()

    def _stop_threads(self) -> None:
        """Stop threads, also in the middle of a pass; a later pass has new ones."""
        if self._threads is not None:
            self._threads.stop()
            self._threads = StoppableThreads(self.n_threads, "pass")

    def _read(self, leaves: Sequence[int]) -> Iterator[tuple[int, RankingBlock]]:
        # A generator, so that blocks are read in the thread that goes through them.
        if not self.in_memory:
            yield from read_leaves(self.source, leaves)
            return
        if not all(leaf in self._kept for leaf in leaves):
            self._kept.update(read_leaves(self.source, [leaf for leaf in leaves if leaf not in self._kept]))
        yield from ((leaf, self._kept[leaf]) for leaf in leaves)
