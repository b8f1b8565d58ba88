"""The iteration over points: what is taken and refused, acceleration, and points as vectors."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist.fitting.fixed_point import (
    _MEMORY,
    Evaluation,
    Good,
    Iteration,
    Rules,
    _AndersonMemory,
    advance,
    propose,
)
from plmix_dist.fitting.newton import Hessian, NewtonState
from plmix_dist.fitting.point import Point


def iterate(evaluate: Any, point: Point, **rules: Any) -> tuple[Iteration, list[dict[str, Any]]]:
    """An iteration whose evaluations need no pass over data, to its end, and its records."""
    iteration, records = Iteration.start(point), []
    while iteration.ended is None:
        iteration, record = advance(iteration, evaluate(iteration.point), Rules(weight=1.0, **rules))
        records.append(record)
    return iteration, records


def random_state(seed: int, n_components: int, n_items: int, spread: float = 1.0) -> Point:
    rng = np.random.default_rng(seed)
    worths = rng.normal(0, spread, (n_components, n_items))
    return Point.start(worths, rng.dirichlet(np.full(n_components, 5.0)))._replace(ghosts=rng.normal(size=n_components))


def hill(point: Point, *, next_factor: float, safe_factor: float, top_at: float = 0.0) -> Evaluation:
    """-x ** 2 of one number, a step that multiplies it and a safe step that does too."""
    x = float(point.ghosts[0]) - top_at
    moved = [point._replace(ghosts=np.array([top_at + x * factor])) for factor in (next_factor, safe_factor)]
    slopes, scale = np.array([0.0, 0.0, -2 * x, 0.0]), np.array([0.0, 0.0, 2.0, 0.0])
    return Evaluation(-(x**2), abs(2 * x), slopes, scale, moved[0], moved[1], {})


AT_ONE = Point(np.zeros((1, 2)), np.ones(1), np.zeros(1))


def test_iterate__goes_back_where_the_objective_falls() -> None:
    ended, records = iterate(
        partial(hill, next_factor=-3.0, safe_factor=0.5), AT_ONE, tol=1e-6, max_iter=200, accelerate=False
    )
    # Every plain step trebles the distance and is not taken; the safe step from where it began halves it.
    assert [(record["step"], record["taken"]) for record in records[:5]] == [
        ("start", True),
        ("plain", False),
        ("safe", True),
        ("plain", False),
        ("safe", True),
    ]
    assert ended.ended == "converged"
    assert abs(ended.best.point.ghosts[0]) < 1e-6
    assert ended.n_evaluations == len(records)


@pytest.mark.parametrize("fall", [1.0, 0.9])
@pytest.mark.parametrize(("gain", "n_evaluations"), [(1e-9, 20), (0.02, 60), (0.04, 80), (0.08, None)])
def test_iterate__looks_back_at_careful_steps(gain: float, n_evaluations: int | None, fall: float) -> None:
    # What 20 steps gain is compared with the tolerance; the third time with half a nat, the fourth with a whole one.
    # A gradient that comes down counts the first two times; on a ridge it goes up again.
    n_evaluations = n_evaluations and max(n_evaluations, 60 if fall < 1 else 0)
    iteration, n = Iteration.start(AT_ONE, NewtonState(None, n_troubles=9, wait=0)), 0
    rules = Rules(tol=1e-8, max_iter=1_000, weight=1.0, accelerate=False)
    while iteration.ended is None and n < 100:
        found = Evaluation(n * gain, fall**n, np.zeros(4), np.ones(4), AT_ONE, AT_ONE, {})
        iteration, record = advance(iteration, found, rules)
        n += 1
    assert (iteration.ended, record.get("flat")) == ((None, None) if n_evaluations is None else ("flat", True))
    assert n == (n_evaluations or 100)


@pytest.mark.parametrize(("gain", "fall", "careful"), [(0.01, 1.0, True), (0.02, 1.0, False), (0.01, 0.9, False)])
def test_iterate__newton_steps_that_gain_little_become_careful(gain: float, fall: float, careful: bool) -> None:
    # 20 steps that gain less than a quarter of a nat and leave the gradient as it was.
    hessian = cast("Hessian", ())
    iteration = Iteration.start(AT_ONE, NewtonState(hessian, wait=0))
    rules = Rules(tol=1e-8, max_iter=1_000, weight=1.0, accelerate=False)
    for n in range(20):
        assert not (iteration.newton and iteration.newton.careful)
        found = Evaluation(n * gain, fall**n, np.zeros(4), np.ones(4), AT_ONE, AT_ONE, {})
        iteration, _ = advance(iteration, found, rules)
    assert iteration.newton is not None
    assert iteration.newton.careful == careful


def test_iterate__ends_where_even_the_safe_step_falls() -> None:
    ended, _ = iterate(partial(hill, next_factor=-3.0, safe_factor=-2.0), AT_ONE, tol=1e-6, max_iter=50)
    assert (ended.ended, ended.n_evaluations) == ("stalled", 3)
    assert ended.best.point is AT_ONE


def test_iterate__small_steps_are_no_convergence() -> None:
    # The objective hardly moves, far from the top: only the gradient tells.
    creeping = partial(hill, next_factor=1 - 1e-9, safe_factor=1 - 1e-9)
    ended, _ = iterate(creeping, AT_ONE, tol=1e-6, max_iter=20, accelerate=False)
    assert (ended.ended, ended.n_evaluations) == ("exhausted", 20)


def test_iterate__accelerated() -> None:
    ended, _ = iterate(partial(hill, next_factor=0.9, safe_factor=0.9, top_at=4.0), AT_ONE, tol=1e-8, max_iter=10)
    assert ended.ended == "converged"
    assert ended.best.point.ghosts[0] == pytest.approx(4.0, abs=1e-8)


def test_iterate__interrupted() -> None:
    ended, _ = iterate(
        partial(hill, next_factor=0.5, safe_factor=0.5),
        AT_ONE,
        tol=1e-9,
        max_iter=50,
        accelerate=False,
        interrupt=lambda point: bool(point.ghosts[0] < 0.2),
    )
    assert (ended.ended, float(ended.best.point.ghosts[0])) == ("interrupted", 0.125)


def test_iterate__without_an_objective_every_step_is_taken() -> None:
    def halving(point: Point) -> Evaluation:
        there = point._replace(ghosts=point.ghosts / 2)
        return Evaluation(None, float(point.ghosts[0]) / 2, None, None, there, None, {})

    ended, records = iterate(halving, AT_ONE, tol=1e-3, max_iter=50)
    assert ended.ended == "converged"
    assert {record["step"] for record in records} == {"start", "plain"}
    assert all(record["taken"] and record["objective"] is None for record in records)
    assert records[-1]["largest_change"] <= 1e-3 < records[-2]["largest_change"]
    assert "gradient" not in records[0]


def test_iterate__a_refusal_forgets_what_acceleration_has_learnt() -> None:
    wild = partial(hill, next_factor=-3.0, safe_factor=0.5)
    iteration = Iteration.start(AT_ONE)
    rules = Rules(tol=1e-6, max_iter=50, weight=1.0)
    for _ in range(2):
        iteration, record = advance(iteration, wild(iteration.point), rules)
    assert not record["taken"]
    assert len(iteration.anderson.points) == 0
    # From the safe point on it goes like an iteration that begins there.
    fresh = Iteration.start(iteration.point)
    iteration, _ = advance(iteration, wild(iteration.point), rules)
    fresh, _ = advance(fresh, wild(fresh.point), rules)
    assert iteration.point.flat().tolist() == fresh.point.flat().tolist()


def test_anderson__solves_linear_maps() -> None:
    rng = np.random.default_rng(0)
    contraction = rng.normal(size=(4, 4))
    contraction *= 0.95 / np.abs(np.linalg.eigvals(contraction)).max()
    origin = rng.normal(size=4)
    exact = np.linalg.solve(np.eye(4) - contraction, origin)
    memory, point = _AndersonMemory.empty(4), np.zeros(4)
    for _ in range(8):  # four differences span the space: then the answer is there, but for rounding
        memory, point = propose(memory, point, contraction @ point + origin)
    assert_allclose(point, exact, rtol=1e-8)


def test_anderson__image_that_is_not_finite() -> None:
    # The share of a component may vanish altogether: its logarithm is then minus infinity.
    memory, _ = propose(_AndersonMemory.empty(2), np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    image = np.array([-np.inf, 0.25])
    memory, proposal = propose(memory, np.array([0.5, 0.5]), image)
    assert np.array_equal(proposal, image)
    assert len(memory.points) == 0


def test_point__flat_and_back() -> None:
    state = random_state(0, 3, 4)
    back = state.like(state.flat())
    for mine, theirs in zip(state, back, strict=True):
        assert_allclose(mine, theirs, atol=1e-15)
    moved = state.like(state.flat() + 2.0)
    assert_allclose(moved.log_worths, state.log_worths, atol=1e-14)
    assert_allclose(moved.ghosts, state.ghosts, atol=1e-14)
    assert_allclose(np.exp(moved.log_shares).sum(), 1.0)


HERE = Point.start(np.array([[0.3, -0.3]]), np.ones(1))


THERE = HERE._replace(log_worths=np.array([[0.9, -0.9]]))


LEAP = HERE._replace(log_worths=np.array([[0.5, -0.5]]))


class OneLeap:
    """Newton that always proposes the same point, by a map that is new or not."""

    def __init__(self, *, is_new: bool) -> None:
        self.is_new = is_new

    def propose(self, state: NewtonState, point: Point, evaluation: Evaluation) -> tuple[NewtonState, Point]:
        return state._replace(is_new=self.is_new), LEAP


def accelerated(newton: Any) -> Iteration:
    """One step of an iteration that remembers an earlier point."""
    before = Evaluation(-2.0, 1.0, np.ones(4), np.ones(4), HERE, HERE, {})
    earlier = HERE._replace(log_worths=np.array([[0.1, -0.1]]))
    memory, _ = propose(_AndersonMemory.empty(4), earlier.flat(), earlier.flat() + np.array([0.3, -0.3, 0.0, 0.0]))
    iteration = Iteration.start(HERE, NewtonState(None, wait=0))._replace(good=Good(earlier, before), anderson=memory)
    now = Evaluation(-1.0, 1.0, np.ones(4), np.ones(4), THERE, THERE, {})
    return advance(iteration, now, Rules(1e-9, 50, 1.0, newton=newton))[0]


def test_acceleration__forgets_points_of_another_map() -> None:
    fresh = accelerated(OneLeap(is_new=True))
    assert fresh.step == "newton"
    assert_allclose(fresh.point.flat(), LEAP.flat(), atol=1e-15)
    assert len(fresh.anderson.points) == 1
    mixed = accelerated(OneLeap(is_new=False))
    assert len(mixed.anderson.points) == 2
    assert np.abs(mixed.point.flat() - LEAP.flat()).max() > 1e-3


def test_acceleration__remembers_the_last_few_points() -> None:
    rng = np.random.default_rng(0)
    memory, points = _AndersonMemory.empty(9), rng.normal(size=(9, 9))
    for count, point in enumerate(points, start=1):
        memory, _ = propose(memory, point, point + rng.normal(size=9))
        assert_allclose(memory.points, points[max(0, count - _MEMORY - 1) : count])
        assert len(memory.residuals) == len(memory.points)


def test_anderson__nearly_parallel_steps_are_still_told_apart() -> None:
    # One direction shrinks by half, another hardly: their differences are small beside the rest, and yet they count.
    factors = np.array([0.5, 0.999, 0.9])
    memory, point = _AndersonMemory.empty(3), np.array([1.0, 1e-4, 1.0])
    for _ in range(6):
        memory, point = propose(memory, point, factors * point)
    assert np.abs(point).max() < 1e-9


@pytest.mark.parametrize(("log_range", "step"), [(598.0, "accelerated"), (602.0, "plain")])
def test_acceleration__not_beyond_what_kernels_can_compute(log_range: float, step: str) -> None:
    here = Point.start(np.array([[0.0, 0.0]]), np.ones(1))
    there = here._replace(log_worths=np.array([[log_range / 2, -log_range / 2]]))
    evaluation = Evaluation(-1.0, 1.0, np.ones(4), np.ones(4), there, there, {})
    after, _ = advance(Iteration.start(here), evaluation, Rules(1e-9, 9, 1.0))
    assert after.step == step


@pytest.mark.parametrize(("fall", "taken"), [(0.9e-13, True), (1.2e-13, False)])
def test_iteration__a_fall_within_rounding_is_no_fall(fall: float, taken: bool) -> None:
    here = Point.start(np.zeros((1, 2)), np.ones(1))
    first = Evaluation(-1.0e6, 1.0, np.ones(4), np.ones(4), here, here, {})
    iteration, _ = advance(Iteration.start(here), first, Rules(1e-9, 9, 1.0, accelerate=False))
    second = first._replace(objective=-1.0e6 * (1 + fall))
    _, record = advance(iteration, second, Rules(1e-9, 9, 1.0, accelerate=False))
    assert record["taken"] is taken
