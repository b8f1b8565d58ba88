"""Starts compared, before and after EM: clusters with least squares or LSR, moments (K = 2), random; how T matters."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.paper.frame import Experiment, Row, averaged
from benchmarks.paper.methods import fitted, spectral_start, warm_up
from benchmarks.paper.synthetic import simulated
from plmix_dist.metrics import matched_distance

SIZES: dict[str, list[Row]] = {
    "tiny": [{"n": 5, "L": 5, "K": 2, "m": 300}],
    "quick": [
        {"n": 10, "L": 10, "K": 2, "m": 2_000},
        {"n": 10, "L": 5, "K": 2, "m": 10_000},
        {"n": 50, "L": 10, "K": 3, "m": 5_000},
        {"n": 100, "L": 5, "K": 3, "m": 10_000},
    ],
}
SIZES["released"] = SIZES["paper"] = [
    *SIZES["quick"],
    {"n": 100, "L": 5, "K": 5, "m": 20_000},
    {"n": 100, "L": 20, "K": 8, "m": 20_000},
]
TRIALS = {"tiny": 1, "quick": 3, "released": 25, "paper": 25}
KINDS = ("least squares", "LSR in clusters", "rank embedding", "moments", "random")
MULTIPLIERS = (1.0, 0.3, 0.1, 0.03, 0.01)


def _start(kind: str, block: Any, n_components: int, seed: int) -> Any:
    if kind == "least squares":
        return spectral_start(block, n_components, seed)
    if kind == "LSR in clusters":
        return spectral_start(block, n_components, seed, cluster_worths="lsr")
    if kind == "rank embedding":
        return spectral_start(block, n_components, seed, method=None, rank="auto")
    if kind == "moments":
        return pl.PlackettLuceMixture(n_components, init="moments", alpha=1e-9, max_iter=1, random_state=seed).fit(
            block
        )
    n_items = block.n_items
    return np.random.default_rng([seed, 9]).standard_normal((n_components, n_items))


def _cells(setting: str) -> list[Row]:
    return [
        size | {"spread": 1.0, "trial": trial, "start": kind}
        for size in SIZES[setting]
        for trial in range(TRIALS[setting])
        for kind in KINDS
        if kind != "moments" or (size["K"] == 2 and size["n"] <= 10)
    ]


def _measure(cell: Row) -> Row:
    truth, block = simulated(cell)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        start = _start(cell["start"], block, cell["K"], cell["trial"])
        seconds = time.perf_counter() - begun
        return _before_and_after(truth, block, start, cell) | {"seconds of the start": seconds}


def _before_and_after(truth: Any, block: Any, start: Any, cell: Row) -> Row:
    found = fitted("EM-LSR", block, cell["K"], cell["trial"], start)
    return {
        "error before": matched_distance(getattr(start, "log_worths_", start), truth),
        "error after": matched_distance(found.model.log_worths_, truth),
        "log-likelihood": found.model.log_likelihood_ / cell["m"],
        "iterations": found.n_iterations,
    }


def _summary(rows: list[Row]) -> list[Row]:
    """Log-likelihoods are told as what they lack to the best start of the same data."""
    by = ("n", "L", "K", "m", "trial")
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        best[key] = max(best.get(key, -np.inf), row["log-likelihood"])
    told = [row | {"below the best": best[tuple(row[name] for name in by)] - row["log-likelihood"]} for row in rows]
    what = "start" if "start" in rows[0] else "times T"
    values = ("error before", "error after", "below the best", "iterations", "seconds of the start", "rank")
    return averaged(told, ("n", "L", "K", "m", what), tuple(value for value in values if value in told[0]))


def _threshold_cells(setting: str) -> list[Row]:
    return [
        size | {"spread": 1.0, "trial": trial, "times T": multiplier}
        for size in SIZES[setting]
        for trial in range(TRIALS[setting])
        for multiplier in MULTIPLIERS
    ]


def _measure_threshold(cell: Row) -> Row:
    truth, block = simulated(cell)
    start = spectral_start(block, cell["K"], cell["trial"], rank="paper", threshold=cell["times T"])
    return _before_and_after(truth, block, start, cell) | {"rank": float(start.rank_)}


STARTS = Experiment(
    "starts",
    "the spectral start is better than random and moments; least squares and LSR in clusters are alike",
    _cells,
    _measure,
    _summary,
    warm_up=warm_up,
)
THRESHOLD = Experiment(
    "threshold",
    "the rank is chosen by the threshold T; experiments are said to depend little on it",
    _threshold_cells,
    _measure_threshold,
    _summary,
)
