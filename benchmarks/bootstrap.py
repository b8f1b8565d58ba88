"""A bootstrap of 200 replicates beside one fit from the fitted state, in seconds of the processor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import save
from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from collections.abc import Callable

N_ITEMS, N_RANKINGS, N_COMPONENTS = 10, 5_000, 3


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    truth = 1.2 * rng.standard_normal((N_COMPONENTS, N_ITEMS))
    block, _ = draw_rankings(truth, np.array([0.5, 0.3, 0.2]), N_RANKINGS, rng)
    model = pl.PlackettLuceMixture(N_COMPONENTS, random_state=0).fit(block)
    n_replicates, repeats = (20, 1) if tiny else (200, 10)
    again = pl.PlackettLuceMixture(N_COMPONENTS, init=model, random_state=0)
    fit = _seconds(repeats, lambda: again.fit(block))
    replicate = block.replace(weights=rng.standard_exponential(N_RANKINGS))
    fit_of_replicate = _seconds(repeats, lambda: again.fit(replicate))
    rows = []
    for weights in ("exponential", "poisson"):

        def boot(weights: str = weights) -> None:
            pl.bootstrap(model, block, n_replicates, weights=weights, random_state=0)

        found = pl.bootstrap(model, block, n_replicates, weights=weights, random_state=0)
        exact = pl.bootstrap(model, block, n_replicates, weights=weights, random_state=0, tol=1e-7)
        errors = (found.log_worths - exact.log_worths) / exact.standard_errors().log_worths
        seconds = _seconds(repeats, boot)
        rows.append(
            {
                "n": N_ITEMS,
                "m": N_RANKINGS,
                "K": N_COMPONENTS,
                "weights": weights,
                "replicates": n_replicates,
                "one fit from the fitted state, ms": 1e3 * fit,
                "one fit of a replicate from there, ms": 1e3 * fit_of_replicate,
                "bootstrap, ms": 1e3 * seconds,
                "fits": seconds / fit,
                "fits of a replicate": seconds / fit_of_replicate,
                "passes": found.n_passes,
                "error, standard errors": float(np.sqrt((errors**2).mean())),
            }
        )
    return save("bootstrap", rows)


def _seconds(repeats: int, function: Callable[[], Any]) -> float:
    """The best of several: seconds of the processor, which others on the machine disturb less."""
    best = np.inf
    for _ in range(repeats):
        begun = time.process_time()
        function()
        best = min(best, time.process_time() - begun)
    return float(best)


if __name__ == "__main__":
    run()
