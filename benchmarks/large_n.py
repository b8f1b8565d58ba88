"""20,000 items: fits of short rankings with default settings, each in a process whose memory is watched.

One array of 20,000 x 20,000 numbers would take 3.2 GB; the limit is 2 GB for everything.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import plmix_dist as pl
from benchmarks.common import in_fresh_process, save

N_ITEMS, N_COMPONENTS, N_RANKINGS, LENGTH = 20_000, 3, 200_000, 10
MOST_BYTES = 2e9


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for unranked in ("absent", "below"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "store"
            pl.simulate(
                path,
                n_rankings=2_000 if tiny else N_RANKINGS,
                n_items=200 if tiny else N_ITEMS,
                n_components=N_COMPONENTS,
                length=LENGTH,
                unranked=unranked,
            )
            fitted, peak = in_fresh_process(_fit, str(path), 1e-4 if tiny else 1e-8)
        rows.append({"unranked": unranked} | fitted | {"peak MB": peak / 1e6, "of 2 GB": peak / MOST_BYTES})
    return save("large-n", rows)


def _fit(path: str, tol: float) -> dict[str, Any]:
    store = pl.open_store(path)
    begun = time.perf_counter()
    model = pl.PlackettLuceMixture(N_COMPONENTS, random_state=0, tol=tol).fit(store)
    seconds = time.perf_counter() - begun
    stages: dict[str, float] = {}
    for stage in model.init_["stages"]:
        stages[stage["stage"]] = stages.get(stage["stage"], 0.0) + stage["seconds"]
    return {
        "m": store.n_rankings,
        "n": store.n_items,
        "m-step": model.m_step_,
        "seconds": seconds,
        "iterations": model.n_iter_,
        "converged": int(model.converged_),
        "mean log-likelihood": model.log_likelihood_ / store.n_rankings,
        "stages, s": " ".join(f"{name} {taken:.1f}" for name, taken in stages.items()),
    }
