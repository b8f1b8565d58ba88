"""The one place that chooses how kernels are compiled, and where compiled kernels are kept.

Compiling takes seconds, loading a compiled kernel a fraction of one. Numba's own cache looks at the file of a function
alone, not at the files it calls into, and has been seen to mix up variants written by several processes at once. So
kernels are kept in a folder named after a digest of all kernel sources, and each has a single variant, by taking
arguments of fixed types: processes that write at the same time write the same.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

_SOURCES = Path(__file__).parent


@cache
def sources_digest() -> str:
    """A digest of everything that decides what kernels compile to, but for the processor, which numba looks at."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(_SOURCES.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Where compiled kernels are kept: PLMIX_CACHE_DIR, or the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (
        Path(os.environ.get("PLMIX_CACHE_DIR") or Path(home) / "plmix_dist") / f"kernels-{sources_digest()}"
    )


class _KernelLocator(caching._CacheLocator):
    """Tells numba where to keep the kernels of this package."""

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return sources_digest()

    def get_disambiguator(self) -> str:
        return "plmix"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _KernelLocator | None:
        del py_func
        if Path(py_file).parent != _SOURCES:
            return None
        locator = cls()
        try:
            locator.ensure_cache_path()
        except OSError:
            return None  # nowhere to write: numba goes on to its own places
        return locator


caching.CacheImpl._locator_classes.insert(0, _KernelLocator)

# No fast-math: the same inputs must give the same bits, and NaN must stay NaN. Division by zero gives infinity, as in
# NumPy, so that a bad number is found by the check on results instead of an exception in the midst of a block.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False, "cache": True}
kernel = numba.njit(**_OPTIONS)
# A part of a kernel that is called for every row: a call would cost as much as a short row itself. Parts are put in
# place before anything is compiled: compiled on their own first, as `forceinline` has it, they take half as long again.
kernel_part = numba.njit(inline="always", **_OPTIONS)
