"""What a fit is made from, as a record that can be compared: data, settings, the point it begins at."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.engine.store_leaves import StoreLeaves
from plmix_dist.store.manifest import sha256
from plmix_dist.store.npy import npy_bytes
from plmix_dist.store.reader import digest_of_store

if TYPE_CHECKING:
    from plmix_dist.data import Rankings
    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.point import Point
    from plmix_dist.inference.settings import FitSettings
    from plmix_dist.rankings import RankingBlock

_DIGITS = 16
# Settings that change no bit of a fit.
_WITHOUT_EFFECT = ("residency",)


def made_from(
    passes: Passes, rankings: Rankings, settings: FitSettings, given: Point | None
) -> dict[str, Any]:
    """The fingerprint of a fit.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> from plmix_dist.inference.settings import FitSettings
    >>> rankings = as_rankings([[0, 1], [1, 0]])
    >>> found = made_from(ThreadedPasses(rankings), rankings, FitSettings(2), None)
    >>> found["n_rankings"], found["n_components"], len(found["rankings"])
    (2, 2, 16)
    """
    told = {name: value for name, value in asdict(settings).items() if name not in _WITHOUT_EFFECT}
    if settings.shares is not None:
        told["shares"] = settings.shares.tolist()
    if given is not None:
        told["init"] = f"given {digest_of(*given)}"
    return data_fingerprint(passes, rankings) | told


def data_fingerprint(passes: Passes, rankings: Rankings) -> dict[str, Any]:
    """What the data are: counts for people, and a digest of all rows, weights, names and covariates.

    The manifest of a store has its digest. Any other source is read once for it.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> one, other = (as_rankings([[0, 1]] * 5, sample_weight=[w] * 5) for w in (1.0, 2.0))
    >>> data_fingerprint(ThreadedPasses(one), one) == data_fingerprint(ThreadedPasses(other), other)
    False
    """
    found: dict[str, Any] = {"n_rankings": rankings.n_rankings, "n_items": rankings.n_items}
    names = sha256("\n".join(rankings.item_names).encode())
    if isinstance(rankings.source, StoreLeaves):
        rows = digest_of_store(rankings.source.store)
        given = [array for array in (rankings.weights, rankings.covariates) if array is not None]
        rows += digest_of(*given)
    else:
        (answer,) = passes.run([Request(DIGEST)])
        if answer.error is not None:
            raise answer.error
        (digest,) = answer.results
        rows = digest.hex()
    return found | {"rankings": sha256(f"{rows} {names}".encode())[:_DIGITS]}


def digest_of(*arrays: Any) -> str:
    """A digest of arrays: their types, shapes and bytes.

    Examples
    --------
    >>> digest_of(np.zeros(2)) == digest_of(np.zeros(2)), digest_of(np.zeros(2)) == digest_of(np.zeros(3))
    (True, False)
    """
    return sha256(b"".join(npy_bytes(np.asarray(array)) for array in arrays))[:_DIGITS]


def _leaf_digest(number: int, block: RankingBlock, params: None) -> bytes:
    del number, params
    state = hashlib.sha256()
    for field in fields(block):
        value = getattr(block, field.name)
        if isinstance(value, np.ndarray) and field.name != "ids":
            state.update(field.name.encode() + npy_bytes(value))
    return state.digest()


def _combine(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(left + right).digest()


DIGEST = Aggregation("digest", leaf=_leaf_digest, combine=_combine)
