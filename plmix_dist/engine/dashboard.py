"""Dask's dashboard: the link to it, a saved performance report, and the page about fits in the scheduler's own server.

The page uses three parts of distributed that are meant for others: `distributed.scheduler.http.routes` (modules whose
`routes` the scheduler serves), `Client.log_event`, and `Scheduler.get_events`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from distributed import Client

TOPIC = "plmix-fit"
FIT_PAGE = "plmix_dist.engine.fit_page"
# Iterations are told to the scheduler at most so often; each time takes a round trip.
_SECONDS_BETWEEN = 1.0
# A stage that begins or ends waits so many seconds until the last message is sent; then it is left for the next one.
_PATIENCE = 0.1
_PATIENCE_AT_THE_END = 1.0


def dashboard_link(client: Client) -> str | None:
    """Where the dashboard of a cluster is; None if there is none.

    Parameters
    ----------
    client
        A client of the cluster.
    """
    with contextlib.suppress(Exception):  # a link is worth no error
        link: Any = client.dashboard_link
        return str(link) if link else None
    return None


@contextlib.contextmanager
def saved_performance_report(client: Client | None, path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Save Dask's performance report of what is done inside, as one file that needs no network.

    Parameters
    ----------
    client
        The client that computes.
    path
        The file; None saves nothing.

    Examples
    --------
    >>> with saved_performance_report(None, None):
    ...     pass
    """
    if path is None:
        yield
        return
    if client is None:
        raise SettingsError(
            "a performance report is that of a Dask cluster, and this fit runs in threads; "
            "name --workers or --scheduler"
        )
    try:
        import bokeh  # noqa: F401 - the scheduler draws with it
    except ImportError:
        raise SettingsError(
            "a performance report needs bokeh: install plmix-dist[dashboard], here and where the scheduler runs"
        ) from None
    from distributed import performance_report

    with client.as_current(), performance_report(filename=str(path), mode="inline"):
        yield


@contextlib.contextmanager
def with_fit_page() -> Iterator[None]:
    """Schedulers that are started inside serve the page `/plmix`.

    Examples
    --------
    >>> import dask
    >>> with with_fit_page():
    ...     "plmix_dist.engine.fit_page" in dask.config.get("distributed.scheduler.http.routes")
    True
    """
    import dask
    import distributed  # noqa: F401 - it brings the settings

    routes = list(dask.config.get("distributed.scheduler.http.routes"))
    added = [] if FIT_PAGE in routes else [FIT_PAGE]
    with dask.config.set({"distributed.scheduler.http.routes": [*routes, *added]}):
        yield


def told_at(client: Client | None, progress: Any) -> Any:
    """What hears of a fit: in threads the user's progress alone, on a cluster its scheduler too.

    The progress is told where the dashboard is, before anything is computed.

    Examples
    --------
    >>> told_at(None, print) is print
    True
    """
    if client is None:
        return progress
    listener = getattr(progress, "stage", None)
    if listener is not None:
        listener({"stage": "cluster", "state": "joined", "dashboard": dashboard_link(client)})
    return FitTold(client, progress)


class FitTold:
    """Tells the scheduler of a fit, for its page `/plmix`; passes everything on to another listener.

    Parameters
    ----------
    client
        A client of the cluster.
    other
        What else hears of the fit: a progress function or object, or None.
    clock
        Gives the time in seconds.
    """

    def __init__(
        self, client: Client, other: Any = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._other = other
        self._clock = clock
        self._latest = -_SECONDS_BETWEEN
        self._waiting: list[dict[str, Any]] = []
        self._sender: threading.Thread | None = None

    def stage(self, event: dict[str, Any]) -> None:
        """Tell of a stage."""
        listener = getattr(self._other, "stage", None)
        if listener is not None:
            listener(event)
        if event["state"] != "iteration":
            self._waiting.append({name: event[name] for name in _STAGE_FIELDS if name in event})
            self._tell(now=True)
        if event["state"] == "ended" and self._sender is not None:
            self._sender.join(_PATIENCE_AT_THE_END)  # a client that was made for this fit is closed after it

    def __call__(self, record: dict[str, Any]) -> None:
        """Tell of an iteration of the fit to all rows."""
        if self._other is not None:
            self._other(record)
        self._waiting.append({name: record[name] for name in _ITERATION_FIELDS if name in record})
        self._tell()

    def _tell(self, *, now: bool = False) -> None:
        """Send what waits, in a thread of its own: no fit waits for a scheduler that does not answer."""
        moment = self._clock()
        if not now and moment - self._latest < _SECONDS_BETWEEN:
            return
        if self._sender is not None:
            self._sender.join(_PATIENCE if now else 0.0)
            if self._sender.is_alive():
                return
        self._latest = moment
        told, self._waiting = self._waiting, []
        self._sender = threading.Thread(target=self._send, args=(told,), name="fit-told", daemon=True)
        self._sender.start()

    def _send(self, told: list[dict[str, Any]]) -> None:
        with contextlib.suppress(Exception):  # a page is worth no error of a fit
            self._client.log_event(TOPIC, _plain(told))


_STAGE_FIELDS = ("stage", "state", "seconds", "passes", "weight")
_ITERATION_FIELDS = (
    "iteration",
    "log_likelihood",
    "objective",
    "gradient",
    "rankings_per_second",
    "taken",
    "seconds",
)


def _plain(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Numbers as Python's own, which is what travels."""
    return [
        {name: value.item() if hasattr(value, "item") else value for name, value in one.items()}
        for one in values
    ]
