"""From leaves of ratings to what is ranked: filters, completion, and the chosen items."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import IngestError, NotConvergedWarning
from plmix_dist.ratings.completion import CompletionTask, complete, load_users, used_leaf
from plmix_dist.ratings.filters import enough_ratings, most_rated
from plmix_dist.ratings.leaf import load_leaf, users_name
from plmix_dist.ratings.rank_variance import most_varied, sum_completed_ranks, sum_observed_ranks
from plmix_dist.ratings.rows import completed_rankings, rated_rankings, user_labels
from plmix_dist.ratings.scratch import sum_over_leaves
from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.ratings.completion import Completion
    from plmix_dist.ratings.filters import Counts
    from plmix_dist.ratings.rows import LeftOut
    from plmix_dist.ratings.scratch import Scratch
    from plmix_dist.ratings.settings import RatingSettings

_FACTORS = "chosen-items.npz"
# Completion squares ratings and adds the squares up.
_LARGEST_TOTAL = 1e100


@dataclass(frozen=True)
class RankedLeaf:
    """Makes the rankings of a leaf.

    Parameters
    ----------
    keep_items : (all items,)
        Which items pass the filters.
    chosen : (n_items,)
        Which of these are ranked, by their numbers among them.
    numbers
        Whether all users are whole numbers.
    sweep
        The sweep of the completion that gave the factors of the users; None without completion.
    """

    scratch: Scratch
    keep_items: NDArray[np.bool_]
    min_user_ratings: int
    chosen: NDArray[np.int64]
    numbers: bool
    sweep: int | None

    def blocks(self, leaf: int) -> Iterator[RankingBlock]:
        """The rankings of the leaf with this number, block by block."""
        if self.sweep is None:
            yield self._rated(leaf)[0]
            return
        _, users = used_leaf(load_leaf(self.scratch, leaf), self.keep_items, self.min_user_ratings)
        factors = self.scratch.load(_FACTORS)["factors"]
        with single_thread():
            yield from completed_rankings(
                load_users(self.scratch, leaf, self.sweep), factors, self._ids(leaf, users)
            )

    def left_out(self, leaf: int) -> LeftOut:
        """The ratings of a leaf that have no place in a ranking."""
        return self._rated(leaf)[1]

    def _rated(self, leaf: int) -> tuple[RankingBlock, LeftOut]:
        kept, users = used_leaf(load_leaf(self.scratch, leaf), self.keep_items, self.min_user_ratings)
        return rated_rankings(kept, self._ids(leaf, users), self.chosen, int(self.keep_items.sum()))

    def _ids(self, leaf: int, users: NDArray[np.bool_]) -> NDArray[Any]:
        names = self.scratch.load_text(users_name(leaf))
        return user_labels(
            [name for name, kept in zip(names, users, strict=True) if kept], numbers=self.numbers
        )


@dataclass(frozen=True)
class Selection:
    """What is ranked, and what became of the ratings.

    Parameters
    ----------
    ranked
        Makes the rankings of a leaf.
    item_names
        The names of the ranked items.
    report
        Counts of ratings and users, and the course of the completion.
    notes
        Sentences for the user.
    """

    ranked: RankedLeaf
    item_names: tuple[str, ...]
    report: dict[str, Any]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Leaves:
    """All leaves of ratings in a scratch folder, and their items.

    Parameters
    ----------
    numbers
        Whether all users are whole numbers.
    """

    scratch: Scratch
    n_leaves: int
    item_names: tuple[str, ...]
    numbers: bool


def select(
    executor: Executor,
    leaves: Leaves,
    settings: RatingSettings,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Filter the ratings, complete them where asked, and choose the items."""
    keep, counts = enough_ratings(
        executor,
        leaves.scratch,
        leaves.n_leaves,
        len(leaves.item_names),
        settings.min_user_ratings,
        settings.min_item_ratings,
    )
    n_left = int(keep.sum())
    _check_left(n_left, settings)
    task = _completion_task(leaves, settings, keep, counts)
    completion = None
    if settings.complete is not None:
        completion = complete(
            executor,
            task,
            counts.per_item[keep],
            tol=settings.tol,
            max_sweeps=settings.max_sweeps,
            progress=progress,
        )
    chosen = _choose(executor, task, settings, counts.per_item[keep], completion)
    if completion is not None:
        leaves.scratch.save(_FACTORS, factors=completion.item_factors[chosen])
    sweep = None if completion is None else completion.sweep
    ranked = RankedLeaf(leaves.scratch, keep, settings.min_user_ratings, chosen, leaves.numbers, sweep)
    report = {
        "items_with_few_ratings": counts.n_of_dropped_items,
        "users_with_few_ratings": counts.n_of_dropped_users,
    }
    notes: list[str] = []
    if completion is None:
        report |= _rated_report(executor, ranked, leaves.n_leaves)
    else:
        notes += _tell_about(completion, settings)
    names = tuple(np.array(leaves.item_names, object)[keep][chosen].tolist())
    found: dict[str, Any] = {"left_out": report}
    if completion is not None:
        last = completion.history[-1]
        found["completion"] = {
            "sweeps": len(completion.history),
            "converged": completion.converged,
            "objective": last.objective,
            "residual": last.residual,
            "objectives": [one.objective for one in completion.history],
        }
    return Selection(ranked, names, found, notes)


def _completion_task(
    leaves: Leaves, settings: RatingSettings, keep: NDArray[np.bool_], counts: Counts
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
    n_ratings = int(counts.per_item[keep].sum())
    return CompletionTask(
        leaves.scratch,
        leaves.n_leaves,
        keep,
        settings.min_user_ratings,
        settings.complete or 0,
        settings.ridge,
        counts.total / max(1, n_ratings),
        settings.seed,
    )


def _check_left(n_left: int, settings: RatingSettings) -> None:
    if n_left < max(2, settings.n_items or 2):
        raise IngestError(
            f"{n_left} items are left after the filters (at least {settings.min_user_ratings} ratings per user and "
            f"{settings.min_item_ratings} per item), but {settings.n_items or 2} are needed; lower these numbers"
        )


def _choose(
    executor: Executor,
    task: CompletionTask,
    settings: RatingSettings,
    per_item: NDArray[np.int64],
    completion: Completion | None,
) -> NDArray[np.int64]:
    """The ranked items, by their numbers among those that pass the filters."""
    if settings.n_items is None:
        return np.arange(len(per_item))
    if settings.chosen_by == "most-rated":
        return most_rated(per_item, settings.n_items)
    if completion is None:
        sums = sum_observed_ranks(
            executor, task.scratch, task.n_leaves, task.keep_items, settings.min_user_ratings
        )
    else:
        sums = sum_completed_ranks(executor, task, completion)
    return most_varied(sums, settings.n_items)


def _rated_report(executor: Executor, ranked: RankedLeaf, n_leaves: int) -> dict[str, int]:
    """Ratings without a place in a ranking; `_users` entries count users."""
    found: LeftOut = sum_over_leaves(executor, partial(_left_out, ranked), n_leaves, "rankings-count")
    return {
        "items_not_chosen": found.other_ratings,
        "users_with_one_item": found.single_ratings,
        "users_with_equal_ratings": found.equal_ratings,
    }


def _left_out(ranked: RankedLeaf, leaf: int) -> LeftOut:
    return ranked.left_out(leaf)


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
    warnings.warn(message, NotConvergedWarning, stacklevel=4)
    return [message]
