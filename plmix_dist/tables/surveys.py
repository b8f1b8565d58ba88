"""Surveys: `qualtrics` (Qualtrics, grids of Google Forms, SurveyMonkey) and `best-worst` (MaxDiff, tricot)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plmix_dist.errors import IngestError
from plmix_dist.tables.by_row import items_and_labels, listed_ranks, row_by_row, rows_of
from plmix_dist.tables.documents import unique_names
from plmix_dist.tables.format import Batch, Column, Format, ReadOptions, Table, missing_columns
from plmix_dist.tables.long import Ranked, read_long
from plmix_dist.tables.places import MOST, column_option
from plmix_dist.tables.rows import Failure, RawRows
from plmix_dist.tables.sources import Header
from plmix_dist.tables.words import MISSING, NOT_RANKED, is_unnamed, names_in, rank_in

_GRID = re.compile(r"(?P<question>.*\S)\s*\[(?P<item>[^\[\]]+)\]\s*")
_PART = re.compile(r"(?P<question>.+?)_(?P<number>\d+)")


class _Item(NamedTuple):
    """A column that may hold ranks: its place, its question, the text of the question, and its item."""

    place: int
    question: str
    text: str
    name: str


def _qualtrics(table: Table) -> tuple[list[_Item], int]:
    """Columns Q1_1, Q1_2 with "Question - Item" in the row below, and perhaps a row of {"ImportId": ...}."""
    texts = table.body[0] if table.body else []
    ids = [row for row in table.body[1:2] if sum("ImportId" in cell for cell in row) > len(row) / 2]
    legacy = table.columns[:2] == ("V1", "V2") and "responseid" in (text.lower() for text in texts)
    if not ids and not legacy:
        return [], 0
    found = []
    for place, (column, text) in enumerate(zip(table.columns, texts, strict=False)):
        if (part := _PART.fullmatch(column)) is not None and " - " in text:
            question, _, item = text.replace("\u2013", "-").rpartition(" - ")
            found.append(_Item(place, part["question"], question, item.strip()))
    return found, 1 + len(ids)


def _google_forms(table: Table) -> tuple[list[_Item], int]:
    """Columns "Question [Item]"."""
    grids = [(place, _GRID.fullmatch(column)) for place, column in enumerate(table.columns)]
    return [_Item(place, one["question"], one["question"], one["item"].strip()) for place, one in grids if one], 0


def _survey_monkey(table: Table) -> tuple[list[_Item], int]:
    """A question over its first column, and its items in the row below."""
    if not any(name.lower().replace(" ", "") == "respondentid" for name in table.columns) or not table.body:
        return [], 0
    found, question = [], ""
    for place, (column, item) in enumerate(zip(table.columns, table.body[0], strict=False)):
        question = question if is_unnamed(column) else column
        if item and question and item.lower() not in ("response", "open-ended response"):
            found.append(_Item(place, question, question, item))
    return found, 1


def _recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """An export of a survey with one question that has a rank for each of its items, or the one that the user named."""
    for layout in (_qualtrics, _google_forms, _survey_monkey):
        columns, n_extra = layout(table)
        if not columns:
            continue
        questions: dict[str, list[_Item]] = {}
        for one in columns:
            questions.setdefault(one.question, []).append(one)
        if ranked := {name: items for name, items in questions.items() if _are_ranked(table, items, n_extra)}:
            return _with_question(table, _chosen(ranked, options), n_extra)
    if named:
        raise IngestError(
            "no question with a rank per item was found: expected columns such as Q1_1, Q1_2 with names "
            'in the second row, "Question [Item]", or items in a second row below RespondentID; for one column per '
            "item, say --format ranks"
        )
    return None


def _are_ranked(table: Table, items: Sequence[_Item], n_extra: int) -> bool:
    """Whether the answers to a question are different ranks from 1 to the number of its items."""
    answers = [[row[one.place] for one in items] for row in table.body[n_extra:] if len(row) == len(table.columns)]
    found = [[rank_in(cell) for cell in row if cell not in NOT_RANKED] for row in answers]
    ranks = [[math.inf if rank is None else rank for rank in row] for row in found]
    given = [row for row in ranks if row]
    good = [row for row in given if len(set(row)) == len(row) and max(row) <= len(items)]
    return len(items) > 1 and bool(given) and len(good) >= MOST * len(given)


def _chosen(ranked: dict[str, list[_Item]], options: ReadOptions) -> list[_Item]:
    wanted = options.choices.get("question")
    same = [name for name in ranked if wanted is None or name == wanted]
    same = same or [name for name in ranked if name.casefold().startswith((wanted or "").casefold())]
    if len(same) != 1:
        few = {name: ", ".join(one.name for one in items[:3]) for name, items in ranked.items()}
        listing = "; ".join(f"{name} ({items} ...)" for name, items in few.items())
        raise IngestError(f"say --question PREFIX with one of the {len(ranked)} ranked questions: {listing}")
    return ranked[same[0]]


def _with_question(table: Table, items: Sequence[_Item], n_extra: int) -> Table:
    places = [one.place for one in items]
    roles = {role: place for role, place in table.roles.items() if place not in places}
    said = f"ranks for the question {items[0].text[:80]!r}, one column per item; rows without an answer are counted"
    return replace(
        table,
        roles=roles,
        ignored=tuple(place for place in range(len(table.columns)) if place not in {*places, *roles.values()}),
        item_names=tuple(unique_names([one.name for one in items])),
        unranked="below",
        metadata={"extra": {"place": places[0], "texts": [row[places[0]] for row in table.body[:n_extra]]}},
    ).with_guess(said + (f"; weights are in {table.columns[roles['weight']]!r}" if "weight" in roles else ""))


def _read(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    extra = header.metadata["extra"]
    for batch in batches:
        above = batch.columns[extra["place"]].mapped(lambda cell: cell in extra["texts"], np.bool_)
        below = batch.take(np.flatnonzero(~above)) if extra["texts"] and above.any() else batch
        yield rows_of(below, header, listed_ranks(below, header))


QUALTRICS = Format(
    name="qualtrics",
    about="surveys: one column per item, with its rank, below three lines of headers",
    example="Q1_1,Q1_2\nRank these - Tea,Rank these - Mate",
    recognise=_recognise,
    read=_read,
    wanted=items_and_labels,
    roles={
        "id": ("responseid", "response id", "respondentid", "respondent id"),
        "weight": ("s_weight", "survey_weight", "wgt"),
    },
    choices={"question": ()},
)


# Best and worst of a few items shown.

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


def _recognise_ends(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A long table with 1, 0 and -1, or columns with the items shown, the best and the worst."""
    if not named:
        _refuse_positions(table)
    if (found := _long_roles(table) or _wide_roles(table, options)) is None:
        if named:
            raise missing_columns(table, ["best", "worst"])
        return None
    if "weight" in options.columns and table.roles["weight"] not in found.values():
        found["weight"] = table.roles["weight"]
    if "group" in table.roles and (table.columns[table.roles["group"]].lower() != "id" or "block" in found):
        found["group"] = table.roles["group"]
    return replace(table, roles=found, unranked="absent")


