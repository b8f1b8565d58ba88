"""Curvature and Newton's steps: the information by its definition, the step it gives, and when it is taken."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from fit_oracle import (
    KINDS,
    block_of,
    drawn_rows,
    exact_posteriors,
    log_likelihood,
    log_probability,
    objective,
    random_row,
    random_rows,
)
from numpy.testing import assert_allclose
from oracle import write_store

from plmix_dist import PlackettLuceMixture, simulate
from plmix_dist.data import as_rankings
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import CollapsedComponentWarning
from plmix_dist.inference import Em, Point, collapse, sample_fits
from plmix_dist.inference.fixed_point import Evaluation
from plmix_dist.inference.hessian import Hessian, SampleHessian, _with_prior, newton_step
from plmix_dist.inference.newton import Newton, NewtonState
from plmix_dist.kernels import information, prepare
from plmix_dist.mixture import MixtureParams
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import LSR, MM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from plmix_dist.rankings import Ranking, RankingBlock
    from plmix_dist.store import RankingStore

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


def rows_of_kind(kind: str, seed: int, n_items: int, n_rows: int) -> list[Ranking]:
    rng = random.Random(seed)
    return [
        random_row(rng, n_items, kind, rng.randint(2, n_items), rng.uniform(0.2, 4.0)) for _ in range(n_rows)
    ]


def observed_by_definition(rows: Sequence[Ranking], state: Point) -> Matrix:
    """Minus the second derivatives of the log-likelihood in log-worths and log-shares."""
    n_components, n_items = state.log_worths.shape

    def likelihood(point: Vector) -> float:
        worths = point[:-n_components].reshape(n_components, n_items)
        return log_likelihood(rows, n_items, worths, softmax(point[-n_components:]).tolist())

    point = np.concatenate([state.log_worths.ravel(), state.log_shares])
    return -second_derivatives(likelihood, point)


# --- the information of a block --------------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_information__observed(kind: str, n_components: int) -> None:
    rows = rows_of_kind(kind, n_components, 5, 6)
    state = random_state(n_components, n_components, 5)
    found = information(block_of(rows, 5), prepare(state.log_worths, state.log_shares)).observed
    expected = observed_by_definition(rows, state)
    assert_allclose(found, expected, atol=2e-6)
    assert_allclose(found, found.T, atol=1e-12)
    # What is checked is no zero: each kind of block, log-worths with each other, with shares, and shares, is there.
    n_worths = n_components * 5
    assert np.abs(expected[:n_worths, :n_worths]).max() > 0.1
    if n_components > 1:
        assert np.abs(expected[:n_worths, n_worths:]).max() > 1e-2
        assert np.abs(expected[n_worths:, n_worths:]).max() > 1e-2
        assert np.abs(expected[:5, 5:10]).max() > 1e-2


@pytest.mark.parametrize("n_items", [2, 4, 7, 9])
def test_information__observed_of_all_kinds_together(n_items: int) -> None:
    rows = random_rows(n_items, n_items, 7)
    state = random_state(n_items, 2, n_items)
    found = information(block_of(rows, n_items), prepare(state.log_worths, state.log_shares)).observed
    assert_allclose(found, observed_by_definition(rows, state), atol=5e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_information__complete(kind: str) -> None:
    n_items, state = 5, random_state(4, 2, 5)
    rows = rows_of_kind(kind, 8, n_items, 6)
    _, posteriors = exact_posteriors(rows, n_items, state.log_worths, state.log_shares)
    found = information(block_of(rows, n_items), prepare(state.log_worths, state.log_shares)).complete
    for k, worths in enumerate(state.log_worths):

        def expected_log_likelihood(point: Vector, k: int = k) -> float:
            # The components of rows are known as well as the posteriors tell, and stay so.
            return math.fsum(
                row.weight * q[k] * log_probability(row, n_items, point.tolist())
                for row, q in zip(rows, posteriors, strict=True)
            )

        assert_allclose(found[k], -second_derivatives(expected_log_likelihood, worths), atol=2e-6)


def test_information__adds_up_over_blocks() -> None:
    rows, state = random_rows(3, 6, 40), random_state(3, 3, 6)
    params = prepare(state.log_worths, state.log_shares)
    whole, *parts = (information(block_of(part, 6), params) for part in (rows, rows[:17], rows[17:]))
    for name in ("observed", "complete"):
        both = getattr(parts[0], name) + getattr(parts[1], name)
        assert_allclose(getattr(whole, name), both, atol=1e-10)


def test_information__weights_are_counts() -> None:
    rows, state = random_rows(5, 5, 8, weighted=False), random_state(5, 2, 5)
    params = prepare(state.log_worths, state.log_shares)
    thrice = [row._replace(weight=3.0) for row in rows]
    for found, expected in zip(
        information(block_of(thrice, 5), params), information(block_of(rows * 3, 5), params), strict=True
    ):
        assert_allclose(found, expected, atol=1e-11)


def test_information__shifts_of_worths_and_shares_are_not_felt() -> None:
    state = random_state(6, 3, 6)
    observed = information(block_of(random_rows(6, 6, 30), 6), prepare(state.log_worths, state.log_shares))[0]
    shifts = np.zeros((4, 21))
    for k in range(3):
        shifts[k, 6 * k : 6 * k + 6] = 1
    shifts[3, 18:] = 1
    assert_allclose(observed @ shifts.T, 0, atol=1e-11)


# --- the prior -------------------------------------------------------------------------------------------


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


# --- the step --------------------------------------------------------------------------------------------

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
        worths, ghosts, log_shares = _without_norms(state, point)
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
    found = newton_step(hessian, state, slopes, NO_SCALE, 0.0)
    assert found is not None
    moved, damping = found
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
    worths, ghosts, log_shares = _without_norms(state, whole)
    assert_allclose(worths.sum(axis=1) + ghosts, 0, atol=1e-6)
    assert_allclose(log_shares.sum(), 0, atol=1e-6)
    assert free.tolist() == [True] * 8 + [alpha > 0] * 2 + [True] * 2


def two_groups_in_one_place() -> tuple[RankingBlock, Point]:
    """Rankings of two opposite groups, and a state between them, from where the objective rises to both sides."""
    block, _ = draw_rankings(
        np.array([[2.0, 1.0, -1.0, -2.0], [-2.0, -1.0, 1.0, 2.0]]),
        np.array([0.5, 0.5]),
        400,
        np.random.default_rng(3),
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
    found = newton_step(hessian, state, slopes, NO_SCALE, 0.0)
    assert found is not None
    moved, damping = found
    assert damping > 0
    assert np.linalg.eigvalsh(observed + damping * complete).min() > 0
    # No less would have been enough.
    assert np.linalg.eigvalsh(observed + damping / 3 * complete).min() < 1e-9
    assert (moved.flat() - state.flat()) @ slopes > 0
    # What was asked for is the least that is added.
    assert newton_step(hessian, state, slopes, NO_SCALE, 5.0)[1] == 5.0  # type: ignore[index]


def some_hessian(observed: Matrix, complete: Matrix, doubt: float = 0.0) -> Hessian:
    scale = np.maximum(np.diag(complete), 0.0)
    return Hessian(observed, complete, np.ones(len(observed), bool), 100.0, doubt, scale)


def test_step__none_where_no_damping_helps() -> None:
    state = Point.start(np.zeros((1, 2)), np.ones(1))
    bowl = some_hessian(-np.eye(4), 1e-9 * np.eye(4))
    assert newton_step(bowl, state, np.ones(4), np.zeros(4), 0.0) is None


def test_step__none_where_the_hessian_is_not_finite() -> None:
    state = Point.start(np.zeros((1, 2)), np.ones(1))
    for broken in (np.diag([1.0, np.nan, 1.0, 1.0]), np.diag([1.0, np.inf, 1.0, 1.0])):
        for hessian in (some_hessian(broken, np.eye(4)), some_hessian(np.eye(4), broken)):
            assert newton_step(hessian, state, np.ones(4), np.zeros(4), 0.0) is None


def test_step__never_longer_than_the_hessian_can_tell() -> None:
    state = Point.start(np.zeros((1, 3)), np.ones(1))
    flat = some_hessian(1e-6 * np.eye(5), 1e-6 * np.eye(5))
    moved, _ = newton_step(flat, state, np.array([2.0, -1.0, -1.0, 0.0, 0.0]), np.zeros(5), 0.0)  # type: ignore[misc]
    assert_allclose(moved.log_worths, [[1.5, -0.75, -0.75]])


def test_step__what_a_sample_has_not_seen_takes_the_step_of_em() -> None:
    # Item 1 is missing from the sample, or its information is negative there: it must move all the same.
    point = Point.start(np.zeros((1, 3)), np.ones(1))
    gradient, scale = np.array([0.1, 0.02, 0.0, 0.0, 0.0]), np.array([0.5, 0.25, 0.5, 0.1, 1.0])
    known = np.array([0.5, 0.0, 0.5, 0.5, 0.5])
    hessian = some_hessian(np.diag(known), np.diag(known))
    moved, _ = newton_step(hessian, point, gradient, scale, 0.0)  # type: ignore[misc]
    assert_allclose(np.diff(moved.log_worths[0]), np.diff([0.1 / 0.5, 0.02 / 0.25, 0.0]))
    negative = some_hessian(np.diag([0.5, -0.1, 0.5, 0.5, 0.5]), np.diag([0.5, 0.2, 0.5, 0.5, 0.5]))
    moved, damping = newton_step(negative, point, gradient, scale, 0.0)  # type: ignore[misc]
    assert damping > 0.5
    assert moved.log_worths[0, 1] > moved.log_worths[0, 2]


def test_hessian__doubt_of_a_sample() -> None:
    block, state = two_groups_in_one_place()
    assert SampleHessian(block, 0.1, 400.0).at(state).doubt == 0.0
    few, many = (SampleHessian(block[:rows], 0.1, 400.0).at(state).doubt for rows in (50, 200))
    assert few == pytest.approx(2 * many)
    assert few > 0
    # The least damping is the doubt.
    found = newton_step(some_hessian(np.eye(12), np.eye(12), few), state, np.ones(12), np.zeros(12), 0.0)
    assert found is not None
    assert found[1] == few


def test_hessian__too_many_parameters() -> None:
    block, state = two_groups_in_one_place()
    assert SampleHessian(block, 0.1, 400.0).suits(state)
    assert not SampleHessian(block, 0.1, 400.0).suits(random_state(0, 20, 100))


# --- when a step is taken --------------------------------------------------------------------------------

HERE = Point.start(np.zeros((1, 2)), np.ones(1))


class ProbedHessian:
    """A source of Hessians that notes how often it was asked, and what damping its steps were asked with."""

    def __init__(self, *, has_steps: bool = True) -> None:
        self.n_looks = 0
        self.dampings: list[float] = []
        self.has_steps = has_steps

    def suits(self, point: Point) -> bool:
        return True

    def at(self, point: Point) -> Hessian:
        self.n_looks += 1
        return SOME

    def step(self, hessian: Hessian, point: Point, evaluation: Any, damping: float) -> Any:
        self.dampings.append(damping)
        return (point, damping) if self.has_steps else None


SOME = some_hessian(np.eye(4), np.eye(4))


class Stepper:
    """Newton with its state, so that a test reads like a fit."""

    def __init__(self, sample: ProbedHessian, after: int = 0, hessian: Hessian | None = None) -> None:
        self.newton = Newton(sample, after)  # type: ignore[arg-type]
        self.state: NewtonState = self.newton.start(hessian)

    def propose(self, evaluation: Evaluation) -> Point | None:
        self.state, found = self.newton.propose(self.state, HERE, evaluation)
        return found

    def refuse(self) -> None:
        self.state = self.newton.refuse(self.state)


def evaluation(residual: float = 1.0, objective: float = 0.0, gradient: float = 0.0) -> Evaluation:
    return Evaluation(objective, residual, np.full(4, gradient), np.ones(4), HERE, HERE, {})


def falling() -> Iterator[Evaluation]:
    """Gradients that fall tenfold at every step, as Newton's do."""
    return (evaluation(10.0**-power) for power in itertools.count())


