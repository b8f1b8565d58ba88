"""Many items tied for one place: the sum over all their orders, as an integral over one number.

Let item i arrive after an exponential time of rate p_i, and the items of total worth W that come after the tied ones
after an exponential time m of rate W. The order of arrival is a Plackett-Luce ranking, so the tied items come first
with probability

    integral over m of W exp(-W m) * product over i of (1 - exp(-p_i m)).

With s = log(W m) the logarithm of the integrand is concave and the integrand is smooth, so the trapezoid rule is exact
to rounding with a few hundred nodes (the error falls like exp(-pi**2 / step)). The cost grows with the number of items,
not with the number of their orders. For few items the recursion of `tied_sets.py` is faster. Derivatives are
expectations over m of y_i / (exp(y_i) - 1), with y_i = p_i m: sums of positive numbers again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.tied_sets import TieSums

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

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
    """The integrand at some nodes.

    Parameters
    ----------
    arrivals : (n_nodes, n_cases)
        exp(s) = W m.
    weights : (n_nodes, n_cases)
        The share of each node in the integral.
    logs : (n_cases,)
        The logarithm of the integral.
    step : (n_cases,)
        The distance of neighbouring nodes in s.
    """

    arrivals: NDArray[np.float64]
    weights: NDArray[np.float64]
    logs: NDArray[np.float64]
    step: NDArray[np.float64]


def tie_by_integral(worths: NDArray[np.float64], rest: NDArray[np.float64]) -> TieSums:
    """The sums over all orders of tied items; the same as `tie_by_subsets` gives.

    Parameters
    ----------
    worths : (n_tied, n_cases)
        Worths of the tied items.
    rest : (n_cases,)
        The worth of everything that comes after them, above 0.

    Examples
    --------
    >>> sums = tie_by_integral(np.array([[2.0], [1.0]]), np.array([1.0]))  # 2/4 * 1/2 + 1/4 * 2/3
    >>> np.exp(sums.logs).round(6).tolist()
    [0.416667]
    """
    ratios = worths / rest
    nodes = integrand(ratios)
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


def integrand(ratios: NDArray[np.float64]) -> Nodes:
    """The integrand at nodes that are enough for all digits, for ratios p_i / W (n_tied, n_cases).

    Examples
    --------
    >>> np.exp(integrand(np.array([[1.0]])).logs).round(12).tolist()
    [0.5]
    """
    n_tied, n_cases = ratios.shape
    mode = _crossing(lambda s: _slope(s, ratios), np.zeros(n_cases), np.log(n_tied + 1.0), _MODE_HALVINGS)
    level = _log_integrand(mode, ratios) - _DEPTH
    low = _crossing(
        lambda s: level - _log_integrand(s, ratios), np.full(n_cases, _LOWEST), mode, _EDGE_HALVINGS
    )
    # Items far above the rest leave it a small chance, which comes from the times before their own arrivals.
    low = np.minimum(low, -np.log(ratios.max(axis=0)) - _DEPTH / (n_tied + 1.0))
    high = _crossing(
        lambda s: _log_integrand(s, ratios) - level, mode, np.log(2.0 * n_tied + 102.0), _EDGE_HALVINGS
    )
    longest = min(_LONGEST_STEP, _STEP_AT_PEAK / np.sqrt(n_tied + 1.0))
    n_nodes = int(np.ceil((high - low).max() / longest)) + 1
    step = (high - low) / (n_nodes - 1)
    places = low + np.arange(n_nodes)[:, None] * step
    logs = _log_integrand(places, ratios)
    largest = logs.max(axis=0)
    weights = np.exp(logs - largest)
    total = weights.sum(axis=0)
    return Nodes(np.exp(places), weights / total, largest + np.log(total * step), step)


def _log_integrand(places: NDArray[np.float64], ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    arrivals = np.exp(places)
    logs = places - arrivals
    for ratio in ratios:
        logs = logs + np.log(-np.expm1(-ratio * arrivals))
    return logs


def _slope(places: NDArray[np.float64], ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    arrivals = np.exp(places)
    slope = 1.0 - arrivals
    for ratio in ratios:
        slope = slope + _left(ratio * arrivals)
    return slope


def _left(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """The function y / (exp(y) - 1): 1 at 0, falling to 0."""
    with np.errstate(over="ignore"):
        left: NDArray[np.float64] = times / np.expm1(times)
    return left


def _crossing(
    falling: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    low: NDArray[np.float64],
    high: NDArray[np.float64] | float,
    n_halvings: int,
) -> NDArray[np.float64]:
    """Where a function that falls from plus to minus crosses zero, by halving."""
    for _ in range(n_halvings):
        middle = (low + high) / 2
        above = falling(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


def draw_order_by_integral(
    worths: NDArray[np.float64], rest: NDArray[np.float64], uniforms: NDArray[np.float64]
) -> NDArray[np.int64]:
    """(n_tied, n_cases): an order of the tied items, drawn given that they are tied; best first.

    The time m is drawn from its nodes, and the arrivals of the items before m from their distributions.

    Parameters
    ----------
    worths : (n_tied, n_cases)
    rest : (n_cases,)
    uniforms : (n_tied + 2, n_cases)
        Random numbers from 0 to 1.

    Examples
    --------
    >>> draw_order_by_integral(np.array([[1e9], [1.0]]), np.array([1.0]), np.full((4, 1), 0.5)).tolist()
    [[0], [1]]
    """
    ratios = worths / rest
    nodes = integrand(ratios)
    reached = np.cumsum(nodes.weights, axis=0)
    node = np.argmax(reached > uniforms[-1] * reached[-1], axis=0)
    arrival = nodes.arrivals[node, np.arange(len(node))] * np.exp((uniforms[-2] - 0.5) * nodes.step)
    times = -np.log1p(uniforms[:-2] * np.expm1(-ratios * arrival)) / ratios
    order: NDArray[np.int64] = np.argsort(times, axis=0, kind="stable")
    return order
