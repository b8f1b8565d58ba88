"""Results by row: one function over runs of leaves, computed now, lazily, or on workers that write them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.engine.executor import ThreadedExecutor, executor_for, run_all
from plmix_dist.engine.leaf_ranges import leaf_ranges
from plmix_dist.engine.request import itself
from plmix_dist.interruption import check_stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.engine.leaf_source import LeafSource, Leaves
    from plmix_dist.rankings import RankingBlock

# A chunk of a lazy result, and a task of this process, has about so many leaves.
_LEAVES_PER_RUN = 64


@dataclass(frozen=True)
class RowFunction:
    """A function from a block to one result per row.

    Parameters
    ----------
    of_block
        From a block and the prepared parameters to an array (n_rankings,) or (n_rankings, n_columns).
    params
        The parameters as they travel.
    prepare
        From parameters as they travel to what `of_block` takes; called once per run of leaves.
    n_columns
        The number of columns; None for one number per row.
    dtype
        The kind of the numbers.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> listed = RowFunction(lambda block, params: block.n_listed * params, params=10)
    >>> rows_now(as_rankings([[0, 1], [1, 0]]), listed).tolist()
    [20, 20]
    """

    of_block: Callable[[RankingBlock, Any], NDArray[Any]]
    params: Any = None
    prepare: Callable[[Any], Any] = itself
    n_columns: int | None = None
    dtype: type[np.generic] = np.float64


@dataclass(frozen=True)
class RowRun:
    """The leaves from `start` to `stop`, and the function to be computed for each of their rows."""

    function: RowFunction
    leaves: Leaves
    start: int
    stop: int


def rows_of_run(run: RowRun) -> NDArray[Any]:
    """The results of all rows of a run of leaves.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> listed = RowFunction(lambda block, params: block.n_listed)
    >>> rows_of_run(RowRun(listed, as_rankings([[0, 1], [1, 0]]), 0, 1)).tolist()
    [2, 2]
    """
    prepared = run.function.prepare(run.function.params)
    results = []
    for block in run.leaves.iter_leaves(run.start, run.stop, labels=False):
        check_stopped()
        results.append(run.function.of_block(block, prepared))
    return np.concatenate(results)


def run_of_rows(
    source: LeafSource, function: RowFunction, first_row: int, last_row: int
) -> tuple[RowRun, int]:
    """The leaves that hold the rows from `first_row` to `last_row`, and how many rows come before in the first leaf.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> listed = RowFunction(lambda block, params: block.n_listed)
    >>> run, skipped = run_of_rows(as_rankings([[0, 1]] * 5_000), listed, 4_100, 5_000)
    >>> run.start, run.stop, skipped
    (1, 2, 4)
    """
    bounds = source.leaf_bounds
    start = int(np.searchsorted(bounds, first_row, side="right")) - 1
    stop = int(np.searchsorted(bounds, last_row, side="left"))
    return RowRun(function, source.only(start, stop), start, stop), first_row - int(bounds[start])


def rows_now(source: LeafSource, function: RowFunction, client: ClientLike = False) -> NDArray[Any]:
    """The results of all rows, computed by threads of this process or at a client.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> rows_now(as_rankings([[0, 1], [1, 0]]), RowFunction(lambda block, params: block.n_listed)).tolist()
    [2, 2]
    """
    executor = executor_for(client)
    here = isinstance(executor, ThreadedExecutor)  # threads share the rows; to a cluster go those of each run
    runs = [
        RowRun(function, source if here else source.only(start, stop), start, stop)
        for start, stop in _runs(source)
    ]
    return np.concatenate(run_all(executor, rows_of_run, runs, "rows"))


def rows_lazily(source: LeafSource, function: RowFunction) -> Any:
    """The results of all rows as a Dask array: nothing is computed until it is asked for.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> listed = RowFunction(lambda block, params: block.n_listed, dtype=np.uint8)
    >>> rows_lazily(as_rankings([[0, 1], [1, 0]]), listed).compute(scheduler="synchronous").tolist()
    [2, 2]
    """
    import dask.array as da
    from dask.delayed import delayed

    call = delayed(_rows_of_leaves, pure=False, traverse=False)
    make = delayed(_leaves_of_rows, pure=False, traverse=False)
    chunks = []
    run = uuid.uuid4().hex
    for number, (start, stop) in enumerate(_runs(source)):
        lazy = source.lazy_rows(start, stop)
        # The first word of a name is what people see on the dashboard.
        if lazy is None:
            leaves: Any = source.only(start, stop)
        else:
            leaves = make(lazy.leaves_of, lazy.array, dask_key_name=f"leaves-{run}-{number}")
        n_rows = int(source.leaf_bounds[stop] - source.leaf_bounds[start])
        shape = (n_rows,) if function.n_columns is None else (n_rows, function.n_columns)
        value = call(function, leaves, start, stop, dask_key_name=f"rows-{run}-{number}")
        chunks.append(da.from_delayed(value, shape, dtype=np.dtype(function.dtype)))
    return da.concatenate(chunks, axis=0)


def _runs(source: LeafSource) -> list[tuple[int, int]]:
    return leaf_ranges(source.n_leaves, -(-source.n_leaves // _LEAVES_PER_RUN))


def _rows_of_leaves(function: RowFunction, leaves: Leaves, start: int, stop: int) -> NDArray[Any]:
    return rows_of_run(RowRun(function, leaves, start, stop))


def _leaves_of_rows(leaves_of: Callable[[NDArray[np.integer]], Leaves], rows: NDArray[np.integer]) -> Leaves:
    return leaves_of(rows)
