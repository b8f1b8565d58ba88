"""Recognition of text tables: read without a question, or refused with the options that help."""

from __future__ import annotations

import copy
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest
from plmix_dist.cli.data import ingest as ingest_verb
from plmix_dist.datasets.ingest import first_rankings
from plmix_dist.tables.sniff import _sniff_delimiter
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path

    from plmix_dist.rankings import Ranking


# click keeps the help option of a command after its first use, which here is not through `plmix`.
INGEST = copy.copy(ingest_verb)
MENU = ("tea", "mate", "milk")
TWO = [row("tea", "mate", "milk"), row("milk", "tea", "mate")]
PAIR = [row("tea", "mate"), row("mate", "tea")]

# --- read without a question -----------------------------------------------------------------------------

READ: dict[str, tuple[str, str, list[Ranking]]] = {
    "header": ("first,second,third\ntea,mate,milk\nmilk,tea,mate\n", "wide", TWO),
    "no header": ("tea,mate,milk\nmilk,tea,mate\n", "wide", TWO),
    "numbered places": ("1,2,3\ntea,mate,milk\nmilk,tea,mate\n", "wide", TWO),
    "semicolons": ("first;second;third\ntea;mate;milk\nmilk;tea;mate\n", "wide", TWO),
    "semicolons, no header": ("tea;mate;milk\nmilk;tea;mate\n", "wide", TWO),
    "tabs": ("first\tsecond\tthird\ntea\tmate\tmilk\nmilk\ttea\tmate\n", "wide", TWO),
    "a first column without a name, of ids": (",first,second\nann,tea,mate\nbob,mate,tea\n", "wide", PAIR),
    "pandas index": (",first,second\n0,tea,mate\n1,mate,tea\n", "wide", PAIR),
    "pandas index, no names": (",0,1,2\n0,tea,mate,milk\n1,milk,tea,mate\n", "wide", TWO),
    "R row numbers": ('"","first","second"\n"1","tea","mate"\n"2","mate","tea"\n', "wide", PAIR),
    "R row numbers without a name": ("first,second\n1,tea,mate\n2,mate,tea\n", "wide", PAIR),
    "bom and crlf": ("\ufefffirst,second\r\ntea,mate\r\nmate,tea\r\n", "wide", PAIR),
    "bom, no header": ("\ufefftea,mate\nmate,tea\n", "wide", PAIR),
    "delimiters at the end": ("first,second,\ntea,mate,\nmate,tea,\n", "wide", PAIR),
    "delimiters at the end of rows": ("first,second\ntea,mate,\nmate,tea,\n", "wide", PAIR),
    "delimiters at the end, no header": ("tea,mate,\nmate,tea,\n", "wide", PAIR),
    "blanks": (" first , second \n tea , mate\nmate ,tea\n", "wide", PAIR),
    "empty lines": ("\n\nfirst,second\n\ntea,mate\n\n\nmate,tea\n\n", "wide", PAIR),
    "ordinals": ("1st choice,2nd choice\ntea,mate\nmate,tea\n", "wide", PAIR),
    "ranks": ("tea,mate,milk\n1,2,3\n2,3,1\n", "ranks", TWO),
    "ranks with a header that tells nothing, and ties": (
        "V1,V2,V3\n1,1,2\n2,1,1\n1,2,1\n",
        "ranks",
        [row(("V1", "V2"), "V3"), row(("V2", "V3"), "V1"), row(("V1", "V3"), "V2")],
    ),
    "ranks of R": ('"","tea","mate","milk"\n"1",1,2,3\n"2",2,3,1\n', "ranks", TWO),
    "ranks, averages of ties": ("tea,mate,milk\n1.5,1.5,3\n1,2,3\n", "ranks", [row(("tea", "mate"), "milk"), TWO[0]]),
    "ranks, semicolons": ("tea;mate;milk\n1;2;3\n2;3;1\n", "ranks", TWO),
    "user, item, rank": ("user,item,rank\nann,tea,1\nann,mate,2\nbob,mate,1\nbob,tea,2\n", "long", PAIR),
    "long with semicolons": ("id;item;rank\n7;tea;1\n7;mate;2\n8;mate;1\n8;tea;2\n", "long", PAIR),
    "arrows": ("tea > mate > milk\nmilk > tea > mate\n", "orderings", TWO),
    "arrows below a name": ("vote\ntea > mate > milk\nmilk > tea > mate\n", "orderings", TWO),
    "orderings with tabs": ("count\tordering\n1\ttea mate milk\n1\tmilk tea mate\n", "orderings", TWO),
}  # fmt: skip


