"""Clusters: weighted k-means, and worths of clusters by least squares, against other computations."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.cluster import KMeans

from plmix_dist.fitting.starts.clusters import cluster_rows, least_squares
from plmix_dist.fitting.starts.kernel import _nearest
from tests.helpers.marks import examples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]


def random_wins(seed: int, n_items: int, seen: float = 1.0) -> Table:
    rng = np.random.default_rng(seed)
    wins = rng.integers(0, 30, (n_items, n_items)).astype(np.float64)
    kept = np.triu(rng.random((n_items, n_items)) < seen, 1)
    wins *= kept | kept.T
    if seen == 1.0:
        wins += 1 - np.eye(n_items)
    np.fill_diagonal(wins, 0)
    return wins


def by_lstsq(wins: Table, quantile: Any, weighted: bool) -> Table:
    """The least-squares problem written out: one equation per pair, and one that makes the mean zero."""
    n_items = len(wins)
    equations, answers = [np.ones(n_items)], [0.0]
    for i, j in itertools.combinations(range(n_items), 2):
        seen = wins[i, j] + wins[j, i]
        if not seen:
            continue
        frequency = (wins[i, j] + 0.5) / (seen + 1)
        # The precision of a difference: that of the frequency and the derivative of the link, by finite differences.
        slope = (quantile(frequency + 1e-6) - quantile(frequency - 1e-6)) / 2e-6
        size = math.sqrt(seen / (frequency * (1 - frequency))) / slope if weighted else 1.0
        equation = np.zeros(n_items)
        equation[i], equation[j] = size, -size
        equations.append(equation)
        answers.append(size * quantile(frequency))
    return np.linalg.lstsq(np.array(equations), np.array(answers), rcond=None)[0]


def log_odds(frequency: float) -> float:
    return math.log(frequency / (1 - frequency))


QUANTILES = pytest.mark.parametrize(("link", "quantile"), [("logit", log_odds), ("probit", norm.ppf)])


@QUANTILES
@given(seed=st.integers(0, 2**32), n_items=st.integers(2, 9))
@settings(max_examples=20)
def test_least_squares__all_pairs(link: str, quantile: Any, seed: int, n_items: int) -> None:
    wins = random_wins(seed, n_items)
    assert_allclose(least_squares(wins, link), by_lstsq(wins, quantile, weighted=False), atol=1e-10)


@QUANTILES
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_least_squares__some_pairs(link: str, quantile: Any, seed: int) -> None:
    wins = random_wins(seed, 12, seen=0.4)
    connected = np.linalg.matrix_power((wins + wins.T > 0) + np.eye(12), 12) > 0
    assert connected.all(), "the oracle needs one solution"
    assert ((wins + wins.T) == 0).sum() > 12
    # The two differ by a very weak prior only.
    assert_allclose(least_squares(wins, link), by_lstsq(wins, quantile, weighted=True), atol=1e-4)


@QUANTILES
def test_least_squares__always_and_never(link: str, quantile: Any) -> None:
    wins = np.triu(np.full((4, 4), 9.0), 1)
    found = least_squares(wins, link)
    assert np.isfinite(found).all()
    step = quantile(9.5 / 10)
    assert_allclose(found, [0.75 * step, 0.25 * step, -0.25 * step, -0.75 * step])


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_least_squares__unconnected_items(link: str) -> None:
    wins = np.zeros((5, 5))
    wins[0, 1], wins[1, 0], wins[2, 3] = 6, 2, 5
    found = least_squares(wins, link)
    assert np.isfinite(found).all()
    assert abs(found.mean()) < 1e-12
    alone = least_squares(wins[:2, :2], link)
    assert found[0] - found[1] == pytest.approx(alone[0] - alone[1], abs=1e-4)
    # Groups that no comparison connects are centred at 0 each.
    assert found[4] == pytest.approx(0, abs=1e-6)
    assert found[0] + found[1] == pytest.approx(0, abs=1e-6)
    assert_array_equal(least_squares(np.zeros((3, 3)), link), np.zeros(3))


@given(seed=st.integers(0, 2**32), n_items=st.integers(2, 8), seen=st.sampled_from([0.5, 1.0]))
@examples(40)
@pytest.mark.promise(12)
def test_least_squares__laws(seed: int, n_items: int, seen: float) -> None:
    wins = random_wins(seed, n_items, seen)
    found = least_squares(wins)
    assert abs(found.mean()) < 1e-9
    assert_allclose(least_squares(wins.T), -found, atol=1e-8)
    order = np.random.default_rng(seed).permutation(n_items)
    assert_allclose(least_squares(wins[np.ix_(order, order)]), found[order], atol=1e-8)


def partition_of(labels: NDArray[np.int64]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


def test_cluster_rows__weights_are_copies() -> None:
    rng = np.random.default_rng(2)
    points = rng.normal(size=(60, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 20, axis=0)
    weights = rng.integers(1, 5, 60)
    mine = cluster_rows(points, weights.astype(np.float64), 3, np.random.default_rng(0))
    many = cluster_rows(np.repeat(points, weights, axis=0), np.ones(weights.sum()), 3, np.random.default_rng(1))
    first = np.concatenate([[0], np.cumsum(weights)[:-1]])
    assert partition_of(mine) == partition_of(many[first])
    assert partition_of(mine) == {frozenset(range(start, start + 20)) for start in (0, 20, 40)}


def test_cluster_rows__weights_decide() -> None:
    # Two clusters of three points on a line: the heavy ones are torn from the light one between them.
    points = np.array([[0.0], [4.0], [10.0]])
    for weights, together in (([1.0, 1.0, 100.0], {0, 1}), ([100.0, 1.0, 1.0], {0, 1}), ([9.0, 100.0, 0.1], {1, 2})):
        labels = cluster_rows(points, np.array(weights), 2, np.random.default_rng(0))
        if together == {1, 2}:
            # 36 to 1 against 100 * 36 * 0.1 / 100.1: moving the last point is cheaper than the first.
            assert labels[1] == labels[2] != labels[0]
        else:
            assert labels[0] == labels[1] != labels[2]


@pytest.mark.parametrize("n_rows", [1, 2, 7])
def test_cluster_rows__fewer_places_than_clusters(n_rows: int) -> None:
    labels = cluster_rows(np.ones((n_rows, 2)), np.ones(n_rows), 4, np.random.default_rng(0))
    assert labels.tolist() == [0] * n_rows
    two = np.array([[0.0], [1.0]] * n_rows)
    labels = cluster_rows(two, np.ones(2 * n_rows), 5, np.random.default_rng(0))
    assert len(set(labels.tolist())) == 2
    assert partition_of(labels) == {frozenset(range(0, 2 * n_rows, 2)), frozenset(range(1, 2 * n_rows, 2))}


def test_cluster_rows__deterministic_and_near_the_optimum() -> None:
    rng = np.random.default_rng(5)
    centres = rng.normal(0, 6, (6, 3))
    points = rng.normal(size=(12_000, 3)) + centres[rng.integers(0, 6, 12_000)]
    weights = rng.integers(1, 4, 12_000).astype(np.float64)
    found = [cluster_rows(points, weights, 6, np.random.default_rng(1)) for _ in range(2)]
    assert_array_equal(*found)

    def cost(labels: NDArray[np.int64]) -> float:
        groups = [(points[labels == k], weights[labels == k]) for k in range(6)]
        means = [np.average(group, axis=0, weights=w) for group, w in groups]
        return math.fsum(float(w @ ((g - mean) ** 2).sum(axis=1)) for (g, w), mean in zip(groups, means, strict=True))

    best = KMeans(6, init=centres, n_init=1).fit(points, sample_weight=weights)
    assert cost(found[0]) <= best.inertia_ * (1 + 1e-6)


def test_clusters__weights_count_after_the_tries_too() -> None:
    # More rows than are tried first: evenly on a line, those at its right end heavy.
    points = np.linspace(0.0, 10.0, 6000)[:, None]
    weights = np.where(points[:, 0] > 8, 20.0, 1.0)
    labels = cluster_rows(points, weights, 2, np.random.default_rng(1))
    split = float(points[np.flatnonzero(np.diff(labels)), 0].item())
    left, right = points[:, 0] <= split, points[:, 0] > split
    means = [np.average(points[side, 0], weights=weights[side]) for side in (left, right)]
    # The border of two clusters is half-way between their means. Without weights it would be at 5.
    assert split == pytest.approx(sum(means) / 2, abs=0.05)
    assert abs(split - 5) > 0.5


def test_nearest__heavy_rows_move_their_cluster() -> None:
    # Points 0 and 4 are one cluster, 10 another. With equal weights the centre is 2, and 7 is nearer to 10.
    points = np.array([0.0, 4.0, 10.0])
    clusters = np.array([0, 0, 1])
    rows = np.array([6.9, 7.1, 2.0])
    similarity, affinity = np.outer(rows, points), np.outer(points, points)
    assert _nearest(similarity, affinity, clusters, np.ones(3)).tolist() == [1, 1, 0]
    assert _nearest(similarity, affinity, clusters, np.array([1.0, 1e6, 1.0])).tolist() == [0, 1, 0]
