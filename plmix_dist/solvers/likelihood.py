"""MM, and the objective of MM and LSR: log-likelihood + log-prior, its gradient, and the step that never lowers it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from plmix_dist.kernels import EmStatistics, em_statistics
from plmix_dist.rankings import Floats
from plmix_dist.solvers.m_step import Gradient, MStep, Objective, Worths

# The prior: every item has `alpha` wins and `alpha` losses against one ghost item, in every component. The ghost's
# log-worth is free and part of the parameters. With alpha > 0 the estimate exists for any data.


def log_prior(log_worths: Floats, ghost: float, alpha: float, log_tie: float = -math.inf) -> float:
    """The log-density, up to a constant, of one component's log-worths (n_items,) and ghost, which may tie."""
    if alpha == 0:
        return 0.0
    difference = log_worths - ghost
    if log_tie > -math.inf:
        return float(-2 * alpha * np.logaddexp(np.logaddexp(difference / 2, -difference / 2), log_tie).sum())
    return float(-alpha * (np.logaddexp(0, -difference) + np.logaddexp(0, difference)).sum())


def largest_log_prior(n_items: int, alpha: float) -> float:
    """The maximum of `log_prior`: all items have the worth of the ghost."""
    return -2 * alpha * n_items * math.log(2)


def probabilities_against_ghost(log_worths: Floats, ghost: float) -> tuple[Floats, Floats]:
    """(n_items,) each: the probabilities that an item beats the ghost, and that it loses."""
    beats: Floats = np.exp(-np.logaddexp(0, ghost - log_worths))
    loses: Floats = np.exp(-np.logaddexp(0, log_worths - ghost))
    return beats, loses


def with_ghost(
    wins: Floats, expected_wins: Floats, log_worths: Floats, ghost: float, alpha: float
) -> tuple[Floats, Floats]:
    """(n_items + 1,) each: wins and expected wins with those of the prior, the ghost's own in the last place.

    Examples
    --------
    >>> wins, expected = with_ghost(np.array([3.0]), np.array([2.0]), np.zeros(1), 0.0, alpha=0.5)
    >>> wins.tolist(), expected.tolist()
    ([3.5, 0.5], [2.5, 0.5])
    """
    if alpha == 0:
        return np.append(wins, 0.0), np.append(expected_wins, 0.0)
    beats, loses = probabilities_against_ghost(log_worths, ghost)
    of_ghost = (len(wins) * alpha, 2 * alpha * loses.sum())
    return np.append(wins + alpha, of_ghost[0]), np.append(expected_wins + 2 * alpha * beats, of_ghost[1])


# The objective, its gradient, and MM: minorise and maximise (Hunter 2004; Gormley & Murphy 2008). MM sums n numbers per
# component, and every step is safe.

# The log-worth of the ghost moves at most this far in one step.
_LONGEST_GHOST_STEP = 100.0


class ComponentStatistics(NamedTuple):
    """Sums of one component: wins and expected wins (n_items,), rates (n_items, n_items) or empty."""

    wins: Floats
    expected_wins: Floats
    rates: Floats


def _component_statistics(sums: EmStatistics, component: int) -> ComponentStatistics:
    """The statistics of one component."""
    rates = sums.rates[component] if len(sums.rates) else sums.rates
    return ComponentStatistics(sums.wins[component], sums.expected_wins[component], rates)


def gradient(statistics: ComponentStatistics, worths: Worths, alpha: float) -> Gradient:
    """Derivatives of log-likelihood + log-prior in the log-worths and the ghost's: wins minus expected wins."""
    return Gradient(*with_ghost(statistics.wins, statistics.expected_wins, *worths[:2], alpha))


def mm_step(worths: Worths, at: Gradient, alpha: float) -> Worths:
    """Minorise and maximise (Hunter 2004): worth times wins / expected wins. Never lowers the objective.

    Examples
    --------
    >>> at = Gradient(np.array([3.0, 1.0, 0.0]), np.array([2.0, 2.0, 0.0]))
    >>> np.exp(mm_step(Worths(np.zeros(2), 0.0), at, alpha=0.0).log_worths).round(3).tolist()
    [1.732, 0.577]
    """
    return moved(worths, mm_ratio(at, alpha))


def mm_ratio(at: Gradient, alpha: float) -> Floats:
    """(n_items + 1,): the logarithms of wins / expected wins."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = np.log(at.wins) - np.log(at.expected_wins)
    # A ghost comes with a prior. Its step is bounded: its expected wins may be too small to be held.
    ratio[-1] = max(-_LONGEST_GHOST_STEP, min(_LONGEST_GHOST_STEP, ratio[-1])) if alpha else 0.0
    return ratio


def moved(worths: Worths, ratio: Floats) -> Worths:
    """Worths moved by log-ratios (n_items + 1,), then centred: the items' mean is zero."""
    with np.errstate(invalid="ignore"):  # log-worths that diverge have no mean
        return Worths(worths.log_worths + ratio[:-1], worths.ghost + ratio[-1]).centred()


def _observed(sums: EmStatistics) -> float:
    return float(sums.log_likelihood)


def _expected(sums: EmStatistics) -> float:
    return float(sums.expected_log_likelihood.sum())


LOG_LIKELIHOOD = Objective("log-likelihood", _observed, _expected, gradient, mm_step)


MM = MStep("mm", em_statistics, _component_statistics, None, objective=LOG_LIKELIHOOD, numbers=int, takes_ties=True)
