"""What every file of ours begins with: JSON sealed by its digest, arrays as `.npy`, and the versions of all formats."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import DamagedStoreError, UnsupportedFormatError
from plmix_dist.settings import shown

# A sealed record that claims to be larger is not read.
LARGEST_JSON = 1 << 28
# The version that is written, and the only one that is read, of each format.
VERSIONS = {"plmix-rankings": 1, "plmix-model": 2, "plmix-model-json": 1, "plmix-checkpoint": 1}


def check_version(format_name: str, found: object, where: str, remedy: str = "install a newer plmix_dist") -> None:
    """An error unless this version of plmix_dist reads that version of a format."""
    readable = VERSIONS[format_name]
    if type(found) is not int or found != readable:
        raise UnsupportedFormatError(
            f"{where} has format version {found!r}, and this version of plmix_dist reads {readable}; {remedy}"
        )


def seal(record: dict[str, Any]) -> bytes:
    """JSON of a record, with the digest of that record in it."""
    return _canonical(record | {"sha256": sha256(_canonical(record))})


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """The record that `seal` was given; an error if any byte was altered."""
    try:
        record = json.loads(data)
        digest = record.pop("sha256")
        # Python reads some JSON that it cannot write: lone surrogates, huge numbers, NaN.
        intact = sha256(_canonical(record)) == digest and seal(record) == data
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise DamagedStoreError(f"{where} was altered or cut short: it is not sealed JSON") from None
    if not intact:
        raise DamagedStoreError(f"{where} was altered: its contents do not match their digest")
    return dict(record)


@dataclass(frozen=True)
class SealedRecord:
    """A dataclass that is kept as sealed JSON."""

    def to_bytes(self) -> bytes:
        """Sealed JSON."""
        return seal(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """From sealed JSON; an error if a byte was altered."""
        return typed(cls, unseal(data, where), where)


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def _canonical(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()


def plain_json(value: Any) -> Any:
    """A value as JSON can hold it: NumPy numbers become Python's, numbers that are not finite become None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Records by their types: what was read from JSON is as a dataclass or TypedDict declares, or an error names the entry.

_Record = TypeVar("_Record")

# Whole numbers in records are counts, sizes and numbers of things.
_WHOLE_NUMBERS = range(1 << 63)
_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number from 0 on", lambda value: type(value) is int and value in _WHOLE_NUMBERS),
    float: ("a number", lambda value: type(value) in (int, float) and abs(value) <= sys.float_info.max),
    str: ("text", lambda value: type(value) is str),
    bool: ("true or false", lambda value: type(value) is bool),
    list: ("a list", lambda value: type(value) is list),
    dict: ("an object", lambda value: type(value) is dict),
}


def typed(kind: type[_Record], value: Any, where: str) -> _Record:
    """A value read from JSON as an instance of a dataclass, or checked against a TypedDict or another annotation.

    A dataclass has no other entries than its fields. A TypedDict may have more: later versions add some. A dictionary
    of annotations may have more too, and may lack any; in brackets, it is that of each entry of a list.

    Examples
    --------
    >>> typed(dict[str, list[int]], {"sizes": [3, -1]}, "index.json")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.DamagedStoreError: index.json was altered: sizes[1] must be a whole number from 0 on, but is -1
    """
    found: _Record = _typed(kind, value, where, "")
    return found


def _typed(kind: Any, value: Any, where: str, name: str) -> Any:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        wanted = [one for one in inner if one is not type(None)]
        return None if value is None else _typed(wanted[0], value, where, name)
    if isinstance(kind, dict) or is_dataclass(kind) or is_typeddict(kind):
        return _typed_record(kind, _plain(dict, value, where, name), where, name)
    if origin is dict:
        entries = _plain(dict, value, where, name)
        return {key: _typed(inner[1], entry, where, _below(name, key)) for key, entry in entries.items()}
    if origin is list or isinstance(kind, list):
        (one,), entries = inner or kind, _plain(list, value, where, name)
        return [_typed(one, entry, where, f"{name}[{n}]") for n, entry in enumerate(entries)]
    if origin is tuple:
        if len(_plain(list, value, where, name)) != len(inner):
            raise _wrong(where, name, f"a list of {len(inner)} entries", value)
        return tuple(_typed(one, value[n], where, f"{name}[{n}]") for n, one in enumerate(inner))
    return _plain(kind, value, where, name)


