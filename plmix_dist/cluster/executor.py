"""One function over many tasks, in threads of this process or on a cluster that options name."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed as threads_completed
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from plmix_dist.cluster import lost_workers, submission
from plmix_dist.cluster.clients import ClientLike, chosen_place, connected
from plmix_dist.cluster.tls import NO_TLS, TlsFiles, encrypted_address, security_for
from plmix_dist.errors import ClusterError, SettingsError
from plmix_dist.threads import STOP_SECONDS, StoppableThreads

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

_Function = Callable[..., Any]
_Inputs = Sequence[Any] | None
_Results = Iterator[tuple[int, Any]]


class Executor(Protocol):
    """Runs tasks and gives results as they come, each with the number of its task."""

    def map(self, function: _Function, tasks: Sequence[Any], name: str, inputs: _Inputs = None) -> _Results:
        """Run `function` on every task; `name` is what people see on the dashboard.

        `inputs` has, for each task, an array or a Dask array that is computed where the task runs and given to the
        function as its second argument.
        """
        ...


class ThreadedExecutor:
    """Threads of this process."""

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or os.cpu_count() or 1

    def map(self, function: _Function, tasks: Sequence[Any], name: str, inputs: _Inputs = None) -> _Results:
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


class _DistributedExecutor:
    """Workers of a Dask cluster: a client's, or those behind an address; then every run of tasks has its own client."""

    def __init__(self, place: Client | Cluster | str) -> None:
        self.place = place

    def map(self, function: _Function, tasks: Sequence[Any], name: str, inputs: _Inputs = None) -> _Results:
        """Run on the cluster; the first error cancels what has not begun."""
        from dask.delayed import delayed
        from distributed import KilledWorker

        place: Any = self.place
        with contextlib.nullcontext(place) if hasattr(place, "compute") else connected(place) as client:
            submission.check_versions(client, lost_workers.workers_of(client))
            run = uuid.uuid4().hex[:8]
            # Delayed rather than submitted: a Dask input then lives only until its task has used it.
            call = delayed(submission.same_version, pure=False, traverse=False)
            lazy = [
                call(submission.version_here(), function, *arguments, dask_key_name=f"{name}-{run}-{number}")
                for number, arguments in enumerate(_arguments(tasks, inputs))
            ]
            futures = submission.submit(client, lazy)
            try:
                yield from submission.as_they_come(client, futures, submission.Job(name))
            except Exception as error:
                if not isinstance(error, ClusterError) or isinstance(error.__cause__, KilledWorker):
                    submission.settle(client, futures)
                raise
            finally:
                submission.cancel(client, futures)


def _arguments(tasks: Sequence[Any], inputs: _Inputs) -> list[tuple[Any, ...]]:
    return [(task,) for task in tasks] if inputs is None else list(zip(tasks, inputs, strict=True))


def _call(function: _Function, task: Any, *inputs: Any) -> Any:
    """Call a function in this process; a Dask input is computed here and now."""
    ready = (value.compute(scheduler="synchronous") if hasattr(value, "dask") else value for value in inputs)
    return function(task, *ready)


def executor_for(where: Executor | ClientLike) -> Executor:
    """What runs tasks at a place: an executor itself, or what `clients.py` chooses for a client."""
    if hasattr(where, "map") and not hasattr(where, "compute"):
        return where  # type: ignore[return-value]
    place = chosen_place(where)  # type: ignore[arg-type]
    return ThreadedExecutor() if place is None else _DistributedExecutor(place)


def run_all(
    where: Executor | ClientLike,
    function: _Function,
    tasks: Sequence[Any],
    name: str,
    progress: Callable[[int, int], None] | None = None,
    inputs: _Inputs = None,
) -> list[Any]:
    """Results in the order of the tasks; `progress` is called with how many are done, and how many there are."""
    results: list[Any] = [None] * len(tasks)
    finished = executor_for(where).map(function, tasks, name, inputs)
    for done, (number, result) in enumerate(finished, start=1):
        results[number] = result
        if progress is not None:
            progress(done, len(tasks))
    return results


