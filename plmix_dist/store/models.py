"""A model as a folder: arrays in `.npy` files, and `model.json`, which is sealed, names them, and is written last.

A file that `model.json` names is never overwritten. A save writes new files beside the old ones, replaces `model.json`
in one step, and then removes the old files. So a save that is killed leaves the old model or the new one, on local disk
and behind a URL.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.errors import (
    DamagedStoreError,
    StoreAccessError,
    StoreNotFoundError,
    UnfinishedStoreError,
    UnsupportedFormatError,
)
from plmix_dist.store.lock import write_lock
from plmix_dist.store.manifest import seal, sha256, unseal
from plmix_dist.store.near_names import near_path
from plmix_dist.store.npy import array_from_npy, npy_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from plmix_dist.store.location import Location

MODEL = "model.json"
MODEL_FORMAT = "plmix-model"
MODEL_VERSION = 2
LARGEST_JSON = 1 << 28
# Bounds for models of format version 1, which do not say how large their files are.
_LARGEST_ARRAY = 1 << 32
_MOST_COMPONENTS = 1 << 20
_NPY_HEADER = 1 << 16
_READ_ATTEMPTS = 5
_ARRAY_FILE = re.compile(
    r"(log_worths|shares|ghosts|share_coefficients|map_log_worths|map_shares|(draws|init)_[A-Za-z0-9_]+)"
    r"(\.[0-9a-f]{12})?\.npy"
)
_DRAFT = re.compile(
    rf"({_ARRAY_FILE.pattern}|model\.json)\.[0-9a-f]{{32}}\.tmp"
)  # left by a save that was killed


class SavedModel(NamedTuple):
    """What is in a model folder: the record of `model.json`, and float64 arrays by name.

    Examples
    --------
    >>> SavedModel({"item_names": ["tea", "coffee"]}, {"shares": np.ones(1)}).arrays["shares"].tolist()
    [1.0]
    """

    record: dict[str, Any]
    arrays: dict[str, NDArray[np.float64]]


def save_model(location: Location, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a model. One that is there stays whole until the new one is.

    Parameters
    ----------
    location
        The folder or URL.
    record
        Entries for `model.json`. Numbers that are not finite become null.
    arrays
        `log_worths`, `shares`, `ghosts`, `share_coefficients`, `map_log_worths`, `map_shares`, and any number of
        `init_...` and `draws_...`.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store.location import Location
    >>> place = Location.of(tempfile.mkdtemp())
    >>> save_model(place, {"item_names": ["tea"]}, {"log_worths": np.zeros((1, 1)), "shares": np.ones(1)})
    >>> place.listing()
    ['log_worths.npy', 'model.json', 'shares.npy']
    """
    contents = {name: npy_bytes(np.asarray(array, np.float64)) for name, array in arrays.items()}
    with write_lock(location) as lock:
        present = location.names()
        kept = _files_of(location) if MODEL in present else {}
        named = {name: _file_name(name, data, kept) for name, data in contents.items()}
        assert all(_ARRAY_FILE.fullmatch(file) for file in named.values()), "a reader refuses other names"
        files = {
            name: {"file": named[name], "size": len(data), "sha256": sha256(data)}
            for name, data in contents.items()
        }
        head = {"format": MODEL_FORMAT, "version": MODEL_VERSION, "files": files}
        sealed = seal(plain_json(dict(record)) | head)
        new = [name for name, file in named.items() if not _holds(location, file, contents[name], kept)]
        try:
            for name in new:
                location.write_bytes(named[name], contents[name])
        except BaseException:
            for name in new:
                with contextlib.suppress(OSError):
                    location.remove(named[name])
            raise
        lock.check()
        location.write_bytes(MODEL, sealed)
        for file in sorted(set(location.names()) - set(named.values())):
            if _ARRAY_FILE.fullmatch(file) or _DRAFT.fullmatch(file):
                location.remove(file)


