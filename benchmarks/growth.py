"""How the time of a pass grows with rows, components, items and cores, and a worker's memory with rows."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import PeakMemory, interleaved, save
from benchmarks.mm_pass import mm_iteration, some_point, worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.datasets.given import as_rankings
from plmix_dist.passes.dask import DistributedPasses
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings.simulate import draw_rankings

ROWS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
COMPONENTS = tuple(range(1, 9))
# Items, and rankings of about as many entries in all.
ITEMS = ((10, 200_000), (20, 100_000), (50, 40_000), (100, 20_000), (200, 10_000), (500, 4_000), (1_000, 2_000))
CORES_ROWS = 2_000_000
MEMORY_ROWS = (1_000_000, 10_000_000)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rounds = 2 if tiny else 7
    return [
        *rows(tiny, rounds),
        *components(tiny, rounds),
        *items(tiny, rounds),
        *cores(tiny, rounds),
        *worker_memory(tiny),
    ]


def rows(tiny: bool, rounds: int) -> list[dict[str, Any]]:
    """Against the number of rows, n = 10, K = 4: the line that fits best, and how far each time is off it."""
    sizes = tuple(size // 1_000 for size in ROWS) if tiny else ROWS
    with tempfile.TemporaryDirectory() as folder:
        block = pl.simulate(Path(folder) / "store", n_rankings=sizes[-1], n_items=10, n_components=4).block()
    table = []
    for n_threads in (1, 2):
        timed = {str(size): _in_threads(block[:size], 4, n_threads) for size in sizes}
        seconds = _shortest(timed, rounds)
        overhead, slope = _relative_line(np.array(sizes), np.array(list(seconds.values())))
        for size, taken in zip(sizes, seconds.values(), strict=True):
            table.append(
                {
                    "threads": n_threads,
                    "m": size,
                    "pass, s": taken,
                    "ns a row": taken / size * 1e9,
                    "line: ms": overhead * 1e3,
                    "line: ns a row": slope * 1e9,
                    "off the line, %": 100 * (taken / (overhead + slope * size) - 1),
                }
            )
    return save("growth-rows", table)


def components(tiny: bool, rounds: int) -> list[dict[str, Any]]:
    """Against the number of components, n = 50: components are worked on four at a time."""
    block = _drawn(50, 500 if tiny else 100_000)
    seconds = _shortest({str(k): _in_threads(block, k, 1) for k in COMPONENTS}, rounds)
    unit = block.n_rankings * block.n_items / 1e9
    return save(
        "growth-components",
        [
            {"K": k, "pass, s": seconds[str(k)], "ns an entry": seconds[str(k)] / unit}
            | {"ns an entry and component": seconds[str(k)] / unit / k, "of K = 1": seconds[str(k)] / seconds["1"]}
            for k in COMPONENTS
        ],
    )


def items(tiny: bool, rounds: int) -> list[dict[str, Any]]:
    """Against the number of items, K = 4, entries in all kept the same."""
    blocks = {n: _drawn(n, 20 if tiny else m) for n, m in ITEMS}
    seconds = _shortest({str(n): _in_threads(block, 4, 1) for n, block in blocks.items()}, rounds)
    return save(
        "growth-items",
        [
            {"n": n, "m": block.n_rankings, "pass, s": seconds[str(n)]}
            | {"ns an entry and component": seconds[str(n)] / (len(block.items) * 4) * 1e9}
            for n, block in blocks.items()
        ],
    )


def cores(tiny: bool, rounds: int) -> list[dict[str, Any]]:
    """One and two threads against one and two worker processes, n = 20, K = 4, rows in memory."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LazyExecutor(ClusterOptions(workers=1)) as one,
        LazyExecutor(ClusterOptions(workers=2)) as two,
    ):
        store = pl.simulate(
            Path(folder) / "store", n_rankings=20_000 if tiny else CORES_ROWS, n_items=20, n_components=4
        )
        state, rankings = some_point(4, 20), as_rankings(store)
        ways = {
            "1 thread": ThreadedPasses(rankings, residency="memory", n_threads=1),
            "2 threads": ThreadedPasses(rankings, residency="memory", n_threads=2),
            "1 worker": DistributedPasses(rankings, one.client(), residency="memory"),
            "2 workers": DistributedPasses(rankings, two.client(), residency="memory"),
        }
        seconds = _shortest({name: partial(mm_iteration, passes, state) for name, passes in ways.items()}, rounds)
    return save(
        "growth-cores",
        [
            {"where": name, "m": store.n_rankings, "pass, s": taken, "times faster": seconds["1 thread"] / taken}
            for name, taken in seconds.items()
        ],
    )


def worker_memory(tiny: bool) -> list[dict[str, Any]]:
    """The highest memory of a worker that reads every pass from the store, n = 10, K = 4."""
    table = []
    for n_rankings in (2_000,) if tiny else MEMORY_ROWS:
        with tempfile.TemporaryDirectory() as folder, LazyExecutor(ClusterOptions(workers=2)) as executor:
            store = pl.simulate(Path(folder) / "store", n_rankings=n_rankings, n_items=10, n_components=4)
            passes = DistributedPasses(as_rankings(store), executor.client(), residency="store")
            with PeakMemory(iter(worker_pids(executor.client()))) as peak:
                for _ in range(3):
                    mm_iteration(passes, some_point(4, 10))
            table.append(
                {"m": n_rankings, "decoded MB": store.decoded_bytes / 1e6, "highest worker MB": peak.peak / 1e6}
            )
    return save("growth-memory", table)


def _drawn(n_items: int, n_rankings: int) -> pl.RankingBlock:
    rng = np.random.default_rng(0)
    log_worths = rng.standard_normal((4, n_items))
    return draw_rankings(log_worths, np.full(4, 0.25), n_rankings, rng)[0]


def _in_threads(block: pl.RankingBlock, n_components: int, n_threads: int) -> Any:
    passes = ThreadedPasses(as_rankings(block), residency="memory", n_threads=n_threads)
    return partial(mm_iteration, passes, some_point(n_components, block.n_items))


def _shortest(timed: dict[str, Any], rounds: int) -> dict[str, float]:
    """The shortest time of each, all in turn, after one round that loads rows and kernels."""
    interleaved(1, timed)
    return {name: min(taken) for name, taken in interleaved(rounds, timed).items()}


def _relative_line(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Overhead and slope that leave the smallest relative deviations: the largest size shall not decide alone."""
    columns = np.stack([1 / seconds, sizes / seconds], axis=1)
    (overhead, slope), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)
    return float(overhead), float(slope)
