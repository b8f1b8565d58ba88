"""mixle 0.8, the other package that fits mixtures of Plackett-Luce models on Dask, beside our default fit, in one run.

Both get the same full rankings and one core. mixle ends when an iteration gains less than 1e-9 per ranking, or after
the seconds it is given; from its own start; ours has no prior, like mixle. `PLMIX_MIXLE_SECONDS` (300) says how many.
"""

from __future__ import annotations

import importlib.util
import os
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import plmix_dist as pl
from benchmarks.common import in_fresh_process, save
from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Items, rankings, components.
SIZES = ((10, 5_000, 3), (50, 10_000, 3))
GAIN = 1e-9
MOST_ITERATIONS = 10_000


def run(tiny: bool = False) -> list[dict[str, Any]]:
    if importlib.util.find_spec("mixle") is None:
        return save("mixle", [{"mixle": "not installed; pip install --group bench"}])
    seconds = 1.0 if tiny else float(os.environ.get("PLMIX_MIXLE_SECONDS", "300"))
    sizes = ((5, 200, 2),) if tiny else SIZES
    return save("mixle", [row for size in sizes for row in in_fresh_process(_compared, *size, seconds)[0]])


class Ended(NamedTuple):
    """Where a fit ended."""

    log_likelihood: float
    n_iterations: int
    seconds: float
    is_over: bool


def _compared(n_items: int, n_rankings: int, n_components: int, seconds: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((n_components, n_items))
    block, _ = draw_rankings(truth, np.full(n_components, 1 / n_components), n_rankings, rng)
    _ours(block[:100], n_components)  # imports and kernels
    ours = min((_ours(block, n_components) for _ in range(3)), key=lambda ended: ended.seconds)
    theirs = _mixle(block.to_array(), n_components, seconds)
    size = {"n": n_items, "m": n_rankings, "K": n_components}
    return [
        size
        | {
            "package": name,
            "seconds": ended.seconds,
            "iterations": ended.n_iterations,
            "to its end": ended.is_over,
            "log-likelihood per ranking": f"{ended.log_likelihood / n_rankings:.7f}",
            "times ours": ended.seconds / ours.seconds,
        }
        for name, ended in {"plmix_dist": ours, "mixle": theirs}.items()
    ]


def _ours(block: pl.RankingBlock, n_components: int) -> Ended:
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = pl.PlackettLuceMixture(n_components, alpha=0.0, random_state=0).fit(block, client=False)
    return Ended(model.log_likelihood_, model.n_iter_, time.perf_counter() - begun, model.converged_)


class _TimeIsUpError(Exception):
    """Ends mixle's loop."""


def _mixle(orders: NDArray[np.int64], n_components: int, seconds: float) -> Ended:
    from mixle.inference.estimation import optimize
    from mixle.stats.latent.mixture import MixtureEstimator
    from mixle.stats.rankings.plackett_luce import PlackettLuceEstimator

    n_rankings, n_items = orders.shape
    last: list[Any] = []
    begun = time.perf_counter()

    def stepped(step: Any) -> None:
        last[:] = [step]
        if time.perf_counter() - begun > seconds:
            raise _TimeIsUpError

    estimator = MixtureEstimator([PlackettLuceEstimator(n_items) for _ in range(n_components)])
    is_over = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            optimize(
                orders.tolist(), estimator, max_its=MOST_ITERATIONS, delta=GAIN * n_rankings, seed=0, on_step=stepped
            )
        except _TimeIsUpError:
            is_over = False
    taken = time.perf_counter() - begun
    model = last[0].model
    encoded = model.dist_to_encoder().seq_encode(orders.tolist())
    return Ended(float(model.seq_log_density(encoded).sum()), int(last[0][0]), taken, is_over)
