"""BLAS limited to one thread as long as any thread of this process computes here."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

_lock = threading.Lock()
_state: dict[str, Any] = {"inside": 0, "limit": None}


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """As `single_thread`, but for several threads at once: the first sets the limit, the last lifts it.

    The limit holds for the whole process. If every thread set and lifted its own, the first to end would lift that of
    all others.

    Examples
    --------
    >>> import numpy as np
    >>> with one_blas_thread(), one_blas_thread():
    ...     product = np.eye(2) @ np.eye(2)
    """
    with _lock:
        if not _state["inside"]:
            _state["limit"] = single_thread()
            _state["limit"].__enter__()
        _state["inside"] += 1
    try:
        yield
    finally:
        with _lock:
            _state["inside"] -= 1
            if not _state["inside"]:
                _state["limit"].__exit__(None, None, None)
                _state["limit"] = None
