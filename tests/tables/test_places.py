"""Tables made to be misread: each is read right, or refused with an option that then reads it right."""

from __future__ import annotations

import random
import shlex
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plmix_dist import ingest
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import PlmixError, RankingError
from tests.helpers.ingest_helpers import ingest_error, named_rows, row, write

if TYPE_CHECKING:
    from pathlib import Path

    from plmix_dist.rankings import Ranking

THREE = [row("tea", "mate", "milk"), row("milk", "tea", "mate"), row("mate", "milk", "tea")]
MENU = "tea mate milk rum"
FOUR = [row(*(MENU.split()[int(n)] for n in order)) for order in ("0123", "1032", "3210", "2031")]
PAIRS = [row("tea", "mate"), row("mate", "milk"), row("milk", "tea")]


def table(header: str, *lines: str) -> str:
    """A table of text: a header of names, and lines of cells, divided by blanks."""
    return "".join(",".join(line.split()) + "\n" for line in (header, *lines))


def ranks(names: str, orders: list[Ranking], first: int = 1, show: Any = str, **more: list[Any]) -> str:
    """A table of ranks of these orders, with more columns in front."""
    lines = []
    for number, order in enumerate(orders):
        place = {item: rank for rank, (item,) in enumerate(order.ordered, start=first)}
        front = [str(values[number]) for values in more.values()]
        lines.append(" ".join([*front, *(show(place[name]) for name in names.split())]))
    return table(" ".join([*more, names]), *lines)


# Text, and the rankings that it holds. They are read without a question.
READ: dict[str, tuple[str, list[Ranking]]] = {
    "loser first": (table("loser winner", "mate tea", "milk mate", "tea milk"), PAIRS),
    "worst first": (table("worst best", "mate tea", "milk mate", "tea milk"), PAIRS),
    "least and most": (table("least most", "mate tea", "milk mate", "tea milk"), PAIRS),
    "rejected and chosen": (table("rejected chosen", "mate tea", "milk mate", "tea milk"), PAIRS),
    "lost and won": (table("lost won", "mate tea", "milk mate", "tea milk"), PAIRS),
    "from the third": (table("third second first", "milk mate tea", "mate tea milk", "tea milk mate"), THREE),
    "from place 3": (table("place3 place2 place1", "milk mate tea", "mate tea milk", "tea milk mate"), THREE),
    "from the 3rd choice": (
        "3rd choice,2nd choice,1st choice\nmilk,mate,tea\nmate,tea,milk\ntea,milk,mate\n", THREE),
    "medals": (table("bronze gold silver", "milk tea mate", "mate milk tea", "tea mate milk"), THREE),
    "capitals": (table("Rank_3 RANK_1 rank_2", "milk tea mate", "mate milk tea", "tea mate milk"), THREE),
    "best, second, worst": (table("worst second best", "milk mate tea", "mate tea milk", "tea milk mate"), THREE),
    "ten choices in the order of text": (
        table("choice1 choice10 " + " ".join(f"choice{n}" for n in range(2, 10)), "a j b c d e f g h i",
              "j a i h g f e d c b"),
        [row(*"abcdefghij"), row(*"jihgfedcba")]),
    "votes count": ("ranking,votes\ntea>mate,64\nmate>tea,236\n",
                    [row("tea", "mate", weight=64.0), row("mate", "tea", weight=236.0)]),
    "ranks with a sign": (ranks("tea mate milk", THREE, show=lambda rank: f"#{rank}"), THREE),
    "ranks as ordinals": (ranks("tea mate milk", THREE, show=lambda rank: f"{rank}{['st', 'nd', 'rd'][rank - 1]}"),
                          THREE),
    "ranks with an equals sign": (table("tea mate milk", "1= 1= 3", "1 2 3", "2= 2= 1"),
                                  [row(("tea", "mate"), "milk"), row("tea", "mate", "milk"),
                                   row("milk", ("tea", "mate"))]),
    "decimals": (ranks("tea mate milk", THREE, show=lambda rank: f"{rank}.0"), THREE),
    "ranks from 0": (ranks(MENU, FOUR, first=0, id=["w", "x", "y", "z"]), FOUR),
}  # fmt: skip

