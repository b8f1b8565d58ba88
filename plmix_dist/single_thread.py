"""BLAS and OpenMP limited to one thread: several threads add up in any order, which changes the last bits."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Limit:
    """The limit of this process: how many are inside, which libraries are limited, and how to lift it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_inside = 0
        self.limited: set[bool] = set()
        self.lift = ExitStack()


_limit = _Limit()


@contextmanager
def single_thread() -> Iterator[None]:
    """While this is open, the libraries that NumPy, SciPy and scikit-learn call use one thread.

    The limit holds for the whole process, so the threads inside share it: the first sets it, the last lifts it. Import
    scikit-learn's modules before opening it: a library that is loaded later is not limited.

    Examples
    --------
    >>> import numpy as np
    >>> with single_thread(), single_thread():
    ...     product = np.eye(2) @ np.eye(2)
    """
    with _limit.lock:
        with_scikit_learn = "sklearn.cluster" in sys.modules
        if with_scikit_learn not in _limit.limited:
            _limit.lift.enter_context(_controller(with_scikit_learn).limit(limits=1))
            _limit.limited.add(with_scikit_learn)
        _limit.n_inside += 1
    try:
        yield
    finally:
        with _limit.lock:
            _limit.n_inside -= 1
            if not _limit.n_inside:
                _limit.limited.clear()
                _limit.lift.close()


@cache
def _controller(with_scikit_learn: bool) -> Any:
    """The libraries that are loaded; finding them takes milliseconds, so it is done once.

    It is done again once scikit-learn has been imported, which brings an OpenMP library. Importing it here would take a
    second on workers that never use it.
    """
    del with_scikit_learn
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
