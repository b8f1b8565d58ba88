"""The spectral start: embed a sample of rankings, project it on singular vectors, cluster it, estimate worths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.clients import Client
from plmix_dist.display.progress import Stages
from plmix_dist.errors import SettingsError, StartWarning
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.starts import clusters
from plmix_dist.fitting.starts.embeddings import PairRows, PersonRows, PlaceRows, pair_frequencies
from plmix_dist.kernels import pairwise_wins
from plmix_dist.passes.svd import PASSES_OVER_ROWS, RowMaker, Svd, randomized_svd, with_fixed_signs
from plmix_dist.rankings import Floats, RankingBlock, generator
from plmix_dist.rankings.groups import SMALLEST_LEAF
from plmix_dist.solvers import Worths
from plmix_dist.threads import single_thread

# Up to this many columns, exact eigenvectors of the Gram matrix are fastest. With more items, rows are sparse.
_MOST_GRAM_COLUMNS = 1_500
# Up to this many pairs, the Gram matrix is fastest too.
_FEW_PAIRS = 64
# The randomised SVD computes at most this many singular vectors, unless more are needed.
_MOST_SOUGHT = 200
# With at least this many items per component, there are many noise directions, so the noise level is known well.
_MANY_ITEMS = 4
# Up to these numbers of pairs and items, pairwise wins are counted. Beyond, a few MM steps are cheaper and better.
_MOST_PAIRS_COUNTED = 2e9
_MOST_ITEMS_COUNTED = 2_000


class SpectralStart(NamedTuple):
    """A spectral start, and the singular vectors and clusters that gave it.

    log_worths (n_components, n_items), shares (n_components,), labels (n_sampled,), singular_values (n_values,),
    vectors (n_columns, n_values); `rank` vectors were used.
    """

    log_worths: Floats
    shares: Floats
    labels: NDArray[np.int64]
    singular_values: Floats
    vectors: Floats
    rank: int
    embedding: str


class SpectralStarter:
    """Makes spectral starts from a sample of rankings. One SVD serves any number of starts.

    dask-ml runs the SVD of the pairwise embedding at `client`; None for threads of this process.
    """

    def __init__(
        self, sample: RankingBlock, settings: FitSettings, stages: Stages, client: Client | None = None
    ) -> None:
        self.sample = sample
        self.settings = settings
        self.stages = stages
        self.rows: PlaceRows | PersonRows | PairRows
        n_values = settings.n_components + 2
        if settings.chosen_embedding == "rank":
            with stages.stage("embedding", share=1):
                plain = PlaceRows(sample)
                places = self.rows = plain if sample.groups is None else PersonRows(plain, sample)
            with stages.stage("svd", share=1):
                self.svd = _place_directions(places, n_values)
        else:
            with stages.stage("embedding", share=1):
                frequencies = pair_frequencies(pairwise_wins(sample, np.ones((sample.n_rankings, 1)))[0])
                pairs = self.rows = PairRows(sample, frequencies, centred=settings.svd_rank != "paper")
            with stages.stage("svd", share=PASSES_OVER_ROWS):
                self.svd = _pair_directions(pairs, n_values, settings.seed, client)
        values = self.svd.singular_values
        self.rank, self.about_rank = choose_rank(values, settings, sample.n_items, sample.total_weight)

    @property
    def is_certain(self) -> bool:
        """Whether K - 1 directions are above the noise, and the noise level is known well."""
        n_components = self.settings.n_components
        return self.rank >= n_components - 1 and self.sample.n_items >= _MANY_ITEMS * n_components

    def ranks_to_try(self, n_ranks: int) -> list[int]:
        """The chosen rank; if it is uncertain, also other ranks that may be better, at most `n_ranks` in total."""
        if self.is_certain or self.settings.svd_rank != "auto":
            return [self.rank]
        most = min(self.settings.n_components - 1, len(self.svd.singular_values))
        wanted = [self.rank, most, 1, 2, (most + self.rank) // 2]
        return [rank for rank in dict.fromkeys(wanted) if 1 <= rank <= max(1, most)][:n_ranks]

    def start(self, rank: int | None = None, attempt: int = 0) -> SpectralStart:
        """One start on `rank` singular vectors; `attempt` is part of the key of the random numbers of k-means."""
        rank = self.rank if rank is None else rank
        settings, sample = self.settings, self.sample
        with self.stages.stage("k-means", share=1):
            points = projected(self.rows, self.svd.vectors[:, :rank])
            rng = generator(settings.seed, "k-means", attempt)
            if isinstance(self.rows, PersonRows):
                labels = clusters.cluster_rows(points, self.rows.weights, settings.n_components, rng)[self.rows.person]
            else:
                labels = clusters.cluster_rows(points, sample.row_weights, settings.n_components, rng)
        with self.stages.stage("worths", share=1):
            log_worths, shares = cluster_worths(sample, labels, settings)
        return SpectralStart(log_worths, shares, labels, *self.svd, rank, settings.chosen_embedding)


def _place_directions(rows: PlaceRows | PersonRows, n_values: int) -> Svd:
    """At most n_items singular values and vectors of the rank embedding; rows are scaled by roots of their weights."""
    n_rows, n_items = rows.shape
    n_values = min(n_values, n_items)
    with single_thread():
        if n_items <= _MOST_GRAM_COLUMNS:
            gram = np.zeros((n_items, n_items))
            for start in range(0, n_rows, SMALLEST_LEAF):
                slab = rows.dense(start, start + SMALLEST_LEAF)
                gram += slab.T @ (slab * rows.weights[start : start + SMALLEST_LEAF, None])
            return from_gram(gram, n_values)
        return _lanczos(rows, n_values)


def from_gram(gram: Floats, n_values: int) -> Svd:
    """Singular values and vectors of a matrix, from the products of its columns."""
    squares, vectors = np.linalg.eigh(gram)
    return Svd(np.sqrt(np.maximum(squares[::-1][:n_values], 0.0)), with_fixed_signs(vectors[:, ::-1][:, :n_values]))


def _lanczos(rows: PlaceRows | PersonRows, n_values: int) -> Svd:
    """Eigenvectors of the Gram matrix for many items; only products with sparse rows are computed."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    n_items = rows.shape[1]

    def gram_times(vector: Floats) -> Floats:
        return rows.transposed_times(rows.times(vector.reshape(n_items, 1)) * rows.weights[:, None]).ravel()

    operator = LinearOperator((n_items, n_items), matvec=gram_times, dtype=np.float64)
    first = generator(0, "lanczos").standard_normal(n_items)
    if not gram_times(first).any():  # all rankings are equal, so all singular values are 0
        return Svd(np.zeros(n_values), np.eye(n_items, n_values))
    # A low precision is enough to separate directions from noise.
    squares, vectors = eigsh(operator, k=n_values, v0=first, tol=1e-3)
    order = np.argsort(-squares)
    return Svd(np.sqrt(np.maximum(squares[order], 0.0)), with_fixed_signs(vectors[:, order]))


