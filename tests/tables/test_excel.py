"""Workbooks: the first sheet, its cells as text."""

from __future__ import annotations

import datetime
import sys
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, rejected, row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

openpyxl = pytest.importorskip("openpyxl")


def workbook(path: Path, rows: Sequence[Sequence[Any]], *, more: Sequence[str] = ()) -> Path:
    """A workbook with these rows in its first sheet, and further sheets."""
    book = openpyxl.Workbook()
    for cells in rows:
        book.active.append(list(cells))
    for name in more:
        book.create_sheet(name).append(["nothing"])
    book.save(path)
    return path


def test_excel__numbers_dates_and_empty_cells(tmp_path: Path) -> None:
    day = datetime.datetime(2024, 5, 1)
    rows = [
        (None, None, None, None),
        ("id", "first", "second", "day", None),
        (1.0, "tea ", "mate", day, None),
        (None, None, None, None),
        (2.0, "mate", None, day),
    ]
    source = workbook(tmp_path / "a.xlsx", rows, more=["notes"])
    store = ingest(source, tmp_path / "store", columns={"ignore": "day"}, unranked="below")
    assert named_rows(store) == [row("tea", "mate"), row("mate", unranked="below")]
    assert labels_of(store, "ids") == [1, 2]
    [understood] = store.manifest.history[-1]["read_as"]
    assert "the first table of 2 sheets, 'Sheet', is read" in understood["guesses"]


def test_excel__bad_rows_have_the_numbers_of_the_sheet(tmp_path: Path) -> None:
    rows = [("first", "second"), *[("tea", "mate")] * 40, (None, None), ("tea", "tea")]
    store = ingest(workbook(tmp_path / "a.xlsx", rows), tmp_path / "store", on_error="drop", most_dropped=1.0)
    assert [one["row"] for one in rejected(store)] == [43]


def test_excel__not_a_workbook(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK not a zip file")
    assert "cannot be read as a workbook" in ingest_error(tmp_path / "a.xlsx", tmp_path / "store")


def test_excel__without_openpyxl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = workbook(tmp_path / "a.xlsx", [("first", "second"), ("tea", "mate")])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert "install plmix-dist[excel]" in ingest_error(source, tmp_path / "store")
