"""The format `ratings`: one row per user, item and rating, with or without a time; gathered by user later."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.tables.encode import LONGEST_LABEL, shown
from plmix_dist.tables.format import DELIMITERS, Batch, Column, Format, ReadOptions, Table, by_names
from plmix_dist.tables.notation import from_spreadsheet
from plmix_dist.tables.rows import Failure
from plmix_dist.tables.sources import Header, is_float
from plmix_dist.tables.words import names_in, parse_weight

COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "user": names_in(
        "user user_id userid person person_id rater reviewer customer customer_id respondent respondent_id participant "
        "participant_id voter voter_id id"
    ),
    "item": names_in(
        "item item_id itemid item_name movie movie_id movieid product product_id title candidate alternative name "
        "choice option"
    ),
    "rating": ("rating", "score", "stars", "value", "points", "grade"),
    "time": ("time", "timestamp", "date", "datetime", "unixreviewtime"),
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class _RatingRows(NamedTuple):
    """Some rows of a table of ratings, all (n_rows,): labels, finite ratings, times as seconds or any rising number.

    `lines` is the line or row of each rating in its file, from 1; `bad` has the rows that cannot be used.
    """

    table: pa.Table
    bad: list[Failure]


def _is_row(first: Sequence[str], options: ReadOptions) -> bool:
    """Whether a first line is a rating already: its third of three or four fields is a number."""
    return not options.columns and len(first) in (3, 4) and is_float(first[2])


def _recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table with columns for user, item and rating; without names they stand in this order, then the time."""
    if not named:
        return None
    if not table.has_names and not set(COLUMN_NAMES) & set(table.roles):
        return replace(table, roles=dict(zip(COLUMN_NAMES, range(len(table.columns)), strict=False)))
    by_names("user", "item", "rating")(table, options, named)  # or an error
    return replace(table, roles={role: table.roles[role] for role in COLUMN_NAMES if role in table.roles})


def _rows(batch: Batch, header: Header) -> _RatingRows:
    """The good rows of a batch; a row with a bad cell is named."""
    columns = {role: batch.columns[place] for role, place in header.roles.items()}
    typed = header.container != "text"
    users, items = (_labels(columns[role], typed) for role in ("user", "item"))
    ratings = _ratings(columns["rating"])
    times = _times(columns["time"]) if "time" in columns else None
    good = np.asarray(users.is_valid()) & np.asarray(items.is_valid()) & np.isfinite(ratings)
    if times is not None:
        good &= np.isfinite(times)
    good[list(batch.bad)] = False
    bad = []
    for row in np.flatnonzero(~good).tolist():
        cells = {role: column[row] for role, column in columns.items()}
        found = {"user": users[row].is_valid, "item": items[row].is_valid, "rating": math.isfinite(ratings[row])}
        reason, message = ("syntax", batch.bad[row]) if row in batch.bad else _problem(cells, found)
        bad.append(Failure(int(batch.lines[row]), reason, message, text=header.delimiter.join(batch.cells(row))))
    timed = {} if times is None else {"time": times}
    table = pa.table({"user": users, "item": items, "rating": ratings, **timed, "line": batch.lines})
    return _RatingRows(table.filter(pa.array(good)) if bad else table, bad)


def _problem(cells: dict[str, str], found: dict[str, bool]) -> tuple[str, str]:
    """The reason and the words for a row that cannot be used."""
    for role in ("user", "item"):
        if not found[role]:
            return "missing-label", f"its {role} is missing or cannot be a label"
    if not found["rating"]:
        point = " with a decimal point" if "," in cells["rating"] else ""
        return "bad-rating", f"the rating is {_cell(cells['rating'])}, but should be a number{point}"
    return "bad-time", f"the time is {_cell(cells['time'])}, but should be a number or a date"


def _cell(text: str) -> str:
    return shown(text) if text else "missing"


def _labels(column: Column, typed: bool) -> pa.Array:
    """(n_rows,): labels as text; null where there is none. Distinct labels are looked at once."""
    return pa.array([_label(text, typed) for text in column.values], pa.string()).take(pa.array(column.codes))


def _label(text: str, typed: bool) -> str | None:
    """A label as it is used; None if it cannot be one. Text of a file is without blanks already."""
    label = from_spreadsheet(text.strip()) if typed else text
    return None if not label or len(label) > LONGEST_LABEL or "\n" in label else label


def _ratings(column: Column) -> NDArray[np.float64]:
    """(n_rows,): numbers; NaN where there is none."""
    if not column.is_text and pa.types.is_decimal(column.array.type):
        column = Column(column.array.cast(pa.float64(), safe=False))
    return column.numbers(message="ratings must be numbers, but the column holds {}")


def _times(column: Column) -> NDArray[np.float64]:
    """(n_rows,): times as numbers; NaN where there is none."""
    kind = column.array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        micros = column.array.cast(pa.timestamp("us", getattr(kind, "tz", None))).cast(pa.int64())
        return np.asarray(micros.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64) / 1e6
    if column.is_text:
        try:  # few times are equal, so all of them at once
            return np.asarray(column.array.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        except pa.ArrowException:
            return column.mapped(_time, np.float64)
    return column.numbers(message="times must be numbers or dates, but the column holds {}")


def _time(text: str) -> Any:
    """A number, or a date with or without a time, as seconds; NaN for anything else."""
    number = parse_weight(text)
    if not math.isnan(number):
        return number
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return ((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH).total_seconds()


RATINGS = Format(
    name="ratings",
    recognise=_recognise,
    read=lambda batches, header: (_rows(batch, header) for batch in batches),
    wanted=lambda header: [place for role, place in header.roles.items() if role != "time"],
    wanted_raw=lambda header: [header.roles["time"]] if "time" in header.roles else [],
    roles=COLUMN_NAMES,
    delimiters=("::", *DELIMITERS),
    n_fields=(3, 4),
    is_row=_is_row,
)
