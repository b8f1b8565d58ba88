"""Exported text: names that come back, files of item names beside it, and what a form cannot hold."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import Ranking, RankingBlock, export, ingest
from plmix_dist.errors import IngestError
from tests.helpers.ingest_helpers import ingest_error, write
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from pathlib import Path

    from plmix_dist.store import RankingStore


def again(store: RankingStore, target: Path, form: str) -> RankingStore:
    """The store after export to text and ingest."""
    export(store, target, format=form)
    return ingest(target, target.with_suffix(".store"))


STRANGE = {
    "signs": (
        *("=cmd()", "+x", "@sum", "-tea", "'quoted", "'", "''", "'=x", "''=x", "tea'"),
        *("tea, green", 'the "best"', "{tea}", "a|b", "a>b", "<script>", "&amp;", "%s", "{0}", "\\n"),
    ),
    "words": (
        *("green tea", "two  spaces", "nb\xa0sp", "thin\u2009sp", "茶", "кофе", "شاي", "🍵", "e\u0301"),
        *("007", "7", "1e3", "+7", "-5", "none", "None", "null", "true"),
    ),
    "missing": ("NaN", "NA", "-1", "nan", "tea"),
    "surrounded": (" tea", "tea ", "\u2003mate", "milk\xa0", "\ufeffwater"),
}


@pytest.mark.promise(19)
@pytest.mark.parametrize("names", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_names__strange_ones_come_back(tmp_path: Path, form: str, names: tuple[str, ...]) -> None:
    order = list(range(len(names)))
    block = RankingBlock.from_array([order, order[::-1]])
    store = write_store(tmp_path / "store", [[block]], item_names=list(names))
    try:
        second = again(store, tmp_path / "a.csv", form)
    except IngestError as error:
        # If a format cannot hold a name, the error names one that can.
        assert "cannot write" in str(error)  # noqa: PT017
        assert "instead" in str(error)  # noqa: PT017
        return
    assert second.item_names == names
    assert second.block().equals(block.replace(ids=second.block().ids))


@pytest.mark.promise(35)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_names__no_field_is_a_formula(tmp_path: Path, form: str) -> None:
    names = ["=cmd()", "+x", "@sum", "-tea", "=1+1|' /C calc'!A0"]
    # Each name is the first of one ordering, because a spreadsheet looks at the first character of a cell.
    block = RankingBlock.from_array([np.roll(range(5), shift).tolist() for shift in range(5)])
    store = write_store(tmp_path / "store", [[block]], item_names=names)
    export(store, tmp_path / "a.csv", format=form)
    with (tmp_path / "a.csv").open(newline="") as file:
        fields = [field for line in csv.reader(file) for field in line]
    for name in names:
        assert [field for field in fields if name in field]
    assert not [field for field in fields if field.startswith(("=", "+", "@", "-"))]


# --- files of item names beside the text -----------------------------------------------------------------


@pytest.mark.promise(19)
def test_items_beside__names_that_no_row_lists(tmp_path: Path) -> None:
    block = RankingBlock.from_rows([row_of(0, 2), row_of(2, 0)], n_items=4)
    store = write_store(tmp_path / "store", [[block]], item_names=["tea", "ale", "mate", "milk"])
    export(store, tmp_path / "a.csv")
    assert (tmp_path / "a.csv.items").read_text() == "tea\nale\nmate\nmilk\n"
    second = ingest(tmp_path / "a.csv", tmp_path / "again", unranked="absent")
    assert second.item_names == store.item_names
    assert second.block().equals(block)


@pytest.mark.promise(19)
def test_items_beside__none_left_over_from_an_earlier_export(tmp_path: Path) -> None:
    # Item names left by another export would be read as the names of this file.
    first = write_store(tmp_path / "first", [[RankingBlock.from_array([[0, 1, 2]])]], item_names=["tea", "mate", "ale"])
    second = write_store(
        tmp_path / "second", [[RankingBlock.from_array([[1, 0, 2]])]], item_names=["ale", "mate", "tea"]
    )
    export(first, tmp_path / "a.csv")
    export(second, tmp_path / "a.csv", overwrite=True)
    assert ingest(tmp_path / "a.csv", tmp_path / "again").item_names == ("ale", "mate", "tea")


def test_items_beside__item_that_it_does_not_name(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\ntea,milk\n")
    write(tmp_path / "a.csv.items", "mate\ntea\n")
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 3: item 'milk' is not one of the 2 items" in message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tea\nmate\ntea\n", "the item name 'tea' occurs twice"),
        ("tea\n", "a ranking needs at least two items, but there are 1"),
        (f"tea\n{'x' * 100_001}\n", "item name 'xxx"),
    ],
)
def test_items_beside__not_fit_to_be_names(tmp_path: Path, text: str, what: str) -> None:
    source = write(tmp_path / "a.csv", "first,second\ntea,mate\n")
    write(tmp_path / "a.csv.items", text)
    assert f"{source}.items: {what}" in ingest_error(source, tmp_path / "store")


# --- what a form cannot hold -----------------------------------------------------------------------------


def row_of(*items: int, unranked: Any = "absent") -> Ranking:
    return Ranking(tuple((item,) for item in items), (), unranked, 1.0)


@pytest.mark.promise(19)
@pytest.mark.parametrize(
    "ranking",
    [Ranking(((0, 1), (2,)), (), "absent", 1.0), Ranking(((0,),), (1, 2), "absent", 1.0)],
    ids=["ties", "slate"],
)
def test_wide__refuses_ties_and_slates(tmp_path: Path, ranking: Ranking) -> None:
    store = write_store(tmp_path / "store", [[RankingBlock.from_rows([ranking], n_items=3)]])
    target = tmp_path / "a.csv"
    with pytest.raises(IngestError, match=r"a\.csv: ties and slates .* export to orderings, long or Parquet instead"):
        export(store, target, format="wide")
    assert not target.exists()


@pytest.mark.promise(19)
@pytest.mark.parametrize("name", ["NA", "-1", "nan"])
def test_wide__refuses_names_that_mean_missing(tmp_path: Path, name: str) -> None:
    block = RankingBlock.from_array([[0, 1]])
    store = write_store(tmp_path / "store", [[block]], item_names=[name, "tea"])
    with pytest.raises(
        IngestError, match=f"an item is called '{name}', which is an empty place in a table; export to ord"
    ):
        export(store, tmp_path / "a.csv", format="wide")


@pytest.mark.promise(19)
@pytest.mark.parametrize("ids", [["a", "a"], ["a", "b", "a"]], ids=["side by side", "apart"])
def test_long__refuses_an_id_that_two_rankings_have(tmp_path: Path, ids: list[str]) -> None:
    # Their lines would be read back as those of one ranking.
    rows = [row_of(0, 1), row_of(1, 0), row_of(0, 1)][: len(ids)]
    store = write_store(tmp_path / "store", [[RankingBlock.from_rows(rows, n_items=2, ids=ids)]])
    with pytest.raises(IngestError, match=r"cannot write .*a\.csv"):
        export(store, tmp_path / "a.csv", format="long")


@pytest.mark.promise(35)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
@pytest.mark.parametrize("label", ["a\nb", "a\rb", "a\r\n=cmd()"])
def test_labels__line_ends_never_make_lines(tmp_path: Path, form: str, label: str) -> None:
    block = RankingBlock.from_rows([row_of(0, 1), row_of(1, 0)], n_items=2, ids=[label, "c"])
    store = write_store(tmp_path / "store", [[block]], item_names=["mate", "tea"])
    try:
        second = again(store, tmp_path / "a.csv", form)
    except IngestError as error:
        assert "cannot write" in str(error)  # noqa: PT017
    else:
        assert second.block().equals(block)
