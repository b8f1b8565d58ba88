"""The prior: every item has `alpha` wins and `alpha` losses against one ghost item, in every component.

The ghost's log-worth is free and part of the parameters. With alpha > 0 the estimate exists for any data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def log_prior(log_worths: NDArray[np.float64], ghost: float, alpha: float) -> float:
    """The log-density, up to a constant, of one component's log-worths (n_items,) and ghost.

    Examples
    --------
    >>> round(log_prior(np.zeros(2), 0.0, 0.5), 4)  # two items, half a win and half a loss each, at even odds
    -1.3863
    """
    if alpha == 0:
        return 0.0
    difference = log_worths - ghost
    return float(-alpha * (np.logaddexp(0, -difference) + np.logaddexp(0, difference)).sum())


def largest_log_prior(n_items: int, alpha: float) -> float:
    """The maximum of `log_prior`: all items have the worth of the ghost.

    Examples
    --------
    >>> largest_log_prior(2, 0.5) == log_prior(np.zeros(2), 0.0, 0.5)
    True
    """
    return -2 * alpha * n_items * math.log(2)


def probabilities_against_ghost(
    log_worths: NDArray[np.float64], ghost: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n_items,) each: the probabilities that an item beats the ghost, and that it loses.

    Examples
    --------
    >>> beats, loses = probabilities_against_ghost(np.log([3.0]), 0.0)
    >>> beats.round(2).tolist(), loses.round(2).tolist()
    ([0.75], [0.25])
    """
    beats: NDArray[np.float64] = np.exp(-np.logaddexp(0, ghost - log_worths))
    loses: NDArray[np.float64] = np.exp(-np.logaddexp(0, log_worths - ghost))
    return beats, loses


def with_ghost(
    wins: NDArray[np.float64],
    expected_wins: NDArray[np.float64],
    log_worths: NDArray[np.float64],
    ghost: float,
    alpha: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n_items + 1,) each: wins and expected wins with those of the prior, the ghost's own in the last place.

    Examples
    --------
    >>> wins, expected = with_ghost(np.array([3.0]), np.array([2.0]), np.zeros(1), 0.0, alpha=0.5)
    >>> wins.tolist(), expected.tolist()
    ([3.5, 0.5], [2.5, 0.5])
    """
    n_items = len(wins)
    all_wins, all_expected = np.empty(n_items + 1), np.empty(n_items + 1)
    if alpha == 0:
        all_wins[:-1], all_expected[:-1] = wins, expected_wins
        all_wins[-1] = all_expected[-1] = 0.0
        return all_wins, all_expected
    beats, loses = probabilities_against_ghost(log_worths, ghost)
    np.add(wins, alpha, out=all_wins[:-1])
    all_wins[-1] = n_items * alpha
    np.add(expected_wins, 2 * alpha * beats, out=all_expected[:-1])
    all_expected[-1] = 2 * alpha * loses.sum()
    return all_wins, all_expected
