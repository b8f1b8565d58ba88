"""The spectral start: its distance to the truth against random starts, and its cost in passes over the data."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

import plmix_dist as pl
from benchmarks.common import save
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings

# The paper's generative model: items, items that differ, components, rankings.
SIZES = ((100, 5, 3, 10_000), (50, 10, 5, 10_000), (100, 20, 8, 20_000))
# Whole fits whose stages are timed: rankings, items, items that differ, components.
COSTS = ((1_000_000, 100, 100, 5), (1_000_000, 100, 5, 5), (100_000, 1_000, 50, 5))


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for n_items, differing, n_components, n_rankings in SIZES[:1] if tiny else SIZES:
        for seed in range(1 if tiny else 2):
            rng = np.random.default_rng(seed)
            truth = draw_log_worths(n_components, n_items, differing, rng)
            shares = np.full(n_components, 1 / n_components)
            block, _ = draw_rankings(truth, shares, 500 if tiny else n_rankings, rng)
            rows.append({"n": n_items, "L": differing, "K": n_components, "seed": seed} | _compared(block, truth, tiny))
    save("start", rows)
    return rows + cost(tiny)


def _compared(block: pl.RankingBlock, truth: np.ndarray, tiny: bool) -> dict[str, Any]:
    n_components = len(truth)
    start = pl.SpectralPlackettLuce(n_components, random_state=0).fit(block)
    tol = 1e-3 if tiny else 1e-8
    fitted = pl.PlackettLuceMixture(n_components, random_state=0, tol=tol).fit(block)
    ends: dict[int, dict[str, Any]] = {}

    def note(record: dict[str, Any]) -> None:
        ends[record["start"]] = record

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of them collapse, or do not end
        best = pl.PlackettLuceMixture(
            n_components, init="random", n_init=2 if tiny else 5, random_state=0, tol=tol, max_iter=200, progress=note
        ).fit(block)
    passes = sum(stage["passes"] for stage in fitted.init_["stages"])
    return {
        "rank": start.rank_,
        "start": matched_distance(start.log_worths_, truth),
        "after EM": matched_distance(fitted.log_worths_, truth),
        "passes": passes,
        "random passes, median": float(np.median([record["iteration"] for record in ends.values()])),
        "below best of 5": max(0.0, (best.objective_ - fitted.objective_) / block.total_weight),
    }


def cost(tiny: bool = False) -> list[dict[str, Any]]:
    """Seconds of each stage of a fit, as passes of the MM kernel over all rows in the same threads."""
    rows = []
    for n_rankings, n_items, differing, n_components in COSTS[:1] if tiny else COSTS:
        with tempfile.TemporaryDirectory() as folder:
            store = pl.simulate(
                Path(folder) / "s", n_rankings=20_000 if tiny else n_rankings, n_items=n_items,
                n_components=n_components, differing=differing, random_state=1,
            )  # fmt: skip
            model = pl.PlackettLuceMixture(n_components, random_state=0, tol=1e-4 if tiny else 1e-8, m_step="mm")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                clone(model).set_params(max_iter=2).fit(store.block()[:1000])  # loads the kernels
            model.fit(store)
        a_pass = float(np.median([record["pass_seconds"] for record in model.history_]))
        before = [stage for stage in model.init_["stages"] if stage["stage"] != "fit"]
        seconds: dict[str, float] = {}
        for stage in before:
            seconds[stage["stage"]] = seconds.get(stage["stage"], 0.0) + stage["seconds"]
        rows.append(
            {
                "m": n_rankings,
                "n": n_items,
                "L": differing,
                "MM pass s": a_pass,
                "start, passes": sum(seconds.values()) / a_pass,
                "fit, passes": model.n_iter_,
                "peak MB": max(stage["peak_memory"] for stage in before) / 1e6,
                "stages": " ".join(f"{name} {time / a_pass:.2f}" for name, time in seconds.items()),
            }
        )
    return save("start-cost", rows)
