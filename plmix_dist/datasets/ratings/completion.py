"""Completion: non-negative factors of users and items, fitted to the ratings that are there.

Minimised is half the sum over all ratings of (rating - u'v)^2 + ridge (|u|^2 + |v|^2), over u >= 0 and v >= 0: every
rating adds a ridge for its user and its item (Zhou et al. 2008). A sweep goes through all leaves once. In each leaf,
the factors of its users take a few rounds of coordinate descent, and the equations of all items are added up along the
canonical tree. From these the factors of the items take their step. Both steps lower the objective, so it never rises.

Factors of users stay in scratch files, one per leaf and sweep. The completed matrix is never held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.executor import Executor
from plmix_dist.datasets.ratings.leaf import RatingLeaf, UsedRatings
from plmix_dist.datasets.ratings.shuffle import Scratch, sum_over_leaves
from plmix_dist.rankings import Floats, generator
from plmix_dist.threads import single_thread

# Lengths grow by a tenth, so that at most a tenth of the entries is padding.
_GROWTH = 1.1
# Entries of a group: its factors stay in the processor's cache.
_GROUP_ENTRIES = 1 << 15


class _Group(NamedTuple):
    """Rows with nearly equal numbers of ratings."""

    rows: NDArray[np.int64]  # (n_rows,): their numbers
    # (n_rows, length): what they rated, and how; past the end of a row the column `n_columns` and the
    # rating 0
    columns: NDArray[np.int64]
    ratings: Floats
    counts: NDArray[np.int64]  # (n_rows,): how many ratings each has


class _Equations(NamedTuple):
    """_Equations of some rows: `gram` (n_rows, rank, rank) without the ridge, and `right` (n_rows, rank)."""

    gram: Floats
    right: Floats


def groups(
    bounds: NDArray[np.int64], columns: NDArray[np.integer], ratings: Floats, n_columns: int
) -> Iterator[_Group]:
    """The rows that have ratings, in groups. Row u has the entries from `bounds[u]` to `bounds[u + 1]`."""
    counts = np.diff(bounds)
    lengths = [1]
    while lengths[-1] < counts.max(initial=1):
        lengths.append(max(lengths[-1] + 1, int(lengths[-1] * _GROWTH)))
    size = np.searchsorted(lengths, counts)
    order = np.argsort(size, kind="stable")
    order = order[counts[order] > 0]
    cuts = np.searchsorted(size[order], np.arange(len(lengths) + 1)).tolist()
    for length, start, stop in zip(lengths, cuts[:-1], cuts[1:], strict=True):
        step = max(1, _GROUP_ENTRIES // length)
        for first in range(start, stop, step):
            rows = order[first : min(first + step, stop)]
            there = np.arange(length) < counts[rows][:, None]
            entries = np.where(there, bounds[rows][:, None] + np.arange(length), 0)
            yield _Group(
                rows, np.where(there, columns[entries], n_columns), np.where(there, ratings[entries], 0.0), counts[rows]
            )


def padded(factors: Floats) -> Floats:
    """Factors with a row of zeros at the end, for the padding of groups."""
    return np.vstack([factors, np.zeros((1, factors.shape[1]))])


def _equations_of(group: _Group, padded_factors: Floats) -> _Equations:
    """The equations of the rows of a group, from the padded factors of the columns."""
    chosen = padded_factors.take(group.columns, axis=0)
    return _Equations(np.matmul(chosen.transpose(0, 2, 1), chosen), np.matmul(group.ratings[:, None, :], chosen)[:, 0])


def _add_ridge(equations: _Equations, ridges: Floats) -> _Equations:
    """The same equations after a ridge (n_rows,) was added to the diagonal of each, in place."""
    gram = equations.gram
    gram.reshape(len(gram), -1)[:, :: gram.shape[1] + 1] += ridges[:, None]
    return equations


def _descend(equations: _Equations, factors: Floats, n_rounds: int) -> Floats:
    """Factors (n_rows, rank) after rounds of coordinate descent, each coordinate at its best value from zero on.

    No round raises the objective x'Gx / 2 - b'x of a row. Coordinates of all rows are updated side by side.
    """
    gram, right = equations
    rank = gram.shape[1]
    diagonal = np.maximum(gram.reshape(len(gram), -1)[:, :: rank + 1], np.finfo(np.float64).tiny).T.copy()
    current = np.array(factors, order="C")
    for _ in range(n_rounds):
        for place in range(rank):
            change = np.einsum("ij,ij->i", gram[:, place], current)
            change -= right[:, place]
            change /= diagonal[place]
            np.subtract(current[:, place], change, out=change)
            np.maximum(change, 0.0, out=current[:, place])
    return current


def _gradient_of(equations: _Equations, factors: Floats) -> Floats:
    """(n_rows, rank): the gradient Gx - b."""
    product: Floats = np.matmul(equations.gram, factors[:, :, None])[:, :, 0]
    return product - equations.right


def projected(gradient: Floats, factors: Floats) -> Floats:
    """The gradient; where a factor is zero, only as far as it asks for a larger one."""
    return np.where(factors > 0, gradient, np.minimum(gradient, 0.0))


# Rounds of coordinate descent per sweep. Those of the items cost little: they have far fewer equations than users.
_USER_ROUNDS = 3
_ITEM_ROUNDS = 10
# Items whose equations are solved side by side.
_ITEM_BLOCK = 1024


class _ItemSums(NamedTuple):
    """What a sweep adds up over leaves."""

    gram: Floats  # (n_items, rank (rank + 1) / 2): The upper triangles of the items' equations
    right: Floats  # (n_items, rank): their right-hand sides
    objective: float  # The users' part of the objective: errors, and the ridge of the users
    user_gradient: float  # Sums of squares of the users' projected gradient and right-hand sides
    user_right: float


class _Sweep(NamedTuple):
    """What a sweep found: the objective, and the optimality residual, both before the items' step."""

    objective: float
    residual: float


