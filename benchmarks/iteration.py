"""A distributed iteration against two bare processes that run the same kernel on half the rows each.

4,000,000 rankings of 20 items, K = 4, two workers of one thread; the number of Zarr chunks must not matter.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import PeakMemory, save
from benchmarks.mm_pass import mm_iteration, some_point, worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting.e_step import em_request
from plmix_dist.passes.dask import DistributedPasses, _HeldBlocks
from plmix_dist.passes.leaves import read_leaves
from plmix_dist.passes.tree import Places, Work, sum_leaves
from plmix_dist.solvers import MM

N_ITEMS, N_COMPONENTS = 20, 4
POINT = some_point(N_COMPONENTS, N_ITEMS)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    n_rankings = 40_000 if tiny else 4_000_000
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for chunk_bytes in (1 << 21, 1 << 17):
            path = Path(folder) / f"chunks-{chunk_bytes}"
            _store(path, n_rankings, chunk_bytes)
            bare, iteration = _in_turn(path, 2 if tiny else 15)
            rows.append(
                {
                    "rankings": n_rankings,
                    "chunk kB": chunk_bytes >> 10,
                    "two processes, s": bare,
                    "iteration, s": iteration,
                    "over, ms": 1e3 * (iteration - bare),
                    "ratio": iteration / bare,
                    "of 1.1 x + 50 ms": iteration / (1.1 * bare + 0.05),
                }
            )
    return save("iteration", rows)


def memory(tiny: bool = False) -> list[dict[str, Any]]:
    """The highest memory of a worker that reads every pass from the store: it must not grow with the rows."""
    rows = []
    for n_rankings in (20_000, 40_000) if tiny else (1_000_000, 4_000_000):
        with tempfile.TemporaryDirectory() as folder, LazyExecutor(ClusterOptions(workers=2)) as executor:
            store = pl.simulate(Path(folder) / "s", n_rankings=n_rankings, n_items=N_ITEMS, n_components=N_COMPONENTS)
            passes = DistributedPasses(as_rankings(store), executor.client(), residency="store")
            with PeakMemory(iter(worker_pids(executor.client()))) as peak:
                for _ in range(3):
                    mm_iteration(passes, POINT)
            rows.append({"rankings": n_rankings, "highest worker MB": peak.peak / 1e6})
    return save("iteration-memory", rows)


def _store(path: Path, n_rankings: int, chunk_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        drawn = pl.simulate(Path(folder) / "s", n_rankings=n_rankings, n_items=N_ITEMS, n_components=N_COMPONENTS)
        pl.ingest(drawn.block().to_array().astype(np.uint8), path, chunk_bytes=chunk_bytes)


def _in_turn(path: Path, rounds: int) -> tuple[float, float]:
    """The shortest seconds of two bare processes and of an iteration, taken in turn: both meet the same machine."""
    rankings = as_rankings(path)
    bare_seconds, iteration_seconds = [], []
    with LazyExecutor(ClusterOptions(workers=2)) as executor, BareProcesses(path) as bare:
        passes = DistributedPasses(rankings, executor.client(), residency="memory")
        mm_iteration(passes, POINT)  # loads the blocks and the kernels
        for _ in range(rounds):
            bare_seconds.append(bare.slower())
            begun = time.perf_counter()
            mm_iteration(passes, POINT)
            iteration_seconds.append(time.perf_counter() - begun)
    return min(bare_seconds), min(iteration_seconds)


class BareProcesses:
    """Two processes that hold half the rows each and sum them when they are asked."""

    def __init__(self, path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(2)]
        self.processes = [
            context.Process(target=_half, args=(str(path), half, theirs)) for half, (_, theirs) in enumerate(pipes)
        ]
        self.pipes = [ours for ours, _ in pipes]

    def __enter__(self) -> BareProcesses:
        for process in self.processes:
            process.start()
        self.slower()  # loads the blocks and the kernels
        return self

    def __exit__(self, *error: object) -> None:
        for pipe in self.pipes:
            pipe.send(False)
        for process in self.processes:
            process.join()

    def slower(self) -> float:
        """The seconds of the slower of the two, started together."""
        for pipe in self.pipes:
            pipe.send(True)
        return max(pipe.recv() for pipe in self.pipes)


def _half(path: str, half: int, pipe: Any) -> None:
    rankings = as_rankings(pl.open_store(path))
    middle = rankings.n_leaves // 2
    start, stop = (0, middle) if half == 0 else (middle, rankings.n_leaves)
    held = _HeldBlocks(start, list(rankings.iter_leaves(start, stop, labels=False)))
    request = em_request(MM, POINT, None, alpha=0.1)
    work = [Work(request.aggregation, request.params, Places(rankings.n_leaves))]
    with ThreadPoolExecutor(1) as thread:
        while pipe.recv():
            begun = time.perf_counter()
            sum_leaves(partial(read_leaves, held), range(start, stop), work, thread, 1)
            pipe.send(time.perf_counter() - begun)
