"""MixtureParams, the one type for the parameters of a mixture: as a folder of arrays and JSON, and as JSON text.

The folder of a model has arrays in `.npy` files, and `model.json`, which is sealed, names them, and is written last. A
file that `model.json` names is never overwritten. A save writes new files beside the old ones, replaces `model.json` in
one step, and then removes the old files. So a save that is killed leaves the old model or the new one, on local disk
and behind a URL.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NotRequired, Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plmix_dist import errors
from plmix_dist.rankings.columns import Floats as Floats
from plmix_dist.settings.checks import near_path
from plmix_dist.store import sealed
from plmix_dist.store.location import AnyPath, Location
from plmix_dist.store.lock import write_lock

_JSON_FORMAT = "plmix-model-json"
# The arrays of a model that are parameters, and what says of which columns they are coefficients.
PARAMETERS = (
    *("log_worths", "shares", "ghosts", "share_coefficients", "tie_parameters", "coefficients", "share_intercepts"),
    *("column_scale", "column_ridge", "unit_centre", "unit_scale", "item_features"),
)


@dataclass(frozen=True, eq=False)
class MixtureParams:
    """A mixture of Plackett-Luce models.

    Log-worths have mean zero in each component. Components are in canonical order: largest share first, equal shares by
    their worths. Where only numbers matter, such as in tasks on workers, it has no names.

    Parameters
    ----------
    log_worths : (n_components, n_items)
    shares : (n_components,)
    item_names : (n_items,)

    Examples
    --------
    >>> mixture = MixtureParams.of([[1.0, 3.0], [0.0, 0.0]], [0.25, 0.75], ["tea", "coffee"])
    >>> mixture.log_worths.tolist(), mixture.shares.tolist()
    ([[0.0, 0.0], [-1.0, 1.0]], [0.75, 0.25])
    """

    log_worths: Floats
    shares: Floats
    item_names: tuple[str, ...] = ()
    # (n_components, n_orders - 1): weights of ties of two, three and more items, where ties are outcomes.
    tie_parameters: Floats | None = None
    # Where utilities are linear in coefficients, what says so of rows, in place of the log-worths.
    rows: Any = None

    @classmethod
    def of(cls, log_worths: ArrayLike, shares: ArrayLike | None, item_names: Sequence[str]) -> Self:
        """Check, centre and order. `shares=None` makes them equal.

        Examples
        --------
        >>> MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"]).log_worths.tolist()
        [[-1.0, 1.0]]
        """
        return cls.ordered(log_worths, shares, item_names)[0]

    @classmethod
    def ordered(
        cls, log_worths: ArrayLike, shares: ArrayLike | None, item_names: Sequence[str]
    ) -> tuple[Self, NDArray[np.int64]]:
        """The mixture that `of` makes, and the order: its component k is component `order[k]` of the arguments."""
        worths = np.atleast_2d(np.asarray(log_worths, np.float64))
        if worths.ndim != 2 or worths.shape[1] != len(item_names) or not worths.size:
            raise errors.SettingsError(
                f"expected log-worths of shape (components, {len(item_names)}), one per named item, "
                f"but got {worths.shape}"
            )
        portions = np.full(len(worths), 1 / len(worths)) if shares is None else np.asarray(shares, np.float64)
        if portions.shape != (len(worths),) or not (portions >= 0).all() or not np.isclose(portions.sum(), 1):
            raise errors.SettingsError(
                f"shares must be {len(worths)} non-negative numbers that sum to 1, but are {portions}"
            )
        if not np.isfinite(worths).all():
            raise errors.SettingsError("log-worths must be finite")
        worths = worths - worths.mean(axis=1, keepdims=True)
        order = np.array(sorted(range(len(worths)), key=lambda k: (-portions[k], *(-worths[k]))), dtype=np.int64)
        return cls(worths[order], portions[order], tuple(item_names)), order

    @classmethod
    def checked(cls, log_worths: ArrayLike, shares: ArrayLike, item_names: Sequence[str]) -> Self:
        """A mixture of these very numbers, in this order; an error if they are not a mixture.

        Examples
        --------
        >>> MixtureParams.checked([[-1.0, 1.0]], [1.0], ["tea", "coffee"]).n_items
        2
        """
        worths, portions = np.asarray(log_worths, np.float64), np.asarray(shares, np.float64)
        if (fault := _fault(worths, portions, item_names)) is not None:
            raise errors.SettingsError(fault)
        return cls(worths, portions, tuple(item_names))

    @property
    def n_components(self) -> int:
        """The number of components."""
        return len(self.shares)

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.log_worths.shape[1])

    @property
    def log_shares(self) -> Floats:
        """(n_components,): logarithms of the shares; minus infinity for a component without a share."""
        with np.errstate(divide="ignore"):
            logarithms: Floats = np.log(self.shares)
        return logarithms

    @property
    def log_ties(self) -> Floats | None:
        """(n_components, n_orders - 1): logarithms of the weights of ties, or None; minus infinity for none."""
        with np.errstate(divide="ignore"):
            return None if self.tie_parameters is None else np.log(self.tie_parameters)

    def unnamed(self) -> Self:
        """The same numbers without names: what travels to tasks on workers."""
        return replace(self, item_names=())

    def save(self, path: AnyPath | Location, about: dict[str, Any] | None = None) -> None:
        """Write a folder with `log_worths.npy`, `shares.npy` and `model.json`. Nothing is pickled.

        A model that is there stays whole until the new one is. See docs/rankings-and-store.md.

        Parameters
        ----------
        path
            The folder or URL to write.
        about
            More entries for `model.json`.

        Examples
        --------
        >>> MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"]).save(tmp / "model")
        >>> sorted(path.name for path in (tmp / "model").iterdir())
        ['log_worths.npy', 'model.json', 'shares.npy']
        """
        self.save_with(path, about or {}, {})

    def save_with(self, path: AnyPath | Location, about: Mapping[str, Any], arrays: Mapping[str, Floats]) -> None:
        """Write what `save` writes, and more arrays, with names that `_save_model` takes."""
        log_worths, shares = np.asarray(self.log_worths), np.asarray(self.shares)
        if (fault := _fault(log_worths, shares, self.item_names)) is not None:
            raise errors.SettingsError(f"this mixture cannot be saved: {fault}")
        record = {**about, "item_names": list(self.item_names)}
        _save_model(Location.of(path), record, {"log_worths": log_worths, "shares": shares, **arrays})

    @classmethod
    def load(cls, path: AnyPath | Location) -> Self:
        """Read what `save` wrote.

        Examples
        --------
        >>> MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"]).save(tmp / "model")
        >>> MixtureParams.load(tmp / "model").item_names
        ('tea', 'coffee')
        """
        mixture = load_with(path)[0]
        return cls(mixture.log_worths, mixture.shares, mixture.item_names)


def load_with(path: AnyPath | Location) -> tuple[MixtureParams, _SavedModel]:
    """The mixture of a model folder, and all that is saved with it."""
    folder = Location.of(path)
    saved = load_model(folder)
    names, arrays = saved.record.get("item_names"), saved.arrays
    missing = " and no ".join(name for name in ("log_worths", "shares") if name not in arrays)
    fault = f"it has no {missing}" if missing else _fault(arrays["log_worths"], arrays["shares"], names)
    if fault is not None:
        raise errors.DamagedStoreError(f"the model at {folder.url} cannot be read: {fault}; fit and save it again")
    return MixtureParams(arrays["log_worths"], arrays["shares"], tuple(names or ())), saved


def mixture_json(mixture: MixtureParams, record: Mapping[str, Any], arrays: Mapping[str, Floats]) -> str:
    """A mixture, a record and more arrays as JSON text that gives every number back, bit for bit."""
    arrays = {"log_worths": mixture.log_worths, "shares": mixture.shares, **arrays}
    head = {"format": _JSON_FORMAT, "version": sealed.VERSIONS[_JSON_FORMAT], "item_names": list(mixture.item_names)}
    numbers = {name: array.tolist() for name, array in arrays.items()}
    return json.dumps(head | numbers | sealed.plain_json(record), ensure_ascii=False, allow_nan=False)


def mixture_of_json(text: str | bytes) -> tuple[MixtureParams, _SavedModel]:
    """The mixture of a JSON text, and all that is written with it; an error that names what is wrong with the text."""
    record = _json_record(text)
    try:
        arrays = {name: np.array(record.pop(name), np.float64) for name in PARAMETERS if name in record}
        names = record.pop("item_names")
        mixture = MixtureParams.checked(arrays.pop("log_worths"), arrays.pop("shares"), names)
    except KeyError as error:
        raise errors.SettingsError(f"this JSON is not a model: it has no {error.args[0]}") from None
    except (ValueError, TypeError) as error:
        raise errors.SettingsError(f"this JSON is not a model: {error}") from None
    try:
        sealed.typed(_RECORD, record, "this JSON")
    except errors.DamagedStoreError as error:
        raise errors.SettingsError(str(error)) from None
    return mixture, _SavedModel(record, arrays)


def _json_record(text: str | bytes) -> dict[str, Any]:
    """The object of a JSON text that holds a model."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise errors.SettingsError(f"this is not JSON: {error}; from_json takes the text that to_json gave") from None
    if not isinstance(record, dict) or record.get("format") != _JSON_FORMAT:
        found = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise errors.SettingsError(
            f"this JSON is not a model: its format is {found!r}, where {_JSON_FORMAT!r} is expected; "
            "from_json takes the text that to_json gave, and load takes the folder of a model"
        )
    sealed.check_version(_JSON_FORMAT, record.get("version"), "this JSON")
    return record


