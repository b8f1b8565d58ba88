"""BLAS and OpenMP limited to one thread: several threads add up in any order, which changes the last bits."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def single_thread() -> AbstractContextManager[Any]:
    """While this is open, the libraries that NumPy, SciPy and scikit-learn call use one thread.

    Import scikit-learn's modules before opening it: a library that is loaded later is not limited.

    Examples
    --------
    >>> import numpy as np
    >>> with single_thread():
    ...     product = np.eye(2) @ np.eye(2)
    """
    limit: AbstractContextManager[Any] = _controller("sklearn.cluster" in sys.modules).limit(limits=1)
    return limit


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
