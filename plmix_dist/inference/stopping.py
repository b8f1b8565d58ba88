"""When an iteration has come near enough to its fixed point: rules for the end of a fit, one value each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from plmix_dist.inference.fixed_point import Evaluation
    from plmix_dist.inference.point import Point


class Stopping(NamedTuple):
    """A rule for the end of a fit.

    Parameters
    ----------
    name
        What settings call it.
    residual
        From a point and its evaluation to the number that must be at most the tolerance.
    waits_for_objective
        Whether the change of the objective, divided by total weight, must be at most the tolerance too.
    recorded_as
        The name of the residual in the records of iterations; None if it is there already.
    inner_share
        An exact M-step is solved to this share of the tolerance, so that all digits of the fit can be relied on.

    Examples
    --------
    >>> sorted(STOPPINGS)
    ['gradient', 'log-worths']
    """

    name: str
    residual: Callable[[Point, Evaluation], float]
    waits_for_objective: bool
    recorded_as: str | None
    inner_share: float


def _of_gradient(point: Point, evaluation: Evaluation) -> float:
    del point
    return evaluation.residual


def _squared_change(point: Point, evaluation: Evaluation) -> float:
    moves = evaluation.next.log_worths - point.log_worths
    return float(((moves - moves.mean(axis=1, keepdims=True)) ** 2).sum())


# The largest entry of the gradient, divided by total weight.
GRADIENT = Stopping("gradient", _of_gradient, waits_for_objective=True, recorded_as=None, inner_share=0.1)
# The squared changes of all log-worths in one iteration, summed, as in the code of the paper's authors. Neither the
# gradient nor the likelihood is looked at: a small step alone is not convergence, so this is not the default. Squares:
# an M-step ends with steps a hundredth as long as those of EM. Otherwise LSR and MM would end at different points.
LOG_WORTHS = Stopping(
    "log-worths", _squared_change, waits_for_objective=False, recorded_as="squared_change", inner_share=1e-4
)

STOPPINGS = {rule.name: rule for rule in (GRADIENT, LOG_WORTHS)}


def posterior_shares(evaluation: Evaluation) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(n_components,): the mean posterior of all rows at a point that was evaluated.

    Examples
    --------
    >>> from plmix_dist.inference.fixed_point import Evaluation
    >>> from plmix_dist.inference.point import Point
    >>> after = Point.start(np.zeros((2, 3)), np.array([0.25, 0.75]))
    >>> posterior_shares(Evaluation(None, 0.0, None, None, after, None, {})).round(6).tolist()
    [0.25, 0.75]
    """
    held = evaluation.details.get("posterior_shares")
    return np.exp(evaluation.next.log_shares) if held is None else np.array(held)
