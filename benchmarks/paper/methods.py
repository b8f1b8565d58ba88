"""The methods that the paper compares, each from the same start: how it is called, and what it gives."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

import plmix_dist as pl
from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist import RankingBlock


class Fitted(NamedTuple):
    """Where a method ended: a model, its seconds, and those of the start before it."""

    model: Any
    seconds: float
    start_seconds: float
    n_iterations: int


# The default's EM from the truth, to its end: the maximum of the likelihood near it, which no method may look for.
FROM_TRUTH = "from the truth"
# The published system with one M-step or another, ended as the released code ends it.
_ENDS: dict[str, Any] = {"method": "paper", "tol": 1e-4, "max_iter": 100}
_AS_PUBLISHED: dict[str, dict[str, Any]] = {
    "EM-LSR": _ENDS,
    "EMM": _ENDS | {"m_step": "mm"},
    "EM-CML": _ENDS | {"m_step": "cml"},
    "EM-GMM": _ENDS | {"m_step": "gmm"},
    "stochastic LSR": _ENDS | {"m_step": "stochastic-lsr"},
}
# To add a method, add its name here and how it is made to `_made`.
METHODS = (*_AS_PUBLISHED, "default", "Bayesian")
FOUR = ("EM-LSR", "EM-CML", "EM-GMM", "EMM")


def spectral_start(
    block: RankingBlock, n_components: int, seed: int, method: Literal["paper"] | None = "paper", **fields: Any
) -> Any:
    """The published start with rank K."""
    init = pl.Spectral(**{"rank": n_components} | fields)
    start = pl.SpectralPlackettLuce(n_components, method=method, init=init, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return start.fit(block, client=False)


def fitted(method: str, block: RankingBlock, n_components: int, seed: int, start: Any = None) -> Fitted:
    """Fit by a method, from the published start, or from a given one."""
    begun = time.perf_counter()
    if start is None and method in _AS_PUBLISHED:
        start = spectral_start(block, n_components, seed)
    start_seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _made(method, n_components, seed, start).fit(block, client=False)
    seconds = time.perf_counter() - begun
    return Fitted(model, seconds, start_seconds, int(getattr(model, "n_iter_", 0)))


def warm_up() -> None:
    """Fit a few rankings by every method: later fits in this process pay for no imports and no compiling."""
    truth = np.array([[1.0, 0.5, 0.0, -0.5, -1.0], [-1.0, -0.5, 0.0, 0.5, 1.0]])
    block, _ = draw_rankings(truth, np.array([0.5, 0.5]), 200, np.random.default_rng(0))
    for method in METHODS:
        fitted(method, block, 2, 0)


def _made(method: str, n_components: int, seed: int, start: Any) -> Any:
    if method == "Bayesian":
        return pl.BayesianPlackettLuceMixture(n_components, n_chains=1, n_warmup=500, n_draws=1_000, random_state=seed)
    if method == FROM_TRUTH:
        return pl.PlackettLuceMixture(n_components, init=start, max_iter=1_000)
    if method == "default":
        return pl.PlackettLuceMixture(n_components, random_state=seed)
    return pl.PlackettLuceMixture(n_components, init=start, random_state=seed, **_AS_PUBLISHED[method])


def mean_log_likelihood(model: Any, rankings: RankingBlock | NDArray[np.int64]) -> float:
    """Per ranking."""
    return float(model.score(rankings))
