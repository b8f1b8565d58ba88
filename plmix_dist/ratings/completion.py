"""Completion: non-negative factors of users and items, fitted to the ratings that are there.

Minimised is half the sum over all ratings of (rating - u'v)^2 + ridge (|u|^2 + |v|^2), over u >= 0 and v >= 0: every
rating adds a ridge for its user and its item (Zhou et al. 2008). A sweep goes through all leaves once. In each leaf,
the factors of its users take a few rounds of coordinate descent, and the equations of all items are added up along the
canonical tree. From these the factors of the items take their step. Both steps lower the objective, so it never rises.

Factors of users stay in scratch files, one per leaf and sweep. The completed matrix is never held.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.rankings.randomness import generator
from plmix_dist.ratings.equations import (
    Equations,
    add_ridge,
    descend,
    equations_of,
    gradient_of,
    groups,
    padded,
    projected,
)
from plmix_dist.ratings.filters import keep_enough
from plmix_dist.ratings.leaf import RatingLeaf, load_leaf
from plmix_dist.ratings.scratch import sum_over_leaves
from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.ratings.scratch import Scratch

# Rounds of coordinate descent per sweep. Those of the items cost little: they have far fewer equations than users.
USER_ROUNDS = 3
ITEM_ROUNDS = 10
# Items whose equations are solved side by side.
_ITEM_BLOCK = 1024


class ItemSums(NamedTuple):
    """What a sweep adds up over leaves.

    Parameters
    ----------
    gram : (n_items, rank (rank + 1) / 2)
        The upper triangles of the items' equations.
    right : (n_items, rank)
        Their right-hand sides.
    objective
        The users' part of the objective: errors, and the ridge of the users.
    user_gradient, user_right
        Sums of squares of the users' projected gradient and right-hand sides.
    """

    gram: NDArray[np.float64]
    right: NDArray[np.float64]
    objective: float
    user_gradient: float
    user_right: float


class Sweep(NamedTuple):
    """What a sweep found: the objective, and the optimality residual, both before the items' step."""

    objective: float
    residual: float


class Completion(NamedTuple):
    """The result of a completion.

    Parameters
    ----------
    item_factors : (n_items, rank)
        Factors of the items. Those of the users are in scratch files.
    sweep
        The sweep whose scratch files hold the factors of the users.
    history
        One entry per sweep.
    converged
        Whether the residual of the last sweep is at most `tol`.
    """

    item_factors: NDArray[np.float64]
    sweep: int
    history: list[Sweep]
    converged: bool


class CompletionTask(NamedTuple):
    """What a leaf must know in every sweep.

    Parameters
    ----------
    keep_items : (all items,)
        Which items are used. They are numbered anew, in their order.
    mean
        The mean rating, for the start.
    """

    scratch: Scratch
    n_leaves: int
    keep_items: NDArray[np.bool_]
    min_user_ratings: int
    rank: int
    ridge: float
    mean: float
    seed: int


