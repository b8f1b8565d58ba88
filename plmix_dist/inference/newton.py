"""When to take Newton's step, and how much of it: once EM has come near, and as far as it keeps its promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plmix_dist.inference.curvature import Curvature, Landscape
    from plmix_dist.inference.fixed_point import Evaluation
    from plmix_dist.inference.state import EmState

# Where so many steps have not brought the slope down to this share, curvature is looked at anew.
_STEPS_WATCHED = 3
_EXPECTED_FALL = 0.1
# A step that failed is followed by shorter ones; those that succeed, by longer ones.
_DAMPING_AFTER_FAILURE = 0.1
_DAMPING_FACTOR = 4.0
# After so many failures in a row EM goes on alone for a while.
_MOST_FAILURES = 3
_PAUSE = 10


class Newton:
    """Proposes damped Newton steps from the curvature of a sample (Levenberg and Marquardt's way).

    Parameters
    ----------
    curvature
        Where the curvature comes from.
    after
        How many steps EM takes alone first.
    landscape
        The curvature to begin with, known from a sample.
    """

    def __init__(self, curvature: Curvature, after: int, landscape: Landscape | None = None) -> None:
        self.curvature = curvature
        self.landscape = landscape
        self.is_new = False
        self._wait = after
        self._damping = 0.0
        self._n_failures = 0
        self._was_refused = False
        self._slopes: list[float] = []

    def propose(self, state: EmState, evaluation: Evaluation) -> EmState | None:
        """The next point, or None where EM shall go on alone."""
        self.is_new = False
        if self._wait > 0 or not self.curvature.suits(state):
            self._wait -= 1
            return None
        if not self._was_refused:  # the last proposal was taken, so failures are no longer in a row
            self._n_failures = 0
        self._was_refused = False
        self._slopes.append(evaluation.gradient)
        if self.landscape is None or self._is_stale():
            self.landscape = self.curvature.at(state)
            self._slopes = [evaluation.gradient]
            self.is_new = True
        found = self.landscape.step(state, evaluation.slopes / self.curvature.unit, self._damping)
        if found is None:
            self.rest()
            return None
        step, damping = found
        # Where the last step was good, the next may dare more.
        self._damping = damping / _DAMPING_FACTOR
        return step

    def refuse(self) -> None:
        """The last proposal lowered the objective."""
        if self._wait > 0 or self.landscape is None:
            return
        self.is_new = True
        self._was_refused = True
        self._n_failures += 1
        self._damping = max(_DAMPING_AFTER_FAILURE, self._damping * _DAMPING_FACTOR**2)
        if self._n_failures >= _MOST_FAILURES:
            self.rest()

    def rest(self) -> None:
        """Leave the way to EM for a while, and then look at the curvature anew."""
        self.landscape = None
        self.is_new = True
        self._n_failures = 0
        self._damping = 0.0
        self._wait = _PAUSE

    def _is_stale(self) -> bool:
        return (
            len(self._slopes) > _STEPS_WATCHED
            and self._slopes[-1] > _EXPECTED_FALL * self._slopes[-1 - _STEPS_WATCHED]
        )
