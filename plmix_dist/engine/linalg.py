"""Singular vectors of a tall matrix that is never held whole: dask-ml's randomised SVD over rows made on the fly.

A chunk of the Dask array is a `RowMaker`: it holds whatever its rows are made from, and makes dense rows slab by slab
while it is multiplied. So the memory of a whole computation is that of the narrow rankings, and every pass over the
matrix makes its rows anew.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.engine.job import Job
from plmix_dist.engine.submission import results_of, submit
from plmix_dist.interruption import StoppableThreads, check_stopped
from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client
    from numpy.typing import NDArray

_SLAB_BYTES = 1 << 25
# Enough where more vectors are asked for than stand out; many more would lose the smaller directions, since dask-ml
# does not orthogonalise between them.
_POWER_ITERATIONS = 2
PASSES_OVER_ROWS = 2 * _POWER_ITERATIONS + 2


class Svd(NamedTuple):
    """Singular values, falling, and right singular vectors (n_columns, n_values) with their signs fixed."""

    singular_values: NDArray[np.float64]
    vectors: NDArray[np.float64]


class RowMaker:
    """Rows of a matrix that exist only while they are used; multiplies like an array.

    Parameters
    ----------
    make
        Called with a first and a last row, gives these rows (stop - start, n_columns).
    shape
        The rows and columns of the whole matrix.
    transposed
        Whether this stands for the transposed matrix.
    """

    __array_priority__ = 100
    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(
        self,
        make: Callable[[int, int], NDArray[np.float64]],
        shape: tuple[int, int],
        transposed: bool = False,
    ) -> None:
        self.make = make
        self.shape = shape
        self.transposed = transposed

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What Dask calls on a chunk: transposing and multiplying, nothing else."""
        del types
        if function is np.transpose:
            return RowMaker(self.make, self.shape[::-1], transposed=not self.transposed)
        if function is np.tensordot:
            left, right = args[:2]
            axes = kwargs.get("axes", args[2] if len(args) > 2 else 2)
            if tuple(axes[0]) == (1,) and tuple(axes[1]) == (0,):
                return left._times(right) if isinstance(left, RowMaker) else right._left_times(left)
        return NotImplemented

    def _slabs(self) -> Iterator[tuple[int, int]]:
        n_rows, n_columns = self.shape[::-1] if self.transposed else self.shape
        step = max(1, _SLAB_BYTES // (8 * n_columns))
        for start in range(0, n_rows, step):
            check_stopped()
            yield start, min(start + step, n_rows)

    def _times(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.transposed:
            total = np.zeros((self.shape[0], right.shape[1]))
            for start, stop in self._slabs():
                total += self.make(start, stop).T @ right[start:stop]
            return total
        return np.concatenate([self.make(start, stop) @ right for start, stop in self._slabs()])

    def _left_times(self, left: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.transposed:
            return np.concatenate([left @ self.make(start, stop).T for start, stop in self._slabs()], axis=1)
        total = np.zeros((left.shape[0], self.shape[1]))
        for start, stop in self._slabs():
            total += left[:, start:stop] @ self.make(start, stop)
        return total


def randomized_svd(makers: Sequence[RowMaker], n_values: int, seed: int, client: Client | None = None) -> Svd:
    """The largest singular values and right vectors of the rows of all makers, one below the other.

    dask-ml's TruncatedSVD runs on the client's cluster, or in threads of this process. Its bits depend on the makers
    alone as long as BLAS works with one thread, which is seen to here and by Dask's nannies on workers.

    Examples
    --------
    >>> rows = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> maker = RowMaker(lambda start, stop: rows[start:stop], rows.shape)
    >>> randomized_svd([maker], n_values=1, seed=0).singular_values.round(6).tolist()
    [3.0]
    """
    import dask.array as da
    from dask.delayed import delayed
    from dask_ml.decomposition import TruncatedSVD

    chunks = [
        da.from_delayed(delayed(maker, pure=False, traverse=False), maker.shape, meta=np.empty((0, 0)))
        for maker in makers
    ]
    rows = da.concatenate(chunks, axis=0)
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


def with_fixed_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns turned so that the entry largest in size is positive: a singular vector is known up to its sign.

    Examples
    --------
    >>> with_fixed_signs(np.array([[1.0], [-2.0]])).tolist()
    [[-1.0], [2.0]]
    """
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, -1.0, 1.0)
