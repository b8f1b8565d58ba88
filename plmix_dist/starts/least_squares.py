"""Log-worths from pairwise wins by least squares: the paper's estimate for one cluster, with a choice of links."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve
from scipy.special import expit, logit, ndtri

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# Precision of the prior on log-worths, as a share of the largest precision of an item.
_WEAK_PRIOR = 1e-6


class Link(NamedTuple):
    """Relates the probability that i is ranked before j to the difference of their utilities.

    Parameters
    ----------
    quantile
        From a probability to the difference of utilities.
    density
        The derivative of the probability at a difference. It decides how precise an estimated difference is.

    Examples
    --------
    >>> LINKS["logit"].quantile(np.array([0.75])).round(4).tolist()
    [1.0986]
    """

    quantile: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    density: Callable[[NDArray[np.float64]], NDArray[np.float64]]


def _logistic_density(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(expit(difference) * expit(-difference))


def _normal_density(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.exp(-(difference**2) / 2) / np.sqrt(2 * np.pi))


# Probit is Thurstone's model with noise of variance 1/2, so that differences of noise have variance 1.
# To add a link, add it here.
LINKS = {"logit": Link(logit, _logistic_density), "probit": Link(ndtri, _normal_density)}


def least_squares(wins: NDArray[np.float64], link: str = "logit") -> NDArray[np.float64]:
    """(n_items,): log-worths with mean zero, fitted by least squares to the differences that frequencies of pairs give.

    Frequencies are smoothed by half a win for each side. If every pair was observed, all pairs have the same weight
    and the solution is a mean (Nguyen & Zhang 2023, Algorithm 2). Otherwise each pair is weighted by the precision of
    its difference. A very weak prior then keeps the solution unique if comparisons do not connect all items.

    Parameters
    ----------
    wins : (n_items, n_items)
        Entry [i, j] is how often i was ranked before j.
    link
        A name in `LINKS`.

    Examples
    --------
    >>> least_squares(np.array([[0.0, 7.0], [2.0, 0.0]])).round(4).tolist()
    [0.5493, -0.5493]
    """
    seen = wins + wins.T
    # With weights above 1e15 a frequency would be rounded to 1, whose quantile is infinite.
    frequency = np.clip((wins + 0.5) / (seen + 1.0), 1e-15, 1 - 1e-15)
    np.fill_diagonal(frequency, 0.5)
    if (seen[~np.eye(len(wins), dtype=bool)] > 0).all():
        return np.asarray(LINKS[link].quantile(frequency).mean(axis=1))
    return _weighted_by_precision(seen, frequency, LINKS[link])


def _weighted_by_precision(
    seen: NDArray[np.float64], frequency: NDArray[np.float64], link: Link
) -> NDArray[np.float64]:
    """Least squares over the observed pairs: a linear system with the Laplacian of their graph."""
    n_items = len(seen)
    rows, columns = np.nonzero(seen > 0)
    observed = frequency[rows, columns]
    difference = link.quantile(observed)
    precision = seen[rows, columns] * link.density(difference) ** 2 / (observed * (1 - observed))
    laplacian = sparse.csr_array((-precision, (rows, columns)), shape=seen.shape)
    degree = np.bincount(rows, precision, n_items)
    prior = _WEAK_PRIOR * max(1.0, float(degree.max(initial=0.0)))
    system = (laplacian + sparse.diags_array(degree + prior)).tocsc()
    solution = np.asarray(spsolve(system, np.bincount(rows, precision * difference, n_items)))
    return np.asarray(solution - solution.mean())
