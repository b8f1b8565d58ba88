"""Singular vectors of a tall matrix that is never held whole: dask-ml's randomised SVD over rows made on the fly.

A chunk of the Dask array is a `RowMaker`: it holds whatever its rows are made from, and makes dense rows slab by slab
while it is multiplied. So the memory of a whole computation is that of the narrow rankings, and every pass over the
matrix makes its rows anew. A `_LeafRowMaker` does not even hold the rankings of a store: it reads them leaf by leaf.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.submission import Job, results_of, submit
from plmix_dist.passes.leaves import LeafSource, Leaves, leaves_for_task, read_leaves
from plmix_dist.passes.tree import leaf_ranges
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.checks import check_ranges
from plmix_dist.threads import StoppableThreads, check_stopped, single_thread

if TYPE_CHECKING:
    from distributed import Client


_SLAB_BYTES = 1 << 25
# Enough where more vectors are asked for than stand out; many more would lose the smaller directions, since dask-ml
# does not orthogonalise between them.
_POWER_ITERATIONS = 2
PASSES_OVER_ROWS = 2 * _POWER_ITERATIONS + 2
# How many more directions dask-ml computes than are asked for (oversamples in scikit-learn).
OVERSAMPLES = 10
# Leaves of one chunk of the Dask array. It decides the bits of the result, so it depends on nothing.
_LEAVES_PER_CHUNK = 16


class Svd(NamedTuple):
    """Singular values, falling, and right singular vectors (n_columns, n_values) with their signs fixed."""

    singular_values: Floats
    vectors: Floats


class RowMaker:
    """Rows of a matrix that exist only while they are used; multiplies like an array of this shape.

    `make` is called with a first and a last row and gives these rows (stop - start, n_columns).
    """

    __array_priority__ = 100
    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(self, make: Callable[[int, int], Floats], shape: tuple[int, int], transposed: bool = False) -> None:
        self.make = make
        self.shape = shape
        self.transposed = transposed

    def __array_function__(self, function: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        """What Dask calls on a chunk: transposing and multiplying, nothing else."""
        if function is np.transpose:
            turned = copy.copy(self)
            turned.shape, turned.transposed = self.shape[::-1], not self.transposed
            return turned
        if function is np.tensordot:
            left, right = args[:2]
            axes = kwargs.get("axes", args[2] if len(args) > 2 else 2)
            if tuple(axes[0]) == (1,) and tuple(axes[1]) == (0,):
                return left._times(right) if isinstance(left, RowMaker) else right._left_times(left)
        return NotImplemented

    @property
    def _slab_rows(self) -> int:
        """How many rows are made at a time."""
        n_columns = self.shape[0] if self.transposed else self.shape[1]
        return max(1, _SLAB_BYTES // (8 * n_columns))

    def _slabs(self) -> Iterator[tuple[slice, Floats]]:
        """All rows, slab by slab: which they are, and their numbers."""
        n_rows, step = self.shape[1] if self.transposed else self.shape[0], self._slab_rows
        for start in range(0, n_rows, step):
            check_stopped()
            stop = min(start + step, n_rows)
            yield slice(start, stop), self.make(start, stop)

    def _times(self, right: Floats) -> Floats:
        if self.transposed:
            total = np.zeros((self.shape[0], right.shape[1]))
            for which, rows in self._slabs():
                total += rows.T @ right[which]
            return total
        return np.concatenate([rows @ right for _, rows in self._slabs()])

    def _left_times(self, left: Floats) -> Floats:
        if self.transposed:
            return np.concatenate([left @ rows.T for _, rows in self._slabs()], axis=1)
        total = np.zeros((left.shape[0], self.shape[1]))
        for which, rows in self._slabs():
            total += left[:, which] @ rows
        return total


class _LeafRowMaker(RowMaker):
    """Rows made from the rankings of leaves `start` to `stop`, which are read when they are needed.

    `rows_of` gives the rows (n_rankings, n_columns) of a block; `shape` is that of the whole matrix.
    """

    def __init__(
        self, leaves: Leaves, start: int, stop: int, rows_of: Callable[[RankingBlock], Floats], shape: tuple[int, int]
    ) -> None:
        super().__init__(_by_leaf_alone, shape)
        self.leaves = leaves
        self.run = range(start, stop)
        self.rows_of = rows_of

    def _slabs(self) -> Iterator[tuple[slice, Floats]]:
        step, first = self._slab_rows, 0
        for leaf, block in read_leaves(self.leaves, self.run):
            check_ranges(block, f"leaf {leaf}, rows counted from its first")
            for start in range(0, block.n_rankings, step):
                check_stopped()
                rows = self.rows_of(block[start : start + step])
                yield slice(first, first + len(rows)), rows
                first += len(rows)


def _by_leaf_alone(start: int, stop: int) -> Floats:
    raise AssertionError(f"rows {start} to {stop} are made leaf by leaf")


def randomized_svd(makers: Sequence[RowMaker], n_values: int, seed: int, client: Client | None = None) -> Svd:
    """The largest singular values and right vectors of the rows of all makers, one below the other.

    dask-ml's TruncatedSVD runs on the client's cluster, or in threads of this process. Its bits depend on the makers
    alone as long as BLAS works with one thread, which is seen to here and by Dask's nannies on workers.
    """
    from dask.delayed import delayed

    chunks = [(delayed(maker, pure=False, traverse=False), maker.shape) for maker in makers]
    return _truncated_svd(chunks, n_values, seed, client)


def svd_of_leaves(
    source: LeafSource,
    leaf_rows: NDArray[np.int64],
    rows_of: Callable[[RankingBlock], Floats],
    n_columns: int,
    n_values: int,
    seed: int,
    client: Client | None = None,
) -> Svd:
    """The largest singular values and right vectors of a matrix with one row per ranking of a source.

    Workers read rankings and make rows (`rows_of` a block: (n_rankings, n_columns)) slab by slab in each pass. What is
    held between tasks are arrays of n_values + 10 numbers per ranking, two of them at a time. Chunks are runs of 16
    leaves, so the bits do not depend on the workers. `leaf_rows` (n_leaves,) counts the rankings that each leaf gives.
    """
    from dask.delayed import delayed

    make = delayed(_LeafRowMaker, pure=False, traverse=False)
    chunks = []
    for start, stop in leaf_ranges(source.n_leaves, -(-source.n_leaves // _LEAVES_PER_CHUNK)):
        n_rows = int(leaf_rows[start:stop].sum())
        if n_rows:
            shape = (n_rows, n_columns)
            leaves = source if client is None else leaves_for_task(source, start, stop)
            chunks.append((make(leaves, start, stop, rows_of, shape), shape))
    return _truncated_svd(chunks, n_values, seed, client)


def _truncated_svd(
    chunks: Sequence[tuple[Any, tuple[int, int]]], n_values: int, seed: int, client: Client | None
) -> Svd:
    """dask-ml's TruncatedSVD of delayed RowMakers with their shapes."""
    import dask.array as da
    from dask_ml.decomposition import TruncatedSVD

    rows = da.concatenate([da.from_delayed(maker, shape, meta=np.empty((0, 0))) for maker, shape in chunks], axis=0)
    # Without computing: its explained variance would take more passes, through chunks that only multiply.
    estimator = TruncatedSVD(
        n_values, algorithm="randomized", n_iter=_POWER_ITERATIONS, random_state=seed, compute=False
    )
    estimator.fit(rows)
    lazy = (estimator.singular_values_, estimator.components_)
    with single_thread():
        if client is None:
            values, vectors = _computed_in_threads(lazy)
        else:
            futures = submit(client, lazy, optimize_graph=True)
            values, vectors = results_of(client, futures, Job("the singular value decomposition"))
    return Svd(np.asarray(values), with_fixed_signs(np.asarray(vectors).T))


def _computed_in_threads(lazy: Sequence[Any]) -> Sequence[Any]:
    """Lazy values, computed by threads of this process that an interruption stops."""
    import dask

    threads = StoppableThreads(os.cpu_count() or 1, "svd")
    try:
        with dask.config.set(scheduler="threads", pool=threads):
            values: Sequence[Any] = dask.compute(*lazy)  # type: ignore[attr-defined, no-untyped-call]
    finally:
        threads.stop()
    return values


def with_fixed_signs(vectors: Floats) -> Floats:
    """Columns turned so that the entry largest in size is positive: a singular vector is known up to its sign."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, -1.0, 1.0)
