"""Parquet: a list of items in each row, or one row per item, in row groups that workers read independently."""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plmix_dist import Ranking, RankingBlock, export, ingest
from tests.helpers.ingest_helpers import cut_small, ingest_error, labels_of, named_rows, rejected, row
from tests.helpers.oracle import PlainRankings, full, plain, write_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def write_table(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    """A Parquet file of these columns; `row_group_size` rows go together."""
    pq.write_table(pa.table(columns), path, **options)
    return path


LISTS = [["tea", "mate", "milk"], ["milk", "tea"], ["mate"]]
LIST_ROWS = [row("tea", "mate", "milk"), row("milk", "tea", unranked="below"), row("mate", unranked="below")]

# --- a list of items in each row -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["items", "ranking_items", "ranking", "votes"])
def test_lists__the_only_list_column_holds_the_items(tmp_path: Path, name: str) -> None:
    source = write_table(tmp_path / "a.parquet", {name: LISTS, "town": ["Riga", "Oslo", "Bern"]})
    store = ingest(source, tmp_path / "store", unranked="below")
    assert named_rows(store) == LIST_ROWS
    assert labels_of(store, "ids") is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string()),
        pa.large_list(pa.large_string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.list_(pa.binary()),
    ],
    ids=str,
)
def test_lists__kinds_of_text(tmp_path: Path, kind: Any) -> None:
    source = write_table(tmp_path / "a.parquet", {"items": pa.array(LISTS, kind)})
    assert named_rows(ingest(source, tmp_path / "store", unranked="below")) == LIST_ROWS


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.list_(pa.uint8()), pa.list_(pa.int32(), 3)], ids=str)
def test_lists__items_that_are_numbers(tmp_path: Path, kind: Any) -> None:
    source = write_table(tmp_path / "a.parquet", {"items": pa.array([[10, 2, 9], [9, 10, 2]], kind)})
    store = ingest(source, tmp_path / "store")
    assert store.item_names == ("2", "9", "10")
    assert named_rows(store) == [row("10", "2", "9"), row("9", "10", "2")]


def test_lists__all_that_rows_can_have(tmp_path: Path) -> None:
    columns = {
        "items": [["tea", "mate", "milk", "water"], ["milk", "tea"], ["water", "mate", "tea"]],
        "n_ordered": [3, 2, 1],
        "tied": [[False, True, False, False], [False, False], [False, False, False]],
        "count": pa.array([2.5, 1.0, 4.0]),
        "ranking": ["x", "y", "z"],
        "group": pa.array([1, 1, 2]),
        "unranked": ["absent", "below", None],
    }
    store = ingest(write_table(tmp_path / "a.parquet", columns), tmp_path / "store")
    assert named_rows(store) == [
        row(("tea", "mate"), "milk", offered=("water",), weight=2.5),
        row("milk", "tea", unranked="below"),
        row("water", offered=("mate", "tea"), weight=4.0),
    ]
    assert labels_of(store, "ids") == ["x", "y", "z"]
    assert labels_of(store, "groups") == [1, 1, 2]


def test_lists__column_named_by_the_user(tmp_path: Path) -> None:
    columns = {"shown": [["milk", "tea"]], "chosen": [["tea", "milk"]]}
    source = write_table(tmp_path / "a.parquet", columns)
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}: found neither a list column of items nor columns for id, item, rank" in message
    assert "shown, chosen" in message
    store = ingest(source, tmp_path / "store", columns={"items": "chosen"})
    assert named_rows(store) == [row("tea", "milk")]


@pytest.mark.parametrize("name", ["items", "votes"])
def test_lists__an_id_may_stand_twice(tmp_path: Path, name: str) -> None:
    # Rows of lists may share an id, unlike the rankings of a long table.
    columns = {name: [["tea", "mate"], ["mate", "tea"], ["tea", "mate"]], "id": [7, 8, 7]}
    store = ingest(write_table(tmp_path / "a.parquet", columns), tmp_path / "store")
    assert labels_of(store, "ids") == [7, 8, 7]