@pytest.mark.promise(46)
@pytest.mark.parametrize(("text", "form", "expected"), READ.values(), ids=READ)
def test_table__understood(tmp_path: Path, text: str, form: str, expected: list[Ranking]) -> None:
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert named_rows(store) == expected
    [understood] = store.manifest.history[-1]["read_as"]
    assert understood["format"] == form


@pytest.mark.promise(20)
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("first,second\ntea,mate\nfirst,second\nmate,tea\n", None),
        ("ordering\ntea mate\n ordering\nmate tea\n", None),
        ("count,ordering\n1,tea mate\ncount,ordering\n1,mate tea\n", None),
        ("tea,mate\n1,2\ntea,mate\n2,1\n", None),
        ("id,item,rank\n7,tea,1\n7,mate,2\nid,item,rank\n8,mate,1\n8,tea,2\n", [7, 8]),
    ],
)
def test_table__header_again_where_files_were_joined(tmp_path: Path, text: str, ids: list[int] | None) -> None:
    source = write(tmp_path / "a.csv", text)
    options = {"format": "ranks"} if text.startswith("tea") else {}
    message = ingest_error(source, tmp_path / "store", **options)
    assert f"line {4 if ids else 3}: " in message
    assert "the line repeats the header" in message
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0, **options)
    assert [ranking.ordered for ranking in named_rows(store)] == [ranking.ordered for ranking in PAIR]
    assert len(rejected(store)) == 1
    assert ids is None or sorted(map(str, labels_of(store, "ids") or [])) == ["7", "8"]


def test_table__column_without_a_name_holds_ids(tmp_path: Path) -> None:
    text = '"","first","second"\n"ann","tea","mate"\n"bob","mate","tea"\n'
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert labels_of(store, "ids") == ["ann", "bob"]
    assert "no name" in store.manifest.history[-1]["read_as"][0]["guesses"][0]


def test_guess__is_said(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "a,b,c\ntea,mate,milk\nmilk,tea,mate\n")
    store = ingest(source, tmp_path / "store")
    assert named_rows(store) == TWO
    assert "--no-header" in store.manifest.history[-1]["read_as"][0]["guesses"][0]
    named = write(tmp_path / "b.csv", "first,second\ntea,mate\n")
    assert ingest(named, tmp_path / "other").manifest.history[-1]["read_as"][0]["guesses"] == []


