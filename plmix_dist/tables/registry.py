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
from plmix_dist.tables import (
    battles,
    by_row,
    json_records,
    lists,
    long,
    profiles,
    slates,
    surveys,
    text,
    voting_systems,
)
from plmix_dist.tables import format as formats
from plmix_dist.tables.cvr import CVR
from plmix_dist.tables.format import (
    OF_SECOND,
    PERSON,
    Batch,
    Format,
    ReadOptions,
    Source,
    Table,
    columns_of,
    usual_names,
)
from plmix_dist.tables.frames import Frame, is_row
from plmix_dist.tables.outsiders import refuse_highest_first, with_doubts
from plmix_dist.tables.parquet import EXCEL_FILES, PARQUET_FILES, batch_of
from plmix_dist.tables.preflib import PREFLIB
from plmix_dist.tables.sniff import sample_text, without_unnamed
from plmix_dist.tables.sources import Condition, Container, Header, Slice, SourceFile, naming, reading
from plmix_dist.tables.words import LISTS_OF_COLUMNS, cell_text, is_unnamed

# A new format is added here.
_OTHER_FILES = (voting_systems.DOMINION, voting_systems.NIST, voting_systems.HART)
_ALL = (
    *(PREFLIB, by_row.ORDERINGS, by_row.WIDE, by_row.RANKS, by_row.SCORES, long.LONG, battles.BATTLES),
    *(surveys.BEST_WORST, slates.CHOICES, slates.RESULTS, replace(CVR, also=_OTHER_FILES), surveys.QUALTRICS),
    *(lists.PARQUET, profiles.BLT, profiles.SCOTTISH, profiles.VOTEKIT, profiles.ABIF, *_OTHER_FILES),
)
FORMATS: dict[str, Format] = {form.name: form for form in _ALL}
# Tables of no special format are tried in this order; the last takes what is left.
_GENERAL = (by_row.ORDERINGS, long.LONG, by_row.RANKS, by_row.WIDE)
_SPREADSHEETS = (".xls", ".ods", ".numbers")
# A new kind of file is added here. What no other takes is text.
_SOURCES: dict[str, Source] = {
    "parquet": PARQUET_FILES,
    "excel": EXCEL_FILES,
    "jsonl": json_records.RECORDS,
    "text": Source(text.SUFFIXES, sample_text, text.cut_text, text.text_batches),
    "json": json_records.RECORDS,
}


