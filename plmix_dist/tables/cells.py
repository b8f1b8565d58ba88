"""From cells to a block: which cells are names, which are numbers, which are missing, and where a row is wrong."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plmix_dist.errors import IngestError, RankingError, SettingsError
from plmix_dist.rankings import RankingBlock, Unranked, check_numbered_from_zero, check_rows, concatenate, label_column
from plmix_dist.rankings.groups import check_groups
from plmix_dist.store import RejectedRows
from plmix_dist.tables.format import Column, ReadOptions, places_of
from plmix_dist.tables.frames import LARGEST_ITEM, MISSING_ITEM, Cells, Frame, Names, cells_of, frame_of, numbered
from plmix_dist.tables.python_rows import Noted, as_listed, block_of_notes, block_of_numbers, noted, with_groups
from plmix_dist.tables.rows import Failure, RawRows
from plmix_dist.tables.sources import Header

if TYPE_CHECKING:
    from plmix_dist.tables.registry import OpenedFrame


_IN_PYTHON = (
    ". Here, leave columns out, or rename them to their roles (places: place1, place2 and so on); plmix_dist.ingest "
    "takes a table with options; what is certainly one ranking per row may be lists: table.to_numpy().tolist()"
)
_HAND_IN_LISTS = "If all are items, hand in a list of rows: table.to_numpy().tolist()"


def block_of_table(
    source: Any, n_items: int | None, unranked: Unranked | None, item_names: Names | None
) -> tuple[RankingBlock, Names | None]:
    """A block of the rows of an array, a list or a table, and the names of the items; None if they have numbers only.

    `item_names` are those of a fitted model.
    """
    given, frame, opened = _begun(source)
    labels: dict[str, Any] = {}
    if opened is not None:
        if opened.form.name != "wide":
            return _of_other_formats(opened, n_items, _unranked_of(opened.header, unranked), item_names)
        unranked = _unranked_of(opened.header, unranked)
        frame, labels = _places_of(opened), _labels_of(opened)
    rows = source if frame is None else frame.rows
    given = given or noted(rows)
    cells = cells_of(source, frame) if given is None else None
    if cells is not None and not len(cells.lengths):
        raise SettingsError("no rankings were given")
    given = given or with_groups(rows, cells and cells.values)
    if given is not None or cells is None:
        return block_of_notes(given or Noted([]), n_items, unranked, item_names)
    block, names = _block_of_cells(cells, frame, n_items, unranked, item_names)
    if labels:
        block = block.replace(**labels)
        check_rows(block)
        check_groups(block)
    return block, names


def order_as_given(source: Any) -> NDArray[np.int64] | None:
    """(total listed,): where the items of a block of these rows stand in the rows as they were given; None: as there.

    An error for a table of which that is not clear.
    """
    given, frame, opened = _begun(source)
    if opened is not None and opened.form.name != "wide":
        raise SettingsError(
            f"features go by the order of the items in a row, and a table in the format {opened.form.name!r} has none; "
            "hand in a list of rows, such as choices (chosen, offered)"
        )
    rows = source if frame is None else frame.rows
    rows = rows.tolist() if isinstance(rows, np.ndarray) and rows.dtype == object and rows.ndim == 1 else rows
    given = given or noted(rows)
    return as_listed(rows if given is None else given.rows)


def _begun(source: Any) -> tuple[Noted | None, Frame | None, OpenedFrame | None]:
    """The rows in a notation of their own, or the cells of a table, and its format if it has columns of any kind."""
    given = noted(source)
    frame = None if given is not None else frame_of(source)
    if frame is None or not (len(frame.columns) > 1 if frame.rows is None else _has_records(frame.rows)):
        return given, frame, None
    return None, frame, _opened(frame)


def _has_records(rows: list[Any]) -> bool:
    """Whether rows are lists of records, such as items with their ranks."""
    return isinstance(next((row for row in rows if row is not None and len(row)), [None])[0], dict)


def _block_of_cells(
    cells: Cells, frame: Frame | None, n_items: int | None, unranked: Unranked | None, item_names: Names | None
) -> tuple[RankingBlock, Names | None]:
    """A block of cells that are names or numbers of items, and the names."""
    if isinstance(cells.values, list):
        numbers, names = numbered(cells, item_names)
    else:
        numbers, names = _whole_numbers(cells.values, cells), None
    if names is not None and n_items is not None and n_items != len(names):
        raise SettingsError(f"n_items is {n_items}, but the rows name {len(names)} items; leave out n_items")
    _refuse_words(frame, names, item_names)
    names = item_names if names is None else names
    if names is None and n_items is None:
        _check_zero(numbers, cells)
        _refuse_zeros(numbers, cells)
    return _block(numbers, cells, n_items, unranked, names), names


def _opened(frame: Frame) -> OpenedFrame:
    """A frame with its format. Formats are imported for frames only: a fit of an array needs none."""
    from plmix_dist.tables.registry import open_frame

    try:
        return open_frame(frame, "auto", ReadOptions())
    except IngestError as error:
        raise RankingError(f"{error}{_IN_PYTHON if '--' in str(error) else ''}") from None


def _unranked_of(header: Header, unranked: Unranked | None) -> Unranked | None:
    """What unlisted items mean, by the names of the columns or as the user says."""
    if header.unranked == "absent" and unranked == "below":
        why = header.guesses[-1] if places_of(header.roles) else "the rows list all that was on offer"
        raise RankingError(f"{why}; leave out unranked")
    return unranked or header.unranked


def _places_of(opened: OpenedFrame) -> Frame:
    """The places of a frame, best first."""
    frame, places = opened.frame, places_of(opened.header.roles)
    return frame._replace(columns=tuple(frame.columns[place] for place in places), cells=frame.cells[:, places])


def _labels_of(opened: OpenedFrame) -> dict[str, Any]:
    """Weights and groups of a frame of places, as a block has them. Ids mean nothing to a fit."""
    roles, labels = opened.header.roles, {}
    if "unranked" in roles:
        raise RankingError("a column of unranked in a table of places goes into a store; here, say unranked=")
    if "weight" in roles:
        labels["weights"] = Column(opened.columns[roles["weight"]]).numbers()
    if "group" in roles:
        labels["groups"] = label_column(Column(opened.columns[roles["group"]]).labels())
    return labels


def _of_other_formats(
    opened: OpenedFrame, n_items: int | None, unranked: Unranked | None, item_names: Names | None
) -> tuple[RankingBlock, Names]:
    """A block of the rows of a frame that is not one of places, and the names of its items."""
    from plmix_dist.tables.encode import Encoder, checked_names, natural_order, refuse_words
    from plmix_dist.tables.registry import read_columns

    try:
        rows = list(read_columns(opened.form, opened.header, opened.columns, 0))
        labels = {str(label) for some in rows for label in some.labels.unique().to_pylist() if label is not None}
        labels |= set(opened.header.item_names or ())
        names = item_names or opened.header.item_names or checked_names(natural_order(labels), "the table")
        if item_names is None:
            refuse_words(names, "the table", _HAND_IN_LISTS)
        _check_runs([some.run_ids for some in rows if some.run_ids is not None])
        lookup = {name: number for number, name in enumerate(names)}
        remedy = "correct the row, or leave it out"
        encoder = Encoder("the table", names, lookup, unranked, False, "raise", "row", remedy=remedy)
        block = concatenate([encoder.encode(some, RejectedRows()) for some in rows])
    except IngestError as error:
        raise RankingError(str(error)) from None
    if n_items is not None and n_items != len(names):
        raise SettingsError(f"n_items is {n_items}, but the rows name {len(names)} items; leave out n_items")
    check_groups(block)
    return block, names


def _refuse_words(frame: Frame | None, names: Names | None, known: Names | None) -> None:
    """An error if a cell of a frame is a word that is hardly an item. Lists were made by the user."""
    from plmix_dist.tables.encode import refuse_words

    if frame is None or names is None or known is not None:
        return
    try:
        refuse_words(names, "the table", _HAND_IN_LISTS)
    except IngestError as error:
        raise RankingError(str(error)) from None


def _check_runs(ids: list[NDArray[Any]]) -> None:
    """An error if the rows of a ranking are not consecutive."""
    if again := [label for label, times in Counter(chain.from_iterable(ids)).items() if times > 1]:
        raise RankingError(f"the rows of ranking {again[0]} are not consecutive; sort the table by ranking id")


def _block(
    numbers: NDArray[Any], cells: Cells, n_items: int | None, unranked: Unranked | None, names: Names | None
) -> RankingBlock:
    """A block of item numbers, -1 where a cell is missing. Every row is checked."""
    listed = numbers >= 0
    n_listed = _row_lengths(numbers, listed, cells)
    largest = int(numbers.max()) if numbers.size else -1
    if largest >= LARGEST_ITEM:
        place = cells.place(int(np.flatnonzero(numbers == largest)[0]))
        raise RankingError(f"{place}: {largest} is not an item number; items are numbered from 0")
    n_items = n_items if names is None else len(names)
    block = block_of_numbers(numbers if listed.all() else numbers[listed], n_listed, n_items, unranked)
    check_rows(block, item_names=names)
    return block


def _row_lengths(numbers: NDArray[Any], listed: NDArray[np.bool_], cells: Cells) -> NDArray[np.int64]:
    """(n_rankings,): how many items each row lists; an error if an item follows a missing cell."""
    low = int(numbers.min(initial=0))
    if low < MISSING_ITEM:
        row, _ = cells.row_and_column(int(np.flatnonzero(numbers == low)[0]))
        raise RankingError(f"row {row}: item {low} is out of range; items are numbered from 0")
    if listed.all():
        return cells.lengths
    after = listed.copy()
    after[1:] &= ~listed[:-1]
    after[:1] = False
    after[cells.starts[cells.lengths > 0]] = False  # the first cell of a row follows none
    gaps = np.flatnonzero(after)
    if len(gaps):
        row, column = cells.row_and_column(int(gaps[0]))
        raise RankingError(
            f"row {row}: an item follows a missing place in {cells.column_words(column - 1)}; only the end of a row "
            "may be missing"
        )
    counts = np.concatenate([[0], np.cumsum(listed)])
    lengths: NDArray[np.int64] = counts[cells.starts + cells.lengths] - counts[cells.starts]
    return lengths


def _refuse_zeros(numbers: NDArray[Any], cells: Cells) -> None:
    """An error if several rows have several zeros each, as tables do that write 0 for no item or not ranked."""
    row = np.searchsorted(cells.starts + cells.lengths, np.flatnonzero(numbers == 0), side="right")
    rows = np.unique(row[1:][row[1:] == row[:-1]])
    if len(rows) > 1:
        raise RankingError(
            f"row {rows[0]}: item 0 is listed twice, and so in {len(rows)} of {len(cells.lengths)} rows. "
            "If 0 stands for no item and items are numbered from 1, subtract 1 from every cell, so that missing places "
            "are -1. If the cells are ranks, and 0 stands for not ranked, save the "
            'table as CSV and read it with plmix_dist.ingest(..., format="ranks")'
        )


def _check_zero(numbers: NDArray[Any], cells: Cells) -> None:
    """An error if no row lists item 0: item numbers from 1, ids, or ranks."""
    if (numbers == 0).any() or not len(present := numbers[numbers > 0]):
        return
    ways_out = "If the numbers are ids, hand them in as text, and they become the names of the items"
    if cells.columns is not None:
        ways_out += (
            ". If every column is an item and the cells are its ranks, save the table as CSV and read it with "
            'plmix_dist.ingest(..., format="ranks"), which keeps names, ties and empty cells'
        )
    try:
        check_numbered_from_zero(int(present.min()), int(present.max()))
    except RankingError as error:
        raise RankingError(f"{error}. {ways_out}") from None


def _whole_numbers(values: NDArray[Any], cells: Cells) -> NDArray[Any]:
    """Integers as they are; floats as integers, where NaN is a missing cell."""
    if values.dtype.kind != "f":
        return values
    values = values.astype(np.float64)  # half precision has no room for the numbers below
    filled = np.where(np.isnan(values), MISSING_ITEM, values)
    bad = np.flatnonzero((filled != np.floor(filled)) | (np.abs(filled) > LARGEST_ITEM))
    if len(bad):
        place = cells.place(int(bad[0]))
        raise RankingError(
            f"{place}: {filled[bad[0]]:g} is not an item number; items are whole numbers from 0, or text"
        )
    return filled.astype(np.int64)


# Arrays as a source of a store: items numbered from 0, best first, -1 after the end of a row.


def read_array(table: NDArray[Any], weights: NDArray[Any] | None, first_row: int) -> RawRows:
    """The rows of an integer array.

    Shapes: table (rows, places), weights (rows,) or None.
    """
    check_array(table)
    table = table.astype(table.dtype.newbyteorder("="), copy=False)
    listed = table != -1
    n_listed = np.count_nonzero(listed, axis=1)
    torn = (listed[:, 1:] & ~listed[:, :-1]).any(axis=1)
    numbers = np.arange(first_row, first_row + len(table))
    failures = [
        Failure(int(numbers[row]), "gap", "an item follows a missing place (-1)", text=str(table[row].tolist()))
        for row in np.flatnonzero(torn).tolist()
    ]
    keep = ~torn
    return RawRows(
        labels=pa.array(table[keep][listed[keep]]),
        n_listed=n_listed[keep],
        weights=None if weights is None else np.asarray(weights, np.float64)[keep],
        lines=numbers[keep],
        failures=failures,
    )


def check_array(table: NDArray[Any]) -> None:
    """An error if a NumPy or Dask array cannot hold rankings."""
    if isinstance(table, np.ma.MaskedArray):
        raise IngestError("masked arrays are not taken; fill masked places with -1 first: array.filled(-1)")
    if table.ndim != 2 or table.dtype.kind not in "iu":
        raise IngestError(
            f"expected an integer array of shape (rankings, places), but got {table.dtype} of shape {table.shape}"
        )


def describe_array(table: NDArray[Any], weights: NDArray[Any] | None, *, by_name: bool) -> dict[str, Any]:
    """A record that identifies the contents of an array by a digest; `by_name` uses the name of a Dask array."""
    contents = str(getattr(table, "name", "")).encode() if by_name else np.ascontiguousarray(table).tobytes()
    digest = hashlib.sha256(contents)
    if weights is not None:
        digest.update(np.ascontiguousarray(weights).tobytes())
    return {"name": "array", "shape": list(table.shape), "sha256": digest.hexdigest(), "metadata": {}}
