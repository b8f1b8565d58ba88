"""Which rows belong together: all rows of one person (groups), runs of rows (leaves), equal rows.

Without groups every row is a person of its own, and a row of weight w stands for w persons. With groups a person counts
once, and the weight of a row is how often this person gave that ranking.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import RankingError
from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.columns import Floats


def check_groups(block: RankingBlock) -> None:
    """An error if the rows of a group are not consecutive: its person would count several times.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> check_groups(RankingBlock.from_array([[0, 1], [1, 0], [0, 1]]).replace(groups=np.array([7, 8, 7])))
    Traceback (most recent call last):
    plmix_dist.errors.RankingError: rows 0 and 2 have group 7, but rows between them do not: sort the rows by group
    """
    if block.groups is None:
        return
    starts = np.flatnonzero(block.group_starts)
    labels = block.groups[starts]
    order = np.argsort(labels, kind="stable")
    again = np.flatnonzero(labels[order[1:]] == labels[order[:-1]])
    if len(again):
        first, second = order[again[0]], order[again[0] + 1]
        raise RankingError(
            f"rows {starts[first]} and {starts[second]} have group {labels[first]}, but rows between them do not: "
            "sort the rows by group"
        )


def membership_weight(block: RankingBlock) -> float:
    """The weight of all memberships: the number of persons with groups, the total weight of the rows without.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]], weights=[2, 1, 1])
    >>> membership_weight(block), membership_weight(block.replace(groups=np.array([7, 7, 8])))
    (4.0, 2.0)
    """
    return block.total_weight if block.groups is None else float(person_weights(block).sum())


def n_memberships(block: RankingBlock) -> int:
    """The number of memberships: persons with groups, rows without.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]])
    >>> n_memberships(block), n_memberships(block.replace(groups=np.array([7, 7, 8])))
    (3, 2)
    """
    return block.n_rankings if block.groups is None else int(np.count_nonzero(block.group_starts))


def person_of_row(block: RankingBlock) -> NDArray[np.int64]:
    """(n_rankings,): the number of the person who gave each row, from 0.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]])
    >>> person_of_row(block.replace(groups=np.array([7, 7, 8]))).tolist()
    [0, 0, 1]
    """
    return np.cumsum(block.group_starts) - 1


def person_weights(block: RankingBlock) -> Floats:
    """(n_persons,): how many persons each person of a block stands for.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0], [0, 1]], weights=[2, 2, 1]).replace(groups=np.array([7, 7, 8]))
    >>> person_weights(block).tolist(), person_weights(block.replace(within=np.array([0.5, 0.5, 1]))).tolist()
    ([1.0, 1.0], [4.0, 1.0])
    """
    if block.groups is None:
        return block.row_weights
    starts = block.group_starts
    if block.within is None:
        return np.ones(np.count_nonzero(starts))
    return block.row_weights[starts] / block.within[starts]


def weights_within(block: RankingBlock) -> Floats:
    """(n_rankings,): how often its person gave each row; orders of one ranking have shares of it."""
    return block.row_weights if block.within is None else block.within


# Shares of a person: a multinomial logit on columns of the person.


def log_shares_at(covariates: Floats, coefficients: Floats) -> Floats:
    """(n_rows, n_components): log-shares of each row.

    Columns are added one after the other, so the bits of a row depend on nothing but the row.

    Examples
    --------
    >>> np.exp(log_shares_at(np.array([[0.0], [1.0]]), np.array([[0.0, 0.0], [0.0, np.log(3)]]))).round(6).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    # Components by rows: NumPy is slow along short last axes.
    logits = np.tile(coefficients[:, :1], (1, len(covariates)))
    for column in range(covariates.shape[1]):
        logits += coefficients[:, column + 1, None] * covariates[:, column]
    logits -= logits.max(axis=0)
    logits -= np.log(np.exp(logits).sum(axis=0))
    return np.ascontiguousarray(logits.T)


def with_person_shares(block: RankingBlock, coefficients: Floats) -> RankingBlock:
    """The block with the log-shares of each row, made from its covariates.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1]]).replace(covariates=np.array([[1.0]]))
    >>> shared = with_person_shares(block, np.array([[0.0, 0.0], [0.0, np.log(3)]]))
    >>> np.exp(shared.log_shares).round(6).tolist()
    [[0.25, 0.75]]
    """
    assert block.covariates is not None, "shares of persons need covariates"
    return block.replace(log_shares=log_shares_at(block.covariates, coefficients))


