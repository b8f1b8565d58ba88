"""Checks of rows, for a whole block at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.errors import RankingError
from plmix_dist.rankings.leaves import SMALLEST_LEAF
from plmix_dist.rankings.ranges import LARGEST_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plmix_dist.rankings.block import RankingBlock

# A table of rows by items may have this many cells per listed item; beyond that, sorting is faster.
_MOST_CELLS = 32
# What people write into cells that hold nothing.
_NOTHING = frozenset({"n/a", "na", "nan", "none", "null", "nil", "-", "--", ".", "?", "missing", "no answer"})


class RowProblem(NamedTuple):
    """One fault of one row: `kind` is a fixed word, `item` is the item concerned or -1.

    Examples
    --------
    >>> RowProblem(row=0, kind="empty", item=-1, message="no item is ranked").kind
    'empty'
    """

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
        *_empty(block),
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


def _empty(block: RankingBlock) -> Iterator[RowProblem]:
    for row in np.flatnonzero(block.n_ordered == 0).tolist():
        yield RowProblem(row, "empty", -1, "no item is ranked")


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
    """Whether a row of a few lists an item twice, found without sorting. True also if only sorting can tell."""
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
        message = f"item {name(item)} alone was on offer, so nothing was chosen"
        yield RowProblem(row, "single-item", item, message)


def _weights(block: RankingBlock) -> Iterator[RowProblem]:
    if block.weights is None:
        return
    good = (block.weights > 0) & (block.weights <= LARGEST_WEIGHT)
    for row in np.flatnonzero(~good).tolist():
        weight = float(block.weights[row])
        message = f"weight {weight:g} is not a positive finite number"
        if LARGEST_WEIGHT < weight < np.inf:
            message = (
                f"weight {weight:g} is too large to be summed: at most {LARGEST_WEIGHT:g}; divide all weights"
            )
        yield RowProblem(row, "bad-weight", -1, message)
