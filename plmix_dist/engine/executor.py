"""Running one function over many tasks: in this process, or on any Dask cluster, with the same meaning."""

from __future__ import annotations

import os
import uuid
from concurrent.futures import as_completed as threads_completed
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from plmix_dist.engine.clients import chosen_place, connected
from plmix_dist.engine.job import Job
from plmix_dist.errors import ClusterError
from plmix_dist.interruption import STOP_SECONDS, StoppableThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client
    from distributed.deploy.cluster import Cluster

    from plmix_dist.engine.clients import ClientLike

    Inputs = Sequence[Any] | None

Task = TypeVar("Task")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs tasks and gives results as they come, each with the number of its task."""

    def map(
        self, function: Callable[..., Result], tasks: Sequence[Task], name: str, inputs: Inputs = None
    ) -> Iterator[tuple[int, Result]]:
        """Run `function` on every task; `name` is what people see on the dashboard.

        `inputs` has, for each task, an array or a Dask array that is computed where the task runs and given to the
        function as its second argument.
        """
        ...


class ThreadedExecutor:
    """Threads of this process.

    Examples
    --------
    >>> sorted(ThreadedExecutor().map(abs, [-3, 2], "abs"))
    [(0, 3), (1, 2)]
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or os.cpu_count() or 1

    def map(
        self, function: Callable[..., Result], tasks: Sequence[Task], name: str, inputs: Inputs = None
    ) -> Iterator[tuple[int, Result]]:
        """Run in threads; the first error stops what has not begun."""
        calls = [partial(_call, function, *arguments) for arguments in _arguments(tasks, inputs)]
        if len(tasks) == 1 or self.n_threads == 1:
            yield from ((number, call()) for number, call in enumerate(calls))
            return
        pool = StoppableThreads(self.n_threads, name)
        numbers = {pool.submit(call): number for number, call in enumerate(calls)}
        try:
            for future in threads_completed(numbers):
                yield numbers[future], future.result()
        except Exception:
            # What has begun is waited for: a task may be about to write where the caller clears away.
            pool.stop(None)
            raise
        finally:
            pool.stop(STOP_SECONDS)


class DistributedExecutor:
    """Workers of a Dask cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def map(
        self, function: Callable[..., Result], tasks: Sequence[Task], name: str, inputs: Inputs = None
    ) -> Iterator[tuple[int, Result]]:
        """Run on the cluster; the first error cancels what has not begun."""
        from dask.delayed import delayed
        from distributed import KilledWorker

        from plmix_dist.engine.submission import as_they_come, cancel, settle, submit

        run = uuid.uuid4().hex[:8]
        # Delayed rather than submitted: a Dask input then lives only until its task has used it.
        call = delayed(function, pure=False, traverse=False)
        lazy = [
            call(*arguments, dask_key_name=f"{name}-{run}-{number}")
            for number, arguments in enumerate(_arguments(tasks, inputs))
        ]
        futures = submit(self.client, lazy)
        try:
            yield from as_they_come(self.client, futures, Job(name))
        except Exception as error:
            if not isinstance(error, ClusterError) or isinstance(error.__cause__, KilledWorker):
                settle(self.client, futures)
            raise
        finally:
            cancel(self.client, futures)


def _arguments(tasks: Sequence[Task], inputs: Inputs) -> list[tuple[Any, ...]]:
    return [(task,) for task in tasks] if inputs is None else list(zip(tasks, inputs, strict=True))


def _call(function: Callable[..., Result], task: Any, *inputs: Any) -> Result:
    """Call a function in this process; a Dask input is computed here and now."""
    ready = (value.compute(scheduler="synchronous") if hasattr(value, "dask") else value for value in inputs)
    return function(task, *ready)


class ConnectingExecutor:
    """A cluster, or the scheduler at an address: every run of tasks has a client that is closed when the run ends."""

    def __init__(self, place: Cluster | str) -> None:
        self.place = place

    def map(
        self, function: Callable[..., Result], tasks: Sequence[Task], name: str, inputs: Inputs = None
    ) -> Iterator[tuple[int, Result]]:
        """Connect, run on the cluster, and disconnect."""
        with connected(self.place) as client:
            yield from DistributedExecutor(client).map(function, tasks, name, inputs)


def executor_for(where: Executor | ClientLike) -> Executor:
    """What runs tasks at a place: an executor itself, or what `engine.clients` chooses for a client.

    Examples
    --------
    >>> executor_for(False).n_threads == os.cpu_count()
    True
    """
    if hasattr(where, "map") and not hasattr(where, "compute"):
        executor: Executor = where  # type: ignore[assignment]
        return executor
    place: Any = chosen_place(where)  # type: ignore[arg-type]
    if place is None:
        return ThreadedExecutor()
    return DistributedExecutor(place) if hasattr(place, "compute") else ConnectingExecutor(place)


def run_all(
    where: Executor | ClientLike,
    function: Callable[..., Result],
    tasks: Sequence[Task],
    name: str,
    progress: Callable[[int, int], None] | None = None,
    inputs: Inputs = None,
) -> list[Any]:
    """Results in the order of the tasks; `progress` hears how many of how many are done.

    Examples
    --------
    >>> run_all(False, abs, [-3, 2], "abs")
    [3, 2]
    """
    results: list[Any] = [None] * len(tasks)
    finished = executor_for(where).map(function, tasks, name, inputs)
    for done, (number, result) in enumerate(finished, start=1):
        results[number] = result
        if progress is not None:
            progress(done, len(tasks))
    return results
