"""The one place that chooses how kernels are compiled."""

from __future__ import annotations

from typing import Any

import numba

# No fast-math: the same inputs must give the same bits, and NaN must stay NaN. Division by zero gives infinity, as in
# NumPy, so that a bad number is found by the check on results instead of an exception in the midst of a block.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}

kernel = numba.njit(**_OPTIONS)
