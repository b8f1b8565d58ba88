"""The formats with one ranking per row: wide, ranks, orderings and its notation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plmix_dist import Ranking, export, ingest
from plmix_dist.tables.notation import format_ordering, parse_ordering
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path


# --- one column per place ------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["", "NA", "NaN", "nan", "-1"])
def test_wide__rows_end_at_missing_places(tmp_path: Path, missing: str) -> None:
    text = f"first,second,third\ntea,mate,milk\nmilk,tea,{missing}\nmate,{missing},{missing}\n"
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", unranked="below")
    assert named_rows(store) == [
        row("tea", "mate", "milk"),
        row("milk", "tea", unranked="below"),
        row("mate", unranked="below"),
    ]


@pytest.mark.promise(20)
def test_wide__item_after_a_missing_place(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second,third\ntea,mate,milk\ntea,,milk\n")
    message = ingest_error(source, tmp_path / "store", unranked="below")
    assert f"{source}, line 3: an item follows an empty place" in message


@pytest.mark.promise(20)
def test_wide__all_places_missing(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\n,\n")
    assert f"{source}, line 3: no item is ranked" in ingest_error(source, tmp_path / "store")
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert [(bad["reason"], bad["line"]) for bad in rejected(store)] == [("empty", 3)]


def test_wide__labels_beside_the_places(tmp_path: Path) -> None:
    text = "group,first,count,second,id,unranked\na,tea,2.5,mate,x1,\na,milk,3,,x2,below\nb,milk,1,tea,x3,absent\n"
    # What a row says about unranked items takes precedence over the option.
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", unranked="below")
    assert named_rows(store) == [
        row("tea", "mate", unranked="below", weight=2.5),
        row("milk", unranked="below", weight=3.0),
        row("milk", "tea", unranked="absent", weight=1.0),
    ]
    assert labels_of(store, "ids") == ["x1", "x2", "x3"]
    assert labels_of(store, "groups") == ["a", "a", "b"]


def test_wide__places_named_by_the_user(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "town,second,first\nRiga,tea,mate\nOslo,mate,tea\n")
    store = ingest(source, tmp_path / "store", columns={"places": "first,second"})
    assert named_rows(store) == [row("mate", "tea"), row("tea", "mate")]
    message = ingest_error(source, tmp_path / "other", columns={"places": "first,third"})
    assert "no column 'third' for a place; found: town, second, first" in message


# --- one column per item ---

MENU = ("tea", "mate", "milk")


def test_ranks__what_is_not_ranked_is_asked_about(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "count,tea,mate,milk\n3,1,0,2\n2,NA,1,1\n1,2,,1\n")
    assert "--unranked below" in ingest_error(source, tmp_path / "store")
    store = ingest(source, tmp_path / "store", unranked="absent")
    assert store.item_names == MENU
    assert named_rows(store) == [row("tea", "milk", weight=3.0), row(("mate", "milk"), weight=2.0), row("milk", "tea")]


@pytest.mark.promise(20)
@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize(
    ("cell", "what"),
    [("best", "the rank 'best' of item 'mate' is not a positive number"), ("-2", "the rank '-2'"),
     ("1;5", "the rank '1;5'"), ("inf", "the rank 'inf'"), ("nil", "the rank 'nil'")],
)  # fmt: skip
def test_ranks__bad_rank(tmp_path: Path, cell: str, what: str, quoted: bool) -> None:
    cell = f'"{cell}"' if quoted else cell
    lines = ["tea,mate,milk", *["1,2,3"] * 20, f"1,{cell},3", *["2,1,3"] * 20]
    source = write(tmp_path / "a.csv", "\n".join(lines) + "\n")
    assert f"{source}, line 22: {what}" in ingest_error(source, tmp_path / "store")
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert store.n_rankings == 40
    assert [(bad["reason"], bad["line"]) for bad in rejected(store)] == [("syntax", 22)]


@pytest.mark.promise(19)
def test_ranks__written_and_read_again(tmp_path: Path) -> None:
    text = "id,count,ordering\n7,2,{mate tea} milk\n9,1,milk\n8,1.5,mate {milk tea}\n"
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", unranked="below")
    export(store, tmp_path / "b.csv", format="ranks")
    assert (tmp_path / "b.csv").read_text().splitlines()[1] == "2,1,2,1,7"
    again = ingest(tmp_path / "b.csv", tmp_path / "again", unranked="below")
    assert again.block().equals(store.block())
    assert again.item_names == store.item_names


# --- a whole ordering in one column ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tea mate milk", row("tea", "mate", "milk")),
        ("tea > mate > milk", row("tea", "mate", "milk")),
        ("tea>mate>milk", row("tea", "mate", "milk")),
        ('"tea,mate,milk"', row("tea", "mate", "milk")),
        ("{tea mate} milk", row(("tea", "mate"), "milk")),
        ("milk {tea mate}", row("milk", ("tea", "mate"))),
        ("{tea} mate milk", row("tea", "mate", "milk")),
        ("tea | mate milk", row("tea", offered=("mate", "milk"))),
        ("{tea mate}|milk", row(("tea", "mate"), offered=("milk",))),
        ("tea mate milk |", row("tea", "mate", "milk")),
        ('"""tea"" mate milk"', row("tea", "mate", "milk")),
    ],
)
def test_orderings__notation(tmp_path: Path, text: str, expected: Ranking) -> None:
    source = write(tmp_path / "a.csv", f"ordering\n{text}\n")
    assert named_rows(ingest(source, tmp_path / "store")) == [expected]


