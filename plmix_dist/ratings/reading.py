"""Ratings read from text or Parquet, batch by batch; rows with bad cells are named."""

from __future__ import annotations

import datetime
import io
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from plmix_dist.errors import IngestError
from plmix_dist.formats.items import LONGEST_LABEL, shown
from plmix_dist.formats.notation import from_spreadsheet
from plmix_dist.formats.sources import decode, open_bytes, reading
from plmix_dist.ratings.layout import split_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.ratings.layout import Layout, RatingPart

_CHUNK_BYTES = 1 << 22
_BATCH_ROWS = 1 << 18
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class BadRow(NamedTuple):
    """A row with a cell that cannot be read: its line or row, the reason as a fixed word, and words for the user."""

    line: int
    reason: str
    message: str
    text: str


class RatingRows(NamedTuple):
    """Some rows of a table of ratings.

    Parameters
    ----------
    users, items : (n_rows,)
        Labels, as Arrow strings.
    ratings : (n_rows,)
        Finite numbers.
    times : (n_rows,) or None
        Seconds, or any number that grows with time.
    lines : (n_rows,)
        The line or row of each rating in its file, from 1.
    bad
        Rows that cannot be used.
    """

    users: pa.Array
    items: pa.Array
    ratings: NDArray[np.float64]
    times: NDArray[np.float64] | None
    lines: NDArray[np.int64]
    bad: list[BadRow]


def read_ratings(part: RatingPart) -> Iterator[RatingRows]:
    r"""The ratings of a part, in batches.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.ratings.layout import plan_parts
    >>> from plmix_dist.ratings.settings import RatingSettings
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ratings.csv"
    >>> _ = path.write_text("user,item,rating\nann,tea,5\nbob,tea,good\n")
    >>> (rows,) = read_ratings(plan_parts([str(path)], RatingSettings())[0])
    >>> rows.users.to_pylist(), rows.ratings.tolist(), rows.bad[0].message
    (['ann'], [5.0], "the rating is 'good', but should be a number")
    """
    if part.layout.delimiter is None:
        return _parquet_batches(part)
    return (_text_rows(data, line, part) for data, line in _chunks(part))


def _chunks(part: RatingPart) -> Iterator[tuple[bytes, int]]:
    """Whole lines of about 4 MB, with the number of the first."""
    piece = part.slice
    with reading(piece.file.url) as stream:
        stream.seek(piece.start)
        position, line = piece.start, piece.first_line
        while piece.stop is None or position < piece.stop:
            left = _CHUNK_BYTES if piece.stop is None else min(_CHUNK_BYTES, piece.stop - position)
            data = stream.read(left)
            if not data:
                return
            if not data.endswith(b"\n"):
                data += stream.readline()
            yield data, line
            position += len(data)
            line += data.count(b"\n")


def _text_rows(data: bytes, first_line: int, part: RatingPart) -> RatingRows:
    """Parsed by Arrow; if it meets anything unusual, line by line, so that every bad cell is named."""
    layout = part.layout
    found = _parsed(data, layout)
    n_lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if found is not None and found.num_rows == n_lines:
        rows = _typed(found, np.arange(first_line, first_line + n_lines))
        if rows is not None:
            return rows
    return _line_by_line(data, first_line, part)


