"""Ties at the end of a row, which leave their items unordered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plmix_dist import RankingBlock
from plmix_dist.rankings.ties import unorder_last_ties
from tests.helpers.marks import examples
from tests.helpers.oracle import Ranking, rankings

# --- ties ------------------------------------------------------------------------------------------------

TIES = {
    "last of all": (Ranking(((0,), (1, 2)), (), "absent", 2.0), Ranking(((0,),), (1, 2), "absent", 2.0)),
    "last of a subset": (Ranking(((3,), (1, 4)), (), "absent", 1.0), Ranking(((3,),), (1, 4), "absent", 1.0)),
    "everything": (Ranking(((0, 1, 2, 3, 4),), (), "absent", 1.0), Ranking((), (0, 1, 2, 3, 4), "absent", 1.0)),
    "two ties": (Ranking(((0, 1), (2, 3)), (), "absent", 1.0), Ranking(((0, 1),), (2, 3), "absent", 1.0)),
    "first": (Ranking(((0, 1), (2,)), (), "absent", 1.0), None),
    "others below": (Ranking(((0,), (1, 2)), (), "below", 1.0), None),
    "others offered": (Ranking(((0,), (1, 2)), (3,), "absent", 1.0), None),
    "no tie": (Ranking(((0,), (1,), (2,)), (), "absent", 1.0), None),
}


@pytest.mark.parametrize(("ranking", "expected"), TIES.values(), ids=TIES)
def test_last_ties__are_unordered_where_they_complete_the_offer(ranking: Ranking, expected: Ranking | None) -> None:
    block = RankingBlock.from_rows([ranking], n_items=5)
    assert list(unorder_last_ties(block).rows()) == [expected or ranking]


def test_last_ties__row_by_row() -> None:
    before, after = zip(*((ranking, expected or ranking) for ranking, expected in TIES.values()), strict=True)
    block = RankingBlock.from_rows(before, n_items=5, ids=list(range(len(before))))
    found = unorder_last_ties(block)
    assert list(found.rows()) == list(after)
    assert found.ids.tolist() == list(range(len(before)))
    assert found.items.tolist() == block.items.tolist()


@examples(100)
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
