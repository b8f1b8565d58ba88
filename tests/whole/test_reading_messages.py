"""Reading what people have: cells with whole rankings, tables in Python, and messages that say what to do next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from plmix_dist import PlackettLuceMixture, ingest, ingest_ratings, open_store
from plmix_dist.errors import IngestError, RankingError, StoreNotFoundError
from tests.helpers import cli_helpers
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, row, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plmix_dist.rankings import Ranking
    from tests.helpers.cli_helpers import Said

shell = cli_helpers.shell  # the fixture that runs a verb in a folder of its own

# --- whole rankings in a cell ----------------------------------------------------------------------------

CELLS: dict[str, tuple[str, list[Ranking]]] = {
    "names with blanks": (
        "vote\nAnn Lee > Bo Ek > Cy\nCy > Bo Ek > Ann Lee\n",
        [row("Ann Lee", "Bo Ek", "Cy"), row("Cy", "Bo Ek", "Ann Lee")],
    ),
    "ties joined by =": (
        "vote\nAnn Lee > Bo = Cy > D\nD > Ann Lee=Bo > Cy\n",
        [row("Ann Lee", ("Bo", "Cy"), "D"), row("D", ("Ann Lee", "Bo"), "Cy")],
    ),
    "ties in braces": (
        "vote;n\na > {b c} > d e;x\na > {b, c} > d e;x\n",
        [row("a", ("b", "c"), "d e"), row("a", ("b", "c"), "d e")],
    ),
    "a name with a comma, in quotes": (
        'vote\n"""Lee, Ann"" > Bo Ek"\nBo Ek > Cy\n',
        [row("Lee, Ann", "Bo Ek"), row("Bo Ek", "Cy")],
    ),
    "a column named ranking": ("ranking\na > b\nb > a\n", [row("a", "b"), row("b", "a")]),
    "one item in a row": (
        "vote\n" + "Ann Lee > Bo Ek\n" * 10 + "Ann Lee\n",
        [row("Ann Lee", "Bo Ek")] * 10 + [row("Ann Lee", unranked="below")],
    ),
    "commas": (
        'count,ordering\n2,"Ann Lee, Bo Ek"\n1,"Bo Ek,Ann Lee"\n',
        [row("Ann Lee", "Bo Ek", weight=2.0), row("Bo Ek", "Ann Lee")],
    ),
    "an accent and an apostrophe": (
        "vote\nZoë > O'Brien > José Núñez\nO'Brien > Zoë > José Núñez\n",
        [row("Zoë", "O'Brien", "José Núñez"), row("O'Brien", "Zoë", "José Núñez")],
    ),
}


@pytest.mark.parametrize("case", CELLS)
def test_cells__blanks_belong_to_names(tmp_path: Path, case: str) -> None:
    text, expected = CELLS[case]
    unranked = "below" if case == "one item in a row" else "absent"
    columns = {"id": "n"} if case == "ties in braces" else None
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", unranked=unranked, columns=columns)
    assert [ranking._replace(unranked="absent") for ranking in named_rows(store)] == [
        ranking._replace(unranked="absent") for ranking in expected
    ]


@pytest.mark.parametrize("sign", [";", "\t"])
def test_names_like_lee_comma_ann__do_not_hide_the_delimiter(tmp_path: Path, sign: str) -> None:
    lines = ["Lee, Ann|Ek, Bo", "Ek, Bo|Lee, Ann", "Ek, Bo|Lee, Ann"]
    text = "\n".join(lines)
    store = ingest(write(tmp_path / "a.csv", text.replace("|", sign)), tmp_path / "store")
    assert named_rows(store) == [row(*line.split("|")) for line in lines]
    both = write(tmp_path / "b.csv", text.replace("|", f"{sign} "))
    assert "the fields may be divided by" in ingest_error(both, tmp_path / "other")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("a > b, c", "'b, c' has a comma"),
        ("a > = b", "one side of it is empty"),
        ("a > b =", "one side of it is empty"),
        ('a > ""b', "a quoted name does not end"),
    ],
)
def test_cells__refused_with_the_line(tmp_path: Path, cell: str, words: str) -> None:
    source = write(tmp_path / "a.csv", f'vote;x\na > b > c;\n"{cell}";\n')
    message = ingest_error(source, tmp_path / "store", format="orderings", columns={"ordering": "vote"})
    assert "line 3" in message
    assert words in message


def test_cells__lists_are_refused_and_the_option_helps(tmp_path: Path) -> None:
    text = "id,ranking\n" + '7,"Ann Lee, Bo, Cy"\n8,"Bo, Cy, Ann Lee"\n' * 2
    source = write(tmp_path / "a.csv", text)
    message = ingest_error(source, tmp_path / "store")
    assert "'Ann Lee, Bo, Cy'" in message
    assert message.endswith("--column ordering=ranking")
    store = ingest(source, tmp_path / "store", columns={"ordering": "ranking"})
    assert named_rows(store) == [row("Ann Lee", "Bo", "Cy"), row("Bo", "Cy", "Ann Lee")] * 2
    assert labels_of(store, "ids") == [7, 8, 7, 8]


