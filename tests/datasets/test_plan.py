"""Plans of an ingest: arrays and Dask arrays as sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest

from plmix_dist import RankingBlock, ingest
from plmix_dist.datasets import plan as ingest_plan
from plmix_dist.errors import SettingsError, StoreExistsError
from tests.helpers.ingest_helpers import ingest_error, named_rows, rejected, row

if TYPE_CHECKING:
    from pathlib import Path


# --- arrays ----------------------------------------------------------------------------------------------

TABLE = np.array([[2, 0, 1], [1, 2, -1], [0, -1, -1], [1, 0, 2]])
TABLE_ROWS = [row("2", "0", "1"), row("1", "2", unranked="below"), row("0", unranked="below"), row("1", "0", "2")]


@pytest.mark.parametrize("kind", ["i1", "i8", ">i4", "u1", "u8"])
def test_array__integers_of_any_kind(tmp_path: Path, kind: str) -> None:
    table = TABLE.astype(kind) if kind[0] != "u" else TABLE[[0, 3]].astype(kind)
    store = ingest(table, tmp_path / "store", unranked="below")
    assert store.item_names == ("0", "1", "2")
    assert named_rows(store) == (TABLE_ROWS if kind[0] != "u" else [TABLE_ROWS[0], TABLE_ROWS[3]])


@pytest.mark.parametrize("order", ["C", "F"])
def test_array__in_memory_either_way(tmp_path: Path, order: Any) -> None:
    store = ingest(np.asarray(TABLE, order=order), tmp_path / "store", unranked="below")
    assert named_rows(store) == TABLE_ROWS
    # The same numbers in another memory layout: nothing to do.
    assert ingest(TABLE, tmp_path / "store", unranked="below").manifest.generation == 1


def test_array__weights_and_names(tmp_path: Path) -> None:
    store = ingest(TABLE[[0, 3]], tmp_path / "store", weights=[2.5, 1], item_names=["ale", "tea", "mate"])
    assert named_rows(store) == [row("mate", "ale", "tea", weight=2.5), row("tea", "ale", "mate")]


def test_array__items_that_never_occur(tmp_path: Path) -> None:
    store = ingest(TABLE[[0]], tmp_path / "store", n_items=5, unranked="below")
    assert store.item_names == ("0", "1", "2", "3", "4")
    assert named_rows(store) == [row("2", "0", "1", unranked="below")]


def test_array__numbered_from_1_is_asked_about(tmp_path: Path) -> None:
    table = np.array([[1, 2, 3], [3, 1, 2]])
    for source in (table, da.from_array(table, chunks=1)):
        message = ingest_error(source, tmp_path / "store")
        assert "no row lists item 0: the items run from 1 to 3" in message
        assert "subtract 1 from every item" in message
        assert "say n_items=4" in message
    store = ingest(table, tmp_path / "store", n_items=4, unranked="below")
    assert named_rows(store) == [row("1", "2", "3", unranked="below"), row("3", "1", "2", unranked="below")]


def test_array__unranked_is_never_guessed(tmp_path: Path) -> None:
    message = ingest_error(TABLE, tmp_path / "store")
    assert "row 1: lists 2 of 3 items, and nothing says" in message


ARRAY_BAD = {
    "gap": ([0, -1, 1], "gap", "an item follows a missing place (-1)"),
    "twice": ([1, 1, 0], "duplicate-item", "item 1 is listed twice"),
    "too large": ([0, 1, 3], "unknown-item", "item '3' is not one of the 3 items"),
    "too small": ([0, 1, -2], "unknown-item", "item '-2' is not one of the 3 items"),
    "all missing": ([-1, -1, -1], "empty", "no item is ranked"),
}


@pytest.mark.promise(20)
@pytest.mark.parametrize(("line", "reason", "what"), ARRAY_BAD.values(), ids=ARRAY_BAD)
def test_array__bad_row_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[int], reason: str, what: str
) -> None:
    monkeypatch.setattr(ingest_plan, "_ARRAY_PARTITION_ENTRIES", 3)
    table = np.array([[0, 1, 2], [2, 1, 0], line, [1, 2, 0]])
    weights = [1.0, 2.0, 4.0, 8.0]
    options: dict[str, Any] = {"unranked": "below", "n_items": 3, "weights": weights}
    message = ingest_error(table, tmp_path / "store", **options)
    assert f"array, row 2: {what}" in message
    store = ingest(table, tmp_path / "store", on_error="drop", most_dropped=1.0, **options)
    assert store.total_weight == 11.0
    assert [(bad["reason"], bad["file"], bad["row"]) for bad in rejected(store)] == [(reason, "array", 2)]


@pytest.mark.promise(20)
@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_array__bad_weight_is_named(tmp_path: Path, weight: float) -> None:
    message = ingest_error(TABLE[[0, 3]], tmp_path / "store", weights=[1.0, weight])
    assert f"array, row 1: weight {weight:g} is not a positive finite number" in message


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("table", "options", "what"),
    [
        (TABLE.astype(float), {}, "expected an integer array of shape (rankings, places), but got float64"),
        (np.array([[0, 1, np.nan]]), {}, "expected an integer array of shape (rankings, places), but got float64"),
        (np.array([["tea", "mate"]]), {}, "expected an integer array"),
        (TABLE[0], {}, "shape (3,)"),
        (TABLE, {"weights": [1, 2]}, "expected 4 weights, one per row, but got shape (2,)"),
        (TABLE, {"n_items": 3, "item_names": ["a", "b"]}, "n_items is 3, but there are 2 item names"),
        (np.empty((0, 3), int), {}, "at least two items, but there are 0"),
        (np.empty((0, 3), int), {"n_items": 3}, "ranking was found"),
        (np.full((2, 3), -1), {"n_items": 3, "on_error": "drop"}, "ranking was found"),
        (np.zeros((2, 1), int), {}, "at least two items, but there are 1"),
    ],
)
def test_array__not_fit_to_be_rankings(tmp_path: Path, table: Any, options: dict[str, Any], what: str) -> None:
    assert what in ingest_error(table, tmp_path / "store", unranked="below", **options)


def test_dask_array__chunks_are_partitions(tmp_path: Path) -> None:
    table = np.argsort(np.random.default_rng(1).random((10, 4)), axis=1)
    array = da.from_array(table, chunks=((4, 5, 1), (3, 1)))
    weights = np.arange(1.0, 11.0)
    store = ingest(array, tmp_path / "store", weights=weights)
    assert [partition.n_rankings for partition in store.manifest.partitions] == [4, 5, 1]
    assert store.block().equals(RankingBlock.from_array(table, weights=weights))
    assert ingest(array, tmp_path / "store", weights=weights).manifest.generation == 1


def test_dask_array__row_numbers_over_chunks(tmp_path: Path) -> None:
    table = np.tile(np.arange(3), (9, 1))
    table[7] = [1, 1, 2]
    message = ingest_error(da.from_array(table, chunks=(2, 3)), tmp_path / "store")
    assert "array, row 7: item 1 is listed twice" in message


def test_dask_array__unknown_chunk_sizes_are_refused(tmp_path: Path) -> None:
    array = da.from_array(TABLE, chunks=(2, 3))
    unknown = array[da.from_array(np.array([True, False, True, True]), chunks=2)]
    with pytest.raises(SettingsError, match=r"unknown sizes; call compute_chunk_sizes\(\) first"):
        ingest(unknown, tmp_path / "store", unranked="below")


def test_dask_array__other_weights_are_other_data(tmp_path: Path) -> None:
    array = da.from_array(TABLE[[0, 3]], chunks=(1, 3))
    ingest(array, tmp_path / "store", weights=[1.0, 2.0])
    with pytest.raises(StoreExistsError):
        ingest(array, tmp_path / "store", weights=[3.0, 4.0])