def test_newton__waits_until_em_came_near() -> None:
    sample = ProbedHessian()
    newton, gradients = Stepper(sample, after=3), falling()
    proposals = [newton.propose(next(gradients)) for _ in range(6)]
    assert [proposal is None for proposal in proposals] == [True] * 3 + [False] * 3
    assert sample.n_looks == 1


def test_newton__uses_what_a_sample_has_shown() -> None:
    sample = ProbedHessian()
    newton = Stepper(sample, 5, SOME)
    assert newton.propose(evaluation()) is HERE
    assert sample.n_looks == 0
    assert not newton.state.is_new


def test_newton__damps_after_a_refusal_and_dares_more_later() -> None:
    sample = ProbedHessian()
    newton, gradients = Stepper(sample), falling()
    newton.propose(next(gradients))
    newton.refuse()
    assert newton.state.is_new  # what was learnt of the last map no longer holds
    for _ in range(3):
        newton.propose(next(gradients))
    assert_allclose(sample.dampings, [0.0, 0.1, 0.1 / 4, 0.1 / 16])
    newton.refuse()
    newton.propose(next(gradients))
    assert sample.dampings[-1] == pytest.approx(0.1)


def test_newton__damps_more_after_every_refusal() -> None:
    sample = ProbedHessian()
    newton, gradients = Stepper(sample), falling()
    for _ in range(2):
        newton.propose(next(gradients))
        newton.refuse()
    newton.propose(next(gradients))
    assert_allclose(sample.dampings, [0.0, 0.1, 0.4])


