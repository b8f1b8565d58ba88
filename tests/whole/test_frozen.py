"""Results stay as they were frozen: fits to the last bit, stores, a report, every `--help`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers import frozen

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = json.loads(frozen.FILE.read_text())


@pytest.mark.parametrize("name", sorted(frozen.FITS))
def test_fit__is_as_frozen(name: str) -> None:
    known, found = KNOWN["fits"][name], frozen.fit_entry(name)
    assert found["sums"] == pytest.approx(known["sums"], rel=1e-6)
    assert found["digest"] == known["digests"].get(frozen.machine(), found["digest"])


def test_stores__are_as_frozen(tmp_path: Path) -> None:
    assert frozen.store_entries(tmp_path) == KNOWN["stores"]


def test_report__is_as_frozen(tmp_path: Path) -> None:
    assert frozen.report_text(tmp_path).splitlines() == KNOWN["report"]


def test_help__of_every_verb_is_as_frozen() -> None:
    found = {name: text.splitlines() for name, text in frozen.help_texts().items()}
    assert sorted(found) == sorted(KNOWN["help"])
    for name, lines in found.items():
        assert lines == KNOWN["help"][name]
