"""The formats with one ranking per row: `wide`, `ranks` and `orderings`, and what any such format needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from plmix_dist.errors import IngestError
from plmix_dist.rankings.columns import BETWEEN_CELLS
from plmix_dist.store import RankingStore
from plmix_dist.tables import places, words
from plmix_dist.tables.encode import shown
from plmix_dist.tables.format import PERSON, Batch, Column, Format, ReadOptions, Table, columns_of, places_of
from plmix_dist.tables.notation import divider_of, format_ordering, parse_ordering
from plmix_dist.tables.outsiders import first_rank_of, refuse_covariate_names, refuse_covariates, refuse_unused_counts
from plmix_dist.tables.rows import UNRANKED, Failure, RawRows, blank, whole_numbers_if_all
from plmix_dist.tables.sniff import are_orderings
from plmix_dist.tables.sources import Header
from plmix_dist.tables.write import LabelledRow, Survey, refuse, write_rows


class Listed(NamedTuple):
    """The items of many rankings, as in RawRows, and a message for each row that cannot be read."""

    labels: pa.Array
    n_listed: NDArray[np.int64]
    n_ordered: NDArray[np.int64] | None = None
    tied: NDArray[np.bool_] | None = None
    bad: Mapping[int, str] = {}
    blank_is_bad: bool = True  # whether a row without any item is an error, or counted and left out
    # (total listed,): which line of the source each item is of, where one line has one item; None: in this order
    order: NDArray[np.int64] | None = None


# What stands before totals at the end of a table.
_SUMMARY = re.compile(r"(?:grand |sub)?totals?\b.*|mean|average|median|sum|count", re.IGNORECASE)
# The items of a row, how many of them are ordered, and which are tied with the item before.
_Order = tuple[Sequence[str], int, Sequence[bool] | None]


def label_columns(header: Header) -> list[int]:
    """The columns of ids, weights, groups and unranked."""
    return [header.roles[role] for role in words.LABEL_ROLES if role in header.roles]


def by_rows(listed: Callable[[Batch, Header], Listed]) -> Callable[[Iterator[Batch], Header], Iterator[RawRows]]:
    """The reader of a format that finds the items of all rows of a batch at once."""

    def read(batches: Iterator[Batch], header: Header) -> Iterator[RawRows]:
        for batch in batches:
            yield rows_of(batch, header, listed(batch, header))

    return read


def row_by_row(
    order: Callable[[dict[str, str]], Sequence[str] | _Order],
) -> Callable[[Iterator[Batch], Header], Iterator[RawRows]]:
    """The reader of a format that finds the items of one row: its cells by role in, items best first out.

    It may also give how many of the items are ordered, and which are tied; an IngestError rejects the row.
    """

    def listed(batch: Batch, header: Header) -> Listed:
        columns = {role: batch.columns[place] for role, place in header.roles.items()}
        return _listed_one_by_one(
            batch, lambda row: _complete(order({role: column[row] for role, column in columns.items()}))
        )

    return by_rows(listed)


def _complete(found: Sequence[str] | _Order) -> _Order:
    if isinstance(found, tuple) and len(found) == 3 and isinstance(found[1], int):
        return found
    return found, len(found), None


def _listed_one_by_one(batch: Batch, order: Callable[[int], _Order]) -> Listed:
    """The items of all rows by a function of the row's number, which raises an IngestError for a bad row."""
    labels: list[str] = []
    tied: list[bool] = []
    lengths = np.zeros(batch.n_rows, np.int64)
    n_ordered = np.zeros(batch.n_rows, np.int64)
    bad: dict[int, str] = {}
    for row in range(batch.n_rows):
        if row in batch.bad:
            continue
        try:
            names, n_ordered[row], ties = order(row)
        except IngestError as error:
            bad[row] = str(error)
            continue
        lengths[row] = len(names)
        labels.extend(names)
        tied.extend(ties or [False] * len(names))
    flags = np.array(tied, np.bool_)
    return Listed(pa.array(labels, pa.string()), lengths, n_ordered, flags if flags.any() else None, bad)


