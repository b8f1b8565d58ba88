"""The one road from any source to rankings: a new format reads text, Parquet and frames alike."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plmix_dist import PlackettLuceMixture, ingest
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import IngestError, RankingError
from plmix_dist.tables import parquet, rows
from plmix_dist.tables import text as text_chunks
from plmix_dist.tables.format import ReadOptions
from plmix_dist.tables.frames import frame_of
from plmix_dist.tables.registry import FORMATS, detect, open_frame, read_columns, read_slice, slices_of
from plmix_dist.tables.sources import find
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, rejected, row, write
from tests.tables.won_and_lost import WON_AND_LOST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NAMES = ["lost", "voter", "won", "count", "town"]
MATCHES = [("tea", 7, "mate", 2.0, "Riga"), ("mate", 7, "milk", 1.0, "Riga"), ("milk", 8, "tea", 1.5, "Oslo")]
BAD = ("tea", 9, "tea", 1.0, "Riga")


def _text(rows: list[tuple[Any, ...]], folder: Path) -> str:
    lines = [",".join(map(str, cells)) for cells in (NAMES, *rows)]
    return str(write(folder / "a.csv", "\n".join(lines)))


def _parquet(rows: list[tuple[Any, ...]], folder: Path) -> str:
    columns = dict(zip(NAMES, zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return str(folder / "a.parquet")


SOURCES: dict[str, Callable[[list[tuple[Any, ...]], Path], Any]] = {
    "text": _text,
    "parquet": _parquet,
    "pandas": lambda rows, _: pd.DataFrame(rows, columns=NAMES),
    "polars": lambda rows, _: polars.DataFrame(rows, schema=NAMES, orient="row"),
}


@pytest.fixture(autouse=True)
def new_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, WON_AND_LOST.name, WON_AND_LOST)


def _read(source: Any, name: str = "auto", options: ReadOptions | None = None) -> list[Any]:
    """The rows of a file or a frame, in batches."""
    options = options or ReadOptions()
    if isinstance(source, str):
        form, header = detect(find(source), options, name)
        return [rows for part in slices_of(form, find(source), header) for rows in read_slice(form, part)]
    frame = frame_of(source)
    assert frame is not None
    opened = open_frame(frame, name, options)
    return list(read_columns(opened.form, opened.header, opened.columns, 0))


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("name", ["auto", "won-and-lost"])
def test_new_format__same_rows_from_every_source(tmp_path: Path, kind: str, name: str) -> None:
    [rows] = _read(SOURCES[kind](MATCHES, tmp_path), name)
    assert [rows.text(number) for number in range(rows.n_rows)] == ["mate tea", "milk mate", "tea milk"]
    assert rows.weights.tolist() == [2.0, 1.0, 1.5]
    assert np.asarray(rows.groups).tolist() == [7, 7, 8]
    assert not rows.failures


@pytest.mark.parametrize("kind", SOURCES)
def test_new_format__same_message_for_a_bad_row(tmp_path: Path, kind: str) -> None:
    [rows] = _read(SOURCES[kind]([*MATCHES, BAD], tmp_path))
    [failure] = rows.failures
    assert (failure.reason, failure.message) == ("syntax", "tea cannot lose against itself")
    assert failure.text.startswith("tea 9 tea 1")
    # Text has its header in line 1; files are counted from 1, rows in memory from 0, as Python counts them.
    assert failure.line == {"text": 5, "parquet": 4}.get(kind, 3)
    assert rows.n_rows == 3


@pytest.mark.parametrize("kind", ["text", "parquet"])
def test_new_format__into_a_store(tmp_path: Path, kind: str) -> None:
    source = SOURCES[kind]([*MATCHES, BAD], tmp_path)
    assert "tea cannot lose against itself; correct the file" in ingest_error(
        source, tmp_path / "store", unranked="absent"
    )
    store = ingest(source, tmp_path / "store", unranked="absent", on_error="drop", most_dropped=1.0)
    assert named_rows(store) == [row("mate", "tea", weight=2.0), row("milk", "mate"), row("tea", "milk", weight=1.5)]
    assert labels_of(store, "groups") == [7, 7, 8]
    assert rejected(store)[0]["message"] == "tea cannot lose against itself"
    assert store.manifest.history[0]["sources"][0]["format"] == "won-and-lost"


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_new_format__into_a_fit(tmp_path: Path, kind: str) -> None:
    rankings = as_rankings(SOURCES[kind](MATCHES, tmp_path), unranked="absent")
    assert rankings.item_names == ("mate", "milk", "tea")
    assert rankings.source.block.to_array().tolist() == [[0, 2], [1, 0], [2, 1]]  # type: ignore[attr-defined]
    with pytest.raises(RankingError, match=r"the table, row 3: tea cannot lose against itself"):
        PlackettLuceMixture(1, unranked="absent").fit(SOURCES[kind]([*MATCHES, BAD], tmp_path))


def test_new_format__its_columns_by_name(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "better,worse\ntea,mate\n")
    message = ingest_error(source, tmp_path / "store", format="won-and-lost", header=True)
    assert "no column holds the winner, loser; found: better, worse" in message
    columns = {"winner": "better", "loser": "worse"}
    assert named_rows(ingest(source, tmp_path / "store", format="won-and-lost", columns=columns)) == [
        row("tea", "mate")
    ]


TABLES = {
    "orderings": {"ordering": ["tea > mate", "mate > tea"], "count": [2, 1]},
    "long": {"id": [1, 1, 2, 2], "item": ["tea", "mate", "mate", "tea"], "rank": [1, 2, 1, 2], "count": [2, 2, 1, 1]},
    "lists": {"items": [["tea", "mate"], ["mate", "tea"]], "count": [2, 1]},
}


@pytest.mark.parametrize("kind", TABLES)
def test_frames__are_read_as_files_are(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame(TABLES[kind])
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "a.parquet")
    store = ingest(tmp_path / "a.parquet", tmp_path / "store")
    rankings = as_rankings(frame)
    assert rankings.item_names == store.item_names == ("mate", "tea")
    block = rankings.source.block  # type: ignore[attr-defined]
    assert block.to_array().tolist() == store.block().to_array().tolist() == [[1, 0], [0, 1]]
    assert block.weights.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("kind", ["wide", "ranks"])
def test_parquet__tables_of_places_and_of_ranks(tmp_path: Path, kind: str) -> None:
    columns: dict[str, Any] = {"first": ["tea", "mate"], "second": ["mate", None]}
    if kind == "ranks":
        columns = {"tea": [1, None], "mate": [2, 1], "milk": [2, 2]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    store = ingest(tmp_path / "a.parquet", tmp_path / "store", unranked="below")
    expected = [row("tea", "mate"), row("mate", unranked="below")]
    if kind == "ranks":
        expected = [row("tea", ("mate", "milk")), row("mate", "milk", unranked="below")]
    assert named_rows(store) == expected
    [read_as] = store.manifest.history[-1]["read_as"]
    assert (read_as["format"], read_as["delimiter"]) == (kind, None)


def test_frames__ratings_are_refused_with_their_function() -> None:
    frame = pd.DataFrame({"user": [1, 1], "item": ["a", "b"], "rating": [3, 4]})
    with pytest.raises(
        RankingError, match=r"column 'rating' seems to hold ratings.*plmix_dist.ingest_ratings in Python"
    ):
        as_rankings(frame)


def test_frames__rows_of_a_ranking_or_a_person_apart() -> None:
    scattered = pd.DataFrame({"id": [7, 8, 7, 8], "item": ["a", "a", "b", "b"], "rank": [1, 2, 2, 1]})
    with pytest.raises(RankingError, match="the rows of ranking 7 are not consecutive; sort the table by ranking id"):
        as_rankings(scattered)
    persons = pd.DataFrame({"voter": ["p", "q", "p"], "ordering": ["a > b", "b > a", "a > b"]})
    with pytest.raises(RankingError, match=r"rows 0 and 2 have group p.*sort the rows by group"):
        as_rankings(persons)


def test_frames__columns_by_number() -> None:
    frame = pd.DataFrame([["tea", "mate"]], columns=[1, 2])
    [rows] = _read(frame, "won-and-lost", ReadOptions(columns={"winner": "2", "loser": "1"}))
    assert rows.text(0) == "mate tea"
    with pytest.raises(IngestError, match="no column '3' for the winner; found: 1, 2"):
        _read(frame, "won-and-lost", ReadOptions(columns={"winner": "3"}))


@pytest.fixture(params=[1, 3])
def small_batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Batches of this many rows, as rows come from files of gigabytes."""
    for module in (parquet, rows):
        monkeypatch.setattr(module, "BATCH_ROWS", request.param)
    monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 10 * request.param)
    return int(request.param)


