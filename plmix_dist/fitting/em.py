"""Em: EM for mixtures of Plackett-Luce models, fused (one M-step per pass) or exact (the paper's), as an Algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from plmix_dist.errors import FitError, NotIdentifiedError
from plmix_dist.fitting.algorithm import Algorithm, State, Together, TogetherState, savable
from plmix_dist.fitting.e_step import ComponentStep, Summary, em_request, held_step, timing_of
from plmix_dist.fitting.fixed_point import GRADIENT, Evaluation, Good, Iteration, Rules, Stopping, advance
from plmix_dist.fitting.hessian import information_of
from plmix_dist.fitting.journal import NO_JOURNAL, Journal
from plmix_dist.fitting.newton import Hessian, Newton
from plmix_dist.fitting.point import Point, drop_collapsed, has_collapsed, mend_collapsed
from plmix_dist.fitting.tied_outcomes import tie_step
from plmix_dist.passes import Answer, Passes, Request
from plmix_dist.rankings import Floats, RowPart
from plmix_dist.solvers import MStep
from plmix_dist.solvers.likelihood import largest_log_prior

_INNER_STEPS = 200
# Log-worths that range further than this are on their way to infinity: odds of 1 to 10 ** 130.
_WIDEST_FIT = 300.0


@savable
class _Inner(NamedTuple):
    """An exact M-step under way: its iteration, and the evaluation of the point whose posteriors are held fixed."""

    iteration: Iteration
    outer: Evaluation


@savable
class _EmState(NamedTuple):
    """A fit by EM under way: everything that decides how it goes on."""

    iteration: Iteration
    # The M-step that is being solved to its end, in exact EM.
    inner: _Inner | None = None
    history: tuple[dict[str, Any], ...] = ()
    # Components that collapsed.
    events: tuple[dict[str, Any], ...] = ()
    # The best point before a component was seeded again or dropped: seeding lowers the objective, and a fit never
    # returns a point worse than one it has taken.
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
    events: list[dict[str, Any]] = field(default_factory=list)
    hessian: Hessian | None = None
    posterior_shares: Floats | None = None

    @classmethod
    def at(
        cls, end: Good, *, converged: bool, history: Sequence[dict[str, Any]], score: float | None = None, **more: Any
    ) -> Run:
        """The run that has ended at a point; the objective there is its score if none is given."""
        objective = end.evaluation.objective
        if score is None:
            assert objective is not None, "without an objective a run needs a score"
            score = objective
        return cls(
            point=end.point,
            converged=converged,
            n_iterations=len(history),
            log_likelihood=float(end.evaluation.details["log_likelihood"]),
            objective=objective,
            score=score,
            gradient=None if objective is None else end.evaluation.residual,
            history=list(history),
            **more,
        )


@dataclass(frozen=True)
class Em:
    """How to fit by EM."""

    m_step: MStep
    # Strength of the prior.
    alpha: float
    # weight, n_rankings: the total weight of the data, and the number of rows.
    weight: float
    n_rankings: int
    # "fused" takes one step in each pass; "exact" solves each M-step to its end with posteriors held fixed.
    kind: Literal["fused", "exact"] = "fused"
    # tol, max_iter, accelerate: when the fit ends, and whether it is accelerated. One whose M-step draws ends after
    # `max_iter` iterations, and has not converged.
    tol: float = 1e-8
    max_iter: int = 500
    accelerate: bool = True
    newton: Newton | None = None
    fixed_shares: bool = False
    # For messages.
    item_names: tuple[str, ...] = ()
    # seed, number: key of the random numbers of this fit, and its number among several.
    seed: int = 0
    number: int = 0
    stopping: Stopping = GRADIENT
    # The part of the rows that it is a fit to; None for all of them. `weight` and `n_rankings` are those of the part.
    part: RowPart | None = None
    # Whether the last component is held at the worths that it has: that of noise. Its share is free.
    noise: bool = False

    def start(self, point: Point, hessian: Hessian | None = None) -> _EmState:
        """The state of a fit that begins at a point."""
        return _EmState(Iteration.start(point, None if self.newton is None else self.newton.start(hessian)))

    def ask(self, state: _EmState) -> Sequence[Request]:
        """A pass at the point to be evaluated, with posteriors held fixed in an exact M-step."""
        if state.error is not None or state.iteration.ended is not None:
            return ()
        named = f"-{self.number}" if self.number else ""
        key = (self.seed, self.number, len(state.history))
        point, frozen = state.iteration.point, None
        if state.inner is not None:
            point, frozen = state.inner.iteration.point, point
        request = em_request(self.m_step, point, frozen, self.alpha, named, key, self.part)
        if frozen is None and self._wants_hessian(state.iteration):
            return (request, Request(information_of(self.part), point))
        return (request,)

    def _wants_hessian(self, iteration: Iteration) -> bool:
        """Whether the pass shall compute the Hessian of all rows at its point."""
        if self.newton is None or iteration.newton is None or not iteration.newton.careful:
            return False
        return self.newton.sample.can_be_asked_for(iteration.point, self.n_rankings)

    def tell(self, state: _EmState, answers: Sequence[Answer]) -> _EmState:
        """The state after a pass. An error ends this fit and no other."""
        try:
            return self._step(state, *answers)
        except FitError as error:
            return state._replace(error=type(error)(f"iteration {len(state.history) + 1}, {error}"))

    def _step(self, state: _EmState, answer: Answer, information: Answer | None = None) -> _EmState:
        summary, *steps = answer.get()
        if self.noise:
            steps[-1] = held_step(state.iteration.point.components()[-1], steps[-1].seconds)
        if state.inner is not None:
            return self._inner_step(state, state.inner, summary, steps)
        evaluation = self.evaluation(state.iteration.point, summary, steps, timing_of(answer, steps))
        if information is not None and self.newton is not None and evaluation.scale is not None:
            (found,) = information.get()
            hessian = self.newton.sample.of_all(state.iteration.point, found, evaluation.scale)
            evaluation = evaluation._replace(hessian=hessian)
        # A gradient is known before the M-step is solved; the change of an iteration only when it is.
        known = self.stopping is GRADIENT and not self.m_step.draws
        # An M-step without an objective is solved by its own step.
        in_steps = self.kind == "exact" and self.m_step.held_objective is not None
        if in_steps and not (known and evaluation.residual <= self.tol):
            return state._replace(inner=_Inner(Iteration.start(state.iteration.point), evaluation))
        return self._advanced(state, evaluation)

    def score(self, state: _EmState) -> float | None:
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

    def result(self, state: _EmState) -> Run:
        """Where a fit that has ended, or that nobody asks on, stands."""
        end, newton = self._better(state.iteration.best, state.best), state.iteration.newton
        converged = state.iteration.ended in ("converged", "flat")
        return Run.at(
            end,
            converged=converged if end is state.iteration.best else self.stopping.residual(*end) <= self.tol,
            history=state.history,
            score=self._score_of(end),
            events=list(state.events),
            hessian=None if newton is None else newton.hessian,
            posterior_shares=end.evaluation.posterior_shares,
        )

    def _inner_step(self, state: _EmState, inner: _Inner, summary: Summary, steps: Sequence[ComponentStep]) -> _EmState:
        """One pass nearer to the maximum of the expected log-likelihood; the shares stay as they are."""
        found = self.evaluation(inner.iteration.point, summary, steps, {}, share_gradient=False)
        tolerance = self.stopping.inner_share * self.tol
        rules = Rules(tolerance, _INNER_STEPS, self.weight, self.accelerate, stopping=self.stopping)
        iteration, record = advance(inner.iteration, found, rules)
        if record["taken"]:
            self.refuse_divergence(inner.iteration.point, found.next)
        if iteration.ended is None:
            return state._replace(inner=inner._replace(iteration=iteration))
        best = iteration.best.point._replace(log_shares=inner.outer.next.log_shares)
        details = inner.outer.details | {"inner_passes": iteration.n_evaluations}
        return self._advanced(state._replace(inner=None), inner.outer._replace(next=best, safe=best, details=details))

    def _advanced(self, state: _EmState, evaluation: Evaluation) -> _EmState:
        """The iteration one step on. Where a component has collapsed, it is mended and the iteration begins again."""
        n_before = len(state.history) - state.iteration.n_evaluations
        rules = Rules(
            # Steps that are drawn never settle: two that are equal by chance are not convergence.
            -math.inf if self.m_step.draws else self.tol,
            self.max_iter - n_before,
            self.weight,
            self.accelerate,
            self.newton,
            None if self.fixed_shares or self.noise else has_collapsed,
            self.stopping,
        )
        iteration, record = advance(state.iteration, evaluation, rules)
        if record["taken"]:
            self.refuse_divergence(state.iteration.point, evaluation.next)
        numbered = {"iteration": len(state.history) + 1, "start": self.number} | record
        state = state._replace(iteration=iteration, history=(*state.history, numbered))
        if iteration.ended is None or self.fixed_shares or self.noise or len(state.history) >= self.max_iter:
            return state
        best: Good | None = self._better(iteration.best, state.best)
        mended = mend_collapsed(iteration.best.point, state.events, len(state.history), (self.seed, self.number))
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
        """The point with the higher score; the first without an objective."""
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
        """The evaluation of a point by a pass. Without `share_gradient` shares are held, as in an exact M-step."""
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
        log_ties, *of_ties = tie_step(point, summary.ties, self.alpha, n_held=int(self.noise))
        after = Point.gathered([step.next for step in steps], log_shares, log_ties)
        if summary.objective is None:
            with np.errstate(invalid="ignore"):
                moves = np.abs(after.flat() - point.flat())
            return Evaluation(None, float(np.nanmax(moves)), None, None, after, None, details)
        shares = np.exp(point.log_shares) * self.weight
        share_slopes = summary.shares - shares if free_shares else np.zeros(len(shares))
        slopes, scale = map(np.append, flat_gradient(steps, share_slopes, shares), of_ties)
        objective = summary.objective + sum(step.log_prior for step in steps)
        residual = float(np.abs(slopes).max()) / self.weight
        safe = Point.gathered([step.safe for step in steps if step.safe is not None], log_shares, log_ties)
        return Evaluation(objective, residual, slopes, scale, after, safe, details)

    def refuse_divergence(self, point: Point, after: Point) -> None:
        """An error if log-worths diverge: without a prior a component may have no maximum."""
        if self.alpha:
            return
        for component, log_worths in enumerate(after.log_worths):
            if not np.ptp(log_worths) <= _WIDEST_FIT:
                shown = log_worths if np.isfinite(log_worths).all() else point.log_worths[component]
                so_far = _describe_extremes(shown, self.item_names)
                estimate = "maximum-likelihood" if self.m_step.objective is not None else self.m_step.name
                raise NotIdentifiedError(
                    f"component {component} has no {estimate} estimate: its log-worths diverge ({so_far}). "
                    "Choose alpha > 0, or fewer components"
                )


def flat_gradient(steps: Sequence[ComponentStep], share_slopes: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Gradient and scale of all parameters, in the order of `Point.flat`."""
    gradients = [step.gradient for step in steps if step.gradient is not None]
    values = np.array([gradient.values for gradient in gradients])
    scales = np.array([gradient.expected_wins for gradient in gradients])
    return (
        np.concatenate([values[:, :-1].ravel(), values[:, -1], share_slopes]),
        np.concatenate([scales[:, :-1].ravel(), scales[:, -1], shares]),
    )