def test_newton__rests_after_failures() -> None:
    sample = ProbedHessian()
    newton, gradients = Stepper(sample), falling()
    for _ in range(3):
        assert newton.propose(next(gradients)) is HERE
        newton.refuse()
    assert newton.state.hessian is None
    proposals = [newton.propose(next(gradients)) for _ in range(11)]
    assert [proposal is None for proposal in proposals] == [True] * 10 + [False]
    # Then it begins afresh: the Hessian as it is there, and a whole step.
    assert sample.n_looks == 2
    assert sample.dampings[-1] == 0.0


def test_newton__failures_that_successes_came_between_are_no_reason_to_rest() -> None:
    newton, gradients = Stepper(ProbedHessian()), falling()
    for _ in range(4):
        newton.propose(next(gradients))
        newton.refuse()
        newton.propose(next(gradients))  # from the safe point
        newton.propose(next(gradients))  # the last was good
    assert newton.state.hessian is not None


def test_newton__refusals_of_steps_that_were_not_its_own() -> None:
    sample = ProbedHessian()
    newton = Stepper(sample, after=2)
    for _ in range(2):
        newton.propose(evaluation())
        newton.refuse()
    newton.propose(evaluation())
    assert sample.dampings == [0.0]


def test_newton__rests_where_there_is_no_step() -> None:
    sample = ProbedHessian(has_steps=False)
    newton = Stepper(sample)
    assert [newton.propose(evaluation()) for _ in range(12)] == [None] * 12
    assert sample.n_looks == 2


