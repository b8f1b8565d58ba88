"""Signs of life: a cluster from which nothing comes is watched; tasks report while their threads work."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from plmix_dist.errors import ClusterError
from plmix_dist.settings import whole_number
from plmix_dist.threads import Stopped

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

    from plmix_dist.cluster.submission import Job


# How long to wait for a cluster: settings, read through Dask's configuration.

# A task over many rows may run for long: it reports while it works, at most every 5 s.
_REPORT_SECONDS = 5.0
# The cluster is looked at only when nothing has come for 2 s.
_LOOK_SECONDS = 2.0


class _Patience(NamedTuple):
    """Seconds to wait for: something to happen, a worker to come, before a warning is logged."""

    stall: float
    no_workers: float
    warn: float

    @property
    def look_every(self) -> float:
        """Seconds without a result after which to look at the cluster."""
        return min(_LOOK_SECONDS, min(self) / 4)

    @property
    def report_every(self) -> float:
        """Seconds between two reports of a task that runs for long."""
        return min(_REPORT_SECONDS, self.stall / 4)


def tasks_per_worker(default: int) -> int:
    """How many tasks of a pass each worker gets."""
    import dask.config

    return whole_number("plmix.tasks-per-worker", dask.config.get("plmix.tasks-per-worker", default), at_least=1)


def patience() -> _Patience:
    """The settings as they are now."""
    import dask.config
    from dask.utils import parse_timedelta

    def seconds(name: str, default: float) -> float:
        return float(parse_timedelta(dask.config.get(f"plmix.{name}", default)))

    return _Patience(seconds("stall-timeout", 600.0), seconds("no-workers-timeout", 60.0), seconds("warn-after", 30.0))


logger = logging.getLogger("plmix_dist.cluster")

# The scheduler has 5 s to answer a question about its state.
_ANSWER_SECONDS = 5.0
# A message names at most 3 tasks and workers.
_MOST_NAMED = 3

# When a client last got a report of a long task.
_last_reports: WeakKeyDictionary[Client, list[float]] = WeakKeyDictionary()


class WorkersReplacedError(ClusterError):
    """All workers that tasks prefer are gone, and Dask does not give their tasks to the new ones."""


class Watch:
    """Ends a wait for a cluster that does nothing more."""

    def __init__(self, client: Client, job: Job, futures: Sequence[Future[Any]]) -> None:
        self.client = client
        self.job = job
        self.futures = futures
        self.patience = patience()
        self.note_activity()
        # The tasks of each worker when it was last looked at; who prefers certain workers knows them without asking.
        self._processing = {home: [] for home in job.homes} if job.homes else tasks_of_workers(client)

    def note_activity(self) -> None:
        """Note that something has come."""
        self._active = self._had_workers = time.monotonic()
        self._warn_after = self.patience.warn

    def look(self) -> None:
        """Called when nothing has come for a while: an error if nothing will come, a warning if it takes long."""
        check_connected(self.client)
        reported = _reports_to(self.client)[0]
        processing = ask(self.client, lambda scheduler: scheduler.processing(workers=None))
        check_connected(self.client)
        now = time.monotonic()
        if processing is not None:
            if processing != self._processing or reported > self._active:
                self._active, self._warn_after = now, self.patience.warn
            if processing:
                self._check_homes(processing)
                self._had_workers, self._processing = now, processing
            elif now - self._had_workers > self.patience.no_workers:
                raise ClusterError(self._no_workers(now - self._had_workers))
        quiet = now - self._active
        if quiet > self.patience.stall:
            raise ClusterError(self._stalled(quiet, answered=processing is not None))
        if quiet > self._warn_after:
            self._warn_after *= 2
            logger.warning(
                "%s: nothing has finished or reported for %.0f s; waiting for %s",
                self.job.name, quiet, self._tasks_and_workers(),
            )  # fmt: skip

    def _check_homes(self, processing: Mapping[str, list[str]]) -> None:
        """Tasks that had to wait while there was no worker at all stay waiting for the one they prefer."""
        idle = not any(processing.values())
        if self.job.homes and idle and not self.job.homes & set(processing):
            raise WorkersReplacedError(
                f"{self.job.name}: all workers were replaced, and tasks wait for those that are gone; run this again"
            )

    def _no_workers(self, seconds: float) -> str:
        address = address_of(self.client)
        last = _some(sorted(self._processing)) or "none"
        waiting = _some([self.job.task(future.key) for future in self.futures if not future.done()])
        return (
            f"{self.job.name}: the cluster at {address} has had no workers for {seconds:.0f} s "
            f"(plmix.no-workers-timeout); the last ones were: {last}; not finished: {waiting}. Look into the logs of "
            f"the workers, start new ones with `dask worker {address}`, and run this again"
        )

    def _stalled(self, seconds: float, *, answered: bool) -> str:
        what = f"{self.job.name}: nothing has finished or reported for {seconds:.0f} s (plmix.stall-timeout)"
        if not answered:
            return (
                f"{what}, and the scheduler at {address_of(self.client)} does not answer. Look whether its process "
                "hangs, restart it, and run this again"
            )
        return (
            f"{what}; waiting for {self._tasks_and_workers()}. A worker that was not seen for long may be frozen, out "
            "of memory or cut off: stop it, and run this again. If a task may take this long, set a longer "
            f"plmix.stall-timeout in Dask's configuration. What the scheduler knew is in {self._dump()}"
        )

    def _dump(self) -> str:
        """The path of a file with what the scheduler knows of workers and tasks; or why there is none."""
        from plmix_dist.store.sealed import plain_json  # the room loads zarr, which `plmix --help` does without

        known = {
            "job": self.job.name,
            "not finished": [str(future.key) for future in self.futures if not future.done()],
            "processing": self._processing,
            "scheduler": ask(self.client, lambda scheduler: scheduler.identity(n_workers=-1)),
        }
        try:
            descriptor, path = tempfile.mkstemp(prefix="plmix-cluster-", suffix=".json")
            with open(descriptor, "w") as file:
                json.dump(plain_json(known), file, indent=1, default=str)
        except OSError as error:
            return f"no file: {error}"
        return path

    def _tasks_and_workers(self) -> str:
        """The tasks that workers hold, the workers, and when these were last seen."""
        held = [(key, worker) for worker, keys in self._processing.items() for key in keys]
        seen = ask(self.client, lambda scheduler: scheduler.identity(n_workers=-1)) or {"workers": {}}
        if not held:
            states = [_worker_words(worker, seen["workers"]) for worker in sorted(seen["workers"])]
            return f"tasks that no worker has taken up ({_some(states) or 'no workers'})"
        return _some([f"{self.job.task(key)} on {_worker_words(one, seen['workers'])}" for key, one in held])


def address_of(client: Client) -> str:
    """The address of a client's scheduler, also after it is gone."""
    if client.scheduler is not None:
        return str(client.scheduler.address)
    started_with = client.cluster if client.cluster is not None else getattr(client, "_start_arg", "")
    return str(getattr(started_with, "scheduler_address", started_with))


