"""Items tied for one place: the sum over all their orders, by a recursion over subsets.

Items of worths p_i are tied, and items of total worth W come after them. Take the tied items one by one. Once the
subset T is taken, D(T) = W + (sum of worths of tied items not in T) is on offer, and i wins with probability
p_i / D(T). The probability that the items of T come first, in any order, is

    first(T) = sum over i in T of first(T - i) p_i / D(T - i),

and that the others follow after T is next(T) = sum over i not in T of p_i / D(T) next(T + i). With S the whole set,
first(S) is the probability of the tie. T was passed with probability first(T) next(T) / first(S), which gives the
expected number of choices that each item won: the expectation over all orders, given that the items are tied.
This takes 2**g steps for g items instead of g! orders. All sums are of positive numbers, as logarithms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.rankings import Floats


class TieSums(NamedTuple):
    """What is known about tied items, for several cases (sets of items and components)."""

    # (n_cases,): the log-probability that these items come first, in any order.
    logs: Floats
    # (n_tied, n_cases): for each tied item, the expected sum of worth / (worth on offer) over the choices at which it
    # was on offer.
    expected: Floats
    # (n_cases,): the expected sum of 1 / (worth on offer) over all choices among the tied items. Times the worth of
    # an item that comes after them, it is the expected number of those choices that this item would have won.
    offers: Floats


def tie_by_subsets(worths: Floats, rest: Floats) -> TieSums:
    """The sums over all orders of tied items, from their worths (n_tied, n_cases).

    `rest` (n_cases,) is the worth of everything that comes after them, above 0.

    Examples
    --------
    >>> sums = tie_by_subsets(np.array([[2.0], [1.0]]), np.array([1.0]))  # 2/4 * 1/2 + 1/4 * 2/3
    >>> np.exp(sums.logs).round(6).tolist()
    [0.416667]
    """
    n_tied = len(worths)
    on_offer, first, following = _solve_subsets(worths, rest)
    chances = np.exp(first + following - first[-1])[:-1] / on_offer[:-1]
    expected = np.zeros_like(worths)
    for subset in range((1 << n_tied) - 1):
        for item in range(n_tied):
            if not subset >> item & 1:
                expected[item] += chances[subset]
    return TieSums(first[-1], expected * worths, chances.sum(axis=0))


def _solve_subsets(worths: Floats, rest: Floats) -> tuple[Floats, Floats, Floats]:
    """The recursion in both directions: worth on offer D, first and next as logarithms, each (2**n_tied, n_cases)."""
    n_tied, n_cases = worths.shape
    full = (1 << n_tied) - 1
    on_offer = np.empty((full + 1, n_cases))
    on_offer[full] = rest
    for subset in range(full - 1, -1, -1):
        item = (~subset & full).bit_length() - 1  # an item that is not taken yet
        on_offer[subset] = on_offer[subset | 1 << item] + worths[item]
    log_worths, log_offers = np.log(worths), np.log(on_offer)
    first, following = np.full((2, full + 1, n_cases), -np.inf)
    first[0] = following[full] = 0.0
    for subset in range(full):
        for item in range(n_tied):
            after = subset | 1 << item
            if after != subset:
                # Every subset is complete before it is used: those it comes from have smaller numbers.
                step = first[subset] + log_worths[item] - log_offers[subset]
                first[after] = np.logaddexp(first[after], step)
    for subset in range(full - 1, -1, -1):
        for item in range(n_tied):
            after = subset | 1 << item
            if after != subset:
                step = log_worths[item] - log_offers[subset] + following[after]
                following[subset] = np.logaddexp(following[subset], step)
    return on_offer, first, following


def draw_order_by_subsets(worths: Floats, rest: Floats, uniforms: Floats) -> NDArray[np.int64]:
    """(n_tied, n_cases): an order of the tied items, drawn given that they are tied; best first.

    Worths and `uniforms`, random numbers from 0 to 1, are (n_tied, n_cases), the worth of the rest (n_cases,).
    """
    n_tied, n_cases = worths.shape
    on_offer, first, _ = _solve_subsets(worths, rest)
    log_worths, log_offers = np.log(worths), np.log(on_offer)
    cases = np.arange(n_cases)
    left = np.full(n_cases, (1 << n_tied) - 1)
    order = np.empty((n_tied, n_cases), np.int64)
    for place in range(n_tied - 1, -1, -1):  # the last of the items that are left
        logs = np.full((n_tied, n_cases), -np.inf)
        for item in range(n_tied):
            before = left & ~(1 << item)
            step = first[before, cases] + log_worths[item] - log_offers[before, cases]
            logs[item] = np.where(before != left, step, -np.inf)
        reached = np.cumsum(np.exp(logs - logs.max(axis=0)), axis=0)
        drawn = np.argmax(reached > uniforms[place] * reached[-1], axis=0)
        order[place] = drawn
        left = left & ~(1 << drawn)
    return order


# Many items tied for one place: the sum over all their orders, as an integral over one number.

# Nodes where the integrand is less than exp(-42) of its largest value are left out.
_DEPTH = 42.0
_LOWEST = -70.0
_LONGEST_STEP = 0.25
# The peak of g items is about 1 / sqrt(g + 1) wide; steps are shorter than that.
_STEP_AT_PEAK = 0.6
_MODE_HALVINGS = 12
_EDGE_HALVINGS = 9
# Below this y / (exp(y) - 1) is subtracted from 1 by its series.
_SMALL = 0.1


class Nodes(NamedTuple):
    """The integrand at some nodes."""

    # (n_nodes, n_cases): exp(s) = W m.
    arrivals: Floats
    # (n_nodes, n_cases): the share of each node in the integral.
    weights: Floats
    # (n_cases,): the logarithm of the integral.
    logs: Floats
    # (n_cases,): the distance of neighbouring nodes in s.
    step: Floats


def tie_by_integral(worths: Floats, rest: Floats) -> TieSums:
    """The sums over all orders of tied items; the same as `tie_by_subsets` gives."""
    ratios = worths / rest
    nodes = _integrand(ratios)
    expected = np.empty_like(worths)
    offers = np.zeros(worths.shape[1])
    for item, ratio in enumerate(ratios):
        times = ratio * nodes.arrivals
        left = _left(times)
        offers += (nodes.weights * left).sum(axis=0)
        small = np.minimum(times, _SMALL)
        series = small * (0.5 - small * (1 / 12 - small**2 * (1 / 720 - small**2 / 30240)))
        expected[item] = (nodes.weights * np.where(times < _SMALL, series, 1.0 - left)).sum(axis=0)
    return TieSums(nodes.logs, expected, offers / rest)


def _integrand(ratios: Floats) -> Nodes:
    """The integrand at nodes that are enough for all digits, for ratios p_i / W (n_tied, n_cases)."""
    n_tied, n_cases = ratios.shape
    mode = _crossing(lambda s: _slope(s, ratios), np.zeros(n_cases), np.log(n_tied + 1.0), _MODE_HALVINGS)
    level = _log_integrand(mode, ratios) - _DEPTH
    low = _crossing(lambda s: level - _log_integrand(s, ratios), np.full(n_cases, _LOWEST), mode, _EDGE_HALVINGS)
    # Items far above the rest leave it a small chance, which comes from the times before their own arrivals.
    low = np.minimum(low, -np.log(ratios.max(axis=0)) - _DEPTH / (n_tied + 1.0))
    high = _crossing(lambda s: _log_integrand(s, ratios) - level, mode, np.log(2.0 * n_tied + 102.0), _EDGE_HALVINGS)
    longest = min(_LONGEST_STEP, _STEP_AT_PEAK / np.sqrt(n_tied + 1.0))
    n_nodes = int(np.ceil((high - low).max() / longest)) + 1
    step = (high - low) / (n_nodes - 1)
    places = low + np.arange(n_nodes)[:, None] * step
    logs = _log_integrand(places, ratios)
    largest = logs.max(axis=0)
    weights = np.exp(logs - largest)
    total = weights.sum(axis=0)
    return Nodes(np.exp(places), weights / total, largest + np.log(total * step), step)


def _log_integrand(places: Floats, ratios: Floats) -> Floats:
    arrivals = np.exp(places)
    logs = places - arrivals
    for ratio in ratios:
        logs = logs + np.log(-np.expm1(-ratio * arrivals))
    return logs


def _slope(places: Floats, ratios: Floats) -> Floats:
    arrivals = np.exp(places)
    slope = 1.0 - arrivals
    for ratio in ratios:
        slope = slope + _left(ratio * arrivals)
    return slope


def _left(times: Floats) -> Floats:
    """The function y / (exp(y) - 1): 1 at 0, falling to 0."""
    with np.errstate(over="ignore"):
        left: Floats = times / np.expm1(times)
    return left


def _crossing(falling: Callable[[Floats], Floats], low: Floats, high: Floats | float, n_halvings: int) -> Floats:
    """Where a function that falls from plus to minus crosses zero, by halving."""
    for _ in range(n_halvings):
        middle = (low + high) / 2
        above = falling(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


def draw_order_by_integral(worths: Floats, rest: Floats, uniforms: Floats) -> NDArray[np.int64]:
    """(n_tied, n_cases): an order of the tied items, drawn given that they are tied; best first.

    The time m is drawn from its nodes, and the arrivals of the items before m from their distributions. Worths are
    (n_tied, n_cases), the worth of the rest (n_cases,), `uniforms`, random numbers from 0 to 1, (n_tied + 2, n_cases).
    """
    ratios = worths / rest
    nodes = _integrand(ratios)
    reached = np.cumsum(nodes.weights, axis=0)
    node = np.argmax(reached > uniforms[-1] * reached[-1], axis=0)
    arrival = nodes.arrivals[node, np.arange(len(node))] * np.exp((uniforms[-2] - 0.5) * nodes.step)
    times = -np.log1p(uniforms[:-2] * np.expm1(-ratios * arrival)) / ratios
    return np.argsort(times, axis=0, kind="stable")
