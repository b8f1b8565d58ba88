"""Whether the first line of a table names its columns, or is a ranking."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError
from plmix_dist.formats.format import COLUMN_NAMES
from plmix_dist.formats.sniffing.cells import MISSING, are_orderings, counts_lines, is_number, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_ORDINALS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|best|worst|top|last|winner|loser|"
    "favou?rite|runner[ _-]?up"
)
_PLACE_WORDS = "place|rank|ranking|choice|preference|pref|position|pos|top|vote|p|r"
_PLACE = re.compile(
    rf"(?:{_ORDINALS})(?:[ _.-]*(?:{_PLACE_WORDS}))?|(?:{_PLACE_WORDS})[ _.-]*#?\d+|\d+(?:st|nd|rd|th|\.)?"
    rf"[ _.-]*(?:{_PLACE_WORDS})|\d+(?:st|nd|rd|th)",
    re.IGNORECASE,
)
_GENERIC = re.compile(r"(?:v|x|c|col|column|var|item|field|unnamed:)?[ _.-]*\d+|[a-z]|", re.IGNORECASE)
_ROLE_WORDS = {word for words in COLUMN_NAMES.values() for word in words}
RATING_WORDS = {"rating", "ratings", "score", "scores", "stars", "points", "grade", "grades"}
# At most this share of lines may have nothing in common with the others, where a first line that has nothing in
# common with them is taken for a header.
_MOST_NOVEL = 0.1


def is_place_name(name: str) -> bool:
    """Whether a column name says that the column holds a place of a ranking.

    Examples
    --------
    >>> [is_place_name(name) for name in ("first", "place_2", "p3", "2nd choice", "tea", "V1")]
    [True, True, True, True, False, False]
    """
    return bool(_PLACE.fullmatch(name.strip()))


def is_generic_name(name: str) -> bool:
    """Whether a column name says nothing: a number, one letter, or what tools write where there is no name.

    Examples
    --------
    >>> [is_generic_name(name) for name in ("V1", "0", "a", "col_2", "tea")]
    [True, True, True, True, False]
    """
    return bool(_GENERIC.fullmatch(name.strip()))


def has_header(first: Sequence[str], body: Sequence[Sequence[str]], url: str) -> tuple[bool, bool]:
    """Whether the first line names the columns, and whether this is a guess; an error if it may be either.

    Examples
    --------
    >>> has_header(["first", "second"], [["tea", "mate"]], "a.csv")
    (True, False)
    >>> has_header(["tea", "mate"], [["mate", "tea"]], "a.csv")
    (False, False)
    """
    cells = [cell for cell in first if cell not in MISSING]
    seen = {cell for row in body for cell in row} - MISSING
    # Where files were joined, the header comes again.
    elsewhere = {cell for row in body if list(row) != list(first) for cell in row}
    words = [cell for cell in cells if cell.lower() in _ROLE_WORDS | RATING_WORDS and cell not in elsewhere]
    columns = list(zip(*(row for row in body if len(row) == len(first)), strict=True))
    orderings = [place for place, column in enumerate(columns) if are_orderings(column)]
    if orderings and not words:
        return not any(are_orderings([first[place]]) for place in orderings), False
    if columns and not first[0] and counts_lines(columns[0]):
        return True, False  # line numbers, which have no name
    if words or (cells and all(is_place_name(cell) for cell in cells) and not elsewhere.intersection(cells)):
        return True, False
    if any(map(is_number, cells)) and not all(map(is_number, cells)):
        return _by_kinds(first, body, seen, url)
    return _of_numbers(cells, seen, url) if all(map(is_number, cells)) else _of_names(first, body, seen, url)


def _of_numbers(cells: list[str], seen: set[str], url: str) -> tuple[bool, bool]:
    """For a first line of numbers."""
    in_sequence = cells in ([str(n) for n in range(len(cells))], [str(n + 1) for n in range(len(cells))])
    if not in_sequence:
        if seen and not any(map(is_number, seen)):
            raise _ambiguous(cells, url)
        return False, False
    if seen and not seen.intersection(cells):
        return True, False
    if seen and "0" in cells and "0" not in seen:
        return True, True
    raise _ambiguous(cells, url)


def _of_names(
    first: Sequence[str], body: Sequence[Sequence[str]], seen: set[str], url: str
) -> tuple[bool, bool]:
    """For a first line of names."""
    rows = [row for row in body if len(row) == len(first) and list(row) != list(first)]
    kinds = [kind_of(column) for column in zip(*rows, strict=True)]
    if any(kind in ("whole", "decimal") and cell for cell, kind in zip(first, kinds, strict=False)):
        return True, False
    if seen.intersection(cell for cell in first if cell):
        return False, False
    return _by_novelty(first, body, url)


def _by_kinds(
    first: Sequence[str], body: Sequence[Sequence[str]], seen: set[str], url: str
) -> tuple[bool, bool]:
    """For a first line of names and numbers: a column of numbers below a number has no header."""
    rows = [row for row in body if len(row) == len(first)]
    alike = [
        is_number(cell) == is_number(row[place])
        for row in rows
        for place, cell in enumerate(first)
        if cell not in MISSING and row[place] not in MISSING
    ]
    if alike and all(alike):
        return False, False
    return (False, False) if seen.intersection(first) else _by_novelty(first, body, url)


def _by_novelty(first: Sequence[str], body: Sequence[Sequence[str]], url: str) -> tuple[bool, bool]:
    """The first line has no name in common with the others: a header, if the others have names in common."""
    times = Counter(cell for row in body for cell in set(row) - MISSING)
    novel = sum(all(times[cell] == 1 for cell in set(row) - MISSING) for row in body)
    if len(body) >= 2 and novel <= _MOST_NOVEL * len(body):
        return True, True
    raise _ambiguous(first, url)


def _ambiguous(first: Sequence[str], url: str) -> IngestError:
    shown = ", ".join(first[:5]) + (", ..." if len(first) > 5 else "")
    return IngestError(
        f"{url}: the first line ({shown}) may name the columns or be the first ranking; say --header or --no-header"
    )
