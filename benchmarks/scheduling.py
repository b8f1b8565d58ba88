"""What a pass costs beside its work: seconds by tasks, levels and bytes, and what that means for many workers.

Workers live in this process and talk over TCP, so that a hundred fit on one machine. Scheduler and workers then share
one interpreter: their times add up here that would overlap on a cluster.
"""

from __future__ import annotations

import itertools
import math
import pickle
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

import plmix_dist as pl
from benchmarks.common import best_of, draw, save
from benchmarks.mm_pass import some_point
from plmix_dist.fitting.e_step import em_request
from plmix_dist.passes.dask import _TREE_FAN_IN, DistributedPasses
from plmix_dist.passes.request import Aggregation, Finish, Request
from plmix_dist.solvers import LSR, MM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distributed import Client

    from plmix_dist.rankings import RankingBlock

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "scheduling.svg"
N_COMPONENTS = 4
TERMS = ("pass", "level", "task", "byte")
# Nanoseconds of a kernel for one item of one ranking under one component, as `kernels` finds them.
NANOSECONDS = {"mm": 0.8, "lsr": 3.2}
SIZES = ((20, 4, "mm"), (100, 5, "mm"), (100, 5, "lsr"), (1_000, 5, "lsr"))
THREADS_PER_WORKER = 16


class Cost(NamedTuple):
    """What the seconds of a pass are explained by."""

    levels: int
    tasks: int
    bytes: float

    def terms(self) -> list[float]:
        return [1.0, self.levels, self.tasks, self.bytes]


class Payload(NamedTuple):
    """Bytes of one fit: parameters to a task, statistics from it."""

    parameters: int
    statistics: int


def run(tiny: bool = False) -> list[dict[str, Any]]:
    counts = (2, 3, 5) if tiny else (2, 4, 8, 16, 32, 64, 100)
    lengths = (100, 20_000) if tiny else (100, 20_000, 100_000)
    measured = [row for n_workers in counts for row in _measure(n_workers, lengths, 3 if tiny else 12)]
    weights = _fit([row for row in measured if row["workers"] != counts[-1]])
    for row in measured:
        row["predicted, s"] = _predict(weights, _cost_of(row))
        row["error, %"] = 100 * (row["predicted, s"] / row["pass, s"] - 1)
    save("scheduling", measured)
    save(
        "scheduling-model",
        [{"for each": term, "ms": 1e3 * weight} for term, weight in zip(TERMS, weights, strict=True)],
    )
    save("scheduling-threads", _threads_inside(*((2, 3) if tiny else (63, THREADS_PER_WORKER))))
    save("scheduling-bytes", [_bytes_row(*size) for size in SIZES[: 2 if tiny else None]])
    save("scheduling-projection", _projections(weights, SIZES[: 2 if tiny else None]))
    if not tiny:
        draw(FIGURE, 2, partial(_fill, measured=measured, weights=weights))
    return measured


# --- what is measured --------------------------------------------------------------------------------------


