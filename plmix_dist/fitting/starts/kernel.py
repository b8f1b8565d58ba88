"""The start init="kernel": clusters of a small sample by semidefinite programming, then worths per cluster.

The paper's supplement proposes it for partial rankings in place of spectral clustering: a similarity of partial
rankings (Kendall's or Mallows', Jiao & Vert 2015), and the Peng-Wei relaxation of k-means with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmix_dist.display.progress import Stages
from plmix_dist.errors import SettingsError
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.starts.sdp import clusters_of, peng_wei
from plmix_dist.fitting.starts.spectral import cluster_worths
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.groups import merge_equal_rows
from plmix_dist.rankings.sampling import generator, thinned

# Kendall's and Mallows' similarity of partial rankings (the kernels of Jiao and Vert 2015).

# How many signs are held at once: some tens of megabytes. Rows are processed in slabs of this size.
_SLAB_CELLS = 1 << 23
# Sums of signs are integers. Single precision represents integers exactly up to this number.
_EXACT_IN_FLOAT32 = 1 << 24
# Centres are rounded to multiples of this. Sums of products are then exact in double precision (up to about 1,000
# items), so results do not depend on slabs and threads.
_CENTRE_STEP = 2.0**-16


def _kendall_similarity(left: RankingBlock, right: RankingBlock, centre: Floats | None = None) -> Floats:
    """(n_left, n_right): Kendall's tau between rankings, 1 for the same order and -1 for the opposite order.

    It is the inner product over pairs that both rankings order, divided by the square root of the product of the
    numbers of pairs that each orders. The similarity of a ranking with itself is 1 for every length. Nothing is assumed
    about items that were not offered.

    `centre` (n_pairs,) is the mean sign of each pair (`_mean_preferences`). It is subtracted from the known signs, so
    that unknown pairs contribute 0. Use it to cluster rankings with different offered sets: without it they are similar
    because almost everyone agrees on the pairs that both were offered, and clusters show offered sets. Do not use it
    for top-k rankings: there the pairs that are not ordered are a choice of the ranker.
    """
    middle = None if centre is None else np.rint(centre / _CENTRE_STEP) * _CENTRE_STEP
    similarity = np.empty((left.n_rankings, right.n_rankings))
    for rows, slab in _slabs(left):
        mine, my_sizes = _signs(slab, middle)
        for columns, other_slab in _slabs(right):
            theirs, their_sizes = _signs(other_slab, middle)
            sizes = np.sqrt(np.outer(my_sizes, their_sizes))
            # A ranking that orders no pair has similarity 0 with every ranking.
            sizes[sizes == 0.0] = 1.0
            np.divide(mine @ theirs.T, sizes, out=similarity[rows, columns])
    return similarity


def _mallows_similarity(left: RankingBlock, right: RankingBlock, centre: Floats | None = None) -> Floats:
    """(n_left, n_right): exp(-2 / n_pairs * number of discordant pairs); partial rankings have an expected number.

    That number is n_pairs * (1 - tau) / 2 with tau from `_kendall_similarity`: it is extrapolated from the pairs that
    both rankings order. The matrix of tau is positive semidefinite, and so is its exponential. It is exp(-1) if tau
    is 0.
    """
    n_pairs = comb(left.n_items, 2)
    similarity = _kendall_similarity(left, right, centre)
    similarity -= 1.0
    similarity *= 2.0 / max(n_pairs, 1) * n_pairs / 2
    return np.exp(similarity, out=similarity)


def _mean_preferences(block: RankingBlock) -> Floats:
    """(n_pairs,): the weighted mean sign of each pair over the rankings that order it, 0 if there are none.

    Pairs (i, j) with i < j are in the order of `numpy.triu_indices(n_items, 1)`.
    """
    sums = np.zeros(comb(block.n_items, 2))
    known = np.zeros_like(sums)
    for _, slab in _slabs(block):
        signs, _ = _signs(slab, None)
        # einsum uses one thread, so the bits do not depend on the number of cores.
        sums += np.einsum("r,rp->p", slab.row_weights, signs)
        known += np.einsum("r,rp->p", slab.row_weights, np.abs(signs))
    return np.divide(sums, known, out=np.zeros_like(sums), where=known > 0)


def _slabs(block: RankingBlock) -> Iterator[tuple[slice, RankingBlock]]:
    """Slabs of consecutive rows whose signs are held at once."""
    size = max(1, _SLAB_CELLS // max(comb(block.n_items, 2), 1))
    for start in range(0, block.n_rankings, size):
        rows = slice(start, min(start + size, block.n_rankings))
        yield rows, block[rows]


def _signs(block: RankingBlock, centre: Floats | None) -> tuple[NDArray[np.floating], Floats]:
    """Signs of every pair in every row (n_rows, n_pairs), integers without a centre; how many are known (n_rows,).

    The similarity of two rows is their inner product, divided by the square root of the product of these numbers.
    """
    levels, offered = _levels(block)
    n_rows, n_items = levels.shape
    n_pairs = comb(n_items, 2)
    whole = centre is None and n_pairs < _EXACT_IN_FLOAT32
    values = np.empty((n_rows, n_pairs), np.float32 if whole else np.float64)
    all_offered = bool(offered.all())
    start = 0
    for first in range(n_items - 1):
        pairs = values[:, start : start + n_items - 1 - first]
        start += n_items - 1 - first
        np.sign(levels[:, first + 1 :] - levels[:, first, None], out=pairs, casting="unsafe")
        if not all_offered:
            pairs *= offered[:, first, None] & offered[:, first + 1 :]
    n_known = np.count_nonzero(values, axis=1).astype(np.float64)
    if centre is not None:
        values -= np.abs(values) * centre
    return values, n_known


def _levels(block: RankingBlock) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """(n_rankings, n_items) each: how many items are before an item, equal for tied items; and whether it was offered.

    Items that were offered but not ordered share the last level, listed or not.
    """
    row, place = block.row_of_item(), block.place_of_item()
    if block.tied is not None:
        # Every tied item gets the place of the first item of its tie.
        place = place[np.maximum.accumulate(np.where(block.tied, 0, np.arange(len(place))))]
    n_ordered = block.n_ordered.astype(np.int64)
    levels = np.repeat(n_ordered[:, None].astype(np.int32), block.n_items, axis=1)
    levels[row, block.items] = np.minimum(place, n_ordered[row])
    offered = np.repeat(block.below[:, None], block.n_items, axis=1)
    offered[row, block.items] = True
    return levels, offered


# What users type as kernel=. To add one, add a function of two blocks here.
_SIMILARITIES = {"kendall": _kendall_similarity, "mallows": _mallows_similarity}


# The relaxation needs a matrix with one row and one column per ranking. It takes seconds at this size.
_CLUSTERED_ROWS = 300
_ASSIGNED_ROWS = 20_000
_MOST_ITEMS = 300
# Clusters no longer change below this tolerance.
_TOLERANCE = 1e-4


def sdp_start(sample: RankingBlock, settings: FitSettings, stages: Stages) -> tuple[Floats, Floats, dict[str, Any]]:
    """Log-worths (n_components, n_items), shares (n_components,), and a record of the relaxation.

    Rankings are clustered one by one, also those of one person.
    """
    if sample.n_items > _MOST_ITEMS:
        raise SettingsError(
            f"init='kernel' compares all pairs of items, so it takes at most {_MOST_ITEMS} items, but there are "
            f"{sample.n_items}; choose init='spectral'"
        )
    rng = generator(settings.seed, "kernel")
    assigned = _thinned(sample, _ASSIGNED_ROWS, rng)
    clustered = _thinned(assigned, _CLUSTERED_ROWS, rng)
    # Without a centre, rows with different offered sets would be clustered by their offered sets.
    all_offered = (sample.below | (sample.n_listed == sample.n_items)).all()
    centre = None if all_offered else _mean_preferences(assigned)
    similarity = _SIMILARITIES[settings.kernel]
    n_clusters = min(settings.n_components, clustered.n_rankings)
    with stages.stage("semidefinite-program", rows=clustered.n_rankings):
        affinity = similarity(clustered, clustered, centre)
        solution = peng_wei(affinity, n_clusters, clustered.weights, tol=_TOLERANCE)
        clusters = clusters_of(solution.matrix, n_clusters, rng, clustered.weights)
    with stages.stage("assign", rows=assigned.n_rankings):
        labels = _nearest(similarity(assigned, clustered, centre), affinity, clusters, clustered.row_weights)
    with stages.stage("worths", rows=assigned.n_rankings):
        log_worths, shares = cluster_worths(assigned, labels, settings)
    about = {"kernel": settings.kernel, "objective": solution.objective, "bound": solution.bound}
    return log_worths, shares, about | {"sdp_converged": solution.converged}


def _thinned(block: RankingBlock, n_rankings: int, rng: np.random.Generator) -> RankingBlock:
    """About this many rankings; equal rows are merged into one row with their total weight. Groups are left out."""
    return merge_equal_rows(thinned(block, n_rankings, rng).replace(groups=None))


def _nearest(similarity: Floats, affinity: Floats, clusters: NDArray[np.int64], weights: Floats) -> NDArray[np.int64]:
    """(n_rows,): the cluster whose mean is nearest to each row, in the space where similarities are inner products.

    `similarity` is (n_rows, n_clustered), `affinity` (n_clustered, n_clustered).
    """
    members = (clusters[:, None] == np.arange(clusters.max() + 1)) * weights[:, None]
    members = members / members.sum(axis=0)
    lengths = np.einsum("ik,ij,jk->k", members, affinity, members, optimize=True)
    return np.asarray((lengths - 2 * similarity @ members).argmin(axis=1), np.int64)
