"""RawRows: rankings as the source has them, with item labels instead of numbers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.errors import IngestError
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
    n_ordered: NDArray[np.int64] | None = None
    tied: NDArray[np.bool_] | None = None
    # (n_rows,): the line, or row, of the source that each ranking begins with
    lines: NDArray[np.int64] = field(kw_only=True)
    weights: NDArray[np.float64] | None = None
    ids: Sequence[int] | Sequence[str] | NDArray[Any] | None = None
    groups: Sequence[int] | Sequence[str] | NDArray[Any] | None = None
    persons: NDArray[Any] | None = None  # As in RankingBlock
    sides: NDArray[np.uint8] | None = None  # As in RankingBlock
    features: NDArray[np.float32] | None = None  # (total listed, n_features)
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
        return format_ordering(labels, len(labels) if self.n_ordered is None else int(self.n_ordered[row]), tied)

    def without(self, bad: Mapping[int, Failure]) -> RawRows:
        """The rows without some bad ones, which become failures with their text."""
        if not bad:
            return self
        keep = np.ones(self.n_rows, np.bool_)
        keep[list(bad)] = False
        entries = np.repeat(keep, self.n_listed)
        by_row = {name: getattr(self, name) for name in _BY_ROW}
        return replace(
            self,
            **{name: np.asarray(column)[keep] for name, column in by_row.items() if column is not None},
            labels=self.labels.filter(pa.array(entries)),
            tied=None if self.tied is None else self.tied[entries],
            features=None if self.features is None else self.features[entries],
            failures=self.failures
            + [failure._replace(text=failure.text or self.text(row)) for row, failure in bad.items()],
        )


# The columns of RawRows with an entry per row.
_BY_ROW = ("n_listed", "lines", "n_ordered", "weights", "ids", "groups", "persons", "sides", "unranked")


# The items of a row, which of them are tied with the item before, and its weight.
_Row = tuple[Sequence[str], Sequence[bool] | None, float]


def collected(
    rows: Iterable[tuple[int, str | Sequence[str]]], read: Callable[[int, Any], _Row | Failure], divider: str = ","
) -> Iterator[RawRows]:
    """Rows that are read one by one, from line and text or cells. An IngestError rejects a row."""

    def read_or_fail(line: int, row: str | Sequence[str]) -> _Row | Failure:
        try:
            return read(line, row)
        except IngestError as error:
            return Failure(line, "syntax", str(error), text=row if isinstance(row, str) else divider.join(row))

    rows = iter(rows)
    while some := [(line, read_or_fail(line, row)) for line, row in islice(rows, BATCH_ROWS)]:
        kept = [(line, *found) for line, found in some if not isinstance(found, Failure)]
        tied = np.array([tie for _, names, ties, _ in kept for tie in ties or [False] * len(names)], np.bool_)
        yield RawRows(
            labels=pa.array([name for _, names, _, _ in kept for name in names], pa.string()),
            n_listed=np.array([len(names) for _, names, _, _ in kept], np.int64),
            tied=tied if tied.any() else None,
            weights=np.array([weight for *_, weight in kept], np.float64),
            lines=np.array([line for line, *_ in kept], np.int64),
            failures=[found for _, found in some if isinstance(found, Failure)],
        )


def integers_if_all(labels: Sequence[str] | NDArray[Any]) -> NDArray[np.int64] | list[str]:
    """Labels as integers if each is written exactly as its integer is, otherwise as text."""
    column = pa.array(labels, pa.string())
    if not len(column) or _WHOLE.fullmatch(column[0].as_py()):
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = column.cast(pa.int64())
            # "007" and "+7" would be written back as "7".
            if numbers.cast(pa.string()).equals(column):
                return np.asarray(numbers, np.int64)
    return column.to_pylist()  # type: ignore[no-any-return]


def whole_numbers_if_all(labels: Any) -> Any:
    """Labels read as text as integers if all are written so; other labels, or none, unchanged."""
    as_read = labels is None or labels.dtype != object or not len(labels)
    return labels if as_read else np.asarray(integers_if_all(labels.tolist()))
