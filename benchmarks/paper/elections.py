"""The four elections of the paper's table: its protocol on completed ballots, and seconds of every method.

Every ballot is one row. What a ballot does not list follows in random order, as the paper did. 80 % of the rows are for
training, 20 % for the test; of those for training 80 % are for inference, 20 % for validation. K of 2 to 10 is the one
with the least BIC on the validation rows, d log(m) - 2 log-likelihood with d = K (n - 1) + K - 1. Beside it stands the
same protocol on the ballots as they are, with the exact likelihood of their listed places.

Sushi and MovieLens are not ours to ship. `PLMIX_SUSHI` may name a file of orderings, and `PLMIX_MOVIELENS` one of
ratings; without them rankings of the same shape are drawn.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.paper.frame import Experiment, Row
from benchmarks.paper.learning_curves import completed_rankings
from benchmarks.paper.methods import FOUR, fitted, mean_log_likelihood, warm_up
from benchmarks.real_data import DATA, SOURCES
from plmix_dist.errors import FitError
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings

# The paper's table, the four methods in the order of FOUR: test log-likelihood per ranking, and seconds.
PUBLISHED: dict[str, tuple[tuple[float | None, ...], tuple[float | None, ...]]] = {
    "APA 1998": ((-4.619, -4.656, -4.617, -4.614), (598, 33.3, 2_200, 9_240)),
    "Irish West": ((-11.9, -12.008, -11.904, -11.896), (810, 199, 5_750, 25_800)),
    "Sushi": ((-13.64, -14.0, -13.773, -13.766), (746, 24.6, 489, 1_220)),
    "Irish North": ((-18.67, -18.923, -18.744, -18.711), (1_510, 120, 3_090, 14_000)),
    "Irish Meath": ((-23.645, -23.885, -23.69, -23.633), (1_480, 497, 29_900, 69_100)),
    "MovieLens 25": ((-49.191, -50.095, -49.766, -49.186), (3_710, 2_470, 25_700, 63_000)),
    "MovieLens 50": ((-130.499, -132.209, -132.143, None), (5_770, 6_800, 125_000, None)),
    "MovieLens 100": ((-325.873, -329.629, -331.53, None), (11_500, 27_200, 492_000, None)),
    "MovieLens 150": ((-550.462, -557.923, None, None), (14_700, 62_100, None, None)),
    "MovieLens 200": ((-787.244, -799.036, None, None), (24_500, 81_300, None, None)),
}
MOVIELENS = (25, 50, 100, 150, 200)
COMPONENTS = tuple(range(2, 11))


def source_of(name: str) -> str:
    """Where data come from. It is a part of every cell: what was measured on drawn data is never told of real ones."""
    if name in SOURCES:
        return SOURCES[name]
    return os.environ.get("PLMIX_SUSHI" if name == "Sushi" else "PLMIX_MOVIELENS", "simulated")


@cache
def ballots_of(name: str, source: str) -> Any:
    """(n_ballots, n_items): one row per ballot, best first, -1 after the last listed item."""
    if name == "Sushi":
        return _sushi(source)
    if name.startswith("MovieLens"):
        return completed_rankings(source, 17_500, 2_000, int(name.split()[1]))
    return _one_row_each(DATA / source)


def _one_row_each(path: str | Path) -> Any:
    """(n_ballots, n_items): the ballots of a file; one that was cast several times is as many rows."""
    with tempfile.TemporaryDirectory() as folder:
        block = pl.ingest(path, Path(folder) / "store").block()
    table = np.full((block.n_rankings, block.n_items), -1)
    table[block.row_of_item(), block.place_of_item()] = block.items
    return np.repeat(table, np.round(block.row_weights).astype(int), axis=0)


def _sushi(source: str) -> Any:
    """5,000 rankings of 10 kinds of sushi; without the file, as many draws from a mixture of 6."""
    if source != "simulated":
        return _one_row_each(source)
    rng = np.random.default_rng(0)
    return draw_rankings(draw_log_worths(6, 10, None, rng), np.full(6, 1 / 6), 5_000, rng)[0].to_array()


def complete_at_random(ballots: Any, rng: np.random.Generator) -> Any:
    """Full rankings: what a ballot does not list follows in random order.

    >>> complete_at_random(np.array([[2, -1, -1]]), np.random.default_rng(0))[:, 0].tolist()
    [2]
    """
    keys = rng.random(ballots.shape)
    row, place = np.nonzero(ballots >= 0)
    keys[row, ballots[row, place]] = place - ballots.shape[1]
    return np.argsort(keys, axis=1)


def _split(ballots: Any, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Rows for inference, validation and the test."""
    order = rng.permutation(len(ballots))
    n_test = len(ballots) // 5
    n_validation = (len(ballots) - n_test) // 5
    test, validation, inference = np.split(ballots[order], [n_test, n_test + n_validation])
    return inference, validation, test