def _describe_extremes(log_worths: Floats, names: Sequence[str]) -> str:
    order = np.argsort(log_worths)
    named = [names[item] if item < len(names) else str(item) for item in (order[0], order[-1])]
    return f"lowest {named[0]!r} at {log_worths[order[0]]:.3g}, highest {named[1]!r} at {log_worths[order[-1]]:.3g}"


# Starts run to convergence side by side; the one loop that every stage of a fit uses.

Progress = Callable[[dict[str, Any]], None]

# Sums of n x n numbers per component must fit in a worker beside the data.
MOST_NUMBERS = 1 << 27


@savable
class Candidate(NamedTuple):
    """A start on its way through the stages of a fit: its point, how it was made, and the Hessian there if known."""

    point: Point
    about: dict[str, Any]
    hessian: Hessian | None = None


class Ends(NamedTuple):
    """Where starts ended, by their numbers, and why others did not."""

    runs: dict[int, Run]
    failed: dict[int, FitError]


def run_to_ends(
    passes: Passes,
    em: Em,
    candidates: Sequence[Candidate],
    *,
    cuts: Sequence[tuple[int, int]] = (),
    n_kept: int | None = None,
    progress: Progress | None = None,
    journal: Journal = NO_JOURNAL,
) -> Ends:
    """Run all candidates to convergence; every pass over the data serves all that still run.

    `cuts` are a race: a cut (n_rounds, n_kept) leaves the best after that many rounds. At most `n_kept` ends are
    returned (None: all), one for each optimum. `progress` is called with the record of every iteration.
    """
    together, begin = side_by_side([em] * len(candidates), candidates, cuts)
    ended = run_reported(passes, together, begin, "fit", progress, journal)
    runs, failed = ends_of(together, ended)
    if not runs:
        number, error = next(iter(failed.items()))
        raise type(error)(f"start {number}, {error}" if len(candidates) > 1 else str(error))
    kept = sorted(runs if n_kept is None else together.leading(ended, n_kept))
    return Ends({number: runs[number] for number in kept}, failed)


