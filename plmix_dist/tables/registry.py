"""All formats, and the one road from a source, a file or a table in memory, to rows of rankings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError, SettingsError
from plmix_dist.settings import nearest, shown
from plmix_dist.tables import records
from plmix_dist.tables.battles import BATTLES
from plmix_dist.tables.by_row import ORDERINGS, RANKS, SCORES, WIDE
from plmix_dist.tables.cvr import CVR
from plmix_dist.tables.format import (
    LISTS_OF_COLUMNS,
    Batch,
    Condition,
    Container,
    Format,
    ReadOptions,
    Source,
    Table,
    cell_text,
    column_of,
    column_roles,
    conditions_of,
    usual_names,
)
from plmix_dist.tables.frames import Frame, is_row
from plmix_dist.tables.lists import PARQUET
from plmix_dist.tables.long import LONG
from plmix_dist.tables.outsiders import with_doubts
from plmix_dist.tables.parquet import (
    EXCEL_SUFFIXES,
    batch_of,
    cut_parquet,
    excel_batches,
    parquet_batches,
    sample_excel,
    sample_parquet,
)
from plmix_dist.tables.preflib import PREFLIB
from plmix_dist.tables.profiles import ABIF, BLT, HEAD_CHARACTERS, SCOTTISH, VOTEKIT
from plmix_dist.tables.slates import CHOICES, RESULTS
from plmix_dist.tables.sniff import sample_text, without_unnamed
from plmix_dist.tables.sources import Header, Slice, SourceFile, reading
from plmix_dist.tables.surveys import BEST_WORST, QUALTRICS
from plmix_dist.tables.text import SUFFIXES, cut_text, text_batches, whole_text
from plmix_dist.tables.voting_systems import DOMINION, HART, NIST

# A new format is added here.
_CVR = replace(CVR, also=(DOMINION, NIST, HART))
_TABLES = (ORDERINGS, WIDE, RANKS, SCORES, LONG, BATTLES, BEST_WORST, CHOICES, RESULTS, _CVR, QUALTRICS, PARQUET)
_ALL = (PREFLIB, *_TABLES, BLT, SCOTTISH, VOTEKIT, ABIF, DOMINION, NIST, HART)
FORMATS: dict[str, Format] = {form.name: form for form in _ALL}
# Tables of no special format are tried in this order; the last takes what is left.
_GENERAL = (ORDERINGS, LONG, RANKS, WIDE)
_SPREADSHEETS = (".xls", ".ods", ".numbers")
# A new kind of file is added here. What no other takes is text.
_SOURCES: dict[str, Source] = {
    "parquet": Source(
        PARQUET.suffixes,
        lambda file, options, forms: (sample_parquet(file), Header()),  # noqa: ARG005
        lambda file, header, together, whole: cut_parquet(file, header, whole=whole),  # noqa: ARG005
        lambda part, coded, raw, together: parquet_batches(part, [*coded, *raw], together),
    ),
    "excel": Source(
        EXCEL_SUFFIXES,
        sample_excel,
        lambda file, header, together, whole: [Slice(file, header, 0, None)],  # noqa: ARG005
        lambda part, coded, raw, together: excel_batches(part, [*coded, *raw], together),
    ),
    "jsonl": Source(
        records.SUFFIXES,
        records.sample_records,
        records.cut_records,
        lambda part, coded, raw, together: records.record_batches(part, [*coded, *raw], together),
    ),
    "text": Source(
        SUFFIXES,
        sample_text,
        lambda file, header, together, whole: [whole_text(file, header)] if whole else cut_text(file, header, together),
        lambda part, coded, raw, together: text_batches(part, coded, raw),  # noqa: ARG005
    ),
}
_SOURCES["json"] = _SOURCES["jsonl"]


def format_named(name: str) -> Format:
    """The format with this name."""
    if name == "ratings":
        raise SettingsError("ratings have a function of their own: plmix_dist.ingest_ratings(source, store)")
    if not isinstance(name, str) or name not in FORMATS:
        raise SettingsError(
            f"there is no format {shown(name, str)}; choose one of auto, {', '.join(FORMATS)}"
            f"{nearest(name, (*FORMATS,))}"
        )
    return FORMATS[name]


def column_role_names() -> list[str]:
    """All roles that a column can have in one of the formats."""
    return list(dict.fromkeys(role for form in FORMATS.values() for role in usual_names(form)))


def detect(file: SourceFile, options: ReadOptions, name: str = "auto") -> tuple[Format, Header]:
    """The format of a file, by its suffix and its first rows or as the user named it; and its header."""
    form = None if name == "auto" else format_named(name)
    ending = file.name.lower()
    if form is None:
        form = next((one for one in FORMATS.values() if one.syntax and ending.endswith(one.suffixes)), None)
    if form is None or form.also:
        form = _by_evidence(file, form.also if form is not None else tuple(FORMATS.values())) or form
    if form is None and ending.endswith(_SPREADSHEETS):
        raise IngestError(f"{file.url} is a spreadsheet; save it as CSV (Save as ..., CSV UTF-8) and read that file")
    of_tables = [source.suffixes for source in _SOURCES.values()]
    known = sorted({*chain(*of_tables), *(suffix for one in FORMATS.values() for suffix in one.suffixes)})
    if form is None and not ending.endswith(tuple(known)):
        raise IngestError(
            f"{file.url}: the format is not known from the name ({', '.join(known)}); name it with --format"
        )
    if form is not None and form.syntax is not None:
        _refuse_text_options(options, file.url)
        _refuse_unused_choices(form, options, file.url)
        if options.columns:
            raise IngestError(f"{file.url} is read as {form.name}, which has no columns to name; leave out --column")
        return form, form.syntax.read_header(file, options)
    return open_table(file, options, form)


def _by_evidence(file: SourceFile, forms: Sequence[Format]) -> Format | None:
    """The format that is not a table whose signs the first characters of a file have."""
    if file.name.lower().endswith((*PARQUET.suffixes, *EXCEL_SUFFIXES, *_SPREADSHEETS)):
        return None
    with reading(file.parts[0]) as stream:
        head = stream.read(4 * HEAD_CHARACTERS).decode("utf-8-sig", errors="replace")[:HEAD_CHARACTERS]
    return next((form for form in forms if form.syntax and form.syntax.begins and form.syntax.begins(head)), None)


# In folders of voting systems: the files of ballots, which are one source, and files beside them.
_BALLOTS_OF_DOMINION = re.compile(r"CvrExport(_\d+)?\.json", re.IGNORECASE)
_BESIDE_BALLOTS = re.compile(r".*Manifest\.json|Configuration\.json", re.IGNORECASE)


def gathered(files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files, with those of a folder that hold one export of a voting system as one source."""
    found: list[SourceFile] = []
    for folder, several in groupby(files, lambda file: file.url.rpartition("/")[0]):
        inside = list(several)
        own = [file for file in inside if _BALLOTS_OF_DOMINION.fullmatch(file.name)]
        if own:
            inside = [file for file in inside if file not in own and not _BESIDE_BALLOTS.fullmatch(file.name)]
        else:
            xml = [file for file in inside if file.name.lower().endswith(".xml")]
            own = xml if len(xml) > 1 and _by_evidence(xml[0], (HART,)) else []
            inside = [file for file in inside if file not in own]
        if own:
            own.sort(key=lambda file: [int(n) if n.isdigit() else 0 for n in re.split(r"(\d+)", file.name)][1::2])
            inside = [SourceFile(folder, sum(file.size for file in own), tuple(file.url for file in own)), *inside]
        found += inside
    return found


