"""The rank embedding: one number per ranking and item, the place of the item minus its expected place."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from plmix_dist.kernels import place_surprises
from plmix_dist.starts.one_model import fit_one_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock

# Rankings are short if they order less than this share of the items on average.
_SHORT_SHARE = 0.5


class PlaceRows:
    """The rank embedding (n_rankings, n_items) of a block: places, minus the mean of each column.

    If all items were offered, items that a row leaves unordered share the mean of their places. If only some items
    were offered, the place of an item depends on which other items were offered. The entry is then its place minus
    the place that one Plackett-Luce model for all rows expects among the offered items, and 0 for items that were not
    offered.

    Short rankings list popular items most often, so the places of popular items vary most and would dominate. If
    rankings order less than half of the items on average, columns are scaled to the same variance.

    Rows are stored as a sparse matrix, one number per row and one number per column, so that memory does not grow with
    the number of items.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> PlaceRows(RankingBlock.from_array([[0, 1, 2], [2, 1, 0]])).dense(0, 2).tolist()
    [[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]]
    """

    def __init__(self, block: RankingBlock) -> None:
        n_items = block.n_items
        self.weights = block.row_weights
        # Which rows were offered all items. From the others the expectation of one model is subtracted.
        self.offers_all = block.below | (block.n_listed == n_items)
        row, place = block.row_of_item(), block.place_of_item()
        n_ordered = block.n_ordered.astype(np.float64)
        # Places count from the middle; unordered items share the mean of the last n_items - n_ordered places.
        self.shared_place = np.where(self.offers_all, n_ordered / 2, 0.0)
        ordered = place < n_ordered[row]
        entries = np.where(ordered, place - (n_items - 1) / 2 - self.shared_place[row], 0.0)
        if not self.offers_all.all():
            entries = np.where(self.offers_all[row], entries, place_surprises(block, fit_one_model(block)[0]))
        self._listed = sparse.csr_array(
            (entries, block.items.astype(np.int32), block.offsets.astype(np.int32)),
            shape=(block.n_rankings, n_items),
        )
        self.scale = np.ones(n_items)
        if np.average(n_ordered, weights=self.weights) < _SHORT_SHARE * n_items:
            deviation = np.sqrt(self._variances())
            self.scale = np.divide(1.0, deviation, out=np.zeros(n_items), where=deviation > 0)

    def _variances(self) -> NDArray[np.float64]:
        """(n_items,): the mean square of each column, before scaling."""
        total = self.weights.sum()
        squares = self._listed.power(2).T @ self.weights
        # In rows that were offered all items, an entry is the stored number plus one of its row and one of its column.
        full = np.where(self.offers_all, self.weights, 0.0)
        listed = sparse.diags_array(full) @ self._listed
        own = self.shared_place
        cross = listed.T @ own - self.means * np.asarray(listed.sum(axis=0)).ravel()
        constant = full @ own**2 - 2 * self.means * (full @ own) + full.sum() * self.means**2
        return np.asarray(np.maximum((squares + 2 * cross + constant) / total, 0.0))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rankings, and the number of items."""
        return int(self._listed.shape[0]), int(self._listed.shape[1])

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """(n_items,): the mean place of each item over the rows that were offered all items."""
        weights = np.where(self.offers_all, self.weights, 0.0)
        total = weights.sum()
        if total == 0:
            return np.zeros(self.shape[1])
        return np.asarray((self._listed.T @ weights + weights @ self.shared_place) / total)

    def dense(self, start: int, stop: int) -> NDArray[np.float64]:
        """(stop - start, n_items): some rows.

        Examples
        --------
        >>> from plmix_dist.rankings import RankingBlock
        >>> PlaceRows(RankingBlock.from_array([[0, 1, 2], [2, 1, 0]])).dense(1, 2).tolist()
        [[1.0, 0.0, -1.0]]
        """
        offers_all = self.offers_all[start:stop, None]
        rows = self._listed[start:stop].toarray()
        rows += np.where(offers_all, self.shared_place[start:stop, None] - self.means, 0.0)
        rows *= self.scale
        return np.asarray(rows)

    def times(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_rankings, n_columns): all rows times a matrix (n_items, n_columns).

        Examples
        --------
        >>> from plmix_dist.rankings import RankingBlock
        >>> rows = PlaceRows(RankingBlock.from_array([[0, 1, 2], [2, 1, 0]]))
        >>> rows.times(np.array([[1.0], [0.0], [0.0]])).tolist()
        [[-1.0], [1.0]]
        """
        matrix = matrix * self.scale[:, None]
        constant = self.shared_place[:, None] * matrix.sum(axis=0) - self.means @ matrix
        return np.asarray(self._listed @ matrix + np.where(self.offers_all[:, None], constant, 0.0))

    def transposed_times(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_items, n_columns): the transpose times a matrix (n_rankings, n_columns).

        Examples
        --------
        >>> from plmix_dist.rankings import RankingBlock
        >>> rows = PlaceRows(RankingBlock.from_array([[0, 1, 2], [2, 1, 0]]))
        >>> rows.transposed_times(np.array([[1.0], [0.0]])).tolist()
        [[-1.0], [0.0], [1.0]]
        """
        full = np.where(self.offers_all[:, None], matrix, 0.0)
        unscaled = (
            self._listed.T @ matrix
            + (self.shared_place @ full)[None, :]
            - np.outer(self.means, full.sum(axis=0))
        )
        return np.asarray(unscaled * self.scale[:, None])