LIST_BAD = {
    "null": ({"items": ["tea", None, "mate"]}, "missing-item", "", "an item is missing (null)"),
    "null list": ({"items": None}, "empty", "", "no item is ranked"),
    "empty": ({"items": []}, "empty", "", "no item is ranked"),
    "twice": ({"items": ["tea", "mate", "tea"]}, "duplicate-item", "tea", "item tea is listed twice"),
    "no name": ({"items": ["tea", ""]}, "unknown-item", "", "an item has an empty name"),
    "line break": ({"items": ["tea", "a\n"]}, "unknown-item", "a\n", "item name 'a\\n' has a line break"),
    "weight nan": ({"count": float("nan")}, "bad-weight", "", "weight nan is not a positive finite number"),
    "weight null": ({"count": None}, "bad-weight", "", "weight nan is not a positive finite number"),
    "weight zero": ({"count": 0.0}, "bad-weight", "", "weight 0 is not a positive finite number"),
    "weight negative": ({"count": -2.0}, "bad-weight", "", "weight -2 is not a positive finite number"),
}


@pytest.mark.promise(20)
@pytest.mark.parametrize(("spoilt", "reason", "item", "what"), LIST_BAD.values(), ids=LIST_BAD)
def test_lists__bad_row_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: dict[str, Any], reason: str, item: str, what: str
) -> None:
    cut_small(monkeypatch, 1)
    good = {"items": ["tea", "mate", "milk"], "count": 1.0}
    rows = [good, good, good | spoilt, good]
    columns = {
        "items": pa.array([line["items"] for line in rows], pa.list_(pa.string())),
        "count": pa.array([line["count"] for line in rows], pa.float64()),
    }
    source = write_table(tmp_path / "a.parquet", columns, row_group_size=1)
    message = ingest_error(source, tmp_path / "store", unranked="below")
    assert f"{source}, row 3: {what}" in message
    store = ingest(source, tmp_path / "store", unranked="below", on_error="drop", most_dropped=1.0)
    assert store.n_rankings == 3
    [bad] = rejected(store)
    assert (bad["reason"], bad["file"], bad["row"], bad["item"]) == (reason, str(source), 3, item)


@pytest.mark.promise(20)
def test_lists__quarantine_keeps_number_and_contents(tmp_path: Path) -> None:
    source = write_table(tmp_path / "a.parquet", {"items": [["tea", "mate"], ["tea", "tea"]]})
    store = ingest(source, tmp_path / "store", on_error="quarantine")
    [bad] = rejected(store)
    assert (bad["row"], bad["contents"]) == (2, "tea tea")


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    "spoilt",
    [
        {"n_ordered": [2, 5]},
        {"n_ordered": [2, -1]},
        {"n_ordered": [2, None]},
        {"tied": [[False, False], [True, False]]},
        {"tied": [[False, False], [False]]},
        {"tied": [[False, False], None]},
        {"n_ordered": [2, 1], "tied": [[False, False], [False, True]]},
    ],
    ids=["more ordered than listed", "negative", "null", "tied with nothing", "too short", "no ties", "tied unordered"],
)
def test_lists__order_and_ties_that_cannot_be(tmp_path: Path, spoilt: dict[str, Any]) -> None:
    columns = {"items": [["tea", "mate"], ["mate", "tea"]], **spoilt}
    source = write_table(tmp_path / "a.parquet", columns)
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, row 2: " in message


# --- a row for each item ---------------------------------------------------------------------------------

MENU = ("tea", "mate", "milk", "water", "juice")


def long_columns(orders: Sequence[Sequence[str]], ids: Sequence[Any]) -> dict[str, list[Any]]:
    """Lines of a long table, shuffled within each ranking: ranks give the order."""
    rng = random.Random(3)
    lines = []
    for label, order in zip(ids, orders, strict=True):
        ranked = list(enumerate(order))
        rng.shuffle(ranked)
        lines += [(label, item, rank) for rank, item in ranked]
    return {name: [line[place] for line in lines] for place, name in enumerate(("id", "item", "rank"))}


def random_orders(count: int) -> list[tuple[str, ...]]:
    rng = random.Random(5)
    return [tuple(rng.sample(MENU, rng.randint(1, 5))) for _ in range(count)]


ORDERS = random_orders(16)
LONG_ROWS = [row(*order, unranked="absent" if len(order) == 5 else "below") for order in ORDERS]


@pytest.mark.parametrize(("group_size", "slice_values"), [(1, 1), (2, 3), (7, 10), (1000, 1)])
@pytest.mark.parametrize("ids", [range(16), [f"b{number}" for number in range(16)]], ids=["numbers", "text"])
def test_long__rankings_over_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: Sequence[Any], group_size: int, slice_values: int
) -> None:
    cut_small(monkeypatch, slice_values)
    columns = long_columns(ORDERS, ids)
    source = write_table(tmp_path / "a.parquet", columns, row_group_size=group_size)
    store = ingest(source, tmp_path / "store", unranked="below", item_names=MENU)
    assert named_rows(store) == LONG_ROWS
    assert labels_of(store, "ids") == list(ids)


