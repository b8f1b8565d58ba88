"""The most probable ranking under a mixture: a best-first search with bounds, or the best of some candidates.

Within a component it is the order of the worths. For a mixture no simple rule holds: the most probable ranking may be
the mode of no component. The search extends prefixes. A bound of a prefix is the sum over components of its probability
times that of the component's best completion. A prefix is dropped if another prefix of the same items is at least as
probable in every component.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.prediction.choices import expected_ranks, order_logs
from plmix_dist.rankings import Floats

# Prefixes that a search extends before it gives up.
MOST_STEPS = 5_000
# Probabilities that differ by less, as a portion, are equal.
_EQUAL = 1e-12


class MostProbable(NamedTuple):
    """The most probable ranking that was found.

    Parameters
    ----------
    order : (n_items,)
        Item numbers, best first.
    log_probability
        The log-probability of this order.
    log_bound
        No order has a greater log-probability.
    is_exact
        Whether no order is more probable. If False, the search ended early.

    Examples
    --------
    >>> most_probable(np.log([[3.0, 1.0]]), np.zeros(1)).is_exact
    True
    """

    order: NDArray[np.int64]
    log_probability: float
    log_bound: float
    is_exact: bool

    @property
    def probability(self) -> float:
        """The probability of this order."""
        return float(np.exp(self.log_probability))


def most_probable(
    log_worths: Floats, log_weights: Floats, places: NDArray[np.int64] | None = None, *, most_steps: int = MOST_STEPS
) -> MostProbable:
    """The order with the largest sum over components of weight times probability.

    `log_weights` (n_components,) are logarithms of shares, or of any weights. Items of a lower place of `places`
    (n_items,) come before items of a higher place; None allows all orders. After `most_steps` prefixes the search ends
    with the best order so far and a bound.

    Examples
    --------
    >>> log_worths = np.log([[8.0, 4.0, 1.0], [1.0, 4.0, 8.0]])
    >>> found = most_probable(log_worths, np.log([0.6, 0.4]))
    >>> found.order.tolist(), round(found.probability, 3), found.is_exact
    ([0, 1, 2], 0.306, True)
    """
    fixed = np.zeros(log_worths.shape[1], np.int64) if places is None else places
    used = np.isfinite(log_weights)
    return _Search(log_worths[used], log_weights[used], fixed).run(most_steps)


class _Search:
    """One search: prefixes in a heap, the greatest bound first."""

    def __init__(self, log_worths: Floats, log_weights: Floats, places: NDArray[np.int64]) -> None:
        self.log_worths, self.log_weights, self.places = log_worths, log_weights, places
        self.known: dict[bytes, list[Floats]] = {}
        # The first candidates are the mode of each component, and the order of the expected ranks (Borda).
        ranks = np.exp(log_weights - log_weights.max()) @ expected_ranks(log_worths)
        found = np.array([np.lexsort((key, places)) for key in (*(-log_worths), ranks)])
        self.modes = found[:-1]
        values = self._values(found)
        self.best, self.best_value = self._climbed(found[values.argmax()], float(values.max()))

    def run(self, most_steps: int) -> MostProbable:
        """Extend prefixes until none can be better than the best order."""
        all_left = np.ones(self.log_worths.shape[1], np.bool_)
        heap: list[tuple[float, int, tuple[int, ...], NDArray[np.bool_], Floats]] = []
        bound = float(self._bounds(all_left[None], self.log_weights[None])[0])
        heapq.heappush(heap, (-bound, 0, (), all_left, self.log_weights))
        n_pushed = 1
        for _ in range(most_steps):
            if not heap or -heap[0][0] <= self.best_value + _EQUAL:
                return MostProbable(self.best, self.best_value, self.best_value, True)
            _, _, prefix, left, logs = heapq.heappop(heap)
            items, after, child_logs = self._children(left, logs)
            bounds = self._bounds(after, child_logs)
            if after.shape[1] - len(prefix) == 2:  # the last item follows: the bound is the value
                self._take(prefix, items, bounds, left)
                continue
            for child in np.flatnonzero(bounds > self.best_value + _EQUAL):
                if self._is_new(after[child], child_logs[child]):
                    entry = (*prefix, int(items[child]))
                    heapq.heappush(heap, (-float(bounds[child]), n_pushed, entry, after[child], child_logs[child]))
                    n_pushed += 1
        bound = max(self.best_value, -heap[0][0] if heap else self.best_value)
        return MostProbable(self.best, self.best_value, bound, bound <= self.best_value + _EQUAL)

    def _take(self, prefix: tuple[int, ...], items: NDArray[np.int64], values: Floats, left: NDArray[np.bool_]) -> None:
        best = int(values.argmax())
        if values[best] > self.best_value:
            last = [item for item in np.flatnonzero(left).tolist() if item != items[best]]
            self.best, self.best_value = np.array([*prefix, int(items[best]), *last]), float(values[best])

    def _children(self, left: NDArray[np.bool_], logs: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_], Floats]:
        """The items that may come next, what is left after each, and the log-weights of the longer prefixes."""
        items = np.flatnonzero(left & (self.places == self.places[left].min()))
        after = np.repeat(left[None], len(items), axis=0)
        after[np.arange(len(items)), items] = False
        on_offer = np.logaddexp.reduce(self.log_worths[:, left], axis=1)
        return items, after, logs + (self.log_worths[:, items] - on_offer[:, None]).T

    def _bounds(self, left: NDArray[np.bool_], logs: Floats) -> Floats:
        """(n_prefixes,): a bound of each prefix, from what is left and its log-weights (n_prefixes, n_components)."""
        total = np.array(logs)
        for component, (order, worths) in enumerate(zip(self.modes, self.log_worths, strict=True)):
            total[:, component] += order_logs(worths[None], np.where(left[:, order], order, -1))[:, 0]
        bounds: Floats = np.logaddexp.reduce(total, axis=1)
        return bounds

    def _is_new(self, left: NDArray[np.bool_], logs: Floats) -> bool:
        """Whether no prefix of the same items is at least as probable in every component."""
        others = self.known.setdefault(left.tobytes(), [])
        if any((other >= logs).all() for other in others):
            return False
        others.append(logs)
        return True

    def _values(self, orders: NDArray[np.int64]) -> Floats:
        values: Floats = np.logaddexp.reduce(order_logs(self.log_worths, orders) + self.log_weights, axis=1)
        return values

    def _climbed(self, order: NDArray[np.int64], value: float) -> tuple[NDArray[np.int64], float]:
        """The order after swaps of neighbours, the best swap at a time, until none is better."""
        n_items = len(order)
        while True:
            first = np.flatnonzero(self.places[order[:-1]] == self.places[order[1:]])
            if not len(first) or n_items < 2:
                return order, value
            swapped = np.repeat(order[None], len(first), axis=0)
            number = np.arange(len(first))
            swapped[number, first], swapped[number, first + 1] = order[first + 1], order[first]
            values = self._values(swapped)
            if values.max() <= value + _EQUAL:
                return order, value
            order, value = swapped[values.argmax()], float(values.max())
