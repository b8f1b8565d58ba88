"""Sums over persons for shares that depend on covariates, and one Newton step on the coefficients from them.

With q the posterior of a person, s its shares, w its weight and z its covariates, which begin with 1:

- the gradient in the coefficients of component k is the sum of w (q_k - s_k) z;
- the information, the negative Hessian of the expected log-likelihood, is the sum of w (diag(s) - s s') x z z'.

Covariates are centred and divided by their standard deviations first. The log-prior is that of a normal distribution
with precision RIDGE on the coefficients of each column, measured from their mean over components. So it does not depend
on which component is the reference. Intercepts have no prior.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation
from plmix_dist.errors import NonFiniteError, SettingsError
from plmix_dist.inference.e_step import PreparedPass, e_step
from plmix_dist.kernels import prepare
from plmix_dist.kernels.e_step import memberships_at
from plmix_dist.rankings.person_shares import with_person_shares
from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.inference.covariate_units import Units
    from plmix_dist.kernels import Prepared
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.solvers import MStep, Sums

# A standard deviation of 10 for the coefficients of covariates of standard deviation 1.
RIDGE = 0.01
# A Newton step moves no coefficient further than this: beyond it the quadratic says nothing.
_LONGEST_STEP = 5.0
_DAMPING = 1e-12


class ShareParams(NamedTuple):
    """What travels to every task: log-worths, coefficients (n_components, n_columns + 1), and their units."""

    log_worths: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    units: Units


class _Ready(NamedTuple):
    """The same, ready for kernels."""

    current: Prepared
    coefficients: NDArray[np.float64]
    units: Units


class ShareSums(NamedTuple):
    """Sums over persons.

    Parameters
    ----------
    sums
        Those of the M-step of the worths.
    members, expected : (n_components, n_columns + 1)
        Sums of w q z, and of w s z.
    information : (n_components, n_components, n_columns + 1, n_columns + 1)
    moments : (n_columns + 1, n_columns + 1)
        Sum of w z z'.
    """

    sums: Sums
    members: NDArray[np.float64]
    expected: NDArray[np.float64]
    information: NDArray[np.float64]
    moments: NDArray[np.float64]


def _prepare(params: ShareParams) -> _Ready:
    n_components = len(params.coefficients)
    try:
        current = prepare(params.log_worths, np.full(n_components, -np.log(n_components)))
    except SettingsError as error:  # it concerns this fit alone
        raise NonFiniteError(str(error)) from None
    return _Ready(current, params.coefficients, params.units)


def _leaf_sums(m_step: MStep, number: int, block: RankingBlock, params: _Ready) -> ShareSums:
    block = with_person_shares(params.units.of_block(block), params.coefficients)
    sums = e_step(m_step).leaf(number, block, PreparedPass(params.current, None))
    at = memberships_at(block, params.current)
    assert block.covariates is not None
    assert block.log_shares is not None
    first = block.group_starts
    columns = block.covariates[first]
    design = np.column_stack([np.ones(len(columns)), columns])
    with single_thread():
        return ShareSums(
            sums, *_share_sums(design, at.weights, at.posteriors, np.exp(block.log_shares[first]))
        )


def _share_sums(
    design: NDArray[np.float64],
    weights: NDArray[np.float64],
    posteriors: NDArray[np.float64],
    shares: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Members, expected, information and moments of some persons."""
    n_components, n_columns = shares.shape[1], design.shape[1]
    weighted = weights[:, None] * shares
    information = np.zeros((n_components, n_components, n_columns, n_columns))
    for one in range(n_components):
        for other in range(one, n_components):
            curvature = weighted[:, one] * ((one == other) - shares[:, other])
            product = design.T @ (curvature[:, None] * design)
            information[one, other] = information[other, one] = product
    moments = design.T @ (weights[:, None] * design)
    return (weights[:, None] * posteriors).T @ design, weighted.T @ design, information, moments


@cache
def share_sums(m_step: MStep) -> Aggregation:
    """The aggregation of the sums that an iteration needs.

    Examples
    --------
    >>> from plmix_dist.solvers import MM
    >>> share_sums(MM).name
    'covariates'
    """
    return Aggregation("covariates", leaf=partial(_leaf_sums, m_step), prepare=_prepare)


class ShareStep(NamedTuple):
    """What an iteration needs of the sums beside the M-steps of the worths.

    Parameters
    ----------
    log_likelihood
        Of all persons, with their own shares.
    log_prior
        Of the coefficients.
    gradient : (n_components, n_columns + 1)
        Of the objective in the coefficients.
    next, safe : (n_components, n_columns + 1)
        The coefficients after a Newton step, and after one that cannot lower the objective.
    shares : (n_components,)
        The mean shares.
    """

    log_likelihood: float
    log_prior: float
    gradient: NDArray[np.float64]
    next: NDArray[np.float64]
    safe: NDArray[np.float64]
    shares: NDArray[np.float64]


def share_step(coefficients: NDArray[np.float64], total: ShareSums) -> ShareStep:
    """One Newton step on the coefficients, and the safe step of Boehning's bound: diag(s) - s s' <= (I - 11'/K) / 2.

    Examples
    --------
    >>> members, expected = np.array([[30.0], [10.0]]), np.array([[20.0], [20.0]])
    >>> information = np.array([[[[10.0]], [[-10.0]]], [[[-10.0]], [[10.0]]]])
    >>> from plmix_dist.kernels import em_statistics, prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> sums = em_statistics(RankingBlock.from_array([[0, 1]]), prepare(np.zeros((2, 2)), np.log([0.5, 0.5])))
    >>> step = share_step(np.zeros((2, 1)), ShareSums(sums, members, expected, information, np.array([[40.0]])))
    >>> step.gradient.tolist(), step.next.round(6).tolist(), step.safe.round(6).tolist()
    ([[10.0], [-10.0]], [[0.5], [-0.5]], [[0.5], [-0.5]])
    """
    n_components, n_columns = coefficients.shape
    centred = coefficients - coefficients.mean(axis=0)
    penalty = np.full(n_columns, RIDGE)
    penalty[0] = 0.0
    gradient = total.members - total.expected - penalty * centred
    # Adding the same to all components changes no share. The moments make the matrix regular in that direction.
    joined = total.information + total.moments / n_components
    matrix = joined.transpose(0, 2, 1, 3).reshape(n_components * n_columns, n_components * n_columns)
    matrix = matrix + np.diag(np.tile(penalty, n_components))
    matrix += np.diag(np.full(len(matrix), _DAMPING * float(np.trace(total.moments))))
    move = np.linalg.solve(matrix, gradient.ravel()).reshape(gradient.shape)
    move *= min(1.0, _LONGEST_STEP / max(float(np.abs(move).max()), 1e-300))
    bound = total.moments / 2 + np.diag(penalty + _DAMPING * float(np.trace(total.moments)))
    safe = np.linalg.solve(bound, gradient.T).T
    weight = float(total.moments[0, 0])
    return ShareStep(
        float(total.sums.log_likelihood),
        -float((penalty * centred**2).sum()) / 2,
        gradient,
        _centred(centred + move),
        _centred(centred + safe),
        total.expected[:, 0] / weight,
    )


def _centred(coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    centred: NDArray[np.float64] = coefficients - coefficients.mean(axis=0)
    return centred
