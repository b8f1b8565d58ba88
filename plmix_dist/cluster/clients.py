"""Which cluster computes: one rule for every argument named `client`; and what Dask shows of the work."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from plmix_dist.cluster.lost_workers import address_of, scheduler_gone
from plmix_dist.cluster.tls import warn_if_plain
from plmix_dist.errors import ClusterError, SettingsError
from plmix_dist.settings import shown

if TYPE_CHECKING:
    from distributed import Client as Client
    from distributed.deploy.cluster import Cluster
else:
    Client = Any  # for annotations; distributed is imported when a cluster is used

# What users may give as `client`.
ClientLike: TypeAlias = "Client | Cluster | str | Literal[False] | None"

_CONNECT_TIMEOUT = "10s"
_HERE = "use client=False to compute in this process"


@contextlib.contextmanager
def client_of(given: ClientLike) -> Iterator[Client | None]:
    """The client to compute with, or None for threads of this process.

    - None: the active client (`distributed.Client.current`), if there is one. Otherwise threads. Inside a Dask task
      always threads: a task that waits for other tasks keeps its worker's thread, and with too few threads it would
      wait for ever.
    - False: threads of this process.
    - A client: that client. It stays open.
    - A cluster, or the address of a scheduler: a client is made for it, and closed at the end. It does not become the
      default client.
    """
    chosen: Any = chosen_place(given)
    if chosen is None or _is_client(chosen):
        yield chosen
        return
    with connected(chosen) as client:
        yield client


def chosen_place(given: ClientLike) -> Client | Cluster | str | None:
    """Where to compute, checked: a client, a cluster, an address, or None for threads of this process."""
    if given is False:
        return None
    if given is None:
        active = _active_client()
        if active is not None:
            _check_usable(active, "the active Dask client")
        return active
    place: Any = given
    if isinstance(place, str) and place.strip():
        return given
    if _is_client(place):
        _check_usable(place, "the client")
    elif hasattr(place, "scheduler_address") and not hasattr(place, "compute"):
        _check_usable(place, "the cluster")
    else:
        raise SettingsError(
            "client must be a Dask client, a cluster, the address of a scheduler, False for threads of this process, "
            f"or None, but is {shown(given)}"
        )
    return given


@contextlib.contextmanager
def connected(place: Cluster | str, **security: Any) -> Iterator[Client]:
    """A client of a cluster or of the scheduler at an address, closed at the end; an error if none answers."""
    from distributed import Client
    from distributed.comm.addressing import get_address_host

    try:
        if isinstance(place, str):
            # Before there is a client: one that was made for a wrong address takes long to end.
            get_address_host(place)
            warn_if_plain(place)
        client = Client(place, timeout=_CONNECT_TIMEOUT, set_as_default=False, **security)
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        address = getattr(place, "scheduler_address", place)
        if isinstance(error, ValueError) and isinstance(place, str):
            raise ClusterError(
                f"{address!r} is not the address of a Dask scheduler ({error}); one looks like tcp://HOST:8786, and "
                "`dask scheduler` prints it when it starts"
            ) from error
        if "TLS certificate" in str(error):
            raise ClusterError(
                f"the scheduler at {address} and this client do not accept each other's certificates: they are of "
                "different authorities, or one has ended (`openssl x509 -noout -enddate -in cert.pem` says when); give "
                "one set to the whole cluster and restart all of it"
            ) from error
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({error}); start one with `dask scheduler`, or leave out its "
            "address to compute on this machine"
        ) from error
    with client:
        yield client


def _active_client() -> Client | None:
    """The client that Dask itself would use now; None if there is none, or inside a task."""
    distributed: Any = sys.modules.get("distributed")  # not imported for those who have no client
    if getattr(distributed, "Client", None) is None:
        return None
    with contextlib.suppress(ValueError):
        distributed.get_worker()
        return None  # this is a task
    try:
        client: Client = distributed.Client.current()
    except ValueError:
        return None
    # A worker has a client of its own once a task has asked for it. Threads of tasks may see it.
    return None if client.id.startswith("Client-worker-") else client


def _is_client(place: Any) -> bool:
    return hasattr(place, "compute") and hasattr(place, "scheduler_info")


def _check_usable(place: Any, what: str) -> None:
    """An error if a client or a cluster is asynchronous, closed, or has lost its scheduler."""
    if getattr(place, "asynchronous", False):
        raise SettingsError(
            f"{what} is asynchronous, but this call waits for its results; make one without asynchronous=True, "
            f"or {_HERE}"
        )
    status = getattr(place.status, "name", place.status)
    if status in ("closed", "closing"):
        where = address_of(place) if _is_client(place) else place.scheduler_address
        raise ClusterError(f"{what} at {where} is closed; make a new one, or {_HERE}")
    if status == "connecting":
        raise ClusterError(f"{scheduler_gone(place)}; or {_HERE}")


# Dask's own views of the work: the link to its dashboard, and a saved performance report.


def dashboard_link(client: Client) -> str | None:
    """Where the dashboard of a cluster is; None if there is none."""
    with contextlib.suppress(Exception):  # a link is worth no error
        link: Any = client.dashboard_link
        return str(link) if link else None
    return None


@contextlib.contextmanager
def saved_performance_report(client: Client | None, path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Save Dask's performance report of what is done inside, as one file that needs no network."""
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


def report_dashboard(client: Client | None, progress: Any) -> None:
    """Report the link to the dashboard of a cluster to a progress object that takes stages."""
    listener = getattr(progress, "stage", None)
    if client is not None and listener is not None:
        listener({"stage": "cluster", "state": "joined", "dashboard": dashboard_link(client)})
