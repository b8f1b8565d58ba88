"""The format `long`: one row per item of each ranking, with ranking id, item and rank. Equal ranks are ties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.errors import IngestError
from plmix_dist.store import RankingStore
from plmix_dist.tables import format as formats
from plmix_dist.tables.by_row import Listed, blank_rows, missing_labels, person_labels, unranked_codes
from plmix_dist.tables.encode import shown
from plmix_dist.tables.format import FEATURE, PERSON, Batch, Column, Format, ReadOptions, Table, columns_of
from plmix_dist.tables.places import refuse_ratings
from plmix_dist.tables.rows import Failure, RawRows, whole_numbers_if_all
from plmix_dist.tables.sources import Header
from plmix_dist.tables.words import COLUMN_NAMES, decimal_hint, parse_weight, written_name
from plmix_dist.tables.write import LabelledRow, refuse, write_rows

REQUIRED = ("id", "item", "rank")
_LABELS = ("weight", "group", "unranked")
# Names of the column of items that mean something else where no column holds ranks.
_OTHER_ITEM_NAMES = ("choice", "vote", "option", "name", "candidate_name", "product", "team", "player", "competitor")
# What stands for an item that was on offer and not ordered.
_NO_RANK = frozenset({"", "NA"})
# Rankings are sorted as rows of one padded array, unless that is this many times larger than the ranks.
_MOST_PADDING = 4


def _recognise(table: Table, options: ReadOptions, named: bool) -> Table | None:
    """A table with columns for ranking, item and rank. Where only persons are named, each gives one ranking."""
    del options
    roles = dict(table.roles)
    if "item" not in roles and "rank" in roles and {"id", "group"} & set(roles):
        other = [place for place, name in enumerate(table.columns) if name.strip().lower() in _OTHER_ITEM_NAMES]
        roles |= {"item": other[0]} if len(other) == 1 else {}
    if not named and "item" not in roles:
        return None
    if "id" not in roles and "group" in roles:
        roles["id"] = roles.pop("group")
    missing = [role for role in REQUIRED if role not in roles]
    if missing == ["rank"]:
        refuse_ratings(replace(table, roles=roles))
    if missing:
        raise formats.missing_columns(table, missing)
    if not named and {cell for cell in table.cells(roles["rank"]) if cell not in _NO_RANK} == {"0", "1"}:
        raise IngestError(
            f"the column {table.columns[roles['rank']]!r} holds 0 and 1 alone, as where an item was "
            "chosen or not: write one row per choice, such as `tea | mate milk` (chosen, then all others on offer), "
            "and say --format orderings; if these are ranks, 0 the best, say --format long"
        )
    if not named:
        _refuse_several_traits(table, roles)
    return replace(table, roles=roles)


def _refuse_several_traits(table: Table, roles: Mapping[str, int]) -> None:
    """An error if rankings list items several times, and another column divides them into rankings without this."""
    pairs = list(zip(table.cells(roles["id"]), table.cells(roles["item"]), strict=True))
    again = len(pairs) - len(set(pairs))
    for place, name in enumerate(table.columns):
        cells = table.cells(place)
        if 2 * again <= len(pairs) or place in {*roles.values(), *table.ignored}:
            continue
        if len(set(zip(pairs, cells, strict=True))) == len(pairs) > 2 * len(set(cells)):
            found = list(dict.fromkeys(cells))
            raise IngestError(
                f"rankings list the same item several times, once for each {name!r} "
                f"({', '.join(found[:4])}): read one of these with --where {name}={found[0]}"
            )


@dataclass(frozen=True)
class LongLines:
    """Lines of a long table as columns, all (n_lines,).

    `ranks` are NaN if an item was on offer but not ordered; `labels` are the columns "weight", "group" and "unranked",
    as far as the table has them; `bad` has reason and message for each line that is not accepted, by its position.
    """

    ids: NDArray[Any]
    items: pa.Array
    ranks: NDArray[np.float64]
    numbers: NDArray[np.int64]
    labels: dict[str, NDArray[Any]]
    bad: dict[int, tuple[str, str]]

    def __len__(self) -> int:
        return len(self.ids)

    def followed_by(self, others: LongLines) -> LongLines:
        """These lines and then others."""
        return LongLines(
            ids=np.concatenate([self.ids, others.ids]),
            items=_joined(self.items, others.items),
            ranks=np.concatenate([self.ranks, others.ranks]),
            numbers=np.concatenate([self.numbers, others.numbers]),
            labels={name: np.concatenate([self.labels[name], column]) for name, column in others.labels.items()},
            bad=self.bad | {position + len(self): why for position, why in others.bad.items()},
        )

    def cut(self, start: int, stop: int) -> LongLines:
        """The lines from `start` to `stop`, as views."""
        return LongLines(
            ids=self.ids[start:stop],
            items=self.items[start:stop],
            ranks=self.ranks[start:stop],
            numbers=self.numbers[start:stop],
            labels={name: column[start:stop] for name, column in self.labels.items()},
            bad={position - start: why for position, why in self.bad.items() if start <= position < stop},
        )


# The rank of each line, NaN where an item was on offer but not ordered; reason and message for each bad line.
Ranked = tuple[NDArray[np.float64], dict[int, tuple[str, str]]]


def read_long(
    batches: Iterator[Batch],
    header: Header,
    listed: Callable[[LongLines, NDArray[np.int64]], Listed] | None = None,
    ranks: Callable[[Mapping[str, Column]], Ranked] | None = None,
) -> Iterator[RawRows]:
    """Rankings whose lines are consecutive. The lines of the last ranking of a batch wait for the next batch.

    `listed` makes rows of lines, given the row of each line; by default in the order of their ranks. `ranks` finds the
    ranks of lines in columns by role; by default the column `rank` has them as numbers.
    """
    held: LongLines | None = None
    for batch in batches:
        lines = _lines_of(batch, header, ranks or _plain_ranks)
        lines = lines if held is None else held.followed_by(lines)
        starts = _starts(lines.ids)
        if len(starts):
            complete = int(starts[-1])
            held = lines.cut(complete, len(lines))
            yield _rankings(lines.cut(0, complete), starts[:-1], listed or _listed_by_rank)
    if held is not None:
        yield _rankings(held, _starts(held.ids), listed or _listed_by_rank)


def _starts(ids: NDArray[Any]) -> NDArray[np.int64]:
    """Where a new ranking begins: wherever the id changes."""
    return np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.empty(0, np.int64)


def _lines_of(batch: Batch, header: Header, find_ranks: Callable[[Mapping[str, Column]], Ranked]) -> LongLines:
    columns = {role: batch.columns[place] for role, place in header.roles.items() if place in batch.columns}
    ranks, bad_ranks = find_ranks(columns)
    labels: dict[str, NDArray[Any]] = {}
    if "weight" in columns:
        labels["weight"] = columns["weight"].numbers()
    if "group" in columns:
        labels["group"] = columns["group"].labels()
    codes, odd = unranked_codes(columns.get("unranked"))
    if codes is not None:
        labels["unranked"] = codes
    bad: dict[int, tuple[str, str]] = {}
    persons, unknown = person_labels({role: columns[role] for role in columns_of(header.roles, PERSON)})
    labels |= {} if persons is None else {"persons": persons}
    for role in columns_of(header.roles, FEATURE):
        labels[role] = columns[role].numbers(message="features must be numbers, but a column holds {}")
        bad |= {
            row: ("bad-feature", f"{role} is {columns[role][row]!r}, and must be a finite number")
            for row in np.flatnonzero(~np.isfinite(labels[role])).tolist()
        }
    bad |= {row: ("missing-label", why) for row, why in (missing_labels(columns) | unknown).items()}
    bad |= {row: ("syntax", why) for row, why in batch.bad.items()}
    bad = bad_ranks | bad | {row: ("syntax", why) for row, why in odd.items()}
    return LongLines(
        ids=_ids(columns),
        items=columns["item"].items(),
        ranks=ranks,
        numbers=batch.lines,
        labels=labels,
        bad=dict(sorted(bad.items())),
    )


def _ids(columns: Mapping[str, Column]) -> NDArray[Any]:
    """(n_lines,): the id of the ranking of each line; where persons number their blocks, person and block."""
    if "block" not in columns:
        return columns["id"].by_runs().labels()
    pairs = zip(columns["group"].labels().tolist(), columns["block"].labels().tolist(), strict=True)
    return np.array([*(f"{person}/{block}" for person, block in pairs), None], object)[:-1]


def _plain_ranks(columns: Mapping[str, Column]) -> Ranked:
    """The ranks of lines as numbers."""
    ranks, items = columns["rank"], columns["item"]
    odd: dict[int, str] = {}
    if ranks.is_text:
        bad = ranks.mapped(lambda text: text not in _NO_RANK and np.isnan(parse_weight(text)), np.bool_)
        odd = {row: ranks[row] for row in np.flatnonzero(bad).tolist()}
    return ranks.numbers(_NO_RANK), {
        row: ("bad-rank", f"the rank {cell!r} of item {shown(items[row])} is not a number{decimal_hint(cell)}")
        for row, cell in odd.items()
    }


def _rankings(
    lines: LongLines, starts: NDArray[np.int64], listed: Callable[[LongLines, NDArray[np.int64]], Listed]
) -> RawRows:
    """One row per ranking; `starts` has the first line of each."""
    row = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(lines))))
    found = listed(lines, row)
    first = {"id": lines.ids[starts]} | {name: column[starts] for name, column in lines.labels.items()}
    rows = RawRows(
        *found[:4],
        weights=first.get("weight"),
        ids=whole_numbers_if_all(first["id"]),
        groups=whole_numbers_if_all(first.get("group")),
        persons=first.get("persons"),
        unranked=first.get("unranked"),
        lines=lines.numbers[starts],
        run_ids=first["id"],
        features=_features(lines, found.order),
    )
    bad = _bad_rankings(lines, row, first)
    return rows.without(bad | blank_rows(found, rows.lines, bad))


def _features(lines: LongLines, order: NDArray[np.int64] | None) -> NDArray[np.float32] | None:
    """(total listed, n_features): the features of all items, in the order in which rankings list them."""
    if not (columns := [column for role, column in lines.labels.items() if role.startswith(FEATURE)]):
        return None
    found = np.column_stack(columns).astype(np.float32)
    return found if order is None else found[order]


def _listed_by_rank(lines: LongLines, row: NDArray[np.int64]) -> Listed:
    """The items of each ranking in the order of their ranks; equal ranks tie."""
    order = _by_rank(lines.ranks, row)
    ranked = lines.ranks if order is None else lines.ranks[order]
    tied = np.zeros(len(lines), np.bool_)
    tied[1:] = (ranked[1:] == ranked[:-1]) & (row[1:] == row[:-1])
    return Listed(
        lines.items if order is None else lines.items.take(pa.array(order)),
        np.bincount(row).astype(np.int64),
        np.bincount(row, weights=~np.isnan(lines.ranks)).astype(np.int64),
        tied if tied.any() else None,
        order=order,
    )


def _by_rank(ranks: NDArray[np.float64], row: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The order of the lines of each ranking by rank; None if they are in this order already.

    The sort is stable, so tied items keep their order. Lines without a rank (NaN) come last.
    """
    if ((ranks[1:] >= ranks[:-1]) | (row[1:] != row[:-1])).all():
        return None
    lengths = np.bincount(row)
    longest = int(lengths.max())
    if longest * len(lengths) > _MOST_PADDING * len(ranks):
        return np.lexsort((ranks, row))
    # One row per ranking, padded with NaN: many short sorts are faster than a long one.
    listed = np.arange(longest) < lengths[:, np.newaxis]
    padded = np.full(listed.shape, np.nan)
    padded[listed] = ranks
    starts = np.cumsum(lengths) - lengths
    return (starts[:, np.newaxis] + np.argsort(padded, axis=1, kind="stable"))[listed]


