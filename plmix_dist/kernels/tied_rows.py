"""Rows with ties: the sum over all their orders, and the expected statistics that EM needs.

A row is a sequence of places. A place has one item, or several tied items, in any order. What comes after a place has a
total worth W, whatever the order within the place. So the probability of a row is the product over its places of the
probability that the items of the place come first among what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.kernels import tied_places
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.rankings import Floats, RankingBlock, unorder_last_ties

# Up to this many tied items the recursion over subsets is faster than the integral.
_MOST_BY_SUBSETS = 6
# Numbers held at once: subsets or nodes times cases.
_MOST_NUMBERS = 1 << 21
_NODES = 256
# Rows times items held at once, for rows whose unlisted items rank below.
_MOST_CELLS = 1 << 22


class PlaceSums(NamedTuple):
    """What is known at given parameters."""

    # logs, offers (n_places, n_components): as in `TieSums`.
    logs: Floats
    offers: Floats
    # (n_entries, n_components): expected wins of each item at its own place; 0 for items that are not ordered.
    expected: Floats


@dataclass(frozen=True)
class TiedRows:
    """The rows of a block that have ties, cut into places.

    Examples
    --------
    >>> from plmix_dist.rankings import Ranking, RankingBlock
    >>> rows = [Ranking(((0,), (1,), (2,)), (), "absent", 1.0), Ranking(((1, 2), (0,)), (), "absent", 1.0)]
    >>> ties = TiedRows.of(RankingBlock.from_rows(rows, n_items=3))
    >>> ties.numbers.tolist(), ties.sizes.tolist()
    ([1], [2, 1])
    """

    # These rows alone.
    block: RankingBlock
    # (n_rows,): their numbers in the whole block.
    numbers: NDArray[np.int64]
    # starts, sizes, row (n_places,): the first entry of each place in `block.items`, how many items it has, and its
    # row.
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    row: NDArray[np.int64]
    # (n_rows + 1,): the first place of each row, and the end.
    first_place: NDArray[np.int64]

    @classmethod
    def of(cls, block: RankingBlock) -> TiedRows | None:
        """The rows with ties; None if there are none."""
        block = unorder_last_ties(block)
        if block.tied is None or not block.has_ties:
            return None
        numbers = np.unique(np.searchsorted(block.offsets, np.flatnonzero(block.tied), side="right") - 1)
        rows = block.replace(ids=None, groups=None).take(numbers)
        assert rows.tied is not None
        owner, place = rows.row_of_item(), rows.place_of_item()
        ordered = place < rows.n_ordered[owner]
        begins = ordered & ~rows.tied
        starts = np.flatnonzero(begins)
        of_place = np.cumsum(begins) - 1
        sizes = np.bincount(of_place[ordered], minlength=len(starts))
        row = owner[starts]
        return cls(rows, numbers, starts, sizes, row, np.searchsorted(row, np.arange(rows.n_rankings + 1)))

    def logs(self, at: PlaceSums) -> Floats:
        """(n_rows, n_components): log Pr(row | component)."""
        return np.add.reduceat(at.logs, self.first_place[:-1], axis=0)

    def sums(self, params: Prepared, at: PlaceSums, posteriors: Floats) -> tuple[Floats, Floats, Floats]:
        """Expected log-likelihood (n_components,), wins and expected wins (n_components, n_items) of all rows.

        `at` is what `places` gives for the parameters; posteriors are (n_rows, n_components).
        """
        block = self.block
        owner, items = block.row_of_item(), block.items.astype(np.intp)
        share = block.row_weights[:, None] * posteriors
        log_likelihood = (share * self.logs(at)).sum(axis=0)
        before, whole = self._offers_before(at.offers)
        worths = _worths(params)
        # Each entry was on offer at all places before its own, and at its own.
        of_entry = self._place_of_entry()
        ordered = of_entry >= 0
        earlier = np.where(ordered[:, None], before[np.maximum(of_entry, 0)], whole[owner])
        expected = share[owner] * (at.expected + worths[items] * earlier)
        won = share[owner] * self._is_choice()[:, None]
        wins, expected_wins = np.zeros((2, params.n_components, params.n_items))
        for component in range(params.n_components):
            wins[component] = np.bincount(items, won[:, component], params.n_items)
            expected_wins[component] = np.bincount(items, expected[:, component], params.n_items)
        for rows, unlisted in self._unlisted():
            expected_wins += np.einsum("ri,rk->ki", unlisted, share[rows] * whole[rows]) * worths.T
        return log_likelihood, wins, expected_wins

    def drawn(
        self, params: Prepared, components: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.unsignedinteger]:
        """(n_entries,): the items of all rows, tied ones in an order drawn given the component (n_rows,) of each row.

        `rng` draws two numbers per place, and one per item.
        """
        worths, items = _worths(params), self.block.items
        of_items = worths[items.astype(np.intp)]
        rest = self._worth_after(of_items, worths)[np.arange(len(self.row)), components[self.row]]
        own = of_items[np.arange(len(items)), components[self.block.row_of_item()]]
        uniforms, of_place = rng.random(len(items)), rng.random((2, len(self.starts)))
        found = items.copy()
        for size, places, entries in self._some_places(1):
            if size == 1:
                continue
            if size <= _MOST_BY_SUBSETS:
                order = tied_places.draw_order_by_subsets(own[entries], rest[places], uniforms[entries])
            else:
                random = np.concatenate([uniforms[entries], of_place[:, places]])
                order = tied_places.draw_order_by_integral(own[entries], rest[places], random)
            found[entries] = items[np.take_along_axis(entries, order, axis=0)]
        return found

    def places(self, params: Prepared) -> PlaceSums:
        """The sums over the orders of every place."""
        worths = _worths(params)
        n_components = params.n_components
        of_items = worths[self.block.items.astype(np.intp)]
        rest = self._worth_after(of_items, worths)
        logs, offers = np.zeros((2, len(self.starts), n_components))
        expected = np.zeros_like(of_items)
        for size, places, entries in self._some_places(n_components):
            sums = _tie_sums(of_items[entries].reshape(size, -1), rest[places].reshape(-1))
            shape = (len(places), n_components)
            logs[places], offers[places] = sums.logs.reshape(shape), sums.offers.reshape(shape)
            expected[entries] = sums.expected.reshape(size, *shape)
        return PlaceSums(logs, offers, expected)

    def _some_places(self, n_cases: int) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Some places of one size at a time, by cases per place: the size, their numbers, entries (size, n_places)."""
        for size in np.unique(self.sizes).tolist():
            numbers = _MOST_NUMBERS // (1 << size if size <= _MOST_BY_SUBSETS else _NODES)
            chosen, at_once = np.flatnonzero(self.sizes == size), max(1, numbers // n_cases)
            for begin in range(0, len(chosen), at_once):
                places = chosen[begin : begin + at_once]
                yield size, places, self.starts[places] + np.arange(size)[:, None]

    def _worth_after(self, of_items: Floats, worths: Floats) -> Floats:
        """(n_places, n_components): the worth of everything after each place, summed from the last place up."""
        left = self._worth_unordered(of_items, worths)
        firsts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        of_places = np.add.reduceat(of_items[self._place_of_entry() >= 0], firsts, axis=0)
        after = np.empty_like(of_places)
        n_places = np.diff(self.first_place)
        for back in range(1, int(n_places.max()) + 1):
            rows = np.flatnonzero(n_places >= back)
            places = self.first_place[1:][rows] - back
            after[places] = left[rows]
            left[rows] += of_places[places]
        return after

    def _worth_unordered(self, of_items: Floats, worths: Floats) -> Floats:
        """(n_rows, n_components): the worth of items on offer that a row does not order, listed or not."""
        unordered = self._place_of_entry() < 0
        owner = self.block.row_of_item()[unordered]
        left = np.empty((self.block.n_rankings, worths.shape[1]))
        for component in range(worths.shape[1]):
            left[:, component] = np.bincount(owner, of_items[unordered, component], len(left))
        for rows, unlisted in self._unlisted():
            left[rows] += np.einsum("ri,ik->rk", unlisted, worths)
        return left

    def _offers_before(self, offers: Floats) -> tuple[Floats, Floats]:
        """(n_places, n_components): offers at all earlier places of the row; (n_rows, n_components): at all places."""
        before = np.empty_like(offers)
        so_far = np.zeros((self.block.n_rankings, offers.shape[1]))
        n_places = np.diff(self.first_place)
        for place in range(int(n_places.max())):
            rows = np.flatnonzero(n_places > place)
            places = self.first_place[:-1][rows] + place
            before[places] = so_far[rows]
            so_far[rows] += offers[places]
        return before, so_far

    def _place_of_entry(self) -> NDArray[np.int64]:
        """(n_entries,): the place of each entry; -1 if it is not ordered."""
        found = np.full(len(self.block.items), -1)
        places = np.repeat(np.arange(len(self.starts)), self.sizes)
        firsts = np.repeat(self.starts - np.concatenate([[0], np.cumsum(self.sizes)[:-1]]), self.sizes)
        found[firsts + np.arange(len(places))] = places
        return found

    def _is_choice(self) -> Floats:
        """(n_entries,): 1 for ordered items; 0 for others, and for an item that is left alone at the end."""
        of_entry = self._place_of_entry()
        block = self.block
        alone = (block.n_ordered == block.n_listed) & ~block.below
        ends = np.zeros(len(block.items), bool)
        ends[block.offsets[1:] - 1] = alone  # a tied last place of these rows has become unordered
        return ((of_entry >= 0) & ~ends).astype(np.float64)

    def _unlisted(self) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Rows whose unlisted items rank below, some at a time, with 1 for each item (n_rows, n_items) unlisted."""
        below = np.flatnonzero(self.block.below)
        at_once = max(1, _MOST_CELLS // self.block.n_items)
        for begin in range(0, len(below), at_once):
            rows = below[begin : begin + at_once]
            part = self.block.take(rows)
            unlisted = np.ones((len(rows), self.block.n_items))
            unlisted[part.row_of_item(), part.items] = 0.0
            yield rows, unlisted


def _worths(params: Prepared) -> Floats:
    """(n_items, n_components): worths as kernels scale them."""
    return params.worths.reshape(params.n_items, params.width)[:, : params.n_components]


def _tie_sums(worths: Floats, rest: Floats) -> tied_places.TieSums:
    """The sums over the orders of one place, from worths (n_tied, n_cases) and what comes after (n_cases,)."""
    if len(worths) == 1:
        on_offer = worths[0] + rest
        # An item that is left alone is not a choice.
        chance, offers = worths / on_offer, np.where(rest > 0, 1 / on_offer, 0.0)
        return tied_places.TieSums(np.log(chance[0]), np.where(rest > 0, chance, 0.0), offers)
    few = len(worths) <= _MOST_BY_SUBSETS
    return (tied_places.tie_by_subsets if few else tied_places.tie_by_integral)(worths, rest)
