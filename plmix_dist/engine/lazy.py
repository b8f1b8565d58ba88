"""Results by row as a lazy Dask array: nothing is computed until it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.engine.passes import load_leaves
from plmix_dist.engine.leaf_ranges import leaf_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import DTypeLike

    from plmix_dist.rankings import RankingBlock

_LEAVES_PER_CHUNK = 64


def lazy_rows(
    rankings: Any, function: Callable[[Sequence[RankingBlock]], Any], n_columns: int | None, dtype: DTypeLike
) -> Any:
    """A Dask array (n_rankings,) or (n_rankings, n_columns) of what `function` gives for runs of leaves."""
    import dask.array as da
    from dask.delayed import delayed

    call = delayed(_load_and_call, pure=False, traverse=False)
    chunks = []
    for start, stop in leaf_ranges(rankings.n_leaves, -(-rankings.n_leaves // _LEAVES_PER_CHUNK)):
        n_rows = int(rankings.leaf_bounds[stop] - rankings.leaf_bounds[start])
        lazy = getattr(rankings.source, "rows", None)
        rows = [] if lazy is None else [lazy(start, stop)]
        value = call(function, rankings.only(start, stop), start, stop, *rows)
        shape = (n_rows,) if n_columns is None else (n_rows, n_columns)
        chunks.append(da.from_delayed(value, shape, dtype=np.dtype(dtype)))
    return da.concatenate(chunks, axis=0)


def _load_and_call(
    function: Callable[[Sequence[RankingBlock]], Any], rankings: Any, start: int, stop: int, *rows: Any
) -> Any:
    return function(load_leaves(rankings, start, stop, *rows))
