"""The paper's figure: error against the number of rankings, for random and spectral starts, alone and after EM.

Draws docs/figures/random-against-spectral.svg where matplotlib is there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import draw, save
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings

N_ITEMS, DIFFERING = 100, 5
COMPONENTS = (3, 5)
RANKINGS = (1_000, 3_000, 10_000, 30_000)
N_TRIALS = 10
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "random-against-spectral.svg"
CURVES = ("random start", "spectral start", "EM from random", "EM from spectral")


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for n_components in COMPONENTS:
        for n_rankings in (300,) if tiny else RANKINGS:
            trials = [_errors(n_components, n_rankings, seed, tiny) for seed in range(1 if tiny else N_TRIALS)]
            means = np.mean(trials, axis=0)
            rows.append({"K": n_components, "m": n_rankings, **dict(zip(CURVES, map(float, means), strict=True))})
    save("random-against-spectral", rows)
    if not tiny:
        draw(FIGURE, len(COMPONENTS), partial(_fill, rows=rows))
    return rows


def _errors(n_components: int, n_rankings: int, seed: int, tiny: bool) -> list[float]:
    rng = np.random.default_rng([seed, n_components])
    truth = draw_log_worths(n_components, N_ITEMS, DIFFERING, rng)
    shares = np.full(n_components, 1 / n_components)
    block, _ = draw_rankings(truth, shares, n_rankings, rng)
    options: dict[str, Any] = {"random_state": seed, "tol": 1e-2 if tiny else 1e-6, "max_iter": 1_000}
    fits = (
        pl.SpectralPlackettLuce(n_components, random_state=seed).fit(block).log_worths_,
        pl.PlackettLuceMixture(n_components, init="random", **options).fit(block).log_worths_,
        pl.PlackettLuceMixture(n_components, **options).fit(block).log_worths_,
    )
    spectral, *after = (matched_distance(worths, truth) for worths in fits)
    return [matched_distance(rng.standard_normal(truth.shape), truth), spectral, *after]


def _fill(panels: list[Any], rows: list[dict[str, Any]]) -> None:
    for panel, n_components in zip(panels, COMPONENTS, strict=True):
        shown = [row for row in rows if row["K"] == n_components]
        for curve in CURVES:
            panel.plot([row["m"] for row in shown], [row[curve] for row in shown], marker="o", label=curve)
        panel.set(
            xscale="log", yscale="log", xlabel="rankings", ylabel="distance to the truth",
            title=f"n = {N_ITEMS}, {DIFFERING} items differ, K = {n_components}",
        )  # fmt: skip
        panel.legend()
