"""Ties in last place that are not ties, and random portions of rows."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Ranking, chi_square, chi_square_bound, plain_rankings, rankings

from plmix_dist import RankingBlock
from plmix_dist.rankings.portions import draw_portions
from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from oracle import PlainRankings

# --- ties ------------------------------------------------------------------------------------------------

TIES = {
    "last of all": (Ranking(((0,), (1, 2)), (), "absent", 2.0), Ranking(((0,),), (1, 2), "absent", 2.0)),
    "last of a subset": (Ranking(((3,), (1, 4)), (), "absent", 1.0), Ranking(((3,),), (1, 4), "absent", 1.0)),
    "everything": (
        Ranking(((0, 1, 2, 3, 4),), (), "absent", 1.0),
        Ranking((), (0, 1, 2, 3, 4), "absent", 1.0),
    ),
    "two ties": (
        Ranking(((0, 1), (2, 3)), (), "absent", 1.0),
        Ranking(((0, 1),), (2, 3), "absent", 1.0),
    ),
    "first": (Ranking(((0, 1), (2,)), (), "absent", 1.0), None),
    "others below": (Ranking(((0,), (1, 2)), (), "below", 1.0), None),
    "others offered": (Ranking(((0,), (1, 2)), (3,), "absent", 1.0), None),
    "no tie": (Ranking(((0,), (1,), (2,)), (), "absent", 1.0), None),
}


@pytest.mark.parametrize(("ranking", "expected"), TIES.values(), ids=TIES)
def test_last_ties__are_unordered_where_they_complete_the_offer(
    ranking: Ranking, expected: Ranking | None
) -> None:
    block = RankingBlock.from_rows([ranking], n_items=5)
    assert list(unorder_last_ties(block).rows()) == [expected or ranking]


def test_last_ties__row_by_row() -> None:
    before, after = zip(*((ranking, expected or ranking) for ranking, expected in TIES.values()), strict=True)
    block = RankingBlock.from_rows(before, n_items=5, ids=list(range(len(before))))
    found = unorder_last_ties(block)
    assert list(found.rows()) == list(after)
    assert found.ids.tolist() == list(range(len(before)))
    assert found.items.tolist() == block.items.tolist()


@settings(max_examples=100)
@given(rows=st.lists(rankings(5), max_size=6))
def test_last_ties__of_any_rows(rows: list[Ranking]) -> None:
    expected = []
    for row in rows:
        n_listed = sum(map(len, row.ordered)) + len(row.offered)
        below = row.unranked == "below" and n_listed < 5
        if len(row.ordered[-1]) > 1 and not row.offered and not below:
            row = row._replace(ordered=row.ordered[:-1], offered=row.ordered[-1])
        expected.append(row)
    assert list(unorder_last_ties(RankingBlock.from_rows(rows, n_items=5)).rows()) == expected


def test_last_ties__once_is_enough() -> None:
    block = unorder_last_ties(RankingBlock.from_rows([TIES["two ties"][0]], n_items=5))
    assert list(unorder_last_ties(block).rows()) == list(block.rows())


# --- portions --------------------------------------------------------------------------------------------

SHARES = np.array([0.5, 0.3, 0.2])


def equal_rows(n_rankings: int, weights: list[float] | None = None, **labels: list[int]) -> RankingBlock:
    rows = [Ranking(((0,), (1,)), (), "absent", weight) for weight in weights or [1.0] * n_rankings]
    return RankingBlock.from_rows(rows, n_items=2, **labels)


@settings(max_examples=40)
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
