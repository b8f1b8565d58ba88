"""Tables with one ranking per line: whether cells hold items or ranks, and which columns hold neither."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError
from plmix_dist.formats.sniffing.cells import MISSING, counts_lines, is_number, kind_of
from plmix_dist.formats.sniffing.header import is_generic_name, is_place_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.formats.sniffing.layout import Table

_MOST = 0.9
_NOT_RANKED = MISSING | {"0"}
_FEW = 5


def ranks_or_places(table: Table) -> tuple[str, str | None]:
    """The format "ranks" or "wide", and a sentence if this is a guess; an error if it may be either, or neither.

    Examples
    --------
    >>> from plmix_dist.formats.sniffing.layout import Table
    >>> ranks_or_places(Table("a.csv", ("tea", "mate", "milk"), [["1", "0", "2"], ["1", "1", "2"]], {}))[0]
    'ranks'
    >>> ranks_or_places(Table("a.csv", ("first", "second"), [["2", "1"]], {}))
    ('wide', None)
    """
    places = table.values
    names = [table.columns[place] for place in places]
    rows = [[row[place] for place in places] for row in table.body if len(row) == len(table.columns)]
    if all(map(is_place_name, names)) or not rows or len(places) < 2:
        _refuse_one_column(table, names, rows)
        return "wide", None
    cells = [cell for row in rows for cell in row if cell not in MISSING]
    numbers = list(filter(is_number, cells))
    if len(numbers) < _MOST * len(cells) or sum(map(is_place_name, names)) >= 2:
        return "wide", None  # foreign columns are refused later
    can_be_ranks = sum(map(_are_ranks, rows)) >= _MOST * len(rows)
    can_be_items = kind_of(numbers) == "whole" and sum(map(_are_items, rows)) >= _MOST * len(rows)
    return _of_numbers(table, names, can_be_ranks, can_be_items)


def _of_numbers(
    table: Table, names: list[str], can_be_ranks: bool, can_be_items: bool
) -> tuple[str, str | None]:
    """For a table of numbers."""
    generic = all(map(is_generic_name, names))
    if can_be_ranks and not can_be_items:
        return "ranks", None
    if can_be_ranks and not generic:
        return "ranks", "numbers are ranks, one column per item (if they are items, say --format wide)"
    if can_be_ranks:
        raise IngestError(
            f"{table.url}: the numbers may be items (one column per place) or ranks (one column per item); say "
            "--format wide or --format ranks"
        )
    if can_be_items and generic:
        return "wide", "numbers are items, one column per place"
    raise IngestError(
        f"{table.url}: the numbers below {', '.join(names[:4])}{', ...' if len(names) > 4 else ''} are no ranks: if "
        "they are ratings, turn them into ranks first (1 is the best); if they are ranks all the same, say --format "
        "ranks; if they are items, one column per place, say --format wide; if some of these columns are no places, "
        "name the places with --column places=NAME,NAME"
    )


def _are_ranks(row: Sequence[str]) -> bool:
    """Whether a row is a ranking by ranks: from 1, without gaps larger than ties leave."""
    ranked = [cell.replace(",", ".") for cell in row if cell not in _NOT_RANKED]
    if not ranked or not all(is_number(cell) for cell in ranked):
        return False
    ranks = sorted(map(float, ranked))
    n_first = ranks.count(ranks[0])
    # Items tied for the first rank have rank 1, or the average of the ranks they share.
    return ranks[0] in (1.0, (n_first + 1) / 2) and ranks[-1] <= len(ranks)


def _are_items(row: Sequence[str]) -> bool:
    """Whether a row is a ranking by places: no item twice, nothing behind an empty place."""
    listed = [cell not in MISSING for cell in row]
    items = [cell for cell in row if cell not in MISSING]
    return bool(items) and all(listed[: len(items)]) and len(set(items)) == len(items)


def _refuse_one_column(table: Table, names: list[str], rows: list[list[str]]) -> None:
    """An error for a single column whose cells look like several items."""
    cells = [row[0] for row in rows] if len(names) == 1 else []
    if cells and not is_place_name(names[0]) and any(sign in cell for cell in cells for sign in " |/:"):
        raise IngestError(
            f"{table.url}: there is one column only, and its cells look like several items ({cells[0]}): if each is "
            "an ordering, best item first, say --format orderings; if a sign divides the items, say --delimiter SIGN"
        )


def refuse_header_below(table: Table) -> None:
    """An error if a line below the first has the names of places, as where the lines of a file were sorted.

    Examples
    --------
    >>> from plmix_dist.formats.sniffing.layout import Table
    >>> refuse_header_below(Table("a.csv", ("1", "2"), [["ale", "tea"], ["first", "second"], ["tea", "ale"]], {}))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.IngestError: a.csv: the line 'first,second' names columns but is not the first line; ...
    """
    for row in table.body:
        cells = [cell for cell in row if cell not in MISSING]
        if len(cells) > 1 and all(map(is_place_name, cells)) and tuple(row) != table.columns:
            raise IngestError(
                f"{table.url}: the line {','.join(row[:6])!r} names columns but is not the first line; move it there, "
                "or remove it"
            )


def refuse_foreign_columns(table: Table) -> None:
    """An error if a column of a table of places does not hold items as the other columns do.

    Examples
    --------
    >>> from plmix_dist.formats.sniffing.layout import Table
    >>> body = [["Riga", "tea", "mate"], ["Oslo", "mate", "tea"]]
    >>> refuse_foreign_columns(Table("a.csv", ("town", "first", "second"), body, {}))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.IngestError: a.csv: the column 'town' (Riga, Oslo) seems not to hold a place ...
    """
    places = table.values
    like = {place: is_place_name(table.columns[place]) for place in places}
    _refuse_zeros(table)
    if all(like.values()):
        return
    cells = {place: [cell for cell in table.cells(place) if cell not in MISSING] for place in places}
    foreign = []
    for place in places:
        others = {other: set(cells[other]) for other in places if other != place}
        if not like[place] and (sum(like.values()) >= 2 or _is_foreign(cells[place], others)):
            foreign.append(place)
    if foreign:
        raise _foreign_columns(table, foreign)


def _is_foreign(cells: list[str], others: dict[int, set[str]]) -> bool:
    """Whether a column shares nothing with the others, while this cannot be chance."""
    union = set().union(*others.values()) if others else set()
    own = set(cells)
    if not own or not union or own & union:
        return len(cells) >= _FEW and counts_lines(cells)
    if all(map(is_number, own)) and not any(map(is_number, union)):
        return True
    if len(others) == 1:
        return len(cells) >= _FEW - 1
    if len(own) == 1:
        return False  # one item may always have the same place
    if len(cells) >= _FEW and len(own) == len(cells) and len(union) < len(cells):
        return True  # every cell is different, as ids are
    return all(
        2 * len(found & set().union(*(some for other, some in others.items() if other != place)))
        >= len(found)
        for place, found in others.items()
    )


def _foreign_columns(table: Table, foreign: list[int]) -> IngestError:
    """An error that names the columns that hold no places, and the options that say so."""
    name, cells = table.columns[foreign[0]], table.cells(foreign[0])
    shown = ", ".join(dict.fromkeys(cells[:3]))
    kinds = {"id": "an id"} | ({"weight": "a weight"} if all(map(is_number, cells)) else {})
    options = " or ".join(_option(role, name) for role in kinds)
    places = [table.columns[place] for place in table.values if place not in foreign]
    if len(places) < 2:
        what = "hold no items in common with the others" if len(foreign) > 1 else "hold no items"
        found = ", ".join(table.columns[place] for place in foreign)
        return IngestError(
            f"{table.url}: the columns {found} seem to {what}: name the places, best first, with "
            f"{_option('places', 'NAME,NAME')}; for one line per item, say --format long and name the columns with "
            "--column id=NAME --column item=NAME --column rank=NAME"
        )
    return IngestError(
        f"{table.url}: the column {name!r} ({shown}) seems not to hold a place of a ranking as the others do: say "
        f"{options} if it is {' or '.join(kinds.values())}, or name the places, best first: "
        f"{_option('places', ','.join(places))}"
    )


def _option(role: str, name: str) -> str:
    """An option that names the column of a role, in quotes if a shell needs them."""
    text = f"{role}={name}"
    return f"--column {shlex.quote(text)}"


def _refuse_zeros(table: Table) -> None:
    """An error if 0 seems to fill places without an item, as some tools of R write it."""
    rows = [[row[place] for place in table.values] for row in table.body if len(row) == len(table.columns)]
    rows = [row for row in rows if "0" in row]
    at_the_end = all(set(row[row.index("0") :]) <= {"0", *MISSING} and row[0] != "0" for row in rows)
    if rows and at_the_end and (len(rows) >= _FEW or any(row.count("0") > 1 for row in rows)):
        raise IngestError(
            f"{table.url}: 0 seems to stand for places without an item ({', '.join(rows[0][:6])}); leave such places "
            "empty, or write NA"
        )


def refuse_long_tables(table: Table) -> None:
    """An error for a table that has several lines of the same person or ranking, with a number in each.

    Examples
    --------
    >>> from plmix_dist.formats.sniffing.layout import Table
    >>> body = [["ann", "tea", "1"], ["ann", "mate", "2"], ["bob", "tea", "1"], ["bob", "mate", "2"]]
    >>> refuse_long_tables(Table("a.csv", ("who", "drink", "liking"), body, {}))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.IngestError: a.csv: several lines have the same 'who': ...
    """
    labels = [table.roles[role] for role in ("id", "group") if role in table.roles]
    keys = labels or table.values[:1]
    values = [place for place in table.values if place not in keys]
    if all(is_place_name(table.columns[place]) for place in values) or not 1 < len(values) <= 3:
        return
    numeric = [place for place in values if kind_of(table.cells(place)) in ("whole", "decimal")]
    cells = table.cells(keys[0])
    n_runs = 1 + sum(cell != before for cell, before in itertools.pairwise(cells))
    disjoint = labels or not set(cells) & {cell for place in values for cell in table.cells(place)}
    if numeric and disjoint and cells and 2 * n_runs <= len(cells) + 1 and len(cells) > 1:
        names = [table.columns[place] for place in (keys[0], _first(values, numeric), numeric[-1])]
        options = " ".join(map(_option, ("id", "item", "rank"), names))
        raise IngestError(
            f"{table.url}: several lines have the same {names[0]!r}: if each line is one item of a ranking, and "
            f"{names[2]!r} is its rank (1 is the best), say --format long {options}; if it is a rating, say "
            "--format ratings; if each line is a ranking, say --format wide"
        )


def _first(values: list[int], numeric: list[int]) -> int:
    """The first column that does not hold the rank."""
    return next(place for place in values if place != numeric[-1])
