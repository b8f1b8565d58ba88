"""Clustering by semidefinite programming: the relaxation of kernel k-means by Peng and Wei (2007).

The problem. A clustering of rows with weights w gives the matrix Z with Z_ij = 1 / (weight of the cluster) if rows i
and j are in the same cluster, and 0 otherwise. Let A be the affinity and W = diag(w). The objective of kernel k-means,
the affinity within clusters, is <W A W, Z>. Every such Z is positive semidefinite and nonnegative, with Z w = 1 and
tr(W Z) = n_clusters. The relaxation maximises over all Z with these properties.

Weights. A row of weight w_i stands for w_i copies. Averaging a solution over all orders of the copies does not change
its value. So one may assume that the block of copies of i and j has equal entries z_ij, and that the block of copies of
i has p_i on its diagonal and q_i elsewhere. The objective and the row sums depend only on the mean z_ii of that block.
Semidefiniteness requires p_i >= z_ii, and the trace over copies is sum w_i p_i = K. So the problem with copies is the
problem above with tr(W Z) <= K. If A is positive semidefinite, the maximum has equality: moving Z towards W^-1 raises
the trace and does not lower the objective, since no eigenvalue of W^(1/2) Z W^(1/2) exceeds one. For an indefinite A,
a solution with copies might put copies of a row into different clusters; here they always stay together.

Solution. Let X = W^(1/2) Z W^(1/2) and d = sqrt(w) / |sqrt(w)|. The semidefinite X with X sqrt(w) = sqrt(w) and trace K
are d d' plus a matrix on the complement of d whose eigenvalues are in [0, 1] and sum to K - 1. (They are at most 1
because X is nonnegative, which makes d the leading eigenvector.) The nearest such matrix needs one eigendecomposition;
the nearest nonnegative matrix is the positive part. Douglas-Rachford splitting (ADMM) alternates between the two.

Bound. For any N >= 0, <C, X> <= <C + N, X> <= d'(C + N)d + the sum of the K - 1 largest eigenvalues of C + N on the
complement of d (Ky Fan). The multipliers of the splitting are such an N.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.fitting.starts.clusters import cluster_rows
from plmix_dist.rankings import Floats
from plmix_dist.threads import single_thread

_OVER_RELAXATION = 1.7
_CHECK_EVERY = 10
_ADAPT_EVERY = 20
# The penalty changes only if residuals differ by more than this factor: each change costs some iterations.
_BALANCED = 1.6
# Computing a part of the eigenvectors is faster than computing all if the part is at most this share.
_LARGEST_PART = 0.4
# Coordinates are rounded to this many decimals before k-means, so that rounding errors do not split points.
_SAME_POINT = 9


class _SdpSolution(NamedTuple):
    """The solution of the relaxation for n rows with weights w.

    `matrix` (n, n) is positive semidefinite, with `matrix @ w = 1` and `sum(w * diagonal) = n_clusters` up to rounding,
    and nonnegative within the tolerance. `bound` is an upper bound on the value of every feasible matrix, and so on the
    value of every clustering.
    """

    matrix: Floats
    objective: float
    bound: float
    n_iterations: int
    converged: bool


class _Problem(NamedTuple):
    """Maximise <gain, X>. It is scaled: the objective is `offset + scale * <gain, X>`."""

    gain: Floats
    direction: Floats
    n_clusters: int
    scale: float
    offset: float


def peng_wei(
    affinity: Floats, n_clusters: int, weights: Floats | None = None, *, tol: float = 1e-5, max_iter: int = 3000
) -> _SdpSolution:
    """Solve the semidefinite relaxation of kernel k-means: maximise sum w_i w_j A_ij Z_ij (see the top of this file).

    `affinity` (n, n) is symmetric; a row of weight 3 counts as three copies of it. The iteration ends when two numbers
    are at most `tol`: the distance of the matrix to a nonnegative one, divided by its norm; and the difference between
    bound and objective, divided by the range from the value of a matrix without clusters to the spectral bound. For
    clusters 1e-4 is enough, in a quarter of the time. Each iteration costs an eigendecomposition; if `max_iter` do not
    suffice, `converged` is False, and the bound still holds.
    """
    kernel = _symmetric(affinity)
    root = np.sqrt(_checked_weights(weights, len(kernel)))
    # One thread: the bits of a decomposition must not depend on the number of cores.
    with single_thread():
        problem = _normalised(kernel * np.outer(root, root), root / np.linalg.norm(root), n_clusters)
        if n_clusters in (1, len(kernel)) or problem.scale == 0.0:
            solution = _solved_at_once(problem)
        else:
            solution = _split(problem, tol, max_iter)
    return solution._replace(
        matrix=solution.matrix / np.outer(root, root),
        objective=problem.offset + problem.scale * solution.objective,
        bound=problem.offset + problem.scale * solution.bound,
    )


def clusters_of(
    matrix: Floats, n_clusters: int, rng: np.random.Generator, weights: Floats | None = None
) -> NDArray[np.int64]:
    """(n,): the cluster of each row, from the matrix of a solution; numbered in order of first appearance.

    The rows are projected on the leading `n_clusters` eigenvectors and clustered by weighted k-means. If the relaxation
    is exact, all rows of a cluster are the same point. If there are fewer distinct points than `n_clusters`, there are
    fewer clusters.
    """
    matrix = _symmetric(matrix)
    weight = _checked_weights(weights, len(matrix))
    root = np.sqrt(weight)
    n_rows = len(matrix)
    with single_thread():
        values, vectors = scipy.linalg.eigh(
            matrix * np.outer(root, root), subset_by_index=[n_rows - n_clusters, n_rows - 1]
        )
        # Dividing by this makes coordinates independent of the unit of the weights.
        unit = root / np.linalg.norm(root)
        places = (vectors * values / unit[:, None]).round(_SAME_POINT)
        points, point = np.unique(places, axis=0, return_inverse=True)
        if len(points) <= n_clusters:
            return _numbered_by_first(point)
        labels = cluster_rows(points, np.bincount(point, weight).astype(np.float64), n_clusters, rng, n_tries=10)
    return _numbered_by_first(labels[point])


# --- the splitting ---------------------------------------------------------------------------------------


def _normalised(gain: Floats, direction: Floats, n_clusters: int) -> _Problem:
    """The problem without the parts that are the same for every X: those along `direction`, and the mean eigenvalue.

    The rest is divided by the range of its values: from 0, if X is the same in all directions, to the sum of the
    leading eigenvalues.
    """
    n_others = max(len(gain) - 1, 1)
    along = direction @ gain @ direction
    centred = _off_direction(gain, direction)
    mean = np.trace(centred) / n_others
    centred -= mean * _complement(direction)
    scale = _sum_of_largest(centred, direction, n_clusters - 1)
    # Below this, the rest of the affinity is only rounding error.
    if scale <= 1e-13 * len(gain) * np.abs(gain).max():
        scale = 0.0
    return _Problem(
        gain=centred / (scale or 1.0),
        direction=direction,
        n_clusters=n_clusters,
        scale=float(scale),
        offset=float(along + mean * (n_clusters - 1)),
    )


def _solved_at_once(problem: _Problem) -> _SdpSolution:
    """One cluster, one cluster per row, or an affinity without structure: X is the same in all directions."""
    share = (problem.n_clusters - 1) / max(len(problem.direction) - 1, 1)
    matrix = np.outer(problem.direction, problem.direction) + share * _complement(problem.direction)
    return _SdpSolution(matrix, 0.0, 0.0, 0, True)


def _split(problem: _Problem, tol: float, max_iter: int) -> _SdpSolution:
    """Douglas-Rachford splitting.

    The positive part of `state` is the nonnegative matrix, and its negative part the scaled multipliers. The next
    spectral matrix is the one nearest to their difference, which is the absolute value of `state`, plus the gain.
    """
    n_clusters = problem.n_clusters
    state = _solved_at_once(problem).matrix
    penalty = float(np.linalg.norm(problem.gain)) / np.sqrt(n_clusters)
    bound = np.inf
    n_vectors = n_clusters + 10
    for iteration in range(1, max_iter + 1):
        spectral, n_vectors = _nearest_spectral(
            np.abs(state) + problem.gain / penalty, problem.direction, n_clusters - 1, n_vectors
        )
        nonnegative = np.maximum(state, 0.0)
        difference = spectral - nonnegative
        if iteration % _CHECK_EVERY == 0 or iteration == max_iter:
            bound = min(bound, _upper_bound(problem, -penalty * np.minimum(state, 0.0)))
            value = float(np.vdot(problem.gain, spectral))
            distance = np.linalg.norm(difference) / np.linalg.norm(spectral)
            converged = bool(distance <= tol and abs(bound - value) <= tol)
            if converged:
                break
        state += _OVER_RELAXATION * difference
        # The proof of convergence needs a penalty that is constant in the end.
        if iteration % _ADAPT_EVERY == 0 and iteration <= max_iter // 2:
            factor = _balance(state, spectral, nonnegative)
            penalty *= factor
            state = np.where(state < 0.0, state / factor, state)
    return _SdpSolution(spectral, value, bound, iteration, converged)


def _balance(state: Floats, spectral: Floats, previous: Floats) -> float:
    """The factor for the penalty that balances primal and dual residuals; 1 if they are nearly balanced."""
    nonnegative = np.maximum(state, 0.0)
    primal = np.linalg.norm(spectral - nonnegative) / np.linalg.norm(nonnegative)
    multipliers = np.linalg.norm(state - nonnegative)
    dual = np.linalg.norm(nonnegative - previous) / max(multipliers, np.finfo(float).tiny)
    if primal == 0.0 or dual == 0.0:
        return 1.0
    ratio = float(np.sqrt(primal / dual))
    return 1.0 if 1 / _BALANCED < ratio < _BALANCED else min(max(ratio, 1 / 3), 3.0)


def _nearest_spectral(target: Floats, direction: Floats, total: int, n_vectors: int) -> tuple[Floats, int]:
    """The nearest d d' + V diag(s) V' with V orthogonal to d, 0 <= s <= 1 and sum(s) = total; the next `n_vectors`.

    Only eigenvalues above a threshold are kept, usually few. So only `n_vectors` of them are computed at first.
    """
    n = len(target)
    pushed = _without_direction(target, direction)
    while True:
        whole = n_vectors > _LARGEST_PART * n
        if whole:
            values, vectors = scipy.linalg.eigh(pushed, driver="evd", check_finite=False)
            values, vectors = values[1:], vectors[:, 1:]
        else:
            values, vectors = scipy.linalg.eigh(pushed, subset_by_index=[n - n_vectors, n - 1], check_finite=False)
        kept = _nearest_capped(values, total)
        if whole or kept[0] == 0.0:
            break
        n_vectors *= 2
    chosen = kept > 0.0
    # A product with its own transpose is symmetric in every bit.
    factor = vectors[:, chosen] * np.sqrt(kept[chosen])
    nearest = np.outer(direction, direction)
    nearest += factor @ factor.T
    return nearest, int(1.2 * np.count_nonzero(chosen)) + 5


def _nearest_capped(values: Floats, total: int) -> Floats:
    """The nearest numbers in [0, 1] that sum to `total`: all values are shifted by the same number, then clipped.

    The sum decreases with the shift, linearly between the shifts at which a number reaches 0 or 1.
    """
    turns = np.sort(np.concatenate([values, values - 1.0]))
    low, high = 0, len(turns) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if np.clip(values - turns[middle], 0.0, 1.0).sum() >= total:
            low = middle
        else:
            high = middle
    at_low, at_high = (float(np.clip(values - turns[place], 0.0, 1.0).sum()) for place in (low, high))
    step = (at_low - total) / (at_low - at_high) if at_low > at_high else 0.0
    shift = turns[low] + step * (turns[high] - turns[low])
    capped: Floats = np.clip(values - shift, 0.0, 1.0)
    return capped


def _upper_bound(problem: _Problem, multipliers: Floats) -> float:
    """An upper bound on <gain, X>, valid for any nonnegative multipliers."""
    raised = problem.gain + multipliers
    along = problem.direction @ raised @ problem.direction
    return float(along) + _sum_of_largest(raised, problem.direction, problem.n_clusters - 1)


# --- the complement of a direction -----------------------------------------------------------------------


def _complement(direction: Floats) -> Floats:
    return np.eye(len(direction)) - np.outer(direction, direction)


def _off_direction(matrix: Floats, direction: Floats, eigenvalue: float = 0.0) -> Floats:
    """The matrix on the complement of a direction, with the given eigenvalue along the direction."""
    image = matrix @ direction
    half = image - ((direction @ image + eigenvalue) / 2) * direction
    crossed = np.outer(half, direction)
    result: Floats = matrix - crossed
    result -= crossed.T
    return result


def _without_direction(matrix: Floats, direction: Floats) -> Floats:
    """The matrix on the complement of a direction; the direction becomes the eigenvector of the smallest eigenvalue."""
    return _off_direction(matrix, direction, -1.0 - 2.0 * float(np.linalg.norm(matrix)))


def _sum_of_largest(matrix: Floats, direction: Floats, count: int) -> float:
    """The sum of the largest eigenvalues of a matrix on the complement of a direction."""
    if count == 0:
        return 0.0
    n = len(matrix)
    return float(scipy.linalg.eigvalsh(_without_direction(matrix, direction), subset_by_index=[n - count, n - 1]).sum())


def _numbered_by_first(labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """The same clusters, numbered in order of first appearance."""
    _, first, label = np.unique(labels, return_index=True, return_inverse=True)
    number: NDArray[np.int64] = np.argsort(np.argsort(first)).astype(np.int64)
    return number[label]


def _symmetric(matrix: Floats) -> Floats:
    """The matrix without the rounding errors by which it differs from its transpose."""
    symmetric: Floats = (matrix + matrix.T) / 2
    return symmetric


def _checked_weights(weights: Floats | None, n_rows: int) -> Floats:
    if weights is None:
        return np.ones(n_rows)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if len(bad):
        raise SettingsError(
            f"weights must be positive numbers, but row {bad[0]} has {weights[bad[0]]}; leave such rows out"
        )
    return weights
