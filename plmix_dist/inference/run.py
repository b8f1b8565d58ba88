"""One start taken to its end; components that collapse are mended on the way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from plmix_dist.errors import NonFiniteError
from plmix_dist.inference.collapse import has_collapsed, mend_collapsed
from plmix_dist.inference.fixed_point import iterate
from plmix_dist.rankings.randomness import generator

if TYPE_CHECKING:
    from collections.abc import Callable

    from plmix_dist.inference.em import Em
    from plmix_dist.inference.fixed_point import Asking, Evaluation, Outcome
    from plmix_dist.inference.newton import Newton
    from plmix_dist.inference.settings import FitSettings
    from plmix_dist.inference.state import EmState


@dataclass(frozen=True)
class Run:
    """Where one start ended."""

    state: EmState
    converged: bool
    n_iterations: int
    log_likelihood: float
    objective: float
    gradient: float
    history: list[dict[str, Any]]
    events: list[dict[str, Any]]


def run_from(
    em: Em,
    state: EmState,
    settings: FitSettings,
    *,
    number: int = 0,
    tol: float,
    max_iter: int,
    newton: Newton | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> Asking[Run]:
    """One start to its end. Where a component collapses, it is mended and the iteration begins anew from there."""
    history: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []

    def observe(record: dict[str, Any]) -> None:
        numbered = record | {"iteration": len(history) + 1, "start": number}
        history.append(numbered)
        if progress is not None:
            progress(numbered)

    step = em.fused if settings.em == "fused" else partial(em.exact, tol=tol)

    def evaluate(state: EmState) -> Asking[Evaluation]:
        try:
            return (yield from step(state))
        except NonFiniteError as error:
            raise NonFiniteError(f"iteration {len(history) + 1}, {error}") from None

    rng = generator(settings.seed, "collapse", number)
    while True:
        outcome: Outcome = yield from iterate(
            evaluate,
            state,
            tol=tol,
            max_iter=max_iter - len(history),
            unit=em.unit,
            accelerate=settings.accelerate,
            newton=newton,
            observe=observe,
            interrupt=None if em.fixed_shares else has_collapsed,
        )
        left = max_iter - len(history)
        mended = (
            None if em.fixed_shares or not left else mend_collapsed(outcome.state, events, len(history), rng)
        )
        if mended is None:
            break
        state = mended
        if newton is not None:
            newton.rest()
    evaluation = outcome.evaluation
    return Run(
        state=outcome.state,
        converged=outcome.converged,
        n_iterations=len(history),
        log_likelihood=float(evaluation.details["log_likelihood"]),
        objective=evaluation.objective,
        gradient=evaluation.gradient,
        history=history,
        events=events,
    )
