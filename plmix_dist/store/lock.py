"""One writer at a time: an operating-system lock on local disk, a lease that is renewed behind a URL."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import filelock

from plmix_dist.errors import StoreLockedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.store.location import Location

LEASE_KEY = "wip/lock.json"
LOCK_KEYS = frozenset({"wip/lock", LEASE_KEY})
LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0


class _Holder(NamedTuple):
    token: str
    who: str
    renewed: float


@contextlib.contextmanager
def write_lock(location: Location) -> Iterator[None]:
    """Hold the right to write to a store; an error if another process holds it.

    A lock ends with its process. A lease behind a URL ends 60 s after its writer died.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store.location import Location
    >>> place = Location.of(tempfile.mkdtemp())
    >>> with write_lock(place):
    ...     place.listing()
    ['wip/lock']
    """
    with _file_lock(location) if location.is_local else _lease(location):
        yield


@contextlib.contextmanager
def _file_lock(location: Location) -> Iterator[None]:
    path = location.local_path("wip/lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise StoreLockedError(
            f"another process is writing to {location.url}; wait for it to end, or stop it, then run this again"
        ) from None
    try:
        yield
    finally:
        # Remove the file while the lock is held: after release it may be the lock of the next writer.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()
        with contextlib.suppress(OSError):  # the folder is not empty
            path.parent.rmdir()


@contextlib.contextmanager
def _lease(location: Location) -> Iterator[None]:
    token = uuid.uuid4().hex
    holder = _holder(location)
    if holder is not None:
        age = time.time() - holder.renewed
        if age < LEASE_SECONDS:
            raise StoreLockedError(
                f"{holder.who} is writing to {location.url} (seen {age:.0f} s ago); wait for it to end. "
                f"If it died, its lease ends after {LEASE_SECONDS:.0f} s"
            )
    _renew(location, token)
    if not _holds(location, token):
        raise StoreLockedError(
            f"another process began to write to {location.url} at the same moment; run this again"
        )
    stop = threading.Event()
    keeper = threading.Thread(target=_keep_renewing, args=(location, token, stop), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()
        if _holds(location, token):
            location.remove(LEASE_KEY)


def _holder(location: Location) -> _Holder | None:
    """Who writes to a store, according to its lease."""
    try:
        holder = json.loads(location.read_bytes(LEASE_KEY))
        return _Holder(str(holder["token"]), str(holder["who"]), float(holder["renewed"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise StoreLockedError(
            f"{location.url}/{LEASE_KEY} cannot be read, so another process may be writing; "
            "remove it if none is, and run this again"
        ) from None


def _holds(location: Location, token: str) -> bool:
    holder = _holder(location)
    return holder is not None and holder.token == token


def _keep_renewing(location: Location, token: str, stop: threading.Event) -> None:
    # After a long pause of this process another may have taken the lease over.
    while not stop.wait(RENEW_SECONDS) and _holds(location, token):
        _renew(location, token)


def _renew(location: Location, token: str) -> None:
    who = f"{getpass.getuser()}@{socket.gethostname()} (process {os.getpid()})"
    location.write_bytes(LEASE_KEY, json.dumps({"token": token, "who": who, "renewed": time.time()}).encode())