def _pair_directions(rows: PairRows, n_values: int, seed: int, client: Client | None) -> Svd:
    """Singular values and vectors of the pairwise embedding, by dask-ml's randomised SVD of a lazy array.

    Rows are multiplied by the square root of their weights. It runs at `client`; None for threads of this process.
    """
    n_rows, n_pairs = rows.shape
    if n_pairs <= _FEW_PAIRS:
        with single_thread():
            everything = rows.scaled(0, n_rows)
            return from_gram(everything.T @ everything, min(n_values, n_pairs))
    makers = []
    for start in range(0, n_rows, SMALLEST_LEAF):
        part = PairRows(rows.block[start : start + SMALLEST_LEAF], rows.frequencies, centred=rows.centred)
        makers.append(RowMaker(part.scaled, part.shape))
    found = randomized_svd(makers, n_sought(n_values, rows.block.n_items, n_rows), seed, client)
    return Svd(found.singular_values[:n_values], found.vectors[:, :n_values])


def n_sought(n_values: int, n_items: int, n_rows: int) -> int:
    """How many directions a randomised SVD of pairs looks for, so that the first `n_values` of them are right.

    Rankings vary most in the n_items directions in which places vary. The singular values of these are nearly equal, so
    a subspace that contains all of them converges in few iterations, and a smaller one in many.
    """
    return min(max(n_values, min(n_items, _MOST_SOUGHT)), n_items * (n_items - 1) // 2 - 1, n_rows)


def projected(rows: PlaceRows | PersonRows | PairRows, vectors: Floats) -> Floats:
    """(n_rankings, n_vectors): the embedding times the vectors."""
    with single_thread():
        if not isinstance(rows, PairRows):
            return rows.times(vectors)
        maker = RowMaker(rows.dense, rows.shape)
        return np.asarray(np.tensordot(maker, vectors, axes=((1,), (0,))))  # type: ignore[call-overload]


def choose_rank(values: Floats, settings: FitSettings, n_items: int, weight: float) -> tuple[int, dict[str, Any]]:
    """How many singular vectors are used, and what the rule found on the way, for `init_`; values are largest first."""
    n_components = settings.n_components
    if settings.svd_rank == "auto":
        return _rank_above_noise(values, n_components), {}
    if settings.svd_rank == "paper":
        found = _gap_rule(values, n_components, n_items, weight, settings.svd_threshold)
        return found.rank, {"gap_rule": found._asdict()}
    rank = int(settings.svd_rank)
    if rank > len(values):
        raise SettingsError(
            f"rank is {rank}, but {len(values)} directions are all that can be used here; choose a rank from 1 to "
            f"{len(values)}, or 'auto'"
        )
    return rank, {}


def cluster_worths(sample: RankingBlock, labels: NDArray[np.int64], settings: FitSettings) -> tuple[Floats, Floats]:
    """Log-worths (n_components, n_items) and shares (n_components,) of the clusters of a sample; labels (n_rankings,).

    An empty cluster gets log-worths near those of the largest cluster, and half of its share.
    """
    n_clusters = settings.n_components
    weights = sample.row_weights
    shares = np.bincount(labels, weights, n_clusters) / weights.sum()
    memberships = clusters.one_hot(labels, n_clusters)
    if settings.cluster_worths == "lsr":
        log_worths = clusters.lsr_in_clusters(partial(_lsr_on_sample, sample, memberships), n_clusters, sample.n_items)
    elif _counts_pairs(sample, settings.link):
        wins = pairwise_wins(sample, memberships)
        log_worths = np.array([clusters.least_squares(own, settings.link) for own in wins])
    else:
        log_worths = np.array([model.log_worths for model in clusters.fit_models(sample, memberships)])
    return without_empty(log_worths, shares, settings.seed)


def _lsr_on_sample(sample: RankingBlock, memberships: Floats, worths: Sequence[Worths]) -> list[Worths]:
    """One step of LSR in each cluster of a sample."""
    sums = clusters.cluster_sums(sample, memberships, worths)
    return [clusters.cluster_step(sums, k, own) for k, own in enumerate(worths)]


def without_empty(log_worths: Floats, shares: Floats, seed: int) -> tuple[Floats, Floats]:
    """Centred log-worths and shares of clusters; empty ones become neighbours of the largest, and take half of it."""
    log_worths, shares = log_worths.copy(), shares.copy()
    rng = generator(seed, "empty-cluster")
    for empty in np.flatnonzero(shares == 0):
        largest = int(np.argmax(shares))
        log_worths[empty] = log_worths[largest] + rng.standard_normal(log_worths.shape[1])
        shares[empty] = shares[largest] = shares[largest] / 2
    return log_worths - log_worths.mean(axis=1, keepdims=True), shares


def _counts_pairs(sample: RankingBlock, link: str) -> bool:
    """Whether pairwise wins are counted: if there are few enough pairs and items."""
    listed = sample.n_listed.astype(np.float64)
    pairs = float((listed * np.where(sample.below, sample.n_items, listed)).sum()) / 2
    counted = pairs <= _MOST_PAIRS_COUNTED and sample.n_items <= _MOST_ITEMS_COUNTED
    if not counted and link != "logit":
        raise SettingsError(
            f"link={link!r} needs the wins of every pair of {sample.n_items} items to be counted, which would take too "
            "long here; choose link='logit', or fewer items"
        )
    return counted


# How many singular vectors of an embedding separate the components.


def _rank_above_noise(values: Floats, n_components: int) -> int:
    """How many singular values, largest first, of a centred matrix are above the noise: from 1 to n_components - 1.

    K components differ in at most K - 1 directions, so the K-th and later values are noise. They decrease steadily.
    Extrapolate the noise values (up to three) by one step; keep singular values above that line.

    Examples
    --------
    >>> _rank_above_noise(np.array([1.31, 1.020, 1.018, 1.013, 1.013]), 3)  # the second is noise
    1
    >>> _rank_above_noise(np.array([1.26, 1.045, 1.020, 1.018, 1.013]), 3)
    2
    """
    most = n_components - 1
    noise = values[most : most + 3]
    if most < 2 or not len(noise):
        return max(1, min(most, len(values)))
    edge = 2 * noise[0] - noise[-1]
    return max(1, int((values[:most] > edge).sum()))


class _GapRule(NamedTuple):
    """What the paper's rule found; if no gap `reached` the threshold, the rule names no rank, and K is taken."""

    rank: int
    threshold: float
    largest_gap: float
    reached: bool


def _gap_rule(values: Floats, n_components: int, n_items: int, n_rankings: float, multiplier: float = 1.0) -> _GapRule:
    """The paper's rule: the largest a up to K with S_a - S_(a+1) >= sqrt(n (m + n) log n), on the uncentred matrix.

    `values` are the singular values S, largest first. The threshold is multiplied by `multiplier`.
    """
    threshold = multiplier * float(np.sqrt(n_items * (n_rankings + n_items) * np.log(n_items)))
    gaps = (values[:-1] - values[1:])[:n_components]
    met = np.flatnonzero(gaps >= threshold)
    rank = int(met[-1]) + 1 if len(met) else min(n_components, len(values))
    return _GapRule(rank, threshold, float(gaps.max(initial=0.0)), bool(len(met)))


def gap_warnings(about: Mapping[str, Any], n_components: int) -> list[Warning]:
    """A StartWarning if no gap reached the threshold, or only one direction is left; `about` may have a "gap_rule".

    The first singular vector of the uncentred matrix is the mean ranking, in which components differ least.
    """
    if "gap_rule" not in about:
        return []
    found = _GapRule(**about["gap_rule"])
    advice = f"choose rank={n_components} (--svd-rank), or without method='paper' rank='auto'"
    if not found.reached:
        words = (
            f"rank='paper': no gap between singular values reaches the threshold {found.threshold:.3g} (the "
            f"largest is {found.largest_gap:.3g}), so the paper's rule names no rank, and {found.rank} directions "
            f"are used; {advice}, which compares singular values with the noise"
        )
    elif found.rank == 1 and n_components > 1:
        words = (
            f"rank='paper': the threshold {found.threshold:.3g} leaves one direction, the mean ranking, which "
            f"hardly separates components; {advice}, which subtracts the mean first"
        )
    else:
        return []
    return [StartWarning(words)]
