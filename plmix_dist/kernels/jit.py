"""How kernels are compiled, and where compiled kernels are kept.

A kernel is a function that Python calls: it takes arrays of int64 as `pointers` makes them, and returns nothing. A part
is a function that kernels call, once per row or more often.

Compiling takes seconds, loading a compiled kernel a fraction of one. Numba's own cache looks at the file of a function
alone, not at the files it calls into, and has been seen to mix up variants written by several processes at once. So
kernels are kept in a folder named after a digest of all kernel sources. Each kernel has a single variant, because all
kernels take arguments of one type. Processes that write at the same time write the same.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba import types

from plmix_dist.kernels.numba_internals import SOURCES, PartCompiler, keep_compiled_kernels_in

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def sources_digest() -> str:
    """A digest of all kernel sources and of numba's version. Numba itself looks at the processor.

    Examples
    --------
    >>> len(sources_digest())
    16
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(SOURCES.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Where compiled kernels are kept: below PLMIX_CACHE_DIR, or below the user's cache folder.

    Examples
    --------
    >>> cache_folder().name == f"kernels-{sources_digest()}"
    True
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (
        Path(os.environ.get("PLMIX_CACHE_DIR") or Path(home) / "plmix_dist") / f"kernels-{sources_digest()}"
    )


keep_compiled_kernels_in(cache_folder, sources_digest)

# No fast-math: the same inputs must give the same bits, and NaN must stay NaN. Division by zero gives infinity, as in
# NumPy, so that a bad number is found by the check on results instead of an exception in the middle of a block.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
_FIELDS = types.Array(types.int64, 1, "C")

# All kernels by name.
KERNELS: dict[str, Any] = {}


def kernel(function: Callable[..., None]) -> Any:
    """Compile a function that takes arrays of pointers, at its first call, and keep it in the cache."""
    dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
    KERNELS[function.__name__] = dispatcher
    return dispatcher


def argument_types(of_kernel: Any) -> tuple[Any, ...]:
    """The types of the arguments of a kernel: arrays of int64."""
    return (_FIELDS,) * of_kernel.py_func.__code__.co_argcount


# A call would cost as much as a short row itself, so LLVM puts parts in the place of their calls.
kernel_part = numba.njit(
    forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=PartCompiler, **_OPTIONS
)
