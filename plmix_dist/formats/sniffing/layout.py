"""Layout: where the rankings of a text table are. What cannot be told is refused with the option that tells it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError
from plmix_dist.formats.format import ReadOptions, column_roles
from plmix_dist.formats.notation import divider_of
from plmix_dist.formats.sniffing.cells import are_lists, are_orderings, counts_lines
from plmix_dist.formats.sniffing.delimiter import sniff_delimiter
from plmix_dist.formats.sniffing.header import RATING_WORDS, has_header, is_place_name
from plmix_dist.formats.sniffing.places import (
    ranks_or_places,
    refuse_foreign_columns,
    refuse_header_below,
    refuse_long_tables,
)
from plmix_dist.formats.sniffing.sample import read_sample, split_fields
from plmix_dist.formats.sources import Header, SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from plmix_dist.formats.sniffing.sample import Sample

_REQUIRED = ("id", "item", "rank")
LABEL_ROLES = ("weight", "id", "group", "unranked")


@dataclass(frozen=True)
class Table:
    """The first rows of a table, and what is known of its columns.

    Examples
    --------
    >>> Table("a.csv", ("id", "first"), [["7", "tea"]], {"id": 0}).values
    [1]
    """

    url: str
    columns: tuple[str, ...]
    body: list[list[str]]
    roles: dict[str, int]
    ignored: tuple[int, ...] = ()
    guesses: tuple[str, ...] = ()

    @property
    def values(self) -> list[int]:
        """The columns that are neither ignored nor labels of a ranking."""
        taken = {self.roles[role] for role in LABEL_ROLES if role in self.roles} | set(self.ignored)
        return [place for place in range(len(self.columns)) if place not in taken]

    def cells(self, place: int) -> list[str]:
        """The cells of a column, in rows of the right length."""
        return [row[place] for row in self.body if len(row) == len(self.columns)]


@dataclass(frozen=True)
class Layout:
    """A format, and the header of a table of this format.

    Examples
    --------
    >>> Layout("wide", Header(columns=("first", "second"))).format
    'wide'
    """

    format: str
    header: Header


def header_reader(format_name: str) -> Callable[[SourceFile, ReadOptions], Header]:
    r"""The function that reads the header of tables of one format.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from plmix_dist.formats.sources import find
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("count,ordering\n3,tea coffee\n")
    >>> header_reader("orderings")(find(str(path)), ReadOptions()).columns
    ('count', 'ordering')
    """
    return lambda file, options: sniff(file, options, format_name).header


def sniff(file: SourceFile, options: ReadOptions, format_name: str | None = None) -> Layout:
    r"""The layout of a table, by its first lines and the options. An error if it is none, or may be several.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from plmix_dist.formats.sources import find
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("tea;mate\n1;2\n2;1\n1;1\n")
    >>> found = sniff(find(str(path)), ReadOptions())
    >>> found.format, found.header.delimiter, found.header.item_names
    ('ranks', ';', ('tea', 'mate'))
    """
    sample = read_sample(file)
    delimiter = options.delimiter or sniff_delimiter(
        sample, default="\t" if file.name.lower().endswith(".tsv") else ","
    )
    rows = [_fields(sample, number, line, delimiter) for number, line in enumerate(sample.lines)]
    named, guessed = _is_header(rows, options, sample.url)
    guesses = ("the first line names the columns (else say --no-header)",) if guessed else ()
    table = _table(rows, options, sample.url, named)
    table = replace(table, guesses=(*guesses, *table.guesses))
    chosen, table = _layout(table, options, format_name)
    if "group" in table.roles and "group" not in options.columns:
        table = replace(table, guesses=(*table.guesses, _persons(table.columns[table.roles["group"]])))
    header = Header(
        body_offset=sample.second if named else sample.start,
        body_line=sample.second_line if named else sample.first_line,
        columns=table.columns,
        delimiter=delimiter,
        roles=table.roles,
        ignored=table.ignored,
        guesses=table.guesses,
        item_names=tuple(table.columns[place] for place in table.values) if chosen == "ranks" else None,
        has_names=named,
        divider=divider_of(table.cells(table.roles["ordering"])) if chosen == "orderings" else None,
    )
    return Layout(chosen, header)


def _persons(column: str) -> str:
    return (
        f"the column {column!r} names persons, and all rankings of one person share one membership (if each row is a "
        f"person of its own, say --column id={column})"
    )


def _fields(sample: Sample, number: int, line: str, delimiter: str) -> list[str]:
    try:
        return split_fields(line, delimiter)
    except IngestError as error:
        if number:
            return [line]  # reading the rows gives the error, with its line
        raise IngestError(f"{sample.url}, line {sample.first_line}: {error}") from None


def _is_header(rows: list[list[str]], options: ReadOptions, url: str) -> tuple[bool, bool]:
    """Whether the first line names the columns, as the user says or the data show, and whether this is a guess."""
    if options.header is not None:
        return options.header, False
    named_by_user = {name.lower() for name in options.column_names}
    if named_by_user & {cell.lower() for cell in rows[0]} and not _numbered(named_by_user):
        return True, False
    return has_header(rows[0], rows[1:], url)


def _numbered(names: set[str]) -> bool:
    """Whether the user named columns by their numbers, as those of a table without a header are."""
    return all(name.isdigit() for name in names)


def _table(rows: list[list[str]], options: ReadOptions, url: str, named: bool) -> Table:
    """The table with names for its columns: those of the first line, or numbers from 1."""
    body = rows[1:] if named else rows
    width = max(map(len, body), default=0) if not named else len(rows[0])
    columns = tuple(rows[0]) if named else tuple(str(place + 1) for place in range(width))
    full = {len(row) for row in body}
    if named and full == {width + 1}:
        # A name is missing: of the line numbers that R writes, or behind a delimiter at the end of lines.
        at_end = all(not row[-1] for row in body)
        columns = (*columns, "") if at_end else ("", *columns)
    table = Table(url, columns, body, column_roles(columns, options, url))
    return _without_unnamed(table) if named else table


def _without_unnamed(table: Table) -> Table:
    """The table without unnamed columns that hold line numbers or nothing. Other unnamed ones in front are ids."""
    ignored = list(table.ignored)
    for place, name in enumerate(table.columns):
        if name and not name.lower().startswith("unnamed:"):
            continue
        cells = table.cells(place)
        if all(not cell for cell in cells) or counts_lines(cells):
            ignored.append(place)
        elif place == 0 and "id" not in table.roles and len(set(cells)) == len(cells):
            note = "the first column, which has no name, holds the ids of the rankings"
            table = replace(table, roles={**table.roles, "id": 0}, guesses=(*table.guesses, note))
    return replace(table, ignored=tuple(ignored))


def _layout(table: Table, options: ReadOptions, wanted: str | None) -> tuple[str, Table]:
    """The format of a table, and the table with the roles of its columns. `wanted` is the user's choice."""
    if wanted in (None, "orderings"):
        table = _with_orderings(table, options, wanted)
        if "ordering" in table.roles:
            return "orderings", table
    if wanted == "long" or (wanted is None and "item" in table.roles):
        return "long", _long(table)
    if wanted is None and not options.places:
        _refuse_lists(table, options)
    if not table.values:
        raise IngestError(f"{table.url}: no column is left for the places of a ranking")
    if wanted is None:
        _refuse_ratings(table)
        if not options.places:
            refuse_long_tables(table)
        wanted, guess = ("wide", None) if options.places else ranks_or_places(table)
        table = replace(table, guesses=(*table.guesses, guess) if guess else table.guesses)
    if wanted == "wide" and not options.places:
        refuse_header_below(table)
        refuse_foreign_columns(table)
    return wanted, table


