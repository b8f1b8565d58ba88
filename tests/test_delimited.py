"""Delimited text in its three forms: one column per place, one line per item, or an ordering in one column."""

from __future__ import annotations

import csv
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ingest_helpers import cut_small, ingest_error, labels_of, named_rows, rejected, row, write
from oracle import write_store

from plmix_dist import Ranking, RankingBlock, export, ingest
from plmix_dist.errors import IngestError, SettingsError
from plmix_dist.formats.notation import format_ordering, parse_ordering

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plmix_dist.store import RankingStore

# --- which form a file has -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.csv", "count,ordering\n2,tea mate\n", "orderings"),
        ("a.csv", "Ordering\ntea mate\n", "orderings"),
        ("a.csv", "first,second\ntea,mate\n", "wide"),
        ("a.csv", "id,first,second\n7,tea,mate\n", "wide"),
        ("a.csv", "ranking,item,rank\n7,tea,1\n7,mate,2\n", "long"),
        ("a.csv", "Position, Candidate ,ballot_id\n1,tea,7\n2,mate,7\n", "long"),
        ("a.txt", "first,second\ntea,mate\n", "wide"),
        ("a.tsv", "first\tsecond\ntea\tmate\n", "wide"),
        ("A.TSV", "first\tsecond\ntea\tmate\n", "wide"),
        ("a.csv.gz", "ranking,item,rank\n7,tea,1\n7,mate,2\n", "long"),
        ("a.csv", "\ufefffirst,second\r\ntea,mate\r\n", "wide"),
        ("a.csv", "\ufeffranking,item,rank\n7,tea,1\n7,mate,2", "long"),
    ],
)
def test_form__told_by_the_columns(tmp_path: Path, name: str, text: str, form: str) -> None:
    store = ingest(write(tmp_path / name, text), tmp_path / "store")
    assert [ranking.ordered for ranking in named_rows(store)] == [(("tea",), ("mate",))]
    assert store.manifest.history[0]["sources"][0]["format"] == form


def test_form__said_by_the_user(tmp_path: Path) -> None:
    # By its columns this is `orderings`; read as `wide` it means something else.
    source = write(tmp_path / "a.csv", "ordering,second\ntea,mate\n")
    store = ingest(source, tmp_path / "store", format="wide")
    assert named_rows(store) == [row("tea", "mate")]


def test_form__name_that_tells_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "rankings.dat", "first,second\ntea,mate\n")
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}: the format is not known from the name" in message
    assert "--format" in message
    assert named_rows(ingest(source, tmp_path / "store", format="wide")) == [row("tea", "mate")]


@pytest.mark.parametrize("text", ["", "\n", "  \n"], ids=["nothing", "line end", "blank"])
def test_file__empty(tmp_path: Path, text: str) -> None:
    source = write(tmp_path / "a.csv", text)
    assert f"{source} is empty: its first line should name the columns" in ingest_error(
        source, tmp_path / "store"
    )


@pytest.mark.promise(21)
@pytest.mark.parametrize("header", ["first,second", "ranking,item,rank", "ordering"])
def test_file__without_rows(tmp_path: Path, header: str) -> None:
    source = write(tmp_path / "a.csv", f"{header}\n\n")
    assert f"no ranking was found in {source}" in ingest_error(source, tmp_path / "store")


