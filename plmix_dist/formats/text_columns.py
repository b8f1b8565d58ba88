"""Columns of a chunk by Arrow's CSV parser, for chunks in which it reads exactly what Python's reader does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from plmix_dist.formats.notation import from_spreadsheet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import DTypeLike, NDArray

    from plmix_dist.formats.text_chunks import Chunk

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_QUOTE, _LINE_END, _RETURN = b'"\n\r'
_BLANK_LINE = re.compile(rb"(?:^|\n)[ \t\v\f\r\x1c-\x1f]*(?:\n|$)")  # all that str.strip removes, of ASCII


@dataclass(frozen=True)
class TextColumn:
    """A column of text: its distinct values, and which of them each row has. Values may occur twice.

    Examples
    --------
    >>> TextColumn(np.array([0, 1, 0]), ["3", "2.5"]).mapped(float, np.float64).tolist()
    [3.0, 2.5, 3.0]
    """

    codes: NDArray[np.int32]
    values: list[str]

    def mapped(self, function: Callable[[str], Any], dtype: DTypeLike = object) -> NDArray[Any]:
        """(n_rows,): a function of each value, computed for the distinct values only.

        Examples
        --------
        >>> TextColumn(np.array([0, 1, 0]), ["tea", "mate"]).mapped(len, np.int64).tolist()
        [3, 4, 3]
        """
        table = np.empty(len(self.values), dtype)
        table[:] = [function(value) for value in self.values]
        return table[self.codes]


@dataclass(frozen=True)
class ChunkColumns:
    """The wanted columns of a chunk, one row per line.

    Examples
    --------
    >>> from plmix_dist.formats.text_chunks import Chunk
    >>> read = read_columns(Chunk("a.csv", 2, b"3,tea mate"), ",", 2, coded={0}, plain={1})
    >>> read.coded[0].values, read.plain[1].to_pylist(), read.lines.tolist()
    (['3'], ['tea mate'], [2])
    """

    coded: dict[int, TextColumn]
    plain: dict[int, pa.StringArray]
    lines: NDArray[np.int64]


def read_columns(
    chunk: Chunk, delimiter: str, n_columns: int, coded: Collection[int], plain: Collection[int] = ()
) -> ChunkColumns | None:
    r"""Columns of a chunk; None if the chunk has anything that only Python's reader reads exactly.

    That is: quotes within fields, blank lines, carriage returns alone, bytes that are not UTF-8, lines with too few or
    too many fields.

    Parameters
    ----------
    coded
        Columns to give as distinct values, without blanks around them.
    plain
        Columns to give as they are.

    Examples
    --------
    >>> from plmix_dist.formats.text_chunks import Chunk
    >>> read_columns(Chunk("a.csv", 2, b"tea,mate\nmate, tea\n"), ",", 2, {0, 1}).coded[1].values
    ['mate', 'tea']
    >>> read_columns(Chunk("a.csv", 2, b'tea,"mate, green"\n'), ",", 2, {0, 1}).coded[1].values
    ['mate, green']
    >>> read_columns(Chunk("a.csv", 2, b'tea,"the ""best"" mate"\n'), ",", 2, {0, 1}) is None
    True
    """
    if not delimiter.isascii() or not _is_plain(chunk, delimiter, n_columns):
        return None
    names = [str(place) for place in range(n_columns)]
    kinds = {str(place): pa.dictionary(pa.int32(), pa.string()) for place in coded}
    kinds |= {str(place): pa.string() for place in plain}
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(chunk.data),
            arrow_csv.ReadOptions(use_threads=False, block_size=len(chunk.data) + 1, column_names=names),
            arrow_csv.ParseOptions(
                delimiter=delimiter, quote_char='"' if b'"' in chunk.data else False, ignore_empty_lines=False
            ),
            arrow_csv.ConvertOptions(check_utf8=False, column_types=kinds, include_columns=list(kinds)),
        )
    except pa.ArrowInvalid:  # a line with too few or too many fields
        return None
    if table.num_rows != chunk.n_lines:
        return None
    columns = {place: _coded(table.column(str(place))) for place in coded}
    return ChunkColumns(
        coded=columns,
        plain={place: _one_array(table.column(str(place))) for place in plain},
        lines=np.arange(chunk.first_line, chunk.first_line + table.num_rows),
    )


def _is_plain(chunk: Chunk, delimiter: str, n_columns: int) -> bool:
    """Whether a chunk has none of the signs that the two readers treat differently."""
    data = chunk.data
    if b"\r" in data and (data.count(b"\r") != data.count(b"\r\n") or b"\n\r\n" in data):
        return False
    if b'"' in data and not _quotes_enclose_fields(chunk, ord(delimiter)):
        return False
    if data.startswith((_BYTE_ORDER_MARK, b"\r", b"\n")) or (np.diff(chunk.line_ends) == 1).any():
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


def _quotes_enclose_fields(chunk: Chunk, delimiter: int) -> bool:
    """Whether quotes come in pairs that enclose whole fields of one line, and none is within a field."""
    data = np.frombuffer(chunk.data, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    opening, closing = quotes[::2], quotes[1::2]
    if len(opening) != len(closing):
        return False
    padded = np.concatenate([[_LINE_END], data, [_LINE_END]])
    before, after = padded[opening], padded[closing + 2]
    opened_at_line_ends = np.searchsorted(quotes, chunk.line_ends) % 2
    return bool(
        not opened_at_line_ends.any()
        and ((before == delimiter) | (before == _LINE_END)).all()
        and ((after == delimiter) | (after == _LINE_END) | (after == _RETURN)).all()
    )


def _coded(column: pa.ChunkedArray) -> TextColumn:
    array = _one_array(column)
    return TextColumn(array.indices.to_numpy(), _stripped(array.dictionary))


def by_runs(column: pa.StringArray) -> TextColumn:
    """A column of which equal values stand together, with one code per run.

    Examples
    --------
    >>> runs = by_runs(pa.array(["a", "a", "b"]))
    >>> runs.values, runs.codes.tolist()
    (['a', 'b'], [0, 0, 1])
    """
    runs = pc.run_end_encode(column)
    lengths = np.diff(runs.run_ends.to_numpy(), prepend=0)
    return TextColumn(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths), _stripped(runs.values))


def _stripped(values: pa.StringArray) -> list[str]:
    return [
        from_spreadsheet(text) if text[:1] == "'" else text for text in map(str.strip, values.to_pylist())
    ]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
