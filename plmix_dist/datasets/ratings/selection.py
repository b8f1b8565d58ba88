"""From leaves of ratings to what is ranked: filters, completion, and the chosen items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.executor import Executor
from plmix_dist.datasets.ratings import leaf as rating_leaf
from plmix_dist.datasets.ratings.completion import Completion, CompletionTask, complete, load_users
from plmix_dist.datasets.ratings.leaf import LeftOut, RatingLeaf, UsedRatings
from plmix_dist.datasets.ratings.shuffle import Scratch, sum_over_leaves
from plmix_dist.errors import IngestError, NotConvergedWarning, give_warnings
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.threads import single_thread

if TYPE_CHECKING:
    from plmix_dist.datasets.ratings.ingest import RatingSettings


class _Counts(NamedTuple):
    """Ratings of users that have enough of them."""

    per_item: NDArray[np.int64]  # (n_items,): their ratings for each item that is kept
    # Ratings of items that are not kept, and the other ratings of users that are not kept
    n_of_dropped_items: int
    n_of_dropped_users: int
    n_negative: int  # Kept ratings below zero
    total: float  # The sum of all kept ratings


def _count(used: UsedRatings, leaf: int) -> _Counts:
    ratings = rating_leaf.load_leaf(used.scratch, leaf)
    n_kept = int(used.keep_items[ratings.items].sum())
    kept, _ = rating_leaf.keep_enough(ratings, used.keep_items, used.min_user_ratings)
    with np.errstate(over="ignore"):
        total = float(kept.ratings.sum())
    return _Counts(
        np.bincount(kept.items, minlength=len(used.keep_items)).astype(np.int64),
        len(ratings.items) - n_kept,
        n_kept - len(kept.items),
        int((kept.ratings < 0).sum()),
        total,
    )


def _enough_ratings(executor: Executor, leaves: Leaves, settings: RatingSettings) -> tuple[UsedRatings, _Counts]:
    """What to keep, such that each item has enough ratings by users with enough ratings of kept items.

    Items and users are removed in turn until none is left that has too few. The largest such set is found; the order of
    removal does not matter.
    """
    keep = np.ones(len(leaves.item_names), np.bool_)
    while True:
        used = UsedRatings(leaves.scratch, keep, settings.min_user_ratings)
        counts: _Counts = sum_over_leaves(executor, partial(_count, used), leaves.n_leaves, "count-ratings")
        enough = keep & (counts.per_item >= max(1, settings.min_item_ratings))
        if np.array_equal(enough, keep):
            return used, counts
        keep = enough


def _highest(values: NDArray[np.int64] | Floats, n_items: int) -> NDArray[np.int64]:
    """(n_items,): the items with the highest values, in rising order; among equals the first."""
    return np.sort(np.argsort(-values, kind="stable")[:n_items])


# The variance of each item's rank over users: among the items that a user rated, or in completed rows.


class _RankSums(NamedTuple):
    """Sums over rows, for each item: how many rank it, the sum of its ranks, and that of their squares."""

    counts: NDArray[np.int64]
    sums: Floats | NDArray[np.int64]
    squares: Floats | NDArray[np.int64]


def _doubled_ranks(values: Floats) -> NDArray[np.int64]:
    """(n_rows, n_items): twice the rank of each value in its row, largest first; equal values share the mean rank.

    Twice, so that all ranks are whole numbers and their sums have no rounding.
    """
    order = np.argsort(-values, axis=1)
    ranks = np.empty(values.shape, np.int64)
    np.put_along_axis(ranks, order, np.broadcast_to(2 * np.arange(1, values.shape[1] + 1), values.shape), axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    for row in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).tolist():
        starts = np.flatnonzero(np.concatenate([[True], ordered[row, 1:] != ordered[row, :-1]]))
        lengths = np.diff(np.append(starts, values.shape[1]))
        ranks[row, order[row]] = np.repeat(2 * starts + lengths + 1, lengths)
    return ranks


def _completed_rank_sums(users: Floats, items: Floats) -> _RankSums:
    """Sums of doubled ranks over completed rows, a few rows at a time."""
    n_items = len(items)
    sums, squares = np.zeros(n_items, np.int64), np.zeros(n_items, np.int64)
    for _, values in rating_leaf.completed_rows(users, items):
        ranks = _doubled_ranks(values)
        sums += ranks.sum(axis=0)
        squares += np.einsum("ij,ij->j", ranks, ranks)
    return _RankSums(np.full(n_items, len(users), np.int64), sums, squares)


def _observed_rank_sums(leaf: RatingLeaf, n_items: int) -> _RankSums:
    """Sums of ranks among the items that each user rated, scaled to lie between 0 (best) and 1 (worst).

    Users with one rating have no order and are left out.
    """
    leaf = leaf.only_users(leaf.counts > 1)
    users = leaf.user_of_rating
    order = np.lexsort([-leaf.ratings, users])
    ordered = leaf.ratings[order]
    fresh = np.ones(len(ordered), np.bool_)
    fresh[1:] = (ordered[1:] != ordered[:-1]) | (users[1:] != users[:-1])
    starts = np.flatnonzero(fresh)
    lengths = np.diff(np.append(starts, len(ordered)))
    ranks = (np.repeat(starts + (lengths - 1) / 2.0, lengths) - leaf.bounds[users]) / (leaf.counts[users] - 1)
    items = leaf.items[order]
    return _RankSums(
        np.bincount(items, minlength=n_items).astype(np.int64),
        np.bincount(items, ranks, minlength=n_items),
        np.bincount(items, ranks**2, minlength=n_items),
    )


def variances(sums: _RankSums) -> Floats:
    """(n_items,): the variance of each item's rank; 0 for items that no user ranks. Whole numbers are exact."""
    found = np.zeros(len(sums.counts))
    rows = zip(sums.counts.tolist(), sums.sums.tolist(), sums.squares.tolist(), strict=True)
    for item, (count, total, squares) in enumerate(rows):
        if count:
            found[item] = max(0.0, (count * squares - total * total) / (count * count))
    return found


