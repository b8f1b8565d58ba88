"""Error and time against the number of rankings: n = 100 items of which 5 differ, K small and moderate, all methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.paper.frame import Curves, Experiment, Row, averaged
from benchmarks.paper.methods import FOUR, FROM_TRUTH, fitted, warm_up
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings

# The released scripts: truth N(0, 4) instead of N(0, 1), and the same for all trials.
GRIDS: dict[str, dict[str, Any]] = {
    "tiny": {"n": 8, "L": 3, "K": (2,), "m": (200,), "trials": 1},
    "quick": {"n": 100, "L": 5, "K": (3, 8), "m": (1_000, 3_000, 10_000), "trials": 3},
    "released": {
        "n": 100, "L": 5, "K": (2, 3, 4, 5, 6, 8, 10), "m": (100, 250, 500, 1_000, 2_000), "trials": 25, "spread": 2.0,
    },
    "paper": {"n": 100, "L": 5, "K": (3, 8), "m": (1_000, 2_000, 5_000, 10_000, 20_000), "trials": 25},
}  # fmt: skip
# Where the Bayesian mixture runs too: 1,000 draws.
RIVAL_GRIDS: dict[str, dict[str, Any]] = {
    "tiny": {"n": 6, "L": 6, "K": (2,), "m": (100,), "trials": 1},
    "quick": {"n": 20, "L": 10, "K": (3,), "m": (100, 300, 1_000, 3_000), "trials": 5},
    "released": {"n": 100, "L": 5, "K": (3,), "m": (100, 500, 1_000, 2_000), "trials": 25, "spread": 2.0},
    "paper": {"n": 100, "L": 5, "K": (3,), "m": (500, 1_000, 2_000, 5_000), "trials": 25},
}


def _cells(grid: dict[str, Any], methods: tuple[str, ...]) -> list[Row]:
    sizes = {"n": grid["n"], "L": grid["L"], "spread": grid.get("spread", 1.0)}
    return [
        sizes | {"K": n_components, "m": n_rankings, "trial": trial, "method": method}
        for n_components in grid["K"]
        for n_rankings in grid["m"]
        for trial in range(grid["trials"])
        for method in methods
    ]


def simulated(cell: Row) -> tuple[Any, Any]:
    """The truth (K, n), and rankings: the same for all methods of a trial."""
    released = cell["spread"] != 1.0
    truth_rng = np.random.default_rng([cell["K"], 0 if released else cell["trial"], 1])
    truth = cell["spread"] * draw_log_worths(cell["K"], cell["n"], cell["L"], truth_rng)
    rng = np.random.default_rng([cell["K"], cell["m"], cell["trial"], 2])
    block, _ = draw_rankings(truth, np.full(cell["K"], 1 / cell["K"]), cell["m"], rng)
    return truth, block


def _measure(cell: Row) -> Row:
    truth, block = simulated(cell)
    start = truth if cell["method"] == FROM_TRUTH else None
    found = fitted(cell["method"], block, cell["K"], cell["trial"], start)
    return {
        "error": matched_distance(found.model.log_worths_, truth),
        "seconds": found.seconds + found.start_seconds,
        "of these, start": found.start_seconds,
        "iterations": found.n_iterations,
    }


def _summary(rows: list[Row]) -> list[Row]:
    return averaged(rows, ("K", "m", "method"), ("error", "seconds", "of these, start", "iterations"))


def _panels(table: list[Row]) -> list[Curves]:
    return [
        Curves(f"K = {n_components}", [row for row in table if row["K"] == n_components], "m", value, "method")
        for n_components in dict.fromkeys(row["K"] for row in table)
        for value in ("error", "seconds")
    ]


SYNTHETIC = Experiment(
    "synthetic",
    "EM-LSR and EMM are the most accurate; EM-LSR is fast for K small and moderate, EMM too slow for K moderate",
    lambda setting: _cells(GRIDS[setting], (*FOUR, "default", FROM_TRUTH)),
    _measure,
    _summary,
    panels=_panels,
    warm_up=warm_up,
)
RIVALS = Experiment(
    "rivals",
    "the stochastic M-step is faster and much less accurate; the Bayesian mixture is slower, and more accurate if data "
    "are few",
    lambda setting: _cells(RIVAL_GRIDS[setting], ("EM-LSR", "stochastic LSR", "default", "Bayesian")),
    _measure,
    _summary,
    panels=_panels,
    warm_up=warm_up,
)
