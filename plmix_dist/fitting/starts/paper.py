"""The spectral start as published: pairs of all rows, dask-ml's SVD on the workers, k-means, worths of clusters.

Everything that grows with the number of pairs stays on the workers. This process gets `rank` numbers per ranking, for
k-means, and sends back one small number per ranking, its cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.clients import Client
from plmix_dist.display.progress import Stages
from plmix_dist.errors import SettingsError
from plmix_dist.fitting.algorithm import counted_stage
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.starts import clusters as clustering
from plmix_dist.fitting.starts.embeddings import PairRows, pair_frequencies
from plmix_dist.fitting.starts.spectral import SpectralStart, choose_rank, from_gram, n_sought, projected, without_empty
from plmix_dist.kernels import EmStatistics, pairwise_wins
from plmix_dist.passes.leaves import LeafSource
from plmix_dist.passes.rankings import Rankings
from plmix_dist.passes.request import Aggregation, Finish, Passes, Request, ask
from plmix_dist.passes.svd import OVERSAMPLES, PASSES_OVER_ROWS, Svd, svd_of_leaves
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.sampling import generator
from plmix_dist.solvers import Worths

# One task holds at most this many bytes of singular vectors, with those that dask-ml adds.
_MOST_VECTOR_BYTES = 1 << 30


class _Labels(NamedTuple):
    """The cluster of each row, and the first row of each leaf."""

    labels: NDArray[np.integer]
    first_rows: NDArray[np.int64]
    n_clusters: int

    def memberships(self, leaf: int, n_rows: int) -> Floats:
        """(n_rows, n_clusters): 0 and 1 for the rows of a leaf."""
        first = int(self.first_rows[leaf])
        return clustering.one_hot(self.labels[first : first + n_rows], self.n_clusters)


def start_from_all_rows(
    passes: Passes, rankings: Rankings, settings: FitSettings, stages: Stages, client: Client | None = None
) -> tuple[SpectralStart, dict[str, Any]]:
    """The spectral start from all rows (Nguyen & Zhang 2023, Algorithms 1 to 3); what the rule for the rank found."""
    n_items = rankings.n_items
    n_values = min(settings.n_components + 1, n_items * (n_items - 1) // 2)
    _refuse_many_pairs(n_values, n_items)
    with stages.stage("embedding", passes=1):
        wins, weight, leaf_rows = ask(passes, Request(_PAIRS, finish=(Finish("pairs", _joined_pairs),)))
    frequencies = pair_frequencies(wins)
    with stages.stage("svd", passes=PASSES_OVER_ROWS):
        svd = _directions(passes, rankings, leaf_rows, frequencies, n_values, settings.seed, client)
    rank, about_rank = choose_rank(svd.singular_values, settings, n_items, weight)
    with stages.stage("projection", passes=1):
        what = (frequencies, svd.vectors[:, :rank])
        points, weights = ask(passes, Request(_PROJECT, what, (Finish("points", _joined_points),)))
    with stages.stage("k-means", share=1):
        labels = clustering.cluster_rows(points, weights, settings.n_components, generator(settings.seed, "k-means", 0))
        shares = np.bincount(labels, weights, settings.n_components) / weight
    first_rows = np.concatenate([[0], np.cumsum(leaf_rows)[:-1]])
    clusters = _Labels(labels.astype(np.min_scalar_type(settings.n_components)), first_rows, settings.n_components)
    with counted_stage(stages, "worths", passes):
        log_worths = _WORTHS[settings.cluster_worths](passes, clusters, n_items, settings)
    log_worths, shares = without_empty(log_worths, shares, settings.seed)
    return SpectralStart(log_worths, shares, labels, *svd, rank, "pairwise"), about_rank


def _refuse_many_pairs(n_values: int, n_items: int) -> None:
    n_pairs = n_items * (n_items - 1) // 2
    n_bytes = 8 * n_pairs * (n_sought(n_values, n_items, 1 << 60) + OVERSAMPLES)
    if n_bytes > _MOST_VECTOR_BYTES:
        raise SettingsError(
            f"{n_items} items are {n_pairs:,} pairs, and their singular vectors take {n_bytes / 1e9:.1f} GB in one "
            f"task, where at most {_MOST_VECTOR_BYTES / 1e9:.1f} GB are allowed; leave method='paper' out: the default "
            "embeds rankings by one number per item"
        )


# Pairs.


def _pairs_of_leaf(_number: int, block: RankingBlock, _params: None) -> tuple[Floats, float, list[int]]:
    """Pairwise wins (n_items, n_items) of some leaves, their weight, and how many rows each has: lists join as sums."""
    return pairwise_wins(block, np.ones((block.n_rankings, 1)))[0], float(block.row_weights.sum()), [block.n_rankings]


def _joined_pairs(pairs: tuple[Floats, float, list[int]]) -> tuple[Floats, float, NDArray[np.int64]]:
    wins, weight, rows = pairs
    return wins, weight, np.array(rows)


_PAIRS = Aggregation("pairs", leaf=_pairs_of_leaf)


def _scaled_rows(frequencies: Floats, block: RankingBlock) -> Floats:
    """(n_rankings, n_pairs): rows of the paper's matrix X, multiplied by the square root of their weights."""
    return PairRows(block, frequencies, centred=False).scaled(0, block.n_rankings)


