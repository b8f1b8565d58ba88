"""MapEm: EM to the mode of the posterior under a gamma prior, as an Algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.engine.request import Request
from plmix_dist.errors import FitError
from plmix_dist.inference.e_step import PassParams, e_step
from plmix_dist.inference.fixed_point import Evaluation, Iteration, Rules, advance
from plmix_dist.inference.point import Point
from plmix_dist.inference.saved_state import savable
from plmix_dist.solvers import MM
from plmix_dist.solvers.gamma_prior import Parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.engine.request import Answer
    from plmix_dist.kernels import EmStatistics
    from plmix_dist.solvers.gamma_prior import GammaPrior


@savable
class MapState(NamedTuple):
    """An iteration to the mode, and why it cannot go on, if it cannot."""

    iteration: Iteration
    error: FitError | None = None


class Mode(NamedTuple):
    """Where EM ended: the parameters, the log-likelihood and the log-posterior there, and whether it converged."""

    parameters: Parameters
    log_likelihood: float
    log_posterior: float
    converged: bool


@dataclass(frozen=True)
class MapEm:
    """How to find the mode.

    Parameters
    ----------
    prior
        A prior that has a mode.
    weight
        The total weight of the data.
    tol, max_iter
        It ends when gradient and change of the log-posterior, divided by the weight, are at most `tol`.
    """

    prior: GammaPrior
    weight: float
    tol: float = 1e-7
    max_iter: int = 500

    def start(self, begin: Parameters) -> MapState:
        """The state of an iteration that begins at parameters."""
        point = Point(begin.log_worths, np.zeros(len(begin.log_shares)), begin.log_shares)
        return MapState(Iteration.start(point))

    def ask(self, state: MapState) -> Sequence[Request]:
        """A pass of EM at the current point."""
        if state.error is not None or state.iteration.ended is not None:
            return ()
        return (Request(e_step(MM), PassParams(state.iteration.point, None)),)

    def tell(self, state: MapState, answers: Sequence[Answer]) -> MapState:
        """The state after a pass."""
        (answer,) = answers
        if answer.error is not None:
            return state._replace(error=answer.error)
        try:
            evaluation = self._evaluation(state.iteration.point, answer.results[0])
            iteration, _ = advance(state.iteration, evaluation, Rules(self.tol, self.max_iter, self.weight))
        except FitError as error:
            return state._replace(error=error)
        return MapState(iteration)

    def score(self, state: MapState) -> float | None:
        """The log-posterior of the best point so far."""
        good = state.iteration.good
        return None if good is None or state.error is not None else good.evaluation.objective

    def result(self, state: MapState) -> Mode:
        """Where an iteration that has ended stands."""
        point, evaluation = state.iteration.best
        assert evaluation.objective is not None
        return Mode(
            Parameters(point.log_worths, point.log_shares),
            float(evaluation.details["log_likelihood"]),
            evaluation.objective,
            state.iteration.ended == "converged",
        )

    def _evaluation(self, point: Point, sums: EmStatistics) -> Evaluation:
        here = Parameters(point.log_worths, point.log_shares)
        step, gradient = self.prior.em_step(sums, here)
        after = Point(step.log_worths, point.ghosts, step.log_shares)
        log_likelihood = float(sums.log_likelihood)
        return Evaluation(
            objective=log_likelihood + float(self.prior.log_density(*here)),
            residual=float(np.abs(gradient).max()) / self.weight,
            gradient=gradient,
            scale=None,
            next=after,
            safe=after,
            details={"log_likelihood": log_likelihood},
        )
