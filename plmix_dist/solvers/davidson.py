"""The M-step where ties are outcomes of choices: half of MM's step, beside half a step of the weights of ties.

Wins and ties of an outcome each add up to one, so generalised iterative scaling holds: adding half of log(wins /
expected wins) to all log-worths and half of log(ties / expected ties) to all log-weights never lowers the likelihood.
The ghost of the prior may tie too, as in R's PlackettLuce.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmix_dist.kernels.tied_choices import tie_statistics
from plmix_dist.rankings import Floats
from plmix_dist.solvers.likelihood import LOG_LIKELIHOOD, MM, ComponentStatistics, mm_ratio, moved
from plmix_dist.solvers.m_step import Gradient, Worths


def outcomes(difference: Floats, log_tie: Floats | float) -> Floats:
    """(3, ...): the probabilities of win, tie and loss of a pair, from its difference of log-worths.

    Examples
    --------
    >>> outcomes(np.zeros(1), 0.0).round(4).ravel().tolist()
    [0.3333, 0.3333, 0.3333]
    """
    logs = np.stack(np.broadcast_arrays(difference / 2, log_tie, -difference / 2))
    found: Floats = np.exp(logs - np.logaddexp.reduce(logs, axis=0))
    return found


def ghost_ties(worths: Worths, alpha: float) -> float:
    """How many ties with the ghost the prior expects, over all items."""
    return 2 * alpha * float(outcomes(worths.log_worths - worths.ghost, worths.log_tie)[1].sum())


def _gradient(statistics: ComponentStatistics, worths: Worths, alpha: float) -> Gradient:
    """Wins and expected wins, with `alpha` wins and losses of every item against the ghost."""
    wins, ties, losses = outcomes(worths.log_worths - worths.ghost, worths.log_tie)
    by_prior = 2 * alpha * (wins + ties / 2)
    of_ghost = 2 * alpha * float((losses + ties / 2).sum())
    return Gradient(
        np.append(statistics.wins + alpha, alpha * len(wins)), np.append(statistics.expected_wins + by_prior, of_ghost)
    )


def _half_step(worths: Worths, at: Gradient, alpha: float) -> Worths:
    return moved(worths, mm_ratio(at, alpha) / 2)


_OBJECTIVE = replace(LOG_LIKELIHOOD, gradient=_gradient, safe_step=_half_step)
DAVIDSON = replace(MM, sums=tie_statistics, objective=_OBJECTIVE)