@pytest.mark.parametrize(("group_size", "slice_values"), [(1, 1), (3, 4), (9, 1)])
def test_long__groups_over_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_size: int, slice_values: int
) -> None:
    cut_small(monkeypatch, slice_values)
    people = [f"p{number // 4}" for number in range(16)]
    columns = long_columns(ORDERS, range(16))
    columns["group"] = [people[label] for label in columns["id"]]
    source = write_table(tmp_path / "a.parquet", columns, row_group_size=group_size)
    store = ingest(source, tmp_path / "store", unranked="below", item_names=MENU)
    assert named_rows(store) == LONG_ROWS
    assert labels_of(store, "groups") == people
    numbers = range(store.n_partitions)
    seen = [set().union(*(block.groups.tolist() for block in store.partition(n))) for n in numbers]
    assert sum(map(len, seen)) == 4


def test_lists__groups_over_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 1)
    columns = {"items": [["tea", "mate"]] * 9, "group": [1, 1, 1, 1, 2, 2, 2, 3, 3]}
    source = write_table(tmp_path / "a.parquet", columns, row_group_size=2)
    assert labels_of(ingest(source, tmp_path / "store"), "groups") == columns["group"]


def test_lists__row_groups_become_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 6)
    orders = [list(order) for order in itertools.permutations(MENU[:3])]
    source = write_table(tmp_path / "a.parquet", {"items": orders}, row_group_size=2)
    store = ingest(source, tmp_path / "store")
    assert [partition.n_rankings for partition in store.manifest.partitions] == [2, 2, 2]
    assert named_rows(store) == [row(*order) for order in orders]


def test_long__row_groups_without_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 1)
    lines = pa.table(long_columns(ORDERS[:4], range(4)))
    source = tmp_path / "a.parquet"
    with pq.ParquetWriter(source, lines.schema) as writer:
        for start in (0, 2, 4, 6):
            writer.write_table(lines[start : start + 2])
            writer.write_table(lines[:0])
        writer.write_table(lines[8:])
    store = ingest(source, tmp_path / "store", unranked="below", item_names=MENU)
    assert named_rows(store) == LONG_ROWS[:4]


def test_long__ties_slates_weights_and_unranked(tmp_path: Path) -> None:
    columns = {
        "ballot": [1, 1, 1, 2, 2, 3, 3],
        "candidate": ["tea", "mate", "milk", "milk", "tea", "mate", "milk"],
        "position": [2, 1, 2, 1, None, 1, 2],
        "weight": [3, 3, 3, 1, 1, 2, 2],
        "unranked": ["absent", "absent", "absent", None, None, "below", "below"],
    }
    store = ingest(write_table(tmp_path / "a.parquet", columns), tmp_path / "store")
    assert named_rows(store) == [
        row("mate", ("tea", "milk"), weight=3.0),
        row("milk", offered=("tea",)),
        row("mate", "milk", unranked="below", weight=2.0),
    ]


@pytest.mark.promise(20)
def test_long__bad_ranking_is_named_by_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 1)
    columns = long_columns([MENU] * 8, range(8))
    columns["item"][5 * 6 : 5 * 6 + 5] = ["tea", "tea", "milk", "water", "juice"]
    source = write_table(tmp_path / "a.parquet", columns, row_group_size=4)
    assert f"{source}, row 31: item tea is listed twice" in ingest_error(source, tmp_path / "store")
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert labels_of(store, "ids") == [0, 1, 2, 3, 4, 5, 7]
    assert [(bad["reason"], bad["item"]) for bad in rejected(store)] == [("duplicate-item", "tea")]


@pytest.mark.promise(20)
@pytest.mark.parametrize("name", ["id", "group"])
def test_long__label_that_is_missing(tmp_path: Path, name: str) -> None:
    # Rows without an id belong to no ranking, and not to a ranking called None.
    columns = {"id": [7, 7, 8, 8], "item": ["tea", "mate"] * 2, "rank": [1, 2, 2, 1], "group": [1, 1, 2, 2]}
    columns[name] = [1, 1, None, None]
    source = write_table(tmp_path / "a.parquet", columns)
    assert f"{source}, row 3: " in ingest_error(source, tmp_path / "store")
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert labels_of(store, "groups" if name == "group" else "ids") == [1]


