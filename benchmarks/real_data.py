"""One spectral start against the best of 20 random starts, on elections; skipped where the data are not there."""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import save
from plmix_dist.errors import NotConvergedWarning

DATA = Path(__file__).parents[2] / "shared" / "data"
SOURCES = {
    "APA 1998": "apa1998/00028-00000001.soi",
    "Irish West": "irish/00001-00000002.soi",
    "Irish North": "irish/00001-00000001.soi",
    "Irish Meath": "irish/00001-00000003.soi",
}


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for name, source in SOURCES.items() if DATA.exists() else ():
        if tiny and name != "APA 1998":
            continue
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            store = pl.ingest(DATA / source, Path(folder) / "s")
            for n_components in (2,) if tiny else range(2, 9):
                rows.append({"data": name, "K": n_components} | _compared(store, n_components, tiny))
                print(rows[-1], flush=True)  # the whole takes minutes
    return save("real-data", rows or [{"data": "not there", "K": 0}])


def _compared(store: pl.RankingStore, n_components: int, tiny: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"random_state": 0, "tol": 1e-3 if tiny else 1e-7, "max_iter": 50 if tiny else 500}
    # Of random starts it is enough to know to which optimum they go.
    roughly = options | {"tol": 1e-3 if tiny else 1e-5, "max_iter": 50 if tiny else 200}
    begun = time.perf_counter()
    spectral = pl.PlackettLuceMixture(n_components, **options).fit(store)
    seconds = time.perf_counter() - begun
    ends: dict[int, dict[str, Any]] = {}

    def note(record: dict[str, Any]) -> None:
        if record["taken"]:
            ends[record["start"]] = record

    n_init = 2 if tiny else 20
    begun = time.perf_counter()
    best = pl.PlackettLuceMixture(n_components, init="random", n_init=n_init, progress=note, **roughly).fit(store)
    random_seconds = time.perf_counter() - begun
    reached = np.array([record["objective"] for record in ends.values()]) / store.total_weight
    top = max(best.objective_, spectral.objective_) / store.total_weight
    return {
        "objective": spectral.objective_ / store.total_weight,
        "below best": top - spectral.objective_ / store.total_weight,
        "random starts within 1e-4": int((reached > top - 1e-4).sum()),
        "passes": sum(stage["passes"] for stage in spectral.init_["stages"]),
        "random passes, median": float(np.median([record["iteration"] for record in ends.values()])),
        "seconds": seconds,
        "seconds of 20": random_seconds,
    }
