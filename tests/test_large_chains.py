"""Chains of many states are solved by iteration, whether their rates are dense or sparse."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array, random_array

from plmix_dist.solvers import stationary, stationary_distribution


def balance_error(rates: np.ndarray, shares: np.ndarray) -> float:
    """The largest difference of what flows into a state and out of it, relative to the flow through it."""
    inflow, outflow = shares @ rates, shares * rates.sum(axis=1)
    return float(np.abs(inflow / outflow - 1).max())


@pytest.mark.parametrize("n", [2001, 2600])
def test_stationary__many_states(n: int) -> None:
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
    monkeypatch.setattr(stationary, "_LARGEST_FOR_FACTORISATION", 50)
    monkeypatch.setattr(stationary, "_LARGEST_FOR_ELIMINATION", 50)
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
