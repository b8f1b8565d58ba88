"""Random weights of persons for one replicate of a bootstrap, keyed by seed, replicate and leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.kernels import em_statistics, memberships_at
from plmix_dist.kernels.em_pass import statistics_at
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.rankings.randomness import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels import EmStatistics, Prepared
    from plmix_dist.rankings import RankingBlock

WEIGHTS = ("poisson", "exponential")


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
            return rng.poisson(1.0, n_persons).astype(np.float64)
        return rng.standard_exponential(n_persons)
    weights = block.weights
    if kind == "exponential":
        return rng.standard_gamma(weights) / weights
    whole = weights == np.floor(weights)
    means = np.where(whole, weights, 1.0)
    factors: NDArray[np.float64] = rng.poisson(means) / means
    return factors


def weighted_statistics(block: RankingBlock, factors: NDArray[np.float64], params: Prepared) -> EmStatistics:
    """The statistics of a block in which the weight of each person is multiplied by a factor (n_persons,).

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]]).replace(groups=np.array([4, 4]))
    >>> weighted_statistics(block, np.array([3.0]), prepare(np.zeros((1, 2)), np.zeros(1))).wins.tolist()
    [[3.0, 3.0]]
    """
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
