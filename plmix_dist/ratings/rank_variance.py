"""The variance of each item's rank over users: among the items that a user rated, or in completed rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.ratings.completion import load_users, used_leaf
from plmix_dist.ratings.leaf import load_leaf
from plmix_dist.ratings.scratch import sum_over_leaves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.ratings.completion import Completion, CompletionTask
    from plmix_dist.ratings.leaf import RatingLeaf
    from plmix_dist.ratings.scratch import Scratch

# Entries of the completed matrix that are held at a time.
_BLOCK_ENTRIES = 1 << 21


class RankSums(NamedTuple):
    """Sums over rows, for each item: how many rank it, the sum of its ranks, and that of their squares."""

    counts: NDArray[np.int64]
    sums: NDArray[np.float64] | NDArray[np.int64]
    squares: NDArray[np.float64] | NDArray[np.int64]


def doubled_ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n_rows, n_items): twice the rank of each value in its row, largest first; equal values share the mean rank.

    Twice, so that all ranks are whole numbers and their sums have no rounding.

    Examples
    --------
    >>> doubled_ranks(np.array([[5.0, 1.0, 3.0], [2.0, 2.0, 1.0]])).tolist()
    [[2, 6, 4], [3, 3, 6]]
    """
    order = np.argsort(-values, axis=1)
    ranks = np.empty(values.shape, np.int64)
    np.put_along_axis(
        ranks, order, np.broadcast_to(2 * np.arange(1, values.shape[1] + 1), values.shape), axis=1
    )
    ordered = np.take_along_axis(values, order, axis=1)
    for row in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).tolist():
        starts = np.flatnonzero(np.concatenate([[True], ordered[row, 1:] != ordered[row, :-1]]))
        lengths = np.diff(np.append(starts, values.shape[1]))
        ranks[row, order[row]] = np.repeat(2 * starts + lengths + 1, lengths)
    return ranks


def completed_rank_sums(users: NDArray[np.float64], items: NDArray[np.float64]) -> RankSums:
    """Sums of doubled ranks over completed rows, a few rows at a time.

    Examples
    --------
    >>> completed_rank_sums(np.array([[1.0], [2.0]]), np.array([[3.0], [1.0]])).sums.tolist()
    [4, 8]
    """
    n_items = len(items)
    sums, squares = np.zeros(n_items, np.int64), np.zeros(n_items, np.int64)
    step = max(1, _BLOCK_ENTRIES // n_items)
    for start in range(0, len(users), step):
        ranks = doubled_ranks(users[start : start + step] @ items.T)
        sums += ranks.sum(axis=0)
        squares += np.einsum("ij,ij->j", ranks, ranks)
    return RankSums(np.full(n_items, len(users), np.int64), sums, squares)


def observed_rank_sums(leaf: RatingLeaf, n_items: int) -> RankSums:
    """Sums of ranks among the items that each user rated, scaled to lie between 0 (best) and 1 (worst).

    Users with one rating have no order and are left out.

    Examples
    --------
    >>> from plmix_dist.ratings.leaf import RatingLeaf
    >>> leaf = RatingLeaf(np.array([0, 3]), np.array([0, 1, 2], np.int32), np.array([5.0, 3.0, 3.0]))
    >>> observed_rank_sums(leaf, 3).sums.tolist()
    [0.0, 0.75, 0.75]
    """
    leaf = leaf.only_users(leaf.counts > 1)
    users = leaf.user_of_rating
    order = np.lexsort([-leaf.ratings, users])
    ordered = leaf.ratings[order]
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = (ordered[1:] != ordered[:-1]) | (users[1:] != users[:-1])
    starts = np.flatnonzero(fresh)
    lengths = np.diff(np.append(starts, len(ordered)))
    place = np.repeat(starts + (lengths - 1) / 2.0, lengths) - leaf.bounds[users]
    ranks = place / (leaf.counts[users] - 1)
    items = leaf.items[order]
    return RankSums(
        np.bincount(items, minlength=n_items).astype(np.int64),
        np.bincount(items, ranks, minlength=n_items),
        np.bincount(items, ranks**2, minlength=n_items),
    )


def variances(sums: RankSums) -> NDArray[np.float64]:
    """(n_items,): the variance of each item's rank; 0 for items that nobody ranks. Whole numbers are exact.

    Examples
    --------
    >>> variances(RankSums(np.array([2, 0]), np.array([4, 0]), np.array([10, 0]))).tolist()
    [1.0, 0.0]
    """
    found = np.zeros(len(sums.counts))
    rows = zip(sums.counts.tolist(), sums.sums.tolist(), sums.squares.tolist(), strict=True)
    for item, (count, total, squares) in enumerate(rows):
        if count:
            found[item] = max(0.0, (count * squares - total * total) / (count * count))
    return found


def most_varied(sums: RankSums, n_items: int) -> NDArray[np.int64]:
    """(n_items,): the items with the highest variance in rank, in rising order; among equals the first.

    Examples
    --------
    >>> most_varied(RankSums(np.array([2, 2, 2]), np.array([4, 4, 4]), np.array([10, 8, 16])), 2).tolist()
    [0, 2]
    """
    return np.sort(np.argsort(-variances(sums), kind="stable")[:n_items])


def _observed_leaf(
    scratch: Scratch, keep_items: NDArray[np.bool_], min_user_ratings: int, leaf: int
) -> RankSums:
    kept, _ = used_leaf(load_leaf(scratch, leaf), keep_items, min_user_ratings)
    return observed_rank_sums(kept, int(keep_items.sum()))


def sum_observed_ranks(
    executor: Executor, scratch: Scratch, n_leaves: int, keep_items: NDArray[np.bool_], min_user_ratings: int
) -> RankSums:
    """Sums of ranks over all users, among the items that each rated."""
    of_leaf = partial(_observed_leaf, scratch, keep_items, min_user_ratings)
    found: RankSums = sum_over_leaves(executor, of_leaf, n_leaves, "rank-variance")
    return found


def _completed_leaf(scratch: Scratch, name: str, sweep: int, leaf: int) -> RankSums:
    return completed_rank_sums(load_users(scratch, leaf, sweep), scratch.load(name)["factors"])


def sum_completed_ranks(executor: Executor, task: CompletionTask, completion: Completion) -> RankSums:
    """Sums of ranks over all completed rows."""
    name = "completed-items.npz"
    task.scratch.save(name, factors=completion.item_factors)
    of_leaf = partial(_completed_leaf, task.scratch, name, completion.sweep)
    found: RankSums = sum_over_leaves(executor, of_leaf, task.n_leaves, "rank-variance")
    return found
