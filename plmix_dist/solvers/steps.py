"""Solver steps: the statistics of one component in, its next log-worths out. Each solver is one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.solvers.ghost import odds_against_ghost, with_ghost
from plmix_dist.solvers.stationary import stationary_distribution

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class ComponentStatistics(NamedTuple):
    """What a solver needs of one component: wins and expected wins (n_items,), rates (n_items, n_items) or empty."""

    wins: NDArray[np.float64]
    expected_wins: NDArray[np.float64]
    rates: NDArray[np.float64]


class Worths(NamedTuple):
    """Log-worths (n_items,) of one component, and that of its ghost."""

    log_worths: NDArray[np.float64]
    ghost: float


@dataclass(frozen=True)
class Solver:
    """One step of an M-step.

    Parameters
    ----------
    name
        What users type as m_step.
    needs_rates
        Whether a pass must sum rates between items.
    step
        From statistics, worths and alpha to the next worths.
    """

    name: str
    needs_rates: bool
    step: Callable[[ComponentStatistics, Worths, float], Worths]


def gradient(statistics: ComponentStatistics, worths: Worths, alpha: float) -> NDArray[np.float64]:
    """(n_items + 1,): the slope of log-likelihood + log-prior in the log-worths and the ghost's."""
    wins, expected = with_ghost(statistics.wins, statistics.expected_wins, *worths, alpha)
    return wins - expected


def mm_step(statistics: ComponentStatistics, worths: Worths, alpha: float) -> Worths:
    """Minorise and maximise (Hunter 2004): worth times wins / expected wins. Never lowers the objective."""
    wins, expected = with_ghost(statistics.wins, statistics.expected_wins, *worths, alpha)
    if alpha == 0:
        wins[-1] = expected[-1] = 1.0
    with np.errstate(divide="ignore"):
        ratio = np.log(wins) - np.log(expected)
    return _moved(worths, ratio)


def lsr_step(statistics: ComponentStatistics, worths: Worths, alpha: float) -> Worths:
    """Luce spectral ranking (Maystre & Grossglauser 2015, weighted): the stationary distribution of the rates.

    The chain is scaled by the present worths: its stationary distribution is the ratio of next to present worths.
    """
    log_worths, ghost = worths
    flows = statistics.rates.T * np.exp(log_worths[:, None] - log_worths[None, :])
    if alpha:
        beats, loses = odds_against_ghost(log_worths, ghost)
        flows = np.block([[flows, alpha * beats[:, None]], [alpha * loses[None, :], np.zeros((1, 1))]])
    # Without a prior the chain may fall apart; its worths then run away, which is for the caller to see.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(stationary_distribution(flows))
    return _moved(worths, ratio if alpha else np.append(ratio, 0.0))


def _moved(worths: Worths, ratio: NDArray[np.float64]) -> Worths:
    """Worths moved by log-ratios (n_items + 1,), the items' mean brought back to zero."""
    moved = worths.log_worths + ratio[:-1]
    with np.errstate(invalid="ignore"):  # worths that run away to infinity have no mean
        centre = moved.mean()
        return Worths(moved - centre, float(worths.ghost + ratio[-1] - centre))


MM = Solver("mm", needs_rates=False, step=mm_step)
LSR = Solver("lsr", needs_rates=True, step=lsr_step)
SOLVERS = {solver.name: solver for solver in (LSR, MM)}
