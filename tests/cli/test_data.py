"""Verbs for stores: text and JSON, exit codes, where the work is done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import open_store
from tests.helpers.ingest_helpers import named_rows, printed_json, row, write
from tests.helpers.oracle import index_digests, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client
from tests.cli.common import BALLOTS, Said


def test_ingest__plain(tmp_path: Path, ballots: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("ingest", ballots, tmp_path / "store", "--unranked", "below")
    assert (said.code, said.err) == (0, "")
    lines = dict(line.split("  ", 1) for line in said.out.splitlines())
    assert lines["store"].strip() == str(tmp_path / "store")
    assert lines["rankings"].strip() == "3 of 3 items"
    assert lines["weight"].strip() == "6"
    assert lines["time"].strip().endswith("rankings/s")


def test_ingest__json_then_nothing_to_do(tmp_path: Path, ballots: Path, plmix: Callable[..., Said]) -> None:
    command = ("ingest", ballots, tmp_path / "store", "--unranked", "below")
    first = printed_json(plmix(*command, "--json").out)
    assert first.pop("seconds") > 0
    words = ["tea > mate > milk, weight 3", "milk > tea > (all others), weight 2", "mate > (all others)"]
    roles = {"weight": "count", "ordering": "ordering"}
    understood = {"format": "orderings", "delimiter": ",", "header": True, "columns": roles, "guesses": []}
    expected = {
        "first_rankings": words,
        "read_as": [{"name": "ballots.csv", **understood}],
        "store": str(tmp_path / "store"),
        "n_rankings": 3,
        "n_items": 3,
        "total_weight": 6.0,
        "rejected": {},
        "notes": [],
    }
    assert first == expected | {"changed": True}
    before = snapshot(tmp_path / "store")
    second = printed_json(plmix(*command, "--json").out)
    assert second.pop("seconds") > 0
    assert second == expected | {"changed": False}
    said = plmix(*command)
    assert said.code == 0
    assert "nothing to do" in said.out
    assert snapshot(tmp_path / "store") == before


def test_ingest__every_option(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    text = "Paper;What;Choice\n1;tea;1\n1;mate;2\n2;tea;1\n2;mate;2\n3;beer;1\n3;tea;2\n4;mate;1\n4;tea;2\n"
    source = write(tmp_path / "a.dat", text)
    items = write(tmp_path / "items.txt", "mate\ntea\nnever\n")
    columns = [f"--column={role}" for role in ("id=Paper", "item=What", "rank=Choice")]
    options = ("--format=long", "--delimiter=;", "--merge", "--on-error=quarantine", "--unranked=absent")
    said = plmix("ingest", source, tmp_path / "store", f"--items={items}", *columns, *options, "--json")
    assert said.code == 0, said.err
    assert printed_json(said.out)["rejected"] == {"unknown-item": 1}
    made = open_store(tmp_path / "store")
    assert made.item_names == ("mate", "tea", "never")
    assert named_rows(made) == [row("tea", "mate", weight=2.0), row("mate", "tea")]
    plain = plmix("ingest", source, tmp_path / "second", f"--items={items}", *columns, *options)
    assert "1 rows: 1 unknown-item (plmix info --rejected lists them)" in plain.out


def test_ingest__columns_that_hold_no_ranks_are_named_together_or_one_by_one(
    tmp_path: Path, plmix: Callable[..., Said]
) -> None:
    rows = [f"{1 + n % 2},{20 + 7 * n % 50},{1 + n % 3},{1 + (n + 1) % 3},{1 + (n + 2) % 3}" for n in range(12)]
    table = write(tmp_path / "t.csv", "\n".join(["sex,age,tea,mate,milk", *rows]))
    said = plmix("ingest", table, tmp_path / "none")
    assert "say --column ignore=sex,age" in said.err
    one_by_one = ["--column", "ignore=sex", "--column", "ignore=age"]
    for number, advised in enumerate((["--column", "ignore=sex,age"], one_by_one)):
        said = plmix("ingest", table, tmp_path / str(number), *advised)
        assert (said.code, open_store(tmp_path / str(number)).item_names) == (0, ("tea", "mate", "milk"))


def test_ingest__lists_in_json_are_not_called_a_parquet_file(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    lines = write(
        tmp_path / "t.jsonl", '{"voter": 1, "ballot": ["tea", "mate"]}\n{"voter": 2, "ballot": ["mate", "tea"]}\n'
    )
    said = plmix("ingest", lines, tmp_path / "s")
    assert "read as   lists (--format parquet): t.jsonl" in said.out


def test_ingest__append_and_notes(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    soc = "# DATA TYPE: soc\n# NUMBER ALTERNATIVES: 2\n# NUMBER VOTERS: 9\n# NUMBER UNIQUE ORDERS: 1\n3: 2,1\n"
    source = write(tmp_path / "a.soc", soc)
    said = plmix("ingest", source, tmp_path / "store", "--on-error", "drop", "--most-dropped", "1")
    note = f"{source}: the header says 9 voters, but there are 3"
    assert f"note      {note}" in said.out
    more = write(tmp_path / "b.csv", "ordering\n1 2\n")
    for changed in (True, False):
        again = printed_json(plmix("ingest", more, tmp_path / "store", "--append", "--json").out)
        assert (again["n_rankings"], again["changed"]) == (2, changed)


def test_ingest__contents_that_are_there_are_counted_once_and_that_is_said(
    tmp_path: Path, plmix: Callable[..., Said]
) -> None:
    first, again = (write(tmp_path / f"{name}.csv", "tea,mate\nmate,tea\n") for name in "ab")
    plmix("ingest", first, tmp_path / "store", "--format", "wide")
    said = plmix("ingest", again, tmp_path / "store", "--format", "wide", "--append")
    assert "which are counted once; if they are other rankings, join the files" in said.out


def test_ingest__several_sources(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.csv", BALLOTS + "\n" * (name == "b"))  # the same contents would be counted once
    sources = (tmp_path / "a.csv", tmp_path / "b.csv")
    said = plmix("ingest", *sources, tmp_path / "store", "--unranked", "below", "--json")
    assert printed_json(said.out)["total_weight"] == 12.0


def test_quiet__prints_nothing(tmp_path: Path, ballots: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("ingest", ballots, tmp_path / "store", "--unranked", "below", "--quiet")
    assert said == Said(0, "", "")


def test_export__plain_and_json(tmp_path: Path, store: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("export", store, tmp_path / "out.csv")
    assert (said.code, said.out) == (0, f"exported  3 rankings to {tmp_path / 'out.csv'}\n")
    assert (tmp_path / "out.csv").read_text() == BALLOTS
    said = plmix("export", store, tmp_path / "out.txt", "--format", "wide", "--json")
    assert printed_json(said.out) == {"target": str(tmp_path / "out.txt"), "n_rankings": 3}
    lines = ["count,place_1,place_2,place_3", "3,tea,mate,milk", "2,milk,tea,", "1,mate,,"]
    assert (tmp_path / "out.txt").read_text().splitlines() == lines


def test_export__format_it_cannot_tell(tmp_path: Path, store: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("export", store, tmp_path / "out.xlsx")
    assert said.code == 1
    assert f"{tmp_path / 'out.xlsx'}: the format is not known from the name" in said.err
    assert "--format" in said.err


def test_simulate__plain_and_json(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    options = ("--rankings", 50, "--items", 6, "--components", 2, "--length", 3, "--unranked", "below", "--seed", 7)
    said = plmix("simulate", tmp_path / "a", *options)
    assert said.code == 0
    assert "rankings  50 of 6 items" in said.out
    assert printed_json(plmix("simulate", tmp_path / "b", *options, "--json").out)["n_rankings"] == 50
    assert index_digests(open_store(tmp_path / "a")) == index_digests(open_store(tmp_path / "b"))
    assert "nothing to do" in plmix("simulate", tmp_path / "a", *options).out


def test_split__plain_and_json(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    plmix("simulate", tmp_path / "store", "--rankings", 400, "--items", 3)
    outs = (tmp_path / "train", tmp_path / "test")
    parts = printed_json(plmix("split", tmp_path / "store", *outs, "--json", "--seed", 3).out)["parts"]
    assert [part["out"] for part in parts] == [str(out) for out in outs]
    assert sum(part["total_weight"] for part in parts) == 400
    arrays = (tmp_path / "train.npy", tmp_path / "test.npy")
    said = plmix("split", tmp_path / "store", *arrays, "--shares", "0.5,0.5")
    assert said.out.splitlines() == [f"{out}  row weights" for out in (arrays[0], f"{arrays[1]} ")]
    assert sum(np.load(out).sum() for out in arrays) == 400


@pytest.mark.parametrize(
    ("shares", "what"), [("0.5,x", "--shares takes numbers such as 0.8,0.2, but got 'x'"), ("0.5,0.6", "sum to 1")]
)
def test_split__shares_that_are_none(
    tmp_path: Path, store: Path, plmix: Callable[..., Said], shares: str, what: str
) -> None:
    said = plmix("split", store, tmp_path / "a", tmp_path / "b", "--shares", shares)
    assert said.code == 1
    assert what in said.err


def test_verify__whole(store: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("verify", store)
    assert said == Said(0, "whole  3 rankings in 1 partitions: every byte is as written\n", "")
    assert printed_json(plmix("verify", store, "--json").out) == {"store": str(store), "whole": True, "damage": []}


def test_verify__damaged_ends_with_3(
    store: Path, plmix: Callable[..., Said], plmix_process: Callable[..., Said]
) -> None:
    victim = sorted(store.glob("partitions/p000000/items/c/*"))[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    (store / "partitions/p000000/below/zarr.json").unlink()
    said = plmix_process("verify", store)
    assert said.code == 3
    assert said.err == ""
    assert f"altered  {victim.relative_to(store)}: is not what was written" in said.out
    assert "missing  partitions/p000000/below/zarr.json" in said.out
    record = plmix("verify", store, "--json")
    assert record.code == 3
    found = printed_json(record.out)
    assert found["whole"] is False
    assert {damage["kind"] for damage in found["damage"]} >= {"altered", "missing"}


def test_info__plain(store: Path, plmix: Callable[..., Said]) -> None:
    said = plmix("info", store)
    assert said.code == 0
    assert "rankings     3, total weight 6" in said.out
    assert "items        3: mate, milk, tea" in said.out
    assert "kinds        1 full, 2 top-k, 2 weighted" in said.out
    assert "every item is connected with every other" in said.out


def test_info__json(store: Path, plmix: Callable[..., Said]) -> None:
    found = printed_json(plmix("info", store, "--json").out)
    assert found["item_names"] == ["mate", "milk", "tea"]
    assert (found["n_rankings"], found["total_weight"], found["generation"]) == (3, 6.0, 1)
    assert found["kinds"] == {"full": 1, "top-k": 2, "subset": 0, "slate": 0, "tied": 0, "weighted": 2, "grouped": 0}
    assert found["comparison_graph"]["n_groups"] == 1
    assert "rejected_rows" not in found
    assert "kinds" not in printed_json(plmix("info", store, "--json", "--no-graph").out)


def test_info__counts_every_kind_of_row(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    lines = [
        "1,ann,tea mate milk,",
        "1,ann,{tea mate} milk,",
        "2,bob,tea,below",
        "1,bob,{mate milk},below",
        "1,cat,tea milk,absent",
        "1,cat,mate | tea,",
        "1,cat,mate | tea milk,",
    ]
    source = write(tmp_path / "a.csv", "count,group,ordering,unranked\n" + "\n".join(lines) + "\n")
    assert plmix("ingest", source, tmp_path / "store").code == 0
    kinds = {"full": 2, "top-k": 2, "subset": 1, "slate": 2, "tied": 2, "weighted": 1, "grouped": 7}
    assert printed_json(plmix("info", tmp_path / "store", "--json").out)["kinds"] == kinds


def test_info__items_that_stand_apart(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    source = write(tmp_path / "a.csv", "ordering\ntea mate milk\nmate tea milk\n")
    plmix("ingest", source, tmp_path / "store")
    said = plmix("info", tmp_path / "store")
    assert "comparisons          2 groups; the largest has 2 items" in said.out
    assert "never above another  milk" in said.out


@pytest.mark.promise(19)
def test_info__rejected_rows(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    source = write(tmp_path / "a.csv", "ordering\ntea mate\ntea tea\n")
    plmix("ingest", source, tmp_path / "store", "--on-error", "drop", "--most-dropped", "1")
    said = plmix("info", tmp_path / "store", "--rejected")
    assert f"{source}, line 3: item tea is listed twice" in said.out
    assert "1 rows rejected" in said.out
    [bad] = printed_json(plmix("info", tmp_path / "store", "--rejected", "--json").out)["rejected_rows"]
    assert (bad["reason"], bad["line"], bad["item"]) == ("duplicate-item", 3, "tea")


@pytest.mark.parametrize("policy", ["drop", "quarantine"])
def test_info__rejected_rows_of_parquet(tmp_path: Path, plmix: Callable[..., Said], policy: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"items": [["tea", "mate"], ["tea", "tea"]]}), source)
    plmix("ingest", source, tmp_path / "store", "--on-error", policy, "--most-dropped", "1")
    said = plmix("info", tmp_path / "store", "--rejected")
    assert f"{source}, row 2: item tea is listed twice" in said.out


@pytest.mark.promise(35)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["plain", "json"])
def test_info__labels_of_rejected_rows_cannot_steer(
    tmp_path: Path, plmix: Callable[..., Said], form: list[str]
) -> None:
    source = write(tmp_path / "a.csv", "p1,p2\ntea,mate\na\x1b[31m,a\x1b[31m\na\x9b31m,a\x9b31m\na\x7fb,a\x7fb\n")
    options = ("--on-error", "quarantine", "--unranked", "below")
    assert plmix("ingest", source, tmp_path / "store", *options).code == 0
    said = plmix("info", tmp_path / "store", "--rejected", *form)
    assert said.code == 0
    assert "line 3" in said.out or '"line": 3' in said.out
    assert not [sign for sign in said.out if sign != "\n" and not sign.isprintable()]


@pytest.mark.promise(10)
def test_workers__two_processes_make_the_same_store(
    tmp_path: Path, plmix: Callable[..., Said], plmix_process: Callable[..., Said]
) -> None:
    options = ("--rankings", 300, "--items", 5, "--components", 2, "--json")
    for run, workers in ((plmix, 0), (plmix_process, 2)):
        said = run("simulate", tmp_path / str(workers), *options, "--workers", workers)
        assert said.code == 0
        assert {json.loads(line)["stage"] for line in said.err.splitlines()} <= {"simulate"}
        assert printed_json(said.out)["n_rankings"] == 300
    here, there = (open_store(tmp_path / name) for name in "02")
    assert index_digests(here) == index_digests(there)


def test_scheduler__does_the_work(
    store: Path, client: Client, plmix_process: Callable[..., Said], tmp_path: Path
) -> None:
    address = client.scheduler.address
    assert address.startswith("tcp://127.0.0.1:")
    said = plmix_process("verify", store, "--scheduler", address, "--json")
    assert said.code == 0
    assert {json.loads(line)["stage"] for line in said.err.splitlines()} <= {"verify"}
    assert printed_json(said.out)["whole"] is True

    def keys(dask_scheduler: Any) -> list[str]:
        return [str(entry[0]) for entry in dask_scheduler.transition_log]

    assert any(key.startswith("verify-") for key in client.run_on_scheduler(keys))


# --- formats, dry runs, rows that are left out ---------------------------------------------------------------


def test_formats__each_with_two_lines(plmix: Callable[..., Said]) -> None:
    found = printed_json(plmix("formats", "--json").out)["formats"]
    assert {"battles", "wide", "long", "parquet"} <= found.keys()
    assert all(len(form["example"]) == 2 and form["about"] for form in found.values())
    assert "model_a,model_b,winner" in plmix("formats", "battles").out


@pytest.mark.parametrize("name", ["battles", "wide", "ranks", "scores", "orderings", "long"])
def test_formats__examples_are_read(tmp_path: Path, plmix: Callable[..., Said], name: str) -> None:
    head, line = printed_json(plmix("formats", name, "--json").out)["formats"][name]["example"]
    rest = f"{line.replace('tea', 'mate', 1) if name == 'long' else ''}\n"
    source = write(tmp_path / "a.csv", f"{head}\n{line}\n{rest}")
    said = plmix("ingest", source, tmp_path / "store", "--format", name)
    assert said.code == 0, said.err


def test_dry_run__writes_nothing(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\nmate,tea\n")
    said = plmix("ingest", source, tmp_path / "store", "--dry-run")
    assert "nothing was written" in said.out
    assert "tea > mate" in said.out
    assert not (tmp_path / "store").exists()
    assert printed_json(plmix("ingest", source, tmp_path / "store", "--dry-run", "--json").out)["store"] is None


def test_dropped__above_a_share_only_if_it_is_named(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    rows = ["tea,mate"] * 17 + ["tea,tea"] * 3
    source = write(tmp_path / "a.csv", "\n".join(["first,second", *rows]))
    said = plmix("ingest", source, tmp_path / "store", "--on-error", "drop")
    assert said.code == 1
    assert "3 of 20 rows (15.0%) cannot be read: 3 duplicate-item; the first is line 19" in said.err
    assert "--most-dropped 0.15" in said.err
    allowed = plmix("ingest", source, tmp_path / "store", "--on-error", "drop", "--most-dropped", "0.15")
    assert "3 of 20 rows (15.0%) cannot be read" in allowed.out


def test_fit__a_file(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    source = write(
        tmp_path / "a.csv",
        "model_a,model_b,winner\ntea,mate,model_a\nmate,tea,model_a\nmate,milk,model_a\nmilk,tea,model_a\n",
    )
    said = plmix("fit", source, "--components", "1", "--out", tmp_path / "model")
    assert said.code == 0, said.err
    assert "as battles into a temporary store: 4 rankings of 3 items" in said.out
    assert (tmp_path / "model" / "model.json").exists()