SEX = [1, 2, 2, 1]
MANY = FOUR * 3
# Text; the rankings that it holds; words of the message; an option in the message, or None where a file must change.
REFUSED: dict[str, tuple[str, list[Ranking], str, str | None]] = {
    "names that say no order": (
        table("alpha beta gamma", "tea mate milk", "milk tea mate", "mate milk tea"), THREE,
        "do not say which place", "--column places=alpha,beta,gamma"),
    "variables turned round": (
        table("v3 v2 v1", "tea mate milk", "milk tea mate", "mate milk tea"), THREE,
        "do not say which place", "--column places=v3,v2,v1"),
    "one place twice": (
        table("first second 2nd", "tea mate milk", "milk tea mate", "mate milk tea"), THREE,
        "do not say which place", "--column places=first,second,2nd"),
    "sex": (
        ranks(MENU, FOUR, sex=SEX), FOUR, "column 'sex' (1, 2) seems not to hold ranks", "--column ignore=sex"),
    "a covariate without a known name": (
        ranks(MENU, MANY, q1=SEX * 3), MANY, "column 'q1' (1, 2) seems not", "--column ignore=q1"),
    "a flag": (
        ranks(MENU, MANY, smokes=[0, 0, 1, 0] * 3), MANY, "column 'smokes' (0, 1) seems", "--column ignore=smokes"),
    "a flag that is the last column": (
        "\n".join(f"{line},{end}" for line, end in
                  zip(ranks(MENU, MANY).split(), ["smokes", *"001000001000"], strict=True)), MANY,
        "column 'smokes' (0, 1) seems", "--column ignore=smokes"),
    "a scale of four among top ranks": (
        ranks(MENU, MANY, school=[4, 2, 1, 3] * 3), MANY, "column 'school'", "--column ignore=school"),
    "age": (ranks(MENU, FOUR, age=[31, 45, 22, 67]), FOUR, "column 'age' (22, 31, 45, 67)", "--column ignore=age"),
    "a year of another name": (
        ranks(MENU, FOUR, aged=[31, 45, 22, 67]), FOUR, "column 'aged' (22, 31, 45, 67) seems", "--column ignore=aged"),
    "ranks as Roman numbers": (
        ranks("tea mate milk", THREE, show=["", "I", "II", "III"].__getitem__), THREE, "do not say which place", None),
    "Roman numbers below names that mean nothing": (
        table("v1 v2 v3", "I II III", "II III I", "III I II"), THREE, "'I' stands among the items", None),
    "ranks in words": (
        "tea,mate,milk\nMost liked,Second,Least liked\nSecond,Least liked,Most liked\nLeast liked,Most liked,Second\n",
        THREE, "", None),
    "three ranks from 0": (
        ranks("tea mate milk", THREE, first=0), THREE, "0, which may be the best rank or stand for no rank", None),
    "ranks from 0, some of one tie": (
        table(MENU, "0 1 2 3", "0 0 1 2", "3 2 1 0"), FOUR, "may be the best rank", None),
    "rank1 may be a place or an item": (
        table("rank1 rank2 rank3", "1 2 3", "3 1 2", "2 3 1"), [row("1", "2", "3"), row("3", "1", "2"),
        row("2", "3", "1")], "may be items (one column per place) or ranks", "--format wide"),
    "ranks that were named as places": (
        ranks("tea mate milk", THREE), THREE, "may be items (one column per place) or ranks", "--format ranks"),
    "skipped ranks": (
        table("place1 place2 place3", "tea skipped milk", "milk tea skipped", "mate milk tea"), THREE,
        "'skipped' stands among the items", None),
    "overvotes": (table("first second", "tea overvote", "mate tea", "milk tea"), THREE, "'overvote' stands", None),
    "a tie as an item": (table("first second", "tea mate", "tie milk", "milk tea"), THREE, "'tie' stands", None),
    "a race": (
        "id,item,rank\n1,tea,1\n1,mate,2\n1,milk,DNF\n2,milk,1\n2,tea,2\n2,mate,DNF\n", THREE, "rank 'DNF' of item",
        None),
    "the driver DNF": (table("first second third", "tea mate DNF", "milk tea mate"), THREE, "'DNF' stands", None),
    "counts by another name": (
        "ranking,people\ntea>mate,64\nmate>tea,36\n",
        [row("tea", "mate", weight=64.0), row("mate", "tea", weight=36.0)],
        "'people' may count the rankings", "--column weight=people"),
    "places of other things": (
        table("first second", *["tea Riga", "mate Oslo"] * 5), [row("tea", "Riga"), row("mate", "Oslo")] * 5,
        "is in another place of a ranking", "--format wide --column places=first,second"),
    "choices by 0 and 1": (
        "id,item,rank\n1,tea,1\n1,mate,0\n2,mate,1\n2,milk,0\n", PAIRS, "holds 0 and 1 alone", None),
    "scores": (
        table("tea mate milk", "9 7 2", "5 1 8", "0 9 4"), THREE, "the highest is the best", "--format scores"),
    "a town among places": (
        table("first second town", "tea mate Riga", "mate milk Oslo", "milk tea Riga"), PAIRS,
        "'town'", "--column places=first,second"),
    "everybody's last place and below": (
        table("loser winner", "mate tea", "milk mate", "tea milk"), PAIRS, "leave out --unranked below", None),
}  # fmt: skip
SAID = {
    "ranks that were named as places": {"columns": {"places": "tea,mate,milk"}},
    "everybody's last place and below": {"unranked": "below"},
}


