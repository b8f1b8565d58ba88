"""Predictions given what each row has ranked so far: the places of its items, and what is still open.

All are about the whole ranking of what was on offer in the row: places that are ordered are known, the rest is to come.
Items not on offer have no place. The order of tied items is either that of the model given the tie, or any order with
equal probability (`is_even`), as in a fit with ties="expand". Log-worths are (n_components, n_items), posteriors
(n_rankings, n_components).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from plmix_dist.errors import SettingsError
from plmix_dist.prediction.choices import choice_probabilities, order_logs, pairwise_probabilities, top_k_probabilities
from plmix_dist.rankings import Floats, RankingBlock, unorder_last_ties

# Pairs of items times rows held at once.
_MOST_IN_PAIRS = 1 << 21


class _RowPlaces(NamedTuple):
    """The places of all items in each row. All arrays have the shape (n_rankings, n_items).

    Examples
    --------
    >>> block = plm.RankingBlock.from_rows([plm.Ranking(((2,), (0, 1)), (3,), "absent", 1.0)], n_items=5)
    >>> places = row_places(block)
    >>> places.place.tolist(), places.before.tolist(), places.size.tolist()
    ([[1, 1, 0, 2, -1]], [[1, 1, 0, 3, 0]], [[2, 2, 1, 1, 0]])
    """

    # The number of the place, from 0; tied items share one. Items on offer that are not ordered share the last place.
    # Items not on offer have -1.
    place: NDArray[np.int64]
    before: NDArray[np.int64]  # how many items have an earlier place
    size: NDArray[np.int64]  # how many items share the place
    is_open: NDArray[np.bool_]  # whether the item was on offer and is not ordered

    def rows(self, start: int, stop: int) -> _RowPlaces:
        """The rows from `start` to `stop`."""
        columns: Iterable[Any] = self
        return _RowPlaces(*(column[start:stop] for column in columns))

    def ties(self) -> Iterator[_Tied]:
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
            yield _Tied(owner, table, self.place[owner] > self.place[owner, table[:, 0]][:, None])


class _Tied(NamedTuple):
    """Ties of one size."""

    row: NDArray[np.int64]  # (n_ties,)
    items: NDArray[np.int64]  # (n_ties, n_tied)
    after: NDArray[np.bool_]  # (n_ties, n_items): True for the items on offer that come after the tie

    def mean(self, within: Callable[[Floats, Floats], Floats], log_worths: Floats, posteriors: Floats) -> Any:
        """The mean over components of a function of the log-worths of tied items and that of all that comes after."""
        total: Any = 0.0
        for logs, weights in zip(log_worths, posteriors[self.row].T, strict=True):
            found = within(logs[self.items], np.logaddexp.reduce(np.where(self.after, logs, -np.inf), axis=1))
            total = total + weights.reshape(-1, *[1] * (found.ndim - 1)) * found
        return total


def row_places(block: RankingBlock) -> _RowPlaces:
    """The places of all items in each row. A tied last place of everything on offer is open."""
    block = unorder_last_ties(block)
    n_rows, n_items = block.n_rankings, block.n_items
    row, column = block.row_of_item(), block.place_of_item()
    ordered = column < block.n_ordered.astype(np.int64)[row]
    so_far = np.concatenate([[0], np.cumsum(ordered if block.tied is None else ordered & ~block.tied)])
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
    return _RowPlaces(place, np.where(on_offer, np.take_along_axis(earlier, at, axis=1), 0), size, is_open)


def next_choices(places: _RowPlaces, log_worths: Floats, posteriors: Floats, *, is_even: bool = False) -> Floats:
    """(n_rankings, n_items): the probability that each item is the next choice; zeros if nothing is left to choose.

    Examples
    --------
    >>> places = row_places(plm.RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> next_choices(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1))).tolist()
    [[0.75, 0.25, 0.0]]
    """
    del is_even  # ties are behind the next choice
    found = np.zeros(places.place.shape)
    for component, logs in enumerate(log_worths):
        found += posteriors[:, component, None] * choice_probabilities(logs[None], places.is_open)[0]
    return found


def new_choices(
    offered: NDArray[np.int64], places: _RowPlaces, log_worths: Floats, posteriors: Floats, *, is_even: bool = False
) -> Floats:
    """(n_rankings, n_offered): the chances of a new choice by the same person; rows differ in memberships alone."""
    del places, is_even
    return posteriors @ choice_probabilities(log_worths[:, offered])


def ranks(places: _RowPlaces, log_worths: Floats, posteriors: Floats, *, is_even: bool = False) -> Floats:
    """(n_rankings, n_items): the expected place of each item, from 1; NaN for items not on offer.

    Examples
    --------
    >>> places = row_places(plm.RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> ranks(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1))).tolist()
    [[2.25, 2.75, 1.0]]
    """
    found = np.where(places.place >= 0, places.before + (places.size + 1) / 2, np.nan)
    is_open = places.is_open.astype(np.float64)
    later = np.zeros(found.shape)
    for component, pairs in enumerate(pairwise_probabilities(log_worths)):
        later += posteriors[:, component, None] * (is_open @ pairs)
    found = np.where(places.is_open, places.before + 0.5 + later, found)
    if not is_even:
        for tied in places.ties():
            within = tied.mean(lambda logs, rest: _tied_pairs(logs, rest).sum(axis=1), log_worths, posteriors)
            owner = tied.row[:, None]
            found[owner, tied.items] = places.before[owner, tied.items] + 0.5 + within
    return found


def pairs_among(
    items: NDArray[np.int64], places: _RowPlaces, log_worths: Floats, posteriors: Floats, *, is_even: bool = False
) -> Floats:
    """(n_rankings, n * n): the probability that i comes before j, of n items; NaN if one was not on offer."""
    at_once = max(1, _MOST_IN_PAIRS // log_worths.shape[1] ** 2)
    parts = []
    for begin in range(0, len(posteriors), at_once):
        part, own = places.rows(begin, begin + at_once), posteriors[begin : begin + at_once]
        parts.append(_pairs(part, log_worths, own, is_even=is_even)[:, items[:, None], items].reshape(len(own), -1))
    return np.concatenate(parts)


def _pairs(places: _RowPlaces, log_worths: Floats, posteriors: Floats, *, is_even: bool = False) -> Floats:
    """(n_rankings, n_items, n_items): the probability that i comes before j; NaN if one was not on offer.

    Examples
    --------
    >>> places = row_places(plm.RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> _pairs(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1)))[0, 0].tolist()
    [0.5, 0.75, 0.0]
    """
    n_items = log_worths.shape[1]
    first, second = places.place[:, :, None], places.place[:, None, :]
    found = np.where(first < second, 1.0, np.where(first > second, 0.0, 0.5))
    open_pairs = posteriors @ pairwise_probabilities(log_worths).reshape(len(log_worths), -1)
    both_open = places.is_open[:, :, None] & places.is_open[:, None, :]
    found = np.where(both_open, open_pairs.reshape(-1, n_items, n_items), found)
    if not is_even:
        for tied in places.ties():
            within = tied.mean(_tied_pairs, log_worths, posteriors)
            found[tied.row[:, None, None], tied.items[:, :, None], tied.items[:, None, :]] = within
    return np.where((first >= 0) & (second >= 0), found, np.nan)


def top_k(places: _RowPlaces, log_worths: Floats, posteriors: Floats, k: int, *, is_even: bool = False) -> Floats:
    """(n_rankings, n_items): the probability that each item has one of the first k places; 0 for items not on offer.

    Examples
    --------
    >>> places = row_places(plm.RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> top_k(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1)), 2).round(6).tolist()
    [[0.75, 0.25, 1.0]]
    """
    n_free = k - places.before
    found = np.where(places.place >= 0, np.clip(n_free / np.maximum(places.size, 1), 0.0, 1.0), 0.0)
    across = places.is_open & (n_free > 0) & (n_free < places.size)
    rows = np.flatnonzero(across.any(axis=1))
    n_left = across[rows].sum(axis=1)
    free = np.where(across[rows], n_free[rows], 0).max(axis=1, initial=0)
    for size, n_first in sorted(set(zip(n_left.tolist(), free.tolist(), strict=True))):
        chosen = rows[(n_left == size) & (free == n_first)]
        items = np.nonzero(across[chosen])[1].reshape(-1, size)
        sets, which = np.unique(items, axis=0, return_inverse=True)
        within = np.zeros(items.shape)
        for component, logs in enumerate(log_worths):
            of_sets = top_k_probabilities(logs[sets], n_first)
            within += posteriors[chosen, component, None] * of_sets[which.reshape(-1)]
        found[chosen[:, None], items] = within
    return found if is_even else _with_tied_first(found, places, log_worths, posteriors, k)


def _with_tied_first(found: Floats, places: _RowPlaces, log_worths: Floats, posteriors: Floats, k: int) -> Floats:
    """The first k places where the k-th lies within a tie."""
    for tied in places.ties():
        n_free = k - places.before[tied.row, tied.items[:, 0]]
        for n_first in np.unique(n_free[(n_free > 0) & (n_free < tied.items.shape[1])]).tolist():
            chosen = np.flatnonzero(n_free == n_first)
            columns: Iterable[Any] = tied
            part = _Tied(*(column[chosen] for column in columns))
            within = part.mean(partial(_tied_first, n_first=n_first), log_worths, posteriors)
            found[part.row[:, None], part.items] = within
    return found


# Of orders (n_rankings, n_items): what of them is to be predicted, and the log-weight of each component there.
_Weigh = Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], Floats]]


def completions(
    places: _RowPlaces, log_worths: Floats, posteriors: Floats, weigh: _Weigh
) -> tuple[NDArray[np.int64], Floats]:
    """The most probable of some complete orders of what was on offer, and its log-probability.

    Candidates are the mode of each component given the row, and the order of the expected ranks.

    `weigh` gives log-weights (n_rankings, n_components): an order has the sum over components of weight times the
    probability of what is predicted of it. Orders (n_rankings, n_items) are best first, -1 after the last item on
    offer.

    Examples
    --------
    >>> places = row_places(plm.RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> whole = lambda orders: (orders, np.log([[5.0]]))  # Pr(2 first) is 1/5
    >>> orders, logs = completions(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1)), whole)
    >>> orders.tolist(), np.exp(logs).round(6).tolist()
    ([[2, 0, 1]], [0.75])
    """
    on_offer = places.place >= 0
    rows = np.where(on_offer, places.place, places.place.shape[1] + 1)
    n_offered = on_offer.sum(axis=1)[:, None]
    keys = [np.broadcast_to(-logs, rows.shape) for logs in log_worths]
    if len(keys) > 1:
        keys.append(np.nan_to_num(ranks(places, log_worths, posteriors, is_even=True)))
    best = np.full(rows.shape, -1, np.int64)
    best_logs = np.full(len(rows), -np.inf)
    for key in keys:
        order = np.lexsort((key, rows), axis=1)
        order = np.where(np.arange(rows.shape[1]) < n_offered, order, -1)
        predicted, log_weights = weigh(order)
        logs = np.logaddexp.reduce(order_logs(log_worths, predicted) + log_weights, axis=1)
        better = logs > best_logs
        best[better], best_logs[better] = order[better], logs[better]
    return best, best_logs


def even_weights(places: _RowPlaces, log_worths: Floats, log_posteriors: Floats, log_shares: Floats | None) -> _Weigh:
    """Weights where all orders of tied items are equally probable: only the order of open items is predicted.

    Each order of the ties has the memberships that it would have as a row of its own, from the log-shares; None if
    memberships are those of a person with other rankings.
    """
    tied = (places.size > 1) & ~places.is_open
    log_n_orders = np.where(tied, gammaln(places.size + 1) / np.maximum(places.size, 1), 0.0).sum(axis=1, keepdims=True)

    def weigh(orders: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
        left = np.where(np.take_along_axis(places.is_open, orders, axis=1), orders, -1)
        log_weights = log_posteriors
        if log_shares is not None:
            joint = log_shares + order_logs(log_worths, orders) - order_logs(log_worths, left)
            log_weights = joint - np.logaddexp.reduce(joint, axis=1)[:, None]
        return left, log_weights - log_n_orders

    return weigh


# The order of tied items, given that they come first among what is left: pairs, mean places, first places.

# First places within a tie take a recursion over subsets. It has 2^12 steps at most.
_MOST_TIED = 12
_STEPS = (0.25, 0.125, 0.0625, 0.03125)
_TOLERANCE = 1e-12
_MOST_NUMBERS = 1 << 22
_SMALL = 0.25
_SERIES = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)


def _tied_pairs(log_worths: Floats, log_rest: Floats) -> Floats:
    """(n_cases, n_tied, n_tied): the probability that i comes before j, given that all tied items come first.

    `log_worths` (n_cases, n_tied) are those of the tied items; `log_rest` (n_cases,) is the log of the total worth
    of the items after them.

    Examples
    --------
    >>> _tied_pairs(np.log([[2.0, 1.0]]), np.log([1.0])).round(4).tolist()  # 2/4 1/2 : 1/4 2/3
    [[[0.5, 0.6], [0.4, 0.5]]]
    """
    largest = np.maximum(log_worths.max(axis=1), log_rest)
    worths = np.exp(np.maximum(log_worths - largest[:, None], -600.0))
    rest = np.exp(np.maximum(log_rest - largest, -600.0))
    latest = np.log(3.0 * (worths.shape[1] + 1) + 60.0) - np.log(rest.min())
    at_once = max(1, int(_MOST_NUMBERS * _STEPS[-1] / ((latest + 20.0) * worths.shape[1])))
    parts = [
        _converged(worths[begin : begin + at_once], rest[begin : begin + at_once], latest)
        for begin in range(0, len(worths), at_once)
    ]
    return np.concatenate(parts)


def _tied_first(log_worths: Floats, log_rest: Floats, n_first: int) -> Floats:
    """(n_cases, n_tied): the probability that each tied item is among the first `n_first` of them.

    The arguments are as in `_tied_pairs`, with at most 12 tied items.

    Examples
    --------
    >>> _tied_first(np.log([[2.0, 1.0]]), np.log([1.0]), 1).round(4).tolist()
    [[0.6, 0.4]]
    """
    n_cases, n_tied = log_worths.shape
    if n_tied > _MOST_TIED:
        raise SettingsError(
            f"the first places within a tie of {n_tied} items are not computed; at most {_MOST_TIED} tied items may "
            'lie across the k-th place. Choose another k, or fit with ties="expand", which takes all orders as equally '
            "probable"
        )
    largest = np.maximum(log_worths.max(axis=1), log_rest)
    worths, rest = np.exp(log_worths - largest[:, None]).T, np.exp(log_rest - largest)
    n_sets = 1 << n_tied
    members = [[item for item in range(n_tied) if number >> item & 1] for number in range(n_sets)]
    left = np.array([rest + worths.sum(axis=0) - worths[inside].sum(axis=0) for inside in members])
    reached, finished = np.zeros((2, n_sets, n_cases))
    reached[0], finished[-1] = 1.0, 1.0
    for number in range(n_sets):
        for item in set(range(n_tied)) - set(members[number]):
            reached[number | 1 << item] += reached[number] * worths[item] / left[number]
    for number in reversed(range(n_sets)):
        for item in set(range(n_tied)) - set(members[number]):
            finished[number] += finished[number | 1 << item] * worths[item] / left[number]
    found = np.zeros((n_cases, n_tied))
    for number in range(n_sets):
        if len(members[number]) == n_first:
            found[:, members[number]] += (reached[number] * finished[number] / reached[-1])[:, None]
    return found


def _converged(worths: Floats, rest: Floats, latest: float) -> Floats:
    found = _at_step(worths, rest, latest, _STEPS[0])
    for step in _STEPS[1:]:
        before, found = found, _at_step(worths, rest, latest, step)
        if np.abs(found - before).max() <= _TOLERANCE:
            break
    return found


def _at_step(worths: Floats, rest: Floats, latest: float, step: float) -> Floats:
    logs = np.arange(-20.0, latest, step)
    times = np.exp(logs)
    scaled = worths[:, :, None] * times  # (n_cases, n_tied, n_nodes)
    density = logs - rest[:, None] * times + np.log(-np.expm1(-scaled)).sum(axis=1)
    weights = np.exp(density - density.max(axis=1, keepdims=True))
    weights = (weights / weights.sum(axis=1, keepdims=True) / times)[:, None, :]
    early = (weights * _c(scaled)).sum(axis=2)
    late = (weights * _d(scaled)).sum(axis=2)
    found: Floats = (early[:, :, None] + late[:, None, :]) / (worths[:, :, None] + worths[:, None, :])
    return found


def _c(y: Floats) -> Floats:
    """The function y / (1 - exp(-y)) - 1, by its series where y is small."""
    large = np.maximum(y, _SMALL)
    return np.where(y < _SMALL, y / 2 + _even(y), large / -np.expm1(-large) - 1)


def _d(y: Floats) -> Floats:
    """The function 1 - y / (exp(y) - 1), by its series where y is small."""
    large = np.clip(y, _SMALL, 700.0)
    return np.where(y < _SMALL, y / 2 - _even(y), 1 - large / np.expm1(large))


def _even(y: Floats) -> Floats:
    """The even part of both series: y^2/12 - y^4/720 + ..."""
    square = np.minimum(y, _SMALL) ** 2
    total = np.zeros_like(y)
    for coefficient in reversed(_SERIES):
        total = (total + coefficient) * square
    return total
