"""A safeguarded, accelerated fixed-point iteration as a state and one pure step.

Where there is an objective it never falls: a point that lowers it is not taken; the iteration goes back to the last
good point and takes the safe step from there. Without an objective every step is taken, and none is accelerated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from plmix_dist.errors import NonFiniteError
from plmix_dist.fitting.algorithm import savable
from plmix_dist.fitting.newton import Hessian, Newton, NewtonState
from plmix_dist.fitting.point import WIDEST_POINT, Point
from plmix_dist.rankings import Floats

# Anderson acceleration of a fixed-point iteration.

_MEMORY = 5


@savable
class _AndersonMemory(NamedTuple):
    """The last few points, and how far the map moved each: (n_kept, n_parameters) each."""

    points: Floats
    residuals: Floats

    @classmethod
    def empty(cls, n_parameters: int) -> _AndersonMemory:
        """Nothing remembered."""
        return cls(np.empty((0, n_parameters)), np.empty((0, n_parameters)))


def propose(memory: _AndersonMemory, point: Floats, image: Floats) -> tuple[_AndersonMemory, Floats]:
    """The memory with a point and its image under the map added, and the next point."""
    residual = image - point
    if not np.isfinite(residual).all():
        return _AndersonMemory.empty(len(point)), image
    points = np.concatenate([memory.points[-_MEMORY:], point[None]])
    residuals = np.concatenate([memory.residuals[-_MEMORY:], residual[None]])
    memory = _AndersonMemory(points, residuals)
    if len(points) < 2:
        return memory, image
    steps, changes = points[1:] - points[:-1], residuals[1:] - residuals[:-1]
    mixing = np.linalg.lstsq(changes.T, residual, rcond=1e-10)[0]
    proposal: Floats = image - mixing @ (steps + changes)
    return memory, proposal if np.isfinite(proposal).all() else image


# When an iteration has come near enough to its fixed point: rules for the end of a fit, one value each.


class Stopping(NamedTuple):
    """A rule for the end of a fit."""

    # What settings call it.
    name: str
    # From a point and its evaluation to the number that must be at most the tolerance.
    residual: Callable[[Point, Evaluation], float]
    # Whether the change of the objective, divided by total weight, must be at most the tolerance too.
    waits_for_objective: bool
    # The name of the residual in the records of iterations; None if it is there already.
    recorded_as: str | None
    # An exact M-step is solved to this share of the tolerance, so that all digits of the fit can be relied on.
    inner_share: float


def _of_gradient(_point: Point, evaluation: Evaluation) -> float:
    return evaluation.residual


def _squared_change(point: Point, evaluation: Evaluation) -> float:
    moves = evaluation.next.log_worths - point.log_worths
    return float(((moves - moves.mean(axis=1, keepdims=True)) ** 2).sum())


# The largest entry of the gradient, divided by total weight.
GRADIENT = Stopping("gradient", _of_gradient, waits_for_objective=True, recorded_as=None, inner_share=0.1)
# The squared changes of all log-worths in one iteration, summed, as in the code of the paper's authors. Neither the
# gradient nor the likelihood counts: a small step alone is not convergence, so this is not the default. Squares:
# an M-step ends with steps a hundredth as long as those of EM. Otherwise LSR and MM would end at different points.
_LOG_WORTHS = Stopping(
    "log-worths", _squared_change, waits_for_objective=False, recorded_as="squared_change", inner_share=1e-4
)

STOPPINGS = {rule.name: rule for rule in (GRADIENT, _LOG_WORTHS)}


Step = Literal["start", "plain", "accelerated", "newton", "safe"]
_Ended = Literal["converged", "flat", "stalled", "interrupted", "exhausted"]


@savable
class Evaluation(NamedTuple):
    """What is known about a point after one pass over the data."""

    # None where the M-step has none.
    objective: float | None
    # How far this is from a fixed point: the largest entry of the gradient, divided by total weight; without an
    # objective, the largest change of a parameter.
    residual: float
    # gradient, scale (n_parameters,) or None: derivatives of the objective in the order of `Point.flat`, and an upper
    # bound on the second derivatives, which EM's own step uses.
    gradient: Floats | None
    scale: Floats | None
    # Where the iteration leads.
    next: Point
    # A step that cannot lower the objective.
    safe: Point | None
    # More entries of the record of this iteration.
    details: dict[str, Any]
    # That of all rows at this point, where a careful Newton step has asked for it.
    hessian: Hessian | None = None

    @property
    def posterior_shares(self) -> Floats:
        """(n_components,): the mean posterior of all rows at the point."""
        held = self.details.get("posterior_shares")
        return np.exp(self.next.log_shares) if held is None else np.array(held)


@savable
class Good(NamedTuple):
    """The last point that was taken."""

    point: Point
    evaluation: Evaluation


# Every 20 Newton steps, an iteration looks back at what they have gained. If that is less than a quarter of a nat and
# the gradient has not come down, the next steps are careful. Careful ones end if they gain no more than the tolerance
# allows; or, the third time, less than half a nat, and every time after that half a nat more: on such a ridge all
# points are as good as each other, by any test and any criterion. From the third time on the gradient does not count,
# which goes up and down there.
_WINDOW = 20
_MOST_WINDOWS = 3
_LITTLE = 0.25
_FALL = 0.25


@savable
class _Lookback(NamedTuple):
    """How many evaluations there were, and what was known at the beginning of the last window."""

    n_evaluations: int = 0
    objective: float = -math.inf
    residual: float = math.inf

    def after(self, good: Good) -> _Lookback:
        """One evaluation more; a new window after 20."""
        objective, residual = good.evaluation.objective, good.evaluation.residual
        if objective is not None and self.n_evaluations % _WINDOW == 0:
            return _Lookback(self.n_evaluations + 1, objective, residual)
        return self._replace(n_evaluations=self.n_evaluations + 1)

    def is_flat(self, good: Good, rules: Rules) -> bool:
        """Whether a window of careful steps has just ended in which next to nothing was gained."""
        n_late = self.n_evaluations // _WINDOW + 1 - _MOST_WINDOWS
        gain = self._gain(good, _FALL if n_late < 1 else 0.0)
        return gain is not None and gain <= max(_WINDOW * rules.tol * rules.weight, 2 * _LITTLE * n_late)

    def has_gained_little(self, good: Good) -> bool:
        """Whether a window has just ended that gained little and left the gradient about as it was."""
        gain = self._gain(good, _FALL)
        return gain is not None and gain < _LITTLE

    def _gain(self, good: Good, fall: float) -> float | None:
        """What a window that has just ended gained; None within one, or where the gradient has come down."""
        objective, residual = good.evaluation.objective, good.evaluation.residual
        if objective is None or not self.n_evaluations or self.n_evaluations % _WINDOW:
            return None
        return objective - self.objective if residual >= fall * self.residual else None


@savable
class Iteration(NamedTuple):
    """An iteration under way."""

    # The point that the next pass evaluates.
    point: Point
    step: Step
    good: Good | None
    # anderson, newton: what acceleration remembers.
    anderson: _AndersonMemory
    newton: NewtonState | None
    n_evaluations: int
    # Why the iteration has ended: converged; flat, where no step leads higher; stalled, where even the safe step falls
    # and rounding is all that is left; interrupted; exhausted, after the most iterations.
    ended: _Ended | None
    lookback: _Lookback = _Lookback()

    @classmethod
    def start(cls, point: Point, newton: NewtonState | None = None) -> Iteration:
        """An iteration that begins at a point."""
        return cls(point, "start", None, _AndersonMemory.empty(point.n_parameters), newton, n_evaluations=0, ended=None)

    @property
    def best(self) -> Good:
        """Where an iteration that has ended leads."""
        assert self.good is not None, "nothing was evaluated"
        return self.good


@dataclass(frozen=True)
class Rules:
    """How an iteration goes on."""

    # It ends when the residual of `stopping` is at most this.
    tol: float
    # The most evaluations.
    max_iter: int
    weight: float
    # Whether to use Anderson acceleration.
    accelerate: bool = True
    newton: Newton | None = None
    # The iteration ends at a good point for which this is true.
    interrupt: Callable[[Point], bool] | None = None
    # What is compared with the tolerance: by default the gradient, and the change of the objective divided by
    # `weight`.
    stopping: Stopping = GRADIENT

    def is_near(self, good: Good) -> bool:
        """Whether a point is as near to a fixed point as the tolerance asks for."""
        return self.stopping.residual(good.point, good.evaluation) <= self.tol


def advance(iteration: Iteration, evaluation: Evaluation, rules: Rules) -> tuple[Iteration, dict[str, Any]]:
    """The iteration after its point was evaluated, and a record of what happened."""
    number, good = iteration.n_evaluations + 1, iteration.good
    before = None if good is None else good.evaluation.objective
    change = None if before is None or evaluation.objective is None else evaluation.objective - before
    taken = _is_taken(evaluation, good)
    here = Good(iteration.point, evaluation._replace(hessian=None))
    named = "gradient" if evaluation.objective is not None else "largest_change"
    record = {"step": iteration.step, "taken": taken, "objective": evaluation.objective, "change": change}
    record |= {named: evaluation.residual} | evaluation.details
    if rules.stopping.recorded_as is not None:
        record[rules.stopping.recorded_as] = rules.stopping.residual(*here)
    iteration = iteration._replace(n_evaluations=number)
    iteration, is_flat = _looked_back(iteration, here if taken or good is None else good, rules)
    if is_flat:
        return iteration, record | {"flat": True}
    if not taken:
        assert good is not None
        if iteration.step == "safe":
            ended: _Ended = "converged" if rules.is_near(good) else "stalled"
            return iteration._replace(ended=ended), record
        return _refused(iteration, evaluation, good, rules), record
    iteration = iteration._replace(good=here)
    if rules.interrupt is not None and rules.interrupt(iteration.point):
        return iteration._replace(ended="interrupted"), record
    waits = rules.stopping.waits_for_objective and evaluation.objective is not None
    settled = not waits or (change is not None and abs(change) <= rules.tol * rules.weight)
    if rules.is_near(here) and settled:
        return iteration._replace(ended="converged"), record
    if number >= rules.max_iter:
        return iteration._replace(ended="exhausted"), record
    return _proposed(iteration, evaluation, rules), record


def _looked_back(iteration: Iteration, best: Good, rules: Rules) -> tuple[Iteration, bool]:
    """The iteration after a look at what its Newton steps have gained, and whether it ends, on a flat ridge."""
    newton = iteration.newton
    if newton is None or (newton.hessian is None and not newton.careful):
        return iteration, False
    lookback = iteration.lookback.after(best)
    if not newton.careful and lookback.has_gained_little(best):
        return iteration._replace(lookback=_Lookback(), newton=newton.with_care()), False
    if newton.careful and lookback.is_flat(best, rules) and not rules.is_near(best):
        return iteration._replace(lookback=lookback, good=best, ended="flat"), True
    return iteration._replace(lookback=lookback), False


def _is_taken(evaluation: Evaluation, good: Good | None) -> bool:
    """Whether the objective is at least what it was at the last good point."""
    if evaluation.objective is None:
        return True
    if not math.isfinite(evaluation.objective):
        if good is None:
            raise NonFiniteError("the objective is not finite where the fit begins")
        return False
    if good is None or good.evaluation.objective is None:
        return True
    # Sums of millions of terms differ in their last digits; a fall within rounding does not count.
    slack = 1e-13 * abs(good.evaluation.objective) + 1e-300
    return bool(evaluation.objective >= good.evaluation.objective - slack)


def _refused(iteration: Iteration, evaluation: Evaluation, good: Good, rules: Rules) -> Iteration:
    """Back to the last good point, and on by a shorter Newton step or its safe step."""
    if iteration.n_evaluations >= rules.max_iter:
        return iteration._replace(ended="exhausted")
    assert good.evaluation.safe is not None, "an objective comes with a safe step"
    newton = iteration.newton
    shorter = None
    if newton is not None and rules.newton is not None:
        newton, shorter = rules.newton.refuse(newton, *good, iteration.point, evaluation)
    iteration = iteration._replace(anderson=_AndersonMemory.empty(good.point.n_parameters), newton=newton)
    if shorter is not None:
        return iteration._replace(point=shorter, step="newton")
    return iteration._replace(point=good.evaluation.safe, step="safe")


def _proposed(iteration: Iteration, evaluation: Evaluation, rules: Rules) -> Iteration:
    """On by Newton's step or the iteration's own, mixed with the last few where that can be computed with."""
    here, memory, newton = iteration.point, iteration.anderson, iteration.newton
    leap = None
    if newton is not None and rules.newton is not None:
        newton, leap = rules.newton.propose(newton, here, evaluation)
    plain = proposal = evaluation.next if leap is None else leap
    step: Step = "plain" if leap is None else "newton"
    careful = newton is not None and newton.careful and leap is not None
    if rules.accelerate and evaluation.objective is not None and not careful:
        if newton is not None and newton.is_new:
            memory = _AndersonMemory.empty(here.n_parameters)  # the last points belong to another map
        memory, mixed = propose(memory, here.flat(), plain.flat())
        accelerated = here.like(mixed)
        if accelerated.log_range() <= WIDEST_POINT and np.isfinite(accelerated.ghosts).all():
            proposal, step = accelerated, step if leap is not None else "accelerated"
    return iteration._replace(point=proposal, step=step, anderson=memory, newton=newton)
