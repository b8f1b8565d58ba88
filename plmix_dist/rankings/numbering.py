"""Are items numbered from 0? An item 0 that no row lists is asked about, not invented."""

from __future__ import annotations

from plmix_dist.errors import PlmixError, RankingError


def check_numbered_from_zero(smallest: int, largest: int, error: type[PlmixError] = RankingError) -> None:
    """An error if no row lists item 0, and nobody has said how many items there are.

    Parameters
    ----------
    smallest, largest
        The smallest and the largest item that any row lists; `largest` is -1 if no row lists one.
    error
        The kind of error.

    Examples
    --------
    >>> check_numbered_from_zero(0, 4)
    >>> check_numbered_from_zero(1, 4)
    Traceback (most recent call last):
    ...
    plmix_dist.errors.RankingError: no row lists item 0: the items run from 1 to 4, but item numbers begin with 0. If \
these are numbered from 1, subtract 1 from every item. If item 0 exists and was never listed, say n_items=5, which \
keeps the numbers as they are
    """
    if largest < 0 or smallest == 0:
        return
    raise error(
        f"no row lists item 0: the items run from {smallest} to {largest}, but item numbers begin with 0. If these are "
        "numbered from 1, subtract 1 from every item. If item 0 exists and was never listed, say "
        f"n_items={largest + 1}, which keeps the numbers as they are"
    )
