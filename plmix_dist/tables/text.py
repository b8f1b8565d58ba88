"""Text as a source of columns: chunks of whole lines, read by Arrow where it reads what Python's reader does."""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from plmix_dist.errors import IngestError
from plmix_dist.tables.format import Batch, Column, batch_of_texts
from plmix_dist.tables.notation import from_spreadsheet
from plmix_dist.tables.sources import LONGEST_LINE, Header, Slice, SourceFile, decode, read_line, reading, text_slices

SUFFIXES = (".csv", ".tsv", ".txt")
# Bytes of text that are read at a time.
CHUNK_BYTES = 1 << 20
csv.field_size_limit(LONGEST_LINE)
_QUOTE, _LINE_FEED, _RETURN = b'"\n\r'
_BLANK_LINE = re.compile(rb"(?:^|\n)[ \t\v\f\r\x1c-\x1f]*(?:\n|$)")  # all that str.strip removes, of ASCII
# Arrow divides fields at one character only, so longer delimiters are replaced by this one.
_OPENS = re.compile(r'(?:^|[,;\t|])\s*"(?:[^"]|"")*$')  # a cell that begins with a quote and does not end
_UNIT_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class _Chunk:
    """Whole lines of a file, about a megabyte, with the number of the first."""

    url: str
    first_line: int
    data: bytes

    @cached_property
    def line_ends(self) -> NDArray[np.int64]:
        """(n_lines,): the byte behind the last of each line, its line feed left out."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == _LINE_FEED)
        return ends if self.data.endswith(b"\n") else np.append(ends, len(self.data))

    def line(self, row: int) -> str:
        """One line by its place in the chunk."""
        start = 0 if row == 0 else int(self.line_ends[row - 1]) + 1
        return decode(self.data[start : int(self.line_ends[row])], self.url, self.first_line + row).rstrip("\r\n")

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of each line, without line ends and blank lines."""
        for number, raw in enumerate(self.data.split(b"\n"), start=self.first_line):
            text = decode(raw, self.url, number).rstrip("\r\n")
            if text.strip():
                yield number, text


def chunks(part: Slice) -> Iterator[_Chunk]:
    """The chunks of a slice."""
    with reading(part.file.url) as file:
        file.seek(part.start)
        position, number = part.start, part.first_line
        while part.stop is None or position < part.stop:
            data = file.read(CHUNK_BYTES if part.stop is None else min(CHUNK_BYTES, part.stop - position))
            if not data:
                return
            if not data.endswith(b"\n"):
                data += read_line(file, part.file.url)
            chunk = _Chunk(part.file.url, number, data)
            yield chunk
            position += len(data)
            number += len(chunk.line_ends)


def lines(part: Slice) -> Iterator[tuple[int, str]]:
    """Number and text of each line of a slice, without line ends and blank lines."""
    for chunk in chunks(part):
        yield from chunk.lines()


def split_fields(line: str, delimiter: str) -> list[str]:
    """The fields of one line, without blanks around them. Quotes count if the delimiter is one character."""
    # Most lines have no quotes, and str.split is several times faster than the CSV parser.
    row = _quoted_fields(line, delimiter) if len(delimiter) == 1 and '"' in line else line.split(delimiter)
    return [from_spreadsheet(value.strip()) for value in row]


def refuse_open_quote(line: str, url: str, number: int) -> None:
    """An error for a cell in quotes that goes on in the next line."""
    if line.count('"') % 2 and _OPENS.search(line):
        raise IngestError(
            f"{url}, line {number}: a cell in quotes seems to go on in the next line, but each row must stand in one "
            "line: read it with pandas, which joins such lines, and hand in the table: "
            f"plmix_dist.ingest(pandas.read_csv({url!r}), STORE); or replace line breaks in cells by blanks"
        )


def _quoted_fields(line: str, delimiter: str) -> list[str]:
    reader = csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True)
    try:
        return next(reader, [])
    except csv.Error as error:
        raise IngestError(str(error)) from None


def cut_text(file: SourceFile, header: Header, together: int | None, whole: bool) -> list[Slice]:
    """Slices of a file, never cut between lines with the same cell in the column `together`."""
    return text_slices(file, header, whole, None if together is None else partial(_field, header.delimiter, together))


def fields_if_any(line: str, delimiter: str) -> list[str]:
    """The fields of a line; none if it cannot be divided, which is an error when the rows are read."""
    try:
        return split_fields(line, delimiter)
    except IngestError:
        return []


def _field(delimiter: str, place: int, line: str) -> str:
    """One field of a line, or an empty string if the line does not have it."""
    return next(iter(fields_if_any(line.rstrip("\r\n"), delimiter)[place:]), "")


def text_batches(part: Slice, wanted: Collection[int], raw: Collection[int], _: int | None) -> Iterator[Batch]:
    """The wanted columns of a slice, coded by distinct cells unless they are `raw`, in batches of a chunk each."""
    for chunk in chunks(part):
        yield _read_columns(chunk, part.header, wanted, raw) or _read_lines(chunk, part.header, wanted)