def _with_orderings(table: Table, options: ReadOptions, wanted: str | None) -> Table:
    """The table with the column of its orderings, if it has one. An error if it has none but the user wants them."""
    table = _without_false_ids(table, options)
    if "ordering" in table.roles:
        return table
    arrows = [
        place
        for place in table.values
        if not is_place_name(table.columns[place]) and are_orderings(table.cells(place))
    ]
    column = arrows[0] if len(arrows) == 1 else table.values[0] if len(table.values) == 1 else None
    if column is not None and (arrows or wanted):
        return replace(table, roles={**table.roles, "ordering": column})
    if wanted:
        raise IngestError(
            f"{table.url}: no column holds orderings; found: {', '.join(table.columns)}. "
            "Name it 'ordering', or name the column with --column ordering=NAME"
        )
    return table


def _without_false_ids(table: Table, options: ReadOptions) -> Table:
    """The table without an id that was recognised by its name (`ranking`), if the cells are orderings."""
    place = table.roles.get("id")
    if place is None or "id" in options.columns or not are_orderings(table.cells(place)):
        return table
    return replace(table, roles={role: column for role, column in table.roles.items() if role != "id"})


def _refuse_lists(table: Table, options: ReadOptions) -> None:
    """An error if one column holds lists of items, such as `tea, mate, milk`."""
    named_id = [table.roles["id"]] if "id" in table.roles and "id" not in options.columns else []
    for place in (*named_id, *(table.values if len(table.values) == 1 else ())):
        if are_lists(table.cells(place)):
            name = table.columns[place]
            raise IngestError(
                f"{table.url}: the cells of the column {name!r} seem to be whole rankings, such as "
                f"{table.cells(place)[0]!r}: if they are, best first, say --column ordering={name}"
            )


def _long(table: Table) -> Table:
    """A long table with its id, item and rank. Where only persons are named, each gives one ranking."""
    roles = dict(table.roles)
    if "id" not in roles and "group" in roles:
        roles["id"] = roles.pop("group")
    missing = [role for role in _REQUIRED if role not in roles]
    if missing == ["rank"]:
        _refuse_ratings(replace(table, roles=roles))
    if missing:
        raise IngestError(
            f"{table.url}: no column holds the {', '.join(missing)}; found: {', '.join(table.columns)}. "
            f"Name the columns with --column, such as --column {missing[0]}=NAME"
        )
    return replace(table, roles=roles)


def _refuse_ratings(table: Table) -> None:
    """An error if a column is named as ratings are."""
    column = next((place for place in table.values if table.columns[place].lower() in RATING_WORDS), None)
    if column is None:
        return
    name = table.columns[column]
    chosen = [
        f"{role}={table.columns[table.roles[role]] if role in table.roles else 'NAME'}"
        for role in ("id", "item")
    ]
    options = " ".join(f"--column {choice}" for choice in (*chosen, f"rank={name}"))
    raise IngestError(
        f"{table.url}: the column {name!r} seems to hold ratings, of which the highest is the best: say "
        "--format ratings, and equal ratings become ties. If they are ranks (1 is the best), "
        f"say --format long {options}"
    )
