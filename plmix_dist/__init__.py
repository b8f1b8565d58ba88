"""Mixtures of Plackett-Luce models, fitted to millions of rankings on a Dask cluster.

Names are imported when they are first used, so that importing the package loads neither numba nor dask.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plmix_dist.bayesian import BayesianPlackettLuceMixture
    from plmix_dist.engine.xarray_view import as_xarray
    from plmix_dist.estimator import PlackettLuceMixture
    from plmix_dist.exporting import export
    from plmix_dist.ingestion import ingest
    from plmix_dist.inspection import info, verify
    from plmix_dist.mixture import MixtureParams
    from plmix_dist.rankings import Ranking, RankingBlock
    from plmix_dist.ratings import ingest_ratings
    from plmix_dist.selection import MixtureSelection
    from plmix_dist.simulation import simulate
    from plmix_dist.spectral import SpectralPlackettLuce
    from plmix_dist.splitting import split
    from plmix_dist.store import RankingStore, open_store
    from plmix_dist.store.checkpoints import Checkpoint
    from plmix_dist.uncertainty.bootstrap import bootstrap

__version__ = "0.1.0"

_HOME = {
    "Checkpoint": "plmix_dist.store.checkpoints",
    "PlackettLuceMixture": "plmix_dist.estimator",
    "BayesianPlackettLuceMixture": "plmix_dist.bayesian",
    "SpectralPlackettLuce": "plmix_dist.spectral",
    "MixtureParams": "plmix_dist.mixture",
    "MixtureSelection": "plmix_dist.selection",
    "Ranking": "plmix_dist.rankings",
    "RankingBlock": "plmix_dist.rankings",
    "RankingStore": "plmix_dist.store",
    "as_xarray": "plmix_dist.engine.xarray_view",
    "bootstrap": "plmix_dist.uncertainty.bootstrap",
    "export": "plmix_dist.exporting",
    "info": "plmix_dist.inspection",
    "ingest": "plmix_dist.ingestion",
    "ingest_ratings": "plmix_dist.ratings",
    "open_store": "plmix_dist.store",
    "simulate": "plmix_dist.simulation",
    "split": "plmix_dist.splitting",
    "verify": "plmix_dist.inspection",
}

__all__ = [  # noqa: RUF022 - in the order in which people meet them
    "PlackettLuceMixture",
    "SpectralPlackettLuce",
    "BayesianPlackettLuceMixture",
    "MixtureSelection",
    "bootstrap",
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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
