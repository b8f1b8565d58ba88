"""The road to a cluster: work is submitted, waited for with an end, and every fault told in words."""

from __future__ import annotations

import asyncio
import queue
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from plmix_dist.engine.watch import (
    Watch,
    check_connected,
    client_closed,
    scheduler_gone,
    tasks_of_workers,
)
from plmix_dist.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future as LocalFuture

    from distributed import Client, Future, KilledWorker

    from plmix_dist.engine.job import Job

# After an error, tasks that have begun may go on for so many seconds.
_SETTLE_SECONDS = 60.0
# After a task has killed its workers, others that Dask gave up are waited for so many seconds.
_SUSPECT_SECONDS = 2.0
_POLL_SECONDS = 0.02


def submit(client: Client, lazy: Sequence[Any], *, optimize_graph: bool = False) -> list[Future[Any]]:
    """Give lazy values to a cluster; their results stay there until they are fetched or let go."""
    from distributed.client import ClosedClientError

    check_connected(client)
    try:
        futures: list[Future[Any]] = client.compute(list(lazy), optimize_graph=optimize_graph)
    except ClosedClientError as error:
        raise ClusterError(client_closed(client)) from error
    return futures


def results_of(client: Client, futures: Sequence[Future[Any]], job: Job) -> list[Any]:
    """All results in the order of the futures. On an error the work is cancelled."""
    try:
        found = dict(as_they_come(client, futures, job))
    except BaseException:
        cancel(client, futures)
        raise
    return [found[number] for number in range(len(futures))]


def as_they_come(client: Client, futures: Sequence[Future[Any]], job: Job) -> Iterator[tuple[int, Any]]:
    """Results with the numbers of their futures, in the order in which they come.

    A task's own error is raised as it is. Whatever is wrong with the cluster is a ClusterError: a task that kills its
    workers, no workers, no scheduler, a closed client, and nothing finished or reported for `plmix.stall-timeout`.
    Whoever leaves early cancels the rest.
    """
    watch = Watch(client, job, futures)
    done: queue.SimpleQueue[tuple[int, LocalFuture[Any]]] = queue.SimpleQueue()
    for number, future in enumerate(futures):
        _fetch(client, future).add_done_callback(partial(_put, done, number))
    for _ in futures:
        number, one = _next(done, watch)
        watch.heard()
        yield number, _value(client, one, futures, job)


def cancel(client: Client, futures: Sequence[Future[Any]]) -> None:
    """Let a cluster forget work, finished or not; nothing is done where it cannot be reached."""
    if client.status == "running":
        client.cancel(list(futures))


def settle(client: Client, futures: Sequence[Future[Any]]) -> None:
    """Cancel what has not begun and wait for what has: a task may be about to write where others clear away."""
    begun = {key for keys in tasks_of_workers(client).values() for key in keys}
    cancel(client, [future for future in futures if future.key not in begun])
    _wait_a_while([future for future in futures if future.key in begun], _SETTLE_SECONDS)


def _wait_a_while(futures: Sequence[Future[Any]], seconds: float) -> None:
    """Wait until all futures are done, but no longer than so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(future.done() for future in futures):
        time.sleep(_POLL_SECONDS)


def _fetch(client: Client, future: Future[Any]) -> LocalFuture[Any]:
    """The result of a future as a future of this process, for which one can wait as long as one likes."""
    fetch = client.gather(future, asynchronous=True)
    try:
        loop: Any = client.loop
        return asyncio.run_coroutine_threadsafe(fetch, loop.asyncio_loop)
    except RuntimeError as error:
        fetch.close()
        raise ClusterError(client_closed(client)) from error


def _put(done: queue.SimpleQueue[Any], number: int, fetched: LocalFuture[Any]) -> None:
    done.put((number, fetched))


def _next(done: queue.SimpleQueue[Any], watch: Watch) -> tuple[int, LocalFuture[Any]]:
    while True:
        try:
            found: tuple[int, LocalFuture[Any]] = done.get(timeout=watch.patience.look_every)
        except queue.Empty:
            watch.look()
        else:
            return found


def _value(client: Client, fetched: LocalFuture[Any], futures: Sequence[Future[Any]], job: Job) -> Any:
    """The result, or its error: the task's own, or what happened to the cluster."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        return fetched.result()
    except KilledWorker as error:
        raise ClusterError(_killed(error, futures, job)) from error
    except (CancelledError, CommClosedError, asyncio.CancelledError) as error:
        raise ClusterError(_lost(client, error, job)) from error


def _lost(client: Client, error: BaseException, job: Job) -> str:
    if client.status in ("closed", "closing"):
        return client_closed(client)
    if client.status == "connecting" or getattr(error, "reason", "") == "scheduler-connection-lost":
        return scheduler_gone(client)
    return f"{job.name} was cancelled on the cluster ({error}); run this again"


def _killed(error: KilledWorker, futures: Sequence[Future[Any]], job: Job) -> str:
    """Dask also blames tasks that waited at a worker when it died; all of them are named."""
    from distributed import KilledWorker

    _wait_a_while(futures, _SUSPECT_SECONDS)
    failed = [future.exception() for future in futures if future.status == "error"]
    keys = {str(one.task): None for one in failed if isinstance(one, KilledWorker)} or {str(error.task): None}
    tasks = [job.task(key) for key in keys]
    who = tasks[0] if len(tasks) == 1 else f"one of {', '.join(tasks)}"
    return (
        f"{who} killed its worker {error.allowed_failures + 1} times, most likely for want of memory; the last one was "
        f"{error.last_worker.address}: {job.memory_advice}"
    )
