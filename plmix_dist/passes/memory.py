"""Whether the rows of a fit stay in memory from pass to pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from plmix_dist.errors import SettingsError
from plmix_dist.passes.leaves import LeafSource

if TYPE_CHECKING:
    from plmix_dist.passes.dask import Part

Residency = Literal["auto", "memory", "store"]

# With "auto", blocks stay in memory when they take no more than this share of it.
_MEMORY_SHARE = 0.4


def stays_in_memory(residency: Residency, decoded_bytes: float, memory: float) -> bool:
    """Whether blocks of this many bytes stay in a memory of this many bytes."""
    if residency not in ("auto", "memory", "store"):
        raise SettingsError(f"residency must be auto, memory or store, but is {residency!r}")
    return residency == "memory" or (residency == "auto" and decoded_bytes <= _MEMORY_SHARE * memory)


def fits_every_worker(
    residency: Residency, source: LeafSource, parts: Iterable[Part], workers: Mapping[str, Any]
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
    """Bytes of memory that this machine has to spare."""
    import psutil

    return float(psutil.virtual_memory().available)


# Refusing numbers of items and components that do not fit into memory, before anything is computed.

# An item has a name. A component has for each item a worth, its place in their order, sums of a pass, earlier steps.
_BYTES_PER_ITEM = 200
_BYTES_PER_WORTH = 200
_BYTES_PER_START = 24
# Kernels number the worths of all items, four components together, by int32.
_MOST_WORTHS = 2**31
# Numbers that a message shows; no machine has memory for more.
_MOST_SHOWN = 10**30


def check_memory(n_items: int, n_components: int = 1, n_starts: int = 1) -> None:
    """An error if names, worths and sums of this many items and components need more memory than there is."""
    worths = n_items * n_components
    needed = n_items * _BYTES_PER_ITEM + worths * (_BYTES_PER_WORTH + _BYTES_PER_START * (n_starts - 1))
    if max(n_items, n_components, n_starts) > _MOST_SHOWN:
        raise SettingsError(
            f"no machine has memory for more than {_MOST_SHOWN:g} items, components or starts; ask for fewer"
        )
    what = f"{n_items:,} items"
    if n_components > 1 or n_starts > 1:
        what += f" in {n_components:,} components" + (f" from {n_starts:,} starts" if n_starts > 1 else "")
    remedy = "number the items from 0 without gaps" if n_components * n_starts == 1 else "ask for fewer"
    there = free_memory()
    if needed > there:
        raise SettingsError(
            f"{what} need at least {_gigabytes(needed)} GB of memory, and this machine has {_gigabytes(there)} GB "
            f"to spare; {remedy}"
        )
    if n_items * -(-n_components // 4) * 4 >= _MOST_WORTHS:
        raise SettingsError(f"{what} are more than can be fitted; {remedy}")


def _gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:,.3g}" if n_bytes < 1e11 else f"{n_bytes / 1e9:,.0f}"
