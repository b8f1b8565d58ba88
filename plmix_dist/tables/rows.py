"""RawRows: rankings as the source has them, with item labels instead of numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.rankings import Unranked

UNRANKED: tuple[Unranked, ...] = ("absent", "below")
BATCH_ROWS = 1 << 16
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")


class Failure(NamedTuple):
    """A row that was not accepted: the reason, the item concerned, and the row's text.

    A row that is not `wrong` is left out and listed, but never stops an ingest.
    """

    line: int
    reason: str
    message: str
    item: str = ""
    text: str = ""
    wrong: bool = True


def blank(line: int, message: str = "a blank ballot, or a question without an answer") -> Failure:
    """A row without any item: it is counted and left out, and is not an error."""
    return Failure(line, "blank", message, wrong=False)


@dataclass
class RawRows:
    """A batch of rows from one source."""

    labels: pa.Array  # (total listed,): the listed items of all rows
    n_listed: NDArray[np.int64]  # As in RankingBlock
    lines: NDArray[np.int64]  # (n_rows,): the line, or row, of the source that each ranking begins with
    n_ordered: NDArray[np.int64] | None = None
    tied: NDArray[np.bool_] | None = None
    weights: NDArray[np.float64] | None = None
    ids: Sequence[int] | Sequence[str] | NDArray[Any] | None = None
    groups: Sequence[int] | Sequence[str] | NDArray[Any] | None = None
    sides: NDArray[np.uint8] | None = None  # As in RankingBlock
    # (n_rows,): an index into UNRANKED, or -1 if the source does not say it for this row
    unranked: NDArray[np.int8] | None = None
    failures: list[Failure] = field(default_factory=list)  # Rows that were not accepted
    # Ids of all rankings, also of those not accepted, if the lines of a ranking must be consecutive
    run_ids: NDArray[Any] | None = None

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """(n_rows + 1,): row r lists `labels[bounds[r]:bounds[r + 1]]`."""
        return np.concatenate([[0], np.cumsum(self.n_listed)])

    @property
    def n_rows(self) -> int:
        """The number of accepted rows."""
        return len(self.n_listed)

    @property
    def total_weight(self) -> float:
        """The sum of the weights."""
        with np.errstate(over="ignore", invalid="ignore"):  # bad weights are rejected later
            return float(self.n_rows if self.weights is None else self.weights.sum())

    def text(self, row: int) -> str:
        """A row in the notation of the format `orderings`, for lists of rejected rows."""
        from plmix_dist.tables.notation import format_ordering

        start, end = int(self.bounds[row]), int(self.bounds[row + 1])
        labels = [str(label) for label in self.labels[start:end].to_pylist()]
        tied = None if self.tied is None else self.tied[start:end].tolist()
        n_ordered = len(labels) if self.n_ordered is None else int(self.n_ordered[row])
        return format_ordering(labels, n_ordered, tied)

    def without(self, bad: Mapping[int, Failure]) -> RawRows:
        """The rows without some bad ones, which become failures with their text."""
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
            sides=_kept(self.sides, keep),
            unranked=_kept(self.unranked, keep),
            lines=self.lines[keep],
            failures=[
                *self.failures,
                *(failure._replace(text=failure.text or self.text(row)) for row, failure in bad.items()),
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
        self.tied: list[bool] = []
        self.weights: list[float] = []
        self.lines: list[int] = []
        self.failures: list[Failure] = []

    def __len__(self) -> int:
        return len(self.lines) + len(self.failures)

    def add(self, line: int, labels: Sequence[str], tied: Sequence[bool] | None, weight: float) -> None:
        """Add a row of which all items are ordered."""
        self.labels.extend(labels)
        self.n_listed.append(len(labels))
        self.tied.extend(tied or [False] * len(labels))
        self.weights.append(weight)
        self.lines.append(line)

    def fail(self, failure: Failure) -> None:
        """Add a row that was not accepted."""
        self.failures.append(failure)

    def take(self) -> RawRows:
        """The rows so far. The builder is empty afterwards."""
        rows = RawRows(
            labels=pa.array(self.labels, pa.string()),
            n_listed=np.array(self.n_listed, np.int64),
            tied=np.array(self.tied, np.bool_) if any(self.tied) else None,
            weights=np.array(self.weights, np.float64),
            lines=np.array(self.lines, np.int64),
            failures=self.failures,
        )
        self._clear()
        return rows


def integers_if_all(labels: Sequence[str] | NDArray[Any]) -> NDArray[np.int64] | list[str]:
    """Labels as integers if each is written exactly as its integer is, otherwise as text."""
    column = pa.array(labels, pa.string())
    if len(column) and not _WHOLE.fullmatch(column[0].as_py()):
        return column.to_pylist()  # type: ignore[no-any-return]
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column.to_pylist()  # type: ignore[no-any-return]
    # "007" and "+7" would be written back as "7".
    if not numbers.cast(pa.string()).equals(column):
        return column.to_pylist()  # type: ignore[no-any-return]
    return np.asarray(numbers, np.int64)
