"""Refusing numbers of items and components that do not fit into memory, before anything is computed."""

from __future__ import annotations

from plmix_dist.engine.residency import free_memory
from plmix_dist.errors import SettingsError

# An item has a name. A component has for each item a worth, its place in their order, sums of a pass, earlier steps.
_BYTES_PER_ITEM = 200
_BYTES_PER_WORTH = 200
_BYTES_PER_START = 24
# Kernels number the worths of all items, four components together, by int32.
_MOST_WORTHS = 2**31
# Numbers that a message shows; no machine has memory for more.
_MOST_SHOWN = 10**30


def check_memory(n_items: int, n_components: int = 1, n_starts: int = 1) -> None:
    """An error if names, worths and sums of so many items and components need more memory than there is.

    Examples
    --------
    >>> check_memory(100, n_components=3)
    >>> check_memory(10**12)
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: 1,000,000,000,000 items need at least 400,000 GB of memory, ...
    """
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
