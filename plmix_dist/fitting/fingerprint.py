"""What a fit is made from, as a record that can be compared: data, settings, the point it begins at."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np

from plmix_dist.fitting.algorithm import to_plain
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.overview import Overview
from plmix_dist.fitting.point import Point
from plmix_dist.passes import Aggregation, Passes, Rankings, Request, StoreLeaves, ask
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.identifiability import identifiability, ordered_lengths
from plmix_dist.store.reader import digest_of_store
from plmix_dist.store.sealed import npy_bytes, sha256

_DIGITS = 16
# Settings that change no bit of a fit.
_WITHOUT_EFFECT = ("residency",)


def made_from(
    passes: Passes, rankings: Rankings, settings: FitSettings, given: Point | None, *more: Any
) -> dict[str, Any]:
    """The fingerprint of a fit; `more` are tuples or dataclasses of arrays that it is made from."""
    chosen = {name: value for name, value in asdict(settings).items() if name not in _WITHOUT_EFFECT}
    if settings.shares is not None:
        chosen["shares"] = settings.shares.tolist()
    if given is not None:
        chosen["init"] = f"given {digest_of(*given)}"
    if more:
        plain, arrays = to_plain(list(more))
        chosen["model"] = f"{sha256(repr(plain).encode())[:_DIGITS]} {digest_of(*arrays.values())}"
    return data_fingerprint(passes, rankings) | chosen


def data_fingerprint(passes: Passes, rankings: Rankings) -> dict[str, Any]:
    """What the data are: counts for people, and a digest of all rows, weights, names and covariates.

    The manifest of a store has its digest. Any other source is read once for it.
    """
    found: dict[str, Any] = {"n_rankings": rankings.n_rankings, "n_items": rankings.n_items}
    names = sha256("\n".join(rankings.item_names).encode())
    if isinstance(rankings.source, StoreLeaves):
        rows = digest_of_store(rankings.source.store)
        rows += digest_of(*[array for array in (rankings.weights, rankings.covariates) if array is not None])
    else:
        rows = ask(passes, Request(_DIGEST)).hex()
    return found | {"rankings": sha256(f"{rows} {names}".encode())[:_DIGITS]}


def digest_of(*arrays: Any) -> str:
    """A digest of arrays: their types, shapes and bytes."""
    return sha256(b"".join(npy_bytes(np.asarray(array)) for array in arrays))[:_DIGITS]


def _leaf_digest(_number: int, block: RankingBlock, _params: None) -> bytes:
    state = hashlib.sha256()
    for field in fields(block):
        value = getattr(block, field.name)
        if isinstance(value, np.ndarray) and field.name != "ids":
            state.update(field.name.encode() + npy_bytes(value))
    return state.digest()


def _combine(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(left + right).digest()


_DIGEST = Aggregation("digest", leaf=_leaf_digest, combine=_combine)


# What a fit leaves behind for those who read about it later: the data, the seed, the versions, the time.

# Those that take part in the numbers of a fit.
_PACKAGES = ("plmix-dist", "numpy", "scipy", "scikit-learn", "numba", "dask", "dask-ml", "distributed", "zarr")


def data_record(rankings: Rankings, overview: Overview) -> dict[str, Any]:
    """What a model was fitted to, as plain values."""
    extent, sample = overview.extent, overview.sample
    by_person = sample.within is None and not bool(sample.group_starts.all())
    location = getattr(getattr(rankings.source, "store", None), "location", None)
    found = identifiability(ordered_lengths(sample), sample.n_items)
    return {
        "source": None if location is None else location.url,
        "n_rankings": rankings.n_weighted,  # not the orders of those with ties
        "weight": float(extent.weight),
        "n_items": rankings.n_items,
        "mean_listed": float(extent.listed / extent.rows),
        "n_top_k": int(extent.below),
        "n_tied_items": int(extent.tied),
        **({"n_half": int(extent.half)} if extent.half else {}),
        "by_person": by_person,
        "unranked": _unranked(sample),
        "identifiability": {"certain": found.certain, "generic": found.generic, "described": found.described},
    }


def _unranked(sample: RankingBlock) -> str | None:
    """What rows say of the items that they do not list; None if they all list everything, or do not agree."""
    short = sample.below[sample.n_listed < sample.n_items]
    if not len(short) or short.any() != short.all():
        return None
    return "below" if short[0] else "absent"


def made_with(seed: int) -> dict[str, Any]:
    """The seed that a fit used, even where none was given, with versions, machine and time."""
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
