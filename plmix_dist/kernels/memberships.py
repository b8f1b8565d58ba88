"""Memberships: the posterior of each person, from the log-probabilities of all rows that the person gave.

Without groups every row is a person, and its weight counts persons. With groups a person counts once, and the weight of
a row is how often the person gave it: log Pr(person | component) is the sum of weight times log Pr(row | component).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from plmix_dist.kernels import prepared
from plmix_dist.kernels.loading import Kernel
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.groups import person_of_row, person_weights, weights_within


class _HasShares(Protocol):
    """Parameters with shares."""

    @property
    def n_components(self) -> int:
        """The number of components."""
        ...

    @property
    def log_shares(self) -> Floats:
        """(n_components,): logarithms of the shares."""
        ...


class Memberships(NamedTuple):
    """What persons are members of."""

    # log_likelihoods, weights (n_persons,): the log-likelihood of each person, and how many persons it stands for.
    log_likelihoods: Floats
    weights: Floats
    # (n_persons, n_components)
    posteriors: Floats
    # (n_rankings,): the number of the person who gave each row.
    person: NDArray[np.int64]

    @property
    def by_row(self) -> Floats:
        """(n_rankings, n_components): the posterior of each row, which is that of its person."""
        return self.posteriors[self.person]


def memberships(block: RankingBlock, logs: Floats, params: _HasShares | None) -> Memberships:
    """The memberships of all persons of a block, from the log-likelihoods (n_rankings, n_components) of its rows.

    Of the parameters only the shares are used, and these only if the block has none of its own.

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
        joint, weights = logs + _log_shares_by_person(block, params), block.row_weights
        person = np.arange(block.n_rankings)
    else:
        person = person_of_row(block)
        added = np.add.reduceat(weights_within(block)[:, None] * logs, np.flatnonzero(block.group_starts), axis=0)
        joint, weights = added + _log_shares_by_person(block, params), person_weights(block)
    log_likelihoods, posteriors = _normalised(joint)
    return Memberships(log_likelihoods, weights, posteriors, person)


def conditional_log_likelihoods(block: RankingBlock, logs: Floats, params: _HasShares) -> Floats:
    """(n_rankings,): the log-likelihood of each row given the rows of its person before it, divided by its weight.

    A row of weight 0 has the limit for small weights: the mean over the components, by the posterior before it.
    """
    starts = np.flatnonzero(block.group_starts)
    n_rows = np.diff(np.append(starts, block.n_rankings))
    weights, found = block.row_weights, np.zeros(block.n_rankings)
    joint = np.broadcast_to(_log_shares_by_person(block, params), (len(starts), params.n_components)).copy()
    before = np.zeros(len(starts))
    for place in range(int(n_rows.max(initial=0))):
        persons = np.flatnonzero(n_rows > place)
        rows = starts[persons] + place
        posteriors = _normalised(joint[persons])[1]
        joint[persons] += weights[rows, None] * logs[rows]
        so_far = _normalised(joint[persons])[0]
        limits = (posteriors * logs[rows]).sum(axis=1)
        found[rows] = np.divide(so_far - before[persons], weights[rows], out=limits, where=weights[rows] > 0)
        before[persons] = so_far
    return found


def _normalised(joint: Floats) -> tuple[Floats, Floats]:
    """Log of the sum (n,) and shares (n, n_components) of numbers given by their logarithms (n, n_components)."""
    largest = joint.max(axis=1)
    shares = np.exp(joint - largest[:, None])
    total = shares.sum(axis=1)
    return largest + np.log(total), shares / total[:, None]


def _log_shares_by_person(block: RankingBlock, params: _HasShares | None) -> Floats:
    """The log-shares of parameters (n_components,), or those of each person of a block (n_persons, n_components)."""
    if block.log_shares is not None:
        return block.log_shares if block.groups is None else block.log_shares[block.group_starts]
    assert params is not None, "shares are those of parameters, or of persons"
    return params.log_shares


# Log-likelihood and posterior of each row, where every row is a person of its own and has no ties.


class FilledPosteriors(NamedTuple):
    """What the kernel fills."""

    posteriors: Floats
    totals: prepared.Room
    scales: prepared.Room


_fill_posteriors = Kernel("fill_posteriors", prepared.Rows, prepared.Prepared, prepared.Slots, FilledPosteriors)


def single_posteriors(block: RankingBlock, params: prepared.Prepared) -> tuple[Floats, Floats]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, n_components) of each row by itself."""
    log_likelihood, posteriors = padded_posteriors(prepared.rows_of(block, params.width), params)
    return log_likelihood, np.ascontiguousarray(posteriors[:, : params.n_components])


def padded_posteriors(rows: prepared.Rows, params: prepared.Prepared) -> tuple[Floats, Floats]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, width) of each row."""
    posteriors, probabilities = np.empty((rows.n_rows, params.width)), prepared.Probabilities.of(rows.n_rows)
    filled = FilledPosteriors(posteriors, probabilities.totals, probabilities.scales)
    prepared.run_over(_fill_posteriors, rows, params, filled)
    return probabilities.logs().copy(), posteriors


# Log-probability of each row under each component; the rows of a person are added up later.


class FilledLogs(NamedTuple):
    """(n_rows, width): what the kernel fills."""

    logs: Floats


_fill_logs = Kernel("fill_logs", prepared.Rows, prepared.Prepared, prepared.Slots, FilledLogs)


def row_logs(block: RankingBlock, params: prepared.Prepared) -> Floats:
    """(n_rankings, n_components): log Pr(row | component). Items that are tied count as ordered."""
    logs = np.empty((block.n_rankings, params.width))
    prepared.run_over(_fill_logs, prepared.rows_of(block, params.width), params, FilledLogs(logs))
    return np.ascontiguousarray(logs[:, : params.n_components])
