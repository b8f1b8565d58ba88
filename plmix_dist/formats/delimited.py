"""Reading delimited text: what the formats orderings, wide, ranks and long share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow.compute as pc

from plmix_dist.errors import IngestError
from plmix_dist.formats.format import parse_weight
from plmix_dist.formats.raw_rows import BATCH_ROWS, UNRANKED, Failure, RawRows, RowBuilder, integers_if_all
from plmix_dist.formats.sniffing.sample import split_fields
from plmix_dist.formats.sources import text_slices
from plmix_dist.formats.text_chunks import chunks
from plmix_dist.formats.text_columns import read_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from plmix_dist.formats.format import ReadOptions
    from plmix_dist.formats.sources import Header, Slice, SourceFile
    from plmix_dist.formats.text_chunks import Chunk
    from plmix_dist.formats.text_columns import ChunkColumns, TextColumn
    from plmix_dist.rankings import Unranked

SUFFIXES = (".csv", ".tsv", ".txt")


class Listed(NamedTuple):
    """The items of many rankings, as in RawRows."""

    labels: pa.Array
    n_listed: NDArray[np.int64]
    n_ordered: NDArray[np.int64] | None = None
    tied: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Listing:
    """How the items of a ranking are found in its line, for one line and for the columns of many lines.

    Parameters
    ----------
    of_fields
        From the fields of a line: the listed items, how many of them are ordered, and which are tied.
    of_columns
        The same for all lines of a chunk; None if only `of_fields` can tell.
    coded, plain
        The columns that `of_columns` needs, as `read_columns` gives them.

    Examples
    --------
    >>> Listing(lambda row: (row, len(row), None), lambda columns: None, coded=(0, 1)).of_fields(["tea", "mate"])
    (['tea', 'mate'], 2, None)
    """

    of_fields: Callable[[list[str]], tuple[list[str], int, list[bool] | None]]
    of_columns: Callable[[ChunkColumns], Listed | None]
    coded: tuple[int, ...] = ()
    plain: tuple[int, ...] = ()


def records(chunk: Chunk, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    r"""Line number and fields of each line of a chunk, without spaces around the fields.

    Examples
    --------
    >>> from plmix_dist.formats.text_chunks import Chunk
    >>> list(records(Chunk("a.csv", 2, b"3, tea coffee\n"), ","))
    [(2, ['3', 'tea coffee'])]
    """
    for number, line in chunk.lines():
        try:
            yield number, split_fields(line, delimiter)
        except IngestError as error:
            raise IngestError(f"{chunk.url}, line {number}: {error}") from None


def slices_keeping(role: str) -> Callable[[SourceFile, Header, ReadOptions], list[Slice]]:
    """A function that cuts a file into slices, never between lines of one group.

    If the file has no groups, it never cuts between lines with one value in the column of `role`.

    Examples
    --------
    >>> from plmix_dist.formats import ReadOptions
    >>> from plmix_dist.formats.sources import Header, SourceFile
    >>> header = Header(columns=("ranking", "item", "rank"), roles={"id": 0, "item": 1, "rank": 2})
    >>> len(slices_keeping("id")(SourceFile("small.csv", 100), header, ReadOptions()))
    1
    """

    def cut(file: SourceFile, header: Header, options: ReadOptions) -> list[Slice]:
        del options
        column = header.roles.get("group", header.roles.get(role))
        if column is None:
            return text_slices(file, header)
        return text_slices(file, header, key=lambda line: _field(line, header.delimiter, column))

    return cut


def _field(line: str, delimiter: str, place: int) -> str:
    """One field of a line, or an empty string if the line does not have it."""
    try:
        row = split_fields(line.rstrip("\r\n"), delimiter)
    except IngestError:
        return ""
    return row[place] if place < len(row) else ""


def read_rows(part: Slice, roles: dict[str, int], listing: Listing) -> Iterator[RawRows]:
    r"""Rankings of one line each. Chunks are read by Arrow or, where it would read them differently, line by line.

    Parameters
    ----------
    roles
        The columns of weight, id, group and unranked, as far as the file has them.
    listing
        Finds the items.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from plmix_dist.formats.sources import Header, Slice, find
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("count,ordering\n3,tea coffee\n")
    >>> part = Slice(find(str(path)), Header(columns=("count", "ordering")), 15, None, first_line=2)
    >>> listing = Listing(lambda row: (row[1].split(), 2, None), lambda columns: None)
    >>> [rows.labels.to_pylist() for rows in read_rows(part, {"weight": 0}, listing)]
    [['tea', 'coffee']]
    """
    for chunk in chunks(part):
        rows = _rows_of_columns(chunk, part.header, roles, listing)
        if rows is None:
            yield from _rows_of_lines(chunk, part.header, roles, listing)
        else:
            yield rows


def _rows_of_columns(chunk: Chunk, header: Header, roles: dict[str, int], listing: Listing) -> RawRows | None:
    """The rows of a chunk by columns; None if one of its lines is not accepted, or needs another reader."""
    wanted = {*listing.coded, *roles.values()}
    columns = read_columns(chunk, header.delimiter, len(header.columns), wanted, listing.plain)
    if columns is None or may_repeat_header(columns, header):
        return None
    listed = listing.of_columns(columns)
    if listed is None:
        return None
    labels = {role: columns.coded[place] for role, place in roles.items()}
    n_rows = len(columns.lines)
    unranked = np.full(n_rows, -1, np.int8)
    if "unranked" in labels:
        if not set(labels["unranked"].values) <= {"", *UNRANKED}:
            return None
        unranked = labels["unranked"].mapped(lambda said: UNRANKED.index(said) if said else -1, np.int8)
    return RawRows(
        labels=listed.labels,
        n_listed=listed.n_listed,
        n_ordered=listed.n_listed if listed.n_ordered is None else listed.n_ordered,
        tied=listed.tied,
        weights=labels["weight"].mapped(parse_weight, np.float64) if "weight" in labels else np.ones(n_rows),
        ids=_label(labels.get("id")),
        groups=_label(labels.get("group")),
        lines=columns.lines,
        unranked=unranked,
    )


def repeats_header(row: list[str], header: Header) -> bool:
    """Whether the fields of a line are the names of the columns, as where files were joined.

    Examples
    --------
    >>> from plmix_dist.formats.sources import Header
    >>> repeats_header(["first", "second"], Header(columns=("first", "second")))
    True
    """
    return header.has_names and tuple(row) == header.columns


def may_repeat_header(columns: ChunkColumns, header: Header) -> bool:
    """Whether a line of a chunk may repeat the header; only reading line by line can tell.

    Examples
    --------
    >>> from plmix_dist.formats.sources import Header
    >>> from plmix_dist.formats.text_chunks import Chunk
    >>> columns = read_columns(Chunk("a.csv", 2, b"tea,mate"), ",", 2, {0, 1})
    >>> may_repeat_header(columns, Header(columns=("first", "second")))
    False
    """
    if not header.has_names:
        return False
    if columns.coded:
        return all(header.columns[place] in column.values for place, column in columns.coded.items())
    return any(
        pc.any(pc.equal(pc.utf8_trim_whitespace(column), header.columns[place])).as_py()
        for place, column in columns.plain.items()
    )


def _label(column: TextColumn | None) -> Any:
    return None if column is None else integers_if_all(column.mapped(str))


def _rows_of_lines(
    chunk: Chunk, header: Header, roles: dict[str, int], listing: Listing
) -> Iterator[RawRows]:
    builder = RowBuilder()
    n_columns = len(header.columns)
    for number, row in records(chunk, header.delimiter):
        try:
            if len(row) != n_columns:
                raise IngestError(f"expected {n_columns} fields, but got {len(row)}")
            if repeats_header(row, header):
                raise IngestError("the line repeats the header")
            labels, n_ordered, tied = listing.of_fields(row)
            said = row[roles["unranked"]] if "unranked" in roles else ""
            if said not in ("", *UNRANKED):
                raise IngestError(f"unranked is {said!r}, but should be below or absent")
        except IngestError as error:
            builder.fail(Failure(number, "syntax", str(error), text=" ".join(row)))
        else:
            builder.add(
                number,
                labels,
                n_ordered=n_ordered,
                tied=tied,
                weight=parse_weight(row[roles["weight"]]) if "weight" in roles else 1.0,
                id=row[roles["id"]] if "id" in roles else None,
                group=row[roles["group"]] if "group" in roles else None,
                unranked=cast("Unranked | None", said or None),
            )
        if len(builder) >= BATCH_ROWS:
            yield builder.take()
    yield builder.take()
