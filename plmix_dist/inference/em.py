"""EM for mixtures of Plackett-Luce models: fused (one solver step a pass) and exact (the paper's)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation
from plmix_dist.errors import NonFiniteError, NotIdentifiedError
from plmix_dist.inference.collapse import SMALLEST_SHARE
from plmix_dist.inference.fixed_point import Evaluation, Outcome, iterate
from plmix_dist.inference.state import WIDEST_STATE, EmState
from plmix_dist.kernels import EmStatistics, Prepared, em_statistics, prepare
from plmix_dist.solvers import ComponentStatistics, Solver, Worths, gradient, log_prior, mm_step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.fixed_point import Asking
    from plmix_dist.rankings import RankingBlock

# An exact M-step is solved this much more closely than the whole fit, so that all its digits can be relied on.
_INNER_TOLERANCE = 0.1
_INNER_STEPS = 200
# Log-worths that range further than this are on their way to infinity: odds of 1 to 10 ** 130.
WIDEST_FIT = 300.0


class PassParams(NamedTuple):
    """What travels to every task: the current state and, for an exact M-step, the state that froze the posteriors."""

    current: EmState
    frozen: EmState | None
    with_rates: bool


class PreparedPass(NamedTuple):
    """The same, ready for kernels."""

    current: Prepared
    frozen: Prepared | None
    with_rates: bool


def prepare_pass(all_params: tuple[PassParams, ...]) -> tuple[PreparedPass, ...]:
    """Parameters of each fit for the kernels, made once a task."""
    return tuple(
        PreparedPass(
            prepare(current.log_worths, current.log_shares),
            None if frozen is None else prepare(frozen.log_worths, frozen.log_shares),
            with_rates,
        )
        for current, frozen, with_rates in all_params
    )


def leaf_statistics(block: RankingBlock, fits: tuple[PreparedPass, ...]) -> tuple[EmStatistics, ...]:
    """The statistics of one leaf for each of the fits that share the pass."""
    return tuple(_finite_statistics(block, params) for params in fits)


def _finite_statistics(block: RankingBlock, params: PreparedPass) -> EmStatistics:
    """The statistics for one fit; the first number that is not finite stops it."""
    statistics = em_statistics(block, params.current, params.frozen, with_rates=params.with_rates)
    bad = np.flatnonzero(~np.isfinite(statistics.expected_wins.sum(axis=1)))
    if len(bad):
        raise NonFiniteError(f"the statistics of component {int(bad[0])} are not finite")
    if not np.isfinite(statistics.log_likelihood):
        raise NonFiniteError("the log-likelihood is not finite")
    return statistics


E_STEP = Aggregation("e-step", leaf=leaf_statistics, prepare=prepare_pass)


class ComponentStep(NamedTuple):
    """What one M-step task gives: the solver's step, the safe MM step, the slopes (n_items + 1,), the log-prior."""

    next: Worths
    safe: Worths
    slopes: NDArray[np.float64]
    log_prior: float
    seconds: float


class Summary(NamedTuple):
    """What the driver needs of the sums beside the M-steps."""

    log_likelihood: float
    expected_log_likelihood: NDArray[np.float64]
    shares: NDArray[np.float64]


def m_step(
    statistics: EmStatistics, component: int, worths: Worths, alpha: float, solver: Solver
) -> ComponentStep:
    """The M-step of one component: one of K concurrent tasks."""
    begun = time.perf_counter()
    own = ComponentStatistics(
        statistics.wins[component],
        statistics.expected_wins[component],
        statistics.rates[component] if solver.needs_rates else statistics.rates,
    )
    if alpha == 0 and statistics.shares[component] <= SMALLEST_SHARE * statistics.shares.sum():
        no_slope = np.zeros(len(worths.log_worths) + 1)
        return ComponentStep(worths, worths, no_slope, 0.0, 0.0)  # nobody is left to learn from
    safe = mm_step(own, worths, alpha)
    step = safe if solver.step is mm_step else solver.step(own, worths, alpha)
    if alpha:
        safe, step = _shortened(worths, safe), _shortened(worths, step)
    slopes = gradient(own, worths, alpha)
    return ComponentStep(step, safe, slopes, log_prior(*worths, alpha), time.perf_counter() - begun)


