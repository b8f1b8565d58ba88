"""Encoder: item numbers for labels, and checked blocks for raw rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from plmix_dist.errors import IngestError
from plmix_dist.formats.items import label_problem, shown, shown_plainly
from plmix_dist.formats.raw_rows import UNRANKED, Failure
from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.columns import item_dtype, label_column, narrowest
from plmix_dist.rankings.validate import row_problems
from plmix_dist.values import alike

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from plmix_dist.formats.raw_rows import RawRows
    from plmix_dist.rankings import Unranked
    from plmix_dist.rankings.columns import Labels
    from plmix_dist.rankings.validate import RowProblem
    from plmix_dist.store import RejectedRows

OnError = Literal["raise", "drop", "quarantine"]


@dataclass(frozen=True)
class Encoder:
    """Turns raw rows into a checked block. `on_error` says what happens to bad rows.

    Parameters
    ----------
    url
        The source, for messages.
    item_names
        The names of all items.
    lookup
        The number of each label.
    unranked
        What unlisted items mean, unless a row says it.
    complete
        Whether every row must list all items.
    unit
        What the numbers of rows count: "line" or "row".
    text_ids, text_groups
        Whether ids or groups that are numbers become text, because others are text.

    Examples
    --------
    >>> from plmix_dist.formats.raw_rows import RowBuilder
    >>> from plmix_dist.store import RejectedRows
    >>> builder = RowBuilder()
    >>> builder.add(1, ["tea", "coffee"])
    >>> builder.add(2, ["tea", "tea"])
    >>> encoder = Encoder("a.csv", ("coffee", "tea"), {"coffee": 0, "tea": 1}, None, False, "drop")
    >>> rejected = RejectedRows()
    >>> encoder.encode(builder.take(), rejected).to_array().tolist(), rejected.counts
    ([[1, 0]], {'duplicate-item': 1})
    """

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
        """The valid rows of a batch as a block. Bad rows are added to `rejected`, or raise an error.

        Examples
        --------
        >>> from plmix_dist.formats.raw_rows import RowBuilder
        >>> from plmix_dist.store import RejectedRows
        >>> builder = RowBuilder()
        >>> builder.add(1, ["tea"])
        >>> encoder = Encoder("a.csv", ("coffee", "tea"), {"coffee": 0, "tea": 1}, "below", False, "raise")
        >>> encoder.encode(builder.take(), RejectedRows()).row(0).unranked
        'below'
        """
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
        for problem in self._problems(block):
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

    def _problems(self, block: RankingBlock) -> list[RowProblem]:
        """The first fault of each bad row, with names fit to be shown."""
        problems = row_problems(block)
        return row_problems(block, [shown_plainly(name) for name in self.item_names]) if problems else []

    def _codes(self, labels: pa.Array) -> NDArray[np.int64]:
        """(total listed,): the item number of each label, -1 if there is no such item."""
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
        """(n_rows,): whether unlisted items rank below, as the row or the user says. For a slate they do not."""
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
                "items, and nothing says whether the others were on offer: say --unranked below (they rank below) or "
                '--unranked absent (they were not on offer); in Python, unranked="below" or unranked="absent"'
                f"{alike(self.item_names)}"
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
        """Raise an error for bad rows, or list them; "quarantine" also keeps their contents."""
        failures.sort(key=lambda failure: failure.line)
        wrong = [failure for failure in failures if failure.wrong]
        if wrong and self.on_error == "raise":
            first = wrong[0]
            more = f" (and {len(wrong) - 1} more bad rows near it)" if len(wrong) > 1 else ""
            raise IngestError(
                f"{self.url}, {self.unit} {first.line}: {first.message}{more}; correct the file, "
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


def _labels(labels: Sequence[Any] | NDArray[Any] | None, as_text: bool) -> Labels | None:
    if labels is None:
        return None
    return label_column([str(label) for label in labels] if as_text else labels)
