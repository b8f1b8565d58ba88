"""Stationary distributions of continuous-time Markov chains, to full relative accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array, issparse
from scipy.sparse.linalg import LinearOperator, gmres

from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Elimination without subtractions is exact in every entry, whatever their range, but runs at NumPy's speed.
_LARGEST_FOR_ELIMINATION = 300
# Beyond this many states, products with the rates are cheaper than factorising them: the ratio of next to present
# worths is near one for every item, so iterations begin near their end.
_LARGEST_FOR_FACTORISATION = 2000
_ITERATION_TOLERANCE = 1e-13


def stationary_distribution(rates: NDArray[np.float64] | csr_array) -> NDArray[np.float64]:
    """(n,): the distribution, summing to n, that a chain with these rates (n, n), from row to column, leaves as it is.

    Rates may be sparse; large chains and sparse ones are solved by iteration.

    Examples
    --------
    >>> stationary_distribution(np.array([[0.0, 1.0], [3.0, 0.0]])).tolist()
    [1.5, 0.5]
    """
    n = rates.shape[0]
    if issparse(rates) or n > _LARGEST_FOR_FACTORISATION:
        solution = _by_iteration(rates)
    else:
        solution = _by_elimination(rates) if n <= _LARGEST_FOR_ELIMINATION else _by_factorisation(rates)
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
    with single_thread():
        first = scipy.linalg.solve(balance[:-1, :-1], -balance[:-1, -1])
    return np.append(first, 1.0)


def _by_iteration(rates: NDArray[np.float64] | csr_array) -> NDArray[np.float64]:
    """GMRES on the same equations, scaled by the rate out of each state; factorised where it does not converge."""
    out = np.asarray(rates.sum(axis=1)).ravel() - rates.diagonal()
    inflow = rates.T
    n = len(out) - 1

    def balance(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        came = (inflow @ np.append(shares, 0.0))[:n]
        kept = rates.diagonal()[:n] * shares
        left: NDArray[np.float64] = shares - (came - kept) / out[:n]
        return left

    from_last = np.asarray((inflow @ np.append(np.zeros(n), 1.0))[:n]) / out[:n]
    with single_thread():
        first, failed = gmres(
            LinearOperator((n, n), balance),
            from_last,
            np.ones(n),
            rtol=_ITERATION_TOLERANCE,
            restart=50,
            maxiter=40,
        )
    if failed or not (first > 0).all():
        dense: NDArray[np.float64] = rates.toarray() if isinstance(rates, csr_array) else rates
        return _by_factorisation(dense)
    return np.append(first, 1.0)
