"""A line for each item of each ranking: ranking id, item, rank. Equal ranks are ties, an empty rank is a slate's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.formats import delimited
from plmix_dist.formats.format import Format, ReadOptions, column_roles, parse_weight, written_name
from plmix_dist.formats.labelled import refuse
from plmix_dist.formats.raw_rows import BATCH_ROWS, UNRANKED, Failure, RawRows, integers_if_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.formats.labelled import LabelledRow
    from plmix_dist.formats.sources import Slice
    from plmix_dist.store import RankingStore

REQUIRED = ("id", "item", "rank")


class LongRows:
    """Columns of lines, cut into rankings wherever the id changes; a ranking torn by a batch is held back.

    Parameters
    ----------
    with_labels
        Which of "weight", "group" and "unranked" the lines have.
    """

    def __init__(self, with_labels: frozenset[str]) -> None:
        self.with_labels = with_labels
        self._held: dict[str, Any] | None = None

    def add(self, columns: dict[str, Any], *, last: bool = False) -> RawRows:
        """The rankings that are complete once these lines are there.

        `columns` has arrays "id", "item" (pyarrow), "rank" (float, NaN where there is none), "line", those named
        in `with_labels`, and "bad": what is wrong with a line, as (reason, message), by position.
        """
        merged = columns if self._held is None else _joined(self._held, columns)
        ids = merged["id"]
        changes = np.flatnonzero(ids[1:] != ids[:-1]) + 1 if len(ids) else np.empty(0, np.int64)
        starts = np.concatenate([[0], changes]).astype(np.int64) if len(ids) else changes.astype(np.int64)
        if last or not len(starts):
            self._held = None
            complete, n_lines = starts, len(ids)
        else:
            complete, n_lines = starts[:-1], int(starts[-1])
            self._held = _cut(merged, n_lines, len(ids))
        return self._rows(_cut(merged, 0, n_lines), complete)

    def _rows(self, columns: dict[str, Any], starts: NDArray[np.int64]) -> RawRows:
        n_lines = len(columns["id"])
        lengths = np.diff(np.append(starts, n_lines))
        row = np.repeat(np.arange(len(starts)), lengths)
        rank = columns["rank"]
        # Stable, so that tied items keep their order; lines without a rank (NaN) come last.
        order = np.lexsort((rank, row))
        ranked = rank[order]
        tied = np.zeros(n_lines, np.bool_)
        tied[1:] = (ranked[1:] == ranked[:-1]) & (row[1:] == row[:-1])
        first = {name: columns[name][starts] for name in ("id", "line", *self.with_labels)}
        rows = RawRows(
            labels=columns["item"].take(pa.array(order)),
            n_listed=lengths,
            n_ordered=np.bincount(row, weights=~np.isnan(rank), minlength=len(starts)).astype(np.int64),
            tied=tied if tied.any() else None,
            weights=first.get("weight"),
            ids=_typed(first["id"]),
            groups=_typed(first.get("group")),
            unranked=unranked_codes(first["unranked"]) if "unranked" in first else None,
            lines=first["line"],
        )
        rows.run_ids = first["id"]
        return rows.without(self._bad_rows(columns, row, first))

    def _bad_rows(
        self, columns: dict[str, Any], row: NDArray[np.int64], first: dict[str, Any]
    ) -> dict[int, Failure]:
        bad: dict[int, Failure] = {}
        for position, (reason, what) in columns["bad"].items():
            item, line = str(columns["item"][position].as_py()), int(columns["line"][position])
            message = f"ranking {first['id'][row[position]]}: {what}"
            bad.setdefault(int(row[position]), Failure(line, reason, message, item))
        for name in self.with_labels:
            values = columns[name]
            same = values == first[name][row]
            if name == "weight":
                same |= np.isnan(values) & np.isnan(first[name][row])
            for position in np.flatnonzero(~same).tolist():
                line = int(columns["line"][position])
                message = f"ranking {first['id'][row[position]]}: its lines disagree about the {name}"
                bad.setdefault(int(row[position]), Failure(line, f"mixed-{name}", message))
        return bad


def read(part: Slice, options: ReadOptions) -> Iterator[RawRows]:
    """Rankings whose lines stand together."""
    roles = long_roles(part, options)
    rows = LongRows(frozenset(roles) & {"weight", "group", "unranked"})
    batch = _Lines(roles)
    n_columns = len(part.header.columns)
    for number, line in delimited.records(part, options):
        batch.add(number, line, n_columns)
        if len(batch.numbers) >= BATCH_ROWS:
            yield rows.add(batch.take())
    yield rows.add(batch.take(), last=True)


def long_roles(part: Slice, options: ReadOptions) -> dict[str, int]:
    """Which column holds the ranking id, the item, the rank, and what else rankings have."""
    found = column_roles(part.header.columns, options, part.file.url)
    missing = [role for role in REQUIRED if role not in found]
    if missing:
        raise IngestError(
            f"{part.file.url}: no column holds the {', '.join(missing)}; found: {', '.join(part.header.columns)}. "
            "Say which with --column, such as --column id=NAME"
        )
    return {role: found[role] for role in (*REQUIRED, "weight", "group", "unranked") if role in found}


class _Lines:
    """Lines of text, gathered into columns."""

    def __init__(self, roles: dict[str, int]) -> None:
        self.roles = roles
        self._clear()

    def _clear(self) -> None:
        self.numbers: list[int] = []
        self.values: dict[str, list[Any]] = {role: [] for role in self.roles}
        self.bad: dict[int, tuple[str, str]] = {}

    def add(self, number: int, line: list[str], n_columns: int) -> None:
        if len(line) != n_columns:
            self.bad[len(self.numbers)] = ("syntax", f"expected {n_columns} fields, but got {len(line)}")
            line = (line + [""] * n_columns)[:n_columns]
        for role, place in self.roles.items():
            self.values[role].append(line[place])
        text = line[self.roles["rank"]]
        rank = parse_weight(text) if text not in ("", "NA") else float("nan")
        if np.isnan(rank) and text not in ("", "NA"):
            item = line[self.roles["item"]]
            self.bad[len(self.numbers)] = ("bad-rank", f"the rank {text!r} of item {item!r} is not a number")
        self.values["rank"][-1] = rank
        said = line[self.roles["unranked"]] if "unranked" in self.roles else ""
        if said not in ("", *UNRANKED):
            self.bad[len(self.numbers)] = ("syntax", f"unranked is {said!r}, but should be below or absent")
            self.values["unranked"][-1] = ""
        if "weight" in self.values:
            self.values["weight"][-1] = parse_weight(self.values["weight"][-1])
        self.numbers.append(number)

    def take(self) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "item": pa.array(self.values["item"], pa.string()),
            "rank": np.array(self.values["rank"], np.float64),
            "id": np.array(self.values["id"], object),
            "line": np.array(self.numbers, np.int64),
            "bad": self.bad,
        }
        for role in ("weight", "group", "unranked"):
            if role in self.values:
                columns[role] = np.array(self.values[role], np.float64 if role == "weight" else object)
        self._clear()
        return columns


def unranked_codes(said: NDArray[Any]) -> NDArray[np.int8]:
    """What rows say of unranked items, as RawRows keeps it; an error where it is neither below nor absent."""
    codes = np.full(len(said), -1, np.int8)
    for value in set(said.tolist()) - {None, "", "None"}:
        if value not in UNRANKED:
            raise IngestError(f"unranked is {value!r}, but should be below or absent")
        codes[said == value] = UNRANKED.index(value)
    return codes


def _typed(labels: Any) -> Any:
    """Labels from text as integers where all are; labels that have a type of their own as they are."""
    if labels is None or labels.dtype != object:
        return labels
    return np.array(integers_if_all(labels.tolist())) if len(labels) else labels


def _joined(held: dict[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
    shift = len(held["id"])
    return {
        name: held["bad"] | {position + shift: text for position, text in columns["bad"].items()}
        if name == "bad"
        else _concatenated(held[name], columns[name])
        for name in columns
    }


def _concatenated(first: Any, second: Any) -> Any:
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    return pa.concat_arrays([_plain(first), _plain(second)])


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _cut(columns: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {
        name: {position - start: text for position, text in column.items() if start <= position < stop}
        if name == "bad"
        else column[start:stop]
        for name, column in columns.items()
    }


def write(store: RankingStore, target: str) -> None:
    """Write a line for each item of each ranking; rankings without ids are numbered from 1."""
    twice = store.label_twice("ids", range(store.n_partitions))
    if twice is not None:
        refuse(
            target, f"two rankings have the id {twice!r}, and their lines could not be told apart", "Parquet"
        )
    count = 0

    def values(row: LabelledRow) -> list[list[Any]]:
        nonlocal count
        count += 1
        return [[count if row.id is None else row.id, item, rank] for item, rank in _ranked(row)]

    delimited.write_rows(
        store, target, lambda _: [written_name(role) for role in REQUIRED], values, ids_are_values=True
    )


def _ranked(row: LabelledRow) -> Iterator[tuple[str, int | str]]:
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
    read_header=delimited.read_header,
    slices=delimited.slices_keeping("id"),
    read=read,
    write=write,
)
