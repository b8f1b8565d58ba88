"""Checkpoints as files: each is one file that appears in one step, and the last few are kept.

    checkpoint-000017.plmix    where a computation is: the state of the loop that runs, and the results it has so far
    part-3f2a91c07d55.plmix    one such result; written once, and kept while a checkpoint names it

A file is a line of text, a sealed record (JSON), and arrays as `.npy`. The record has the size and digest of every
array, and those of every part that a checkpoint names. So an altered byte is noticed; then the one before is taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import DamagedStoreError, SettingsError, StoreExistsError, UnsupportedFormatError
from plmix_dist.settings import real_number, shown, whole_number
from plmix_dist.store import access, sealed
from plmix_dist.store.location import AnyPath, Location

DEFAULT_SECONDS = 30.0
DEFAULT_KEPT = 3

_FORMAT = "plmix-checkpoint"
_FIRST_LINE = re.compile(rb"plmix-checkpoint (\d{1,9}) (\d{1,12})\n")
_LONGEST_LINE = 64
_CHECKPOINT = re.compile(r"checkpoint-(\d{6,})\.plmix")
_PART = re.compile(r"part-[0-9a-f]{16}\.plmix")
_DRAFT = re.compile(rf"({_CHECKPOINT.pattern}|{_PART.pattern})\.[0-9a-f]{{32}}\.tmp")
_OURS = re.compile(f"{_CHECKPOINT.pattern}|{_PART.pattern}|{_DRAFT.pattern}")
_DTYPES = ("float64", "int64", "int32", "bool", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Checkpoint:
    """Where a computation saves its state, how often, and how many states are kept.

    Parameters
    ----------
    path
        A folder of its own, or an fsspec URL.
    every
        The fewest seconds between two saves; 0 saves after every pass. The end is always saved.
    keep
        How many checkpoints are kept.

    Examples
    --------
    >>> Checkpoint("/data/checkpoints", every=60.0).keep
    3
    """

    path: AnyPath | Location
    every: float = DEFAULT_SECONDS
    keep: int = DEFAULT_KEPT

    def __post_init__(self) -> None:
        """Refuse settings of a wrong type or out of range."""
        real_number("every", self.every, at_least=0)
        whole_number("keep", self.keep, at_least=1)

    @classmethod
    def of(cls, given: Any) -> Self | None:
        """From what a user gave: None, a path or URL, or the settings themselves.

        Examples
        --------
        >>> Checkpoint.of("s3://bucket/fit").every
        30.0
        >>> Checkpoint.of(7)
        Traceback (most recent call last):
        ...
        plmix_dist.errors.SettingsError: checkpoint must be a folder, a URL, a Checkpoint or None, but is 7 (int)
        """
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, str | os.PathLike | Location):
            raise SettingsError(f"checkpoint must be a folder, a URL, a Checkpoint or None, but is {shown(given)}")
        return cls(given)


class Record(NamedTuple):
    """What a file holds: a value for JSON, and the arrays it refers to by name."""

    value: Any
    arrays: dict[str, NDArray[Any]]


class Loaded(NamedTuple):
    """A checkpoint that was read."""

    number: int
    fingerprint: dict[str, Any]  # what it was computed from
    finished: dict[str, Record]  # results by name
    running: tuple[str, Record] | None  # the name of the loop that ran, and its state; None between two loops
    damaged: list[str]  # why later checkpoints could not be read


def packed(value: Any, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A value for JSON and arrays, as the bytes of one file."""
    contents = {name: sealed.npy_bytes(array) for name, array in arrays.items()}
    described = [
        {"name": name, "dtype": arrays[name].dtype.name, "size": len(data), "sha256": sealed.sha256(data)}
        for name, data in contents.items()
    ]
    head = sealed.seal({"value": value, "arrays": described})
    return b"".join([f"{_FORMAT} {sealed.VERSIONS[_FORMAT]} {len(head)}\n".encode(), head, *contents.values()])


@dataclass(frozen=True)
class _ArrayEntry:
    """One array of a file."""

    name: str
    dtype: str
    size: int
    sha256: str


@dataclass(frozen=True)
class _Head:
    """The sealed record of a file."""

    value: Any
    arrays: list[_ArrayEntry]


def _unpacked(location: Location, file: str, digest: str | None = None) -> Record:
    """What `packed` was given; an error if any byte was altered. Sizes are checked before the arrays are read."""
    where = f"{location.url}/{file}"
    line = _FIRST_LINE.match(location.read_start(file, _LONGEST_LINE))
    if line is None:
        raise DamagedStoreError(f"{where} was altered or cut short: it does not begin as a checkpoint does")
    remedy = "continue with the version that wrote it, or remove the folder to begin again"
    sealed.check_version(_FORMAT, int(line[1]), where, remedy)
    first = line.end() + int(line[2])
    if first > sealed.LARGEST_JSON:
        raise access.too_large(where, first, sealed.LARGEST_JSON)
    head = sealed.typed(_Head, sealed.unseal(location.read_start(file, first)[line.end() :], where), where)
    data = location.read_bytes(file, first + sum(entry.size for entry in head.arrays))
    if digest is not None and sealed.sha256(data) != digest:
        raise DamagedStoreError(f"{where} was altered or cut short")
    arrays = {}
    for entry in head.arrays:
        own = data[first : first + entry.size]
        if sealed.sha256(own) != entry.sha256 or entry.dtype not in _DTYPES:
            raise DamagedStoreError(f"{where} was altered or cut short: array {entry.name} is not as it was")
        try:
            arrays[entry.name] = sealed.array_from_npy(own, np.dtype(entry.dtype), finite=False)
        except ValueError as error:
            raise DamagedStoreError(f"{where}, array {entry.name}: {error}") from None
        first += entry.size
    return Record(head.value, arrays)


