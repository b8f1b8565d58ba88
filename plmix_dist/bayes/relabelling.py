"""Label switching: components of every draw put into the order of a pivot.

The posterior does not change when components are renamed, so chains may name them differently, and a chain may change
names on its way. Means over draws make sense after all draws have been given the names of one draw, the pivot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]

_MOST_ROUNDS = 20


def relabelling(log_worths: Table, log_shares: Table, pivot: int) -> NDArray[np.int64]:
    """(n_draws, n_components): which component of a draw takes the place of each component of the pivot.

    First every draw is matched with the pivot: the assignment of components with the least squared distance of
    log-worths and log-shares. Then draws are matched with the means of the relabelled draws, distances divided by their
    variances, until nothing changes: an item about which little is known then counts little.

    Parameters
    ----------
    log_worths : (n_draws, n_components, n_items)
    log_shares : (n_draws, n_components)
    pivot
        The number of the draw that gives the names.

    Examples
    --------
    >>> one, other = [2.0, -2.0], [-2.0, 2.0]
    >>> draws = np.array([[one, other], [other, one], [one, other]])
    >>> relabelling(draws, np.zeros((3, 2)), pivot=0).tolist()
    [[0, 1], [1, 0], [0, 1]]
    """
    features = np.concatenate([log_worths, log_shares[..., None]], axis=2)
    n_draws, n_components, _ = features.shape
    if n_components == 1:
        return np.zeros((n_draws, 1), np.int64)
    order = _matched(features, features[pivot], np.ones_like(features[pivot]))
    for _ in range(_MOST_ROUNDS):
        named = np.take_along_axis(features, order[..., None], axis=1)
        variances = named.var(axis=0)
        # Some variance is needed where draws agree exactly.
        again = _matched(features, named.mean(axis=0), variances + 1e-6 + 1e-3 * variances.mean())
        if np.array_equal(again, order):
            break
        order = again
    # The pivot keeps its names.
    names = np.argsort(order[pivot])
    found: NDArray[np.int64] = order[:, names]
    return found


def _matched(features: Table, means: Table, variances: Table) -> NDArray[np.int64]:
    """The best assignment of each draw: least distances in units of variances, and their logarithms."""
    costs = np.stack(
        [
            ((features - mean) ** 2 / variance).sum(axis=2) + np.log(variance).sum()
            for mean, variance in zip(means, variances, strict=True)
        ],
        axis=1,
    )  # (n_draws, component of the means, component of the draw)
    nearest = costs.argmin(axis=2)
    settled = np.array([len(set(row)) == len(row) for row in nearest.tolist()])
    order = nearest.astype(np.int64)
    for draw in np.flatnonzero(~settled):
        order[draw] = linear_sum_assignment(costs[draw])[1]
    found: NDArray[np.int64] = order
    return found