LONG = [("a", "tea", 1), ("a", "mate", 2), ("b", "mate", 1), ("b", "tea", 2), ("b", "milk", 3), ("b", "water", 4),
        ("b", "cocoa", 5), ("b", "juice", 6), ("c", "tea", 1), ("d", "milk", 1), ("d", "tea", 2)]  # fmt: skip
LONG_ROWS = [
    row("tea", "mate", unranked="below"),
    row("mate", "tea", "milk", "water", "cocoa", "juice"),
    row("tea", unranked="below"),
    row("milk", "tea", unranked="below"),
]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("group_size", [1, 2, 4])
@pytest.mark.parametrize("slice_values", [1, 4, 100])
def test_long_parquet__rankings_that_span_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_size: int, slice_values: int
) -> None:
    monkeypatch.setattr(parquet, "_SLICE_VALUES", slice_values)
    ids, items, ranks = zip(*LONG, strict=True)
    table = pa.table({"id": ids, "item": items, "rank": ranks})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=group_size)
    store = ingest(tmp_path / "a.parquet", tmp_path / "store", unranked="below")
    assert named_rows(store) == LONG_ROWS
    assert labels_of(store, "ids") == ["a", "b", "c", "d"]


@pytest.mark.usefixtures("small_batches")
def test_long_text__rankings_that_span_batches(tmp_path: Path) -> None:
    text = "id,item,rank\n" + "".join(f"{ranking},{item},{rank}\n" for ranking, item, rank in LONG)
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", unranked="below")
    assert named_rows(store) == LONG_ROWS
    assert labels_of(store, "ids") == ["a", "b", "c", "d"]


