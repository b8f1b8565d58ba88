"""RawRows: rankings as the source has them, with item labels instead of numbers."""

from __future__ import annotations

import re
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
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")


class Failure(NamedTuple):
    """A row that was not accepted: the reason, the item concerned, and the row's text.

    A row that is not `wrong` is left out and listed, but never stops an ingest.

    Examples
    --------
    >>> Failure(7, "syntax", "expected 3 fields, but got 2", text="a,b").reason
    'syntax'
    """

    line: int
    reason: str
    message: str
    item: str = ""
    text: str = ""
    wrong: bool = True


@dataclass
class RawRows:
    """A batch of rows from one source.

    Parameters
    ----------
    labels : (total listed,)
        The listed items of all rows.
    lines : (n_rows,)
        The line, or row, of the source that each ranking begins with.
    n_listed, n_ordered, tied, weights, ids, groups
        As in RankingBlock.
    unranked : (n_rows,)
        An index into UNRANKED, or -1 if the source does not say it for this row.
    failures
        Rows that were not accepted.
    run_ids
        Ids of all rankings, also of those not accepted, if the lines of a ranking must be consecutive.

    Examples
    --------
    >>> builder = RowBuilder()
    >>> builder.add(1, ["tea", "coffee"], weight=3)
    >>> rows = builder.take()
    >>> rows.n_rows, rows.total_weight, rows.text(0)
    (1, 3.0, 'tea coffee')
    """

    labels: pa.Array
    n_listed: NDArray[np.int64]
    lines: NDArray[np.int64]
    n_ordered: NDArray[np.int64] | None = None
    tied: NDArray[np.bool_] | None = None
    weights: NDArray[np.float64] | None = None
    ids: Sequence[int] | Sequence[str] | NDArray[Any] | None = None
    groups: Sequence[int] | Sequence[str] | NDArray[Any] | None = None
    unranked: NDArray[np.int8] | None = None
    failures: list[Failure] = field(default_factory=list)
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
        """A row in the notation of the format `orderings`, for lists of rejected rows.

        Examples
        --------
        >>> builder = RowBuilder()
        >>> builder.add(1, ["tea", "coffee", "milk"], tied=[False, True, False])
        >>> builder.take().text(0)
        '{tea coffee} milk'
        """
        from plmix_dist.formats.notation import format_ordering

        start, end = int(self.bounds[row]), int(self.bounds[row + 1])
        labels = [str(label) for label in self.labels[start:end].to_pylist()]
        tied = None if self.tied is None else self.tied[start:end].tolist()
        n_ordered = len(labels) if self.n_ordered is None else int(self.n_ordered[row])
        return format_ordering(labels, n_ordered, tied)

    def without(self, bad: Mapping[int, Failure]) -> RawRows:
        """The rows without some bad ones, which become failures with their text.

        Examples
        --------
        >>> builder = RowBuilder()
        >>> builder.add(1, ["tea", "coffee"])
        >>> builder.add(2, ["tea", "tea"])
        >>> rows = builder.take().without({1: Failure(2, "duplicate-item", "tea is listed twice")})
        >>> rows.n_rows, rows.failures[0].text
        (1, 'tea tea')
        """
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
    """Collects rows one by one, for formats that are read line by line.

    Examples
    --------
    >>> builder = RowBuilder()
    >>> builder.add(1, ["tea", "coffee"])
    >>> builder.fail(Failure(2, "syntax", "expected 2 fields, but got 1"))
    >>> len(builder), builder.take().n_rows, len(builder)
    (2, 1, 0)
    """

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
        """Add a row.

        Parameters
        ----------
        line
            Its line in the source.
        labels
            The listed items: ordered items first, best first, then unordered ones.
        n_ordered
            How many of them are ordered; all by default.
        tied
            Whether each is tied with the item before it.
        unranked
            What unlisted items mean, if the row says it.

        Examples
        --------
        >>> builder = RowBuilder()
        >>> builder.add(1, ["tea", "coffee", "milk"], n_ordered=1, weight=2.5)
        >>> builder.take().text(0)
        'tea | coffee milk'
        """
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
        """Add a row that was not accepted.

        Examples
        --------
        >>> builder = RowBuilder()
        >>> builder.fail(Failure(2, "syntax", "expected 2 fields, but got 1"))
        >>> builder.take().failures[0].line
        2
        """
        self.failures.append(failure)

    def take(self) -> RawRows:
        """The rows so far. The builder is empty afterwards.

        Examples
        --------
        >>> builder = RowBuilder()
        >>> builder.add(1, ["tea", "coffee"], id="007")
        >>> builder.take().ids, builder.take().n_rows
        (['007'], 0)
        """
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


def integers_if_all(labels: Sequence[str] | NDArray[Any]) -> NDArray[np.int64] | list[str]:
    """Labels as integers if each is written exactly as its integer is, otherwise as text.

    Examples
    --------
    >>> integers_if_all(["7", "12"]).tolist(), integers_if_all(["007", "12"])
    ([7, 12], ['007', '12'])
    """
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
