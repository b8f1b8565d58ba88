"""The columns of a block in the types that kernels take: one variant of each kernel is compiled, whatever the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class Rows(NamedTuple):
    """Rows for kernels: row r lists `items[offsets[r]:offsets[r + 1]]`, the first `n_ordered[r]` of them in order."""

    items: NDArray[np.int32]
    offsets: NDArray[np.int64]
    n_ordered: NDArray[np.int32]
    below: NDArray[np.bool_]
    weights: NDArray[np.float64]


def rows_of(block: RankingBlock) -> Rows:
    """The rows of a block; its narrow numbers become wider here, leaf by leaf, and nowhere else."""
    weights = np.ones(block.n_rankings) if block.weights is None else block.weights
    return Rows(
        np.ascontiguousarray(block.items, np.int32),
        block.offsets,
        np.ascontiguousarray(block.n_ordered, np.int32),
        _writable(block.below),
        _writable(weights),
    )


def _writable(column: NDArray[Any]) -> NDArray[Any]:
    """A contiguous array that may be written: read-only ones, as Dask hands out, are another type to numba."""
    return column if column.flags.c_contiguous and column.flags.writeable else column.copy()
