"""The rule for places that something is written to: where there is nothing, or over a result of the same kind if asked.

Every verb that writes follows it:

- Nothing is there, or an empty folder: it is written.
- The same result is there: nothing is done. The same job was begun there: it is continued. (The writers know that.)
- Another result of the same kind is there: refused, unless `overwrite` is set (`--force`).
- Anything else is there, such as files of the user, a result of another kind, or what the result is made from: refused,
  also with `overwrite`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from plmix_dist.errors import StoreError, StoreExistsError
from plmix_dist.store import access, lock, manifest, mixture
from plmix_dist.store.location import AnyPath, Location

Kind = Literal["store", "model", "memberships", "selection"]

MEMBERSHIPS_PLAN = "wip/predict.json"
SELECTION = "selection.json"
_GROUP = "zarr.json"
_MOST_SHOWN = 5

# What the files of a result are called. Nothing else is ever removed.
_ARRAYS = "|".join(mixture.PARAMETERS)
_OF_MODEL = (
    rf"(model\.json|({_ARRAYS}|(init|draws)_\w+|map_(log_worths|shares))(\.[0-9a-f]{{12}})?\.npy)"
    r"(\.[0-9a-f]{32}\.tmp)?|wip(/.*)?"
)
_FILES: dict[Kind, re.Pattern[str]] = {
    "store": re.compile(r"manifest\.json(\..*\.tmp)?|zarr\.json|partitions(/zarr\.json|/p\d{6,}(/.*)?)?|wip(/.*)?"),
    "model": re.compile(_OF_MODEL),
    "memberships": re.compile(r"zarr\.json|(probabilities|component)(/zarr\.json.*|/c(/.*)?)?|wip(/.*)?"),
    "selection": re.compile(rf"(selection\.json|plot\.png)(\.[0-9a-f]{{32}}\.tmp)?|model(/({_OF_MODEL}))?"),
}
_WORDS = {"store": "a store", "model": "a model", "memberships": "memberships", "selection": "a selection"}
HOW_TO_REPLACE = "choose another path, or replace it with --force (overwrite=True in Python)"


def kind_at(location: Location) -> Kind | None:
    """What is at a place, finished or begun: a store, a model, memberships, a selection; None for anything else."""
    if location.exists(manifest.MANIFEST) or location.exists(manifest.PLAN):
        return "store"
    if location.exists(mixture.MODEL):
        return "model"
    if location.exists(MEMBERSHIPS_PLAN) or _is_group_of_memberships(location):
        return "memberships"
    if location.exists(SELECTION):
        return "selection"
    return None


def check_target(location: Location, kind: Kind, *, overwrite: bool = False, sources: Iterable[AnyPath] = ()) -> None:
    """An error unless a result of this kind can be written here. Nothing is changed.

    Whether a finished or unfinished result of the same kind is the same one, its writer must find out.
    """
    for source in sources:
        _check_apart(location, os.fspath(source), _WORDS[kind])
    there = kind_at(location)
    if there is not None and there != kind:
        raise StoreExistsError(
            f"{location.url} holds {_WORDS[there]}, and {_WORDS[kind]} cannot be written there; choose another path"
        )
    if there == kind and not overwrite:
        return
    # Below a folder of our own everything is looked at before it is removed; of any other folder the names will do.
    names = location.listing() if overwrite and there == kind else location.names(folders=True)
    foreign = [name for name in names if not _FILES[kind].fullmatch(name)]
    if foreign:
        raise StoreExistsError(
            f"{location.url} holds other files, such as {foreign[0]}; {_WORDS[kind]} needs a folder of its own, "
            "so choose another path"
        )


def clear_target(location: Location, kind: Kind) -> None:
    """Remove a result of this kind, whole or not, first what makes it readable. Locks are left to their holders."""
    check_target(location, kind, overwrite=True)
    marks = {"store": manifest.MANIFEST, "model": mixture.MODEL, "memberships": _GROUP, "selection": SELECTION}
    location.remove(marks[kind])
    below = {"/".join(key.split("/")[:2]) for key in location.listing()}
    for key in sorted(below, key=lambda key: key == manifest.PLAN):
        if not lock.is_lock(key):
            location.remove(key)


def _check_apart(location: Location, source: str, what: str) -> None:
    """An error if a result would be written over its own source, or into the folder that holds it."""
    path = source.removeprefix("file://")
    if "://" not in path:
        with contextlib.suppress(RuntimeError):  # the user does not exist; reading the source reports that
            path = str(Path(path).expanduser().absolute())
        target = os.path.realpath(location.url) if location.is_local else location.url
        path = str(Path(os.path.realpath(Path(path).parent)) / Path(path).name)
    else:
        target, path = location.url, path.rstrip("/")
    if path == target:
        raise StoreExistsError(f"{location.url} is what the result is made from; choose another path")
    if path.startswith(f"{target}/"):
        raise StoreExistsError(
            f"{location.url} is the folder of {source}; {what} needs a folder of its own, so choose another path, "
            f"such as {location.url}-{what.split()[-1]}"
        )


def check_file(path: str, *, overwrite: bool = False, sources: Iterable[str] = ()) -> None:
    """An error if a file would be written over another without `overwrite`, or into a store that is read."""
    local = "://" not in path
    for source in sources:
        folder = source if "://" in source else os.path.realpath(source)
        if (os.path.realpath(path) if local else path).startswith(f"{folder.rstrip('/')}/"):
            raise StoreExistsError(f"{path} is inside {source}, which is read; choose another path")
    if local:
        there = Path(path).is_file()
    else:
        files = access.remote_files(path)
        with access.reading_permitted(path):
            there = files.is_file(files.root)
    if there and not overwrite:
        raise StoreExistsError(f"{path} exists already; {HOW_TO_REPLACE}")


def differences(mine: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """What differs between the settings of a result that is there and those of the result that is asked for."""
    names = [name for name in {**mine, **there} if mine.get(name) != there.get(name)]
    found = [f"{name} is {_short(there.get(name))} there and {_short(mine.get(name))} here" for name in names]
    more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return "; ".join(found[:_MOST_SHOWN]) + more


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _is_group_of_memberships(location: Location) -> bool:
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, FileNotFoundError, StoreError):
        group = json.loads(location.read_bytes(_GROUP))
        return "fingerprint" in group["attributes"]["plmix"]
    return False