def rows_of(batch: Batch, header: Header, listed: Listed, *, text_stays_text: bool = False) -> RawRows:
    """The rows of a batch with their labels. Rows that the source or the format refuses are failures.

    Labels that are text become integers if all are written so, unless `text_stays_text`.
    """
    labels = {role: batch.columns[header.roles[role]] for role in words.LABEL_ROLES if role in header.roles}
    unranked, odd = unranked_codes(labels.get("unranked"))
    persons, unknown = person_labels({role: batch.columns[at] for role, at in columns_of(header.roles, PERSON).items()})
    why = missing_labels(labels) | odd | unknown | dict(listed.bad) | dict(batch.bad)
    named = [labels[role] for role in ("id", "group") if role in labels and labels[role].is_text]
    for row in range(max(0, batch.n_rows - 3), batch.n_rows):
        if any(_SUMMARY.fullmatch(column[row]) for column in named):
            why.setdefault(row, "this seems to be a row of totals or means, and not a ranking")
    listed = listed._replace(n_ordered=listed.n_listed if listed.n_ordered is None else listed.n_ordered)
    rows = RawRows(
        *listed[:4],
        weights=labels["weight"].numbers() if "weight" in labels else None,
        ids=labels["id"].labels() if "id" in labels else None,
        groups=labels["group"].labels() if "group" in labels else None,
        persons=persons,
        unranked=unranked,
        lines=batch.lines,
    )
    failures = {
        row: Failure(int(batch.lines[row]), "syntax", message, text=" ".join(batch.cells(row)))
        for row, message in sorted(why.items())
    }
    rows = rows.without(failures | blank_rows(listed, batch.lines, failures))
    # After bad rows are gone, whose labels may be anything.
    if not text_stays_text:
        rows.ids, rows.groups = whole_numbers_if_all(rows.ids), whole_numbers_if_all(rows.groups)
    return rows


def blank_rows(listed: Listed, lines: NDArray[np.int64], bad: Mapping[int, Failure]) -> dict[int, Failure]:
    """The rows that list nothing, where this is not an error, as failures that stop nothing."""
    empty = [] if listed.blank_is_bad else np.flatnonzero(listed.n_listed == 0).tolist()
    return {row: blank(int(lines[row])) for row in empty if row not in bad}


def missing_labels(labels: Mapping[str, Column]) -> dict[int, str]:
    """A message for each row whose id or group a table with types does not have."""
    return {
        row: f"its {role} is missing (null)"
        for role in ("id", "group")
        if role in labels and labels[role].array.null_count
        for row in np.flatnonzero(labels[role].nulls).tolist()
    }


def person_labels(columns: Mapping[str, Column]) -> tuple[NDArray[Any] | None, dict[int, str]]:
    """(n_rows,): the cells about each person as one text; and a message for each row with an empty one."""
    if not columns:
        return None, {}
    empty = {
        row: f"{role.removeprefix(PERSON)} is empty, and shares may depend on it"
        for role, column in columns.items()
        for row in np.flatnonzero(column.mapped(lambda text: text in words.MISSING, np.bool_)).tolist()
    }
    profiles, codes = np.unique(np.stack([column.codes for column in columns.values()]), axis=1, return_inverse=True)
    cells = [[column.values[code] for code in own] for column, own in zip(columns.values(), profiles, strict=True)]
    texts = np.array([BETWEEN_CELLS.join(profile) for profile in zip(*cells, strict=True)], object)
    return texts[codes.ravel()], empty


def unranked_codes(said: Column | None) -> tuple[NDArray[np.int8] | None, dict[int, str]]:
    """(n_rows,): indices into UNRANKED, -1 where the cell is empty; and a message for each row with another word."""
    if said is None:
        return None, {}
    codes = said.mapped(lambda word: UNRANKED.index(word) if word in UNRANKED else -1 if not word else -2, np.int8)
    odd = np.flatnonzero(codes == -2).tolist()
    return np.maximum(codes, -1), {row: f"unranked is {said[row]!r}, but should be below or absent" for row in odd}


# The format `wide`: one column per place, best first. The first empty place ends a row.