def _parsed(data: bytes, layout: Layout) -> pa.Table | None:
    """The columns that are needed, or None where Arrow does not understand the lines."""
    delimiter = layout.delimiter or ","
    if len(delimiter) > 1:
        if b"\x1f" in data or b'"' in data:
            return None
        data, delimiter = data.replace(delimiter.encode(), b"\x1f"), "\x1f"
    elif re.search(rb'(^|[%s\n]) +"' % re.escape(delimiter.encode()), data):
        return None  # spaces before a quote
    names = [str(place) for place in range(len(layout.columns))]
    kinds = {str(layout.places[role]): pa.string() for role in ("user", "item", "rating")}
    try:
        table = pa_csv.read_csv(
            io.BytesIO(data),
            pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            pa_csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=True),
            pa_csv.ConvertOptions(
                include_columns=[str(place) for place in layout.places.values()],
                column_types=kinds,
                null_values=[],
                true_values=[],
                false_values=[],
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    return table.rename_columns(list(layout.places)).combine_chunks()


def _typed(table: pa.Table, lines: NDArray[np.int64]) -> RatingRows | None:
    """Rows of a table of text in which every cell is as expected; None if one is not."""
    users, items = (_clean(table.column(role)) for role in ("user", "item"))
    ratings = _numbers(table.column("rating"))
    times = _times(table.column("time")) if "time" in table.column_names else None
    if users is None or items is None or ratings is None or ("time" in table.column_names and times is None):
        return None
    return RatingRows(users, items, ratings, times, lines, [])


def _clean(column: pa.ChunkedArray) -> pa.Array | None:
    """Labels without spaces around them; None if one is empty. Distinct labels are looked at once."""
    encoded = column.combine_chunks().dictionary_encode()
    labels = [_label(text) for text in encoded.dictionary.to_pylist()]
    if not all(labels):
        return None
    return pa.array(labels, pa.string()).take(encoded.indices)


def _label(text: str | None) -> str:
    """A label as it is used; empty if it cannot be one."""
    label = "" if text is None else from_spreadsheet(text.strip())
    return "" if len(label) > LONGEST_LABEL or "\n" in label else label


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Finite numbers; None if a cell is not one. Distinct cells are looked at once."""
    encoded = column.combine_chunks().dictionary_encode()
    numbers = [_number(text) for text in encoded.dictionary.to_pylist()]
    if None in numbers or encoded.null_count:
        return None
    of_rows: NDArray[np.float64] = np.array(numbers, np.float64)[encoded.indices.to_numpy()]
    return of_rows


def _number(text: str | None) -> float | None:
    """A finite number, or None. float() reads "1_000" as a thousand, which other tools do not."""
    try:
        number = float(text) if text is not None and "_" not in text else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _times(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Times as numbers; None if a cell is neither a number nor a time."""
    kind = column.type
    if column.null_count:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        micros = column.cast(pa.timestamp("us", getattr(kind, "tz", None))).cast(pa.int64())
        return np.asarray(micros, np.float64) / 1e6
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = np.asarray(column.cast(pa.float64(), safe=False), np.float64)
        return numbers if np.isfinite(numbers).all() else None
    return None


def _time(text: str) -> float | None:
    """A number, or a date with or without a time, as seconds; None for anything else."""
    number = _number(text)
    if number is not None:
        return number
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH).total_seconds()


def _line_by_line(data: bytes, first_line: int, part: RatingPart) -> RatingRows:
    rows = _Builder(part.layout.has_time)
    for number, raw in enumerate(data.split(b"\n"), start=first_line):
        line = decode(raw, part.slice.file.url, number).rstrip("\r\n")
        if line.strip():
            fields = [field.strip() for field in split_line(line, part.layout.delimiter or ",")]
            rows.add(number, fields, part.layout, line)
    return rows.take()


class _Builder:
    """Collects rows one by one, good ones and bad ones."""

    def __init__(self, has_time: bool) -> None:
        self.rows: list[tuple[str, str, float, float, int]] = []
        self.bad: list[BadRow] = []
        self.has_time = has_time

    def add(self, number: int, fields: list[str], layout: Layout, text: str) -> None:
        """Add a row of text, good or bad."""
        if len(fields) != len(layout.columns):
            message = f"expected {len(layout.columns)} fields, but got {len(fields)}"
            self.bad.append(BadRow(number, "syntax", message, text))
            return
        cells = {role: fields[place] for role, place in layout.places.items()}
        user, item = _label(cells["user"]), _label(cells["item"])
        rating = _number(cells["rating"])
        time = _time(cells["time"]) if self.has_time else 0.0
        problem = _problem(cells, user, item, rating, time)
        if problem is not None:
            self.bad.append(BadRow(number, *problem, text))
        elif rating is not None and time is not None:
            self.rows.append((user, item, rating, time, number))

    def take(self) -> RatingRows:
        """All rows."""
        users, items, ratings, times, lines = zip(*self.rows, strict=True) if self.rows else ((),) * 5
        return RatingRows(
            pa.array(users, pa.string()),
            pa.array(items, pa.string()),
            np.array(ratings, np.float64),
            np.array(times, np.float64) if self.has_time else None,
            np.array(lines, np.int64),
            self.bad,
        )


