"""Worths that minimise a sum, over pairs of items, of functions of the difference of their log-worths, by Newton."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.linalg

from plmix_dist.single_thread import single_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_MOST_STEPS = 200
# Newton's steps square their error: after a step as short as this one, nothing but rounding is left.
_SHORT = 1e-9
_LONGEST = 10.0
_SHORTEST_SHARE = 1e-9
# Items that no pair connects leave the Hessian singular. They stay where they are.
_RIDGE = 1e-13


class PairLosses(NamedTuple):
    """Functions of all differences d[i, j] = log-worth i - log-worth j, one per pair of items, at one point.

    Parameters
    ----------
    value
        The sum over pairs.
    slopes : (n, n)
        First derivatives; [j, i] is minus [i, j].
    curvatures : (n, n)
        Second derivatives; [j, i] is equal to [i, j].
    bounds : (n, n)
        Numbers from 0 on to take in place of second derivatives where these give no descent.
    """

    value: float
    slopes: NDArray[np.float64]
    curvatures: NDArray[np.float64]
    bounds: NDArray[np.float64]


def minimise_over_pairs(
    losses: Callable[[NDArray[np.float64]], PairLosses], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n,): log-worths at a minimum of the losses, by Newton's method with exact derivatives and a line search.

    A minimum of convex losses is the only one. Otherwise it is the one to which the start leads.

    Parameters
    ----------
    losses
        From differences (n, n) to the losses there.
    start : (n,)
        Log-worths to begin with.

    Examples
    --------
    >>> def squares(d):  # the difference shall be 3
    ...     away = d - np.array([[0.0, 3.0], [-3.0, 0.0]])
    ...     return PairLosses((away**2).sum() / 2, 2 * away, 2 * np.ones((2, 2)), 2 * np.ones((2, 2)))
    >>> minimise_over_pairs(squares, np.zeros(2)).round(9).tolist()
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


def _differences(log_worths: NDArray[np.float64]) -> NDArray[np.float64]:
    return log_worths[:, None] - log_worths[None, :]


def _newton_step(at: PairLosses) -> NDArray[np.float64]:
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
    losses: Callable[[NDArray[np.float64]], PairLosses],
    here: NDArray[np.float64],
    at: PairLosses,
    step: NDArray[np.float64],
) -> tuple[NDArray[np.float64], PairLosses | None]:
    """The part of a step that lowers the losses enough, and the losses there; None if there is none."""
    expected = float(at.slopes.sum(axis=1) @ step)
    share = 1.0
    while share > _SHORTEST_SHARE:
        found = losses(_differences(here + share * step))
        if found.value <= at.value + 1e-4 * share * expected + 1e-14 * abs(at.value):
            return share * step, found
        share /= 2
    return step, None
