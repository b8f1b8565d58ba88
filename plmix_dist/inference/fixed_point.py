"""A safeguarded, accelerated fixed-point iteration as a state and one pure step.

Where there is an objective it never falls: a point that lowers it is not taken; the iteration goes back to the last
good point and takes the safe step from there. Without an objective every step is taken, and none is accelerated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from plmix_dist.errors import NonFiniteError
from plmix_dist.inference import anderson
from plmix_dist.inference.anderson import AndersonMemory
from plmix_dist.inference.point import WIDEST_POINT, Point
from plmix_dist.inference.saved_state import savable
from plmix_dist.inference.stopping import GRADIENT, Stopping

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from plmix_dist.inference.newton import Newton, NewtonState

Step = Literal["start", "plain", "accelerated", "newton", "safe"]
_PLAIN: Step = "plain"
_ACCELERATED: Step = "accelerated"
_NEWTON: Step = "newton"
Ended = Literal["converged", "stalled", "interrupted", "exhausted"]


@savable
class Evaluation(NamedTuple):
    """What one pass over the data tells about a point.

    Parameters
    ----------
    objective
        None where the M-step has none.
    residual
        How far this is from a fixed point: the largest entry of the gradient, divided by total weight; without an
        objective, the largest change of a parameter.
    gradient, scale : (n_parameters,) or None
        Derivatives of the objective in the order of `Point.flat`, and an upper bound on the second derivatives that
        EM's own step goes by.
    next
        Where the iteration leads.
    safe
        A step that cannot lower the objective.
    details
        Whatever the record of an iteration shall show.
    """

    objective: float | None
    residual: float
    gradient: NDArray[np.float64] | None
    scale: NDArray[np.float64] | None
    next: Point
    safe: Point | None
    details: dict[str, Any]


@savable
class Good(NamedTuple):
    """The last point that was taken."""

    point: Point
    evaluation: Evaluation


@savable
class Iteration(NamedTuple):
    """An iteration under way.

    Parameters
    ----------
    point
        The point that the next pass evaluates.
    step
        How it was proposed.
    good
        The last good point.
    anderson, newton
        What acceleration remembers.
    n_evaluations
        How many points were evaluated.
    ended
        Why the iteration has ended: converged; stalled, where even the safe step falls and rounding is all that is
        left; interrupted; exhausted, after the most iterations.
    """

    point: Point
    step: Step
    good: Good | None
    anderson: AndersonMemory
    newton: NewtonState | None
    n_evaluations: int
    ended: Ended | None

    @classmethod
    def start(cls, point: Point, newton: NewtonState | None = None) -> Iteration:
        """An iteration that begins at a point.

        Examples
        --------
        >>> import numpy as np
        >>> Iteration.start(Point.start(np.zeros((1, 2)), np.ones(1))).step
        'start'
        """
        memory = AndersonMemory.empty(point.n_parameters)
        return cls(point, "start", None, memory, newton, n_evaluations=0, ended=None)

    @property
    def best(self) -> Good:
        """Where an iteration that has ended leads."""
        assert self.good is not None, "nothing was evaluated"
        return self.good


@dataclass(frozen=True)
class Rules:
    """How an iteration goes on.

    Parameters
    ----------
    tol
        It ends when what `stopping` looks at is at most this.
    max_iter
        The most evaluations.
    weight
        The total weight of the data.
    accelerate
        Whether to use Anderson acceleration.
    newton
        Proposes Newton steps, or None.
    interrupt
        The iteration ends at a good point for which this is true.
    stopping
        What is compared with the tolerance: by default the gradient, and the change of the objective divided by
        `weight`.
    """

    tol: float
    max_iter: int
    weight: float
    accelerate: bool = True
    newton: Newton | None = None
    interrupt: Callable[[Point], bool] | None = None
    stopping: Stopping = GRADIENT

    def is_near(self, good: Good) -> bool:
        """Whether a point is as near to a fixed point as the tolerance asks for."""
        return self.stopping.residual(good.point, good.evaluation) <= self.tol


def advance(iteration: Iteration, evaluation: Evaluation, rules: Rules) -> tuple[Iteration, dict[str, Any]]:
    """The iteration after its point was evaluated, and a record of what happened.

    Examples
    --------
    >>> import numpy as np
    >>> begin = Point.start(np.array([[1.0, 3.0]]), np.ones(1))
    >>> halved = begin._replace(log_worths=begin.log_worths / 2)
    >>> evaluation = Evaluation(None, 0.5, None, None, halved, None, {})
    >>> after, record = advance(Iteration.start(begin), evaluation, Rules(tol=1e-8, max_iter=9, weight=1.0))
    >>> after.point.log_worths.tolist(), record["taken"]
    ([[-0.5, 0.5]], True)
    """
    number, good = iteration.n_evaluations + 1, iteration.good
    change = _change(evaluation, good)
    taken = _is_taken(evaluation, good)
    here = Good(iteration.point, evaluation)
    record = _record(iteration.step, taken, evaluation, change)
    if rules.stopping.recorded_as is not None:
        record[rules.stopping.recorded_as] = rules.stopping.residual(*here)
    iteration = iteration._replace(n_evaluations=number)
    if not taken:
        assert good is not None
        if iteration.step == "safe":
            ended: Ended = "converged" if rules.is_near(good) else "stalled"
            return iteration._replace(ended=ended), record
        return _refused(iteration, good, rules), record
    iteration = iteration._replace(good=here)
    if rules.interrupt is not None and rules.interrupt(iteration.point):
        return iteration._replace(ended="interrupted"), record
    settled = (
        evaluation.objective is None
        or not rules.stopping.waits_for_objective
        or (change is not None and abs(change) <= rules.tol * rules.weight)
    )
    if rules.is_near(here) and settled:
        return iteration._replace(ended="converged"), record
    if number >= rules.max_iter:
        return iteration._replace(ended="exhausted"), record
    return _proposed(iteration, evaluation, rules), record


def _change(evaluation: Evaluation, good: Good | None) -> float | None:
    if good is None or evaluation.objective is None or good.evaluation.objective is None:
        return None
    return evaluation.objective - good.evaluation.objective


def _is_taken(evaluation: Evaluation, good: Good | None) -> bool:
    """Whether the objective is no lower than at the last good point."""
    if evaluation.objective is None:
        return True
    if not math.isfinite(evaluation.objective):
        if good is None:
            raise NonFiniteError("the objective is not finite where the fit begins")
        return False
    if good is None or good.evaluation.objective is None:
        return True
    # Sums of millions of terms differ in their last digits; a fall within rounding is no fall.
    slack = 1e-13 * abs(good.evaluation.objective) + 1e-300
    return bool(evaluation.objective >= good.evaluation.objective - slack)


def _record(step: Step, taken: bool, evaluation: Evaluation, change: float | None) -> dict[str, Any]:
    named = "gradient" if evaluation.objective is not None else "largest_change"
    record = {"step": step, "taken": taken, "objective": evaluation.objective, "change": change}
    return record | {named: evaluation.residual} | evaluation.details


def _refused(iteration: Iteration, good: Good, rules: Rules) -> Iteration:
    """Back to the last good point, and on by its safe step."""
    if iteration.n_evaluations >= rules.max_iter:
        return iteration._replace(ended="exhausted")
    assert good.evaluation.safe is not None, "an objective comes with a safe step"
    newton = iteration.newton
    if newton is not None and rules.newton is not None:
        newton = rules.newton.refuse(newton)
    memory = AndersonMemory.empty(good.point.n_parameters)
    return iteration._replace(point=good.evaluation.safe, step="safe", anderson=memory, newton=newton)


def _proposed(iteration: Iteration, evaluation: Evaluation, rules: Rules) -> Iteration:
    """On by Newton's step or the iteration's own, mixed with the last few where that can be computed with."""
    here, memory, newton = iteration.point, iteration.anderson, iteration.newton
    leap = None
    if newton is not None and rules.newton is not None:
        newton, leap = rules.newton.propose(newton, here, evaluation)
    plain = evaluation.next if leap is None else leap
    proposal, step = plain, _PLAIN if leap is None else _NEWTON
    if rules.accelerate and evaluation.objective is not None:
        if newton is not None and newton.is_new:
            memory = AndersonMemory.empty(here.n_parameters)  # the last points belong to another map
        memory, mixed = anderson.propose(memory, here.flat(), plain.flat())
        accelerated = here.like(mixed)
        if accelerated.log_range() <= WIDEST_POINT and np.isfinite(accelerated.ghosts).all():
            proposal, step = accelerated, _ACCELERATED if leap is None else _NEWTON
    return iteration._replace(point=proposal, step=step, anderson=memory, newton=newton)