def load_model(location: Location) -> SavedModel:
    """Read a model; an error if any of its bytes was altered, or if it was not written to its end.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store.location import Location
    >>> place = Location.of(tempfile.mkdtemp())
    >>> save_model(place, {"item_names": ["tea"]}, {"log_worths": np.zeros((1, 1)), "shares": np.ones(1)})
    >>> load_model(place).record["item_names"]
    ['tea']
    """
    seen: set[bytes] = set()
    why = ""
    for _ in range(_READ_ATTEMPTS):
        data = _read_json(location)
        try:
            return _parse(location, data)
        except FileNotFoundError as error:
            # Another process may have just saved a model here and removed the files of the old one; or two models in
            # turn, so that the same record does not yet show that a file of it is missing for good.
            seen.add(data)
            why = f"a file is missing ({error})"
            continue
        except (UnsupportedFormatError, StoreAccessError):
            raise
        except DamagedStoreError as error:
            raise _unreadable(location, str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _unreadable(location, f"{type(error).__name__}: {error}") from None
    raise _unreadable(location, why if len(seen) == 1 else "other processes replace it again and again")


def plain_json(value: Any) -> Any:
    """A value as JSON can hold it: NumPy numbers become Python's, numbers that are not finite become None.

    Examples
    --------
    >>> plain_json({"a": np.float64(1.5), "b": [float("nan"), (1, np.int64(2))]})
    {'a': 1.5, 'b': [None, [1, 2]]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _file_name(name: str, data: bytes, kept: Mapping[str, str | None]) -> str:
    """A plain name, unless another array has it that must be kept."""
    plain, digest = f"{name}.npy", sha256(data)
    return plain if kept.get(plain, digest) == digest else f"{name}.{digest[:12]}.npy"


def _holds(location: Location, file: str, data: bytes, kept: Mapping[str, str | None]) -> bool:
    """Whether the model that is there has this array already, and its file is not damaged."""
    if kept.get(file) != sha256(data):
        return False
    with contextlib.suppress(FileNotFoundError, DamagedStoreError):
        return location.read_bytes(file, len(data)) == data
    return False


def _files_of(location: Location) -> dict[str, str | None]:
    """The array files of the model that is there, and their digests where these are known."""
    with contextlib.suppress(DamagedStoreError, FileNotFoundError, KeyError, TypeError, AttributeError):
        record = unseal(location.read_bytes(MODEL, LARGEST_JSON), MODEL)
        return {entry["file"]: entry["sha256"] for entry in record["files"].values()}
    # Of an older format, or damaged: any of these files may be the last copy.
    return {file: None for file in location.names() if _ARRAY_FILE.fullmatch(file)}


def _read_json(location: Location) -> bytes:
    try:
        return location.read_bytes(MODEL, LARGEST_JSON)
    except FileNotFoundError:
        begun = [file for file in location.names() if _ARRAY_FILE.fullmatch(file)]
        if begun:
            raise UnfinishedStoreError(
                f"the model at {location.url} was not written to its end: {MODEL} is missing; save it again"
            ) from None
        is_store = location.exists("manifest.json")
        near = near_path(location.url)
        instead = (
            ": it holds a store of rankings; fit a model to it with `plmix fit`"
            if is_store
            else near or f": it has no {MODEL}; make one with `plmix fit`"
        )
        raise StoreNotFoundError(f"there is no model at {location.url}{instead}") from None
    except StoreAccessError:
        raise
    except DamagedStoreError as error:
        raise _unreadable(location, str(error)) from None


def _parse(location: Location, data: bytes) -> SavedModel:
    record = json.loads(data)
    if not isinstance(record, dict):
        raise DamagedStoreError(f"{MODEL} holds {type(record).__name__}, where an object is expected")
    if record.get("format") != MODEL_FORMAT:
        raise UnsupportedFormatError(
            f"there is no model at {location.url}: its format is {record.get('format')!r}"
        )
    version = record.get("version")
    if type(version) is not int or not 1 <= version <= MODEL_VERSION:
        raise UnsupportedFormatError(
            f"the model at {location.url} has format version {version!r}, and this version of plmix_dist reads "
            f"1 to {MODEL_VERSION}; install a newer plmix_dist"
        )
    if version == 1:
        return _parse_first_version(location, record)
    record = unseal(data, MODEL)
    files = record.pop("files")
    return SavedModel(record, {name: _read_sealed(location, name, entry) for name, entry in files.items()})


def _read_sealed(location: Location, name: str, entry: Mapping[str, Any]) -> NDArray[np.float64]:
    """An array whose size and digest are known."""
    file, size = entry["file"], entry["size"]
    if not _ARRAY_FILE.fullmatch(file) or not file.startswith(f"{name}."):
        raise DamagedStoreError(f"{file!r} cannot be a file of the array {name!r}")
    data = location.read_bytes(file, size)
    if len(data) != size or sha256(data) != entry["sha256"]:
        raise DamagedStoreError(f"{file} was altered: its size or its digest is not the one in {MODEL}")
    return _array(file, data, finite=not name.startswith("init_"))


def _parse_first_version(location: Location, record: dict[str, Any]) -> SavedModel:
    """A model of format version 1, which has no digests: sizes and types are all that can be checked."""
    if "sha256" in record or "files" in record:
        raise DamagedStoreError(f"{MODEL} was altered: it is sealed, but says version 1")
    names = ["log_worths", "shares"]
    names += ["ghosts"] if location.exists("ghosts.npy") else []
    names += [f"init_{name}" for name in record.get("init_arrays", [])]
    files = {name: f"{name}.npy" for name in names}
    if not all(_ARRAY_FILE.fullmatch(file) for file in files.values()):
        raise DamagedStoreError(f"{MODEL} names arrays {names}, which no model has")
    arrays: dict[str, NDArray[np.float64]] = {}
    for name in sorted(
        files, key=lambda name: name != "shares"
    ):  # shares first: they say how many components
        n_components = arrays["shares"].size if arrays else _MOST_COMPONENTS
        n_numbers = n_components * (len(record["item_names"]) if name == "log_worths" else 1)
        most = _LARGEST_ARRAY if name.startswith("init_") else 8 * n_numbers + _NPY_HEADER
        data = location.read_bytes(files[name], most)
        arrays[name] = _array(files[name], data, finite=not name.startswith("init_"))
    return SavedModel(record, arrays)


def _array(file: str, data: bytes, *, finite: bool) -> NDArray[np.float64]:
    try:
        return array_from_npy(data, np.float64, finite=finite)
    except ValueError as error:
        raise DamagedStoreError(f"{file}: {error}") from None


def _unreadable(location: Location, why: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"the model at {location.url} cannot be read: {why}; fit and save it again, or take it from a copy"
    )
