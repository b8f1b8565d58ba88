"""A first look through every part: which items there are, how many rows, whether labels are numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from plmix_dist.ingestion.parts import FilePart


@dataclass(frozen=True)
class ScanTask:
    """A part to look through, and whether its labels are wanted."""

    part: FilePart
    wants_labels: bool


@dataclass(frozen=True)
class Scan:
    """What one part holds, found before anything is written."""

    labels: frozenset[str]
    n_rows: int
    total_weight: float
    text_ids: bool
    text_groups: bool


def scan(task: ScanTask) -> Scan:
    """Read a part once for its labels, its counts, and whether ids and groups are numbers."""
    labels: set[str] = set()
    n_rows, total_weight = 0, 0.0
    text_ids = text_groups = False
    for rows in task.part.read():
        n_rows += rows.n_rows + len(rows.failures)
        total_weight += rows.total_weight
        text_ids = text_ids or _is_text(rows.ids)
        text_groups = text_groups or _is_text(rows.groups)
        if task.wants_labels:
            labels.update(str(label) for label in rows.labels.unique().to_pylist() if label is not None)
    return Scan(frozenset(labels), n_rows, total_weight, text_ids, text_groups)


def _is_text(labels: Any) -> bool:
    return labels is not None and np.asarray(labels).dtype.kind not in "iu" and len(labels) > 0


def counts_by_file(parts: list[FilePart], scans: list[Scan]) -> dict[str, tuple[int, float]]:
    """Rows and total weight of each file, over all its parts."""
    together: dict[str, tuple[int, float]] = {}
    for part, found in zip(parts, scans, strict=True):
        n_rows, weight = together.get(part.slice.file.url, (0, 0.0))
        together[part.slice.file.url] = (n_rows + found.n_rows, weight + found.total_weight)
    return together
