"""How K was chosen: any table with one row per number of components, as plain records for the page and for plots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from plmix_dist.errors import SettingsError
from plmix_dist.values import shown

_NUMBER = ("n_components", "K", "k", "components")
# Of these, smaller is better; of all others, larger is.
_SMALLER_IS_BETTER = ("bic", "aic", "icl", "dic", "waic", "loss")


class SelectionTable(NamedTuple):
    """Numbers of components, and what was computed for each.

    Parameters
    ----------
    n_components
        One per row.
    columns
        The other columns that hold numbers, by name.
    """

    n_components: list[int]
    columns: dict[str, list[float]]

    def best(self, name: str) -> int:
        """The number of components that is best by a column.

        Examples
        --------
        >>> table = selection_table([{"n_components": 1, "bic": 20.0}, {"n_components": 2, "bic": 10.0}])
        >>> table.best("bic")
        2
        """
        sign = -1.0 if smaller_is_better(name) else 1.0
        values = [sign * value if math.isfinite(value) else -math.inf for value in self.columns[name]]
        return self.n_components[values.index(max(values))]


def smaller_is_better(name: str) -> bool:
    """Whether the smallest value of a column is the best: for criteria such as BIC.

    Examples
    --------
    >>> smaller_is_better("bic"), smaller_is_better("held_out")
    (True, False)
    """
    return any(word in name.lower() for word in _SMALLER_IS_BETTER)


def selection_table(table: Any) -> SelectionTable:
    """Read a table: records, a dict of columns, a pandas or Polars frame, an Arrow table, or what has one as `table_`.

    Examples
    --------
    >>> selection_table({"n_components": [2, 3], "bic": [11.0, 10.0], "note": ["a", "b"]}).columns
    {'bic': [11.0, 10.0]}
    """
    records = _records(getattr(table, "table_", table))
    if not records:
        raise SettingsError("the selection has no rows; give one record per number of components")
    names = list(dict.fromkeys(name for record in records for name in record))
    number = next((name for name in _NUMBER if name in names), None)
    if number is None:
        raise SettingsError(
            f"the selection needs a column n_components, but has {', '.join(map(str, names))}"
        )
    rows = sorted(records, key=lambda record: int(record[number]))
    columns = {
        str(name): [_number(record.get(name)) for record in rows]
        for name in names
        if name != number and any(math.isfinite(_number(record.get(name))) for record in rows)
    }
    return SelectionTable([int(record[number]) for record in rows], columns)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return math.nan
    return float(value)


def _records(table: Any) -> list[dict[str, Any]]:
    for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):
        if hasattr(table, method) and not isinstance(table, Mapping):
            return list(getattr(table, method)(*arguments))
    if isinstance(table, Mapping):
        if isinstance(table.get("table"), list):
            return _records(table["table"])
        names = list(table)
        return [dict(zip(names, row, strict=True)) for row in zip(*table.values(), strict=True)]
    if isinstance(table, list | tuple) and all(isinstance(record, Mapping) for record in table):
        return [dict(record) for record in table]
    raise SettingsError(f"the selection must be a table or a list of records, but is {shown(table)}")
