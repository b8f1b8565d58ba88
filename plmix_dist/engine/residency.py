"""Whether the rows of a fit stay in memory from pass to pass."""

from __future__ import annotations

from typing import Literal

from plmix_dist.errors import SettingsError

Residency = Literal["auto", "memory", "store"]

# With "auto", blocks stay in memory when they take no more than this share of it.
_MEMORY_SHARE = 0.4


def stays_in_memory(residency: Residency, decoded_bytes: float, memory: float) -> bool:
    """Whether blocks of so many bytes stay in so much memory.

    Examples
    --------
    >>> stays_in_memory("auto", 39e6, 100e6), stays_in_memory("auto", 41e6, 100e6)
    (True, False)
    """
    if residency not in ("auto", "memory", "store"):
        raise SettingsError(f"residency must be auto, memory or store, but is {residency!r}")
    return residency == "memory" or (residency == "auto" and decoded_bytes <= _MEMORY_SHARE * memory)


def free_memory() -> float:
    """Bytes of memory that this machine has to spare.

    Examples
    --------
    >>> free_memory() > 0
    True
    """
    import psutil

    return float(psutil.virtual_memory().available)