def test_file__not_utf8(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\ncaf\xe9,tea\n".encode("latin-1"))
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 3: not UTF-8 text" in message


@pytest.mark.promise(42)
def test_file__with_line_ends_of_old(tmp_path: Path) -> None:
    # A carriage return alone does not end a line, so the whole file is the header.
    source = write(tmp_path / "a.csv", "first,second\rtea,mate\r")
    assert str(source) in ingest_error(source, tmp_path / "store")


def test_file__cut_short_within_its_packing(tmp_path: Path) -> None:
    lines = random.Random(1).choices(["tea,mate\n", "mate,tea\n"], k=5000)
    source = write(tmp_path / "a.csv.gz", "first,second\n" + "".join(lines))
    source.write_bytes(source.read_bytes()[:-200])
    assert str(source) in ingest_error(source, tmp_path / "store")


# --- fields ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "first", "second"),
    [
        ("tea,mate", "tea", "mate"),
        (" tea , mate ", "tea", "mate"),
        ('"tea","mate"', "tea", "mate"),
        ('"green, cold",mate', "green, cold", "mate"),
        ('"the ""best"" tea",mate', 'the "best" tea', "mate"),
        ('tea, "green, cold"', "tea", "green, cold"),
        ("green tea,mate", "green tea", "mate"),
        ("{tea},mate|", "{tea}", "mate|"),
        ("茶,кофе", "茶", "кофе"),
        ("'=cmd(),'+tea", "=cmd()", "+tea"),
        ("'tea','mate'", "'tea'", "'mate'"),
    ],
)
def test_wide__fields_and_their_quotes(tmp_path: Path, line: str, first: str, second: str) -> None:
    store = ingest(write(tmp_path / "a.csv", f"first,second\n{line}\n"), tmp_path / "store")
    assert named_rows(store) == [row(first, second)]


@pytest.mark.parametrize("sign", [";", "|", "\t", " "])
def test_delimiter__said_by_the_user(tmp_path: Path, sign: str) -> None:
    text = "first,second\ntea,mate\n".replace(",", sign)
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", delimiter=sign)
    assert named_rows(store) == [row("tea", "mate")]


def test_delimiter__must_be_one_character(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first||second\ntea||mate\n")
    with pytest.raises(SettingsError, match=r"delimiter.*'\|\|'"):
        ingest(source, tmp_path / "store", delimiter="||")


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    ("text", "n_columns", "n_fields"),
    [
        ("first,second\ntea,mate\ntea\n", 2, 1),
        ("first,second\ntea,mate\ntea,mate,milk\n", 2, 3),
        ("count,ordering\n1,tea mate\n1,tea,mate\n", 2, 3),
    ],
)
def test_fields__too_many_or_too_few(tmp_path: Path, text: str, n_columns: int, n_fields: int) -> None:
    source = write(tmp_path / "a.csv", text)
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 3: expected {n_columns} fields, but got {n_fields}" in message
    store = ingest(source, tmp_path / "store", on_error="quarantine")
    assert store.n_rankings == 1
    [bad] = rejected(store)
    assert (bad["reason"], bad["line"]) == ("syntax", 3)
    assert bad["contents"] == text.splitlines()[2].replace(",", " ")


@pytest.mark.promise(42)
def test_fields__longer_than_csv_allows(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", f'first,second\ntea,mate\n"{"x" * 200_000}",mate\n')
    assert f"{source}, line 3: " in ingest_error(source, tmp_path / "store", unranked="below")


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
    store = ingest(source, tmp_path / "store", on_error="drop")
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
    assert "there is no column 'third' for a place; found: town, second, first" in message


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
    "no number": (
        "8,tea,first",
        5,
        "bad-rank",
        "tea",
        "ranking 8: the rank 'first' of item 'tea' is not a number",
    ),
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
    store = ingest(source, tmp_path / "store", on_error="drop")
    assert labels_of(store, "ids") == [7, 9]
    assert [(bad["reason"], bad["line"], bad["item"]) for bad in rejected(store)] == [(reason, number, item)]


@pytest.mark.promise(20)
def test_long__no_line_has_a_rank(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "ranking,item,rank\n7,tea,\n7,mate,\n8,tea,1\n8,mate,2\n")
    assert f"{source}, line 2: no item is ranked" in ingest_error(source, tmp_path / "store")


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    ("name", "values"),
    [("count", ("2", "3")), ("group", ("ann", "bob")), ("unranked", ("below", "absent"))],
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


@pytest.mark.parametrize(
    "options", [{}, {"merge": True}, {"on_error": "drop"}], ids=["plain", "merge", "drop"]
)
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


def test_long__lines_apart_in_slices_of_numbers_and_of_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    [
        ("green tea", '"green tea"'),
        ('the "best"', '"the ""best"""'),
        ("a>b", '"a>b"'),
        ("", '""'),
        ("{", '"{"'),
    ],
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
    store = ingest(source, tmp_path / "store", on_error="drop")
    assert store.total_weight == 1.0
    assert store.manifest.history[-1]["rejected"] == {"bad-weight": 1}


# --- ids -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["3", "-4"], [3, -4]),
        (["007", "8"], ["007", "8"]),
        (["7", "b"], ["7", "b"]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["", "2"], ["", "2"]),
    ],
)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_ids__numbers_only_where_all_are(
    tmp_path: Path, form: str, written: list[str], expected: list[Any]
) -> None:
    text = {
        "orderings": "ranking,ordering\n" + "".join(f"{label},tea mate\n" for label in written),
        "wide": "ranking,first,second\n" + "".join(f"{label},tea,mate\n" for label in written),
        "long": "ranking,item,rank\n" + "".join(f"{label},tea,1\n{label},mate,2\n" for label in written),
    }[form]
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert labels_of(store, "ids") == expected
    export(store, tmp_path / "b.csv", format=form)
    assert labels_of(ingest(tmp_path / "b.csv", tmp_path / "again"), "ids") == expected


