"""Threads inside a task: a pool that each worker keeps, so that tasks that meet on a worker share its threads."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from plmix_dist.interruption import Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Worker

# Reports of long tasks go to clients under this name.
REPORTS = "plmix-reports"

_pools: WeakKeyDictionary[Any, ThreadPoolExecutor] = WeakKeyDictionary()
_pools_lock = threading.Lock()


class TaskThreads:
    """The threads that a task may use, and its signs of life.

    Parameters
    ----------
    report_every
        Seconds between two reports to the scheduler.

    Examples
    --------
    >>> threads = TaskThreads(report_every=5.0)
    >>> threads.n_threads >= 1
    True
    >>> list(threads.pool.map(abs, [-1, 2]))
    [1, 2]
    """

    def __init__(self, report_every: float) -> None:
        self._worker = _this_worker()
        self._task: Any = None if self._worker is None else self._worker.get_current_task()
        self._report_every = report_every
        self._next_report = time.monotonic() + report_every
        self.n_threads: int = os.cpu_count() or 1 if self._worker is None else self._worker.state.nthreads
        self.pool = _pool_of(self._worker or type(self), self.n_threads)

    def beat(self) -> None:
        """Tell clients that this task is at work, unless it has just done so. A task that was cancelled ends here."""
        if self._worker is not None:
            task = self._worker.state.tasks.get(self._task)
            if task is None or task.state == "cancelled":
                raise Stopped
        now = time.monotonic()
        if self._worker is not None and now >= self._next_report:
            self._next_report = now + self._report_every
            self._worker.log_event(REPORTS, {"worker": self._worker.address})


@contextlib.contextmanager
def libraries_held() -> Iterator[None]:
    """While this is open, BLAS and OpenMP use one thread, unless they do so anyway.

    Dask's nannies set the environment of the workers they start accordingly.

    Examples
    --------
    >>> with libraries_held():
    ...     pass
    """
    if os.environ.get("OMP_NUM_THREADS") == os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        yield
    else:
        with _controller(len(sys.modules)).limit(limits=1):
            yield


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> Any:
    """What limits the libraries that are loaded; found again after more modules were, since it takes a millisecond."""
    del n_modules
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _this_worker() -> Worker | None:
    """The worker whose task this is; None in any other thread."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def _pool_of(owner: Any, n_threads: int) -> ThreadPoolExecutor:
    with _pools_lock:
        if owner not in _pools:
            _pools[owner] = ThreadPoolExecutor(n_threads, thread_name_prefix="plmix-leaves")
        return _pools[owner]
