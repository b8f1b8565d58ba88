"""Random weights of persons for one replicate of a bootstrap, keyed by seed, replicate and leaf."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.kernels import em_statistics, memberships_at
from plmix_dist.kernels.e_step import is_plain
from plmix_dist.kernels.em_pass import reweighted_statistics, statistics_at
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.rankings.randomness import generator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from plmix_dist.kernels import EmStatistics, Prepared
    from plmix_dist.rankings import RankingBlock

WEIGHTS = ("poisson", "exponential")
# Inversion for Poisson numbers of mean 1: the unit interval in 2**16 cells. A cell holds its number, or -1 if numbers
# change inside it. 19 numbers reach up to 1 in float64.
_N_CELLS = 1 << 16
_CUMULATIVE = np.cumsum([math.exp(-1) / math.factorial(number) for number in range(19)])
_LOWEST, _HIGHEST = (
    np.searchsorted(_CUMULATIVE, (np.arange(_N_CELLS) + end) / _N_CELLS, side="right") for end in (0, 1)
)
_NUMBER_OF_CELL = np.where(_LOWEST == _HIGHEST, _LOWEST, -1).astype(np.int8)


def draw_weights(block: RankingBlock, kind: str, seed: int, replicate: int, leaf: int) -> NDArray[np.float64]:
    """(n_persons,): the factor by which the weight of each person is multiplied in a replicate; its mean is 1.

    A person is a row, or the rows of a group. "poisson": the number of times that a person is drawn; a row of weight w
    stands for w persons, so its new weight is a Poisson number with mean w (if w is no whole number, w times one with
    mean 1). "exponential": weights of the Bayesian bootstrap, whose sums over w persons are gamma numbers.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[1000.0, 1.0])
    >>> factors = draw_weights(block, "poisson", seed=0, replicate=1, leaf=0)
    >>> bool(abs(factors[0] - 1) < 0.2), bool(factors[1] == int(factors[1]))
    (True, True)
    """
    rng = generator(seed, "bootstrap", replicate, leaf)
    if block.groups is not None or block.weights is None:
        n_persons = int(np.count_nonzero(block.group_starts))
        if kind == "poisson":
            return poisson_of_mean_one(rng, n_persons)
        return rng.standard_exponential(n_persons)
    weights = block.weights
    if kind == "exponential":
        return rng.standard_gamma(weights) / weights
    whole = weights == np.floor(weights)
    means = np.where(whole, weights, 1.0)
    factors: NDArray[np.float64] = rng.poisson(means) / means
    return factors


def poisson_of_mean_one(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """(size,): Poisson numbers with mean 1, ten times as fast as those of NumPy.

    Nearly all follow from 16 random bits. Where these do not decide, more bits do, so the distribution is exact.

    Examples
    --------
    >>> poisson_of_mean_one(np.random.default_rng(0), 5).tolist()
    [1.0, 2.0, 3.0, 1.0, 2.0]
    """
    cells = rng.integers(0, _N_CELLS, size, dtype=np.uint16)
    drawn = _NUMBER_OF_CELL.take(cells)
    undecided = np.flatnonzero(drawn < 0)
    uniform = (cells[undecided] + rng.random(len(undecided))) / _N_CELLS
    drawn[undecided] = np.searchsorted(_CUMULATIVE, uniform, side="right")
    return drawn.astype(np.float64)


def weighted_statistics(
    block: RankingBlock, weightings: Iterable[tuple[NDArray[np.float64], Prepared]]
) -> list[EmStatistics]:
    """The statistics of a block in which the weight of each person is multiplied by a factor.

    Parameters
    ----------
    block
        The rankings.
    weightings
        Factors (n_persons,), and the parameters at which the statistics are wanted; as often as wanted.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]]).replace(groups=np.array([4, 4]))
    >>> params = prepare(np.zeros((1, 2)), np.zeros(1))
    >>> weighted_statistics(block, [(np.array([3.0]), params)])[0].wins.tolist()
    [[3.0, 3.0]]
    """
    if is_plain(block):
        weights = block.row_weights
        return reweighted_statistics(block, ((weights * factors, params) for factors, params in weightings))
    return [_weighted(block, factors, params) for factors, params in weightings]


def _weighted(block: RankingBlock, factors: NDArray[np.float64], params: Prepared) -> EmStatistics:
    """Statistics of rows with groups or ties."""
    if block.groups is None:
        return em_statistics(block.replace(weights=block.row_weights * factors), params)
    # The weight of a row says how often its person gave it. So factors come in after the memberships.
    at = memberships_at(block, params)
    scaled = block.replace(weights=block.row_weights * factors[at.person], groups=None)
    log_likelihood = float((factors * at.log_likelihoods).sum())
    shares = (factors[:, None] * at.posteriors).sum(axis=0)
    ties = TiedRows.of(scaled)
    if ties is None:
        return statistics_at(scaled, params, at.by_row, log_likelihood)._replace(shares=shares)
    plain = np.setdiff1d(np.arange(block.n_rankings), ties.numbers)
    sums = statistics_at(scaled.take(plain), params, at.by_row[plain], log_likelihood)
    _, wins, expected_wins = ties.sums(params, ties.places(params), at.by_row[ties.numbers])
    return sums._replace(
        shares=shares, wins=sums.wins + wins, expected_wins=sums.expected_wins + expected_wins
    )
