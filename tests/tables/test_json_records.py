"""JSON and JSON lines: the same rows as from text, with dotted names for what is nested."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plmix_dist import ingest
from plmix_dist.tables import json_records, sources, text
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from pathlib import Path

RECORDS: list[dict[str, Any]] = [
    {"id": 1, "who": {"age": 30}, "first": "tea", "second": "mate", "third": "milk"},
    {"id": 2, "who": {"age": 31}, "first": "mate", "second": "milk", "third": "tea"},
    {"id": 3, "who": {"age": None}, "first": "milk", "second": "tea", "third": "mate"},
]
ROWS = [row("tea", "mate", "milk"), row("mate", "milk", "tea"), row("milk", "tea", "mate")]
LINES = "\n".join(map(json.dumps, RECORDS)) + "\n"
AGE = {"ignore": "who.age"}


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("a.jsonl", LINES),
        ("a.ndjson", LINES.replace("\n", "\r\n")),
        ("a.jsonl", "\ufeff" + LINES),
        ("a.jsonl", "\n" + LINES.replace("\n", "\n\n")),
        ("a.json", LINES),
        ("a.json", json.dumps(RECORDS)),
        ("a.json", "\ufeff \n" + json.dumps(RECORDS, indent=2)),
        ("a.json", json.dumps({"version": 1, "rows": RECORDS})),
    ],
)
def test_records__in_lines_in_an_array_or_in_an_object(tmp_path: Path, name: str, contents: str) -> None:
    store = ingest(write(tmp_path / name, contents), tmp_path / "store", columns=AGE)
    assert named_rows(store) == ROWS
    assert labels_of(store, "ids") == [1, 2, 3]


def test_records__columns_as_tools_write_them(tmp_path: Path) -> None:
    by_column = {name: {str(n): one[name] for n, one in enumerate(RECORDS)} for name in ("first", "second", "third")}
    assert named_rows(ingest(write(tmp_path / "a.json", json.dumps(by_column)), tmp_path / "store")) == ROWS


def test_records__compressed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    assert named_rows(ingest(tmp_path / "a.jsonl.gz", tmp_path / "store", columns=AGE)) == ROWS


def test_records__lists_are_rankings(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", '[["tea", "mate"], ["mate", "tea", "milk"]]')
    assert named_rows(ingest(source, tmp_path / "store", unranked="absent")) == [
        row("tea", "mate"),
        row("mate", "tea", "milk"),
    ]


def test_records__texts_are_orderings(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", '"tea > mate = milk"\n"milk > tea > mate"\n')
    assert named_rows(ingest(source, tmp_path / "store")) == [row("tea", ("mate", "milk")), row("milk", "tea", "mate")]


def test_records__a_record_that_is_cut_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "_READ_CHARACTERS", 7)
    source = write(tmp_path / "a.json", json.dumps([*RECORDS, {**RECORDS[0], "id": 12, "first": "thé"}]))
    store = ingest(source, tmp_path / "store", columns=AGE, unranked="absent")
    assert named_rows(store) == [*ROWS, row("thé", "mate", "milk")]


def test_records__slices_keep_line_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_SLICE_BYTES", 256)
    monkeypatch.setattr(text, "CHUNK_BYTES", 128)
    lines = [json.dumps(RECORDS[n % 3] | {"id": n}) for n in range(60)]
    lines[41] = lines[41].replace('"mate"', '"milk"')
    source = write(tmp_path / "a.jsonl", "\n".join(lines))
    store = ingest(source, tmp_path / "store", columns=AGE, on_error="drop", most_dropped=1.0)
    assert store.n_partitions > 5
    assert named_rows(store) == [ROWS[n % 3] for n in range(60) if n != 41]
    assert [one["line"] for one in rejected(store)] == [42]


def test_records__a_line_that_is_not_json(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", LINES + '{"id": 4,\n' + LINES * 30)
    assert "a.jsonl, line 4: the line is not JSON" in ingest_error(source, tmp_path / "store", columns=AGE)


def test_records__other_types_behind_the_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "_MOST_SAMPLED", 2)
    more = json.dumps(RECORDS[2] | {"id": "x-4"})
    store = ingest(write(tmp_path / "a.jsonl", LINES + more), tmp_path / "store", columns=AGE)
    assert labels_of(store, "ids") == ["1", "2", "3", "x-4"]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("[1, 2", "cannot be read as JSON"),
        ('{"a": 1}', "without a table: expected an array of records"),
        ('{"a": [{"x": 1}], "b": [{"y": 1}]}', "several tables (a, b)"),
        ('{"a": ', "cannot be read as JSON"),
        ("[]", "no record was found"),
    ],
)
def test_records__no_table(tmp_path: Path, contents: str, message: str) -> None:
    assert message in ingest_error(write(tmp_path / "a.json", contents), tmp_path / "store")


def test_nested__the_same_from_parquet_and_lines(tmp_path: Path) -> None:
    found = [
        {"answers": [{"model": "x", "rank": 2.0}, {"model": "y", "rank": 1.0}]},
        {"answers": [{"model": "z", "rank": 1.0}, {"model": "x", "rank": 1.0}, {"model": "y", "rank": 3.0}]},
    ]
    write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, found)))
    pq.write_table(pa.Table.from_pylist(found), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        store = ingest(tmp_path / name, tmp_path / f"store-{name}", unranked="absent")
        assert named_rows(store) == [row("y", "x"), row(("z", "x"), "y")]


def test_nested__deep_values_end(tmp_path: Path) -> None:
    deep: Any = "end"
    for _ in range(40):
        deep = {"x": deep}
    source = write(tmp_path / "a.json", json.dumps([one | {"who": deep} for one in RECORDS]))
    name = ".".join(["who", *["x"] * (json_records._DEEPEST - 1)])
    assert named_rows(ingest(source, tmp_path / "store", columns={"ignore": name})) == ROWS
