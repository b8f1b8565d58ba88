"""Checks of rows, for a whole block at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import PlmixError, RankingError
from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.groups import SMALLEST_LEAF

# The range check of a block: compiled code reads and writes where these numbers say, so none may be out of range.

# With these bounds on the weight of a row and of all rows, sums, squares and inverses of weights are within float64.
LARGEST_WEIGHT = 1e100
SMALLEST_TOTAL = 1e-100
# Equal rows may have been merged.
_LARGEST_MERGED = 1e120
# As integers, the bits of float64 numbers from 0 on have the order of the numbers. Negative numbers and NaN are above.
_LARGEST_BITS = np.float64(_LARGEST_MERGED).view(np.uint64)
_CHECKED = "_checked_rows"
_REMEDY = "make blocks with RankingBlock.from_array or from_rows, and do not change their arrays"


def check_ranges(
    block: RankingBlock, where: str = "", first_row: int = 0, error: type[PlmixError] = RankingError
) -> None:
    """Raise an error if a number of a block is out of range; compiled code must not see such a block.

    This is called for every leaf in every pass, because arrays may be changed meanwhile. So it is fast: the first call
    checks everything. Later calls check items and weights again, and compare the bytes of the other columns. Whether
    an item is listed twice in a row is checked elsewhere, where blocks enter.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]])
    >>> check_ranges(block)
    >>> check_ranges(block.replace(items=np.array([0, 1, 7, 0], np.uint8)))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.RankingError: row 1: item 7 is out of range: there are 2 items, numbered from 0; ...
    """
    checked = vars(block).get(_CHECKED)
    if (
        checked is not None
        and checked == _row_bytes(block)
        and (not block.items.size or np.maximum.reduce(block.items) < block.n_items)
        and (block.weights is None or not block.weights.size or _are_weights(block.weights))
    ):
        return
    problem = next(_problems(block, first_row), None)
    if problem is not None:
        prefix = f"{where}: " if where else ""
        raise error(f"{prefix}{problem}; {_REMEDY if issubclass(error, RankingError) else 'make the store anew'}")
    # As cached_property does: these are not fields.
    vars(block)[_CHECKED] = _row_bytes(block)


def _row_bytes(block: RankingBlock) -> tuple[bytes, bytes, bytes]:
    """The bytes of the columns with one entry per row, but for weights."""
    return block.n_listed.tobytes(), block.n_ordered.tobytes(), block.below.tobytes()


def _are_weights(weights: NDArray[np.float64]) -> bool:
    """Whether all are from 0 to _LARGEST_MERGED, in one look at their bits. -0.0 gives False."""
    return bool(np.maximum.reduce(weights.view(np.uint64)) <= _LARGEST_BITS)


def _problems(block: RankingBlock, first_row: int) -> Iterator[str]:
    """What is wrong, in words. Each check relies on the ones before it."""
    yield from _wrong_types(block)
    # Offsets that are computed now need not be compared with the lengths they are made of.
    is_new = "offsets" not in vars(block)
    yield from _wrong_lengths(block, is_new)
    yield from _wrong_rows(block, first_row, is_new)
    yield from _wrong_ties(block, first_row)
    items, weights = block.items, block.weights
    if items.size and items.max() >= block.n_items:
        entry = int(np.argmax(items >= block.n_items))
        owner = first_row + int(np.searchsorted(block.offsets, entry, side="right")) - 1
        yield f"row {owner}: item {items[entry]} is out of range: there are {block.n_items} items, numbered from 0"
    if weights is not None and weights.size and not _are_weights(weights):
        row = _first(~((weights >= 0) & (weights <= _LARGEST_MERGED)))
        if row is not None:
            yield f"row {first_row + row}: weight {weights[row]:g} is not a number from 0 to {LARGEST_WEIGHT:g}"


def _first(bad: NDArray[np.bool_]) -> int | None:
    """The first place that is True; None if there is none."""
    place = int(bad.argmax()) if bad.size else 0
    return place if bad.size and bad[place] else None


def _wrong_types(block: RankingBlock) -> Iterator[str]:
    if type(block.n_items) is not int or block.n_items < 1:
        yield f"n_items must be a whole number from 1 on, but is {block.n_items!r}"
    for name in ("items", "n_listed", "n_ordered"):
        column = getattr(block, name)
        if not isinstance(column, np.ndarray) or column.dtype.kind != "u" or column.itemsize > 4:
            yield f"{name} must be an array of uint8, uint16 or uint32, but is {_kind(column)}"
        elif column.ndim != 1 or not column.flags.aligned or not column.dtype.isnative:
            yield f"{name} must be an aligned array of one dimension in native byte order, but is {_kind(column)}"
    for name, kind, optional in (("below", np.bool_, False), ("tied", np.bool_, True), ("weights", np.float64, True)):
        column = getattr(block, name)
        if optional and column is None:
            continue
        if not isinstance(column, np.ndarray) or column.dtype != kind or column.ndim != 1:
            yield f"{name} must be an array of {np.dtype(kind)} of one dimension, but is {_kind(column)}"
    for name in ("ids", "groups"):
        column = getattr(block, name)
        if column is not None and (not isinstance(column, np.ndarray) or column.ndim != 1):
            yield f"{name} must be an array of one dimension, but is {_kind(column)}"


def _kind(column: object) -> str:
    """The type of a column in words."""
    return f"{column.dtype} of shape {column.shape}" if isinstance(column, np.ndarray) else type(column).__name__


def _wrong_lengths(block: RankingBlock, is_new: bool) -> Iterator[str]:
    for name in ("n_ordered", "below", "weights", "ids", "groups"):
        column = getattr(block, name)
        if column is not None and len(column) != len(block.n_listed):
            yield f"{name} has {len(column)} entries, but n_listed has {len(block.n_listed)}: one per row"
    if block.tied is not None and len(block.tied) != len(block.items):
        yield f"tied has {len(block.tied)} entries, but items has {len(block.items)}: one per listed item"
    total = int(block.offsets[-1] if is_new else block.n_listed.sum(dtype=np.int64))
    if total != len(block.items):
        yield f"its rows list {total} items by n_listed, but items has {len(block.items)}"
    if len(block.offsets) != len(block.n_listed) + 1:
        yield "its offsets do not belong to its rows"


def _wrong_rows(block: RankingBlock, first_row: int, is_new: bool) -> Iterator[str]:
    n_listed, n_ordered, n_items = block.n_listed, block.n_ordered, block.n_items
    if not n_listed.size:
        return
    row = _first(n_ordered > n_listed)
    if row is not None:
        yield (
            f"row {first_row + row}: {n_ordered[row]} items are ordered by n_ordered, but the row lists {n_listed[row]}"
        )
    if n_listed.min() == 0 or n_listed.max() >= n_items + (not block.below.any()):
        row = _first((n_listed == 0) | (n_listed > n_items - block.below.astype(np.int64)))
        if row is not None:
            yield (
                f"row {first_row + row}: it lists {n_listed[row]} of {n_items} items, and unlisted items "
                f"{'rank below' if block.below[row] else 'were not on offer'} by `below`; this makes no sense"
            )
    row = None if is_new else _first(np.diff(block.offsets) != n_listed)
    if row is not None:
        yield f"row {first_row + row}: n_listed was changed after the block was first used"


def _wrong_ties(block: RankingBlock, first_row: int) -> Iterator[str]:
    if block.tied is None or not block.tied.any():
        return
    entries = np.flatnonzero(block.tied)
    rows = np.searchsorted(block.offsets, entries, side="right") - 1
    places = entries - block.offsets[rows]
    bad = _first((places == 0) | (places >= block.n_ordered[rows]))
    if bad is not None:
        yield f"row {first_row + int(rows[bad])}: tied marks an item that is the first of its row, or is not ordered"


# A table of rows by items may have this many cells per listed item; beyond that, sorting is faster.
_MOST_CELLS = 32
# What people write into cells that hold nothing.
_NOTHING = frozenset({"n/a", "na", "nan", "none", "null", "nil", "-", "--", ".", "?", "missing", "no answer"})


class RowProblem(NamedTuple):
    """One fault of one row: `kind` is a fixed word, `item` is the item concerned or -1."""

    row: int
    kind: str
    item: int
    message: str


def row_problems(block: RankingBlock, item_names: Sequence[str] | None = None) -> list[RowProblem]:
    """The first fault of each bad row of a block, in row order. Messages use item names if they are given.

    Examples
    --------
    >>> import numpy as np
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> good = RankingBlock.from_array([[0, 1, 2]])
    >>> row_problems(good.replace(items=np.array([0, 1, 1], np.uint8)))
    [RowProblem(row=0, kind='duplicate-item', item=1, message='item 1 is listed twice')]
    """
    first: dict[int, RowProblem] = {}
    name = partial(_name_of, item_names or ())
    for problem in (
        *(RowProblem(row, "empty", -1, "no item is ranked") for row in np.flatnonzero(block.n_ordered == 0).tolist()),
        *_out_of_range(block),
        *_duplicates(block, name),
        *_no_choice(block, name),
        *_weights(block),
    ):
        first.setdefault(problem.row, problem)
    return [first[row] for row in sorted(first)]


def _name_of(item_names: Sequence[str], item: int) -> str:
    return item_names[item] if item < len(item_names) else str(item)


def check_rows(block: RankingBlock, first_row: int = 0, item_names: Sequence[str] | None = None) -> None:
    """Raise an error that names the first bad rows, if there are any. It uses item names if they are given.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> check_rows(RankingBlock.from_array([[0, 1], [1, 0]]))
    """
    problems = row_problems(block, item_names)
    if problems:
        shown = "; ".join(f"row {first_row + problem.row}: {problem.message}" for problem in problems[:3])
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise RankingError(f"{len(problems)} of {block.n_rankings} rankings are not valid: {shown}{more}")


def _out_of_range(block: RankingBlock) -> Iterator[RowProblem]:
    entries = np.flatnonzero(block.items >= block.n_items)
    rows = np.searchsorted(block.offsets, entries, side="right") - 1
    for row, item in zip(rows.tolist(), block.items[entries].tolist(), strict=True):
        message = f"item {item} is out of range: there are {block.n_items} items, numbered from 0"
        yield RowProblem(row, "out-of-range", item, message)


def _duplicates(block: RankingBlock, name: Callable[[int], str]) -> Iterator[RowProblem]:
    # Leaf by leaf, so that the processor's cache holds what is looked at.
    leaves = (block[row : row + SMALLEST_LEAF] for row in range(0, block.n_rankings, SMALLEST_LEAF))
    if not any(map(_may_repeat, leaves)):
        return
    # Sort by row, then by item: equal items of one row become neighbours.
    stride = max(block.n_items, int(block.items.max()) + 1)
    keys = block.row_of_item() * stride + block.items
    keys.sort()
    for key in np.unique(keys[1:][keys[1:] == keys[:-1]]).tolist():
        row, item = divmod(key, stride)
        shown = name(item)
        hint = " (if it marks an empty place, leave such cells empty)" if shown.casefold() in _NOTHING else ""
        yield RowProblem(row, "duplicate-item", item, f"item {shown} is listed twice{hint}")


def _may_repeat(block: RankingBlock) -> bool:
    """Whether a row of a few lists an item twice, found without sorting. True also if only sorting can decide."""
    items = block.items
    if not len(items):
        return False
    stride = int(items.max()) + 1
    if stride <= 64 and block.n_listed.all():
        bits = np.left_shift(np.uint64(1), items, dtype=np.uint64)
        n_distinct = np.bitwise_count(np.bitwise_or.reduceat(bits, block.offsets[:-1]))
        return not np.array_equal(n_distinct, block.n_listed)
    if block.n_rankings * stride > _MOST_CELLS * len(items):
        return True
    listed = np.zeros(block.n_rankings * stride, np.bool_)
    listed[block.row_of_item() * stride + items] = True
    return int(np.count_nonzero(listed)) < len(items)


def _no_choice(block: RankingBlock, name: Callable[[int], str]) -> Iterator[RowProblem]:
    # In int64, because n_items may not fit into the narrow type of the counts.
    n_offered = np.where(block.below, block.n_items, block.n_listed.astype(np.int64))
    for row in np.flatnonzero((n_offered < 2) & (block.n_ordered > 0)).tolist():
        item = int(block.items[block.offsets[row]])
        yield RowProblem(row, "single-item", item, f"item {name(item)} alone was on offer, so nothing was chosen")


def _weights(block: RankingBlock) -> Iterator[RowProblem]:
    if block.weights is None:
        return
    for row in np.flatnonzero(~((block.weights > 0) & (block.weights <= LARGEST_WEIGHT))).tolist():
        weight = float(block.weights[row])
        hint = "; write 1234.5, not 1,234.5" if np.isnan(weight) else ""
        message = f"weight {weight:g} is not a positive finite number{hint}"
        if LARGEST_WEIGHT < weight < np.inf:
            message = f"weight {weight:g} is too large to be summed: at most {LARGEST_WEIGHT:g}; divide all weights"
        yield RowProblem(row, "bad-weight", -1, message)


# Rows that are valid and say nothing: a tie of everything on offer has the same probability whatever the worths are.


def n_without_information(block: RankingBlock) -> int:
    """How many rows tie all items that were on offer, or order none of them."""
    silent = block.n_ordered == 0
    if block.tied is not None and block.n_rankings:
        n_tied = np.add.reduceat(block.tied, block.offsets[:-1], dtype=np.int64)
        silent |= (block.n_ordered == block.n_listed) & ~block.below & (n_tied + 1 == block.n_listed)
    return int(silent.sum())


def without_information(count: int, n_rankings: int) -> str:
    """How many rankings say nothing, in words."""
    return (
        f"{count:,} of {n_rankings:,} rankings tie all items that were on offer: they carry no information unless ties "
        'count half (ties="auto" or "half")'
    )


# Are items numbered from 0? An item 0 that no row lists is asked about, not invented.


def check_numbered_from_zero(smallest: int, largest: int, error: type[PlmixError] = RankingError) -> None:
    """An error if no row lists item 0, and the number of items was not given.

    `largest` is -1 if no row lists an item.
    """
    if largest < 0 or smallest == 0:
        return
    raise error(
        f"no row lists item 0: the items run from {smallest} to {largest}, but item numbers begin with 0. If these are "
        "numbered from 1, subtract 1 from every item. If item 0 exists and was never listed, say "
        f"n_items={largest + 1}, which keeps the numbers as they are"
    )
