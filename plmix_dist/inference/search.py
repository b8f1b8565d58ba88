"""The search for the best optimum: starts run to their ends on a part of the rows, batch after batch.

EM ends at a local optimum, and which one depends on the start. How far a start has come after some passes says little:
EM lingers on plateaus. So all starts of a batch run to their ends, and those of the next batch vary the best of them.
The search stops when the best end was found often enough, or when its budget is spent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.data import rankings_of_block
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import FitError
from plmix_dist.inference.point import Point
from plmix_dist.inference.saved_state import savable
from plmix_dist.inference.starts_to_ends import Candidate, failures_of, run_to_ends
from plmix_dist.rankings.linear_extensions import extend_ties
from plmix_dist.starts.proposals import (
    BATCH,
    Mixture,
    Proposer,
    handfuls,
    random_worths,
    split_component,
    worst_explained,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plmix_dist.inference.em import Em
    from plmix_dist.inference.starts_to_ends import Progress
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.starts.make_starts import Start
    from plmix_dist.starts.start_settings import StartSettings

# Ends whose objectives per unit of weight differ by less are the same optimum.
SAME_END = 1e-4
# Of ends that differ by less than this, the first is taken.
_AS_GOOD = 1e-6
# The best end was found often enough when so many starts ended there, and these are most of all, or many were tried.
_OFTEN_ENOUGH = 10
_MOST = 0.75
_MANY_TRIED = 48
# The first batch has at least so many starts, and half of them at random. If all of them end together, that is enough.
_FIRST_BATCH = 4
# From a fit of fewer components, so many starts split one of its components, and so many add one.
_SPLITS = 4
_ADDITIONS = 2
# Runs of a search end after so many iterations; the gradient need not be small, for ends to be told apart.
MOST_ITERATIONS = 60
TOLERANCE = 1e-4
# What a search may cost: listed items times components, for every iteration of every start. About 12 s of 2 cores.
_BUDGET = 2.0**31
# What an iteration costs beside the rows, in the same unit: for every item and component, and always.
_PER_ITEM = 32
_PER_ITERATION = 2.0**16
# No search has more starts than this.
_MOST_STARTS = 128
# From so many rows on, a search costs at most so many passes over all of them.
MANY_ROWS = 1 << 19
_MOST_PASSES = 8
# At most so many ends go on, if a search on a part of the rows cannot tell which is the best for all rows.
_MOST_RIVALS = 4
# The difference of two ends in the log-likelihood of a single row has about this standard deviation.
_DEVIATION_PER_ROW = 0.25


class End(NamedTuple):
    """Where a start of a search ended, and its objective per unit of weight."""

    candidate: Candidate
    score: float


@savable
class Found(NamedTuple):
    """What a search found.

    Parameters
    ----------
    rivals
        The best end; also those that may be better on all rows, if the search saw a part of them.
    about
        How many starts there were, how many of them ended at the best end, and how many different ends there are.
    n_passes
        How many passes over its rows it took.
    failed
        Records of the starts that failed.
    """

    rivals: list[Candidate]
    about: dict[str, int]
    n_passes: int
    failed: list[dict[str, Any]]


def budget_of(n_rankings: int, listed: float, n_components: int) -> float:
    """What a search may cost, in items times components times iterations, on rows that list so many items in total.

    Examples
    --------
    >>> budget_of(1_000, 10_000.0, 3) == budget_of(100_000, 1e6, 3)
    True
    >>> budget_of(1_000_000, 1e7, 3) / (1e7 * 3)
    8.0
    """
    return min(_BUDGET, _MOST_PASSES * listed * n_components) if n_rankings >= MANY_ROWS else _BUDGET


def search(
    em: Em,
    rows: RankingBlock,
    spectral: Sequence[Start],
    settings: StartSettings,
    budget: float,
    *,
    is_part: bool,
    smaller: Mixture | None = None,
    progress: Progress | None = None,
) -> Found:
    """Look for the best end of EM on some rows.

    Parameters
    ----------
    em
        EM on these rows.
    rows
        All rows, or a part of them.
    spectral
        The starts to begin with.
    settings
        The number of components, the seed, and how many ends shall go on.
    budget
        What the search may cost; see `budget_of`.
    is_part
        Whether there are more rows than these.
    smaller
        A fit of fewer components. More starts are made from it, by splitting a component or adding one.
    progress
        Called with the record of every iteration.

    Examples
    --------
    >>> from plmix_dist.inference.em import Em
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.solvers import MM
    >>> from plmix_dist.starts.start_settings import StartSettings
    >>> rows = RankingBlock.from_array([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
    >>> em = Em(MM, 0.1, weight=40.0, n_rankings=40, tol=1e-4, max_iter=60)
    >>> search(em, rows, [], StartSettings(2), budget=1e9, is_part=False).about
    {'n_starts': 4, 'n_best': 4, 'n_ends': 1}
    """
    # Starts are made from single rankings without ties.
    proposer = Proposer(extend_ties(rows).block.replace(groups=None), settings)
    passes = ThreadedPasses(rankings_of_block(rows))
    per_iteration = (len(rows.items) + _PER_ITEM * rows.n_items) * settings.n_components + _PER_ITERATION
    ends: list[End] = []
    failed: list[dict[str, Any]] = []
    n_starts, n_batches, spent = 0, 0, 0.0
    starts = [*_first_batch(proposer, spectral), *_grown(proposer, smaller)]
    try:
        while True:
            new, failures = _ends_of(passes, em, starts, progress, last_hope=not ends)
            failed += failures_of("search", {n_starts + number: error for number, error in failures.items()})
            n_starts += len(starts)
            best_before = max((end.score for end in ends), default=-math.inf)
            ends += [end for end, _ in new]
            spent += per_iteration * sum(n_iterations for _, n_iterations in new)
            n_more = _n_payable(n_starts, spent, budget)
            if n_starts < settings.n_init:
                n_more = len(BATCH)
            elif not n_more or _is_settled(ends, best_before):
                break
            leaders = _distinct(ends, 2)
            # Variations of the runner-up too: what lies between the two may be better than both.
            varied = leaders[n_batches % len(leaders)].candidate.point
            mixture = Mixture(varied.log_worths, np.exp(varied.log_shares))
            starts = [make(proposer, mixture, n_starts + place) for place, make in enumerate(BATCH[:n_more])]
            n_batches += 1
    finally:
        passes.release()
    rivals = _rivals(ends, settings.n_init, _DEVIATION_PER_ROW / math.sqrt(em.weight) if is_part else 0.0)
    return Found(rivals, _about(ends, n_starts), passes.n_passes, failed)


def _n_payable(n_starts: int, spent: float, budget: float) -> int:
    """How many more starts can be paid, if they cost as much as those before; at most a batch."""
    affordable = int((budget - spent) / max(1.0, spent / n_starts))
    return max(0, min(len(BATCH), _MOST_STARTS - n_starts, affordable))


def _first_batch(proposer: Proposer, spectral: Sequence[Start]) -> list[Start]:
    """The spectral starts, and as many others, or more."""
    n_others = max(len(spectral), _FIRST_BATCH - len(spectral))
    kinds = (random_worths, handfuls)
    return [*spectral, *(kinds[number % 2](proposer, None, number) for number in range(n_others))]


def _grown(proposer: Proposer, smaller: Mixture | None) -> list[Start]:
    """Starts from a fit of fewer components; none if there is no such fit, or if shares are fixed."""
    if smaller is None or proposer.settings.shares is not None:
        return []
    n_splits = min(_SPLITS, len(smaller.shares))
    return [
        *(split_component(proposer, smaller, number) for number in range(n_splits)),
        *(worst_explained(proposer, smaller, number) for number in range(_ADDITIONS)),
    ]


def _ends_of(
    passes: ThreadedPasses, em: Em, starts: Sequence[Start], progress: Progress | None, *, last_hope: bool
) -> tuple[list[tuple[End, int]], Mapping[int, FitError]]:
    """Where starts ended, with how many iterations each took, and why others failed; an error if all did at first."""
    candidates = [Candidate(Point.start(start.log_worths, start.shares), start.about) for start in starts]
    try:
        runs, failed = run_to_ends(passes, em, candidates, progress=progress)
    except FitError as error:
        if last_hope:
            raise
        return [], {0: error}
    ends = []
    for number, run in sorted(runs.items()):
        end = End(Candidate(run.point, candidates[number].about), run.score / em.weight)
        ends.append((end, run.n_iterations))
    return ends, failed


def _is_settled(ends: Sequence[End], best_before: float) -> bool:
    """Whether the best end was found often enough, and not in the last batch only."""
    n_best = _n_best(ends)
    if len(ends) == n_best:
        return True
    tried_enough = len(ends) >= _MANY_TRIED or n_best >= _MOST * len(ends)
    return (
        n_best >= _OFTEN_ENOUGH and tried_enough and max(end.score for end in ends) < best_before + SAME_END
    )


def _n_best(ends: Sequence[End]) -> int:
    best = max(end.score for end in ends)
    return sum(end.score > best - SAME_END for end in ends)


def _best(ends: Sequence[End]) -> End:
    """The first end that is as good as any."""
    best = max(end.score for end in ends)
    return next(end for end in ends if end.score > best - _AS_GOOD)


def _distinct(ends: Sequence[End], n_ends: int) -> list[End]:
    """The best ends that differ from each other, best first."""
    chosen: list[End] = []
    for end in [_best(ends), *sorted(ends, key=lambda end: -end.score)]:
        if len(chosen) < n_ends and all(other.score - end.score > SAME_END for other in chosen):
            chosen.append(end)
    return chosen


def _rivals(ends: Sequence[End], n_init: int, doubt: float) -> list[Candidate]:
    """Different ends, best first: n_init, and those that are behind by no more than is in doubt."""
    leaders = _distinct(ends, max(n_init, _MOST_RIVALS))
    in_doubt = sum(end.score > leaders[0].score - doubt for end in leaders[:_MOST_RIVALS])
    return [end.candidate for end in leaders[: max(n_init, in_doubt, 1)]]


def _about(ends: Sequence[End], n_starts: int) -> dict[str, int]:
    """How many starts, how many of them at the best end, and how many ends that are not the same."""
    return {"n_starts": n_starts, "n_best": _n_best(ends), "n_ends": len(_distinct(ends, len(ends)))}
