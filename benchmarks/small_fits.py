"""What a pass over few rows costs beside its kernels: bootstraps, cross-validation and many K depend on it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import plmix_dist as pl
from benchmarks.common import best_of, save
from benchmarks.mm_pass import some_point
from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting.em import Candidate, Em, run_to_ends
from plmix_dist.kernels import em_pass
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import MM

N_ITEMS, N_RANKINGS, N_COMPONENTS, N_PASSES = 10, 5_000, 3, 60


def run(tiny: bool = False) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((N_COMPONENTS, N_ITEMS))
    block, _ = draw_rankings(truth, np.array([0.5, 0.3, 0.2]), N_RANKINGS, rng)
    passes = ThreadedPasses(as_rankings(block))
    em = Em(MM, 0.1, float(N_RANKINGS), N_RANKINGS, tol=1e-300, max_iter=N_PASSES)
    candidates = [Candidate(some_point(N_COMPONENTS, N_ITEMS), {})]

    def fit() -> None:
        run_to_ends(passes, em, candidates)

    fit()  # loads the kernels
    repeats = 2 if tiny else 20
    whole, _ = best_of(repeats, fit)
    kernels = min(_in_kernels(fit) for _ in range(repeats))
    table = block.to_array()
    complete, _ = best_of(repeats, lambda: pl.PlackettLuceMixture(N_COMPONENTS, random_state=0).fit(table))
    row = {
        "n": N_ITEMS,
        "m": N_RANKINGS,
        "K": N_COMPONENTS,
        "a pass, ms": 1e3 * whole / N_PASSES,
        "its kernels, ms": 1e3 * kernels / N_PASSES,
        "beside them, ms": 1e3 * (whole - kernels) / N_PASSES,
        "a default fit, ms": 1e3 * complete,
    }
    return save("small_fits", [row])


def _in_kernels(fit: Any) -> float:
    """Seconds that a fit spends in compiled code over rows."""
    compiled, spent = em_pass._add_rows, 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal spent
        begun = time.perf_counter()
        result = compiled(*arguments)
        spent += time.perf_counter() - begun
        return result

    em_pass._add_rows = timed
    try:
        fit()
    finally:
        em_pass._add_rows = compiled
    return spent
