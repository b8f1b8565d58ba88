"""Sample: the first lines of a text file, and the refusal of files that are no text."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError
from plmix_dist.formats.notation import from_spreadsheet
from plmix_dist.formats.sources import decode, reading

if TYPE_CHECKING:
    from plmix_dist.formats.sources import SourceFile

SAMPLE_BYTES = 1 << 18
_MOST_LINES = 1000
LONGEST_LINE = 10_000_000
csv.field_size_limit(LONGEST_LINE)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Sample:
    """The first lines of a file that are not blank.

    Parameters
    ----------
    lines
        Their text, without line ends.
    start, first_line
        The byte and the line where the first of them begins.
    second, second_line
        The byte and the line after it.

    Examples
    --------
    >>> Sample("a.csv", ("first,second", "tea,mate"), 0, 1, 13, 2).lines[1]
    'tea,mate'
    """

    url: str
    lines: tuple[str, ...]
    start: int
    first_line: int
    second: int
    second_line: int


def read_sample(file: SourceFile) -> Sample:
    r"""The first lines of a text file; an error if it is empty or not text.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from plmix_dist.formats.sources import find
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("\nfirst,second\ntea,mate\n")
    >>> sample = read_sample(find(str(path)))
    >>> sample.lines, sample.start, sample.second_line
    (('first,second', 'tea,mate'), 1, 3)
    """
    texts: list[str] = []
    offset = start = first_line = second = second_line = 0
    number = 0
    with reading(file.url) as stream:
        while offset < SAMPLE_BYTES and len(texts) < _MOST_LINES:
            raw = stream.readline(LONGEST_LINE)
            if not raw:
                break
            number += 1
            _refuse_no_text(raw, file.url, number)
            text = decode(raw, file.url, number) if not texts else raw.decode(errors="replace")
            text = text.rstrip("\r\n")
            if text.strip():
                if not texts:
                    mark = len(_BYTE_ORDER_MARK) if number == 1 and raw.startswith(_BYTE_ORDER_MARK) else 0
                    start, first_line = offset + mark, number
                    second, second_line = offset + len(raw), number + 1
                texts.append(text)
            offset += len(raw)
    if not texts:
        raise IngestError(f"{file.url} is empty: its first line should name the columns")
    return Sample(file.url, tuple(texts), start, first_line, second, second_line)


def _refuse_no_text(raw: bytes, url: str, number: int) -> None:
    """An error for UTF-16, binary data, and lines that end as on old Macintosh computers."""
    if (number == 1 and raw.startswith(_UTF_16)) or b"\x00" in raw:
        raise IngestError(
            f"{url}, line {number}: this is UTF-16 or no text at all; save the table as CSV in UTF-8"
        )
    if number == 1 and raw.rstrip(b"\r\n").count(b"\r") > 0:
        raise IngestError(
            f"{url}, line 1: lines end with a carriage return alone; save the file with line feeds (Unix or Windows)"
        )


def split_fields(line: str, delimiter: str) -> list[str]:
    """The fields of one line, without blanks around them.

    Examples
    --------
    >>> split_fields('tea, "mate, green" ,7', ",")
    ['tea', 'mate, green', '7']
    """
    # Most lines have no quotes, and str.split is several times faster than the CSV parser.
    row = _quoted_fields(line, delimiter) if '"' in line else line.split(delimiter)
    return [from_spreadsheet(value.strip()) for value in row]


def _quoted_fields(line: str, delimiter: str) -> list[str]:
    reader = csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True)
    try:
        return next(reader, [])
    except csv.Error as error:
        raise IngestError(str(error)) from None