def _observed_leaf(task: CompletionTask, leaf: int) -> _RankSums:
    return _observed_rank_sums(task.used.of_leaf(leaf)[0], task.used.n_items)


def _completed_leaf(task: CompletionTask, sweep: int, leaf: int) -> _RankSums:
    scratch = task.used.scratch
    return _completed_rank_sums(load_users(scratch, leaf, sweep), scratch.load(_COMPLETED)["factors"])


def _sum_ranks(executor: Executor, task: CompletionTask, completion: Completion | None) -> _RankSums:
    """Sums of ranks over all users: in completed rows or, without completion, among the items that each rated."""
    of_leaf = partial(_observed_leaf, task)
    if completion is not None:
        task.used.scratch.save(_COMPLETED, factors=completion.item_factors)
        of_leaf = partial(_completed_leaf, task, completion.sweep)
    found: _RankSums = sum_over_leaves(executor, of_leaf, task.n_leaves, "rank-variance")
    return found


_FACTORS = "chosen-items.npz"
_COMPLETED = "completed-items.npz"
# Completion squares ratings and adds the squares up.
_LARGEST_TOTAL = 1e100


@dataclass(frozen=True)
class RankedLeaf:
    """Makes the rankings of a leaf."""

    used: UsedRatings
    chosen: NDArray[np.int64]  # (n_items,): which of the used items are ranked, by their numbers among them
    numbers: bool  # Whether all users are whole numbers
    # The sweep of the completion that gave the factors of the users; None without completion
    sweep: int | None

    def blocks(self, leaf: int) -> Iterator[RankingBlock]:
        """The rankings of the leaf with this number, block by block."""
        if self.sweep is None:
            yield self._rated(leaf)[0]
            return
        scratch, (_, users) = self.used.scratch, self.used.of_leaf(leaf)
        factors = scratch.load(_FACTORS)["factors"]
        ids = rating_leaf.user_ids(scratch, leaf, users, numbers=self.numbers)
        with single_thread():
            yield from rating_leaf.completed_rankings(load_users(scratch, leaf, self.sweep), factors, ids)

    def left_out(self, leaf: int) -> LeftOut:
        """The ratings of a leaf that have no place in a ranking."""
        return self._rated(leaf)[1]

    def _rated(self, leaf: int) -> tuple[RankingBlock, LeftOut]:
        kept, users = self.used.of_leaf(leaf)
        ids = rating_leaf.user_ids(self.used.scratch, leaf, users, numbers=self.numbers)
        return rating_leaf.rated_rankings(kept, ids, self.chosen, self.used.n_items)


