"""Tables with one ranking per line: whether cells hold items or ranks, and which columns hold neither."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import replace

from plmix_dist.errors import IngestError, RankingError
from plmix_dist.tables import words
from plmix_dist.tables.format import ReadOptions, Table, places_of
from plmix_dist.tables.sniff import RATING_WORDS, are_lists, counts_lines, is_number, kind_of
from plmix_dist.tables.words import LISTS_OF_COLUMNS, MISSING, NO_RANK, NOT_RANKED

# This share of rows or cells must be as expected, so that single bad rows do not decide.
MOST = 0.9
FEW = 5


def ranks_or_places(table: Table) -> tuple[str, str | None]:
    """The format "ranks" or "wide", and a sentence if this is a guess; an error if it may be either, or neither."""
    places = table.values
    names = table.names(places)
    rows = table.rows(places)
    if not rows or len(places) < 2 or (all(map(words.is_place_name, names)) and not words.may_be_ranks_of_items(names)):
        _refuse_one_column(names, rows)
        return "wide", None
    cells = [cell for row in rows for cell in row if cell not in NO_RANK]
    numbers = [cell for cell in cells if is_number(cell) or words.rank_in(cell) is not None]
    named = sum(map(words.is_place_name, names))
    can_be_ranks = sum(map(_are_ranks, rows)) >= MOST * len(rows)
    if not (can_be_ranks or named or all(map(words.is_generic_name, names)) or table.container == "memory"):
        _refuse_turned(table)
    if len(numbers) < MOST * len(cells) or 2 <= named < len(names):
        return "wide", None  # foreign columns are refused later
    can_be_items = kind_of(numbers) == "whole" and sum(map(are_items, rows)) >= MOST * len(rows)
    if table.container == "memory":
        return _of_numbers_in_memory(table, names, can_be_ranks)
    if named and not can_be_ranks:
        return "wide", None
    _refuse_marks(names, cells)
    return _of_numbers(names, can_be_ranks, can_be_items)


def _of_numbers_in_memory(table: Table, names: list[str], can_be_ranks: bool) -> tuple[str, str | None]:
    """Numbers handed in are item numbers, from 0, unless the columns have names of items, and the cells are ranks."""
    if not can_be_ranks or all(words.is_generic_name(name) or words.is_place_name(name) for name in names):
        return "wide", None
    if any("0" in row for row in table.rows(table.values)):
        raise RankingError(
            f"the numbers below {', '.join(names[:4])} may be ranks, one column per item, or item numbers, one column "
            "per place, and 0 may be the best rank, an item or no rank: hand in ranks from 1, empty where an item has "
            "none, or a list of rows of items: table.to_numpy().tolist()"
        )
    return "ranks", None


def refuse_ranks_in_places(table: Table, names: Sequence[str]) -> None:
    """An error if the columns that the user named as places may hold ranks, one column per item."""
    places = [place for place, name in enumerate(table.columns) if name in names]
    rows = table.rows(places)
    ordinals = all(map(words.is_place_name, names)) and not words.may_be_ranks_of_items(names)
    if rows and len(places) > 1 and not ordinals and sum(map(_are_ranks, rows)) >= MOST * len(rows):
        others = [table.columns[place] for place in table.values if place not in places]
        ignore = f" {column_option('ignore', *others)}" if others else ""
        raise IngestError(
            f"the numbers below {', '.join(names[:4])} may be items (one column per place) or ranks (one "
            f"column per item): say --format wide {column_option('places', *names)}, or --format ranks{ignore}"
        )


def _refuse_marks(names: list[str], cells: list[str]) -> None:
    """An error for columns of 0 and 1 alone: what was chosen or approved, not ranks."""
    if {cell.removesuffix(".0") for cell in cells} == {"0", "1"}:
        raise IngestError(
            f"the columns {', '.join(names[:4])} hold 0 and 1 alone, as where items are marked: if 1 is better than 0, "
            "say --format scores; if 1 is the first rank and 0 is none, say --format ranks"
        )


def _of_numbers(names: list[str], can_be_ranks: bool, can_be_items: bool) -> tuple[str, str | None]:
    """For a table of numbers."""
    generic = all(words.is_generic_name(name) or words.is_place_name(name) or name[-1:].isdigit() for name in names)
    if can_be_ranks and not can_be_items:
        return "ranks", None
    if can_be_ranks and not generic:
        return "ranks", "numbers are ranks, one column per item (if they are items, say --format wide)"
    if can_be_ranks:
        raise IngestError(
            "the numbers may be items (one column per place) or ranks (one column per item); say "
            "--format wide or --format ranks"
        )
    raise IngestError(
        f"the numbers below {', '.join(names[:4])}{', ...' if len(names) > 4 else ''} are not ranks: if "
        "they are ratings, of which the highest is the best, say --format scores; if they are ranks all the same (1 is "
        "the best), say --format ranks; if they are items, one column per place, say --format wide; if some of these "
        "columns are not places, name the places with --column places=NAME,NAME, or leave columns out with --column "
        "ignore=NAME,NAME"
    )


def _are_ranks(row: Sequence[str]) -> bool:
    """Whether a row is a ranking by ranks: from 1, without gaps larger than ties leave."""
    found = [words.rank_in(cell) for cell in row if cell not in NOT_RANKED]
    ranks = sorted(rank for rank in found if rank is not None)
    if not ranks or len(ranks) < len(found):
        return False
    # Items tied for the first rank have rank 1, or the average of the ranks they share.
    return ranks[0] in (1.0, (ranks.count(ranks[0]) + 1) / 2) and ranks[-1] <= len(ranks)


def are_items(row: Sequence[str]) -> bool:
    """Whether a row is a ranking by places: no item twice, nothing behind an empty place."""
    listed = [cell not in MISSING for cell in row]
    items = [cell for cell in row if cell not in MISSING]
    return bool(items) and all(listed[: len(items)]) and len(set(items)) == len(items)


def _refuse_one_column(names: list[str], rows: list[list[str]]) -> None:
    """An error for a single column whose cells look like several items."""
    cells = [row[0] for row in rows] if len(names) == 1 else []
    if cells and not words.is_place_name(names[0]) and any(sign in cell for cell in cells for sign in " |/:"):
        raise IngestError(
            f"there is one column only, and its cells look like several items ({cells[0]}): if each is "
            "an ordering, best item first, say --format orderings; if a sign divides the items, say --delimiter SIGN"
        )


def refuse_header_below(table: Table) -> None:
    """An error if a line below the first has the names of places, as where the lines of a file were sorted."""
    for row in table.body:
        cells = [cell for cell in row if cell not in MISSING]
        if len(cells) > 1 and all(map(words.is_place_name, cells)) and tuple(row) != table.columns:
            raise IngestError(
                f"the line {','.join(row[:6])!r} names columns but is not the first line; move it there, or remove it"
            )


def _refuse_turned(table: Table) -> None:
    """An error if each column, and not each row, is a ranking: of ranks, or of the same items."""
    columns = [cells for place in table.values if not counts_lines(cells := table.cells(place))]
    numeric = [cells for cells in columns if kind_of(cells) != "text"]
    columns = numeric if len(numeric) > 1 else columns
    rows = list(zip(*columns, strict=True))
    same = len({tuple(sorted(cells)) for cells in columns}) == 1 and len(set(columns[0])) == len(rows) >= FEW - 1
    down = all(_are_ranks(cells) and 4 * len(set(cells)) >= 3 * len(cells) for cells in columns) or same
    across = sum(_are_ranks(row) or (len(set(row)) == len(row) and sorted(row) == sorted(rows[0])) for row in rows)
    if len(columns) > 1 and down and across < MOST * len(rows):
        raise IngestError(
            "each column seems to be a ranking, and not each row: turn the table over, so that each row is one: "
            "plmix_dist.ingest(pandas.read_csv(FILE, index_col=0).T, STORE)"
        )


def refuse_foreign_columns(table: Table) -> None:
    """An error if a column of a table of places does not hold items as the other columns do."""
    places = table.values
    in_memory = table.container == "memory"
    has_text = any(kind_of(table.cells(place)) == "text" for place in places)
    if in_memory and (len(places) < 3 or len(table.body) < _FEWEST_ROWS or not has_text):
        return
    like = {place: words.is_place_name(table.columns[place]) and not in_memory for place in places}
    if not in_memory:  # there 0 is the first item
        _refuse_zeros(table)
    cells = {place: [cell for cell in table.cells(place) if cell not in MISSING] for place in places}
    if all(like.values()) or places_of(table.roles):
        if [table.columns[place] for place in places] != [f"place_{place + 1}" for place in range(len(places))]:
            _refuse_disjoint(table, cells)  # else this is what export writes, where any items may stand in any place
        return
    foreign = []
    for place in places:
        others = {other: set(cells[other]) for other in places if other != place}
        if not like[place] and (sum(like.values()) >= 2 or _is_foreign(cells[place], others)):
            foreign.append(place)
    if (shared := [place for place in foreign if _shares(cells, place)]) and not in_memory:
        known = ", ".join(table.columns[one] for one in places if like[one])
        raise IngestError(
            f"the column {table.columns[shared[0]]!r} holds the same items as {known}, but its name says "
            "no place: name all places, best first, with --column places=NAME,NAME,NAME"
        )
    foreign = foreign or _of_the_rarer_kind(cells)
    if foreign:
        raise _foreign_columns(table, foreign)


def _shares(cells: dict[int, list[str]], place: int) -> bool:
    """Whether most cells of a column are items of the others."""
    others = {cell for other, found in cells.items() if other != place for cell in found}
    return 2 * sum(cell in others for cell in cells[place]) > len(cells[place])


def _of_the_rarer_kind(cells: dict[int, list[str]]) -> list[int]:
    """The columns of numbers among columns of text, or of text among numbers: fewer, and without a cell in common."""
    numeric = [place for place, found in cells.items() if found and all(map(is_number, found))]
    text = [place for place, found in cells.items() if found and place not in numeric]
    if set().union(*(cells[place] for place in numeric)) & set().union(*(cells[place] for place in text)):
        return []
    rarer = text if len(text) < len(numeric) else numeric
    return rarer if text and all(len(cells[place]) >= FEW - 1 for place in rarer) else []


def _refuse_disjoint(table: Table, cells: dict[int, list[str]]) -> None:
    """An error if a column, of several items, shares none with the other places: these do not rank the same items."""
    places = places_of(table.roles) or table.values
    for place in places if len(places) > 1 else ():
        own, others = set(cells[place]), {cell for other in places if other != place for cell in cells[other]}
        if len(own) > 1 and others and not own & others and len(table.body) >= FEW:
            names = table.names(places)
            raise IngestError(
                f"no item of the column {table.columns[place]!r} ({', '.join(sorted(own)[:3])}) is in "
                "another place of a ranking, so nothing is compared with itself elsewhere: leave it out with "
                f"{column_option('ignore', table.columns[place])}; if these are the places, best first, say "
                f"--format wide {column_option('places', *names)}"
            )


def _is_foreign(cells: list[str], others: dict[int, set[str]]) -> bool:
    """Whether a column shares nothing with the others, while this cannot be chance."""
    union = set().union(*others.values()) if others else set()
    own = set(cells)
    if not own or not union or own & union:
        return len(cells) >= FEW and counts_lines(cells)
    if all(map(is_number, own)) and not any(map(is_number, union)):
        return True
    if len(others) == 1:
        return len(cells) >= FEW - 1
    if len(own) == 1:
        return False  # one item may always have the same place
    if len(cells) >= FEW and len(own) == len(cells) and len(union) < len(cells):
        return True  # every cell is different, as ids are
    return all(
        2 * len(found & set().union(*(some for other, some in others.items() if other != place))) >= len(found)
        for place, found in others.items()
    )


def _foreign_columns(table: Table, foreign: list[int]) -> IngestError:
    """An error that names the columns that hold no places, and the options that say so."""
    name, cells = table.columns[foreign[0]], table.cells(foreign[0])
    shown = ", ".join(dict.fromkeys(cells[:3]))
    kinds = {"id": "an id"} | ({"weight": "a weight"} if all(map(is_number, cells)) else {})
    options = " or ".join(column_option(role, name) for role in kinds)
    rest = [place for place in table.values if place not in foreign]
    cells_of = {place: set(table.cells(place)) - MISSING for place in rest}
    alike = [one for one in rest if any(cells_of[one] & cells_of[other] for other in rest if other != one)]
    places = table.names(alike)
    if len(places) < 2:
        what = "hold no items in common with the others" if len(foreign) > 1 else "hold no items"
        found = ", ".join(table.columns[place] for place in foreign)
        return IngestError(
            f"the columns {found} seem to {what}: name the places, best first, with "
            f"--column places=NAME,NAME; for one line per item, say --format long and name the columns with "
            "--column id=NAME --column item=NAME --column rank=NAME"
        )
    order = words.order_of_places(places)
    if order is None and any(kind_of(table.cells(table.columns.index(one))) == "text" for one in places):
        order = list(range(len(places)))  # numbers may be ranks, and then these columns are not places
    best_first = "" if order is None else column_option("places", *(places[place] for place in order))
    return IngestError(
        f"the column {name!r} ({shown}) seems not to hold a place of a ranking as the others do: leave it "
        f"out with {column_option('ignore', name)}, say {options} if it is {' or '.join(kinds.values())}"
        f"{f', or name the places, best first: {best_first}' if best_first else ''}"
    )


def column_option(role: str, *names: str) -> str:
    """An option that names the columns of a role, in quotes if a shell needs them."""
    several = ",".join(f'"{name}"' if "," in name and role in LISTS_OF_COLUMNS else name for name in names)
    return f"--column {shlex.quote(f'{role}={several}')}"


def _refuse_zeros(table: Table) -> None:
    """An error if 0 seems to fill places without an item, as some tools of R write it."""
    rows = [row for row in table.rows(table.values) if "0" in row]
    at_the_end = all(set(row[row.index("0") :]) <= {"0", *MISSING} and row[0] != "0" for row in rows)
    if rows and at_the_end and (len(rows) >= FEW or any(row.count("0") > 1 for row in rows)):
        raise IngestError(
            f"0 seems to stand for places without an item ({', '.join(rows[0][:6])}); leave such places "
            "empty, or write NA"
        )


def refuse_long_tables(table: Table) -> None:
    """An error for a table that has several lines of the same person or ranking, with a number in each."""
    labels = [table.roles[role] for role in ("id", "group") if role in table.roles]
    keys = labels or table.values[:1]
    values = [place for place in table.values if place not in keys]
    if all(words.is_place_name(table.columns[place]) for place in values) or not 1 < len(values) <= 3:
        return
    numeric = [place for place in values if kind_of(table.cells(place)) in ("whole", "decimal")]
    cells = table.cells(keys[0])
    n_runs = 1 + sum(cell != before for cell, before in itertools.pairwise(cells))
    disjoint = labels or not set(cells) & {cell for place in values for cell in table.cells(place)}
    if numeric and disjoint and cells and 2 * n_runs <= len(cells) + 1 and len(cells) > 1:
        rest = [place for place in values if place != numeric[-1]]
        item = next((place for place in rest if place not in numeric), rest[0])
        names = table.names((keys[0], item, numeric[-1]))
        options = " ".join(map(column_option, ("id", "item", "rank"), names))
        raise IngestError(
            f"several lines have the same {names[0]!r}: if each line is one item of a ranking, and "
            f"{names[2]!r} is its rank (1 is the best), say --format long {options}; if it is a rating, say "
            "--format ratings; if each line is a ranking of items, say --format wide; if it holds ranks of items, one "
            f"column per item, say --format ranks {column_option('id', names[0])}"
        )


def refuse_lists(table: Table, options: ReadOptions) -> None:
    """An error if one column holds lists of items, such as `tea, mate, milk`."""
    named_id = [table.roles["id"]] if "id" in table.roles and "id" not in options.columns else []
    unnamed = [place for place in table.values if not words.is_place_name(table.columns[place])]
    lists = [place for place in unnamed if kind_of(cells := table.cells(place)) == "text" and are_lists(cells)]
    for place in (*named_id, *(lists if len(lists) == 1 else ())):
        if are_lists(table.cells(place)):
            name = table.columns[place]
            raise IngestError(
                f"the cells of the column {name!r} seem to be whole rankings, such as "
                f"{table.cells(place)[0]!r}: if they are, best first, say {column_option('ordering', name)}"
            )


def refuse_ratings(table: Table) -> None:
    """An error if a column is named as ratings are."""
    column = next((place for place in table.values if table.columns[place].lower() in RATING_WORDS), None)
    if column is None:
        return
    name = table.columns[column]
    chosen = {"id": "NAME", "item": "NAME"} | {role: table.columns[place] for role, place in table.roles.items()}
    options = " ".join(f"--column {role}={chosen[role]}" for role in ("id", "item")) + f" --column rank={name}"
    raise IngestError(
        f"the column {name!r} seems to hold ratings, of which the highest is the best: say "
        "--format ratings (plmix_dist.ingest_ratings in Python), and equal ratings become ties. If they are ranks (1 "
        f"is the best), say --format long {options}"
    )


# Names of columns in memory that are certainly not places, beside the labels of a ranking.
_NO_PLACES = {"index", "__index_level_0__", "item", "item_id", "rank", "rating"}
# In memory a column is judged by its cells in tables with at least this many rows.
_FEWEST_ROWS = 10


def refuse_counters(table: Table) -> None:
    """An error if a column of a table in memory is certainly not a place: by its name, or because it counts the rows.

    Nothing is shown here of how a table was understood, so the user decides.
    """
    for place in table.values:
        name = table.columns[place]
        by_name = name.strip().lower() in _NO_PLACES
        if by_name or _counts_rows(table.cells(place)):
            reason = "by its name" if by_name else "it only counts the rows"
            raise RankingError(
                f"column {name!r} of the table is not a place of a ranking ({reason}): leave it out, and hand in one "
                "column per place, best first"
            )


def _counts_rows(cells: Sequence[str]) -> bool:
    counts = len(cells) >= _FEWEST_ROWS and kind_of(cells) == "whole" and all(cells)
    return counts and all(int(after) - int(before) == 1 for before, after in itertools.pairwise(cells))


# Places by the names of their columns.


def with_places(table: Table, named: list[str] | None = None) -> Table:
    """The table with its places, best first: those that the user named, or all columns in the order of their names."""
    names = table.names(table.values) if named is None else named
    if missing := [name for name in names if name not in table.columns]:
        raise IngestError(f"no column {missing[0]!r} for a place; found: {', '.join(table.columns)}")
    order = words.order_of_places(names) if named is None and table.has_names else list(range(len(names)))
    if len(set(names)) < len(names):
        raise IngestError(
            f"several columns are called {max(names, key=names.count)!r}: give them names that say the place of each, "
            "such as choice1, choice2, choice3"
        )
    if order is None:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise IngestError(
            f"the names of the columns ({shown}) do not say which place of a ranking each is: name the "
            f"places, best first: {column_option('places', *names)} if {names[0]!r} is the best, else in another "
            "order; if the first line is a ranking, say --no-header"
        )
    taken = table.values if named is None else [table.columns.index(name) for name in names]
    places = {f"place {number}": taken[place] for number, place in enumerate(order)}
    table = replace(table, roles={**table.roles, **places})
    last = table.columns[taken[order[-1]]]
    if len(order) > 1 and words.place_number(last) == float("inf"):
        # What a row does not list may stand between its places, but not below the last.
        guess = f"{last!r} is the last place of those on offer: items that a row does not list were not on offer"
        return replace(table, unranked="absent").with_guess(guess)
    return table
