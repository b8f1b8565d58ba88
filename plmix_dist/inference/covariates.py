"""CovariateEm: EM for a mixture whose shares depend on covariates of persons, as an Algorithm.

Each pass gives the sums for the worths of every component and for one Newton step on the coefficients of the shares.
The fit begins where the fit without covariates ended: there all coefficients but the intercepts are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from plmix_dist.engine.request import Finish, Request
from plmix_dist.errors import FitError, SettingsError
from plmix_dist.inference.covariate_sums import ShareParams, share_step, share_sums
from plmix_dist.inference.covariate_units import take_units
from plmix_dist.inference.e_step import component_step
from plmix_dist.inference.em import Run
from plmix_dist.inference.fixed_point import Evaluation, Iteration, Rules, advance
from plmix_dist.inference.journal import NO_JOURNAL
from plmix_dist.inference.point import Point
from plmix_dist.inference.saved_state import savable
from plmix_dist.solvers import Worths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from plmix_dist.engine.passes import Passes
    from plmix_dist.engine.request import Answer
    from plmix_dist.inference.covariate_sums import ShareStep, ShareSums
    from plmix_dist.inference.covariate_units import Units
    from plmix_dist.inference.e_step import ComponentStep
    from plmix_dist.inference.em import Em
    from plmix_dist.inference.journal import Journal
    from plmix_dist.solvers import MStep

# The information has the square of this many entries, and it travels from every task.
_MOST_COEFFICIENTS = 2000
# A component without a share begins with this one, so that its logarithm is finite.
_LEAST_SHARE = 1e-12


@savable
class SharePoint(NamedTuple):
    """Parameters during a fit: as `Point`, with coefficients (n_components, n_columns + 1) in place of log-shares.

    The coefficients of a column add up to zero over the components.
    """

    log_worths: NDArray[np.float64]
    ghosts: NDArray[np.float64]
    coefficients: NDArray[np.float64]

    @classmethod
    def start(cls, point: Point, n_columns: int) -> SharePoint:
        """Where a fit without covariates ended.

        Examples
        --------
        >>> begin = SharePoint.start(Point.start(np.zeros((2, 3)), np.array([0.5, 0.5])), n_columns=1)
        >>> begin.coefficients.tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        log_shares = np.maximum(point.log_shares, np.log(_LEAST_SHARE))
        coefficients = np.zeros((point.n_components, n_columns + 1))
        coefficients[:, 0] = log_shares - log_shares.mean()
        return cls(point.log_worths, point.ghosts, coefficients)

    @property
    def n_parameters(self) -> int:
        """The length of `flat`."""
        return self.log_worths.size + self.ghosts.size + self.coefficients.size

    def flat(self) -> NDArray[np.float64]:
        """(n_parameters,): log-worths component by component, ghosts, coefficients component by component."""
        return np.concatenate([self.log_worths.ravel(), self.ghosts, self.coefficients.ravel()])

    def log_range(self) -> float:
        """The widest range of log-worths in any component."""
        return float(np.ptp(self.log_worths, axis=1).max())

    def like(self, vector: NDArray[np.float64]) -> SharePoint:
        """The point of a flat vector, log-worths and coefficients centred."""
        n_components, n_worths = len(self.ghosts), self.log_worths.size
        worths = vector[:n_worths].reshape(self.log_worths.shape)
        ghosts = vector[n_worths : n_worths + n_components]
        coefficients = vector[n_worths + n_components :].reshape(self.coefficients.shape)
        centre = worths.mean(axis=1)
        return SharePoint(worths - centre[:, None], ghosts - centre, coefficients - coefficients.mean(axis=0))


@savable
class CovariateState(NamedTuple):
    """A fit under way.

    Parameters
    ----------
    iteration
        The iteration over points.
    history
        One record per iteration.
    shares : (n_components,)
        The mean shares at the last good point.
    error
        Why the fit cannot go on; None as long as it can.
    """

    iteration: Iteration
    history: tuple[dict[str, Any], ...] = ()
    shares: NDArray[np.float64] | None = None
    error: FitError | None = None


