"""Cells of a table: which are missing, which are numbers, and of what kind the cells of a column are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What stands for no item in a table of places.
MISSING = frozenset({"", "NA", "NaN", "nan", "-1"})
Kind = Literal["empty", "whole", "decimal", "text"]
_NEARLY_ALL = 0.9
_ARROW = re.compile(r"[^\s>]\s*>\s*[^\s>]")
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?")


def is_number(cell: str) -> bool:
    """Whether a cell is a number, also with a decimal comma.

    Examples
    --------
    >>> [is_number(cell) for cell in ("7", "-1.5", "2,5", "7up", "")]
    [True, True, True, False, False]
    """
    return bool(_NUMBER.fullmatch(cell)) and cell.isascii()


def are_orderings(cells: Sequence[str]) -> bool:
    """Whether nearly all cells are orderings such as `tea > mate`.

    Examples
    --------
    >>> are_orderings(["tea > mate", "mate>tea"]), are_orderings(["<b>", "tea"])
    (True, False)
    """
    return bool(cells) and sum(bool(_ARROW.search(cell)) for cell in cells) >= _NEARLY_ALL * len(cells)


def are_lists(cells: Sequence[str]) -> bool:
    """Whether nearly all cells are lists, divided by commas or semicolons, of items that come again.

    Examples
    --------
    >>> are_lists(["tea, mate", "mate, tea", "tea, mate"]), are_lists(["Lee, Ann", "Bo, Cy"])
    (True, False)
    """
    lists = [re.split("[,;]", cell) for cell in cells]
    several = sum(len(items) > 1 for items in lists)
    distinct = {item.strip() for items in lists for item in items}
    return bool(cells) and several >= _NEARLY_ALL * len(cells) and len(distinct) <= len(cells)


def counts_lines(cells: Sequence[str]) -> bool:
    """Whether cells count from 0 or 1.

    Examples
    --------
    >>> counts_lines(["0", "1", "2"]), counts_lines(["1", "3"])
    (True, False)
    """
    return any(
        list(cells) == [str(number) for number in range(start, start + len(cells))] for start in (0, 1)
    )


def kind_of(cells: Iterable[str]) -> Kind:
    """The kind of the cells of a column that are not missing.

    Examples
    --------
    >>> kind_of(["1", "2", "NA"]), kind_of(["1", "2.5"]), kind_of(["1", "tea"]), kind_of([""])
    ('whole', 'decimal', 'text', 'empty')
    """
    found: Kind = "empty"
    for cell in cells:
        if cell in MISSING:
            continue
        if not is_number(cell):
            return "text"
        whole = _WHOLE.fullmatch(cell) is not None
        found = "decimal" if not whole or found == "decimal" else "whole"
    return found
