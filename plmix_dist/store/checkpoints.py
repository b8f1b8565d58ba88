"""Checkpoints as files: each is one file that appears in one step, and the last few are kept.

    checkpoint-000017.plmix    where a computation is: the state of the loop that runs, and the results it has so far
    part-3f2a91c07d55.plmix    one such result; written once, and kept while a checkpoint names it

A file is a line of text, a sealed record (JSON), and arrays as `.npy`. The record has the size and digest of every
array, and those of every part that a checkpoint names. So an altered byte is noticed; then the one before is taken.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from plmix_dist.errors import DamagedStoreError, SettingsError, StoreExistsError, UnsupportedFormatError
from plmix_dist.store.location import Location
from plmix_dist.store.manifest import seal, sha256, unseal
from plmix_dist.store.npy import array_from_npy, npy_bytes
from plmix_dist.values import real_number, shown, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

VERSION = 1
DEFAULT_SECONDS = 30.0
DEFAULT_KEPT = 3

_FIRST_LINE = re.compile(rb"plmix-checkpoint (\d{1,9}) (\d{1,12})\n")
_LONGEST_LINE = 64
_CHECKPOINT = re.compile(r"checkpoint-(\d{6,})\.plmix")
_PART = re.compile(r"part-[0-9a-f]{16}\.plmix")
_DRAFT = re.compile(rf"({_CHECKPOINT.pattern}|{_PART.pattern})\.[0-9a-f]{{32}}\.tmp")
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

    path: str | os.PathLike[str] | Location
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
            raise SettingsError(
                f"checkpoint must be a folder, a URL, a Checkpoint or None, but is {shown(given)}"
            )
        return cls(given)


class Record(NamedTuple):
    """What a file holds: a value for JSON, and the arrays it refers to by name."""

    value: Any
    arrays: dict[str, NDArray[Any]]


class Loaded(NamedTuple):
    """A checkpoint that was read.

    Parameters
    ----------
    number
        Its number.
    fingerprint
        What it was computed from.
    finished
        Results, by name.
    running
        The name of the loop that ran, and its state; None between two loops.
    damaged
        Why later checkpoints could not be read.
    """

    number: int
    fingerprint: dict[str, Any]
    finished: dict[str, Record]
    running: tuple[str, Record] | None
    damaged: list[str]


def packed(value: Any, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A value for JSON and arrays, as the bytes of one file.

    Examples
    --------
    >>> unpacked(packed({"a": 1}, {"0": np.zeros(2)}), "file").value
    {'a': 1}
    """
    contents = {name: npy_bytes(array) for name, array in arrays.items()}
    described = [
        {"name": name, "dtype": arrays[name].dtype.name, "size": len(data), "sha256": sha256(data)}
        for name, data in contents.items()
    ]
    head = seal({"value": value, "arrays": described})
    return b"".join([f"plmix-checkpoint {VERSION} {len(head)}\n".encode(), head, *contents.values()])


def unpacked(data: bytes, where: str) -> Record:
    r"""What `packed` was given; an error if any byte was altered.

    Examples
    --------
    >>> unpacked(b"plmix-checkpoint 9 2\n{}", "/data/checkpoint-000001.plmix")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.UnsupportedFormatError: /data/checkpoint-000001.plmix has format version 9, and ...
    """
    line = _FIRST_LINE.match(data, 0, _LONGEST_LINE)
    if line is None:
        raise DamagedStoreError(f"{where} was altered or cut short: it does not begin as a checkpoint does")
    version, size = int(line[1]), int(line[2])
    if version != VERSION:
        raise UnsupportedFormatError(
            f"{where} has format version {version}, and this version of plmix_dist reads version {VERSION}; continue "
            "with the version that wrote it, or remove the folder to begin again"
        )
    first = line.end() + size
    head = unseal(data[line.end() : first], where)
    arrays = {}
    for entry in head["arrays"]:
        own = data[first : first + entry["size"]]
        if sha256(own) != entry["sha256"] or entry["dtype"] not in _DTYPES:
            raise DamagedStoreError(
                f"{where} was altered or cut short: array {entry['name']} is not as it was"
            )
        try:
            arrays[entry["name"]] = array_from_npy(own, np.dtype(entry["dtype"]), finite=False)
        except ValueError as error:
            raise DamagedStoreError(f"{where}, array {entry['name']}: {error}") from None
        first += entry["size"]
    if first != len(data):
        raise DamagedStoreError(f"{where} was altered: {len(data) - first} bytes follow its end")
    return Record(head["value"], arrays)