@dataclass(frozen=True)
class Leaves:
    """All leaves of ratings in a scratch folder, their items, and what became of the rows that were read."""

    scratch: Scratch
    n_leaves: int
    item_names: tuple[str, ...]
    numbers: bool  # Whether all users are whole numbers
    n_rows: int  # Of all parts, with bad ones
    rejected: dict[str, int]
    bad_parts: list[int]  # The parts that have bad rows
    n_duplicates: int


def select(
    executor: Executor, leaves: Leaves, settings: RatingSettings, progress: Callable[[int, int], None] | None = None
) -> tuple[RankedLeaf, tuple[str, ...], dict[str, Any], list[str]]:
    """Filter the ratings, complete them where asked, and choose the items.

    Gives what makes the rankings of a leaf, the names of the ranked items, counts of ratings and users with the course
    of the completion, and sentences for the user.
    """
    used, counts = _enough_ratings(executor, leaves, settings)
    _check_left(used.n_items, settings)
    per_item = counts.per_item[used.keep_items]
    task = _completion_task(used, leaves.n_leaves, settings, counts, int(per_item.sum()))
    completion = None
    if settings.complete is not None:
        completion = complete(
            executor, task, per_item, tol=settings.tol, max_sweeps=settings.max_sweeps, progress=progress
        )
    if settings.n_items is None:
        chosen = np.arange(len(per_item))
    # By default as the paper does after completion, else by their ratings.
    elif (settings.choose or ("most-rated" if completion is None else "rank-variance")) == "most-rated":
        chosen = _highest(per_item, settings.n_items)
    else:
        chosen = _highest(variances(_sum_ranks(executor, task, completion)), settings.n_items)
    ranked = RankedLeaf(used, chosen, leaves.numbers, None if completion is None else completion.sweep)
    report = {"items_with_few_ratings": counts.n_of_dropped_items, "users_with_few_ratings": counts.n_of_dropped_users}
    names = tuple(np.array(leaves.item_names, object)[used.keep_items][chosen].tolist())
    found: dict[str, Any] = {"left_out": report}
    notes: list[str] = []
    if completion is None:
        # Ratings without a place in a ranking, by the reason.
        report |= sum_over_leaves(executor, ranked.left_out, leaves.n_leaves, "rankings-count")._asdict()
    else:
        leaves.scratch.save(_FACTORS, factors=completion.item_factors[chosen])
        notes, last = _tell_about(completion, settings), completion.history[-1]
        found["completion"] = {
            "sweeps": len(completion.history),
            "converged": completion.converged,
            "objective": last.objective,
            "residual": last.residual,
            "objectives": [one.objective for one in completion.history],
        }
    return ranked, names, found, notes


def _completion_task(
    used: UsedRatings, n_leaves: int, settings: RatingSettings, counts: _Counts, n_ratings: int
) -> CompletionTask:
    if settings.complete is not None and counts.n_negative:
        raise IngestError(
            f"{counts.n_negative:,} ratings are below zero, but completion needs ratings from zero on; add a "
            "constant to all ratings"
        )
    if settings.complete is not None and not counts.total <= _LARGEST_TOTAL:
        raise IngestError(
            f"the ratings add up to {counts.total:g}, but completion takes at most {_LARGEST_TOTAL:g}; divide all "
            "ratings by a constant"
        )
    mean = counts.total / max(1, n_ratings)
    return CompletionTask(used, n_leaves, settings.complete or 0, settings.ridge, mean, settings.seed)


def _check_left(n_left: int, settings: RatingSettings) -> None:
    if n_left < (settings.n_items or 2):
        raise IngestError(
            f"{n_left} items are left after the filters (at least {settings.min_user_ratings} ratings per user and "
            f"{settings.min_item_ratings} per item), but {settings.n_items or 2} are needed; lower these numbers"
        )


def _tell_about(completion: Completion, settings: RatingSettings) -> list[str]:
    """A note on the completion; a warning where it did not converge."""
    last = completion.history[-1]
    end = f"{len(completion.history)} sweeps, optimality residual {last.residual:.1e}"
    if completion.converged:
        return [f"completed at rank {settings.complete}: {end}"]
    message = (
        f"the completion was not converged after {end} (tol is {settings.tol:g}); raise max_sweeps or the ridge, or "
        "accept a larger tol"
    )
    give_warnings([NotConvergedWarning(message)])
    return [message]
