"""When to take Newton's step, and how much of it: once EM has come near, and only while the gradient falls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.fitting.algorithm import savable
from plmix_dist.fitting.point import Point
from plmix_dist.rankings import Floats

if TYPE_CHECKING:
    from plmix_dist.fitting.fixed_point import Evaluation
    from plmix_dist.fitting.hessian import SampleHessian

# After this many steps the gradient must be down to this share, or the Hessian is computed again.
_STEPS_WATCHED = 3
_EXPECTED_FALL = 0.1
# The gradient gives the gain of EM's own step. After 3 Newton steps in a row that gained less, EM continues alone.
_MOST_POOR = 3
# A step that failed is followed by shorter ones; a step that succeeded, by a longer one.
_DAMPING_AFTER_FAILURE = 0.1
_DAMPING_FACTOR = 4.0
# After 3 failures in a row, EM continues alone for 10 iterations.
_MOST_FAILURES = 3
_PAUSE = 10
# After this many steps that failed or did not lower the gradient, the iteration is on a narrow, curved ridge: every
# step then has the Hessian of its own point and of all rows, and its length follows from how well the last one was
# predicted.
_MOST_TROUBLES = 4
_LEAST_CAREFUL_DAMPING = 1e-6
_MOST_SHORTENED = 8
_MOST_BENDS = 8
# Sums of millions of terms are known to about this share.
_ROUNDING = 1e-12


@savable
class Hessian(NamedTuple):
    """Second derivatives at a point, divided by weight and with their sign turned, in the order of `Point.flat`."""

    # observed, complete (n_parameters, n_parameters): the observed information, and what it would be if the component
    # of every row were known: EM's own steps go by that. Directions that change nothing (a factor on all worths of a
    # component, a factor on all shares) are made stiff in `observed`.
    observed: Floats
    complete: Floats
    # (n_parameters,): which parameters may move.
    free: NDArray[np.bool_]
    # Of the rows it was computed on.
    weight: float
    # The share of the complete information that the number of these rows leaves uncertain.
    doubt: float
    # (n_parameters,): expected wins of these rows, divided by their weight, with those of the prior: to be compared
    # with those of all rows.
    scale: Floats
    # Whether it is that of all rows and costs about as much as a pass, so that every step can have its own.
    cheap: bool = False


@savable
class NewtonState(NamedTuple):
    """What Newton steps remember from one to the next."""

    # Second derivatives, or None before they were computed.
    hessian: Hessian | None
    # For how many more iterations EM goes on alone.
    wait: int
    # The share of the complete information that the next step adds.
    damping: float = 0.0
    # How many steps in a row lowered the objective.
    n_failures: int = 0
    # Whether the last step did.
    was_refused: bool = False
    # The last gradient norms since the Hessian was computed.
    gradients: tuple[float, ...] = ()
    # The objective that EM's own step would have reached from the last point, at least; None before the first step.
    promised: float | None = None
    # How many steps in a row did not reach that.
    n_poor: int = 0
    # Whether the next step uses another map than the last.
    is_new: bool = False
    # How many steps failed, or left the gradient as it was, since the iteration began.
    n_troubles: int = 0
    # The objective where the last careful step began, and the gain it was to bring.
    predicted: tuple[float, float] | None = None

    @property
    def careful(self) -> bool:
        """Whether every step has a Hessian of its own."""
        return self.n_troubles >= _MOST_TROUBLES

    def with_care(self) -> NewtonState:
        """The state from which every step has a Hessian of its own."""
        return self._replace(n_troubles=_MOST_TROUBLES)


@dataclass(frozen=True)
class Newton:
    """Proposes damped Newton steps (Levenberg and Marquardt) with a Hessian estimated on a sample."""

    # Computes Hessians.
    sample: SampleHessian
    # How many steps EM takes alone first.
    after: int

    def start(self, hessian: Hessian | None = None) -> NewtonState:
        """The state to begin with; a Hessian that an earlier stage has computed is used from the first step on."""
        return NewtonState(hessian, wait=self.after if hessian is None else 0)

    def propose(self, state: NewtonState, point: Point, evaluation: Evaluation) -> tuple[NewtonState, Point | None]:
        """The next point, or None where EM continues alone."""
        if state.careful and self.sample.suits(point):
            return self._propose_carefully(state, point, evaluation)
        state = state._replace(is_new=False)
        if state.wait > 0 or not self.sample.suits(point):
            return state._replace(wait=state.wait - 1), None
        if not state.was_refused:  # the last proposal was taken, so the row of failures ends
            state = state._replace(n_failures=0)
        gradients = (*state.gradients, evaluation.residual)[-_STEPS_WATCHED - 1 :]
        n_poor = state.n_poor + 1 if _is_poor(state, evaluation) else 0
        state = state._replace(was_refused=False, gradients=gradients, n_poor=n_poor, promised=_promised(evaluation))
        if n_poor >= _MOST_POOR:
            return self.rest(state), None
        # On few rows an old Hessian saves nothing, and where components are hardly identified it leads astray.
        is_stale = _is_stale(state)
        if state.hessian is None or state.hessian.cheap or is_stale:
            state = state._replace(
                hessian=self.sample.at(point),
                gradients=gradients[-1:],
                is_new=True,
                n_troubles=state.n_troubles + is_stale,
            )
        assert state.hessian is not None
        found = self.sample.step(state.hessian, point, evaluation, state.damping)
        if found is None:
            return self.rest(state), None
        # If this step succeeds, the next is damped less.
        return state._replace(damping=found.damping / _DAMPING_FACTOR), found.point

    def refuse(
        self, state: NewtonState, point: Point, evaluation: Evaluation, there: Point, refused: Evaluation
    ) -> tuple[NewtonState, Point | None]:
        """The state after a proposal lowered the objective, and a bent or shorter step from the last good point."""
        if state.wait > 0 or state.hessian is None:
            return state, None
        n_failures = state.n_failures + 1
        if state.careful:
            state = state._replace(n_failures=n_failures, was_refused=True)
            if state.predicted is None or n_failures > _MOST_SHORTENED:
                return state._replace(predicted=None), None
            if n_failures <= _MOST_BENDS and state.hessian is not None:
                bent = self.sample.bent_step(state.hessian, point, evaluation, there, refused, state.damping)
                if bent is not None:
                    return state._replace(predicted=(state.predicted[0], bent.gain * self.sample.weight)), bent.point
            damping = max(_LEAST_CAREFUL_DAMPING, state.damping * 2.0**n_failures)
            return self._step(state._replace(damping=damping), point, evaluation)
        damping = max(_DAMPING_AFTER_FAILURE, state.damping * _DAMPING_FACTOR**2)
        state = state._replace(
            is_new=True, was_refused=True, n_failures=n_failures, damping=damping, n_troubles=state.n_troubles + 1
        )
        return (self.rest(state) if n_failures >= _MOST_FAILURES else state), None

    def rest(self, state: NewtonState) -> NewtonState:
        """Disable Newton steps for some iterations, then compute the Hessian again."""
        return NewtonState(None, wait=_PAUSE, was_refused=state.was_refused, is_new=True, n_troubles=state.n_troubles)

    def _propose_carefully(
        self, state: NewtonState, point: Point, evaluation: Evaluation
    ) -> tuple[NewtonState, Point | None]:
        """A step by the Hessian of this very point; more damping where the last gain was badly predicted."""
        damping = _LEAST_CAREFUL_DAMPING
        if state.predicted is not None and evaluation.objective is not None:
            before, gain = state.predicted
            ratio = (evaluation.objective - before) / max(gain, _ROUNDING * abs(before))
            damping = state.damping * max(1 / 3, 1 - (2 * min(ratio, 2.0) - 1) ** 3)  # Nielsen's rule
        hessian = self.sample.at(point) if evaluation.hessian is None else evaluation.hessian
        state = state._replace(hessian=hessian, wait=0, damping=damping, n_failures=0, was_refused=False, is_new=True)
        return self._step(state, point, evaluation)

    def _step(self, state: NewtonState, point: Point, evaluation: Evaluation) -> tuple[NewtonState, Point | None]:
        assert state.hessian is not None
        assert evaluation.objective is not None
        found = self.sample.step(state.hessian, point, evaluation, state.damping)
        if found is None:
            return state._replace(predicted=None), None
        predicted = (evaluation.objective, found.gain * self.sample.weight)
        return state._replace(damping=found.damping, predicted=predicted), found.point


def _is_stale(state: NewtonState) -> bool:
    """Whether the gradient has not come down within the steps that are watched."""
    watched = state.gradients
    return len(watched) > _STEPS_WATCHED and watched[-1] > _EXPECTED_FALL * watched[-1 - _STEPS_WATCHED]


def _is_poor(state: NewtonState, evaluation: Evaluation) -> bool:
    """Whether the last step was taken and gained less than EM's own step would have."""
    return (
        state.promised is not None
        and not state.was_refused
        and evaluation.objective is not None
        and evaluation.objective < state.promised
    )


def _promised(evaluation: Evaluation) -> float | None:
    """What EM's own step reaches at least, to second order; None where that is within rounding.

    No second derivative of what EM maximises exceeds `scale`, so a derivative g promises a gain of g**2 / (2 scale).
    """
    assert evaluation.objective is not None
    assert evaluation.gradient is not None
    assert evaluation.scale is not None
    moved = evaluation.scale > 0
    with np.errstate(over="ignore"):
        gain = float((evaluation.gradient[moved] ** 2 / evaluation.scale[moved]).sum()) / 2
    known = math.isfinite(gain) and gain > _ROUNDING * abs(evaluation.objective)
    return evaluation.objective + gain if known else None
