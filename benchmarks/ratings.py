"""Ratings in the shape of MovieLens 10M: drawn, ingested with ties, completed at rank 30, ranked, and fitted.

By default 2.2 million ratings of 70,000 users and 10,000 items. `PLMIX_RATINGS=10000000 python -m benchmarks ratings`
takes the full size, 10 million ratings of 71,567 users and 10,681 items. Two workers with one thread and 3 GB each.
`PLMIX_SWEEPS` is the number of sweeps of the completion.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv as pa_csv

import plmix_dist as pl
from benchmarks.common import PeakMemory, folder_bytes, save
from benchmarks.mm_pass import worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.errors import NotConvergedWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

RANK, CHOSEN, N_COMPONENTS = 30, 100, 3
MOVIELENS = (71_567, 10_681)
_FULL = 10_000_000
_SWEEPS = int(os.environ.get("PLMIX_SWEEPS", "10"))


def run(tiny: bool = False) -> list[dict[str, Any]]:
    n_ratings = 20_000 if tiny else int(os.environ.get("PLMIX_RATINGS", "2200000"))
    n_users, n_items = (500, 300) if tiny else MOVIELENS if n_ratings >= _FULL else (70_000, 10_000)
    rank, chosen = (5, 20) if tiny else (RANK, CHOSEN)
    with (
        tempfile.TemporaryDirectory() as folder,
        LazyExecutor(ClusterOptions(workers=2, memory_limit="3GB")) as cluster,
    ):
        place = Path(folder)
        pids = worker_pids(cluster.client())
        stages = _Stages(pids)
        stages.run("draw", lambda: write_ratings(place / "ratings.csv", n_users, n_items, n_ratings))
        size = folder_bytes(place) / 1e6
        stages.run("ingest, ties", lambda: pl.ingest_ratings(place / "ratings.csv", place / "tied", executor=cluster))
        sweeps: list[tuple[float, float]] = []

        def heard(done: int, of: int) -> None:
            if of == _SWEEPS and done == len(sweeps) + 1:
                sweeps.append((time.perf_counter(), _cpu(pids)))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)  # as many sweeps as are asked for, and no more
            completed = stages.run(
                f"complete, {_SWEEPS} sweeps, and rank",
                lambda: pl.ingest_ratings(
                    place / "ratings.csv",
                    place / "completed",
                    complete=rank,
                    n_items=chosen,
                    max_sweeps=_SWEEPS,
                    executor=cluster,
                    progress=heard,
                ),
            )
        report = completed.manifest.history[0]["ratings"]["completion"]
        stages.run(
            "fit", lambda: pl.PlackettLuceMixture(N_COMPONENTS, random_state=0).fit(completed, client=cluster.client())
        )
    shape = {"ratings": n_ratings, "users": n_users, "items": n_items, "CSV MB": size}
    rows = [{"stage": name, **values} for name, values in stages.rows.items()]
    seconds, cpu = np.median(np.diff(sweeps, axis=0), axis=0).tolist()
    rows.append({"stage": "one sweep", "seconds": seconds, "workers' CPU s": cpu, "peak MB per worker": 0.0})
    found = {"residual": report["residual"], "objective": report["objective"]}
    return save("ratings", [row | shape | found for row in rows])


class _Stages:
    """Seconds, CPU seconds of the workers, and the highest memory of a worker, of each stage."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        self.rows: dict[str, dict[str, float]] = {}

    def run(self, name: str, stage: Callable[[], Any]) -> Any:
        begun, before = time.perf_counter(), _cpu(self.pids)
        with PeakMemory(iter(self.pids)) as peak:
            result = stage()
        self.rows[name] = {
            "seconds": time.perf_counter() - begun,
            "workers' CPU s": _cpu(self.pids) - before,
            "peak MB per worker": peak.peak / 1e6,
        }
        print(name, {key: round(value, 1) for key, value in self.rows[name].items()}, flush=True)
        return result


def _cpu(pids: list[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(one.user + one.system for one in times)


def draw_ratings(
    n_users: int, n_items: int, n_ratings: int, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Users, items and ratings in half stars. Few users and few items have most of them; no pair occurs twice."""
    rng = np.random.default_rng(seed)
    activity = 20 + np.exp(rng.normal(4.0, 1.2, n_users))
    users = np.cumsum(activity / activity.sum())
    items = np.cumsum(1.0 / (np.arange(n_items) + n_items / 60))
    pairs = np.empty(0, np.int64)
    while len(pairs) < n_ratings:
        n_more = int(1.2 * (n_ratings - len(pairs))) + 100
        drawn_users = np.searchsorted(users[:-1], rng.random(n_more))
        drawn_items = np.searchsorted(items[:-1], rng.random(n_more) * items[-1])
        pairs = np.unique(np.concatenate([pairs, drawn_users * n_items + drawn_items]))
    pairs = np.sort(rng.choice(pairs, n_ratings, replace=False))
    of_user, of_item = pairs // n_items, pairs % n_items
    taste, kind = rng.normal(0, 0.35, (n_users, 12)), rng.normal(0, 0.25, (n_items, 12))
    level = 3.5 + rng.normal(0, 0.4, n_users)[of_user] + rng.normal(0, 0.5, n_items)[of_item]
    for place in range(12):
        level += taste[of_user, place] * kind[of_item, place]
    level += rng.normal(0, 0.7, n_ratings)
    return of_user, of_item, np.clip(np.round(2 * level) / 2, 0.5, 5.0)


def write_ratings(path: Path, n_users: int, n_items: int, n_ratings: int) -> None:
    """A table of ratings with times, sorted by user."""
    users, items, ratings = draw_ratings(n_users, n_items, n_ratings)
    times = np.random.default_rng(1).integers(800_000_000, 1_200_000_000, n_ratings)
    table = pa.table({"userId": users + 1, "movieId": items + 1, "rating": ratings, "timestamp": times})
    pa_csv.write_csv(table, path)
