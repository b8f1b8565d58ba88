"""Slices of text files tear neither rankings nor groups."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest
from tests.helpers.ingest_helpers import cut_small, ingest_error, labels_of, named_rows, rejected, row, text_of, write

if TYPE_CHECKING:
    from pathlib import Path


# --- slices ----------------------------------------------------------------------------------------------

MENU = ("tea", "mate", "milk", "water", "juice")


def random_orders(count: int) -> list[tuple[str, ...]]:
    rng = random.Random(7)
    return [tuple(rng.sample(MENU, rng.randint(2, 5))) for _ in range(count)]


@pytest.mark.parametrize("size", [1, 200])
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_slices__tear_neither_rankings_nor_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, size: int
) -> None:
    cut_small(monkeypatch, size)
    orders = random_orders(24)
    groups = [f"g{number // 3}" for number in range(24)]
    source = write(tmp_path / "a.csv", text_of(form, orders, groups))
    store = ingest(source, tmp_path / "store", unranked="below", item_names=MENU)
    assert store.n_partitions > 2
    assert named_rows(store) == [row(*order, unranked="absent" if len(order) == 5 else "below") for order in orders]
    assert labels_of(store, "ids") == list(range(24))
    seen = [set().union(*(block.groups.tolist() for block in store.partition(n))) for n in range(store.n_partitions)]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 8


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_slices__long_without_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    cut_small(monkeypatch)
    orders = random_orders(30)
    lines = [f"{n},{x},{r}" for n, order in enumerate(orders) for r, x in enumerate(order)]
    source = write(tmp_path / "a.csv", ending.join(["id,item,rank", *lines, ""]))
    store = ingest(source, tmp_path / "store", unranked="absent")
    assert store.n_partitions > 5
    assert [ranking.ordered for ranking in named_rows(store)] == [tuple((x,) for x in o) for o in orders]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: [*lines[:12], "", "", *lines[12:]],
        lambda lines: [f" {line}" if n % 3 else line for n, line in enumerate(lines)],
    ],
    ids=["blank lines", "spaces"],
)
def test_slices__long_where_lines_look_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    # Blank lines and spaces have no meaning, also where a file is cut into slices.
    cut_small(monkeypatch, 16)
    lines = [f"{n},{x},{r}" for n in range(6) for r, x in enumerate(MENU)]
    source = write(tmp_path / "a.csv", "\n".join(["id,item,rank", *spoil(lines)]) + "\n")
    store = ingest(source, tmp_path / "store")
    assert named_rows(store) == [row(*MENU)] * 6


@pytest.mark.promise(20)
@pytest.mark.parametrize("form", ["orderings", "wide", "long"])
def test_slices__line_numbers_of_bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    cut_small(monkeypatch)
    orders: list[tuple[str, ...]] = [MENU] * 16
    for bad in (5, 13):
        orders[bad] = ("tea", "mate", "milk", "tea", "water")
    source = write(tmp_path / "a.csv", text_of(form, orders, [f"g{n}" for n in range(16)]))
    store = ingest(source, tmp_path / "store", on_error="drop", most_dropped=1.0)
    lines_each = 5 if form == "long" else 1
    assert [bad["line"] for bad in rejected(store)] == [2 + 5 * lines_each, 2 + 13 * lines_each]
    assert {bad["item"] for bad in rejected(store)} == {"tea"}
    assert store.manifest.history[-1]["rejected"] == {"duplicate-item": 2}
    message = ingest_error(source, tmp_path / "other")
    assert f"{source}, line " in message
    assert "item tea is listed twice" in message


def test_slices__group_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    groups = [f"g{number // 4}" for number in range(20)]
    groups[19] = "g2"
    source = write(tmp_path / "a.csv", text_of("wide", [MENU] * 20, groups))
    message = ingest_error(source, tmp_path / "store")
    assert "the rankings of group g2 are not consecutive" in message