def _fault(log_worths: NDArray[Any], shares: NDArray[Any], names: Any) -> str | None:
    """What is wrong with the parameters of a mixture, in words; None if nothing is."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return f"item names must be a list of text, but are {str(names)[:80]}"
    if len(set(names)) != len(names):
        name, count = Counter(names).most_common(1)[0]
        return f"item names must differ, but {name!r} occurs {count} times"
    if log_worths.ndim != 2 or shares.shape != (len(log_worths),) or log_worths.shape[1] != len(names):
        return f"log-worths of shape {log_worths.shape}, shares of shape {shares.shape}, {len(names)} item names"
    if not log_worths.size:
        return "it has no components or no items"
    if not np.isfinite(log_worths).all():
        return "log-worths must be finite"
    if not (shares >= 0).all() or not np.isclose(shares.sum(), 1):
        return f"shares must be {len(shares)} non-negative numbers that sum to 1, but are {shares}"
    return None


# --- the folder of a model -----------------------------------------------------------------------------------

MODEL = "model.json"
FORMAT = "plmix-model"
_READ_ATTEMPTS = 5
_CLEARING_MAY_TAKE = 10.0
_ARRAY_FILE = re.compile(
    rf"({'|'.join(sorted(PARAMETERS))}|map_log_worths|map_shares|(draws|init)_[A-Za-z0-9_]+)(\.[0-9a-f]{{12}})?\.npy"
)
_DRAFT = re.compile(rf"({_ARRAY_FILE.pattern}|model\.json)\.[0-9a-f]{{32}}\.tmp")  # left by a save that was killed


# What a saved model records, as far as readers rely on its types. Records may have more, and may lack entries.


class _File(TypedDict):
    file: str
    size: int
    sha256: str


class _Event(TypedDict):
    component: int
    action: str


class _Search(TypedDict):
    n_starts: int
    n_best: int
    n_ends: int
    others: NotRequired[list[dict[str, Any]]]


class _Stage(TypedDict):
    stage: str
    seconds: NotRequired[float | None]
    passes: NotRequired[float | None]


class _Identifiability(TypedDict):
    certain: int
    generic: int
    described: str


def _each(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


_FIT = {
    **_each(int | None, "n_iter rank n_sampled"),
    **_each(float | None, "log_likelihood objective gradient_norm dic map_log_likelihood"),
    **_each(bool | None, "converged map_converged"),
    **_each(str | None, "m_step unranked"),
    "posterior_shares": list[float],
}
_RATES = _each(float | None, "log_likelihood objective gradient largest_change seconds rankings_per_second")
_COUNTS = _each(int, "n_rankings n_items n_top_k n_tied_items") | {"weight": float, "mean_listed": float | None}
_DATA = {"source": str | None, "by_person": bool, "identifiability": _Identifiability | None, **_COUNTS}
_RECORD: Any = {
    "item_names": list[str],
    "files": dict[str, _File],
    "settings": dict[str, Any],
    "fit": _FIT,
    "history": [{"iteration": int, "taken": bool, **_RATES}],
    "events": list[_Event],
    "init": {"search": _Search | None, "stages": list[_Stage], "failed_starts": list[dict[str, Any]]},
    "about": {"data": _DATA, "finished": str, "machine": str, "versions": dict[str, str | None]},
    "linear": dict[str, Any],
    "bayes": {"stages": list[_Stage], "largest_r_hat": float | None},
}


class _SavedModel(NamedTuple):
    """What is in a model folder: the record of `model.json`, and float64 arrays by name."""

    record: dict[str, Any]
    arrays: dict[str, Floats]


def _save_model(location: Location, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a model. One that is there stays whole until the new one is.

    In `record`, numbers that are not finite become null. Arrays have the names that `_ARRAY_FILE` lists.
    """
    contents = {name: sealed.npy_bytes(np.asarray(array, np.float64)) for name, array in arrays.items()}
    with write_lock(location) as lock:
        present = location.names()
        kept = _files_of(location) if MODEL in present else {}
        named = {name: _file_name(name, data, kept) for name, data in contents.items()}
        assert all(_ARRAY_FILE.fullmatch(file) for file in named.values()), "a reader refuses other names"
        files = {
            name: {"file": named[name], "size": len(data), "sha256": sealed.sha256(data)}
            for name, data in contents.items()
        }
        head = {"format": FORMAT, "version": sealed.VERSIONS[FORMAT], "files": files}
        described = sealed.seal(sealed.plain_json(dict(record)) | head)
        new = [name for name, file in named.items() if not _holds(location, file, contents[name], kept)]
        try:
            for name in new:
                location.write_bytes(named[name], contents[name])
        except BaseException:
            with contextlib.suppress(OSError):  # storage that does not answer once is not asked again
                for name in new:
                    location.remove(named[name], seconds=_CLEARING_MAY_TAKE)
            raise
        lock.check()
        location.write_bytes(MODEL, described)
        for file in sorted(set(location.names()) - set(named.values())):
            if _ARRAY_FILE.fullmatch(file) or _DRAFT.fullmatch(file):
                location.remove(file)