def _read_lines(chunk: _Chunk, header: Header, wanted: Collection[int]) -> Batch:
    """The rows of a chunk, read line by line. Lines with too few or too many fields are bad."""
    n_columns = len(header.columns)
    rows: list[list[str]] = []
    numbers: list[int] = []
    bad: dict[int, str] = {}
    for number, line in chunk.lines():
        refuse_open_quote(line, chunk.url, number)
        try:
            row = split_fields(line, header.delimiter)
        except IngestError as error:
            raise IngestError(f"{chunk.url}, line {number}: {error}") from None
        if len(row) != n_columns:
            bad[len(rows)] = f"expected {n_columns} fields, but got {len(row)}"
        elif header.has_names and tuple(row) == header.columns:  # where files were joined
            bad[len(rows)] = "the line repeats the header"
        numbers.append(number)
        rows.append(row)
    return batch_of_texts(rows, numbers, wanted, bad)


def _read_columns(chunk: _Chunk, header: Header, wanted: Collection[int], raw: Collection[int]) -> Batch | None:
    """The rows of a chunk, read by Arrow; None if the chunk has anything that only Python's reader reads exactly.

    That is: quotes within fields, blank lines, carriage returns alone, bytes that are not UTF-8, lines with too few or
    too many fields, lines that may repeat the header.
    """
    data, delimiter = chunk.data, header.delimiter
    if len(delimiter) > 1:
        if b'"' in data or _UNIT_SEPARATOR.encode() in data:
            return None
        data, delimiter = data.replace(delimiter.encode(), _UNIT_SEPARATOR.encode()), _UNIT_SEPARATOR
        chunk = _Chunk(chunk.url, chunk.first_line, data)
    if not delimiter.isascii() or not _is_plain(chunk, delimiter, len(header.columns)):
        return None
    coded = pa.dictionary(pa.int32(), pa.string())
    kinds = {str(place): pa.string() if place in raw else coded for place in wanted}
    names = [str(place) for place in range(len(header.columns))]
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            arrow_csv.ParseOptions(
                delimiter=delimiter, quote_char='"' if b'"' in data else False, ignore_empty_lines=False
            ),
            arrow_csv.ConvertOptions(check_utf8=False, column_types=kinds, include_columns=list(kinds)),
        )
    except pa.ArrowInvalid:  # a line with too few or too many fields
        return None
    columns = {
        place: Column(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks(), clean=False)
        for place, column in ((int(name), table.column(name)) for name in kinds)
    }
    if table.num_rows != len(chunk.line_ends) or _may_repeat_header(columns, header):
        return None
    numbers = np.arange(chunk.first_line, chunk.first_line + table.num_rows)
    return Batch(columns, numbers, lambda row: split_fields(chunk.line(row), delimiter))


def _may_repeat_header(columns: Mapping[int, Column], header: Header) -> bool:
    """Whether a line of a chunk may repeat the header; only reading line by line can tell."""
    if not header.has_names:
        return False
    coded = {place: column for place, column in columns.items() if pa.types.is_dictionary(column.array.type)}
    if coded:
        return all(header.columns[place] in column.values for place, column in coded.items())
    return any(
        pc.any(pc.equal(pc.utf8_trim_whitespace(column.array), header.columns[place])).as_py()
        for place, column in columns.items()
    )


def _is_plain(chunk: _Chunk, delimiter: str, n_columns: int) -> bool:
    """Whether a chunk has none of the signs that the two readers treat differently."""
    data = chunk.data
    if b"\r" in data and (data.count(b"\r") != data.count(b"\r\n") or b"\n\r\n" in data):
        return False
    if b'"' in data and not _quotes_enclose_fields(chunk, ord(delimiter)):
        return False
    if data.startswith((BOM_UTF8, b"\r", b"\n")) or (np.diff(chunk.line_ends) == 1).any():
        return False
    if _blank_is_skipped(delimiter, n_columns) and _BLANK_LINE.search(data.removesuffix(b"\n")):
        return False
    try:
        text = "" if data.isascii() else data.decode()
    except UnicodeDecodeError:
        return False
    # White space beyond ASCII alone in a line: rare, and found with care only where it matters.
    return not (text and _blank_is_skipped(delimiter, n_columns) and any(map(str.isspace, text.split("\n"))))


def _blank_is_skipped(delimiter: str, n_columns: int) -> bool:
    """Whether a blank line could be taken for a row. Elsewhere it has too few fields."""
    return n_columns == 1 or delimiter.isspace()


def _quotes_enclose_fields(chunk: _Chunk, delimiter: int) -> bool:
    """Whether quotes come in pairs that enclose whole fields of one line, and none is within a field."""
    data = np.frombuffer(chunk.data, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    opening, closing = quotes[::2], quotes[1::2]
    if len(opening) != len(closing):
        return False
    padded = np.concatenate([[_LINE_FEED], data, [_LINE_FEED]])
    before, after = padded[opening], padded[closing + 2]
    opened_at_line_ends = np.searchsorted(quotes, chunk.line_ends) % 2
    return bool(
        not opened_at_line_ends.any()
        and ((before == delimiter) | (before == _LINE_FEED)).all()
        and ((after == delimiter) | (after == _LINE_FEED) | (after == _RETURN)).all()
    )
