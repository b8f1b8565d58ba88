"""What Python hands in beside lists and arrays: ties in rows, notation, choices, counts, profiles, Arrow's tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

import plmix_dist as plm
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import PlmixError

if TYPE_CHECKING:
    from plmix_dist import RankingBlock


def block_of(source: Any, **options: Any) -> RankingBlock:
    found: RankingBlock = as_rankings(source, **options).source.block  # type: ignore[attr-defined]
    return found


def rows_of(source: Any, **options: Any) -> list[tuple[Any, ...]]:
    """Places, what else was on offer, and weight of each row, items by name."""
    names = as_rankings(source, **options).item_names
    return [
        (
            [[names[item] for item in place] for place in one.ordered],
            [names[item] for item in one.offered],
            one.unranked,
            one.weight,
        )
        for one in block_of(source, **options).rows()
    ]


ABC = [(["a"], ["b", "c"]), (["c"], ["a"], ["b"])]
PLAIN: list[tuple[Any, ...]] = [([list(place) for place in row], [], "absent", 1.0) for row in ABC]


@pytest.mark.parametrize(
    "rows",
    [
        [["a", ["b", "c"]], ["c", "a", "b"]],
        [["a", {"b", "c"}], ["c", "a", "b"]],
        [["a", ("b", "c")], ["c", "a", "b"]],
        [[["a"], frozenset("bc")], [["c"], "a", ["b"]]],
        ["a > b = c", "c > a > b"],
        ["a>b=c", "c>a>b"],
        ["a {b c}", "c a b"],
        pd.Series(["a>b=c", "c>a>b"]),
        {("a", ("b", "c")): 1, "c>a>b": 1.0},
    ],
)
def test_ties__in_every_notation(rows: Any) -> None:
    if isinstance(rows, dict):  # a tuple of two, of which the second is a group, is a choice
        rows = {"a > b = c": 1, ("c", "a", "b"): 1}
    assert rows_of(rows) == PLAIN


def test_ties__of_numbers() -> None:
    found = block_of([[0, [1, 2]], [2, 0, 1]])
    assert found.items.tolist() == [0, 1, 2, 2, 0, 1]
    assert found.tied is not None
    assert found.tied.tolist() == [False, False, True, False, False, False]


def test_ties__a_group_late_in_a_list() -> None:
    rows: list[Any] = [[0, 1, 2]] * 50
    assert block_of([*rows, [1, [0, 2]]]).n_rankings == 51


def test_choices__from_what_was_on_offer() -> None:
    found = rows_of([("a", ["a", "b"]), ("b", {"a", "b", "c"}), (["c", "a"], ["c", "a", "b"])])
    assert found[0] == ([["a"]], ["b"], "absent", 1.0)
    assert (found[1][0], sorted(found[1][1])) == ([["b"]], ["a", "c"])
    assert found[2] == ([["c"], ["a"]], ["b"], "absent", 1.0)


def test_counts__are_weights() -> None:
    assert rows_of({("a", "b", "c"): 12, ("c", "b", "a"): 0.5}) == [
        ([["a"], ["b"], ["c"]], [], "absent", 12.0),
        ([["c"], ["b"], ["a"]], [], "absent", 0.5),
    ]


class Ballot(NamedTuple):
    ranking: tuple[frozenset[str], ...]
    weight: float


def test_profiles__of_other_packages() -> None:
    ballots = [Ballot((frozenset("a"), frozenset("bc")), 2), Ballot((frozenset("c"), frozenset(), frozenset("a")), 1.5)]
    by_votekit = rows_of(SimpleNamespace(ballots=ballots, candidates="abc"), unranked="below")
    assert by_votekit == [([["a"], ["b", "c"]], [], "absent", 2.0), ([["c"], ["a"]], [], "below", 1.5)]

    with_ties = SimpleNamespace(
        cmap={0: "a", 1: "b", 2: "c"},
        rankings_counts=([SimpleNamespace(rmap={0: 1, 2: 2, 1: 2}), np.array([2, 0, 1])], [2, 1]),
    )
    assert [row[0] for row in rows_of(with_ties)] == [[["a"], ["c", "b"]], [["c"], ["a"], ["b"]]]


BATTLES = {
    "model_a": ["x", "y", "x", "z"],
    "model_b": ["y", "z", "z", "x"],
    "winner": ["model_a", "tie", "model_b", "model_a"],
    "text": ["...", "...", "...", "...."],
}


class _Stream:
    """A table that has nothing but its columns and Arrow's interface, as a relation of DuckDB."""

    columns = tuple(BATTLES)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.table(BATTLES).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "source", [pd.DataFrame(BATTLES), BATTLES, pa.table(BATTLES), _Stream()], ids=lambda x: type(x).__name__
)
def test_battles__as_tables(source: Any) -> None:
    assert [row[0] for row in rows_of(source)] == [[["x"], ["y"]], [["y", "z"]], [["z"], ["x"]], [["z"], ["x"]]]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([("a", ["b", "c"])], "row 0: a tuple of two is a choice (chosen, offered), but 'a'"),
        ([["a", ["b", 1]], ["b", "a"]], "row 0, column 2 is the number 1, but row 0, column 0 is the name 'a'"),
        ([["a", ["b", ["c"]]]], "row 0, column 2: expected an item's name or its number"),
        ([["a", ["b", "a"]]], "item a is listed twice"),
        ([[1, [2, 3]]], "no row lists item 0"),
        (["a > = b"], "row 0: '=' joins tied items"),
        ({("a", "b"): "many"}, "a value is not a number"),
        ([["a", ["b", "c"]], ["a"]], 'say unranked="below"'),
    ],
)
def test_refused__by_row(source: Any, words: str) -> None:
    with pytest.raises(PlmixError) as caught:
        as_rankings(source)
    assert words in str(caught.value)


def test_fit__score_and_predict_take_them() -> None:
    model = plm.PlackettLuceMixture(1, random_state=0).fit(
        {("a", "b", "c"): 12, ("b", "a", "c"): 5, ("c", "a", "b"): 3}
    )
    assert model.item_names_ == ("a", "b", "c")
    assert model.score(["a > b = c"]) < 0
    assert model.predict([("a", ["a", "c"]), ["b", ["a", "c"]]]).tolist() == [0, 0]
    with pytest.raises(PlmixError, match="'d' is not among"):
        model.score(["a > d"], unranked="absent")


def test_fit__a_short_row_among_choices_is_named() -> None:
    with pytest.raises(PlmixError, match="row 1 lists 1 of 2 items"):
        plm.PlackettLuceMixture(1).fit([("a", ["a", "b"]), ["a"], ["b", "a"]])


def test_sets__are_listed_in_one_order_whatever_their_hashes() -> None:
    names = [f"item {letter}" for letter in "hgfedcba"]  # sets of text iterate in another order in each process
    block = block_of([[set(names)], [frozenset(names[::-1])]])
    assert block.items.tolist() == [*range(8)] * 2
