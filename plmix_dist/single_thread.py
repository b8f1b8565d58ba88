"""BLAS and OpenMP held to one thread: sums of several come in any order, which shows in the last bits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def single_thread() -> AbstractContextManager[Any]:
    """While this is open, libraries that NumPy, SciPy and scikit-learn call into work with one thread.

    Examples
    --------
    >>> import numpy as np
    >>> with single_thread():
    ...     product = np.eye(2) @ np.eye(2)
    """
    limit: AbstractContextManager[Any] = _controller().limit(limits=1)
    return limit


@cache
def _controller() -> Any:
    """Looked for once, since that takes milliseconds, and after all libraries that matter have been loaded."""
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
