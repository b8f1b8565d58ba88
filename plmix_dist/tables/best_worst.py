"""The format `best-worst`: of a few items shown, the best and the worst: MaxDiff and tricot. Best > middle > worst."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import IngestError
from plmix_dist.tables.by_row import row_by_row
from plmix_dist.tables.format import MISSING, Format, ReadOptions, Table, missing_columns
from plmix_dist.tables.long import read_long
from plmix_dist.tables.places import MOST, column_option
from plmix_dist.tables.rows import Failure
from plmix_dist.tables.words import names_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plmix_dist.tables.format import Batch, Column
    from plmix_dist.tables.long import Ranked
    from plmix_dist.tables.rows import RawRows
    from plmix_dist.tables.sources import Header

_PERSONS = names_in("respondent respondent_id subject subject_id pid participant participant_id id")
_BLOCKS = names_in("block trial task set question screen task_id block_id")
_LABELS = names_in("label item character issue attribute alternative object item_id option")
_VALUES = names_in("value decision bw best_worst response choice answer score")
_POSITION = re.compile(r"(?P<kind>b|best|w|worst)[_. ]?(?P<number>\d+)", re.IGNORECASE)
_SHOWN = re.compile(
    r"(?:item|variety|package_item|option|alternative|alt|object|shown|attribute)[_. ]*(?P<n>\d+|[a-j])"
)
_TRAIT = re.compile(r"(?:(?P<trait>.+?)[_. ])?(?P<end>best|worst|pos|neg|most|least)", re.IGNORECASE)
_ENDS = {"best": "best", "pos": "best", "most": "best", "worst": "worst", "neg": "worst", "least": "worst"}


def _recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A long table with 1, 0 and -1, or columns with the items shown, the best and the worst."""
    if not named:
        _refuse_positions(table)
    found = _long_roles(table, options) or _wide_roles(table, options)
    if found is None:
        if named:
            raise missing_columns(table, ["best", "worst"])
        return None
    labels = {role: table.roles[role] for role in ("weight",) if role in options.columns}
    if "group" in table.roles and (table.columns[table.roles["group"]].lower() != "id" or "block" in found):
        labels["group"] = table.roles["group"]
    taken = {*found.values()}
    found |= {role: place for role, place in labels.items() if place not in taken or role == "group"}
    return replace(table, roles=found, unranked="absent")


def _refuse_positions(table: Table) -> None:
    """An error for B1, W1, B2, W2 and so on: positions in a design that is not in the file."""
    kinds = [found["kind"][0].lower() for name in table.columns if (found := _POSITION.fullmatch(name.strip()))]
    if len(kinds) >= 4 and kinds.count("b") == kinds.count("w"):
        raise IngestError(
            f"{table.url}: B1, W1 and so on are the positions of the best and the worst item of each question, and the "
            "items stand in a design that is not in the file: write one row per question, with the items shown, 'best' "
            "and 'worst' by name, and say --format best-worst"
        )


def _long_roles(table: Table, options: ReadOptions) -> dict[str, int] | None:
    """Person, block, item and a value 1, 0 or -1."""
    roles = table.roles
    if not all(role in roles for role in ("block", "item", "value")):
        return None
    cells = set(table.cells(roles["value"])) - {""}
    if not {"1", "-1"} <= cells or not cells <= {"1", "0", "-1"}:
        return None
    person = roles.get("group", roles.get("id"))
    found = {"id": roles["block"], "item": roles["item"], "rank": roles["value"]}
    return found | ({"block": roles["block"], "group": person} if person is not None else {}) if options else found


