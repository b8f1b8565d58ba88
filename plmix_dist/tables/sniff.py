"""The first lines of a text file as a Table: delimiter, header, what the cells are, columns of line numbers."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from plmix_dist.errors import IngestError
from plmix_dist.tables.format import DELIMITERS, Format, ReadOptions, Table, usual_names
from plmix_dist.tables.sources import SourceFile, decode, read_line, reading
from plmix_dist.tables.text import fields_if_any, refuse_open_quote, split_fields
from plmix_dist.tables.words import COLUMN_NAMES, MISSING, is_place_name, is_unnamed

_SAMPLE_BYTES = 1 << 18
_MOST_LINES = 1000
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def _first_lines(file: SourceFile) -> tuple[list[str], tuple[int, int], tuple[int, int]]:
    """The first lines of a text file that are not blank, without line ends; an error if it is empty or not text.

    With them comes where the first of them begins and ends: byte and line.
    """
    texts: list[str] = []
    offset = number = 0
    start = second = (0, 0)
    with reading(file.url) as stream:
        while offset < _SAMPLE_BYTES and len(texts) < _MOST_LINES and (raw := read_line(stream, file.url)):
            number += 1
            _refuse_no_text(raw, file.url, number)
            text = decode(raw, file.url, number) if not texts else raw.decode(errors="replace")
            text = text.rstrip("\r\n")
            refuse_open_quote(text, file.url, number)
            if text.strip():
                if not texts:
                    mark = len(BOM_UTF8) if number == 1 and raw.startswith(BOM_UTF8) else 0
                    start, second = (offset + mark, number), (offset + len(raw), number + 1)
                texts.append(text)
            offset += len(raw)
    if not texts:
        raise IngestError(f"{file.url} is empty: its first line should name the columns")
    return texts, start, second


def _refuse_no_text(raw: bytes, url: str, number: int) -> None:
    """An error for UTF-16, binary data, and lines that end as on old Macintosh computers."""
    if (number == 1 and raw.startswith(_UTF_16)) or b"\x00" in raw:
        raise IngestError(f"{url}, line {number}: this is UTF-16 or no text at all; save the table as CSV in UTF-8")
    if number == 1 and raw.rstrip(b"\r\n").count(b"\r") > 0:
        raise IngestError(
            f"{url}, line 1: lines end with a carriage return alone; save the file with line feeds (Unix or Windows)"
        )


# The delimiter of a table: the sign that divides its first lines into the same number of fields.

_NAMES = {"\t": "a tab", ";": "a semicolon", ",": "a comma", "::": "two colons"}
_STEADY = 0.9
_COMMA_AND_BLANK = re.compile(r"[^,]+(?:, [^,]+)+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def _sniff_delimiter(lines: Sequence[str], default: str, signs: Sequence[str], n_fields: Sequence[int]) -> str:
    """The delimiter of a table; `default` if its lines have one field only."""
    counts = {sign: [len(fields_if_any(line, sign)) or 1 for line in lines] for sign in signs}
    steady = [sign for sign in signs if _share_of_commonest(counts[sign]) >= _STEADY]
    # A sign that the first line lacks is part of the text: the first line names the columns, or is like the others.
    steady = [sign for sign in steady if counts[sign][0] > 1] or steady
    fitting = [sign for sign in steady if counts[sign][0] in n_fields]
    if len(steady) == 1 or fitting:
        return (fitting or steady)[0]
    if len(steady) > 1:
        return _among(steady, lines)
    half = len(lines) / 2
    frequent = [sign for sign in signs if sum(n > 1 for n in counts[sign]) > half]
    return default if default in frequent or not frequent else frequent[0]


def _among(steady: list[str], lines: Sequence[str]) -> str:
    """Of several signs that divide all lines alike, the one that leaves decimal commas, or names like `Lee, Ann`."""
    if steady[-1] == ",":
        sign = steady[0]
        commas = [field for line in lines for field in split_fields(line, sign) if "," in field and line]
        if len(steady) == 2 and all(_DECIMAL_COMMA.fullmatch(field) for field in commas):
            return sign
        blank_after_sign = all(re.search(rf"{sign}\S", line) is None for line in lines)
        if len(steady) == 2 and not blank_after_sign and all(map(_COMMA_AND_BLANK.fullmatch, commas)):
            return sign
    names = " or ".join(_NAMES[sign] for sign in steady)
    options = " or ".join(f"--delimiter {_option(sign)}" for sign in steady)
    raise IngestError(f"the fields may be divided by {names}; say {options}")


def _option(sign: str) -> str:
    return "$'\\t'" if sign == "\t" else f"'{sign}'"


def _share_of_commonest(counts: list[int]) -> float:
    """The share of lines with the commonest number of fields; 0 if that is 1."""
    commonest, times = Counter(counts).most_common(1)[0]
    return times / len(counts) if commonest > 1 else 0.0


# Cells of a table: which are missing, which are numbers, and of what kind the cells of a column are.

Kind = Literal["empty", "whole", "decimal", "text"]
_NEARLY_ALL = 0.9
_ARROW = re.compile(r"[^\s>]\s*>\s*[^\s>]")
_WHOLE = re.compile(r"[+-]?\d+")
_MARKDOWN = re.compile(r"[\s|:]*-{3}[\s|:-]*")
_NUMBER = re.compile(r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?%?")


def is_number(cell: str) -> bool:
    """Whether a cell is a number, also with a decimal comma, or in per cent."""
    return bool(_NUMBER.fullmatch(cell)) and cell.isascii()


def are_orderings(cells: Sequence[str]) -> bool:
    """Whether nearly all cells are orderings such as `tea > mate`."""
    return bool(cells) and sum(bool(_ARROW.search(cell)) for cell in cells) >= _NEARLY_ALL * len(cells)


def are_lists(cells: Sequence[str]) -> bool:
    """Whether nearly all cells are lists, divided by commas or semicolons, of items that come again."""
    lists = [re.split("[,;]", cell) for cell in cells]
    several = sum(len(items) > 1 for items in lists)
    distinct = {item.strip() for items in lists for item in items}
    return bool(cells) and several >= _NEARLY_ALL * len(cells) and len(distinct) <= len(cells)


def counts_lines(cells: Sequence[str]) -> bool:
    """Whether cells count from 0 or 1."""
    return any(list(cells) == [str(number) for number in range(start, start + len(cells))] for start in (0, 1))


def kind_of(cells: Iterable[str]) -> Kind:
    """The kind of the cells of a column that are not missing."""
    found: Kind = "empty"
    for cell in cells:
        if cell in MISSING:
            continue
        if not is_number(cell):
            return "text"
        found = "whole" if _WHOLE.fullmatch(cell) and found != "decimal" else "decimal"
    return found


# Whether the first line of a table names its columns, or is a ranking.

_ROLE_WORDS = {word for words in COLUMN_NAMES.values() for word in words}
RATING_WORDS = {"rating", "ratings", "score", "scores", "stars", "points", "grade", "grades"}
# At most this share of lines may have nothing in common with the others, where a first line that has nothing in
# common with them is taken for a header.
_MOST_NOVEL = 0.1


def _has_header(first: Sequence[str], body: Sequence[Sequence[str]], role_words: Collection[str]) -> tuple[bool, bool]:
    """Whether the first line names the columns, and whether this is a guess; an error if it may be either."""
    cells = [cell for cell in first if cell not in MISSING]
    seen = {cell for row in body for cell in row} - MISSING
    # Where files were joined, the header comes again.
    elsewhere = {cell for row in body if list(row) != list(first) for cell in row}
    words = [cell for cell in cells if cell.lower() in {*role_words, *RATING_WORDS} and cell not in elsewhere]
    columns = list(zip(*(row for row in body if len(row) == len(first)), strict=True))
    orderings = [place for place, column in enumerate(columns) if are_orderings(column)]
    if orderings and not words:
        return not any(are_orderings([first[place]]) for place in orderings), False
    if columns and not first[0] and counts_lines(columns[0]):
        return True, False  # line numbers, which have no name
    if words or (cells and all(is_place_name(cell) for cell in cells) and not elsewhere.intersection(cells)):
        return True, False
    if any(map(is_number, cells)) and not all(map(is_number, cells)):
        return _by_kinds(first, body, seen)
    return _of_numbers(cells, seen) if all(map(is_number, cells)) else _of_names(first, body, seen)


def _of_numbers(cells: list[str], seen: set[str]) -> tuple[bool, bool]:
    """For a first line of numbers."""
    in_sequence = cells in ([str(n) for n in range(len(cells))], [str(n + 1) for n in range(len(cells))])
    if in_sequence == (bool(seen) and not seen.intersection(cells)):
        return in_sequence, False
    if in_sequence and seen and "0" in cells and "0" not in seen:
        return True, True
    raise _ambiguous(cells)


def _of_names(first: Sequence[str], body: Sequence[Sequence[str]], seen: set[str]) -> tuple[bool, bool]:
    """For a first line of names."""
    rows = [row for row in body if len(row) == len(first) and list(row) != list(first)]
    kinds = [kind_of(column) for column in zip(*rows, strict=True)]
    if any(kind in ("whole", "decimal") and cell for cell, kind in zip(first, kinds, strict=False)):
        return True, False
    if seen.intersection(cell for cell in first if cell):
        return False, False
    return _by_novelty(first, body)


def _by_kinds(first: Sequence[str], body: Sequence[Sequence[str]], seen: set[str]) -> tuple[bool, bool]:
    """For a first line of names and numbers: a column of numbers below a number has no header."""
    rows = [row for row in body if len(row) == len(first)]
    alike = [
        is_number(cell) == is_number(row[place])
        for row in rows
        for place, cell in enumerate(first)
        if cell not in MISSING and row[place] not in MISSING
    ]
    words = [place for place, cell in enumerate(first) if cell not in MISSING and not is_number(cell)]
    if any(kind_of(row[place] for row in rows) in ("whole", "decimal") for place in words):
        return True, False  # a word above numbers
    if alike and all(alike):
        if not seen.intersection(first[place] for place in words) and _repeats(rows, words):
            raise _ambiguous(first)
        return False, False
    return (False, False) if seen.intersection(first) else _by_novelty(first, body)


def _repeats(rows: Sequence[Sequence[str]], places: Sequence[int]) -> bool:
    """Whether cells of these columns come again."""
    return any(len({row[place] for row in rows}) < len(rows) for place in places)


def _by_novelty(first: Sequence[str], body: Sequence[Sequence[str]]) -> tuple[bool, bool]:
    """The first line has no name in common with the others: a header, if the others have names in common."""
    times = Counter(cell for row in body for cell in set(row) - MISSING)
    novel = sum(all(times[cell] == 1 for cell in set(row) - MISSING) for row in body)
    if len(body) >= 2 and novel <= _MOST_NOVEL * len(body):
        return True, True
    raise _ambiguous(first)


def _ambiguous(first: Sequence[str]) -> IngestError:
    shown = ", ".join(first[:5]) + (", ..." if len(first) > 5 else "")
    return IngestError(
        f"the first line ({shown}) may name the columns or be the first ranking; say --header or --no-header"
    )


# The first rows of a text file as a Table.


def sample_text(file: SourceFile, options: ReadOptions, forms: Sequence[Format]) -> Table:
    """The columns and first rows of a text file that may be of these formats, and where its rows begin."""
    lines, start, second = _first_lines(file)
    if any("|" in line and _MARKDOWN.fullmatch(line.strip()) for line in lines[:3]):
        raise IngestError(
            "this is a Markdown table: remove the line of dashes and the signs | at both ends of each line, and say "
            "--delimiter '|' --header"
        )
    signs, n_fields = (forms[0].delimiters, forms[0].n_fields) if len(forms) == 1 else (DELIMITERS, ())
    default = "\t" if file.name.lower().endswith(".tsv") else ","
    delimiter = options.delimiter or _sniff_delimiter(lines, default, signs, n_fields)
    try:
        rows = [split_fields(lines[0], delimiter), *(fields_if_any(line, delimiter) or [line] for line in lines[1:])]
    except IngestError as error:
        raise IngestError(f"{file.url}, line {start[1]}: {error}") from None
    below = {cell for row in rows[1:] for cell in row}
    if options.header is None and rows[0][0] and rows[0][0] not in below and title_rows(rows):
        raise IngestError(
            f"{file.url}, line {start[1]}: {rows[0][0]!r} seems to be a title: remove the lines above that with the "
            "names of the columns"
        )
    named, guessed = names_columns(rows, options, forms)
    table = table_of(rows, named)
    if guessed:
        table = table.with_guess("the first line names the columns (else say --no-header)")
    offset, number = second if named else start
    return replace(table, body_offset=offset, body_line=number, delimiter=delimiter)


def title_rows(rows: list[list[str]]) -> int:
    """How many rows at the top hold one cell each, as titles do, where nearly all others hold more."""
    widths = [sum(map(bool, cells)) for cells in rows if any(cells)]
    n_titles = next((number for number, width in enumerate(widths) if width > 1), 0)
    rest = widths[n_titles:]
    return n_titles if sum(width > 1 for width in rest) >= _NEARLY_ALL * len(rest) else 0


def names_columns(rows: list[list[str]], options: ReadOptions, forms: Sequence[Format]) -> tuple[bool, bool]:
    """Whether the first line names the columns, as the user says or the data show, and whether this is a guess."""
    if options.header is not None:
        return options.header, False
    if len(forms) == 1 and forms[0].is_row is not None:
        return not forms[0].is_row(rows[0], options), False
    named_by_user = {name.lower() for name in options.column_names}
    # Columns of a table without a header are named by their numbers.
    if named_by_user & {cell.lower() for cell in rows[0]} and not all(map(str.isdigit, named_by_user)):
        return True, False
    words = {name for form in forms for names in usual_names(form).values() for name in names} | _ROLE_WORDS
    return _has_header(rows[0], rows[1:], words)


def table_of(rows: list[list[str]], named: bool) -> Table:
    """The table with names for its columns: those of the first row, or numbers from 1."""
    body = rows[1:] if named else rows
    width = max(map(len, body), default=0) if not named else len(rows[0])
    columns = tuple(rows[0]) if named else tuple(str(place + 1) for place in range(width))
    if named and {len(row) for row in body} == {width + 1}:
        # A name is missing: of the line numbers that R writes, or behind a delimiter at the end of lines.
        columns = (*columns, "") if all(not row[-1] for row in body) else ("", *columns)
    return Table(columns=columns, body=body, has_names=named)


def without_unnamed(table: Table) -> Table:
    """The table without unnamed columns that hold line numbers or nothing. Other unnamed ones in front are ids."""
    ignored = list(table.ignored)
    for place, name in enumerate(table.columns):
        if not is_unnamed(name) or not table.has_names:
            continue
        cells = table.cells(place)
        if all(not cell for cell in cells) or counts_lines(cells):
            ignored.append(place)
        elif place == 0 and "id" not in table.roles and len(set(cells)) == len(cells):
            note = "the first column, which has no name, holds the ids of the rankings"
            table = replace(table, roles={**table.roles, "id": 0}).with_guess(note)
    return replace(table, ignored=tuple(ignored))
