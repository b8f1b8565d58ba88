"""The probability that an item has one of the first k places, by an integral over exponential arrival times.

Let item i arrive after an exponential time of rate w_i. Then items arrive in the order of a Plackett-Luce ranking. Item
i is among the first k if at most k - 1 others arrive before it:

    integral over t of w_i exp(-w_i t) Pr(at most k - 1 of the others arrived by t) dt.

The number of arrivals is a sum of independent events. Its distribution without item i is the convolution of those of
the items before i and after i, so all items take n k steps per node. In log t the integrand is smooth, and the
trapezoid rule converges exponentially.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

TOLERANCE = 1e-7
_LARGEST_STEP, _SMALLEST_STEP = 0.5, 1 / 64
# Arrivals before exp(-41) or after exp(4) times the mean arrival time have a probability below 1e-17.
_EARLIEST, _LATEST = -41.0, 4.0
# Numbers held at once.
_MOST_NUMBERS = 1 << 22


def top_k_probabilities(log_worths: ArrayLike, k: int) -> NDArray[np.float64]:
    """(n_models, n_items): the probability that each item has one of the first k places.

    The error is below 1e-12 in all cases that were compared with sums over all orders.

    Parameters
    ----------
    log_worths : (n_models, n_items)
    k
        The number of places.

    Examples
    --------
    >>> top_k_probabilities(np.log([[3.0, 1.0, 1.0]]), 2).round(4).tolist()
    [[0.9, 0.55, 0.55]]
    """
    logs = np.atleast_2d(np.asarray(log_worths, np.float64))
    n_items = logs.shape[1]
    if k <= 0 or k >= n_items:
        return np.full(logs.shape, 0.0 if k <= 0 else 1.0)
    logs = logs - logs.max(axis=1, keepdims=True)
    n_nodes = (_LATEST - _EARLIEST - logs.min()) / _LARGEST_STEP
    at_once = max(1, int(_MOST_NUMBERS / (n_nodes * n_items * k)))
    found = [_converged(logs[begin : begin + at_once], k) for begin in range(0, len(logs), at_once)]
    return np.clip(np.concatenate(found), 0.0, 1.0)


def _converged(logs: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """The integral, its step halved until the rules at the nodes and at the midpoints agree to 1e-7.

    Halving the step squares the error. So the mean of the two, which is the rule of half the step, has about 1e-14.
    """
    step = _LARGEST_STEP
    nodes = np.arange(_EARLIEST, _LATEST - logs.min() + step, step)
    integral = _sum_over(nodes, logs, k) * step
    while step >= _SMALLEST_STEP:
        midpoints = _sum_over(nodes + step / 2, logs, k) * step
        close = np.abs(integral - midpoints).max() <= TOLERANCE
        integral = (integral + midpoints) / 2
        if close:
            break
        nodes, step = np.concatenate([nodes, nodes + step / 2]), step / 2
    return integral


def _sum_over(nodes: NDArray[np.float64], logs: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """(n_models, n_items): the sum over nodes of log t of the integrand, some nodes at a time."""
    at_once = max(1, _MOST_NUMBERS // (logs.size * k))
    found = np.zeros(logs.shape)
    for begin in range(0, len(nodes), at_once):
        found += _integrand(nodes[begin : begin + at_once], logs, k)
    return found


def _integrand(nodes: NDArray[np.float64], logs: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    rates = np.exp(logs[:, :, None] + nodes)  # (n_models, n_items, n_nodes): rate times time
    left = np.exp(-rates)
    arrived = -np.expm1(-rates)
    n_items = logs.shape[1]
    counts = np.zeros((n_items, k, len(logs), len(nodes)))  # how many of the items before i arrived
    counts[0, 0] = 1.0
    for item in range(n_items - 1):
        counts[item + 1] = _one_more(counts[item], arrived[:, item], left[:, item])
    after = np.zeros(counts.shape[1:])
    after[0] = 1.0
    found = np.empty(logs.shape)
    for item in reversed(range(n_items)):
        at_most = np.cumsum(after, axis=0)[::-1]
        few = (counts[item] * at_most).sum(axis=0)
        found[:, item] = (rates[:, item] * left[:, item] * few).sum(axis=1)
        after = _one_more(after, arrived[:, item], left[:, item])
    return found


def _one_more(
    counts: NDArray[np.float64], arrived: NDArray[np.float64], left: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The distribution of the number of arrivals, up to k - 1, with one more item."""
    more = counts * left
    more[1:] += counts[:-1] * arrived
    return more
