"""Benchmarks run in small, so that they do not rot."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import common
from benchmarks.__main__ import NAMES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", NAMES)
def test_benchmark__runs_in_small(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    rows = importlib.import_module(f"benchmarks.{name}").run(tiny=True)
    assert rows
    assert np.isfinite(
        [value for row in rows for value in row.values() if isinstance(value, int | float)]
    ).all()
    assert list(tmp_path.glob("*.json"))