def test_ids__one_kind_over_all_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    labels = [str(number) for number in range(40)] + ["last"]
    text = "id,group,first,second\n" + "".join(f"{label},{label},tea,mate\n" for label in labels)
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert store.n_partitions > 3
    assert labels_of(store, "ids") == labels
    assert labels_of(store, "groups") == labels


# --- slices ----------------------------------------------------------------------------------------------

MENU = ("tea", "mate", "milk", "water", "juice")


def random_orders(count: int) -> list[tuple[str, ...]]:
    rng = random.Random(7)
    return [tuple(rng.sample(MENU, rng.randint(2, 5))) for _ in range(count)]


def text_of(form: str, orders: Sequence[Sequence[str]], groups: Sequence[str]) -> str:
    """The same rankings in any of the three forms, written line by line."""
    numbered = list(enumerate(zip(orders, groups, strict=True)))
    if form == "wide":
        lines = ["id,group,p1,p2,p3,p4,p5"]
        lines += [f"{n},{g}," + ",".join([*o, *[""] * (5 - len(o))]) for n, (o, g) in numbered]
    elif form == "long":
        lines = ["id,group,item,rank"]
        lines += [f"{n},{g},{x},{r}" for n, (o, g) in numbered for r, x in enumerate(o)]
    else:
        lines = ["id,group,ordering"]
        lines += [f"{n},{g},{' > '.join(o)}" for n, (o, g) in numbered]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("size", [1, 200])
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_slices__tear_neither_rankings_nor_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, size: int
) -> None:
    cut_small(monkeypatch, size)
    orders = random_orders(24)
    groups = [f"g{number // 3}" for number in range(24)]
    source = write(tmp_path / "a.csv", text_of(form, orders, groups))
    store = ingest(source, tmp_path / "store", unranked="below", item_names=MENU)
    assert store.n_partitions > 2
    assert named_rows(store) == [
        row(*order, unranked="absent" if len(order) == 5 else "below") for order in orders
    ]
    assert labels_of(store, "ids") == list(range(24))
    seen = [
        set().union(*(block.groups.tolist() for block in store.partition(n)))
        for n in range(store.n_partitions)
    ]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 8


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_slices__long_without_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    cut_small(monkeypatch)
    orders = random_orders(30)
    lines = [f"{n},{x},{r}" for n, order in enumerate(orders) for r, x in enumerate(order)]
    source = write(tmp_path / "a.csv", ending.join(["id,item,rank", *lines, ""]))
    store = ingest(source, tmp_path / "store", unranked="absent")
    assert store.n_partitions > 5
    assert [ranking.ordered for ranking in named_rows(store)] == [tuple((x,) for x in o) for o in orders]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: [*lines[:12], "", "", *lines[12:]],
        lambda lines: [f" {line}" if n % 3 else line for n, line in enumerate(lines)],
    ],
    ids=["blank lines", "spaces"],
)
def test_slices__long_where_lines_look_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any
) -> None:
    # Blank lines and spaces have no meaning, also where a file is cut into slices.
    cut_small(monkeypatch, 16)
    lines = [f"{n},{x},{r}" for n in range(6) for r, x in enumerate(MENU)]
    source = write(tmp_path / "a.csv", "\n".join(["id,item,rank", *spoil(lines)]) + "\n")
    store = ingest(source, tmp_path / "store")
    assert named_rows(store) == [row(*MENU)] * 6


