"""The order of tied items, given that they come first among what is left: pairs, mean places, first places.

Let item i arrive after an exponential time of rate a_i, and the first of the items after the tie at time m, of rate W.
The items are tied if all arrive before m. Given m they are independent, and

    Pr(i before j | both before m) = (c(a_i m) + d(a_j m)) / ((a_i + a_j) m)
    c(y) = y / (1 - exp(-y)) - 1,   d(y) = y - c(y)

The mean over m, whose density is proportional to W exp(-W m) product (1 - exp(-a_l m)), is taken by the trapezoid rule
in log m. First places have no such formula; they take a recursion over subsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# First places within a tie take a recursion over subsets. It has 2^12 steps at most.
MOST_TIED = 12
_STEPS = (0.25, 0.125, 0.0625, 0.03125)
_TOLERANCE = 1e-12
_MOST_NUMBERS = 1 << 22
_SMALL = 0.25
_SERIES = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)


def tied_pairs(log_worths: NDArray[np.float64], log_rest: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_cases, n_tied, n_tied): the probability that i comes before j, given that all tied items come first.

    Parameters
    ----------
    log_worths : (n_cases, n_tied)
        Those of the tied items.
    log_rest : (n_cases,)
        The logarithm of the total worth of the items after them.

    Examples
    --------
    >>> tied_pairs(np.log([[2.0, 1.0]]), np.log([1.0])).round(4).tolist()  # 2/4 1/2 : 1/4 2/3
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


def tied_first(
    log_worths: NDArray[np.float64], log_rest: NDArray[np.float64], n_first: int
) -> NDArray[np.float64]:
    """(n_cases, n_tied): the probability that each tied item is among the first `n_first` of them.

    Parameters
    ----------
    log_worths : (n_cases, n_tied)
        Those of the tied items, at most 12.
    log_rest : (n_cases,)
        The logarithm of the total worth of the items after them.
    n_first
        The number of places.

    Examples
    --------
    >>> tied_first(np.log([[2.0, 1.0]]), np.log([1.0]), 1).round(4).tolist()
    [[0.6, 0.4]]
    """
    n_cases, n_tied = log_worths.shape
    if n_tied > MOST_TIED:
        raise SettingsError(
            f"the first places within a tie of {n_tied} items are not computed; at most {MOST_TIED} tied items may lie "
            'across the k-th place. Choose another k, or fit with ties="expand", which takes all orders as equally '
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


def _converged(worths: NDArray[np.float64], rest: NDArray[np.float64], latest: float) -> NDArray[np.float64]:
    found = _at_step(worths, rest, latest, _STEPS[0])
    for step in _STEPS[1:]:
        before, found = found, _at_step(worths, rest, latest, step)
        if np.abs(found - before).max() <= _TOLERANCE:
            break
    return found


def _at_step(
    worths: NDArray[np.float64], rest: NDArray[np.float64], latest: float, step: float
) -> NDArray[np.float64]:
    logs = np.arange(-20.0, latest, step)
    times = np.exp(logs)
    scaled = worths[:, :, None] * times  # (n_cases, n_tied, n_nodes)
    density = logs - rest[:, None] * times + np.log(-np.expm1(-scaled)).sum(axis=1)
    weights = np.exp(density - density.max(axis=1, keepdims=True))
    weights = (weights / weights.sum(axis=1, keepdims=True) / times)[:, None, :]
    early = (weights * _c(scaled)).sum(axis=2)
    late = (weights * _d(scaled)).sum(axis=2)
    found: NDArray[np.float64] = (early[:, :, None] + late[:, None, :]) / (
        worths[:, :, None] + worths[:, None, :]
    )
    return found


def _c(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The function y / (1 - exp(-y)) - 1, by its series where y is small."""
    large = np.maximum(y, _SMALL)
    return np.where(y < _SMALL, y / 2 + _even(y), large / -np.expm1(-large) - 1)


def _d(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The function 1 - y / (exp(y) - 1), by its series where y is small."""
    large = np.clip(y, _SMALL, 700.0)
    return np.where(y < _SMALL, y / 2 - _even(y), 1 - large / np.expm1(large))


def _even(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The even part of both series: y^2/12 - y^4/720 + ..."""
    square = np.minimum(y, _SMALL) ** 2
    total = np.zeros_like(y)
    for coefficient in reversed(_SERIES):
        total = (total + coefficient) * square
    return total
