"""The prior: every item has `alpha` wins and `alpha` losses against one ghost item, in every component.

The ghost's log-worth is free and part of the state. With alpha > 0 the estimate exists for any data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def log_prior(log_worths: NDArray[np.float64], ghost: float, alpha: float) -> float:
    """The log-density, up to a constant, of one component's log-worths (n_items,) and ghost."""
    if alpha == 0:
        return 0.0
    difference = log_worths - ghost
    return float(-alpha * (np.logaddexp(0, -difference) + np.logaddexp(0, difference)).sum())


def odds_against_ghost(
    log_worths: NDArray[np.float64], ghost: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n_items,) each: the probabilities that an item beats the ghost, and that it loses."""
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
    """(n_items + 1,) each: wins and expected wins with the prior's, the ghost's own in the last place."""
    beats, loses = odds_against_ghost(log_worths, ghost)
    all_wins = np.append(wins + alpha, len(wins) * alpha)
    all_expected = np.append(expected_wins + 2 * alpha * beats, 2 * alpha * loses.sum())
    return all_wins, all_expected