@pytest.mark.parametrize(
    ("label", "written"),
    [("green tea", '"green tea"'), ('the "best"', '"the ""best"""'), ("a>b", '"a>b"'), ("", '""'), ("{", '"{"')],
)
def test_notation__names_that_need_quotes(label: str, written: str) -> None:
    assert format_ordering([label, "mate"], 2, None) == f"{written} mate"
    assert parse_ordering(f"{written} mate") == ([label, "mate"], 2, None)


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{tea mate", "a tie '{' does not end"),
        ("tea} mate", "'}' without '{'"),
        ("{tea {mate milk}}", "a tie '{' begins inside another tie"),
        ("{} tea mate", "or an empty tie"),
        ("tea | {mate milk}", "a tie '{' begins inside another tie or after '|'"),
        ("{tea | mate}", "'|' inside a tie, or a second '|'"),
        ("tea | mate | milk", "'|' inside a tie, or a second '|'"),
        ('"tea ""mate"', "a quoted name does not end"),
        ("tea tea", "item tea is listed twice"),
        ("{tea mate} {mate milk}", "item mate is listed twice"),
        ("", "no item is ranked"),
        ("| tea mate", "no item is ranked"),
    ],
)
def test_orderings__cannot_be_read(tmp_path: Path, text: str, what: str) -> None:
    source = write(tmp_path / "a.csv", f"count,ordering\n1,tea mate milk\n1,{text}\n")
    message = ingest_error(source, tmp_path / "store", unranked="below")
    assert f"{source}, line 3: " in message
    assert what in message


@pytest.mark.promise(20)
@pytest.mark.parametrize("weight", ["0", "-1", "inf", "two", "1_000"])
@pytest.mark.parametrize(
    "text",
    [
        "count,ordering\n1,tea mate\n{},tea mate\n",
        "count,ranking,item,rank\n1,7,tea,1\n1,7,mate,2\n{0},8,tea,1\n{0},8,mate,2\n",
    ],
    ids=["orderings", "long"],
)
def test_weight__no_positive_number(tmp_path: Path, text: str, weight: str) -> None:
    source = write(tmp_path / "a.csv", text.format(weight))
    number = 3 if "ordering" in text else 4
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line {number}: weight " in message
    assert "is not a positive finite number" in message
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert store.total_weight == 1.0
    assert store.manifest.history[-1]["rejected"] == {"bad-weight": 1}
