"""Log-worths from pairwise wins by least squares: the paper's estimate for one cluster, for any random-utility link."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve
from scipy.special import expit, logit, ndtri

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class Link(NamedTuple):
    """From the probability that i is ranked before j to the difference of their utilities.

    Parameters
    ----------
    quantile
        The difference at which the probability is reached.
    density
        The slope of the probability there, which decides how precisely a frequency tells the difference.
    """

    quantile: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    density: Callable[[NDArray[np.float64]], NDArray[np.float64]]


def _logistic_density(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(expit(difference) * expit(-difference))


def _normal_density(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.exp(-(difference**2) / 2) / np.sqrt(2 * np.pi))


# Probit is Thurstone's model with noise of variance 1/2, so that differences have variance 1.
# To add a link, add it here.
LINKS = {"logit": Link(logit, _logistic_density), "probit": Link(ndtri, _normal_density)}


def least_squares(wins: NDArray[np.float64], link: str = "logit") -> NDArray[np.float64]:
    """(n_items,): log-worths with mean zero whose differences are nearest to the links of the observed frequencies.

    Frequencies are smoothed by half a win each way. Where every pair was seen, all count alike and the solution is a
    mean (Nguyen & Zhang 2023, Algorithm 2); where some were not, each pair counts by the precision of its difference,
    and a trace of a prior holds together items that no comparison connects.

    Parameters
    ----------
    wins : (n_items, n_items)
        Entry [i, j] is how often i was ranked before j.

    Examples
    --------
    >>> least_squares(np.array([[0.0, 7.0], [2.0, 0.0]])).round(4).tolist()
    [0.5493, -0.5493]
    """
    seen = wins + wins.T
    frequency = (wins + 0.5) / (seen + 1.0)
    np.fill_diagonal(frequency, 0.5)
    n_items = len(wins)
    if (seen[~np.eye(n_items, dtype=bool)] > 0).all():
        return np.asarray(LINKS[link].quantile(frequency).mean(axis=1))
    rows, columns = np.nonzero(seen > 0)
    observed = frequency[rows, columns]
    difference = LINKS[link].quantile(observed)
    precision = seen[rows, columns] * LINKS[link].density(difference) ** 2 / (observed * (1 - observed))
    laplacian = sparse.csr_array((-precision, (rows, columns)), shape=wins.shape)
    degree = np.bincount(rows, precision, n_items)
    held = _TRACE * max(1.0, float(degree.max(initial=0.0)))
    system = (laplacian + sparse.diags_array(degree + held)).tocsc()
    solution = np.asarray(spsolve(system, np.bincount(rows, precision * difference, n_items)))
    return np.asarray(solution - solution.mean())


_TRACE = 1e-6
