"""Requests to storage behind a URL. Each has an end: an endpoint that accepts and stays silent is an error.

A request may take 60 s, and one second more per megabyte. The environment variable `PLMIX_STORAGE_TIMEOUT` sets another
number of seconds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from plmix_dist.errors import SettingsError

VARIABLE = "PLMIX_STORAGE_TIMEOUT"
_SECONDS = 60.0
_BYTES_PER_SECOND = 1e6


def storage_seconds(n_bytes: int = 0) -> float:
    """How many seconds a request about so many bytes may take.

    Examples
    --------
    >>> storage_seconds(), storage_seconds(30_000_000)
    (60.0, 90.0)
    """
    given = os.environ.get(VARIABLE, _SECONDS)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise SettingsError(f"{VARIABLE} must be a number of seconds above 0, but is {given!r}")
    return seconds + n_bytes / _BYTES_PER_SECOND


@dataclass(frozen=True)
class RemoteFiles:
    """The file system behind a URL, and the root within it.

    Examples
    --------
    >>> import fsspec
    >>> files = RemoteFiles(fsspec.filesystem("memory"), "/remote")
    >>> files.call("pipe_file", "/remote/a", b"tea")
    >>> files.call("cat_file", "/remote/a")
    b'tea'
    """

    filesystem: Any
    root: str

    def call(
        self, method: str, *arguments: Any, n_bytes: int = 0, seconds: float | None = None, **options: Any
    ) -> Any:
        """What a method of the file system gives; a TimeoutError if it takes longer than it may.

        Parameters
        ----------
        method
            A method that file systems with and without an event loop have.
        arguments, options
            What it takes.
        n_bytes
            How many bytes it moves.
        seconds
            How long it may take; by default `storage_seconds`.
        """
        if not getattr(self.filesystem, "async_impl", False):
            return getattr(self.filesystem, method)(*arguments, **options)
        from fsspec.asyn import sync

        request = getattr(self.filesystem, f"_{method}")
        limit = seconds or storage_seconds(n_bytes)
        try:
            return sync(self.filesystem.loop, request, *arguments, timeout=limit, **options)
        except TimeoutError as error:
            raise TimeoutError(f"no answer within {limit:.0f} s ({VARIABLE})") from error