# --- a cluster when it is worth one: a given scheduler, a local cluster, or none ----------------------------

# Below this many tasks a local cluster takes longer to start than it saves.
_WORTH_A_CLUSTER = 4
# A worker that has imported everything needs about this much.
_LEAST_MEMORY = 200_000_000


@dataclass(frozen=True)
class ClusterOptions:
    """Where to compute: the options of every verb that computes.

    With neither a scheduler nor a number of workers, small work runs in this process and large work on a
    local cluster of one worker per core. `workers=0` always stays in this process.
    """

    scheduler: str | None = None
    workers: int | None = None
    threads: int | None = None
    memory_limit: str | None = None
    tls: TlsFiles = NO_TLS


class LazyExecutor(contextlib.ExitStack):
    """Starts or joins a cluster when the first work arrives that is worth one, and leaves it at the end."""

    def __init__(self, options: ClusterOptions) -> None:
        if options.scheduler is not None and options.workers is not None:
            raise SettingsError("give either --scheduler or --workers, not both")
        super().__init__()
        self.options = options
        self._client: Client | None = None

    def map(self, function: _Function, tasks: Sequence[Any], name: str, inputs: _Inputs = None) -> _Results:
        """Run tasks where the options ask for."""
        here = not self._wants_cluster(len(tasks))
        chosen = ThreadedExecutor(self.options.threads) if here else _DistributedExecutor(self.client())
        yield from chosen.map(function, tasks, name, inputs)

    def client(self) -> Client:
        """The client, connected now if it was not before."""
        if self._client is None:
            self._client = self.enter_context(open_client(self.options))
        return self._client

    def client_if_asked(self) -> Client | Literal[False]:
        """The client where the user named a scheduler or workers, False where threads of this process will do."""
        asked = self.options.scheduler is not None or bool(self.options.workers)
        return self.client() if asked else False

    def _wants_cluster(self, n_tasks: int) -> bool:
        if n_tasks == 0 or self.options.workers == 0:
            return False
        if self.options.scheduler is not None or self.options.workers is not None:
            return True
        return self._client is not None or n_tasks >= _WORTH_A_CLUSTER


@contextlib.contextmanager
def open_client(options: ClusterOptions) -> Iterator[Client]:
    """A client of the given scheduler, or of a local cluster that lives as long as the client."""
    from distributed import Client, LocalCluster

    if options.scheduler is not None:
        address = encrypted_address(options.scheduler, options.tls)
        with connected(address, **security_for(address, options.tls)) as client:
            yield client
        return
    bytes_of(options.memory_limit)
    runner = _loop_without_interruptions()
    cluster = LocalCluster(
        n_workers=options.workers or os.cpu_count() or 1,
        threads_per_worker=options.threads or 1,
        memory_limit=options.memory_limit or "auto",
        host="127.0.0.1",
        # Any free port: two clusters on one machine are nothing unusual.
        dashboard_address="127.0.0.1:0",
        loop=runner.loop,
    )
    try:
        with cluster, Client(cluster, set_as_default=False) as client:
            yield client
    finally:
        runner.stop()


def bytes_of(limit: str | None) -> int | None:
    """An amount of memory per worker in bytes, None for Dask's own; an error if it is not an amount, or too small."""
    from dask.utils import parse_bytes

    if limit in (None, "auto"):
        return None

    try:
        understood = int(parse_bytes(limit))
    except ValueError:
        understood = 0
    if understood < _LEAST_MEMORY:
        raise SettingsError(
            f"--memory-limit takes an amount of memory per worker such as 2GB, at least 200MB, but is {limit!r}"
        )
    return understood


def _loop_without_interruptions() -> Any:
    """The event loop of a local cluster, in a thread that blocks SIGINT; processes that it starts block it too.

    A terminal sends Ctrl-C to all processes. Workers would print what they were doing; this process closes them.
    """
    from distributed.utils import LoopRunner

    runner = LoopRunner()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()  # its thread inherits what is blocked here
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return runner