def side_by_side(
    ems: Sequence[Em], candidates: Sequence[Candidate], cuts: Sequence[tuple[int, int]] = (), first_number: int = 0
) -> tuple[Together, TogetherState]:
    """Fits in shared passes, as many at a time as a worker has memory for: each begins at its candidate."""
    fits = tuple(replace(em, number=number) for number, em in enumerate(ems, first_number))
    n_items, n_components = candidates[0].point.log_worths.shape[1], max(one.point.n_components for one in candidates)
    n_numbers = n_components * fits[0].m_step.numbers(n_items)
    together = Together(fits, tuple(cuts), max(1, int(MOST_NUMBERS // (2 * n_numbers))))
    begun = (fit.start(one.point, one.hessian) for fit, one in zip(fits, candidates, strict=True))
    return together, together.start(list(begun))


def ends_of(together: Together, ended: TogetherState) -> Ends:
    """Where fits that ran side by side have ended, but for those that a race has stopped."""
    left = {number: own for number, own in enumerate(ended.states) if own is not None}
    failed = {number: own.error for number, own in left.items() if own.error is not None}
    fits: Any = together.algorithms
    return Ends({number: fits[number].result(own) for number, own in left.items() if number not in failed}, failed)


def run_reported(
    passes: Passes, algorithm: Algorithm[State], begin: State, name: str, progress: Progress | None, journal: Journal
) -> State:
    """Drive a fit, or several side by side, to the end. `progress` is called once with every new record."""
    begin = journal.begin(name, begin)
    n_reported = {number: len(own.history) for number, own in _under_way(begin)}

    def report(state: State) -> None:
        for number, own in _under_way(state):
            for record in own.history[n_reported.get(number, 0) :]:
                if progress is not None:
                    progress(record)
            n_reported[number] = len(own.history)

    return journal.run(name, passes, algorithm, begin, report)


def _under_way(state: Any) -> list[tuple[int, Any]]:
    """The states of fits that run side by side, by number, or that of a single one."""
    states = state.states if isinstance(state, TogetherState) else (state,)
    return [(number, own) for number, own in enumerate(states) if own is not None]


def failures_of(stage: str, failed: Mapping[int, FitError]) -> list[dict[str, Any]]:
    """Records of the starts that failed in a stage of a fit."""
    return [{"stage": stage, "start": number, "error": str(error)} for number, error in failed.items()]
