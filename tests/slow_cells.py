"""A cell of an experiment that takes too long; a module of its own, so that another process imports nothing else."""

from __future__ import annotations

import time
from typing import Any


def wait(cell: dict[str, Any]) -> dict[str, Any]:
    if cell["seconds"]:
        time.sleep(600)
    return {"x": 1.0}
