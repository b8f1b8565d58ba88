"""The start by semidefinite programming: similarities against every agreeing full ranking, clusters against cvxpy."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from plmix_dist.errors import SettingsError
from plmix_dist.fitting.starts import kernel as ranking_similarity
from plmix_dist.fitting.starts.kernel import _kendall_similarity, _mallows_similarity, _mean_preferences
from plmix_dist.fitting.starts.sdp import clusters_of, peng_wei
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

# --- rankings, and what they say, in plain Python --------------------------------------------------------


def levels_of(row: Ranking, n_items: int) -> dict[int, int]:
    """The place of every item on offer, equal where the row does not say."""
    levels = {item: place for place, items in enumerate(row.ordered) for item in items}
    others = range(n_items) if row.unranked == "below" else row.offered
    return {item: len(row.ordered) for item in others if item not in levels} | levels


def known_signs(row: Ranking, n_items: int) -> list[int]:
    levels = levels_of(row, n_items)
    return [
        (levels[i] < levels[j]) - (levels[i] > levels[j]) if i in levels and j in levels else 0
        for i, j in itertools.combinations(range(n_items), 2)
    ]


def tau(first: Sequence[int], second: Sequence[int]) -> Fraction:
    pairs = list(itertools.combinations(range(len(first)), 2))
    agreeing = sum((first.index(i) < first.index(j)) == (second.index(i) < second.index(j)) for i, j in pairs)
    return Fraction(2 * agreeing - len(pairs), len(pairs))


@st.composite
def rankings(draw: st.DrawFn, n_items: int, kinds: Sequence[str] = ("below", "absent")) -> Ranking:
    """A row of any kind: full, top-k, subset, slate, each with or without ties."""
    items = draw(st.permutations(range(n_items)))
    n_listed = draw(st.integers(2, n_items))
    n_ordered = draw(st.integers(1, n_listed))
    places: list[tuple[int, ...]] = []
    for item in items[:n_ordered]:
        if places and draw(st.integers(0, 3)) == 0:
            places[-1] = (*places[-1], item)
        else:
            places.append((item,))
    unranked = draw(st.sampled_from(kinds))
    return Ranking(tuple(places), tuple(items[n_ordered:n_listed]), unranked, draw(st.sampled_from([1.0, 2.5])))


def several(n_items: int, kinds: Sequence[str] = ("below", "absent")) -> st.SearchStrategy[list[Ranking]]:
    return st.lists(rankings(n_items, kinds), min_size=1, max_size=6)


def block_of(rows: Sequence[Ranking], n_items: int) -> RankingBlock:
    return RankingBlock.from_rows(rows, n_items=n_items)


# --- Kendall similarity -------------------------------------------------------------------------------------


@given(several(5), several(5))
def test_kendall__over_known_pairs_by_its_definition(left: list[Ranking], right: list[Ranking]) -> None:
    def value(first: Ranking, second: Ranking) -> float:
        mine, theirs = known_signs(first, 5), known_signs(second, 5)
        n_known = sum(map(abs, mine)) * sum(map(abs, theirs))
        return sum(a * b for a, b in zip(mine, theirs, strict=True)) / math.sqrt(n_known) if n_known else 0.0

    kernel = _kendall_similarity(block_of(left, 5), block_of(right, 5))
    assert_allclose(kernel, [[value(first, second) for second in right] for first in left], atol=1e-14)


@given(several(5))
def test_kendall__centred_on_the_mean_of_known_pairs(rows: list[Ranking]) -> None:
    signs = [known_signs(row, 5) for row in rows]
    means, centred = [], []
    for pair in range(10):
        known = [(row.weight, sign[pair]) for row, sign in zip(rows, signs, strict=True) if sign[pair]]
        means.append(sum(w * s for w, s in known) / sum(w for w, _ in known) if known else 0.0)
    for sign in signs:
        n_known = sum(map(abs, sign)) or 1
        centred.append([(s - m) / math.sqrt(n_known) if s else 0.0 for s, m in zip(sign, means, strict=True)])
    block = block_of(rows, 5)
    assert_allclose(_mean_preferences(block), means, atol=1e-14)
    # Centres are rounded to 2 ** -16.
    kernel = _kendall_similarity(block, block, _mean_preferences(block))
    assert_allclose(kernel, np.array(centred) @ np.array(centred).T, atol=1e-4)


@given(several(4), st.booleans())
def test_similarities__are_positive_semidefinite(rows: list[Ranking], is_centred: bool) -> None:
    block = block_of(rows, 4)
    centre = _mean_preferences(block) if is_centred else None
    for kernel in (_kendall_similarity(block, block, centre), _mallows_similarity(block, block, centre)):
        assert_array_equal(kernel, kernel.T)
        assert np.linalg.eigvalsh(kernel).min() >= -1e-12 * len(rows) * np.abs(kernel).max()


def test_kendall__a_ranking_is_one_with_itself_to_the_last_bit() -> None:
    block, _ = draw_rankings(np.zeros((1, 30)), np.ones(1), 20, np.random.default_rng(0), length=7, unranked="below")
    assert_array_equal(np.diagonal(_kendall_similarity(block, block)), 1.0)


@pytest.mark.parametrize("options", [{}, {"centre": np.linspace(-1, 1, 66)}], ids=str)
def test_kendall__bits_depend_neither_on_slabs_nor_on_threads(
    options: dict[str, NDArray[np.float64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    left, _ = draw_rankings(np.zeros((1, 12)), np.ones(1), 90, rng, length=5, unranked="absent")
    right, _ = draw_rankings(np.zeros((1, 12)), np.ones(1), 70, rng, length=9, unranked="below")
    with threadpool_limits(1):
        whole = _kendall_similarity(left, right, **options)
    monkeypatch.setattr(ranking_similarity, "_SLAB_CELLS", 66 * 13)
    with threadpool_limits(2):
        assert_array_equal(_kendall_similarity(left, right, **options), whole)


# --- Mallows similarity -------------------------------------------------------------------------------------


def test_mallows__counts_discordant_pairs_of_full_rankings() -> None:
    orders = list(itertools.permutations(range(4)))
    block = RankingBlock.from_array(orders)
    discordant = np.array([[float((1 - tau(one, other)) * 3) for other in orders] for one in orders])
    assert_allclose(_mallows_similarity(block, block), np.exp(-discordant / 3), rtol=1e-13)


# --- the relaxation against others -----------------------------------------------------------------------


class Case(NamedTuple):
    """Points, clusters and weights, and the value of the relaxation.

    Computed with cvxpy 1.9.3: Clarabel 0.11.1 at its defaults; SCS 3.3.1 (eps 1e-9) agrees to 1e-8 of the value.
    """

    points: NDArray[np.float64]
    n_clusters: int
    weights: NDArray[np.float64] | None
    value: float
    rank: int


def spread(n: int, step: int) -> NDArray[np.float64]:
    """Points without clusters, all of them whole numbers."""
    k = np.arange(n)
    return np.stack([(k * step) % 17, (k * k * step) % 13], axis=1).astype(float)


CASES = {
    "two apart": Case(np.concatenate([spread(6, 1) % 3, spread(6, 1) % 3 + [20, 0]]), 2, None, 2653.3333334, 2),
    "spread 14": Case(spread(14, 7), 2, None, 1573.1905800, 3),
    "spread 12": Case(spread(12, 5), 3, None, 1477.4527657, 6),
    "spread 13": Case(spread(13, 3), 4, None, 1737.2550890, 6),
    "weighted": Case(spread(10, 5), 3, np.array([1.0, 2, 3, 1, 1, 4, 2, 1, 1, 2]), 2227.5363694, 5),
}
EACH_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def affinity_of(case: Case) -> NDArray[np.float64]:
    return case.points @ case.points.T


def weights_of(case: Case) -> NDArray[np.float64]:
    return np.ones(len(case.points)) if case.weights is None else case.weights


def clusterings(n: int, n_clusters: int) -> Iterator[list[int]]:
    """Every way to put n rows into exactly this many clusters."""

    def grow(labels: list[int], used: int) -> Iterator[list[int]]:
        if len(labels) == n:
            if used == n_clusters:
                yield labels
            return
        for label in range(min(used + 1, n_clusters)):
            yield from grow([*labels, label], max(used, label + 1))

    return grow([], 0)


def value_of(labels: Sequence[int], affinity: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The affinity within clusters, in the measure of kernel k-means."""
    total = 0.0
    for cluster in set(labels):
        rows = [row for row, label in enumerate(labels) if label == cluster]
        within = math.fsum(weights[i] * weights[j] * affinity[i, j] for i in rows for j in rows)
        total += within / math.fsum(weights[rows])
    return total


