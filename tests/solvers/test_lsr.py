"""LSR and stationary distributions: against sums over trees, eigenvectors and other ways of solving."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.sparse import csr_array, random_array

from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.solvers import LSR, ComponentStatistics, MStep, Worths, gradient, lsr, mm_step, stationary_distribution
from tests.helpers.fit_oracle import block_of, slate
from tests.helpers.marks import examples


def step_of(solver: MStep, statistics: ComponentStatistics, worths: Worths, alpha: float) -> Worths:
    """The step an M-step takes: its own, or the safe one of its objective."""
    if solver.step is not None:
        return solver.step(statistics, worths, alpha)
    assert solver.objective is not None
    return solver.objective.safe_step(worths, solver.objective.gradient(statistics, worths, alpha), alpha)


def by_eigenvectors(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The left eigenvector of the chain's generator for the eigenvalue 0, summing to n."""
    generator = rates - np.diag(rates.sum(axis=1))
    values, vectors = np.linalg.eig(generator.T)
    null = np.real(vectors[:, np.argmin(np.abs(values))])
    return null * (len(null) / null.sum())


def by_trees(rates: NDArray[np.float64]) -> list[float]:
    """The Markov chain tree theorem in exact fractions: the weights of all trees that lead to each state."""
    n = len(rates)
    totals = []
    for root in range(n):
        total = Fraction(0)
        others = [state for state in range(n) if state != root]
        for targets in itertools.product(range(n), repeat=n - 1):
            leads_to = dict(zip(others, targets, strict=True))
            if all(_reaches(state, root, leads_to) for state in others):
                total += math.prod((Fraction(rates[edge]) for edge in leads_to.items()), start=Fraction(1))
        totals.append(total)
    return [float(total * n / sum(totals)) for total in totals]


def _reaches(state: int, root: int, leads_to: dict[int, int]) -> bool:
    for _ in leads_to:
        if state == root:
            break
        state = leads_to[state]
    return state == root


@pytest.mark.parametrize("n", [2, 3, 7, 40, 300, 301, 350])
def test_stationary_distribution__eigenvectors(n: int) -> None:
    rng = np.random.default_rng(n)
    # Some ways are barred, but the ring that remains connects all states; the diagonal must not matter.
    rates = rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.5) + np.roll(np.eye(n), 1, axis=1)
    np.fill_diagonal(rates, rng.normal(size=n))
    before = rates.copy()
    found = stationary_distribution(rates)
    np.fill_diagonal(rates, 0.0)
    assert_allclose(found, by_eigenvectors(rates), rtol=1e-9)
    assert found.sum() == pytest.approx(n)
    np.fill_diagonal(before, 0.0)
    assert np.array_equal(before, rates)


@given(seed=st.integers(0, 2**32), n=st.integers(2, 4), decades=st.sampled_from([1.0, 20.0, 100.0]))
@examples(40)
def test_stationary_distribution__every_digit(seed: int, n: int, decades: float) -> None:
    # Rates over up to 200 orders of magnitude, and entries over more: elimination forms no difference.
    rates = 10 ** np.random.default_rng(seed).uniform(-decades, decades, (n, n))
    np.fill_diagonal(rates, 0.0)
    exact = by_trees(rates)
    assert_allclose(stationary_distribution(rates), exact, rtol=1e-12, atol=1e-280)


def test_stationary_distribution__entries_over_a_wide_range() -> None:
    # Detailed balance: flows s * share_i * share_j are the same both ways, so `shares` are stationary.
    shares = 10.0 ** np.linspace(0, -200, 60)
    np.random.default_rng(1).shuffle(shares)
    symmetric = np.random.default_rng(2).exponential(size=(60, 60))
    rates = (symmetric + symmetric.T) * shares[None, :]
    assert_allclose(stationary_distribution(rates), shares * (60 / shares.sum()), rtol=1e-12)