def format_named(name: str) -> Format:
    """The format with this name."""
    if name == "ratings":
        raise SettingsError("ratings have a function of their own: plmix_dist.ingest_ratings(source, store)")
    if not isinstance(name, str) or name not in FORMATS:
        raise SettingsError(
            f"unknown format {shown(name, str)}; choose one of auto, {', '.join(FORMATS)}{nearest(name, (*FORMATS,))}"
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
    known = sorted({*chain(*of_tables, *(one.suffixes for one in FORMATS.values()))})
    if form is None and not ending.endswith(tuple(known)):
        raise IngestError(
            f"{file.url}: the format is not known from the name ({', '.join(known)}); name it with --format"
        )
    if form is None or form.syntax is None:
        return open_table(file, options, form)
    _refuse_text_options(options, file.url)
    with naming(file.url):
        _refuse_unused_choices(form, options)
        if options.columns:
            raise IngestError(f"{file.url} is read as {form.name}, which has no columns to name; leave out --column")
        return form, form.syntax.read_header(file, options)


def _by_evidence(file: SourceFile, forms: Sequence[Format]) -> Format | None:
    """The format that is not a table whose signs the first characters of a file have."""
    if file.name.lower().endswith((*PARQUET_FILES.suffixes, *EXCEL_FILES.suffixes, *_SPREADSHEETS)):
        return None
    with reading(file.parts[0]) as stream:
        head = stream.read(4 * profiles.HEAD_CHARACTERS).decode("utf-8-sig", errors="replace")
    head = head[: profiles.HEAD_CHARACTERS]
    return next((form for form in forms if form.syntax and form.syntax.begins and form.syntax.begins(head)), None)


# In folders of voting systems: the files of ballots, which are one source, and files beside them.
_BALLOTS_OF_DOMINION = re.compile(r"CvrExport(_\d+)?\.json", re.IGNORECASE)
_BESIDE_BALLOTS = re.compile(r".*Manifest\.json|Configuration\.json", re.IGNORECASE)


def gathered(files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files, with those of a folder that hold one export of a voting system as one source."""
    found: list[SourceFile] = []
    for folder, several in groupby(files, lambda file: file.url.rpartition("/")[0]):
        inside = list(several)
        if own := [file for file in inside if _BALLOTS_OF_DOMINION.fullmatch(file.name)]:
            inside = [file for file in inside if file not in own and not _BESIDE_BALLOTS.fullmatch(file.name)]
        else:
            xml = [file for file in inside if file.name.lower().endswith(".xml")]
            own = xml if len(xml) > 1 and _by_evidence(xml[0], (voting_systems.HART,)) else []
            inside = [file for file in inside if file not in own]
        if own:
            own.sort(key=lambda file: [int(n) if n.isdigit() else 0 for n in re.split(r"(\d+)", file.name)][1::2])
            inside = [SourceFile(folder, sum(file.size for file in own), tuple(file.url for file in own)), *inside]
        found += inside
    return found


def _refuse_unused_choices(form: Format, options: ReadOptions) -> None:
    """An error if the user chose what the format does not have."""
    for name in options.choices:
        if name not in form.choices:
            having = [one.name for one in FORMATS.values() if name in one.choices]
            instead = f", or say --format {' or --format '.join(having)}" if having else ""
            raise IngestError(f"this is read as {form.name}, which does not use {name}: leave it out{instead}")


def open_table(file: SourceFile, options: ReadOptions, form: Format | None) -> tuple[Format, Header]:
    """The format of a table in a file, found among all formats unless the user named it, and its header."""
    source = _source_of(file, form)
    if source != "text":
        _refuse_text_options(options, file.url, has_header=source == "excel")
    with naming(file.url):
        table = _SOURCES[source].sample(file, options, _table_formats() if form is None else [form])
        return _recognised(table, options, form)


def _recognised(table: Table, options: ReadOptions, form: Format | None) -> tuple[Format, Header]:
    """The format of a table and its header, with the conditions for rows, and without the first rows."""
    if where := tuple(_condition(text, table) for text in options.where):
        width = len(table.columns)
        body = [row for row in table.body if len(row) != width or all(one.holds(row[one.place]) for one in where)]
        if not body:
            raise IngestError(f"of its first {len(table.body)} rows none has {' and '.join(options.where)}")
        table = replace(table, body=body, ignored=(*table.ignored, *(one.place for one in where if one.equal)))
        table = table.with_guess(f"rows with {' and '.join(options.where)} alone are read")
    form, table = _recognise(table, options, form)
    used = {*form.wanted(table), *form.wanted_raw(table), *columns_of(table.roles, PERSON).values()}
    left = (name for place, name in enumerate(table.columns) if place not in used and not is_unnamed(name))
    return form, replace(table, body=[], left_out=tuple(left), where=where)


def _condition(text: str, table: Table) -> Condition:
    """A condition of the user, for the columns of a table."""
    name, _, value = text.partition("=")
    equal = not name.endswith("!")
    name = name.removesuffix("!").strip()
    if name not in table.columns:
        raise IngestError(f"no column {name!r} for --where; found: {', '.join(table.columns)}")
    return Condition(table.columns.index(name), equal, value.strip().casefold())


def _source_of(file: SourceFile, form: Format | None) -> str:
    """The kind of a file by its suffix. Any other file is text, unless the user calls it Parquet."""
    ending = file.name.lower()
    found = (name for name, source in _SOURCES.items() if ending.endswith(source.suffixes))
    return next(found, "parquet" if form is lists.PARQUET else "text")


def _refuse_text_options(options: ReadOptions, url: str, *, has_header: bool = False) -> None:
    """An error for options of delimited text, where the source is something else."""
    given = {"--delimiter": options.delimiter, "--header or --no-header": None if has_header else options.header}
    if (unused := next((name for name, value in given.items() if value is not None), None)) is not None:
        raise IngestError(f"{url} is not delimited text; leave out {unused}")


def _table_formats() -> list[Format]:
    """The formats of tables in the order in which they are tried."""
    special = [form for form in FORMATS.values() if form.read is not None and form not in _GENERAL]
    return [*special, *_GENERAL]


def _recognise(table: Table, options: ReadOptions, named: Format | None) -> tuple[Format, Table]:
    """The first format that takes a table, and the table with the roles of its columns.

    An error if it is of no format, or may be of several; it names the option that decides.
    """
    features = battles.feature_roles(table.columns, options)
    of_use = {"to ignore": options.ignored, "for features": features.values(), "about persons": options.persons}
    for use, names in of_use.items():
        if (unknown := next((name for name in names if name not in table.columns), None)) is not None:
            raise IngestError(f"no column {unknown!r} {use}; found: {', '.join(table.columns)}")
    of_roles = features | {f"{PERSON}{name}": name for name in options.persons}
    own = {role: table.columns.index(name) for role, name in of_roles.items()}
    # Formats look at the other columns.
    ignored = (*table.ignored, *map(table.columns.index, options.ignored), *own.values())
    for form in _table_formats() if named is None else [named]:
        roles = formats.column_roles(table.columns, options, usual_names(form))
        found = form.recognise(without_unnamed(replace(table, roles=roles, ignored=ignored)), options, named is form)
        if found is None:
            continue
        _refuse_unused_roles(form, options)
        _refuse_unused_choices(form, options)
        if named is None and form in (by_row.RANKS, long.LONG, surveys.QUALTRICS):
            refuse_highest_first(found)
        if form is battles.BATTLES:
            battles.check_features(found, options, features)
        elif (features and not form.consecutive(found)) or columns_of(own, OF_SECOND):
            what = "has no sides" if form.consecutive(found) else "is a whole ranking"
            raise IngestError(f"features belong to one row per item of each ranking or to sides, and a row here {what}")
        found = replace(found, roles={**found.roles, **own})
        if "group" in found.roles and "group" not in options.columns:
            column = found.columns[found.roles["group"]]
            found = found.with_guess(
                f"the column {column!r} names persons, and all rankings of one person share one membership (if each "
                f"row is a person of its own, say --column {'ignore' if form.merges else 'id'}={column})"
            )
        return form, with_doubts(found)
    raise IngestError("no format was recognised; name it with --format")


def _refuse_unused_roles(form: Format, options: ReadOptions) -> None:
    """An error if the user named the column of a role that the format does not have."""
    takes = {"places": [by_row.WIDE.name], "features": [one.name for one in FORMATS.values() if one.takes_features]}
    takes["persons"] = [one.name for one in FORMATS.values() if one.takes_persons]
    roles = [*usual_names(form), *(role for role in LISTS_OF_COLUMNS if form.name in takes.get(role, [form.name]))]
    if (unused := next((role for role in options.columns if role not in roles), None)) is not None:
        having = [one.name for one in FORMATS.values() if one.read and unused in usual_names(one)] or takes[unused]
        raise IngestError(
            f"this is read as {form.name}, which has no column for {unused}: leave out --column {unused}=..., or say "
            f"--format {' or --format '.join(having)}; {form.name} has columns for {', '.join(roles)}"
        )


def slices_of(form: Format, file: SourceFile, header: Header) -> list[Slice]:
    """Slices of a file that workers read independently. Rows of one ranking, or of one group, stay together."""
    if form.syntax is not None:
        return form.syntax.slices(file, header)
    whole = form.scattered(header)
    if header.container == "parquet":  # equal cells of a column cannot be kept together beyond a row group
        whole |= "group" in header.roles and not form.consecutive(header)
    return _SOURCES[header.container].cut(file, header, together(form, header), whole)


def read_slice(form: Format, part: Slice, n_batches: int | None = None) -> Iterator[Any]:
    """The rows of a slice, in batches, or those of its first batches of lines. Errors name the file."""
    with naming(part.file.url):
        if form.syntax is not None:
            yield from form.syntax.read(part)
        elif form.read is not None:
            yield from form.read(islice(_batches(form, part), n_batches), part.header)


def _batches(form: Format, part: Slice) -> Iterator[Batch]:
    header = part.header
    raw = form.wanted_raw(header)
    more = [*(condition.place for condition in header.where), *columns_of(header.roles, PERSON).values()]
    wanted = dict.fromkeys([*form.wanted(header), *more])
    column = together(form, header) if form.consecutive(header) else None
    places = [*(place for place in wanted if place not in raw), *raw]
    for batch in _SOURCES[header.container].batches(part, places, raw, column):
        yield batch.kept(header.where)


def together(form: Format, header: Header) -> int | None:
    """The column whose equal cells stand in one slice: the group or, if a ranking takes several rows, its id."""
    return header.roles.get("group", header.roles.get("id") if form.consecutive(header) else None)


def format_of_target(target: str, name: str) -> Format:
    """The format of a target: by name, or for "auto" by the target's suffix (text becomes orderings)."""
    if name != "auto":
        return format_named(name)
    plain = target.lower().removesuffix(".gz")
    if plain.endswith(text.SUFFIXES):
        return by_row.ORDERINGS
    for form in FORMATS.values():
        if form.suffixes and plain.endswith(form.suffixes):
            return form
    raise SettingsError(f"{target}: the format is not known from the name; name it with --format {'|'.join(FORMATS)}")


# Frames in memory as sources of columns.

# Recognition looks at this many rows.
_MOST_SAMPLED = 1000


def _flat_frame(frame: Frame) -> Frame:
    """The table with dotted names for what is nested in its cells."""
    some = chain.from_iterable(frame.cells[:_MOST_SAMPLED].tolist() if frame.cells.dtype == object else ())
    if not any(isinstance(cell, dict) or (is_row(cell) and any(isinstance(x, dict) for x in cell)) for cell in some):
        return frame
    rows = [json_records.flat_record(dict(zip(frame.columns, row, strict=True))) for row in frame.cells.tolist()]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return _framed(columns, [[row.get(name) for name in columns] for row in rows])


def _framed(columns: tuple[str, ...], rows: list[list[Any]]) -> Frame:
    """A table of objects, of which some may be lists."""
    cells = np.empty((len(rows), len(columns)), object)
    for place in np.ndindex(cells.shape):
        cells[place] = rows[place[0]][place[1]]
    return Frame(columns, cells)


@dataclass(frozen=True)
class OpenedFrame:
    """A table in memory: its format, what was recognised, and its columns with types, by their place."""

    form: Format
    header: Header
    columns: dict[int, pa.Array]
    frame: Frame


def open_frame(frame: Frame, name: str, options: ReadOptions, container: Container = "memory") -> OpenedFrame:
    """A frame with its format. Going into a store it is recognised as a file with types is, else as "memory"."""
    frame = _flat_frame(frame if frame.rows is None else _framed(frame.columns, [[row] for row in frame.rows]))
    some = frame.cells[:_MOST_SAMPLED]
    table = Table(
        columns=frame.columns,
        container=container,
        body=[["" if is_row(cell) else cell_text(cell) for cell in row] for row in some.tolist()],
        lists=tuple(place for place, cell in enumerate(some[0] if len(some) else ()) if is_row(cell)),
    )
    with naming("the table"):
        form, header = _recognised(table, options, None if name == "auto" else format_named(name))
    columns = {place: formats.column_of(column.tolist()) for place, column in enumerate(frame.cells.T)}
    return OpenedFrame(form, header, columns, frame)


def read_columns(form: Format, header: Header, columns: dict[int, pa.Array], first_row: int) -> Iterator[Any]:
    """The rows of columns in memory, in one batch."""
    assert form.read is not None, "a format that recognises tables reads them"
    return form.read(iter([batch_of(columns, first_row).kept(header.where)]), header)
