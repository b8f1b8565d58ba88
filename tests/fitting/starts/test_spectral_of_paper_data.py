"""Spectral starts on data of the paper's generative model: near the truth, and as good as the paper's way."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.cluster import KMeans

from plmix_dist import PlackettLuceMixture, RankingBlock
from plmix_dist.display.progress import Stages
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.starts.clusters import least_squares
from plmix_dist.fitting.starts.spectral import SpectralStarter
from plmix_dist.metrics import matched_distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]
from tests.fitting.starts.data import paper_data


def starter_of(block: RankingBlock, n_components: int, **options: Any) -> SpectralStarter:
    return SpectralStarter(block, FitSettings(n_components, **options), Stages())


def papers_way(block: RankingBlock, n_components: int, seed: int) -> Table:
    """Log-worths by an exact SVD of the whole uncentred pairwise matrix, rank K, k-means, and least squares."""
    n_items = block.n_items
    places = block.to_array().argsort(axis=1)
    upper = np.triu_indices(n_items, 1)
    before = (places[:, upper[0]] < places[:, upper[1]]).astype(np.float32)
    last = before.shape[1] - 1
    # Entries of the Gram matrix are whole numbers below 2 ** 24, which float32 holds.
    gram = (before.T @ before).astype(np.float64)
    _, vectors = eigh(gram, subset_by_index=[last - n_components + 1, last])
    points = before @ vectors
    labels = KMeans(n_components, n_init=10, random_state=seed).fit_predict(points)
    worths = []
    for k in range(n_components):
        own = before[labels == k].sum(axis=0, dtype=np.float64)
        wins = np.zeros((n_items, n_items))
        wins[upper] = own
        wins.T[upper] = (labels == k).sum() - own
        worths.append(least_squares(wins))
    return np.array(worths)


def check_paper_data(seed: int, size: tuple[int, int, int, int]) -> dict[str, float]:
    """How far starts are from the truth; those of this package are not much further than they could be."""
    n_components = size[2]
    truth, block = paper_data(seed, *size)
    found: dict[str, float] = {"paper's way": matched_distance(papers_way(block, n_components, seed), truth)}
    starter = starter_of(block, n_components, seed=seed)
    found["auto"] = matched_distance(starter.start().log_worths, truth)
    found["rank"] = starter.rank
    fixed = [matched_distance(starter.start(rank).log_worths, truth) for rank in range(1, n_components + 1)]
    found["best"], found["best rank"] = min(fixed), 1 + int(np.argmin(fixed))
    return found


def test_paper_model__start_is_near_the_truth() -> None:
    size = (50, 10, 5, 5_000)
    found = check_paper_data(0, size)
    assert found["auto"] <= 1.1 * found["paper's way"], found
    assert found["auto"] <= 1.05 * found["best"], found
    truth, block = paper_data(0, *size)
    pairs = starter_of(block, 5, seed=0, embedding="pairwise").start()
    assert matched_distance(pairs.log_worths, truth) <= 1.1 * found["paper's way"], found


SIZES = pytest.mark.parametrize(
    "size", [(100, 5, 3, 10_000), (50, 10, 5, 10_000), (100, 20, 8, 20_000)], ids=lambda size: "-".join(map(str, size))
)


@pytest.mark.slow
@SIZES
@pytest.mark.parametrize("seed", range(3))
def test_paper_model__start_is_near_the_truth_at_full_size(size: tuple[int, int, int, int], seed: int) -> None:
    found = check_paper_data(seed, size)
    print(size, seed, {name: round(value, 3) for name, value in found.items()})  # noqa: T201 - shown with pytest -s
    assert found["auto"] <= 1.1 * found["paper's way"], found
    assert found["auto"] <= 1.05 * found["best"], found


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@SIZES
def test_paper_model__em_from_the_start_ends_at_the_best(size: tuple[int, int, int, int]) -> None:
    n_components, n_rankings = size[2:]
    _, block = paper_data(0, *size)
    records: list[dict[str, Any]] = []
    best = PlackettLuceMixture(n_components, init="random", n_init=20, random_state=0, progress=records.append).fit(
        block
    )
    lengths = [max(r["iteration"] for r in records if r["start"] == number) for number in range(20)]
    ours = PlackettLuceMixture(n_components, random_state=0).fit(block)
    short = (best.objective_ - ours.objective_) / n_rankings
    print(size, "short of the best by", short, "iterations", ours.n_iter_, sorted(lengths))  # noqa: T201
    assert short <= (1e-4 if size[1] == 5 else 1e-6)
    assert ours.n_iter_ < statistics.median(lengths)
