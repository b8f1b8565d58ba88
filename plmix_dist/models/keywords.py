"""Keywords that many methods of estimators share, each declared once; `help` and completion show them one by one."""

from __future__ import annotations

import inspect
from functools import wraps
from types import FunctionType
from typing import Any, ForwardRef, TypedDict, TypeVar, cast

from numpy.typing import ArrayLike

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.rankings import Unranked


class _OfRows(TypedDict, total=False):
    """How rows are read, and where."""

    unranked: Unranked | None
    client: ClientLike
    features: Any


class OfWeights(_OfRows, total=False):
    """Of methods that take the rankings of a fit, with their weights."""

    sample_weight: ArrayLike | None


class OfFit(OfWeights, total=False):
    """Of `fit`."""

    n_items: int | None


class OfPersons(_OfRows, total=False):
    """Of methods that give a result per row or person."""

    membership_covariates: ArrayLike | None


class OfTotals(OfWeights, OfPersons, total=False):
    """Of methods that give one number for all rows."""


class OfFitToPersons(OfFit, OfPersons, total=False):
    """Of `fit` where shares may depend on covariates."""


class OfPredictions(OfPersons, total=False):
    """Of predictions: for the mixture or for components, without rows or given some, as an array or as a table."""

    component: int | str | None
    given: Any
    named: bool | str


_Method = TypeVar("_Method")
_PREFIX = "Unpack["


def spell_out(cls: type) -> None:
    """Spell out all methods of a class; other classes inherit them so."""
    for name, method in list(vars(cls).items()):
        if getattr(method, "__annotations__", {}).get("how", "").startswith(_PREFIX):
            setattr(cls, name, spelled_out(method))


def spelled_out(method: _Method) -> _Method:
    """A method with `**how: Unpack[...]` that shows and takes these keywords alone; None by default, but for flags."""
    made = cast("FunctionType", method)
    declared = globals()[made.__annotations__["how"].removeprefix(_PREFIX).removesuffix("]")].__annotations__
    signature = inspect.signature(made)
    *first, _ = signature.parameters.values()
    known = {*declared, *(each.name for each in first)}

    def checked(*arguments: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in known:
                raise TypeError(f"{made.__qualname__}() got an unexpected keyword argument {name!r}")
        return made(*arguments, **keywords)

    # With the globals of its module, so that doctest knows where it is from.
    found = wraps(made)(FunctionType(checked.__code__, made.__globals__, closure=checked.__closure__))
    more = [_parameter(name, annotation) for name, annotation in declared.items()]
    vars(found)["__signature__"] = signature.replace(parameters=[*first, *more])
    return cast("_Method", found)


def _parameter(name: str, annotation: ForwardRef) -> inspect.Parameter:
    default = False if name == "named" else None
    words = annotation.__forward_arg__
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=words)
