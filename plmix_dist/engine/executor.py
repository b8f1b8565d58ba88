"""Running one function over many tasks: in this process, or on any Dask cluster, with the same meaning."""

from __future__ import annotations

import contextlib
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as threads_completed
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from plmix_dist.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client

    Inputs = Sequence[Any] | None

_SETTLE_SECONDS = 60
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


class SerialExecutor:
    """Threads of this process.

    Examples
    --------
    >>> sorted(SerialExecutor().map(abs, [-3, 2], "abs"))
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
        with ThreadPoolExecutor(self.n_threads, thread_name_prefix=name) as pool:
            numbers = {pool.submit(call): number for number, call in enumerate(calls)}
            try:
                for future in threads_completed(numbers):
                    yield numbers[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)


class DistributedExecutor:
    """Workers of a Dask cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def map(
        self, function: Callable[..., Result], tasks: Sequence[Task], name: str, inputs: Inputs = None
    ) -> Iterator[tuple[int, Result]]:
        """Run on the cluster; the first error cancels what has not begun."""
        from dask.delayed import delayed
        from distributed import KilledWorker, as_completed

        run = uuid.uuid4().hex[:8]
        # Delayed rather than submitted: a Dask input then lives only until its task has used it.
        call = delayed(function, pure=False, traverse=False)
        lazy = [
            call(*arguments, dask_key_name=f"{name}-{run}-{number}")
            for number, arguments in enumerate(_arguments(tasks, inputs))
        ]
        futures = self.client.compute(lazy, optimize_graph=False)
        numbers = {future.key: number for number, future in enumerate(futures)}
        try:
            for future in as_completed(futures):
                try:
                    yield numbers[future.key], future.result()
                except KilledWorker as error:
                    raise ClusterError(
                        f"{_suspects(futures)} killed its worker {error.allowed_failures + 1} times, most likely for "
                        "want of memory: give the workers more with --memory-limit, or fewer threads with --threads"
                    ) from error
        except BaseException:
            self._settle(futures)
            raise
        finally:
            self.client.cancel(futures)

    def _settle(self, futures: Sequence[Any]) -> None:
        """Cancel what has not begun and wait for what has: a task may be about to write where others clear away."""
        from distributed import wait

        begun = {key for keys in self.client.processing().values() for key in keys}
        self.client.cancel([future for future in futures if future.key not in begun])
        with contextlib.suppress(TimeoutError):
            wait([future for future in futures if future.key in begun], timeout=_SETTLE_SECONDS)


def _suspects(futures: Sequence[Any]) -> str:
    """The tasks that Dask gave up, in words: it also blames those that waited at a worker when it died."""
    from distributed import KilledWorker, wait

    with contextlib.suppress(TimeoutError):
        wait(futures, timeout="2s")
    killed = (future for future in futures if future.status == "error")
    keys = [str(future.key) for future in killed if isinstance(future.exception(), KilledWorker)]
    return f"task {keys[0]}" if len(keys) == 1 else f"one of the tasks {', '.join(keys)}"


def _arguments(tasks: Sequence[Task], inputs: Inputs) -> list[tuple[Any, ...]]:
    return [(task,) for task in tasks] if inputs is None else list(zip(tasks, inputs, strict=True))


def _call(function: Callable[..., Result], task: Any, *inputs: Any) -> Result:
    """Call a function in this process; a Dask input is computed here and now."""
    ready = (value.compute(scheduler="synchronous") if hasattr(value, "dask") else value for value in inputs)
    return function(task, *ready)


def executor_for(client: Client | None) -> Executor:
    """The executor for a client, or this process where there is none."""
    return SerialExecutor() if client is None else DistributedExecutor(client)


def run_all(
    executor: Executor,
    function: Callable[..., Result],
    tasks: Sequence[Task],
    name: str,
    progress: Callable[[int, int], None] | None = None,
    inputs: Inputs = None,
) -> list[Any]:
    """Results in the order of the tasks; `progress` hears how many of how many are done."""
    results: list[Any] = [None] * len(tasks)
    for done, (number, result) in enumerate(executor.map(function, tasks, name, inputs), start=1):
        results[number] = result
        if progress is not None:
            progress(done, len(tasks))
    return results