@pytest.mark.promise(20)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_slices__line_numbers_of_bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    cut_small(monkeypatch)
    orders: list[tuple[str, ...]] = [MENU] * 16
    for bad in (5, 13):
        orders[bad] = ("tea", "mate", "milk", "tea", "water")
    source = write(tmp_path / "a.csv", text_of(form, orders, [f"g{n}" for n in range(16)]))
    store = ingest(source, tmp_path / "store", on_error="drop")
    lines_each = 5 if form == "long" else 1
    assert [bad["line"] for bad in rejected(store)] == [2 + 5 * lines_each, 2 + 13 * lines_each]
    assert {bad["item"] for bad in rejected(store)} == {"tea"}
    assert store.manifest.history[-1]["rejected"] == {"duplicate-item": 2}
    message = ingest_error(source, tmp_path / "other")
    assert f"{source}, line " in message
    assert "item tea is listed twice" in message


def test_slices__group_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    groups = [f"g{number // 4}" for number in range(20)]
    groups[19] = "g2"
    source = write(tmp_path / "a.csv", text_of("wide", [MENU] * 20, groups))
    message = ingest_error(source, tmp_path / "store")
    assert "the rankings of group g2 are not consecutive" in message


# --- columns ---------------------------------------------------------------------------------------------


def test_columns__named_by_the_user(tmp_path: Path) -> None:
    text = "Paper,What,Choice,Times,Rank\np1,tea,2,3,x\np1,mate,1,3,x\np2,tea,1,1,x\np2,mate,2,1,x\n"
    columns = {"id": "paper", "item": "what", "rank": "choice", "weight": "times"}
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", columns=columns)
    assert named_rows(store) == [row("mate", "tea", weight=3.0), row("tea", "mate")]
    assert labels_of(store, "ids") == ["p1", "p2"]


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"columns": {"id": "paper"}}, "there is no column 'paper' for the id; found: first, second"),
        ({"format": "long"}, "no column holds the id, item, rank; found: first, second"),
        ({"format": "orderings"}, "no column holds orderings; found: first, second"),
    ],
)
def test_columns__not_there(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\n")
    message = ingest_error(source, tmp_path / "store", **options)
    assert f"{source}: {what}" in message


def test_columns__none_left_for_places(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "count,id\n1,2\n")
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}: no column is left for the places of a ranking" in message


