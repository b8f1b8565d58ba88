"""The pairwise embedding: one number per ranking and pair of items, which of the two comes first (the paper's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class PairRows:
    """The pairwise embedding (n_rankings, n_pairs) of a block. Rows are made when they are needed.

    For a pair (i, j) with i < j, the entry is 1 if i comes before j and 0 if j comes before i, minus the mean of the
    pair over the rows that order it. A row that does not order the pair has the mean as its entry, so 0 after
    centring.

    Parameters
    ----------
    block
        The rankings.
    frequencies : (n_items, n_items)
        How often i comes before j in the rows that order the pair.
    centred
        Whether the means are subtracted. The paper does not subtract them.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [0, 1], [1, 0], [0, 1]])
    >>> PairRows(block, np.array([[0.5, 0.75], [0.25, 0.5]])).dense(0, 4).tolist()
    [[0.25], [0.25], [-0.75], [0.25]]
    """

    def __init__(
        self, block: RankingBlock, frequencies: NDArray[np.float64], *, centred: bool = True
    ) -> None:
        self.block = block
        self.frequencies = frequencies
        self.centred = centred

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rankings, and the number of pairs."""
        n_items = self.block.n_items
        return self.block.n_rankings, n_items * (n_items - 1) // 2

    def scaled(self, start: int, stop: int) -> NDArray[np.float64]:
        """(stop - start, n_pairs): some rows, multiplied by the square root of their weights.

        Examples
        --------
        >>> from plmix_dist.rankings import RankingBlock
        >>> block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[4, 4])
        >>> PairRows(block, np.full((2, 2), 0.5)).scaled(0, 2).tolist()
        [[1.0], [-1.0]]
        """
        rows = self.dense(start, stop)
        if self.block.weights is not None:
            rows *= np.sqrt(self.block.weights[start:stop, None])
        return rows

    def dense(self, start: int, stop: int) -> NDArray[np.float64]:
        """(stop - start, n_pairs): some rows.

        Examples
        --------
        >>> from plmix_dist.rankings import RankingBlock
        >>> block = RankingBlock.from_array([[0, 1], [1, 0]])
        >>> PairRows(block, np.full((2, 2), 0.5), centred=False).dense(1, 2).tolist()
        [[0.0]]
        """
        block = self.block[start:stop]
        places = place_table(block)
        orders_all = bool((block.n_ordered == block.n_items).all())
        rows = np.empty((block.n_rankings, self.shape[1]))
        first = 0
        for item in range(block.n_items - 1):
            here, others = places[:, item, None], places[:, item + 1 :]
            means = self.frequencies[item, item + 1 :]
            entries = rows[:, first : first + others.shape[1]]
            if self.centred:
                np.subtract(here < others, means, out=entries)
            else:
                np.copyto(entries, here < others)
            if not orders_all:
                unknown = 0.0 if self.centred else np.broadcast_to(means, entries.shape)
                np.copyto(entries, unknown, where=~((here < others) | (here > others)))
            first += others.shape[1]
        return rows


def place_table(block: RankingBlock) -> NDArray[np.float64]:
    """(n_rankings, n_items): the place of each item; NaN if it was not offered.

    Items that a row leaves unordered have the same place.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> place_table(RankingBlock.from_array([[2, 0]], n_items=4, unranked="below")).tolist()
    [[1.0, 4.0, 0.0, 4.0]]
    """
    last = float(block.n_items)
    table = np.where(block.below[:, None], last, np.nan)
    table = np.broadcast_to(table, (block.n_rankings, block.n_items)).copy()
    row, place = block.row_of_item(), block.place_of_item()
    table[row, block.items] = np.where(place < block.n_ordered[row], place, last)
    return table


def pair_frequencies(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_items, n_items): how often i comes before j in the rows that order the pair; 0.5 if there are none.

    Parameters
    ----------
    wins : (n_items, n_items)
        Entry [i, j] is how often i was ranked before j.

    Examples
    --------
    >>> pair_frequencies(np.array([[0.0, 3.0], [1.0, 0.0]])).tolist()
    [[0.5, 0.75], [0.25, 0.5]]
    """
    seen = wins + wins.T
    return np.divide(wins, seen, out=np.full_like(wins, 0.5), where=seen > 0)
