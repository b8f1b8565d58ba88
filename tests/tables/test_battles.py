"""Battles: two sides and who won, in every way that files say it."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest

from plmix_dist import PlackettLuceMixture, ingest
from plmix_dist.datasets.given import as_rankings
from plmix_dist.tables import sources, tally, text
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path

    from plmix_dist import Ranking

# Tea beats mate twice, once from each side; milk and tea tie; mate beats milk.
FOUGHT = [("tea", "mate", 1), ("mate", "tea", 2), ("milk", "tea", 0), ("mate", "milk", 1)]
ROWS = [row("tea", "mate", weight=2.0), row(("milk", "tea")), row("mate", "milk")]


def merged(rows: list[Ranking]) -> list[Ranking]:
    """Rows with tied items in the order of their names, equal ones, which differ in the side alone, added up."""
    times = Counter[Any]()
    for one in rows:
        times[one._replace(ordered=tuple(tuple(sorted(place)) for place in one.ordered), weight=1.0)] += one.weight
    return [one._replace(weight=weight) for one, weight in times.items()]


def table(header: str, lines: list[str]) -> str:
    return "\n".join([header, *lines]) + "\n"


def by_words(words: tuple[str, str, str], header: str = "model_a,model_b,winner") -> str:
    return table(header, [f"{a},{b},{words[won]}" for a, b, won in FOUGHT])


@pytest.mark.parametrize(
    "contents",
    [
        by_words(("tie", "model_a", "model_b")),
        by_words(("tie (bothbad)", "model_a", "model_b")),
        by_words(("both_bad", "a", "b")),
        by_words(("draw", "left", "right"), "left,right,winner"),
        by_words(("Draw", "A", "B"), "Item1,Item2,result"),
        by_words(("0", "1", "2"), "player1,player2,winner"),
        by_words(("D", "H", "A"), "HomeTeam,AwayTeam,result"),
        by_words(("1/2-1/2", "1-0", "0-1"), "white,black,result"),
        table("model_a,model_b,winner", ["tea,mate,tea", "mate,tea,tea", "milk,tea,tie", "mate,milk,mate"]),
        table(
            "model_a,model_b,winner_model_a,winner_model_b,winner_tie",
            ["tea,mate,1,0,0", "mate,tea,0,1,0", "milk,tea,0,0,1", "mate,milk,1,0,0"],
        ),
        table("Item1,Item2,Win1,Win2", ["tea,mate,1,0", "mate,tea,0,1", "milk,tea,0,0", "mate,milk,1,0"]),
        table(
            "home_team,away_team,home_score,away_score,city",
            ["tea,mate,3,1,X", "mate,tea,0,2,Y", "milk,tea,1,1,X", "mate,milk,2,0,Z"],
        ),
        table("home.team,away.team,home.wins,away.wins,ties", ["tea,mate,2,0,0", "milk,tea,0,0,1", "mate,milk,1,0,0"]),
        table(
            "model_a,model_b,n_win,n_loss,n_ties,n_both_bad",
            ["tea,mate,2,0,0,0", "milk,tea,0,0,0,1", "mate,milk,1,0,0,0"],
        ),
    ],
)
def test_battles__every_way_to_say_who_won(tmp_path: Path, contents: str) -> None:
    store = ingest(write(tmp_path / "a.csv", contents), tmp_path / "store")
    assert merged(named_rows(store)) == ROWS
    assert store.manifest.history[-1]["read_as"][0]["format"] == "battles"


@pytest.mark.parametrize("won", [("won", "0.5", "1", "0"), ("sign", "0", "1", "-1")])
def test_battles__one_and_zero_are_asked_for(tmp_path: Path, won: tuple[str, str, str, str]) -> None:
    source = write(tmp_path / "a.csv", by_words((won[1], won[2], won[3]), "player1,player2,result"))
    assert f"say --column {won[0]}=result" in ingest_error(source, tmp_path / "store")
    store = ingest(source, tmp_path / "store", columns={won[0]: "result"})
    assert merged(named_rows(store)) == ROWS


def test_battles__names_that_are_words_for_sides_are_asked_for(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", table("first,second,winner", ["a,b,a", "b,a,a", "b,a,b"] * 3))
    message = ingest_error(source, tmp_path / "store")
    assert "say --column winner_name=winner or --column winner=winner" in message
    store = ingest(source, tmp_path / "store", columns={"winner_name": "winner"})
    assert merged(named_rows(store)) == [row("a", "b", weight=6.0), row("b", "a", weight=3.0)]


def test_battles__names_go_before_numbers(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", table("model_x,model_y,winner,left,right", ["1,2,left,tea,mate"] * 3))
    assert named_rows(ingest(source, tmp_path / "store")) == [row("tea", "mate", weight=3.0)]


def test_battles__winner_and_loser(tmp_path: Path) -> None:
    lines = [f"{x},{y},{n}" for n, (x, y) in enumerate([("tea", "mate"), ("milk", "tea"), ("tea", "mate")])]
    store = ingest(write(tmp_path / "a.csv", table("winner,loser,minutes", lines)), tmp_path / "store")
    assert named_rows(store) == [row("tea", "mate", weight=2.0), row("milk", "tea")]
    assert store.manifest.history[-1]["read_as"][0]["left_out"] == ["minutes"]


def test_battles__counts_of_pairs_of_models(tmp_path: Path) -> None:
    found = {
        "models": ["tea", "mate", "milk"],
        "X": [[0, 1], [2, 0], [1, 2]],
        "Y": [[2, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]],
    }
    store = ingest(write(tmp_path / "a.json", json.dumps(found)), tmp_path / "store")
    assert merged(named_rows(store)) == ROWS
    found["X"][0] = [0, 9]
    assert "two numbers of models" in ingest_error(write(tmp_path / "b.json", json.dumps(found)), tmp_path / "other")


# --- persons ------------------------------------------------------------------------------------------------


def scattered(n_battles: int = 400, seed: int = 1) -> list[tuple[str, ...]]:
    """Battles of a few persons in any order: person, first, second, winner."""
    rng = random.Random(seed)
    names = ["tea", "mate", "milk", "water"]
    return [
        (f"p{rng.randrange(9)}", *rng.sample(names, 2), rng.choice(["model_a", "model_b", "tie"]))
        for _ in range(n_battles)
    ]


def counted(found: list[tuple[str, ...]]) -> Counter[tuple[str, frozenset[str], str | None]]:
    """How often each person let which item win against which: an oracle of dictionaries."""
    winners = {"model_a": 1, "model_b": 2}
    return Counter((one[0], frozenset(one[1:3]), one[winners[one[3]]] if one[3] in winners else None) for one in found)


def counted_in(store: Any) -> Counter[tuple[str, frozenset[str], str | None]]:
    people = labels_of(store, "groups")
    assert people is not None
    times: Counter[tuple[str, frozenset[str], str | None]] = Counter()
    for person, one in zip(people, named_rows(store), strict=True):
        items = frozenset(map(str, itertools.chain.from_iterable(one.ordered)))
        times[person, items, str(one.ordered[0][0]) if len(one.ordered) == 2 else None] += int(one.weight)
    return times


@pytest.mark.parametrize("container", ["csv", "parquet", "jsonl", "json"])
def test_persons__rows_stand_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, container: str) -> None:
    monkeypatch.setattr(sources, "_SLICE_BYTES", 512)
    monkeypatch.setattr(text, "CHUNK_BYTES", 256)
    monkeypatch.setattr(tally, "_MOST_PENDING", 50)
    found = scattered()
    records = [dict(zip(("judge", "model_a", "model_b", "winner"), one, strict=True)) for one in found]
    source = tmp_path / f"a.{container}"
    if container == "csv":
        source.write_text(table("judge,model_a,model_b,winner", [",".join(one) for one in found]))
    elif container == "parquet":
        pq.write_table(pa.Table.from_pylist(records), source, row_group_size=30)
    else:
        lines = map(json.dumps, records)
        source.write_text("\n".join(lines) if container == "jsonl" else f"[{','.join(lines)}]")
    store = ingest(source, tmp_path / "store")
    assert counted_in(store) == counted(found)
    people = labels_of(store, "groups")
    assert people is not None
    assert len(list(itertools.groupby(people))) == len(set(people))


def test_persons__left_out_on_request(tmp_path: Path) -> None:
    found = scattered(60)
    source = write(tmp_path / "a.csv", table("judge,model_a,model_b,winner", [",".join(one) for one in found]))
    store = ingest(source, tmp_path / "store", columns={"ignore": "judge"})
    assert labels_of(store, "groups") is None
    assert store.total_weight == 60


# --- rows that are bad, left out, or not battles -----------------------------------------------------------


def test_rows__bad_ones_have_their_lines(tmp_path: Path) -> None:
    lines = ["tea,mate,model_a"] * 80
    lines[10], lines[20], lines[30] = "tea,tea,model_a", "tea,mate,modle_a", "tea,mate,"
    source = write(tmp_path / "a.csv", table("model_a,model_b,winner", lines))
    message = ingest_error(source, tmp_path / "store")
    assert "a.csv, line 12: item 'tea' stands on both sides" in message
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert store.total_weight == 77
    assert [(one["line"], one["message"]) for one in rejected(store)] == [
        (12, "item 'tea' stands on both sides"),
        (22, "the result is not understood: winner 'modle_a'"),
        (32, "the result is missing"),
    ]


def test_rows__matches_that_were_not_played_stop_nothing(tmp_path: Path) -> None:
    source = write(
        tmp_path / "a.csv", table("home_team,away_team,home_score,away_score", ["x,y,1,0", "y,x,NA,NA", "x,y,0,0"])
    )
    store = ingest(source, tmp_path / "store")
    assert merged(named_rows(store)) == [row("x", "y"), row(("x", "y"))]


def test_rows__where(tmp_path: Path) -> None:
    lines = ["tea,mate,model_a,English", "mate,tea,tie (bothbad),English", "tea,mate,model_b,German"] * 3
    source = write(tmp_path / "a.csv", table("model_a,model_b,winner,language", lines))
    store = ingest(source, tmp_path / "store", where=["language=english", "winner!=tie (bothbad)"])
    assert named_rows(store) == [row("tea", "mate", weight=3.0)]
    assert "no column 'lang' for --where" in ingest_error(source, tmp_path / "other", where=["lang=x"])


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (by_words(("tie", "model_a", "model_b"), "this,that,winner"), "say --column first=NAME --column second=NAME"),
        (table("home_team,away_team,city", ["x,y,R", "y,z,O", "z,x,R"]), "no column says who won"),
        (table("player_a,player_b,a_won", ["x,y,1", "y,z,0", "z,x,1"]), "--column won=NAME"),
        (by_words(("x", "model_a", "perhaps")), "should say which of 'model_a' and 'model_b' won"),
        (
            table("prompt,chosen,rejected", [f"q{n},long answer {n},short answer {n}" for n in range(9)]),
            "what occurs once cannot be ranked",
        ),
    ],
)  # fmt: skip
def test_refused__with_what_helps(tmp_path: Path, contents: str, words: str) -> None:
    assert words in ingest_error(write(tmp_path / "a.csv", contents), tmp_path / "store")


def test_texts_that_occur_once__may_be_items_where_they_are_few(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "a.csv", table("prompt,chosen,rejected", ["q,tea,mate"])), tmp_path / "store")
    assert named_rows(store) == [row("tea", "mate")]


@pytest.mark.parametrize(
    "contents",
    [
        "first,second,third\ntea,mate,milk\nmilk,tea,mate\nmate,milk,tea\n",
        "winner,second,third\ntea,mate,milk\nmilk,tea,mate\nmate,milk,tea\n",
        "id,place_1,place_2\n1,tea,mate\n2,mate,tea\n3,tea,mate\n",
    ],
)
def test_rankings__are_not_battles(tmp_path: Path, contents: str) -> None:
    store = ingest(write(tmp_path / "a.csv", contents), tmp_path / "store")
    assert store.manifest.history[-1]["read_as"][0]["format"] == "wide"


def test_battles__the_side_of_each_winner_is_kept_and_equal_battles_merge_by_side(tmp_path: Path) -> None:
    names, n_rows = ["tea", "mate", "milk"], 300
    rng = random.Random(5)
    fought = [(rng.choice("xyz"), *rng.sample(names, 2), rng.choice(["left", "right", "tie"])) for _ in range(n_rows)]
    lines = [",".join(one) for one in fought]
    store = ingest(write(tmp_path / "a.csv", table("judge,left,right,winner", lines)), tmp_path / "store")
    wanted = Counter[Any]()
    for person, left, right, said in fought:
        first, second = (right, left) if said == "right" else (left, right)
        if said == "tie":
            first, second = sorted(
                (left, right), key=[*dict.fromkeys(name for one in fought for name in one[1:3])].index
            )
        wanted[person, first, second, said == "tie", 1 if first == left else 2] += 1
    block = store.block()
    assert block.tied is not None
    assert block.sides is not None
    assert block.groups is not None
    pairs = [[store.item_names[item] for item in pair] for pair in block.items.reshape(-1, 2)]
    columns = zip(block.groups, pairs, block.tied[1::2], block.sides, block.row_weights, strict=True)
    found = {(str(person), *pair, bool(tied), int(side)): weight for person, pair, tied, side, weight in columns}
    assert found == wanted
    assert len(found) == block.n_rankings
    assert [int(side) for side in store.column("sides", 0)] == block.sides.tolist()
    apart = as_rankings(
        {name: [one[place] for one in fought[:3]] for place, name in ((1, "left"), (2, "right"))}
        | {"winner": ["left", "right", "right"]}
    )
    assert apart.source.block.sides.tolist() == [1, 2, 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "contents", ["winner,loser,day\ntea,mate,1\nmate,milk,2\n", "model_a,model_b,n_win,n_loss\na,b,2,1\n"]
)
def test_battles__without_sides_none_are_stored(tmp_path: Path, contents: str) -> None:
    store = ingest(write(tmp_path / "a.csv", contents), tmp_path / "store", format="battles")
    assert store.block().sides is None
    assert "sides" not in store.index(0).columns


def test_battles__evidence_of_noise_shows_sides(tmp_path: Path) -> None:
    rng = random.Random(1)
    lines = []
    for vote in range(1200):
        person, (left, right) = vote % 30, rng.sample(range(5), 2)
        said = "left" if person == 7 else ("left" if left < right else "right") if rng.random() < 0.8 else "tie"
        lines.append(f"p{person},i{left},i{right},{said}")
    store = ingest(write(tmp_path / "a.csv", table("judge,left,right,winner", lines)), tmp_path / "store")
    model = PlackettLuceMixture(1, noise=True, random_state=0).fit(store)
    shown = model.evidence_of_noise(store, table="dict")
    assert shown["log_bayes_factor"].tolist() == model.evidence_of_noise(store).tolist()
    for place, person in enumerate(shown["person"]):
        said = [line.rsplit(",", 1)[1] for line in lines if line.startswith(f"{person},")]
        n_left, n_right = said.count("left"), said.count("right")
        assert shown["n_sides"][place] == n_left + n_right
        assert shown["share_left"][place] == pytest.approx(n_left / (n_left + n_right))
        assert shown["p_one_sided"][place] == pytest.approx(binomtest(n_left, n_left + n_right).pvalue)
    assert shown["person"][shown["p_one_sided"].argmin()] == "p7"
    assert set(model.evidence_of_noise(store.block().replace(sides=None), table="dict")) == {
        "person",
        "log_bayes_factor",
    }