def check_connected(client: Client) -> None:
    """An error if the client was closed, or its scheduler is gone."""
    if client.status in ("closed", "closing"):
        raise ClusterError(client_closed(client))
    if client.status == "connecting":
        raise ClusterError(scheduler_gone(client))


def client_closed(client: Client) -> str:
    """The message about a client that was closed."""
    return (
        f"the client of the cluster at {address_of(client)} was closed before its work was done; "
        "keep it open, or connect a new one, and run this again"
    )


def scheduler_gone(client: Client) -> str:
    """The message about a scheduler that cannot be reached any more."""
    return (
        f"the connection to the Dask scheduler at {address_of(client)} was lost: its process has ended or cannot be "
        "reached. Start it again with `dask scheduler`, connect a new client, and run this again"
    )


def workers_of(client: Client) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address; an error if it does not answer."""
    check_connected(client)
    found = ask(client, lambda scheduler: scheduler.identity(n_workers=-1))
    if found is None:
        check_connected(client)
        raise ClusterError(f"the Dask scheduler at {address_of(client)} does not answer; restart it")
    return dict(found["workers"])


def tasks_of_workers(client: Client) -> dict[str, list[str]]:
    """The tasks that each worker holds; empty if the scheduler does not answer."""
    return ask(client, lambda scheduler: scheduler.processing(workers=None)) or {}


def ask(client: Client, question: Callable[[Any], Awaitable[Any]]) -> Any:
    """The answer of the scheduler to a question about its state; None if there is none in time."""
    scheduler = client.scheduler
    if scheduler is None:
        return None

    async def answer() -> Any:
        return await question(scheduler)

    with contextlib.suppress(TimeoutError, OSError, RuntimeError):
        return client.sync(answer, callback_timeout=_ANSWER_SECONDS)
    return None


def _reports_to(client: Client) -> list[float]:
    """When the client last got a report of a long task; the first call subscribes to them."""
    if client not in _last_reports:
        last = _last_reports[client] = [0.0]

        def note(event: Any) -> None:
            del event
            last[0] = time.monotonic()

        client.subscribe_topic(_REPORTS, note)
    return _last_reports[client]


def _worker_words(address: str, workers: Mapping[str, Any]) -> str:
    worker = workers.get(address)
    if worker is None:
        return f"worker {address} (gone)"
    ago = max(0.0, time.time() - worker["last_seen"])
    state = "" if worker["status"] == "running" else f"{worker['status']}, "
    return f"worker {address} ({state}last seen {ago:.0f} s ago)"


def _some(words: list[str]) -> str:
    more = f", and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return ", ".join(words[:_MOST_NAMED]) + more


# --- threads inside a task: each worker keeps a pool, which the tasks that meet on it share -------------------

# Reports of long tasks go to clients under this name.
_REPORTS = "plmix-reports"

_pools: WeakKeyDictionary[Any, ThreadPoolExecutor] = WeakKeyDictionary()
_pools_lock = threading.Lock()


class TaskThreads:
    """The threads that a task may use, and its signs of life."""

    def __init__(self, report_every: float) -> None:
        self._worker = _this_worker()
        self._task: Any = None if self._worker is None else self._worker.get_current_task()
        self._report_every = report_every
        self._next_report = time.monotonic() + report_every
        self.n_threads: int = os.cpu_count() or 1 if self._worker is None else self._worker.state.nthreads
        with _pools_lock:
            own = ThreadPoolExecutor(self.n_threads, thread_name_prefix="plmix-leaves")  # it begins none yet
            self.pool = _pools.setdefault(self._worker or type(self), own)

    def beat(self) -> None:
        """Report to clients that this task is at work, unless it has just done so. A cancelled task ends here."""
        if self._worker is not None:
            task = self._worker.state.tasks.get(self._task)
            if task is None or task.state == "cancelled":
                raise Stopped
        now = time.monotonic()
        if self._worker is not None and now >= self._next_report:
            self._next_report = now + self._report_every
            self._worker.log_event(_REPORTS, {"worker": self._worker.address})


def _this_worker() -> Worker | None:
    """The worker whose task this is; None in any other thread."""
    from distributed import get_worker

    with contextlib.suppress(ValueError):
        return get_worker()
    return None
