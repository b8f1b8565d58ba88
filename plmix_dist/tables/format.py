"""Format: what reads and writes one way of noting rankings down; Table and Batch: what it is given.

A new format is one value of Format in one file.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from plmix_dist.errors import IngestError, SettingsError
from plmix_dist.settings import shown
from plmix_dist.store import RankingStore
from plmix_dist.tables.rows import RawRows
from plmix_dist.tables.sources import Condition, Header, Slice, SourceFile
from plmix_dist.tables.words import COLUMN_NAMES, LABEL_ROLES, LISTS_OF_COLUMNS, cell_text, parse_weight

# What the role of a column of features begins with.
FEATURE = "feature "
# And that of the same feature of the second side of a battle.
OF_SECOND = "second feature "
# And that of a column about the person who gave a ranking.
PERSON = "person "
# In this order: a semicolon or a tab in every line is hardly ever part of the text.
DELIMITERS = ("\t", ";", ",")


@dataclass(frozen=True)
class ReadOptions:
    """How to read tables: the delimiter, the column name of each role, whether the first line is a header.

    What is None is found out from the data.
    """

    delimiter: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    header: bool | None = None
    # What the file cannot say: a contest, a question, a rule; by the names in Format.choices.
    choices: Mapping[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()  # which rows are read: NAME=VALUE or NAME!=VALUE
    trait: str | None = None  # which of several comparisons of the same items is read

    def as_settings(self) -> dict[str, object]:
        """The options as part of the settings of a run. What is not given is left out, as it always was."""
        settings: dict[str, object] = {"columns": dict(self.columns), "delimiter": self.delimiter}
        more = {"choices": dict(self.choices), "header": self.header, "where": list(self.where), "trait": self.trait}
        return settings | {name: value for name, value in more.items() if value not in (None, {}, [])}

    @property
    def column_names(self) -> list[str]:
        """All columns that the user named."""
        named = [name for role, name in self.columns.items() if role not in LISTS_OF_COLUMNS]
        return [*named, *(self.places or []), *self.ignored, *chain(*self.columns_of_features.values()), *self.persons]

    @property
    def places(self) -> list[str] | None:
        """The columns of the places of a wide table, if the user named them."""
        return _names_in(self.columns["places"]) if "places" in self.columns else None

    @property
    def features(self) -> list[str]:
        """The names of features of the item of a row, or of both sides of a battle."""
        return list(self.columns_of_features)

    @property
    def columns_of_features(self) -> dict[str, list[str]]:
        """The columns of each feature by its name: one, or one for each side, as in `length=length_a|length_b`."""
        texts = _names_in(self.columns.get("features", ""))
        named = [text.rpartition("=") if "|" in text else ("", "", text) for text in texts]
        return {name or columns: columns.split("|", 1) for name, _, columns in named}

    @property
    def persons(self) -> list[str]:
        """The columns about the person who gave a ranking."""
        return _names_in(self.columns["persons"]) if "persons" in self.columns else []

    @property
    def ignored(self) -> list[str]:
        """The columns that the user leaves out."""
        return _names_in(self.columns.get("ignore", ""))


def check_columns(columns: Any, roles: Collection[str], where: str = "") -> None:
    """An error unless columns are named by role, and there are such roles."""
    if not isinstance(columns, Mapping) or not all(isinstance(text, str) for pair in columns.items() for text in pair):
        raise SettingsError(f"columns must give a column name for each role, but is {shown(columns)}")
    if unknown := sorted(set(columns) - set(roles)):
        raise SettingsError(f"unknown column role {unknown[0]!r}{where}; choose from {', '.join(roles)}")


def _names_in(text: str) -> list[str]:
    """Names of columns between commas; one with a comma stands in double quotes."""
    return [name.strip() for row in csv.reader([text], skipinitialspace=True) for name in row]


@dataclass(frozen=True)
class Table(Header):
    """What a format is recognised by: the header of a table, and its first rows as text.

    A format returns the table with what it found: the roles of the columns, columns to be `ignored`, `guesses` in
    sentences for the user, the `divider` between the items of an ordering, and the names of all items if it knows them.
    """

    body: list[list[str]] = field(default_factory=list)
    lists: tuple[int, ...] = ()  # columns of which each cell is a list

    @property
    def values(self) -> list[int]:
        """The columns that are neither ignored nor labels of a ranking."""
        taken = {self.roles[role] for role in LABEL_ROLES if role in self.roles} | set(self.ignored)
        return [place for place in range(len(self.columns)) if place not in taken]

    def names(self, places: Iterable[int]) -> list[str]:
        """The names of columns."""
        return [self.columns[place] for place in places]

    def rows(self, places: Sequence[int]) -> list[list[str]]:
        """The cells of some columns, in rows of the right length."""
        return [[row[place] for place in places] for row in self.body if len(row) == len(self.columns)]

    def cells(self, place: int) -> list[str]:
        """The cells of a column, in rows of the right length."""
        return [row[place] for row in self.body if len(row) == len(self.columns)]

    def with_guess(self, guess: str | None) -> Table:
        """The table with another guess."""
        return self if guess is None else replace(self, guesses=(*self.guesses, guess))


@dataclass(frozen=True)
class Syntax:
    """How a format that is not a table reads its files: what comes before the rows, the slices, the rows of a slice."""

    read_header: Callable[[SourceFile, ReadOptions], Header]
    slices: Callable[[SourceFile, Header], list[Slice]]
    read: Callable[[Slice], Iterator[RawRows]]
    begins: Callable[[str], bool] | None = None  # whether the first characters of a file show this format


@dataclass(frozen=True)
class Source:
    """A kind of file that holds a table.

    sample(file, options, formats): the first rows, and where the rows begin. cut(file, header, together, whole): slices
    that never divide equal cells of the column `together`; one slice if `whole`. batches(slice, wanted, raw, together):
    the wanted columns, of which `raw` need not be coded by distinct cells; `together` is given if what begins in a
    slice may end beyond it.
    """

    suffixes: tuple[str, ...]
    sample: Callable[[SourceFile, ReadOptions, Sequence[Format]], Table]
    cut: Callable[[SourceFile, Header, int | None, bool], list[Slice]]
    batches: Callable[[Slice, Sequence[int], Collection[int], int | None], Iterator[Batch]]


def columns_of(roles: Mapping[str, int], begins: str) -> dict[str, int]:
    """The columns of features (FEATURE, OF_SECOND) or about persons (PERSON), by their roles."""
    return {role: place for role, place in roles.items() if role.startswith(begins)}


def places_of(roles: Mapping[str, int]) -> list[int]:
    """The columns of the places of a ranking, best first."""
    return [place for role, place in roles.items() if role.startswith("place ")]


@dataclass(frozen=True)
class Format:
    """A way of noting rankings down. `name` is the value of --format.

    recognise(table, options, named): the table with the roles of its columns; None if it is not of this format. If the
    user named the format, it is the table or an error. An error also stops other formats from being tried.
    read(batches, header): rows of rankings. `wanted` are the columns that it needs, by default those with a role;
    `wanted_raw` those that it reads as plain text, because few of their cells are equal. The others are left out, and
    the user is warned.
    """

    name: str
    recognise: Callable[[Table, ReadOptions, bool], Table | None] = lambda table, options, named: None  # noqa: ARG005
    read: Callable[[Iterator[Batch], Header], Iterator[Any]] | None = None
    wanted: Callable[[Header], Sequence[int]] = lambda header: [*header.roles.values()]
    wanted_raw: Callable[[Header], Sequence[int]] = lambda header: ()  # noqa: ARG005
    # The usual names of columns for its own roles; they go before those for ids, weights, groups and unranked.
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Whether a ranking takes several consecutive rows, with one id. Otherwise each row is a ranking.
    consecutive: Callable[[Header], bool] = lambda header: False  # noqa: ARG005
    # Whether rows that belong together may stand anywhere in a file, so that it is read as a whole.
    scattered: Callable[[Header], bool] = lambda header: False  # noqa: ARG005
    # Whether equal rows are merged while they are read, so that few are left of many.
    merges: bool = False
    # Whether each row may have features of its item, or of both sides.
    takes_features: bool = False
    # Whether each row may have columns about the person who gave its ranking.
    takes_persons: bool = False
    # Of text: the signs that may divide its fields, into how many if it has no header, and whether a first line is a
    # row. None: the first lines show it.
    delimiters: tuple[str, ...] = DELIMITERS
    n_fields: tuple[int, ...] = ()
    is_row: Callable[[Sequence[str], ReadOptions], bool] | None = None
    # File name endings that no other format has.
    suffixes: tuple[str, ...] = ()
    # What the user may choose: the values, of which the first is the default; none where any text may be given.
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # What it reads, in a few words, and two lines of a file, for `plmix formats`.
    about: str = ""
    example: str = ""
    syntax: Syntax | None = None
    also: tuple[Format, ...] = ()  # formats of files that are not tables, which go by this name too
    write: Callable[[RankingStore, str], None] | None = None


def by_names(*needed: str) -> Callable[[Table, ReadOptions, bool], Table | None]:
    """Recognition by the names of columns alone: all these roles must have one."""

    def recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
        del options
        if (missing := [role for role in needed if role not in table.roles]) and named:
            raise missing_columns(table, missing)
        return None if missing else table

    return recognise


def missing_columns(table: Table, missing: Sequence[str]) -> IngestError:
    """The error for roles that no column has."""
    return IngestError(
        f"no column holds the {', '.join(missing)}; found: {', '.join(table.columns)}. Name the columns "
        f"with --column, such as --column {missing[0]}=NAME"
    )


def usual_names(form: Format) -> Mapping[str, tuple[str, ...]]:
    """The names of columns that a format recognises, by role; a role is a name too."""
    own = {role: names if role in names else (role, *names) for role, names in form.roles.items()}
    labels = ("id", "weight", "group", "unranked")
    return {**own, **{role: (*own.get(role, ()), *COLUMN_NAMES[role]) for role in labels}}


def column_roles(columns: Sequence[str], options: ReadOptions, names: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """The number of the column of each role, by the names in the options or by usual names.

    A column that the options name has no other role by its usual name.
    """
    places = {name.strip().lower(): place for place, name in reversed(list(enumerate(columns)))}
    named = {places.get(name.strip().lower()) for name in options.column_names}
    roles: dict[str, int] = {}
    for role, usual in names.items():
        if (chosen := options.columns.get(role)) is not None:
            if chosen.strip().lower() not in places:
                raise IngestError(f"no column {chosen!r} for the {role}; found: {', '.join(columns)}")
            roles[role] = places[chosen.strip().lower()]
            continue
        free = (places[name] for name in usual if name in places and places[name] not in named)
        if (found := next((place for place in free if place not in roles.values()), None)) is not None:
            roles[role] = found
    return roles


# Batch: some rows of a table by columns, with line numbers. Every source yields batches, every format reads them.


@dataclass(frozen=True)
class Column:
    """A column of a batch: text of a file, or the values of a table with types (Parquet, a frame).

    Text that is not `clean` has blanks around it, and apostrophes against spreadsheets, still to be removed.
    """

    array: pa.Array
    clean: bool = True

    @cached_property
    def _encoded(self) -> tuple[NDArray[np.int64], list[str]]:
        array = self.array
        encoded = array if pa.types.is_dictionary(array.type) else _text(array).dictionary_encode()
        values = _texts(encoded.dictionary, self.clean)
        if not encoded.null_count:
            return encoded.indices.to_numpy(), values
        return np.asarray(encoded.indices.fill_null(len(values))), [*values, ""]

    @property
    def codes(self) -> NDArray[np.int64]:
        """(n_rows,): which of the distinct `values` each row has."""
        return self._encoded[0]

    @property
    def values(self) -> list[str]:
        """The distinct cells as text, missing ones empty. A value may occur twice."""
        return self._encoded[1]

    def __getitem__(self, row: int) -> str:
        return self.values[int(self.codes[row])]

    def mapped(self, function: Callable[[str], Any], dtype: DTypeLike = object) -> NDArray[Any]:
        """(n_rows,): a function of each cell's text, computed for the distinct values only."""
        table = np.empty(len(self.values), dtype)
        table[:] = [function(value) for value in self.values]
        return table[self.codes]

    @property
    def is_text(self) -> bool:
        """Whether the cells are text."""
        kind = self.array.type
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))

    def numbers(self, missing: frozenset[str] = frozenset(), message: str = "") -> NDArray[np.float64]:
        """(n_rows,): the cells as numbers; NaN for what is missing or not a number.

        Types that are not numbers are an error, by default that of weights and ranks, which may all be missing and must
        be exact.
        """
        if self.is_text:
            return self.mapped(lambda text: np.nan if text in missing else parse_weight(text), np.float64)
        kind = self.array.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or (pa.types.is_null(kind) and not message)):
            raise IngestError((message or "weights and ranks must be numbers, but a column holds {}").format(kind))
        return np.asarray(self.array.cast(pa.float64(), safe=not message).to_numpy(zero_copy_only=False), np.float64)

    def labels(self) -> NDArray[Any]:
        """(n_rows,): integers as int64, all other cells as text objects; missing ones are "" or the smallest int64."""
        if pa.types.is_integer(self.array.type):
            return np.asarray(self.array.cast(pa.int64()).fill_null(np.iinfo(np.int64).min))
        if self.is_text:
            return self.mapped(str)
        return np.array(["" if cell is None else str(cell) for cell in _text(self.array).to_pylist()], object)

    def items(self) -> pa.Array:
        """(n_rows,): the cells as names of items, in Arrow's own form."""
        if self.is_text:
            codes = pa.array(self.codes.astype(np.int32), mask=self.nulls if self.array.null_count else None)
            return pa.DictionaryArray.from_arrays(codes, pa.array(self.values, pa.string()))
        return _text(self.array)

    @property
    def nulls(self) -> NDArray[np.bool_]:
        """(n_rows,): which cells a table with types has no value for. Text has none."""
        return np.asarray(self.array.is_null())

    def by_runs(self) -> Column:
        """The column coded by runs of equal cells, which is quicker where equal cells stand together, as ids do."""
        if not pa.types.is_string(self.array.type) or self.array.null_count:
            return self
        runs = pc.run_end_encode(self.array)
        lengths = np.diff(runs.run_ends.to_numpy(), prepend=0)
        codes = pa.array(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths))
        return Column(pa.DictionaryArray.from_arrays(codes, runs.values), self.clean)


