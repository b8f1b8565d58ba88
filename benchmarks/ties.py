"""Ties: accuracy and time of each treatment, for ties of two origins.

"rounded": utilities are rounded to whole numbers, so items of nearly equal utility are tied. "at random": neighbouring
places of a ranking are joined at random, so a tie says nothing about utilities. `distance` is that of the fitted
log-worths to the true ones, components matched.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import save
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings import RankingBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_ITEMS = 10
_JOINED = 0.4


def tied_rankings(kind: str, n_rankings: int, seed: int = 0) -> tuple[RankingBlock, NDArray[np.float64]]:
    """Full rankings with ties of two components, and the true log-worths."""
    rng = np.random.default_rng(seed)
    log_worths = rng.standard_normal((2, N_ITEMS))
    utilities = log_worths[rng.integers(2, size=n_rankings)] + rng.gumbel(size=(n_rankings, N_ITEMS))
    order = np.argsort(-utilities, axis=1)
    tied = rng.random(order.shape) < _JOINED
    if kind == "rounded":
        grades = np.round(np.take_along_axis(utilities, order, axis=1))
        tied = np.diff(grades, axis=1, prepend=np.inf) == 0
    tied[:, 0] = False
    full = RankingBlock.from_array(order)
    return full.replace(tied=tied.ravel()), log_worths - log_worths.mean(axis=1, keepdims=True)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for kind in ("rounded", "at random"):
        block, truth = tied_rankings(kind, 300 if tiny else 5_000)
        for ties in ("expand", "marginal", "resample"):
            begun = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = pl.PlackettLuceMixture(2, ties=ties, random_state=0, max_iter=30 if tiny else 500).fit(block)
            rows.append(
                {
                    "ties": kind,
                    "treatment": ties,
                    "rows": block.n_rankings,
                    "seconds": time.perf_counter() - begun,
                    "passes": model.n_iter_,
                    "converged": model.converged_,
                    "distance": matched_distance(truth, model.log_worths_),
                }
            )
    return save("ties", rows)
