"""A small election of our own making and what other tools find in it: `python -m tests.helpers.golden` writes both.

Nothing of this package takes part: ballots are drawn with NumPy, one component is fitted by choix, several by a general
optimiser of SciPy from many random points. So the files need to be written again only to change the election.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import choix
import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

DATA = Path(__file__).parents[1] / "data"
ELECTION = DATA / "made_election.soi"
FITS = DATA / "golden_fits.json"

NAMES = ("Ada", "Bo", "Cy", "Dee", "Eve")
SHARES = (0.65, 0.35)
LOG_WORTHS = np.array([[1.5, 0.7, 0.2, -0.4, -2.0], [-1.6, -0.3, 0.1, 0.6, 1.2]])
N_VOTERS, N_STARTS = 1_000, 5


def ballots() -> Counter[tuple[int, ...]]:
    """How many voters gave each order of their 1 to 5 best candidates."""
    rng = np.random.default_rng(2026)
    component = rng.choice(len(SHARES), N_VOTERS, p=SHARES)
    # Candidates that arrive after exponential times come in Plackett-Luce order.
    orders = np.argsort(rng.exponential(size=(N_VOTERS, len(NAMES))) / np.exp(LOG_WORTHS[component]))
    lengths = rng.choice([1, 2, 3, 5], N_VOTERS, p=[0.1, 0.2, 0.3, 0.4])
    return Counter(tuple(order[:length]) for order, length in zip(orders.tolist(), lengths, strict=True))


def election_text(given: Counter[tuple[int, ...]]) -> str:
    """The ballots as PrefLib writes them, most frequent orders first."""
    lines = [
        f"# FILE NAME: {ELECTION.name}",
        "# TITLE: an election of our own making",
        "# DATA TYPE: soi",
        f"# NUMBER ALTERNATIVES: {len(NAMES)}",
        f"# NUMBER VOTERS: {given.total()}",
        f"# NUMBER UNIQUE ORDERS: {len(given)}",
        *(f"# ALTERNATIVE NAME {number}: {name}" for number, name in enumerate(NAMES, start=1)),
        *(
            f"{count}: {','.join(str(item + 1) for item in order)}"
            for order, count in sorted(given.items(), key=lambda each: (-each[1], each[0]))
        ),
    ]
    return "\n".join(lines) + "\n"


def log_likelihood(parameters: Any, given: Counter[tuple[int, ...]], n_components: int) -> float:
    """Of the best k of all, from free log-shares and log-worths, by the definition."""
    log_shares = log_softmax(parameters[:n_components])
    log_worths = np.reshape(parameters[n_components:], (n_components, len(NAMES)))
    items, listed, counts = _table(given)
    worths = log_worths[:, items]  # (n_components, n_orders, n_items), listed candidates first
    places = [worths[:, :, place] - logsumexp(worths[:, :, place:], axis=2) for place in range(len(NAMES))]
    of_orders = np.where(listed, np.stack(places, axis=2), 0.0).sum(axis=2)
    return float(counts @ logsumexp(of_orders + log_shares[:, None], axis=0))


def _table(given: Counter[tuple[int, ...]]) -> tuple[Any, Any, Any]:
    """Orders filled up with the others, which places are listed, and the number of voters of each order."""
    items = [[*order, *(item for item in range(len(NAMES)) if item not in order)] for order in given]
    lengths = np.array([len(order) for order in given])
    return np.array(items), np.arange(len(NAMES)) < lengths[:, None], np.array([*given.values()])


def by_optimiser(given: Counter[tuple[int, ...]], n_components: int) -> dict[str, Any]:
    """The best of many runs of BFGS: log-likelihood, shares and worths that sum to one, largest share first."""
    rng = np.random.default_rng(1)
    size = n_components * (1 + len(NAMES))
    found = [
        minimize(
            lambda parameters: -log_likelihood(parameters, given, n_components) / given.total(),
            rng.normal(size=size),
            method="BFGS",
            options={"gtol": 1e-7},
        )
        for _ in range(N_STARTS)
    ]
    best = min(found, key=lambda one: float(one.fun))
    shares = np.exp(log_softmax(best.x[:n_components]))
    worths = np.exp(log_softmax(best.x[n_components:].reshape(n_components, -1), axis=1))
    order = np.argsort(-shares)
    return {
        "tool": "scipy.optimize.minimize",
        "components": n_components,
        "log_likelihood": -float(best.fun) * given.total(),
        "shares": shares[order].tolist(),
        "worths": worths[order].tolist(),
    }


def by_choix(given: Counter[tuple[int, ...]]) -> dict[str, Any]:
    """One component: every place of a ballot is a choice among the candidates that are left."""
    choices = [
        (item, [other for other in range(len(NAMES)) if other not in order[: place + 1]])
        for order, count in given.items()
        for _ in range(count)
        for place, item in enumerate(order[: len(NAMES) - 1])
    ]
    found = choix.opt_top1(len(NAMES), choices, alpha=0, method="BFGS", tol=1e-9, max_iter=1_000)
    worths = np.exp(log_softmax(found))
    at = np.concatenate([[0.0], np.log(worths)])
    return {
        "tool": "choix",
        "components": 1,
        "log_likelihood": log_likelihood(at, given, 1),
        "shares": [1.0],
        "worths": [worths.tolist()],
    }


def main() -> None:
    given = ballots()
    ELECTION.write_text(election_text(given))
    fits = [by_choix(given), by_optimiser(given, 1), by_optimiser(given, 2)]
    FITS.write_text(
        json.dumps({"desc": __doc__.splitlines()[0], "election": ELECTION.name, "fits": fits}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