def _bad_rankings(lines: LongLines, row: NDArray[np.int64], first: dict[str, NDArray[Any]]) -> dict[int, Failure]:
    """Rankings with a bad line, or whose lines have different labels, by their number."""
    bad: dict[int, Failure] = {}
    for position, (reason, what) in lines.bad.items():
        item, line = str(lines.items[position].as_py()), int(lines.numbers[position])
        message = f"ranking {first['id'][row[position]]}: {what}"
        bad.setdefault(int(row[position]), Failure(line, reason, message, item))
    for name, values in lines.labels.items():
        if name.startswith(FEATURE):
            continue
        same = values == first[name][row]
        if name == "weight":
            same |= np.isnan(values) & np.isnan(first[name][row])
        for position in np.flatnonzero(~same).tolist():
            line = int(lines.numbers[position])
            message = f"ranking {first['id'][row[position]]}: its lines disagree about the {name}"
            bad.setdefault(int(row[position]), Failure(line, f"mixed-{name}", message))
    return bad


def _joined(first: pa.Array, second: pa.Array) -> pa.Array:
    """Two columns as one, by codes if both are."""
    if pa.types.is_dictionary(first.type) and first.type == second.type:
        return pa.chunked_array([first, second]).unify_dictionaries().combine_chunks()
    return pa.concat_arrays([_plain(first), _plain(second)])


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _wanted(header: Header) -> list[int]:
    """The columns that are read, that of the ids first: equal ids stand together, so they are coded by runs."""
    named = [header.roles[role] for role in (*REQUIRED, *_LABELS) if role in header.roles]
    return [*named, *columns_of(header.roles, FEATURE).values()]