def settings(option: str) -> dict[str, Any]:
    """Settings of ingest as in an option of the command line."""
    words = shlex.split(option)
    found: dict[str, Any] = {"columns": {}}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag == "--column":
            found["columns"] |= dict([value.split("=", 1)])
        else:
            found[flag.removeprefix("--")] = value
    return found


def test_tables__are_many() -> None:
    assert len(READ) + len(REFUSED) >= 40


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ)
def test_misleading__read_right(tmp_path: Path, text: str, expected: list[Ranking]) -> None:
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert named_rows(store) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_misleading__refused_with_what_helps(tmp_path: Path, name: str) -> None:
    text, expected, words, option = REFUSED[name]
    source = write(tmp_path / "a.csv", text)
    message = ingest_error(source, tmp_path / "store", **({"unranked": "absent"} | SAID.get(name, {})))
    assert words in message
    if option is None:
        return
    assert option in message
    assert named_rows(ingest(source, tmp_path / "store", unranked="absent", **settings(option))) == expected


@pytest.mark.parametrize("name", ["loser first", "from place 3", "votes count", "ranks with a sign", "ranks from 0"])
def test_misleading__same_from_parquet_and_frames(tmp_path: Path, name: str) -> None:
    text, expected = READ[name]
    frame = pd.read_csv(write(tmp_path / "a.csv", text))
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "a.parquet")
    for number, source in enumerate((tmp_path / "a.parquet", frame, pa.Table.from_pandas(frame))):
        assert named_rows(ingest(source, tmp_path / f"{number}")) == expected


@pytest.mark.parametrize("name", ["sex", "names that say no order", "a tie as an item", "counts by another name"])
def test_misleading__refused_as_a_frame(tmp_path: Path, name: str) -> None:
    text, _, words, _ = REFUSED[name]
    frame = pd.read_csv(write(tmp_path / "a.csv", text))
    assert words in ingest_error(frame, tmp_path / "store")
    with pytest.raises(RankingError):
        as_rankings(frame)


def test_last_place__is_absent_elsewhere(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", READ["loser first"][0])
    store = ingest(source, tmp_path / "store")
    assert not store.block().below.any()
    assert "'loser' is the last place" in store.manifest.history[-1]["read_as"][0]["guesses"][0]
    frame = pd.read_csv(source)
    assert as_rankings(frame).source.block.to_array().tolist() == store.block().to_array().tolist()  # type: ignore[attr-defined]
    with pytest.raises(RankingError, match="leave out unranked"):
        as_rankings(frame, unranked="below")


SAID_IN_VAIN: list[tuple[str, dict[str, Any], str]] = [
    (ranks("tea mate milk", THREE), {"format": "ranks", "columns": {"places": "tea,mate"}}, "no column for places"),
    (READ["loser first"][0], {"columns": {"rank": "loser"}}, "no column for rank: leave out --column rank=..."),
    (READ["loser first"][0], {"format": "wide", "columns": {"ordering": "loser"}}, "no column for ordering"),
    (READ["votes count"][0], {"columns": {"item": "votes"}}, "no column for item"),
    (READ["loser first"][0], {"columns": {"ignore": "town"}}, "no column 'town' to ignore"),
]


@pytest.mark.parametrize(("text", "options", "words"), SAID_IN_VAIN)
def test_options__that_a_format_does_not_use(tmp_path: Path, text: str, options: dict[str, Any], words: str) -> None:
    assert words in ingest_error(write(tmp_path / "a.csv", text), tmp_path / "store", **options)


def test_options__of_text_for_other_sources(tmp_path: Path) -> None:
    frame = pd.DataFrame({"first": ["tea", "mate"], "second": ["mate", "tea"]})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "a.parquet")
    assert "is not delimited text; leave out --delimiter" in ingest_error(
        tmp_path / "a.parquet", tmp_path / "store", delimiter=";"
    )
    assert "header is not used for a table in memory" in ingest_error(frame, tmp_path / "store", header=True)
    numbers = frame.replace({"tea": 0, "mate": 1}).to_numpy(dtype=int)
    for options in ({"format": "wide"}, {"columns": {"id": "a"}}, {"header": False}, {"delimiter": ","}):
        assert f"{next(iter(options))} is not used for an array" in ingest_error(numbers, tmp_path / "store", **options)


