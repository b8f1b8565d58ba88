"""What `plmix run --dry-run` foretells, beside what the job then takes: seconds of a pass, memory of a worker."""

from __future__ import annotations

import os
import statistics
import tempfile
import warnings
from pathlib import Path
from typing import Any

import plmix_dist as pl
from benchmarks.common import PeakMemory, save
from benchmarks.mm_pass import worker_pids
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.errors import NotConvergedWarning
from plmix_dist.jobs.file import _job_of
from plmix_dist.jobs.plan import plan_of

# Rankings, items, listed items, components, M-step, whether rows stay in memory.
CASES: tuple[tuple[int, int, int, int, str, str], ...] = (
    (1_000_000, 10, 10, 3, "mm", "memory"),
    (200_000, 100, 100, 5, "mm", "memory"),
    (1_000_000, 50, 5, 4, "lsr", "memory"),
    (1_000_000, 20, 20, 4, "mm", "store"),
)
WORKERS = 2


def run(tiny: bool = False) -> list[dict[str, Any]]:
    cases = ((2_000, 5, 5, 2, "mm", "memory"),) if tiny else CASES
    return save("dry_run", [_compared(*case) for case in cases])


def _compared(
    n_rankings: int, n_items: int, length: int, n_components: int, m_step: str, residency: str
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = pl.simulate(
            folder / "store",
            n_rankings=n_rankings,
            n_items=n_items,
            n_components=n_components,
            length=length,
            unranked="below",
            random_state=1,
        )
        model = {"components": n_components, "m_step": m_step, "residency": residency}
        job = {"data": {"store": "store"}, "model": model, "cluster": {"workers": WORKERS}}
        plan = plan_of(_job_of(job | {"outputs": {"folder": "out"}}, folder))
        with LazyExecutor(ClusterOptions(workers=WORKERS)) as executor:
            client = executor.client()
            fit = pl.PlackettLuceMixture(
                n_components, m_step=m_step, residency=residency, init="random", max_iter=12, tol=1e-12
            )
            with PeakMemory(iter(worker_pids(client))) as workers, warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConvergedWarning)
                fit.fit(store, client=client)
        # The first pass reads the rows.
        seconds = statistics.median(record["seconds"] for record in fit.history_[2:])
    return {
        "m": n_rankings,
        "n": n_items,
        "listed": length,
        "K": n_components,
        "M-step": m_step,
        "rows in": residency,
        "cores": os.cpu_count(),
        "pass, foretold s": plan["seconds_per_pass"],
        "pass, s": seconds,
        "ratio": seconds / plan["seconds_per_pass"],
        "worker, foretold MB": plan["memory_per_worker"] / 1e6,
        "worker, MB": workers.peak / 1e6,
    }
