"""Whether the rows of a fit stay in memory from pass to pass."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, Protocol

from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plmix_dist.engine.leaf_source import LeafSource

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


class HasHome(Protocol):
    """A run of leaves, and the address of the worker that keeps it."""

    @property
    def start(self) -> int:
        """The first leaf."""
        ...

    @property
    def stop(self) -> int:
        """The leaf after the last."""
        ...

    @property
    def home(self) -> str:
        """The address of the worker."""
        ...


def fits_every_worker(
    residency: Residency, source: LeafSource, parts: Iterable[HasHome], workers: Mapping[str, Any]
) -> bool:
    """Whether each worker keeps the rows of its parts in memory, against the memory that it has itself.

    `workers` has what the scheduler knows of each, by address: `memory_limit` (0 or None without a limit), `host`.
    Workers without a limit share what their machine has to spare.
    """
    leaves: Counter[str] = Counter()
    for part in parts:
        leaves[part.home] += part.stop - part.start
    sharing = Counter(worker["host"] for worker in workers.values() if not worker["memory_limit"])
    return all(
        stays_in_memory(
            residency,
            source.decoded_bytes * n_leaves / source.n_leaves,
            workers[home]["memory_limit"] or free_memory() / sharing[workers[home]["host"]],
        )
        for home, n_leaves in leaves.items()
    )


def free_memory() -> float:
    """Bytes of memory that this machine has to spare.

    Examples
    --------
    >>> free_memory() > 0
    True
    """
    import psutil

    return float(psutil.virtual_memory().available)
