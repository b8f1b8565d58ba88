"""The format `qualtrics`: exports of surveys, with ranks per item: Qualtrics, grids of Google Forms, SurveyMonkey."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.tables.by_row import items_and_labels, listed_ranks, rows_of
from plmix_dist.tables.documents import unique_names
from plmix_dist.tables.format import NOT_RANKED, Batch, Column, Format, ReadOptions, Table
from plmix_dist.tables.words import rank_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plmix_dist.tables.rows import RawRows
    from plmix_dist.tables.sources import Header

_GRID = re.compile(r"(?P<question>.*\S)\s*\[(?P<item>[^\[\]]+)\]\s*")
_PART = re.compile(r"(?P<question>.+?)_(?P<number>\d+)")
_NO_ANSWER = NOT_RANKED | {"N/A", "n/a"}


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
        part = _PART.fullmatch(column)
        if part is not None and " - " in text:
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
        named = column and not column.lower().startswith("unnamed:")
        question = column if named else question
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
        ranked = {name: items for name, items in questions.items() if _are_ranked(table, items, n_extra)}
        if ranked:
            return _with_question(table, _chosen(ranked, options, table.url), n_extra)
    if named:
        raise IngestError(
            f"{table.url}: no question with a rank per item was found: expected columns such as Q1_1, Q1_2 with names "
            'in the second row, "Question [Item]", or items in a second row below RespondentID; for one column per '
            "item, say --format ranks"
        )
    return None


def _are_ranked(table: Table, items: Sequence[_Item], n_extra: int) -> bool:
    """Whether the answers to a question are different ranks from 1 to the number of its items."""
    answers = [[row[one.place] for one in items] for row in table.body[n_extra:] if len(row) == len(table.columns)]
    ranks = [[rank_in(cell) for cell in row if cell not in _NO_ANSWER] for row in answers]
    given = [row for row in ranks if row]
    good = [
        row
        for row in given
        if len(set(row)) == len(row) and all(rank is not None and rank <= len(items) for rank in row)
    ]
    return len(items) > 1 and bool(given) and len(good) >= 0.9 * len(given)


def _chosen(ranked: dict[str, list[_Item]], options: ReadOptions, url: str) -> list[_Item]:
    wanted = options.choices.get("question")
    same = [name for name in ranked if wanted is None or name == wanted]
    same = same or [name for name in ranked if name.casefold().startswith((wanted or "").casefold())]
    if len(same) != 1:
        few = {name: ", ".join(one.name for one in items[:3]) for name, items in ranked.items()}
        listing = "; ".join(f"{name} ({items} ...)" for name, items in few.items())
        raise IngestError(f"{url}: say --question PREFIX with one of the {len(ranked)} ranked questions: {listing}")
    return ranked[same[0]]


def _with_question(table: Table, items: Sequence[_Item], n_extra: int) -> Table:
    places = [one.place for one in items]
    roles = {role: place for role, place in table.roles.items() if place not in places}
    others = (place for place in range(len(table.columns)) if place not in {*places, *roles.values()})
    extra = [row[places[0]] for row in table.body[:n_extra]]
    said = f"ranks for the question {items[0].text[:80]!r}, one column per item; rows without an answer are counted"
    weight = f"; weights are in {table.columns[roles['weight']]!r}" if "weight" in roles else ""
    return replace(
        table,
        roles=roles,
        ignored=tuple(others),
        item_names=tuple(unique_names([one.name for one in items])),
        unranked="below",
        metadata={"extra": {"place": places[0], "texts": extra}},
    ).with_guess(said + weight)


def _read(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
    extra = header.metadata["extra"]
    for batch in batches:
        above = batch.columns[extra["place"]].mapped(lambda cell: cell in extra["texts"], np.bool_)
        below = _without(batch, np.flatnonzero(~above)) if extra["texts"] and above.any() else batch
        yield rows_of(below, header, listed_ranks(below, header))


def _without(batch: Batch, kept: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Batch:
    """The rows of a batch that are not further rows of its header."""
    columns = {place: Column(one.array.take(pa.array(kept)), one.clean) for place, one in batch.columns.items()}
    bad = {new: batch.bad[old] for new, old in enumerate(kept.tolist()) if old in batch.bad}
    return Batch(columns, batch.lines[kept], lambda row: batch.cells(int(kept[row])), bad)


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
