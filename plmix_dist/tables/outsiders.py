"""What does not belong: covariates among ranks, counts that nothing uses, doubtful cells; and what the best rank is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from plmix_dist.errors import IngestError
from plmix_dist.tables import words
from plmix_dist.tables.format import Table
from plmix_dist.tables.places import FEW, MOST, are_items, column_option
from plmix_dist.tables.sniff import is_number, kind_of


def first_rank_of(table: Table, zero: str | None = None) -> tuple[int, str | None]:
    """The best rank of a table of ranks, 1 or 0, and a sentence if it is 0; an error if 0 may mean no rank.

    `zero` is what the user says that 0 is: the "best" rank, or "none".
    """
    if zero is not None:
        return (0, "0 is the best rank") if zero == "best" else (1, None)
    rows = [[cell.removesuffix(".0") for cell in row if cell not in words.NO_RANK] for row in table.rows(table.values)]
    from_zero = [sorted(row) == sorted(map(str, range(len(row)))) for row in rows if row]
    n_zeros = [row.count("0") for row in rows if row]
    if not all(n_zeros) or not (any(from_zero) or max(n_zeros, default=0) == 1):
        return 1, None
    if sum(from_zero) >= MOST * len(from_zero) and max(map(len, rows)) > 3:
        return 0, "0 is the best rank (for no rank say --rule zero=none; if these are points, --format scores)"
    raise IngestError(
        "every row has a rank 0, which may be the best rank or stand for no rank: say --rule zero=best "
        "or --rule zero=none"
    )


def refuse_covariate_names(table: Table) -> None:
    """An error if a column among scores is named after something that is known of a person or a ballot."""
    names = table.names(table.values)
    if (odd := [name for name in names if words.is_covariate_name(name)]) and len(odd) < len(names):
        odd = [name for name in odd if not words.may_be_count(name)] or odd
        raise IngestError(
            f"the column {odd[0]!r} seems not to hold scores of an item: leave it out with "
            f"{column_option('ignore', *odd)}, or say {column_option('weight', odd[0])} if it is a weight; if it is an "
            "item, rename it"
        )


_HIGHEST = re.compile(r"\b(?:[2-9]|\d\d+) ?[=:] ?(?:best|highest|most|top|favou?rite)", re.IGNORECASE)


def refuse_highest_first(table: Table) -> None:
    """An error if the name of a column says that a high number is the best, as in "Tea (5 = best)"."""
    if (said := next((name for name in table.columns if _HIGHEST.search(name)), None)) is not None:
        raise IngestError(
            f"{said!r} says that the highest number is the best: say --format scores for one column per item, --format "
            "ratings for one line per item; if 1 is the best all the same, rename the column"
        )


# The ranks of all rows, 0 where an item has none.
_Ranks = Sequence[Sequence[float | None]]


def refuse_covariates(table: Table) -> None:
    """An error if a column among ranks does not hold ranks: by its name, or as its numbers belong to no ranking."""
    places = table.values
    found = [[0.0 if cell in words.NOT_RANKED else words.rank_in(cell) for cell in row] for row in table.rows(places)]
    rows = [row for row in found if None not in row]
    names = table.names(places)
    if len(places) < 3 or 2 * len(rows) < len(table.body) or not rows or sum(map(words.is_place_name, names)) >= 2:
        return
    cells = table.rows(places)
    whole = kind_of(cell for row in cells for cell in row) == "whole"
    if whole and all(map(words.is_generic_name, names)) and sum(map(are_items, cells)) >= MOST * len(rows):
        return  # perhaps item numbers, one column per place: this is asked later
    by_name = [
        number for number, name in enumerate(names) if words.is_covariate_name(name) or words.words_not_items([name])
    ]
    by_name = [number for number in by_name if not words.may_be_count(names[number])] or by_name
    odd = by_name if len(by_name) < len(places) else []
    odd = odd or _of_another_style([table.cells(place) for place in places])
    odd = odd or _beyond_ranks(rows)
    if not any("=" in cell for row in cells for cell in row):  # which says that ties are meant
        odd = odd or _never_alone(rows) or _all_that_tie(rows)
    if odd:
        name, values = names[odd[0]], sorted(set(table.cells(places[odd[0]])) - words.MISSING)
        ways = " or ".join(column_option("ignore", names[number]) for number in odd)
        if odd == by_name:
            ways = column_option("ignore", *(names[number] for number in odd))
        weight = f" or {column_option('weight', name)} if it counts rows" if all(map(str.isdigit, values)) else ""
        raise IngestError(
            f"the column {name!r} ({', '.join(values[:4])}) seems not to hold ranks of an item as the "
            f"others do: say {ways}{weight}; if it is an item, say --format ranks; if all are scores, the highest the "
            "best, say --format scores"
        )


def _of_another_style(columns: list[list[str]]) -> list[int]:
    """Columns of plain numbers among ranks such as 1st, and of 0 and 1 where no other column has a 0."""
    plain = [[cell for cell in cells if cell not in words.MISSING and is_number(cell)] for cells in columns]
    text = [number for number, cells in enumerate(plain) if not cells]
    flags = [number for number, cells in enumerate(plain) if set(cells) == {"0", "1"} and len(cells) >= FEW - 1]
    if flags and len(flags) < len(columns):
        return flags if sum("0" in cells for cells in plain) == len(flags) else []
    return [number for number, cells in enumerate(plain) if len(cells) == len(columns[number])] if text else []


def _beyond_ranks(rows: _Ranks) -> list[int]:
    """Columns with numbers larger than there are columns, if the others hold ranks."""
    large = [sum((row[number] or 0) > len(row) for row in rows) for number in range(len(rows[0]))]
    found = [number for number, times in enumerate(large) if times > (1 - MOST) * len(rows)]
    rest = [[rank for number, rank in enumerate(row) if number not in found and rank] for row in rows]
    dense = [bool(row) and min(row) < 2 and max(row) <= len(row) for row in rest]
    return found if sum(dense) >= MOST * len(rows) else []


def _never_alone(rows: _Ranks) -> list[int]:
    """Columns of which each number is in another column of its row too, while others mostly have theirs alone."""
    listed, alone = [0] * len(rows[0]), [0] * len(rows[0])
    for row in rows:
        for number, rank in enumerate(row):
            if rank:
                listed[number] += 1
                alone[number] += row.count(rank) == 1
    fewest = 1 if len(rows) >= FEW else FEW - 2
    never = [number for number, n_listed in enumerate(listed) if n_listed >= fewest and not alone[number]]
    mostly_alone = sum(2 * one >= n_listed for one, n_listed in zip(alone, listed, strict=True))
    return never if mostly_alone >= 2 else []


def _all_that_tie(rows: _Ranks) -> list[int]:
    """Columns without one of which no row has ties, where many have some."""

    def n_tied(without: int | None = None) -> int:
        kept = ([rank for number, rank in enumerate(row) if number != without and rank] for row in rows)
        return sum(len(set(row)) < len(row) for row in kept)

    if n_tied() < max(FEW - 2, (1 - MOST) * len(rows)):
        return []
    return [number for number in range(len(rows[0])) if not n_tied(number)]


def refuse_unused_counts(table: Table) -> None:
    """An error if a column without a role may count the rows like each: their weight would be lost.

    Three or more such columns describe the rankings, as those of a survey do.
    """
    unused = [place for place in table.values if place not in table.roles.values() and place not in table.lists]
    found = [place for place in unused if "weight" not in table.roles and _may_count(table.cells(place))]
    if not found or len(found) > 2:
        return
    name = table.columns[found[0]]
    raise IngestError(
        f"the column {name!r} may count the rankings of each row: say {column_option('weight', name)}, or "
        f"{column_option('ignore', name)} to leave it out"
    )


def _may_count(cells: list[str]) -> bool:
    """Whether cells are whole numbers that do not number the rows."""
    whole = kind_of(cells) == "whole" and all(map(str.isdigit, cells))
    return whole and (len(cells) == 1 or any(int(after) <= int(before) for before, after in itertools.pairwise(cells)))


_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")


def with_doubts(table: Table) -> Table:
    """The table with a note on NA among its items; an error if NA may be an item, or points may divide thousands."""
    roles = table.roles
    items = {cell for role, at in roles.items() if role.startswith(("place ", "item ")) for cell in table.cells(at)}
    if "NA" in items and all(len(cell) == 2 and cell.isalpha() and cell.isupper() for cell in items - words.MISSING):
        raise IngestError(
            "all items have two capitals, and NA may be one of them: write another name for it, such as "
            "Namibia, or leave its places empty if it stands for no item"
        )
    weight = [at for role, at in roles.items() if role == "weight"]
    scores = [at for role, at in roles.items() if role in ("first_score", "second_score")]
    for places in (weight, scores, table.values if table.item_names else []) if table.container == "text" else ():
        cells = [cell for place in places for cell in table.cells(place)]
        points = [cell for cell in cells if "." in cell]
        # Numbers with three decimals hardly stand beside hundreds, and those of weights hardly end in 0.
        odd = any(cell.isdigit() and len(cell) > 2 for cell in cells) or "0" in [
            cell[-1] for cell in points if places is weight
        ]
        if points and odd and all(map(_THOUSANDS.fullmatch, points)):
            raise IngestError(
                f"points may divide thousands in {table.columns[places[0]]!r}, as in {points[0]}: write "
                f"{points[0].replace('.', '')} if they do, else another digit behind each, such as {points[0]}0"
            )
    return replace(table, guesses=(*["'NA' is a place without an item"] * ("NA" in items), *table.guesses))
