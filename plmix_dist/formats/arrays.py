"""NumPy and Dask arrays as a source: items numbered from 0, best first, -1 after the end of a row."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.formats.raw_rows import Failure, RawRows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_array(table: NDArray[Any], weights: NDArray[Any] | None, first_row: int) -> RawRows:
    """The rows of an integer array.

    Parameters
    ----------
    table : (rows, places)
    weights : (rows,) or None
    first_row
        Number of the first row, for messages.

    Examples
    --------
    >>> rows = read_array(np.array([[0, 1], [1, -1], [-1, 0]]), None, first_row=0)
    >>> rows.n_listed.tolist(), [failure.message for failure in rows.failures]
    ([2, 1], ['an item follows a missing place (-1)'])
    """
    check_array(table)
    table = table.astype(table.dtype.newbyteorder("="), copy=False)
    listed = table != -1
    n_listed = np.count_nonzero(listed, axis=1)
    torn = (listed[:, 1:] & ~listed[:, :-1]).any(axis=1)
    numbers = np.arange(first_row, first_row + len(table))
    failures = [
        Failure(
            int(numbers[row]), "gap", "an item follows a missing place (-1)", text=str(table[row].tolist())
        )
        for row in np.flatnonzero(torn).tolist()
    ]
    keep = ~torn
    return RawRows(
        labels=pa.array(table[keep][listed[keep]]),
        n_listed=n_listed[keep],
        weights=None if weights is None else np.asarray(weights, np.float64)[keep],
        lines=numbers[keep],
        failures=failures,
    )


def check_array(table: NDArray[Any]) -> None:
    """An error if a NumPy or Dask array cannot hold rankings.

    Examples
    --------
    >>> check_array(np.zeros(3))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.IngestError: expected an integer array of shape (rankings, places), but got float64 of shape (3,)
    """
    if isinstance(table, np.ma.MaskedArray):
        raise IngestError("masked arrays are not taken; fill masked places with -1 first: array.filled(-1)")
    if table.ndim != 2 or table.dtype.kind not in "iu":
        raise IngestError(
            f"expected an integer array of shape (rankings, places), but got {table.dtype} of shape {table.shape}"
        )


def describe_array(table: NDArray[Any], weights: NDArray[Any] | None, *, by_name: bool) -> dict[str, Any]:
    """A record that identifies the contents of an array by a digest; `by_name` uses the name of a Dask array.

    Examples
    --------
    >>> describe_array(np.array([[0, 1]]), None, by_name=False)["shape"]
    [1, 2]
    """
    contents = str(getattr(table, "name", "")).encode() if by_name else np.ascontiguousarray(table).tobytes()
    digest = hashlib.sha256(contents)
    if weights is not None:
        digest.update(np.ascontiguousarray(weights).tobytes())
    return {"name": "array", "shape": list(table.shape), "sha256": digest.hexdigest(), "metadata": {}}
