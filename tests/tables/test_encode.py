"""Labels of items: which are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plmix_dist import ingest
from plmix_dist.errors import IngestError
from plmix_dist.store.partition import RejectedRows
from plmix_dist.tables.encode import LONGEST_LABEL, dispose, label_problem
from plmix_dist.tables.rows import Failure
from tests.helpers.ingest_helpers import ingest_error, named_rows, row, text_of, write

if TYPE_CHECKING:
    from pathlib import Path


def test_label__line_break() -> None:
    assert "a line break" in str(label_problem("tea\n"))


@pytest.mark.parametrize("sign", [" ", "~", "\xa0", "é", "\x00", "\x1f", "\x7f", "\x80", "\x9f"])
def test_label__signs_that_are_allowed(sign: str) -> None:
    assert label_problem(f"tea{sign}") is None
    assert label_problem("a" * LONGEST_LABEL) is None
    assert "longer than" in str(label_problem("a" * (LONGEST_LABEL + 1)))


MENU = ("tea", "mate", "milk", "water", "juice")


# --- names of items --------------------------------------------------------------------------------------


def test_names__numbers_by_value_then_words(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "a,b,c,d,e\n10,tea,9,ale,-2\n")
    store = ingest(source, tmp_path / "store")
    assert store.item_names == ("-2", "9", "10", "ale", "tea")


@pytest.mark.promise(35)
@pytest.mark.parametrize("label", ["te\x1b[31ma", "te\x9ba"])
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_names__control_characters_are_kept_and_shown_escaped(tmp_path: Path, form: str, label: str) -> None:
    text = text_of(form, [(label, *MENU[1:]), (*MENU[1:], label)], ["g", "h"])
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert sorted(store.item_names) == sorted([*MENU[1:], label])
    source = write(tmp_path / "b.csv", text_of(form, [(label, *MENU[1:]), (label, *MENU[1:4], label)], ["g", "h"]))
    message = ingest_error(source, tmp_path / "other")
    assert f"{source}, line {7 if form == 'long' else 3}: item {label!r} is listed twice".replace("'", "") in message
    assert label not in message


@pytest.mark.promise(34)
def test_names__of_absurd_length(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", f"first,second\ntea,mate\ntea,{'x' * 100_001}\n")
    message = ingest_error(source, tmp_path / "store")
    assert f"{source}, line 3: item name 'xxx" in message
    assert "is longer than 100000 characters" in message
    assert len(message) < 500 + len(str(source))


def test_names__quoted_field_over_two_lines(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", 'first,second\ntea,mate\n"green\ntea",mate\n')
    assert f"{source}, line 3: " in ingest_error(source, tmp_path / "store", unranked="below")


@pytest.mark.parametrize(
    ("n_bad", "n_good", "offered"), [(3, 5, True), (4, 60, False), (4, 100, True), (30, 100, False)]
)
def test_bad_rows__drop_is_offered_for_single_rows(tmp_path: Path, n_bad: int, n_good: int, offered: bool) -> None:
    lines = ["first,second", *["tea,mate", "mate,tea"] * n_good, *["tea,tea"] * n_bad]
    source = write(tmp_path / "a.csv", "\n".join(lines[: 1 + n_good] + lines[-n_bad:]) + "\n")
    message = ingest_error(source, tmp_path / "store")
    assert ("--on-error drop" in message) == offered
    assert (f"{n_bad} of {n_good + n_bad} rows here are bad for one reason (duplicate-item)" in message) != offered


def test_slate__says_itself_that_others_were_not_on_offer(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "ordering\ntea | mate\nmilk\n")
    store = ingest(source, tmp_path / "store", format="orderings", unranked="below")
    assert named_rows(store) == [row("tea", offered=("mate",)), row("milk", unranked="below")]


def test_bad_rows__those_left_out_on_purpose_are_no_reason() -> None:
    left_out = [Failure(line, "zero-count", "the count is 0", wrong=False) for line in range(2, 60)]
    with pytest.raises(IngestError, match=r"line 60: too short; correct the file, or choose --on-error drop"):
        dispose([*left_out, Failure(60, "syntax", "too short")], RejectedRows(), "raise", "a.soc", "line", 60)