def _refuse_unused_choices(form: Format, options: ReadOptions, url: str) -> None:
    """An error if the user chose what the format does not have."""
    for name in options.choices:
        if name not in form.choices:
            having = [one.name for one in FORMATS.values() if name in one.choices]
            instead = f", or say --format {' or --format '.join(having)}" if having else ""
            raise IngestError(f"{url}: this is read as {form.name}, which does not use {name}: leave it out{instead}")


def open_table(file: SourceFile, options: ReadOptions, form: Format | None) -> tuple[Format, Header]:
    """The format of a table in a file, found among all formats unless the user named it, and its header."""
    forms = [form] if form is not None else _table_formats()
    source = _source_of(file, form)
    if source not in ("text", "excel"):
        _refuse_text_options(options, file.url)
    table, header = _SOURCES[source].sample(file, options, forms)
    table, where = _rows_where(table, options)
    found, table = recognise(table, options, forms, named=form is not None)
    return found, replace(_header_of(found, table, header), where=where)


def _rows_where(table: Table, options: ReadOptions) -> tuple[Table, tuple[Condition, ...]]:
    """The table with the rows that meet the conditions of the user, and these."""
    where = conditions_of(options, table.columns, table.url)
    if not where:
        return table, where
    body = [row for row in table.body if len(row) != len(table.columns) or all(c.holds(row[c.place]) for c in where)]
    if not body:
        raise IngestError(f"{table.url}: of its first {len(table.body)} rows none has {' and '.join(options.where)}")
    kept = replace(table, body=body, ignored=(*table.ignored, *(c.place for c in where if c.equal)))
    return kept.with_guess(f"rows with {' and '.join(options.where)} alone are read"), where


