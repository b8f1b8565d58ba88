"""The comparison graph, compared with a list of all pairs of every row, for every kind of row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from plmix_dist import RankingBlock
from plmix_dist.rankings import comparison
from plmix_dist.rankings.comparison import ComparisonGraph, add_comparisons, comparison_graph, comparisons
from tests.helpers.marks import examples
from tests.helpers.oracle import Ranking, full, rankings

if TYPE_CHECKING:
    from collections.abc import Sequence


def pairs_of(row: Ranking, n_items: int) -> tuple[set[int], set[tuple[int, int]]]:
    """The items on offer in a row, and every pair of items (above, below) that it contains."""
    listed = [item for place in row.ordered for item in place] + list(row.offered)
    offer = set(range(n_items)) if row.unranked == "below" else set(listed)
    places = list(row.ordered)
    if len(places[-1]) > 1 and set(listed) == offer and not row.offered:
        places.pop()  # tied in last place with nothing below: these were not ordered
    pairs = set()
    left = set(offer)
    for place in places:
        left -= set(place)
        pairs |= {(winner, loser) for winner in place for loser in left}
        pairs |= {(one, other) for one in place for other in place if one != other}
    return offer, pairs


def check_against_all_pairs(rows: Sequence[Ranking], n_items: int, graph: ComparisonGraph) -> None:
    above = np.zeros((n_items, n_items), np.bool_)
    offered = np.zeros(n_items, np.bool_)
    for row in rows:
        offer, pairs = pairs_of(row, n_items)
        offered[list(offer)] = True
        for winner, loser in pairs:
            above[winner, loser] = True
    n_groups, labels = connected_components(above, connection="strong")
    assert graph.n_groups == n_groups
    assert {(a, b) for a in range(n_items) for b in range(n_items) if graph.group[a] == graph.group[b]} == {
        (a, b) for a in range(n_items) for b in range(n_items) if labels[a] == labels[b]
    }
    sizes = np.bincount(graph.group)
    firsts = [int(np.flatnonzero(graph.group == group)[0]) for group in range(n_groups)]
    assert [(-size, first) for size, first in zip(sizes, firsts, strict=True)] == sorted(
        (-size, first) for size, first in zip(sizes.tolist(), firsts, strict=True)
    )
    assert graph.never_offered.tolist() == np.flatnonzero(~offered).tolist()
    assert graph.never_above.tolist() == np.flatnonzero(offered & ~above.any(axis=1)).tolist()
    assert graph.never_below.tolist() == np.flatnonzero(offered & ~above.any(axis=0)).tolist()


@st.composite
def some_rows(draw: st.DrawFn) -> tuple[int, list[Ranking]]:
    n_items = draw(st.integers(2, 9))
    return n_items, draw(st.lists(rankings(n_items), min_size=1, max_size=6))


@pytest.mark.promise(22)
@examples(150)
@given(case=some_rows())
def test_graph__of_any_rows(case: tuple[int, list[Ranking]]) -> None:
    n_items, rows = case
    block = RankingBlock.from_rows(rows, n_items=n_items)
    check_against_all_pairs(rows, n_items, comparison_graph(comparisons(block)))


@examples(50)
@given(case=some_rows(), cut=st.integers(0, 6))
def test_comparisons__add_up_over_blocks(case: tuple[int, list[Ranking]], cut: int) -> None:
    n_items, rows = case
    block = RankingBlock.from_rows(rows, n_items=n_items)
    parts = [comparisons(block[:cut]), comparisons(block[cut:])]
    check_against_all_pairs(rows, n_items, comparison_graph(add_comparisons(*parts)))


@pytest.mark.parametrize("seed", range(20))
def test_graph__of_sparse_rows_of_many_items(seed: int) -> None:
    # Few rows over many items give many groups, and sets of all sizes that no top-k row is above.
    rng = np.random.default_rng(seed)
    n_items = int(rng.integers(10, 70))
    rows = []
    for _ in range(int(rng.integers(1, 40))):
        items = rng.permutation(n_items)[: rng.integers(2, 6)].tolist()
        kind = rng.integers(3)
        offered = tuple(items[-1:]) if kind == 2 else ()
        ordered = tuple((item,) for item in items[: len(items) - len(offered)])
        rows.append(Ranking(ordered, offered, "below" if kind == 0 else "absent", 1.0))
    block = RankingBlock.from_rows(rows, n_items=n_items)
    check_against_all_pairs(rows, n_items, comparison_graph(comparisons(block)))


@pytest.mark.promise(22)
@pytest.mark.parametrize(
    ("rows", "n_groups", "never_above", "never_below", "never_offered"),
    [
        ([full(0, 1, 2), full(1, 0, 2)], 2, [2], [], []),
        ([full(0, 1, 2), full(0, 2, 1)], 2, [], [0], []),
        ([full(0, 1), full(1, 0)], 2, [], [], [2]),
        ([Ranking(((0, 1, 2),), (), "absent", 1.0)], 3, [0, 1, 2], [0, 1, 2], []),
        ([Ranking(((0, 1), (2,)), (), "absent", 1.0)], 2, [2], [], []),
        ([Ranking(((0,), (1, 2)), (), "absent", 1.0)], 3, [1, 2], [0], []),
        ([Ranking(((0,),), (), "below", 1.0), Ranking(((1,),), (), "below", 1.0)], 2, [2], [], []),
        ([Ranking(((0,),), (1,), "absent", 1.0), Ranking(((1,),), (0,), "absent", 1.0)], 2, [], [], [2]),
    ],
    ids=["never wins", "never loses", "never on offer", "all tied", "tied first", "tied last", "best of all", "slates"],
)
def test_graph__known_cases(
    rows: list[Ranking], n_groups: int, never_above: list[int], never_below: list[int], never_offered: list[int]
) -> None:
    graph = comparison_graph(comparisons(RankingBlock.from_rows(rows, n_items=3)))
    assert graph.n_groups == n_groups
    assert graph.never_above.tolist() == never_above
    assert graph.never_below.tolist() == never_below
    assert graph.never_offered.tolist() == never_offered


@pytest.mark.promise(24)
def test_graph__thousands_of_items_need_few_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    n_items, n_rows = 5000, 20_000
    rng = np.random.default_rng(0)
    # A list of all pairs of these rows would have a hundred million entries.
    favourites = rng.permuted(np.tile(np.arange(5), (n_rows, 1)), axis=1) + rng.integers(0, 10, (n_rows, 1))
    drawn = rng.integers(0, n_items, (n_rows, 5))
    anyone = drawn[[len(set(row)) == 5 for row in drawn.tolist()]]
    edges: list[int] = []

    def counted(entries: tuple[Any, ...], shape: tuple[int, int]) -> Any:
        edges.append(len(entries[0]))
        return coo_array(entries, shape=shape)

    monkeypatch.setattr(comparison, "coo_array", counted)
    few, connected = (
        comparison_graph(comparisons(RankingBlock.from_array(rows, n_items=n_items, unranked="below")))
        for rows in (favourites, anyone)
    )
    assert max(edges) < 200_000
    # Only items 0 to 13 are ever listed, so all others are below and never above.
    assert few.never_above.tolist() == list(range(14, n_items))
    assert few.never_below.tolist() == []
    assert few.n_groups == 1 + n_items - 14
    assert connected.n_groups == 1
