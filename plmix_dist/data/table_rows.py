"""From cells to a block: which cells are names, which are numbers, which are missing, and where a row is wrong."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from plmix_dist.data.cells import Cells, cells_of
from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.columns import below_flags, item_dtype, narrowest
from plmix_dist.rankings.numbering import check_numbered_from_zero
from plmix_dist.rankings.validate import check_rows
from plmix_dist.values import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from plmix_dist.rankings import Unranked

_MISSING = -1
# Whole numbers beyond this are no item numbers, and floats do not hold them exactly.
_LARGEST = 1 << 53


def block_of_table(
    source: Any, n_items: int | None, unranked: Unranked | None, item_names: tuple[str, ...] | None
) -> tuple[RankingBlock, tuple[str, ...] | None]:
    """A block of the rows of an array, a list or a table, and the names of the items; None if they have numbers only.

    `item_names` are those of a fitted model.

    Examples
    --------
    >>> block, names = block_of_table([["tea", "coffee"], ["tea"]], None, "below", None)
    >>> block.items.tolist(), block.below.tolist(), names
    ([1, 0, 1], [False, True], ('coffee', 'tea'))
    """
    cells = cells_of(source)
    if not len(cells.lengths):
        raise SettingsError("there are no rankings")
    if isinstance(cells.values, list):
        numbers, names = _from_objects(cells.values, cells, item_names)
    else:
        numbers, names = _whole_numbers(cells.values, cells), None
    if names is not None and n_items is not None and n_items != len(names):
        raise SettingsError(f"n_items is {n_items}, but the rows name {len(names)} items; leave out n_items")
    if names is None and item_names is not None:
        n_items, names = len(item_names), item_names
    if names is None and n_items is None:
        _check_zero(numbers, cells)
        _refuse_zeros(numbers, cells)
    n_items = len(names) if names is not None else n_items
    return _block(numbers, cells, n_items, unranked, names), names


def _block(
    numbers: NDArray[Any],
    cells: Cells,
    n_items: int | None,
    unranked: Unranked | None,
    names: tuple[str, ...] | None,
) -> RankingBlock:
    """A block of item numbers, -1 where a cell is missing. Every row is checked."""
    listed = numbers >= 0
    n_listed = _row_lengths(numbers, listed, cells)
    largest = int(numbers.max()) if numbers.size else -1
    if largest >= _LARGEST:
        place = cells.place(int(np.flatnonzero(numbers == largest)[0]))
        raise RankingError(f"{place}: {largest} is no item number; items are numbered from 0")
    n_items = largest + 1 if n_items is None else n_items
    block = RankingBlock(
        items=numbers[listed].astype(item_dtype(max(n_items, largest + 1))),
        n_listed=narrowest(n_listed),
        n_ordered=narrowest(n_listed),
        below=below_flags(n_listed, n_items, unranked),
        n_items=n_items,
    )
    check_rows(block, item_names=names)
    return block


def _row_lengths(numbers: NDArray[Any], listed: NDArray[np.bool_], cells: Cells) -> NDArray[np.int64]:
    """(n_rankings,): how many items each row lists; an error if an item follows a missing cell."""
    low = int(numbers.min(initial=0))
    if low < _MISSING:
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
    zeros = np.concatenate([[0], np.cumsum(numbers == 0)])
    rows = np.flatnonzero(zeros[cells.starts + cells.lengths] - zeros[cells.starts] > 1)
    if len(rows) > 1:
        raise RankingError(
            f"row {rows[0]}: item 0 is listed twice, and so in {len(rows)} of {len(cells.lengths)} rows. "
            "If 0 stands for no item and items are numbered from 1, subtract 1 from every cell, so that missing places "
            "are -1. If the cells are ranks, and 0 stands for not ranked, save the "
            'table as CSV and read it with plmix_dist.ingest(..., format="ranks")'
        )


def _check_zero(numbers: NDArray[Any], cells: Cells) -> None:
    """An error if no row lists item 0: item numbers from 1, ids, or ranks."""
    present = numbers[numbers >= 0]
    if not len(present) or present.min() == 0:
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
    missing = np.isnan(values)
    filled = np.where(missing, _MISSING, values)
    bad = np.flatnonzero((filled != np.floor(filled)) | (np.abs(filled) > _LARGEST))
    if len(bad):
        place = cells.place(int(bad[0]))
        raise RankingError(
            f"{place}: {filled[bad[0]]:g} is no item number; items are whole numbers from 0, or text"
        )
    return filled.astype(np.int64)


def _from_objects(
    values: list[Any], cells: Cells, item_names: tuple[str, ...] | None
) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """The item numbers of cells that are Python's own objects, and the names if the cells are names."""
    try:
        distinct = list(dict.fromkeys(values))
    except TypeError:  # such as a list in a cell
        unhashable = next(value for value in values if type(value).__hash__ is None)
        raise _no_item(unhashable, values, cells) from None
    meaning = {value: _meaning(value, values, cells) for value in distinct}
    words = [found for found in meaning.values() if isinstance(found, str)]
    if not words:
        return np.fromiter(map(meaning.__getitem__, values), np.int64, len(values)), None
    _refuse_numbers_among_names(meaning, values, cells)
    names = item_names or cells.names or _natural_order(set(words))
    numbers = {name: number for number, name in enumerate(names)}
    unknown = [word for word in words if word not in numbers]
    if unknown:
        _refuse_unknown(unknown, names, values, cells)
    codes = {
        value: numbers[found] if isinstance(found, str) else _MISSING for value, found in meaning.items()
    }
    return np.fromiter(map(codes.__getitem__, values), np.int64, len(values)), names