def test_newton__looks_again_when_gradients_do_not_fall() -> None:
    sample = ProbedHessian()
    newton, looks = Stepper(sample), []
    for _ in range(7):
        newton.propose(evaluation(1.0))
        looks.append((sample.n_looks, newton.state.is_new))
    assert looks == [(1, True), (1, False), (1, False), (2, True), (2, False), (2, False), (3, True)]
    gradients, sample = falling(), ProbedHessian()
    newton = Stepper(sample)
    for _ in range(20):
        newton.propose(next(gradients))
    assert sample.n_looks == 1


def test_newton__rests_where_steps_gain_less_than_em_promises() -> None:
    # Four derivatives of 0.1 with second derivatives of at most 1: EM's own step gains 4 * 0.1**2 / 2 = 0.02.
    newton = Stepper(ProbedHessian())
    gains = [0.021, 0.021, 0.019, 0.019, 0.021, 0.019, 0.019, 0.019]
    proposals, objective = [newton.propose(evaluation(1.0, -9.0, 0.1))], -9.0
    for gain in gains:
        objective += gain
        proposals.append(newton.propose(evaluation(1.0, objective, 0.1)))
    assert [proposal is None for proposal in proposals] == [False] * 8 + [True]
    assert newton.state.wait == 10
    # Gains within rounding of the objective are not held against it.
    newton, proposals = Stepper(ProbedHessian()), []
    for _ in range(9):
        proposals.append(newton.propose(evaluation(1.0, -9.0, 1e-7)))
    assert None not in proposals