def _shortened(worths: Worths, step: Worths) -> Worths:
    """A step halved until its log-worths can be computed with; part of an MM step raises the objective too."""
    way, ghost_way = step.log_worths - worths.log_worths, step.ghost - worths.ghost
    share = 1.0
    while not np.ptp(step.log_worths) <= WIDEST_STATE and share > 1e-12:
        share /= 2
        step = Worths(worths.log_worths + share * way, worths.ghost + share * ghost_way)
    return step


def summarise(statistics: EmStatistics) -> Summary:
    """The small sums."""
    return Summary(float(statistics.log_likelihood), statistics.expected_log_likelihood, statistics.shares)


class PassRequest(NamedTuple):
    """What an iteration asks for: a pass with these parameters, M-steps by this solver under this prior."""

    params: PassParams
    solver: Solver
    alpha: float


class PassAnswer(NamedTuple):
    """What it gets: the small sums, the M-step of each component, and where the seconds went."""

    summary: Summary
    steps: list[ComponentStep]
    timing: dict[str, float]


def answer_requests(passes: Passes, requests: Sequence[PassRequest]) -> list[PassAnswer]:
    """One pass over the data that serves several fits: every block is read once, all M-steps run side by side."""
    begun = time.perf_counter()
    finish = [
        step
        for number, request in enumerate(requests)
        for step in _finishing_steps(request, number, len(requests))
    ]
    params = tuple(request.params for request in requests)
    results, pass_seconds, reduce_seconds = passes.run(E_STEP, params, finish)
    timing = {
        "seconds": time.perf_counter() - begun,
        "pass_seconds": pass_seconds,
        "reduce_seconds": reduce_seconds,
    }
    answers = []
    for request in requests:
        n_components = len(request.params.current.log_shares)
        summary, *steps = results[: n_components + 1]
        results = results[n_components + 1 :]
        solve_seconds = max(step.seconds for step in steps)
        answers.append(PassAnswer(summary, steps, timing | {"solve_seconds": solve_seconds}))
    return answers


def _finishing_steps(request: PassRequest, number: int, n_fits: int) -> list[tuple[str, Any]]:
    """The small sums of one fit and its K M-steps, as named functions of the sums over all rows."""
    state = request.params.current
    named = f"{number}-" if n_fits > 1 else ""
    return [(f"summary-{named}".rstrip("-"), partial(_of_fit, number, summarise))] + [
        (
            f"m-step-{named}{k}",
            partial(
                _of_fit,
                number,
                partial(
                    m_step,
                    component=k,
                    worths=Worths(state.log_worths[k], float(state.ghosts[k])),
                    alpha=request.alpha,
                    solver=request.solver,
                ),
            ),
        )
        for k in range(len(state.log_shares))
    ]


def _of_fit(number: int, function: Callable[[EmStatistics], Any], total: tuple[EmStatistics, ...]) -> Any:
    return function(total[number])


