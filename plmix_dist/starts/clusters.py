"""Weighted k-means on projected rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

# k-means is tried several times on this many rows. The best try then continues on all rows.
_TRY_ROWS = 5_000
_N_TRIES = 6


def cluster_rows(
    points: NDArray[np.float64], weights: NDArray[np.float64], n_clusters: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(n_rows,): the cluster of each row, by weighted k-means.

    k-means++ is tried several times on a part of the rows; the best try continues on all rows. Some clusters stay
    empty if there are fewer than `n_clusters` distinct points.

    Parameters
    ----------
    points : (n_rows, n_directions)
    weights : (n_rows,)
    n_clusters
        The number of clusters.
    rng
        Chooses the rows and the first centres.

    Examples
    --------
    >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> labels = cluster_rows(points, np.ones(4), 2, np.random.default_rng(0))
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    n_clusters = min(n_clusters, len(points))
    tried = np.arange(len(points))
    if len(points) > _TRY_ROWS:
        tried = np.sort(rng.choice(len(points), _TRY_ROWS, replace=False))
    # One thread: several threads add in any order, which changes the last bits.
    with single_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = KMeans(n_clusters, n_init=_N_TRIES, random_state=int(rng.integers(1 << 31))).fit(
            points[tried], sample_weight=weights[tried]
        )
        if len(tried) < len(points):
            best = KMeans(n_clusters, init=best.cluster_centers_, n_init=1, random_state=0).fit(
                points, sample_weight=weights
            )
    labels: NDArray[np.int64] = best.labels_.astype(np.int64)
    return labels


def one_hot(labels: NDArray[np.integer], n_clusters: int) -> NDArray[np.float64]:
    """(n_rows, n_clusters): 1 in the column of a row's cluster, 0 elsewhere.

    Examples
    --------
    >>> one_hot(np.array([1, 0]), 2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return np.asarray(labels[:, None] == np.arange(n_clusters), np.float64)
