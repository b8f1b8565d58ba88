"""Rows that come in several batches, row groups and slices give the store that one batch gives."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ingest_helpers import labels_of, named_rows, row, write

from plmix_dist import ingest
from plmix_dist.formats import delimited, long, parquet, preflib, text_chunks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[1, 3])
def small_batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Batches of so many rows, as rows come from files of gigabytes."""
    for module in (delimited, long, parquet, preflib):
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
    monkeypatch.setattr(parquet, "SLICE_VALUES", slice_values)
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


ORDERS = [
    "tea mate milk",
    "mate tea milk",
    "tea mate milk",
    "milk tea mate",
    "tea mate milk",
    "mate tea milk",
    "tea",
]


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
    return "count,ordering\n" + "".join(
        f"{weight},{order}\n" for weight, order in enumerate(ORDERS, start=1)
    ), ".csv"


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
