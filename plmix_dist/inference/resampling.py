"""ResampledEm: EM on linear extensions that are drawn anew in every pass, as an Algorithm (Liu et al. 2019).

In every pass a component and then an order of tied items are drawn for every ranking with ties, given the ties and the
current fit. One M-step is taken as if these orders had been observed. Draws are keyed by (seed, pass, leaf) and by the
place of the row in its leaf, so results do not depend on workers. Steps are noisy, so the fit has three stages:

1. Steps until the objective has stopped rising: its mean over 10 passes is no higher than over the 10 before, but for
   noise.
2. Steps whose points are averaged. It ends when 10 more passes have moved the average of every log-worth and log-share
   by at most 0.002 or, if that is more, a tenth of 1 / sqrt(weight), which is about the least standard error that the
   data allow; or after `max_iter` passes.
3. One exact pass at the average, which gives the log-likelihood (the sum over all orders) and the gradient there.

`converged` says that the average has settled. The gradient is that of the exact objective, and is not small to `tol`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.errors import FitError, NonFiniteError, NotIdentifiedError
from plmix_dist.inference.e_step import em_request
from plmix_dist.inference.em import Run
from plmix_dist.inference.journal import NO_JOURNAL
from plmix_dist.inference.saved_state import savable
from plmix_dist.inference.starts_to_ends import Ends
from plmix_dist.inference.stopping import posterior_shares
from plmix_dist.kernels import prepare
from plmix_dist.kernels.tied_draws import draw_extensions
from plmix_dist.rankings.randomness import generator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from plmix_dist.engine.passes import Passes
    from plmix_dist.engine.request import Answer
    from plmix_dist.inference.em import Em
    from plmix_dist.inference.journal import Journal
    from plmix_dist.inference.point import Point
    from plmix_dist.inference.starts_to_ends import Candidate
    from plmix_dist.kernels import Prepared
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.solvers import MStep, Sums

_WINDOW = 10
_SETTLED = 0.002
_SETTLED_SHARE = 0.1


class DrawParams(NamedTuple):
    """What travels to every task: the current point, the seed, and the number of the pass."""

    point: Point
    seed: int
    n_pass: int


class _Draws(NamedTuple):
    """The same, ready for kernels."""

    current: Prepared
    seed: int
    n_pass: int


def _prepare(params: DrawParams) -> _Draws:
    point = params.point
    return _Draws(prepare(point.log_worths, point.log_shares), params.seed, params.n_pass)


def _leaf_sums(m_step: MStep, number: int, block: RankingBlock, params: _Draws) -> Sums:
    """The sums over rankings with drawn orders; the log-likelihood is that of the rankings with ties."""
    rng = generator(params.seed, "resample", params.n_pass, number)
    drawn, log_likelihood = draw_extensions(block, params.current, rng)
    sums: Any = m_step.sums(drawn, params.current, None)
    if not np.isfinite(log_likelihood):
        raise NonFiniteError("the log-likelihood is not finite")
    found: Sums = sums._replace(log_likelihood=np.array(log_likelihood))
    return found


@cache
def drawn_e_step(m_step: MStep) -> Aggregation:
    """The aggregation of the sums that an M-step needs, over rankings with drawn orders.

    Examples
    --------
    >>> from plmix_dist.solvers import MM
    >>> drawn_e_step(MM).name
    'resample'
    """
    return Aggregation("resample", leaf=partial(_leaf_sums, m_step), prepare=_prepare)


@savable
class ResampleState(NamedTuple):
    """A fit under way.

    Parameters
    ----------
    point
        The point of the next pass.
    history
        One record per pass.
    total : (n_parameters,)
        The sum of the points that are averaged.
    n_averaged
        How many these are; 0 in the first stage.
    earlier : (n_parameters,)
        The average 10 passes ago.
    ended
        None, "settled" or "exhausted": the exact pass at the average is next.
    run
        The result, after that pass.
    error
        Why the fit cannot go on; None as long as it can.
    """

    point: Point
    history: tuple[dict[str, Any], ...]
    total: NDArray[np.float64]
    n_averaged: int
    earlier: NDArray[np.float64]
    ended: str | None = None
    run: Run | None = None
    error: FitError | None = None


@dataclass(frozen=True)
class ResampledEm:
    """How to fit with drawn orders: `em` says everything else."""

    em: Em

    def start(self, point: Point) -> ResampleState:
        """The state of a fit that begins at a point."""
        nothing = np.zeros(point.n_parameters)
        return ResampleState(point, (), nothing, 0, nothing)

    def ask(self, state: ResampleState) -> Sequence[Request]:
        """A pass with drawn orders, or the exact pass at the average."""
        em = self.em
        if state.error is not None or state.run is not None:
            return ()
        request = em_request(em.m_step, state.point, None, em.alpha)
        if state.ended is not None:
            return (request,)
        params = DrawParams(state.point, em.seed, len(state.history))
        return (Request(drawn_e_step(em.m_step), params, request.finish),)

    def tell(self, state: ResampleState, answers: Sequence[Answer]) -> ResampleState:
        """The state after a pass."""
        (answer,) = answers
        if answer.error is not None:
            return state._replace(error=answer.error)
        summary, *steps = answer.results
        timing = answer.timing._asdict() | {"solve_seconds": max(step.seconds for step in steps)}
        evaluation = self.em.evaluation(state.point, summary, steps, timing)
        if state.ended is not None:
            return state._replace(run=self._result(state, evaluation))
        record = {
            "iteration": len(state.history) + 1,
            "start": self.em.number,
            "step": "resample" if state.n_averaged else "burn-in",
            "taken": True,
            "objective": evaluation.objective,
            "change": None,
            "gradient": evaluation.residual,
        }
        state = state._replace(history=(*state.history, record | evaluation.details), point=evaluation.next)
        if not np.isfinite(state.point.flat()).all():
            return state._replace(
                error=NonFiniteError(f"iteration {len(state.history)}: a component has lost all its rankings")
            )
        try:
            self.em.refuse_divergence(evaluation.next, evaluation.next)
        except NotIdentifiedError as error:
            return state._replace(error=NotIdentifiedError(f"iteration {len(state.history)}, {error}"))
        return self._averaged(state)

    def score(self, state: ResampleState) -> float | None:
        """The last objective."""
        return float(state.history[-1]["objective"]) if state.history else None

    def _averaged(self, state: ResampleState) -> ResampleState:
        """The point added to the average, and whether the average has settled."""
        n_passes = len(state.history)
        if state.n_averaged == 0 and not _has_risen(state.history) and n_passes < self.em.max_iter:
            return state
        total, n_averaged = state.total + state.point.flat(), state.n_averaged + 1
        state = state._replace(total=total, n_averaged=n_averaged)
        ended = "exhausted" if n_passes >= self.em.max_iter else None
        if n_averaged % _WINDOW == 0:
            mean = total / n_averaged
            moved = self._moved(state, mean)
            if n_averaged > _WINDOW and moved <= max(_SETTLED, _SETTLED_SHARE / np.sqrt(self.em.weight)):
                ended = "settled"
            state = state._replace(earlier=mean)
        if ended is None:
            return state
        return state._replace(ended=ended, point=state.point.like(total / n_averaged))

    def _moved(self, state: ResampleState, mean: NDArray[np.float64]) -> float:
        """How far the average has moved: its largest entry. Without a prior ghosts drift and mean nothing."""
        moves = np.abs(mean - state.earlier)
        if self.em.alpha == 0:
            n_worths = state.point.log_worths.size
            moves[n_worths : n_worths + state.point.n_components] = 0.0
        return float(moves.max())

    def _result(self, state: ResampleState, evaluation: Any) -> Run:
        return Run(
            point=state.point,
            converged=state.ended == "settled",
            n_iterations=len(state.history),
            log_likelihood=float(evaluation.details["log_likelihood"]),
            objective=evaluation.objective,
            score=float(evaluation.objective),
            gradient=evaluation.residual,
            history=list(state.history),
            events=[],
            hessian=None,
            posterior_shares=posterior_shares(evaluation),
        )


def _has_risen(history: Sequence[dict[str, Any]]) -> bool:
    """Whether the objective has stopped rising: the last 10 passes against the 10 before, but for their noise."""
    if len(history) < 2 * _WINDOW:
        return False
    values = np.array([record["objective"] for record in history[-2 * _WINDOW :]])
    before, after = values[:_WINDOW], values[_WINDOW:]
    noise = float(np.std(np.diff(after))) / np.sqrt(_WINDOW)
    return bool(after.mean() - before.mean() <= 2 * noise + 1e-9 * abs(float(after.mean())))


def run_resampled(
    passes: Passes,
    em: Em,
    candidates: Sequence[Candidate],
    progress: Callable[[dict[str, Any]], None] | None = None,
    journal: Journal = NO_JOURNAL,
) -> Ends:
    """Run all candidates to their ends, one after the other."""
    runs: dict[int, Run] = {}
    failed: dict[int, FitError] = {}
    for number, candidate in enumerate(candidates):
        algorithm = ResampledEm(replace(em, number=number))

        def report(state: ResampleState) -> None:
            if progress is not None and state.run is None and state.history:
                progress(state.history[-1])

        ended = journal.run(f"start-{number}", passes, algorithm, algorithm.start(candidate.point), report)
        if ended.run is not None:
            runs[number] = ended.run
        else:
            assert ended.error is not None
            failed[number] = ended.error
    if not runs:
        raise next(iter(failed.values()))
    return Ends(runs, failed)
