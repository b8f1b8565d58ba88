"""The published EM-LSR (`method="paper"`) beside the default on a million rankings: seconds, memory, likelihood.

Two worker processes of 2 GB each. The fits follow each other on one cluster, so that what slows the machine down slows
all of them down. docs/paper.md has the figures.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plmix_dist as pl
from benchmarks.common import PeakMemory, save
from benchmarks.mm_pass import worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.errors import StartWarning

if TYPE_CHECKING:
    from distributed import Client

    from plmix_dist import RankingStore

N_ITEMS, N_COMPONENTS, N_RANKINGS = 50, 3, 1_000_000
WORKERS, WORKER_GB = 2, 2
# Where the code of the authors stops.
_RELEASED_STOP = {"tol": 1e-4, "max_iter": 100}
_RANK_K = {"method": "paper", "init": pl.Spectral(rank=N_COMPONENTS)}
FITS: dict[str, dict[str, Any]] = {
    "default, alpha=0": {"alpha": 0.0},
    "paper, rank K, tol 1e-4": _RANK_K | _RELEASED_STOP,
    "paper, rank K": _RANK_K,
    "paper, rank by T": {"method": "paper"},
}


def run(tiny: bool = False) -> list[dict[str, Any]]:
    n_rankings, n_items = (3_000, 8) if tiny else (N_RANKINGS, N_ITEMS)
    options = ClusterOptions(workers=WORKERS, memory_limit=f"{WORKER_GB}GB")
    with tempfile.TemporaryDirectory() as folder, LazyExecutor(options) as executor:
        path = Path(folder) / "store"
        pl.simulate(
            path,
            n_rankings=n_rankings,
            n_items=n_items,
            n_components=N_COMPONENTS,
            random_state=0,
            client=executor.client(),
        )
        store = pl.open_store(path)
        chosen = list(FITS)[:2] if tiny else list(FITS)
        rows = [_fitted(name, store, executor.client()) for name in chosen]
    fastest = rows[0]["seconds"]
    return save("paper-method", [row | {"times the default": row["seconds"] / fastest} for row in rows])


def _fitted(name: str, store: RankingStore, client: Client) -> dict[str, Any]:
    model = pl.PlackettLuceMixture(N_COMPONENTS, random_state=0, **FITS[name])
    begun = time.perf_counter()
    with (
        PeakMemory(iter(worker_pids(client))) as workers,
        PeakMemory(iter([os.getpid()])) as driver,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", StartWarning)  # a rank of 1 is a result here
        model.fit(store, client=client)
    print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)
    stages = {record["stage"]: record["seconds"] for record in model.init_["stages"]}
    return {
        "fit": name,
        "n": store.n_items,
        "m": store.n_rankings,
        "K": N_COMPONENTS,
        "seconds": time.perf_counter() - begun,
        "of these, svd": stages.get("svd", 0.0),
        "and EM": stages["fit"],
        "rank": model.init_["rank"],
        "iterations": model.n_iter_,
        "passes of EM": model.init_["stages"][-1]["passes"],
        "highest worker MB": workers.peak / 1e6,
        "this process MB": driver.peak / 1e6,
        "mean log-likelihood": f"{model.log_likelihood_ / store.n_rankings:.9f}",
        "gradient": model.gradient_norm_,
    }
