"""Files of the kinds that people hold: each is read right, or refused with a remedy that then works."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest
from plmix_dist.errors import PlmixError
from tests.helpers.ingest_helpers import named_rows

if TYPE_CHECKING:
    from pathlib import Path

ITEMS = ["Cola", "Mate", "Milk", "Tea"]
ORDERS = [[ITEMS[(3 * row + step * place) % 4] for place in range(4)] for row in range(12) for step in (1, 3)]
TOP = [order[:3] for order in ORDERS]
WORDS, TIED = ("", "first", "second", "third", "Fourth"), ("", "1st", "2=", "2=", "4th")


def table(header: str, line: Any, sign: str = ",", orders: list[list[str]] = ORDERS) -> str:
    """A table with a line for each order: `line(row, order)` gives its cells."""
    lines = [sign.join(map(str, line(row, order))) for row, order in enumerate(orders)]
    return "\n".join([header, *lines]) + "\n"


def rank(order: list[str], item: str) -> int:
    return order.index(item) + 1


def ranks(order: list[str], words: Any = str) -> list[str]:
    return [words(rank(order, item)) for item in ITEMS]


READ: dict[str, tuple[str, Any]] = {
    "R's row names": (table('"","rank1","rank2","rank3","rank4"', lambda n, o: [f'"{n + 1}"', *o]), ORDERS),
    "the index of pandas": (table(",voter,Cola,Mate,Milk,Tea", lambda n, o: [n, f"v{n}", *ranks(o)]), ORDERS),
    "empty columns at the end": (table("id,first,second,third,,", lambda n, o: [n + 1, *o[:3], "", ""]), TOP),
    "counts with tabs": (table("Votes\tPref 1\tPref 2\tPref 3", lambda _, o: [1, *o[:3]], "\t"), TOP),
    "the last place named first": (table("id,last,second,first", lambda n, o: [n, o[2], o[1], o[0]]), TOP),
    "ranks from 0": (table("voter,Cola,Mate,Milk,Tea", lambda n, o: [f"v{n}", *ranks(o, lambda r: r - 1)]), ORDERS),
    "ranks as words": (
        table("id,Cola,Mate,Milk,Tea", lambda n, o: [n, *ranks(o, WORDS.__getitem__)]),
        ORDERS,
    ),
    "no rank as a dash": (
        table("voter,Cola,Mate,Milk,Tea", lambda n, o: [f"v{n}", *ranks(o, lambda r: r if r < 4 else "-")]), TOP,
    ),
    "tournaments with T2 and CUT": (
        "Tournament,Player,Pos\n"
        + "".join(f"{n},{o[0]},1\n{n},{o[1]},T2\n{n},{o[2]},2=\n{n},{o[3]},CUT\n" for n, o in enumerate(ORDERS)),
        [[order[0], order[1:3]] for order in ORDERS],
    ),
    "words for the sides below a foreign name": (
        table("who,image_a,image_b,best", lambda n, o: [f"r{n % 5}", *(o[:2] if n % 2 else o[1::-1]), "BA"[n % 2]]),
        [order[:2] for order in ORDERS],
    ),
    "names of the winner below a foreign name": (
        table("white,black,got it,when", lambda n, o: [*(o[:2] if n % 2 else o[1::-1]), o[0], "May"]),
        [order[:2] for order in ORDERS],
    ),
    "best and worst by place where items are numbers": (
        "RespID,Item1,Item2,Item3,Item4,Best,Worst\n"
        + "".join(f"{n},{n % 3 + 2},{n % 2 + 7},1,{n % 4 + 10},2,3\n" for n in range(24)),
        [[str(n % 2 + 7), [str(n % 3 + 2), str(n % 4 + 10)], "1"] for n in range(24)],
    ),
    "a marked order before its count": (
        "".join(f"{n + 1}: {' > '.join(order)}\n" for n, order in enumerate(ORDERS)),
        ORDERS,
    ),
}  # fmt: skip
IGNORED = {"columns": {"ignore": "when"}}
REFUSED: dict[str, tuple[str, str, dict[str, Any], Any]] = {
    "times beside the places": (
        table("when,1st choice,2nd choice,3rd choice", lambda n, o: [f"2024/03/01 9:{n:02d}", *o[:3]]),
        "--column ignore=when", IGNORED, TOP,
    ),
    "decimal commas": (
        table("Gewicht;Platz 1;Platz 2;Platz 3", lambda n, o: [f"1,{n % 9 + 1}", *o[:3]], ";"),
        "'places=Platz 1,Platz 2,Platz 3'", {"columns": {"places": "Platz 1,Platz 2,Platz 3"}}, TOP,
    ),
    "ties as 2=": (
        table("judge,Cola,Mate,Milk,Tea", lambda n, o: [f"j{n}", *ranks(o, TIED.__getitem__)]),
        "--column id=judge", {"columns": {"id": "judge"}}, [[order[:1], order[1:3], order[3:]] for order in ORDERS],
    ),
    "lists in cells": (
        table("when,Rank the drinks", lambda n, o: [f"2024-01-{n + 1:02d}", ";".join(o)]),
        "--column 'ordering=Rank the drinks'", {"columns": {"ordering": "Rank the drinks"}}, ORDERS,
    ),
    "lines of a person and task": (
        "person;task;drink;rank\n"
        + "".join(f"p{n};1;{item};{place}\n" for n, o in enumerate(ORDERS) for place, item in enumerate(o, 1)),
        "--column id=person --column item=drink --column rank=rank",
        {"format": "long", "columns": {"id": "person", "item": "drink", "rank": "rank"}}, ORDERS,
    ),
    "a place without a place's name": (
        table("id,worst,middle,best", lambda n, o: [n, o[2], o[1], o[0]]),
        "name all places, best first", {"columns": {"places": "best,middle,worst"}}, TOP,
    ),
    "scores": (
        table("judge,Cola,Mate,Milk,Tea", lambda n, o: [f"j{n}", *ranks(o, lambda r: 9.5 - 1.1 * r)]),
        "--column id=judge", {"columns": {"id": "judge"}, "format": "scores"}, ORDERS,
    ),
    "goals": (
        table("home,away,hg,ag", lambda n, o: [o[0], o[1], 2 + n % 2, 1]),
        "--column first_score=NAME --column second_score=NAME",
        {"columns": {"first_score": "hg", "second_score": "ag"}}, [order[:2] for order in ORDERS],
    ),
    "a title that fills its line": (
        "Drinks of 2024,,,,\n,,,,\n" + table("id,Cola,Mate,Milk,Tea", lambda n, o: [n, *ranks(o)]),
        "'Drinks of 2024' seems to be a title", {"lines": 2}, ORDERS,
    ),
    "comments above the table": (
        "# by a tool\n# in May\n" + table("id,Cola,Mate,Milk,Tea", lambda n, o: [n, *ranks(o)]),
        "'# by a tool' seems to be a title", {"lines": 2}, ORDERS,
    ),
    "means below the ranks": (
        table("id,Cola,Mate,Milk,Tea", lambda n, o: [f"v{n}", *ranks(o)]) + "Mean,2.54,2.46,2.5,2.5\n",
        "line 26: the rank 2.46 is the mean of tied ones, but no other item has it", {"on_error": "drop"}, ORDERS,
    ),
    "the highest is the best": (
        table("id," + ",".join(f"{item} (4 = best)" for item in ITEMS), lambda n, o: [n, *ranks(o, lambda r: 5 - r)]),
        "'Cola (4 = best)' says that the highest number is the best: say --format scores", {"format": "scores"},
        [[f"{item} (4 = best)" for item in order] for order in ORDERS],
    ),
    "per cent": (
        table("judge,Cola,Mate,Milk,Tea", lambda n, o: [f"j{n}", *ranks(o, lambda r: f"{99 - 9 * r}%")]),
        "--column id=judge", {"columns": {"id": "judge"}, "format": "scores"}, ORDERS,
    ),
    "marks of 0 and 1": (
        table("id,Cola,Mate,Milk,Tea", lambda n, o: [n, *ranks(o, lambda r: int(r < 3))]),
        "hold 0 and 1 alone, as where items are marked: if 1 is better than 0, say --format scores",
        {"format": "scores"}, [[order[:2], order[2:]] for order in ORDERS],
    ),
    "totals below the places": (
        table("voter,first,second,third", lambda n, o: [f"v{n}", *o[:3]]) + "Total votes,24,,\n",
        "line 26: this seems to be a row of totals or means", {"on_error": "drop"}, TOP,
    ),
    "one name for all places": (
        table("id,choice,choice,choice", lambda n, o: [n, *o[:3]]),
        "several columns are called 'choice'", {"rename": "id,choice1,choice2,choice3"}, TOP,
    ),
    "two results of one battle": (
        table("HomeTeam,AwayTeam,FTR,HTR", lambda n, o: [*o[:2], "H", "DHA"[n % 3]])
        + table("x", lambda n, o: [*o[1::-1], "A", "DHA"[n % 3]]).partition("\n")[2],
        "say --column winner=FTR or --column winner=HTR", {"columns": {"winner": "FTR"}},
        [order[:2] for order in [*ORDERS, *ORDERS]],
    ),
    "yes and no": (
        table("A,B,A won?", lambda n, o: [*(o[:2] if n % 2 else o[1::-1]), ["no", "yes"][n % 2]]),
        "--column won=NAME if it holds 1 or yes where 'A' won", {"columns": {"won": "A won?"}},
        [order[:2] for order in ORDERS],
    ),
}  # fmt: skip


def _orders(store: Any) -> list[Any]:
    """The orders of all rows, each as often as it was counted, ties as lists."""
    places = [[sorted(place) if len(place) > 1 else place[0] for place in one.ordered] for one in named_rows(store)]
    return sorted(places, key=str)


def _wanted(orders: Any) -> list[Any]:
    plain = [
        [place[0] if isinstance(place, list) and len(place) == 1 else place for place in order] for order in orders
    ]
    return sorted(([sorted(p) if isinstance(p, list) else p for p in order] for order in plain), key=str)


def _read(source: Path, store: Path, **options: Any) -> list[Any]:
    try:
        return _orders(ingest(source, store, **options))
    except PlmixError as error:
        if "--unranked below" not in str(error):
            raise
    return _orders(ingest(source, store, unranked="below", **options))


@pytest.mark.parametrize("name", READ)
def test_strangers__read(tmp_path: Path, name: str) -> None:
    contents, wanted = READ[name]
    source = tmp_path / "file.csv"
    source.write_text(contents)
    found = _read(source, tmp_path / "store")
    if "sides" in name or "winner" in name:  # equal battles are merged
        found, wanted = ([*map(list, {*map(tuple, orders)})] for orders in (found, wanted))
    assert sorted(found, key=str) == _wanted(wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_strangers__refused_and_the_remedy_works(tmp_path: Path, name: str) -> None:
    contents, words, options, wanted = REFUSED[name]
    source = tmp_path / "file.csv"
    source.write_text(contents)
    with pytest.raises(PlmixError) as caught:
        _read(source, tmp_path / "store")
    assert words in str(caught.value)
    said = dict(options)
    source.write_text(contents.split("\n", said.pop("lines", 0))[-1])
    if names := said.pop("rename", None):
        source.write_text(f"{names}\n{contents.partition(chr(10))[2]}")
    found = _read(source, tmp_path / "again", **said)
    assert [[sorted(p) if isinstance(p, list) else p for p in order] for order in found] == _wanted(wanted) or (
        name in ("goals", "two results of one battle", "yes and no")
        and {tuple(order) for order in found} == {tuple(order) for order in wanted}
    )


@pytest.mark.parametrize("cells", ["ranks", "items"])
def test_strangers__a_table_with_a_ranking_in_each_column(tmp_path: Path, cells: str) -> None:
    pandas = pytest.importorskip("pandas")
    voters = [ORDERS[0], ORDERS[3], ORDERS[5]]
    lines = [[item, *(rank(o, item) for o in voters)] if cells == "ranks" else [n + 1, *(o[n] for o in voters)]
             for n, item in enumerate(ITEMS)]  # fmt: skip
    source = tmp_path / "a.csv"
    source.write_text("\n".join(",".join(map(str, line)) for line in [["place", "Ann", "Bo", "Cy"], *lines]) + "\n")
    with pytest.raises(PlmixError, match="each column seems to be a ranking, and not each row: turn the table over"):
        ingest(source, tmp_path / "no")
    made = ingest(pandas.read_csv(source, index_col=0).T, tmp_path / "store")
    assert _orders(made) == _wanted(voters)


def test_strangers__lists_of_ranks_and_of_scores_beside_items(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(
        "".join(json.dumps({"models": ITEMS, "ranks": [rank(o, i) for i in ITEMS]}) + "\n" for o in ORDERS)
    )
    with pytest.raises(PlmixError, match="such as --column items=NAME"):
        ingest(source, tmp_path / "no")
    with pytest.raises(PlmixError, match="--column items=models --column rank=ranks"):
        ingest(source, tmp_path / "no", columns={"items": "models"})
    made = ingest(source, tmp_path / "ranked", columns={"items": "models", "rank": "ranks"})
    assert _orders(made) == _wanted(ORDERS)
    nested = [{"models": [{"model": i, "overall_score": 9.5 - rank(o, i)} for i in ITEMS]} for o in ORDERS]
    (tmp_path / "b.json").write_text(json.dumps({"meta": {"n": 12}, "data": {"page": 1, "results": nested}}))
    assert _orders(ingest(tmp_path / "b.json", tmp_path / "scored")) == _wanted(ORDERS)
    with pytest.raises(PlmixError, match="not a number up to that of the items"):
        ingest(tmp_path / "b.json", tmp_path / "no", columns={"items": "models.model", "rank": "models.overall_score"})


def test_strangers__lists_in_the_cells_of_text(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    source = tmp_path / "a.csv"
    source.write_text("id,answer\n" + "".join(f'{n},"{o}"\n' for n, o in enumerate(ORDERS)))
    with pytest.raises(PlmixError, match=r"converters=\{'answer': ast.literal_eval\}"):
        ingest(source, tmp_path / "no", columns={"ordering": "answer"})
    frame = pandas.read_csv(source, converters={"answer": ast.literal_eval})
    assert _orders(ingest(frame, tmp_path / "store")) == _wanted(ORDERS)


def test_strangers__ranks_nested_in_records(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text(
        json.dumps([{"who": {"id": n}, "ranks": {i: rank(o, i) for i in ITEMS}} for n, o in enumerate(ORDERS)])
    )
    assert _orders(ingest(source, tmp_path / "store", columns={"id": "who.id"})) == _wanted(ORDERS)


def test_strangers__the_sheet_with_the_table(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["Ballots are in the next sheet"])
    sheet = book.create_sheet("Ballots")
    for line in (["First", "Second", "Third"], *TOP):
        sheet.append(line)
    book.save(tmp_path / "a.xlsx")
    assert _read(tmp_path / "a.xlsx", tmp_path / "store") == _wanted(TOP)


def test_strangers__a_title_above_the_table(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (
        ["Drinks 2024"],
        [],
        ["Respondent", "First", "Second", "Third"],
        *([n, *o] for n, o in enumerate(TOP, 1)),
    ):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    assert _read(tmp_path / "a.xlsx", tmp_path / "store") == _wanted(TOP)
    text = tmp_path / "a.csv"
    text.write_text("Drinks 2024\n\n" + table("id,first,second,third", lambda n, o: [n, *o], orders=TOP))
    with pytest.raises(PlmixError, match="line 1: 'Drinks 2024' seems to be a title: remove the lines above"):
        ingest(text, tmp_path / "no")
    text.write_text(text.read_text().partition("\n\n")[2])
    assert _read(text, tmp_path / "again") == _wanted(TOP)


def test_strangers__cells_with_line_breaks(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    source = tmp_path / "a.csv"
    source.write_text(
        table("id,first,second,third,why", lambda n, o: [n, *o, f'"so{chr(10) * (n == 20)}so"'], orders=TOP)
    )
    with pytest.raises(PlmixError, match=r"line 22: a cell in quotes seems to go on .* read it with pandas"):
        ingest(source, tmp_path / "store", columns={"places": "first,second,third"})
    frame = pandas.read_csv(source)
    made = ingest(frame, tmp_path / "store", columns={"places": "first,second,third"}, unranked="below")
    assert _orders(made) == _wanted(TOP)
    long_text = "".join(f"{n},Tea,Mate,Milk,{'x' * 80}\n" for n in range(4000))  # behind the first lines
    source.write_text(f'id,first,second,third,why\n{long_text}4001,Tea,Mate,Milk,"a\nb"\n')
    with pytest.raises(PlmixError, match="line 4002: a cell in quotes"):
        ingest(source, tmp_path / "no", columns={"places": "first,second,third"}, unranked="below", on_error="drop")


def test_strangers__lists_by_name_are_rankings_and_not_columns(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({f"r{number}": order for number, order in enumerate(ORDERS)}))
    store = ingest(tmp_path / "a.json", tmp_path / "store")
    assert _orders(store) == _wanted(ORDERS)
    assert store.block().ids is not None
    (tmp_path / "b.json").write_text(json.dumps({"first": ["Tea", "Mate", "Tea"], "second": ["Mate", "Tea", "Milk"]}))
    assert _read(tmp_path / "b.json", tmp_path / "columns") == [["Mate", "Tea"], ["Tea", "Mate"], ["Tea", "Milk"]]


AVAILABLE = "person,choice,av_Tea,av_Mate,av_Milk\n"


def test_choices__with_a_column_of_availability_for_each_alternative(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text(AVAILABLE + "ann,Tea,1,1,0\nann,Milk,0,1,1\nbob,Mate,1,1,1\n")
    store = ingest(source, tmp_path / "store")
    rows = [(one.ordered, sorted(one.offered), one.unranked) for one in named_rows(store)]
    assert rows == [
        ((("Tea",),), ["Mate"], "absent"),
        ((("Milk",),), ["Mate"], "absent"),
        ((("Mate",),), ["Milk", "Tea"], "absent"),
    ]
    for line, words in (
        ("bob,Mate,1,0,1\n", "'Mate' was chosen, but was not on offer"),
        ("bob,Cola,1,0,1\n", "'Cola' was chosen, but the columns of what was available are for Tea, Mate, Milk"),
        ("bob,Mate,1,perhaps,1\n", "'perhaps' says neither that an item was available"),
    ):
        source.write_text(AVAILABLE + "ann,Tea,1,1,0\n" * 3 + line)
        with pytest.raises(PlmixError, match=words):
            ingest(source, tmp_path / "no")
