"""Tables for people: a pandas frame where pandas is installed, an Arrow table, or a dict of arrays."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.values import one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("auto", "pandas", "arrow", "dict")


def table_of(columns: Mapping[str, Any], kind: str = "auto") -> Any:
    """A table from columns of equal length.

    Parameters
    ----------
    columns
        Names, and arrays (n_rows,).
    kind
        "pandas", "arrow", "dict" (of arrays), or "auto": pandas if it is installed, else a dict.

    Examples
    --------
    >>> table_of({"item": ["tea", "mate"], "worth": [0.75, 0.25]}, "dict")["worth"].tolist()
    [0.75, 0.25]
    >>> table_of({"item": ["tea", "mate"]}, "arrow").num_rows
    2
    """
    one_of("table", kind, KINDS)
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    if kind == "arrow":
        import pyarrow as pa

        return pa.table({name: pa.array(values.tolist()) for name, values in arrays.items()})
    if kind == "dict":
        return arrays
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        if kind == "pandas":
            raise SettingsError('pandas is not installed; install it, or choose table="dict"') from None
        return arrays
    return pandas.DataFrame(arrays)
