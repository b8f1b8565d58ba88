"""Samples of rows, and Hessians on them: no row is preferred, and sums are scaled to all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fit_oracle import block_of, drawn_rows, random_rows
from numpy.testing import assert_allclose

from plmix_dist.inference import Point, hessian
from plmix_dist.inference.hessian import Hessian, SampleHessian, newton_step
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.sampling import sample_rows, thinned

N_DRAWS = 600


def counts_of_rows(block: RankingBlock, share: float) -> tuple[np.ndarray[Any, Any], list[float]]:
    """How often each row was drawn, by its first item, and the weight of each sample."""
    drawn, weights = np.zeros(block.n_items), []
    for seed in range(N_DRAWS):
        part = sample_rows(block, share, np.random.default_rng(seed))
        np.add.at(drawn, part.items[part.offsets[:-1]], part.row_weights)
        weights.append(part.total_weight)
    return drawn, weights


@pytest.mark.parametrize("n_rows", [3, 10])
@pytest.mark.parametrize("share", [0.05, 0.15, 0.97])
def test_sample__every_row_is_as_likely(n_rows: int, share: float) -> None:
    # Row i is the only one that begins with item i.
    block = RankingBlock.from_array([[row, (row + 1) % n_rows] for row in range(n_rows)], unranked="absent")
    drawn, weights = counts_of_rows(block, share)
    deviation = np.sqrt(N_DRAWS * share * (1 - share))
    assert_allclose(drawn, N_DRAWS * share, atol=4.5 * deviation)
    assert np.mean(weights) == pytest.approx(share * n_rows, abs=4.5 * 0.5 / np.sqrt(N_DRAWS))
    # Rounded up or down, never further.
    assert set(weights) <= {np.floor(share * n_rows), np.ceil(share * n_rows)}


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_sample__counts_are_thinned(share: float) -> None:
    counts = np.array([1.0, 5.0, 40.0, 200.0])
    block = RankingBlock.from_array(
        [[row, (row + 1) % 4] for row in range(4)], weights=counts, unranked="absent"
    )
    drawn, _ = counts_of_rows(block, share)
    assert_allclose(drawn, N_DRAWS * share * counts, atol=5 * np.sqrt(N_DRAWS * counts.max() * share))
    assert_allclose(drawn / counts / N_DRAWS, share, atol=0.1)


def test_sample__order_and_whole_groups() -> None:
    block = RankingBlock.from_array(np.tile([[0, 1], [1, 0]], (50, 1))).replace(groups=np.arange(100) // 5)
    part = sample_rows(block, 0.3, np.random.default_rng(0))
    assert part.groups is not None
    found, sizes = np.unique(part.groups, return_counts=True)
    assert set(sizes.tolist()) == {5}
    assert part.groups.tolist() == np.repeat(found, 5).tolist()
    assert 0 < len(found) < 20


def test_sample__all_rows() -> None:
    block = RankingBlock.from_array([[0, 1], [1, 0]])
    assert sample_rows(block, 1.0, np.random.default_rng(0)) is block
    assert thinned(block, 2, np.random.default_rng(0)) is block
    assert thinned(block, 10, np.random.default_rng(0)) is block
    # Where nothing is drawn, all rows are better than none.
    assert thinned(block, 1e-9, np.random.default_rng(0)) is block


@pytest.mark.parametrize(
    ("weights", "expected"),
    [(None, 100), (np.full(1000, 10.0), 100), (np.full(1000, 2.5), 250)],
    ids=["rows", "counts", "weights"],
)
def test_thinned__counts_are_rankings_weights_are_not(weights: Any, expected: float) -> None:
    block = RankingBlock.from_array(np.tile([[0, 1]], (1000, 1)), weights=weights)
    found = [thinned(block, 100, np.random.default_rng(seed)).total_weight for seed in range(50)]
    assert np.mean(found) == pytest.approx(expected, rel=0.08)


# --- Hessians on samples ------------------------------------------------------------------------------------


def state(n_components: int, n_items: int) -> Point:
    rng = np.random.default_rng(n_components)
    point = Point.start(
        rng.normal(0, 0.8, (n_components, n_items)), rng.dirichlet(np.full(n_components, 5.0))
    )
    return point._replace(ghosts=rng.normal(0, 0.5, n_components))


def test_hessian__prior_counts_as_in_all_rows() -> None:
    rows = block_of(random_rows(3, 5, 20), 5)
    point, alpha, weight = state(2, 5), 2.0, 50 * rows.total_weight
    found = SampleHessian(rows, alpha, weight).at(point)
    # All rows have `alpha` pseudo-wins and losses per item: per unit of weight that is alpha / weight.
    for k in range(2):
        odds = np.exp(point.log_worths[k] - point.ghosts[k])
        variance = odds / (1 + odds) ** 2
        assert found.complete[10 + k, 10 + k] == pytest.approx(2 * alpha / weight * variance.sum(), rel=1e-9)
        assert_allclose(found.complete[5 * k : 5 * k + 5, 10 + k], -2 * alpha / weight * variance, rtol=1e-9)


def test_hessian__does_not_grow_with_the_rows() -> None:
    rows = block_of(random_rows(4, 5, 20), 5)
    point = state(2, 5)
    once, often = (
        SampleHessian(rows.replace(weights=factor * rows.row_weights), 0.0, 1.0).at(point)
        for factor in (1, 7)
    )
    assert_allclose(once.observed, often.observed, rtol=1e-10, atol=1e-14)
    assert_allclose(once.complete, often.complete, rtol=1e-10, atol=1e-14)
    assert often.weight == pytest.approx(7 * once.weight)


@pytest.mark.parametrize("expected", [4000, 1000, 500])
def test_hessian__more_parameters_fewer_rows(monkeypatch: pytest.MonkeyPatch, expected: int) -> None:
    # Long rows, which are not merged.
    rows = RankingBlock.from_array(np.argsort(np.random.default_rng(0).random((4000, 30)), axis=1))
    point = Point.start(np.zeros((1, 30)), np.ones(1))
    assert point.n_parameters == 32
    monkeypatch.setattr(hessian, "_MOST_WORK", expected * 32.0**2)
    assert SampleHessian(rows, 0.1, 1e6)._rows_for(point).total_weight == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("share_of_weight", "doubt"), [(1.0, 0.0), (0.5, 0.5 * np.sqrt(8 / 400))], ids=["all", "half"]
)
def test_hessian__doubt(share_of_weight: float, doubt: float) -> None:
    rows = block_of(drawn_rows(2, np.zeros((1, 6)), [1.0], 400), 6)
    point = Point.start(np.zeros((1, 6)), np.ones(1))
    assert point.n_parameters == 8
    assert SampleHessian(rows, 0.1, 400 / share_of_weight).at(point).doubt == pytest.approx(doubt)


HERE = Point.start(np.zeros((1, 2)), np.ones(1))


def step_by(observed: list[float], complete: list[float], **given: Any) -> tuple[Point, float] | None:
    """A step by matrices that are diagonal; the derivative is 1e-6 for the ghost alone."""
    information = Hessian(
        np.diag(observed),
        np.diag(complete),
        np.ones(4, np.bool_),
        weight=1.0,
        doubt=given.get("doubt", 0.0),
        scale=np.array(complete),
    )
    return newton_step(
        information, HERE, np.array([0.0, 0.0, 1e-6, 0.0]), np.ones(4), given.get("damping", 0.0)
    )


@pytest.mark.parametrize(("known", "move"), [(2e-3, 1e-6 / 2e-3), (0.5e-3, 1e-6 / (1 + 0.5e-3))])
def test_step__what_the_sample_hardly_knows_goes_by_the_scale(known: float, move: float) -> None:
    found = step_by([1.0, 1.0, known, 1.0], [1.0, 1.0, known, 1.0])
    assert found is not None
    assert found[0].ghosts[0] == pytest.approx(move, rel=1e-9)


@pytest.mark.parametrize(
    ("least", "damping"),
    [(0.5, 0.0), (-0.01, 0.02), (-0.03, 0.06), (-0.5, 0.54), (-4.5, 4.86), (-5.0, None)],
)
def test_step__damping_is_trebled_up_to_ten(least: float, damping: float | None) -> None:
    found = step_by([1.0, 1.0, least, 1.0], [1.0, 1.0, 1.0, 1.0])
    assert (found is None) is (damping is None)
    if found is not None and damping is not None:
        assert found[1] == pytest.approx(damping)
        assert found[0].ghosts[0] == pytest.approx(1e-6 / (least + damping))


@pytest.mark.parametrize(("damping", "doubt"), [(0.3, 0.1), (0.1, 0.3)])
def test_step__damping_is_at_least_the_doubt(damping: float, doubt: float) -> None:
    found = step_by([1.0] * 4, [1.0] * 4, damping=damping, doubt=doubt)
    assert found is not None
    assert found[1] == pytest.approx(0.3)
    assert found[0].ghosts[0] == pytest.approx(1e-6 / 1.3)
