"""RawRows: rankings as they stand in a source, items still by label; and their way into blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.rankings.block import RankingBlock, item_dtype, label_column, narrowest
from plmix_dist.rankings.validate import row_problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from plmix_dist.rankings import Unranked
    from plmix_dist.store import RejectedRows

OnError = Literal["raise", "drop", "quarantine"]
UNRANKED: tuple[Unranked, ...] = ("absent", "below")
BATCH_ROWS = 1 << 16
LONGEST_LABEL = 500


class Failure(NamedTuple):
    """A row that could not be read: why, the item it concerns, and the text as it stood."""

    line: int
    reason: str
    message: str
    item: str = ""
    text: str = ""


@dataclass
class RawRows:
    """A batch of rows from one source.

    `labels` runs over all listed items of all rows; the other columns are as in RankingBlock. `unranked` has an
    index into UNRANKED for each row where the source says it row by row, and -1 where it does not. `run_ids` has the
    ids of all rankings, bad ones too, where the lines of one ranking must be found together.
    """

    labels: pa.Array
    n_listed: NDArray[np.int64]
    lines: NDArray[np.int64]
    n_ordered: NDArray[np.int64] | None = None
    tied: NDArray[np.bool_] | None = None
    weights: NDArray[np.float64] | None = None
    ids: Any = None
    groups: Any = None
    unranked: NDArray[np.int8] | None = None
    failures: list[Failure] = field(default_factory=list)
    run_ids: NDArray[Any] | None = None

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """(n_rows + 1,): row r lists `labels[bounds[r]:bounds[r + 1]]`."""
        return np.concatenate([[0], np.cumsum(self.n_listed)])

    @property
    def n_rows(self) -> int:
        """The number of rows that could be read."""
        return len(self.n_listed)

    @property
    def total_weight(self) -> float:
        """The sum of the weights."""
        return float(self.n_rows if self.weights is None else self.weights.sum())

    def text(self, row: int) -> str:
        """A row in the notation of the `orderings` format, for lists of rejected rows."""
        from plmix_dist.formats.notation import format_ordering

        start, end = int(self.bounds[row]), int(self.bounds[row + 1])
        labels = [str(label) for label in self.labels[start:end].to_pylist()]
        tied = None if self.tied is None else self.tied[start:end].tolist()
        n_ordered = len(labels) if self.n_ordered is None else int(self.n_ordered[row])
        return format_ordering(labels, n_ordered, tied)

    def without(self, bad: Mapping[int, Failure]) -> RawRows:
        """The rows but for some bad ones, which become failures with their text."""
        if not bad:
            return self
        keep = np.ones(self.n_rows, np.bool_)
        keep[list(bad)] = False
        entries = np.repeat(keep, self.n_listed)
        return RawRows(
            labels=self.labels.filter(pa.array(entries)),
            n_listed=self.n_listed[keep],
            n_ordered=_kept(self.n_ordered, keep),
            tied=_kept(self.tied, entries),
            weights=_kept(self.weights, keep),
            ids=_kept(self.ids, keep),
            groups=_kept(self.groups, keep),
            unranked=_kept(self.unranked, keep),
            lines=self.lines[keep],
            failures=[
                *self.failures,
                *(failure._replace(text=self.text(row)) for row, failure in bad.items()),
            ],
            run_ids=self.run_ids,
        )


def _kept(column: Any, keep: NDArray[np.bool_]) -> Any:
    return None if column is None else np.asarray(column)[keep]


class RowBuilder:
    """Collects rows one by one, for formats that are read line by line."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.labels: list[str] = []
        self.n_listed: list[int] = []
        self.n_ordered: list[int] = []
        self.tied: list[bool] = []
        self.weights: list[float] = []
        self.ids: list[Any] = []
        self.groups: list[Any] = []
        self.lines: list[int] = []
        self.unranked: list[int] = []
        self.failures: list[Failure] = []
        self.any_tied = False

    def __len__(self) -> int:
        return len(self.lines) + len(self.failures)

    def add(
        self,
        line: int,
        labels: Sequence[str],
        *,
        n_ordered: int | None = None,
        tied: Sequence[bool] | None = None,
        weight: float = 1.0,
        id: Any = None,  # noqa: A002 - the name users know
        group: Any = None,
        unranked: Unranked | None = None,
    ) -> None:
        """Add a row."""
        self.labels.extend(labels)
        self.n_listed.append(len(labels))
        self.n_ordered.append(len(labels) if n_ordered is None else n_ordered)
        self.tied.extend([False] * len(labels) if tied is None else tied)
        self.any_tied = self.any_tied or tied is not None
        self.weights.append(weight)
        self.ids.append(id)
        self.groups.append(group)
        self.lines.append(line)
        self.unranked.append(-1 if unranked is None else UNRANKED.index(unranked))

    def fail(self, failure: Failure) -> None:
        """Add a row that could not be read."""
        self.failures.append(failure)

    def take(self) -> RawRows:
        """The rows so far; the builder begins anew."""
        rows = RawRows(
            labels=pa.array(self.labels, pa.string()),
            n_listed=np.array(self.n_listed, np.int64),
            n_ordered=np.array(self.n_ordered, np.int64),
            tied=np.array(self.tied, np.bool_) if self.any_tied else None,
            weights=np.array(self.weights, np.float64),
            ids=None if not self.ids or self.ids[0] is None else integers_if_all(self.ids),
            groups=None if not self.groups or self.groups[0] is None else integers_if_all(self.groups),
            lines=np.array(self.lines, np.int64),
            unranked=np.array(self.unranked, np.int8),
            failures=self.failures,
        )
        self._clear()
        return rows


