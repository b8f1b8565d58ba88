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
    from plmix_dist.datasets.examples import example as example
    from plmix_dist.datasets.export import as_xarray as as_xarray
    from plmix_dist.datasets.export import export as export
    from plmix_dist.datasets.ingest import ingest as ingest
    from plmix_dist.datasets.inspect import info as info
    from plmix_dist.datasets.inspect import verify as verify
    from plmix_dist.datasets.ratings.ingest import ingest_ratings as ingest_ratings
    from plmix_dist.datasets.simulate import simulate as simulate
    from plmix_dist.datasets.split import split as split
    from plmix_dist.fitting.starts.settings import KernelStart as KernelStart
    from plmix_dist.fitting.starts.settings import Moments as Moments
    from plmix_dist.fitting.starts.settings import Random as Random
    from plmix_dist.fitting.starts.settings import Spectral as Spectral
    from plmix_dist.models.bayesian import BayesianPlackettLuceMixture as BayesianPlackettLuceMixture
    from plmix_dist.models.plackett_luce import PlackettLuceMixture as PlackettLuceMixture
    from plmix_dist.models.selection import MixtureSelection as MixtureSelection
    from plmix_dist.models.spectral import SpectralPlackettLuce as SpectralPlackettLuce
    from plmix_dist.rankings import Ranking as Ranking
    from plmix_dist.rankings import RankingBlock as RankingBlock
    from plmix_dist.rankings.choice_models import Slates as Slates
    from plmix_dist.rankings.features import Features as Features
    from plmix_dist.rankings.ties import Davidson as Davidson
    from plmix_dist.rankings.ties import Half as Half
    from plmix_dist.store import RankingStore as RankingStore
    from plmix_dist.store import open_store as open_store
    from plmix_dist.store.checkpoints import Checkpoint as Checkpoint
    from plmix_dist.store.mixture import MixtureParams as MixtureParams
    from plmix_dist.uncertainty.bootstrap import bootstrap as bootstrap
    from plmix_dist.uncertainty.leaderboard import pair_weights as pair_weights

__version__ = "0.2.0"

# In the order in which people meet them.
_HOME = {
    "PlackettLuceMixture": "plmix_dist.models.plackett_luce",
    "SpectralPlackettLuce": "plmix_dist.models.spectral",
    "BayesianPlackettLuceMixture": "plmix_dist.models.bayesian",
    "MixtureSelection": "plmix_dist.models.selection",
    "Spectral": "plmix_dist.fitting.starts.settings",
    "KernelStart": "plmix_dist.fitting.starts.settings",
    "Moments": "plmix_dist.fitting.starts.settings",
    "Random": "plmix_dist.fitting.starts.settings",
    "Half": "plmix_dist.rankings.ties",
    "Davidson": "plmix_dist.rankings.ties",
    "Slates": "plmix_dist.rankings.choice_models",
    "Features": "plmix_dist.rankings.features",
    "bootstrap": "plmix_dist.uncertainty.bootstrap",
    "pair_weights": "plmix_dist.uncertainty.leaderboard",
    "example": "plmix_dist.datasets.examples",
    "ingest": "plmix_dist.datasets.ingest",
    "ingest_ratings": "plmix_dist.datasets.ratings.ingest",
    "export": "plmix_dist.datasets.export",
    "simulate": "plmix_dist.datasets.simulate",
    "split": "plmix_dist.datasets.split",
    "verify": "plmix_dist.datasets.inspect",
    "info": "plmix_dist.datasets.inspect",
    "open_store": "plmix_dist.store",
    "as_xarray": "plmix_dist.datasets.export",
    "RankingStore": "plmix_dist.store",
    "RankingBlock": "plmix_dist.rankings",
    "Ranking": "plmix_dist.rankings",
    "MixtureParams": "plmix_dist.store.mixture",
    "Checkpoint": "plmix_dist.store.checkpoints",
}
# Modules of functions and errors that users call by the name of the module.
_MODULES = ("errors", "metrics", "plots")

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
