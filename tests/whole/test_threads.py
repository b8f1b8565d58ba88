"""Libraries limited to one thread, whichever was loaded first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = """
import sys
from threadpoolctl import ThreadpoolController, threadpool_info
from plmix_dist.threads import single_thread

def threads():
    return sorted({(library["user_api"], library["num_threads"]) for library in threadpool_info()})

for name in sys.argv[1].split(","):
    if name:
        __import__(name)
    # Machines with one core have one thread anyway.
    ThreadpoolController().limit(limits=3)
    with single_thread():
        print(threads())
    print(threads())
print("sklearn" in sys.modules)
"""


@pytest.mark.parametrize("names", ["scipy.linalg", "numpy,scipy.linalg"])
def test_single_thread__all_libraries(names: str, python_says: Callable[..., str]) -> None:
    *lines, with_scikit_learn = python_says(THREADS, names).splitlines()
    inside, outside = lines[-2:]
    assert with_scikit_learn == "False"
    assert inside == str([("blas", 1)])
    assert outside == str([("blas", 3)])


def test_single_thread__holds_until_the_last_thread_leaves() -> None:
    import scipy.linalg  # noqa: F401 - its BLAS is limited too
    from threadpoolctl import threadpool_info

    from plmix_dist.threads import single_thread

    def most() -> int:
        return max(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")

    before = most()
    first, second = single_thread(), single_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert most() == 1
    second.__exit__(None, None, None)
    assert most() == before
