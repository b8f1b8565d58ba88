"""Mixtures of Plackett-Luce models, fitted to millions of rankings on a Dask cluster.

Names are imported when they are first used, so that importing the package loads neither numba nor dask.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plmix_dist import errors as errors
    from plmix_dist import metrics as metrics
    from plmix_dist import plots as plots
    from plmix_dist.datasets.examples import example
    from plmix_dist.datasets.export import as_xarray, export
    from plmix_dist.datasets.ingest import ingest
    from plmix_dist.datasets.inspect import info, verify
    from plmix_dist.datasets.ratings.ingest import ingest_ratings
    from plmix_dist.datasets.simulate import simulate
    from plmix_dist.datasets.split import split
    from plmix_dist.fitting.starts.settings import KernelStart, Moments, Random, Spectral
    from plmix_dist.models.bayesian import BayesianPlackettLuceMixture
    from plmix_dist.models.plackett_luce import PlackettLuceMixture
    from plmix_dist.models.selection import MixtureSelection
    from plmix_dist.models.spectral import SpectralPlackettLuce
    from plmix_dist.rankings import Ranking, RankingBlock
    from plmix_dist.rankings.ties import Half
    from plmix_dist.store import RankingStore, open_store
    from plmix_dist.store.checkpoints import Checkpoint
    from plmix_dist.store.mixture import MixtureParams
    from plmix_dist.uncertainty.bootstrap import bootstrap
    from plmix_dist.uncertainty.leaderboard import pair_weights

__version__ = "0.1.0"

_HOME = {
    "Checkpoint": "plmix_dist.store.checkpoints",
    "PlackettLuceMixture": "plmix_dist.models.plackett_luce",
    "BayesianPlackettLuceMixture": "plmix_dist.models.bayesian",
    "Spectral": "plmix_dist.fitting.starts.settings",
    "SpectralPlackettLuce": "plmix_dist.models.spectral",
    "Half": "plmix_dist.rankings.ties",
    "KernelStart": "plmix_dist.fitting.starts.settings",
    "MixtureParams": "plmix_dist.store.mixture",
    "MixtureSelection": "plmix_dist.models.selection",
    "Moments": "plmix_dist.fitting.starts.settings",
    "Random": "plmix_dist.fitting.starts.settings",
    "Ranking": "plmix_dist.rankings",
    "RankingBlock": "plmix_dist.rankings",
    "RankingStore": "plmix_dist.store",
    "as_xarray": "plmix_dist.datasets.export",
    "bootstrap": "plmix_dist.uncertainty.bootstrap",
    "example": "plmix_dist.datasets.examples",
    "export": "plmix_dist.datasets.export",
    "info": "plmix_dist.datasets.inspect",
    "ingest": "plmix_dist.datasets.ingest",
    "ingest_ratings": "plmix_dist.datasets.ratings.ingest",
    "open_store": "plmix_dist.store",
    "pair_weights": "plmix_dist.uncertainty.leaderboard",
    "simulate": "plmix_dist.datasets.simulate",
    "split": "plmix_dist.datasets.split",
    "verify": "plmix_dist.datasets.inspect",
}
# Modules of functions and errors that users call by the name of the module.
_MODULES = ("errors", "metrics", "plots")

__all__ = [  # noqa: RUF022 - in the order in which people meet them
    "PlackettLuceMixture",
    "SpectralPlackettLuce",
    "BayesianPlackettLuceMixture",
    "MixtureSelection",
    "Spectral",
    "KernelStart",
    "Moments",
    "Random",
    "Half",
    "bootstrap",
    "pair_weights",
    "example",
    "ingest",
    "ingest_ratings",
    "export",
    "simulate",
    "split",
    "verify",
    "info",
    "open_store",
    "as_xarray",
    "RankingStore",
    "RankingBlock",
    "Ranking",
    "MixtureParams",
    "Checkpoint",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