def by_validation(method: str, ballots: Any, seed: int, components: tuple[int, ...], rng: np.random.Generator) -> Row:
    """The K with the least BIC on validation rows, its test log-likelihood, and seconds.

    A K without an estimate cannot be chosen; only if no K has one, there is none.
    """
    inference, validation, test = (_block(rows) for rows in _split(ballots, rng))
    n_items = ballots.shape[1]
    seconds, best, failed = {}, (np.inf, 0, None), {}
    begun = time.perf_counter()
    for n_components in components:
        started = time.perf_counter()
        try:
            model = fitted(method, inference, n_components, seed).model
        except FitError as error:
            failed[n_components] = error
            continue
        seconds[n_components] = time.perf_counter() - started
        n_parameters = n_components * (n_items - 1) + n_components - 1
        log_likelihood = mean_log_likelihood(model, validation) * validation.n_rankings
        criterion = n_parameters * np.log(validation.n_rankings) - 2 * log_likelihood
        best = min(best, (criterion, n_components, model), key=lambda found: found[0])
    whole = time.perf_counter() - begun
    _, chosen, model = best
    if model is None:
        raise failed[components[0]]
    return {
        "test log-likelihood": mean_log_likelihood(model, test),
        "K": chosen,
        "K without estimate": " ".join(map(str, failed)),
        "seconds at K": seconds[chosen],
        "seconds of all K": whole,
    }


def _block(rows: Any) -> pl.RankingBlock:
    if (rows >= 0).all():
        return pl.RankingBlock.from_array(rows)
    return pl.RankingBlock.from_array(rows, unranked="below")


# --- completed ballots, ten seeds --------------------------------------------------------------------------------


def _completed_cells(setting: str) -> list[Row]:
    if not DATA.exists():
        return [{"data": "Sushi", "source": source_of("Sushi"), "ballots": "complete", "seed": 0, "up to": 3}]
    names = ("APA 1998",) if setting == "tiny" else tuple(SOURCES)
    n_seeds = 1 if setting == "tiny" else 10
    most = 3 if setting == "tiny" else 10
    return [
        {"data": name, "source": source_of(name), "ballots": kind, "seed": seed, "up to": most}
        for kind in ("completed", "as they are")
        for seed in range(n_seeds)
        for name in names
    ]


def _measure_completed(cell: Row) -> Row:
    rng = np.random.default_rng(cell["seed"])
    ballots = ballots_of(cell["data"], cell["source"])
    if cell["ballots"] == "completed":
        ballots = complete_at_random(ballots, rng)
    components = tuple(range(2, cell["up to"] + 1))
    method = "EM-LSR" if cell["ballots"] == "completed" else "default"
    return by_validation(method, ballots, cell["seed"], components, rng)


def _completed_summary(rows: list[Row]) -> list[Row]:
    table = []
    for name, kind in dict.fromkeys((row["data"], row["ballots"]) for row in rows):
        own = [row for row in rows if (row["data"], row["ballots"]) == (name, kind)]
        tests = np.array([row["test log-likelihood"] for row in own])
        published = PUBLISHED[name][0][0] if kind == "completed" else ""
        table.append(
            {
                "data": name,
                "ballots": kind,
                "seeds": len(own),
                "test log-likelihood": float(tests.mean()),
                "standard deviation": float(tests.std()),
                "published": published,
                "difference": "" if published == "" else float(tests.mean() - float(published)),
                "K": " ".join(str(row["K"]) for row in own),
                "seconds of all K": float(np.mean([row["seconds of all K"] for row in own])),
            }
        )
    return table


# --- seconds of every method ---------------------------------------------------------------------------------------


def _table_cells(setting: str) -> list[Row]:
    names = [*(SOURCES if DATA.exists() else ()), "Sushi"]
    sizes = {"tiny": (), "quick": (25, 50)}.get(setting, MOVIELENS)
    names = ["Sushi"] if setting == "tiny" else [*names, *(f"MovieLens {n}" for n in sizes)]
    most = 3 if setting == "tiny" else 10
    return [
        {"data": name, "source": source_of(name), "method": method, "up to": most}
        for name in names
        for method in (*FOUR, "default")
    ]


def _measure_table(cell: Row) -> Row:
    rng = np.random.default_rng(0)
    ballots = complete_at_random(ballots_of(cell["data"], cell["source"]), rng)
    return by_validation(cell["method"], ballots, 0, tuple(range(2, cell["up to"] + 1)), rng)


def _table_summary(rows: list[Row]) -> list[Row]:
    shown = ("data", "method", "K", "K without estimate", "test log-likelihood", "seconds at K", "seconds of all K")
    return [{name: row.get(name, "") for name in shown} | _published(row) for row in rows]


def _published(row: Row) -> Row:
    """What the paper's table says, and how many times as long it took there. Drawn data have no such likelihood."""
    likelihood = seconds = None
    if row["method"] in FOUR:
        likelihood, seconds = (column[FOUR.index(row["method"])] for column in PUBLISHED[row["data"]])
    is_drawn = row["source"] == "simulated"
    return {
        "published log-likelihood": "" if is_drawn or likelihood is None else likelihood,
        "published seconds": seconds or "",
        "factor": "" if seconds is None else seconds / row["seconds of all K"],
        "drawn": "yes" if is_drawn else "",
    }


COMPLETED = Experiment(
    "completed-ballots",
    "test log-likelihoods -4.62 (APA), -11.90 (West), -18.67 (North), -23.65 (Meath) on ballots completed at random",
    _completed_cells,
    _measure_completed,
    _completed_summary,
    budget=1_800.0,
    warm_up=warm_up,
)
ELECTIONS = Experiment(
    "real-data-table",
    "EM-LSR and EMM are the most accurate, EM-CML is the fastest for few items and EM-LSR for many",
    _table_cells,
    _measure_table,
    _table_summary,
    budget=1_800.0,
    warm_up=warm_up,
)
