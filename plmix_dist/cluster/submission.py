"""The road to a cluster: work is submitted, waited for with a time limit, and every fault becomes a ClusterError."""

from __future__ import annotations

import hashlib
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future as LocalFuture
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import plmix_dist
from plmix_dist.cluster.lost_workers import Watch, ask, check_connected, client_closed, scheduler_gone, tasks_of_workers
from plmix_dist.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Future, KilledWorker


# After an error, tasks that have begun may run on for a minute.
_SETTLE_SECONDS = 60.0
# After a task has killed its workers, wait 2 s for others that Dask gives up, to name them too.
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
    done: queue.SimpleQueue[LocalFuture[Any]] = queue.SimpleQueue()
    numbers = {_fetch(client, future): number for number, future in enumerate(futures)}
    for one in list(numbers):
        one.add_done_callback(done.put)
    while numbers:
        try:
            one = done.get(timeout=watch.patience.look_every)
        except queue.Empty:
            watch.look()
            continue
        watch.note_activity()
        yield numbers.pop(one), _value(client, one, futures, job)


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
    """Wait until all futures are done, but no longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(future.done() for future in futures):
        time.sleep(_POLL_SECONDS)


def _fetch(client: Client, future: Future[Any]) -> LocalFuture[Any]:
    """The result of a future as a future of this process, for which one can wait as long as one likes."""
    import asyncio  # not above: `plmix --help` would wait for it

    fetch = client.gather(future, asynchronous=True)
    try:
        loop: Any = client.loop
        return asyncio.run_coroutine_threadsafe(fetch, loop.asyncio_loop)
    except RuntimeError as error:
        fetch.close()
        raise ClusterError(client_closed(client)) from error


def _value(client: Client, fetched: LocalFuture[Any], futures: Sequence[Future[Any]], job: Job) -> Any:
    """The result, or its error: the task's own, or what happened to the cluster."""
    import asyncio

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
    advice = "give the workers more memory (--memory-limit), or fewer threads (--threads)"
    more = ', or choose residency="store"' if job.rows_kept else ""
    return (
        f"{who} killed its worker {error.allowed_failures + 1} times, most likely for want of memory; the last one was "
        f"{error.last_worker.address}: {advice}{more}"
    )


# Workers have the version that this process has: another one might sum otherwise. They are asked before they get work,
# and each task looks again, because workers may join at any moment. That costs a comparison of texts.

# Rooms whose code decides what a sum over rows is.
_ROOMS_THAT_SUM = ("rankings", "kernels", "solvers", "passes", "fitting", "prediction", "uncertainty")


@cache
def version_here() -> str:
    """The version of plmix_dist in this process, and a digest of its sources that compute."""
    folder = Path(plmix_dist.__file__).parent
    digest = hashlib.sha256()
    for room in _ROOMS_THAT_SUM:
        for path in sorted((folder / room).rglob("*.py")):
            digest.update(f"{path.relative_to(folder)} ".encode() + path.read_bytes())
    return f"{plmix_dist.__version__} (sources {digest.hexdigest()[:12]})"


def same_version(wanted: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs on a worker: what a function gives; an error if the worker has another version than its client wants."""
    if version_here() != wanted:
        from distributed import get_worker

        raise ClusterError(_other_version(get_worker().address, version_here(), wanted))
    return function(*arguments)


def check_versions(client: Client, workers: Iterable[str]) -> None:
    """An error if a worker has another version. Each is asked once: one that is too old understands no task at all.

    Workers that do not answer in time are not waited for. Their tasks look again.
    """
    seen = _seen.setdefault(client, set())
    new = [worker for worker in workers if worker not in seen]
    if not new:
        return
    found: Any = ask(client, lambda _: client._run(version_here, workers=new, on_error="return"))
    for worker, version in (found or {}).items():
        if version != version_here():
            there = version if isinstance(version, str) else f"of which it cannot tell the version ({version})"
            raise ClusterError(_other_version(worker, there, version_here()))
    seen.update(new)


# The workers that a client has asked.
_seen: WeakKeyDictionary[Client, set[str]] = WeakKeyDictionary()


def _other_version(worker: str, there: str, here: str) -> str:
    return (
        f"worker {worker} has plmix_dist {there}, and this process has {here}: results might differ, so nothing is "
        "computed there. Install the same version on client and workers, and restart the workers; "
        "`plmix doctor --scheduler ADDRESS` compares them"
    )


# What is known of work that a cluster was given: for messages when something goes wrong.


@dataclass(frozen=True)
class Job:
    """Work that a cluster was given."""

    name: str  # as people know it: "the pass 'e-step'"
    details: Callable[[str], str] | None = None  # what a task works on, by its key: "leaves 0 to 12, rows 0 to 49,151"
    rows_kept: bool = False  # whether workers keep rows in memory for it, which they need not do
    homes: frozenset[str] = frozenset()  # the addresses of workers that tasks prefer

    def task(self, key: object) -> str:
        """A task for a message, with what it works on."""
        details = "" if self.details is None else self.details(str(key))
        return f"task {key} ({details})" if details else f"task {key}"