ORDERS = ["tea mate milk", "mate tea milk", "tea mate milk", "milk tea mate", "tea mate milk", "mate tea milk", "tea"]


def rows_of(name: str) -> tuple[str, str]:
    """A file of seven rows with weights 1 to 7, and its suffix."""
    if name == "preflib":
        numbers = {"tea": "1", "mate": "2", "milk": "3"}
        head = "# NUMBER ALTERNATIVES: 3\n# DATA TYPE: soi\n" + "".join(
            f"# ALTERNATIVE NAME {number}: {item}\n" for item, number in numbers.items()
        )
        body = "".join(
            f"{weight}: {','.join(numbers[item] for item in order.split())}\n"
            for weight, order in enumerate(ORDERS, start=1)
        )
        return head + body, ".soi"
    return "count,ordering\n" + "".join(f"{weight},{order}\n" for weight, order in enumerate(ORDERS, start=1)), ".csv"


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("kind", ["orderings", "preflib"])
@pytest.mark.parametrize("merge", [False, True])
def test_text__batches_of_a_few_rows(tmp_path: Path, kind: str, merge: bool) -> None:
    text, suffix = rows_of(kind)
    store = ingest(write(tmp_path / f"a{suffix}", text), tmp_path / "store", merge=merge, unranked="below")
    found = [(tuple(item for (item,) in one.ordered), one.weight) for one in named_rows(store)]
    single = [(tuple(order.split()), float(weight)) for weight, order in enumerate(ORDERS, start=1)]
    if not merge:
        assert found == single
        return
    total = {
        order: sum(weight for _, weight in same)
        for order, same in itertools.groupby(sorted(single), key=lambda one: one[0])
    }
    assert dict(found) == total
    assert len(found) == 4


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("merge", [False, True])
def test_lists__batches_of_a_few_rows(tmp_path: Path, merge: bool) -> None:
    table = pa.table(
        {"items": [order.split() for order in ORDERS], "count": np.arange(1.0, 8.0), "id": list("stuvwxy")}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    options: dict[str, Any] = {"unranked": "below", "merge": merge}
    store = ingest(tmp_path / "a.parquet", tmp_path / "store", **options)
    assert store.n_rankings == (4 if merge else 7)
    assert store.total_weight == 28
    if not merge:
        assert labels_of(store, "ids") == list("stuvwxy")
        assert [one.weight for one in named_rows(store)] == [1, 2, 3, 4, 5, 6, 7]
