"""Features: tables of numbers that explain worths, of items or of every item in every row; as users give them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.columns import Floats
from plmix_dist.settings import numbers, real_number, yes_or_no

# Squares of larger numbers, summed over many rows, could leave float64.
_LARGEST = 1e100


@dataclass(frozen=True, eq=False)
class Features:
    """A table of features and how its coefficients are estimated: for `item_features` or `features` of `fit`.

    Parameters
    ----------
    values
        Of items: an array (n_items, n_features), or by item name: a dict, a pandas table or Series (by its index), or a
        table with a column `item`. Of rows: an array (total listed, n_features) or a table, row after row, in the order
        of what each row lists; of rows (chosen, offered) in the order of `offered`. Or names of columns of a store.
    ridge
        Strength of a normal prior of coefficients: its precision.
    standardised
        Whether the ridge is that of columns divided by their standard deviation within choices, or of columns as they
        are.
    intercepts
        Whether items have worths of their own too. Beside features of items these need a prior (alpha above 0).
    shared
        Whether all components have the same coefficients.
    names : (n_features,)
        Names of the columns; those of a table by default. After a fit, columns with names go by name, in any order;
        those of an array go by position.

    Examples
    --------
    >>> colours = plm.Features([[1.0, 0.0], [0.0, 1.0]], names=["dark", "sweet"], shared=True)
    >>> colours.names, colours.shared
    (('dark', 'sweet'), True)
    """

    values: Any
    ridge: float = 0.0
    intercepts: bool = False
    shared: bool = False
    names: Sequence[str] | None = None
    standardised: bool = True

    def __post_init__(self) -> None:
        real_number("ridge", self.ridge, at_least=0)
        for name in ("intercepts", "shared", "standardised"):
            yes_or_no(name, getattr(self, name))
        if self.names is not None:
            object.__setattr__(self, "names", tuple(map(str, self.names)))

    @classmethod
    def of(cls, given: Any) -> Features | None:
        """What a user gave: such a value, a table alone, or None."""
        return given if given is None or isinstance(given, cls) else cls(given)

    @property
    def columns_of_store(self) -> tuple[str, ...] | None:
        """The names of the columns of a store that are meant; None if values are given."""
        named = [self.values] if isinstance(self.values, str) else self.values
        is_named = isinstance(named, list | tuple) and named and all(isinstance(one, str) for one in named)
        return tuple(named) if is_named else None


class Table(NamedTuple):
    """Checked numbers (n_rows, n_columns) and the names of the columns; those of rows stay float32 if given so."""

    values: Floats
    names: tuple[str, ...]
    is_named: bool = True  # otherwise the names were made here, by number

    def of_fit(self, known: Sequence[str], what: str = "features") -> Table:
        """The columns that a fitted model knows, in its order; an error if these are others."""
        given = self.names if self.is_named else len(self.names)
        return Table(self.values[:, columns_of_fit(known, given, what)], tuple(known))


def columns_of_fit(known: Sequence[str], given: Sequence[str] | int, what: str = "features") -> list[int] | slice:
    """Where the columns that a fitted model knows stand among those given: by name, or by position if given by number.

    `known` is empty if the fit had no such features, and `given` is 0 if there are none now.

    Examples
    --------
    >>> columns_of_fit(["price", "size"], ["size", "price"]), columns_of_fit(["price", "size"], 2)
    ([1, 0], slice(None, None, None))
    """
    if not known and given:
        raise SettingsError(f"this model has no coefficients of {what}; leave {what} out, or fit with them")
    listed = f"{len(known)} {what}: {', '.join(known)}"
    if known and not given:
        raise SettingsError(f"this model has coefficients of {listed}; give those of these rows too ({what}=)")
    if isinstance(given, int):
        if given != len(known):
            raise SettingsError(f"{what} have {given} columns, but the model was fitted with {listed}")
        return slice(None)
    if tuple(given) == tuple(known):
        return slice(None)  # nothing is copied
    wrong = [f"{name!r} is missing" for name in known if name not in given]
    wrong += [f"{name!r} is not known" for name in given if name not in known]
    if wrong:
        raise SettingsError(
            f"the model was fitted with {listed}; in what is given, {', '.join(wrong)}; give these columns in any "
            "order, or an array in this order"
        )
    return [list(given).index(name) for name in known]


def names_of_columns(values: Any) -> tuple[str, ...]:
    """The names of the columns of a table, or of one column with a name; none of an array.

    Examples
    --------
    >>> import pandas as pd
    >>> names_of_columns(pd.DataFrame({"age": [1]})), names_of_columns(np.ones((1, 1)))
    (('age',), ())
    """
    if hasattr(values, "to_frame") and not hasattr(values, "columns"):
        return () if values.name is None else (str(values.name),)
    labels = list(getattr(values, "column_names", getattr(values, "columns", [])))
    return () if labels == list(range(len(labels))) else tuple(map(str, labels))


class _Given(NamedTuple):
    """What a user gave, as numbers of any shape; the names of columns and the items of lines, if there are any."""

    values: Floats
    names: tuple[str, ...] | None = None
    items: list[str] | None = None


def _given(what: str, values: Any, *, by_item: bool = False) -> _Given:
    """The parts of an array, a table, a column with a name, or a dict of items."""
    if by_item and isinstance(values, Mapping):
        return _Given(_numbers(what, list(values.values())), items=list(map(str, values)))
    if hasattr(values, "to_frame") and not hasattr(values, "columns"):  # a column of pandas or Polars
        values = values.to_frame()
    labels = getattr(values, "column_names", getattr(values, "columns", None))
    if labels is None:
        return _Given(_numbers(what, values))
    items, labels = None, list(labels)
    refuse_twice("column", list(map(str, labels)), what)
    if by_item and "item" in labels:
        items = list(map(str, np.asarray(values["item"]).tolist()))
        labels = [label for label in labels if label != "item"]
    elif by_item and hasattr(values, "index"):
        items = list(map(str, values.index))
    # pandas numbers columns that have no names.
    names = None if labels == list(range(len(labels))) else tuple(map(str, labels))
    return _Given(_numbers(what, [np.asarray(values[label]) for label in labels], are_columns=True), names, items)


def refuse_twice(kind: str, names: Sequence[str], what: str) -> None:
    """An error for a name that occurs more than once."""
    if len({*names}) < len(names):
        name, times = Counter(names).most_common(1)[0]
        raise SettingsError(f"{kind} {name!r} occurs {times} times in {what}; give every {kind} a name of its own")


def item_lines(features: Features) -> tuple[list[str] | None, Table]:
    """The items of the lines that a user gave, if these are named, and the lines."""
    given = _given("item_features", features.values, by_item=True)
    refuse_twice("item", given.items or (), "item_features")
    table = _checked("item_features", given.values, features.names or given.names)
    return given.items, table._replace(values=table.values.astype(np.float64))


def item_table(features: Features, item_names: Sequence[str]) -> Table:
    """One line of features per item, in the order of the items.

    Examples
    --------
    >>> found = item_table(Features({"tea": [1.0], "mate": [3.0]}, names=["price"]), ["mate", "tea"])
    >>> found.values.tolist(), found.names
    ([[3.0], [1.0]], ('price',))
    """
    labels, table = item_lines(features)
    if labels is not None:
        place = {name: number for number, name in enumerate(labels)}
        missing = [name for name in item_names if name not in place]
        if missing:
            raise SettingsError(f"item_features have no line for item {missing[0]!r}; add one for every item")
        return table._replace(values=table.values[[place[name] for name in item_names]])
    if hasattr(features.values, "columns"):
        raise SettingsError("a table of item_features needs a column `item` with the names of the items")
    if len(table.values) != len(item_names):
        raise SettingsError(
            f"item_features have {len(table.values)} lines, but there are {len(item_names)} items; give one line per "
            "item, in the order of item_names_, or a table by item name"
        )
    return table


def row_table(features: Features, n_listed: NDArray[np.integer] | None = None) -> Table:
    """One line of features per listed item of every row; `n_listed` (n_rankings,) says how many items each lists."""
    given = _given("features", features.values)
    found = given.values
    if n_listed is not None and found.ndim == 3:
        _check_rows(found.shape, n_listed)
        found = found.reshape(found.shape[0] * found.shape[1], found.shape[2])
    table = _checked("features", found, features.names or given.names)
    if n_listed is not None and len(table.values) != n_listed.sum(dtype=np.int64):
        raise SettingsError(
            f"features have {len(table.values):,} lines, but {len(n_listed):,} rankings list {n_listed.sum():,} items "
            "in all; give one line for each item that a row lists or offers, row after row"
        )
    return table


def _check_rows(shape: tuple[int, ...], n_listed: NDArray[np.integer]) -> None:
    """An error if an array (n_rankings, n_offered, n_features) has another shape than the rankings."""
    other = np.flatnonzero(n_listed != shape[1])
    if shape[0] == len(n_listed) and not len(other):
        return
    found = f"there are {len(n_listed):,} rankings"
    if len(other):
        found += f", and ranking {other[0]} (from 0) lists {n_listed[other[0]]} items"
    raise SettingsError(
        f"features of the shape {shape} are those of {shape[0]:,} rankings of {shape[1]:,} items each, but {found}; "
        "give them in the shape (n_rankings, n_offered, n_features), or one line for each item, row after row"
    )


def check_finite(what: str, table: Floats, remedy: str) -> None:
    """An error for a number that is not finite, or too large to be summed."""
    wrong = np.argwhere(~(np.abs(table) <= min(_LARGEST, float(np.finfo(table.dtype).max))))
    if len(wrong):
        row, column = (int(number) for number in wrong[0])
        raise SettingsError(
            f"{what}[{row}, {column}] is {table[row, column]}, but must be finite and at most {_LARGEST:g}; {remedy}"
        )


def _numbers(what: str, values: Any, *, are_columns: bool = False) -> Floats:
    """An array of float64, of any shape; one of float32 stays as it is, because large tables are not copied."""
    try:
        if are_columns:  # one by one, because numbers and booleans of pandas together are objects
            values = np.column_stack(values) if values else np.zeros((0, 0))
        if isinstance(values, np.ma.MaskedArray):  # what is masked is missing
            values = np.ma.filled(values.astype(np.result_type(values.dtype, np.float32)), np.nan)
        if isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64):
            return np.asarray(values)  # no matrix
        return numbers(what, values)
    except (TypeError, ValueError):
        raise SettingsError(
            f"{what} must be numbers, as many in every line; code categories as columns of 0 and 1"
        ) from None


def _checked(what: str, found: Floats, names: Sequence[str] | None) -> Table:
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or not found.shape[1]:
        raise SettingsError(f"{what} must be a table with at least one column, but have the shape {found.shape}")
    check_finite(what, found, "fill the value in, or leave the ranking out")
    made = tuple(f"{what.removesuffix('s')} {number}" for number in range(found.shape[1]))
    if names is None:
        return Table(found, made, is_named=False)
    if len(names) != len(made):
        raise SettingsError(f"{what} have {len(made)} columns, but {len(names)} names: {', '.join(names)}")
    refuse_twice("column", names, what)
    return Table(found, tuple(names))
