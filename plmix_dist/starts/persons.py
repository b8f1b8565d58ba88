"""Persons as points: the rows that one person gave, averaged into one row of the rank embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from plmix_dist.rankings.groups import person_of_row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock
    from plmix_dist.starts.places import PlaceRows


class PersonRows:
    """The rank embedding (n_persons, n_items) of persons: the weighted mean of the rows of each.

    One ranking of two items tells next to nothing about the component of its person. Many of them together do, so rows
    are averaged before directions and clusters are looked for. A person weighs as much as all its rows.

    Parameters
    ----------
    rows
        The embedding of the rankings.
    block
        The rankings, with groups.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.starts.places import PlaceRows
    >>> block = RankingBlock.from_array([[0, 1, 2], [1, 0, 2], [2, 1, 0]]).replace(groups=np.array([0, 0, 1]))
    >>> PersonRows(PlaceRows(block), block).dense(0, 2).round(2).tolist()
    [[-0.5, -0.17, 0.67], [1.0, 0.33, -1.33]]
    """

    def __init__(self, rows: PlaceRows, block: RankingBlock) -> None:
        self.rows = rows
        self.person = person_of_row(block)
        weights = block.row_weights
        self.weights: NDArray[np.float64] = np.bincount(self.person, weights).astype(np.float64)
        self.first_row = np.append(np.flatnonzero(block.group_starts), block.n_rankings)
        self._mean = sparse.csr_array(
            (weights / self.weights[self.person], np.arange(block.n_rankings), self.first_row),
            shape=(len(self.weights), block.n_rankings),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The number of persons, and the number of items."""
        return len(self.weights), self.rows.shape[1]

    def dense(self, start: int, stop: int) -> NDArray[np.float64]:
        """(stop - start, n_items): some persons."""
        stop = min(stop, len(self.weights))
        first, last = int(self.first_row[start]), int(self.first_row[stop])
        means = self._mean[start:stop, first:last] @ self.rows.dense(first, last)
        return np.asarray(means)

    def times(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_persons, n_columns): all persons times a matrix (n_items, n_columns)."""
        return np.asarray(self._mean @ self.rows.times(matrix))

    def transposed_times(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_items, n_columns): the transpose times a matrix (n_persons, n_columns)."""
        return self.rows.transposed_times(np.asarray(self._mean.T @ matrix))
