"""One writer at a time: an operating-system lock on local disk, a lease that is renewed behind a URL.

A lease is one key per writer. A writer puts its key there, then looks for others, and writes only if there are none.
Of two writers, the one that looks last sees both keys, so they never both write. This needs no conditional writes,
only listings that show every key that was written before.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import filelock

from plmix_dist.errors import StoreError, StoreLockedError
from plmix_dist.store.access import writing_explained
from plmix_dist.store.location import Location

LEASE_SECONDS = 60.0
_RENEW_SECONDS = 15.0
# If the storage does not answer, a renewal is given up after 10 s and tried again after a pause. So leases survive
# outages of half a minute.
_RENEWAL_MAY_TAKE = 10.0
_RETRY_SECONDS = 2.0
# How often a writer looks again for others that began at the same moment and must leave first: for about 10 s.
_LOOKS = 200
_LOCK_FILE = "wip/lock"


def is_lock(key: str) -> bool:
    """Whether a key is a lock or a lease, which its holder removes."""
    return key.startswith(_LOCK_FILE)


class HeldLock:
    """The right to write."""

    def check(self) -> None:
        """An error if another process may have become the writer; to be called before publishing."""


class _FileLock(HeldLock):
    """The right to write on local disk, which the operating system keeps as long as the file of the lock is there."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.taken = self._there()

    def check(self) -> None:
        """An error if the folder was removed, or another is in its place: then it lacks what was written before."""
        if not self.is_there():
            raise StoreError(
                f"{self.location.url} was removed or replaced while this process was writing to it, so what is there "
                "now is not complete; run the same command again with --force (overwrite=True in Python)"
            )

    def is_there(self) -> bool:
        """Whether the file of the lock is the one that was taken."""
        return self.taken is not None and self._there() == self.taken

    def _there(self) -> tuple[int, int] | None:
        try:
            found = self.location.local_path(_LOCK_FILE).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def write_lock(location: Location) -> AbstractContextManager[HeldLock]:
    """Hold the right to write to a store; an error if another process holds it.

    A lock ends with its process. A lease behind a URL ends 60 s after its writer died.
    """
    return _file_lock(location) if location.is_local else _lease(location)


@contextlib.contextmanager
def _file_lock(location: Location) -> Iterator[HeldLock]:
    path = location.local_path(_LOCK_FILE)
    lock = filelock.FileLock(path)
    with writing_explained(str(path), 0):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise StoreLockedError(
                f"another process is writing to {location.url}; wait for it to end, or stop it, then run this again"
            ) from None
    held = _FileLock(location)
    try:
        yield held
    finally:
        # Remove the file while the lock is held: after release it may be the lock of the next writer.
        with contextlib.suppress(OSError):
            if held.is_there():
                path.unlink(missing_ok=True)
        lock.release()
        with contextlib.suppress(OSError):  # the folder is not empty
            path.parent.rmdir()


class _Holder(NamedTuple):
    """The content of a lease. `held` is False while its writer still looks for others."""

    token: str
    who: str
    renewed: float
    held: bool

    @property
    def age(self) -> float:
        return time.time() - self.renewed


@contextlib.contextmanager
def _lease(location: Location) -> Iterator[HeldLock]:
    lease = _Lease(location)
    stop = threading.Event()
    keeper = threading.Thread(target=lease.keep_renewing, args=(stop,), daemon=True)
    try:
        lease.take()
        keeper.start()
        yield lease
    finally:
        stop.set()
        if keeper.ident is not None:
            keeper.join()
        # Its own: no other writer has this key. If the storage is away, the lease ends by itself.
        with contextlib.suppress(StoreError):
            location.remove(lease.key, seconds=_RENEWAL_MAY_TAKE)


class _Lease(HeldLock):
    """A lease of this writer."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.token = uuid.uuid4().hex
        self.key = f"{_LOCK_FILE}-{self.token}.json"
        self.renewed = time.time()
        self.lost = False

    def take(self) -> None:
        """Take the lease; an error if another writer has it, or has begun to take it and comes first."""
        self._renew(held=False)
        looks = 0
        while others := self._others():
            looks += 1
            for other in others:
                if other.held:
                    raise StoreLockedError(
                        f"{other.who} is writing to {self.location.url} (seen {max(other.age, 0):.0f} s ago); wait for "
                        f"it to end. If it died, its lease ends after {LEASE_SECONDS:.0f} s"
                    )
            # All of them look at each other: the smallest token waits until the others have left.
            if min(other.token for other in others) < self.token or looks > _LOOKS:
                raise StoreLockedError(
                    f"another process began to write to {self.location.url} at the same moment; run this again"
                )
            time.sleep(0.05)
        self._renew(held=True)
        for key, holder in self._leases():
            if holder.age >= LEASE_SECONDS:
                self.location.remove(key)

    def check(self) -> None:
        """An error if the lease was lost: this process was stopped long enough for another to take over."""
        self._look_at_the_clock()
        if not self.lost:
            self._renew(held=True)
            self.lost = any(other.held for other in self._others())
        if self.lost:
            raise StoreLockedError(
                f"this process was stopped for more than {LEASE_SECONDS:.0f} s and lost its lease on "
                f"{self.location.url}, so another may be writing; nothing was published. Run the same command again"
            )

    def keep_renewing(self, stop: threading.Event) -> None:
        """Renew the lease until `stop` is set or the lease is lost. If the storage is away, try again soon."""
        pause = _RENEW_SECONDS
        while not stop.wait(pause):
            try:
                self._look_at_the_clock()
                if self.lost:
                    return
                self._renew(held=True)
                pause = _RENEW_SECONDS
            except OSError:
                pause = _RETRY_SECONDS

    def _look_at_the_clock(self) -> None:
        """Note a lease that has ended, or that another writer has removed because it had ended."""
        ended = time.time() - self.renewed > LEASE_SECONDS
        self.lost = self.lost or ended or not self.location.exists(self.key, seconds=_RENEWAL_MAY_TAKE)

    def _renew(self, *, held: bool) -> None:
        now = time.time()
        record = {"token": self.token, "who": _who(), "renewed": now, "held": held}
        self.location.write_bytes(self.key, json.dumps(record).encode(), seconds=_RENEWAL_MAY_TAKE)
        self.renewed = now

    def _others(self) -> list[_Holder]:
        """The leases of other writers that have not ended."""
        return [holder for _, holder in self._leases() if holder.age < LEASE_SECONDS]

    def _leases(self) -> list[tuple[str, _Holder]]:
        keys = [key for key in self.location.listing("wip") if is_lock(key) and key != self.key]
        holders = [(key, _holder(self.location, key)) for key in keys]
        return [(key, holder) for key, holder in holders if holder is not None]


def _holder(location: Location, key: str) -> _Holder | None:
    """The content of a lease; None if it was removed meanwhile."""
    try:
        found = json.loads(location.read_bytes(key))
        return _Holder(str(found["token"]), str(found["who"]), float(found["renewed"]), bool(found.get("held", True)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StoreLockedError(
            f"{location.url}/{key} cannot be read, so another process may be writing; "
            "remove it if none is, and run this again"
        ) from None


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} (process {os.getpid()})"