def _source_of(file: SourceFile, form: Format | None) -> str:
    """The kind of a file by its suffix. Any other file is text, unless the user calls it Parquet."""
    ending = file.name.lower()
    found = (name for name, source in _SOURCES.items() if ending.endswith(source.suffixes))
    return next(found, "parquet" if form is PARQUET else "text")


def _refuse_text_options(options: ReadOptions, url: str) -> None:
    """An error for options of delimited text, where the source is something else."""
    given = {"--delimiter": options.delimiter, "--header or --no-header": options.header}
    unused = next((name for name, value in given.items() if value is not None), None)
    if unused is not None:
        raise IngestError(f"{url} is not delimited text; leave out {unused}")


def _header_of(form: Format, table: Table, header: Header) -> Header:
    """A header with what a format found out about the table."""
    header = replace(
        header,
        columns=table.columns,
        roles=table.roles,
        ignored=table.ignored,
        guesses=table.guesses,
        item_names=table.item_names,
        divider=table.divider,
        container=table.container,
        unranked=table.unranked,
        first_rank=table.first_rank,
        metadata=dict(table.metadata),
    )
    used = {*form.wanted(header), *form.wanted_raw(header)}
    kept = {place for place, name in enumerate(table.columns) if not name or name.lower().startswith("unnamed:")} | used
    return replace(header, left_out=tuple(name for place, name in enumerate(table.columns) if place not in kept))


def _table_formats() -> list[Format]:
    """The formats of tables in the order in which they are tried."""
    special = [form for form in FORMATS.values() if form.read is not None and form not in _GENERAL]
    return [*special, *_GENERAL]


def recognise(
    table: Table, options: ReadOptions, forms: Sequence[Format] | None = None, *, named: bool = False
) -> tuple[Format, Table]:
    """The first format that takes a table, and the table with the roles of its columns.

    An error if it is of no format, or may be of several; it names the option that decides.
    """
    ignored = (*table.ignored, *(table.columns.index(_known(name, table)) for name in options.ignored))
    for form in forms or _table_formats():
        roles = column_roles(table.columns, options, table.url, usual_names(form))
        found = form.recognise(without_unnamed(replace(table, roles=roles, ignored=ignored)), options, named)
        if found is None:
            continue
        _refuse_unused_roles(form, options, table.url)
        _refuse_unused_choices(form, options, table.url)
        if "group" in found.roles and "group" not in options.columns:
            column = found.columns[found.roles["group"]]
            found = found.with_guess(
                f"the column {column!r} names persons, and all rankings of one person share one membership (if each "
                f"row is a person of its own, say --column {'ignore' if form.merges else 'id'}={column})"
            )
        return form, with_doubts(found)
    raise IngestError(f"{table.url}: no format was recognised; name it with --format")


def _known(name: str, table: Table) -> str:
    if name not in table.columns:
        raise IngestError(f"{table.url}: there is no column {name!r} to ignore; found: {', '.join(table.columns)}")
    return name


def _refuse_unused_roles(form: Format, options: ReadOptions, url: str) -> None:
    """An error if the user named the column of a role that the format does not have."""
    roles = [*usual_names(form), *LISTS_OF_COLUMNS[form is not WIDE :]]
    unused = next((role for role in options.columns if role not in roles), None)
    if unused is not None:
        having = [one.name for one in FORMATS.values() if one.read and unused in usual_names(one)] or [WIDE.name]
        raise IngestError(
            f"{url}: this is read as {form.name}, which has no column for {unused}: leave out --column {unused}=..., "
            f"or say --format {' or --format '.join(having)}; {form.name} has columns for {', '.join(roles)}"
        )


def slices_of(form: Format, file: SourceFile, header: Header) -> list[Slice]:
    """Slices of a file that workers read independently. Rows of one ranking, or of one group, stay together."""
    if form.syntax is not None:
        return form.syntax.slices(file, header)
    whole = form.scattered(header)
    if header.container == "parquet":  # equal cells of a column cannot be kept together beyond a row group
        whole |= "group" in header.roles and not form.consecutive(header)
    return _SOURCES[header.container].cut(file, header, _together(form, header), whole)


