"""The format `long`: one line per item of each ranking, with ranking id, item and rank. Equal ranks are ties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.formats import delimited
from plmix_dist.formats.format import Format, ReadOptions, decimal_hint, parse_weight, written_name
from plmix_dist.formats.items import shown
from plmix_dist.formats.labelled import refuse
from plmix_dist.formats.raw_rows import BATCH_ROWS, UNRANKED, Failure, RawRows, integers_if_all
from plmix_dist.formats.sniffing import header_reader
from plmix_dist.formats.text_chunks import chunks
from plmix_dist.formats.text_columns import by_runs, read_columns
from plmix_dist.formats.write_delimited import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.formats.labelled import LabelledRow
    from plmix_dist.formats.sources import Header, Slice
    from plmix_dist.formats.text_chunks import Chunk
    from plmix_dist.formats.text_columns import TextColumn
    from plmix_dist.store import RankingStore

REQUIRED = ("id", "item", "rank")
_LABELS = ("weight", "group", "unranked")
_NO_RANK = ("", "NA")
_MOST_PADDING = 4


@dataclass(frozen=True)
class LongLines:
    """Lines of a long table as columns.

    Parameters
    ----------
    ids : (n_lines,)
        The ranking of each line.
    items : (n_lines,)
    ranks : (n_lines,)
        NaN if an item was on offer but not ordered.
    numbers : (n_lines,)
        The line, or row, in the source.
    labels
        Columns "weight", "group" and "unranked", as far as the table has them.
    bad
        Reason and message for each line that is not accepted, by its position.

    Examples
    --------
    >>> ids, ranks = np.array([7, 7, 8]), np.array([1.0, 2.0, 1.0])
    >>> lines = LongLines(ids, pa.array(["tea", "milk", "tea"]), ranks, np.arange(3), {}, {})
    >>> len(lines), lines.cut(1, 3).items.to_pylist()
    (3, ['milk', 'tea'])
    """

    ids: NDArray[Any]
    items: pa.Array
    ranks: NDArray[np.float64]
    numbers: NDArray[np.int64]
    labels: dict[str, NDArray[Any]]
    bad: dict[int, tuple[str, str]]

    def __len__(self) -> int:
        return len(self.ids)

    def column(self, name: str) -> NDArray[Any]:
        """The column "id", or one of the labels, by name.

        Examples
        --------
        >>> lines = LongLines(np.array([7]), pa.array(["tea"]), np.ones(1), np.arange(1), {}, {})
        >>> lines.column("id").tolist()
        [7]
        """
        return self.ids if name == "id" else self.labels[name]

    def followed_by(self, others: LongLines) -> LongLines:
        """These lines and then others.

        Examples
        --------
        >>> lines = LongLines(np.array([7]), pa.array(["tea"]), np.ones(1), np.arange(1), {}, {})
        >>> lines.followed_by(lines).items.to_pylist()
        ['tea', 'tea']
        """
        return LongLines(
            ids=np.concatenate([self.ids, others.ids]),
            items=_joined(self.items, others.items),
            ranks=np.concatenate([self.ranks, others.ranks]),
            numbers=np.concatenate([self.numbers, others.numbers]),
            labels={
                name: np.concatenate([self.labels[name], column]) for name, column in others.labels.items()
            },
            bad=self.bad | {position + len(self): why for position, why in others.bad.items()},
        )

    def cut(self, start: int, stop: int) -> LongLines:
        """The lines from `start` to `stop`, as views.

        Examples
        --------
        >>> lines = LongLines(np.array([7, 8]), pa.array(["tea", "milk"]), np.ones(2), np.arange(2), {}, {})
        >>> lines.cut(1, 2).ids.tolist()
        [8]
        """
        return LongLines(
            ids=self.ids[start:stop],
            items=self.items[start:stop],
            ranks=self.ranks[start:stop],
            numbers=self.numbers[start:stop],
            labels={name: column[start:stop] for name, column in self.labels.items()},
            bad={position - start: why for position, why in self.bad.items() if start <= position < stop},
        )

    def filtered(self, keep: NDArray[np.bool_]) -> LongLines:
        """The lines where `keep` is True.

        Examples
        --------
        >>> lines = LongLines(np.array([7, 8]), pa.array(["tea", "milk"]), np.ones(2), np.arange(2), {}, {})
        >>> lines.filtered(np.array([False, True])).ids.tolist()
        [8]
        """
        if keep.all():
            return self
        position = np.cumsum(keep) - 1
        return LongLines(
            ids=self.ids[keep],
            items=self.items.filter(pa.array(keep)),
            ranks=self.ranks[keep],
            numbers=self.numbers[keep],
            labels={name: column[keep] for name, column in self.labels.items()},
            bad={int(position[line]): why for line, why in self.bad.items() if keep[line]},
        )


class LongRows:
    """Turns lines into rankings. A new ranking begins wherever the id changes.

    A batch of lines may end within a ranking. The lines of its last ranking are kept until the next batch.

    Examples
    --------
    >>> rows = LongRows()
    >>> ids, ranks = np.array([7, 7, 8]), np.array([2.0, 1.0, 1.0])
    >>> lines = LongLines(ids, pa.array(["tea", "milk", "tea"]), ranks, np.arange(3), {}, {})
    >>> rows.add(lines).labels.to_pylist()
    ['milk', 'tea']
    >>> rows.add(lines.cut(0, 0), last=True).ids.tolist()
    [8]
    """

    def __init__(self) -> None:
        self._held: LongLines | None = None

    def add(self, lines: LongLines, *, last: bool = False) -> RawRows:
        """The rankings that are complete with these lines. `last` says that no more lines follow.

        Examples
        --------
        >>> lines = LongLines(np.array([7, 7]), pa.array(["tea", "milk"]), np.ones(2), np.arange(2), {}, {})
        >>> LongRows().add(lines, last=True).text(0)
        '{tea milk}'
        """
        merged = lines if self._held is None else self._held.followed_by(lines)
        ids = merged.ids
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.empty(0, np.int64)
        if last or not len(starts):
            self._held = None
            return _rankings(merged, starts)
        complete = int(starts[-1])
        self._held = merged.cut(complete, len(ids))
        return _rankings(merged.cut(0, complete), starts[:-1])


def _rankings(lines: LongLines, starts: NDArray[np.int64]) -> RawRows:
    """One row per ranking; `starts` has the first line of each."""
    n_lines = len(lines)
    lengths = np.diff(np.append(starts, n_lines))
    row = np.repeat(np.arange(len(starts)), lengths)
    order = _by_rank(lines.ranks, row)
    ranked = lines.ranks if order is None else lines.ranks[order]
    tied = np.zeros(n_lines, np.bool_)
    tied[1:] = (ranked[1:] == ranked[:-1]) & (row[1:] == row[:-1])
    first = {name: lines.column(name)[starts] for name in ("id", *lines.labels)}
    rows = RawRows(
        labels=lines.items if order is None else lines.items.take(pa.array(order)),
        n_listed=lengths,
        n_ordered=np.bincount(row, weights=~np.isnan(lines.ranks), minlength=len(starts)).astype(np.int64),
        tied=tied if tied.any() else None,
        weights=first.get("weight"),
        ids=_typed(first["id"]),
        groups=_typed(first["group"]) if "group" in first else None,
        unranked=unranked_codes(first["unranked"]) if "unranked" in first else None,
        lines=lines.numbers[starts],
    )
    rows.run_ids = first["id"]
    return rows.without(_bad_rankings(lines, row, first))


def _by_rank(ranks: NDArray[np.float64], row: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The order of the lines of each ranking by rank; None if they are in this order already.

    The sort is stable, so tied items keep their order. Lines without a rank (NaN) come last.
    """
    if ((ranks[1:] >= ranks[:-1]) | (row[1:] != row[:-1])).all():
        return None
    lengths = np.bincount(row)
    longest = int(lengths.max())
    if longest * len(lengths) > _MOST_PADDING * len(ranks):
        by_sorting: NDArray[np.int64] = np.lexsort((ranks, row))
        return by_sorting
    # One row per ranking, padded with NaN: many short sorts are faster than a long one.
    listed = np.arange(longest) < lengths[:, np.newaxis]
    padded = np.full(listed.shape, np.nan)
    padded[listed] = ranks
    starts = np.cumsum(lengths) - lengths
    order: NDArray[np.int64] = (starts[:, np.newaxis] + np.argsort(padded, axis=1, kind="stable"))[listed]
    return order


