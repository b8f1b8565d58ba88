"""The objective of MM and LSR: the log-likelihood, its gradient, and the step that never lowers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.solvers.ghost import with_ghost
from plmix_dist.solvers.m_step import Gradient, Objective, Worths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels import EmStatistics


_LONGEST_GHOST_STEP = 100.0


class ComponentStatistics(NamedTuple):
    """Sums of one component: wins and expected wins (n_items,), rates (n_items, n_items) or empty."""

    wins: NDArray[np.float64]
    expected_wins: NDArray[np.float64]
    rates: NDArray[np.float64]


def component_statistics(sums: EmStatistics, component: int) -> ComponentStatistics:
    """The statistics of one component.

    Examples
    --------
    >>> from plmix_dist.kernels import em_statistics, prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> sums = em_statistics(RankingBlock.from_array([[0, 1]]), prepare(np.zeros((1, 2)), np.zeros(1)))
    >>> component_statistics(sums, 0).wins.tolist()
    [1.0, 0.0]
    """
    rates = sums.rates[component] if len(sums.rates) else sums.rates
    return ComponentStatistics(sums.wins[component], sums.expected_wins[component], rates)


def gradient(statistics: ComponentStatistics, worths: Worths, alpha: float) -> Gradient:
    """Derivatives of log-likelihood + log-prior in the log-worths and the ghost's: wins minus expected wins.

    Examples
    --------
    >>> statistics = ComponentStatistics(np.array([1.0, 0.0]), np.array([0.5, 0.5]), np.empty(0))
    >>> gradient(statistics, Worths(np.zeros(2), 0.0), alpha=0.0).values.tolist()
    [0.5, -0.5, 0.0]
    """
    return Gradient(*with_ghost(statistics.wins, statistics.expected_wins, *worths, alpha))


def mm_step(worths: Worths, at: Gradient, alpha: float) -> Worths:
    """Minorise and maximise (Hunter 2004): worth times wins / expected wins. Never lowers the objective.

    Examples
    --------
    >>> at = Gradient(np.array([3.0, 1.0, 0.0]), np.array([2.0, 2.0, 0.0]))
    >>> np.exp(mm_step(Worths(np.zeros(2), 0.0), at, alpha=0.0).log_worths).round(3).tolist()
    [1.732, 0.577]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(at.wins) - np.log(at.expected_wins)
    # Without a prior there is no ghost. With one its step is bounded: its expected wins may be too small to be held.
    ratio[-1] = max(-_LONGEST_GHOST_STEP, min(_LONGEST_GHOST_STEP, ratio[-1])) if alpha else 0.0
    return moved(worths, ratio)


def moved(worths: Worths, ratio: NDArray[np.float64]) -> Worths:
    """Worths moved by log-ratios (n_items + 1,), then centred: the items' mean is zero.

    Examples
    --------
    >>> moved(Worths(np.zeros(2), 0.0), np.array([2.0, 0.0, 0.0]))
    Worths(log_worths=array([ 1., -1.]), ghost=-1.0)
    """
    there = worths.log_worths + ratio[:-1]
    with np.errstate(invalid="ignore"):  # log-worths that diverge have no mean
        centre = there.mean()
        return Worths(there - centre, float(worths.ghost + ratio[-1] - centre))


def _observed(sums: EmStatistics) -> float:
    return float(sums.log_likelihood)


def _expected(sums: EmStatistics) -> float:
    return float(sums.expected_log_likelihood.sum())


LOG_LIKELIHOOD = Objective("log-likelihood", _observed, _expected, gradient, mm_step)
