"""A scheduler, or workers, that run until a signal ends them: what services and batch systems start."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from plmix_dist.cluster.executor import bytes_of
from plmix_dist.cluster.tls import TlsFiles, check_exposure, encrypted_address, is_loopback, security_for
from plmix_dist.errors import ClusterError, SettingsError

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.spans import Span, SpansSchedulerExtension


# A worker that has not reported for this long is taken for lost, unless Dask's configuration names another time.
_WORKER_TTL = "60s"
_LOOPBACK = "127.0.0.1"
_CLOSE_SECONDS = 5.0


_Ready = Callable[[dict[str, Any]], None]


def serve_scheduler(
    ready: _Ready, *, host: str, port: int, dashboard: str | None, tls: TlsFiles, without_tls: bool
) -> None:
    """Run a scheduler until SIGTERM, or until SIGINT, which raises KeyboardInterrupt.

    Its host is "" for all interfaces, its port 0 for any free one. The dashboard, which has /health and /metrics too,
    is plain HTTP without authentication; None for none. `without_tls` is asked for by name: listen beyond this machine
    without encryption.
    """
    check_exposure("a scheduler", host, encrypted=bool(tls), allowed=without_tls)
    if dashboard is not None:
        # Encryption of the cluster does not reach the dashboard.
        shown_at = _dashboard_host(dashboard)
        advice = "it is plain HTTP also with certificates: reach it by `ssh -L 8787:127.0.0.1:8787 HOST`"
        check_exposure("a dashboard", shown_at, encrypted=False, allowed=without_tls, advice=advice)
    _run(_scheduler(ready, host, port, dashboard, tls))


def serve_workers(
    ready: _Ready, *, scheduler: str, workers: int, host: str | None, tls: TlsFiles, without_tls: bool, **how: Any
) -> None:
    """Run workers until SIGTERM, or until SIGINT, which raises KeyboardInterrupt.

    Their host is None for the address that faces the scheduler. `how` has threads and memory of
    each, and how long they wait for the scheduler.
    """
    from distributed.comm.addressing import get_address_host

    address = encrypted_address(scheduler, tls)
    try:
        faced = get_address_host(address)
    except ValueError as error:
        raise SettingsError(f"SCHEDULER takes an address such as tls://node1:8786, but is {address!r}") from error
    if tls and not address.startswith("tls://"):
        raise SettingsError(f"certificates are given, but {address} is not encrypted; use tls://")
    what, reached = ("a worker for the scheduler", faced) if host is None else ("a worker", host)
    check_exposure(what, reached, encrypted=bool(tls), allowed=without_tls)
    # Dask itself would listen at every address of this machine.
    own, memory = _own_address(faced) if host is None else host, how["memory_limit"]
    bytes_of(memory)
    how |= {"host": own, "memory_limit": memory or "auto", **security_for(None, tls)}
    _run(_workers(ready, address, workers, **how))


async def _scheduler(ready: _Ready, host: str, port: int, dashboard: str | None, tls: TlsFiles) -> int | None:
    import dask.config
    from distributed import Scheduler

    dask.config.update_defaults({"distributed": {"scheduler": {"worker-ttl": _WORKER_TTL}}})
    scheduler = Scheduler(
        host=host or None,
        port=port,
        protocol="tls" if tls else "tcp",
        dashboard=dashboard is not None,
        dashboard_address=dashboard or f"{_LOOPBACK}:0",
        plugins=[_ForgetEndedSpans()],
        **security_for(None, tls),
    )
    signalled = asyncio.ensure_future(_first_signal())
    try:
        await scheduler
    except (OSError, ValueError, RuntimeError) as error:
        raise ClusterError(
            f"no scheduler can listen at {host or 'all interfaces'}, port {port} ({error}); choose another --host or "
            "--port"
        ) from error
    http: Any = scheduler.http_server
    ready({"address": scheduler.address, "dashboard": f"http://{http.address}:{http.port}"})
    ended = asyncio.ensure_future(scheduler.finished())
    return await _until_ended(signalled, ended, lambda: scheduler.close(timeout=1))


async def _workers(ready: _Ready, address: str, n: int, *, threads: int, wait: float, **how: Any) -> int | None:
    """`n` workers with `threads` threads each, which wait up to `wait` seconds for the scheduler."""
    from distributed import Nanny

    # /health and /metrics only, for this machine only: they are plain HTTP.
    how |= {"dashboard": False, "dashboard_address": f"{_LOOPBACK}:0", "death_timeout": wait}
    nannies = [Nanny(address, nthreads=threads, **how) for _ in range(n)]
    signalled = asyncio.ensure_future(_first_signal())
    joining = asyncio.ensure_future(_joined(nannies, address, wait))
    number = await _until_ended(signalled, joining, lambda: _close_all(nannies))
    if number is not None:
        joining.cancel()
        return number
    ready({"scheduler": address, "workers": [nanny.worker_address for nanny in nannies]})
    ended = asyncio.gather(*(nanny.finished() for nanny in nannies))
    number = await _until_ended(signalled, ended, lambda: _close_all(nannies))
    if number is None:
        raise ClusterError(f"the scheduler at {address} is gone, or has dismissed the workers; start them again")
    return number


async def _joined(nannies: list[Any], address: str, wait: float) -> None:
    """Start workers; a ClusterError if they do not reach the scheduler in time."""
    try:
        async with asyncio.timeout(wait):
            await asyncio.gather(*nannies)
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        await _close_all(nannies)
        raise ClusterError(
            f"no scheduler at {address} took these workers within {wait:g} s ({error or 'no answer'}); check that it "
            "runs, that it can be reached from here, and that its certificates are of the same authority"
        ) from error


async def _close_all(nannies: list[Any]) -> None:
    await asyncio.gather(*(nanny.close(timeout=1) for nanny in nannies), return_exceptions=True)


async def _until_ended(
    signalled: asyncio.Future[int], ended: asyncio.Future[Any], close: Callable[[], Coroutine[Any, Any, Any]]
) -> int | None:
    """Wait for the end, whose errors are raised, or for a signal, and then close; the signal, or None for the end."""
    await asyncio.wait([signalled, ended], return_when=asyncio.FIRST_COMPLETED)
    if not signalled.done():
        await ended
        return None
    with contextlib.suppress(TimeoutError):  # the process ends in any case, and its workers with it
        await asyncio.wait_for(close(), _CLOSE_SECONDS)
    return signalled.result()


async def _first_signal() -> int:
    """The number of the first SIGINT or SIGTERM."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[int] = loop.create_future()

    def note(number: int) -> None:
        if not first.done():
            first.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, note, number)
    return await first