def test_left_out__is_listed(tmp_path: Path) -> None:
    text = "town,id,ordering,sex\nRiga,7,tea > mate,f\nOslo,8,mate > tea,m\n"
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert store.manifest.history[-1]["read_as"][0]["left_out"] == ["town", "sex"]


def test_words__are_items_if_the_user_names_them(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,tie\ntie,tea\n")
    assert "'tie' stands among the items" in ingest_error(source, tmp_path / "store")
    assert named_rows(ingest(source, tmp_path / "store", item_names=["tea", "tie"])) == [
        row("tea", "tie"),
        row("tie", "tea"),
    ]
    assert as_rankings([["tea", "tie"], ["tie", "tea"]]).item_names == ("tea", "tie")


def test_column_names__with_commas(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", '"one, really",two\ntea,mate\nmate,tea\n')
    message = ingest_error(source, tmp_path / "store", header=True)
    option = """--column 'places="one, really",two'"""
    assert option in message
    assert named_rows(ingest(source, tmp_path / "store", header=True, **settings(option))) == [
        row("tea", "mate"),
        row("mate", "tea"),
    ]


def _made_up(rng: random.Random) -> tuple[str, list[list[str]], list[float]]:
    """A table of known rankings in any layout: shuffled columns, covariates, counts, ranks from 0 or 1, scores."""
    items = rng.choice([["tea", "mate", "milk", "rum"], ["10", "20", "30"], ["Ann Lee", "Bo", "Cy", "Di", "Ed"]])
    orders = [rng.sample(items, len(items)) for _ in range(rng.choice([4, 12, 30]))]
    kind = rng.choice(["wide", "ranks", "scores", "orderings"])
    columns: dict[str, list[str]] = {}
    if kind == "wide":
        stem = rng.choice(["place{}", "choice_{}", "{}. rank", "v{}", "answer {}"])
        columns = {stem.format(n + 1): [order[n] for order in orders] for n in range(len(items))}
    elif kind == "orderings":
        columns = {"ordering": [" > ".join(order) for order in orders]}
    else:
        first, show = rng.choice([(1, "{}"), (0, "{}"), (1, "#{}"), (1, "{}.0")])
        value = (
            (lambda order, item: first + order.index(item))
            if kind == "ranks"
            else (lambda order, item: 50 - 7 * order.index(item))
        )
        columns = {item: [show.format(value(order, item)) for order in orders] for item in items}
    counts = [1.0] * len(orders)
    more = {
        "sex": [str(rng.randint(1, 2)) for _ in orders],
        "q7": [str(rng.randint(1, 3)) for _ in orders],
        "aged": [str(rng.randint(18, 80)) for _ in orders],
        "smokes": [str(int(rng.random() < 0.3)) for _ in orders],
        "town": [rng.choice(["Riga", "Oslo"]) for _ in orders],
        "when": [f"2024-01-{1 + number % 28:02}" for number in range(len(orders))],
    }
    columns |= {name: more[name] for name in more if rng.random() < 0.15}
    if rng.random() < 0.3:
        counts = [float(rng.randint(2, 30)) for _ in orders]
        columns[rng.choice(["count", "votes", "people"])] = [f"{count:.0f}" for count in counts]
    names = list(columns)
    rng.shuffle(names)
    lines = [names, *zip(*(columns[name] for name in names), strict=True)]
    return "".join(",".join(line) + "\n" for line in lines), orders, counts


@pytest.mark.parametrize("part", range(4))
def test_made_up_tables__none_is_misread(tmp_path: Path, part: int) -> None:
    read = 0
    for number in range(15):
        text, orders, counts = _made_up(random.Random(100 * part + number))
        source = write(tmp_path / "a.csv", text)
        try:
            store = ingest(source, tmp_path / f"{number}", unranked="absent", client=False)
        except PlmixError:
            continue
        read += 1
        assert named_rows(store) == [row(*order, weight=count) for order, count in zip(orders, counts, strict=True)], (
            text
        )
    assert read


def test_covariates__are_items_if_the_user_says_ranks(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", table("sex tea mate", "1 1 2", "2 1 2", "1 2 1"))
    assert "if it is an item, say --format ranks" in ingest_error(source, tmp_path / "store")
    assert named_rows(ingest(source, tmp_path / "store", format="ranks"))[0] == row(("sex", "tea"), "mate")