# --- whole fits ------------------------------------------------------------------------------------------


def overlapping(kind: str, n_rows: int = 1_500, n_components: int = 2) -> tuple[RankingBlock, Matrix]:
    """Rankings of groups that differ in part, so that EM takes many steps, and a start."""
    rng = np.random.default_rng(12)
    truth = np.zeros((n_components, 6)) + rng.normal(0, 0.5, 6)
    truth[:, :4] += 1.4 * rng.normal(size=(n_components, 4))
    shares = np.arange(n_components, 0, -1) / np.arange(n_components + 1).sum()
    if kind == "mixed":
        return block_of(drawn_rows(4, truth, shares.tolist(), n_rows), 6), truth
    length, unranked = {"full": (None, None), "top": (4, "below"), "subset": (5, "absent")}[kind]
    block, _ = draw_rankings(truth, shares, n_rows, rng, length=length, unranked=unranked)  # type: ignore[arg-type]
    if kind == "full":
        return block.replace(weights=rng.uniform(0.5, 3.0, n_rows)), truth
    return block, truth


def steps_of(model: PlackettLuceMixture) -> list[str]:
    return [record["step"] for record in model.history_]


@pytest.mark.parametrize("kind", ["full", "top", "subset", "mixed"])
@pytest.mark.parametrize("m_step", ["lsr", "mm"])
@pytest.mark.parametrize(
    ("alpha", "shares"),
    [(0.1, None), (0.0, None), (5.0, None), (0.1, [0.7, 0.3])],
    ids=["prior", "no prior", "strong prior", "fixed shares"],
)
def test_fit__ends_where_plain_em_ends(kind: str, m_step: Any, alpha: float, shares: Any) -> None:
    block, start = overlapping(kind)
    newton, plain = (
        PlackettLuceMixture(
            2,
            m_step=m_step,
            alpha=alpha,
            shares=shares,
            init=start + 0.3,
            tol=1e-10,
            max_iter=6_000,
            accelerate=accelerate,
        ).fit(block)
        for accelerate in (True, False)
    )
    assert newton.converged_
    assert plain.converged_
    assert "newton" in steps_of(newton)
    assert not {"newton", "accelerated"} & set(steps_of(plain))
    assert newton.n_iter_ < plain.n_iter_
    assert_allclose(newton.log_worths_, plain.log_worths_, atol=1e-6)
    assert_allclose(newton.shares_, plain.shares_, atol=1e-6)
    taken = [record["objective"] for record in newton.history_ if record["taken"]]
    assert (np.diff(taken) >= -1e-12 * abs(taken[-1])).all()


def test_fit__newton_on_relabelled_items() -> None:
    block, start = overlapping("full")
    order = np.array([3, 5, 0, 1, 4, 2])  # the new number of each item
    renamed = block.replace(items=order[block.items].astype(block.items.dtype))
    back = np.argsort(order)
    models = [
        PlackettLuceMixture(2, init=worths, tol=1e-10).fit(data)
        for data, worths in ((block, start), (renamed, start[:, back]))
    ]
    assert all("newton" in steps_of(model) for model in models)
    assert_allclose(models[1].log_worths_[:, order], models[0].log_worths_, atol=1e-7)
    assert_allclose(models[1].shares_, models[0].shares_, atol=1e-7)


