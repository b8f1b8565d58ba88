"""Parquet files and Excel workbooks as sources of columns: rows with types, and cells read as text."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plmix_dist.errors import IngestError
from plmix_dist.tables.encode import shown
from plmix_dist.tables.format import Batch, Column, Format, ReadOptions, Source, Table, batch_of_texts, is_list
from plmix_dist.tables.json_records import flat_columns, flat_schema
from plmix_dist.tables.rows import BATCH_ROWS
from plmix_dist.tables.sniff import names_columns, table_of, title_rows
from plmix_dist.tables.sources import Header, Slice, SourceFile, open_bytes, whole_file
from plmix_dist.tables.words import cell_text

# Values (items) per slice, which is a run of row groups. Slices are read in batches, so memory does not depend on this.
_SLICE_VALUES = 1 << 22
# Where `plmix export` writes all item names.
NAMES_KEY = b"plmix.item_names"
_MOST_SAMPLED = 1000


@contextlib.contextmanager
def _opened(url: str, problem: str = "cannot be read as Parquet: {}") -> Iterator[pq.ParquetFile]:
    """A Parquet file; errors of reading it name the file."""
    try:
        with open_bytes(url) as stream, pq.ParquetFile(stream) as table:
            yield table
    except (pa.ArrowException, OSError) as error:
        raise IngestError(f"{url} {problem.format(error)}") from error


def _sample_parquet(file: SourceFile, *_: Any) -> Table:
    """The columns and the first rows of a file, and the item names if `plmix export` wrote it."""
    with _opened(file.url) as table:
        schema = table.schema_arrow
        if (twice := next((name for name in schema.names if schema.names.count(name) > 1), None)) is not None:
            raise IngestError(f"two columns are named {shown(twice)}; rename one of them")
        names = (schema.metadata or {}).get(NAMES_KEY)
        flat = flat_schema(schema)
        plain = list(dict.fromkeys(root for root, kind in flat.values() if not is_list(kind)))
        first = next(table.iter_batches(_MOST_SAMPLED, columns=plain), None) if plain else None
    return Table(
        columns=tuple(flat),
        body=[] if first is None else _sampled_rows(flat, first),
        container="parquet",
        lists=tuple(place for place, (_, kind) in enumerate(flat.values()) if is_list(kind)),
        item_names=None if names is None else _names(names),
    )


def _sampled_rows(columns: Collection[str], batch: pa.RecordBatch) -> list[list[str]]:
    """Rows as text, for recognition; columns that the batch does not have, and lists, are empty."""
    flat = [pair for root in batch.schema.names for pair in flat_columns(root, batch.column(root))]
    plain = {name: column.to_pylist() for name, column in flat if not pa.types.is_nested(column.type)}
    found = {name: [*map(cell_text, cells)] for name, cells in plain.items()}
    empty = [""] * batch.num_rows
    return [list(row) for row in zip(*(found.get(name, empty) for name in columns), strict=True)]


def _names(text: bytes) -> tuple[str, ...]:
    """The item names that `plmix export` wrote into a file."""
    with contextlib.suppress(ValueError, RecursionError):
        names = json.loads(text)
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return tuple(names)
    raise IngestError("the item names in its metadata are not a list of names")


def _cut_parquet(file: SourceFile, header: Header, _: int | None, whole: bool) -> list[Slice]:
    """Runs of row groups of about _SLICE_VALUES values each; one run if the file must be read as a `whole`."""
    with _opened(file.url) as table:
        metadata = table.metadata
    cuts, n_values, first_rows = [0], 0, [0]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        largest = max((group.column(place).num_values for place in range(group.num_columns)), default=0)
        if not whole and n_values and n_values + largest > _SLICE_VALUES:
            cuts.append(number)
            n_values = 0
        n_values += largest
        first_rows.append(first_rows[-1] + group.num_rows)
    ends = [*cuts[1:], metadata.num_row_groups]
    return [Slice(file, header, start, end, first_rows[start]) for start, end in zip(cuts, ends, strict=True)]


def _parquet_batches(part: Slice, wanted: Collection[int], _: Collection[int], together: int | None) -> Iterator[Batch]:
    """The wanted columns of a slice. Rows are numbered from 1.

    Rows with one value in the column `together` are read by the slice in which they begin, to their end.
    """
    names = {place: part.header.columns[place] for place in wanted}
    with _opened(part.file.url, "cannot be read to its end: {}; it may be damaged") as table:
        flat = flat_schema(table.schema_arrow)
        roots = list(dict.fromkeys(flat[name][0] for name in names.values()))
        batches = _numbered(table, part, roots, beyond=together is not None)
        if together is not None:
            batches = _together(batches, table, part, part.header.columns[together])
        for row, _own, batch in batches:
            found = {name: column for root in roots for name, column in flat_columns(root, batch.column(root))}
            yield batch_of({place: found[name] for place, name in names.items()}, row + 1)


def batch_of(columns: dict[int, pa.Array], first_line: int) -> Batch:
    """A batch of columns with types, of which the rows are numbered from `first_line` on."""
    n_rows = len(next(iter(columns.values()))) if columns else 0
    return Batch(
        {place: Column(array) for place, array in columns.items()},
        np.arange(first_line, first_line + n_rows),
        lambda row: [cell_text(columns[place][row].as_py()) for place in sorted(columns)],
    )


# The number of the first row, whether the row group belongs to the slice, and some rows.
_Rows = tuple[int, bool, pa.RecordBatch]


def _numbered(table: pq.ParquetFile, part: Slice, names: list[str], *, beyond: bool) -> Iterator[_Rows]:
    """The batches of a slice and, if wanted, of the row groups `beyond` it."""
    row, stop = part.first_line, part.stop or 0
    for own, groups in ((True, range(part.start, stop)), (False, range(stop, table.num_row_groups))):
        if own or beyond:
            for batch in table.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=names):
                yield row, own, batch
                row += batch.num_rows


def _together(batches: Iterator[_Rows], table: pq.ParquetFile, part: Slice, name: str) -> Iterator[_Rows]:
    """The rows of what begins in this slice, to its end. What began before it belongs to an earlier slice."""
    skip = _last_value(table, part.start - 1, name) if part.start else None
    final: object = None
    for first_row, own, batch in batches:
        keys = Column(batch.column(name)).labels()
        start, stop = 0, batch.num_rows
        if skip is not None:
            others = np.flatnonzero(keys != skip)
            start = int(others[0]) if len(others) else stop
            skip = None if len(others) else skip
        if not own:
            others = np.flatnonzero(keys[start:] != final)
            stop = start + int(others[0]) if len(others) else stop
        elif start < stop:
            final = keys[-1]
        if start < stop:
            yield first_row + start, own, batch.slice(start, stop - start)
        if not own and stop < batch.num_rows:
            return


def _last_value(table: pq.ParquetFile, group: int, column: str) -> int | str | None:
    """The last value of a column in the row groups 0 to `group`; None if these have no row."""
    for number in range(group, -1, -1):
        values = table.read_row_group(number, columns=[column]).column(0)
        if len(values):
            last: int | str = Column(values.combine_chunks()).labels()[-1]
            return last
    return None


PARQUET_FILES = Source((".parquet", ".pq"), _sample_parquet, _cut_parquet, _parquet_batches)


# Excel: the first sheet of a workbook that has a table. Needs `openpyxl`.


@contextlib.contextmanager
def _workbook(url: str) -> Iterator[Any]:
    """A workbook; errors of reading it name the file."""
    try:
        import openpyxl
    except ImportError:
        raise IngestError(
            f"{url} is a workbook, which needs the package openpyxl: install plmix-dist[excel], or save it as CSV UTF-8"
        ) from None
    try:
        with open_bytes(url) as stream:
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            try:
                yield book
            finally:
                book.close()
    except IngestError:
        raise
    except Exception as error:  # a damaged workbook raises errors of zip, XML and many more
        raise IngestError(f"{url} cannot be read as a workbook: {error}; save it again, or as CSV UTF-8") from error


def _sheet(book: Any) -> Any:
    """The first sheet with several cells in a row; the first of all if there is none."""
    rows = ((page, row) for page in book.worksheets for row in islice(page.iter_rows(values_only=True), _MOST_SAMPLED))
    return next((sheet for sheet, row in rows if sum(cell is not None for cell in row) > 1), book.worksheets[0])


def _rows(book: Any) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each row of the sheet that is not blank. Cells that are times have no time of day."""
    for number, row in enumerate(_sheet(book).iter_rows(values_only=True), start=1):
        cells = [cell_text(value).strip().removesuffix(" 00:00:00") for value in row]
        if any(cells):
            yield number, cells