def _run(serving: Coroutine[Any, Any, int | None]) -> None:
    if asyncio.run(serving) == signal.SIGINT:
        raise KeyboardInterrupt


def _own_address(faced: str) -> str:
    """The address of this machine from which another is reached. Nothing is sent."""
    if is_loopback(faced):
        return _LOOPBACK
    try:
        family, _, _, _, target = socket.getaddrinfo(faced, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ClusterError(f"the scheduler's machine {faced} cannot be reached from here: {error}") from error


def _dashboard_host(address: str) -> str:
    """The host of HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise SettingsError(f"--dashboard takes HOST:PORT, such as 127.0.0.1:8787, but is {address!r}")
    return host


# A scheduler that runs for months: what Dask keeps of every computation for ever is dropped after a while.

_KEPT = 1_000
# Workers report what a span has cost with their heartbeats; after ten minutes no report is on its way. Dask closes a
# worker that reports on a span that the scheduler has forgotten.
_SECONDS_AFTER_END = 600.0


class _ForgetEndedSpans(SchedulerPlugin):
    """Forgets spans that ended some time ago, when there are many."""

    name = "plmix-forget-ended-spans"

    def __init__(self, kept: int = _KEPT, seconds: float = _SECONDS_AFTER_END) -> None:
        self._kept, self._seconds = kept, seconds

    def update_graph(self, scheduler: Scheduler, **about: Any) -> None:
        """Called by the scheduler for every graph that a client sends."""
        del about
        spans: SpansSchedulerExtension | None = scheduler.extensions.get("spans")
        if spans is None or len(spans.root_spans) <= 2 * self._kept:
            return
        old, new = spans.root_spans[: -self._kept], spans.root_spans[-self._kept :]
        before = time.time() - self._seconds
        ended = {id(root) for root in old if _is_over(root, before)}
        forgotten = {span.id for root in old if id(root) in ended for span in root.traverse_spans()}
        spans.root_spans[:] = [*(root for root in old if id(root) not in ended), *new]
        for number in forgotten:
            del spans.spans[number]
        _drop(spans.spans_search_by_name, forgotten)
        _drop(spans.spans_search_by_tag, forgotten)


def _drop(index: dict[Any, list[Span]], forgotten: set[str]) -> None:
    """Take spans out of a table of lists, and lists that become empty."""
    for key in list(index):
        index[key][:] = [span for span in index[key] if span.id not in forgotten]
        if not index[key]:
            del index[key]


def _is_over(root: Span, before: float) -> bool:
    """Whether the scheduler has forgotten all tasks of a span, and the last of them ended before a time."""
    groups = list(root.traverse_groups())
    n_left = sum(number for group in groups for state, number in group.states.items() if state != "forgotten")
    return n_left == 0 and root.enqueued < before and all(group.stop < before for group in groups)