def _point(cell: Any) -> str:
    return " with a decimal point" if isinstance(cell, str) and "," in cell else ""


def _problem(
    cells: dict[str, Any], user: str, item: str, rating: float | None, time: float | None
) -> tuple[str, str] | None:
    """The reason and the words for a row that cannot be used."""
    for role, label in (("user", user), ("item", item)):
        if not label:
            return "missing-label", f"its {role} is missing or cannot be a label"
    if rating is None:
        return (
            "bad-rating",
            f"the rating is {_cell(cells['rating'])}, but should be a number{_point(cells['rating'])}",
        )
    if time is None:
        return "bad-time", f"the time is {_cell(cells['time'])}, but should be a number or a date"
    return None


def _cell(value: Any) -> str:
    return "missing" if value is None or value == "" else shown(str(value))


def _parquet_batches(part: RatingPart) -> Iterator[RatingRows]:
    url, layout = part.slice.file.url, part.layout
    names = {role: layout.columns[place] for role, place in layout.places.items()}
    row = part.slice.first_line
    try:
        with open_bytes(url) as stream, pq.ParquetFile(stream) as table:
            groups = list(range(part.slice.start, part.slice.stop or 0))
            for batch in table.iter_batches(_BATCH_ROWS, row_groups=groups, columns=list(names.values())):
                columns = {role: batch.column(name) for role, name in names.items()}
                yield _table_rows(columns, np.arange(row, row + batch.num_rows), url)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, IngestError):
            raise
        raise IngestError(f"{url} cannot be read to its end: {error}; it may be damaged") from error


def _table_rows(columns: dict[str, pa.Array], lines: NDArray[np.int64], url: str) -> RatingRows:
    """Rows of a Parquet table. Those with bad cells are found among the others by what is null or not finite."""
    users, items = (_text_column(columns[role], role, url) for role in ("user", "item"))
    ratings = _number_column(columns["rating"], url)
    times = _time_column(columns["time"], url) if "time" in columns else None
    good = np.asarray(pc.and_(pc.is_valid(users), pc.is_valid(items)), np.bool_) & np.isfinite(ratings)
    if times is not None:
        good &= np.isfinite(times)
    bad = []
    for place in np.flatnonzero(~good).tolist():
        cells = {role: column[place].as_py() for role, column in columns.items()}
        rating = None if not math.isfinite(ratings[place]) else float(ratings[place])
        time = 0.0 if times is None else None if not math.isfinite(times[place]) else float(times[place])
        problem = _problem(cells, users[place].as_py() or "", items[place].as_py() or "", rating, time)
        assert problem is not None
        text = ",".join("" if value is None else str(value) for value in cells.values())
        bad.append(BadRow(int(lines[place]), *problem, text))
    keep = pa.array(good)
    return RatingRows(
        users.filter(keep),
        items.filter(keep),
        ratings[good],
        None if times is None else times[good],
        lines[good],
        bad,
    )


def _text_column(column: pa.Array, role: str, url: str) -> pa.Array:
    """Labels as text; null where there is none."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind):
        raise IngestError(f"{url}: the {role} must be text or a number, but the column holds {column.type}")
    encoded = column.cast(pa.string()).dictionary_encode()
    labels = [_label(text) or None for text in encoded.dictionary.to_pylist()]
    return pa.array(labels, pa.string()).take(encoded.indices)


def _number_column(column: pa.Array, url: str) -> NDArray[np.float64]:
    """Numbers; NaN where there is none."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        numbers = [_number(text) for text in column.to_pylist()]
        return np.array([math.nan if number is None else number for number in numbers])
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise IngestError(f"{url}: ratings must be numbers, but the column holds {kind}")
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _time_column(column: pa.Array, url: str) -> NDArray[np.float64]:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        micros = column.cast(pa.timestamp("us", getattr(kind, "tz", None))).cast(pa.int64())
        return np.asarray(micros.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64) / 1e6
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        times = [None if text is None else _time(text.strip()) for text in column.to_pylist()]
        return np.array([math.nan if time is None else time for time in times])
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise IngestError(f"{url}: times must be numbers or dates, but the column holds {kind}")
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
