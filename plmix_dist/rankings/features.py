"""Features: tables of numbers that explain worths, of items or of every item in every row; as users give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.columns import Floats
from plmix_dist.settings import numbers, real_number, shown, yes_or_no

# Squares of larger numbers, summed over many rows, could leave float64.
_LARGEST = 1e100


@dataclass(frozen=True, eq=False)
class Features:
    """A table of features and how its coefficients are estimated: for `item_features` or `features` of `fit`.

    Parameters
    ----------
    values
        Of items: an array (n_items, n_features), or a table or dict by item name. Of rows: an array (total listed,
        n_features) or a table, row after row, in the order of what each row lists or offers.
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
        Names of the columns; those of a table by default.

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


class Table(NamedTuple):
    """Checked numbers (n_rows, n_columns) and the names of the columns; those of rows stay float32 if given so."""

    values: Floats
    names: tuple[str, ...]


def item_table(features: Features, item_names: Sequence[str]) -> Table:
    """One line of features per item, in the order of the items.

    Examples
    --------
    >>> found = item_table(Features({"tea": [1.0], "mate": [3.0]}, names=["price"]), ["mate", "tea"])
    >>> found.values.tolist(), found.names
    ([[3.0], [1.0]], ('price',))
    """
    values, labels = features.values, None
    if isinstance(values, Mapping) and not hasattr(values, "columns"):
        labels, values = [str(name) for name in values], list(values.values())
    elif hasattr(values, "columns"):
        values, labels = _labelled(values)
    table = _checked("item_features", values, features.names)
    table = table._replace(values=table.values.astype(np.float64))
    if labels is not None:
        place = {name: number for number, name in enumerate(labels)}
        missing = [name for name in item_names if name not in place]
        if missing:
            raise SettingsError(f"item_features have no line for item {missing[0]!r}; add one for every item")
        return table._replace(values=table.values[[place[name] for name in item_names]])
    if len(table.values) != len(item_names):
        raise SettingsError(
            f"item_features have {len(table.values)} lines, but there are {len(item_names)} items; give one line per "
            "item, in the order of item_names_, or a table by item name"
        )
    return table


def _labelled(frame: Any) -> tuple[Any, list[str]]:
    """A frame without the column that names the items, and these names: a column `item`, or the index of pandas."""
    if "item" in list(frame.columns):
        labels = [str(name) for name in frame["item"]]
        rest = [name for name in frame.columns if name != "item"]
        return frame[rest], labels
    if hasattr(frame, "index") and not isinstance(frame, dict):
        return frame, [str(name) for name in frame.index]
    raise SettingsError("a table of item_features needs a column `item` with the names of the items")


def row_table(features: Features, n_entries: int | None, n_rankings: int = 1) -> Table:
    """One line of features per listed item of every row."""
    values = features.values
    if not hasattr(values, "columns") and np.ndim(values) == 3:  # rows of one length
        values = np.reshape(values, (-1, np.shape(values)[2]))
    table = _checked("features", values, features.names)
    if n_entries is not None and len(table.values) != n_entries:
        raise SettingsError(
            f"features have {len(table.values):,} lines, but {n_rankings:,} rankings list {n_entries:,} items in all; "
            "give one line for each item that a row lists or offers, row after row"
        )
    return table


def check_finite(what: str, table: Floats, remedy: str) -> None:
    """An error for a number that is not finite, or too large to be summed."""
    wrong = np.argwhere(~(np.abs(table) <= min(_LARGEST, float(np.finfo(table.dtype).max))))
    if len(wrong):
        row, column = (int(number) for number in wrong[0])
        raise SettingsError(
            f"{what}[{row}, {column}] is {table[row, column]}, but must be finite and at most {_LARGEST:g}; {remedy}"
        )


def _checked(what: str, values: Any, names: Sequence[str] | None) -> Table:
    if hasattr(values, "columns"):
        names = tuple(map(str, values.columns)) if names is None else names
        values = values.to_numpy() if hasattr(values, "to_numpy") else np.column_stack([values[one] for one in names])
    is_float = isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64)
    try:
        found: Any = values if is_float else numbers(what, values)  # large tables stay as they are
    except (TypeError, ValueError):
        raise SettingsError(f"{what} must be numbers; code categories as columns of 0 and 1") from None
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or not found.shape[1]:
        raise SettingsError(f"{what} must be a table with at least one column, but are {shown(values)}")
    check_finite(what, found, "fill the value in, or leave the ranking out")
    if names is not None and len(names) != found.shape[1]:
        raise SettingsError(f"{what} have {found.shape[1]} columns, but {len(names)} names: {', '.join(names)}")
    return Table(found, tuple(names or (f"{what.rstrip('s')} {number}" for number in range(found.shape[1]))))
