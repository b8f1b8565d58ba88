"""RankingBlock: from and to arrays and rows, slices, concatenation, and checks of bad rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plmix_dist.errors import RankingError
from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.rankings import Ranking, RankingBlock, concatenate, row_problems
from tests.helpers.oracle import PlainRankings, full, joined, plain, plain_rankings

# --- from arrays -----------------------------------------------------------------------------------------


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(
                st.permutations(range(n)).flatmap(lambda order: st.integers(1, len(order)).map(lambda k: order[:k]))
            ),
        )
    )
)
def test_from_array__law(case: tuple[int, list[list[int]]]) -> None:
    n_items, lists = case
    table = np.full((len(lists), n_items + 1), -1, np.int16)
    for row, items in enumerate(lists):
        table[row, : len(items)] = items
    block = RankingBlock.from_array(table, n_items=n_items, unranked="below")
    below = ["below" if len(items) < n_items else "absent" for items in lists]
    assert [row.ordered for row in block.rows()] == [tuple((item,) for item in items) for items in lists]
    assert [row.unranked for row in block.rows()] == below
    longest = max(map(len, lists), default=0)
    assert block.to_array().tolist() == [items + [-1] * (longest - len(items)) for items in lists]


def test_from_array__counts_the_items_it_finds() -> None:
    assert RankingBlock.from_array([[4, 0, 2, 3, 1]]).n_items == 5


# Numbers just below and above the limit of a type must not overflow a narrower type.
@pytest.mark.parametrize(("n_items", "width"), [(255, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_from_array__keeps_items_in_the_narrowest_type(n_items: int, width: int) -> None:
    block = RankingBlock.from_array([[n_items - 1, 0]], n_items=n_items, unranked="below")
    assert (block.items.dtype.itemsize, block.items.tolist()) == (width, [n_items - 1, 0])


def test_from_array__no_rows() -> None:
    block = RankingBlock.from_array(np.empty((0, 3), np.int64), n_items=3)
    assert (block.n_rankings, block.total_weight, list(block.rows())) == (0, 0.0, [])
    assert block.to_array().shape == (0, 0)


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        ([0, 1, 2], {}, r"shape \(rankings, places\).* but got shape \(3,\)"),
        ([[0.0, 1.0]], {}, "expected integer item numbers, but got float64"),
        ([[True, False]], {}, "expected integer item numbers, but got bool"),
        ([["a", "b"]], {}, "expected integer item numbers, but got <U1"),
        ([[0, 1, 2], [0, -1, 1]], {"unranked": "below"}, r"row 1: an item follows a missing place \(-1\)"),
        ([[0, 1, 2], [0, -1, 1]], {"unranked": "below", "first_row": 70}, "row 71: an item follows"),
        ([[0, 1], [1, -7]], {"unranked": "below"}, "row 1: item -7 is out of range"),
        ([[0, 1], [1, 5]], {"n_items": 2}, "row 1: item 5 is out of range: there are 2 items"),
        ([[0, 1, 2], [2, 0, -1]], {}, 'row 1 lists 2 of 3 items.*unranked="below".*unranked="absent"'),
        ([[0, 1]], {"n_items": 3, "unranked": "bellow"}, """"below" or "absent", but got 'bellow'"""),
        ([[0, 1], [1, 0]], {"weights": [1.0]}, r"expected 2 weights, one per ranking, but got shape \(1,\)"),
        ([[0, 1], [1, 0]], {"weights": [[1.0, 1.0]]}, r"expected 2 weights.*got shape \(1, 2\)"),
        ([[0, 1], [1, 0]], {"weights": ["1", "many"]}, "many"),
        ([[0, 1], [1, 0]], {"weights": [1.0, -2.0], "first_row": 10}, "row 11: weight -2 is not a positive"),
    ],
)
def test_from_array__refused(array: list[object], options: dict[str, object], message: str) -> None:
    with pytest.raises(RankingError, match=message):
        RankingBlock.from_array(array, **options)


def test_to_array__ties_and_slates_do_not_fit() -> None:
    for row in (Ranking(((0, 1),), (), "absent", 1.0), Ranking(((0,),), (1,), "absent", 1.0)):
        with pytest.raises(RankingError, match="ties and slates do not fit"):
            RankingBlock.from_rows([row], n_items=3).to_array()


# --- from rows -------------------------------------------------------------------------------------------


@given(plain_rankings())
def test_from_rows__gives_back_what_it_took(given_rows: PlainRankings) -> None:
    block = given_rows.block()
    assert plain(block) == given_rows
    assert block.total_weight == pytest.approx(math.fsum(row.weight for row in given_rows.rows))
    assert block.has_ties == any(len(place) > 1 for row in given_rows.rows for place in row.ordered)
    assert block.has_slates == any(row.offered for row in given_rows.rows)


def test_from_rows__a_full_row_leaves_nothing_below() -> None:
    block = RankingBlock.from_rows([Ranking(((1,), (0,)), (), "below", 1.0)], n_items=2)
    assert block.row(0).unranked == "absent"


def test_from_rows__labels_of_both_kinds_become_text() -> None:
    block = RankingBlock.from_rows([full(0, 1), full(1, 0)], n_items=2, ids=[7, "seven"])
    assert block.ids.tolist() == ["7", "seven"]


def test_from_rows__label_beyond_64_bits_keeps_its_value() -> None:
    block = RankingBlock.from_rows([full(0, 1), full(1, 0)], n_items=2, ids=[2**63, 2**63 + 1])
    assert [str(label) for label in block.ids.tolist()] == [str(2**63), str(2**63 + 1)]


def test_from_rows__negative_item_is_named() -> None:
    # With 256 items, -1 as one unsigned byte would be a valid item.
    with pytest.raises(RankingError, match="row 1: item -1 is out of range"):
        RankingBlock.from_rows([full(0, 1), full(-1, 0)], n_items=256)


def test_from_rows__unknown_word_for_unranked() -> None:
    with pytest.raises(RankingError, match="""but got 'bellow'"""):
        RankingBlock.from_rows([Ranking(((0,), (1,)), (), "bellow", 1.0)], n_items=3)


@pytest.mark.parametrize("name", ["ids", "groups"])
def test_from_rows__labels_must_be_one_a_row(name: str) -> None:
    with pytest.raises(RankingError, match=f"2 .*{name}|{name}.* 2 "):
        RankingBlock.from_rows([full(0, 1), full(1, 0)], n_items=2, **{name: [1, 2, 3]})


# --- slices and joins ------------------------------------------------------------------------------------


@given(plain_rankings(), st.none() | st.integers(-14, 14), st.none() | st.integers(-14, 14))
def test_slice__law(rows: PlainRankings, start: int | None, stop: int | None) -> None:
    cut = slice(start, stop)
    assert plain(rows.block()[cut]) == rows.pick(range(len(rows.rows))[cut])


@given(plain_rankings(min_rows=1), st.data())
def test_slice__one_number_gives_one_row(rows: PlainRankings, data: st.DataObject) -> None:
    number = data.draw(st.integers(-len(rows.rows), len(rows.rows) - 1))
    block = rows.block()
    assert plain(block[number]) == rows.pick([number])
    assert block.row(number) == rows.rows[number]


def test_slice__beyond_the_end(every_column: PlainRankings) -> None:
    block = every_column.block()
    for outside in (20, -21):
        with pytest.raises(IndexError):
            block[outside]
        with pytest.raises(IndexError):
            block.row(outside)


def test_slice__steps_are_refused(every_column: PlainRankings) -> None:
    with pytest.raises(IndexError, match=r"steps of 1; use take\(\)"):
        every_column.block()[::2]


def test_slice__shares_memory(every_column: PlainRankings) -> None:
    block = every_column.block()
    assert np.shares_memory(block[3:9].items, block.items)


@given(plain_rankings(min_rows=1), st.data())
def test_take__law(rows: PlainRankings, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(-len(rows.rows), len(rows.rows) - 1)))
    assert plain(rows.block().take(np.array(numbers, np.int64))) == rows.pick(numbers)


@given(plain_rankings(), st.data())
def test_take__mask(rows: PlainRankings, data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows.rows), max_size=len(rows.rows)))
    expected = rows.pick([number for number, chosen in enumerate(mask) if chosen])
    assert plain(rows.block().take(np.array(mask, np.bool_))) == expected


@given(plain_rankings(min_rows=1), st.lists(st.integers(0, 12)))
def test_concatenate__undoes_slicing(rows: PlainRankings, cuts: list[int]) -> None:
    block = rows.block()
    bounds = [0, *sorted(min(cut, block.n_rankings) for cut in cuts), block.n_rankings]
    parts = [block[start:stop] for start, stop in itertools.pairwise(bounds)]
    assert concatenate(parts).equals(block)
    assert plain(concatenate(parts)) == rows


@given(st.lists(plain_rankings(n_items=5, max_rows=5), min_size=1, max_size=4))
def test_concatenate__law(parts: list[PlainRankings]) -> None:
    # Blocks made separately differ in number types, and in whether they have ties and weights.
    bare = [PlainRankings(part.n_items, part.rows) for part in parts]
    assert plain(concatenate([part.block() for part in bare])) == joined(bare)


def test_concatenate__labels_of_two_kinds_become_text() -> None:
    one = RankingBlock.from_rows([full(0, 1)], n_items=2, ids=[5])
    other = RankingBlock.from_rows([full(1, 0)], n_items=2, ids=["five"])
    assert concatenate([one, other]).ids.tolist() == ["5", "five"]


def test_concatenate__refused() -> None:
    pair, triple = RankingBlock.from_array([[0, 1]]), RankingBlock.from_array([[0, 1, 2]])
    with pytest.raises(RankingError, match=r"different numbers of items cannot be joined: \[2, 3\]"):
        concatenate([triple, pair])
    labelled = RankingBlock.from_rows([full(0, 1)], n_items=2, ids=["a"])
    with pytest.raises(RankingError, match="some blocks have ids and some do not"):
        concatenate([pair, labelled])


# --- equality --------------------------------------------------------------------------------------------


def test_equals__sees_every_column(every_column: PlainRankings) -> None:
    block = every_column.block()
    first = every_column.rows[0]
    others = {
        "order": [first._replace(ordered=((1,), (0, 2), (3,)))],
        "ties": [first._replace(ordered=((0,), (1,), (2,), (3,)))],
        "slate": [first._replace(ordered=((0,), (1, 2), (3,), (4,)), offered=())],
        "below": [first._replace(unranked="absent")],
        "weight": [first._replace(weight=2.0)],
    }
    for change, rows in others.items():
        changed = PlainRankings(6, rows + every_column.rows[1:], every_column.ids, every_column.groups)
        assert not block.equals(changed.block()), change
    for change in ({"ids": None}, {"groups": None}, {"ids": block.ids[::-1]}, {"groups": block.groups + 1}):
        assert not block.equals(block.replace(**change)), change
    assert not block.equals(block[:19])
    assert block.equals(every_column.block())


def test_equals__ignores_how_nothing_is_said() -> None:
    bare = RankingBlock.from_array([[0, 1], [1, 0]])
    spelled = bare.replace(weights=np.ones(2), tied=np.zeros(4, np.bool_), items=bare.items.astype(np.uint32))
    assert bare.equals(spelled)
    assert spelled.equals(bare)


def test_nbytes__counts_every_column(every_column: PlainRankings) -> None:
    block = every_column.block().replace(ids=None)
    n_listed = sum(len(row.offered) + sum(map(len, row.ordered)) for row in every_column.rows)
    # A byte for each item, tie and count, one for `below`, eight for each weight and group.
    assert block.nbytes == 2 * n_listed + 20 * (1 + 1 + 1 + 8 + 8)


# --- what can be wrong -----------------------------------------------------------------------------------


GOOD = full(0, 1, 2)


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    ("row", "kind", "item", "message"),
    [
        (full(1, 2, 1), "duplicate-item", 1, "item 1 is listed twice"),
        (Ranking(((0,),), (2, 0), "absent", 1.0), "duplicate-item", 0, "item 0 is listed twice"),
        (Ranking(((0, 2), (2,)), (), "absent", 1.0), "duplicate-item", 2, "item 2 is listed twice"),
        (full(0, 3), "out-of-range", 3, "item 3 is out of range: there are 3 items, numbered from 0"),
        (full(70_000, 1), "out-of-range", 70_000, "item 70000 is out of range"),
        (Ranking((), (), "below", 1.0), "empty", -1, "no item is ranked"),
        (Ranking((), (0, 1), "below", 1.0), "empty", -1, "no item is ranked"),
        (full(2), "single-item", 2, "item 2 alone was on offer, so nothing was chosen"),
        (full(0, 1, weight=math.nan), "bad-weight", -1, "weight nan is not a positive finite number"),
        (full(0, 1, weight=math.inf), "bad-weight", -1, "weight inf is not a positive finite number"),
        (full(0, 1, weight=-0.5), "bad-weight", -1, "weight -0.5 is not a positive finite number"),
        (full(0, 1, weight=0.0), "bad-weight", -1, "weight 0 is not a positive finite number"),
    ],
)
def test_row_problems__each_is_named(row: Ranking, kind: str, item: int, message: str) -> None:
    with pytest.raises(RankingError, match=f"1 of 3 rankings are not valid: row 1: {message}"):
        RankingBlock.from_rows([GOOD, row, GOOD], n_items=3)
    problems = row_problems(unchecked([GOOD, row, GOOD]))
    assert [(found.row, found.kind, found.item) for found in problems] == [(1, kind, item)]
    assert message in problems[0].message


@pytest.mark.promise(20)
def test_row_problems__many_rows_are_counted_and_three_shown() -> None:
    rows = [full(0), GOOD, full(1), full(2), full(0, 0), full(1, 7)]
    with pytest.raises(RankingError, match=r"^5 of 6 rankings .* row 0: .* row 2: .* row 3: .*; and 2 more$"):
        RankingBlock.from_rows(rows, n_items=3)
    assert [problem.row for problem in row_problems(unchecked(rows))] == [0, 2, 3, 4, 5]


@pytest.mark.promise(20)
def test_row_problems__one_a_row_and_none_for_good_rows() -> None:
    everything_wrong = full(9, 9, weight=math.nan)
    assert len(row_problems(unchecked([everything_wrong]))) == 1
    assert row_problems(unchecked([GOOD, Ranking(((0,),), (), "below", 1.0)])) == []


@given(plain_rankings())
def test_row_problems__none_in_valid_rows(rows: PlainRankings) -> None:
    assert row_problems(rows.block()) == []


@pytest.mark.promise(20)
def test_row_problems__items_by_name() -> None:
    names = ["tea", "coffee", "mate"]
    # Item 8 has no name.
    rows = [full(1, 1), full(2), full(8, 8)]
    messages = [problem.message for problem in row_problems(unchecked(rows), names)]
    assert messages[:2] == ["item coffee is listed twice", "item mate alone was on offer, so nothing was chosen"]
    assert "item 8 is out of range" in messages[2]


def unchecked(rows: list[Ranking]) -> RankingBlock:
    """A block of three items and these rows, made without the checks of from_array and from_rows."""
    flat = [[item for place in row.ordered for item in place] for row in rows]
    listed = [[*ordered, *row.offered] for ordered, row in zip(flat, rows, strict=True)]
    return RankingBlock(
        items=np.array([item for items in listed for item in items], np.uint32),
        n_listed=np.array([len(items) for items in listed], np.uint8),
        n_ordered=np.array([len(ordered) for ordered in flat], np.uint8),
        below=np.array([row.unranked == "below" for row in rows]),
        n_items=3,
        weights=np.array([row.weight for row in rows]),
    )


def test_row_weights_and_group_starts__with_and_without_columns() -> None:
    plain = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]])
    assert plain.row_weights.tolist() == [1.0, 1.0, 1.0]
    assert plain.row_weights.dtype == np.float64
    assert plain.group_starts.tolist() == [True, True, True]
    weighted = RankingBlock.from_array([[0, 1], [1, 0]], weights=[3, 0.5])
    assert weighted.row_weights.tolist() == [3.0, 0.5]
    for labels in ([7, 7, 8], ["a", "a", "b"]):
        grouped = RankingBlock.from_rows([full(0, 1)] * 3, n_items=2, groups=labels)
        assert grouped.group_starts.tolist() == [True, False, True]
        assert grouped[:0].group_starts.tolist() == []
        assert grouped[1:].group_starts.tolist() == [True, True]


def test_block__number_of_items_as_an_integer_of_numpy() -> None:
    block = RankingBlock.from_array([[0, 1, 2]]).replace(n_items=np.int64(3))
    assert type(block.n_items) is int
    statistics = em_statistics(block, prepare(np.zeros((1, 3)), np.zeros(1)), with_rates=True)
    assert statistics.wins.tolist() == [[1.0, 1.0, 0.0]]