@contextmanager
def _cluster(n_workers: int, n_threads: int, n_leaves: int) -> Iterator[tuple[Client, Any]]:
    """Workers of some threads, and a source of leaves of one row."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=n_threads, processes=False, protocol="tcp://",
            host="127.0.0.1", memory_limit=0, dashboard_address=None,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        yield client, SmallLeaves(n_leaves)


class SmallLeaves:
    """Leaves of one row that need not be read: nothing but scheduling takes time."""

    decoded_bytes = 0.0

    def __init__(self, n_leaves: int) -> None:
        self.n_leaves = self.n_rankings = self.n_entries = n_leaves
        self.block = pl.RankingBlock.from_array([[0, 1, 2, 3]])

    @property
    def leaf_bounds(self) -> Any:
        return np.arange(self.n_leaves + 1)

    def only(self, start: int, stop: int) -> SmallLeaves:
        del start, stop
        return self

    def lazy_rows(self, start: int, stop: int) -> None:
        del start, stop

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        del labels
        return itertools.repeat(self.block, (self.n_leaves if stop is None else stop) - start)


def _measure(n_workers: int, lengths: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """The shortest pass with a leaf of one row for every worker, and statistics of some lengths."""
    rows = []
    with _cluster(n_workers, 1, n_workers) as (client, source):
        passes = DistributedPasses(source, client, residency="memory")
        for length in lengths:
            request = _request(length)
            seconds = _seconds(passes, request, repeats)
            cost = Cost(
                levels=n_levels(n_workers),
                tasks=len(passes._graph([request]).dask),
                # The sums of all but one task travel to it; those of later levels are few.
                bytes=8.0 * length * (n_workers - 1),
            )
            rows.append({"workers": n_workers, "numbers": length, **cost._asdict(), "pass, s": seconds})
        passes.release()
    return rows


def _threads_inside(n_workers: int, n_threads: int) -> list[dict[str, Any]]:
    """The same leaves as one task per worker, with threads inside, and as one task per thread; in turn.

    Processor seconds are those of everything: client, scheduler, and workers that wake all their threads. One leaf per
    worker wakes no threads: that row is the scheduling of one task per worker alone.
    """
    all_threads = n_workers * n_threads
    ways = {
        "worker, one leaf each": (n_workers, None),
        "worker": (all_threads, None),
        "thread": (all_threads, all_threads),
    }
    rows = []
    with _cluster(n_workers, n_threads, all_threads) as (client, _):
        for residency in ("memory", "store"):
            timed: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            passes = {
                way: DistributedPasses(SmallLeaves(n_leaves), client, residency=residency, n_tasks=n_tasks)
                for way, (n_leaves, n_tasks) in ways.items()
            }
            for _ in range(4):
                for way, found in timed.items():
                    begun, begun_cpu = time.perf_counter(), time.process_time()
                    passes[way].run([_request(100)])
                    found.append((time.perf_counter() - begun, time.process_time() - begun_cpu))
            for way, found in timed.items():
                best = np.min(found[1:], axis=0)  # the first loads
                rows.append(
                    {
                        "threads": all_threads, "residency": residency, "one task per": way,
                        "tasks": len(passes[way]._graph([_request(100)]).dask),
                        "pass, s": float(best[0]), "processor, s": float(best[1]),
                    }
                )  # fmt: skip
                passes[way].release()
    return rows


def _request(length: int) -> Request:
    finish = (Finish("summary", _first), *(Finish(f"m-step-{k}", _first) for k in range(N_COMPONENTS)))
    return Request(Aggregation("e-step", leaf=_zeros, prepare=int), length, finish)


def _seconds(passes: DistributedPasses, request: Request, repeats: int) -> float:
    passes.run([request])
    seconds, _ = best_of(repeats, lambda: passes.run([request]))
    return seconds


def _zeros(number: int, block: RankingBlock, length: int) -> tuple[Any, ...]:
    del number, block
    return (np.zeros(length),)


def _first(total: Any) -> float:
    return float(total[0][0])


# --- the model ---------------------------------------------------------------------------------------------


def n_levels(n_workers: int) -> int:
    """Levels of a graph that wait for each other: e-step, tree sums, m-steps, collect."""
    joins, parts = 0, n_workers
    while parts > 1:
        joins, parts = joins + 1, math.ceil(parts / _TREE_FAN_IN)
    return 3 + joins


def n_tasks(n_workers: int, n_components: int) -> int:
    """Tasks of a pass: one e-step per worker, tree sums, K m-steps, summary and collect."""
    joins, parts = 0, n_workers
    while parts > 1:
        parts = math.ceil(parts / _TREE_FAN_IN)
        joins += parts
    return n_workers + joins + n_components + 2


def _cost_of(row: dict[str, Any]) -> Cost:
    return Cost(row["levels"], row["tasks"], row["bytes"])


def _fit(rows: list[dict[str, Any]]) -> Any:
    """Seconds per pass, level, task and byte, none below zero, that make the relative errors least."""
    seconds = np.array([row["pass, s"] for row in rows])
    terms = np.array([_cost_of(row).terms() for row in rows])
    scale = terms.max(axis=0)
    weights, _ = nnls(terms / scale / seconds[:, None], np.ones(len(rows)))
    return weights / scale


def _predict(weights: Any, cost: Cost) -> float:
    return float(np.dot(weights, cost.terms()))


# --- what it says of fits ----------------------------------------------------------------------------------


def _payload(n_items: int, n_components: int, solver: str) -> Payload:
    """Bytes of parameters and statistics of a real pass, as they are pickled."""
    m_step = LSR if solver == "lsr" else MM
    request = em_request(m_step, some_point(n_components, n_items), None, alpha=0.1)
    block = pl.RankingBlock.from_array(np.arange(n_items)[None], n_items=n_items)
    aggregation = request.aggregation
    statistics = aggregation.leaf(0, block, aggregation.prepare(request.params))
    return Payload(len(pickle.dumps(request.params)), len(pickle.dumps(statistics)))


def _bytes_row(n_items: int, n_components: int, solver: str) -> dict[str, Any]:
    payload = _payload(n_items, n_components, solver)
    numbers = n_components * n_items * (n_items if solver == "lsr" else 1)
    return {
        "items": n_items, "components": n_components, "m-step": solver,
        "parameters, kB": payload.parameters / 1e3, "statistics, kB": payload.statistics / 1e3,
        "bytes per number": payload.statistics / numbers,
    }  # fmt: skip


def _cluster_cost(n_workers: int, n_components: int, payload: Payload) -> Cost:
    """The cost on a cluster: the scheduler hands out all parameters; joins of one level work side by side."""
    joined, parts = 0, n_workers
    while parts > 1:
        joined += min(parts, _TREE_FAN_IN) - 1
        parts = math.ceil(parts / _TREE_FAN_IN)
    travelling = payload.parameters * n_workers + payload.statistics * joined
    return Cost(n_levels(n_workers), n_tasks(n_workers, n_components), travelling)


def _projections(weights: Any, sizes: Sequence[tuple[int, int, str]]) -> list[dict[str, Any]]:
    rows = []
    for n_items, n_components, solver in sizes:
        payload = _payload(n_items, n_components, solver)
        for n_threads in (32, 1_000, 16_000):
            n_workers = math.ceil(n_threads / THREADS_PER_WORKER)
            cost = _cluster_cost(n_workers, n_components, payload)
            overhead = _predict(weights, cost)
            per_row = 1e-9 * NANOSECONDS[solver] * n_items * n_components
            rows.append(
                {
                    "items": n_items, "components": n_components, "m-step": solver, "threads": n_threads,
                    "workers": n_workers, "tasks": cost.tasks, "levels": cost.levels,
                    "MB in turn": cost.bytes / 1e6, "overhead, s": overhead,
                    "rows per thread for 10 %": round(10 * overhead / per_row, -3),
                }
            )  # fmt: skip
    return rows


def _fill(panels: list[Any], measured: list[dict[str, Any]], weights: Any) -> None:
    for length in sorted({row["numbers"] for row in measured}):
        rows = [row for row in measured if row["numbers"] == length]
        workers = [row["workers"] for row in rows]
        (line,) = panels[0].plot(workers, [row["pass, s"] for row in rows], "o", label=f"{8 * length / 1e3:g} kB")
        panels[0].plot(workers, [row["predicted, s"] for row in rows], "--", color=line.get_color())
    panels[0].set(xlabel="workers", ylabel="seconds per pass", xscale="log", yscale="log")
    panels[0].set_title("measured (dots) and model (lines)", fontsize=10)
    panels[0].legend(title="statistics", fontsize=8)
    many = np.unique(np.geomspace(2, 1_000, 40).astype(int))
    for n_items, n_components, solver in SIZES:
        payload = _payload(n_items, n_components, solver)
        seconds = [_predict(weights, _cluster_cost(int(n), n_components, payload)) for n in many]
        panels[1].plot(THREADS_PER_WORKER * many, seconds, label=f"n = {n_items}, K = {n_components}, {solver.upper()}")
    panels[1].set(xlabel="threads, 16 per worker", ylabel="overhead, seconds", xscale="log", yscale="log")
    panels[1].set_title("projected for a cluster", fontsize=10)
    panels[1].legend(fontsize=8)
