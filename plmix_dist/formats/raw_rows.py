"""RawRows: rankings as they stand in a source, items still by label."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from plmix_dist.rankings import Unranked

UNRANKED: tuple[Unranked, ...] = ("absent", "below")
BATCH_ROWS = 1 << 16


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