def read_slice(form: Format, part: Slice, n_batches: int | None = None) -> Iterator[Any]:
    """The rows of a slice, in batches, or those of its first batches of lines. Errors name the file."""
    try:
        if form.syntax is not None:
            yield from form.syntax.read(part)
        elif form.read is not None:
            yield from form.read(islice(_batches(form, part), n_batches), part.header)
    except IngestError as error:
        if part.file.url in str(error):
            raise
        raise IngestError(f"{part.file.url}: {error}") from None


def _batches(form: Format, part: Slice) -> Iterator[Batch]:
    header = part.header
    raw = form.wanted_raw(header)
    wanted = dict.fromkeys([*form.wanted(header), *(condition.place for condition in header.where)])
    coded = [place for place in wanted if place not in raw]
    together = _together(form, header) if form.consecutive(header) else None
    batches = _SOURCES[header.container].batches(part, coded, raw, together)
    return (batch.kept(header.where) for batch in batches) if header.where else batches


def _together(form: Format, header: Header) -> int | None:
    """The column whose equal cells stand in one slice: the group or, if a ranking takes several rows, its id."""
    return header.roles.get("group", header.roles.get("id") if form.consecutive(header) else None)


def format_of_target(target: str, name: str) -> Format:
    """The format of a target: by name, or for "auto" by the target's suffix (text becomes orderings)."""
    if name != "auto":
        return format_named(name)
    plain = target.lower().removesuffix(".gz")
    if plain.endswith(SUFFIXES):
        return ORDERINGS
    for form in FORMATS.values():
        if form.suffixes and plain.endswith(form.suffixes):
            return form
    raise SettingsError(f"{target}: the format is not known from the name; name it with --format {'|'.join(FORMATS)}")


# Frames in memory as sources of columns.

# Recognition looks at this many rows.
_MOST_SAMPLED = 1000


def _table_of_frame(frame: Frame) -> Table:
    """The columns and the first rows of a table in memory, for recognition."""
    some = frame.cells[:_MOST_SAMPLED]
    lists = [place for place, column in enumerate(some.T) if any(is_row(cell) for cell in column.tolist()[:1])]
    return Table(
        "the table",
        frame.columns,
        [["" if is_row(cell) else cell_text(cell) for cell in row] for row in some.tolist()],
        {},
        container="memory",
        lists=tuple(lists),
    )


def _flat_frame(frame: Frame) -> Frame:
    """The table with dotted names for what is nested in its cells."""
    some = chain.from_iterable(frame.cells[:_MOST_SAMPLED].tolist() if frame.cells.dtype == object else ())
    if not any(isinstance(cell, dict) or (is_row(cell) and any(isinstance(x, dict) for x in cell)) for cell in some):
        return frame
    rows = [records.flat_record(dict(zip(frame.columns, row, strict=True))) for row in frame.cells.tolist()]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    cells = np.empty((len(rows), len(columns)), object)
    for number, row in enumerate(rows):
        for place, name in enumerate(columns):
            cells[number, place] = row.get(name)
    return Frame(columns, cells)


@dataclass(frozen=True)
class OpenedFrame:
    """A table in memory: its format, what was recognised, and its columns with types, by their place."""

    form: Format
    header: Header
    columns: dict[int, pa.Array]
    frame: Frame

    @property
    def together(self) -> int | None:
        """The column whose equal cells stand in one part."""
        return _together(self.form, self.header)


def open_frame(frame: Frame, name: str, options: ReadOptions, container: Container = "memory") -> OpenedFrame:
    """A frame with its format. Going into a store it is recognised as a file with types is, else as "memory"."""
    if frame.rows is not None:
        cells = np.empty((len(frame.rows), 1), object)
        for number, row in enumerate(frame.rows):
            cells[number, 0] = row
        frame = Frame(frame.columns, cells)
    frame = _flat_frame(frame)
    forms = None if name == "auto" else [format_named(name)]
    table = replace(_table_of_frame(frame), container=container)
    table, where = _rows_where(table, options)
    form, table = recognise(table, options, forms, named=forms is not None)
    columns = {place: column_of(column.tolist()) for place, column in enumerate(frame.cells.T)}
    return OpenedFrame(form, replace(_header_of(form, table, Header()), where=where), columns, frame)


def read_columns(form: Format, header: Header, columns: dict[int, pa.Array], first_row: int) -> Iterator[Any]:
    """The rows of columns in memory, in one batch."""
    assert form.read is not None, "a format that recognises tables reads them"
    return form.read(iter([batch_of(columns, first_row).kept(header.where)]), header)
