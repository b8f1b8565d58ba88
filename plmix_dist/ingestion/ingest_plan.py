"""Planning an ingest: the files, their format, their parts, and the items."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.engine import run_all
from plmix_dist.engine.dask_arrays import is_dask_array, row_blocks
from plmix_dist.engine.memory_needed import check_memory
from plmix_dist.errors import IngestError, SettingsError
from plmix_dist.formats import detect, format_named
from plmix_dist.formats.arrays import check_array, describe_array, read_array
from plmix_dist.formats.delimited import SUFFIXES
from plmix_dist.formats.encoder import Encoder
from plmix_dist.formats.items import checked_names, label_problem, natural_order, read_names
from plmix_dist.formats.labelled import exists
from plmix_dist.formats.sources import file_digest, find, find_sources
from plmix_dist.formats.write_delimited import items_beside
from plmix_dist.ingestion.scan import ScanTask, check_runs, counts_by_file, scan
from plmix_dist.ingestion.source_parts import ArrayPart, FilePart, IngestPlan
from plmix_dist.rankings.numbering import check_numbered_from_zero
from plmix_dist.store import RejectedRows
from plmix_dist.values import numbers, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.engine import Executor
    from plmix_dist.engine.dask_arrays import RowBlock
    from plmix_dist.formats import ReadOptions
    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.formats.sources import Header, SourceFile
    from plmix_dist.ingestion.source_parts import LabelKind
    from plmix_dist.store import RankingStore

ARRAY_PARTITION_ENTRIES = 1 << 22


def is_array(source: Any) -> bool:
    """Whether the source is a NumPy or Dask array.

    Examples
    --------
    >>> is_array(np.zeros((2, 2))), is_array("votes.csv")
    (True, False)
    """
    return isinstance(source, np.ndarray) or is_dask_array(source)


def known_names(item_names: Sequence[str] | None, target: RankingStore | None) -> tuple[str, ...] | None:
    """The items, if they are known before anything is read: those given, or those of the store to add to.

    Examples
    --------
    >>> known_names(["tea", "coffee"], None)
    ('tea', 'coffee')
    """
    given = None if item_names is None else checked_names(list(item_names), "item_names")
    if target is None:
        return given
    if given is not None and given != target.item_names:
        raise SettingsError("a store that is appended to keeps its own items; leave out item_names")
    return target.item_names


def plan_array(
    source: Any,
    weights: ArrayLike | None,
    n_items: int | None,
    known: tuple[str, ...] | None,
    runner: Executor,
) -> IngestPlan:
    """The plan for an array: parts of a few megabytes, or the chunks of a Dask array.

    Examples
    --------
    >>> from plmix_dist.engine import executor_for
    >>> plan_array(np.array([[0, 1], [1, 0]]), None, None, None, executor_for(None)).item_names
    ('0', '1')
    """
    check_array(source)
    blocks = row_blocks(source, ARRAY_PARTITION_ENTRIES)
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
        _require_a_row_of_array(blocks, known)
    parts = [
        ArrayPart(
            block.first_row,
            None if column is None else column[block.first_row : block.first_row + block.n_rows],
            block.n_rows,
        )
        for block in blocks
    ]
    return IngestPlan(known, parts, inputs, [describe_array(source, column, by_name=is_dask_array(source))])


def _require_a_row_of_array(blocks: Sequence[RowBlock], names: tuple[str, ...]) -> None:
    """An error if no row of an array in memory is a valid ranking."""
    lookup = {str(number): number for number in range(len(names))}
    encoder = Encoder("array", names, lookup, "below", complete=False, on_error="drop", unit="row")
    first: str | None = None
    for block in blocks:
        rejected = RejectedRows()
        if encoder.encode(read_array(block.data, None, block.first_row), rejected).n_rankings:
            return
        first = first or next(iter(rejected.lines), None)
    raise IngestError(_nothing_found("the array", first))


def _item_range(_: RowBlock, rows: NDArray[Any]) -> tuple[int, int]:
    """The smallest and the largest item; -1 if no row has one."""
    listed = rows[rows >= 0]
    return (int(listed.min()), int(listed.max())) if listed.size else (-1, -1)


def plan_files(
    source: Any, format_name: str, options: ReadOptions, known: tuple[str, ...] | None, runner: Executor
) -> IngestPlan:
    """The plan for files: their slices, and the items named in headers, beside the files, or in the rows.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.engine import executor_for
    >>> from plmix_dist.formats import ReadOptions
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_bytes(b"first,second" + bytes([10]) + b"tea,coffee")
    >>> plan_files(path, "auto", ReadOptions(), None, executor_for(None)).item_names
    ('coffee', 'tea')
    """
    paths = find_sources(
        [source] if isinstance(source, str) or not hasattr(source, "__iter__") else list(source)
    )
    files = [find(path) for path in paths]
    parts: list[FilePart] = []
    sources: list[dict[str, Any]] = []
    headers: dict[str, Header] = {}
    for file in files:
        if format_name == "auto":
            kind, header = detect(file, options)
        else:
            kind = format_named(format_name)
            header = kind.read_header(file, options)
        headers[file.url] = header
        parts += [FilePart(part, kind.name, options) for part in kind.slices(file, header, options)]
        metadata = {key: value for key, value in header.metadata.items() if key == "preflib"}
        sources.append({"name": file.name, "size": file.size, "format": kind.name, "metadata": metadata})
    _require_a_row(parts, paths)
    # Up to here no cluster was needed: a source without a valid ranking is an error before one starts.
    for identity, digest in zip(sources, run_all(runner, file_digest, paths, "hash"), strict=True):
        identity["sha256"] = digest
    named = known or _names_in_headers(headers) or _names_beside(files)
    scans = run_all(runner, scan, [ScanTask(part, named is None) for part in parts], "scan")
    check_runs(parts, scans)
    if named is None:
        labels = set().union(*(found.labels for found in scans))
        named = checked_names(
            natural_order(label for label in labels if label_problem(label) is None), paths[0]
        )
    return IngestPlan(
        item_names=named,
        parts=parts,
        inputs=None,
        sources=sources,
        paths=paths,
        counts=counts_by_file(parts, scans),
        ids=_kind_of_labels("id", [found.ids for found in scans]),
        groups=_kind_of_labels("group", [found.groups for found in scans]),
        read_as=[
            {"name": source["name"], "format": source["format"], **_understood(headers[file.url])}
            for file, source in zip(files, sources, strict=True)
            if headers[file.url].columns and source["format"] != "parquet"
        ],
    )


def _understood(header: Header) -> dict[str, Any]:
    """How a text table was understood."""
    return {
        "delimiter": header.delimiter,
        "header": header.has_names,
        "columns": {role: header.columns[place] for role, place in header.roles.items()},
        "guesses": list(header.guesses),
    }


def _require_a_row(parts: list[FilePart], paths: list[str]) -> None:
    """An error if no source has a valid ranking. This needs no cluster."""
    first: str | None = None
    for part in parts:
        for rows in part.read():
            rejected = RejectedRows()
            if _trial_encoder(part, rows).encode(rows, rejected).n_rankings:
                return
            first = first or next(iter(rejected.lines), None)
    raise IngestError(_nothing_found(f"{', '.join(paths[:3])}{', ...' if len(paths) > 3 else ''}", first))


def _nothing_found(where: str, first_bad: str | None) -> str:
    if first_bad is None:
        return f"no ranking was found in {where}"
    bad = json.loads(first_bad)
    unit = "line" if "line" in bad else "row"
    return f"no ranking was found in {where}; the first bad row, {unit} {bad[unit]}: {bad['message']}"


def _trial_encoder(part: FilePart, rows: RawRows) -> Encoder:
    """An encoder that knows the items of one batch only. It can tell whether a row is a valid ranking."""
    labels = part.slice.header.item_labels
    if labels is None:
        found = [str(label) for label in rows.labels.unique().to_pylist() if label is not None]
        labels = (*found, "an item of another batch")
    lookup = {label: number for number, label in enumerate(labels) if label_problem(label) is None}
    complete = part.slice.header.complete
    return Encoder(part.slice.file.url, labels, lookup, "below", complete, "drop", part.unit)


def _kind_of_labels(name: str, kinds: list[LabelKind]) -> LabelKind:
    """The kind of ids or groups over all parts: text if some are text, none if no row has any."""
    found = set(kinds) - {"unknown"}
    if "none" in found and len(found) > 1:
        raise IngestError(f"some sources give every ranking a {name} and some do not; ingest them separately")
    return "text" if "text" in found else "number" if "number" in found else "none"


def _names_in_headers(headers: Mapping[str, Header]) -> tuple[str, ...] | None:
    """The items named in the headers. All headers must name the same items."""
    named = {url: header.item_names for url, header in headers.items() if header.item_names is not None}
    if not named:
        return None
    first_url, first = next(iter(named.items()))
    for url, names in named.items():
        if names != first:
            raise IngestError(f"{url} names other items than {first_url}; ingest them into separate stores")
    return checked_names(list(first), first_url)


def _names_beside(files: Sequence[SourceFile]) -> tuple[str, ...] | None:
    """The items in the file `FILE.items` beside the first text source, which `plmix export` writes."""
    beside = items_beside(files[0].url)
    if not files[0].name.lower().endswith(SUFFIXES) or not exists(beside):
        return None
    return read_names(beside)
