"""Draws the pictures of the gallery, into docs/figures/gallery. `python docs/figures/gallery.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np

import plmix_dist as plm
from plmix_dist import plots

FOLDER = Path(__file__).with_name("gallery")
FIGHTERS = ["vale", "mox", "iri", "oslo", "pine", "quay", "reed", "sol"]


def battles(n: int) -> list[list[Any]]:
    """Battles between made-up models, one in ten of them drawn."""
    rng = np.random.default_rng(3)
    pairs = np.array([rng.choice(len(FIGHTERS), 2, replace=False) for _ in range(n)])
    first = rng.random(n) < 1 / (1 + np.exp(-0.5 * (pairs[:, 1] - pairs[:, 0]) // 2))
    ordered = np.where(first[:, None], pairs, pairs[:, ::-1])
    named = [[FIGHTERS[item] for item in pair] for pair in ordered.tolist()]
    return [[pair] if drawn else pair for pair, drawn in zip(named, rng.random(n) < 0.1, strict=True)]


def main() -> None:
    """Fit drinks and battles, and draw every picture."""
    people = plm.example("drinks")
    settings: dict[str, Any] = {"unranked": "below", "random_state": 0}
    one = plm.PlackettLuceMixture(1, **settings).fit(people)
    two = plm.PlackettLuceMixture(2, **settings).fit(people)
    few = plm.PlackettLuceMixture(2, **settings).fit(people[:150])
    fought = battles(3_000)
    board = plm.PlackettLuceMixture(1, unranked="absent").fit(fought).leaderboard(fought)
    calls: dict[str, Any] = {
        "worths": lambda ax: plots.plot_worths(two, 0, standard_errors=two.standard_errors(people), ax=ax),
        "components": lambda ax: plots.plot_components(two, ax=ax),
        "ranks-one": lambda ax: plots.plot_ranks(one, people, ax=ax),
        "ranks-two": lambda ax: plots.plot_ranks(two, people, ax=ax),
        "check": lambda ax: plots.plot_check(one.check_fit(people), ax=ax),
        "two-models": lambda ax: plots.plot_two_models(two, few, ax=ax),
        "tiers": lambda ax: plots.plot_leaderboard(board, ax=ax),
    }
    plt.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "plmix", "font.size": 9, "axes.titlesize": 10}
    FOLDER.mkdir(exist_ok=True)
    for name, draw in calls.items():
        figure, axes = plt.subplots(
            figsize=(6.4, 4.8 if name in ("check", "two-models") else 3.0), layout="constrained"
        )
        draw(axes)
        figure.savefig(FOLDER / f"{name}.svg", facecolor="white", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