def test_columns__role_that_does_not_exist(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\n")
    with pytest.raises(SettingsError, match=r"there is no column role 'paper'; choose from id, item, rank"):
        ingest(source, tmp_path / "store", columns={"paper": "a"})


# --- names of items --------------------------------------------------------------------------------------


def test_names__numbers_by_value_then_words(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "a,b,c,d,e\n10,tea,9,ale,-2\n")
    store = ingest(source, tmp_path / "store")
    assert store.item_names == ("-2", "9", "10", "ale", "tea")


@pytest.mark.promise(35)
@pytest.mark.parametrize("label", ["te\x1b[31ma", "te\x9ba"])
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_names__control_characters_are_kept_and_shown_escaped(tmp_path: Path, form: str, label: str) -> None:
    text = text_of(form, [(label, *MENU[1:]), (*MENU[1:], label)], ["g", "h"])
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert sorted(store.item_names) == sorted([*MENU[1:], label])
    source = write(
        tmp_path / "b.csv", text_of(form, [(label, *MENU[1:]), (label, *MENU[1:4], label)], ["g", "h"])
    )
    message = ingest_error(source, tmp_path / "other")
    assert (
        f"{source}, line {7 if form == 'long' else 3}: item {label!r} is listed twice".replace("'", "")
        in message
    )
    assert label not in message


@pytest.mark.promise(34)
def test_names__of_absurd_length(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", f"first,second\ntea,mate\ntea,{'x' * 100_001}\n")
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 3: item name 'xxx" in message
    assert "is longer than 100000 characters" in message
    assert len(message) < 500 + len(str(source))


def test_names__quoted_field_over_two_lines(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", 'first,second\ntea,mate\n"green\ntea",mate\n')
    assert f"{source}, line 3: " in ingest_error(source, tmp_path / "store", unranked="below")


def again(store: RankingStore, target: Path, form: str) -> RankingStore:
    """The store after export to text and ingest."""
    export(store, target, format=form)
    return ingest(target, target.with_suffix(".store"))


STRANGE = {
    "signs": (
        *("=cmd()", "+x", "@sum", "-tea", "'quoted", "'", "''", "'=x", "''=x", "tea'"),
        *("tea, green", 'the "best"', "{tea}", "a|b", "a>b", "<script>", "&amp;", "%s", "{0}", "\\n"),
    ),
    "words": (
        *("green tea", "two  spaces", "nb\xa0sp", "thin\u2009sp", "茶", "кофе", "شاي", "🍵", "e\u0301"),
        *("007", "7", "1e3", "+7", "-5", "none", "None", "null", "true"),
    ),
    "missing": ("NaN", "NA", "-1", "nan", "tea"),
    "surrounded": (" tea", "tea ", "\u2003mate", "milk\xa0", "\ufeffwater"),
}


@pytest.mark.promise(19)
@pytest.mark.parametrize("names", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_names__strange_ones_come_back(tmp_path: Path, form: str, names: tuple[str, ...]) -> None:
    order = list(range(len(names)))
    block = RankingBlock.from_array([order, order[::-1]])
    store = write_store(tmp_path / "store", [[block]], item_names=list(names))
    try:
        second = again(store, tmp_path / "a.csv", form)
    except IngestError as error:
        # If a format cannot hold a name, the error names one that can.
        assert "cannot write" in str(error)  # noqa: PT017
        assert "instead" in str(error)  # noqa: PT017
        return
    assert second.item_names == names
    assert second.block().equals(block.replace(ids=second.block().ids))


@pytest.mark.promise(35)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_names__no_field_is_a_formula(tmp_path: Path, form: str) -> None:
    names = ["=cmd()", "+x", "@sum", "-tea", "=1+1|' /C calc'!A0"]
    # Each name is the first of one ordering, because a spreadsheet looks at the first character of a cell.
    block = RankingBlock.from_array([np.roll(range(5), shift).tolist() for shift in range(5)])
    store = write_store(tmp_path / "store", [[block]], item_names=names)
    export(store, tmp_path / "a.csv", format=form)
    with (tmp_path / "a.csv").open(newline="") as file:
        fields = [field for line in csv.reader(file) for field in line]
    for name in names:
        assert [field for field in fields if name in field]
    assert not [field for field in fields if field.startswith(("=", "+", "@", "-"))]


# --- files of item names beside the text -----------------------------------------------------------------


@pytest.mark.promise(19)
def test_items_beside__names_that_no_row_lists(tmp_path: Path) -> None:
    block = RankingBlock.from_rows([row_of(0, 2), row_of(2, 0)], n_items=4)
    store = write_store(tmp_path / "store", [[block]], item_names=["tea", "ale", "mate", "milk"])
    export(store, tmp_path / "a.csv")
    assert (tmp_path / "a.csv.items").read_text() == "tea\nale\nmate\nmilk\n"
    second = ingest(tmp_path / "a.csv", tmp_path / "again", unranked="absent")
    assert second.item_names == store.item_names
    assert second.block().equals(block)


@pytest.mark.promise(19)
def test_items_beside__none_left_over_from_an_earlier_export(tmp_path: Path) -> None:
    # Item names left by another export would be read as the names of this file.
    first = write_store(
        tmp_path / "first", [[RankingBlock.from_array([[0, 1, 2]])]], item_names=["tea", "mate", "ale"]
    )
    second = write_store(
        tmp_path / "second", [[RankingBlock.from_array([[1, 0, 2]])]], item_names=["ale", "mate", "tea"]
    )
    export(first, tmp_path / "a.csv")
    export(second, tmp_path / "a.csv", overwrite=True)
    assert ingest(tmp_path / "a.csv", tmp_path / "again").item_names == ("ale", "mate", "tea")


def test_items_beside__item_that_it_does_not_name(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\ntea,milk\n")
    write(tmp_path / "a.csv.items", "mate\ntea\n")
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 3: item 'milk' is not one of the 2 items" in message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tea\nmate\ntea\n", "the item name 'tea' occurs twice"),
        ("tea\n", "a ranking needs at least two items, but there are 1"),
        (f"tea\n{'x' * 100_001}\n", "item name 'xxx"),
    ],
)
def test_items_beside__not_fit_to_be_names(tmp_path: Path, text: str, what: str) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\n")
    write(tmp_path / "a.csv.items", text)
    assert f"{source}.items: {what}" in ingest_error(source, tmp_path / "store")


# --- what a form cannot hold -----------------------------------------------------------------------------


def row_of(*items: int, unranked: Any = "absent") -> Ranking:
    return Ranking(tuple((item,) for item in items), (), unranked, 1.0)


@pytest.mark.promise(19)
@pytest.mark.parametrize(
    "ranking",
    [Ranking(((0, 1), (2,)), (), "absent", 1.0), Ranking(((0,),), (1, 2), "absent", 1.0)],
    ids=["ties", "slate"],
)
def test_wide__refuses_ties_and_slates(tmp_path: Path, ranking: Ranking) -> None:
    store = write_store(tmp_path / "store", [[RankingBlock.from_rows([ranking], n_items=3)]])
    target = tmp_path / "a.csv"
    with pytest.raises(
        IngestError, match=r"a\.csv: ties and slates .* export to orderings, long or Parquet instead"
    ):
        export(store, target, format="wide")
    assert not target.exists()


@pytest.mark.promise(19)
@pytest.mark.parametrize("name", ["NA", "-1", "nan"])
def test_wide__refuses_names_that_mean_missing(tmp_path: Path, name: str) -> None:
    block = RankingBlock.from_array([[0, 1]])
    store = write_store(tmp_path / "store", [[block]], item_names=[name, "tea"])
    with pytest.raises(IngestError, match=f"an item is called '{name}'; export to orderings"):
        export(store, tmp_path / "a.csv", format="wide")


@pytest.mark.promise(19)
@pytest.mark.parametrize("ids", [["a", "a"], ["a", "b", "a"]], ids=["side by side", "apart"])
def test_long__refuses_an_id_that_two_rankings_have(tmp_path: Path, ids: list[str]) -> None:
    # Their lines would be read back as those of one ranking.
    rows = [row_of(0, 1), row_of(1, 0), row_of(0, 1)][: len(ids)]
    store = write_store(tmp_path / "store", [[RankingBlock.from_rows(rows, n_items=2, ids=ids)]])
    with pytest.raises(IngestError, match=r"cannot write .*a\.csv"):
        export(store, tmp_path / "a.csv", format="long")


@pytest.mark.promise(35)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
@pytest.mark.parametrize("label", ["a\nb", "a\rb", "a\r\n=cmd()"])
def test_labels__line_ends_never_make_lines(tmp_path: Path, form: str, label: str) -> None:
    block = RankingBlock.from_rows([row_of(0, 1), row_of(1, 0)], n_items=2, ids=[label, "c"])
    store = write_store(tmp_path / "store", [[block]], item_names=["mate", "tea"])
    try:
        second = again(store, tmp_path / "a.csv", form)
    except IngestError as error:
        assert "cannot write" in str(error)  # noqa: PT017
    else:
        assert second.block().equals(block)
