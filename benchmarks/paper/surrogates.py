"""True against surrogate likelihood: all M-steps from one start, what each reaches of the log-likelihood."""

from __future__ import annotations

from typing import Any

from benchmarks.paper.frame import Experiment, Row, averaged
from benchmarks.paper.methods import FOUR, fitted, spectral_start, warm_up
from benchmarks.paper.synthetic import simulated
from plmix_dist.metrics import matched_distance

SIZES: dict[str, list[Row]] = {
    "tiny": [{"n": 6, "L": 6, "K": 2, "m": 300}],
    "quick": [{"n": 10, "L": 10, "K": 3, "m": 5_000}, {"n": 50, "L": 50, "K": 3, "m": 10_000}],
}
SIZES["released"] = SIZES["paper"] = [*SIZES["quick"], {"n": 100, "L": 5, "K": 5, "m": 10_000}]
TRIALS = {"tiny": 1, "quick": 3, "released": 25, "paper": 25}


def _cells(setting: str) -> list[Row]:
    return [size | {"spread": 1.0, "trial": trial} for size in SIZES[setting] for trial in range(TRIALS[setting])]


def _measure(cell: Row) -> Row:
    truth, block = simulated(cell)
    start = spectral_start(block, cell["K"], cell["trial"])
    found: dict[str, Any] = {}
    for method in (*FOUR, "stochastic LSR"):
        ended = fitted(method, block, cell["K"], cell["trial"], start)
        found[f"{method}: log-likelihood"] = ended.model.log_likelihood_ / cell["m"]
        found[f"{method}: error"] = matched_distance(ended.model.log_worths_, truth)
        found[f"{method}: seconds"] = ended.seconds
    return found


def _summary(rows: list[Row]) -> list[Row]:
    methods = (*FOUR, "stochastic LSR")
    table = []
    for method in methods:
        own = [
            {name: row[name] for name in ("n", "K", "m")}
            | {
                "M-step": method,
                "below EM-LSR": row["EM-LSR: log-likelihood"] - row[f"{method}: log-likelihood"],
                "error": row[f"{method}: error"],
                "seconds of EM": row[f"{method}: seconds"],
            }
            for row in rows
        ]
        table += averaged(own, ("n", "K", "m", "M-step"), ("below EM-LSR", "error", "seconds of EM"))
    return sorted(table, key=lambda row: (row["n"], row["m"]))


SURROGATES = Experiment(
    "surrogates",
    "LSR and MM maximise the likelihood; CML and GMM maximise something else and end lower",
    _cells,
    _measure,
    _summary,
    warm_up=warm_up,
)
