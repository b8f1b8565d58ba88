"""Battles of pairs, with golden values of other tools where ../shared is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plmix_dist as plm

_GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "models.json"
ELO = 400 / np.log(10)


def golden(name: str) -> dict[str, Any]:
    """An entry of the golden values, with what its code defines; the test is skipped where the file is absent."""
    if not _GOLDEN.exists():
        pytest.skip(f"{_GOLDEN} is absent: golden values of other tools are not part of the repository")
    entry = json.loads(_GOLDEN.read_text())[name]
    made: dict[str, Any] = {"np": np}
    exec(entry.get("code", ""), made)
    return {**made, **entry["values"]}


def battles(left: Any, right: Any, result: Any, persons: Any = None, n_items: int | None = None) -> plm.RankingBlock:
    """A block of pairs from the left items, the right items, and what the left one got: 1, 0 or 0.5 for a tie."""
    left, right, result = (np.asarray(each).ravel() for each in (left, right, result))
    lost = result == 0
    items = np.stack([np.where(lost, right, left), np.where(lost, left, right)], axis=1).ravel()
    tied = np.stack([np.zeros(len(left), bool), result == 0.5], axis=1).ravel()
    count = n_items or int(items.max()) + 1
    two = np.full(len(left), 2, np.uint8)
    return plm.RankingBlock(
        items.astype(np.uint8),
        two,
        two.copy(),
        np.zeros(len(left), bool),
        count,
        tied=tied if tied.any() else None,
        groups=None if persons is None else np.asarray(persons).ravel(),
    )


def arena_battles() -> tuple[plm.RankingBlock, dict[str, Any]]:
    """The battles of the golden leaderboards, and their values."""
    found = golden("2_leaderboard_plain")
    result = np.select([found["win"] == "model_a", found["win"] == "tie"], [1.0, 0.5], 0.0)
    return battles(found["a"], found["b"], result), found
