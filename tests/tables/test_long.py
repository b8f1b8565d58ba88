"""The format long: one line per item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from plmix_dist import ingest
from plmix_dist.tables.long import LongLines
from tests.helpers.ingest_helpers import cut_small, ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path


# --- one line per item --------------------------------------------------------------------------------------


def test_long__ranks_in_any_order(tmp_path: Path) -> None:
    text = "ranking,item,rank\n7,milk,30\n7,tea,1.5\n7,mate,2\n8,milk,-1\n8,mate,0\n8,tea,1e2\n"
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert named_rows(store) == [row("tea", "mate", "milk"), row("milk", "mate", "tea")]
    assert labels_of(store, "ids") == [7, 8]


def test_long__equal_ranks_are_ties_and_empty_ones_a_slate(tmp_path: Path) -> None:
    text = (
        "ranking,item,rank\n7,milk,\n7,tea,2\n7,mate,1\n7,water,2\n7,juice,NA\n"
        "8,milk,1\n8,tea,1\n8,water,1\n8,juice,2\n8,mate,2\n"
    )
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert named_rows(store) == [
        row("mate", ("tea", "water"), offered=("milk", "juice")),
        row(("milk", "tea", "water"), ("juice", "mate")),
    ]


def test_long__equal_ranks_of_two_rankings_are_not_ties(tmp_path: Path) -> None:
    text = "ranking,item,rank\n7,tea,0\n7,mate,1\n8,milk,1\n8,tea,2\n9,tea,2\n9,milk,3\n"
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", unranked="absent")
    assert named_rows(store) == [row("tea", "mate"), row("milk", "tea"), row("tea", "milk")]


def test_long__labels_of_rankings(tmp_path: Path) -> None:
    text = (
        "count,ranking,item,rank,group,unranked\n2.5,7,tea,1,ann,below\n2.5,7,mate,2,ann,below\n"
        "1,8,mate,1,ann,absent\n1,8,tea,2,ann,absent\n4,9,milk,1,bob,\n4,9,tea,2,bob,\n"
    )
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", unranked="below")
    assert named_rows(store) == [
        row("tea", "mate", unranked="below", weight=2.5),
        row("mate", "tea", unranked="absent"),
        row("milk", "tea", unranked="below", weight=4.0),
    ]
    assert labels_of(store, "groups") == ["ann", "ann", "bob"]


LONG_BAD = {
    "no number": ("8,tea,first", 5, "bad-rank", "tea", "ranking 8: the rank 'first' of item 'tea' is not a number"),
    "nan": ("8,tea,nan", 5, "bad-rank", "tea", "ranking 8: the rank 'nan' of item 'tea' is not a number"),
    "too few": ("8,tea", 5, "syntax", "tea", "ranking 8: expected 3 fields, but got 2"),
    "too many": ("8,tea,2,2", 5, "syntax", "tea", "ranking 8: expected 3 fields, but got 4"),
    "twice": ("8,mate,2", 4, "duplicate-item", "mate", "item mate is listed twice"),
    "no name": ("8,,2", 4, "unknown-item", "", "an item has an empty name"),
    "python's number": ("8,tea,1_0", 5, "bad-rank", "tea", "ranking 8: the rank '1_0' of item 'tea'"),
}


@pytest.mark.promise(20)
@pytest.mark.parametrize(("line", "number", "reason", "item", "what"), LONG_BAD.values(), ids=LONG_BAD)
def test_long__bad_line_spoils_its_ranking_alone(
    tmp_path: Path, line: str, number: int, reason: str, item: str, what: str
) -> None:
    text = f"ranking,item,rank\n7,tea,1\n7,mate,2\n8,mate,1\n{line}\n9,tea,1\n9,mate,2\n"
    source = write(tmp_path / "a.csv", text)
    assert f"{source}, line {number}: {what}" in ingest_error(source, tmp_path / "store")
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert labels_of(store, "ids") == [7, 9]
    assert [(bad["reason"], bad["line"], bad["item"]) for bad in rejected(store)] == [(reason, number, item)]


def test_long__bad_lines_stay_with_their_lines_from_batch_to_batch() -> None:
    bad = {0: ("syntax", "why")}
    held = LongLines(np.array([7]), pa.array(["tea"]), np.array([1.0]), np.array([2]), {}, bad)
    both = held.followed_by(held)
    assert both.bad == {0: bad[0], 1: bad[0]}
    assert both.cut(1, 2).bad == bad


@pytest.mark.promise(20)
def test_long__no_line_has_a_rank(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "ranking,item,rank\n7,tea,\n7,mate,\n8,tea,1\n8,mate,2\n")
    assert f"{source}, line 2: no item is ranked" in ingest_error(source, tmp_path / "store")


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    ("name", "values"), [("count", ("2", "3")), ("group", ("ann", "bob")), ("unranked", ("below", "absent"))]
)
def test_long__lines_that_disagree(tmp_path: Path, name: str, values: tuple[str, str]) -> None:
    first, second = values
    text = (
        f"ranking,item,rank,{name}\n7,tea,1,{first}\n7,mate,2,{first}\n"
        f"8,tea,1,{first}\n8,mate,2,{second}\n9,mate,1,{second}\n9,tea,2,{second}\n"
    )
    source = write(tmp_path / "a.csv", text)
    role = "weight" if name == "count" else name
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 5: ranking 8: its lines disagree about the {role}" in message
    store = ingest(source, tmp_path / "store", on_error="quarantine")
    assert labels_of(store, "ids") == [7, 9]
    [bad] = rejected(store)
    assert (bad["reason"], bad["line"], bad["contents"]) == (f"mixed-{role}", 5, "tea mate")


TORN = "ranking,item,rank\n7,tea,1\n8,mate,1\n8,tea,2\n7,mate,2\n"


@pytest.mark.parametrize("options", [{}, {"merge": True}, {"on_error": "drop"}], ids=["plain", "merge", "drop"])
def test_long__lines_of_a_ranking_apart(tmp_path: Path, options: dict[str, Any]) -> None:
    # Without the check these lines would become three rankings that nobody gave.
    source = write(tmp_path / "a.csv", TORN)
    message = ingest_error(source, tmp_path / "store", unranked="below", **options)
    assert f"{source}: the lines of ranking 7 are not consecutive" in message


def test_long__lines_apart_where_a_piece_alone_is_bad(tmp_path: Path) -> None:
    # With "absent" the first part has one item and is dropped; the rest must not become ranking 7.
    text = "ranking,item,rank\n7,tea,1\n8,mate,1\n8,tea,2\n7,mate,2\n7,milk,3\n"
    source = write(tmp_path / "a.csv", text)
    message = ingest_error(source, tmp_path / "store", unranked="absent", on_error="drop")
    assert "ranking 7" in message


def test_long__lines_apart_in_slices_of_numbers_and_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The ids of the first slice are numbers, those of the last are text.
    cut_small(monkeypatch, 1)
    lines = [f"{label},{item},{rank}" for label in "789b" for rank, item in enumerate(("tea", "mate"))]
    source = write(tmp_path / "a.csv", "\n".join(["id,item,rank", *lines, "7,milk,3", "c,tea,1", ""]))
    message = ingest_error(source, tmp_path / "store", unranked="below")
    assert f"{source}: the lines of ranking 7 are not consecutive" in message


def test_long__the_same_ids_in_two_files(tmp_path: Path) -> None:
    sources = [
        write(tmp_path / f"{name}.csv", f"ranking,item,rank\n1,{items[0]},1\n1,{items[1]},2\n")
        for name, items in (("a", ("tea", "mate")), ("b", ("mate", "tea")))
    ]
    store = ingest(sources, tmp_path / "store")
    assert named_rows(store) == [row("tea", "mate"), row("mate", "tea")]


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    "text",
    [
        "ranking,item,rank,unranked\n7,tea,1,sideways\n7,mate,2,sideways\n",
        "first,second,unranked\ntea,mate,sideways\n",
        "ordering,unranked\ntea mate,sideways\n",
    ],
    ids=["long", "wide", "orderings"],
)
def test_unranked_column__says_neither(tmp_path: Path, text: str) -> None:
    source = write(tmp_path / "a.csv", text)
    message = ingest_error(source, tmp_path / "store")
    assert str(source) in message
    assert "line 2" in message
    assert "unranked is 'sideways', but should be below or absent" in message
