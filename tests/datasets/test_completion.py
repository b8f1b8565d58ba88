"""Completion by non-negative factors: against SciPy's optimisers, finite differences and brute force."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

import plmix_dist as pl
from plmix_dist.cluster.executor import ThreadedExecutor
from plmix_dist.datasets.ratings import completion, shuffle
from plmix_dist.datasets.ratings.completion import (
    CompletionTask,
    _add_ridge,
    _descend,
    _Equations,
    _equations_of,
    _gradient_of,
    _users_step,
    complete,
    groups,
    load_users,
    padded,
    projected,
)
from plmix_dist.datasets.ratings.leaf import RatingLeaf, UsedRatings, _leaf_name
from plmix_dist.datasets.ratings.selection import _sum_ranks, variances
from plmix_dist.datasets.ratings.shuffle import Scratch
from plmix_dist.errors import IngestError, NotConvergedWarning
from plmix_dist.store import Location

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

N_USERS, N_ITEMS, RANK, RIDGE = 60, 25, 4, 0.1


def small_matrix(seed: int = 0) -> NDArray[np.float64]:
    """Ratings from 0.5 to 5 in half steps; NaN where there is none."""
    rng = np.random.default_rng(seed)
    truth = rng.random((N_USERS, RANK)) @ rng.random((RANK, N_ITEMS)) + rng.normal(0, 0.15, (N_USERS, N_ITEMS))
    ratings = np.clip(np.round(4 * truth) / 2 + 1, 0.5, 5.0)
    ratings[rng.random(ratings.shape) > rng.uniform(0.2, 0.9, N_USERS)[:, None]] = np.nan
    return ratings


def as_leaf(ratings: NDArray[np.float64]) -> RatingLeaf:
    there = ~np.isnan(ratings)
    bounds = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return RatingLeaf(bounds, np.nonzero(there)[1].astype(np.int32), ratings[there])


def objective(ratings: NDArray[np.float64], users: NDArray[np.float64], items: NDArray[np.float64]) -> float:
    """By its definition, entry by entry."""
    total = 0.0
    for user, item in zip(*np.nonzero(~np.isnan(ratings)), strict=True):
        error = ratings[user, item] - users[user] @ items[item]
        total += error**2 + RIDGE * (users[user] @ users[user] + items[item] @ items[item])
    return total / 2


def prepared(folder: Path, ratings: NDArray[np.float64], n_leaves: int = 1, seed: int = 0) -> CompletionTask:
    scratch = Scratch.beside(Location.of(folder / "store"))
    for leaf, rows in enumerate(np.array_split(ratings, n_leaves)):
        scratch.save(_leaf_name(leaf), **as_leaf(rows)._asdict())
    used = UsedRatings(scratch, np.ones(N_ITEMS, np.bool_), 1)
    return CompletionTask(used, n_leaves, RANK, RIDGE, float(np.nanmean(ratings)), seed)


def run(task: CompletionTask, ratings: NDArray[np.float64], threads: int = 1, **settings: Any) -> Any:
    counts = (~np.isnan(ratings)).sum(axis=0)
    return complete(ThreadedExecutor(threads), task, counts, **({"tol": 1e-6, "max_sweeps": 3000} | settings))


def all_users(task: CompletionTask, found: completion.Completion) -> NDArray[np.float64]:
    return np.concatenate([load_users(task.used.scratch, leaf, found.sweep) for leaf in range(task.n_leaves)])


def reference(ratings: NDArray[np.float64], start: NDArray[np.float64]) -> float:
    """The minimum that L-BFGS-B finds, with a gradient written down anew."""
    there = ~np.isnan(ratings)
    filled = np.where(there, ratings, 0.0)
    of_user, of_item = RIDGE * there.sum(axis=1)[:, None], RIDGE * there.sum(axis=0)[:, None]

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        users, items = np.split(flat.reshape(-1, RANK), [N_USERS])
        errors = np.where(there, users @ items.T - filled, 0.0)
        value = ((errors**2).sum() + (of_user * users**2).sum() + (of_item * items**2).sum()) / 2
        slopes = np.concatenate([errors @ items + of_user * users, errors.T @ users + of_item * items])
        return float(value), slopes.ravel()

    found = minimize(
        value_and_gradient,
        start.ravel(),
        jac=True,
        bounds=[(0, None)] * start.size,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-14, "gtol": 1e-8},
    )
    return float(found.fun)


def test_completion__objective_within_one_percent_of_another_optimiser(tmp_path: Path) -> None:
    ratings = small_matrix()
    task = prepared(tmp_path, ratings)
    found = run(task, ratings, tol=1e-4)
    assert found.converged
    assert found.history[-1].residual <= 1e-4
    mine = objective(ratings, all_users(task, found), found.item_factors)
    assert found.history[-1].objective == pytest.approx(mine, rel=1e-12)
    rng = np.random.default_rng(1)
    others = [reference(ratings, rng.uniform(0, 1, (N_USERS + N_ITEMS, RANK))) for _ in range(5)]
    assert mine <= 1.01 * min(others)
    # From where the completion ends, the other optimiser finds next to nothing.
    ended = np.concatenate([all_users(task, found), found.item_factors])
    assert reference(ratings, ended) >= mine * (1 - 1e-3)


def test_completion__a_matrix_of_that_rank_is_found_again(tmp_path: Path) -> None:
    # With next to no ridge, a matrix of rank 2 with few gaps is filled in as it was.
    rng = np.random.default_rng(3)
    whole = rng.uniform(0.2, 1.5, (N_USERS, 2)) @ rng.uniform(0.2, 1.5, (2, N_ITEMS))
    ratings = np.where(rng.random(whole.shape) < 0.8, whole, np.nan)
    task = prepared(tmp_path, ratings)._replace(rank=2, ridge=1e-7)
    found = run(task, ratings, tol=1e-7, max_sweeps=4000)
    np.testing.assert_allclose(all_users(task, found) @ found.item_factors.T, whole, atol=0.02)


def test_completion__objective_never_rises_and_residual_is_the_gradient(tmp_path: Path) -> None:
    ratings = small_matrix(2)
    task = prepared(tmp_path, ratings)
    found = run(task, ratings, tol=1e-3)
    objectives = [sweep.objective for sweep in found.history]
    assert all(after <= before * (1 + 1e-13) for before, after in pairwise(objectives))
    users, items = all_users(task, found), found.item_factors
    point = np.concatenate([users, items])
    slopes, at_zero = np.zeros_like(point), np.zeros_like(point)
    there = ~np.isnan(ratings)
    filled = np.where(there, ratings, 0.0)
    at_zero[:N_USERS], at_zero[N_USERS:] = filled @ items, filled.T @ users
    for place in np.ndindex(*point.shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = point.copy()
            moved[place] += step
            ends.append(objective_fast(ratings, moved))
        slopes[place] = (ends[0] - ends[1]) / 2e-5
    slopes = np.where(point > 0, slopes, np.minimum(slopes, 0))
    expected = np.linalg.norm(slopes) / np.linalg.norm(at_zero)
    assert found.history[-1].residual == pytest.approx(expected, rel=1e-4)


def objective_fast(ratings: NDArray[np.float64], point: NDArray[np.float64]) -> float:
    users, items = point[:N_USERS], point[N_USERS:]
    there = ~np.isnan(ratings)
    errors = np.where(there, users @ items.T - np.where(there, ratings, 0.0), 0.0)
    penalty = (there.sum(axis=1) * (users**2).sum(axis=1)).sum() + (there.sum(axis=0) * (items**2).sum(axis=1)).sum()
    return float((errors**2).sum() + RIDGE * penalty) / 2


def test_completion__same_bits_for_any_threads_and_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ratings = small_matrix(4)
    found = []
    for threads, tasks in ((1, 1), (2, 2), (3, 8)):
        monkeypatch.setattr("plmix_dist.datasets.ratings.shuffle._N_TASKS", tasks)
        task = prepared(tmp_path / str(threads), ratings, n_leaves=7)
        one = run(task, ratings, threads, tol=1e-3)
        found.append((one.item_factors.tobytes(), all_users(task, one).tobytes(), one.history))
    assert found[0] == found[1] == found[2]


def test_completion__leaves_change_rounding_only(tmp_path: Path) -> None:
    ratings = small_matrix(4)
    one = run(prepared(tmp_path / "1", ratings, 1), ratings, max_sweeps=20, tol=1e-12)
    seven = run(prepared(tmp_path / "7", ratings, 7), ratings, max_sweeps=20, tol=1e-12)
    np.testing.assert_allclose(one.item_factors, seven.item_factors, rtol=1e-9, atol=1e-12)


def test_completion__scratch_keeps_the_last_factors_only(tmp_path: Path) -> None:
    ratings = small_matrix()
    task = prepared(tmp_path, ratings, 2)
    found = run(task, ratings, tol=1e-12, max_sweeps=5)
    assert not found.converged
    assert sorted(path.name for path in tmp_path.glob("store.scratch-*/factors-*")) == [
        "factors-000000-4.npz",
        "factors-000001-4.npz",
    ]


def test_descend__ends_where_nonnegative_least_squares_ends() -> None:
    rng = np.random.default_rng(0)
    tables = rng.normal(0.5, 1.0, (20, 12, 5))
    targets = rng.normal(0.0, 2.0, (20, 12))
    equations = _Equations(np.einsum("tij,tik->tjk", tables, tables), np.einsum("tij,ti->tj", tables, targets))
    found = _descend(equations, np.ones((20, 5)), n_rounds=2000)
    expected = np.array([nnls(table, target)[0] for table, target in zip(tables, targets, strict=True)])
    np.testing.assert_allclose(found, expected, atol=1e-8)
    np.testing.assert_allclose(projected(_gradient_of(equations, found), found), 0, atol=1e-7)


def test_groups__every_rating_once_and_equations_by_definition() -> None:
    ratings = small_matrix(5)
    ratings[7] = np.nan
    leaf = as_leaf(ratings)
    items = np.random.default_rng(0).random((N_ITEMS, RANK))
    seen: dict[int, _Equations] = {}
    for group in groups(leaf.bounds, leaf.items, leaf.ratings, N_ITEMS):
        assert (group.columns == N_ITEMS).sum() <= 0.1 * group.columns.size + len(group.rows)
        ready = _add_ridge(_equations_of(group, padded(items)), RIDGE * group.counts.astype(float))
        seen |= {int(row): _Equations(ready.gram[n], ready.right[n]) for n, row in enumerate(group.rows)}
    assert sorted(seen) == [user for user in range(N_USERS) if user != 7]
    for user, found in seen.items():
        there = ~np.isnan(ratings[user])
        chosen = items[there]
        np.testing.assert_allclose(found.gram, chosen.T @ chosen + RIDGE * there.sum() * np.eye(RANK))
        np.testing.assert_allclose(found.right, chosen.T @ ratings[user, there])


def test_users_step__many_steps_solve_each_user_exactly() -> None:
    ratings = small_matrix(6)
    leaf, items = as_leaf(ratings), np.random.default_rng(0).random((N_ITEMS, RANK))
    users = np.ones((N_USERS, RANK))
    for _ in range(400):
        _users_step(leaf, users, items, RIDGE)
    for user in range(N_USERS):
        there = ~np.isnan(ratings[user])
        table = np.vstack([items[there], np.sqrt(RIDGE * there.sum()) * np.eye(RANK)])
        expected = nnls(table, np.concatenate([ratings[user, there], np.zeros(RANK)]))[0]
        np.testing.assert_allclose(users[user], expected, atol=1e-9)


def test_rank_variance__streamed_equals_the_whole_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.stats import rankdata

    monkeypatch.setattr("plmix_dist.datasets.ratings.leaf._BLOCK_ENTRIES", 3 * N_ITEMS)
    ratings = small_matrix()
    task = prepared(tmp_path, ratings, 5)
    found = run(task, ratings, max_sweeps=5, tol=1e-12)
    sums = _sum_ranks(ThreadedExecutor(2), task, found)
    whole = np.concatenate(
        [load_users(task.used.scratch, leaf, found.sweep) @ found.item_factors.T for leaf in range(5)]
    )
    ranks = rankdata(-whole, axis=1, method="average")
    np.testing.assert_allclose(variances(sums) / 4, ranks.var(axis=0), rtol=1e-12)


def write_table(path: Path, ratings: NDArray[np.float64]) -> Path:
    cells = zip(*np.nonzero(~np.isnan(ratings)), strict=True)
    lines = [f"u{user},{item},{ratings[user, item]}\n" for user, item in cells]
    path.write_text("user,item,rating\n" + "".join(lines))
    return path


def test_pipeline__full_rankings_of_the_items_with_highest_variance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "_LEAF_RATINGS", 200)
    ratings = small_matrix()
    path = write_table(tmp_path / "r.csv", ratings)
    store = pl.ingest_ratings(path, tmp_path / "s", complete=RANK, n_items=6, tol=1e-3, client=False)
    assert store.n_rankings == N_USERS
    rows = [row for block in store.iter_leaves() for row in block.rows()]
    assert all(sorted(item for place in row.ordered for item in place) == list(range(6)) for row in rows)
    report = store.manifest.history[0]["ratings"]
    assert report["used"] == report["rows"] == int((~np.isnan(ratings)).sum())
    assert report["completion"]["converged"]
    assert report["completion"]["residual"] <= 1e-3
    # The rankings follow the ratings: among pairs that a user rated differently, most are in the order of the ratings.
    ids = [str(user) for block in store.iter_leaves() for user in (block.ids if block.ids is not None else [])]
    agree = []
    for user, row in zip(ids, rows, strict=True):
        own = [ratings[int(user[1:]), int(store.item_names[place[0]])] for place in row.ordered]
        agree += [a > b for n, a in enumerate(own) for b in own[n + 1 :] if a != b and not np.isnan(a + b)]
    assert np.mean(agree) > 0.8
    fitted = pl.PlackettLuceMixture(2, random_state=0).fit(store)
    assert np.isfinite(fitted.log_likelihood_)


def test_pipeline__not_converged_is_a_warning_and_a_note(tmp_path: Path) -> None:
    path = write_table(tmp_path / "r.csv", small_matrix())
    with pytest.warns(
        NotConvergedWarning, match=r"not converged after 2 sweeps, optimality residual .* raise max_sweeps"
    ):
        store = pl.ingest_ratings(path, tmp_path / "s", complete=2, max_sweeps=2, client=False)
    assert "not converged" in store.manifest.history[0]["notes"][1]


def test_pipeline__negative_ratings_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "r.csv", small_matrix() - 3)
    with pytest.raises(IngestError, match="ratings are below zero, but completion needs ratings from zero on; add a"):
        pl.ingest_ratings(path, tmp_path / "s", complete=2, client=False)


@pytest.mark.parametrize("largest", [1e150, 1e308])
def test_pipeline__ratings_that_cannot_be_squared_are_refused(tmp_path: Path, largest: float) -> None:
    text = f"user,item,rating\na,x,{largest}\na,y,3\nb,x,{largest}\nb,y,2\n"
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(IngestError, match=r"completion takes at most 1e.100; divide all ratings"):
        pl.ingest_ratings(tmp_path / "r.csv", tmp_path / "s", complete=1, client=False)
    assert pl.ingest_ratings(tmp_path / "r.csv", tmp_path / "s", client=False).n_rankings == 2
