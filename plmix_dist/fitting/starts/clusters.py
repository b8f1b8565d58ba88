"""Clusters of rows by weighted k-means, and the worths of a cluster: by least squares, by LSR, by a few MM steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import spsolve
from scipy.special import expit, logit, ndtri

from plmix_dist.kernels import prepare
from plmix_dist.kernels.em_pass import EmStatistics, statistics_at
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.solvers import LSR, ComponentStatistics, Worths, gradient, mm_step
from plmix_dist.threads import single_thread

# k-means is tried several times on this many rows. The best try then continues on all rows.
_TRY_ROWS = 3_000
_N_TRIES = 6
# It ends when the centres have moved, in total, by less than this share of the variance of the points.
_SETTLED = 1e-6
_MOST_MOVES = 100
_MOVES_OF_TRIES = 10


def cluster_rows(
    points: Floats, weights: Floats, n_clusters: int, rng: np.random.Generator, n_tries: int = _N_TRIES
) -> NDArray[np.int64]:
    """(n_rows,): the cluster of each row, by weighted k-means of points (n_rows, n_directions).

    k-means++ is tried several times on a part of the rows, all tries side by side; the best try continues on all rows.
    Some clusters stay empty if there are fewer than `n_clusters` distinct points.
    """
    n_clusters = min(n_clusters, len(points))
    points = points - np.average(points, axis=0, weights=weights)
    tried = np.arange(len(points))
    if len(points) > _TRY_ROWS:
        tried = np.sort(rng.choice(len(points), _TRY_ROWS, replace=False))
    # One thread: several threads add in any order, which changes the last bits.
    with single_thread():
        some, own = points[tried], weights[tried]
        n_moves = _MOST_MOVES if len(tried) == len(points) else _MOVES_OF_TRIES
        centres, within = _moved(some, own, _spread_out(some, own, n_clusters, n_tries, rng), n_moves)
        centres, _ = _moved(points, weights, centres[[within.argmin()]], _MOST_MOVES)
        labels: NDArray[np.int64] = _distances(points, centres)[0].argmin(axis=0)
    return labels


def _spread_out(points: Floats, weights: Floats, n_clusters: int, n_tries: int, rng: np.random.Generator) -> Floats:
    """(n_tries, n_clusters, n_directions): points drawn one by one, those far from the ones before likelier."""
    centres = np.empty((n_tries, n_clusters, points.shape[1]))
    chances = np.tile(weights, (n_tries, 1))
    nearest, lengths = np.full(chances.shape, np.inf), (points**2).sum(axis=1)
    for number in range(n_clusters):
        so_far = chances.cumsum(axis=1)
        drawn = (so_far < rng.random((n_tries, 1)) * so_far[:, -1:]).sum(axis=1).clip(max=len(points) - 1)
        centres[:, number] = points[drawn]
        nearest = np.minimum(nearest, _distances(points, centres[:, [number]])[:, 0])
        chances = weights * (nearest + lengths).clip(0.0)
    return centres


def _distances(points: Floats, centres: Floats) -> Floats:
    """(n_tries, n_clusters, n_rows): squared distances from centres, less the squared length of each point."""
    n_tries, n_clusters, n_directions = centres.shape
    flat = centres.reshape(-1, n_directions)
    return np.asarray(((flat**2).sum(axis=1)[:, None] - 2 * flat @ points.T).reshape(n_tries, n_clusters, -1))


def _moved(points: Floats, weights: Floats, centres: Floats, most_moves: int) -> tuple[Floats, Floats]:
    """Centres (n_tries, n_clusters, n_directions) moved until they settle, and the sums of squares (n_tries,)."""
    weighted = np.column_stack([weights, weights[:, None] * points])
    least = _SETTLED * float((weights @ points**2).mean() / weights.sum())
    for _ in range(most_moves):
        apart = _distances(points, centres)
        nearest = apart.min(axis=1)  # faster than argmin; a point may be nearest to two centres
        own = (apart == nearest[:, None]).astype(np.float64)
        sums = (own.reshape(-1, len(points)) @ weighted).reshape(*centres.shape[:2], -1)
        # The centre of an empty cluster stays where it is.
        moved = np.divide(sums[:, :, 1:], sums[:, :, :1], out=centres.copy(), where=sums[:, :, :1] > 0)
        change = float(((moved - centres) ** 2).sum(axis=(1, 2)).max())
        centres = moved
        if change <= least:
            break
    return centres, nearest @ weights


def one_hot(labels: NDArray[np.integer], n_clusters: int) -> Floats:
    """(n_rows, n_clusters): 1 in the column of a row's cluster, 0 elsewhere."""
    return np.asarray(labels[:, None] == np.arange(n_clusters), np.float64)


# Log-worths from pairwise wins by least squares: the paper's estimate for one cluster, with a choice of links.

# Precision of the prior on log-worths, as a share of the largest precision of an item.
_WEAK_PRIOR = 1e-6


