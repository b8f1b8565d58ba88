"""The state of an algorithm as arrays and JSON, and back: what a checkpoint holds. Nothing is pickled.

A state is a tree of NamedTuples, dataclasses, tuples, lists, dicts, arrays and plain values. Classes are written by
name; only those that were declared `savable` can be written and read.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from plmix_dist import errors
from plmix_dist.errors import DamagedStoreError, FitError
from plmix_dist.rankings import RankingBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
Class = TypeVar("Class", bound=type)

DTYPES = ("float64", "int64", "int32", "bool", "uint8", "uint16", "uint32", "uint64")
_KINDS = ("array", "number", "error", "dict", "tuple", "list")
_BY_NAME: dict[str, Any] = {}


def savable(known: Class) -> Class:
    """Declare a NamedTuple or dataclass that may be part of a saved state; a decorator.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> @savable
    ... class Half(NamedTuple):
    ...     number: int
    >>> to_plain(Half(3))[0]
    {'Half': [3]}
    """
    name = known.__name__
    other = _BY_NAME.setdefault(name, known)
    assert other.__module__ == known.__module__, f"two savable classes are called {name}"
    assert name not in _KINDS
    _BY_NAME[name] = known
    return known


savable(RankingBlock)


def to_plain(state: Any) -> tuple[Plain, dict[str, NDArray[Any]]]:
    """A state as a value for JSON, and the arrays it refers to by name.

    Examples
    --------
    >>> from plmix_dist.inference.point import Point
    >>> plain, arrays = to_plain(Point(np.zeros((1, 2)), np.zeros(1), np.zeros(1)))
    >>> plain
    {'Point': [{'array': '0'}, {'array': '1'}, {'array': '2'}]}
    >>> sorted(arrays)
    ['0', '1', '2']
    """
    arrays: dict[str, NDArray[Any]] = {}
    names: dict[int, str] = {}

    def written(value: Any) -> Plain:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return _written_scalar(value)
        if isinstance(value, np.ndarray):
            if id(value) not in names:
                names[id(value)] = str(len(arrays))
                arrays[names[id(value)]] = value
            return {"array": names[id(value)]}
        if isinstance(value, FitError):
            return {"error": [type(value).__name__, str(value)]}
        if isinstance(value, dict):
            return {"dict": [[key, written(entry)] for key, entry in value.items()]}
        if type(value) in (tuple, list):
            return {type(value).__name__: [written(entry) for entry in value]}
        if _BY_NAME.get(type(value).__name__) is type(value):
            return {type(value).__name__: [written(entry) for entry in _entries(value)]}
        raise TypeError(f"a state holds {type(value).__name__}, which cannot be saved")

    return written(state), arrays


def _written_scalar(value: bool | int | float | str | None) -> Plain:
    """The value itself, or its name where JSON has no word for it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value


def _entries(value: Any) -> list[Any]:
    """What an instance of a savable class is made from."""
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return list(value)


def from_plain(plain: Plain, arrays: dict[str, NDArray[Any]]) -> Any:
    """The state that `to_plain` wrote.

    Examples
    --------
    >>> from plmix_dist.inference.point import Point
    >>> point = Point(np.zeros((1, 2)), np.zeros(1), np.zeros(1))
    >>> from_plain(*to_plain(point))
    Point(log_worths=array([[0., 0.]]), ghosts=array([0.]), log_shares=array([0.]))
    """
    if not isinstance(plain, dict):
        if isinstance(plain, list):
            raise DamagedStoreError("a saved state holds a list where a value is expected")
        return plain
    if len(plain) != 1:
        raise DamagedStoreError(f"a saved state holds {sorted(plain)} where one kind is expected")
    ((kind, content),) = plain.items()
    try:
        return _read(kind, content, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedStoreError(f"a saved state cannot be read: {kind!r} holds {error}") from None


def _read(kind: str, content: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if kind == "array":
        array = arrays[content]
        if array.dtype.name not in DTYPES:
            raise DamagedStoreError(f"a saved state holds an array of {array.dtype}")
        return array
    if kind == "number":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
    if kind == "error":
        name, message = content
        known = getattr(errors, name)
        if not (isinstance(known, type) and issubclass(known, FitError)):
            raise DamagedStoreError(f"a saved state names the error {name!r}, which is none of a fit")
        return known(message)
    if kind == "dict":
        return {str(key): from_plain(entry, arrays) for key, entry in content}
    entries = [from_plain(entry, arrays) for entry in content]
    if kind == "list":
        return entries
    return tuple(entries) if kind == "tuple" else _BY_NAME[kind](*entries)
