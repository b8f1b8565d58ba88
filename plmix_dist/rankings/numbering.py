"""Are items numbered from 0? An item 0 that no row lists is asked about, not invented."""

from __future__ import annotations

from plmix_dist.errors import RankingError


def check_numbered_from_zero(smallest: int, largest: int, n_distinct: int | None = None) -> None:
    """An error if no row lists item 0, and nobody has said how many items there are.

    Parameters
    ----------
    smallest, largest
        The smallest and the largest item that any row lists; `largest` is -1 if no row lists one.
    n_distinct
        How many different items are listed, if it was counted.

    Examples
    --------
    >>> check_numbered_from_zero(0, 4)
    >>> check_numbered_from_zero(1, 4, 4)
    Traceback (most recent call last):
    ...
    plmix_dist.errors.RankingError: no row lists item 0: the items run from 1 to 4, but item numbers begin with 0. If \
these are numbered from 1, subtract 1 from every item. If item 0 exists and was never listed, say n_items=5, which \
keeps the numbers as they are. If the numbers are ids, hand them in as text, and they become the names of the items
    """
    if largest < 0 or smallest == 0:
        return
    found = f"the items run from {smallest} to {largest}"
    if n_distinct is not None and n_distinct < largest - smallest + 1:
        found = f"{n_distinct} different items were found, from {smallest} to {largest}"
    raise RankingError(
        f"no row lists item 0: {found}, but item numbers begin with 0. If these are numbered from 1, subtract 1 from "
        f"every item. If item 0 exists and was never listed, say n_items={largest + 1}, which keeps the numbers as "
        "they are. If the numbers are ids, hand them in as text, and they become the names of the items"
    )
