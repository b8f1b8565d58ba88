"""LSR: weighted Luce spectral ranking (Maystre & Grossglauser 2015; Nguyen & Zhang 2023), n x n numbers each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array, issparse
from scipy.sparse.linalg import LinearOperator, gmres

from plmix_dist.kernels import drawn_statistics, em_statistics
from plmix_dist.rankings import Floats
from plmix_dist.solvers.likelihood import MM, ComponentStatistics, moved, probabilities_against_ghost
from plmix_dist.solvers.m_step import Worths, square
from plmix_dist.threads import single_thread


def lsr_step(statistics: ComponentStatistics, worths: Worths, alpha: float) -> Worths:
    """The stationary distribution of the chain whose rates lead from beaten items to winners.

    The chain is scaled by the present worths: its stationary distribution is the ratio of next to present worths.

    Examples
    --------
    >>> from plmix_dist.solvers.likelihood import ComponentStatistics
    >>> from plmix_dist.solvers.m_step import Worths
    >>> rates = np.array([[0.0, 1.5], [0.5, 0.0]])  # item 0 won three of four choices
    >>> statistics = ComponentStatistics(np.array([3.0, 1.0]), np.array([2.0, 2.0]), rates)
    >>> np.exp(lsr_step(statistics, Worths(np.zeros(2), 0.0), alpha=0.0).log_worths).round(3).tolist()
    [1.732, 0.577]
    """
    log_worths, ghost, _ = worths
    flows = statistics.rates.T * np.exp(log_worths[:, None] - log_worths[None, :])
    if alpha:
        beats, loses = probabilities_against_ghost(log_worths, ghost)
        flows = np.block([[flows, alpha * beats[:, None]], [alpha * loses[None, :], np.zeros((1, 1))]])
    # Without a prior the chain may fall apart; its worths then diverge, which the caller checks.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(stationary_distribution(flows))
    return moved(worths, ratio if alpha else np.append(ratio, 0.0))


LSR = replace(
    MM, name="lsr", sums=partial(em_statistics, with_rates=True), step=lsr_step, numbers=square, takes_ties=False
)


# Stochastic LSR (Liu et al. 2019): every ranking is put into one component at random, then LSR is run in each.

STOCHASTIC_LSR = replace(
    LSR, name="stochastic-lsr", objective=None, drawn_sums=drawn_statistics, objective_of_draws=LSR.objective
)


# Stationary distributions of continuous-time Markov chains, to full relative accuracy.

# Elimination without subtractions is exact in every entry, whatever their range, but runs at NumPy's speed.
_LARGEST_FOR_ELIMINATION = 300
# Beyond this many states, products with the rates are cheaper than factorising them: the ratio of next to present
# worths is near one for every item, so iterations begin near their end.
_LARGEST_FOR_FACTORISATION = 2000
_ITERATION_TOLERANCE = 1e-13


def stationary_distribution(rates: Floats | csr_array) -> Floats:
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
    scaled: Floats = solution * (len(solution) / solution.sum())
    return scaled


def _by_elimination(rates: Floats) -> Floats:
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


def _by_factorisation(rates: Floats) -> Floats:
    """LU on n - 1 balance equations, the last state's share set to one."""
    balance = rates.T.copy()
    np.fill_diagonal(balance, 0.0)
    np.fill_diagonal(balance, -balance.sum(axis=0))
    # One thread: the bits of a factorisation must not depend on how many cores a worker has.
    with single_thread():
        first = scipy.linalg.solve(balance[:-1, :-1], -balance[:-1, -1])
    return np.append(first, 1.0)


def _by_iteration(rates: Floats | csr_array) -> Floats:
    """GMRES on the same equations, scaled by the rate out of each state; factorised where it does not converge."""
    out = np.asarray(rates.sum(axis=1)).ravel() - rates.diagonal()
    inflow = rates.T
    n = len(out) - 1

    def balance(shares: Floats) -> Floats:
        came = (inflow @ np.append(shares, 0.0))[:n]
        kept = rates.diagonal()[:n] * shares
        left: Floats = shares - (came - kept) / out[:n]
        return left

    from_last = np.asarray((inflow @ np.append(np.zeros(n), 1.0))[:n]) / out[:n]
    with single_thread():
        first, failed = gmres(
            LinearOperator((n, n), balance), from_last, np.ones(n), rtol=_ITERATION_TOLERANCE, restart=50, maxiter=40
        )
    if failed or not (first > 0).all():
        dense: Floats = rates.toarray() if isinstance(rates, csr_array) else rates
        return _by_factorisation(dense)
    return np.append(first, 1.0)
