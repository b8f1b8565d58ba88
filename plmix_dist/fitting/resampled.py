"""ResampledEm: EM on linear extensions that are drawn anew in every pass, as an Algorithm (Liu et al. 2019).

In every pass a component and then an order of tied items are drawn for every ranking with ties, given the ties and the
current fit. One M-step is taken as if these orders had been observed. Draws are keyed by (seed, pass, leaf) and by the
place of the row in its leaf, so results do not depend on workers. Steps are noisy, so the fit has three stages:

1. Steps until the objective has stopped rising: its mean over 10 passes is not higher than over the 10 before, but for
   noise.
2. Steps whose points are averaged. It ends when 10 more passes have moved the average of every log-worth and log-share
   by at most 0.002 or, if that is more, a tenth of 1 / sqrt(weight), which is about the least standard error that the
   data allow; or after `max_iter` passes.
3. One exact pass at the average, which gives the log-likelihood (the sum over all orders) and the gradient there.

`converged` means that the average has settled. The gradient is that of the exact objective, and is not small to `tol`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.errors import FitError, NonFiniteError, NotIdentifiedError
from plmix_dist.fitting.algorithm import savable
from plmix_dist.fitting.e_step import em_request, timing_of
from plmix_dist.fitting.em import Candidate, Em, Ends, Progress, Run, run_reported
from plmix_dist.fitting.fixed_point import Good
from plmix_dist.fitting.journal import NO_JOURNAL, Journal
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import Prepared
from plmix_dist.kernels.draws import draw_extensions
from plmix_dist.passes import Aggregation, Answer, Passes, Request
from plmix_dist.rankings import Floats, RankingBlock, generator
from plmix_dist.solvers import MStep, Sums

_WINDOW = 10
_SETTLED = 0.002
_SETTLED_SHARE = 0.1


def _prepare(params: tuple[Point, int, int]) -> tuple[Prepared, int, int]:
    """The current point, the seed and the number of the pass: from what travels to every task to what kernels take."""
    point, seed, n_pass = params
    return point.prepared(), seed, n_pass


def _leaf_sums(m_step: MStep, number: int, block: RankingBlock, params: tuple[Prepared, int, int]) -> Sums:
    """The sums over rankings with drawn orders; the log-likelihood is that of the rankings with ties."""
    current, seed, n_pass = params
    drawn, log_likelihood = draw_extensions(block, current, generator(seed, "resample", n_pass, number))
    sums: Any = m_step.sums(drawn, current, None)
    if not np.isfinite(log_likelihood):
        raise NonFiniteError("the log-likelihood is not finite")
    found: Sums = sums._replace(log_likelihood=np.array(log_likelihood))
    return found


@savable
class _ResampleState(NamedTuple):
    """A fit under way."""

    # The point of the next pass.
    point: Point
    history: tuple[dict[str, Any], ...]
    # (n_parameters,): the sum of the points that are averaged.
    total: Floats
    # How many these are; 0 in the first stage.
    n_averaged: int
    # (n_parameters,): the average 10 passes ago.
    earlier: Floats
    # None, "settled" or "exhausted": the exact pass at the average is next.
    ended: str | None = None
    # The result, after that pass.
    run: Run | None = None
    error: FitError | None = None


@dataclass(frozen=True)
class _ResampledEm:
    """How to fit with drawn orders; everything else is as in `em`."""

    em: Em

    def start(self, point: Point) -> _ResampleState:
        """The state of a fit that begins at a point."""
        nothing = np.zeros(point.n_parameters)
        return _ResampleState(point, (), nothing, 0, nothing)

    def ask(self, state: _ResampleState) -> Sequence[Request]:
        """A pass with drawn orders, or the exact pass at the average."""
        em = self.em
        if state.error is not None or state.run is not None:
            return ()
        request = em_request(em.m_step, state.point, None, em.alpha)
        if state.ended is not None:
            return (request,)
        drawn = Aggregation("resample", leaf=partial(_leaf_sums, em.m_step), prepare=_prepare)
        return (Request(drawn, (state.point, em.seed, len(state.history)), request.finish),)

    def tell(self, state: _ResampleState, answers: Sequence[Answer]) -> _ResampleState:
        """The state after a pass."""
        (answer,) = answers
        if answer.error is not None:
            return state._replace(error=answer.error)
        summary, *steps = answer.results
        evaluation = self.em.evaluation(state.point, summary, steps, timing_of(answer, steps))
        if state.ended is not None:
            end, shares = Good(state.point, evaluation), evaluation.posterior_shares
            settled = state.ended == "settled"
            return state._replace(run=Run.at(end, converged=settled, history=state.history, posterior_shares=shares))
        step = "resample" if state.n_averaged else "burn-in"
        record = {"iteration": len(state.history) + 1, "start": self.em.number, "step": step, "taken": True}
        record |= {"objective": evaluation.objective, "change": None, "gradient": evaluation.residual}
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

    def _averaged(self, state: _ResampleState) -> _ResampleState:
        """The point added to the average, and whether the average has settled."""
        n_passes = len(state.history)
        if state.n_averaged == 0 and not _has_settled(state.history) and n_passes < self.em.max_iter:
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
        return state if ended is None else state._replace(ended=ended, point=state.point.like(total / n_averaged))

    def _moved(self, state: _ResampleState, mean: Floats) -> float:
        """How far the average has moved: its largest entry. Without a prior ghosts drift and mean nothing."""
        moves = np.abs(mean - state.earlier)
        if self.em.alpha == 0:
            n_worths = state.point.log_worths.size
            moves[n_worths : n_worths + state.point.n_components] = 0.0
        return float(moves.max())


def _has_settled(history: Sequence[dict[str, Any]]) -> bool:
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
    progress: Progress | None = None,
    journal: Journal = NO_JOURNAL,
) -> Ends:
    """Run all candidates to their ends, one after the other."""
    ended = {}
    for number, candidate in enumerate(candidates):
        algorithm = _ResampledEm(replace(em, number=number))
        begin = algorithm.start(candidate.point)
        ended[number] = run_reported(passes, algorithm, begin, f"start-{number}", progress, journal)
    runs = {number: state.run for number, state in ended.items() if state.run is not None}
    failed = {number: state.error for number, state in ended.items() if state.error is not None}
    if not runs:
        raise next(iter(failed.values()))
    return Ends(runs, failed)