def _refuse_positions(table: Table) -> None:
    """An error for B1, W1, B2, W2 and so on: positions in a design that is not in the file."""
    kinds = [found["kind"][0].lower() for name in table.columns if (found := _POSITION.fullmatch(name.strip()))]
    if len(kinds) >= 4 and kinds.count("b") == kinds.count("w"):
        raise IngestError(
            "B1, W1 and so on are the positions of the best and the worst item of each question, and the "
            "items stand in a design that is not in the file: write one row per question, with the items shown, 'best' "
            "and 'worst' by name, and say --format best-worst"
        )


def _long_roles(table: Table) -> dict[str, int] | None:
    """Person, block, item and a value 1, 0 or -1."""
    roles = table.roles
    if not all(role in roles for role in ("block", "item", "value")):
        return None
    cells = set(table.cells(roles["value"])) - {""}
    if not {"1", "-1"} <= cells or not cells <= {"1", "0", "-1"}:
        return None
    person = roles.get("group", roles.get("id"))
    found = {"id": roles["block"], "item": roles["item"], "rank": roles["value"]}
    return found | ({"block": roles["block"], "group": person} if person is not None else {})


def _wide_roles(table: Table, options: ReadOptions) -> dict[str, int] | None:
    """The columns of the items shown, of the best and of the worst; an error if there are several traits."""
    numbered = [(_SHOWN.fullmatch(name.strip().lower()), place) for place, name in enumerate(table.columns)]
    in_order = sorted((found["n"].zfill(3), place) for found, place in numbered if found)
    shown = {f"item {number}": place for number, (_, place) in enumerate(in_order)}
    if len(shown) < 2:
        return None
    if "best" in options.columns and "worst" in options.columns:
        return shown | _named_ends(table, shown, {end: table.roles[end] for end in ("best", "worst")})
    traits: dict[str, dict[str, int]] = {}
    for place, name in enumerate(table.columns):
        if found := _TRAIT.fullmatch(name.strip()):
            traits.setdefault(found["trait"] or "", {})[_ENDS[found["end"].lower()]] = place
    if not (whole := {trait: ends for trait, ends in traits.items() if len(ends) == 2}):
        return None
    if options.trait is not None:
        if options.trait not in whole:
            raise IngestError(f"unknown trait {options.trait!r}; found: {', '.join(filter(None, whole))}")
        return shown | _named_ends(table, shown, whole[options.trait])
    if len(whole) > 1:
        raise IngestError(
            f"the items are compared in several traits ({', '.join(filter(None, whole))}): say --trait NAME"
        )
    return shown | _named_ends(table, shown, next(iter(whole.values())))


