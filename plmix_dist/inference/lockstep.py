"""Several fits side by side: each pass over the data serves all that still run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from plmix_dist.errors import NonFiniteError
from plmix_dist.inference.em import answer_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.fixed_point import Asking

T = TypeVar("T")
# Fits whose likelihoods differ by less than this share are on the way to the same optimum.
_IN_STEP = 1e-7


def run_together(
    passes: Passes, fits: Sequence[Asking[T]], *, cuts: Sequence[tuple[int, int]] = ()
) -> dict[int, T]:
    """The results of several fits, whose requests are answered together, pass by pass, by their number.

    `cuts` makes it a race: a cut (rounds, n_kept) leaves, after so many passes, the fits with the best likelihood.
    The others end there and have no result.
    """
    results: dict[int, T] = {}
    requests: dict[int, Any] = {}
    reached: dict[int, float] = {}
    kept_after = dict(cuts)
    _advance(fits, dict.fromkeys(range(len(fits))), requests, results)
    n_rounds = 0
    while requests:
        try:
            answers = answer_requests(passes, list(requests.values()))
        except NonFiniteError as error:
            fits[min(requests)].throw(error)  # the fit knows in which iteration it is
            raise
        answered = dict(zip(requests, answers, strict=True))
        n_rounds += 1
        for number, answer in answered.items():
            likelihood = answer.summary.log_likelihood
            reached[number] = max(reached.get(number, likelihood), likelihood)
        if n_rounds in kept_after:
            best = _leading(reached, kept_after[n_rounds])
            reached = {number: reached[number] for number in best}
            answered = {number: answer for number, answer in answered.items() if number in best}
            results = {number: result for number, result in results.items() if number in best}
        requests.clear()
        _advance(fits, answered, requests, results)
    return results


def _leading(reached: dict[int, float], n_kept: int) -> list[int]:
    """The fits with the best likelihoods, those in step with a better one left out: they end where it ends."""
    leading: list[int] = []
    for number in sorted(reached, key=lambda number: -reached[number]):
        in_step = any(reached[other] - reached[number] < _IN_STEP * abs(reached[other]) for other in leading)
        if not in_step and len(leading) < n_kept:
            leading.append(number)
    return leading


def _advance(
    fits: Sequence[Asking[T]], answers: dict[int, Any], requests: dict[int, Any], results: dict[int, T]
) -> None:
    """Send each fit its answer; note what it asks for next, or what it gives in the end."""
    for number, answer in answers.items():
        try:
            requests[number] = fits[number].send(answer)
        except StopIteration as finished:
            results[number] = finished.value
