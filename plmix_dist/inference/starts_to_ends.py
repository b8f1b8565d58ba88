"""Starts run to convergence side by side; the one loop that every stage of a fit uses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.inference.journal import NO_JOURNAL
from plmix_dist.inference.saved_state import savable
from plmix_dist.inference.together import Together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plmix_dist.engine.passes import Passes
    from plmix_dist.errors import FitError
    from plmix_dist.inference.em import Em, Run
    from plmix_dist.inference.hessian import Hessian
    from plmix_dist.inference.journal import Journal
    from plmix_dist.inference.point import Point
    from plmix_dist.inference.together import TogetherState

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
    """Run all candidates to their ends; every pass over the data serves all that still run.

    Parameters
    ----------
    cuts
        A race: after so many rounds, the best few are kept.
    n_kept
        How many ends are kept, at most. Of ends that are the same optimum one is kept. None keeps all.
    progress
        Called with the record of every iteration.
    journal
        Keeps the state of the loop.
    """
    fits = [replace(em, number=number) for number in range(len(candidates))]
    at_once = max(1, MOST_NUMBERS // (2 * max(_n_numbers(em, candidate) for candidate in candidates)))
    together = Together(tuple(fits), tuple(cuts), at_once)
    begin = together.start(
        [
            fit.start(candidate.point, candidate.hessian)
            for fit, candidate in zip(fits, candidates, strict=True)
        ]
    )
    begin = journal.begin("fit", begin)
    ended = journal.run("fit", passes, together, begin, _Reporter(progress, begin))
    failed = {
        number: state.error
        for number, state in enumerate(ended.states)
        if state is not None and state.error is not None
    }
    kept = [number for number, state in enumerate(ended.states) if state is not None and number not in failed]
    if not kept:
        number, error = next(iter(failed.items()))
        raise type(error)(f"start {number}, {error}" if len(candidates) > 1 else str(error))
    if n_kept is not None:
        kept = sorted(together.leading(ended, n_kept))
    return Ends({number: fits[number].result(ended.states[number]) for number in kept}, failed)


def failures_of(stage: str, failed: Mapping[int, FitError]) -> list[dict[str, Any]]:
    """Records of the starts that failed in a stage of a fit.

    Examples
    --------
    >>> from plmix_dist.errors import NonFiniteError
    >>> failures_of("fit", {2: NonFiniteError("iteration 4, leaf 0: ...")})
    [{'stage': 'fit', 'start': 2, 'error': 'iteration 4, leaf 0: ...'}]
    """
    return [{"stage": stage, "start": number, "error": str(error)} for number, error in failed.items()]


def _n_numbers(em: Em, candidate: Candidate) -> int:
    n_components, n_items = candidate.point.log_worths.shape
    return int(n_components * em.m_step.numbers(n_items))


class _Reporter:
    """Hands on new records of fits that run together."""

    def __init__(self, progress: Progress | None, begin: TogetherState) -> None:
        self.progress = progress
        self.n_told = {number: len(own.history) for number, own in enumerate(begin.states) if own is not None}

    def __call__(self, state: TogetherState) -> None:
        for number, own in enumerate(state.states):
            if own is None:
                continue
            for record in own.history[self.n_told.get(number, 0) :]:
                if self.progress is not None:
                    self.progress(record)
            self.n_told[number] = len(own.history)
