"""Delimited text: what the formats orderings, wide and long share."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, cast

from plmix_dist.errors import IngestError
from plmix_dist.formats.format import ReadOptions, column_roles, number_text, parse_weight, written_name
from plmix_dist.formats.items import natural_order
from plmix_dist.formats.labelled import exists, labelled_rows, open_target, refuse, remove, survey
from plmix_dist.formats.notation import from_spreadsheet, spreadsheet_safe
from plmix_dist.formats.raw_rows import BATCH_ROWS, Failure, RowBuilder
from plmix_dist.formats.sources import Header, Slice, SourceFile, decode, lines, reading, text_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plmix_dist.formats.labelled import LabelledRow, Survey
    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.rankings import Unranked
    from plmix_dist.store import RankingStore

    # From the fields of a line: the listed items, how many of them are ordered, and which are tied.
    Listing = Callable[[list[str]], tuple[list[str], int, list[bool] | None]]

SUFFIXES = (".csv", ".tsv", ".txt")
_LONGEST_LINE = 10_000_000
csv.field_size_limit(_LONGEST_LINE)


def read_header(file: SourceFile, options: ReadOptions) -> Header:
    r"""The names of the columns, from the first line.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("count,ordering\n3,tea coffee\n")
    >>> read_header(SourceFile(str(path), path.stat().st_size), ReadOptions()).columns
    ('count', 'ordering')
    """
    with reading(file.url) as stream:
        raw = stream.readline(_LONGEST_LINE)
    if not raw.strip():
        raise IngestError(f"{file.url} is empty: its first line should name the columns")
    text = decode(raw, file.url, 1)
    try:
        columns = _fields(text, delimiter_of(file, options))
    except IngestError as error:
        raise IngestError(f"{file.url}, line 1: {error}") from None
    return Header(body_offset=len(raw), body_line=2, columns=tuple(column.strip() for column in columns))


def delimiter_of(file: SourceFile, options: ReadOptions) -> str:
    r"""The delimiter in the options; by default a tab for .tsv and a comma for all other files.

    Examples
    --------
    >>> delimiter_of(SourceFile("a.tsv", 0), ReadOptions()), delimiter_of(SourceFile("a.csv", 0), ReadOptions())
    ('\t', ',')
    """
    return options.delimiter or ("\t" if file.name.lower().endswith(".tsv") else ",")


def _fields(line: str, delimiter: str) -> list[str]:
    """The fields of one line."""
    reader = csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True)
    try:
        return next(reader, [])
    except csv.Error as error:
        raise IngestError(str(error)) from None


def records(part: Slice, options: ReadOptions) -> Iterator[tuple[int, list[str]]]:
    r"""Line number and fields of each line of a slice, without spaces around the fields.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("count,ordering\n3, tea coffee\n")
    >>> file = SourceFile(str(path), path.stat().st_size)
    >>> list(records(Slice(file, Header(), 15, None, first_line=2), ReadOptions()))
    [(2, ['3', 'tea coffee'])]
    """
    sign = delimiter_of(part.file, options)
    for number, line in lines(part):
        # Most lines have no quotes, and str.split is several times faster than the CSV parser.
        try:
            row = _fields(line, sign) if '"' in line else line.split(sign)
        except IngestError as error:
            raise IngestError(f"{part.file.url}, line {number}: {error}") from None
        yield number, [from_spreadsheet(value.strip()) for value in row]


def slices_keeping(role: str) -> Callable[[SourceFile, Header, ReadOptions], list[Slice]]:
    """A function that cuts a file into slices, never between lines of one group.

    If the file has no groups, it never cuts between lines with one value in the column of `role`.

    Examples
    --------
    >>> header = Header(columns=("ranking", "item", "rank"))
    >>> len(slices_keeping("id")(SourceFile("small.csv", 100), header, ReadOptions()))
    1
    """

    def cut(file: SourceFile, header: Header, options: ReadOptions) -> list[Slice]:
        roles = column_roles(header.columns, options, file.url)
        place = roles.get("group", roles.get(role))
        if place is None:
            return text_slices(file, header)
        sign, column = delimiter_of(file, options), place
        return text_slices(file, header, key=lambda line: _field(line, sign, column))

    return cut


def _field(line: str, delimiter: str, place: int) -> str:
    """One field of a line, or an empty string if the line does not have it."""
    try:
        row = _fields(line, delimiter)
    except IngestError:
        return ""
    return row[place].strip() if place < len(row) else ""


def read_rows(
    part: Slice, options: ReadOptions, roles: dict[str, int], listing: Listing
) -> Iterator[RawRows]:
    r"""Rankings of one line each.

    Parameters
    ----------
    roles
        The columns of weight, id, group and unranked, as far as the file has them.
    listing
        Finds the items among the fields of a line.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("count,ordering\n3,tea coffee\n")
    >>> file = SourceFile(str(path), path.stat().st_size)
    >>> part = Slice(file, read_header(file, ReadOptions()), 15, None, first_line=2)
    >>> listing = lambda row: (row[1].split(), 2, None)
    >>> [rows.labels.to_pylist() for rows in read_rows(part, ReadOptions(), {"weight": 0}, listing)]
    [['tea', 'coffee']]
    """
    builder = RowBuilder()
    n_columns = len(part.header.columns)
    for number, row in records(part, options):
        try:
            if len(row) != n_columns:
                raise IngestError(f"expected {n_columns} fields, but got {len(row)}")
            labels, n_ordered, tied = listing(row)
            said = row[roles["unranked"]] if "unranked" in roles else ""
            if said not in ("", "below", "absent"):
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


def write_rows(
    store: RankingStore,
    target: str,
    names: Callable[[Survey], list[str]],
    values: Callable[[LabelledRow], list[list[Any]]],
    *,
    always_weights: bool = False,
    ids_are_values: bool = False,
) -> None:
    r"""Write a store as a table.

    Parameters
    ----------
    names
        Names of the columns that hold items.
    values
        The values of these columns for each line of a ranking.
    always_weights
        Whether to write weights that are all 1.
    ids_are_values
        Whether `values` includes the ids.

    Examples
    --------
    >>> import pathlib, tempfile, plmix_dist
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> store = plmix_dist.simulate(folder / "s", n_rankings=2, n_items=3)
    >>> write_rows(store, f"{folder}/best.csv", lambda found: ["best"], lambda row: [[row.labels[0]]])
    >>> (folder / "best.csv").read_text()
    'best\n2\n1\n'
    """
    found = survey(store)
    _refuse_names(store, target)
    has_ids = found.has_ids and not ids_are_values
    shown = [role for role, there in (("id", has_ids), ("group", found.has_groups)) if there]
    shown += ["unranked"] if found.mixed_unranked else []
    weighted = found.has_weights or always_weights
    with open_target(target) as out:
        table = csv.writer(
            out, delimiter="\t" if target.removesuffix(".gz").endswith(".tsv") else ",", lineterminator="\n"
        )
        weight_name = [written_name("weight")] if weighted else []
        table.writerow([*weight_name, *names(found), *(written_name(role) for role in shown)])
        for row in labelled_rows(store, store.item_names):
            weight = [number_text(row.weight)] if weighted else []
            labels = [getattr(row, role) for role in shown]
            for listed in values(row):
                cells = [
                    str(cell)
                    for cell in (*weight, *listed, *("" if label is None else label for label in labels))
                ]
                if any("\n" in cell or "\r" in cell for cell in cells):
                    refuse(target, "a label contains a line break", "Parquet")
                table.writerow([spreadsheet_safe(cell) for cell in cells])
        _write_items_beside(store, target, found)  # before the rows appear, which mean nothing without it


def _refuse_names(store: RankingStore, target: str) -> None:
    """An error if a name begins or ends with spaces, because reading text removes them."""
    surrounded = next((name for name in store.item_names if name != name.strip()), None)
    if surrounded is not None:
        refuse(target, f"there are spaces around the item name {surrounded!r}", "Parquet")


def _write_items_beside(store: RankingStore, target: str, found: Survey) -> None:
    """Write `TARGET.items`, one name per line, if the rows alone do not give back all items in their order."""
    if not all(found.items_seen) or list(store.item_names) != natural_order(store.item_names):
        with open_target(items_beside(target)) as out:
            out.writelines(f"{name}\n" for name in store.item_names)
    elif exists(items_beside(target)):  # left by an earlier export; ingest would read it
        remove(items_beside(target))


def items_beside(target: str) -> str:
    """The file beside a text source that names its items.

    Examples
    --------
    >>> items_beside("votes.csv")
    'votes.csv.items'
    """
    return f"{target}.items"