@dataclass(frozen=True)
class Em:
    """How to run EM over some data.

    Its steps are generators that ask for passes and are sent the answers, so that several fits can share each pass.

    Parameters
    ----------
    solver
        The solver of the M-step.
    alpha
        Strength of the prior.
    unit
        The total weight of the data.
    n_rankings
        The number of rows, for rates of progress.
    fixed_shares
        Whether the shares stay as they are.
    """

    solver: Solver
    alpha: float
    unit: float
    n_rankings: int
    fixed_shares: bool = False
    item_names: tuple[str, ...] = ()

    def fused(self, state: EmState) -> Asking[Evaluation]:
        """One pass: posteriors and statistics at the same state, one solver step."""
        return self._evaluation(state, (yield self._request(state, None)))

    def exact(self, state: EmState, *, tol: float) -> Asking[Evaluation]:
        """The paper's step: posteriors frozen at `state`, the M-step solved to the end."""
        evaluation = yield from self.fused(state)
        if evaluation.gradient <= tol:
            return evaluation
        solved = yield from self.solve_m_step(state, tol=tol)
        best = EmState(solved.state.log_worths, solved.state.ghosts, evaluation.next.log_shares)
        details = evaluation.details | {"inner_passes": solved.n_evaluations}
        return evaluation._replace(next=best, safe=best, details=details)

    def solve_m_step(self, frozen: EmState, *, tol: float) -> Asking[Outcome]:
        """The maximum of the expected log-likelihood at the posteriors of `frozen`, shares left as they are."""

        def inner(state: EmState) -> Asking[Evaluation]:
            answer = yield self._request(state, frozen)
            evaluation = self._evaluation(state, answer)
            objective = float(answer.summary.expected_log_likelihood.sum())
            return evaluation._replace(
                objective=objective + sum(step.log_prior for step in answer.steps),
                gradient=max(float(np.abs(step.slopes).max()) for step in answer.steps) / self.unit,
                next=evaluation.next._replace(log_shares=state.log_shares),
                safe=evaluation.safe._replace(log_shares=state.log_shares),
            )

        return iterate(inner, frozen, tol=_INNER_TOLERANCE * tol, max_iter=_INNER_STEPS, unit=self.unit)

    def _request(self, state: EmState, frozen: EmState | None) -> PassRequest:
        return PassRequest(PassParams(state, frozen, self.solver.needs_rates), self.solver, self.alpha)

    def _refuse_divergence(self, state: EmState, steps: Sequence[ComponentStep]) -> None:
        """Without a prior a component may have no maximum; its log-worths then run away."""
        if self.alpha:
            return
        for component, step in enumerate(steps):
            if not np.ptp(step.next.log_worths) <= WIDEST_FIT:
                finite = np.isfinite(step.next.log_worths).all()
                shown = step.next.log_worths if finite else state.log_worths[component]
                so_far = _describe_extremes(shown, self.item_names)
                raise NotIdentifiedError(
                    f"component {component} has no maximum-likelihood estimate: its log-worths run away ({so_far}). "
                    "Choose alpha > 0, or fewer components"
                )

    def _evaluation(self, state: EmState, answer: PassAnswer) -> Evaluation:
        summary, steps, timing = answer
        self._refuse_divergence(state, steps)
        objective = summary.log_likelihood + sum(step.log_prior for step in steps)
        with np.errstate(divide="ignore"):
            log_shares = np.log(summary.shares) - np.log(summary.shares.sum())
        if self.fixed_shares:
            log_shares = state.log_shares
        share_slopes = summary.shares - self.unit * np.exp(state.log_shares)
        slopes = np.concatenate(
            [
                *(step.slopes[:-1] for step in steps),
                [step.slopes[-1] for step in steps],
                np.zeros(len(share_slopes)) if self.fixed_shares else share_slopes,
            ]
        )
        return Evaluation(
            objective=objective,
            gradient=float(np.abs(slopes).max()) / self.unit,
            slopes=slopes,
            next=_gathered([step.next for step in steps], log_shares),
            safe=_gathered([step.safe for step in steps], log_shares),
            details={
                "log_likelihood": summary.log_likelihood,
                **timing,
                "rankings_per_second": self.n_rankings / timing["seconds"],
            },
        )


def _describe_extremes(log_worths: NDArray[np.float64], names: Sequence[str]) -> str:
    order = np.argsort(log_worths)
    named = [names[item] if item < len(names) else str(item) for item in (order[0], order[-1])]
    return f"lowest {named[0]!r} at {log_worths[order[0]]:.3g}, highest {named[1]!r} at {log_worths[order[-1]]:.3g}"


def _gathered(worths: Sequence[Worths], log_shares: NDArray[np.float64]) -> EmState:
    return EmState(
        np.array([component.log_worths for component in worths]),
        np.array([component.ghost for component in worths]),
        log_shares,
    )
