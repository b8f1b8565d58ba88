"""Cells that take too long or end their process; a module of its own, so that another process imports little else."""

from __future__ import annotations

import os
import time
from typing import Any


def wait(cell: dict[str, Any]) -> dict[str, Any]:
    if cell["seconds"]:
        time.sleep(600)
    return {"x": 1.0}


def end(cell: dict[str, Any]) -> dict[str, Any]:
    """End the process with the status that the cell names, as a system that runs out of memory does, if not 0."""
    if cell["status"]:
        os._exit(cell["status"])
    return {"x": 1.0}


def get_warm() -> None:
    """What a process does before it measures."""
    os.environ["PLMIX_TEST_WARM"] = "yes"


def is_warm(cell: dict[str, Any]) -> dict[str, Any]:
    """Whether it was done."""
    del cell
    return {"warm": "PLMIX_TEST_WARM" in os.environ}
