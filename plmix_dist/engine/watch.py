"""Looking at a cluster from which nothing comes: is anything still going on there, and if not, why."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from plmix_dist.engine.waiting import patience
from plmix_dist.engine.worker_threads import REPORTS
from plmix_dist.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from distributed import Client, Future

    from plmix_dist.engine.job import Job

logger = logging.getLogger("plmix_dist.cluster")

# The scheduler has so many seconds to answer a question about its state.
_ANSWER_SECONDS = 5.0
# As many tasks and workers are named in a message.
_MOST_NAMED = 3

# When a client last heard of a long task at work.
_last_reports: WeakKeyDictionary[Client, list[float]] = WeakKeyDictionary()


class WorkersReplacedError(ClusterError):
    """All workers that tasks prefer are gone, and Dask does not give their tasks to the new ones."""


class Watch:
    """Ends a wait for a cluster that does nothing more.

    Parameters
    ----------
    client
        The client that waits.
    job
        What it waits for.
    futures
        The results it waits for.
    """

    def __init__(self, client: Client, job: Job, futures: Sequence[Future[Any]]) -> None:
        self.client = client
        self.job = job
        self.futures = futures
        self.patience = patience()
        self._heard = self._had_workers = time.monotonic()
        self._warn_after = self.patience.warn
        # The tasks of each worker when it was last looked at; who prefers certain workers knows them without asking.
        self._processing: Mapping[str, list[str]] = (
            {home: [] for home in job.homes} if job.homes else tasks_of_workers(client)
        )

    def heard(self) -> None:
        """Something has come."""
        self._heard = self._had_workers = time.monotonic()
        self._warn_after = self.patience.warn

    def look(self) -> None:
        """Called when nothing has come for a while: an error if nothing will come, a warning if it takes long."""
        check_connected(self.client)
        reported = _reports_to(self.client)[0]
        processing = _ask(self.client, lambda scheduler: scheduler.processing(workers=None))
        check_connected(self.client)
        now = time.monotonic()
        if processing is not None:
            if processing != self._processing or reported > self._heard:
                self._heard, self._warn_after = now, self.patience.warn
            if processing:
                self._check_homes(processing)
                self._had_workers, self._processing = now, processing
            elif now - self._had_workers > self.patience.no_workers:
                raise ClusterError(self._no_workers(now - self._had_workers))
        quiet = now - self._heard
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
        known = {
            "job": self.job.name,
            "not finished": [str(future.key) for future in self.futures if not future.done()],
            "processing": self._processing,
            "scheduler": _ask(self.client, lambda scheduler: scheduler.identity(n_workers=-1)),
        }
        try:
            descriptor, path = tempfile.mkstemp(prefix="plmix-cluster-", suffix=".json")
            with open(descriptor, "w") as file:
                json.dump(_plain(known), file, indent=1)
        except OSError as error:
            return f"no file: {error}"
        return path

    def _tasks_and_workers(self) -> str:
        """The tasks that workers hold, the workers, and when these were last seen."""
        held = [(key, worker) for worker, keys in self._processing.items() for key in keys]
        seen = _ask(self.client, lambda scheduler: scheduler.identity(n_workers=-1)) or {"workers": {}}
        if not held:
            states = [_worker_words(worker, seen["workers"]) for worker in sorted(seen["workers"])]
            return f"tasks that no worker has taken up ({_some(states) or 'there are no workers'})"
        return _some([f"{self.job.task(key)} on {_worker_words(one, seen['workers'])}" for key, one in held])


def _plain(known: Any) -> Any:
    """What JSON can hold; everything else as text, keys of tasks included."""
    if isinstance(known, dict):
        return {str(key): _plain(value) for key, value in known.items()}
    if isinstance(known, list | tuple | set):
        return [_plain(value) for value in known]
    return known if known is None or isinstance(known, bool | int | float | str) else str(known)


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
    """What to say when a client was closed."""
    return (
        f"the client of the cluster at {address_of(client)} was closed before its work was done; "
        "keep it open, or connect a new one, and run this again"
    )


def scheduler_gone(client: Client) -> str:
    """What to say when a scheduler cannot be reached any more."""
    return (
        f"the connection to the Dask scheduler at {address_of(client)} was lost: its process has ended or cannot be "
        "reached. Start it again with `dask scheduler`, connect a new client, and run this again"
    )


def workers_of(client: Client) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address; an error if it does not answer."""
    check_connected(client)
    found = _ask(client, lambda scheduler: scheduler.identity(n_workers=-1))
    if found is None:
        check_connected(client)
        raise ClusterError(f"the Dask scheduler at {address_of(client)} does not answer; restart it")
    workers: dict[str, Any] = found["workers"]
    return workers


def tasks_of_workers(client: Client) -> dict[str, list[str]]:
    """The tasks that each worker holds; empty if the scheduler does not answer."""
    return _ask(client, lambda scheduler: scheduler.processing(workers=None)) or {}


def _ask(client: Client, question: Callable[[Any], Awaitable[Any]]) -> Any:
    """The answer of the scheduler to a question about its state; None if there is none in time."""
    scheduler = client.scheduler
    if scheduler is None:
        return None

    async def answer() -> Any:
        return await question(scheduler)

    try:
        return client.sync(answer, callback_timeout=_ANSWER_SECONDS)
    except (TimeoutError, OSError, RuntimeError):
        return None


def _reports_to(client: Client) -> list[float]:
    """When the client last heard of a long task at work; the first call begins to listen."""
    if client not in _last_reports:
        last = _last_reports[client] = [0.0]

        def note(event: Any) -> None:
            del event
            last[0] = time.monotonic()

        client.subscribe_topic(REPORTS, note)
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