@pytest.mark.parametrize("n_items", [299, 300, 340])
def test_lsr_step__both_methods_at_large_n(n_items: int) -> None:
    # On either side of the size where elimination gives way to factorisation, MM's fixed point stays LSR's.
    rng = np.random.default_rng(n_items)
    truth = rng.normal(size=n_items)
    rows = []
    for _ in range(1500):
        some = rng.choice(n_items, 5, replace=False)
        order = some[np.argsort(rng.exponential(size=5) / np.exp(truth[some]))]
        rows.append(slate(order.tolist(), []))
    block = block_of(rows, n_items)
    worths = Worths(np.zeros(n_items), 0.0)
    for _ in range(25):
        sums = em_statistics(block, prepare(worths.log_worths[None], np.zeros(1)), with_rates=True)
        own = ComponentStatistics(sums.wins[0], sums.expected_wins[0], sums.rates[0])
        worths = step_of(LSR, own, worths, 0.1)
    after = mm_step(worths, gradient(own, worths, 0.1), 0.1)
    assert np.abs(gradient(own, worths, 0.1).values).max() < 1e-6
    assert_allclose(after.log_worths, worths.log_worths, atol=1e-6)


@pytest.mark.parametrize("wrong", [-1e-9, 0.0, np.nan])
def test_stationary__shares_that_are_not_positive_are_not_believed(
    monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    rates = np.random.default_rng(3).uniform(0.5, 2.0, (8, 8))
    np.fill_diagonal(rates, 0.0)
    expected = stationary_distribution(rates)
    monkeypatch.setattr(lsr, "_LARGEST_FOR_FACTORISATION", 7)

    def bad_gmres(operator: Any, right: Any, start: Any, **options: Any) -> tuple[Any, int]:
        found = np.ones(len(right))
        found[2] = wrong
        return found, 0

    monkeypatch.setattr(lsr, "gmres", bad_gmres)
    assert_allclose(stationary_distribution(rates), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("n", "way"),
    [(300, "_by_elimination"), (301, "_by_factorisation"), (2000, "_by_factorisation"), (2001, "_by_iteration")],
)
def test_stationary__which_way(monkeypatch: pytest.MonkeyPatch, n: int, way: str) -> None:
    for name in ("_by_elimination", "_by_factorisation", "_by_iteration"):
        monkeypatch.setattr(
            lsr, name, lambda rates, name=name: np.arange(1.0, n + 1) * (1.0 if name == way else np.nan)
        )
    rates = np.broadcast_to(np.ones(1), (n, n))
    assert stationary_distribution(rates)[-1] == pytest.approx(2 * n / (n + 1))


def balance_error(rates: np.ndarray, shares: np.ndarray) -> float:
    """The largest difference of what flows into a state and out of it, relative to the flow through it."""
    inflow, outflow = shares @ rates, shares * rates.sum(axis=1)
    return float(np.abs(inflow / outflow - 1).max())


@pytest.mark.parametrize("n", [401, 1001])
def test_stationary__many_states(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lsr, "_LARGEST_FOR_FACTORISATION", 400)
    rng = np.random.default_rng(n)
    # Worths of one to e**6, and rates that do not quite leave them as they are: as in the midst of a fit.
    worths = np.exp(6 * rng.random(n))
    rates = rng.random((n, n)) * worths[None, :] * np.exp(0.3 * rng.standard_normal((n, n)))
    np.fill_diagonal(rates, 0.0)
    assert balance_error(rates, stationary_distribution(rates)) < 1e-11


def test_stationary__sparse_as_dense() -> None:
    rng = np.random.default_rng(3)
    n = 250
    sparse = random_array((n, n), density=0.1, rng=rng).tocsr()
    ring = csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    rates = csr_array(sparse + ring)
    rates.setdiag(0.0)
    assert_allclose(stationary_distribution(rates), stationary_distribution(rates.toarray()), rtol=1e-9)


def test_stationary__slow_mixing_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two halves that hardly touch: iteration takes for ever, and the answer must be right all the same.
    monkeypatch.setattr(lsr, "_LARGEST_FOR_FACTORISATION", 50)
    monkeypatch.setattr(lsr, "_LARGEST_FOR_ELIMINATION", 50)
    n = 60
    rates = np.zeros((n, n))
    for half in (range(n // 2), range(n // 2, n)):
        for state in half:
            for other in (state - 1, state + 1):
                if other in half:
                    rates[state, other] = 1.0
    rates[0, -1], rates[-1, 0] = 1e-7, 3e-7
    found = stationary_distribution(rates)
    assert_allclose(found[: n // 2], 1.5, rtol=1e-6)
    assert_allclose(found[n // 2 :], 0.5, rtol=1e-6)
