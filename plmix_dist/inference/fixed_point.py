"""A safeguarded, accelerated fixed-point iteration that never lowers its objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

from plmix_dist.inference.acceleration import Anderson
from plmix_dist.inference.state import WIDEST_STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import numpy as np
    from numpy.typing import NDArray

    from plmix_dist.inference.newton import Newton
    from plmix_dist.inference.state import EmState

# A computation that asks for passes over the data, is sent their answers, and in the end gives its result.
Asking: TypeAlias = "Generator[Any, Any, T]"
T = TypeVar("T")
Step = Literal["start", "plain", "accelerated", "newton", "safe"]


class Evaluation(NamedTuple):
    """What is known of a state after its pass over the data.

    `next` is where the iteration leads; `safe` a step that cannot lower the objective; `slopes` those of the objective
    in all parameters, in the order of `EmState.flat`; `gradient` the largest of them, a unit of weight; `details`
    whatever the record of an iteration shall show.
    """

    objective: float
    gradient: float
    slopes: NDArray[np.float64]
    next: EmState
    safe: EmState
    details: dict[str, Any]


class Outcome(NamedTuple):
    """Where an iteration ended."""

    state: EmState
    evaluation: Evaluation
    converged: bool
    n_evaluations: int


def iterate(
    evaluate: Callable[[EmState], Asking[Evaluation]],
    state: EmState,
    *,
    tol: float,
    max_iter: int,
    unit: float,
    accelerate: bool = True,
    newton: Newton | None = None,
    observe: Callable[[dict[str, Any]], None] | None = None,
    interrupt: Callable[[EmState], bool] | None = None,
) -> Asking[Outcome]:
    """Iterate until slope and change, a unit of weight, are below `tol`.

    The next point is the iteration's own, or Newton's where that has curvature to go by, mixed with the last few.

    A point whose objective is lower than that of the last good one is not taken: the iteration goes back and takes the
    safe step from there. It ends early at a good state for which `interrupt` is true.
    """
    anderson = Anderson()
    good: tuple[EmState, Evaluation] | None = None
    step: Step = "start"
    for number in range(1, max_iter + 1):
        evaluation = yield from evaluate(state)
        before = None if good is None else good[1].objective
        change = None if before is None else evaluation.objective - before
        # Sums of millions of terms differ in their last digits; a fall within rounding is no fall.
        slack = 1e-13 * abs(evaluation.objective) + 1e-300
        taken = change is None or change >= -slack
        if observe is not None:
            record = {"iteration": number, "step": step, "taken": taken, "objective": evaluation.objective}
            observe(record | {"change": change, "gradient": evaluation.gradient} | evaluation.details)
        if not taken:
            assert good is not None
            if step == "safe":  # even the safe step falls: rounding is all that is left
                return Outcome(*good, converged=good[1].gradient <= tol, n_evaluations=number)
            anderson.forget()
            if newton is not None:
                newton.refuse()
            state, step = good[1].safe, "safe"
            continue
        good = (state, evaluation)
        if interrupt is not None and interrupt(state):
            return Outcome(state, evaluation, converged=False, n_evaluations=number)
        settled = change is not None and abs(change) <= tol * unit
        if evaluation.gradient <= tol and settled:
            return Outcome(state, evaluation, converged=True, n_evaluations=number)
        state, step = _proposed(anderson if accelerate else None, newton, state, evaluation)
    assert good is not None
    return Outcome(*good, converged=False, n_evaluations=max_iter)


def _proposed(
    anderson: Anderson | None, newton: Newton | None, state: EmState, evaluation: Evaluation
) -> tuple[EmState, Step]:
    """The accelerated step, where there is one and it stays within what can be computed; else the plain one."""
    leap = None if newton is None else newton.propose(state, evaluation)
    plain = evaluation.next if leap is None else leap
    if anderson is not None:
        if newton is not None and newton.is_new:
            anderson.forget()  # what the last points have shown holds for another map
        accelerated = state.like(anderson.propose(state.flat(), plain.flat()))
        if accelerated.log_range() <= WIDEST_STATE:
            return accelerated, "accelerated" if leap is None else "newton"
    return plain, "plain" if leap is None else "newton"
