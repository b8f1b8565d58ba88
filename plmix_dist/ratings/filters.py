"""Filters: items and users with too few ratings, to a fixed point; and the items with most ratings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.ratings.leaf import load_leaf
from plmix_dist.ratings.scratch import sum_over_leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.ratings.leaf import RatingLeaf
    from plmix_dist.ratings.scratch import Scratch


class Counts(NamedTuple):
    """Ratings of users that have enough of them.

    Parameters
    ----------
    per_item : (n_items,)
        Their ratings for each item that is kept.
    n_users
        How many users these are.
    n_of_dropped_items, n_of_dropped_users
        Ratings of items that are not kept, and the other ratings of users that are not kept.
    n_negative
        Kept ratings below zero.
    total
        The sum of all kept ratings.
    """

    per_item: NDArray[np.int64]
    n_users: int
    n_of_dropped_items: int
    n_of_dropped_users: int
    n_negative: int
    total: float


def keep_enough(
    leaf: RatingLeaf, keep_items: NDArray[np.bool_], min_user_ratings: int
) -> tuple[RatingLeaf, NDArray[np.bool_]]:
    """The ratings of kept items by users who rated enough of them, and which users these are.

    Examples
    --------
    >>> from plmix_dist.ratings.leaf import RatingLeaf
    >>> leaf = RatingLeaf(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([5.0, 3.0, 4.0]))
    >>> kept, users = keep_enough(leaf, np.array([True, True]), min_user_ratings=2)
    >>> kept.items.tolist(), users.tolist()
    ([0, 1], [True, False])
    """
    some = leaf.only(keep_items[leaf.items])
    users = some.counts >= max(1, min_user_ratings)
    return some.only_users(users), users


def _count(scratch: Scratch, keep_items: NDArray[np.bool_], min_user_ratings: int, leaf: int) -> Counts:
    ratings = load_leaf(scratch, leaf)
    n_kept = int(keep_items[ratings.items].sum())
    kept, users = keep_enough(ratings, keep_items, min_user_ratings)
    with np.errstate(over="ignore"):
        total = float(kept.ratings.sum())
    return Counts(
        np.bincount(kept.items, minlength=len(keep_items)).astype(np.int64),
        int(users.sum()),
        len(ratings.items) - n_kept,
        n_kept - len(kept.items),
        int((kept.ratings < 0).sum()),
        total,
    )


def enough_ratings(
    executor: Executor, scratch: Scratch, n_leaves: int, n_items: int, min_user: int, min_item: int
) -> tuple[NDArray[np.bool_], Counts]:
    """Items to keep, such that each has `min_item` ratings by users with `min_user` ratings of kept items.

    Items and users are removed in turn until none is left that has too few. The largest such set is found; the order of
    removal does not matter.

    Returns
    -------
    keep_items : (n_items,)
        Which items are kept.
    counts
        Their ratings.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.engine import executor_for
    >>> from plmix_dist.ratings.leaf import leaf_name
    >>> from plmix_dist.ratings.scratch import Scratch
    >>> from plmix_dist.store import Location
    >>> scratch = Scratch.beside(Location.of(tempfile.mkdtemp() + "/store"))
    >>> bounds, items = np.array([0, 2, 4, 5]), np.array([0, 1, 0, 1, 2])
    >>> scratch.save(leaf_name(0), bounds=bounds, items=items, ratings=np.ones(5))
    >>> keep, counts = enough_ratings(executor_for(False), scratch, 1, n_items=3, min_user=2, min_item=2)
    >>> keep.tolist(), counts.n_users, counts.n_of_dropped_items
    ([True, True, False], 2, 1)
    """
    keep = np.ones(n_items, np.bool_)
    while True:
        count = partial(_count, scratch, keep, min_user)
        counts: Counts = sum_over_leaves(executor, count, n_leaves, "count-ratings")
        enough = keep & (counts.per_item >= max(1, min_item))
        if np.array_equal(enough, keep):
            return keep, counts
        keep = enough


def most_rated(per_item: NDArray[np.int64], n_items: int) -> NDArray[np.int64]:
    """(n_items,): the items with most ratings, in rising order; among equals the first.

    Examples
    --------
    >>> most_rated(np.array([3, 9, 3, 1]), 2).tolist()
    [0, 1]
    """
    return np.sort(np.argsort(-per_item, kind="stable")[:n_items])