def test_fit__component_dropped_while_newton_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # Curvature of three components must not be used for the two that are left.
    monkeypatch.setattr(collapse, "_MOST_RESEEDS", 0)
    monkeypatch.setattr("plmix_dist.inference.fit.NEWTON_AFTER", 0)
    monkeypatch.setattr("plmix_dist.inference.newton._PAUSE", 0)
    block, truth = overlapping("full")
    # A component so small and so wrong that it vanishes within a few steps.
    start = MixtureParams.of(
        np.concatenate([truth, -truth[:1]]),
        np.array([0.6, 0.4 - 1e-5, 1e-5]),
        [str(item) for item in range(6)],
    )
    model = PlackettLuceMixture(3, init=start, max_iter=2_000)
    with pytest.warns(CollapsedComponentWarning, match="dropped"):
        model.fit(block)
    assert len(model.shares_) == 2
    (event,) = model.events_
    steps = steps_of(model)
    assert "newton" in steps[: event["iteration"]]
    assert "newton" in steps[event["iteration"] :]
    alone = PlackettLuceMixture(2, init=truth).fit(block)
    assert model.objective_ == pytest.approx(alone.objective_, rel=1e-10)
    assert_allclose(model.log_worths_, alone.log_worths_, atol=1e-5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RankingStore:
    block, _ = overlapping("full", 20_000, 3)
    path = tmp_path_factory.mktemp("curvature") / "store"
    return write_store(path, [[block[:9_000]], [block[9_000:]]], leaf_rows=1_000, chunk_bytes=1 << 16)


def way_of(store: RankingStore, client: Client | None) -> list[Any]:
    """All bits of a fit with Newton's steps, and of the way it took."""
    model = PlackettLuceMixture(3, init="random", random_state=0).fit(store, client=client)
    assert steps_of(model).count("newton") > 1
    records = [(record["step"], record["objective"].hex()) for record in model.history_]
    return [*records, model.log_worths_.tobytes(), model.shares_.tobytes(), model._ghosts.tobytes()]


@pytest.mark.promise(10)
def test_same_bits__newton_with_one_and_two_workers(store: RankingStore, client: Client) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as one_worker,
    ):
        alone = way_of(store, one_worker)
    assert way_of(store, client) == alone
    assert way_of(store, None) == alone


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("alpha", [0.1, 1e-4])
def test_fit__an_item_that_always_wins_takes_newton_steps(seed: int, alpha: float) -> None:
    # Its information is far below its expected wins; that must not pass for an item that the sample has not seen.
    rng = np.random.default_rng(seed)
    rows = np.array([[0, *(1 + rng.permutation(5))] for _ in range(2000)])
    model = PlackettLuceMixture(1, alpha=alpha, random_state=0).fit(rows)
    assert model.converged_
    assert model.n_iter_ <= 60


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


def test_with_newton__only_where_it_is_wanted() -> None:
    block, _ = overlapping("full", 10)
    em = Em(MM, 0.1, weight=10.0, n_rankings=10)
    assert isinstance(sample_fits.with_newton(em, block, 3).newton, Newton)
    for other in (replace(em, accelerate=False), replace(em, kind="exact"), replace(em, m_step=NO_OBJECTIVE)):
        assert sample_fits.with_newton(other, block, 3).newton is None


NO_OBJECTIVE = replace(LSR, objective=None)


@pytest.mark.slow
@pytest.mark.parametrize("n_rankings", [1_000_000, 2_000_000])
def test_fit__items_that_hardly_win_do_not_stop_newton(tmp_path: Any, n_rankings: int) -> None:
    # One component's rare items won nothing in the sample: their coordinates got no step, and fits took 66 passes
    # (2,000,000 rankings) or did not end at all (1,000,000).
    store = simulate(
        tmp_path / "store",
        n_rankings=n_rankings,
        n_items=100,
        n_components=4,
        length=3,
        unranked="below",
        random_state=1,
    )
    model = PlackettLuceMixture(4, random_state=0).fit(store)
    assert model.converged_
    assert model.n_iter_ <= 20
