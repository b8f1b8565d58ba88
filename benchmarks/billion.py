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
from benchmarks.mm_pass import worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

N_ITEMS, N_COMPONENTS = 10, 4


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
    for record in model.init_["stages"]:
        if record["stage"] in ("look", "fit"):
            per_pass = record["seconds"] / record["passes"]
            rows.append({"m": n_rankings, "stage": f"of which {record['stage']}, per pass", "seconds": per_pass})
    for row in rows:
        row |= {"stored GB": bytes_stored / 1e9, "passes": model.n_iter_, "converged": int(model.converged_)}
    return save("billion", rows)


def _fit(store: Path, client: Any, tol: float) -> pl.PlackettLuceMixture:
    return pl.PlackettLuceMixture(N_COMPONENTS, random_state=0, tol=tol).fit(store, client=client)