def integers_if_all(labels: Sequence[Any]) -> list[Any]:
    """Labels as integers where every one is written as an integer is, as text otherwise."""
    try:
        numbers = [int(label) for label in labels]
    except (TypeError, ValueError):
        return [str(label) for label in labels]
    # int() also takes "007" and "+7", which would not be written back as they were.
    if all(
        str(number) == str(label) and -(2**63) <= number < 2**63
        for number, label in zip(numbers, labels, strict=True)
    ):
        return numbers
    return [str(label) for label in labels]


@dataclass(frozen=True)
class Encoder:
    """Turns labels into item numbers and rows into a checked block; bad rows go where `on_error` says."""

    url: str
    item_names: tuple[str, ...]
    lookup: Mapping[str, int]
    unranked: Unranked | None
    complete: bool
    on_error: OnError
    unit: str = "line"
    text_ids: bool = False
    text_groups: bool = False

    def encode(self, rows: RawRows, rejected: RejectedRows) -> RankingBlock:
        """The good rows of a batch as a block."""
        failures = list(rows.failures)
        codes = self._codes(rows.labels)
        bounds = rows.bounds
        owner = np.repeat(np.arange(rows.n_rows), rows.n_listed)
        good = np.ones(rows.n_rows, np.bool_)
        for row in np.unique(owner[codes < 0]).tolist():
            entry = int(bounds[row] + np.flatnonzero(codes[bounds[row] : bounds[row + 1]] < 0)[0])
            failures.append(self._unknown_item(rows, row, rows.labels[entry].as_py()))
            good[row] = False
        block = self._block(rows, np.maximum(codes, 0))
        for problem in row_problems(block, self.item_names):
            if good[problem.row]:
                name = self.item_names[problem.item] if problem.item >= 0 else ""
                failures.append(self._failure(rows, problem.row, problem.kind, problem.message, name))
                good[problem.row] = False
        for row in np.flatnonzero(good & self._incomplete(rows)).tolist():
            n_listed, n_items = rows.n_listed[row], len(self.item_names)
            message = f"lists {n_listed} of {n_items} items, but the file promises complete orders"
            failures.append(self._failure(rows, row, "incomplete", message))
            good[row] = False
        self._dispose(failures, rejected)
        return block if good.all() else block.take(good)

    def _codes(self, labels: pa.Array) -> NDArray[np.int64]:
        """(total listed,): the item number of each label, -1 where there is no such item."""
        if not len(labels):
            return np.empty(0, np.int64)
        encoded = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
        table = np.array(
            [self.lookup.get(str(label), -1) for label in encoded.dictionary.to_pylist()], np.int64
        )
        indices = np.asarray(encoded.indices.fill_null(-1))
        return np.where(indices < 0, -1, table[indices]) if len(table) else np.full(len(labels), -1)

    def _block(self, rows: RawRows, codes: NDArray[np.int64]) -> RankingBlock:
        n_items = len(self.item_names)
        n_ordered = rows.n_listed if rows.n_ordered is None else rows.n_ordered
        return RankingBlock(
            items=codes.astype(item_dtype(n_items)),
            n_listed=narrowest(rows.n_listed),
            n_ordered=narrowest(n_ordered),
            below=self._below(rows, n_ordered),
            n_items=n_items,
            tied=rows.tied,
            weights=rows.weights,
            ids=_labels(rows.ids, self.text_ids),
            groups=_labels(rows.groups, self.text_groups),
        )

    def _below(self, rows: RawRows, n_ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
        """What items that are not listed mean: what the row says, or the user; a slate's were not on offer."""
        short = rows.n_listed < len(self.item_names)
        slate = n_ordered < rows.n_listed
        by_default = -1 if self.unranked is None else UNRANKED.index(self.unranked)
        said = np.where(slate, UNRANKED.index("absent"), by_default)
        if rows.unranked is not None:
            said = np.where(rows.unranked < 0, said, rows.unranked)
        silent = short & (said < 0) & (rows.n_listed > 0)
        if silent.any() and not self.complete:
            row = int(np.flatnonzero(silent)[0])
            raise IngestError(
                f"{self.url}, {self.unit} {rows.lines[row]}: lists {rows.n_listed[row]} of {len(self.item_names)} "
                "items, and nothing says whether the others were on offer: say --unranked below (they rank below) "
                "or --unranked absent (they were not on offer)"
            )
        flags: NDArray[np.bool_] = short & (said == UNRANKED.index("below"))
        return flags

    def _incomplete(self, rows: RawRows) -> NDArray[np.bool_]:
        return (rows.n_listed < len(self.item_names)) & self.complete

    def _unknown_item(self, rows: RawRows, row: int, label: Any) -> Failure:
        if label is None:
            return self._failure(rows, row, "missing-item", "an item is missing (null)")
        text = str(label)
        message = label_problem(text) or f"item {shown(text)} is not one of the {len(self.item_names)} items"
        return self._failure(rows, row, "unknown-item", message, text)

    def _failure(self, rows: RawRows, row: int, reason: str, message: str, item: str = "") -> Failure:
        return Failure(int(rows.lines[row]), reason, message, item, rows.text(row))

    def _dispose(self, failures: list[Failure], rejected: RejectedRows) -> None:
        """Raise, or list what was turned away; quarantine keeps the row itself too."""
        failures.sort(key=lambda failure: failure.line)
        if failures and self.on_error == "raise":
            first = failures[0]
            more = f" (and {len(failures) - 1} more bad rows near it)" if len(failures) > 1 else ""
            raise IngestError(
                f"{self.url}, {self.unit} {first.line}: {first.message}{more}; mend the file, "
                "or choose --on-error drop or --on-error quarantine"
            )
        for failure in failures:
            record: dict[str, Any] = {
                "file": self.url,
                self.unit: failure.line,
                "item": failure.item,
                "message": failure.message,
            }
            if self.on_error == "quarantine":
                record["contents"] = failure.text
            rejected.add(failure.reason, record)


def shown(label: str) -> str:
    """A label for messages: quoted, control characters made visible, long ones cut."""
    text = repr(label)
    return text if len(text) <= 80 else text[:76] + "...'"


def label_problem(label: str) -> str | None:
    """Why a label cannot be the name of an item, or None where it can."""
    if not label:
        return "an item has an empty name"
    if len(label) > LONGEST_LABEL:
        return f"item name {shown(label)} is longer than {LONGEST_LABEL} characters"
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in label):
        return f"item name {shown(label)} has control characters"
    return None


def _labels(labels: Any, as_text: bool) -> Any:
    if labels is None:
        return None
    return label_column([str(label) for label in labels] if as_text else labels)