def row_runs(block: RankingBlock, n_rows: int) -> Iterator[RankingBlock]:
    """Runs of about `n_rows` rows, at least one; the rows of a group stay together."""
    if not block.n_rankings:
        yield block
    starts = np.append(np.flatnonzero(block.group_starts), block.n_rankings)
    first = 0
    while first < block.n_rankings:
        last = int(starts[min(int(np.searchsorted(starts, first + n_rows)), len(starts) - 1)])
        yield block[first:last]
        first = last


# Leaves: fixed runs of rows. Every sum is formed leaf by leaf, so bits do not depend on chunks or workers.

SMALLEST_LEAF = 4096


def default_leaf_rows(n_items: int) -> int:
    """Rows per leaf: 4,096, and more for many items, so that adding statistics costs little beside the rows.

    Examples
    --------
    >>> default_leaf_rows(100), default_leaf_rows(20_000)
    (4096, 65536)
    """
    return max(SMALLEST_LEAF, 1 << (2 * n_items - 1).bit_length())


def cut_leaves(n_rows: int, leaf_rows: int, group_starts: NDArray[np.bool_] | None = None) -> list[int]:
    """Number of rows of each leaf of a partition.

    Leaves have `leaf_rows` rows; the last has the rest. With groups a leaf ends earlier, after the last
    group that fits. A group larger than a leaf is a leaf of its own.

    Shapes: group_starts (n_rows,).

    Examples
    --------
    >>> cut_leaves(10, 4)
    [4, 4, 2]
    >>> cut_leaves(6, 4, np.array([True, False, False, True, False, False]))
    [3, 3]
    """
    if group_starts is None:
        full, rest = divmod(n_rows, leaf_rows)
        return [leaf_rows] * full + ([rest] if rest else [])
    boundaries = np.append(np.flatnonzero(group_starts), n_rows)
    leaves = []
    start = 0
    while start < n_rows:
        end = int(boundaries[np.searchsorted(boundaries, start + leaf_rows, side="right") - 1])
        if end <= start:
            end = int(boundaries[np.searchsorted(boundaries, start, side="right")])
        leaves.append(end - start)
        start = end
    return leaves


# Equal rows: merged into one row with the sum of their weights.

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
    kept, slot = np.unique(_first_equal_row(block), return_inverse=True)
    weights = np.bincount(slot, weights=block.weights, minlength=len(kept)).astype(np.float64)
    return block.replace(ids=None).take(kept).replace(weights=weights)


def merge_if_short(block: RankingBlock) -> RankingBlock:
    """Merge equal rows if the rankings are short. Long rankings rarely repeat, and the search costs time.

    What does not matter to a fit, ids and sides, is left out.
    Blocks with groups, and blocks of more than 8 items per ranking on average, are returned as they are.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> merge_if_short(RankingBlock.from_array([[0, 1], [0, 1]])).weights.tolist()
    [2.0]
    """
    if block.groups is not None or len(block.items) > _SHORT * block.n_rankings:
        return block
    return merge_equal_rows(block.replace(sides=None))


def _first_equal_row(block: RankingBlock) -> NDArray[np.int64]:
    """(n_rankings,): the number of the first row that equals each row."""
    first_of = np.empty(block.n_rankings, np.int64)
    for length in np.unique(block.n_listed).tolist():
        rows = np.flatnonzero(block.n_listed == length)
        _, first, slot = np.unique(_row_keys(block, rows, length), return_index=True, return_inverse=True)
        first_of[rows] = rows[first][slot]
    return first_of


def _row_keys(block: RankingBlock, rows: NDArray[np.int64], length: int) -> NDArray[Any]:
    """(rows,): one key of fixed width per row. Rows of one length are equal if their keys are.

    Short keys are numbers, which are sorted several times as fast as bytes.
    """
    at: Any = slice(None)
    entries: Any = slice(None)  # all rows stand side by side as they are
    if len(rows) < block.n_rankings:
        at, entries = rows, (block.offsets[:-1][rows][:, None] + np.arange(length)).ravel()
    parts = [
        np.ascontiguousarray(block.n_ordered[at][:, None]).view(np.uint8),
        block.below[at][:, None].view(np.uint8),
        np.ascontiguousarray(block.items[entries]).view(np.uint8).reshape(len(rows), -1),
    ]
    if block.sides is not None:
        parts.append(block.sides[at][:, None].view(np.uint8))
    if block.tied is not None:
        parts.append(block.tied[entries].view(np.uint8).reshape(len(rows), -1))
    table = np.ascontiguousarray(np.concatenate(parts, axis=1))
    if table.shape[1] <= 8:
        return np.pad(table, ((0, 0), (0, 8 - table.shape[1]))).view(np.uint64).ravel()
    return table.view(np.dtype((np.void, table.shape[1]))).ravel()
