"""Memberships: the posterior of each person, from the log-probabilities of all rows that the person gave.

Without groups every row is a person, and its weight counts persons. With groups a person counts once, and the weight of
a row says how often the person gave it: log Pr(person | component) is the sum of weight times log Pr(row | component).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.rankings.groups import person_of_row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.rankings import RankingBlock


class Memberships(NamedTuple):
    """What persons are members of.

    Parameters
    ----------
    log_likelihoods, weights : (n_persons,)
        The log-likelihood of each person, and how many persons it stands for.
    posteriors : (n_persons, n_components)
    person : (n_rankings,)
        The number of the person who gave each row.
    """

    log_likelihoods: NDArray[np.float64]
    weights: NDArray[np.float64]
    posteriors: NDArray[np.float64]
    person: NDArray[np.int64]

    @property
    def by_row(self) -> NDArray[np.float64]:
        """(n_rankings, n_components): the posterior of each row, which is that of its person."""
        return self.posteriors[self.person]


def memberships(block: RankingBlock, logs: NDArray[np.float64], params: Prepared) -> Memberships:
    """The memberships of all persons of a block.

    Parameters
    ----------
    logs : (n_rankings, n_components)
        log Pr(row | component).
    params
        The parameters; only the shares are used, and these only if the block has none of its own.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [0, 1], [1, 0]]).replace(groups=np.array([1, 1, 2]))
    >>> params = prepare(np.zeros((2, 2)), np.log([0.5, 0.5]))
    >>> found = memberships(block, np.log([[0.8, 0.2], [0.8, 0.2], [0.2, 0.8]]), params)
    >>> np.exp(found.log_likelihoods).round(2).tolist(), found.posteriors.round(3).tolist()
    ([0.34, 0.5], [[0.941, 0.059], [0.2, 0.8]])
    """
    if block.groups is None:
        joint, weights = logs + log_shares_by_person(block, params), block.row_weights
        person = np.arange(block.n_rankings)
    else:
        person = person_of_row(block)
        added = np.add.reduceat(block.row_weights[:, None] * logs, np.flatnonzero(block.group_starts), axis=0)
        joint, weights = added + log_shares_by_person(block, params), np.ones(len(added))
    log_likelihoods, posteriors = normalised(joint)
    return Memberships(log_likelihoods, weights, posteriors, person)


def shares_by_row(block: RankingBlock, logs: NDArray[np.float64], params: Prepared) -> NDArray[np.float64]:
    """(n_rankings,): the log-likelihood of each row given the rows of its person before it, divided by its weight.

    A row of weight 0 has the limit for small weights: the mean over the components, by the posterior before it.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [0, 1]]).replace(groups=np.array([1, 1]))
    >>> params = prepare(np.zeros((2, 2)), np.log([0.5, 0.5]))
    >>> np.exp(shares_by_row(block, np.log([[0.8, 0.2], [0.8, 0.2]]), params)).round(2).tolist()
    [0.5, 0.68]
    """
    starts = np.flatnonzero(block.group_starts)
    n_rows = np.diff(np.append(starts, block.n_rankings))
    weights, found = block.row_weights, np.zeros(block.n_rankings)
    log_shares = log_shares_by_person(block, params)
    joint = np.broadcast_to(log_shares, (len(starts), params.n_components)).copy()
    before = np.zeros(len(starts))
    for place in range(int(n_rows.max(initial=0))):
        persons = np.flatnonzero(n_rows > place)
        rows = starts[persons] + place
        posteriors = normalised(joint[persons])[1]
        joint[persons] += weights[rows, None] * logs[rows]
        so_far = normalised(joint[persons])[0]
        limits = (posteriors * logs[rows]).sum(axis=1)
        found[rows] = np.divide(so_far - before[persons], weights[rows], out=limits, where=weights[rows] > 0)
        before[persons] = so_far
    return found


def normalised(joint: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log of the sum (n,) and shares (n, n_components) of numbers given by their logarithms (n, n_components).

    Examples
    --------
    >>> total, shares = normalised(np.log([[0.1, 0.3]]))
    >>> np.exp(total).round(3).tolist(), shares.round(3).tolist()
    ([0.4], [[0.25, 0.75]])
    """
    largest = joint.max(axis=1)
    shares = np.exp(joint - largest[:, None])
    total = shares.sum(axis=1)
    return largest + np.log(total), shares / total[:, None]


def log_shares_by_person(block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    """The log-shares of parameters (n_components,), or those of each person of a block (n_persons, n_components).

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.zeros((2, 2)), np.log([0.25, 0.75]))
    >>> block = RankingBlock.from_array([[0, 1]])
    >>> np.exp(log_shares_by_person(block, params)).round(12).tolist()
    [0.25, 0.75]
    >>> own = block.replace(log_shares=np.log([[0.5, 0.5]]))
    >>> np.exp(log_shares_by_person(own, params)).round(12).tolist()
    [[0.5, 0.5]]
    """
    if block.log_shares is None:
        return log_shares_of(params)
    return block.log_shares if block.groups is None else block.log_shares[block.group_starts]


def log_shares_of(params: Prepared) -> NDArray[np.float64]:
    """(n_components,): the log-shares of parameters.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> np.exp(log_shares_of(prepare(np.zeros((2, 2)), np.log([0.25, 0.75])))).round(12).tolist()
    [0.25, 0.75]
    """
    mantissas, exponents = params.share_mantissas, params.share_exponents
    with np.errstate(divide="ignore"):
        logs: NDArray[np.float64] = np.log(mantissas) + np.where(mantissas > 0, exponents, 0.0) * math.log(2)
    return logs[: params.n_components]
