"""Job files, and the summary of a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]


def write_job(folder: Path, task: str = "fit", **tables: dict[str, Any]) -> Path:
    """A job file with what every job needs, and more."""
    given: dict[str, dict[str, Any]] = {
        "data": {"store": "ballots"},
        "model": {"components": 2, "seed": 1},
        "outputs": {"folder": "out"},
    }
    for name, table in tables.items():
        given[name] = given.get(name, {}) | table
    lines = [f'task = "{task}"']
    for name, table in given.items():
        # A JSON value of these kinds is a TOML value too.
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path = folder / "job.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out/summary.json").read_text())
    return found