# --- tables in Python ------------------------------------------------------------------------------------

PEOPLE = pd.DataFrame(
    {"first": ["ann", "bo", "cy"] * 5, "second": ["bo", "cy", "ann"] * 5, "third": ["cy", "ann", "bo"] * 5}
)


@pytest.mark.parametrize(
    ("name", "cells"), [("who", [f"r{number}" for number in range(15)]), ("town", ["Riga", "Oslo", "Oslo"] * 5)]
)
@pytest.mark.parametrize("place", [0, 3])
def test_table__a_column_that_is_no_place_is_refused(name: str, cells: list[str], place: int) -> None:
    table = PEOPLE.copy()
    table.insert(place, name, cells)
    with pytest.raises(RankingError, match=rf"column '{name}' .*(seems not to hold a place|by its name)"):
        PlackettLuceMixture(1, unranked="below").fit(table)
    model = PlackettLuceMixture(1, unranked="below").fit(table.drop(columns=name))
    assert model.item_names_ == ("ann", "bo", "cy")


def test_table__an_item_that_is_always_last_is_no_foreign_column() -> None:
    model = PlackettLuceMixture(1).fit(PEOPLE.assign(fourth="dee"))
    assert model.item_names_ == ("ann", "bo", "cy", "dee")
    as_lists = PEOPLE.assign(town=["Riga", "Oslo", "Oslo"] * 5).to_numpy().tolist()  # the way out that is named
    assert len(PlackettLuceMixture(1, unranked="below").fit(as_lists).item_names_) == 5


def test_table__zeros_for_no_item_are_explained() -> None:
    rows = np.array([[1, 2, 3], [2, 0, 0], [3, 0, 0], [3, 1, 2]])
    with pytest.raises(RankingError, match=r"row 1: item 0 is listed twice, and so in 2 of 4 rows.*subtract 1"):
        PlackettLuceMixture(1, unranked="below").fit(rows)
    assert PlackettLuceMixture(1, unranked="below").fit(rows - 1).log_worths_.shape == (1, 3)


def test_table__of_ranks() -> None:
    ranks = pd.DataFrame({"tea": [1, 2, 1.0], "mate": [2, 1, np.nan], "milk": [3, 3, 2]})
    by_ranks = PlackettLuceMixture(1, unranked="below").fit(ranks)
    rows = [["tea", "mate", "milk"], ["mate", "tea", "milk"], ["tea", "milk"]]
    by_names = PlackettLuceMixture(1, unranked="below").fit(rows)
    assert by_ranks.item_names_ == ("tea", "mate", "milk")
    assert by_ranks.log_likelihood_ == pytest.approx(by_names.log_likelihood_, rel=1e-9)


@pytest.mark.parametrize("rows", [["tea", "mate"], np.array([0, 1, 2])])
def test_one_ranking__goes_into_a_list(rows: Any) -> None:
    with pytest.raises(RankingError, match=r"put a single ranking into a list: \[ranking\]"):
        PlackettLuceMixture(1).fit(rows)


# --- the wrong thing in the right place ------------------------------------------------------------------


def test_ingest__ratings_are_sent_on(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "user,item,rating\nu,tea,3\nu,mate,2\n")
    message = ingest_error(source, tmp_path / "store", format="ratings")
    assert message == "ratings have a function of their own: plmix_dist.ingest_ratings(source, store)"


