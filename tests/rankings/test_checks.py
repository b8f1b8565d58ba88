"""No row reaches compiled code unchecked: hand-made blocks, stores, Dask arrays, blocks that change during a fit."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plmix_dist import PlackettLuceMixture, SpectralPlackettLuce, ingest, open_store
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import DamagedStoreError, PlmixError, RankingError, SettingsError
from plmix_dist.passes import tree
from plmix_dist.passes.request import Aggregation, Request
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.block import concatenate
from plmix_dist.rankings.checks import check_ranges, n_without_information, row_problems
from plmix_dist.rankings.ties import unorder_last_ties
from tests.helpers.fit_oracle import block_of, slate, top
from tests.helpers.oracle import plain_rankings, write_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client

    from tests.helpers.oracle import PlainRankings

ROWS = [slate([0, 1, 2, 3, 4], []), slate([4, 3, 2, 1, 0], []), top(2, 4), slate([0, 3], [1])] * 250


@pytest.fixture
def block() -> RankingBlock:
    """A thousand rows of five items, with weights; each test has its own, which it may alter."""
    rows = block_of(ROWS, 5)
    return rows.replace(weights=np.ones(rows.n_rankings), n_ordered=rows.n_ordered.copy())


@pytest.fixture(scope="module")
def model() -> PlackettLuceMixture:
    return PlackettLuceMixture(2, random_state=0, max_iter=500).fit(block_of(ROWS[:40], 5))


def altered(column: np.ndarray[Any, Any], place: int, value: float, dtype: Any = None) -> np.ndarray[Any, Any]:
    """A copy with one other entry."""
    copy = column.astype(dtype or column.dtype)
    copy[place] = value
    return copy


# Each: a field, what it is replaced by, and the words of the error.
WRONG: dict[str, tuple[str, Callable[[RankingBlock], Any], str]] = {
    "item out of range": (
        "items", lambda b: altered(b.items, 1_006, 200),
        "row 268: item 200 is out of range: there are 5 items, numbered from 0",
    ),
    "item far out of range": (
        "items", lambda b: altered(b.items, 0, 4 * 10**9, np.uint32), "row 0: item 4000000000 is out of range",
    ),
    "too few items": ("items", lambda b: b.items[:-1], "list 3750 items by n_listed, but items has 3749"),
    "signed items": ("items", lambda b: b.items.astype(np.int64), "items must be an array of uint8, uint16 or uint32"),
    "wide items": ("items", lambda b: b.items.astype(np.uint64), "but is uint64 of shape (3750,)"),
    "foreign byte order": ("items", lambda b: b.items.astype(">u2"), "in native byte order, but is >u2"),
    "a list": ("items", lambda b: b.items.tolist(), "but is list"),
    "two dimensions": ("n_listed", lambda b: b.n_listed.reshape(2, -1), "of one dimension"),
    "n_ordered beyond the row": (
        "n_ordered", lambda b: altered(b.n_ordered, 7, 77),
        "row 7: 77 items are ordered by n_ordered, but the row lists 3",
    ),
    "n_ordered of other length": ("n_ordered", lambda b: b.n_ordered[:-1], "n_ordered has 999 entries"),
    "n_listed of another row": (
        "n_listed", lambda b: altered(b.n_listed, 0, 6), "list 3751 items by n_listed, but items has 3750",
    ),
    "an empty row": (
        "n_listed", lambda b: altered(altered(b.n_listed, 3, 0), 2, 5), "row 3: 2 items are ordered by n_ordered",
    ),
    "all listed and others below": (
        "below", lambda b: altered(b.below, 1, True),
        "row 1: it lists 5 of 5 items, and unlisted items rank below by `below`; this makes no sense",
    ),
    "below as numbers": ("below", lambda b: b.below.astype(np.uint8), "below must be an array of bool"),
    "fewer items": ("n_items", lambda b: 4, "row 0: it lists 5 of 4 items"),
    "no items": ("n_items", lambda b: 0, "n_items must be a whole number from 1 on, but is 0"),
    "half items": ("n_items", lambda b: 5.5, "n_items must be a whole number from 1 on, but is 5.5"),
    "NaN weight": ("weights", lambda b: altered(b.weights, 4, np.nan), "row 4: weight nan is not a number from 0"),
    "negative weight": ("weights", lambda b: altered(b.weights, 4, -1), "row 4: weight -1 is not a number from 0"),
    "endless weight": ("weights", lambda b: altered(b.weights, 4, np.inf), "row 4: weight inf is not a number"),
    "huge weight": ("weights", lambda b: altered(b.weights, 4, 1.7e308), "row 4: weight 1.7e+308 is not a number"),
    "weights as integers": ("weights", lambda b: np.ones(1_000, int), "weights must be an array of float64"),
    "few weights": ("weights", lambda b: b.weights[:3], "weights has 3 entries, but n_listed has 1000"),
    "first item tied": ("tied", lambda b: altered(b.items > 9, 0, True), "row 0: tied marks an item that is the first"),
    "unordered item tied": (
        "tied", lambda b: altered(b.items > 9, 14, True), "row 3: tied marks an item that is the first of its row, or",
    ),
    "ties of other length": ("tied", lambda b: b.below, "tied has 1000 entries, but items has 3750"),
    "few ids": ("ids", lambda b: np.arange(7), "ids has 7 entries, but n_listed has 1000"),
}  # fmt: skip


@pytest.mark.promise(43)
@pytest.mark.parametrize("case", WRONG)
def test_block__wrong_by_hand(case: str, block: RankingBlock, model: PlackettLuceMixture) -> None:
    field, change, words = WRONG[case]
    wrong = block.replace(**{field: change(block)})
    uses: list[Callable[[RankingBlock], Any]] = [
        PlackettLuceMixture(2, random_state=0).fit,
        SpectralPlackettLuce(2).fit,
        model.predict,
        model.score,
        check_ranges,
    ]
    for use in uses:
        with pytest.raises(RankingError, match=re.escape(words)):
            use(wrong)


@pytest.mark.promise(43)
def test_block__as_in_the_attacks(block: RankingBlock) -> None:
    with pytest.raises(RankingError, match="3750 items by n_listed, but items has 1000"):
        PlackettLuceMixture(2).fit(block.replace(items=np.full(1000, 4 * 10**9, np.uint32)))
    with pytest.raises(RankingError, match="item 200 is out of range"):
        PlackettLuceMixture(2).fit(block.replace(items=np.full(3750, 200, np.uint8)))


@pytest.mark.promise(20)
def test_block__rows_that_make_no_sense(block: RankingBlock) -> None:
    twice = block.replace(items=altered(block.items, 1, 0))
    with pytest.raises(RankingError, match="1 of 1000 rankings are not valid: row 0: item 0 is listed twice"):
        PlackettLuceMixture(2).fit(twice)
    alone = RankingBlock.from_rows([top(0), slate([1, 2], [])], n_items=3).replace(below=np.array([False, False]))
    with pytest.raises(RankingError, match="row 0: item 0 alone was on offer"):
        PlackettLuceMixture(2).fit(alone)
    with pytest.raises(RankingError, match="row 3: no item is ranked"):
        PlackettLuceMixture(2).fit(block.replace(n_ordered=altered(block.n_ordered, 3, 0)))


def test_block__n_items_of_numpy_is_a_number_like_any_other(block: RankingBlock) -> None:
    plain = PlackettLuceMixture(2, random_state=0).fit(block)
    other = PlackettLuceMixture(2, random_state=0).fit(block.replace(n_items=np.int64(5)))
    assert np.array_equal(plain.log_worths_, other.log_worths_)


@pytest.mark.promise(43)
@pytest.mark.parametrize(
    ("field", "place", "value", "words"),
    [
        ("items", 4, 200, "leaf 0, rows counted from its first: row 0: item 200 is out of range"),
        ("n_listed", 9, 250, r"list \d+ items by n_listed, but items has"),
        ("n_listed", 0, 4, r"list 3749 items by n_listed"),
        ("n_ordered", 9, 250, "row 9: 250 items are ordered by n_ordered"),
        ("below", 0, True, "row 0: it lists 5 of 5 items"),
        ("weights", 3, -2.0, "row 3: weight -2 is not a number"),
        ("weights", 3, np.nan, "row 3: weight nan is not a number"),
    ],
)
def test_block__changed_during_a_fit(block: RankingBlock, field: str, place: int, value: float, words: str) -> None:
    seen = []

    def change(record: dict[str, Any]) -> None:
        seen.append(record)
        getattr(block, field)[place] = value

    model = PlackettLuceMixture(2, init="random", random_state=0, tol=1e-300, progress=change)
    with pytest.raises(RankingError, match=words):
        model.fit(block)
    assert len(seen) == 1, "the next pass must notice"


def test_lengths__swapped_during_a_fit_are_noticed(block: RankingBlock) -> None:
    # The sum of the lengths, the longest and the shortest stay the same.
    rankings = as_rankings(block)
    passes = ThreadedPasses(rankings)
    rows = Request(Aggregation("rows", leaf=lambda number, leaf, params: leaf.n_rankings))
    assert passes.run([rows])[0].results == (1_000,)
    block.n_listed[[0, 2]] = block.n_listed[[2, 0]]
    with pytest.raises(RankingError, match=r"row 2: 2 items|row 0: 5 items|n_listed was changed"):
        passes.run([rows])


@pytest.mark.promise(43)
def test_pass__checks_every_leaf_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rankings = as_rankings(np.array([[0, 1], [1, 0]] * 5_000))
    checked: list[str] = []
    monkeypatch.setattr(tree, "check_ranges", lambda block, where: checked.append(where))
    passes = ThreadedPasses(rankings, n_threads=1)
    rows = Request(Aggregation("rows", leaf=lambda number, leaf, params: leaf.n_rankings))
    for _ in range(3):
        passes.run([rows, rows])
    assert [where.split(",")[0] for where in checked] == ["leaf 0", "leaf 1", "leaf 2"] * 3


@pytest.mark.promise(43)
@pytest.mark.parametrize("case", ["item out of range", "n_ordered beyond the row", "all listed and others below"])
def test_store__right_digests_and_wrong_numbers(case: str, tmp_path: Path, block: RankingBlock) -> None:
    field, change, words = WRONG[case]
    wrong = change(block)
    # Nothing is looked at while a partition is written: its rows were checked where they came from.
    write_store(tmp_path / "store", [[block], [block.replace(**{field: wrong})]], leaf_rows=100)
    reads: list[Callable[[], Any]] = [
        lambda: PlackettLuceMixture(2).fit(tmp_path / "store"),
        lambda: open_store(tmp_path / "store").block(),
        lambda: list(open_store(tmp_path / "store").partition(1)),
    ]
    place = re.escape(f"{tmp_path}/store/partitions/p000001, leaves 0 to 9 of this partition: {words}")
    for read in reads:
        with pytest.raises(DamagedStoreError, match=place):
            read()


def test_part_of_block__names_rows_of_the_whole() -> None:
    rows = np.array([[0, 1, 2]] * 10_000)
    block = RankingBlock.from_array(rows)
    rankings = as_rankings(block)
    block.items[3 * 9_000] = 9
    for read in (lambda: list(rankings.iter_leaves()), lambda: rankings.only(1, 3)):
        with pytest.raises(RankingError, match=r"^row 9000: item 9 is out of range"):
            read()


@pytest.mark.promise(43)
def test_cluster__wrong_rows_end_the_fit_in_words(client: Client, tmp_path: Path, block: RankingBlock) -> None:
    wrong = block.replace(n_ordered=altered(block.n_ordered, 700, 77))
    write_store(tmp_path / "store", [[wrong]], leaf_rows=100)
    with pytest.raises(DamagedStoreError, match="row 700: 77 items are ordered by n_ordered, but the row lists 5"):
        PlackettLuceMixture(2).fit(tmp_path / "store", client=client)
    bad = da.from_array(np.array([[0, 1, 2]] * 5_000 + [[0, 1, 7]]), chunks=900)
    with pytest.raises(RankingError, match="row 5000: item 7 is out of range"):
        PlackettLuceMixture(2).fit(bad, n_items=3, client=client)


# --- Dask arrays -----------------------------------------------------------------------------------------


def fewer(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return rows[:-1]


@pytest.mark.promise(43)
@pytest.mark.parametrize("n_items", [None, 3])
def test_dask__gives_fewer_rows_than_it_says(n_items: int | None, client: Client, tmp_path: Path) -> None:
    honest = da.from_array(np.array([[0, 1, 2], [2, 1, 0]] * 50), chunks=(25, 3))
    array = honest.map_blocks(fewer, dtype=honest.dtype, chunks=honest.chunks)
    words = r"promises 100 rows from row 0 on, but computing them gave an array of shape \(96, 3\)"
    for where in (None, client):
        with pytest.raises(RankingError, match=words):
            PlackettLuceMixture(2).fit(array, n_items=n_items, client=where)
    with pytest.raises(PlmixError, match=r"promises 25 rows from row \d+ on, but"):
        ingest(array, tmp_path / "store", n_items=n_items)
    model = PlackettLuceMixture(2, random_state=0, tol=0.1).fit(honest)
    with pytest.raises(RankingError, match=words):
        model.predict(array).compute()


def test_dask__gives_other_numbers_than_it_says() -> None:
    array = da.from_array(np.array([[0, 1], [1, 0]])).map_blocks(np.sqrt, dtype=np.int64)
    with pytest.raises(RankingError, match=r"promises integers .* but computing gave float64"):
        PlackettLuceMixture(2).fit(array)
    empty = da.from_array(np.zeros((0, 3), int))
    with pytest.raises(SettingsError, match="no rankings in a Dask array of shape"):
        PlackettLuceMixture(2).fit(empty)


# --- laws ------------------------------------------------------------------------------------------------


@given(plain_rankings())
def test_check_ranges__takes_every_valid_block(rows: PlainRankings) -> None:
    block = rows.block()
    check_ranges(block)
    check_ranges(block)
    check_ranges(block[:1])
    assert pickle.loads(pickle.dumps(block)).equals(block)


def test_pickle__leaves_out_what_can_be_computed(block: RankingBlock) -> None:
    before = len(pickle.dumps(block))
    check_ranges(block)
    assert len(pickle.dumps(block)) == before


@given(
    st.lists(st.lists(st.integers(0, 90), min_size=1, max_size=6), min_size=1, max_size=9), st.sampled_from([3, 60, 90])
)
def test_duplicates__found_as_python_finds_them(rows: list[list[int]], largest: int) -> None:
    # Up to 64 items by bits, up to 32 cells per entry by a table, beyond by sorting.
    items = [[item % (largest + 1) for item in row] for row in rows]
    lengths = np.array([len(row) for row in items], np.uint8)
    flat = np.array([item for row in items for item in row], np.uint8)
    block = RankingBlock(flat, lengths, lengths, np.zeros(len(items), np.bool_), n_items=91)
    found = {problem.row for problem in row_problems(block) if problem.kind == "duplicate-item"}
    assert found == {number for number, row in enumerate(items) if len(set(row)) < len(row)}


def test_ties__of_rows_without_weight_do_no_harm() -> None:
    rows = [slate([0, 1, 2], [])] * 5_000 + [Ranking(((3,), (4, 5), (0,)), (), "absent", 1.0)]
    block = block_of(rows[:-1], 6)
    tied = concatenate([block, RankingBlock.from_rows(rows[-1:], n_items=6)])
    usable = as_rankings(tied, sample_weight=np.append(np.ones(5_000), 0.0))
    assert sum(leaf.n_rankings for leaf in usable.iter_leaves()) == 5_000


def test_no_information__ties_of_all_on_offer() -> None:
    rows = [
        Ranking(((0, 1),), (), "absent", 1.0),  # a tie of a pair
        Ranking(((0, 1, 2),), (), "absent", 1.0),  # of everything
        Ranking(((0, 1),), (), "below", 1.0),  # both above the third
        Ranking(((0, 1),), (2,), "absent", 1.0),  # both above the third, which was on offer
        Ranking(((0,), (1, 2)), (), "absent", 1.0),
        Ranking(((0,), (1,), (2,)), (), "absent", 1.0),
    ]
    block = RankingBlock.from_rows(rows, n_items=3)
    assert n_without_information(block) == 2
    assert n_without_information(block[2:]) == 0
    assert n_without_information(unorder_last_ties(block)) == 2
