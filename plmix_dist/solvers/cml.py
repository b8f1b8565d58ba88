"""CML: composite marginal likelihood (Zhao & Xia 2018). Rankings are broken into pairs, as if these were independent.

With F[i, j] the weighted wins of i against j, the M-step maximises the sum of F[i, j] log sigmoid(x[i] - x[j]) over the
log-worths x: the log-likelihood of a Bradley-Terry model. It is concave. It is not the likelihood of the rankings, so
EM with this M-step has no objective.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from plmix_dist.kernels import pair_statistics
from plmix_dist.solvers.m_step import MStep, Worths
from plmix_dist.solvers.pair_losses import PairLosses, minimise_over_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels import PairStatistics, Prepared
    from plmix_dist.rankings import RankingBlock


def cml_step(wins: NDArray[np.float64], worths: Worths, alpha: float) -> Worths:
    """The worths that maximise the composite marginal likelihood, from wins (n_items, n_items).

    The prior is `alpha` wins and `alpha` losses of every item against the ghost, which are pairs like all others.

    Examples
    --------
    >>> step = cml_step(np.array([[0.0, 3.0], [1.0, 0.0]]), Worths(np.zeros(2), 0.0), alpha=0.0)
    >>> np.exp(step.log_worths).round(3).tolist()
    [1.732, 0.577]
    """
    if not alpha:
        return centred(minimise_over_pairs(partial(_losses, wins), worths.log_worths), worths.ghost)
    start = np.append(worths.log_worths, worths.ghost)
    found = minimise_over_pairs(partial(_losses, wins_with_ghost(wins, alpha)), start)
    return centred(found[:-1], float(found[-1]))


def wins_with_ghost(wins: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """(n_items + 1, n_items + 1): wins with those against the ghost and of the ghost, in the last place.

    Examples
    --------
    >>> wins_with_ghost(np.zeros((1, 1)), alpha=0.5).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    >>> wins_with_ghost(np.array([[0.0, 0.5], [1.5, 0.0]]), alpha=1).tolist()
    [[0.0, 0.5, 1.0], [1.5, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    grown = np.full((len(wins) + 1, len(wins) + 1), alpha, np.float64)  # alpha may be a whole number
    grown[:-1, :-1] = wins
    grown[-1, -1] = 0.0
    return grown


def centred(log_worths: NDArray[np.float64], ghost: float) -> Worths:
    """Worths whose items have mean zero.

    Examples
    --------
    >>> centred(np.array([1.0, 3.0]), 0.0)
    Worths(log_worths=array([-1.,  1.]), ghost=-2.0)
    """
    centre = log_worths.mean()
    return Worths(log_worths - centre, float(ghost - centre))


def pair_sums(block: RankingBlock, current: Prepared, frozen: Prepared | None) -> PairStatistics:
    """The sums of M-steps that break rankings into pairs.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.zeros((1, 2)), np.zeros(1))
    >>> pair_sums(RankingBlock.from_array([[1, 0]]), params, None).wins.tolist()
    [[[0.0, 0.0], [1.0, 0.0]]]
    """
    return pair_statistics(block, current, frozen)


def wins_of(sums: PairStatistics, component: int) -> NDArray[np.float64]:
    """(n_items, n_items): the wins of one component.

    Examples
    --------
    >>> from plmix_dist.kernels import PairStatistics
    >>> wins_of(PairStatistics(np.zeros(()), np.ones(1), np.zeros((1, 2, 2))), 0).shape
    (2, 2)
    """
    wins: NDArray[np.float64] = sums.wins[component]
    return wins


def square(n_items: int) -> int:
    """How many numbers per component are summed.

    Examples
    --------
    >>> square(10)
    100
    """
    return n_items * n_items


def _losses(wins: NDArray[np.float64], differences: NDArray[np.float64]) -> PairLosses:
    seen = wins + wins.T
    chance, against = expit(differences), expit(-differences)
    curvatures = seen * chance * against
    # Wins less expected wins, without a difference of large numbers where one of the two is nearly certain.
    slopes = wins.T * chance - wins * against
    return PairLosses(float((wins * np.logaddexp(0, -differences)).sum()), slopes, curvatures, curvatures)


CML = MStep("cml", pair_sums, wins_of, cml_step, objective=None, numbers=square)
