"""The statistics of an EM pass with memberships that are drawn: every person belongs to one component."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.kernels.em_pass import statistics_at
from plmix_dist.kernels.pair_statistics import persons_of, without_ties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.em_pass import EmStatistics
    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.rankings import RankingBlock

# Whole weights up to this are numbers of persons, each of whom is drawn. Above it float64 has no fractions.
_MOST_PERSONS = float(1 << 53)


def drawn_statistics(
    block: RankingBlock, current: Prepared, frozen: Prepared | None, rng: np.random.Generator
) -> EmStatistics:
    """The statistics of a block, with rates, at memberships drawn from the posteriors.

    The log-likelihood is exact. Shares, wins and rates are those of the drawn clusters. The same random numbers give
    the same clusters, whatever the current parameters are, if those that give the posteriors are frozen.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.log([[3.0, 1.0], [1.0, 3.0]]), np.log([0.5, 0.5]))
    >>> found = drawn_statistics(RankingBlock.from_array([[0, 1]] * 40), params, None, np.random.default_rng(0))
    >>> found.shares.tolist(), round(float(found.log_likelihood) / 40, 4)
    ([30.0, 10.0], -0.6931)
    """
    block = without_ties(block)
    at = persons_of(block, current if frozen is None else frozen)
    drawn = drawn_memberships(at.posteriors, at.weights, rng)
    log_likelihood = float((at.weights * at.log_likelihoods).sum())
    sums = statistics_at(block, current, drawn[at.person], log_likelihood, with_rates=True)
    return sums._replace(shares=(at.weights[:, None] * drawn).sum(axis=0))


def drawn_memberships(
    posteriors: NDArray[np.float64], weights: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """(n_persons, n_components): the share of each person's weight that falls to each component.

    A whole weight above 1 stands for so many persons, who are drawn one by one. Any other weight falls to one
    component as a whole.

    Parameters
    ----------
    posteriors : (n_persons, n_components)
    weights : (n_persons,)
    rng
        Random numbers of this leaf.

    Examples
    --------
    >>> drawn_memberships(np.array([[0.5, 0.5]] * 2), np.array([4.0, 2.5]), np.random.default_rng(1)).tolist()
    [[0.25, 0.75], [0.0, 1.0]]
    """
    n_persons, n_components = posteriors.shape
    drawn = np.zeros((n_persons, n_components))
    # One number for every person, whatever its weight: what one person draws does not depend on the weights of others.
    numbers = rng.random((n_persons,))
    chosen = (np.cumsum(posteriors[:, :-1], axis=1) <= numbers[:, None]).sum(axis=1)
    drawn[np.arange(n_persons), chosen] = 1.0
    several = np.flatnonzero((weights > 1) & (weights < _MOST_PERSONS) & (weights == np.floor(weights)))
    if len(several):
        persons = weights[several]
        drawn[several] = rng.multinomial(persons.astype(np.int64), posteriors[several]) / persons[:, None]
    return drawn
