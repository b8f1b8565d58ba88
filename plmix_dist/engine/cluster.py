"""A cluster when it is worth one: a given scheduler, a local cluster, or none."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from plmix_dist.engine.clients import connected
from plmix_dist.engine.dashboard import with_fit_page
from plmix_dist.engine.encryption import TlsFiles, encrypted_address, security_for
from plmix_dist.engine.executor import DistributedExecutor, ThreadedExecutor
from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client

    from plmix_dist.engine.executor import Inputs

Task = TypeVar("Task")
Result = TypeVar("Result")

# Below this many tasks a local cluster takes longer to start than it saves.
WORTH_A_CLUSTER = 4
# A worker that has imported everything needs about this much.
_LEAST_MEMORY = 200_000_000


@dataclass(frozen=True)
class ClusterOptions:
    """Where to compute: the options of every verb that computes.

    With neither a scheduler nor a number of workers, small work runs in this process and large work on a
    local cluster of one worker a core. `workers=0` always stays in this process.
    """

    scheduler: str | None = None
    workers: int | None = None
    threads: int | None = None
    memory_limit: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    @property
    def tls(self) -> TlsFiles:
        """The files of an encrypted connection."""
        return TlsFiles(self.tls_ca, self.tls_cert, self.tls_key)


class LazyExecutor:
    """Starts or joins a cluster when the first work arrives that is worth one, and leaves it at the end."""

    def __init__(self, options: ClusterOptions) -> None:
        if options.scheduler is not None and options.workers is not None:
            raise SettingsError("give either --scheduler or --workers, not both")
        self.options = options
        self._stack = contextlib.ExitStack()
        self._client: Client | None = None

    def __enter__(self) -> LazyExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def map(
        self, function: Callable[..., Result], tasks: Sequence[Task], name: str, inputs: Inputs = None
    ) -> Iterator[tuple[int, Result]]:
        """Run tasks where the options say."""
        if self._wants_cluster(len(tasks)):
            yield from DistributedExecutor(self.client()).map(function, tasks, name, inputs)
        else:
            yield from ThreadedExecutor(self.options.threads).map(function, tasks, name, inputs)

    def client(self) -> Client:
        """The client, connected now if it was not before."""
        if self._client is None:
            self._client = self._stack.enter_context(open_client(self.options))
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
        return self._client is not None or n_tasks >= WORTH_A_CLUSTER


@contextlib.contextmanager
def open_client(options: ClusterOptions) -> Iterator[Client]:
    """A client of the given scheduler, or of a local cluster that lives as long as the client."""
    from distributed import Client, LocalCluster

    if options.scheduler is not None:
        files = options.tls
        address = encrypted_address(options.scheduler, files)
        with connected(address, **security_for(address, files)) as client:
            yield client
        return
    if options.memory_limit not in (None, "auto"):
        bytes_of(str(options.memory_limit))
    runner = _loop_without_interruptions()
    with with_fit_page():
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


def bytes_of(limit: str) -> int:
    """An amount of memory per worker in bytes; an error unless Dask understands it, or if it is too small.

    Examples
    --------
    >>> bytes_of("2GB")
    2000000000
    """
    from dask.utils import parse_bytes

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
