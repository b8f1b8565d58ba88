"""Passes of a bootstrap: every leaf is read once for all replicates, and each has its own weights and parameters."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation
from plmix_dist.errors import SettingsError
from plmix_dist.kernels import Prepared, prepare
from plmix_dist.rankings.linear_extensions import extend_ties
from plmix_dist.rankings.tie_treatments import TIES
from plmix_dist.single_thread import single_thread
from plmix_dist.uncertainty.information import MixturePoint, PreparedPoint, flat_scores, prepare_point
from plmix_dist.uncertainty.replicate_weights import draw_weights, weighted_statistics
from plmix_dist.uncertainty.scores import person_scores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock

# Weights of so many persons, over all replicates, are held at a time.
_MOST_WEIGHTS = 1 << 23


class Draws(NamedTuple):
    """Which weights: their kind, the seed, and the numbers of the replicates."""

    kind: str
    seed: int
    replicates: tuple[int, ...]


class FirstParams(NamedTuple):
    """What travels in the first pass: the fitted point, and the weights of all replicates."""

    point: MixturePoint
    draws: Draws


class LaterParams(NamedTuple):
    """What travels later: points of the replicates that still run, and their weights.

    Parameters
    ----------
    log_worths : (n_replicates, n_components, n_items)
    log_shares : (n_replicates, n_components)
    draws
        The weights.
    """

    log_worths: NDArray[np.float64]
    log_shares: NDArray[np.float64]
    draws: Draws


class ReplicateSums(NamedTuple):
    """Sums over rows, for each replicate.

    Parameters
    ----------
    log_likelihood, weight : (n_replicates,)
    gradient : (n_replicates, n_components * n_items)
        In the log-worths.
    shares : (n_replicates, n_components)
        Sums of posteriors.
    """

    log_likelihood: NDArray[np.float64]
    weight: NDArray[np.float64]
    gradient: NDArray[np.float64]
    shares: NDArray[np.float64]


class _First(NamedTuple):
    point: PreparedPoint
    draws: Draws


class _Later(NamedTuple):
    params: list[Prepared | None]
    draws: Draws
    n_components: int


@cache
def first_pass(ties: str) -> Aggregation:
    """The sums of all replicates at the fitted point. Scores of persons are computed once for all of them.

    Examples
    --------
    >>> first_pass("expand").name
    'bootstrap-first'
    """
    return Aggregation("bootstrap-first", leaf=partial(_first_leaf, ties), prepare=_prepare_first)


@cache
def later_pass(ties: str) -> Aggregation:
    """The sums of replicates, each at its own point.

    Examples
    --------
    >>> later_pass("expand").name
    'bootstrap'
    """
    return Aggregation("bootstrap", leaf=partial(_later_leaf, ties), prepare=_prepare_later)


def _prepare_first(params: FirstParams) -> _First:
    return _First(prepare_point(params.point), params.draws)


def _prepare_later(params: LaterParams) -> _Later:
    points = [_prepared(*point) for point in zip(params.log_worths, params.log_shares, strict=True)]
    return _Later(points, params.draws, params.log_shares.shape[1])


def _prepared(log_worths: NDArray[np.float64], log_shares: NDArray[np.float64]) -> Prepared | None:
    """None for a point that cannot be computed with: the step that led there was too long."""
    try:
        return prepare(log_worths, log_shares)
    except SettingsError:
        return None


def _first_leaf(ties: str, number: int, block: RankingBlock, params: _First) -> ReplicateSums:
    kind, seed, replicates = params.draws
    n_persons = int(np.count_nonzero(block.group_starts))
    at_once = max(1, _MOST_WEIGHTS // n_persons)
    parts = []
    with single_thread():
        for first in range(0, len(replicates), at_once):
            numbers = replicates[first : first + at_once]
            factors = np.empty((len(numbers), n_persons))
            for place, replicate in enumerate(numbers):
                factors[place] = draw_weights(block, kind, seed, replicate, number)
            parts.append(_at_fitted_point(ties, block, params.point, factors))
    return ReplicateSums(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _at_fitted_point(
    ties: str, block: RankingBlock, point: PreparedPoint, factors: NDArray[np.float64]
) -> ReplicateSums:
    """The sums of some replicates, from factors (n_replicates, n_persons)."""
    n_components, n_items = point.params.n_components, point.params.n_items
    sums = np.zeros((len(factors), n_components * n_items + n_components + 2))
    first = 0
    for found in person_scores(block, point.params, ties):
        here: slice | NDArray[np.int64] = slice(first, first + len(found.weights))
        if found.unit is not None:
            here = first + found.unit
        own = factors[:, here]
        columns = np.concatenate(
            [
                flat_scores(found, np.zeros(n_components)),
                found.log_likelihoods[:, None],
                np.ones((len(found.weights), 1)),
            ],
            axis=1,
        )
        sums += own @ (columns * found.weights[:, None])
        first += len(found.weights) if found.unit is None else int(found.unit[-1]) + 1
    gradient, shares = sums[:, : n_components * n_items], sums[:, n_components * n_items : -2]
    return ReplicateSums(sums[:, -2].copy(), sums[:, -1].copy(), gradient.copy(), shares.copy())


def _later_leaf(ties: str, number: int, block: RankingBlock, params: _Later) -> ReplicateSums:
    kind, seed, replicates = params.draws
    row, given = None, block
    if TIES[ties].extends and block.has_ties:
        block, extended_row = extend_ties(block)
        row = extended_row if block.groups is None else None
    n_replicates, n_components = len(replicates), params.n_components
    # A point that cannot be computed with keeps a log-likelihood of minus infinity.
    log_likelihood, weight = np.full(n_replicates, -np.inf), np.zeros(n_replicates)
    gradient, shares = (
        np.zeros((n_replicates, n_components * block.n_items)),
        np.zeros((n_replicates, n_components)),
    )
    running = [place for place, point in enumerate(params.params) if point is not None]

    def weightings() -> Iterator[tuple[NDArray[np.float64], Prepared]]:
        for replicate, point in zip(replicates, params.params, strict=True):
            if point is not None:
                factors = draw_weights(given, kind, seed, replicate, number)
                yield factors if row is None else factors[row], point

    for place, sums in zip(running, weighted_statistics(block, weightings()), strict=True):
        log_likelihood[place], weight[place] = sums.log_likelihood, sums.shares.sum()
        gradient[place] = (sums.wins - sums.expected_wins).ravel()
        shares[place] = sums.shares
    return ReplicateSums(log_likelihood, weight, gradient, shares)
