"""What a fit leaves behind for those who read about it later: the data, the seed, the versions, the time."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from plmix_dist.rankings.identifiability import identifiability, ordered_lengths

if TYPE_CHECKING:
    from plmix_dist.data import Rankings
    from plmix_dist.inference.look import Look

# Those that take part in the numbers of a fit.
_PACKAGES = (
    "plmix-dist",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "dask",
    "dask-ml",
    "distributed",
    "zarr",
)


def data_record(rankings: Rankings, look: Look) -> dict[str, Any]:
    """What a model was fitted to, as plain values.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> from plmix_dist.inference.look import take_look
    >>> rankings = as_rankings([[0, 1, 2, 3], [3, 2, 1, 0]])
    >>> found = data_record(rankings, take_look(ThreadedPasses(rankings), rankings, seed=0))
    >>> found["n_rankings"], found["mean_listed"], found["identifiability"]["certain"]
    (2, 4.0, 2)
    """
    extent, sample = look.extent, look.sample
    by_person = not bool(sample.group_starts.all())
    location = getattr(getattr(rankings.source, "store", None), "location", None)
    found = identifiability(ordered_lengths(sample), sample.n_items)
    return {
        "source": None if location is None else location.url,
        "n_rankings": int(extent.rows),
        "weight": float(extent.weight),
        "n_items": rankings.n_items,
        "mean_listed": float(extent.listed / extent.rows),
        "n_top_k": int(extent.below),
        "n_tied_items": int(extent.tied),
        "by_person": by_person,
        "identifiability": {
            "certain": found.certain,
            "generic": found.generic,
            "described": found.described,
        },
    }


def made_with(seed: int) -> dict[str, Any]:
    """The seed that a fit used, even where none was given, with versions, machine and time.

    Examples
    --------
    >>> found = made_with(7)
    >>> found["seed"], "numpy" in found["versions"]
    (7, True)
    """
    return {
        "seed": seed,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "versions": dict(_versions()),
    }


@cache
def _versions() -> dict[str, str]:
    """Versions by package. Looking them up takes longer than a small fit, and they do not change in a process."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a source tree that was not installed
            continue
    return dict(sorted(versions.items()))