class _Link(NamedTuple):
    """Relates the probability that i is ranked before j to the difference of their utilities.

    `quantile` goes from a probability to the difference. `density`, the derivative of the probability at a difference,
    decides how precise an estimated difference is.
    """

    quantile: Callable[[Floats], Floats]
    density: Callable[[Floats], Floats]


def _logistic_density(difference: Floats) -> Floats:
    return np.asarray(expit(difference) * expit(-difference))


def _normal_density(difference: Floats) -> Floats:
    return np.asarray(np.exp(-(difference**2) / 2) / np.sqrt(2 * np.pi))


# Probit is Thurstone's model with noise of variance 1/2, so that differences of noise have variance 1.
# To add a link, add it here.
_LINKS = {"logit": _Link(logit, _logistic_density), "probit": _Link(ndtri, _normal_density)}


def least_squares(wins: Floats, link: str = "logit") -> Floats:
    """(n_items,): log-worths with mean zero, fitted by least squares to the differences that frequencies of pairs give.

    Entry [i, j] of `wins` is how often i was ranked before j. Frequencies are smoothed by half a win for each side. If
    every pair was observed, all pairs have the same weight and the solution is a mean (Nguyen & Zhang 2023, Algorithm
    2). Otherwise each pair is weighted by the precision of its difference. A very weak prior then keeps the solution
    unique if comparisons do not connect all items.
    """
    seen = wins + wins.T
    # With weights above 1e15 a frequency would be rounded to 1, whose quantile is infinite.
    frequency = np.clip((wins + 0.5) / (seen + 1.0), 1e-15, 1 - 1e-15)
    np.fill_diagonal(frequency, 0.5)
    if (seen[~np.eye(len(wins), dtype=bool)] > 0).all():
        return np.asarray(_LINKS[link].quantile(frequency).mean(axis=1))
    return _weighted_by_precision(seen, frequency, _LINKS[link])


def _weighted_by_precision(seen: Floats, frequency: Floats, link: _Link) -> Floats:
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


# One Plackett-Luce model per cluster by Luce spectral ranking: the other estimate of worths at the start.

# Half a win and half a loss per item, as least squares has per pair: in a small cluster an item may win always.
_ALPHA = 0.5
# LSR ends when the squares of all changes of log-worths sum to at most this. A start needs no more digits.
_TOLERANCE = 1e-4
_MOST_STEPS = 50


def lsr_in_clusters(step: Callable[[Sequence[Worths]], Sequence[Worths]], n_clusters: int, n_items: int) -> Floats:
    """(n_clusters, n_items): log-worths of each cluster, from equal worths by steps of LSR in all clusters."""
    worths: Sequence[Worths] = [Worths(np.zeros(n_items), 0.0) for _ in range(n_clusters)]
    for _ in range(_MOST_STEPS):
        after = step(worths)
        change = sum(
            float(((new.log_worths - old.log_worths) ** 2).sum()) for new, old in zip(after, worths, strict=True)
        )
        worths = after
        if change <= _TOLERANCE:
            break
    return np.array([own.log_worths for own in worths])


def cluster_sums(
    block: RankingBlock, memberships: Floats, worths: Sequence[Worths], *, with_rates: bool = True
) -> EmStatistics:
    """The sums of each cluster over the rows of a block; memberships (n_rankings, n_clusters)."""
    log_worths = np.array([own.log_worths for own in worths])
    no_shares = np.full(len(worths), -np.log(len(worths)))
    return statistics_at(block, prepare(log_worths, no_shares), memberships, 0.0, with_rates=with_rates)


def cluster_step(sums: EmStatistics, cluster: int, worths: Worths) -> Worths:
    """The worths of one cluster after a step of LSR with a weak prior."""
    assert LSR.step is not None
    return LSR.step(LSR.component(sums, cluster), worths, _ALPHA)


# Plackett-Luce models of clusters of rows: a few MM steps, enough for a start.

_N_STEPS = 10


def fit_one_model(block: RankingBlock) -> Worths:
    """Log-worths (n_items,) near the maximum-likelihood estimate."""
    return fit_models(block, np.ones((block.n_rankings, 1)))[0]


def fit_models(block: RankingBlock, memberships: Floats, n_steps: int = _N_STEPS) -> list[Worths]:
    """The worths of each cluster; memberships (n_rankings, n_clusters). The steps begin with equal worths."""
    models = [Worths(np.zeros(block.n_items), 0.0) for _ in range(memberships.shape[1])]
    for _ in range(n_steps):
        sums = cluster_sums(block, memberships, models, with_rates=False)
        own = [ComponentStatistics(*both, sums.rates) for both in zip(sums.wins, sums.expected_wins, strict=True)]
        models = [
            mm_step(worths, gradient(each, worths, _ALPHA), _ALPHA) for worths, each in zip(models, own, strict=True)
        ]
    return models
