"""Merging equal rows into one row with the sum of their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import RankingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings.block import RankingBlock

_SHORT = 8


def merge_equal_rows(block: RankingBlock) -> RankingBlock:
    """Keep the first of each set of equal rows, with the sum of their weights.

    Ids are dropped, because a merged row stands for several rankings. Rows with groups are an error,
    because equal rankings of two people must stay separate.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> merged = merge_equal_rows(RankingBlock.from_array([[0, 1], [1, 0], [0, 1]]))
    >>> merged.to_array().tolist(), merged.weights.tolist()
    ([[0, 1], [1, 0]], [2.0, 1.0])
    """
    if block.groups is not None:
        raise RankingError("rankings with groups cannot be merged; leave out the groups, or do not merge")
    first_of = _first_equal_row(block)
    kept, slot = np.unique(first_of, return_inverse=True)
    weights = np.bincount(slot, weights=block.weights, minlength=len(kept)).astype(np.float64)
    return block.replace(ids=None).take(kept).replace(weights=weights)


def merge_if_short(block: RankingBlock) -> RankingBlock:
    """Merge equal rows if the rankings are short. Long rankings rarely repeat, and the search costs time.

    Blocks with groups, and blocks of more than 8 items per ranking on average, are returned as they are.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> merge_if_short(RankingBlock.from_array([[0, 1], [0, 1]])).weights.tolist()
    [2.0]
    """
    if block.groups is not None or len(block.items) > _SHORT * block.n_rankings:
        return block
    return merge_equal_rows(block)


def _first_equal_row(block: RankingBlock) -> NDArray[np.int64]:
    """(n_rankings,): the number of the first row that equals each row."""
    first_of = np.empty(block.n_rankings, np.int64)
    for length in np.unique(block.n_listed).tolist():
        rows = np.flatnonzero(block.n_listed == length)
        _, first, slot = np.unique(_row_keys(block, rows, length), return_index=True, return_inverse=True)
        first_of[rows] = rows[first][slot]
    return first_of


def _row_keys(block: RankingBlock, rows: NDArray[np.int64], length: int) -> NDArray[np.void]:
    """(rows,): one key of fixed width per row. Rows of one length are equal if their keys are."""
    entries = block.offsets[:-1][rows][:, None] + np.arange(length)
    parts = [
        np.ascontiguousarray(block.n_ordered[rows].astype(np.uint64)[:, None]).view(np.uint8),
        block.below[rows][:, None].view(np.uint8),
        np.ascontiguousarray(block.items[entries]).view(np.uint8).reshape(len(rows), -1),
    ]
    if block.tied is not None:
        parts.append(block.tied[entries].view(np.uint8))
    table = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return table.view(np.dtype((np.void, table.shape[1]))).ravel()
