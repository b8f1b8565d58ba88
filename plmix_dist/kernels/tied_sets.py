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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TieSums(NamedTuple):
    """What is known about tied items, for several cases (sets of items and components).

    Parameters
    ----------
    logs : (n_cases,)
        The log-probability that these items come first, in any order.
    expected : (n_tied, n_cases)
        For each tied item, the expected sum of worth / (worth on offer) over the choices at which it was on offer.
    offers : (n_cases,)
        The expected sum of 1 / (worth on offer) over all choices among the tied items. Times the worth of an item that
        comes after them, it is the expected number of those choices that this item would have won.
    """

    logs: NDArray[np.float64]
    expected: NDArray[np.float64]
    offers: NDArray[np.float64]


class Subsets(NamedTuple):
    """The recursion, solved: worth on offer D, first and next as logarithms, each (2**n_tied, n_cases)."""

    on_offer: NDArray[np.float64]
    first: NDArray[np.float64]
    next: NDArray[np.float64]


def tie_by_subsets(worths: NDArray[np.float64], rest: NDArray[np.float64]) -> TieSums:
    """The sums over all orders of tied items.

    Parameters
    ----------
    worths : (n_tied, n_cases)
        Worths of the tied items.
    rest : (n_cases,)
        The worth of everything that comes after them, above 0.

    Examples
    --------
    >>> sums = tie_by_subsets(np.array([[2.0], [1.0]]), np.array([1.0]))  # 2/4 * 1/2 + 1/4 * 2/3
    >>> np.exp(sums.logs).round(6).tolist()
    [0.416667]
    """
    n_tied = len(worths)
    on_offer, first, following = solve_subsets(worths, rest)
    passed = np.exp(first + following - first[-1])
    chances = passed[:-1] / on_offer[:-1]
    expected = np.zeros_like(worths)
    for subset in range((1 << n_tied) - 1):
        for item in range(n_tied):
            if not subset >> item & 1:
                expected[item] += chances[subset]
    return TieSums(first[-1], expected * worths, chances.sum(axis=0))


def solve_subsets(worths: NDArray[np.float64], rest: NDArray[np.float64]) -> Subsets:
    """The recursion in both directions.

    Examples
    --------
    >>> solved = solve_subsets(np.array([[2.0], [1.0]]), np.array([1.0]))
    >>> solved.on_offer.ravel().tolist(), bool(np.isclose(solved.first[-1], solved.next[0])[0])
    ([4.0, 2.0, 3.0, 1.0], True)
    """
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
    return Subsets(on_offer, first, following)


def draw_order_by_subsets(
    worths: NDArray[np.float64], rest: NDArray[np.float64], uniforms: NDArray[np.float64]
) -> NDArray[np.int64]:
    """(n_tied, n_cases): an order of the tied items, drawn given that they are tied; best first.

    Parameters
    ----------
    worths : (n_tied, n_cases)
    rest : (n_cases,)
    uniforms : (n_tied, n_cases)
        Random numbers from 0 to 1.

    Examples
    --------
    >>> draw_order_by_subsets(np.array([[1e9], [1.0]]), np.array([1.0]), np.full((2, 1), 0.5)).tolist()
    [[0], [1]]
    """
    n_tied, n_cases = worths.shape
    on_offer, first, _ = solve_subsets(worths, rest)
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
        shares = np.exp(logs - logs.max(axis=0))
        reached = np.cumsum(shares, axis=0)
        drawn = np.argmax(reached > uniforms[place] * reached[-1], axis=0)
        order[place] = drawn
        left = left & ~(1 << drawn)
    return order