def test_ingest__says_how_to_say_unranked_in_python(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second,third\ntea,mate,milk\ntea,,\nmate,tea,milk\n")
    assert 'in Python, unranked="below" or unranked="absent"' in ingest_error(source, tmp_path / "store")


def test_ingest__not_utf8_says_how_to_convert(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first;second\nZoë;Ann\nAnn;Zoë\n".encode("latin-1"))
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 2: not UTF-8 text (byte 0xeb); save the file as UTF-8" in message
    write(source, source.read_bytes().decode("latin-1"))
    assert ingest(source, tmp_path / "store").item_names == ("Ann", "Zoë")


def test_ratings__a_decimal_comma_and_respondents(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "respondent_id;candidate;score\nr;Ann;2,5\nr;Bo;1,0\n")
    with pytest.raises(IngestError, match="the rating is '2,5', but should be a number with a decimal point"):
        ingest_ratings(source, tmp_path / "store")
    write(source, source.read_text().replace(",", "."))
    assert named_rows(ingest_ratings(source, tmp_path / "store")) == [row("Ann", "Bo")]


def test_store_or_model__what_is_there_instead_is_said(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\nmate,tea\n")
    store = ingest(source, tmp_path / "store")
    PlackettLuceMixture(1).fit(store).save(tmp_path / "model")
    with pytest.raises(
        StoreNotFoundError, match=r"it is a file; read it into a store with `plmix ingest .*a\.csv STORE`"
    ):
        open_store(source)
    with pytest.raises(StoreNotFoundError, match="it holds a model"):
        open_store(tmp_path / "model")
    with pytest.raises(StoreNotFoundError, match="it holds a store of rankings"):
        PlackettLuceMixture.load(tmp_path / "store")


# --- the command line ------------------------------------------------------------------------------------


def test_persons__are_said(tmp_path: Path, shell: Callable[..., Said]) -> None:
    text = "voter_id,first,second\n" + "v1,tea,mate\nv1,mate,tea\nv2,tea,mate\n"
    write(tmp_path / "a.csv", text)
    said = shell("ingest", "a.csv", "persons")
    assert "the column 'voter_id' names persons" in said.out
    assert "--column id=voter_id" in said.out
    assert shell("fit", "persons", "--components", "1", "--out", "m").line("score").endswith("per person")
    assert shell("score", "m", "persons").line("score").endswith("per person")
    said = shell("ingest", "a.csv", "ids", "--column", "id=voter_id")
    assert "names persons" not in said.out
    assert shell("fit", "ids", "--components", "1", "--out", "m2").line("score").endswith("per ranking")


def test_names_with_commas__are_quoted_in_lists(tmp_path: Path, shell: Callable[..., Said]) -> None:
    write(tmp_path / "a.csv", "Lee Ann;Ek, Bo;Cy\n1;2;2\n2;1;2\n")
    said = shell("ingest", "a.csv", "store", "--format", "ranks")
    assert said.line("first") == 'Lee Ann > {"Ek, Bo", Cy}'
    assert shell("info", "store").line("items") == '3: Lee Ann, "Ek, Bo", Cy'


def test_new_rankings__are_read_with_the_items_of_the_model(tmp_path: Path, shell: Callable[..., Said]) -> None:
    write(tmp_path / "a.csv", "first,second,third\n" + "Ann,Bo,Cy\nCy,Ann,Bo\nBo,Cy,Ann\n" * 3)
    write(tmp_path / "new.csv", "first,second\nAnn,Bo\nBo,Ann\n")
    write(tmp_path / "other.csv", "first,second\nAnn,Bo\nBo,Dee\n")
    shell("ingest", "a.csv", "store")
    shell("fit", "store", "--components", "1", "--out", "model")
    shell("ingest", "new.csv", "new")
    said = shell("score", "model", "new", code=1)
    assert "2 items here and 3 there" in said.err
    assert "--items MODEL" in said.err
    for source in ("store", "model"):
        said = shell("ingest", "new.csv", f"by-{source}", "--items", source, "--unranked", "below")
        assert said.line("rankings") == "2 of 3 items"
        shell("score", "model", f"by-{source}")
    said = shell("ingest", "other.csv", "other", "--items", "model", "--unranked", "below", code=1)
    assert "line 3: item 'Dee' is not one of the 3 items" in said.err


def test_cells_that_say_nothing__are_told_to_be_left_empty(tmp_path: Path, shell: Callable[..., Said]) -> None:
    write(tmp_path / "a.csv", "first,second,third,fourth\nAnn,Bo,N/A,N/A\nBo,Cy,Ann,N/A\n")
    said = shell("ingest", "a.csv", "store", "--unranked", "below", code=1)
    assert "'N/A' stands among the items" in said.err
    assert "leave such cells empty, or correct them" in said.err
    write(tmp_path / "b.csv", "first,second,third\nAnn,Bo,Bo\nBo,Cy,Ann\n")
    assert "leave such cells empty" not in shell("ingest", "b.csv", "other", code=1).err


def test_names_that_differ_in_capitals_or_blanks__are_noted(tmp_path: Path, shell: Callable[..., Said]) -> None:
    write(tmp_path / "a.csv", "first,second\nApple pie,Bo\napple  Pie,Bo\nBo,Apple pie\n")
    said = shell("ingest", "a.csv", "store", "--unranked", "below")
    assert "different items: 'Apple pie' and 'apple  Pie'" in said.line("note")
    write(tmp_path / "b.csv", "first,second\nApple pie,Bo\nBo,Apple pie\n")
    assert "note" not in shell("ingest", "b.csv", "other").out


@pytest.mark.filterwarnings("default::plmix_dist.errors.NotIdentifiableWarning")
def test_warnings__are_one_line_without_code(tmp_path: Path, shell: Callable[..., Said]) -> None:
    write(tmp_path / "a.csv", "first,second,third\n" + "Ann,Bo,Cy\nCy,Ann,Bo\nBo,Cy,Ann\n" * 3)
    shell("ingest", "a.csv", "store")
    fit = ("fit", "store", "--components", "2", "--out")
    said = shell(*fit, "m1").err.splitlines()
    (line,) = [line for line in said if "Warning" in line or "warning" in line]
    assert line.startswith("plmix: warning: 2 components are not identifiable: the rankings order all 3 items")
    assert not any(".py" in line for line in said)
    told = [json.loads(line) for line in shell(*fit, "m2", "--json").err.splitlines()]
    assert [each["category"] for each in told if "warning" in each] == ["NotIdentifiableWarning"]
    assert shell(*fit, "m3", "--quiet").err == ""
