"""Fits with more components than there are groups: passes that they take, how they end, and CPU seconds.

The likelihood is flat along curves there. Numbers are the smallest and the largest over seeds.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np

import plmix_dist as plm
from benchmarks.common import save
from plmix_dist.rankings.simulate import draw_rankings

N_RANKINGS = 200_000


class Design(NamedTuple):
    """Rankings from some groups, fitted with more components."""

    n_items: int
    n_components: int
    n_groups: int = 2
    n_seeds: int = 8
    length: int | None = None


DESIGNS = (
    Design(5, 3, n_seeds=16),
    Design(5, 4),
    Design(5, 3, n_groups=1),
    Design(4, 3, n_seeds=16),
    Design(4, 4),
    Design(6, 3),
    Design(6, 3, length=3),
    Design(8, 3, n_seeds=4),
    Design(8, 4, n_seeds=2),
)


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rows = []
    for design in (Design(5, 3, n_seeds=1),) if tiny else DESIGNS:
        found = [_one(design, seed, 2_000 if tiny else N_RANKINGS) for seed in range(design.n_seeds)]
        passes, flat, seconds = (list(values) for values in zip(*found, strict=True))
        row: dict[str, Any] = {"items": design.n_items, "listed": design.length or design.n_items}
        row |= {"groups": design.n_groups, "K": design.n_components, "fits": design.n_seeds}
        row |= {"fewest passes": min(passes), "most passes": max(passes), "above 120": sum(n > 120 for n in passes)}
        row |= {"ended flat": sum(flat), "CPU seconds, median": round(float(np.median(seconds)), 2)}
        rows.append(row | {"CPU seconds, most": round(max(seconds), 2)})
    return save("flat", rows)


def _one(design: Design, seed: int, n_rankings: int) -> tuple[int, bool, float]:
    """Passes of a fit, whether it ended flat, and seconds of the processor."""
    rng = np.random.default_rng([seed, design.n_items, 77])
    truth = rng.normal(0, 1, (design.n_groups, design.n_items))
    shares = rng.dirichlet(np.full(design.n_groups, 5.0))
    unranked: Any = "below" if design.length else None
    rows, _ = draw_rankings(truth, shares, n_rankings, rng, length=design.length, unranked=unranked)
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = plm.PlackettLuceMixture(design.n_components, random_state=seed).fit(rows, client=False)
    return len(model.history_), bool(model.history_[-1].get("flat")), time.process_time() - begun