def complete(
    executor: Executor,
    task: CompletionTask,
    item_counts: NDArray[np.int64],
    *,
    tol: float,
    max_sweeps: int,
    progress: Callable[[int, int], None] | None = None,
) -> Completion:
    """Fit factors to all ratings in the leaves.

    The optimality residual is the norm of the projected gradient over all factors of users and items, divided by the
    norm of the gradient's part that does not vanish at zero (X'r of all users and items). It has no unit.

    Parameters
    ----------
    item_counts : (n_items,)
        How many ratings each item has.
    tol, max_sweeps
        Stop when the residual is at most `tol`, or after so many sweeps.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.engine import executor_for
    >>> from plmix_dist.ratings.leaf import leaf_name
    >>> from plmix_dist.ratings.scratch import Scratch
    >>> from plmix_dist.store import Location
    >>> scratch = Scratch.beside(Location.of(tempfile.mkdtemp() + "/store"))
    >>> bounds, items, ratings = np.array([0, 2, 4, 5]), np.array([0, 1, 0, 1, 0]), np.array([4.0, 2.0, 2.0, 1.0, 3.0])
    >>> scratch.save(leaf_name(0), bounds=bounds, items=items, ratings=ratings)
    >>> task = CompletionTask(scratch, 1, np.ones(2, bool), 1, rank=1, ridge=1e-6, mean=2.4, seed=0)
    >>> found = complete(executor_for(False), task, np.array([3, 2]), tol=1e-6, max_sweeps=100)
    >>> users = load_users(scratch, 0, found.sweep)  # the last user did not rate the second item
    >>> (users @ found.item_factors.T).round(2).tolist()
    [[4.0, 2.0], [2.0, 1.0], [3.0, 1.5]]
    """
    prepare = partial(_write_used_leaf, task)
    sum_over_leaves(executor, prepare, task.n_leaves, "ratings-used")
    factors = start_factors(len(item_counts), task.rank, task.mean, task.seed)
    ridges = task.ridge * item_counts.astype(np.float64)
    history: list[Sweep] = []
    for sweep in range(max_sweeps):
        task.scratch.save(_items_name(sweep), factors=factors)
        sums: ItemSums = sum_over_leaves(
            executor, partial(_sweep_leaf, task, sweep), task.n_leaves, "completion-sweep"
        )
        with single_thread():
            found, improved = _items_step(sums, factors, ridges)
        history.append(found)
        if progress is not None:
            progress(sweep + 1, max_sweeps)
        if sweep:
            old = [_users_name(leaf, sweep - 1) for leaf in range(task.n_leaves)]
            task.scratch.forget(*old, _items_name(sweep - 1))
        if found.residual <= tol:
            break
        if sweep + 1 < max_sweeps:
            factors = improved
    return Completion(factors, len(history) - 1, history, history[-1].residual <= tol)


def start_factors(n_items: int, rank: int, mean: float, seed: int) -> NDArray[np.float64]:
    """(n_items, rank): random factors of items, so that equal factors of users give the mean rating on average.

    Examples
    --------
    >>> start_factors(1000, 4, mean=3.5, seed=0).mean().round(1) == np.sqrt(3.5 / 4).round(1)
    np.True_
    """
    return generator(seed, "completion").uniform(0.0, 2.0 * np.sqrt(mean / rank), (n_items, rank))


def used_leaf(
    leaf: RatingLeaf, keep_items: NDArray[np.bool_], min_user_ratings: int
) -> tuple[RatingLeaf, NDArray[np.bool_]]:
    """The ratings that are used, items numbered anew; and which users have any.

    Examples
    --------
    >>> leaf = RatingLeaf(np.array([0, 2, 3]), np.array([0, 2, 1], np.int32), np.array([5.0, 3.0, 4.0]))
    >>> kept, users = used_leaf(leaf, np.array([True, False, True]), 1)
    >>> kept.items.tolist(), users.tolist()
    ([0, 1], [True, False])
    """
    kept, users = keep_enough(leaf, keep_items, min_user_ratings)
    numbers = (np.cumsum(keep_items) - 1).astype(np.int32)
    return kept._replace(items=numbers[kept.items]), users


def load_users(scratch: Scratch, leaf: int, sweep: int) -> NDArray[np.float64]:
    """(n_users, rank): the factors of the users of a leaf after a sweep."""
    return scratch.load(_users_name(leaf, sweep))["factors"]


def _users_name(leaf: int, sweep: int) -> str:
    return f"factors-{leaf:06d}-{sweep}.npz"


def _items_name(sweep: int) -> str:
    return f"items-{sweep}.npz"


def _used_name(leaf: int) -> str:
    return f"used-{leaf:06d}.npz"


def _write_used_leaf(task: CompletionTask, leaf: int) -> int:
    """Write the ratings of a leaf that are used, by user and by item."""
    kept, _ = used_leaf(load_leaf(task.scratch, leaf), task.keep_items, task.min_user_ratings)
    order = np.argsort(kept.items, kind="stable")
    n_items = int(task.keep_items.sum())
    task.scratch.save(
        _used_name(leaf),
        bounds=kept.bounds,
        items=kept.items,
        ratings=kept.ratings,
        item_bounds=np.searchsorted(kept.items[order], np.arange(n_items + 1)),
        order=order.astype(np.int32),
    )
    return len(kept.items)