def _bad_rankings(
    lines: LongLines, row: NDArray[np.int64], first: dict[str, NDArray[Any]]
) -> dict[int, Failure]:
    """Rankings with a bad line, or whose lines have different labels, by their number."""
    bad: dict[int, Failure] = {}
    for position, (reason, what) in lines.bad.items():
        item, line = str(lines.items[position].as_py()), int(lines.numbers[position])
        message = f"ranking {first['id'][row[position]]}: {what}"
        bad.setdefault(int(row[position]), Failure(line, reason, message, item))
    for name, values in lines.labels.items():
        same = values == first[name][row]
        if name == "weight":
            same |= np.isnan(values) & np.isnan(first[name][row])
        for position in np.flatnonzero(~same).tolist():
            line = int(lines.numbers[position])
            message = f"ranking {first['id'][row[position]]}: its lines disagree about the {name}"
            bad.setdefault(int(row[position]), Failure(line, f"mixed-{name}", message))
    return bad


def _read(part: Slice, options: ReadOptions) -> Iterator[RawRows]:
    """Rankings whose lines are consecutive. Chunks are read by Arrow or, if it would differ, line by line."""
    del options  # the header says which columns these are
    roles = {role: part.header.roles[role] for role in (*REQUIRED, *_LABELS) if role in part.header.roles}
    rows = LongRows()
    for chunk in chunks(part):
        lines = _lines_of_columns(chunk, part.header, roles)
        for some in _lines_one_by_one(chunk, part.header, roles) if lines is None else [lines]:
            yield rows.add(some)
    yield rows.add(_LineBuilder(roles).take(), last=True)


