"""NumPy and Dask arrays as a source: items numbered from 0, best first, -1 where a row ends."""

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
    """Rows of an integer array (rows, places)."""
    check_array(table)
    table = table.astype(table.dtype.newbyteorder("="), copy=False)
    listed = table != -1
    n_listed = np.count_nonzero(listed, axis=1)
    # Where a row has a gap, its listed items do not fill its first places.
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


def check_array(table: Any) -> None:
    """An error where an array, NumPy's or Dask's, cannot hold rankings."""
    if table.ndim != 2 or table.dtype.kind not in "iu":
        raise IngestError(
            f"expected an integer array of shape (rankings, places), but got {table.dtype} of shape {table.shape}"
        )


def describe_array(table: Any, weights: NDArray[Any] | None, *, by_name: bool) -> dict[str, Any]:
    """What identifies the contents of an array: a digest, or Dask's name for what is not computed yet."""
    digest = hashlib.sha256(table.name.encode() if by_name else np.ascontiguousarray(table).tobytes())
    if weights is not None:
        digest.update(np.ascontiguousarray(weights).tobytes())
    return {"name": "array", "shape": list(table.shape), "sha256": digest.hexdigest(), "metadata": {}}