def _sample_excel(file: SourceFile, options: ReadOptions, forms: Sequence[Format]) -> Table:
    """The columns and the first rows of a workbook."""
    with _workbook(file.url) as book:
        found = list(islice(_rows(book), _MOST_SAMPLED))
        n_sheets, name = len(book.worksheets), _sheet(book).title
    if not found:
        raise IngestError(f"its first sheet ({name}) is empty")
    titles = title_rows([cells for _, cells in found])
    found = found[titles:]
    rows = [cells for _, cells in found]
    named, guessed = names_columns(rows, options, forms)
    table = table_of(rows, named)
    if guessed:
        table = table.with_guess("the first row names the columns (else say --no-header)")
    if n_sheets > 1:
        table = table.with_guess(f"the first table of {n_sheets} sheets, {name!r}, is read")
    if titles:
        table = table.with_guess(f"what stands above row {found[0][0]} is left out: titles")
    return replace(table, container="excel", body_line=found[1][0] if named and len(found) > 1 else found[0][0] + named)


def _excel_batches(part: Slice, wanted: Sequence[int], *_: Any) -> Iterator[Batch]:
    """The wanted columns of the sheet, rows numbered as in the sheet."""
    with _workbook(part.file.url) as book:
        rows = ((number, cells) for number, cells in _rows(book) if number >= part.header.body_line)
        while some := list(islice(rows, BATCH_ROWS)):
            yield _batch(some, wanted, part.header)


def _batch(some: list[tuple[int, list[str]]], wanted: Sequence[int], header: Header) -> Batch:
    numbers, cells = zip(*some, strict=True)
    again = "the row repeats the header"
    bad = {row: again for row, found in enumerate(cells) if header.has_names and tuple(found) == header.columns}
    return batch_of_texts(cells, numbers, wanted, bad)


EXCEL_FILES = Source((".xlsx", ".xlsm"), _sample_excel, whole_file, _excel_batches)