class Completion(NamedTuple):
    """The result of a completion."""

    # (n_items, rank): factors of the items. Those of the users are in scratch files
    item_factors: Floats
    sweep: int  # The sweep whose scratch files hold the factors of the users
    history: list[_Sweep]  # One entry per sweep
    converged: bool  # Whether the residual of the last sweep is at most `tol`


class CompletionTask(NamedTuple):
    """What a leaf must know in every sweep."""

    used: UsedRatings
    n_leaves: int
    rank: int
    ridge: float
    mean: float  # The mean rating, for the start
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

    Shapes: item_counts (n_items,).
    """
    sum_over_leaves(executor, partial(_write_used_leaf, task.used), task.n_leaves, "ratings-used")
    # Random factors of items, so that equal factors of users give the mean rating on average.
    largest, shape = 2.0 * np.sqrt(task.mean / task.rank), (len(item_counts), task.rank)
    factors = generator(task.seed, "completion").uniform(0.0, largest, shape)
    ridges = task.ridge * item_counts.astype(np.float64)
    history: list[_Sweep] = []
    for sweep in range(max_sweeps):
        task.used.scratch.save(_items_name(sweep), factors=factors)
        sweep_leaf = partial(_sweep_leaf, task, sweep)
        sums: _ItemSums = sum_over_leaves(executor, sweep_leaf, task.n_leaves, "completion-sweep")
        with single_thread():
            found, improved = _items_step(sums, factors, ridges)
        history.append(found)
        if progress is not None:
            progress(sweep + 1, max_sweeps)
        if sweep:
            old = [_users_name(leaf, sweep - 1) for leaf in range(task.n_leaves)]
            task.used.scratch.forget(*old, _items_name(sweep - 1))
        if found.residual <= tol:
            break
        if sweep + 1 < max_sweeps:
            factors = improved
    return Completion(factors, len(history) - 1, history, history[-1].residual <= tol)


def load_users(scratch: Scratch, leaf: int, sweep: int) -> Floats:
    """(n_users, rank): the factors of the users of a leaf after a sweep."""
    return scratch.load(_users_name(leaf, sweep))["factors"]


def _users_name(leaf: int, sweep: int) -> str:
    return f"factors-{leaf:06d}-{sweep}.npz"


def _items_name(sweep: int) -> str:
    return f"items-{sweep}.npz"


def _used_name(leaf: int) -> str:
    return f"used-{leaf:06d}.npz"


def _write_used_leaf(used: UsedRatings, leaf: int) -> int:
    """Write the ratings of a leaf that are used, by user and by item."""
    kept, _ = used.of_leaf(leaf)
    order = np.argsort(kept.items, kind="stable")
    used.scratch.save(
        _used_name(leaf),
        bounds=kept.bounds,
        items=kept.items,
        ratings=kept.ratings,
        item_bounds=np.searchsorted(kept.items[order], np.arange(used.n_items + 1)),
        order=order.astype(np.int32),
    )
    return len(kept.items)


def _sweep_leaf(task: CompletionTask, sweep: int, leaf: int) -> _ItemSums:
    """The users' step in one leaf, and its part of the items' equations."""
    arrays = task.used.scratch.load(_used_name(leaf))
    ratings = RatingLeaf(arrays["bounds"], arrays["items"], arrays["ratings"])
    items = task.used.scratch.load(_items_name(sweep))["factors"]
    if sweep:
        users = load_users(task.used.scratch, leaf, sweep - 1)
    else:
        users = np.full((ratings.n_users, task.rank), np.sqrt(task.mean / task.rank))
    objective, gradient, right = _users_step(ratings, users, items, task.ridge)
    task.used.scratch.save(_users_name(leaf, sweep), factors=users)
    order = arrays["order"]
    by_item = RatingLeaf(arrays["item_bounds"], ratings.user_of_rating[order].astype(np.int32), ratings.ratings[order])
    return _ItemSums(*_item_equations(by_item, users), objective, gradient, right)


def _users_step(leaf: RatingLeaf, users: Floats, items: Floats, ridge: float) -> tuple[float, float, float]:
    """Improve the factors of users (n_users, rank) in place."""
    table = padded(items)
    objective = gradient = right = 0.0
    for group in groups(leaf.bounds, leaf.items, leaf.ratings, len(items)):
        equations = _add_ridge(_equations_of(group, table), ridge * group.counts.astype(np.float64))
        found = _descend(equations, users[group.rows], _USER_ROUNDS)
        users[group.rows] = found
        slope = _gradient_of(equations, found)
        objective += 0.5 * float((group.ratings**2).sum() + (found * (slope - equations.right)).sum())
        gradient += float((projected(slope, found) ** 2).sum())
        right += float((equations.right**2).sum())
    return objective, gradient, right


def _item_equations(by_item: RatingLeaf, users: Floats) -> _Equations:
    """The equations of all items over the users of a leaf; the symmetric matrices as their upper triangles."""
    rank = users.shape[1]
    upper = np.ravel_multi_index(np.triu_indices(rank), (rank, rank))
    gram = np.zeros((by_item.n_users, len(upper)))
    right = np.zeros((by_item.n_users, rank))
    table = padded(users)
    for group in groups(by_item.bounds, by_item.items, by_item.ratings, len(users)):
        equations = _equations_of(group, table)
        gram[group.rows] = equations.gram.reshape(len(group.rows), -1)[:, upper]
        right[group.rows] = equations.right
    return _Equations(gram, right)


def _items_step(sums: _ItemSums, factors: Floats, ridges: Floats) -> tuple[_Sweep, Floats]:
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
        equations = _add_ridge(_Equations(gram, sums.right[block]), ridges[block])
        gradient += float((projected(_gradient_of(equations, factors[block]), factors[block]) ** 2).sum())
        improved[block] = _descend(equations, factors[block], _ITEM_ROUNDS)
    right = sums.user_right + float((sums.right**2).sum())
    objective = float(sums.objective) + 0.5 * float((ridges[:, None] * factors**2).sum())
    return _Sweep(objective, float(np.sqrt(gradient / right)) if right else 0.0), improved