@dataclass(frozen=True)
class CovariateEm:
    """How to fit shares that depend on covariates.

    Parameters
    ----------
    em
        M-step, prior, tolerance and the like.
    units
        The units of the covariates.
    n_before
        The number of iterations before this fit.
    """

    em: Em
    units: Units
    n_before: int = 0

    def start(self, point: Point) -> CovariateState:
        """The state of a fit that begins where one without covariates ended."""
        begin = SharePoint.start(point, len(self.units.centre))
        # A SharePoint has all that an iteration uses of a Point.
        return CovariateState(Iteration.start(cast("Point", begin)))

    def ask(self, state: CovariateState) -> Sequence[Request]:
        """A pass at the point to be evaluated."""
        if state.error is not None or state.iteration.ended is not None:
            return ()
        point, em = point_of(state), self.em
        finish = [Finish("shares", partial(share_step, point.coefficients))]
        for component, ghost in enumerate(point.ghosts.tolist()):
            worths = Worths(point.log_worths[component], ghost)
            step = partial(_component_step, em.m_step, component, worths, em.alpha)
            finish.append(Finish(f"m-step-{component}", step))
        params = ShareParams(point.log_worths, point.coefficients, self.units)
        return (Request(share_sums(em.m_step), params, tuple(finish)),)

    def tell(self, state: CovariateState, answers: Sequence[Answer]) -> CovariateState:
        """The state after a pass."""
        (answer,) = answers
        try:
            if answer.error is not None:
                raise answer.error
            shares, *steps = answer.results
            timing = answer.timing._asdict() | {"solve_seconds": max(step.seconds for step in steps)}
            evaluation = self.evaluation(shares, steps, timing)
            iteration, record = advance(state.iteration, evaluation, self._rules)
        except FitError as error:
            number = self.n_before + len(state.history) + 1
            return state._replace(error=type(error)(f"iteration {number}, {error}"))
        numbered = {"iteration": self.n_before + len(state.history) + 1, "start": self.em.number} | record
        return state._replace(
            iteration=iteration,
            history=(*state.history, numbered),
            shares=shares.shares if record["taken"] else state.shares,
        )

    def score(self, state: CovariateState) -> float | None:
        """The objective of the best point so far."""
        good = state.iteration.good
        return None if good is None or state.error is not None else good.evaluation.objective

    @property
    def _rules(self) -> Rules:
        return Rules(self.em.tol, self.em.max_iter, self.em.weight, self.em.accelerate)

    def evaluation(
        self,
        shares: ShareStep,
        steps: Sequence[ComponentStep],
        timing: dict[str, float],
    ) -> Evaluation:
        """What a pass tells about a point."""
        values = np.array([step.gradient.values for step in steps if step.gradient is not None])
        gradient = np.concatenate([values[:, :-1].ravel(), values[:, -1], shares.gradient.ravel()])
        details = {"log_likelihood": shares.log_likelihood, **timing}
        if timing:
            details["rankings_per_second"] = self.em.n_rankings / timing["seconds"]
        safe = [step.safe for step in steps if step.safe is not None]
        return Evaluation(
            objective=shares.log_likelihood + shares.log_prior + sum(step.log_prior for step in steps),
            residual=float(np.abs(gradient).max()) / self.em.weight,
            gradient=gradient,
            scale=None,
            next=_gathered([step.next for step in steps], shares.next),
            safe=_gathered(safe, shares.safe),
            details=details,
        )

    def result(self, state: CovariateState, before: Run) -> tuple[Run, NDArray[np.float64]]:
        """Where the fit ended, and the coefficients (n_components, n_columns + 1) of covariates as they were given."""
        good = state.iteration.best
        point, evaluation = cast("SharePoint", good.point), good.evaluation
        assert evaluation.objective is not None
        assert state.shares is not None
        with np.errstate(divide="ignore"):
            mean = Point(point.log_worths, point.ghosts, np.log(state.shares))
        found = Run(
            point=mean,
            converged=state.iteration.ended == "converged",
            n_iterations=self.n_before + len(state.history),
            log_likelihood=float(evaluation.details["log_likelihood"]),
            objective=evaluation.objective,
            score=evaluation.objective,
            gradient=evaluation.residual,
            history=[*before.history, *state.history],
            events=before.events,
            hessian=None,
        )
        return found, self.units.undone(point.coefficients)


def point_of(state: CovariateState) -> SharePoint:
    """The point that the next pass evaluates."""
    return cast("SharePoint", state.iteration.point)


def _component_step(
    m_step: MStep, component: int, worths: Worths, alpha: float, total: ShareSums
) -> ComponentStep:
    return component_step(m_step, component, worths, alpha, total.sums)


def _gathered(worths: Sequence[Worths], coefficients: NDArray[np.float64]) -> Point:
    log_worths = np.array([component.log_worths for component in worths])
    ghosts = np.array([component.ghost for component in worths])
    return cast("Point", SharePoint(log_worths, ghosts, coefficients))


def run_with_covariates(
    passes: Passes,
    em: Em,
    before: Run,
    covariates: NDArray[np.float64],
    progress: Callable[[dict[str, Any]], None] | None = None,
    journal: Journal = NO_JOURNAL,
) -> tuple[Run, NDArray[np.float64]]:
    """Go on from a fit without covariates: where that ends, and the coefficients (n_components, n_columns + 1).

    Parameters
    ----------
    passes
        Over rows that carry their covariates.
    em
        How the fit without covariates was made.
    before
        Where it ended.
    covariates : (n_rankings, n_columns)
    progress
        Called with the record of every iteration.
    journal
        Keeps the state of the loop.
    """
    n_components, n_columns = before.point.n_components, covariates.shape[1]
    if n_columns == 0:
        log_shares = np.maximum(before.point.log_shares, np.log(_LEAST_SHARE))
        return before, log_shares[:, None]
    if n_components * (n_columns + 1) > _MOST_COEFFICIENTS:
        raise SettingsError(
            f"{n_components} components and {n_columns} covariates have {n_components * (n_columns + 1)} coefficients, "
            f"and at most {_MOST_COEFFICIENTS} can be fitted; choose fewer columns"
        )
    units = journal.stage("units", lambda: take_units(passes, covariates))
    algorithm = CovariateEm(em, units, before.n_iterations)

    def report(state: CovariateState) -> None:
        if progress is not None and state.history and state.error is None:
            progress(state.history[-1])

    ended = journal.run("covariates", passes, algorithm, algorithm.start(before.point), report)
    if ended.error is not None:
        raise ended.error
    return algorithm.result(ended, before)