def load_model(location: Location) -> _SavedModel:
    """Read a model; an error if any of its bytes was altered, or if it was not written to its end."""
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
        except (errors.UnsupportedFormatError, errors.StoreAccessError):
            raise
        except errors.DamagedStoreError as error:
            raise _unreadable(location, str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _unreadable(location, f"{type(error).__name__}: {error}") from None
    raise _unreadable(location, why if len(seen) == 1 else "other processes replace it again and again")


def _file_name(name: str, data: bytes, kept: Mapping[str, str | None]) -> str:
    """A plain name, unless another array has it that must be kept."""
    plain, digest = f"{name}.npy", sealed.sha256(data)
    return plain if kept.get(plain, digest) == digest else f"{name}.{digest[:12]}.npy"


def _holds(location: Location, file: str, data: bytes, kept: Mapping[str, str | None]) -> bool:
    """Whether the model that is there has this array already, and its file is not damaged."""
    if kept.get(file) != sealed.sha256(data):
        return False
    with contextlib.suppress(FileNotFoundError, errors.DamagedStoreError):
        return location.read_bytes(file, len(data)) == data
    return False


def _files_of(location: Location) -> dict[str, str | None]:
    """The array files of the model that is there, and their digests where these are known."""
    with contextlib.suppress(errors.DamagedStoreError, FileNotFoundError, KeyError, TypeError, AttributeError):
        record = sealed.unseal(location.read_bytes(MODEL), MODEL)
        return {entry["file"]: entry["sha256"] for entry in record["files"].values()}
    # Damaged, or of an early version: any of these files may be the last copy.
    return {file: None for file in location.names() if _ARRAY_FILE.fullmatch(file)}


def _read_json(location: Location) -> bytes:
    try:
        return location.read_bytes(MODEL)
    except FileNotFoundError:
        begun = [file for file in location.names() if _ARRAY_FILE.fullmatch(file)]
        if begun:
            raise errors.UnfinishedStoreError(
                f"the model at {location.url} was not written to its end: {MODEL} is missing; save it again"
            ) from None
        instead = near_path(location.url) or f": it has no {MODEL}; make one with `plmix fit`"
        if location.exists("manifest.json"):
            instead = ": it holds a store of rankings; fit a model to it with `plmix fit`"
        raise errors.StoreNotFoundError(f"no model at {location.url}{instead}") from None
    except errors.DamagedStoreError as error:
        raise _unreadable(location, str(error)) from None


def _parse(location: Location, data: bytes) -> _SavedModel:
    record = json.loads(data)
    if not isinstance(record, dict):
        raise errors.DamagedStoreError(f"{MODEL} holds {type(record).__name__}, where an object is expected")
    if (found := record.get("format")) != FORMAT:
        raise errors.UnsupportedFormatError(f"no model at {location.url}: its format is {found!r}")
    early = record.get("version") == 1
    remedy = "it was written by an early version, so fit it again" if early else "install a newer plmix_dist"
    sealed.check_version(FORMAT, record.get("version"), f"the model at {location.url}", remedy)
    record = dict(sealed.typed(_RECORD, sealed.unseal(data, MODEL), MODEL))
    files = record.pop("files", {})
    return _SavedModel(record, {name: _read_sealed(location, name, entry) for name, entry in files.items()})


def _read_sealed(location: Location, name: str, entry: Mapping[str, Any]) -> Floats:
    """An array whose size and digest are known."""
    file, size = entry["file"], entry["size"]
    if not _ARRAY_FILE.fullmatch(file) or not file.startswith(f"{name}."):
        raise errors.DamagedStoreError(f"{file!r} cannot be a file of the array {name!r}")
    data = location.read_bytes(file, size)
    if len(data) != size or sealed.sha256(data) != entry["sha256"]:
        raise errors.DamagedStoreError(f"{file} was altered: its size or its digest is not the one in {MODEL}")
    try:
        return sealed.array_from_npy(data, np.float64, finite=not name.startswith("init_"))
    except ValueError as error:
        raise errors.DamagedStoreError(f"{file}: {error}") from None


def _unreadable(location: Location, why: str) -> errors.DamagedStoreError:
    return errors.DamagedStoreError(
        f"the model at {location.url} cannot be read: {why}; fit and save it again, or take it from a copy"
    )
