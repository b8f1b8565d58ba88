"""Choices from what was on offer, and results of races."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plmix_dist import ingest
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, rejected, row, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Two persons, two choices each; the second alternative of the last case was not on offer.
LONG = [
    ("ann", 1, "tea", 1), ("ann", 1, "mate", 0), ("ann", 1, "milk", 0),
    ("ann", 2, "tea", 0), ("ann", 2, "mate", 1), ("ann", 2, "milk", 0),
    ("bob", 3, "tea", 0), ("bob", 3, "mate", 0), ("bob", 3, "milk", 1),
    ("bob", 4, "tea", 1), ("bob", 4, "milk", 0),
]  # fmt: skip
CHOSEN = [
    row("tea", offered=("mate", "milk")),
    row("mate", offered=("tea", "milk")),
    row("milk", offered=("tea", "mate")),
    row("tea", offered=("milk",)),
]


def table(header: str, rows: Sequence[tuple[object, ...]]) -> str:
    return "\n".join([header, *(",".join(map(str, one)) for one in rows)]) + "\n"


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("person_id,case,alternative,chosen", LONG),
        ("id,chid,alt,choice", [(*one[:3], "TRUE" if one[3] else "FALSE") for one in LONG]),
        ("consumer_id,record_id,car,purchase,price", [(*one, 9.5) for one in LONG]),
    ],
)
def test_choices__one_row_per_alternative(tmp_path: Path, header: str, rows: list[tuple[object, ...]]) -> None:
    store = ingest(write(tmp_path / "a.csv", table(header, rows)), tmp_path / "store")
    assert named_rows(store) == CHOSEN
    assert labels_of(store, "groups") == ["ann", "ann", "bob", "bob"]
    assert store.manifest.history[-1]["read_as"][0]["format"] == "choices"


def test_choices__scattered_rows_are_refused(tmp_path: Path) -> None:
    rows = sorted(LONG, key=lambda one: one[2])
    source = write(tmp_path / "a.csv", table("person_id,case,alternative,chosen", rows))
    assert "sort the file by 'case'" in ingest_error(source, tmp_path / "store")


def test_choices__offered_in_one_column(tmp_path: Path) -> None:
    rows = [("tea", "tea|mate|milk"), ("mate", "tea|mate|milk"), ("milk", "tea|mate|milk"), ("tea", "tea|milk")]
    store = ingest(write(tmp_path / "a.csv", table("chosen,offered", rows)), tmp_path / "store")
    assert named_rows(store) == CHOSEN


def test_choices__booked_before_clicked_before_the_rest(tmp_path: Path) -> None:
    searches = [
        (1, "a", 1, 0, 0), (1, "b", 2, 1, 1), (1, "c", 3, 1, 0), (1, "d", 4, 0, 0),
        (2, "a", 1, 0, 0), (2, "b", 2, 0, 0),
        (3, "c", 1, 1, 1), (3, "d", 2, 0, 0),
    ]  # fmt: skip
    source = write(tmp_path / "a.csv", table("srch_id,prop_id,position,click_bool,booking_bool", searches))
    store = ingest(source, tmp_path / "store")
    assert named_rows(store) == [row("b", "c", offered=("a", "d")), row("c", offered=("d",))]
    assert [one["message"] for one in rejected(store)] == ["nothing was chosen"]


def test_choices__numbers_beside_availability(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [(1, 1, 1, 2), (2, 1, 0, 1), (3, 1, 1, 1)]
    source = write(tmp_path / "a.csv", table("ID,TRAIN_AV,CAR_AV,CHOICE", rows))
    assert "nothing says which of TRAIN, CAR each is" in ingest_error(source, tmp_path / "store")


RACE = [("Rome", "ann", "1"), ("Rome", "bob", "DNF"), ("Rome", "cyd", "2"), ("Rome", "dan", "DSQ"),
        ("Oslo", "cyd", "2"), ("Oslo", "bob", "1"), ("Oslo", "ann", "DNS"), ("Oslo", "dan", "NC")]  # fmt: skip


@pytest.mark.parametrize("header", ["race,driver,position", "Track,Driver,Pos", "event,competitor,place"])
def test_results__who_is_not_placed_is_below(tmp_path: Path, header: str) -> None:
    store = ingest(write(tmp_path / "a.csv", table(header, list(RACE))), tmp_path / "store")
    assert named_rows(store) == [row("ann", "cyd", offered=("bob", "dan")), row("bob", "cyd", offered=("dan",))]


def test_results__a_word_that_is_not_known(tmp_path: Path) -> None:
    rows = [("Rome", f"driver{n}", n) for n in range(1, 30)] + [("Rome", "zoe", "banana")]
    source = write(tmp_path / "a.csv", table("race,driver,position", list(rows)))
    assert "the position 'banana' is not understood" in ingest_error(source, tmp_path / "store")


def test_choices__persons_of_one_case_each_are_no_groups(tmp_path: Path) -> None:
    rows = [
        (item, int(item == "tea"), person, f"c{person}") for person in range(20) for item in ("tea", "mate", "milk")
    ]
    source = write(tmp_path / "a.csv", table("alternative,chosen,person,case", list(rows)))
    store = ingest(source, tmp_path / "store", format="choices")
    assert store.label_kind("groups") == "none"
    assert store.n_rankings == 20


def test_choices__persons_who_come_again_later_are_no_groups(tmp_path: Path) -> None:
    # The rows of a group stand together. Here ann answers, then bob, then ann again.
    rows = [(person, case, item, int(item == "tea")) for case, person in enumerate(("ann", "ann", "bob", "ann") * 3)
            for item in ("tea", "mate", "milk")]  # fmt: skip
    store = ingest(write(tmp_path / "a.csv", table("person_id,case,alternative,chosen", rows)), tmp_path / "store")
    assert store.label_kind("groups") == "none"
    assert store.n_rankings == 12