@EACH_CASE
def test_peng_wei__agrees_with_cvxpy(case: Case) -> None:
    solution = peng_wei(affinity_of(case), case.n_clusters, case.weights, tol=1e-7, max_iter=20_000)
    assert solution.converged
    assert_allclose(solution.objective, case.value, rtol=1e-7)
    assert_allclose(solution.bound, case.value, rtol=1e-7)
    root = np.sqrt(weights_of(case))
    eigenvalues = np.linalg.eigvalsh(solution.matrix * np.outer(root, root))
    assert np.count_nonzero(eigenvalues > 1e-4) == case.rank


@EACH_CASE
def test_peng_wei__meets_its_constraints(case: Case) -> None:
    solution, weights = peng_wei(affinity_of(case), case.n_clusters, case.weights), weights_of(case)
    assert_array_equal(solution.matrix, solution.matrix.T)
    assert_allclose(solution.matrix @ weights, 1.0, atol=1e-12)
    assert_allclose(weights @ np.diagonal(solution.matrix), case.n_clusters, atol=1e-12)
    assert np.linalg.eigvalsh(solution.matrix).min() > -1e-12
    assert solution.matrix.min() > -1e-5
    value = weights @ (affinity_of(case) * solution.matrix) @ weights
    assert_allclose(solution.objective, value, rtol=1e-12)
    assert abs(solution.bound - solution.objective) < 1e-5 * value


