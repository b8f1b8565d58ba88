"""Rankings of one leaf of users: from their ratings, equal ratings tied; or full rankings from completed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.columns import STRING, item_dtype, narrowest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.ratings.leaf import RatingLeaf

# Completed rows that are ranked at a time.
_BLOCK_ENTRIES = 1 << 21


class LeftOut(NamedTuple):
    """Ratings without a place in a ranking.

    Parameters
    ----------
    other_ratings
        Ratings of items that were not chosen.
    single_users, single_ratings
        Users with fewer than two chosen items, and their ratings of these.
    equal_users, equal_ratings
        Users with the same rating for all chosen items, and these ratings.
    """

    other_ratings: int = 0
    single_users: int = 0
    single_ratings: int = 0
    equal_users: int = 0
    equal_ratings: int = 0


def user_labels(names: list[str], *, numbers: bool) -> NDArray[Any]:
    """Labels of users as a column of ids: whole numbers, or text.

    Examples
    --------
    >>> user_labels(["7", "12"], numbers=True).tolist()
    [7, 12]
    """
    if numbers:
        return np.array([int(name) for name in names], np.int64)
    return np.array(names, STRING)


def rated_rankings(
    leaf: RatingLeaf, ids: NDArray[Any], chosen: NDArray[np.int64], n_all_items: int
) -> tuple[RankingBlock, LeftOut]:
    """One ranking per user: the chosen items that the user rated, highest first, equal ratings tied.

    A user with fewer than two of these items, or with the same rating for all of them, has no order and no ranking.

    Parameters
    ----------
    ids : (n_users,)
        The labels of the users.
    chosen : (n_items,)
        The items of the rankings, rising. They are numbered anew.

    Examples
    --------
    >>> from plmix_dist.ratings.leaf import RatingLeaf
    >>> leaf = RatingLeaf(np.array([0, 3, 4]), np.array([0, 1, 2, 1], np.int32), np.array([3.0, 5.0, 3.0, 4.0]))
    >>> block, left_out = rated_rankings(leaf, np.array([7, 8]), np.arange(3), 3)
    >>> block.row(0).ordered, block.ids.tolist(), left_out.single_users
    (((1,), (0, 2)), [7], 1)
    """
    numbers = np.full(n_all_items, -1, np.int64)
    numbers[chosen] = np.arange(len(chosen))
    some = leaf.only(numbers[leaf.items] >= 0)
    several = some.counts > 1
    rest = some.only_users(several)
    spread = _spread(rest)
    useful = rest.only_users(spread)
    left_out = LeftOut(
        len(leaf.items) - len(some.items),
        int((~several).sum()),
        int((some.counts == 1).sum()),
        int((~spread).sum()),
        len(rest.items) - len(useful.items),
    )
    users = useful.user_of_rating
    items = numbers[useful.items]
    order = np.lexsort([items, -useful.ratings, users])
    ratings = useful.ratings[order]
    tied = np.zeros(len(order), np.bool_)
    tied[1:] = (ratings[1:] == ratings[:-1]) & (users[1:] == users[:-1])
    return _block(items[order], useful.counts, tied, ids[several][spread], len(chosen)), left_out


def completed_rankings(
    users: NDArray[np.float64], items: NDArray[np.float64], ids: NDArray[Any]
) -> Iterator[RankingBlock]:
    """Full rankings by completed ratings, highest first. Ratings that are equal to the last bit are tied.

    Parameters
    ----------
    users, items : (n_users, rank), (n_items, rank)
        Factors.
    ids : (n_users,)
        The labels of the users.

    Examples
    --------
    >>> blocks = completed_rankings(np.array([[1.0, 0.0]]), np.array([[1.0, 5.0], [2.0, 0.0]]), np.array([7]))
    >>> next(blocks).row(0).ordered
    ((1,), (0,))
    """
    n_items = len(items)
    step = max(1, _BLOCK_ENTRIES // n_items)
    for start in range(0, len(users), step):
        values = users[start : start + step] @ items.T
        order = np.argsort(-values, axis=1, kind="stable")
        ordered = np.take_along_axis(values, order, axis=1)
        tied = np.zeros(order.shape, np.bool_)
        tied[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        lengths = np.full(len(order), n_items)
        yield _block(order.ravel(), lengths, tied.ravel(), ids[start : start + step], n_items)


def _spread(leaf: RatingLeaf) -> NDArray[np.bool_]:
    """(n_users,): whether a user's ratings differ. Every user has some."""
    if not leaf.n_users:
        return np.empty(0, np.bool_)
    starts = leaf.bounds[:-1]
    lowest, highest = np.minimum.reduceat(leaf.ratings, starts), np.maximum.reduceat(leaf.ratings, starts)
    return lowest < highest


def _block(
    items: NDArray[np.integer],
    lengths: NDArray[np.int64],
    tied: NDArray[np.bool_],
    ids: NDArray[Any],
    n_items: int,
) -> RankingBlock:
    n_listed = narrowest(lengths)
    return RankingBlock(
        items=items.astype(item_dtype(n_items)),
        n_listed=n_listed,
        n_ordered=n_listed,
        below=np.zeros(len(lengths), np.bool_),
        n_items=n_items,
        tied=tied if tied.any() else None,
        ids=ids,
    )
