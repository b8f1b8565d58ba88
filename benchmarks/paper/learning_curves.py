"""Learning curves on completed ratings: log-likelihood of test rankings against the number of training rankings.

The paper completes MovieLens 10M at rank 30 and takes the n items whose ranks vary most. `PLMIX_MOVIELENS` may name a
file of ratings (ratings.dat or CSV); by default ratings of the same shape are drawn, of low rank with noise.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.paper.frame import Curves, Experiment, Row, averaged
from benchmarks.paper.methods import FOUR, fitted, mean_log_likelihood, warm_up

GRIDS: dict[str, dict[str, Any]] = {
    "tiny": {"n": (6,), "m": (100,), "trials": 1, "K": 2, "users": 300, "items": 20},
    "quick": {"n": (25, 100), "m": (1_000, 4_000, 14_000), "trials": 3, "K": 5, "users": 17_500, "items": 400},
    "paper": {
        "n": (25, 100), "m": (1_000, 2_000, 4_000, 8_000, 14_000), "trials": 5, "K": 5, "users": 17_500, "items": 2_000,
    },
}  # fmt: skip
GRIDS["released"] = GRIDS["paper"]
RANK = 30


def _cells(setting: str) -> list[Row]:
    grid = GRIDS[setting]
    source = os.environ.get("PLMIX_MOVIELENS", "simulated")
    sizes = {"source": source, "K": grid["K"], "users": grid["users"], "items": grid["items"]}
    return [
        sizes | {"n": n_items, "m": n_rankings, "trial": trial, "method": method}
        for n_items in grid["n"]
        for n_rankings in grid["m"]
        for trial in range(grid["trials"])
        for method in (*FOUR, "default")
    ]


@cache
def completed_rankings(source: str, n_users: int, n_all: int, n_items: int) -> Any:
    """(users, n_items): the n_items whose ranks vary most, as users order them; at most n_users, drawn at random."""
    rng = np.random.default_rng(0)
    if source != "simulated":
        with tempfile.TemporaryDirectory() as folder:
            store = pl.ingest_ratings(source, Path(folder) / "store", complete=RANK, n_items=n_items)
            return rng.permutation(store.block().to_array())[:n_users]
    rank = min(RANK, n_all // 2)
    # A few tastes around which users gather, and their own ways: what a completed matrix looks like.
    tastes = rng.standard_normal((6, rank))[rng.integers(0, 6, n_users)]
    users = tastes + 0.7 * rng.standard_normal((n_users, rank))
    scores = users @ rng.standard_normal((rank, n_all)) / np.sqrt(rank) + 0.5 * rng.standard_normal(n_all)
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1)
    chosen = np.argsort(-ranks.var(axis=0))[:n_items]
    return np.argsort(-scores[:, chosen], axis=1)


def _measure(cell: Row) -> Row:
    table = completed_rankings(cell["source"], cell["users"], cell["items"], cell["n"])
    order = np.random.default_rng([cell["trial"], 3]).permutation(len(table))
    n_test = len(table) // 5
    test, train = table[order[:n_test]], table[order[n_test : n_test + cell["m"]]]
    found = fitted(cell["method"], pl.RankingBlock.from_array(train), cell["K"], cell["trial"])
    return {
        "test log-likelihood": mean_log_likelihood(found.model, test),
        "seconds": found.seconds + found.start_seconds,
    }


def _summary(rows: list[Row]) -> list[Row]:
    return averaged(rows, ("source", "n", "m", "method"), ("test log-likelihood", "seconds"))


def _panels(table: list[Row]) -> list[Curves]:
    return [
        Curves(f"n = {n}", [row for row in table if row["n"] == n], "m", "test log-likelihood", "method", log=False)
        for n in dict.fromkeys(row["n"] for row in table)
    ]


LEARNING_CURVES = Experiment(
    "learning-curves",
    "on completed ratings EM-LSR is the best or near the best at every number of rankings, and fast for n = 100",
    _cells,
    _measure,
    _summary,
    panels=_panels,
    warm_up=warm_up,
)