@pytest.mark.promise(20)
@pytest.mark.parametrize("name", ["id", "group"])
def test_lists__label_that_is_missing(tmp_path: Path, name: str) -> None:
    columns = {"items": [["tea", "mate"], ["mate", "tea"]], name: pa.array([1, None], pa.int64())}
    source = write_table(tmp_path / "a.parquet", columns)
    assert f"{source}, row 2: " in ingest_error(source, tmp_path / "store")


@pytest.mark.promise(35)
def test_long__label_of_two_lines_in_a_message(tmp_path: Path) -> None:
    columns = {"id": ["x\nplmix: all is well", "z", "x\nplmix: all is well"], "item": ["a", "b", "b"]}
    source = write_table(tmp_path / "a.parquet", columns | {"rank": [1, 1, 2]})
    message = ingest_error(source, tmp_path / "store", unranked="below")
    assert "are not consecutive" in message
    assert "\n" not in message


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("group_size", [1, 1000])
def test_long__rows_of_a_ranking_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_size: int, merge: bool
) -> None:
    cut_small(monkeypatch, 1)
    columns = {"id": [7, 7, 8, 8, 7], "item": ["tea", "mate", "tea", "milk", "milk"], "rank": [1, 2, 1, 2, 3]}
    source = write_table(tmp_path / "a.parquet", columns, row_group_size=group_size)
    message = ingest_error(source, tmp_path / "store", unranked="below", merge=merge)
    assert f"{source}: the lines of ranking 7 are not consecutive" in message


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"id": [1, 1], "item": ["a", "b"], "rank": [True, False]}, "must be numbers, but a column holds bool"),
        ({"items": [["a", "b"]], "count": [True]}, "must be numbers, but a column holds bool"),
        ({"items": [["a", "b"]], "unranked": ["sideways"]}, "unranked is 'sideways'"),
    ],
)
def test_columns__of_the_wrong_kind(tmp_path: Path, columns: dict[str, Any], what: str) -> None:
    source = write_table(tmp_path / "a.parquet", columns)
    message = ingest_error(source, tmp_path / "store")
    assert what in message
    assert str(source) in message


# --- files that are not Parquet -----------------------------------------------------------------------


def test_file__is_no_parquet(tmp_path: Path) -> None:
    source = tmp_path / "a.parquet"
    source.write_text("first,second\ntea,mate\n")
    assert f"{source} cannot be read as Parquet" in ingest_error(source, tmp_path / "store")


def test_file__cut_short(tmp_path: Path) -> None:
    source = write_table(tmp_path / "a.parquet", {"items": LISTS})
    source.write_bytes(source.read_bytes()[:-20])
    assert f"{source} cannot be read as Parquet" in ingest_error(source, tmp_path / "store")


def test_file__pages_overwritten(tmp_path: Path) -> None:
    # The footer is intact, so the damage is found only when the pages are read.
    orders = [[f"item {number}" for number in range(50)]] * 50
    source = write_table(tmp_path / "a.parquet", {"items": orders}, compression="zstd")
    data = bytearray(source.read_bytes())
    data[4:200] = bytes(196)
    source.write_bytes(bytes(data))
    assert str(source) in ingest_error(source, tmp_path / "store")


@pytest.mark.promise(21)
@pytest.mark.parametrize(
    "columns",
    [
        {"items": pa.array([], pa.list_(pa.string()))},
        {"id": pa.array([], pa.int64()), "item": pa.array([], pa.string()), "rank": pa.array([], pa.int64())},
    ],
    ids=["lists", "long"],
)
def test_file__without_rows(tmp_path: Path, columns: dict[str, Any]) -> None:
    source = write_table(tmp_path / "a.parquet", columns)
    assert f"no ranking was found in {source}" in ingest_error(source, tmp_path / "store")


# --- our own files ---------------------------------------------------------------------------------------


@pytest.mark.promise(19)
def test_own_file__items_that_no_row_lists(tmp_path: Path) -> None:
    rows = PlainRankings(4, [full(2, 0), Ranking(((3,), (0,)), (), "below", 2.5)])
    names = ["tea", "never", "ale", "=cmd()"]
    store = write_store(tmp_path / "store", [[rows.block()]], item_names=names)
    export(store, tmp_path / "a.parquet")
    second = ingest(tmp_path / "a.parquet", tmp_path / "again")
    assert second.item_names == tuple(names)
    assert plain(second.block()) == rows


