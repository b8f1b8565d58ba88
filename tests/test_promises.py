"""Every promise of the documentation has a test that is marked with it, and every mark a promise."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_promises__each_has_a_test_and_each_mark_a_promise() -> None:
    promised = set(re.findall(r"^- (\d+):", (ROOT / "docs/promises.md").read_text(), re.MULTILINE))
    marked = {
        number
        for path in (ROOT / "tests").glob("test_*.py")
        for number in re.findall(r"mark\.promise\((\d+)\)", path.read_text())
    }
    assert marked == promised
