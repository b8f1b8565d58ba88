"""Stationary distributions of continuous-time Markov chains, to full relative accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Elimination without subtractions is exact in every entry, whatever their range, but runs at NumPy's speed.
_LARGEST_FOR_ELIMINATION = 300


def stationary_distribution(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,): the distribution, summing to n, that a chain with these rates (n, n), from row to column, leaves as it is.

    Examples
    --------
    >>> stationary_distribution(np.array([[0.0, 1.0], [3.0, 0.0]])).tolist()
    [1.5, 0.5]
    """
    solve = _by_elimination if len(rates) <= _LARGEST_FOR_ELIMINATION else _by_factorisation
    solution = solve(rates)
    scaled: NDArray[np.float64] = solution * (len(solution) / solution.sum())
    return scaled


def _by_elimination(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Grassmann, Taksar and Heyman (1985): states are removed one by one, and no difference is ever formed."""
    chain = rates.copy()
    n = len(chain)
    np.fill_diagonal(chain, 0.0)
    for state in range(n - 1, 0, -1):
        chain[:state, state] /= chain[state, :state].sum()
        chain[:state, :state] += np.outer(chain[:state, state], chain[state, :state])
    solution = np.ones(n)
    for state in range(1, n):
        solution[state] = (solution[:state] * chain[:state, state]).sum()
    return solution


def _by_factorisation(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """LU on n - 1 balance equations, the last state's share set to one."""
    balance = rates.T.copy()
    np.fill_diagonal(balance, 0.0)
    np.fill_diagonal(balance, -balance.sum(axis=0))
    # One thread: the bits of a factorisation must not depend on how many cores a worker has.
    with threadpool_limits(1, user_api="blas"):
        first = scipy.linalg.solve(balance[:-1, :-1], -balance[:-1, -1])
    return np.append(first, 1.0)