@EACH_CASE
@pytest.mark.parametrize("max_iter", [1, 10, 35])
def test_peng_wei__bound_holds_however_early_it_ends(case: Case, max_iter: int) -> None:
    solution = peng_wei(affinity_of(case), case.n_clusters, case.weights, tol=1e-12, max_iter=max_iter)
    assert not solution.converged
    assert solution.n_iterations == max_iter
    assert solution.bound >= case.value * (1 - 1e-8)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_peng_wei__bound_is_above_every_clustering(seed: int, n_clusters: int) -> None:
    rng = np.random.default_rng(seed)
    points, weights = rng.standard_normal((7, 3)), rng.integers(1, 5, 7).astype(float)
    affinity = points @ points.T
    best = max(value_of(labels, affinity, weights) for labels in clusterings(7, n_clusters))
    solution = peng_wei(affinity, n_clusters, weights)
    assert solution.bound >= best - 1e-9
    labels = clusters_of(solution.matrix, n_clusters, np.random.default_rng(0), weights)
    assert value_of(labels.tolist(), affinity, weights) <= best + 1e-9


def test_peng_wei__a_relaxation_that_is_not_tight_is_above_the_best_clusters() -> None:
    case = CASES["weighted"]
    best = max(value_of(labels, affinity_of(case), weights_of(case)) for labels in clusterings(10, 3))
    solution = peng_wei(affinity_of(case), 3, case.weights)
    assert best < solution.objective - 1.0


