"""The scan of every part before anything is written: items, counts, kinds of labels."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.errors import IngestError, visible
from plmix_dist.formats.raw_rows import integers_if_all
from plmix_dist.interruption import check_stopped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.ingestion.source_parts import FilePart, LabelKind

# A whole number as integers_if_all takes it. At most 19 digits fit into 64 bits.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_BEGINS_NUMBERS = frozenset("-0123456789")


@dataclass(frozen=True)
class ScanTask:
    """A part to scan, and whether to collect its item labels.

    Examples
    --------
    >>> from plmix_dist.formats import ReadOptions
    >>> from plmix_dist.formats.sources import Header, Slice, SourceFile
    >>> from plmix_dist.ingestion.source_parts import FilePart
    >>> part = FilePart(Slice(SourceFile("a.csv", 100), Header(), 0, None), "wide", ReadOptions())
    >>> ScanTask(part, wants_labels=True).wants_labels
    True
    """

    part: FilePart
    wants_labels: bool


@dataclass(frozen=True)
class Scan:
    """What one part holds.

    Examples
    --------
    >>> Scan(frozenset({"tea", "coffee"}), 2, 5.0, "none", "none", np.empty(0, np.int64)).n_rows
    2
    """

    labels: frozenset[str]
    n_rows: int
    total_weight: float
    ids: LabelKind
    groups: LabelKind
    run_ids: NDArray[np.int64]


def scan(task: ScanTask) -> Scan:
    """Read a part once: its item labels, its counts, and whether ids and groups are numbers or text.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.formats import FORMATS, ReadOptions
    >>> from plmix_dist.formats.sources import find
    >>> from plmix_dist.ingestion.source_parts import FilePart
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_bytes(b"count,ordering" + bytes([10]) + b"3,tea coffee")
    >>> file, options = find(str(path)), ReadOptions()
    >>> header = FORMATS["orderings"].read_header(file, options)
    >>> part = FORMATS["orderings"].slices(file, header, options)[0]
    >>> found = scan(ScanTask(FilePart(part, "orderings", options), wants_labels=True))
    >>> sorted(found.labels), found.total_weight
    (['coffee', 'tea'], 3.0)
    """
    labels: set[str] = set()
    n_rows, total_weight = 0, 0.0
    ids: LabelKind = "unknown"
    groups: LabelKind = "unknown"
    run_ids: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for rows in task.part.read():
        check_stopped()
        n_rows += rows.n_rows + len(rows.failures)
        total_weight += rows.total_weight
        ids, groups = _kind(ids, rows.ids, rows.n_rows), _kind(groups, rows.groups, rows.n_rows)
        if rows.run_ids is not None:
            run_ids.append(numbered(rows.run_ids))
        if task.wants_labels:
            labels.update(str(label) for label in rows.labels.unique().to_pylist() if label is not None)
    return Scan(frozenset(labels), n_rows, total_weight, ids, groups, np.concatenate(run_ids))


def numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    """(n_labels,): one number per label: its value if it is written as a whole number, otherwise a digest of its text.

    Examples
    --------
    >>> numbered(np.array([7, 8])).tolist(), numbered(np.array(["7", "b"], object))[0].tolist()
    ([7, 8], 7)
    """
    if labels.dtype.kind == "i":
        return labels.astype(np.int64)
    whole = integers_if_all([str(label) for label in labels])
    if not isinstance(whole, list):
        return whole
    return np.array([_number_of(label) for label in whole], np.int64)


def _number_of(label: str) -> int:
    if label[:1] in _BEGINS_NUMBERS and _WHOLE.fullmatch(label) and -(2**63) <= int(label) < 2**63:
        return int(label)
    return int.from_bytes(hashlib.blake2b(label.encode(), digest_size=8).digest(), "little", signed=True)


def check_runs(parts: list[FilePart], scans: list[Scan]) -> None:
    """An error if the lines of a ranking are not consecutive in their file.

    Examples
    --------
    >>> check_runs([], [])
    """
    for numbers in parts_by_file(parts):
        url = parts[numbers[0]].slice.file.url
        ids = np.concatenate([scans[number].run_ids for number in numbers])
        values, counts = np.unique(ids, return_counts=True)
        twice = values[counts > 1]
        if len(twice):
            name = _name_of(int(twice[0]), [parts[number] for number in numbers])
            raise IngestError(
                f"{url}: the lines of ranking {visible(str(name))} are not consecutive; sort the file by ranking id"
            )


def parts_by_file(parts: list[FilePart]) -> list[list[int]]:
    """The numbers of the parts of each file. A file that was given twice is listed twice.

    Examples
    --------
    >>> from plmix_dist.formats import ReadOptions
    >>> from plmix_dist.formats.sources import Header, Slice, SourceFile
    >>> from plmix_dist.ingestion.source_parts import FilePart
    >>> slices = [Slice(SourceFile("a.csv", 200), Header(), start, None) for start in (0, 100)]
    >>> parts_by_file([FilePart(part, "wide", ReadOptions()) for part in slices])
    [[0, 1]]
    """
    files: list[list[int]] = []
    for number, part in enumerate(parts):
        if part.slice.start == part.slice.header.body_offset:
            files.append([])
        files[-1].append(number)
    return files


def _name_of(wanted: int, parts: list[FilePart]) -> str:
    """The label for which `numbered` gave this number, found by reading the source again."""
    for part in parts:
        for rows in part.read():
            if rows.run_ids is not None:
                found = np.flatnonzero(numbered(rows.run_ids) == wanted)
                if len(found):
                    return str(rows.run_ids[found[0]])
    return str(wanted)


def _kind(so_far: LabelKind, labels: Any, n_rows: int) -> LabelKind:
    """The kind of labels after another batch."""
    if not n_rows or so_far == "text":
        return so_far
    if labels is None:
        return "none"
    return "number" if np.asarray(labels).dtype.kind in "iu" else "text"


def counts_by_file(parts: list[FilePart], scans: list[Scan]) -> dict[str, tuple[int, float]]:
    """The number of rows and the total weight of each file, over all its parts.

    Examples
    --------
    >>> counts_by_file([], [])
    {}
    """
    return {
        parts[numbers[0]].slice.file.url: (
            sum(scans[number].n_rows for number in numbers),
            sum(scans[number].total_weight for number in numbers),
        )
        for numbers in parts_by_file(parts)
    }
