"""One iteration of EM as a request: the E-step over all leaves, then one M-step per component."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from plmix_dist.errors import NonFiniteError, SettingsError
from plmix_dist.fitting.point import SMALLEST_SHARE, WIDEST_POINT, Point
from plmix_dist.kernels import Prepared
from plmix_dist.passes import Aggregation, Answer, Finish, Request
from plmix_dist.rankings import RankingBlock, RowPart, generator, rows_of_part
from plmix_dist.solvers import Gradient, MStep, Sums, Worths, log_prior

Parameters = TypeVar("Parameters", Point, Prepared)


class PassParams(NamedTuple, Generic[Parameters]):
    """What travels to every task, as points, and what kernels take."""

    current: Parameters
    # For an exact M-step, those that gave the posteriors.
    frozen: Parameters | None = None
    # For an M-step that draws: the seed, the number of the start, and the number of the iteration.
    key: tuple[int, int, int] = (0, 0, 0)


def _prepare_pass(params: PassParams[Point]) -> PassParams[Prepared]:
    try:
        frozen = None if params.frozen is None else params.frozen.prepared()
        return PassParams(params.current.prepared(), frozen, params.key)
    except SettingsError as error:  # it concerns this fit alone
        raise NonFiniteError(str(error)) from None


def _leaf_sums(
    m_step: MStep, part: RowPart | None, number: int, block: RankingBlock, params: PassParams[Prepared]
) -> Sums:
    """The sums of one leaf; the first number that is not finite stops the fit."""
    rows = rows_of_part(part, number, block)
    if m_step.drawn_sums is not None:
        seed, *place = params.key
        sums = m_step.drawn_sums(rows, params.current, params.frozen, generator(seed, "memberships", *place, number))
    else:
        sums = m_step.sums(rows, params.current, params.frozen)
    for name, values in zip(sums._fields, sums, strict=True):
        if values.ndim <= 2 and not np.isfinite(values.sum()):
            raise NonFiniteError(_not_finite(name, values))
    found: Sums = sums
    return found


def _not_finite(name: str, values: Any) -> str:
    if values.ndim == 0:
        return f"the {name.replace('_', '-')} is not finite"
    by_component = values.reshape(len(values), -1).sum(axis=1)
    component = int(np.flatnonzero(~np.isfinite(by_component))[0])
    return f"the statistics of component {component} are not finite"


@cache
def e_step(m_step: MStep, part: RowPart | None = None) -> Aggregation:
    """The aggregation of the sums that an M-step needs, over all rows or a part of them."""
    return Aggregation("e-step", leaf=partial(_leaf_sums, m_step, part), prepare=_prepare_pass)


class Summary(NamedTuple):
    """What the loop needs of the sums beside the M-steps: log-likelihood, shares (n_components,), and the objective.

    `ties` are sums of ties and of expected ties (2, n_components, n_orders - 1), where ties are outcomes.
    """

    log_likelihood: float
    shares: Any
    objective: float | None
    ties: Any = None


def _summarise(m_step: MStep, frozen: bool, sums: Any) -> Summary:
    objective = m_step.held_objective if frozen else m_step.objective
    value = None if objective is None else float((objective.expected if frozen else objective.observed)(sums))
    ties = np.array([sums.ties, sums.expected_ties]) if hasattr(sums, "ties") else None
    return Summary(float(sums.log_likelihood), sums.shares, value, ties)


class ComponentStep(NamedTuple):
    """What the M-step of one component gives."""

    next: Worths
    # safe, gradient: the safe step and the derivatives of the objective; None without an objective.
    safe: Worths | None
    gradient: Gradient | None
    # At the present worths.
    log_prior: float
    # That it took.
    seconds: float


def timing_of(answer: Answer, steps: Sequence[ComponentStep]) -> dict[str, float]:
    """Seconds of a pass and of its M-steps, which run side by side, for the record of an iteration."""
    return answer.timing._asdict() | {"solve_seconds": max(step.seconds for step in steps)}


def component_step(
    m_step: MStep, component: int, worths: Worths, alpha: float, sums: Any, *, held: bool = False
) -> ComponentStep:
    """The M-step of one component: one of K tasks that run side by side. `held`: posteriors or draws are held."""
    begun = time.perf_counter()
    objective = m_step.held_objective if held else m_step.objective
    own = m_step.component(sums, component)
    if alpha == 0 and sums.shares[component] <= SMALLEST_SHARE * sums.shares.sum():
        nothing = held_step(worths, 0.0)  # no ranking is left to learn from
        return nothing if objective is not None else nothing._replace(gradient=None)
    gradient = safe = None
    if objective is not None:
        gradient = objective.gradient(own, worths, alpha)
        safe = _shortened(worths, objective.safe_step(worths, gradient, alpha), alpha)
    step = safe if m_step.step is None else _shortened(worths, m_step.step(own, worths, alpha), alpha)
    assert step is not None, "an M-step without a step has an objective"
    prior = log_prior(worths.log_worths, worths.ghost, alpha, worths.log_tie)
    return ComponentStep(step, safe, gradient, prior, time.perf_counter() - begun)


def held_step(worths: Worths, seconds: float) -> ComponentStep:
    """The step of a component whose worths are held: it stays where it is, and the prior says nothing of it."""
    nothing = np.zeros(len(worths.log_worths) + 1)
    return ComponentStep(worths, worths, Gradient(nothing, nothing), 0.0, seconds)


def _shortened(worths: Worths, step: Worths, alpha: float) -> Worths:
    """A step halved until its log-worths can be computed with; part of a safe step raises the objective too.

    Without a prior a step that leads too far shows that no maximum exists: it is left as it is, for the loop to see.
    """
    if alpha == 0:
        return step
    move, ghost_move = step.log_worths - worths.log_worths, step.ghost - worths.ghost
    share = 1.0
    while not np.ptp(step.log_worths) <= WIDEST_POINT and share > 1e-12:
        share /= 2
        step = Worths(worths.log_worths + share * move, worths.ghost + share * ghost_move)
    return step


def em_request(
    m_step: MStep,
    point: Point,
    frozen: Point | None,
    alpha: float,
    named: str = "",
    key: tuple[int, int, int] = (0, 0, 0),
    part: RowPart | None = None,
) -> Request:
    """The pass of one iteration. Its answer is a Summary, then the ComponentStep of every component.

    `key` keys the random numbers of an M-step that draws: seed, number of the start, number of the iteration.
    """
    held = frozen is not None
    finish = [Finish(f"summary{named}", partial(_summarise, m_step, held))]
    for component, worths in enumerate(point.components()):
        step = partial(component_step, m_step, component, worths, alpha, held=held)
        finish.append(Finish(f"m-step{named}-{component}", step))
    return Request(e_step(m_step, part), PassParams(point, frozen, key), tuple(finish))
