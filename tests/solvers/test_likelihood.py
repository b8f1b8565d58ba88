"""The likelihood, its prior and MM: steps against choix and brute-force maxima, gradients against differences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.rankings import Ranking
from plmix_dist.solvers import LSR, M_STEPS, MM, ComponentStatistics, MStep, Worths, gradient, log_prior, mm_step
from tests.helpers.fit_oracle import block_of, log_likelihood, objective, random_rows, slate, top, with_ghost_rows
from tests.helpers.marks import examples

BOTH = pytest.mark.parametrize("solver", [LSR, MM], ids=lambda solver: solver.name)


def statistics_at(rows: Sequence[Ranking], worths: Worths) -> ComponentStatistics:
    """What one pass over rows of a single component gives."""
    block = block_of(rows, len(worths.log_worths))
    sums = em_statistics(block, prepare(worths.log_worths[None], np.zeros(1)), with_rates=True)
    return ComponentStatistics(sums.wins[0], sums.expected_wins[0], sums.rates[0])


def step_of(solver: MStep, statistics: ComponentStatistics, worths: Worths, alpha: float) -> Worths:
    """The step an M-step takes: its own, or the safe one of its objective."""
    if solver.step is not None:
        return solver.step(statistics, worths, alpha)
    assert solver.objective is not None
    return solver.objective.safe_step(worths, solver.objective.gradient(statistics, worths, alpha), alpha)


def fixed_point(solver: MStep, rows: Sequence[Ranking], n_items: int, alpha: float) -> Worths:
    """Where steps lead that are taken until nothing moves."""
    worths = Worths(np.zeros(n_items), 0.0)
    for _ in range(20_000):
        moved = step_of(solver, statistics_at(rows, worths), worths, alpha)
        step = np.abs(moved.log_worths - worths.log_worths).max()
        worths = moved
        if step < 1e-13:
            return worths
    raise AssertionError(f"still moving by {step}")


def objective_of(rows: Sequence[Ranking], worths: Worths, alpha: float) -> float:
    n_items = len(worths.log_worths)
    return objective(rows, n_items, worths.log_worths[None], [worths.ghost], [1.0], alpha)


# --- steps -----------------------------------------------------------------------------------------------


def test_solvers__by_name() -> None:
    assert {name: m_step.numbers(10) for name, m_step in M_STEPS.items()} == {
        "lsr": 100,
        "mm": 10,
        "cml": 100,
        "gmm": 100,
        "stochastic-lsr": 100,
    }
    assert all(m_step.name == name for name, m_step in M_STEPS.items())


@BOTH
def test_step__two_items_in_one(solver: MStep) -> None:
    rows = [slate([0, 1], [], weight=3.0), slate([1, 0], [])]
    start = Worths(np.zeros(2), 0.0)
    found = step_of(solver, statistics_at(rows, start), start, 0.0)
    assert_allclose(found.log_worths, [math.log(3) / 2, -math.log(3) / 2], rtol=1e-14)


@BOTH
@pytest.mark.promise(27)
@pytest.mark.parametrize("length", [8, 3], ids=["full", "subset"])
def test_fixed_point__choix(solver: MStep, length: int) -> None:
    rng = np.random.default_rng(length)
    rankings = [tuple(rng.permutation(8)[:length].tolist()) for _ in range(60)]
    found = fixed_point(solver, [slate(ranking, []) for ranking in rankings], 8, alpha=0.0)
    method = choix.ilsr_rankings if solver is LSR else choix.mm_rankings
    expected = method(8, rankings, tol=1e-12, max_iter=10_000)
    assert_allclose(found.log_worths, expected - np.mean(expected), atol=1e-6)


@BOTH
@pytest.mark.parametrize("alpha", [0.1, 2.0])
def test_fixed_point__brute_force_with_prior(solver: MStep, alpha: float) -> None:
    # Item 3 never wins and item 0 never loses: without the prior there would be no maximum.
    rows = [slate([0, 1, 2], []), top(0, 2, weight=2.5), slate([0], [1, 3]), slate([1, 2, 3], []), top(2)]
    found = fixed_point(solver, rows, 4, alpha)
    everything = with_ghost_rows(rows, 4, alpha)
    brute = minimize(
        lambda worths: -log_likelihood(everything, 5, worths[None], [1.0]),
        np.zeros(5),
        method="BFGS",
        jac="3-point",
        options={"gtol": 1e-7},
    ).x
    assert_allclose(np.append(found.log_worths, found.ghost), brute - brute[:4].mean(), atol=2e-6)
    slope = gradient(statistics_at(rows, found), found, alpha).values
    assert np.abs(slope).max() < 1e-11


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.5])
def test_gradient__finite_differences(alpha: float) -> None:
    rows = random_rows(5, 5, 15)
    rng = np.random.default_rng(6)
    here = Worths(rng.normal(size=5), float(rng.normal()))
    everything = with_ghost_rows(rows, 5, alpha)
    step = 1e-5
    expected = []
    for direction in np.eye(6):
        ends = (np.append(*here[:2])[None] + sign * step * direction for sign in (1, -1))
        up, down = (log_likelihood(everything, 6, worths, [1.0]) for worths in ends)
        expected.append((up - down) / (2 * step))
    assert_allclose(gradient(statistics_at(rows, here), here, alpha).values, expected, atol=1e-6)


@given(
    seed=st.integers(0, 2**32),
    n_items=st.integers(2, 6),
    alpha=st.sampled_from([0.0, 1e-3, 0.1, 3.0]),
    width=st.sampled_from([0.1, 2.0, 12.0]),
)
@examples(40)
@pytest.mark.promise(26)
def test_mm_step__never_lowers_the_objective(seed: int, n_items: int, alpha: float, width: float) -> None:
    # A ranking and its reverse give every item a win and a loss, so that steps are finite without a prior.
    both_ways = [slate(list(range(n_items)), []), slate(list(range(n_items))[::-1], [])]
    rows = random_rows(seed, n_items, 5) + both_ways
    rng = np.random.default_rng(seed)
    here = Worths(rng.normal(0, width, n_items), float(rng.normal(0, width)))
    there = mm_step(here, gradient(statistics_at(rows, here), here, alpha), alpha)
    before, after = (objective_of(rows, worths, alpha) for worths in (here, there))
    assert after >= before - 1e-12 * abs(before)
    assert there.log_worths.mean() == pytest.approx(0.0, abs=1e-12)


@given(seed=st.integers(0, 2**32), alpha=st.sampled_from([0.01, 0.5, 4.0]))
@settings(max_examples=20)
def test_log_prior__pairs_with_the_ghost(seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    worths = rng.normal(0, 20, 4)
    ghost = float(rng.normal(0, 20))
    # The chance of each item's wins and losses against the ghost is that of pairs of items.
    expected = objective([], 4, worths[None], [ghost], [1.0], alpha)
    assert log_prior(worths, ghost, alpha) == pytest.approx(expected, rel=1e-12)
    assert log_prior(worths, ghost, 0.0) == 0.0


@BOTH
@pytest.mark.parametrize("width", [1.0, 30.0, 200.0])
@pytest.mark.parametrize("alpha", [0.1, 3.0])
def test_step__prior_is_rows_against_a_ghost(solver: MStep, alpha: float, width: float) -> None:
    # Worths far above and below the ghost: no chance of winning or losing may be lost to rounding.
    rows = random_rows(9, 5, 8)
    here = Worths(width * np.array([0.5, -0.5, 0.1, 0.0, -0.1]), 0.05 * width)
    everyone = Worths(np.append(*here[:2]), 0.0)
    found = step_of(solver, statistics_at(rows, here), here, alpha)
    expected = step_of(solver, statistics_at(with_ghost_rows(rows, 5, alpha), everyone), everyone, 0.0).log_worths
    assert_allclose(np.append(*found[:2]), expected - expected[:5].mean(), rtol=1e-9, atol=1e-9)


@BOTH
def test_step__prior_moves_with_the_origin(solver: MStep) -> None:
    # Log-worths have no origin: shifting items and ghost together must change nothing but the shift.
    rows = random_rows(2, 4, 6)
    here = Worths(np.array([1.0, -2.0, 0.5, 0.5]), 0.3)
    shifted = Worths(here.log_worths + 7.0, here.ghost + 7.0)
    first, second = (step_of(solver, statistics_at(rows, worths), worths, 0.7) for worths in (here, shifted))
    assert_allclose(first.log_worths, second.log_worths, atol=1e-12)
    assert first.ghost == pytest.approx(second.ghost, abs=1e-12)
