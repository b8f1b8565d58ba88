"""The start init="kernel": clusters of a small sample by semidefinite programming, then worths per cluster.

The paper's supplement proposes it for partial rankings in place of spectral clustering: a similarity of partial
rankings (Kendall's or Mallows', Jiao & Vert 2015), and the Peng-Wei relaxation of k-means with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.merge import merge_equal_rows
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.sampling import thinned
from plmix_dist.starts.peng_wei import clusters_of, peng_wei
from plmix_dist.starts.ranking_similarity import SIMILARITIES, mean_preferences
from plmix_dist.starts.spectral_start import cluster_worths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock
    from plmix_dist.stages import Stages
    from plmix_dist.starts.start_settings import StartSettings

# The relaxation needs a matrix with one row and one column per ranking. It takes seconds at this size.
_CLUSTERED_ROWS = 300
_ASSIGNED_ROWS = 20_000
_MOST_ITEMS = 300
# Clusters no longer change below this tolerance.
_TOLERANCE = 1e-4


def sdp_start(
    sample: RankingBlock, settings: StartSettings, stages: Stages
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, Any]]:
    """Log-worths (n_components, n_items), shares (n_components,), and a record of the relaxation.

    Rankings are clustered one by one, also those of one person.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.stages import Stages
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> sample = RankingBlock.from_array([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10)
    >>> _, shares, about = sdp_start(sample, StartSettings(2, init="kernel"), Stages())
    >>> sorted(shares.tolist()), about["kernel"]
    ([0.25, 0.75], 'kendall')
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
    centre = None if _all_offered(sample) else mean_preferences(assigned)
    similarity = SIMILARITIES[settings.kernel]
    n_clusters = min(settings.n_components, clustered.n_rankings)
    with stages.stage("semidefinite-program", rows=clustered.n_rankings):
        affinity = similarity(clustered, clustered, centre=centre)
        solution = peng_wei(affinity, n_clusters, clustered.weights, tol=_TOLERANCE)
        clusters = clusters_of(solution.matrix, n_clusters, rng, clustered.weights)
    with stages.stage("assign", rows=assigned.n_rankings):
        to_clustered = similarity(assigned, clustered, centre=centre)
        labels = _nearest(to_clustered, affinity, clusters, clustered.row_weights)
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
    """About this many rankings; equal rows are merged into one row with their total weight. Groups are left out."""
    return merge_equal_rows(thinned(block, n_rankings, rng).replace(groups=None))


def _all_offered(block: RankingBlock) -> bool:
    return bool((block.below | (block.n_listed == block.n_items)).all())


def _nearest(
    similarity: NDArray[np.float64],
    affinity: NDArray[np.float64],
    clusters: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> NDArray[np.int64]:
    """(n_rows,): the cluster whose mean is nearest to each row, in the space where similarities are inner products.

    Parameters
    ----------
    similarity : (n_rows, n_clustered)
    affinity : (n_clustered, n_clustered)
    clusters, weights : (n_clustered,)
    """
    members = (clusters[:, None] == np.arange(clusters.max() + 1)) * weights[:, None]
    members = members / members.sum(axis=0)
    lengths = np.einsum("ik,ij,jk->k", members, affinity, members, optimize=True)
    return np.asarray((lengths - 2 * similarity @ members).argmin(axis=1), np.int64)
