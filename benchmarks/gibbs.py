"""Gibbs sweeps of one chain beside MM passes over the same rankings, in seconds of the processor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.common import save
from benchmarks.mm_pass import mm_iteration
from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting.algorithm import run as run_algorithm
from plmix_dist.fitting.gibbs import Gibbs
from plmix_dist.fitting.point import Point
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers.gamma_prior import GammaPrior, Parameters

if TYPE_CHECKING:
    from collections.abc import Callable

N_ITEMS, N_RANKINGS, N_COMPONENTS = 10, 5_000, 3


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    truth = 1.2 * rng.standard_normal((N_COMPONENTS, N_ITEMS))
    shares = np.array([0.5, 0.3, 0.2])
    block, _ = draw_rankings(truth, shares, N_RANKINGS, rng)
    weighted = block.replace(weights=rng.integers(1, 5, N_RANKINGS).astype(np.float64))
    n_sweeps, rounds = (5, 1) if tiny else (1000, 3)
    prior = GammaPrior(np.ones(N_ITEMS), np.ones(N_ITEMS), 1.0)
    point, begin = Point.start(truth, shares), Parameters(truth, np.log(shares))
    rows = []
    for name, rows_of in (("plain", block), ("weights 1 to 4", weighted)):
        passes = ThreadedPasses(as_rankings(rows_of))
        mm_iteration(passes, point)
        seconds: dict[str, list[float]] = {"mm": [], "1": [], "4": []}
        for _ in range(rounds):
            seconds["mm"].append(_seconds(_mm_passes, passes, point, n_sweeps))
            for n_chains in (1, 4):
                gibbs = Gibbs(prior, 0, n_sweeps)
                start = gibbs.start([begin] * n_chains)
                seconds[str(n_chains)].append(_seconds(run_algorithm, passes, gibbs, start))
        best = {what: min(found) for what, found in seconds.items()}
        rows.append(
            {
                "n": N_ITEMS,
                "m": N_RANKINGS,
                "K": N_COMPONENTS,
                "rows": name,
                "sweeps": n_sweeps,
                "MM passes, s": best["mm"],
                "one chain, s": best["1"],
                "four chains, s": best["4"],
                "one chain, times MM": best["1"] / best["mm"],
                "four chains, times MM": best["4"] / best["mm"],
            }
        )
    return save("gibbs", rows)


def _mm_passes(passes: ThreadedPasses, point: Point, count: int) -> None:
    for _ in range(count):
        mm_iteration(passes, point)


def _seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of the processor, which others on the machine disturb less."""
    begun = time.process_time()
    function(*arguments)
    return time.process_time() - begun


if __name__ == "__main__":
    run()