def _lines_of_columns(chunk: Chunk, header: Header, roles: dict[str, int]) -> LongLines | None:
    """The lines of a chunk by columns; None if a line is not accepted, or needs another reader."""
    ids, coded = roles["id"], {place for role, place in roles.items() if role != "id"}
    read = read_columns(chunk, header.delimiter, len(header.columns), coded - {ids}, {ids})
    if read is None or delimited.may_repeat_header(read, header):
        return None
    of_id = by_runs(read.plain[ids])
    columns = {role: of_id if place == ids else read.coded[place] for role, place in roles.items()}
    ranks = columns["rank"]
    if any(text not in _NO_RANK and np.isnan(parse_weight(text)) for text in ranks.values):
        return None
    if "unranked" in columns and not set(columns["unranked"].values) <= {"", *UNRANKED}:
        return None
    labels: dict[str, NDArray[Any]] = {}
    if "weight" in columns:
        labels["weight"] = columns["weight"].mapped(parse_weight, np.float64)
    labels |= {role: columns[role].mapped(str) for role in ("group", "unranked") if role in columns}
    return LongLines(
        ids=columns["id"].mapped(str),
        items=_dictionary(columns["item"]),
        ranks=ranks.mapped(lambda text: np.nan if text in _NO_RANK else parse_weight(text), np.float64),
        numbers=read.lines,
        labels=labels,
        bad={},
    )


def _dictionary(column: TextColumn) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(column.codes), pa.array(column.values, pa.string()))


def _lines_one_by_one(chunk: Chunk, header: Header, roles: dict[str, int]) -> Iterator[LongLines]:
    batch = _LineBuilder(roles)
    for number, line in delimited.records(chunk, header.delimiter):
        batch.add(number, line, header)
        if len(batch.numbers) >= BATCH_ROWS:
            yield batch.take()
    yield batch.take()


