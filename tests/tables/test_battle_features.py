"""Battles with features: a pair of columns, one for each side, is one feature of both items."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import plmix_dist as plm
from plmix_dist.tables import tally
from tests.helpers.cli_helpers import shell
from tests.helpers.ingest_helpers import ingest_error, labels_of, rejected, write

__all__ = ["shell"]  # the fixture that runs a verb in a folder of its own

NESTED = "conv_metadata.sum_assistant_{}_tokens"


def fought(n: int = 240) -> list[dict[str, Any]]:
    """Battles of three models in which long answers win more often, by persons whose rows are scattered."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(n):
        first, second = rng.permutation(3)[:2].tolist()
        lengths = rng.integers(1, 9, 2).tolist()
        chance = 1 / (1 + np.exp(-0.5 * (first - second) - 0.3 * (lengths[0] - lengths[1])))
        winner = str(rng.choice(["model_a", "model_b", "tie"], p=[0.8 * chance, 0.8 * (1 - chance), 0.2]))
        own = {"judge": f"judge {rng.integers(20)}", "model_a": "xyz"[first], "model_b": "xyz"[second]}
        rows.append(own | {"winner": winner, "length_a": lengths[0], "length_b": lengths[1]})
    return rows


def as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]))
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def as_lines(rows: list[dict[str, Any]]) -> str:
    """JSON lines, with the lengths nested as those of arenas are."""
    records = []
    for row in rows:
        flat = {name: cell for name, cell in row.items() if not name.startswith("length")}
        nested = {f"sum_assistant_{side}_tokens": row[f"length_{side}"] for side in "ab"}
        records.append(json.dumps(flat | {"conv_metadata": {"turns": 1, **nested}}))
    return "\n".join(records)


def listed(row: dict[str, Any]) -> tuple[Any, ...]:
    """A battle as a store has it: the person, items with their lengths, and whether these tie."""
    sides = [(row["model_a"], row["length_a"]), (row["model_b"], row["length_b"])]
    is_tie = row["winner"] == "tie"
    sides = sorted(sides) if is_tie else sides if row["winner"] == "model_a" else sides[::-1]
    return (row.get("judge"), *sides, is_tie)


def listed_in(store: plm.RankingStore) -> list[tuple[Any, ...]]:
    block = store.with_features([0]).block()
    assert block.features is not None
    people = labels_of(store, "groups") or [None] * block.n_rankings
    tied = np.zeros(len(block.items), np.bool_) if block.tied is None else block.tied
    names = [store.item_names[item] for item in block.items]
    sides = list(zip(names, block.features[:, 0].tolist(), strict=True))
    rows = zip(people, sides[::2], sides[1::2], tied[1::2].tolist(), strict=True)
    return [(who, *(sorted(pair) if tie else pair), tie) for who, *pair, tie in rows]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "frame"])
@pytest.mark.parametrize("persons", [True, False])
def test_features__go_with_their_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, persons: bool
) -> None:
    monkeypatch.setattr(tally, "_MOST_PENDING", 50)
    rows = [row if persons else {name: row[name] for name in row if name != "judge"} for row in fought()]
    rows += rows[:40]  # equal ones are not merged
    name, source = "length", tmp_path / f"a.{kind}"
    if kind == "csv":
        write(source, as_csv(rows))
    elif kind != "frame":
        lines, name = as_lines(rows), "sum_assistant_tokens"
        write(source, lines if kind == "jsonl" else f"[{','.join(lines.splitlines())}]")
    given: Any = source
    if kind == "frame":
        given = pytest.importorskip("pandas").DataFrame(rows)
    store = plm.ingest(given, tmp_path / "store", columns={"features": name})
    assert store.feature_names == (name,)
    assert store.n_rankings == 280
    found, expected = listed_in(store), [listed(row) for row in rows]
    assert sorted(found) == sorted(expected) if persons else found == expected
    people = [who for who, *_ in found]
    changes = sum(one != other for one, other in itertools.pairwise(people))
    assert changes == len(set(people)) - 1
    assert plm.verify(store) == []


def test_fit__equals_that_of_arrays(tmp_path: Path) -> None:
    rows = [{name: row[name] for name in row if name != "judge"} for row in fought()]
    columns = {"features": "|".join(map(NESTED.format, "ab"))}
    columns["features"] = f"length={columns['features']}"
    store = plm.ingest(write(tmp_path / "a.jsonl", as_lines(rows)), tmp_path / "store", columns=columns)
    fit = plm.PlackettLuceMixture(1, ties="half")
    fit.fit(store, features=plm.Features("length", intercepts=True))
    battles: list[Any] = []
    lengths: list[float] = []
    for row in rows:
        _, (best, length), (other, of_other), is_tie = listed(row)
        battles.append([(best, other)] if is_tie else [best, other])
        lengths += [length, of_other]
    by_hand = plm.Features(np.array(lengths)[:, None], intercepts=True, names=["length"])
    memory = plm.PlackettLuceMixture(1, ties="half", unranked="absent").fit(battles, features=by_hand)
    assert fit.feature_coefficients_ is not None
    assert memory.feature_coefficients_ is not None
    assert_allclose(fit.feature_coefficients_, memory.feature_coefficients_, rtol=1e-6)
    assert fit.feature_coefficients_[0, 0] > 0.15
    assert_allclose(fit.log_worths_, memory.log_worths_, atol=1e-6)
    boards = fit.leaderboard(store, table="dict"), memory.leaderboard(battles, features=by_hand, table="dict")
    for column in ("rating", "lower", "upper"):
        assert_allclose(boards[0][column], boards[1][column], rtol=1e-6)


