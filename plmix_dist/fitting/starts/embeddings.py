"""Rankings as vectors: the rank embedding (one number per item), the pairwise one (per pair), and means of persons."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse

from plmix_dist.fitting.starts.clusters import fit_one_model
from plmix_dist.kernels import place_surprises
from plmix_dist.rankings import Floats, RankingBlock, person_of_row

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
    """

    def __init__(self, block: RankingBlock) -> None:
        n_items = block.n_items
        self.weights = block.row_weights
        # Which rows were offered all items. From the others the expectation of one model is subtracted.
        self.offers_all = block.below | (block.n_listed == n_items)
        place, n_ordered = block.place_of_item(), block.n_ordered.astype(np.float64)
        # Places count from the middle; unordered items share the mean of the last n_items - n_ordered places.
        self.shared_place = np.where(self.offers_all, n_ordered / 2, 0.0)
        entries = place - np.repeat((n_items - 1) / 2 + self.shared_place, block.n_listed)
        if (n_ordered < block.n_listed).any():
            entries[place >= np.repeat(n_ordered, block.n_listed)] = 0.0
        if not self.offers_all.all():
            offered = np.repeat(self.offers_all, block.n_listed)
            entries = np.where(offered, entries, place_surprises(block, fit_one_model(block)[0]))
        self._listed = sparse.csr_array(
            (entries, block.items.astype(np.int32), block.offsets.astype(np.int32)), shape=(block.n_rankings, n_items)
        )
        self.scale = np.ones(n_items)
        if np.average(n_ordered, weights=self.weights) < _SHORT_SHARE * n_items:
            deviation = np.sqrt(self._variances())
            self.scale = np.divide(1.0, deviation, out=np.zeros(n_items), where=deviation > 0)

    def _variances(self) -> Floats:
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
    def means(self) -> Floats:
        """(n_items,): the mean place of each item over the rows that were offered all items."""
        weights = np.where(self.offers_all, self.weights, 0.0)
        total = weights.sum()
        if total == 0:
            return np.zeros(self.shape[1])
        return np.asarray((self._listed.T @ weights + weights @ self.shared_place) / total)

    def dense(self, start: int, stop: int) -> Floats:
        """(stop - start, n_items): some rows."""
        offers_all = self.offers_all[start:stop, None]
        rows = self._listed[start:stop].toarray()
        rows += np.where(offers_all, self.shared_place[start:stop, None] - self.means, 0.0)
        rows *= self.scale
        return np.asarray(rows)

    def times(self, matrix: Floats) -> Floats:
        """(n_rankings, n_columns): all rows times a matrix (n_items, n_columns)."""
        matrix = matrix * self.scale[:, None]
        constant = self.shared_place[:, None] * matrix.sum(axis=0) - self.means @ matrix
        return np.asarray(self._listed @ matrix + np.where(self.offers_all[:, None], constant, 0.0))

    def transposed_times(self, matrix: Floats) -> Floats:
        """(n_items, n_columns): the transpose times a matrix (n_rankings, n_columns)."""
        full = np.where(self.offers_all[:, None], matrix, 0.0)
        unscaled = (
            self._listed.T @ matrix + (self.shared_place @ full)[None, :] - np.outer(self.means, full.sum(axis=0))
        )
        return np.asarray(unscaled * self.scale[:, None])


# The pairwise embedding: one number per ranking and pair of items, which of the two comes first (the paper's).


class PairRows:
    """The pairwise embedding (n_rankings, n_pairs) of a block. Rows are made when they are needed.

    For a pair (i, j) with i < j, the entry is 1 if i comes before j and 0 if j comes before i, minus the mean of the
    pair over the rows that order it, which `frequencies` (n_items, n_items) has. A row that does not order the pair has
    the mean as its entry, so 0 after centring. The paper does not subtract means.
    """

    def __init__(self, block: RankingBlock, frequencies: Floats, *, centred: bool = True) -> None:
        self.block = block
        self.frequencies = frequencies
        self.centred = centred

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rankings, and the number of pairs."""
        n_items = self.block.n_items
        return self.block.n_rankings, n_items * (n_items - 1) // 2

    def scaled(self, start: int, stop: int) -> Floats:
        """(stop - start, n_pairs): some rows, multiplied by the square root of their weights."""
        rows = self.dense(start, stop)
        if self.block.weights is not None:
            rows *= np.sqrt(self.block.weights[start:stop, None])
        return rows

    def dense(self, start: int, stop: int) -> Floats:
        """(stop - start, n_pairs): some rows."""
        block = self.block[start:stop]
        places = _place_table(block)
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


def _place_table(block: RankingBlock) -> Floats:
    """(n_rankings, n_items): the place of each item; NaN if it was not offered.

    Items that a row leaves unordered have the same place.
    """
    last = float(block.n_items)
    table = np.where(block.below[:, None], last, np.nan)
    table = np.broadcast_to(table, (block.n_rankings, block.n_items)).copy()
    row, place = block.row_of_item(), block.place_of_item()
    table[row, block.items] = np.where(place < block.n_ordered[row], place, last)
    return table


def pair_frequencies(wins: Floats) -> Floats:
    """(n_items, n_items): how often i comes before j, of the rows that order the pair; 0.5 if there are none."""
    seen = wins + wins.T
    return np.divide(wins, seen, out=np.full_like(wins, 0.5), where=seen > 0)


# Persons as points: the rows that one person gave, averaged into one row of the rank embedding.


class PersonRows:
    """The rank embedding (n_persons, n_items) of persons: the weighted mean of the rows of each.

    One ranking of two items holds little information about the component of its person, many together hold more: rows
    are averaged before directions and clusters are looked for. A person weighs as much as all its rows.
    """

    def __init__(self, rows: PlaceRows, block: RankingBlock) -> None:
        self.rows = rows
        self.person = person_of_row(block)
        weights = block.row_weights
        self.weights: Floats = np.bincount(self.person, weights).astype(np.float64)
        self.first_row = np.append(np.flatnonzero(block.group_starts), block.n_rankings)
        self._mean = sparse.csr_array(
            (weights / self.weights[self.person], np.arange(block.n_rankings), self.first_row),
            shape=(len(self.weights), block.n_rankings),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The number of persons, and the number of items."""
        return len(self.weights), self.rows.shape[1]

    def dense(self, start: int, stop: int) -> Floats:
        """(stop - start, n_items): some persons."""
        stop = min(stop, len(self.weights))
        first, last = int(self.first_row[start]), int(self.first_row[stop])
        return np.asarray(self._mean[start:stop, first:last] @ self.rows.dense(first, last))

    def times(self, matrix: Floats) -> Floats:
        """(n_persons, n_columns): all persons times a matrix (n_items, n_columns)."""
        return np.asarray(self._mean @ self.rows.times(matrix))

    def transposed_times(self, matrix: Floats) -> Floats:
        """(n_items, n_columns): the transpose times a matrix (n_persons, n_columns)."""
        return self.rows.transposed_times(np.asarray(self._mean.T @ matrix))
