"""The theory by simulation: the error of the start, mis-clustering, gap and operator norm, LSR against CML."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import svds
from scipy.spatial.distance import pdist

from benchmarks.paper.frame import Curves, Experiment, Row, averaged
from benchmarks.paper.methods import fitted, spectral_start, warm_up
from benchmarks.paper.synthetic import simulated
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings

TRIALS = {"tiny": 1, "quick": 3, "released": 10, "paper": 25}
_BASE = {"n": 50, "L": 10, "K": 3, "m": 8_000}
_SWEEPS: dict[str, tuple[int, ...]] = {
    "m": (1_000, 2_000, 4_000, 8_000, 16_000, 32_000),
    "L": (2, 5, 10, 25, 50),
    "K": (2, 3, 4, 6, 8),
    "n": (10, 20, 50, 100),
}
_LSR_ITEMS = {"tiny": (5,), "quick": (5, 10, 25, 50, 100), "released": (5, 10, 25, 50, 100, 200)}
_LSR_ITEMS["paper"] = _LSR_ITEMS["released"]
_RANK_SIZES: dict[str, list[Row]] = {
    "tiny": [{"n": 6, "L": 6, "K": 2, "m": 300}],
    "quick": [
        {"n": 20, "L": 5, "K": 3, "m": 4_000},
        {"n": 100, "L": 5, "K": 3, "m": 10_000},
        {"n": 50, "L": 10, "K": 5, "m": 10_000},
        {"n": 100, "L": 20, "K": 8, "m": 20_000},
    ],
}
_RANK_SIZES["released"] = _RANK_SIZES["paper"] = _RANK_SIZES["quick"]


def _start_cells(setting: str) -> list[Row]:
    sweeps: dict[str, tuple[int, ...]] = {"m": (200, 400)} if setting == "tiny" else _SWEEPS
    base = {"n": 8, "L": 8, "K": 2, "m": 200} if setting == "tiny" else _BASE
    return [
        base | {name: value, "sweep": name, "spread": 1.0, "trial": trial}
        for name, values in sweeps.items()
        for value in values
        for trial in range(TRIALS[setting])
        if name != "n" or base["L"] <= value
    ]


def _measure_start(cell: Row) -> Row:
    truth, block = simulated(cell)
    start = spectral_start(block, cell["K"], cell["trial"])
    return {
        "error of the start": matched_distance(start.log_worths_, truth),
        "misclustered": _misclustered(cell, truth, block, start),
    }


def _misclustered(cell: Row, truth: Any, block: Any, start: Any) -> float:
    """The share of rankings in another cluster than most of their component; clusters matched to components."""
    rng = np.random.default_rng([cell["K"], cell["m"], cell["trial"], 2])
    again, components = draw_rankings(truth, np.full(cell["K"], 1 / cell["K"]), cell["m"], rng)
    assert (again.items == block.items).all()
    labels = np.asarray(start.labels_)
    table = np.zeros((cell["K"], cell["K"]))
    np.add.at(table, (np.asarray(components), labels), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(1 - table[rows, columns].sum() / cell["m"])


def _start_summary(rows: list[Row]) -> list[Row]:
    """Means, and in the sweep of m the slope of log error in log m."""
    table = averaged(rows, ("sweep", "n", "L", "K", "m"), ("error of the start", "misclustered"))
    by_m = [row for row in table if row["sweep"] == "m"]
    slope = np.polyfit(np.log([row["m"] for row in by_m]), np.log([row["error of the start"] for row in by_m]), 1)[0]
    return [row | {"slope in m": float(slope) if row["sweep"] == "m" else ""} for row in table]


def _start_panels(table: list[Row]) -> list[Curves]:
    return [
        Curves(f"sweep of {name}", [row for row in table if row["sweep"] == name], name, "error of the start", "sweep")
        for name in dict.fromkeys(row["sweep"] for row in table)
    ]


# --- gap and operator norm -----------------------------------------------------------------------------------


def _bound_cells(setting: str) -> list[Row]:
    sizes = {
        "tiny": ((6, 6, 2, 300),),
        "quick": ((20, 10, 3, 1_000), (20, 10, 3, 4_000), (50, 10, 3, 1_000), (50, 10, 3, 4_000)),
    }
    own = sizes.get(setting, (*sizes["quick"], (100, 10, 3, 4_000), (100, 20, 5, 8_000)))
    return [
        {"n": n, "L": differing, "K": n_components, "m": m, "spread": 1.0, "trial": trial}
        for n, differing, n_components, m in own
        for trial in range(TRIALS[setting])
    ]


def _measure_bounds(cell: Row) -> Row:
    """X is the matrix of pairs; its expectation has one row per component, the centre of its rankings."""
    truth, block = simulated(cell)
    rng = np.random.default_rng([cell["K"], cell["m"], cell["trial"], 2])
    _, components = draw_rankings(truth, np.full(cell["K"], 1 / cell["K"]), cell["m"], rng)
    first, second = np.triu_indices(cell["n"], 1)
    places = np.argsort(block.to_array(), axis=1)
    pairs = (places[:, first] < places[:, second]).astype(float)
    centres = 1 / (1 + np.exp(truth[:, second] - truth[:, first]))
    norm = float(svds(pairs - centres[np.asarray(components)], k=1, return_singular_vectors=False)[0])
    n, m, n_components, differing = cell["n"], cell["m"], cell["K"], cell["L"]
    gap = float(pdist(centres).min())
    smallest = n_components / m * np.bincount(components, minlength=n_components).min()
    return {
        "norm of the noise": norm,
        "over sqrt(n (m + n))": norm / math.sqrt(n * (m + n)),
        "gap of centres": gap,
        "over sqrt(L (n - log n))": gap / math.sqrt(differing * (n - math.log(n))),
        "psi": math.sqrt(smallest * m) * gap / (n_components**2 * norm),
        "T over the norm": math.sqrt(n * (m + n) * math.log(n)) / norm,
        "misclustered": _misclustered(cell, truth, block, spectral_start(block, n_components, cell["trial"])),
    }


def _bound_summary(rows: list[Row]) -> list[Row]:
    values = tuple(name for name in rows[0] if name not in ("n", "L", "K", "m", "spread", "trial"))
    return averaged(rows, ("n", "L", "K", "m"), values)


# --- the rule for the rank -------------------------------------------------------------------------------------


def _rank_cells(setting: str) -> list[Row]:
    return [
        size | {"spread": 1.0, "trial": trial, "rank by": rule}
        for size in _RANK_SIZES[setting]
        for trial in range(TRIALS[setting])
        for rule in ("T", "K", "noise")
    ]


def _measure_rank(cell: Row) -> Row:
    truth, block = simulated(cell)
    rules: dict[str, dict[str, Any]] = {
        "T": {"rank": "paper"},
        "K": {"rank": cell["K"]},
        "noise": {"method": None, "rank": "auto", "embedding": "rank"},
    }
    start = spectral_start(block, cell["K"], cell["trial"], **rules[cell["rank by"]])
    return {
        "rank": float(start.rank_),
        "accuracy": 1 - _misclustered(cell, truth, block, start),
        "error of the start": matched_distance(start.log_worths_, truth),
    }


def _rank_summary(rows: list[Row]) -> list[Row]:
    return averaged(rows, ("n", "L", "K", "m", "rank by"), ("rank", "accuracy", "error of the start"))


# --- LSR against CML as n grows --------------------------------------------------------------------------------


def _growth_cells(setting: str) -> list[Row]:
    return [
        {"n": n, "m": 300 if setting == "tiny" else 5_000, "trial": trial, "method": method}
        for n in _LSR_ITEMS[setting]
        for trial in range(TRIALS[setting])
        for method in ("EM-LSR", "EM-CML")
    ]


def _measure_growth(cell: Row) -> Row:
    rng = np.random.default_rng([cell["n"], cell["trial"], 7])
    truth = draw_log_worths(2, cell["n"], None, rng)
    block, _ = draw_rankings(truth, np.array([0.5, 0.5]), cell["m"], rng)
    found = fitted(cell["method"], block, 2, cell["trial"])
    return {"error": matched_distance(found.model.log_worths_, truth), "seconds": found.seconds}


def _growth_summary(rows: list[Row]) -> list[Row]:
    return averaged(rows, ("n", "m", "method"), ("error", "seconds"))


def _growth_panels(table: list[Row]) -> list[Curves]:
    return [Curves(f"{value}, K = 2", table, "n", value, "method") for value in ("error", "seconds")]


START_ERROR = Experiment(
    "start-error",
    "the error of the spectral start falls as m^-1/2",
    _start_cells,
    _measure_start,
    _start_summary,
    panels=_start_panels,
)
BOUNDS = Experiment(
    "bounds",
    "the norm of the noise is at most a constant times sqrt(n (m + n)), the smallest gap of centres at least "
    "sqrt(L (n - log n)) over exp(C sqrt(log n)); where psi is above a constant and T / norm is between a constant and "
    "psi over another, few rankings are in a wrong cluster",
    _bound_cells,
    _measure_bounds,
    _bound_summary,
)
LSR_AGAINST_CML = Experiment(
    "lsr-against-cml",
    "EM-CML is faster for few items, EM-LSR for many, and EM-LSR is the more accurate",
    _growth_cells,
    _measure_growth,
    _growth_summary,
    panels=_growth_panels,
    warm_up=warm_up,
)
RANK_RULE = Experiment(
    "rank-rule",
    "the rank by the threshold T beside rank K, and beside our rule on the centred rank embedding",
    _rank_cells,
    _measure_rank,
    _rank_summary,
)
