"""Encoder: item numbers for labels, and checked blocks for raw rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.errors import IngestError, visible
from plmix_dist.rankings import RankingBlock, RowProblem, Unranked, row_problems
from plmix_dist.rankings.columns import STRING, Labels, item_dtype, label_column, narrowest
from plmix_dist.settings.checks import alike
from plmix_dist.store import RejectedRows
from plmix_dist.tables.rows import UNRANKED, Failure, RawRows
from plmix_dist.tables.sources import decode, read_line, reading
from plmix_dist.tables.words import words_not_items

# Names of items: their natural order, and which names are allowed.

# Names are stored exactly, whatever they hold. PrefLib has names of thousands of characters.
LONGEST_LABEL = 100_000
_LONGEST_SHOWN = 80


def natural_order(labels: Iterable[str]) -> list[str]:
    """Integers by value, then all other names in the order of their characters."""
    numbers: list[str] = []
    words: list[str] = []
    for label in labels:
        (numbers if label.isascii() and label.removeprefix("-").isdigit() else words).append(label)
    return sorted(numbers, key=lambda label: (int(label), label)) + sorted(words)


def checked_names(names: Sequence[str], where: str) -> tuple[str, ...]:
    """The names as a tuple; an error if one is not allowed or occurs twice, or if there are fewer than two."""
    for name in names:
        if not isinstance(name, str):
            raise IngestError(f"{where}: an item name must be text, but is {name!r}")
        if (problem := label_problem(name)) is not None:
            raise IngestError(f"{where}: {problem}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise IngestError(f"{where}: the item name {shown(twice)} occurs twice")
    if len(names) < 2:
        raise IngestError(f"{where}: a ranking needs at least two items, but there are {len(names)}")
    return tuple(names)


def refuse_words(names: Iterable[str], where: str, remedy: str = "") -> None:
    """An error if a name is a word that most often stands for something else than an item."""
    if words := words_not_items(names):
        raise IngestError(
            f"{where}: {shown(words[0])} stands among the items ({len(words)} such words: {', '.join(words[:5])}), but "
            "most often means a mark, a result or a rank: leave such cells empty, or correct them; if these are "
            "ballots with marks, say --format cvr. "
            f"{remedy or 'If all are items, name all items in a file, one per line, and say --items FILE'}"
        )


def read_names(url: str) -> tuple[str, ...]:
    """Item names from a text file, one name per line."""
    with reading(url) as file:
        lines = iter(partial(read_line, file, url), b"")
        names = [decode(raw, url, number).strip() for number, raw in enumerate(lines, start=1)]
    return checked_names([name for name in names if name], url)


def shown(label: str) -> str:
    """A label for messages: quoted, control characters escaped, long labels cut."""
    text = repr(label)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 4] + "...'"


def _shown_plainly(label: str) -> str:
    """A label for messages and lists: not quoted, control characters escaped, long labels cut."""
    text = visible(label)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def shown_in_list(label: str) -> str:
    """A label as `_shown_plainly` has it, in double quotes if it has a sign that divides or joins items in lists."""
    text = _shown_plainly(label)
    return f'"{text}"' if any(sign in text for sign in ",>{}|") else text


def label_problem(label: str) -> str | None:
    """Why a label cannot be the name of an item; None if it can."""
    if not label:
        return "an item has an empty name"
    if len(label) > LONGEST_LABEL:
        return f"item name {shown(label)} is longer than {LONGEST_LABEL} characters"
    if "\n" in label:
        return f"item name {shown(label)} has a line break"
    return None


OnError = Literal["raise", "drop", "quarantine"]
_REMEDY = "correct the file, or choose --on-error drop or --on-error quarantine"
# Leaving rows out does not help where more than this share, and this many, are bad for one reason.
_MOST_DROPPED = 0.05
_FEW_DROPPED = 3


def dispose(
    failures: Iterable[Failure],
    rejected: RejectedRows,
    on_error: OnError,
    url: str,
    unit: str,
    n_rows: int,
    remedy: str = _REMEDY,
) -> None:
    """Raise an error for bad rows of `n_rows`, or list them; "quarantine" also keeps their contents."""
    in_order = sorted(failures, key=lambda failure: failure.line)
    if (wrong := [failure for failure in in_order if failure.wrong]) and on_error == "raise":
        first = wrong[0]
        more = f" (and {len(wrong) - 1} more bad rows near it)" if len(wrong) > 1 else ""
        [(reason, times)] = Counter(failure.reason for failure in wrong).most_common(1)
        if remedy == _REMEDY and times > max(_FEW_DROPPED, _MOST_DROPPED * n_rows):
            remedy = (
                f"{times} of {n_rows} rows here are bad for one reason ({reason}), so correct the file or its options"
            )
        raise IngestError(f"{url}, {unit} {first.line}: {first.message}{more}; {remedy}")
    for failure in in_order:
        record = {"file": url, unit: failure.line, "item": failure.item, "message": failure.message}
        record |= {} if failure.wrong else {"wrong": False}
        rejected.add(failure.reason, record | ({"contents": failure.text} if on_error == "quarantine" else {}))


@dataclass(frozen=True)
class Encoder:
    """Turns raw rows into a checked block. `on_error` decides what happens to bad rows."""

    url: str  # The source, for messages
    item_names: tuple[str, ...]  # The names of all items
    lookup: Mapping[str, int]  # The number of each label
    unranked: Unranked | None  # What unlisted items mean, unless a row has its own answer
    complete: bool  # Whether every row must list all items
    on_error: OnError
    unit: str = "line"  # What the numbers of rows count: "line" or "row"
    text_ids: bool = False  # Whether ids or groups that are numbers become text, because others are text
    text_groups: bool = False
    remedy: str = _REMEDY

    def encode(self, rows: RawRows, rejected: RejectedRows) -> RankingBlock:
        """The valid rows of a batch as a block. Bad rows are added to `rejected`, or raise an error."""
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
        n_items = len(self.item_names)
        for row in np.flatnonzero(good & (rows.n_listed < n_items) & self.complete).tolist():
            message = f"lists {rows.n_listed[row]} of {n_items} items, but the file promises complete orders"
            failures.append(self._failure(rows, row, "incomplete", message))
            good[row] = False
        dispose(failures, rejected, self.on_error, self.url, self.unit, rows.n_rows + len(rows.failures), self.remedy)
        return block if good.all() else block.take(good)

    def _problems(self, block: RankingBlock) -> list[RowProblem]:
        """The first fault of each bad row, with names fit to be shown."""
        return row_problems(block, [_shown_plainly(name) for name in self.item_names]) if row_problems(block) else []

    def _codes(self, labels: pa.Array) -> NDArray[np.int64]:
        """(total listed,): the item number of each label, -1 of an unknown one."""
        if not len(labels):
            return np.empty(0, np.int64)
        encoded = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
        table = np.array([self.lookup.get(str(label), -1) for label in encoded.dictionary.to_pylist()], np.int64)
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
            persons=_labels(rows.persons, False),
            sides=rows.sides,
            features=rows.features,
        )

    def _below(self, rows: RawRows, n_ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n_rows,): whether unlisted items rank below, by the row or the user's setting. For a slate they do not."""
        short = rows.n_listed < len(self.item_names)
        slate = n_ordered < rows.n_listed
        said = np.where(slate, UNRANKED.index("absent"), -1 if self.unranked is None else UNRANKED.index(self.unranked))
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

    def _unknown_item(self, rows: RawRows, row: int, label: Any) -> Failure:
        if label is None:
            return self._failure(rows, row, "missing-item", "an item is missing (null)")
        text = str(label)
        message = label_problem(text) or f"item {shown(text)} is not one of the {len(self.item_names)} items"
        return self._failure(rows, row, "unknown-item", message, text)

    def _failure(self, rows: RawRows, row: int, reason: str, message: str, item: str = "") -> Failure:
        return Failure(int(rows.lines[row]), reason, message, item, rows.text(row))


def _labels(labels: Sequence[Any] | NDArray[Any] | None, as_text: bool) -> Labels | None:
    if labels is None:
        return None
    text = as_text and getattr(labels, "dtype", None) != STRING
    return label_column([str(label) for label in labels] if text else labels)
