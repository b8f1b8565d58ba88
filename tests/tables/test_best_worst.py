"""The best and the worst of a few items: MaxDiff and tricot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plmix_dist import ingest
from tests.helpers.ingest_helpers import ingest_error, labels_of, named_rows, row, write

if TYPE_CHECKING:
    from pathlib import Path

WIDE = [row("milk", ("tea", "mate"), "water"), row("tea", ("mate", "milk"), "water")]


@pytest.mark.parametrize(
    "text",
    [
        "pid,Item 1,Item 2,Item 3,Item 4,Best,Worst\n1,tea,mate,milk,water,milk,water\n1,water,tea,mate,milk,tea,water",
        "respondent,item_a,item_b,item_c,item_d,best,worst\n1,tea,mate,milk,water,C,D\n1,water,tea,mate,milk,B,A\n",
        "respondent,option1,option2,option3,option4,most,least\n1,tea,mate,milk,water,3,4\n1,water,tea,mate,milk,2,1\n",
    ],
)
def test_wide__by_name_letter_and_number(tmp_path: Path, text: str) -> None:
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert named_rows(store) == WIDE
    assert labels_of(store, "groups") == [1, 1]


TRICOT = (
    "variety_a,variety_b,variety_c,yield_best,yield_worst,taste_pos,taste_neg\n"
    "tea,mate,milk,A,C,B,A\nmilk,tea,water,B,A,C,A\n"
)


def test_tricot__a_trait_is_chosen(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", TRICOT)
    assert "several traits (yield, taste): say --trait NAME" in ingest_error(source, tmp_path / "store")
    store = ingest(source, tmp_path / "store", trait="taste")
    assert named_rows(store) == [row("mate", "milk", "tea"), row("water", "tea", "milk")]
    assert "unknown trait 'smell'" in ingest_error(source, tmp_path / "other", trait="smell")


def long_table(values: str) -> str:
    items = ("tea", "mate", "milk", "water") * 2
    blocks = [1] * 4 + [2] * 4
    lines = [f"7,{block},{item},{value}" for block, item, value in zip(blocks, items, values.split(), strict=True)]
    return "\n".join(["id,block,label,value", *lines]) + "\n"


def test_long__one_zero_and_minus_one(tmp_path: Path) -> None:
    store = ingest(write(tmp_path / "a.csv", long_table("0 0 1 -1 1 0 0 -1")), tmp_path / "store")
    assert named_rows(store) == WIDE
    assert labels_of(store, "ids") == ["7/1", "7/2"]
    assert labels_of(store, "groups") == [7, 7]


def test_long__two_best_in_a_block(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", long_table("1 0 1 -1 1 0 0 -1"))
    assert "expected one best and one worst item" in ingest_error(source, tmp_path / "store")


def test_positions__without_their_design(tmp_path: Path) -> None:
    source = write(tmp_path / "a.csv", "ID,B1,W1,B2,W2\n1,1,2,1,4\n2,3,1,2,4\n3,1,3,4,2\n")
    assert "a design that is not in the file" in ingest_error(source, tmp_path / "store")


def test_rows__the_best_is_not_shown(tmp_path: Path) -> None:
    text = "item_1,item_2,item_3,best,worst\n" + "tea,mate,milk,tea,milk\n" * 30 + "tea,mate,milk,water,tea\n"
    message = ingest_error(write(tmp_path / "a.csv", text), tmp_path / "store")
    assert "line 32: the best is 'water', which is not one of the items shown" in message
