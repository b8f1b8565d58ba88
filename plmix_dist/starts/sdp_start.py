"""The kernel start for partial rankings: clusters of a small sample by semidefinite programming, then worths.

The paper's supplement names it in place of spectral clustering where rankings are partial: a kernel that compares two
partial rankings (Kendall's or Mallows', Jiao & Vert 2015), and the Peng-Wei relaxation of k-means on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.merge import merge_equal_rows
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.sampling import thinned
from plmix_dist.starts.peng_wei import clusters_of, peng_wei
from plmix_dist.starts.ranking_similarity import KERNELS, mean_preferences
from plmix_dist.starts.spectral_start import cluster_worths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock
    from plmix_dist.stages import Stages
    from plmix_dist.starts.start_settings import StartSettings

# The relaxation works on a matrix of rows by rows and takes seconds at this size.
_CLUSTERED_ROWS = 300
_ASSIGNED_ROWS = 20_000
_MOST_ITEMS = 300
# Clusters do not change any more long before the last digits of the relaxation do.
_TOLERANCE = 1e-4


def sdp_start(
    sample: RankingBlock, settings: StartSettings, stages: Stages
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, Any]]:
    """Log-worths (n_components, n_items), shares (n_components,), and what is to be known of the relaxation."""
    if sample.n_items > _MOST_ITEMS:
        raise SettingsError(
            f"init='kernel' compares all pairs of items, and {sample.n_items} items have too many; it takes up to "
            f"{_MOST_ITEMS}. Choose init='spectral'"
        )
    rng = generator(settings.seed, "kernel")
    assigned = _thinned(sample, _ASSIGNED_ROWS, rng)
    clustered = _thinned(assigned, _CLUSTERED_ROWS, rng)
    # What was on offer must not become the signal: it would where rows differ in that.
    options: dict[str, Any] = {} if _all_on_offer(sample) else {"centre": mean_preferences(assigned)}
    compare = KERNELS[settings.kernel]
    n_clusters = min(settings.n_components, clustered.n_rankings)
    with stages.stage("semidefinite-program", rows=clustered.n_rankings):
        affinity = compare(clustered, clustered, **options)
        solution = peng_wei(affinity, n_clusters, clustered.weights, tol=_TOLERANCE)
        clusters = clusters_of(solution.matrix, n_clusters, rng, clustered.weights)
    with stages.stage("assign", rows=assigned.n_rankings):
        labels = _nearest(compare(assigned, clustered, **options), affinity, clusters, clustered.weights)
    with stages.stage("worths", rows=assigned.n_rankings):
        log_worths, shares = cluster_worths(assigned, labels, settings)
    about = {
        "kernel": settings.kernel,
        "objective": solution.objective,
        "bound": solution.bound,
        "sdp_converged": solution.converged,
    }
    return log_worths, shares, about


def _thinned(block: RankingBlock, n_rankings: int, rng: np.random.Generator) -> RankingBlock:
    """About this many rankings, equal ones made one."""
    return merge_equal_rows(thinned(block, n_rankings, rng))


def _all_on_offer(block: RankingBlock) -> bool:
    return bool((block.below | (block.n_listed == block.n_items)).all())


def _nearest(
    similarity: NDArray[np.float64],
    affinity: NDArray[np.float64],
    clusters: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
) -> NDArray[np.int64]:
    """(n_rows,): the cluster whose mean, in the kernel's space, is nearest to each row.

    Parameters
    ----------
    similarity : (n_rows, n_clustered)
    affinity : (n_clustered, n_clustered)
    clusters : (n_clustered,)
    """
    ones = np.ones(len(clusters)) if weights is None else weights
    members = (clusters[:, None] == np.arange(clusters.max() + 1)) * ones[:, None]
    members = members / members.sum(axis=0)
    lengths = np.einsum("ik,ij,jk->k", members, affinity, members, optimize=True)
    return np.asarray((lengths - 2 * similarity @ members).argmin(axis=1), np.int64)
