"""What each stage of a start cost: seconds, passes over rows, and memory."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stages:
    """Records of the stages that were run, in order.

    Examples
    --------
    >>> stages = Stages()
    >>> with stages.stage("sample", passes=1):
    ...     pass
    >>> stages.records[0]["stage"], stages.records[0]["passes"]
    ('sample', 1)
    """

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    @contextmanager
    def stage(self, name: str, passes: float = 0, **details: Any) -> Iterator[dict[str, Any]]:
        """Note a stage; `passes` counts passes over all rows. The record may be added to while it is open."""
        record: dict[str, Any] = {"stage": name, "passes": passes, **details}
        begun = time.perf_counter()
        yield record
        record["seconds"] = time.perf_counter() - begun
        record["peak_memory"] = peak_memory()
        self.records.append(record)


def peak_memory() -> int:
    """Bytes: the highest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