def _meaning(value: Any, values: list[Any], cells: Cells) -> str | int:
    """The name or the number in a cell; -1 if it is missing."""
    if isinstance(value, str):
        return _name(str(value), values, cells)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return _MISSING
    if isinstance(value, float | np.floating) and math.isnan(value):
        return _MISSING
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if is_number and abs(value) <= _LARGEST and value == int(value):
        return int(value)
    raise _no_item(value, values, cells)


def _no_item(value: Any, values: list[Any], cells: Cells) -> RankingError:
    """The error for a cell that is neither a name nor a number."""
    place = cells.place(next(index for index, one in enumerate(values) if one is value))
    return RankingError(
        f"{place}: expected an item's name or its number, a whole number, but got {shown(value)}"
    )


def _name(text: str, values: list[Any], cells: Cells) -> str | int:
    """An item's name; -1 for the empty text. NumPy makes the texts 'nan' and '-1' of missing cells among text."""
    if text in ("", "-1"):
        return _MISSING
    if text in ("nan", "None", "<NA>"):
        raise RankingError(
            f"{cells.place(values.index(text))}: the text {text!r} is most likely a missing cell that was turned into "
            'text; use None or "" instead, or another name for the item'
        )
    return text


def _natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Numbers by value, then words, the same as in a store."""
    from plmix_dist.formats.items import natural_order

    return tuple(natural_order(names))


def _refuse_numbers_among_names(meaning: Mapping[Any, str | int], values: list[Any], cells: Cells) -> None:
    number = next((value for value, found in meaning.items() if isinstance(found, int) and found >= 0), None)
    if number is None:
        return
    name = next(value for value, found in meaning.items() if isinstance(found, str))
    raise RankingError(
        f"{cells.place(values.index(number))} is the number {shown(number, int)}, but "
        f"{cells.place(values.index(name))} is the name {shown(name, str)}: items must be all names or all numbers. "
        "Leave out columns that are no places, or turn the numbers into text"
    )


def _refuse_unknown(unknown: list[str], names: tuple[str, ...], values: list[Any], cells: Cells) -> NoReturn:
    near = difflib.get_close_matches(unknown[0], names, n=3)
    some = ", ".join(map(repr, near or names[:5])) + ("" if near or len(names) <= 5 else ", ...")
    more = f" ({len(unknown)} names are unknown)" if len(unknown) > 1 else ""
    raise RankingError(
        f"{cells.place(values.index(unknown[0]))}: there is no item {shown(unknown[0], str)} among the "
        f"{len(names)} known items{more}; {'the nearest are' if near else 'these are'}: {some}"
    )
