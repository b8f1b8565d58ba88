"""What a row says about each item: its place, how many items come before it, whether its place is still open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class RowPlaces(NamedTuple):
    """The places of all items in each row. All arrays have the shape (n_rankings, n_items).

    Parameters
    ----------
    place
        The number of the place, from 0; tied items share one. Items on offer that are not ordered share the last place.
        Items not on offer have -1.
    before
        How many items have an earlier place.
    size
        How many items share the place.
    is_open
        Whether the item was on offer and is not ordered.

    Examples
    --------
    >>> from plmix_dist.rankings import Ranking, RankingBlock
    >>> block = RankingBlock.from_rows([Ranking(((2,), (0, 1)), (3,), "absent", 1.0)], n_items=5)
    >>> places = row_places(block)
    >>> places.place.tolist(), places.before.tolist(), places.size.tolist()
    ([[1, 1, 0, 2, -1]], [[1, 1, 0, 3, 0]], [[2, 2, 1, 1, 0]])
    """

    place: NDArray[np.int64]
    before: NDArray[np.int64]
    size: NDArray[np.int64]
    is_open: NDArray[np.bool_]

    def rows(self, start: int, stop: int) -> RowPlaces:
        """The rows from `start` to `stop`."""
        return RowPlaces(
            self.place[start:stop], self.before[start:stop], self.size[start:stop], self.is_open[start:stop]
        )

    def ties(self) -> Iterator[Tied]:
        """Ordered items that are tied, the ties of one size at a time."""
        inside = (self.size > 1) & ~self.is_open
        if not inside.any():
            return
        rows, items = np.nonzero(inside)
        order = np.lexsort((items, self.place[rows, items], rows))
        rows, items = rows[order], items[order]
        sizes = self.size[rows, items]
        for size in np.unique(sizes).tolist():
            chosen = sizes == size
            table = items[chosen].reshape(-1, size)
            owner = rows[chosen].reshape(-1, size)[:, 0]
            after = self.place[owner] > self.place[owner, table[:, 0]][:, None]
            yield Tied(owner, table, after)


class Tied(NamedTuple):
    """Ties of one size.

    Parameters
    ----------
    row : (n_ties,)
    items : (n_ties, n_tied)
    after : (n_ties, n_items)
        True for the items on offer that come after the tie.
    """

    row: NDArray[np.int64]
    items: NDArray[np.int64]
    after: NDArray[np.bool_]

    def log_rest(self, log_worths: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_ties,): the logarithm of the total worth after each tie, from the log-worths (n_items,) of a component."""
        found: NDArray[np.float64] = np.logaddexp.reduce(np.where(self.after, log_worths, -np.inf), axis=1)
        return found


def row_places(block: RankingBlock) -> RowPlaces:
    """The places of all items in each row. A tied last place of everything on offer is open.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below")
    >>> row_places(block).is_open.tolist()
    [[True, True, False]]
    """
    block = unorder_last_ties(block)
    n_rows, n_items = block.n_rankings, block.n_items
    row, column = block.row_of_item(), block.place_of_item()
    ordered = column < block.n_ordered.astype(np.int64)[row]
    starts = ordered if block.tied is None else ordered & ~block.tied
    so_far = np.concatenate([[0], np.cumsum(starts)])
    number = so_far[1:] - so_far[block.offsets[:-1]][row] - 1
    n_places = so_far[block.offsets[1:]] - so_far[block.offsets[:-1]]
    place = np.where(block.below, n_places, -1)[:, None] * np.ones(n_items, np.int64)
    place[row, block.items.astype(np.intp)] = np.where(ordered, number, n_places[row])
    is_open = place == n_places[:, None]
    on_offer = place >= 0
    keys = np.arange(n_rows)[:, None] * (n_items + 1) + np.maximum(place, 0)
    counts = np.bincount(keys[on_offer], minlength=n_rows * (n_items + 1)).reshape(n_rows, n_items + 1)
    earlier = np.cumsum(counts, axis=1) - counts
    at = np.maximum(place, 0)
    size = np.where(on_offer, np.take_along_axis(counts, at, axis=1), 0)
    before = np.where(on_offer, np.take_along_axis(earlier, at, axis=1), 0)
    return RowPlaces(place, before, size, is_open)
