"""Hessians on samples, and the steps that they give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from plmix_dist import PlackettLuceMixture
from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting import hessian
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.fixed_point import Evaluation
from plmix_dist.fitting.hessian import SampleHessian, _newton_step, _NewtonStep, _with_prior
from plmix_dist.fitting.newton import Hessian
from plmix_dist.fitting.point import Point
from plmix_dist.passes import ThreadedPasses
from plmix_dist.passes.request import Request
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import MM
from tests.helpers.fit_oracle import block_of, drawn_rows, objective, random_rows

Vector = NDArray[np.float64]


Matrix = NDArray[np.float64]


DIFFERENCE = 2e-3


def second_derivatives(function: Callable[[Vector], float], at: Vector) -> Matrix:
    """All second derivatives, by differences of both orders, so that errors are of the fourth power of the step."""
    coarse, fine = _differences(function, at, DIFFERENCE), _differences(function, at, DIFFERENCE / 2)
    return (4 * fine - coarse) / 3


def _differences(function: Callable[[Vector], float], at: Vector, step: float) -> Matrix:
    table = np.empty((len(at), len(at)))
    steps = step * np.eye(len(at))
    for i, j in itertools.combinations_with_replacement(range(len(at)), 2):
        corners = [
            sign_i * sign_j * function(at + sign_i * steps[i] + sign_j * steps[j])
            for sign_i, sign_j in itertools.product((1, -1), repeat=2)
        ]
        table[i, j] = table[j, i] = math.fsum(corners) / (4 * step**2)
    return table


def first_derivatives(function: Callable[[Vector], float], at: Vector) -> Vector:
    steps = 1e-5 * np.eye(len(at))
    return np.array([(function(at + step) - function(at - step)) / 2e-5 for step in steps])


def softmax(log_shares: Vector) -> Vector:
    shares: Vector = np.exp(log_shares - np.logaddexp.reduce(log_shares))
    return shares


def random_state(seed: int, n_components: int, n_items: int, spread: float = 0.8) -> Point:
    rng = np.random.default_rng(seed)
    worths = rng.normal(0, spread, (n_components, n_items))
    state = Point.start(worths, rng.dirichlet(np.full(n_components, 5.0)))
    return state._replace(ghosts=rng.normal(0, 0.5, n_components))


@pytest.mark.parametrize("n_components", [1, 3])
def test_prior__information(n_components: int) -> None:
    n_items, alpha = 4, 0.7
    state = random_state(9, n_components, n_items)

    def log_prior(point: Vector) -> float:
        moved = _without_norms(state, point)
        return objective([], n_items, moved.log_worths, moved.ghosts.tolist(), [1.0], alpha)

    without_data = np.zeros((n_components * n_items + n_components,) * 2)
    found = _with_prior(without_data, state, alpha)
    assert_allclose(found, -second_derivatives(log_prior, state.flat()), atol=1e-7)


def _without_norms(state: Point, point: Vector) -> Point:
    """The state of a vector just as it is: derivatives are those of free parameters."""
    n_components, n_items = state.log_worths.shape
    worths = point[: n_components * n_items].reshape(n_components, n_items)
    return Point(worths, point[n_components * n_items : -n_components], point[-n_components:])


NO_SCALE = np.zeros(12)


TRUTH = np.array([[1.5, 0.5, -0.5, -1.5], [-1.0, 0.8, -0.8, 1.0]])


def near_the_top(alpha: float) -> tuple[list[Ranking], Point]:
    """Rows of two groups that are well apart, and a state not far from where their objective is highest."""
    rows = drawn_rows(2, TRUTH, [0.6, 0.4], 60)
    model = PlackettLuceMixture(2, alpha=alpha, init=TRUTH, max_iter=2_000).fit(block_of(rows, 4))
    rng = np.random.default_rng(0)
    state = Point.start(model.log_worths_, model.shares_, model._ghosts)
    return rows, state.like(state.flat() + 0.1 * rng.normal(size=state.flat().size))


def objective_of(rows: Sequence[Ranking], state: Point, alpha: float) -> Callable[[Vector], float]:
    def at(point: Vector) -> float:
        worths, ghosts, log_shares, *_ = _without_norms(state, point)
        shares = softmax(log_shares).tolist()
        return objective(rows, worths.shape[1], worths, ghosts.tolist(), shares, alpha)

    return at


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("fixed_shares", [False, True])
def test_step__is_that_of_dense_linear_algebra(alpha: float, fixed_shares: bool) -> None:
    rows, state = near_the_top(alpha)
    unit = math.fsum(row.weight for row in rows)
    surface = objective_of(rows, state, alpha)
    slopes = first_derivatives(surface, state.flat()) / unit
    matrix = -second_derivatives(surface, state.flat()) / unit
    if fixed_shares:
        slopes[-2:] = matrix[-2:] = matrix[:, -2:] = 0.0
    # The shortest of all solutions leaves alone what is not defined.
    way = np.linalg.pinv(matrix, rcond=1e-6, hermitian=True) @ slopes
    assert 0.05 < np.abs(way).max() < 1.5

    hessian = SampleHessian(block_of(rows, 4), alpha, unit, fixed_shares).at(state)
    found = _newton_step(hessian, state, slopes, NO_SCALE, 0.0)
    assert found is not None
    moved, damping, _ = found
    assert damping == 0.0
    assert_allclose(moved.flat(), state.like(state.flat() + way).flat(), atol=1e-5)
    if fixed_shares:
        assert_allclose(moved.log_shares, state.log_shares, atol=1e-14)
    if alpha == 0:
        assert_allclose(moved.ghosts, state.ghosts, atol=1e-12)
    # It is a good step, too: most of the way to the top.
    top = near_the_top_objective(rows, alpha, fixed_shares, state)
    before, after = surface(state.flat()), surface(moved.flat())
    assert top - after < 0.2 * (top - before)


def near_the_top_objective(rows: Sequence[Ranking], alpha: float, fixed_shares: bool, state: Point) -> float:
    shares = np.exp(state.log_shares) / np.exp(state.log_shares).sum() if fixed_shares else None
    model = PlackettLuceMixture(2, alpha=alpha, init=state.log_worths, shares=shares, max_iter=2_000)
    return float(model.fit(block_of(rows, 4)).objective_)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_step__does_not_move_what_is_not_defined(alpha: float) -> None:
    rows, state = near_the_top(alpha)
    unit = math.fsum(row.weight for row in rows)
    hessian = SampleHessian(block_of(rows, 4), alpha, unit).at(state)
    slopes = first_derivatives(objective_of(rows, state, alpha), state.flat()) / unit
    free = hessian.free
    whole = np.zeros(len(slopes))
    whole[free] = np.linalg.solve(hessian.observed[np.ix_(free, free)], slopes[free])
    worths, ghosts, log_shares, *_ = _without_norms(state, whole)
    assert_allclose(worths.sum(axis=1) + ghosts, 0, atol=1e-6)
    assert_allclose(log_shares.sum(), 0, atol=1e-6)
    assert free.tolist() == [True] * 8 + [alpha > 0] * 2 + [True] * 2


def two_groups_in_one_place() -> tuple[RankingBlock, Point]:
    """Rankings of two opposite groups, and a state between them, from where the objective rises to both sides."""
    block, _ = draw_rankings(
        np.array([[2.0, 1.0, -1.0, -2.0], [-2.0, -1.0, 1.0, 2.0]]), np.array([0.5, 0.5]), 400, np.random.default_rng(3)
    )
    slight = 0.05 * np.array([[1.0, 0.5, -0.5, -1.0]])
    return block, Point.start(np.concatenate([slight, -slight]), np.array([0.5, 0.5]))


def test_step__damping_grows_where_the_objective_is_not_concave() -> None:
    block, state = two_groups_in_one_place()
    hessian = SampleHessian(block, 0.1, 400.0, fixed_shares=True).at(state)
    chosen = np.ix_(hessian.free, hessian.free)
    observed, complete = hessian.observed[chosen], hessian.complete[chosen]
    assert np.linalg.eigvalsh(observed).min() < -0.01
    slopes = np.random.default_rng(0).normal(size=len(hessian.free))
    found = _newton_step(hessian, state, slopes, NO_SCALE, 0.0)
    assert found is not None
    moved, damping, _ = found
    assert damping > 0
    assert np.linalg.eigvalsh(observed + damping * complete).min() > 0
    # No less would have been enough.
    assert np.linalg.eigvalsh(observed + damping / 3 * complete).min() < 1e-9
    assert (moved.flat() - state.flat()) @ slopes > 0
    # What was asked for is the least that is added.
    assert _newton_step(hessian, state, slopes, NO_SCALE, 5.0)[1] == 5.0  # type: ignore[index]


def some_hessian(observed: Matrix, complete: Matrix, doubt: float = 0.0) -> Hessian:
    scale = np.maximum(np.diag(complete), 0.0)
    return Hessian(observed, complete, np.ones(len(observed), bool), 100.0, doubt, scale)


def test_step__none_where_no_damping_helps() -> None:
    state = Point.start(np.zeros((1, 2)), np.ones(1))
    bowl = some_hessian(-np.eye(4), 1e-9 * np.eye(4))
    assert _newton_step(bowl, state, np.ones(4), np.zeros(4), 0.0) is None


def test_step__none_where_the_hessian_is_not_finite() -> None:
    state = Point.start(np.zeros((1, 2)), np.ones(1))
    for broken in (np.diag([1.0, np.nan, 1.0, 1.0]), np.diag([1.0, np.inf, 1.0, 1.0])):
        for unusable in (some_hessian(broken, np.eye(4)), some_hessian(np.eye(4), broken)):
            assert _newton_step(unusable, state, np.ones(4), np.zeros(4), 0.0) is None


def test_step__never_longer_than_the_hessian_can_tell() -> None:
    state = Point.start(np.zeros((1, 3)), np.ones(1))
    flat = some_hessian(1e-6 * np.eye(5), 1e-6 * np.eye(5))
    moved, _, _ = _newton_step(flat, state, np.array([2.0, -1.0, -1.0, 0.0, 0.0]), np.zeros(5), 0.0)  # type: ignore[misc]
    assert_allclose(moved.log_worths, [[1.5, -0.75, -0.75]])


def test_step__what_a_sample_has_not_seen_takes_the_step_of_em() -> None:
    # Item 1 is missing from the sample, or its information is negative there: it must move all the same.
    point = Point.start(np.zeros((1, 3)), np.ones(1))
    gradient, scale = np.array([0.1, 0.02, 0.0, 0.0, 0.0]), np.array([0.5, 0.25, 0.5, 0.1, 1.0])
    known = np.array([0.5, 0.0, 0.5, 0.5, 0.5])
    hessian = some_hessian(np.diag(known), np.diag(known))
    moved, _, _ = _newton_step(hessian, point, gradient, scale, 0.0)  # type: ignore[misc]
    assert_allclose(np.diff(moved.log_worths[0]), np.diff([0.1 / 0.5, 0.02 / 0.25, 0.0]))
    negative = some_hessian(np.diag([0.5, -0.1, 0.5, 0.5, 0.5]), np.diag([0.5, 0.2, 0.5, 0.5, 0.5]))
    moved, damping, _ = _newton_step(negative, point, gradient, scale, 0.0)  # type: ignore[misc]
    assert damping > 0.5
    assert moved.log_worths[0, 1] > moved.log_worths[0, 2]


def test_hessian__doubt_of_a_sample() -> None:
    block, state = two_groups_in_one_place()
    assert SampleHessian(block, 0.1, 400.0).at(state).doubt == 0.0
    few, many = (SampleHessian(block[:rows], 0.1, 400.0).at(state).doubt for rows in (50, 200))
    assert few == pytest.approx(2 * many)
    assert few > 0
    # The least damping is the doubt.
    found = _newton_step(some_hessian(np.eye(12), np.eye(12), few), state, np.ones(12), np.zeros(12), 0.0)
    assert found is not None
    assert found[1] == few


def test_hessian__too_many_parameters() -> None:
    block, state = two_groups_in_one_place()
    assert SampleHessian(block, 0.1, 400.0).suits(state)
    assert not SampleHessian(block, 0.1, 400.0).suits(random_state(0, 20, 100))


def test_hessian__expected_wins_of_the_sample() -> None:
    block, point = two_groups_in_one_place()
    hessian = SampleHessian(block, 0.1, 400.0).at(point)
    em = Em(MM, 0.1, weight=400.0, n_rankings=400)
    (answer,) = ThreadedPasses(as_rankings(block)).run(em.ask(em.start(point)))
    summary, *steps = answer.results
    assert_allclose(hessian.scale, em.evaluation(point, summary, steps, {}).scale / 400.0, atol=1e-12)


def test_hessian__weights_that_do_not_add_up_exactly() -> None:
    block, point = two_groups_in_one_place()
    thirds = block.replace(weights=np.full(400, 1 / 3))
    assert SampleHessian(thirds, 0.1, thirds.total_weight * (1 + 1e-13)).at(point).doubt == 0.0


def state(n_components: int, n_items: int) -> Point:
    rng = np.random.default_rng(n_components)
    point = Point.start(rng.normal(0, 0.8, (n_components, n_items)), rng.dirichlet(np.full(n_components, 5.0)))
    return point._replace(ghosts=rng.normal(0, 0.5, n_components))


def test_hessian__prior_counts_as_in_all_rows() -> None:
    rows = block_of(random_rows(3, 5, 20), 5)
    point, alpha, weight = state(2, 5), 2.0, 50 * rows.total_weight
    found = SampleHessian(rows, alpha, weight).at(point)
    # All rows have `alpha` pseudo-wins and losses per item: per unit of weight that is alpha / weight.
    for k in range(2):
        odds = np.exp(point.log_worths[k] - point.ghosts[k])
        variance = odds / (1 + odds) ** 2
        assert found.complete[10 + k, 10 + k] == pytest.approx(2 * alpha / weight * variance.sum(), rel=1e-9)
        assert_allclose(found.complete[5 * k : 5 * k + 5, 10 + k], -2 * alpha / weight * variance, rtol=1e-9)


def test_hessian__does_not_grow_with_the_rows() -> None:
    rows = block_of(random_rows(4, 5, 20), 5)
    point = state(2, 5)
    once, often = (
        SampleHessian(rows.replace(weights=factor * rows.row_weights), 0.0, 1.0).at(point) for factor in (1, 7)
    )
    assert_allclose(once.observed, often.observed, rtol=1e-10, atol=1e-14)
    assert_allclose(once.complete, often.complete, rtol=1e-10, atol=1e-14)
    assert often.weight == pytest.approx(7 * once.weight)


@pytest.mark.parametrize("expected", [4000, 1000, 500])
def test_hessian__more_parameters_fewer_rows(monkeypatch: pytest.MonkeyPatch, expected: int) -> None:
    # Long rows, which are not merged.
    rows = RankingBlock.from_array(np.argsort(np.random.default_rng(0).random((4000, 30)), axis=1))
    point = Point.start(np.zeros((1, 30)), np.ones(1))
    assert point.n_parameters == 32
    monkeypatch.setattr(hessian, "_MOST_WORK", expected * 32.0**2)
    assert SampleHessian(rows, 0.1, 1e6)._rows_for(point).total_weight == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("share_of_weight", "doubt"), [(1.0, 0.0), (0.5, 0.5 * np.sqrt(8 / 400))], ids=["all", "half"])
def test_hessian__doubt(share_of_weight: float, doubt: float) -> None:
    rows = block_of(drawn_rows(2, np.zeros((1, 6)), [1.0], 400), 6)
    point = Point.start(np.zeros((1, 6)), np.ones(1))
    assert point.n_parameters == 8
    assert SampleHessian(rows, 0.1, 400 / share_of_weight).at(point).doubt == pytest.approx(doubt)


HERE = Point.start(np.zeros((1, 2)), np.ones(1))


def step_by(observed: list[float], complete: list[float], **given: Any) -> _NewtonStep | None:
    """A step by matrices that are diagonal; the derivative is 1e-6 for the ghost alone."""
    information = Hessian(
        np.diag(observed),
        np.diag(complete),
        np.ones(4, np.bool_),
        weight=1.0,
        doubt=given.get("doubt", 0.0),
        scale=np.array(complete),
    )
    return _newton_step(information, HERE, np.array([0.0, 0.0, 1e-6, 0.0]), np.ones(4), given.get("damping", 0.0))


@pytest.mark.parametrize(("known", "move"), [(2e-3, 1e-6 / 2e-3), (0.5e-3, 1e-6 / (1 + 0.5e-3))])
def test_step__what_the_sample_hardly_knows_goes_by_the_scale(known: float, move: float) -> None:
    found = step_by([1.0, 1.0, known, 1.0], [1.0, 1.0, known, 1.0])
    assert found is not None
    assert found[0].ghosts[0] == pytest.approx(move, rel=1e-9)


@pytest.mark.parametrize(
    ("least", "damping"), [(0.5, 0.0), (-0.01, 0.02), (-0.03, 0.06), (-0.5, 0.54), (-4.5, 4.86), (-5.0, None)]
)
def test_step__damping_is_trebled_up_to_ten(least: float, damping: float | None) -> None:
    found = step_by([1.0, 1.0, least, 1.0], [1.0, 1.0, 1.0, 1.0])
    assert (found is None) is (damping is None)
    if found is not None and damping is not None:
        assert found[1] == pytest.approx(damping)
        assert found[0].ghosts[0] == pytest.approx(1e-6 / (least + damping))


@pytest.mark.parametrize(("damping", "doubt"), [(0.3, 0.1), (0.1, 0.3)])
def test_step__damping_is_at_least_the_doubt(damping: float, doubt: float) -> None:
    found = step_by([1.0] * 4, [1.0] * 4, damping=damping, doubt=doubt)
    assert found is not None
    assert found[1] == pytest.approx(0.3)
    assert found[0].ghosts[0] == pytest.approx(1e-6 / 1.3)


@pytest.mark.parametrize(("bend", "expected"), [(0.0, 1.0), (0.2, 1.2), (0.5, 0.75 + 0.5 * 0.75**2), (5.0, None)])
def test_bent_step__corrects_by_the_gradient_at_the_refused_point(bend: float, expected: float | None) -> None:
    # Along one coordinate with information 1: a move of 1, and a gradient there that asks for `bend` more.
    hessian = SampleHessian(RankingBlock.from_array([[0, 1]]), 0.0, 1.0)
    known = Hessian(np.eye(4), np.eye(4), np.array([False, False, True, False]), 1.0, 0.0, np.ones(4))
    start, end = (np.array([0.0, 0.0, slope, 0.0]) for slope in (1.0, bend))
    here = Evaluation(0.0, 1.0, start, np.ones(4), HERE, HERE, {})
    there = HERE._replace(ghosts=HERE.ghosts + 1.0)
    found = hessian.bent_step(known, HERE, here, there, here._replace(gradient=end), 0.0)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert_allclose(found.point.ghosts - HERE.ghosts, expected)


def test_information__leaves_of_a_pass_use_one_thread_of_blas_each(monkeypatch: pytest.MonkeyPatch) -> None:
    # With more of them the threads of a pass wait for each other: ten times the seconds of the processor.
    used: set[int] = set()
    information = hessian.information

    def noted(*arguments: Any) -> Any:
        used.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return information(*arguments)

    monkeypatch.setattr(hessian, "information", noted)
    rows = as_rankings(np.argsort(np.random.default_rng(0).random((9_000, 4)), axis=1))
    point = Point.start(np.zeros((2, 4)), np.array([0.5, 0.5]))
    passes = ThreadedPasses(rows, n_threads=2)
    passes.run([Request(hessian.information_of(), point)])
    passes.release()
    assert used == {1}