class CheckpointFolder:
    """The checkpoints of one computation. Whoever writes to it holds its lock.

    Parameters
    ----------
    location
        The folder or URL.
    keep
        How many checkpoints are kept.

    Examples
    --------
    >>> import tempfile
    >>> folder = CheckpointFolder(Location.of(tempfile.mkdtemp()), keep=2)
    >>> for count in range(4):
    ...     folder.save({"seed": 1}, {"look": Record({"rows": 5}, {})}, ("fit", Record(count, {})))
    >>> folder.location.names()
    ['checkpoint-000003.plmix', 'checkpoint-000004.plmix', 'part-...plmix']
    >>> loaded = folder.load()
    >>> loaded.number, loaded.running[1].value, loaded.finished["look"].value
    (4, 3, {'rows': 5})
    """

    def __init__(self, location: Location, keep: int = DEFAULT_KEPT) -> None:
        self.location = location
        self.keep = keep
        self._written: dict[str, dict[str, Any]] = {}
        self._named: dict[int, set[str]] = {}

    def check_own(self) -> None:
        """An error if the folder holds files of others, or cannot be written to."""
        self.location.check_writable()
        foreign = [
            name
            for name in self.location.names(folders=True)
            if name != "wip" and not any(kind.fullmatch(name) for kind in (_CHECKPOINT, _PART, _DRAFT))
        ]
        if foreign:
            raise StoreExistsError(
                f"{self.location.url} holds other files, such as {foreign[0]}; checkpoints need a folder of their own, "
                "so choose another path"
            )

    def save(
        self,
        fingerprint: Mapping[str, Any],
        finished: Mapping[str, Record | None],
        running: tuple[str, Record] | None,
    ) -> None:
        """Write a checkpoint; the ones before stay whole until it is.

        Parameters
        ----------
        fingerprint
            What the computation is made from.
        finished
            Results by name; None for one that this folder has written or read already.
        running
            The name of the loop that runs, and its state.
        """
        parts = {name: self._part(name, result) for name, result in finished.items()}
        value = {
            "fingerprint": dict(fingerprint),
            "finished": parts,
            "running": None if running is None else [running[0], running[1].value],
        }
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
                loaded = self._read(number, damaged)
            except DamagedStoreError as error:
                damaged.append(str(error))
            except FileNotFoundError as error:
                damaged.append(f"a file is missing ({error})")
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                if isinstance(error, UnsupportedFormatError):
                    raise
                damaged.append(f"{self.location.url}/{_file_of(number)} cannot be read: {error!r}")
            else:
                return loaded
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
            if any(kind.fullmatch(name) for kind in (_CHECKPOINT, _PART, _DRAFT)):
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
            digest = sha256(data)
            file = f"part-{digest[:16]}.plmix"
            self.location.write_bytes(file, data)
            self._written[name] = {"file": file, "size": len(data), "sha256": digest}
        return self._written[name]

    def _read(self, number: int, damaged: list[str]) -> Loaded:
        where = f"{self.location.url}/{_file_of(number)}"
        record = unpacked(self.location.read_bytes(_file_of(number)), where)
        value = record.value
        finished = {name: self._read_part(part) for name, part in value["finished"].items()}
        running = None
        if value["running"] is not None:
            name, state = value["running"]
            running = (name, Record(state, record.arrays))
        self._written = dict(value["finished"])
        return Loaded(number, value["fingerprint"], finished, running, damaged)

    def _read_part(self, part: Mapping[str, Any]) -> Record:
        file = part["file"]
        if not _PART.fullmatch(file):
            raise DamagedStoreError(f"{file!r} cannot be a file of a checkpoint")
        where = f"{self.location.url}/{file}"
        data = self.location.read_bytes(file, part["size"])
        if sha256(data) != part["sha256"]:
            raise DamagedStoreError(f"{where} was altered or cut short")
        return unpacked(data, where)

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
                value = unpacked(self.location.read_bytes(_file_of(number)), "").value
                self._named[number] = {part["file"] for part in value["finished"].values()}
            except (
                DamagedStoreError,
                UnsupportedFormatError,
                FileNotFoundError,
                KeyError,
                TypeError,
                AttributeError,
            ):
                self._named[number] = set()
        return self._named[number]


def _file_of(number: int) -> str:
    return f"checkpoint-{number:06d}.plmix"