@pytest.mark.parametrize("option", [["--json"], []], ids=["json", "text"])
def test_verb__shows_the_first_rankings(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    source = write(tmp_path / "a.csv", "te\x1ba;mate;milk\n1;1;2\n3;2;1\n1;2;3\n2;1;3\n")
    INGEST.main([str(source), str(tmp_path / "store"), "--workers", "0", *option], standalone_mode=False)
    said = capsys.readouterr().out
    for words in ("{te\\x1ba, mate} > milk", "milk > mate > te\\x1ba", "te\\x1ba > mate > milk"):
        assert (words.replace("\\", "\\\\") if option else words) in said
    assert "semicolons" in said or '"delimiter": ";"' in said
    assert "\x1b" not in said
    assert "mate > te\\x1ba > milk" not in said  # three are enough


def test_preview__of_rows_that_were_appended(tmp_path: Path) -> None:
    ingest(write(tmp_path / "a.csv", "first,second\ntea,mate\n"), tmp_path / "store")
    store = ingest(write(tmp_path / "b.csv", "ordering\nmate | tea\n"), tmp_path / "store", append=True)
    assert first_rankings(store) == ["mate | tea"]


# --- refused, with the options that help -----------------------------------------------------------------

# Text; words of the message; for each option in the message, the rows that it gives or None if it gives another error.
REFUSED: dict[str, tuple[str, str, dict[str, list[Ranking] | None]]] = {
    "one line": (
        "tea,mate\n",
        "the first line (tea, mate) may name the columns or be the first ranking",
        {"--header": None, "--no-header": [row("tea", "mate")]},
    ),
    "a row for a header of numbers": (
        "1,2,3\n3,1,2\n1,2,3\n",
        "the first line (1, 2, 3) may name the columns",
        {"--header": None, "--no-header": None},
    ),
    "numbers without a header": (
        "3,1,2\n1,2,3\n",
        "may be items (one column per place) or ranks",
        {
            "--format wide": [row("3", "1", "2"), row("1", "2", "3")],
            "--format ranks": [row("2", "3", "1"), row("1", "2", "3")],
        },
    ),
    "names of R": (
        "V1,V2,V3\n3,1,2\n1,2,3\n",
        "may be items (one column per place) or ranks",
        {
            "--format wide": [row("3", "1", "2"), row("1", "2", "3")],
            "--format ranks": [row("V2", "V3", "V1"), row("V1", "V2", "V3")],
        },
    ),
    "ratings": (
        "user,item,rating\nann,tea,1\nann,mate,2\nbob,mate,1\nbob,tea,2\n",
        "'rating' seems to hold ratings",
        {"--format long --column id=user --column item=item --column rank=rating": PAIR},
    ),
    "ratings without items": ("user,drink,stars\nann,tea,5\nann,mate,2\n", "'stars' seems to hold ratings", {}),
    "ratings of MovieLens": (
        "userId,movieId,rating,timestamp\n1,31,2.5,126\n1,10,3.0,127\n2,31,1.0,128\n",
        "'rating' seems to hold ratings",
        {},
    ),
    "ratings below items": ("tea,mate,milk\n5,3,4\n4,4,2\n", "the numbers below tea, mate, milk are not ranks", {}),
    "scores below items": ("tea,mate\n0.25,0.75\n0.5,0.5\n", "the numbers below tea, mate are not ranks", {}),
    "long without known names": (
        "who,drink,liking\nann,tea,1\nann,mate,2\nbob,mate,1\nbob,tea,2\n",
        "several lines have the same 'who'",
        {"--format long --column id=who --column item=drink --column rank=liking": PAIR},
    ),
    "long without a header": (
        "ann,tea,1\nann,mate,2\nbob,mate,1\nbob,tea,2\n",
        "several lines have the same '1'",
        {"--format long --column id=1 --column item=2 --column rank=3": PAIR},
    ),
    "item and rank alone": ("item,rank\ntea,1\nmate,2\n", "no column holds the id; found: item, rank", {}),
    "line numbers with a name": (
        "nr,first,second\n1,tea,mate\n2,mate,tea\n",
        "the column 'nr' (1, 2) seems not to hold a place",
        {"--column id=nr": PAIR, "--column places=first,second": PAIR},
    ),
    "names of people": (
        "who,best drink,next drink\nann,tea,mate\nbob,mate,tea\n",
        "the column 'who' (ann, bob) seems not to hold a place",
        {"--column id=who": None, "--column 'places=best drink,next drink'": PAIR},
    ),
    "names and ages": (
        "name,age,favourite,second\nann,31,tea,mate\nbob,45,mate,tea\n",
        "the column 'name' (ann, bob) seems not to hold a place",
        {"--column id=name": None, "--column places=favourite,second": PAIR},
    ),
    "counts": (
        "number,first,second\n5,tea,mate\n3,mate,tea\n",
        "the column 'number' (5, 3) seems not to hold a place",
        {"--column weight=number": [row("tea", "mate", weight=5.0), row("mate", "tea", weight=3.0)]},
    ),
    "counts without a header": (
        "5,tea,mate\n3,mate,tea\n",
        "the column '1' (5, 3) seems not to hold a place",
        {"--column weight=1": [row("tea", "mate", weight=5.0), row("mate", "tea", weight=3.0)],
         "--column ignore=1": PAIR},
    ),
    "ids of rankings of one place": (
        "7,tea\n8,mate\n9,tea\n10,milk\n",
        "the columns 1, 2 seem to hold no items in common",
        {},
    ),
    "zeros for empty places": (
        "p1,p2,p3\n2,1,0\n3,0,0\n1,2,3\n",
        "0 seems to stand for places without an item (2, 1, 0); leave such places empty",
        {},
    ),
    "a header among the rows": (
        "mate,tea\nfirst,second\ntea,mate\n",
        "the line 'first,second' names columns but is not the first line",
        {},
    ),
    "one column": ("tea mate\nmate tea\ntea mate\n", "there is one column only", {}),
    "two delimiters": (
        "1,tea;mate\n2,mate;tea\n3,mate;tea\n",
        "the fields may be divided by a semicolon or a comma",
        {"--delimiter ','": None},
    ),
    "decimal commas": ("id;item;rank\n7;tea;1,5\n7;mate;2,5\n", "the rank '1,5' of item 'tea' is not a number", {}),
}  # fmt: skip


@pytest.mark.promise(46)
@pytest.mark.parametrize(("text", "words", "ways"), REFUSED.values(), ids=REFUSED)
def test_table__refused_with_an_option_that_helps(
    tmp_path: Path, text: str, words: str, ways: dict[str, list[Ranking] | None]
) -> None:
    source = write(tmp_path / "a.csv", text)
    message = ingest_error(source, tmp_path / "store")
    assert str(source) in message
    assert words in message
    for number, (option, expected) in enumerate(ways.items()):
        assert option in message
        try:
            store = ingest(source, tmp_path / f"store{number}", **_settings(option))
        except ValueError:
            assert expected is None
        else:
            assert named_rows(store) == expected


@pytest.mark.promise(46)
@pytest.mark.parametrize("text", [text for text, _, _ in REFUSED.values()], ids=REFUSED)
@pytest.mark.parametrize("unranked", ["below", "absent"])
def test_table__unranked_does_not_help(tmp_path: Path, text: str, unranked: Any) -> None:
    assert ingest_error(write(tmp_path / "a.csv", text), tmp_path / "store", unranked=unranked, on_error="drop")


def _settings(option: str) -> dict[str, Any]:
    """The settings that an option of the command line stands for."""
    context = INGEST.make_context("ingest", ["a.csv", "store", *shlex.split(option)])
    chosen = context.params
    columns = dict(column.split("=", 1) for column in chosen["columns"])
    return {key: chosen[key] for key in ("delimiter", "header")} | {"format": chosen["format_name"], "columns": columns}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("first,second\ntea,mate\n".encode("utf-16"), "line 1: this is UTF-16 or no text at all"),
        ("first,second\ntea,mate\n".encode("utf-16-le"), "line 1: this is UTF-16 or no text at all"),
        (b"first,second\rtea,mate\r", "line 1: lines end with a carriage return alone"),
        (b"first,second\ntea,m\x00ate\n", "line 2: this is UTF-16 or no text at all"),
    ],
    ids=["utf-16", "utf-16 without a mark", "old macintosh", "binary"],
)
def test_file__no_text(tmp_path: Path, data: bytes, words: str) -> None:
    assert words in ingest_error(write(tmp_path / "a.csv", data), tmp_path / "store")