class _LineBuilder:
    """Collects lines of text into columns."""

    def __init__(self, roles: dict[str, int]) -> None:
        self.roles = roles
        self._clear()

    def _clear(self) -> None:
        self.numbers: list[int] = []
        self.values: dict[str, list[Any]] = {role: [] for role in self.roles}
        self.bad: dict[int, tuple[str, str]] = {}

    def add(self, number: int, line: list[str], header: Header) -> None:
        n_columns = len(header.columns)
        repeated = delimited.repeats_header(line, header)
        if repeated:
            self.bad[len(self.numbers)] = ("syntax", "the line repeats the header")
        if len(line) != n_columns:
            self.bad[len(self.numbers)] = ("syntax", f"expected {n_columns} fields, but got {len(line)}")
            line = (line + [""] * n_columns)[:n_columns]
        for role, place in self.roles.items():
            self.values[role].append(line[place])
        text = line[self.roles["rank"]]
        rank = parse_weight(text) if text not in _NO_RANK else float("nan")
        if np.isnan(rank) and text not in _NO_RANK and not repeated:
            item = line[self.roles["item"]]
            what = f"the rank {text!r} of item {shown(item)} is not a number{decimal_hint(text)}"
            self.bad[len(self.numbers)] = ("bad-rank", what)
        self.values["rank"][-1] = rank
        said = line[self.roles["unranked"]] if "unranked" in self.roles else ""
        if said not in ("", *UNRANKED):
            self.bad[len(self.numbers)] = ("syntax", f"unranked is {said!r}, but should be below or absent")
            self.values["unranked"][-1] = ""
        if "weight" in self.values:
            self.values["weight"][-1] = parse_weight(self.values["weight"][-1])
        self.numbers.append(number)

    def take(self) -> LongLines:
        labels = {
            role: np.array(self.values[role], np.float64 if role == "weight" else object)
            for role in _LABELS
            if role in self.values
        }
        lines = LongLines(
            ids=np.array(self.values["id"], object),
            items=pa.array(self.values["item"], pa.string()),
            ranks=np.array(self.values["rank"], np.float64),
            numbers=np.array(self.numbers, np.int64),
            labels=labels,
            bad=self.bad,
        )
        self._clear()
        return lines


def unranked_codes(said: NDArray[Any]) -> NDArray[np.int8]:
    """(n_rows,): indices into UNRANKED, -1 if a row says nothing; an error for any other word.

    Examples
    --------
    >>> unranked_codes(np.array(["below", "", "absent"], object)).tolist()
    [1, -1, 0]
    """
    codes = np.full(len(said), -1, np.int8)
    for value in set(said.tolist()) - {None, "", "None"}:
        if value not in UNRANKED:
            raise IngestError(f"unranked is {value!r}, but should be below or absent")
        codes[said == value] = UNRANKED.index(value)
    return codes


def _typed(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels read from text as integers if all are integers; other labels unchanged."""
    if labels.dtype != object or not len(labels):
        return labels
    return np.array(integers_if_all(labels.tolist()))


def _joined(first: pa.Array, second: pa.Array) -> pa.Array:
    """Two columns as one, by codes if both are."""
    if pa.types.is_dictionary(first.type) and first.type == second.type:
        return pa.chunked_array([first, second]).unify_dictionaries().combine_chunks()
    return pa.concat_arrays([_plain(first), _plain(second)])


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _write(store: RankingStore, target: str) -> None:
    """Write one line per item of each ranking. Rankings without ids are numbered from 1."""
    twice = store.label_twice("ids", range(store.n_partitions))
    if twice is not None:
        refuse(
            target, f"two rankings have the id {twice!r}, so their lines could not be told apart", "Parquet"
        )
    count = 0

    def values(row: LabelledRow) -> list[list[Any]]:
        nonlocal count
        count += 1
        return [[count if row.id is None else row.id, item, rank] for item, rank in _ranked(row)]

    write_rows(
        store, target, lambda _: [written_name(role) for role in REQUIRED], values, ids_are_values=True
    )


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
    suffixes=delimited.SUFFIXES,
    read_header=header_reader("long"),
    slices=delimited.slices_keeping("id"),
    read=_read,
    write=_write,
)
