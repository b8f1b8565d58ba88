"""The passes of EM over full rankings in hand-written C (c_kernel.c), compiled where there is a compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("gcc", "clang", "cc")


class CStatistics(NamedTuple):
    """What one pass gives; see EmStatistics."""

    log_likelihood: float
    shares: np.ndarray[Any, Any]
    wins: np.ndarray[Any, Any]
    expected_wins: np.ndarray[Any, Any]
    rates: np.ndarray[Any, Any]


@cache
def c_pass() -> Callable[..., CStatistics] | None:
    """The pass in C; None, and said so once, without a compiler."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        print("no C compiler found: the comparison with C is skipped")
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "c_kernel.so"
        flags = ["-O3", "-march=native", "-fPIC", "-shared"]
        subprocess.run([compiler, *flags, str(SOURCE), "-o", str(library), "-lm"], check=True)
        # Once loaded, the library outlives its file.
        function = ctypes.CDLL(str(library)).full_rankings_pass
    function.restype = ctypes.c_double
    pointer = np.ctypeslib.ndpointer
    doubles = pointer(np.float64, flags="C_CONTIGUOUS")
    sizes = [ctypes.c_int64] * 3
    function.argtypes = [pointer(np.int32, 2, flags="C_CONTIGUOUS"), *sizes, *[doubles] * 5, ctypes.c_void_p]

    def run(
        rankings: np.ndarray[Any, Any],
        log_worths: np.ndarray[Any, Any],
        shares: np.ndarray[Any, Any],
        *,
        with_rates: bool,
    ) -> CStatistics:
        n_components, n_items = log_worths.shape
        worths = np.exp(log_worths - log_worths.max(axis=1, keepdims=True))
        totals = np.empty(n_components)
        wins, expected_wins = np.empty((2, n_components, n_items))
        rates = np.empty((n_components, n_items, n_items) if with_rates else 0)
        log_likelihood = function(
            rankings,
            *(len(rankings), n_items, n_components),
            *(worths, shares, totals, wins, expected_wins),
            rates.ctypes.data if with_rates else None,
        )
        return CStatistics(log_likelihood, totals, wins, expected_wins, rates)

    return run