def _directions(
    passes: Passes,
    source: LeafSource,
    leaf_rows: NDArray[np.int64],
    frequencies: Floats,
    n_values: int,
    seed: int,
    client: Client | None,
) -> Svd:
    """Singular values and vectors of X, by dask-ml; it cannot give all of them, so where all are needed, by a Gram."""
    n_items = len(frequencies)
    n_pairs = n_items * (n_items - 1) // 2
    if n_values >= n_pairs:
        return from_gram(ask(passes, Request(_GRAM, frequencies)), n_values)
    wanted = n_sought(n_values, n_items, int(leaf_rows.sum()))
    found = svd_of_leaves(source, leaf_rows, partial(_scaled_rows, frequencies), n_pairs, wanted, seed, client)
    return Svd(found.singular_values[:n_values], found.vectors[:, :n_values])


def _gram_of_leaf(_number: int, block: RankingBlock, frequencies: Floats) -> Floats:
    rows = _scaled_rows(frequencies, block)
    return rows.T @ rows


_GRAM = Aggregation("gram", leaf=_gram_of_leaf)


# Projection.


def _project_leaf(
    _number: int, block: RankingBlock, params: tuple[Floats, Floats]
) -> tuple[list[Floats], list[Floats]]:
    """Projected rows of some leaves, and their weights."""
    frequencies, vectors = params
    if not block.n_rankings:
        return [np.zeros((0, vectors.shape[1]))], [np.zeros(0)]
    return [projected(PairRows(block, frequencies, centred=False), vectors)], [block.row_weights]


def _joined_points(found: tuple[list[Floats], list[Floats]]) -> list[Floats]:
    return [np.concatenate(one) for one in found]


_PROJECT = Aggregation("projection", leaf=_project_leaf)


# Worths of clusters.


def _wins_of_leaf(number: int, block: RankingBlock, clusters: _Labels) -> Floats:
    return pairwise_wins(block, clusters.memberships(number, block.n_rankings))


_CLUSTER_WINS = Aggregation("cluster-wins", leaf=_wins_of_leaf)


def _by_least_squares(passes: Passes, clusters: _Labels, _n_items: int, settings: FitSettings) -> Floats:
    """Log-worths of each cluster from its pairwise wins: one pass, then one task per cluster."""
    finish = tuple(
        Finish(f"least-squares-{k}", partial(_least_squares_of, k, settings.link)) for k in range(clusters.n_clusters)
    )
    (answer,) = passes.run([Request(_CLUSTER_WINS, clusters, finish)])
    return np.array(answer.get())


def _least_squares_of(cluster: int, link: str, wins: Floats) -> Floats:
    return clustering.least_squares(wins[cluster], link)


def _rates_of_leaf(number: int, block: RankingBlock, params: tuple[_Labels, Sequence[Worths]]) -> EmStatistics:
    clusters, worths = params
    return clustering.cluster_sums(block, clusters.memberships(number, block.n_rankings), worths)


_CLUSTER_RATES = Aggregation("cluster-rates", leaf=_rates_of_leaf)


def _by_lsr(passes: Passes, clusters: _Labels, n_items: int, _settings: FitSettings) -> Floats:
    """Log-worths of each cluster by LSR: in every pass one step, which is one task per cluster."""
    return clustering.lsr_in_clusters(partial(_lsr_pass, passes, clusters), clusters.n_clusters, n_items)


def _lsr_pass(passes: Passes, clusters: _Labels, worths: Sequence[Worths]) -> Sequence[Worths]:
    finish = tuple(
        Finish(f"cluster-lsr-{k}", partial(clustering.cluster_step, cluster=k, worths=own))
        for k, own in enumerate(worths)
    )
    (answer,) = passes.run([Request(_CLUSTER_RATES, (clusters, worths), finish)])
    return answer.get()


_WORTHS = {"least-squares": _by_least_squares, "lsr": _by_lsr}