@dataclass(frozen=True)
class Batch:
    """Some rows of a table.

    `columns` has the wanted columns by their place in the table, `lines` (n_rows,) the line or row of each in the
    source, `bad` the reason why a row could not be divided into cells, and `cells` gives all cells of a row as text.
    """

    columns: Mapping[int, Column]
    lines: NDArray[np.int64]
    cells: Callable[[int], list[str]]
    bad: Mapping[int, str] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """The number of rows, bad ones included."""
        return len(self.lines)

    def kept(self, conditions: Sequence[Condition]) -> Batch:
        """The rows that meet conditions. A row that could not be divided into cells is kept."""
        if not conditions:
            return self
        keep = np.ones(self.n_rows, np.bool_)
        for condition in conditions:
            keep &= self.columns[condition.place].mapped(condition.holds, np.bool_)
        keep[list(self.bad)] = True
        return self.take(np.flatnonzero(keep))

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Some rows."""
        columns = {place: Column(one.array.take(pa.array(rows)), one.clean) for place, one in self.columns.items()}
        bad = {new: self.bad[old] for new, old in enumerate(rows.tolist()) if old in self.bad} if self.bad else {}
        return Batch(columns, self.lines[rows], lambda row: self.cells(int(rows[row])), bad)


def batch_of_texts(
    rows: Sequence[list[str]], numbers: Sequence[int], wanted: Iterable[int], bad: Mapping[int, str]
) -> Batch:
    """A batch of rows of text, which may be too short."""
    columns = {
        place: Column(pa.array([row[place] if place < len(row) else "" for row in rows], pa.string()))
        for place in wanted
    }
    return Batch(columns, np.array(numbers, np.int64), rows.__getitem__, bad)


def _texts(cells: pa.Array, clean: bool) -> list[str]:
    """Cells as text; text without apostrophes is cleaned by a built-in function, since ids may be millions."""
    cells = cells.cast(pa.string()) if pa.types.is_integer(cells.type) else cells
    values = cells.to_pylist()
    if cells.null_count or not pa.types.is_string(cells.type) or (not clean and "'" in "".join(values)):
        return [cell_text(value, clean) for value in values]
    return values if clean else list(map(str.strip, values))


def column_of(cells: Sequence[Any]) -> pa.Array:
    """Cells as a column with types, or of text where they are of several kinds."""
    try:
        return pa.array([list(cell) if isinstance(cell, tuple) else cell for cell in cells], from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([cell_text(cell) or None for cell in cells], pa.string())


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _text(column: pa.Array) -> pa.Array:
    """Bytes as UTF-8 text, because some tools write text as bytes; other cells as they are."""
    if pa.types.is_nested(column.type):
        raise IngestError(f"items, ids and groups must be text or numbers, but a column holds {column.type}")
    binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    return column.cast(pa.string()) if binary else column
