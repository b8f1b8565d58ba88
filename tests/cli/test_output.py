"""Output: control characters are escaped, numbers and names are shown as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plmix_dist.cli.output import _printable, few, number, size
from tests.helpers.ingest_helpers import printed_json, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.common import Said


@pytest.mark.promise(35)
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\x9b31mb", "a\\x9b31mb"),
        ("a\rb", "a\\rb"),
        ("a\x00\x07\x7fb", "a\\x00\\x07\\x7fb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("naïve 茶 🍵", "naïve 茶 🍵"),
        ("C:\\new", "C:\\new"),
    ],
)
def test_printable__control_characters_are_made_visible(text: str, shown: str) -> None:
    assert _printable(text) == shown


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234567, "1,234,567"), (2.0, "2"), (1234.5, "1,234.5"), (0.125, "0.125")]
)
def test_number__thousands_apart(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (5e9, "5 GB"), (2e13, "20 TB")],
)
def test_size__in_units_people_read(n_bytes: float, text: str) -> None:
    assert size(n_bytes) == text


def test_few__says_how_many_there_are() -> None:
    assert few([]) == "none"
    assert few(["a", "b"]) == "a, b"
    assert few(list(range(12)), most=3) == "0, 1, 2, ... (12 in all)"


def test_json__names_of_any_script(tmp_path: Path, plmix: Callable[..., Said]) -> None:
    source = write(tmp_path / "a.csv", 'p1,p2,p3\n茶,"quo""ted",<b>\n')
    plmix("ingest", source, tmp_path / "store")
    assert printed_json(plmix("info", tmp_path / "store", "--json").out)["item_names"] == ["<b>", 'quo"ted', "茶"]
