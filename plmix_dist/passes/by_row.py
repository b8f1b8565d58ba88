"""Results by row: one function over runs of leaves, computed now, lazily, or on workers that write them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.clients import ClientLike
from plmix_dist.cluster.executor import ThreadedExecutor, executor_for, run_all
from plmix_dist.passes.leaves import LeafSource, Leaves, leaves_for_task
from plmix_dist.passes.request import itself
from plmix_dist.passes.tree import leaf_ranges
from plmix_dist.rankings import RankingBlock
from plmix_dist.threads import check_stopped

# About how many leaves a chunk of a lazy result, and a task of this process, has.
_LEAVES_PER_RUN = 64


@dataclass(frozen=True)
class RowFunction:
    """A function from a block to one result per row."""

    # From a block and the prepared parameters to an array (n_rankings,) or (n_rankings, n_columns).
    of_block: Callable[[RankingBlock, Any], NDArray[Any]]
    # The parameters as they travel.
    params: Any = None
    # From parameters as they travel to what `of_block` takes; called once per run of leaves.
    prepare: Callable[[Any], Any] = itself
    # The number of columns; None for one number per row.
    n_columns: int | None = None
    # The kind of the numbers.
    dtype: type[np.generic] = np.float64


@dataclass(frozen=True)
class RowRun:
    """The leaves from `start` to `stop`, and the function to be computed for each of their rows."""

    function: RowFunction
    leaves: Leaves
    start: int
    stop: int


def rows_of_run(run: RowRun) -> NDArray[Any]:
    """The results of all rows of a run of leaves."""
    prepared = run.function.prepare(run.function.params)
    results = []
    for block in run.leaves.iter_leaves(run.start, run.stop, labels=False):
        check_stopped()
        results.append(run.function.of_block(block, prepared))
    return np.concatenate(results)


def run_of_rows(source: LeafSource, function: RowFunction, first_row: int, last_row: int) -> tuple[RowRun, int]:
    """The leaves that hold the rows from `first_row` to `last_row`, and how many rows come before in the first leaf."""
    bounds = source.leaf_bounds
    start = int(np.searchsorted(bounds, first_row, side="right")) - 1
    stop = int(np.searchsorted(bounds, last_row, side="left"))
    return RowRun(function, source.only(start, stop), start, stop), first_row - int(bounds[start])


def rows_now(source: LeafSource, function: RowFunction, client: ClientLike = False) -> NDArray[Any]:
    """The results of all rows, computed by threads of this process or at a client."""
    executor = executor_for(client)
    here = isinstance(executor, ThreadedExecutor)  # threads share the rows; to a cluster go those of each run
    runs = [
        RowRun(function, source if here else source.only(start, stop), start, stop) for start, stop in _runs(source)
    ]
    return np.concatenate(run_all(executor, rows_of_run, runs, "rows"))


def rows_lazily(source: LeafSource, function: RowFunction) -> Any:
    """The results of all rows as a Dask array: nothing is computed until it is asked for."""
    import dask.array as da
    from dask.delayed import delayed

    call = delayed(_rows_of_leaves, pure=False, traverse=False)
    chunks = []
    run = uuid.uuid4().hex
    for number, (start, stop) in enumerate(_runs(source)):
        # The first word of a name is what people see on the dashboard.
        leaves = leaves_for_task(source, start, stop, f"leaves-{run}-{number}")
        n_rows = int(source.leaf_bounds[stop] - source.leaf_bounds[start])
        shape = (n_rows,) if function.n_columns is None else (n_rows, function.n_columns)
        value = call(function, leaves, start, stop, dask_key_name=f"rows-{run}-{number}")
        chunks.append(da.from_delayed(value, shape, dtype=np.dtype(function.dtype)))
    return da.concatenate(chunks, axis=0)


def _runs(source: LeafSource) -> list[tuple[int, int]]:
    return leaf_ranges(source.n_leaves, -(-source.n_leaves // _LEAVES_PER_RUN))


def _rows_of_leaves(function: RowFunction, leaves: Leaves, start: int, stop: int) -> NDArray[Any]:
    return rows_of_run(RowRun(function, leaves, start, stop))
