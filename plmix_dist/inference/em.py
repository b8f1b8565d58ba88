"""Em: EM for mixtures of Plackett-Luce models, fused (one M-step per pass) or exact (the paper's), as an Algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from plmix_dist.errors import FitError, NotIdentifiedError
from plmix_dist.inference.collapse import drop_collapsed, has_collapsed, mend_collapsed
from plmix_dist.inference.e_step import em_request
from plmix_dist.inference.fixed_point import Evaluation, Good, Iteration, Rules, advance
from plmix_dist.inference.point import Point
from plmix_dist.inference.saved_state import savable
from plmix_dist.inference.stopping import GRADIENT, Stopping, posterior_shares
from plmix_dist.solvers.ghost import largest_log_prior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from plmix_dist.engine.request import Answer, Request
    from plmix_dist.inference.e_step import ComponentStep, Summary
    from plmix_dist.inference.hessian import Hessian
    from plmix_dist.inference.newton import Newton
    from plmix_dist.rankings.row_parts import RowPart
    from plmix_dist.solvers import MStep, Worths

_INNER_STEPS = 200
# Log-worths that range further than this are on their way to infinity: odds of 1 to 10 ** 130.
WIDEST_FIT = 300.0


@savable
class Inner(NamedTuple):
    """An exact M-step under way: its iteration, and the evaluation of the point whose posteriors are held fixed."""

    iteration: Iteration
    outer: Evaluation


@savable
class EmState(NamedTuple):
    """A fit by EM under way: everything that decides how it goes on.

    Parameters
    ----------
    iteration
        The iteration over points.
    inner
        The M-step that is being solved to its end, in exact EM.
    history
        One record per iteration.
    events
        Components that collapsed.
    best
        The best point before a component was seeded again or dropped: seeding lowers the objective, and a fit never
        returns a point worse than one it has taken.
    error
        Why the fit cannot go on; None as long as it can.
    """

    iteration: Iteration
    inner: Inner | None = None
    history: tuple[dict[str, Any], ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    best: Good | None = None
    error: FitError | None = None


@savable
@dataclass(frozen=True)
class Run:
    """Where one start ended. Compare starts by `score`: their numbers of components may differ.

    `posterior_shares` (n_components,) are the mean posteriors at the end, also where the shares were held fixed.
    """

    point: Point
    converged: bool
    n_iterations: int
    log_likelihood: float
    objective: float | None
    score: float
    gradient: float | None
    history: list[dict[str, Any]]
    events: list[dict[str, Any]]
    hessian: Hessian | None
    posterior_shares: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Em:
    """How to fit by EM.

    Parameters
    ----------
    m_step
        The M-step.
    alpha
        Strength of the prior.
    weight, n_rankings
        The total weight of the data, and the number of rows.
    kind
        "fused" takes one step in each pass; "exact" solves each M-step to its end with posteriors held fixed.
    tol, max_iter, accelerate
        When the fit ends, and whether it is accelerated. One whose M-step draws ends after `max_iter` iterations, and
        has not converged.
    newton
        Proposes Newton steps, or None.
    fixed_shares
        Whether the shares stay as they are.
    stopping
        What is compared with the tolerance.
    item_names
        For messages.
    seed, number
        Key of the random numbers of this fit, and its number among several.
    part
        The part of the rows that it is a fit to; None for all of them. `weight` and `n_rankings` are those of the part.
    """

    m_step: MStep
    alpha: float
    weight: float
    n_rankings: int
    kind: Literal["fused", "exact"] = "fused"
    tol: float = 1e-8
    max_iter: int = 500
    accelerate: bool = True
    newton: Newton | None = None
    fixed_shares: bool = False
    item_names: tuple[str, ...] = ()
    seed: int = 0
    number: int = 0
    stopping: Stopping = GRADIENT
    part: RowPart | None = None

    def start(self, point: Point, hessian: Hessian | None = None) -> EmState:
        """The state of a fit that begins at a point."""
        return EmState(Iteration.start(point, None if self.newton is None else self.newton.start(hessian)))

    def ask(self, state: EmState) -> Sequence[Request]:
        """A pass at the point to be evaluated, with posteriors held fixed in an exact M-step."""
        if state.error is not None or state.iteration.ended is not None:
            return ()
        named = f"-{self.number}" if self.number else ""
        key = (self.seed, self.number, len(state.history))
        if state.inner is not None:
            inner, outer = state.inner.iteration.point, state.iteration.point
            return (em_request(self.m_step, inner, outer, self.alpha, named, key, self.part),)
        return (em_request(self.m_step, state.iteration.point, None, self.alpha, named, key, self.part),)

    def tell(self, state: EmState, answers: Sequence[Answer]) -> EmState:
        """The state after a pass. An error ends this fit and no other."""
        (answer,) = answers
        try:
            if answer.error is not None:
                raise answer.error
            return self._told(state, answer)
        except FitError as error:
            return state._replace(error=type(error)(f"iteration {len(state.history) + 1}, {error}"))

    def _told(self, state: EmState, answer: Answer) -> EmState:
        summary, *steps = answer.results
        if state.inner is not None:
            return self._told_inner(state, state.inner, summary, steps)
        timing = answer.timing._asdict() | {"solve_seconds": max(step.seconds for step in steps)}
        evaluation = self.evaluation(state.iteration.point, summary, steps, timing)
        # A gradient is known before the M-step is solved; the change of an iteration only when it is.
        known = self.stopping is GRADIENT and not self.m_step.draws
        if self._solves_m_steps and not (known and evaluation.residual <= self.tol):
            return state._replace(inner=Inner(Iteration.start(state.iteration.point), evaluation))
        return self._advanced(state, evaluation)

    def score(self, state: EmState) -> float | None:
        """The score of the best point so far."""
        if state.error is not None:
            return None
        known = [good for good in (state.iteration.good, state.best) if good is not None]
        if state.inner is not None:
            known.append(Good(state.iteration.point, state.inner.outer))
        return max((self._score_of(good) for good in known), default=None)

    def _score_of(self, good: Good) -> float:
        """The objective, as it compares with that of other numbers of components; else the log-likelihood.

        Each component adds its log-prior, which is negative, so an objective rises when a component is dropped. But a
        mixture of fewer components is also one of all components in which those dropped have share zero and worths
        at the maximum of the prior. So log-priors are measured from their maximum: a dropped component adds zero.
        """
        objective = good.evaluation.objective
        if objective is None:
            return float(good.evaluation.details["log_likelihood"])
        n_components, n_items = good.point.log_worths.shape
        return float(objective - n_components * largest_log_prior(n_items, self.alpha))

    def result(self, state: EmState) -> Run:
        """Where a fit that has ended, or that nobody asks on, stands."""
        end, newton = self._better(state.iteration.best, state.best), state.iteration.newton
        point, evaluation = end
        converged = state.iteration.ended == "converged"
        return Run(
            point=point,
            converged=converged if end is state.iteration.best else self.stopping.residual(*end) <= self.tol,
            n_iterations=len(state.history),
            log_likelihood=float(evaluation.details["log_likelihood"]),
            objective=evaluation.objective,
            score=self._score_of(end),
            gradient=evaluation.residual if evaluation.objective is not None else None,
            history=list(state.history),
            events=list(state.events),
            hessian=None if newton is None else newton.hessian,
            posterior_shares=posterior_shares(evaluation),
        )

    @property
    def _solves_m_steps(self) -> bool:
        """Whether M-steps take several passes. One without an objective is solved by its own step."""
        return self.kind == "exact" and self.m_step.held_objective is not None

    def _told_inner(
        self, state: EmState, inner: Inner, summary: Summary, steps: Sequence[ComponentStep]
    ) -> EmState:
        """One pass nearer to the maximum of the expected log-likelihood; the shares stay as they are."""
        found = self.evaluation(inner.iteration.point, summary, steps, {}, share_gradient=False)
        iteration, record = advance(inner.iteration, found, self.inner_rules)
        if record["taken"]:
            self.refuse_divergence(inner.iteration.point, found.next)
        if iteration.ended is None:
            return state._replace(inner=inner._replace(iteration=iteration))
        solved = iteration.best.point
        best = Point(solved.log_worths, solved.ghosts, inner.outer.next.log_shares)
        details = inner.outer.details | {"inner_passes": iteration.n_evaluations}
        evaluation = inner.outer._replace(next=best, safe=best, details=details)
        return self._advanced(state._replace(inner=None), evaluation)

    @property
    def inner_rules(self) -> Rules:
        """How an exact M-step is solved."""
        tolerance = self.stopping.inner_share * self.tol
        return Rules(tolerance, _INNER_STEPS, self.weight, self.accelerate, stopping=self.stopping)

    def _advanced(self, state: EmState, evaluation: Evaluation) -> EmState:
        """The iteration one step on. Where a component has collapsed, it is mended and the iteration begins again."""
        n_before = len(state.history) - state.iteration.n_evaluations
        rules = Rules(
            # Steps that are drawn never settle: two that are equal by chance are no end.
            -math.inf if self.m_step.draws else self.tol,
            self.max_iter - n_before,
            self.weight,
            self.accelerate,
            self.newton,
            None if self.fixed_shares else has_collapsed,
            self.stopping,
        )
        iteration, record = advance(state.iteration, evaluation, rules)
        if record["taken"]:
            self.refuse_divergence(state.iteration.point, evaluation.next)
        numbered = {"iteration": len(state.history) + 1, "start": self.number} | record
        state = state._replace(iteration=iteration, history=(*state.history, numbered))
        if iteration.ended is None or self.fixed_shares or len(state.history) >= self.max_iter:
            return state
        best: Good | None = self._better(iteration.best, state.best)
        mended = mend_collapsed(
            iteration.best.point, state.events, len(state.history), (self.seed, self.number)
        )
        if mended is None:
            if best is None or not has_collapsed(best.point):
                return state
            # Seeding again has led to a lower end: back to the better point, without the component that collapsed.
            mended, best = drop_collapsed(best.point, len(state.history)), None
        newton = iteration.newton
        if newton is not None and self.newton is not None:
            newton = self.newton.rest(newton)
        return state._replace(
            iteration=Iteration.start(mended.point, newton), events=(*state.events, mended.event), best=best
        )

    def _better(self, one: Good, other: Good | None) -> Good:
        """The point with the higher score; the first where there is no objective."""
        if other is None or one.evaluation.objective is None or other.evaluation.objective is None:
            return one
        return other if self._score_of(other) > self._score_of(one) else one

    def evaluation(
        self,
        point: Point,
        summary: Summary,
        steps: Sequence[ComponentStep],
        timing: dict[str, float],
        *,
        share_gradient: bool = True,
    ) -> Evaluation:
        """What a pass tells about a point. Without `share_gradient` the shares are held, as in an exact M-step."""
        free_shares = share_gradient and not self.fixed_shares
        log_shares = point.log_shares
        if free_shares:
            with np.errstate(divide="ignore"):
                log_shares = np.log(summary.shares) - np.log(summary.shares.sum())
        details: dict[str, Any] = {"log_likelihood": summary.log_likelihood, **timing}
        if self.fixed_shares and share_gradient:
            details["posterior_shares"] = tuple((summary.shares / summary.shares.sum()).tolist())
        if timing:
            details["rankings_per_second"] = self.n_rankings / timing["seconds"]
        after = _gathered([step.next for step in steps], log_shares)
        if summary.objective is None:
            with np.errstate(invalid="ignore"):
                moves = np.abs(after.flat() - point.flat())
            largest = float(np.nanmax(moves))
            return Evaluation(None, largest, None, None, after, None, details)
        shares = np.exp(point.log_shares) * self.weight
        share_slopes = summary.shares - shares if free_shares else np.zeros(len(shares))
        slopes, scale = _flat_gradient(steps, share_slopes, shares)
        return Evaluation(
            objective=summary.objective + sum(step.log_prior for step in steps),
            residual=float(np.abs(slopes).max()) / self.weight,
            gradient=slopes,
            scale=scale,
            next=after,
            safe=_gathered([step.safe for step in steps if step.safe is not None], log_shares),
            details=details,
        )

    def refuse_divergence(self, point: Point, after: Point) -> None:
        """An error if log-worths diverge: without a prior a component may have no maximum.

        Examples
        --------
        >>> from plmix_dist.solvers import MM
        >>> point, after = (Point.start(np.array([[far, -far]]), np.ones(1)) for far in (1.0, 400.0))
        >>> Em(MM, alpha=0.0, weight=1.0, n_rankings=1).refuse_divergence(point, after)
        Traceback (most recent call last):
        plmix_dist.errors.NotIdentifiedError: component 0 has no maximum-likelihood estimate: ...
        """
        if self.alpha:
            return
        for component, log_worths in enumerate(after.log_worths):
            if not np.ptp(log_worths) <= WIDEST_FIT:
                shown = log_worths if np.isfinite(log_worths).all() else point.log_worths[component]
                so_far = _describe_extremes(shown, self.item_names)
                estimate = "maximum-likelihood" if self.m_step.objective is not None else self.m_step.name
                raise NotIdentifiedError(
                    f"component {component} has no {estimate} estimate: its log-worths diverge ({so_far}). "
                    "Choose alpha > 0, or fewer components"
                )


def _flat_gradient(
    steps: Sequence[ComponentStep], share_slopes: NDArray[np.float64], shares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradient and scale of all parameters, in the order of `Point.flat`."""
    gradients = [step.gradient for step in steps if step.gradient is not None]
    values = np.array([gradient.values for gradient in gradients])
    scales = np.array([gradient.expected_wins for gradient in gradients])
    return (
        np.concatenate([values[:, :-1].ravel(), values[:, -1], share_slopes]),
        np.concatenate([scales[:, :-1].ravel(), scales[:, -1], shares]),
    )


def _describe_extremes(log_worths: NDArray[np.float64], names: Sequence[str]) -> str:
    order = np.argsort(log_worths)
    named = [names[item] if item < len(names) else str(item) for item in (order[0], order[-1])]
    return f"lowest {named[0]!r} at {log_worths[order[0]]:.3g}, highest {named[1]!r} at {log_worths[order[-1]]:.3g}"


def _gathered(worths: Sequence[Worths], log_shares: NDArray[np.float64]) -> Point:
    return Point(
        np.array([component.log_worths for component in worths]),
        np.array([component.ghost for component in worths]),
        log_shares,
    )