@pytest.mark.promise(19)
def test_own_file__labels_differ_in_kind_between_partitions(tmp_path: Path) -> None:
    blocks = [
        RankingBlock.from_rows([full(0, 1), full(1, 0)], n_items=2, ids=[1, 2]),
        RankingBlock.from_rows([full(0, 1)], n_items=2, ids=["three"]),
    ]
    store = write_store(tmp_path / "store", [[block] for block in blocks])
    export(store, tmp_path / "a.parquet")
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups == 2
    assert labels_of(ingest(tmp_path / "a.parquet", tmp_path / "again"), "ids") == ["1", "2", "three"]


def test_own_file__read_by_others(tmp_path: Path) -> None:
    block = RankingBlock.from_array([[1, 0], [0, 1]], weights=[2, 1])
    store = write_store(tmp_path / "store", [[block]], item_names=["tea", "mate"])
    export(store, tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [
        {"items": ["mate", "tea"], "count": 2.0, "unranked": "absent"},
        {"items": ["tea", "mate"], "count": 1.0, "unranked": "absent"},
    ]


@pytest.mark.parametrize(
    "names", [b"5", b"[1, 2]", b"{", b'["tea", "tea"]', b'["tea", "ma\\u001bte"]', b"\xff", b'["tea"]']
)
def test_own_file__names_in_the_metadata_are_checked(tmp_path: Path, names: bytes) -> None:
    table = pa.table({"items": [["tea", "mate"]]}).replace_schema_metadata({"plmix.item_names": names})
    pq.write_table(table, tmp_path / "a.parquet")
    message = ingest_error(tmp_path / "a.parquet", tmp_path / "store")
    assert str(tmp_path / "a.parquet") in message


def test_own_file__metadata_is_plain_json(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [[RankingBlock.from_array([[0, 1]])]], item_names=["茶", 'a"b'])
    export(store, tmp_path / "a.parquet")
    metadata = pq.read_schema(tmp_path / "a.parquet").metadata
    assert json.loads(metadata[b"plmix.item_names"]) == ["茶", 'a"b']


def test_columns__numbers_that_are_written_as_text(tmp_path: Path) -> None:
    lines = {"id": [1, 1], "item": ["a", "b"], "rank": ["2", "1"]}
    assert named_rows(ingest(write_table(tmp_path / "a.parquet", lines), tmp_path / "a")) == [row("b", "a")]
    lists = {"items": [["a", "b"]], "count": ["2.5"]}
    store = ingest(write_table(tmp_path / "b.parquet", lists), tmp_path / "b")
    assert named_rows(store) == [row("a", "b", weight=2.5)]


def test_lists__scores_beside_them(tmp_path: Path) -> None:
    columns = {"items": [["tea", "mate"], ["mate", "tea"]], "scores": [[1.0, 5.0], [2.0, 3.0]]}
    source = write_table(tmp_path / "a.parquet", columns)
    message = ingest_error(source, tmp_path / "store")
    assert "the column 'scores' has a list for each list of 'items', and may say their order" in message
    assert "--column ignore=scores" in message
    store = ingest(source, tmp_path / "store", columns={"ignore": "scores"})
    assert named_rows(store) == [row("tea", "mate"), row("mate", "tea")]
    assert store.manifest.history[-1]["read_as"][0]["left_out"] == ["scores"]


def test_user_item_rank__and_scores(tmp_path: Path) -> None:
    long = {"user": ["p", "p", "q", "q"], "item": ["tea", "mate"] * 2, "rank": [1, 2, 2, 1]}
    scores = {"person": ["p", "q"], "tea": [4.5, 1.0], "mate": [2.0, 1.0], "milk": [None, 9.0]}
    expected = [row("tea", "mate"), row("mate", "tea")]
    for number, source in enumerate((write_table(tmp_path / "a.parquet", long), pa.table(long))):
        assert named_rows(ingest(source, tmp_path / f"long {number}")) == expected
    expected = [row("tea", "mate"), row("milk", ("tea", "mate"))]
    for number, source in enumerate((write_table(tmp_path / "b.parquet", scores), pa.table(scores))):
        store = ingest(source, tmp_path / f"scores {number}", format="scores", unranked="absent")
        assert named_rows(store) == expected
        assert labels_of(store, "groups") == ["p", "q"]
