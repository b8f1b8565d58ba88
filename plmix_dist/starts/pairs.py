"""Rankings as rows of numbers, one a pair of items: which of the two comes first (the paper's embedding)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class PairRows:
    """The pairwise embedding (n_rankings, n_pairs) of a block, made slab by slab.

    The entry of a pair (i, j), i < j, is 1 where i comes before j and 0 where j does, less the pair's mean over the
    rows that tell; a row that does not tell has the mean itself, so 0. Rows are scaled by the root of their weights.

    Parameters
    ----------
    frequencies : (n_items, n_items)
        How often i comes before j in the rows that tell.
    centred
        Whether the means are taken off; the paper leaves them in.
    """

    def __init__(
        self, block: RankingBlock, frequencies: NDArray[np.float64], *, centred: bool = True
    ) -> None:
        self.block = block
        self.frequencies = frequencies
        self.centred = centred

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        n_items = self.block.n_items
        return self.block.n_rankings, n_items * (n_items - 1) // 2

    def scaled(self, start: int, stop: int) -> NDArray[np.float64]:
        """(stop - start, n_pairs): some rows, scaled by the root of their weights."""
        rows = self.dense(start, stop)
        if self.block.weights is not None:
            rows *= np.sqrt(self.block.weights[start:stop, None])
        return rows

    def dense(self, start: int, stop: int) -> NDArray[np.float64]:
        """(stop - start, n_pairs): some rows."""
        block = self.block[start:stop]
        places = place_table(block)
        tells_all = bool((block.n_ordered == block.n_items).all())
        rows = np.empty((block.n_rankings, self.shape[1]))
        first = 0
        for item in range(block.n_items - 1):
            here, others = places[:, item, None], places[:, item + 1 :]
            means = self.frequencies[item, item + 1 :]
            entries = rows[:, first : first + others.shape[1]]
            np.subtract(here < others, means, out=entries)
            if not tells_all:
                entries[~((here < others) | (here > others))] = 0.0
            if not self.centred:
                entries += means
            first += others.shape[1]
        return rows


def place_table(block: RankingBlock) -> NDArray[np.float64]:
    """(n_rankings, n_items): the place of each item; equal where the row does not tell, NaN where it was not on offer.

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
    """(n_items, n_items): how often i comes before j where a row tells; a half where none does."""
    seen = wins + wins.T
    return np.divide(wins, seen, out=np.full_like(wins, 0.5), where=seen > 0)
