"""Passes of a bootstrap: every leaf is read once for all replicates, and each has its own weights and parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.kernels import EmStatistics, Prepared, em_statistics, memberships_at, prepare
from plmix_dist.kernels.em_pass import is_plain, reweighted_statistics, statistics_at, statistics_with_ties
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.passes.request import Aggregation
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.sampling import generator
from plmix_dist.rankings.ties import TIES
from plmix_dist.store.mixture import Floats, MixtureParams
from plmix_dist.threads import single_thread
from plmix_dist.uncertainty.information import PreparedPoint, flat_scores, person_scores, prepare_point

# Random weights of persons for one replicate of a bootstrap, keyed by seed, replicate and leaf.

WEIGHTS = ("poisson", "exponential")
# Inversion for Poisson numbers of mean 1: the unit interval in 2**16 cells. A cell holds its number, or -1 if numbers
# change inside it. 19 numbers reach up to 1 in float64.
_N_CELLS = 1 << 16
_CUMULATIVE = np.cumsum([math.exp(-1) / math.factorial(number) for number in range(19)])
_LOWEST, _HIGHEST = (
    np.searchsorted(_CUMULATIVE, (np.arange(_N_CELLS) + end) / _N_CELLS, side="right") for end in (0, 1)
)
_NUMBER_OF_CELL = np.where(_LOWEST == _HIGHEST, _LOWEST, -1).astype(np.int8)


def _draw_weights(block: RankingBlock, kind: str, seed: int, replicate: int, leaf: int) -> Floats:
    """(n_persons,): the factor by which the weight of each person is multiplied in a replicate; its mean is 1.

    A person is a row, or the rows of a group. "poisson": the number of times that a person is drawn; a row of weight w
    stands for w persons, so its new weight is a Poisson number with mean w (if w is not whole, w times one with mean
    1). "exponential": weights of the Bayesian bootstrap, whose sums over w persons are gamma numbers.
    """
    rng = generator(seed, "bootstrap", replicate, leaf)
    if block.groups is not None or block.weights is None:
        n_persons = int(np.count_nonzero(block.group_starts))
        if kind == "poisson":
            return _poisson_of_mean_one(rng, n_persons)
        return rng.standard_exponential(n_persons)
    weights = block.weights
    if kind == "exponential":
        return rng.standard_gamma(weights) / weights
    whole = weights == np.floor(weights)
    means = np.where(whole, weights, 1.0)
    return rng.poisson(means) / means


def _poisson_of_mean_one(rng: np.random.Generator, size: int) -> Floats:
    """(size,): Poisson numbers with mean 1, ten times as fast as those of NumPy.

    Nearly all follow from 16 random bits. Where these do not decide, more bits do, so the distribution is exact.
    """
    cells = rng.integers(0, _N_CELLS, size, dtype=np.uint16)
    drawn = _NUMBER_OF_CELL.take(cells)
    undecided = np.flatnonzero(drawn < 0)
    uniform = (cells[undecided] + rng.random(len(undecided))) / _N_CELLS
    drawn[undecided] = np.searchsorted(_CUMULATIVE, uniform, side="right")
    return drawn.astype(np.float64)


def _weighted_statistics(block: RankingBlock, weightings: Iterable[tuple[Floats, Prepared]]) -> list[EmStatistics]:
    """The statistics of a block in which the weight of each person is multiplied by a factor."""
    if is_plain(block):
        weights = block.row_weights
        return reweighted_statistics(block, ((weights * factors, params) for factors, params in weightings))
    return [_weighted(block, factors, params) for factors, params in weightings]


def _weighted(block: RankingBlock, factors: Floats, params: Prepared) -> EmStatistics:
    """Statistics of rows with groups or ties."""
    if block.groups is None:
        return em_statistics(block.replace(weights=block.row_weights * factors), params)
    # The weight of a row is how often its person gave it. So factors come in after the memberships.
    at = memberships_at(block, params)
    scaled = block.replace(weights=block.row_weights * factors[at.person], groups=None)
    counts = factors * at.weights
    log_likelihood = float((counts * at.log_likelihoods).sum())
    shares = (counts[:, None] * at.posteriors).sum(axis=0)
    ties = TiedRows.of(scaled)
    if ties is None:
        return statistics_at(scaled, params, at.by_row, log_likelihood)._replace(shares=shares)
    sums = statistics_with_ties(scaled, ties, ties.places(params), params, at.by_row, log_likelihood)
    return sums._replace(shares=shares)


# Weights of persons, over all replicates, that are held at a time.
_MOST_WEIGHTS = 1 << 23


class Draws(NamedTuple):
    """Which weights: their kind, the seed, and the numbers of the replicates."""

    kind: str
    seed: int
    replicates: tuple[int, ...]


class ReplicateSums(NamedTuple):
    """Sums over rows, for each replicate."""

    log_likelihood: Floats  # (n_replicates,)
    weight: Floats  # (n_replicates,)
    gradient: Floats  # (n_replicates, n_components * n_items): in the log-worths
    shares: Floats  # (n_replicates, n_components): sums of posteriors


@cache
def first_pass(ties: str) -> Aggregation:
    """The sums of all replicates at the fitted point, from that and their `Draws`.

    Scores of persons are computed once for all of them.
    """
    return Aggregation("bootstrap-first", leaf=partial(_first_leaf, ties), prepare=_prepare_first)


@cache
def later_pass(ties: str) -> Aggregation:
    """The sums of replicates, each at its own point.

    Parameters are log-worths (n_replicates, n_components, n_items) and log-shares (n_replicates, n_components) of those
    that still run, and their `Draws`.
    """
    return Aggregation("bootstrap", leaf=partial(_later_leaf, ties), prepare=_prepare_later)


def _prepare_first(params: tuple[MixtureParams, Draws]) -> tuple[PreparedPoint, Draws]:
    mixture, draws = params
    return prepare_point(mixture), draws


def _prepare_later(params: tuple[Floats, Floats, Draws]) -> tuple[list[Prepared | None], int, Draws]:
    log_worths, log_shares, draws = params
    points = [_prepared(*point) for point in zip(log_worths, log_shares, strict=True)]
    return points, log_shares.shape[1], draws


def _prepared(log_worths: Floats, log_shares: Floats) -> Prepared | None:
    """None for a point that cannot be computed with: the step that led there was too long."""
    try:
        return prepare(log_worths, log_shares)
    except SettingsError:
        return None


def _first_leaf(ties: str, number: int, block: RankingBlock, params: tuple[PreparedPoint, Draws]) -> ReplicateSums:
    point, (kind, seed, replicates) = params
    n_persons = int(np.count_nonzero(block.group_starts))
    at_once = max(1, _MOST_WEIGHTS // n_persons)
    parts = []
    with single_thread():
        for first in range(0, len(replicates), at_once):
            numbers = replicates[first : first + at_once]
            factors = np.empty((len(numbers), n_persons))
            for place, replicate in enumerate(numbers):
                factors[place] = _draw_weights(block, kind, seed, replicate, number)
            parts.append(_at_fitted_point(ties, block, point, factors))
    return ReplicateSums(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _at_fitted_point(ties: str, block: RankingBlock, point: PreparedPoint, factors: Floats) -> ReplicateSums:
    """The sums of some replicates, from factors (n_replicates, n_persons)."""
    n_components, n_items = point.params.n_components, point.params.n_items
    sums = np.zeros((len(factors), n_components * n_items + n_components + 2))
    first = 0
    for found in person_scores(block, point.params, ties):
        here: slice | NDArray[np.int64] = slice(first, first + len(found.weights))
        if found.unit is not None:
            here = first + found.unit
        own = factors[:, here]
        scores, ones = flat_scores(found, np.zeros(n_components)), np.ones((len(found.weights), 1))
        columns = np.concatenate([scores, found.log_likelihoods[:, None], ones], axis=1)
        sums += own @ (columns * found.weights[:, None])
        first += len(found.weights) if found.unit is None else int(found.unit[-1]) + 1
    gradient, shares = sums[:, : n_components * n_items], sums[:, n_components * n_items : -2]
    return ReplicateSums(sums[:, -2].copy(), sums[:, -1].copy(), gradient.copy(), shares.copy())


def _later_leaf(
    ties: str, number: int, block: RankingBlock, params: tuple[list[Prepared | None], int, Draws]
) -> ReplicateSums:
    points, n_components, (kind, seed, replicates) = params
    row, given = None, block
    if TIES[ties].extends and block.has_ties:
        block, extended_row = TIES[ties].extended(block)
        row = extended_row[block.group_starts] if given.groups is None else None
    n_replicates = len(replicates)
    # A point that cannot be computed with keeps a log-likelihood of minus infinity.
    log_likelihood, weight = np.full(n_replicates, -np.inf), np.zeros(n_replicates)
    gradient = np.zeros((n_replicates, n_components * block.n_items))
    shares = np.zeros((n_replicates, n_components))
    running = [place for place, point in enumerate(points) if point is not None]

    def weightings() -> Iterator[tuple[Floats, Prepared]]:
        for replicate, point in zip(replicates, points, strict=True):
            if point is not None:
                factors = _draw_weights(given, kind, seed, replicate, number)
                yield factors if row is None else factors[row], point

    for place, sums in zip(running, _weighted_statistics(block, weightings()), strict=True):
        log_likelihood[place], weight[place] = sums.log_likelihood, sums.shares.sum()
        gradient[place] = (sums.wins - sums.expected_wins).ravel()
        shares[place] = sums.shares
    return ReplicateSums(log_likelihood, weight, gradient, shares)