def _sweep_leaf(task: CompletionTask, sweep: int, leaf: int) -> ItemSums:
    """The users' step in one leaf, and its part of the items' equations."""
    arrays = task.scratch.load(_used_name(leaf))
    ratings = RatingLeaf(arrays["bounds"], arrays["items"], arrays["ratings"])
    items = task.scratch.load(_items_name(sweep))["factors"]
    if sweep:
        users = load_users(task.scratch, leaf, sweep - 1)
    else:
        users = np.full((ratings.n_users, task.rank), np.sqrt(task.mean / task.rank))
    objective, gradient, right = users_step(ratings, users, items, task.ridge)
    task.scratch.save(_users_name(leaf, sweep), factors=users)
    order = arrays["order"]
    by_item = RatingLeaf(
        arrays["item_bounds"], ratings.user_of_rating[order].astype(np.int32), ratings.ratings[order]
    )
    equations = item_equations(by_item, users)
    return ItemSums(*equations, objective, gradient, right)


def users_step(
    leaf: RatingLeaf, users: NDArray[np.float64], items: NDArray[np.float64], ridge: float
) -> tuple[float, float, float]:
    """Improve the factors of users (n_users, rank) in place.

    Returns
    -------
    objective, gradient, right
        After the step: the users' part of the objective; sums of squares of projected gradient and right-hand sides.

    Examples
    --------
    >>> leaf = RatingLeaf(np.array([0, 2]), np.array([0, 1], np.int32), np.array([4.0, 2.0]))
    >>> users = np.ones((1, 1))
    >>> objective, gradient, right = users_step(leaf, users, np.array([[2.0], [1.0]]), ridge=1e-9)
    >>> users.round(6).tolist(), round(objective, 6)
    ([[2.0]], 0.0)
    """
    table = padded(items)
    objective = gradient = right = 0.0
    for group in groups(leaf.bounds, leaf.items, leaf.ratings, len(items)):
        equations = add_ridge(equations_of(group, table), ridge * group.counts.astype(np.float64))
        found = descend(equations, users[group.rows], USER_ROUNDS)
        users[group.rows] = found
        slope = gradient_of(equations, found)
        objective += 0.5 * float((group.ratings**2).sum() + (found * (slope - equations.right)).sum())
        gradient += float((projected(slope, found) ** 2).sum())
        right += float((equations.right**2).sum())
    return objective, gradient, right


def item_equations(by_item: RatingLeaf, users: NDArray[np.float64]) -> Equations:
    """The equations of all items over the users of a leaf; the symmetric matrices as their upper triangles.

    Examples
    --------
    >>> by_item = RatingLeaf(np.array([0, 1, 1]), np.array([0], np.int32), np.array([4.0]))
    >>> found = item_equations(by_item, np.array([[1.0, 2.0]]))
    >>> found.gram.tolist(), found.right.tolist()
    ([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]], [[4.0, 8.0], [0.0, 0.0]])
    """
    rank = users.shape[1]
    upper = np.ravel_multi_index(np.triu_indices(rank), (rank, rank))
    gram = np.zeros((by_item.n_users, len(upper)))
    right = np.zeros((by_item.n_users, rank))
    table = padded(users)
    for group in groups(by_item.bounds, by_item.items, by_item.ratings, len(users)):
        equations = equations_of(group, table)
        gram[group.rows] = equations.gram.reshape(len(group.rows), -1)[:, upper]
        right[group.rows] = equations.right
    return Equations(gram, right)


def _items_step(
    sums: ItemSums, factors: NDArray[np.float64], ridges: NDArray[np.float64]
) -> tuple[Sweep, NDArray[np.float64]]:
    """Objective and residual of the present factors, and the items' next factors."""
    rank = factors.shape[1]
    rows, columns = np.triu_indices(rank)
    improved = np.empty_like(factors)
    gradient = sums.user_gradient
    for start in range(0, len(factors), _ITEM_BLOCK):
        block = slice(start, start + _ITEM_BLOCK)
        gram = np.empty((len(factors[block]), rank, rank))
        gram[:, rows, columns] = sums.gram[block]
        gram[:, columns, rows] = sums.gram[block]
        equations = add_ridge(Equations(gram, sums.right[block]), ridges[block])
        gradient += float((projected(gradient_of(equations, factors[block]), factors[block]) ** 2).sum())
        improved[block] = descend(equations, factors[block], ITEM_ROUNDS)
    right = sums.user_right + float((sums.right**2).sum())
    objective = float(sums.objective) + 0.5 * float((ridges[:, None] * factors**2).sum())
    return Sweep(objective, float(np.sqrt(gradient / right)) if right else 0.0), improved
