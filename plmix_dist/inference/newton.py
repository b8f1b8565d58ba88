"""When to take Newton's step, and how much of it: once EM has come near, and only while the gradient falls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.inference.saved_state import savable

if TYPE_CHECKING:
    from plmix_dist.inference.fixed_point import Evaluation
    from plmix_dist.inference.hessian import Hessian, SampleHessian
    from plmix_dist.inference.point import Point

# After this many steps the gradient must be down to this share, or the Hessian is computed again.
_STEPS_WATCHED = 3
_EXPECTED_FALL = 0.1
# EM's own step has a gain that the gradient promises. After so many Newton steps in a row that gained less, EM goes on
# alone for a while.
_MOST_POOR = 3
# A step that failed is followed by shorter ones; a step that succeeded, by a longer one.
_DAMPING_AFTER_FAILURE = 0.1
_DAMPING_FACTOR = 4.0
# After so many failures in a row, EM goes on alone for this many iterations.
_MOST_FAILURES = 3
_PAUSE = 10
# Sums of millions of terms are known to about this share.
_ROUNDING = 1e-12


@savable
class NewtonState(NamedTuple):
    """What Newton steps remember from one to the next.

    Parameters
    ----------
    hessian
        Second derivatives, or None before they were computed.
    wait
        For how many more iterations EM goes on alone.
    damping
        The share of the complete information that the next step adds.
    n_failures
        How many steps in a row lowered the objective.
    was_refused
        Whether the last step did.
    gradients
        The last gradient norms since the Hessian was computed.
    promised
        The objective that EM's own step would have reached from the last point, at least; None before the first step.
    n_poor
        How many steps in a row did not reach that.
    is_new
        Whether the next step goes by another map than the last.
    """

    hessian: Hessian | None
    wait: int
    damping: float = 0.0
    n_failures: int = 0
    was_refused: bool = False
    gradients: tuple[float, ...] = ()
    promised: float | None = None
    n_poor: int = 0
    is_new: bool = False


@dataclass(frozen=True)
class Newton:
    """Proposes damped Newton steps (Levenberg and Marquardt) with a Hessian estimated on a sample.

    Parameters
    ----------
    sample
        Computes Hessians.
    after
        How many steps EM takes alone first.
    """

    sample: SampleHessian
    after: int

    def start(self, hessian: Hessian | None = None) -> NewtonState:
        """The state to begin with; a Hessian that an earlier stage has computed is used from the first step on."""
        return NewtonState(hessian, wait=self.after if hessian is None else 0)

    def propose(
        self, state: NewtonState, point: Point, evaluation: Evaluation
    ) -> tuple[NewtonState, Point | None]:
        """The next point, or None where EM shall go on alone."""
        state = state._replace(is_new=False)
        if state.wait > 0 or not self.sample.suits(point):
            return state._replace(wait=state.wait - 1), None
        if not state.was_refused:  # the last proposal was taken, so failures are no longer in a row
            state = state._replace(n_failures=0)
        gradients = (*state.gradients, evaluation.residual)[-_STEPS_WATCHED - 1 :]
        n_poor = state.n_poor + 1 if _is_poor(state, evaluation) else 0
        state = state._replace(
            was_refused=False, gradients=gradients, n_poor=n_poor, promised=_promised(evaluation)
        )
        if n_poor >= _MOST_POOR:
            return self.rest(state), None
        # On few rows an old Hessian saves nothing, and where components are hardly identified it leads astray.
        if state.hessian is None or state.hessian.cheap or _is_stale(state):
            state = state._replace(hessian=self.sample.at(point), gradients=gradients[-1:], is_new=True)
        assert state.hessian is not None
        found = self.sample.step(state.hessian, point, evaluation, state.damping)
        if found is None:
            return self.rest(state), None
        there, damping = found
        # If this step succeeds, the next is damped less.
        return state._replace(damping=damping / _DAMPING_FACTOR), there

    def refuse(self, state: NewtonState) -> NewtonState:
        """The state after the last proposal lowered the objective."""
        if state.wait > 0 or state.hessian is None:
            return state
        n_failures = state.n_failures + 1
        damping = max(_DAMPING_AFTER_FAILURE, state.damping * _DAMPING_FACTOR**2)
        state = state._replace(is_new=True, was_refused=True, n_failures=n_failures, damping=damping)
        return self.rest(state) if n_failures >= _MOST_FAILURES else state

    def rest(self, state: NewtonState) -> NewtonState:
        """Disable Newton steps for some iterations, then compute the Hessian again."""
        return NewtonState(None, wait=_PAUSE, was_refused=state.was_refused, is_new=True)


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
