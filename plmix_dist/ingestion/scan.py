"""A first look through every part: which items there are, how many rows, whether labels are numbers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import IngestError, visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.ingestion.source_parts import FilePart, LabelKind


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
    ids: LabelKind
    groups: LabelKind
    run_ids: NDArray[np.int64]


def scan(task: ScanTask) -> Scan:
    """Read a part once for its labels, its counts, and whether ids and groups are numbers."""
    labels: set[str] = set()
    n_rows, total_weight = 0, 0.0
    ids: LabelKind = "unknown"
    groups: LabelKind = "unknown"
    run_ids: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for rows in task.part.read():
        n_rows += rows.n_rows + len(rows.failures)
        total_weight += rows.total_weight
        ids, groups = _kind(ids, rows.ids, rows.n_rows), _kind(groups, rows.groups, rows.n_rows)
        if rows.run_ids is not None:
            run_ids.append(numbered(rows.run_ids))
        if task.wants_labels:
            labels.update(str(label) for label in rows.labels.unique().to_pylist() if label is not None)
    return Scan(frozenset(labels), n_rows, total_weight, ids, groups, np.concatenate(run_ids))


def numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each label: itself where it is one, a digest of its text otherwise."""
    if labels.dtype.kind == "i":
        return labels.astype(np.int64)
    digests = (hashlib.blake2b(str(label).encode(), digest_size=8).digest() for label in labels.tolist())
    return np.frombuffer(b"".join(digests), np.int64)


def check_runs(parts: list[FilePart], scans: list[Scan]) -> None:
    """The lines of one ranking must stand together in their file: its id must not come again after others."""
    for numbers in parts_by_file(parts):
        url = parts[numbers[0]].slice.file.url
        ids = np.concatenate([scans[number].run_ids for number in numbers])
        values, counts = np.unique(ids, return_counts=True)
        twice = values[counts > 1]
        if len(twice):
            name = _name_of(int(twice[0]), [parts[number] for number in numbers])
            raise IngestError(
                f"{url}: the lines of ranking {visible(str(name))} do not stand together; sort the file by ranking id"
            )


def parts_by_file(parts: list[FilePart]) -> list[list[int]]:
    """The numbers of the parts of each file; a file that is given twice comes twice."""
    files: list[list[int]] = []
    for number, part in enumerate(parts):
        if part.slice.start == part.slice.header.body_offset:
            files.append([])
        files[-1].append(number)
    return files


def _name_of(wanted: int, parts: list[FilePart]) -> str:
    """The label that `numbered` made this number of, looked up in the source."""
    for part in parts:
        for rows in part.read():
            if rows.run_ids is not None:
                found = np.flatnonzero(numbered(rows.run_ids) == wanted)
                if len(found):
                    return str(rows.run_ids[found[0]])
    return str(wanted)


def _kind(so_far: LabelKind, labels: Any, n_rows: int) -> LabelKind:
    """The kind of labels, with another batch looked at."""
    if not n_rows or so_far == "text":
        return so_far
    if labels is None:
        return "none"
    return "number" if np.asarray(labels).dtype.kind in "iu" else "text"


def counts_by_file(parts: list[FilePart], scans: list[Scan]) -> dict[str, tuple[int, float]]:
    """Rows and total weight of each file, over all its parts."""
    return {
        parts[numbers[0]].slice.file.url: (
            sum(scans[number].n_rows for number in numbers),
            sum(scans[number].total_weight for number in numbers),
        )
        for numbers in parts_by_file(parts)
    }