def test_options__go_before_the_data(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "tea;mate\nmate;tea\n")
    places = {"places": "tea,mate"}
    assert named_rows(ingest(source, tmp_path / "one", header=True, delimiter=";", columns=places)) == [
        row("mate", "tea")
    ]
    assert named_rows(ingest(source, tmp_path / "two", header=False)) == PAIR
    assert "header must be True or False" in ingest_error(source, tmp_path / "three", header="yes")
    for wrong in ("", ";;", '"', "\n"):
        assert "delimiter must be one character" in ingest_error(source, tmp_path / "four", delimiter=wrong)
    tabs = write(tmp_path / "b.csv", "tea\tmate\nmate\ttea\n")
    assert named_rows(ingest(tabs, tmp_path / "five", delimiter="\\t")) == PAIR


def test_a_first_column_without_a_name__that_repeats_is_not_of_ids(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",first,second\nann,tea,mate\nann,mate,tea\nbob,tea,mate\n")
    said = ingest_error(tmp_path / "a.csv", tmp_path / "store")
    assert "(ann, bob) seems not to hold a place of a ranking" in said


def test_delimiter__of_numbers_with_decimal_commas() -> None:
    assert _sniff_delimiter(["1,5;2,5;3,5", "2,5;1,5;4,5"], ",", (";", ","), ()) == ";"