def _recognise_wide(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """Any table that no other format has taken, if its columns hold items as places do."""
    if table.container == "memory":
        places.refuse_counters(table)
    if not table.values:
        raise IngestError("no column is left for the places of a ranking")
    if options.places:
        table = places.with_places(table, options.places)
        if not named:
            places.refuse_foreign_columns(table)
            refuse_unused_counts(table)
        return table
    if not named:
        table = table.with_guess(places.ranks_or_places(table)[1])
    if table.container in ("text", "excel"):
        places.refuse_header_below(table)
    places.refuse_foreign_columns(table)
    return places.with_places(table)


def _listed_wide(batch: Batch, header: Header) -> Listed:
    numbers: dict[str, int] = {}

    def code(name: str) -> int:
        return -1 if name in words.MISSING else numbers.setdefault(name, len(numbers))

    cells = np.column_stack([batch.columns[place].mapped(code, np.int32) for place in places_of(header.roles)])
    listed = cells >= 0
    torn = np.flatnonzero((listed[:, 1:] & ~listed[:, :-1]).any(axis=1)).tolist()
    return Listed(
        labels=pa.DictionaryArray.from_arrays(pa.array(cells[listed]), pa.array(list(numbers), pa.string())),
        n_listed=np.count_nonzero(listed, axis=1),
        bad=dict.fromkeys(torn, "an item follows an empty place; only the end of a row may be empty"),
    )


def _write_wide(store: RankingStore, target: str) -> None:
    """Write `place_1,place_2,...`, and columns for weights, ids, groups and unranked if the rows have them."""
    if empty := next((name for name in store.item_names if name in words.MISSING), None):
        refuse(target, f"an item is called {empty!r}, which is an empty place in a table", "orderings")
    longest = 0

    def names(found: Survey) -> list[str]:
        nonlocal longest
        longest = found.longest
        return [f"place_{place + 1}" for place in range(longest)]

    def values(row: LabelledRow) -> list[list[str]]:
        if row.tied is not None or row.n_ordered < len(row.labels):
            refuse(target, "ties and slates do not fit into one column per place", "orderings, long or Parquet")
        return [[*row.labels, *[""] * (longest - len(row.labels))]]

    write_rows(store, target, names, values)


WIDE = Format(
    name="wide",
    takes_persons=True,
    recognise=_recognise_wide,
    read=by_rows(_listed_wide),
    about="one column per place, best first",
    example="id,first,second,third\n1,tea,mate,milk",
    wanted=lambda header: [*label_columns(header), *places_of(header.roles)],
    write=_write_wide,
)


# The format `ranks`: one column per item, which holds its ranks. Equal ranks are ties.


def _recognise_ranks(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table of which the cells of each row are ranks: from 1, without gaps larger than ties leave."""
    if not named:
        if table.container == "memory":
            places.refuse_ratings(table)
        elif not options.places:
            places.refuse_lists(table, options)
        places.refuse_ratings(table)
        if options.places:
            places.refuse_ranks_in_places(table, options.places)
            return None
        places.refuse_long_tables(table)
        refuse_covariates(table)
        chosen, guess = places.ranks_or_places(table)
        if chosen != "ranks":
            return None
        table = table.with_guess(guess)
    first_rank, guess = first_rank_of(table, options.choices.get("zero"))
    return replace(_with_items(table.with_guess(guess)), first_rank=first_rank)


def _with_items(table: Table) -> Table:
    """The table with its columns as items."""
    if not table.values:
        raise IngestError("no column is left for the places of a ranking")
    names = [table.columns[place] for place in table.values]
    parents = {name.rpartition(".")[0] for name in names}  # of a nested object, such as ranks.Tea and ranks.Mate
    prefix = f"{parents.pop()}." if len(parents) == 1 and table.container not in ("text", "excel") else "."
    return replace(table, item_names=tuple(name.removeprefix(prefix) for name in names))


def _items_of(header: Header) -> list[int]:
    taken = {*label_columns(header), *header.ignored}
    return [place for place in range(len(header.columns)) if place not in taken]


def items_and_labels(header: Header) -> list[int]:
    """The columns of items, and of ids, weights, groups and unranked."""
    return [*label_columns(header), *_items_of(header)]


def _rank(cell: str, first: int, last: int) -> float:
    """The rank in a cell: NaN if the item is not ranked, infinity if the cell holds anything else."""
    rank = words.rank_in(cell)
    if cell in words.NO_RANK or (first and rank == 0):
        return float("nan")
    return rank if rank is not None and first <= rank <= last else float("inf")


def _score(cell: str) -> float:
    """Minus the score in a cell, so that the best comes first; NaN and infinity as for ranks."""
    score = float("nan") if cell in words.NO_SCORE else -words.parse_weight(cell.removesuffix("%"))
    return float("inf") if np.isnan(score) and cell not in words.NO_SCORE else score


def listed_ranks(batch: Batch, header: Header, *, highest_first: bool = False) -> Listed:
    """The items of all rows in the order of their ranks, or of their scores."""
    items = _items_of(header)
    names = list(header.item_names or ()) or [header.columns[place] for place in items]
    value = _score if highest_first else partial(_rank, first=header.first_rank, last=len(header.columns))
    ranks = np.column_stack([batch.columns[place].mapped(value, np.float64) for place in items])
    bad: dict[int, str] = {}
    for row, number in zip(*(found.tolist() for found in np.nonzero(np.isinf(ranks))), strict=True):
        cell = batch.columns[items[number]][row]
        what, wanted = ("score", "number") if highest_first else ("rank", "positive number")
        if not highest_first and words.rank_in(cell):
            wanted += f" up to {len(header.columns)}, the number of columns"
        bad.setdefault(
            row, f"the {what} {cell!r} of item {shown(names[number])} is not a {wanted}{words.decimal_hint(cell)}"
        )
    order = np.argsort(ranks, axis=1, kind="stable")  # NaN comes last
    ranked = np.take_along_axis(ranks, order, axis=1)
    listed = ~np.isnan(ranked)
    tied = np.zeros(ranks.shape, np.bool_)
    tied[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    shared = tied | np.roll(tied, -1, axis=1)  # the first of a row is tied with none before
    alone = (np.floor(ranked) < ranked) & ~shared
    for row in [] if highest_first else np.flatnonzero(alone.any(axis=1)).tolist():
        cell = words.number_text(ranked[row, np.argmax(alone[row])])
        bad.setdefault(
            row, f"the rank {cell} is the mean of tied ones, but no other item has it; of scores, say --format scores"
        )
    labels = pa.DictionaryArray.from_arrays(pa.array(order[listed].astype(np.int32)), pa.array(names, pa.string()))
    ties = tied[listed]
    n_listed = np.count_nonzero(listed, axis=1)
    return Listed(labels, n_listed, tied=ties if ties.any() else None, bad=bad, blank_is_bad=highest_first)


def _write_ranks(store: RankingStore, target: str) -> None:
    """Write one column per item, and columns for weights, ids, groups and unranked if the rows have them."""
    usual = {name for role in words.LABEL_ROLES for name in words.COLUMN_NAMES[role]}
    if (clash := next((name for name in store.item_names if name.lower() in usual), None)) is not None:
        refuse(target, f"an item is called {clash!r}, as a column of another role is", "orderings or Parquet")

    def values(row: LabelledRow) -> list[list[str]]:
        if row.n_ordered < len(row.labels):
            refuse(target, "slates do not fit into one column per item", "orderings, long or Parquet")
        ranks: dict[str, int] = {}
        for place, label in enumerate(row.labels):
            tied = row.tied is not None and row.tied[place]
            ranks[label] = ranks[row.labels[place - 1]] if tied else len(set(ranks.values())) + 1
        return [[str(ranks.get(name, "")) for name in store.item_names]]

    write_rows(store, target, lambda _: list(store.item_names), values, items_are_columns=True)


RANKS = Format(
    name="ranks",
    takes_persons=True,
    recognise=_recognise_ranks,
    read=by_rows(listed_ranks),
    wanted=items_and_labels,
    choices={"zero": ("best", "none")},
    about="one column per item, with its rank; equal ranks are ties",
    example="id,tea,mate,milk\n1,1,3,2",
    write=_write_ranks,
)


# The format `scores`: one column per item, which holds its scores, the highest the best. Equal scores are ties.


def _recognise_scores(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table that the user calls so: nothing in it says whether the highest number is the best."""
    del options
    if named:
        refuse_covariate_names(table)
    return _with_items(table) if named else None


SCORES = Format(
    name="scores",
    takes_persons=True,
    recognise=_recognise_scores,
    read=by_rows(partial(listed_ranks, highest_first=True)),
    wanted=items_and_labels,
    about="one column per item, with its score; the highest is the best",
    example="id,tea,mate,milk\n1,9,2,7",
)


# The format `orderings`: a whole ranking in one column, such as `count,ordering`.

# By byte: what divides items (as `parse_ordering` has it), and what only `parse_ordering` can read.
_DIVIDES = np.zeros(256, np.bool_)
_DIVIDES[list(b" \t\n\v\f\r\x1c\x1d\x1e\x1f,>")] = True
_MARKS = np.zeros(256, np.bool_)
_MARKS[list(b'{}|"')] = True
_APOSTROPHE = ord("'")
# A cell that begins with an apostrophe, which may protect it from spreadsheets, perhaps behind white space.
_PROTECTED = r"^[\s\x1c-\x1f\x{85}\p{Z}]*'"
# By the sign that divides items: what only `parse_ordering` can read.
_NOT_PLAIN = {sign: rf"""[{{}}|"{"=," if sign == ">" else ""}]|{_PROTECTED}""" for sign in ">,;"}


def _recognise_orderings(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table with a column that is named as orderings are, or of which the cells are, such as `tea > mate`."""
    table = _without_false_ids(table, options)
    if (column := table.roles.get("ordering")) is None:
        unnamed = [place for place in table.values if not words.is_place_name(table.columns[place])]
        arrows = [place for place in unnamed if are_orderings(table.cells(place))]
        only = table.values[0] if named and len(table.values) == 1 else None
        column = arrows[0] if len(arrows) == 1 else only
    if column is not None:
        cells, name = table.cells(column), table.columns[column]
        if cells and all(cell[:1] + cell[-1:] == "[]" for cell in cells if cell):
            raise IngestError(
                f"the cells of {name!r} are lists as Python and JSON write them: hand in a table with lists: "
                f"plmix_dist.ingest(pandas.read_csv(FILE, converters={{{name!r}: ast.literal_eval}}), STORE)"
            )
        divider = divider_of(cells)
        table = replace(table, roles={**table.roles, "ordering": column}, divider=divider)
        refuse_unused_counts(table)
        return table
    if named:
        raise IngestError(
            f"no column holds orderings; found: {', '.join(table.columns)}. "
            "Name it 'ordering', or name the column with --column ordering=NAME"
        )
    return None


def _without_false_ids(table: Table, options: ReadOptions) -> Table:
    """The table without an id that was recognised by its name (`ranking`), if the cells are orderings."""
    place = table.roles.get("id")
    if place is None or "id" in options.columns or not are_orderings(table.cells(place)):
        return table
    return replace(table, roles={role: column for role, column in table.roles.items() if role != "id"})


def _listed_orderings(batch: Batch, header: Header) -> Listed:
    """The items of all orderings: all at once if they are plain, otherwise one ordering after the other."""
    column, divider = batch.columns[header.roles["ordering"]], header.divider
    if not batch.bad and not column.array.null_count and pa.types.is_string(column.array.type):
        plain = _words(column.array) if divider is None else _between(column.array, divider)
        if plain is not None:
            return plain
    texts = column.array.to_pylist()
    return _listed_one_by_one(batch, lambda row: parse_ordering(words.cell_text(texts[row], column.clean), divider))


def _words(orderings: pa.StringArray) -> Listed | None:
    """The items between blanks; None if one of them has ties, a slate, or white space beyond ASCII."""
    _, offsets, data = orderings.buffers()
    first = orderings.offset
    ends = np.frombuffer(offsets, np.int32)[first : first + len(orderings) + 1]
    text = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data else np.empty(0, np.uint8)
    ends = ends - ends[0]
    within = ~_DIVIDES[text]
    if _MARKS[text].any():
        return None
    if (text == _APOSTROPHE).any() and pc.any(pc.match_substring_regex(orderings, _PROTECTED)).as_py():
        return None
    begins = within.copy()
    begins[1:] &= ~within[:-1]
    rows = ends[:-1][ends[:-1] < ends[1:]]
    begins[rows] = within[rows]  # the last item of a row is not continued by the next row
    starts = np.flatnonzero(begins)
    # The items one after another, without what divides them, are the buffer of an array of strings.
    bounds = np.append(np.flatnonzero(begins[within]), np.count_nonzero(within)).astype(np.int32)
    names = pa.StringArray.from_buffers(len(starts), pa.py_buffer(bounds), pa.py_buffer(text[within]))
    labels = names.dictionary_encode()
    if any(name.split() != [name] for name in labels.dictionary.to_pylist()):
        return None
    return Listed(labels, np.diff(np.searchsorted(starts, ends)))


def _between(orderings: pa.StringArray, divider: str) -> Listed | None:
    """The items between signs, with the blanks in their names; None if one ordering needs `parse_ordering`."""
    if pc.any(pc.match_substring_regex(orderings, _NOT_PLAIN[divider])).as_py():
        return None
    lists = pc.split_pattern(orderings, divider)
    labels = pc.utf8_trim_whitespace(lists.flatten()).dictionary_encode()
    if any(not name or name.strip() != name for name in labels.dictionary.to_pylist()):
        return None
    return Listed(labels, pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64))


def _write_orderings(store: RankingStore, target: str) -> None:
    """Write `count,ordering`, and columns for ids, groups and unranked if the rows have them."""
    write_rows(
        store,
        target,
        names=lambda _: [words.written_name("ordering")],
        values=lambda row: [[format_ordering(row.labels, row.n_ordered, row.tied)]],
        always_weights=True,
    )


ORDERINGS = Format(
    name="orderings",
    takes_persons=True,
    recognise=_recognise_orderings,
    read=by_rows(_listed_orderings),
    about="a whole ranking in one column",
    example="count,ordering\n3,tea > mate = milk",
    wanted=label_columns,
    wanted_raw=lambda header: [header.roles["ordering"]],
    roles={"ordering": words.COLUMN_NAMES["ordering"]},
    write=_write_orderings,
)
