"""A leaderboard of as many votes as Chatbot Arena published: 1,670,250 on 129 models, a third of them ties."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import plmix_dist as plm
from benchmarks.common import save

N_VOTES, N_MODELS = 1_670_250, 129


def votes(n: int) -> plm.RankingBlock:
    """Votes on pairs of models, some of which meet far more often than others."""
    rng = np.random.default_rng(0)
    often, worths = rng.dirichlet(np.full(N_MODELS, 0.7)), rng.normal(size=N_MODELS)
    first, second = rng.choice(N_MODELS, (2, n), p=often)
    second = np.where(second == first, (first + 1) % N_MODELS, second)
    wins = rng.random(n) < 1 / (1 + np.exp(worths[second] - worths[first]))
    items = np.where(wins[:, None], np.stack([first, second], axis=1), np.stack([second, first], axis=1))
    tied = np.zeros((n, 2), np.bool_)
    tied[:, 1] = rng.random(n) < 1 / 3
    two = np.full(n, 2, np.uint8)
    return plm.RankingBlock(items.astype(np.uint8).ravel(), two, two, np.zeros(n, np.bool_), N_MODELS, tied.ravel())


def run(tiny: bool = False) -> list[dict[str, Any]]:
    block, rows = votes(20_000 if tiny else N_VOTES), []
    for ties in ("half", "davidson"):
        plm.PlackettLuceMixture(1, ties=ties).fit(block[:5_000], client=False)  # kernels are loaded
        begun = time.process_time()
        alpha = 1.0 if tiny else 0.0
        model = plm.PlackettLuceMixture(1, alpha=alpha, ties=ties, random_state=0).fit(block, client=False)
        fitted = time.process_time()
        row = {"votes": block.n_rankings, "ties": ties, "fit, s of CPU": fitted - begun, "passes": model.n_iter_}
        if ties == "half":
            model.leaderboard(block, client=False, table="dict")
            row["board, s of CPU"] = time.process_time() - fitted
        rows.append(row)
    return save("board", rows)
