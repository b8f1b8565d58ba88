"""Cutting rows into leaves, and merging equal rows."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import PlainRankings, full, plain, plain_rankings

from plmix_dist.errors import RankingError
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.leaves import cut_leaves, default_leaf_rows
from plmix_dist.rankings.merge import merge_equal_rows


@given(st.integers(0, 200), st.integers(1, 50))
def test_cut_leaves__law(n_rows: int, leaf_rows: int) -> None:
    leaves = cut_leaves(n_rows, leaf_rows)
    assert sum(leaves) == n_rows
    assert all(rows == leaf_rows for rows in leaves[:-1])
    assert all(0 < rows <= leaf_rows for rows in leaves)


@given(st.lists(st.integers(1, 12)), st.integers(1, 10))
def test_cut_leaves__keeps_groups_whole(group_sizes: list[int], leaf_rows: int) -> None:
    group_ends = list(itertools.accumulate(group_sizes))
    starts = np.array([place == 0 for size in group_sizes for place in range(size)], np.bool_)
    leaves = cut_leaves(len(starts), leaf_rows, starts)
    assert sum(leaves) == len(starts)
    leaf_ends = list(itertools.accumulate(leaves))
    assert set(leaf_ends) <= set(group_ends)
    for first, last in itertools.pairwise([0, *leaf_ends]):
        inside = [end for end in group_ends if first < end <= last]
        # A leaf is too large only if it is one group, and never so small that the next group would fit.
        assert last - first <= leaf_rows or len(inside) == 1
        following = next((end for end in group_ends if end > last), None)
        assert following is None or following - first > leaf_rows


@given(st.lists(st.integers(1, 4)), st.integers(1, 10))
def test_cut_leaves__lone_rows_are_groups_of_one(group_sizes: list[int], leaf_rows: int) -> None:
    n_rows = sum(group_sizes)
    assert cut_leaves(n_rows, leaf_rows, np.ones(n_rows, np.bool_)) == cut_leaves(n_rows, leaf_rows)


@pytest.mark.parametrize("n_items", [2, 100, 2048, 2049, 5000, 20_000])
def test_default_leaf_rows__law(n_items: int) -> None:
    rows = default_leaf_rows(n_items)
    assert rows >= max(4096, 2 * n_items)
    assert rows == 4096 or rows < 4 * n_items
    assert bin(rows).count("1") == 1


@given(plain_rankings(max_rows=6), st.data())
def test_merge__counts_as_a_counter_does(distinct: PlainRankings, data: st.DataObject) -> None:
    numbers = (
        data.draw(st.lists(st.integers(0, len(distinct.rows) - 1), max_size=30)) if distinct.rows else []
    )
    # Integer weights, so that their sums do not depend on the order.
    rows = [distinct.rows[number]._replace(weight=float(data.draw(st.integers(1, 9)))) for number in numbers]
    counts: Counter[object] = Counter()
    for row in rows:
        counts[row._replace(weight=1.0)] += row.weight
    merged = merge_equal_rows(PlainRankings(distinct.n_items, rows).block())
    # A Counter keeps the order of first occurrence, and so must the merged block.
    assert plain(merged).rows == [row._replace(weight=weight) for row, weight in counts.items()]


def test_merge__rows_alike_but_for_one_thing_stay_apart(every_column: PlainRankings) -> None:
    tied = every_column.rows[0]
    rows = [
        tied,
        tied._replace(unranked="absent"),
        tied._replace(ordered=((0,), (1,), (2,), (3,))),
        tied._replace(ordered=((0,), (1, 2, 3))),
        tied._replace(ordered=((0,), (1, 2)), offered=(3, 4)),
        tied._replace(ordered=((0,), (1, 2), (4,)), offered=(3,)),
    ]
    merged = merge_equal_rows(PlainRankings(6, rows * 2).block())
    assert plain(merged).rows == [row._replace(weight=5.0) for row in rows]


def test_merge__drops_ids() -> None:
    block = RankingBlock.from_rows([full(0, 1), full(0, 1)], n_items=2, ids=["a", "b"])
    assert merge_equal_rows(block).ids is None


def test_merge__groups_are_refused() -> None:
    block = RankingBlock.from_rows([full(0, 1), full(0, 1)], n_items=2, groups=["ann", "bob"])
    with pytest.raises(RankingError, match="rankings with groups cannot be merged"):
        merge_equal_rows(block)


def test_merge__items_of_two_bytes() -> None:
    # Items with equal low bytes are different items.
    block = RankingBlock.from_array([[1, 257], [257, 1], [1, 513], [1, 257]], n_items=600, unranked="absent")
    assert merge_equal_rows(block).weights.tolist() == [2.0, 1.0, 1.0]
