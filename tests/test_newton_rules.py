"""When Newton steps are damped, doubted and given up: each rule on either side of its border."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plmix_dist.inference import Point, newton
from plmix_dist.inference.fixed_point import Evaluation
from plmix_dist.inference.newton import Newton, NewtonState

HERE = Point.start(np.zeros((1, 2)), np.ones(1))
SOME: Any = SimpleNamespace(cheap=False)  # a Hessian; the rules ask no more of it


class Steps:
    """A source of Hessians whose steps take the damping that is asked for, or a given one."""

    def __init__(self, damping: float | None = None) -> None:
        self.asked: list[float] = []
        self.damping = damping

    def suits(self, point: Point) -> bool:
        return True

    def at(self, point: Point) -> Any:
        return SOME

    def step(self, hessian: Any, point: Point, evaluation: Any, damping: float) -> tuple[Point, float]:
        self.asked.append(damping)
        return point, damping if self.damping is None else self.damping


def rules(sample: Any = None) -> Newton:
    return Newton(sample or Steps(), after=10)


def evaluation(residual: float = 1.0, objective: float = 0.0, gradient: float = 0.0) -> Evaluation:
    return Evaluation(objective, residual, np.full(4, gradient), np.ones(4), HERE, HERE, {})


@pytest.mark.parametrize(
    ("gradients", "stale"),
    [
        ((1.0, 0.9, 0.8, 0.11), True),
        ((1.0, 0.9, 0.8, 0.09), False),
        ((5.0, 1.0, 0.9, 0.8, 0.11), True),
        ((1.0, 0.9, 0.8), False),
    ],
)
def test_hessian__is_stale_unless_gradients_fall_tenfold_in_three_steps(
    gradients: tuple[float, ...], stale: bool
) -> None:
    assert newton._is_stale(NewtonState(SOME, wait=0, gradients=gradients)) is stale


def test_rest__ten_iterations_then_a_new_hessian() -> None:
    sample = Steps()
    state = rules(sample).rest(NewtonState(SOME, wait=0, damping=3.0, n_failures=2))
    assert (state.hessian, state.wait, state.is_new, state.damping) == (None, 10, True, 0.0)
    proposals = []
    for _ in range(12):
        state, found = rules(sample).propose(state, HERE, evaluation())
        proposals.append(found is not None)
    assert proposals == [False] * 10 + [True] * 2


@pytest.mark.parametrize(("damping", "after"), [(0.0, 0.1), (0.005, 0.1), (0.01, 0.16), (1.0, 16.0)])
def test_refusal__damps_sixteenfold_and_at_least_a_tenth(damping: float, after: float) -> None:
    state = rules().refuse(NewtonState(SOME, wait=0, damping=damping))
    assert state.damping == pytest.approx(after)
    assert (state.was_refused, state.n_failures, state.is_new) == (True, 1, True)


@pytest.mark.parametrize(("n_failures", "rests"), [(0, False), (1, False), (2, True)])
def test_refusal__the_third_in_a_row_gives_up(n_failures: int, rests: bool) -> None:
    state = rules().refuse(NewtonState(SOME, wait=0, n_failures=n_failures))
    assert (state.hessian is None) is rests
    assert state.wait == (10 if rests else 0)


def test_refusal__of_a_step_that_was_not_newtons() -> None:
    waiting, without = NewtonState(SOME, wait=3), NewtonState(None, wait=0)
    assert rules().refuse(waiting) is waiting
    assert rules().refuse(without) is without


def test_success__damps_a_quarter_as_much() -> None:
    sample = Steps()
    state = NewtonState(SOME, wait=0, damping=16.0)
    for _ in range(3):
        state, _ = rules(sample).propose(state, HERE, evaluation())
    assert sample.asked == [16.0, 4.0, 1.0]
    # What the step took counts, not what was asked for.
    state, _ = rules(Steps(damping=8.0)).propose(NewtonState(SOME, wait=0), HERE, evaluation())
    assert state.damping == 2.0


@pytest.mark.parametrize(
    ("gradient", "objective", "promised"),
    [
        (0.1, -5.0, -5.0 + 4 * 0.1**2 / 2),
        (2e-6, -1.0, -1.0 + 4 * (2e-6) ** 2 / 2),
        (0.5e-6, -1.0, None),
        (2e-6, -100.0, None),
        (2e-5, -100.0, -100.0 + 4 * (2e-5) ** 2 / 2),
    ],
)
def test_promise__of_ems_own_step_unless_it_is_within_rounding(
    gradient: float, objective: float, promised: float | None
) -> None:
    found = newton._promised(evaluation(objective=objective, gradient=gradient))
    assert found == (None if promised is None else pytest.approx(promised, rel=1e-15))


def test_promise__parameters_without_scale_promise_nothing() -> None:
    one = evaluation(gradient=0.1)._replace(scale=np.array([1.0, 0.0, 2.0, 0.0]))
    assert newton._promised(one) == pytest.approx(0.1**2 / 2 + 0.1**2 / 4)


@pytest.mark.parametrize(
    ("objective", "was_refused", "poor"), [(0.9, False, True), (1.1, False, False), (0.9, True, False)]
)
def test_poor__a_step_that_was_taken_and_gained_less(objective: float, was_refused: bool, poor: bool) -> None:
    state = NewtonState(SOME, wait=0, promised=1.0, was_refused=was_refused)
    assert newton._is_poor(state, evaluation(objective=objective)) is poor
    assert not newton._is_poor(NewtonState(SOME, wait=0), evaluation(objective=objective))


def test_poor__the_third_in_a_row_gives_up() -> None:
    # Each step promises a gain of 0.02 and gains nothing.
    state, found = NewtonState(SOME, wait=0), []
    for _ in range(4):
        state, step = rules().propose(state, HERE, evaluation(residual=1.0, gradient=0.1))
        found.append(step is not None)
    assert found == [True, True, True, False]
    assert state.wait == 10
