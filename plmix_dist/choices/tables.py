"""Tables for people: a pandas frame where pandas is installed, a Polars frame, an Arrow table, or a dict of arrays."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.values import one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("auto", "pandas", "polars", "arrow", "dict")


def table_of(columns: Mapping[str, Any], kind: str = "auto") -> Any:
    """A table from columns of equal length.

    Parameters
    ----------
    columns
        Names, and arrays (n_rows,).
    kind
        "pandas", "polars", "arrow", "dict" (of arrays), or "auto": pandas if it is installed, else a dict.

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
    library = "polars" if kind == "polars" else "pandas"
    try:
        frames: Any = importlib.import_module(library)
    except ImportError:
        if kind != "auto":
            raise SettingsError(f'{library} is not installed; install it, or choose table="dict"') from None
        return arrays
    if kind == "polars":  # labels may be an array of Python's own text, which Polars takes as a list
        return frames.DataFrame(
            {
                name: values.tolist() if values.dtype.kind in "OU" else values
                for name, values in arrays.items()
            }
        )
    return frames.DataFrame(arrays)
