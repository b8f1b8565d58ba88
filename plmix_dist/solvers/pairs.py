"""Worths that minimise a sum, over pairs of items, of functions of the difference of their log-worths, by Newton."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.special import expit

from plmix_dist.kernels import PairStatistics, pair_statistics
from plmix_dist.rankings import Floats
from plmix_dist.solvers.m_step import MStep, Worths, square
from plmix_dist.threads import single_thread

_MOST_STEPS = 200
# Newton's steps square their error: after a step as short as this one, nothing but rounding is left.
_SHORT = 1e-9
_LONGEST = 10.0
_SHORTEST_SHARE = 1e-9
# Items that no pair connects leave the Hessian singular. They stay where they are.
_RIDGE = 1e-13


class _PairLosses(NamedTuple):
    """Functions of all differences d[i, j] = log-worth i - log-worth j, one per pair of items, at one point."""

    value: float
    # (n, n): first derivatives; [j, i] is minus [i, j].
    slopes: Floats
    # (n, n): second derivatives; [j, i] is equal to [i, j].
    curvatures: Floats
    # (n, n): numbers from 0 on to take in place of second derivatives where these give no descent.
    bounds: Floats


def _minimise_over_pairs(losses: Callable[[Floats], _PairLosses], start: Floats) -> Floats:
    """(n,): log-worths at a minimum of the losses, by Newton's method with exact derivatives and a line search.

    A minimum of convex losses is the only one. Otherwise it is the one to which the start (n,) leads. `losses` goes
    from differences (n, n) to the losses there.

    Examples
    --------
    >>> def squares(d):  # the difference shall be 3
    ...     away = d - np.array([[0.0, 3.0], [-3.0, 0.0]])
    ...     return _PairLosses((away**2).sum() / 2, 2 * away, 2 * np.ones((2, 2)), 2 * np.ones((2, 2)))
    >>> _minimise_over_pairs(squares, np.zeros(2)).round(9).tolist()
    [1.5, -1.5]
    """
    here = start
    at = losses(_differences(here))
    for _ in range(_MOST_STEPS):
        step = _newton_step(at)
        largest = float(np.abs(step).max())
        if not np.isfinite(largest):
            break
        if largest <= _SHORT:
            return here + step
        share, found = _line_search(losses, here, at, step * min(1.0, _LONGEST / largest))
        if found is None:
            break
        here, at = here + share, found
    return here


def _differences(log_worths: Floats) -> Floats:
    return log_worths[:, None] - log_worths[None, :]


def _newton_step(at: _PairLosses) -> Floats:
    """(n,): Newton's step, or one by the bounds where the Hessian is not positive definite. Its mean is zero."""
    gradient = at.slopes.sum(axis=1)
    # One thread: the bits of a factorisation must not depend on how many cores a worker has.
    with single_thread():
        for curvatures in (at.curvatures, at.bounds):
            degrees = curvatures.sum(axis=1) - curvatures.diagonal()
            scale = float(np.abs(degrees).max(initial=0.0)) or 1.0
            # A shift of all log-worths changes nothing; the constant added here keeps the step free of one.
            hessian = scale / len(gradient) - curvatures
            np.fill_diagonal(hessian, degrees + scale / len(gradient) + _RIDGE * scale)
            try:
                factor = scipy.linalg.cho_factor(hessian)
            except np.linalg.LinAlgError:
                continue
            return -np.asarray(scipy.linalg.cho_solve(factor, gradient))
    return np.full(len(gradient), np.nan)


def _line_search(
    losses: Callable[[Floats], _PairLosses], here: Floats, at: _PairLosses, step: Floats
) -> tuple[Floats, _PairLosses | None]:
    """The part of a step that lowers the losses enough, and the losses there; None if there is none."""
    expected = float(at.slopes.sum(axis=1) @ step)
    share = 1.0
    while share > _SHORTEST_SHARE:
        found = losses(_differences(here + share * step))
        if found.value <= at.value + 1e-4 * share * expected + 1e-14 * abs(at.value):
            return share * step, found
        share /= 2
    return step, None


# CML: composite marginal likelihood (Zhao & Xia 2018). Rankings are broken into pairs, as if these were
# independent.


def cml_step(wins: Floats, worths: Worths, alpha: float) -> Worths:
    """The worths that maximise the composite marginal likelihood, from wins (n_items, n_items).

    The prior is `alpha` wins and `alpha` losses of every item against the ghost, which are pairs like all others.

    Examples
    --------
    >>> step = cml_step(np.array([[0.0, 3.0], [1.0, 0.0]]), Worths(np.zeros(2), 0.0), alpha=0.0)
    >>> np.exp(step.log_worths).round(3).tolist()
    [1.732, 0.577]
    """
    return _minimised(partial(_losses, _wins_with_ghost(wins, alpha) if alpha else wins), worths, alpha)


