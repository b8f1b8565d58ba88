"""Where users, items, ratings and times stand in a file, and how the file is cut into slices."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from plmix_dist.errors import IngestError, SettingsError
from plmix_dist.formats.sources import Header, Slice, decode, find, open_bytes, reading, text_slices
from plmix_dist.ratings.settings import COLUMN_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.formats.sources import SourceFile
    from plmix_dist.ratings.settings import RatingSettings

PARQUET_SUFFIXES = (".parquet", ".pq")
# Rows of a Parquet file that one task reads.
_SLICE_ROWS = 1 << 20
_LONGEST_LINE = 1_000_000


class Layout(NamedTuple):
    """The columns of a file, and the places of the four roles among them.

    Examples
    --------
    >>> Layout(("user", "item", "stars"), {"user": 0, "item": 1, "rating": 2}, ",", 16, 2).unit
    'line'
    """

    columns: tuple[str, ...]
    places: dict[str, int]
    delimiter: str | None
    body_offset: int = 0
    body_line: int = 1

    @property
    def unit(self) -> str:
        """Whether messages count lines of text or rows of a table."""
        return "row" if self.delimiter is None else "line"

    @property
    def has_time(self) -> bool:
        """Whether a column holds the time of a rating."""
        return "time" in self.places


class RatingPart(NamedTuple):
    """A run of lines or of row groups that one task reads.

    Parameters
    ----------
    number, file_number
        Its place among all parts, and that of its file among all files.
    slice
        The file and the run.
    layout
        Its columns.
    """

    number: int
    file_number: int
    slice: Slice
    layout: Layout


def read_layout(file: SourceFile, settings: RatingSettings) -> Layout:
    r"""The layout of a file, by its column names, or by their order if its first line is a rating already.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.ratings.settings import RatingSettings
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ratings.dat"
    >>> _ = path.write_text("1::122::5::838985046\n")
    >>> layout = read_layout(find(str(path)), RatingSettings())
    >>> layout.delimiter, layout.places, layout.body_line
    ('::', {'user': 0, 'item': 1, 'rating': 2, 'time': 3}, 1)
    """
    if file.name.lower().endswith(PARQUET_SUFFIXES):
        return _parquet_layout(file, settings)
    with reading(file.url) as stream:
        raw = stream.readline(_LONGEST_LINE)
    if not raw.strip():
        raise IngestError(f"{file.url} is empty: its first line should name the columns")
    line = decode(raw, file.url, 1).rstrip("\r\n")
    delimiter = settings.delimiter or _delimiter(file, line)
    columns = tuple(name.strip() for name in split_line(line, delimiter))
    if not settings.columns and len(columns) in (3, 4) and _is_number(columns[2]):
        named = tuple(COLUMN_NAMES)[: len(columns)]
        return Layout(named, {role: place for place, role in enumerate(named)}, delimiter, 0, 1)
    return Layout(columns, _places(columns, settings, file.url), delimiter, len(raw), 2)


def split_line(line: str, delimiter: str) -> list[str]:
    """The fields of a line of text. Quotes are read where the delimiter is one character.

    Examples
    --------
    >>> split_line('1,"Jaws, the first",5', ","), split_line("1::122::5", "::")
    (['1', 'Jaws, the first', '5'], ['1', '122', '5'])
    """
    if len(delimiter) > 1 or '"' not in line:
        return line.split(delimiter)
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])


def plan_parts(urls: Sequence[str], settings: RatingSettings) -> list[RatingPart]:
    r"""All parts of all files, in order; an error if only some files have times.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.ratings.settings import RatingSettings
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ratings.csv"
    >>> _ = path.write_text("user,item,rating\nann,tea,5\n")
    >>> [part.slice.start for part in plan_parts([str(path)], RatingSettings())]
    [17]
    """
    parts: list[RatingPart] = []
    layouts = []
    for file_number, url in enumerate(urls):
        file = find(url)
        layout = read_layout(file, settings)
        layouts.append(layout)
        cut = _parquet_slices(file) if layout.delimiter is None else _text_slices(file, layout)
        parts += [RatingPart(len(parts) + n, file_number, one, layout) for n, one in enumerate(cut)]
    if len({layout.has_time for layout in layouts}) > 1:
        without = next(url for url, layout in zip(urls, layouts, strict=True) if not layout.has_time)
        raise IngestError(
            f"{without} has no column of times, but another source has one; give all of them times"
        )
    return parts


def _text_slices(file: SourceFile, layout: Layout) -> list[Slice]:
    return text_slices(file, Header(body_offset=layout.body_offset, body_line=layout.body_line))


def _parquet_slices(file: SourceFile) -> list[Slice]:
    """Runs of row groups of about a million rows. `first_line` is the number of the first row, from 1."""
    try:
        with open_bytes(file.url) as stream:
            metadata = pq.read_metadata(stream)
    except (pa.ArrowException, OSError) as error:
        raise IngestError(f"{file.url} cannot be read as Parquet: {error}") from None
    slices, start, first_row, n_rows = [], 0, 0, 0
    for group in range(metadata.num_row_groups):
        n_rows += metadata.row_group(group).num_rows
        if n_rows >= _SLICE_ROWS or group == metadata.num_row_groups - 1:
            slices.append(Slice(file, Header(), start, group + 1, first_row + 1))
            start, first_row, n_rows = group + 1, first_row + n_rows, 0
    return slices


def _parquet_layout(file: SourceFile, settings: RatingSettings) -> Layout:
    try:
        with open_bytes(file.url) as stream:
            columns = tuple(pq.read_schema(stream).names)
    except (pa.ArrowException, OSError) as error:
        raise IngestError(f"{file.url} cannot be read as Parquet: {error}") from None
    return Layout(columns, _places(columns, settings, file.url), None)


def _delimiter(file: SourceFile, line: str) -> str:
    """The delimiter of a file of text: that of its suffix, or the one that its first line has."""
    if file.name.lower().endswith(".tsv"):
        return "\t"
    return next((sign for sign in ("::", "\t", ";", ",") if line.count(sign) in (2, 3)), ",")


def _places(columns: tuple[str, ...], settings: RatingSettings, url: str) -> dict[str, int]:
    known = {name.strip().lower(): place for place, name in reversed(list(enumerate(columns)))}
    places: dict[str, int] = {}
    for role, usual in COLUMN_NAMES.items():
        named = settings.columns.get(role)
        if named is not None and named.strip().lower() not in known:
            raise SettingsError(
                f"{url}: there is no column {named!r} for the {role}; found: {', '.join(columns)}"
            )
        names = usual if named is None else (named.strip().lower(),)
        place = next(
            (known[name] for name in names if name in known and known[name] not in places.values()), None
        )
        if place is not None:
            places[role] = place
    missing = [role for role in ("user", "item", "rating") if role not in places]
    if missing:
        raise IngestError(
            f"{url}: no column was recognised for the {' or the '.join(missing)}; found: {', '.join(columns)}; name it "
            f"with --column {missing[0]}=NAME"
        )
    return places


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