def _write(store: RankingStore, target: str) -> None:
    """Write one line per item of each ranking. Rankings without ids are numbered from 1."""
    if (twice := store.label_twice("ids", range(store.n_partitions))) is not None:
        refuse(target, f"two rankings have the id {twice!r}, so their lines could not be told apart", "Parquet")
    count = 0

    def values(row: LabelledRow) -> list[list[Any]]:
        nonlocal count
        count += 1
        cells = [[count if row.id is None else row.id, item, rank] for item, rank in _ranked(row)]
        return [[*own, *more] for own, more in zip(cells, row.features, strict=True)] if row.features else cells

    names = [*map(written_name, REQUIRED), *store.feature_names]
    write_rows(store, target, lambda _: names, values, ids_are_values=True)


def _ranked(row: LabelledRow) -> Iterator[tuple[str, int | str]]:
    """Items with their ranks; an empty rank for items on offer but not ordered."""
    rank = 0
    for place, item in enumerate(row.labels):
        if place >= row.n_ordered:
            yield item, ""
            continue
        rank += not (row.tied is not None and row.tied[place])
        yield item, rank


LONG = Format(
    name="long",
    recognise=_recognise,
    read=read_long,
    about="one row per item of each ranking",
    example="ranking,item,rank\n1,tea,1",
    wanted=lambda header: _wanted(header)[1:],
    wanted_raw=lambda header: _wanted(header)[:1],
    roles={role: COLUMN_NAMES[role] for role in ("item", "rank")},
    consecutive=lambda header: True,  # noqa: ARG005
    takes_features=True,
    takes_persons=True,
    write=_write,
)