# --- weights ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_clusters", [2, 3, 4])
def test_peng_wei__weights_are_copies(n_clusters: int) -> None:
    points, copies = spread(9, 5), np.array([1, 3, 2, 1, 1, 4, 1, 2, 1])
    kernel = np.exp(-0.01 * ((points[:, None] - points) ** 2).sum(axis=-1))
    row = np.repeat(np.arange(9), copies)
    weighted = peng_wei(kernel, n_clusters, copies, tol=1e-8, max_iter=30_000)
    copied = peng_wei(kernel[row][:, row], n_clusters, tol=1e-8, max_iter=30_000)
    assert weighted.converged
    assert copied.converged
    assert_allclose(weighted.objective, copied.objective, rtol=1e-7)
    assert_allclose(weighted.bound, copied.bound, rtol=1e-7)
    assert_allclose(weighted.matrix[row][:, row], copied.matrix, atol=1e-4)


# With these the clusters of weighted rows are not those of the same rows without weights.
@pytest.mark.parametrize("seed", [32, 34, 56, 86, 116, 140])
def test_clusters_of__are_the_best_for_copies_of_rows(seed: int) -> None:
    """Where the relaxation is not tight, so that k-means has something to decide: against every clustering."""
    rng = np.random.default_rng(seed)
    points, copies = rng.random((9, 2)), rng.choice([1, 2, 20], 9)
    row = np.repeat(np.arange(9), copies)
    matrix = peng_wei(points @ points.T, 2, copies, tol=1e-4).matrix
    values, vectors = np.linalg.eigh(matrix[row][:, row])
    places = vectors[:, -2:] * values[-2:]

    def spread_within(labels: Sequence[int]) -> float:
        clusters = np.array(labels)[row]
        members = [places[clusters == cluster] for cluster in set(labels)]
        return sum(float(((rows - rows.mean(axis=0)) ** 2).sum()) for rows in members)

    best = min(clusterings(9, 2), key=spread_within)
    for unit in (1.0, 1e12):
        labels = clusters_of(matrix / unit, 2, np.random.default_rng(0), copies * unit)
        assert labels.tolist() == best


def test_peng_wei__knows_no_unit_of_weight_or_affinity() -> None:
    case = CASES["weighted"]
    plain = peng_wei(affinity_of(case), 3, case.weights)
    scaled = peng_wei(1000 * affinity_of(case), 3, 0.25 * weights_of(case))
    assert_allclose(scaled.objective, 250 * plain.objective, rtol=1e-9)
    assert_allclose(scaled.matrix, 4 * plain.matrix, atol=1e-7)


def test_peng_wei__what_is_the_same_for_all_rows_changes_the_value_alone() -> None:
    affinity = affinity_of(CASES["spread 12"])
    plain = peng_wei(affinity, 3)
    # A constant c adds c per row; c on the diagonal adds c per cluster. Minus 500 makes the affinity indefinite.
    shifted = peng_wei(affinity + 7.0 - 500.0 * np.eye(12), 3)
    assert_allclose(shifted.objective, plain.objective + 7.0 * 12 - 500.0 * 3, rtol=1e-9)
    assert_allclose(shifted.matrix, plain.matrix, atol=1e-7)


# --- clusters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_clusters", [2, 3, 5])
def test_clusters__planted_ones_are_found_and_proven(n_clusters: int) -> None:
    rng = np.random.default_rng(n_clusters)
    planted = np.concatenate([np.arange(n_clusters), rng.integers(n_clusters, size=60)])
    points = 12.0 * np.eye(n_clusters)[planted] + rng.standard_normal((len(planted), n_clusters))
    weights = rng.integers(1, 4, len(planted)).astype(float)
    affinity = points @ points.T
    solution = peng_wei(affinity, n_clusters, weights)
    labels = clusters_of(solution.matrix, n_clusters, np.random.default_rng(0), weights)
    assert_array_equal(labels, planted)
    assert_allclose(value_of(planted.tolist(), affinity, weights), solution.bound, rtol=1e-5)