def _wide_roles(table: Table, options: ReadOptions) -> dict[str, int] | None:
    """The columns of the items shown, of the best and of the worst; an error if there are several traits."""
    numbered = [(_SHOWN.fullmatch(name.strip().lower()), place) for place, name in enumerate(table.columns)]
    in_order = sorted((found["n"].zfill(3), place) for found, place in numbered if found)
    shown = {f"item {number}": place for number, (_, place) in enumerate(in_order)}
    if len(shown) < 2:
        return None
    if "best" in options.columns and "worst" in options.columns:
        return shown | {"best": table.roles["best"], "worst": table.roles["worst"]}
    traits: dict[str, dict[str, int]] = {}
    for place, name in enumerate(table.columns):
        if found := _TRAIT.fullmatch(name.strip()):
            traits.setdefault(found["trait"] or "", {})[_ENDS[found["end"].lower()]] = place
    whole = {trait: ends for trait, ends in traits.items() if len(ends) == 2}
    if not whole:
        return None
    if options.trait is not None:
        if options.trait not in whole:
            raise IngestError(
                f"{table.url}: there is no trait {options.trait!r}; found: {', '.join(filter(None, whole))}"
            )
        return shown | whole[options.trait]
    if len(whole) > 1:
        raise IngestError(
            f"{table.url}: the items are compared in several traits ({', '.join(filter(None, whole))}): say --trait "
            "NAME"
        )
    ends = next(iter(whole.values()))
    names = {cell for place in shown.values() for cell in table.cells(place)}
    said = [cell for place in ends.values() for cell in table.cells(place) if cell not in MISSING]
    if sum(cell in names or _letter(cell, len(shown)) is not None for cell in said) < MOST * len(said):
        raise IngestError(
            f"{table.url}: {table.columns[ends['best']]!r} holds neither one of the items shown nor its letter: name "
            f"the columns with {column_option('best', 'NAME')} {column_option('worst', 'NAME')}"
        )
    return shown | ends


def _letter(cell: str, n_shown: int) -> int | None:
    """The place of an item that is named by a letter A, B, C or a number from 1."""
    text = cell.strip().lower()
    number = int(text) - 1 if text.isdigit() else ord(text) - ord("a") if len(text) == 1 and text.isascii() else -1
    return number if 0 <= number < n_shown else None


def _order(cells: dict[str, str]) -> tuple[list[str], int, list[bool] | None]:
    items = [cell for role, cell in cells.items() if role.startswith("item ") and cell not in MISSING]
    ends = []
    for role in ("best", "worst"):
        said, place = cells[role], _letter(cells[role], len(items))
        if said not in items and place is None:
            raise IngestError(f"the {role} is {said!r}, which is not one of the items shown ({', '.join(items)})")
        ends.append(said if said in items or place is None else items[place])
    if ends[0] == ends[1]:
        raise IngestError(f"{ends[0]!r} is both the best and the worst")
    middle = [item for item in items if item not in ends]
    listed = [ends[0], *middle, ends[1]]
    return listed, len(listed), [1 < place <= len(middle) for place in range(len(listed))]


_BY_ROW = row_by_row(_order)


def _values(columns: Mapping[str, Column]) -> Ranked:
    """Ranks 1, 2 and 3 of the best, the others and the worst."""
    column = columns["rank"]
    ranks = column.mapped(lambda text: {"1": 1.0, "0": 2.0, "-1": 3.0}.get(text, np.nan), np.float64)
    odd = np.flatnonzero(np.isnan(ranks)).tolist()
    return ranks, {row: ("bad-value", f"{column[row]!r} is not 1 (best), 0 or -1 (worst)") for row in odd}


def _read(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    if "best" in header.roles:
        yield from _BY_ROW(batches, header)
        return
    for rows in read_long(batches, header, ranks=_values):
        tied = np.zeros(len(rows.labels), np.bool_) if rows.tied is None else rows.tied
        starts, ends = rows.bounds[:-1], rows.bounds[1:] - 1
        # One best: the second item is not tied with the first; one worst: the last is not tied with the one before.
        bad = np.flatnonzero((rows.n_listed < 2) | tied[np.minimum(starts + 1, ends)] | tied[ends]).tolist()
        message = "expected one best and one worst item"
        yield rows.without({row: Failure(int(rows.lines[row]), "bad-block", message) for row in bad})


BEST_WORST = Format(
    name="best-worst",
    recognise=_recognise,
    read=_read,
    about="of the items shown the best and the worst, by name or letter; or 1, 0 and -1, one row per item",
    example="person,item_1,item_2,item_3,best,worst\nann,tea,mate,milk,milk,tea",
    roles={"best": (), "worst": (), "block": _BLOCKS, "item": _LABELS, "value": _VALUES, "group": _PERSONS},
    consecutive=lambda header: "best" not in header.roles,
)
