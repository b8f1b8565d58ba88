"""The methods that experiments compare, by name: to add one to every experiment, add it here."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from plmix_dist import PlackettLuceMixture, SpectralPlackettLuce
from plmix_dist.errors import NotConvergedWarning, OptimumFoundOnceWarning, StartWarning

Table = np.ndarray[Any, Any]

# Where the code of the authors stops.
_STOP = {"tol": 1e-4, "max_iter": 100}

# All from the published spectral start with rank K, as in the paper's comparison, but for the last two.
RIVALS: dict[str, dict[str, Any]] = {
    "em-lsr": {"method": "paper", "m_step": "lsr", **_STOP},
    "emm": {"method": "paper", "m_step": "mm", **_STOP},
    "em-lsr, random start": {"method": "paper", "init": "random", **_STOP},
    "default": {},
}


@cache
def warm_up() -> None:
    """Load libraries and kernels before anything is timed."""
    table = np.array([np.random.default_rng(seed).permutation(5) for seed in range(200)])
    for name in RIVALS:
        fitted(name, table, 1, 0)


def fitted(name: str, table: Table, n_components: int, seed: int) -> PlackettLuceMixture:
    """A rival fitted to full rankings (m, n), in this process."""
    settings = dict(RIVALS[name])
    if settings.get("method") == "paper":
        settings["svd_rank"] = n_components
    with warnings.catch_warnings():
        for expected in (NotConvergedWarning, OptimumFoundOnceWarning, StartWarning):
            warnings.simplefilter("ignore", expected)
        return PlackettLuceMixture(n_components, random_state=seed, **settings).fit(table, client=False)


def spectral_start(table: Table, n_components: int, seed: int, **settings: Any) -> SpectralPlackettLuce:
    """The published start alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StartWarning)
        model = SpectralPlackettLuce(n_components, method="paper", random_state=seed, **settings)
        return model.fit(table, client=False)


def fitted_from(start: SpectralPlackettLuce, table: Table, n_components: int) -> PlackettLuceMixture:
    """EM-LSR from a start that was made before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return PlackettLuceMixture(n_components, method="paper", init=start, **_STOP).fit(table, client=False)
