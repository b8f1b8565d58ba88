"""Samples of rows: no row is preferred, counts are thinned, groups stay whole."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from plmix_dist import RankingBlock
from plmix_dist.rankings.sampling import draw_portions, sample_rows, thinned
from tests.helpers.marks import examples
from tests.helpers.oracle import Ranking, chi_square, chi_square_bound, plain_rankings

if TYPE_CHECKING:
    from tests.helpers.oracle import PlainRankings


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
    block = RankingBlock.from_array([[row, (row + 1) % 4] for row in range(4)], weights=counts, unranked="absent")
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


# --- portions --------------------------------------------------------------------------------------------

SHARES = np.array([0.5, 0.3, 0.2])


def equal_rows(n_rankings: int, weights: list[float] | None = None, **labels: list[int]) -> RankingBlock:
    rows = [Ranking(((0,), (1,)), (), "absent", weight) for weight in weights or [1.0] * n_rankings]
    return RankingBlock.from_rows(rows, n_items=2, **labels)


@examples(40)
@given(rows=plain_rankings(max_rows=10, n_items=3), seed=st.integers(0, 2**32))
def test_portions__add_up_to_the_whole(rows: PlainRankings, seed: int) -> None:
    portions = draw_portions(rows.block(), SHARES, np.random.default_rng(seed))
    assert portions.shape == (3, len(rows.rows))
    assert (portions >= 0).all()
    for row, parts in zip(rows.rows, portions.T.tolist(), strict=True):
        assert math.fsum(parts) == row.weight
        # Rows with other than integer weights go to one part; counts are divided into counts.
        if not row.weight.is_integer() or row.weight >= 2**53:
            assert sorted(parts) == [0.0, 0.0, row.weight]
        assert row.weight >= 2**53 or not row.weight.is_integer() or all(part.is_integer() for part in parts)
    if rows.groups is not None:
        chosen = dict(zip(rows.groups, portions.argmax(axis=0).tolist(), strict=True))
        assert [chosen[group] for group in rows.groups] == portions.argmax(axis=0).tolist()
        assert (np.count_nonzero(portions, axis=0) == 1).all()


def test_portions__the_same_seed_the_same_parts() -> None:
    block = equal_rows(0, [7.0] * 50)
    first, second, other = (draw_portions(block, SHARES, np.random.default_rng(seed)) for seed in (4, 4, 5))
    assert (first == second).all()
    assert (first != other).any()


def test_portions__a_count_divides_as_so_many_rankings_would() -> None:
    n_rows = 20_000
    portions = draw_portions(equal_rows(0, [2.0] * n_rows), SHARES, np.random.default_rng(1))
    chances = {}
    for first in range(3):
        for second in range(3):
            cell = tuple(float((first == part) + (second == part)) for part in range(3))
            chances[cell] = chances.get(cell, 0.0) + SHARES[first] * SHARES[second]
    observed = Counter(map(tuple, portions.T.tolist()))
    assert chi_square(observed, chances) < chi_square_bound(len(chances))


@pytest.mark.parametrize("case", ["rows", "fractions", "groups", "one large count"])
def test_portions__shares_are_kept(case: str) -> None:
    n_units = 20_000
    block = {
        "rows": lambda: equal_rows(n_units),
        "fractions": lambda: equal_rows(0, [0.5] * n_units),
        "groups": lambda: equal_rows(2 * n_units, groups=[number // 2 for number in range(2 * n_units)]),
        "one large count": lambda: equal_rows(0, [float(n_units)]),
    }[case]()
    portions = draw_portions(block, SHARES, np.random.default_rng(2)).sum(axis=1)
    counts = portions / portions.sum() * n_units
    observed = dict(enumerate(counts.tolist()))
    assert chi_square(observed, dict(enumerate(SHARES.tolist()))) < chi_square_bound(3)


def test_portions__neighbouring_groups_of_one_leaf_are_drawn_apart() -> None:
    block = equal_rows(4000, groups=list(range(4000)))
    chosen = draw_portions(block, np.array([0.5, 0.5]), np.random.default_rng(3)).argmax(axis=0)
    # Equal parts follow each other half the time, within six standard deviations.
    assert abs(np.mean(chosen[1:] == chosen[:-1]) - 0.5) < 6 * 0.5 / math.sqrt(4000)