@pytest.mark.parametrize("kernel", [_kendall_similarity, _mallows_similarity])
def test_clusters__rankings_by_component_not_by_offer(kernel: Callable[..., NDArray[np.float64]]) -> None:
    """Two kinds of people, who agree on much, and two offers."""
    n_items, rng = 12, np.random.default_rng(5)
    shared = 6.0 * np.arange(6).repeat(2)
    worths = np.stack([shared + np.tile([3.0, 0.0], 6), shared + np.tile([0.0, 3.0], 6)])
    full, component = draw_rankings(worths, np.full(2, 0.5), 80, rng)
    offer = rng.integers(2, size=80)
    rows = [
        Ranking(tuple((item,) for item in order if 4 * number <= item < 4 * number + 8), (), "absent", 1.0)
        for order, number in zip(full.to_array().tolist(), offer.tolist(), strict=True)
    ]
    block = block_of(rows, n_items)

    def agreement(truth: NDArray[np.int64], **options: NDArray[np.float64]) -> float:
        solution = peng_wei(kernel(block, block, **options), 2, tol=1e-4)
        same = clusters_of(solution.matrix, 2, np.random.default_rng(0)) == truth
        return float(max(same.mean(), 1 - same.mean()))

    assert agreement(component, centre=_mean_preferences(block)) > 0.95
    assert agreement(offer) > 0.95, "without a centre, what was on offer is the signal"


def test_peng_wei__one_cluster_and_one_cluster_per_row() -> None:
    affinity, weights = affinity_of(CASES["weighted"]), weights_of(CASES["weighted"])
    one = peng_wei(affinity, 1, weights)
    assert_allclose(one.matrix, 1 / weights.sum())
    each = peng_wei(affinity, 10, weights)
    assert_allclose(each.matrix, np.diag(1 / weights), atol=1e-15)
    for solution, labels in ((one, [0] * 10), (each, list(range(10)))):
        assert solution.converged
        assert_allclose([solution.objective, solution.bound], value_of(labels, affinity, weights))
        found = clusters_of(solution.matrix, len(set(labels)), np.random.default_rng(0), weights)
        assert found.tolist() == labels
    assert peng_wei(np.array([[2.0]]), 1).objective == 2.0


def test_peng_wei__rows_all_alike() -> None:
    solution = peng_wei(np.ones((6, 6)), 3)
    assert solution.converged
    assert_allclose([solution.objective, solution.bound], 6.0)
    assert_allclose(solution.matrix.sum(axis=1), 1.0)


def test_clusters_of__fewer_points_than_clusters() -> None:
    matrix = np.kron(np.eye(2), np.full((3, 3), 1 / 3))
    assert clusters_of(matrix, 4, np.random.default_rng(0)).tolist() == [0, 0, 0, 1, 1, 1]


def test_clustering__bits_do_not_depend_on_threads() -> None:
    block, _ = draw_rankings(np.eye(3, 9) * 3, np.full(3, 1 / 3), 120, np.random.default_rng(1))
    kernel = _kendall_similarity(block, block)
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            solution = peng_wei(kernel, 3, max_iter=60)
            results.append((solution.matrix, clusters_of(solution.matrix, 3, np.random.default_rng(4))))
    assert_array_equal(results[0][0], results[1][0])
    assert_array_equal(results[0][1], results[1][1])


def test_clustering__refuses_weights_that_are_not_positive() -> None:
    with pytest.raises(SettingsError, match=r"weights must be positive numbers, but row 1 has 0\.0"):
        peng_wei(np.eye(3), 2, np.array([1.0, 0.0, 2.0]))
    with pytest.raises(SettingsError, match="weights must be positive numbers, but row 2 has inf"):
        peng_wei(np.eye(3), 2, np.array([1.0, 1.0, math.inf]))
    with pytest.raises(SettingsError, match=r"weights must be positive numbers, but row 0 has -1\.0"):
        clusters_of(np.eye(3), 2, np.random.default_rng(0), np.array([-1.0, 1.0, 1.0]))
