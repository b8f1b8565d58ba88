"""Roles of columns: ids, labels, and columns that the user names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import export, ingest
from plmix_dist.errors import SettingsError
from tests.helpers.ingest_helpers import cut_small, ingest_error, labels_of, named_rows, row, write

if TYPE_CHECKING:
    from pathlib import Path


# --- ids -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["3", "-4"], [3, -4]),
        (["007", "8"], ["007", "8"]),
        (["7", "b"], ["7", "b"]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["", "2"], ["", "2"]),
    ],
)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_ids__numbers_only_where_all_are(tmp_path: Path, form: str, written: list[str], expected: list[Any]) -> None:
    text = {
        "orderings": "ranking,ordering\n" + "".join(f"{label},tea mate\n" for label in written),
        "wide": "ranking,first,second\n" + "".join(f"{label},tea,mate\n" for label in written),
        "long": "ranking,item,rank\n" + "".join(f"{label},tea,1\n{label},mate,2\n" for label in written),
    }[form]
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert labels_of(store, "ids") == expected
    export(store, tmp_path / "b.csv", format=form)
    assert labels_of(ingest(tmp_path / "b.csv", tmp_path / "again"), "ids") == expected


def test_ids__one_kind_over_all_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    labels = [str(number) for number in range(40)] + ["last"]
    text = "id,group,first,second\n" + "".join(f"{label},{label},tea,mate\n" for label in labels)
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert store.n_partitions > 3
    assert labels_of(store, "ids") == labels
    assert labels_of(store, "groups") == labels


# --- columns ---------------------------------------------------------------------------------------------


def test_columns__named_by_the_user(tmp_path: Path) -> None:
    text = "Paper,What,Choice,Times,Rank\np1,tea,2,3,x\np1,mate,1,3,x\np2,tea,1,1,x\np2,mate,2,1,x\n"
    columns = {"id": "paper", "item": "what", "rank": "choice", "weight": "times"}
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", columns=columns)
    assert named_rows(store) == [row("mate", "tea", weight=3.0), row("tea", "mate")]
    assert labels_of(store, "ids") == ["p1", "p2"]


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"columns": {"id": "paper"}}, "no column 'paper' for the id; found: first, second"),
        ({"format": "long"}, "no column holds the id, item, rank; found: first, second"),
        ({"format": "orderings"}, "no column holds orderings; found: first, second"),
    ],
)
def test_columns__not_there(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\n")
    message = ingest_error(source, tmp_path / "store", **options)
    assert f"{source}: {what}" in message


def test_columns__none_left_for_places(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "count,id\n1,2\n")
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}: no column is left for the places of a ranking" in message


def test_columns__role_that_does_not_exist(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\n")
    with pytest.raises(SettingsError, match=r"unknown column role 'paper'; choose from id, weight, group"):
        ingest(source, tmp_path / "store", columns={"paper": "a"})
