"""GMM: generalised method of moments on pairs (Zhao, Villamil & Xia 2018; Nguyen & Zhang 2023).

With f[i, j] the share of i in the weighted wins between i and j, the M-step minimises the sum of
(f[i, j] - sigmoid(x[i] - x[j]))**2 over the pairs that were seen. The sum is not convex. The search begins at the
maximum of the composite marginal likelihood, which is unique and near; it ends at a local minimum. EM with this M-step
has no objective.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from plmix_dist.solvers.cml import centred, cml_step, pair_sums, square, wins_of, wins_with_ghost
from plmix_dist.solvers.m_step import MStep, Worths
from plmix_dist.solvers.pair_losses import PairLosses, minimise_over_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The composite likelihood where the search begins has at least this prior, so that its maximum exists.
_LEAST_ALPHA = 0.1


def gmm_step(wins: NDArray[np.float64], worths: Worths, alpha: float) -> Worths:
    """The worths whose chances are nearest to the frequencies of pairs, from wins (n_items, n_items).

    All pairs of items count the same, however often they were seen. The ghost's pairs, with frequency 1/2, count
    2 alpha / (mean number of comparisons of a pair that was seen): as much as their pseudo-comparisons.

    Examples
    --------
    >>> step = gmm_step(np.array([[0.0, 3.0], [1.0, 0.0]]), Worths(np.zeros(2), 0.0), alpha=0.0)
    >>> np.exp(step.log_worths).round(3).tolist()
    [1.732, 0.577]
    """
    start = cml_step(wins, worths, max(alpha, _LEAST_ALPHA))
    frequencies, counted = _moments(wins, alpha)
    if not alpha:
        found = minimise_over_pairs(partial(_losses, frequencies, counted), start.log_worths)
        return centred(found, worths.ghost)
    begin = np.append(start.log_worths, start.ghost)
    found = minimise_over_pairs(partial(_losses, frequencies, counted), begin)
    return centred(found[:-1], float(found[-1]))


def _moments(wins: NDArray[np.float64], alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The frequency of every pair, and how much it counts; with those of the ghost, if there is a prior."""
    seen = wins + wins.T
    n_seen = np.count_nonzero(seen)
    per_pair = float(seen.sum()) / n_seen if n_seen else 1.0
    counted = (seen > 0).astype(np.float64)
    if alpha:
        wins = wins_with_ghost(wins, alpha)
        seen = wins + wins.T
        counted = np.pad(counted, (0, 1), constant_values=2 * alpha / per_pair)
        counted[-1, -1] = 0.0
    frequencies = np.divide(wins, seen, out=np.full_like(seen, 0.5), where=seen > 0)
    return frequencies, counted


def _losses(
    frequencies: NDArray[np.float64], counted: NDArray[np.float64], differences: NDArray[np.float64]
) -> PairLosses:
    chance, against = expit(differences), expit(-differences)
    density = chance * against
    # f - chance, from the smaller of the two sides: no digits are lost where both are nearly one.
    away = np.where(differences > 0, against - frequencies.T, frequencies - chance)
    gauss_newton = 2 * counted * density**2
    curvatures = gauss_newton - 2 * counted * away * density * (against - chance)
    return PairLosses(
        float((counted * away**2).sum()) / 2, -2 * counted * away * density, curvatures, gauss_newton
    )


GMM = MStep("gmm", pair_sums, wins_of, gmm_step, objective=None, numbers=square)
