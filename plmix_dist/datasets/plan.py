"""Planning an ingest: the files, their format, their parts, and the items."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from plmix_dist.cluster.executor import Executor, run_all
from plmix_dist.errors import IngestError, SettingsError, visible
from plmix_dist.passes import check_memory
from plmix_dist.passes.dask_leaves import RowBlock, is_dask_array, row_blocks
from plmix_dist.rankings import check_numbered_from_zero
from plmix_dist.settings import numbers, whole_number
from plmix_dist.store import RankingStore, RejectedRows
from plmix_dist.tables import registry
from plmix_dist.tables.cells import check_array, describe_array, read_array
from plmix_dist.tables.encode import Encoder, checked_names, label_problem, natural_order, read_names, refuse_words
from plmix_dist.tables.format import Column, ReadOptions, places_of
from plmix_dist.tables.frames import Frame, Names
from plmix_dist.tables.rows import RawRows, integers_if_all
from plmix_dist.tables.sources import Header, Slice, SourceFile, find, find_sources, source_digest
from plmix_dist.tables.text import SUFFIXES
from plmix_dist.tables.words import MISSING
from plmix_dist.tables.write import exists, items_beside
from plmix_dist.threads import check_stopped

# Parts of files or arrays. Each part becomes one partition.

_LabelKind = Literal["none", "number", "text", "unknown"]


@dataclass(frozen=True)
class FilePart:
    """A slice of a file, and how to read it."""

    slice: Slice
    format: str

    def read(self) -> Iterator[RawRows]:
        """Its rows, in batches."""
        return registry.read_slice(registry.format_named(self.format), self.slice)

    def begin(self) -> Iterator[RawRows]:
        """The rows of its first lines."""
        return registry.read_slice(registry.format_named(self.format), self.slice, n_batches=1)


@dataclass(frozen=True)
class _MergedPart(FilePart):
    """Rows that were merged while they were scanned, and are so few that they need not be read again."""

    rows: list[RawRows]

    def read(self) -> Iterator[RawRows]:
        """Its rows, as they were scanned."""
        return iter(self.rows)


@dataclass(frozen=True)
class _FramePart(FilePart):
    """Rows of a table in memory, with types by column."""

    columns: dict[int, pa.Array]

    def read(self) -> Iterator[RawRows]:
        """Its rows, in one batch."""
        part, form = self.slice, registry.format_named(self.format)
        return registry.read_columns(form, part.header, self.columns, part.start)

    begin = read


@dataclass(frozen=True)
class ArrayPart:
    """Rows of an array from `first_row`. The rows themselves are the input of a task."""

    first_row: int
    weights: NDArray[np.float64] | None
    n_rows: int | None = None

    def read(self, rows: NDArray[Any]) -> Iterator[RawRows]:
        """Its rows, in one batch; an error if there are more or fewer than `n_rows`."""
        if self.n_rows is not None and (rows.ndim != 2 or len(rows) != self.n_rows):
            raise IngestError(
                f"the Dask array promises {self.n_rows:,} rows from row {self.first_row:,} on, but computing them gave "
                f"an array of shape {rows.shape}; if its chunks have other sizes than it says, call "
                "compute_chunk_sizes() first"
            )
        yield read_array(rows, self.weights, self.first_row)


@dataclass(frozen=True)
class IngestPlan:
    """What to read: all items, and the parts that become partitions."""

    item_names: Names  # All items, in order
    parts: list[FilePart] | list[ArrayPart]  # One per partition
    inputs: list[Any] | None  # The rows of each part of an array; None for files
    sources: list[dict[str, Any]]  # Records that identify the contents
    paths: list[str] = field(default_factory=list)  # Where the sources are
    # The number of rows and the total weight found in each file
    counts: dict[str, tuple[int, float]] = field(default_factory=dict)
    ids: _LabelKind = "none"  # Of what kind these labels are
    groups: _LabelKind = "none"
    # How each table was understood, and what else the user should know
    read_as: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_ARRAY_PARTITION_ENTRIES = 1 << 22


def is_array(source: Any) -> bool:
    """Whether the source is a NumPy or Dask array."""
    return isinstance(source, np.ndarray) or is_dask_array(source)


def known_names(item_names: Sequence[str] | None, target: RankingStore | None) -> Names | None:
    """The items, if they are known before anything is read: those given, or those of the store to add to."""
    given = None if item_names is None else checked_names(list(item_names), "item_names")
    if target is None:
        return given
    if given is not None and given != target.item_names:
        raise SettingsError("a store that is appended to keeps its own items; leave out item_names")
    return target.item_names


def plan_array(
    source: Any, weights: ArrayLike | None, n_items: int | None, known: Names | None, runner: Executor
) -> IngestPlan:
    """The plan for an array: parts of a few megabytes, or the chunks of a Dask array."""
    check_array(source)
    blocks = row_blocks(source, _ARRAY_PARTITION_ENTRIES)
    inputs = [block.data for block in blocks]
    column = None if weights is None else numbers("weights", weights)
    if column is not None and column.shape != (len(source),):
        raise IngestError(f"expected {len(source)} weights, one per row, but got shape {column.shape}")
    if known is None:
        if n_items is None:
            found = run_all(runner, _item_range, blocks, "largest-item", inputs=inputs)
            n_items = 1 + max((largest for _, largest in found), default=-1)
            smallest = min((smallest for smallest, _ in found if smallest >= 0), default=-1)
            check_numbered_from_zero(smallest, n_items - 1, IngestError)
        check_memory(whole_number("n_items", n_items))
        known = checked_names([str(number) for number in range(n_items)], "the array")
    elif n_items is not None and n_items != len(known):
        raise SettingsError(f"n_items is {n_items}, but there are {len(known)} item names")
    if not is_dask_array(source):
        lookup = {str(number): number for number in range(len(known))}
        encoder = Encoder("array", known, lookup, "below", complete=False, on_error="drop", unit="row")
        _require_a_row("the array", ((encoder, read_array(one.data, None, one.first_row)) for one in blocks))
    cut = [None if column is None else column[one.first_row : one.first_row + one.n_rows] for one in blocks]
    parts = [ArrayPart(one.first_row, some, one.n_rows) for one, some in zip(blocks, cut, strict=True)]
    return IngestPlan(known, parts, inputs, [describe_array(source, column, by_name=is_dask_array(source))])


def _item_range(_: RowBlock, rows: NDArray[Any]) -> tuple[int, int]:
    """The smallest and the largest item; -1 if no row has one."""
    listed = rows[rows >= 0]
    return (int(listed.min()), int(listed.max())) if listed.size else (-1, -1)


def plan_frame(
    frame: Frame, format_name: str, options: ReadOptions, known: Names | None, runner: Executor
) -> IngestPlan:
    """The plan for a table in memory, which is read as a file with types is: parts of a few megabytes."""
    opened = registry.open_frame(frame, format_name, options, container="parquet")
    batch = pa.RecordBatch.from_arrays(list(opened.columns.values()), names=[str(place) for place in opened.columns])
    file = SourceFile("the table", batch.nbytes)
    cuts = _cuts(opened, max(1, _ARRAY_PARTITION_ENTRIES // max(1, batch.num_columns)))
    parts: list[FilePart] = [
        _FramePart(
            Slice(file, opened.header, start, stop),
            opened.form.name,
            {place: column[start:stop] for place, column in opened.columns.items()},
        )
        for start, stop in itertools.pairwise(cuts)
    ]
    digest = hashlib.sha256(batch.serialize()).hexdigest()
    source = {"name": "table", "size": file.size, "format": opened.form.name, "metadata": {}, "sha256": digest}
    _require_a_row(file.url, _trials(parts))
    return _plan([file], [source], parts, {file.url: opened.header}, known, runner)


def _cuts(opened: registry.OpenedFrame, most: int) -> list[int]:
    """Where the parts of a table begin and end: after `most` rows, but never between rows of one ranking or person."""
    n_rows = len(opened.columns[0])
    if (column := registry.together(opened.form, opened.header)) is None:
        return [*range(0, n_rows, most), n_rows]
    labels = Column(opened.columns[column]).labels()
    changes = np.append(np.flatnonzero(labels[1:] != labels[:-1]) + 1, n_rows)
    return sorted({0, n_rows, *changes[np.searchsorted(changes, np.arange(most, n_rows, most))].tolist()})


def plan_files(
    source: Any,
    format_name: str,
    options: ReadOptions,
    known: Names | None,
    runner: Executor,
    target: RankingStore | None = None,
) -> IngestPlan:
    """The plan for files: their slices, and the items named in headers, beside the files, or in the rows.

    The contents of a file are read once into a store, however many files have them.
    """
    paths = find_sources([source] if isinstance(source, str) or not hasattr(source, "__iter__") else list(source))
    files = registry.gathered([find(path) for path in paths])
    paths = [file.url for file in files]
    parts: list[FilePart] = []
    sources: list[dict[str, Any]] = []
    headers: dict[str, Header] = {}
    for file in files:
        kind, header = registry.detect(file, options, format_name)
        headers[file.url] = header
        parts += [FilePart(part, kind.name) for part in registry.slices_of(kind, file, header)]
        metadata = {key: value for key, value in header.metadata.items() if key == "preflib"}
        sources.append({"name": file.name, "size": file.size, "format": kind.name, "metadata": metadata})
    _require_a_row(f"{', '.join(paths[:3])}{', ...' if len(paths) > 3 else ''}", _trials(parts))
    # Up to here no cluster was needed: a source without a valid ranking is an error before one starts.
    for identity, digest in zip(sources, run_all(runner, source_digest, files, "hash"), strict=True):
        identity["sha256"] = digest
    again = _again(sources, options, target)
    notes = [f"{paths[number]}: {why}" for number, why in again.items()]
    runs = [run for number, run in enumerate(_parts_by_file(parts)) if number not in again]
    files = [file for number, file in enumerate(files) if number not in again]
    sources = [source for number, source in enumerate(sources) if number not in again]
    plan = _plan(files, sources, [parts[number] for run in runs for number in run], headers, known, runner)
    return replace(plan, notes=notes)


def _again(sources: list[dict[str, Any]], options: ReadOptions, target: RankingStore | None) -> dict[int, str]:
    """Files whose contents are in another file before them, or in the store to add to, read in the same way."""
    seen = {
        (source["sha256"], source["format"]): "the store"
        for event in (target.manifest.history if target is not None else ())
        if event["settings"].get("columns") == dict(options.columns)
        for source in event["sources"]
    }
    again = {}
    for number, source in enumerate(sources):
        key = (source["sha256"], source["format"])
        if key in seen:
            again[number] = (
                f"{seen[key]} has the same contents, which are counted once; if they are other rankings, join the files"
            )
        seen.setdefault(key, source["name"])
    return again


def _plan(
    files: list[SourceFile],
    sources: list[dict[str, Any]],
    parts: list[FilePart],
    headers: Mapping[str, Header],
    known: Names | None,
    runner: Executor,
) -> IngestPlan:
    """The plan for parts of tables, after a scan of all of them."""
    if not files:
        return IngestPlan(known or (), [], None, [])
    paths = [file.url for file in files]
    headers = {path: headers[path] for path in paths}
    named = known or _names_in_headers(headers) or _names_beside(files)
    if MISSING.intersection(named or ()) and any(places_of(header.roles) for header in headers.values()):
        raise IngestError(
            "an item is called NA, NaN or -1, which is an empty place in a table: write another name for it"
        )
    scans = run_all(runner, partial(_scan, wants_labels=named is None), parts, "scan")
    _check_runs(parts, scans)
    parts = _without_reading_again(parts, scans)
    if named is None:
        labels = set().union(*(found.labels for found in scans))
        named = checked_names(natural_order(label for label in labels if label_problem(label) is None), paths[0])
        if not any("rules" in header.metadata for header in headers.values()):  # which know marks from items
            refuse_words(named, paths[0])
    return IngestPlan(
        item_names=named,
        parts=parts,
        inputs=None,
        sources=sources,
        paths=paths,
        counts=_counts_by_file(parts, scans),
        ids=_kind_of_labels("id", [found.ids for found in scans]),
        groups=_kind_of_labels("group", [found.groups for found in scans]),
        read_as=[
            {"name": source["name"], "format": source["format"], **_understood(headers[file.url])}
            for file, source in zip(files, sources, strict=True)
            if _is_worth_saying(headers[file.url], source["format"])
        ],
    )


def _is_worth_saying(header: Header, format_name: str) -> bool:
    """Whether users should see how a file was understood: not where it says everything itself."""
    if header.columns:
        return format_name != "parquet" or bool(header.left_out or header.guesses)
    return bool(header.guesses) or "choices" in header.metadata


def _understood(header: Header) -> dict[str, Any]:
    """How a table was understood. Only text has a delimiter."""
    return {
        "delimiter": header.delimiter if header.container == "text" and header.columns else None,
        "header": header.has_names,
        "columns": {role: header.columns[place] for role, place in header.roles.items()},
        "guesses": list(header.guesses),
        **({"left_out": list(header.left_out)} if header.left_out else {}),
    }


def _require_a_row(where: str, trials: Iterator[tuple[Encoder, RawRows]]) -> None:
    """An error if no row is a valid ranking. This needs no cluster."""
    first: str | None = None
    for encoder, rows in trials:
        rejected = RejectedRows()
        if encoder.encode(rows, rejected).n_rankings:
            return
        first = first or next(iter(rejected.lines), None)
    if first is None:
        raise IngestError(f"no ranking was found in {where}")
    bad = json.loads(first)
    unit = "line" if "line" in bad else "row"
    raise IngestError(f"no ranking was found in {where}; the first bad row, {unit} {bad[unit]}: {bad['message']}")


def _trials(parts: list[FilePart]) -> Iterator[tuple[Encoder, RawRows]]:
    """The batches of all parts, each with an encoder that knows its items only and so can tell a valid ranking."""
    for part in parts:
        header, url = part.slice.header, part.slice.file.url
        for rows in itertools.chain(part.begin() if registry.format_named(part.format).merges else (), part.read()):
            found = (str(label) for label in rows.labels.unique().to_pylist() if label is not None)
            labels = header.item_labels or (*found, "an item of another batch")
            lookup = {label: number for number, label in enumerate(labels) if label_problem(label) is None}
            yield Encoder(url, labels, lookup, "below", header.complete, "drop", header.unit), rows


def _kind_of_labels(name: str, kinds: list[_LabelKind]) -> _LabelKind:
    """The kind of ids or groups over all parts: text if some are text, none if no row has any."""
    found = set(kinds) - {"unknown"}
    if "none" in found and len(found) > 1:
        raise IngestError(f"some sources give every ranking a {name} and some do not; ingest them separately")
    return "text" if "text" in found else "number" if "number" in found else "none"


def _names_in_headers(headers: Mapping[str, Header]) -> Names | None:
    """The items named in the headers. All headers must name the same items."""
    named = {url: header.item_names for url, header in headers.items() if header.item_names is not None}
    if not named:
        return None
    first_url, first = next(iter(named.items()))
    for url, names in named.items():
        if names != first:
            raise IngestError(f"{url} names other items than {first_url}; ingest them into separate stores")
    return checked_names(list(first), first_url)


def _names_beside(files: Sequence[SourceFile]) -> Names | None:
    """The items in the file `FILE.items` beside the first text source, which `plmix export` writes."""
    beside = items_beside(files[0].url)
    return read_names(beside) if files[0].name.lower().endswith(SUFFIXES) and exists(beside) else None


# The scan of every part before anything is written: items, counts, kinds of labels.

# A whole number as integers_if_all takes it. At most 19 digits fit into 64 bits.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_BEGINS_NUMBERS = frozenset("-0123456789")
# Rows with this many items in all are kept in memory between the scan and the writing, where equal rows are merged.
_MOST_KEPT = 1 << 23


@dataclass(frozen=True)
class _Scan:
    """What one part holds."""

    labels: frozenset[str]
    n_rows: int
    total_weight: float
    ids: _LabelKind
    groups: _LabelKind
    run_ids: NDArray[np.int64]
    merged: list[RawRows] | None = None  # all rows, if they are few


def _without_reading_again(parts: list[FilePart], scans: list[_Scan]) -> list[FilePart]:
    """The parts, with the rows of those that are few after a scan, because equal ones were merged."""
    if sum(len(rows.labels) for scan in scans for rows in scan.merged or ()) > _MOST_KEPT:
        return parts
    return [
        part if scan.merged is None else _MergedPart(part.slice, part.format, scan.merged)
        for part, scan in zip(parts, scans, strict=True)
    ]


def _scan(part: FilePart, *, wants_labels: bool) -> _Scan:
    """Read a part once: its item labels if wanted, its counts, and whether ids and groups are numbers or text."""
    labels: set[str] = set()
    n_rows, total_weight = 0, 0.0
    ids: _LabelKind = "unknown"
    groups: _LabelKind = "unknown"
    run_ids: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    kept: list[RawRows] | None = [] if registry.format_named(part.format).merges else None
    for rows in part.read():
        check_stopped()
        n_rows += rows.n_rows + len(rows.failures)
        total_weight += rows.total_weight
        ids, groups = _kind(ids, rows.ids, rows.n_rows), _kind(groups, rows.groups, rows.n_rows)
        if rows.run_ids is not None:
            run_ids.append(numbered(rows.run_ids))
        if kept is not None:
            kept.append(rows)
            kept = kept if sum(len(some.labels) for some in kept) <= _MOST_KEPT else None
        if wants_labels:
            labels.update(str(label) for label in rows.labels.unique().to_pylist() if label is not None)
    return _Scan(frozenset(labels), n_rows, total_weight, ids, groups, np.concatenate(run_ids), kept)


def numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    """(n_labels,): one number per label: its value if it is a whole number, otherwise a digest of its text."""
    if labels.dtype.kind == "i":
        return labels.astype(np.int64)
    whole = integers_if_all([str(label) for label in labels])
    return np.array([_number_of(label) for label in whole], np.int64) if isinstance(whole, list) else whole


def _number_of(label: str) -> int:
    if label[:1] in _BEGINS_NUMBERS and _WHOLE.fullmatch(label) and -(2**63) <= int(label) < 2**63:
        return int(label)
    return int.from_bytes(hashlib.blake2b(label.encode(), digest_size=8).digest(), "little", signed=True)


def _check_runs(parts: list[FilePart], scans: list[_Scan]) -> None:
    """An error if the lines of a ranking are not consecutive in their file."""
    for places in _parts_by_file(parts):
        url = parts[places[0]].slice.file.url
        values, counts = np.unique(np.concatenate([scans[number].run_ids for number in places]), return_counts=True)
        twice = values[counts > 1]
        if len(twice):
            name = _name_of(int(twice[0]), [parts[number] for number in places])
            raise IngestError(
                f"{url}: the lines of ranking {visible(str(name))} are not consecutive; sort the file by ranking id"
            )


def _parts_by_file(parts: list[FilePart]) -> list[list[int]]:
    """The numbers of the parts of each file. A file that was given twice is listed twice."""
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


def _kind(so_far: _LabelKind, labels: Any, n_rows: int) -> _LabelKind:
    """The kind of labels after another batch."""
    if not n_rows or so_far == "text":
        return so_far
    if labels is None:
        return "none"
    return "number" if np.asarray(labels).dtype.kind in "iu" else "text"


def _counts_by_file(parts: list[FilePart], scans: list[_Scan]) -> dict[str, tuple[int, float]]:
    """The number of rows and the total weight of each file, over all its parts."""
    return {
        parts[numbers[0]].slice.file.url: (
            sum(scans[number].n_rows for number in numbers),
            sum(scans[number].total_weight for number in numbers),
        )
        for numbers in _parts_by_file(parts)
    }