@dataclass(frozen=True)
class _PartEntry:
    """A result that a checkpoint names, in a file of its own."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class _Saved:
    """The value of a checkpoint."""

    fingerprint: dict[str, Any]
    finished: dict[str, _PartEntry]
    running: tuple[str, Any] | None


class CheckpointFolder:
    """The checkpoints of one computation. Whoever writes to it holds its lock."""

    def __init__(self, location: Location, keep: int = DEFAULT_KEPT) -> None:
        self.location = location
        self.keep = keep
        self._written: dict[str, dict[str, Any]] = {}
        self._named: dict[int, set[str]] = {}

    def check_own(self) -> None:
        """An error if the folder holds files of others, or cannot be written to."""
        self.location.check_writable()
        foreign = [name for name in self.location.names(folders=True) if name != "wip" and not _OURS.fullmatch(name)]
        if foreign:
            raise StoreExistsError(
                f"{self.location.url} holds other files, such as {foreign[0]}; checkpoints need a folder of their own, "
                "so choose another path"
            )

    def save(
        self, fingerprint: Mapping[str, Any], finished: Mapping[str, Record | None], running: tuple[str, Record] | None
    ) -> None:
        """Write a checkpoint; the ones before stay whole until it is.

        A result in `finished` is None if this folder has written or read it already.
        """
        parts = {name: self._part(name, result) for name, result in finished.items()}
        state = None if running is None else [running[0], running[1].value]
        value = {"fingerprint": dict(fingerprint), "finished": parts, "running": state}
        number = max(self._numbers(), default=0) + 1
        data = packed(value, {} if running is None else running[1].arrays)
        self.location.write_bytes(_file_of(number), data)
        self._named[number] = {part["file"] for part in parts.values()}
        self._prune()

    def load(self) -> Loaded | None:
        """The newest checkpoint that can be read; None if there is none, an error if all are damaged."""
        damaged: list[str] = []
        for number in self._numbers():
            try:
                return self._read(number, damaged)
            except DamagedStoreError as error:
                damaged.append(str(error))
            except FileNotFoundError as error:
                damaged.append(f"a file is missing ({error})")
        if damaged:
            raise DamagedStoreError(
                f"no checkpoint at {self.location.url} can be read: {'; '.join(damaged)}; take the folder from a copy, "
                "or remove it to begin again"
            )
        return None

    def newest(self) -> int | None:
        """The number of the newest checkpoint; None if there is none."""
        return next(iter(self._numbers()), None)

    def clear(self) -> None:
        """Remove all checkpoints."""
        for name in [*map(_file_of, self._numbers()), *self.location.names()]:
            if _OURS.fullmatch(name):
                self.location.remove(name)
        self._written.clear()
        self._named.clear()

    def _numbers(self) -> list[int]:
        """The numbers of the checkpoints that are there, newest first."""
        found = (_CHECKPOINT.fullmatch(name) for name in self.location.names())
        return sorted((int(match[1]) for match in found if match is not None), reverse=True)

    def _part(self, name: str, result: Record | None) -> dict[str, Any]:
        """Where a result is written; it is written now if it was not before."""
        if result is not None:
            data = packed(result.value, result.arrays)
            digest = sealed.sha256(data)
            file = f"part-{digest[:16]}.plmix"
            self.location.write_bytes(file, data)
            self._written[name] = {"file": file, "size": len(data), "sha256": digest}
        return self._written[name]

    def _read(self, number: int, damaged: list[str]) -> Loaded:
        saved, arrays = self._saved(number)
        finished = {name: self._read_part(part) for name, part in saved.finished.items()}
        running = None if saved.running is None else (saved.running[0], Record(saved.running[1], arrays))
        self._written = {name: asdict(part) for name, part in saved.finished.items()}
        return Loaded(number, saved.fingerprint, finished, running, damaged)

    def _saved(self, number: int) -> tuple[_Saved, dict[str, NDArray[Any]]]:
        """What a checkpoint holds, and the arrays of the loop that ran."""
        file = _file_of(number)
        record = _unpacked(self.location, file)
        return sealed.typed(_Saved, record.value, f"{self.location.url}/{file}"), record.arrays

    def _read_part(self, part: _PartEntry) -> Record:
        if not _PART.fullmatch(part.file):
            raise DamagedStoreError(f"{part.file!r} cannot be a file of a checkpoint")
        return _unpacked(self.location, part.file, part.sha256)

    def _prune(self) -> None:
        """Remove all but the last checkpoints, the parts that no kept one names, and drafts of a killed process."""
        numbers = self._numbers()
        kept, old = numbers[: self.keep], numbers[self.keep :]
        needed = set().union(*(self._parts_named(number) for number in kept))
        for number in old:
            self.location.remove(_file_of(number))
            self._named.pop(number, None)
        for name in self.location.names():
            if _DRAFT.fullmatch(name) or (_PART.fullmatch(name) and name not in needed):
                self.location.remove(name)

    def _parts_named(self, number: int) -> set[str]:
        if number not in self._named:
            try:
                self._named[number] = {part.file for part in self._saved(number)[0].finished.values()}
            except (DamagedStoreError, UnsupportedFormatError, FileNotFoundError):
                self._named[number] = set()
        return self._named[number]


def _file_of(number: int) -> str:
    return f"checkpoint-{number:06d}.plmix"
