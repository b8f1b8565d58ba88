"""The state of an algorithm as arrays and JSON, and back: what a checkpoint holds. Nothing is pickled.

A state is a tree of NamedTuples, tuples, dicts, arrays and plain values. NamedTuples are written with the name of their
class; only classes that are listed here can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from plmix_dist import errors
from plmix_dist.errors import DamagedStoreError, FitError
from plmix_dist.inference.anderson import AndersonMemory
from plmix_dist.inference.covariates import CovariateState, SharePoint
from plmix_dist.inference.em import EmState, Inner
from plmix_dist.inference.fixed_point import Evaluation, Good, Iteration
from plmix_dist.inference.gibbs import GibbsState
from plmix_dist.inference.hessian import Hessian
from plmix_dist.inference.map_em import MapState
from plmix_dist.inference.newton import NewtonState
from plmix_dist.inference.point import Point
from plmix_dist.inference.together import TogetherState

if TYPE_CHECKING:
    from numpy.typing import NDArray

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

# To make the states of another algorithm savable, add their classes here.
_CLASSES: tuple[Any, ...] = (
    AndersonMemory,
    CovariateState,
    EmState,
    Evaluation,
    GibbsState,
    Good,
    Hessian,
    Inner,
    Iteration,
    MapState,
    NewtonState,
    Point,
    SharePoint,
    TogetherState,
)
_BY_NAME = {known.__name__: known for known in _CLASSES}
_DTYPES = (np.float64, np.int64, np.bool_)


def to_plain(state: Any) -> tuple[Plain, dict[str, NDArray[Any]]]:
    """A state as a value for JSON, and the arrays it refers to by name.

    Examples
    --------
    >>> plain, arrays = to_plain(Point(np.zeros((1, 2)), np.zeros(1), np.zeros(1)))
    >>> plain
    {'Point': [{'array': '0'}, {'array': '1'}, {'array': '2'}]}
    >>> sorted(arrays)
    ['0', '1', '2']
    """
    arrays: dict[str, NDArray[Any]] = {}

    def written(value: Any) -> Plain:
        if value is None or isinstance(value, bool | int | float | str):
            return value.item() if isinstance(value, np.generic) else value
        if isinstance(value, np.ndarray):
            arrays[str(len(arrays))] = value
            return {"array": str(len(arrays) - 1)}
        if isinstance(value, FitError):
            return {"error": [type(value).__name__, str(value)]}
        if isinstance(value, dict):
            return {"dict": [[key, written(entry)] for key, entry in value.items()]}
        if type(value) is tuple:
            return {"tuple": [written(entry) for entry in value]}
        if type(value) in _CLASSES:
            return {type(value).__name__: [written(entry) for entry in value]}
        raise TypeError(f"a state holds {type(value).__name__}, which cannot be saved")

    return written(state), arrays


def from_plain(plain: Plain, arrays: dict[str, NDArray[Any]]) -> Any:
    """The state that `to_plain` wrote.

    Examples
    --------
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
        if array.dtype not in _DTYPES:
            raise DamagedStoreError(f"a saved state holds an array of {array.dtype}")
        return array
    if kind == "error":
        name, message = content
        known = getattr(errors, name)
        if not (isinstance(known, type) and issubclass(known, FitError)):
            raise DamagedStoreError(f"a saved state names the error {name!r}, which is none of a fit")
        return known(message)
    if kind == "dict":
        return {str(key): from_plain(entry, arrays) for key, entry in content}
    entries = [from_plain(entry, arrays) for entry in content]
    return tuple(entries) if kind == "tuple" else _BY_NAME[kind](*entries)
