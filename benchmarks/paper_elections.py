"""The paper's protocol on the four elections: ballots completed at random, K by BIC on validation rows, test likelihood.

Every ballot is one row. What a ballot does not list follows in random order, as the paper did. 80 % of the rows are for
training, 20 % for the test; of the training rows 80 % are for inference and 20 % for validation. K is the one of 2 to 10
with the least BIC on the validation rows, d log(m) - 2 log-likelihood with d = K (n - 1) + K - 1. Beside it stands the
same protocol on the ballots as they are, with the exact likelihood of their listed places.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import save
from benchmarks.real_data import DATA, SOURCES

# Test log-likelihood per ranking in the paper's table (EM-LSR).
PUBLISHED = {"APA 1998": -4.619, "Irish West": -11.90, "Irish North": -18.67, "Irish Meath": -23.645}
COMPONENTS = range(2, 11)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    names = [name for name in SOURCES if DATA.exists()][: 1 if tiny else None]
    n_seeds = 1 if tiny else 10
    rows = []
    for name in names:
        for kind in ("completed", "as they are"):
            begun = time.perf_counter()
            found = [_protocol(name, kind, seed, range(2, 4) if tiny else COMPONENTS) for seed in range(n_seeds)]
            tests = np.array([test for test, _ in found])
            rows.append(
                {
                    "data": name,
                    "ballots": kind,
                    "seeds": n_seeds,
                    "test log-likelihood": float(tests.mean()),
                    "standard deviation": float(tests.std()),
                    "published": PUBLISHED[name] if kind == "completed" else "",
                    "difference": float(tests.mean() - PUBLISHED[name]) if kind == "completed" else "",
                    "K": " ".join(str(chosen) for _, chosen in found),
                    "seconds": time.perf_counter() - begun,
                }
            )
            print(rows[-1], flush=True, file=sys.stderr)  # the whole takes minutes
    return save("paper-elections", rows or [{"data": "not there"}])


def _protocol(name: str, kind: str, seed: int, components: range) -> tuple[float, int]:
    """Mean log-likelihood of the test rows at the chosen K, and that K."""
    rng = np.random.default_rng(seed)
    ballots = _ballots(name)
    if kind == "completed":
        ballots = complete_at_random(ballots, rng)
    order = rng.permutation(len(ballots))
    n_test = len(ballots) // 5
    n_validation = (len(ballots) - n_test) // 5
    test, validation, inference = np.split(ballots[order], [n_test, n_test + n_validation])
    n_items = ballots.shape[1]
    criteria = {}
    for n_components in components:
        model = _fitted(inference, n_components, seed)
        n_parameters = n_components * (n_items - 1) + n_components - 1
        log_likelihood = model.score(validation) * len(validation)
        criteria[n_components] = (n_parameters * np.log(len(validation)) - 2 * log_likelihood, model)
    chosen = min(criteria, key=lambda n_components: criteria[n_components][0])
    return float(criteria[chosen][1].score(test)), chosen


def _fitted(rankings: np.ndarray[Any, Any], n_components: int, seed: int) -> pl.PlackettLuceMixture:
    """From the spectral start alone, as published: no search for a better optimum."""
    start = pl.SpectralPlackettLuce(n_components, unranked="below", random_state=seed).fit(rankings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = pl.PlackettLuceMixture(
            n_components, init=start, alpha=1e-6, tol=1e-6, unranked="below", random_state=seed
        )
        return model.fit(rankings)


def _ballots(name: str) -> np.ndarray[Any, Any]:
    """(n_ballots, n_items): one row per ballot, best first, -1 after the last listed item."""
    with tempfile.TemporaryDirectory() as folder:
        block = pl.ingest(DATA / SOURCES[name], Path(folder) / "store").block()
    table = np.full((block.n_rankings, block.n_items), -1)
    table[block.row_of_item(), block.place_of_item()] = block.items
    return np.repeat(table, np.round(block.row_weights).astype(int), axis=0)


def complete_at_random(ballots: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Full rankings: what a ballot does not list follows in random order.

    >>> complete_at_random(np.array([[2, -1, -1]]), np.random.default_rng(0))[:, 0].tolist()
    [2]
    """
    n_items = ballots.shape[1]
    keys = rng.random(ballots.shape)
    row, place = np.nonzero(ballots >= 0)
    keys[row, ballots[row, place]] = place - n_items
    completed: np.ndarray[Any, Any] = np.argsort(keys, axis=1)
    return completed


if __name__ == "__main__":
    run("--tiny" in sys.argv)