def _minimised(losses: Callable[[Floats], _PairLosses], start: Worths, alpha: float) -> Worths:
    """The worths at a minimum of the losses; the ghost is one of the items if there is a prior, and stays if not."""
    if not alpha:
        return Worths(_minimise_over_pairs(losses, start.log_worths), start.ghost).centred()
    found = _minimise_over_pairs(losses, np.append(start.log_worths, start.ghost))
    return Worths(found[:-1], found[-1]).centred()


def _wins_with_ghost(wins: Floats, alpha: float) -> Floats:
    """(n_items + 1, n_items + 1): wins with those against the ghost and of the ghost, in the last place.

    Examples
    --------
    >>> _wins_with_ghost(np.zeros((1, 1)), alpha=0.5).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    >>> _wins_with_ghost(np.array([[0.0, 0.5], [1.5, 0.0]]), alpha=1).tolist()
    [[0.0, 0.5, 1.0], [1.5, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    grown = np.full((len(wins) + 1, len(wins) + 1), alpha, np.float64)  # alpha may be a whole number
    grown[:-1, :-1] = wins
    grown[-1, -1] = 0.0
    return grown


def _wins_of(sums: PairStatistics, component: int) -> Floats:
    """(n_items, n_items): the wins of one component."""
    wins: Floats = sums.wins[component]
    return wins


def _losses(wins: Floats, differences: Floats) -> _PairLosses:
    seen = wins + wins.T
    chance, against = expit(differences), expit(-differences)
    curvatures = seen * chance * against
    # Wins less expected wins, without a difference of large numbers where one of the two is nearly certain.
    slopes = wins.T * chance - wins * against
    return _PairLosses(float((wins * np.logaddexp(0, -differences)).sum()), slopes, curvatures, curvatures)


CML = MStep("cml", pair_statistics, _wins_of, cml_step, objective=None, numbers=square)


# GMM: generalised method of moments on pairs (Zhao, Villamil & Xia 2018; Nguyen & Zhang 2023).

# The composite likelihood where the search begins has at least this prior, so that its maximum exists.
_LEAST_ALPHA = 0.1


def gmm_step(wins: Floats, worths: Worths, alpha: float) -> Worths:
    """The worths whose chances are nearest to the frequencies of pairs, from wins (n_items, n_items).

    All pairs of items count the same, however often they were seen. The ghost's pairs, with frequency 1/2, count
    2 alpha / (mean number of comparisons of a pair that was seen): as much as their pseudo-comparisons.

    Examples
    --------
    >>> step = gmm_step(np.array([[0.0, 3.0], [1.0, 0.0]]), Worths(np.zeros(2), 0.0), alpha=0.0)
    >>> np.exp(step.log_worths).round(3).tolist()
    [1.732, 0.577]
    """
    start = cml_step(wins, worths, max(alpha, _LEAST_ALPHA))
    frequencies, counted = _moments(wins, alpha)
    ghost = start.ghost if alpha else worths.ghost
    return _minimised(partial(_gmm_losses, frequencies, counted), start._replace(ghost=ghost), alpha)


def _moments(wins: Floats, alpha: float) -> tuple[Floats, Floats]:
    """The frequency of every pair, and how much it counts; with those of the ghost, if there is a prior."""
    seen = wins + wins.T
    n_seen = np.count_nonzero(seen)
    per_pair = float(seen.sum()) / n_seen if n_seen else 1.0
    counted = (seen > 0).astype(np.float64)
    if alpha:
        wins = _wins_with_ghost(wins, alpha)
        seen = wins + wins.T
        counted = np.pad(counted, (0, 1), constant_values=2 * alpha / per_pair)
        counted[-1, -1] = 0.0
    frequencies = np.divide(wins, seen, out=np.full_like(seen, 0.5), where=seen > 0)
    return frequencies, counted


def _gmm_losses(frequencies: Floats, counted: Floats, differences: Floats) -> _PairLosses:
    chance, against = expit(differences), expit(-differences)
    density = chance * against
    # f - chance, from the smaller of the two sides: no digits are lost where both are nearly one.
    away = np.where(differences > 0, against - frequencies.T, frequencies - chance)
    gauss_newton = 2 * counted * density**2
    curvatures = gauss_newton - 2 * counted * away * density * (against - chance)
    return _PairLosses(float((counted * away**2).sum()) / 2, -2 * counted * away * density, curvatures, gauss_newton)


GMM = MStep("gmm", pair_statistics, _wins_of, gmm_step, objective=None, numbers=square)
