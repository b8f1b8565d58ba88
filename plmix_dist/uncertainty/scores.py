"""Scores of persons at the fitted parameters, and the information that the choices of a block hold.

A person is a row, or the rows of a group. With q the posterior of a person, the score is q_k s_k in the log-worths of
component k, and q - shares in the logits of the shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

from plmix_dist.errors import SettingsError
from plmix_dist.kernels.e_step import component_logs
from plmix_dist.kernels.memberships import memberships
from plmix_dist.kernels.observed_information import all_choice_sums
from plmix_dist.kernels.row_logs import row_logs
from plmix_dist.rankings.linear_extensions import MOST_EXTENSIONS, extend_ties
from plmix_dist.rankings.tie_treatments import TIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.kernels import Prepared
    from plmix_dist.rankings import RankingBlock

# A leaf is cut into runs of rows with at most this many scores, which bounds the memory.
_MOST_SCORES = 1 << 19


class PersonScores(NamedTuple):
    """Scores of some persons.

    Parameters
    ----------
    log_likelihoods, weights : (n_persons,)
    posteriors : (n_persons, n_components)
    scores : (n_persons, n_components, n_items)
        q_k s_k.
    complete : (n_components, n_items, n_items)
        The information in the log-worths if all components were known, times posteriors and weights, added up.
    unit : (n_persons,) or None
        With ties="expand", the linear extensions of one ranking are one unit; None if every person is a unit.
    n_sampled
        How many rows have more linear extensions than are used here.
    """

    log_likelihoods: NDArray[np.float64]
    weights: NDArray[np.float64]
    posteriors: NDArray[np.float64]
    scores: NDArray[np.float64]
    complete: NDArray[np.float64]
    unit: NDArray[np.int64] | None
    n_sampled: int


def person_scores(block: RankingBlock, params: Prepared, ties: str) -> Iterator[PersonScores]:
    """The scores of all persons of a block, some persons at a time.

    Parameters
    ----------
    block
        Rows as they were given, with their ties.
    ties
        How the fit treats ties. "expand": linear extensions count as rows of their own, with a part of the weight.
        "marginal" and "resample": a row is the set of its orders. Its second derivatives are exact if it has at most
        24 orders; else they are estimated from 24 draws.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> (found,) = person_scores(RankingBlock.from_array([[1, 0]]), prepare(np.zeros((1, 2)), np.zeros(1)), "expand")
    >>> found.scores.tolist()
    [[[-0.5, 0.5]]]
    """
    if block.covariates is not None or block.log_shares is not None:
        raise SettingsError(
            "standard errors are not made for shares that depend on covariates; fit without covariates, or use a "
            "bootstrap of your own with sample_weight"
        )
    for part in _parts(block, max(1, _MOST_SCORES // (params.n_components * params.n_items))):
        if not part.has_ties:
            yield _scores(part, params)
        elif TIES[ties].extends:
            extended = extend_ties(part)
            unit = extended.row if part.groups is None else None
            yield _scores(extended.block, params)._replace(unit=unit)
        else:
            yield _tied_scores(part, params)


def _parts(block: RankingBlock, n_rows: int) -> Iterator[RankingBlock]:
    """Runs of about so many rows; the rows of a group stay together."""
    starts = np.append(np.flatnonzero(block.group_starts), block.n_rankings)
    first = 0
    while first < block.n_rankings:
        last = int(starts[min(int(np.searchsorted(starts, first + n_rows)), len(starts) - 1)])
        yield block[first:last]
        first = last


def _scores(block: RankingBlock, params: Prepared) -> PersonScores:
    """Without ties."""
    persons = memberships(block, row_logs(block, params), params)
    _, scores, complete = all_choice_sums(block, params, persons.by_row)
    return PersonScores(
        persons.log_likelihoods,
        persons.weights,
        persons.posteriors,
        _by_person(block, scores),
        complete,
        None,
        0,
    )


def _tied_scores(block: RankingBlock, params: Prepared) -> PersonScores:
    """A row is the set of its orders: the order is as unknown as the component (Louis 1982)."""
    persons = memberships(block, component_logs(block, params), params)
    extended = extend_ties(block)
    firsts = np.flatnonzero(np.diff(extended.row, prepend=-1))
    orders = extended.block.replace(weights=block.row_weights[extended.row])
    logs = row_logs(orders, params)
    logs -= np.maximum.reduceat(logs, firsts, axis=0)[extended.row]
    chances = np.exp(logs)
    chances /= np.add.reduceat(chances, firsts, axis=0)[extended.row]
    by_row = persons.by_row
    joint = by_row[extended.row] * chances
    _, scores, complete = all_choice_sums(orders, params, joint)
    row_scores = np.add.reduceat(scores, firsts, axis=0)
    # The orders of a row differ in their scores: the variance of these is information that is missing.
    several = np.diff(np.append(firsts, len(extended.row))) > 1
    tied = several[extended.row]
    for k in range(params.n_components):
        within = _products(scores[tied, k], joint[tied, k], orders.row_weights[tied])
        of_rows = _products(row_scores[several, k], by_row[several, k], block.row_weights[several])
        complete[k] -= within - of_rows
    return PersonScores(
        persons.log_likelihoods,
        persons.weights,
        persons.posteriors,
        _by_person(block, row_scores),
        complete,
        None,
        _n_sampled(block),
    )


def _products(
    scores: NDArray[np.float64], posteriors: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The sum of w (q s)(q s)' / q."""
    per_posterior = np.divide(weights, posteriors, out=np.zeros(len(weights)), where=posteriors > 0)
    products: NDArray[np.float64] = scores.T @ (scores * per_posterior[:, None])
    return products


def _by_person(block: RankingBlock, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The score of a person is the sum of those of the rows, times their weights."""
    if block.groups is None:
        return scores
    weighted = scores * block.row_weights[:, None, None]
    summed: NDArray[np.float64] = np.add.reduceat(weighted, np.flatnonzero(block.group_starts), axis=0)
    return summed


def _n_sampled(block: RankingBlock) -> int:
    """How many rows have more than 24 orders."""
    if block.tied is None:
        return 0
    starts = np.flatnonzero(~block.tied)
    sizes = np.diff(np.append(starts, len(block.items)))
    first_places = np.searchsorted(starts, block.offsets[:-1])
    log_orders = np.add.reduceat(gammaln(sizes + 1.0), first_places)
    return int(np.count_nonzero(log_orders > np.log(MOST_EXTENSIONS + 0.5)))
