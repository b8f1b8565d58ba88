"""Items as users name them: by name or by number, never both in one list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.values import nearest, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def item_numbers(argument: str, items: Any, item_names: Sequence[str]) -> NDArray[np.int64]:
    """(n,): the numbers of some items, in the order given. Text is a name, a whole number is a number from 0.

    Parameters
    ----------
    argument
        The name of the argument, for messages.
    items
        A list or an array of names or of numbers, without repetitions.
    item_names : (n_items,)
        The names of all items.

    Examples
    --------
    >>> item_numbers("offered", ["mate", "tea"], ["tea", "coffee", "mate"]).tolist()
    [2, 0]
    >>> item_numbers("offered", ["cofee"], ["tea", "coffee", "mate"])
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: offered: 'cofee' is no item of the model; did you mean 'coffee'?
    """
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise SettingsError(f"{argument} must be a list of item names or numbers, but is {shown(items)}")
    listed = items.tolist() if isinstance(items, np.ndarray) else list(items)
    if not listed:
        raise SettingsError(f"{argument} has no items; name at least one")
    if len({isinstance(item, str) for item in listed}) > 1:
        raise SettingsError(f"{argument} has names and numbers; items must be all names or all numbers")
    known = {name: number for number, name in enumerate(item_names)}
    numbers = [_number(argument, item, known) for item in listed]
    twice = next(
        (item for item, number in zip(listed, numbers, strict=True) if numbers.count(number) > 1), None
    )
    if twice is not None:
        raise SettingsError(f"{argument} has {twice!r} more than once; name each item once")
    return np.array(numbers, np.int64)


def _number(argument: str, item: Any, known: dict[str, int]) -> int:
    if isinstance(item, str):
        if item not in known:
            hint = (
                nearest(item, list(known))
                or f"; it has {len(known)} items, the first is {next(iter(known))!r}"
            )
            raise SettingsError(f"{argument}: {item!r} is no item of the model{hint}")
        return known[item]
    if isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer):
        raise SettingsError(f"{argument}: expected an item's name or its number, but got {shown(item)}")
    if not 0 <= item < len(known):
        raise SettingsError(
            f"{argument}: item {item} is out of range; items are numbered from 0 to {len(known) - 1}"
        )
    return int(item)