def _named_ends(table: Table, shown: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
    """The columns of the best and the worst, by name or, as "best letter" and "worst letter", by place.

    All rows say it in one way: where items are numbers, 2 may be an item or the second one shown.
    """
    cells = [row for at in ends.values() for row in table.rows([*shown.values(), at])]
    rows = [(items, said) for *items, said in cells if said not in MISSING]
    names = sum(said in items for items, said in rows)
    letters = sum(_letter(said, len(items)) is not None for items, said in rows)
    if names == letters == len(rows) and any(items[_letter(said, len(items)) or 0] != said for items, said in rows):
        raise IngestError(
            f"{table.columns[ends['best']]!r} may hold an item or its place among those shown: write A, B, C for places"
        )
    if max(names, letters) < MOST * len(rows):
        raise IngestError(
            f"{table.columns[ends['best']]!r} holds neither one of the items shown nor its letter: name "
            f"the columns with {column_option('best', 'NAME')} {column_option('worst', 'NAME')}"
        )
    return {end if names >= letters else f"{end} letter": at for end, at in ends.items()}


def _letter(cell: str, n_shown: int) -> int | None:
    """The place of an item that is named by a letter A, B, C or a number from 1."""
    text = cell.strip().lower()
    number = int(text) - 1 if text.isdigit() else ord(text) - ord("a") if len(text) == 1 and text.isascii() else -1
    return number if 0 <= number < n_shown else None


def _order(cells: dict[str, str]) -> tuple[list[str], int, list[bool] | None]:
    items = [cell for role, cell in cells.items() if role.startswith("item ") and cell not in MISSING]
    ends = []
    for role in ("best", "worst"):
        said, place = cells.get(role), _letter(cells.get(f"{role} letter", ""), len(items))
        if said not in items and place is None:
            said = said or cells.get(f"{role} letter")
            raise IngestError(f"the {role} is {said!r}, which is not one of the items shown ({', '.join(items)})")
        ends.append(items[place] if said is None and place is not None else str(said))
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


def _read_ends(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    if not BEST_WORST.consecutive(header):
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
    recognise=_recognise_ends,
    read=_read_ends,
    about="of the items shown the best and the worst, by name or letter; or 1, 0 and -1, one row per item",
    example="person,item_1,item_2,item_3,best,worst\nann,tea,mate,milk,milk,tea",
    roles={"best": (), "worst": (), "block": _BLOCKS, "item": _LABELS, "value": _VALUES, "group": _PERSONS},
    consecutive=lambda header: not {"best", "best letter"} & header.roles.keys(),
)
