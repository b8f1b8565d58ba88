"""Excel workbooks as a source of columns: the first sheet, of which the cells are read as text. Needs `openpyxl`."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.tables.format import Batch, Column, ReadOptions, Table, cell_text
from plmix_dist.tables.rows import BATCH_ROWS
from plmix_dist.tables.sniff import names_columns, table_of
from plmix_dist.tables.sources import Header, Slice, SourceFile, open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plmix_dist.tables.format import Format

SUFFIXES = (".xlsx", ".xlsm")
_MOST_SAMPLED = 1000


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Any]:
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


def _rows(book: Any) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each row of the first sheet that is not blank. Cells that are times have no time of day."""
    for number, row in enumerate(book.worksheets[0].iter_rows(values_only=True), start=1):
        cells = [cell_text(value).strip().removesuffix(" 00:00:00") for value in row]
        if any(cells):
            yield number, cells


def sample_excel(file: SourceFile, options: ReadOptions, forms: Sequence[Format]) -> tuple[Table, Header]:
    """The columns and the first rows of a workbook."""
    if options.delimiter is not None:
        raise IngestError(f"{file.url} is not delimited text; leave out --delimiter")
    with _opened(file.url) as book:
        found = list(islice(_rows(book), _MOST_SAMPLED))
        sheets = [sheet.title for sheet in book.worksheets]
    if not found:
        raise IngestError(f"{file.url}: its first sheet ({sheets[0]}) is empty")
    rows = [cells for _, cells in found]
    named, guessed = names_columns(rows, options, file.url, forms)
    table = table_of(rows, named, file.url)
    if guessed:
        table = table.with_guess("the first row names the columns (else say --no-header)")
    if len(sheets) > 1:
        table = table.with_guess(f"the first of {len(sheets)} sheets, {sheets[0]!r}, is read")
    begin = found[1][0] if named and len(found) > 1 else found[0][0] + named
    return replace(table, container="excel"), Header(body_line=begin, has_names=named)


def excel_batches(part: Slice, wanted: Sequence[int], together: int | None) -> Iterator[Batch]:
    """The wanted columns of the first sheet, rows numbered as in the sheet."""
    del together
    with _opened(part.file.url) as book:
        rows = ((number, cells) for number, cells in _rows(book) if number >= part.header.body_line)
        while some := list(islice(rows, BATCH_ROWS)):
            yield _batch(some, wanted, part.header)


def _batch(some: list[tuple[int, list[str]]], wanted: Sequence[int], header: Header) -> Batch:
    cells = [row for _, row in some]
    columns = {
        place: Column(pa.array([row[place] if place < len(row) else "" for row in cells], pa.string()))
        for place in dict.fromkeys(wanted)
    }
    again = "the row repeats the header"
    bad = {row: again for row, found in enumerate(cells) if header.has_names and tuple(found) == header.columns}
    return Batch(columns, np.array([number for number, _ in some], np.int64), cells.__getitem__, bad)