def _typed_record(kind: Any, record: dict[str, Any], where: str, name: str) -> Any:
    wanted, required, is_open = (kind, frozenset(), True) if isinstance(kind, dict) else _fields_of(kind)
    for missing in sorted(required - record.keys()):
        raise DamagedStoreError(f"{where} was altered: {_below(name, missing)} is missing")
    for other in sorted(record.keys() - wanted.keys()):
        if not is_open:
            raise DamagedStoreError(f"{where} was altered: {_below(name, other)} is not known")
    known = [key for key in record if key in wanted]
    found = record | {key: _typed(wanted[key], record[key], where, _below(name, key)) for key in known}
    return found if is_open else kind(**found)


@cache
def _fields_of(kind: Any) -> tuple[dict[str, Any], frozenset[str], bool]:
    """The entries of a record and their types, those that it must have, and whether it may have others."""
    hints = get_type_hints(kind)
    if is_typeddict(kind):
        return hints, kind.__required_keys__, True
    own = {field.name: hints[field.name] for field in fields(kind)}
    required = (one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING)
    return own, frozenset(required), False


def _plain(kind: Any, value: Any, where: str, name: str) -> Any:
    words, holds = _KINDS[kind]
    if not holds(value):
        raise _wrong(where, name, words, value)
    return value


def _wrong(where: str, name: str, words: str, value: Any) -> DamagedStoreError:
    return DamagedStoreError(f"{where} was altered: {name or 'its record'} must be {words}, but is {shown(value, int)}")


def _below(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


# Arrays as the bytes of a `.npy` file: written without pickles, read only if every claim of the header holds.

_Number = TypeVar("_Number", bound=np.generic)

_MAGIC = b"\x93NUMPY\x01\x00"
# The header exactly as np.save writes it. Nothing in it is evaluated.
_HEADER = re.compile(
    rb"\{'descr': '([^']{1,20})', 'fortran_order': False, 'shape': \(((?:\d{1,18}(?:, \d{1,18})*,?)?)\), \} *\n"
)


def npy_bytes(array: NDArray[Any]) -> bytes:
    """The bytes of a `.npy` file. Arrays of Python objects are refused."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def array_from_npy(data: bytes, dtype: type[_Number] | np.dtype[_Number], *, finite: bool = True) -> NDArray[_Number]:
    """The array that `npy_bytes` was given; a ValueError for another type or size, or numbers that are not finite.

    The claimed size is checked before memory is taken.
    """
    start = len(_MAGIC) + 2
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
        raise ValueError("it does not begin as a .npy file of version 1.0 does")
    body = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    header = _HEADER.fullmatch(data, start, min(body, len(data)))
    if header is None:
        raise ValueError("its .npy header is not that of a plain array in C order")
    shape = tuple(int(n) for n in header[2].replace(b",", b" ").split())
    wanted, found = np.dtype(dtype), header[1].decode("latin-1")
    if found != wanted.str:
        raise ValueError(f"expected an array of {wanted}, but the header says {found!r} of shape {shape}")
    if math.prod(shape) * wanted.itemsize != len(data) - body:
        raise ValueError(f"its header claims {wanted} of shape {shape}, but {len(data) - body:,} bytes follow it")
    array: NDArray[_Number] = np.frombuffer(data, wanted, offset=body).reshape(shape).copy()
    if finite and wanted.kind in "fc" and not np.isfinite(array).all():
        raise ValueError("it holds numbers that are not finite")
    return array