def test_command_line__a_board_at_equal_style(tmp_path: Path, shell: Any) -> None:
    source = write(tmp_path / "a.csv", as_csv(fought()))
    shell("ingest", str(source), "store", "--column", "features=length")
    fit = ["fit", "store", "--components", 1, "--ties", "half", "--features", "length"]
    shell(*fit, "--intercepts", "--out", "model")
    board = shell("leaderboard", "model", "--data", "store").out
    model = plm.PlackettLuceMixture(1, ties="half").fit(
        plm.open_store(tmp_path / "store"), features=plm.Features("length", intercepts=True)
    )
    assert f"{model.leaderboard(table='dict')['rating'][0]:.1f}" in board
    assert "already holds another model" in shell(*fit, "--out", "model", code=1).err
    words = "intercepts are worths of items beside features"
    assert words in shell(*fit[:-2], "--intercepts", "--out", "other", code=1).err
    lines = ['data.store = "store"', 'data.features = ["length"]', "data.intercepts = true", 'model.ties = "half"']
    (tmp_path / "job.toml").write_text("\n".join([*lines, "model.components = 1", 'outputs.folder = "out"']))
    shell("run", "job.toml")
    by_verb, by_job = (plm.PlackettLuceMixture.load(tmp_path / name) for name in ("model", "out/model"))
    assert by_verb.log_worths_.tobytes() == by_job.log_worths_.tobytes()


def test_winner_and_loser__in_full(tmp_path: Path) -> None:
    rows = "winner,loser,length_won,length_lost,judge\ntea,mate,3,1,ann\nmate,milk,4,2,ann\n"
    source = write(tmp_path / "a.csv", rows)
    store = plm.ingest(source, tmp_path / "store", columns={"features": "length=length_won|length_lost"})
    assert [pair for _, *pair, _ in listed_in(store)] == [[("tea", 3.0), ("mate", 1.0)], [("mate", 4.0), ("milk", 2.0)]]


@pytest.mark.parametrize(("cell", "shown"), [("", "''"), ("long", "'long'"), ("inf", "'inf'"), ("1e300", "'1e300'")])
def test_features__that_are_not_numbers_are_bad_rows(tmp_path: Path, cell: str, shown: str) -> None:
    rows: list[dict[str, Any]] = fought(80)
    rows[10]["length_b"] = cell
    rows[20] |= {"winner": "", "length_a": ""}  # no battle, whatever its length
    source, columns = write(tmp_path / "a.csv", as_csv(rows)), {"features": "length"}
    message = ingest_error(source, tmp_path / "store", columns=columns)
    assert "a.csv, line 12: features must be finite numbers" in message
    assert f"second feature length {shown}" in message
    store = plm.ingest(source, tmp_path / "store", columns=columns, on_error="drop")
    assert store.n_rankings == 78
    assert [one["line"] for one in rejected(store)] == [12, 22]


@pytest.mark.parametrize(
    ("header", "columns", "words"),
    [
        ("model_a,model_b,winner,length_a,length_b", {"features": "size"}, "no column 'size' for features"),
        ("model_a,model_b,winner,length_a,length_b", {"features": "length_a"}, "not clear which .*'length_a' of both"),
        ("model_a,model_b,winner,n_bold_a,n_bold_b,n_list_a,n_list_b", {"features": "n"}, "'features=n=FIRST|SECOND'"),
        ("model_a,model_b,winner,bold_a.x*,bold_b.x*,bold_a.x_,bold_b.x_", {"features": "bold x"}, "not clear which"),
        (
            "model_a,model_b,winner,length_a,length_b",
            {"features": "length", "first": "model_b", "second": "model_a"},
            "not clear which",
        ),
    ],
)
def test_features__of_which_the_columns_are_not_clear(
    tmp_path: Path, header: str, columns: dict[str, str], words: str
) -> None:
    n_numbers = header.count(",") - 2
    lines = [f"{pair},model_{side}{',1' * n_numbers}" for pair in ("tea,mate", "mate,milk") for side in "ab"]
    source = write(tmp_path / "a.csv", "\n".join([header, *lines]))
    assert re.search(words.replace("|", r"\|"), ingest_error(source, tmp_path / "store", columns=columns))


def test_features__of_sides_are_those_of_battles(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "ranking,item,rank,price_a,price_b\n1,tea,1,3,4\n1,mate,2,3,4\n")
    options: dict[str, Any] = {"format": "long", "columns": {"features": "price"}}
    assert "or to sides, and a row here has no sides" in ingest_error(source, tmp_path / "store", **options)
