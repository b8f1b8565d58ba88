"""A billion rankings of 10 items in a store: written, verified and fitted on two workers of 1 GB.

Not part of `make bench`: it takes a quarter of an hour and 5 GB of disk. Run `python -m benchmarks billion`, or
`PLMIX_ROWS=200000000 python -m benchmarks billion` for fewer rows.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plmix_dist as pl
from benchmarks.common import PeakMemory, folder_bytes, save
from benchmarks.mm_pass import some_point, worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting.e_step import PassParams, e_step
from plmix_dist.kernels import em_statistics
from plmix_dist.passes.request import Request
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.solvers import MM

if TYPE_CHECKING:
    from collections.abc import Callable

N_ITEMS, N_COMPONENTS = 10, 4
# The parts of a pass are measured on fewer rows: they are in proportion.
_MOST_ROWS_OF_PARTS = 4_000_000


def run(tiny: bool = False) -> list[dict[str, Any]]:
    n_rankings = 50_000 if tiny else int(os.environ.get("PLMIX_ROWS", 1_000_000_000))
    options = ClusterOptions(workers=2, threads=1, memory_limit="1GB")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, LazyExecutor(options) as executor:
        client = executor.client()
        store = Path(folder) / "store"

        def stage(name: str, work: Callable[[], Any]) -> Any:
            with PeakMemory(iter(worker_pids(client))) as workers, PeakMemory(iter([os.getpid()])) as driver:
                begun = time.perf_counter()
                result = work()
                seconds = time.perf_counter() - begun
            row = {"m": n_rankings, "stage": name, "seconds": seconds, "rankings per s": n_rankings / seconds}
            rows.append(row | {"driver MB": driver.peak / 1e6, "highest worker MB": workers.peak / 1e6})
            print(rows[-1], flush=True)
            return result

        stage(
            "write",
            lambda: pl.simulate(
                store, n_rankings=n_rankings, n_items=N_ITEMS, n_components=N_COMPONENTS, client=client
            ),
        )
        bytes_stored = folder_bytes(store)
        stage("verify", lambda: pl.verify(store, client=client))
        model = stage("fit", lambda: _fit(store, client, 1e-4 if tiny else 1e-8))
        rows += _parts_of_a_pass(Path(folder) / "parts", min(n_rankings, _MOST_ROWS_OF_PARTS))
    for record in model.init_["stages"]:
        if record["stage"] in ("look", "fit"):
            per_pass = record["seconds"] / record["passes"]
            rows.append({"m": n_rankings, "stage": f"of which {record['stage']}, per pass", "seconds": per_pass})
    for row in rows:
        row |= {"stored GB": bytes_stored / 1e9, "passes": model.n_iter_, "converged": int(model.converged_)}
    return save("billion", rows)


def _parts_of_a_pass(store: Path, n_rankings: int) -> list[dict[str, Any]]:
    """CPU seconds of a pass that reads, over fewer rows, beside a bare read of their bytes and the kernel."""
    rankings = as_rankings(pl.simulate(store, n_rankings=n_rankings, n_items=N_ITEMS, client=False))
    point = some_point(N_COMPONENTS, N_ITEMS)
    request = Request(e_step(MM), PassParams(point))
    passes = {kept: ThreadedPasses(rankings, residency=kept, n_threads=1) for kept in ("store", "memory")}
    blocks, prepared = list(rankings.iter_leaves(0, rankings.n_leaves)), point.prepared()
    files = [path for path in store.rglob("*") if path.is_file()]
    parts: dict[str, Callable[[], Any]] = {
        "a pass that reads": lambda: passes["store"].run([request]),
        "a pass over rows in memory": lambda: passes["memory"].run([request]),
        "reading and decoding": lambda: sum(1 for _ in rankings.iter_leaves(0, rankings.n_leaves)),
        "the kernel": lambda: [em_statistics(block, prepared) for block in blocks],
        "a bare read": lambda: sum(len(path.read_bytes()) for path in files),
    }
    for work in parts.values():
        work()
    seconds = {name: min(_cpu(work) for _ in range(3)) for name, work in parts.items()}
    return [
        {"m": n_rankings, "stage": f"CPU of {name}", "seconds": own, "rankings per s": rankings.n_rankings / own}
        for name, own in seconds.items()
    ]


def _cpu(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _fit(store: Path, client: Any, tol: float) -> pl.PlackettLuceMixture:
    return pl.PlackettLuceMixture(N_COMPONENTS, random_state=0, tol=tol).fit(store, client=client)
