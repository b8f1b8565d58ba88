"""The search for the best optimum: starts run to convergence on a part of the rows, batch after batch.

EM ends at a local optimum, and which one depends on the start. How far a start has come after some passes predicts
little: EM stays long on plateaus. So all starts of a batch run to convergence, and those of the next batch vary the
best of them. The search stops when the best end was found often enough, or when its budget is spent.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.datasets.given import rankings_of_block
from plmix_dist.display.progress import Stages
from plmix_dist.errors import FitError, NonFiniteError
from plmix_dist.fitting.algorithm import savable
from plmix_dist.fitting.batch import FAILED, BatchEm
from plmix_dist.fitting.em import Candidate, Em, Progress, failures_of, run_to_ends
from plmix_dist.fitting.hessian import SampleHessian
from plmix_dist.fitting.journal import NO_JOURNAL, Journal
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.newton import Newton
from plmix_dist.fitting.point import Point
from plmix_dist.fitting.starts import make
from plmix_dist.fitting.starts.make import Mixture, Proposer, Start
from plmix_dist.passes import passes_over
from plmix_dist.rankings import RankingBlock, extend_ties, generator, sample_rows
from plmix_dist.rankings.groups import membership_weight, merge_if_short
from plmix_dist.solvers import LOG_LIKELIHOOD, MM
from plmix_dist.solvers.likelihood import largest_log_prior
from plmix_dist.threads import StoppableThreads, single_thread

# Ends whose objectives per unit of weight differ by less are the same optimum.
_SAME_END = 1e-4
# Of ends that differ by less than this, the first is taken.
_AS_GOOD = 1e-6
# Only independent starts count as evidence: a variation of the best end returns to it easily. Stop after the first
# batch if all of them reached the best end; later if 4 of them did, and at least half, and the last batch has not
# raised it.
_OFTEN_ENOUGH = 4
_HALF = 0.5
# Where few reach the best end, stop after 4 batches in a row that have not raised it, if 16 or more were independent.
_QUIET_BATCHES = 4
_FEWEST_INDEPENDENT = 16
# With n_init=10, at least 30 starts are independent.
_FEWEST_PER_INIT = 3
# The first batch has at least 4 starts, half of them at random.
_FIRST_BATCH = 4
# Starts that know nothing of each other; spectral ones are much alike, and count as one.
_INDEPENDENT = ("random", "handfuls")
# Starts that keep most of an earlier end: that they end there again says little.
_VARIATIONS = ("seeded-again", "worst-explained")
# From a fit of fewer components, 4 starts split one of its components, and 2 add one.
_SPLITS = 4
_ADDITIONS = 2
# Runs of a search end after 60 iterations; different optima can be distinguished long before the gradient is small.
_MOST_ITERATIONS = 60
_TOLERANCE = 1e-4
# What a search may cost: listed items times components, for every iteration of every start. About 12 s of 2 cores.
_BUDGET = 2.0**31
# What an iteration costs beside the rows, in the same unit: for every item and component, and always.
_PER_ITEM = 32
_PER_ITERATION = 2.0**16
# Rows that list fewer items, times components, are searched in one thread.
_LITTLE_WORK = 1 << 16
# No search has more starts than this.
_MOST_STARTS = 128
# From half a million rows on, a search costs at most 8 passes over all of them.
_MANY_ROWS = 1 << 19
_MOST_PASSES = 8
# A fit remembers this many ends beside the best.
MOST_OTHERS = 3
# At most 4 ends are continued, if a search on a part of the rows cannot decide which is the best for all rows.
_MOST_RIVALS = 4
# The difference of two ends in the log-likelihood of a single row has about this standard deviation.
_DEVIATION_PER_ROW = 0.25


class _End(NamedTuple):
    """Where a start of a search ended, its objective per unit of weight, and how many iterations it took."""

    candidate: Candidate
    score: float
    n_iterations: int = 0
    # Whether it joined another start on the way.
    was_merged: bool = False

    @property
    def method(self) -> str:
        """How the start was made."""
        return str(self.candidate.about.get("method"))


@savable
class _Found(NamedTuple):
    """What a search found."""

    # The best end; also those that may be better on all rows, if the search saw a part of them.
    rivals: list[Candidate]
    # How many starts there were, how many of them ended at the best end, and how many different ends there are;
    # how many of those at the best end began at a variation of an earlier end. How many starts were independent of all
    # others, how many of these ended at the best end; how many starts joined another one on the way.
    # The next best ends: by how much they are behind, per unit of weight, and their shares.
    about: dict[str, Any]
    # How many passes over its rows it took.
    n_passes: int
    # Records of the starts that failed.
    failed: list[dict[str, Any]]


def _budget_of(n_rankings: int, listed: float, n_components: int) -> float:
    """What a search may cost, in items times components times iterations, on rows with `listed` items in total."""
    return min(_BUDGET, _MOST_PASSES * listed * n_components) if n_rankings >= _MANY_ROWS else _BUDGET


def search(
    em: Em,
    rows: RankingBlock,
    spectral: Sequence[Start],
    settings: FitSettings,
    budget: float,
    *,
    is_part: bool,
    smaller: Mixture | None = None,
    progress: Progress | None = None,
) -> _Found:
    """Look for the best end of EM on some rows; `is_part` says whether there are more rows than these.

    It begins with the `spectral` starts, and with starts made from a `smaller` fit of fewer components by splitting a
    component or adding one. `budget` is what it may cost (see `_budget_of`).
    """
    # Starts are made from single rankings without ties.
    proposer = Proposer(extend_ties(rows).block.replace(groups=None), settings)
    per_iteration = (len(rows.items) + _PER_ITEM * rows.n_items) * settings.n_components + _PER_ITERATION
    ends: list[_End] = []
    failed: list[dict[str, Any]] = []
    n_starts = n_passes = n_batches = n_quiet = 0
    starts = [*_first_batch(proposer, spectral), *_grown(proposer, smaller)]
    with _threads_for(rows, settings.n_components) as threads:
        while True:
            new, failures = _ends_of(em, rows, starts, n_starts, threads)
            if not new and not ends:
                raise next(iter(failures.values()))
            failed += failures_of("search", {n_starts + number: error for number, error in failures.items()})
            n_starts += len(starts)
            n_passes += max((end.n_iterations for end in new), default=0)
            best_before = max((end.score for end in ends), default=-math.inf)
            ends += new
            n_quiet = n_quiet + 1 if max(end.score for end in ends) < best_before + _SAME_END else 0
            spent = per_iteration * sum(end.n_iterations for end in ends)
            if progress is not None:
                progress({"iteration": n_passes, "objective": max(end.score for end in ends) * em.weight})
            n_more = _n_payable(n_starts, spent, budget * settings.n_init)
            if n_starts < settings.n_init:
                n_more = len(make.BATCH)
            elif not n_more or _is_settled(ends, n_batches, n_quiet, settings.n_init):
                break
            leaders = _distinct(ends, 2)
            # Variations of the runner-up too: what lies between the two may be better than both.
            varied = leaders[n_batches % len(leaders)].candidate.point
            mixture = Mixture(varied.log_worths, np.exp(varied.log_shares))
            starts = [kind(proposer, mixture, n_starts + place) for place, kind in enumerate(make.BATCH[:n_more])]
            n_batches += 1
    rivals = _rivals(ends, settings.n_init, _DEVIATION_PER_ROW / math.sqrt(em.weight) if is_part else 0.0)
    return _Found(rivals, _about(ends, n_starts) | {"others": _others(ends)}, n_passes, failed)


@contextmanager
def _threads_for(rows: RankingBlock, n_components: int) -> Iterator[StoppableThreads | None]:
    """Threads that divide the starts of a search among themselves; None where waking them takes longer."""
    n_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_threads == 1 or len(rows.items) * n_components < _LITTLE_WORK:
        yield None
        return
    threads = StoppableThreads(n_threads, "search")
    try:
        yield threads
    finally:
        threads.stop()


def _n_payable(n_starts: int, spent: float, budget: float) -> int:
    """How many more starts can be paid, if they cost as much as those before; at most a batch."""
    affordable = int((budget - spent) / max(1.0, spent / n_starts))
    return max(0, min(len(make.BATCH), _MOST_STARTS - n_starts, affordable))


def _first_batch(proposer: Proposer, spectral: Sequence[Start]) -> list[Start]:
    """The spectral starts, and as many others, or more."""
    n_others = max(len(spectral), _FIRST_BATCH - len(spectral))
    kinds = (make.random_worths, make.handfuls)
    return [*spectral, *(kinds[number % 2](proposer, None, number) for number in range(n_others))]


def _grown(proposer: Proposer, smaller: Mixture | None) -> list[Start]:
    """Starts from a fit of fewer components; none without such a fit, or if shares are fixed."""
    if smaller is None or proposer.settings.shares is not None:
        return []
    n_splits = min(_SPLITS, len(smaller.shares))
    return [
        *(make.split_component(proposer, smaller, number) for number in range(n_splits)),
        *(make.worst_explained(proposer, smaller, number) for number in range(_ADDITIONS)),
    ]


def _ends_of(
    em: Em, rows: RankingBlock, starts: Sequence[Start], first_number: int, threads: StoppableThreads | None
) -> tuple[list[_End], dict[int, FitError]]:
    """Where starts ended, and why others failed."""
    points = [Point.start(start.log_worths, start.shares) for start in starts]
    if em.m_step is not MM:
        return _ends_of_single(em, rows, starts, points)
    batch_em = BatchEm(em, rows, points[0].log_worths.shape, threads)
    with single_thread():
        batch, into = batch_em.ends(points, first_number)
    largest = points[0].n_components * largest_log_prior(rows.n_items, em.alpha)
    scores = ((batch.objective - largest) / em.weight).tolist()
    ends: list[_End] = []
    failed: dict[int, FitError] = {}
    for number, (start, place) in enumerate(zip(starts, into.tolist(), strict=True)):
        if batch.status[number] == FAILED:
            failed[number] = NonFiniteError("the objective is not finite where the fit begins")
            continue
        candidate = Candidate(batch_em.point(batch.best[place]), start.about)
        ends.append(_End(candidate, scores[place], int(batch.n_evaluations[number]), place != number))
    return ends, failed


def _ends_of_single(
    em: Em, rows: RankingBlock, starts: Sequence[Start], points: Sequence[Point]
) -> tuple[list[_End], dict[int, FitError]]:
    """The same for M-steps with an objective of their own, start by start."""
    candidates = [Candidate(point, start.about) for point, start in zip(points, starts, strict=True)]
    try:
        with passes_over(rankings_of_block(rows)) as passes:
            runs, failed = run_to_ends(passes, em, candidates)
    except FitError as error:
        return [], {0: error}
    ends = [
        _End(Candidate(run.point, candidates[number].about), run.score / em.weight, run.n_iterations)
        for number, run in sorted(runs.items())
    ]
    return ends, failed


def _is_settled(ends: Sequence[_End], n_batches: int, n_quiet: int, n_init: int) -> bool:
    """Whether the best end was found often enough by independent starts, or long not raised.

    `n_batches` is the number of batches after the first; the last `n_quiet` of them have not raised the best end.
    """
    independent = _independent(ends)
    n_best = len(_at_best(independent, ends))
    if len(independent) < _FEWEST_PER_INIT * n_init:
        return False
    if n_batches == 0:
        return n_best == len(independent)
    if n_quiet and n_best >= max(_OFTEN_ENOUGH, _HALF * len(independent)):
        return True
    return n_quiet >= _QUIET_BATCHES and len(independent) >= _FEWEST_INDEPENDENT


def _independent(ends: Sequence[_End]) -> list[_End]:
    """The ends of starts that do not depend on each other: random ones, and the first of the spectral ones."""
    spectral = [end for end in ends if end.method == "spectral"]
    return spectral[:1] + [end for end in ends if end.method in _INDEPENDENT]


def _at_best(some: Sequence[_End], ends: Sequence[_End]) -> list[_End]:
    """Those of some ends that are the best of all."""
    best = max(end.score for end in ends)
    return [end for end in some if end.score >= best - _SAME_END]


def _distinct(ends: Sequence[_End], n_ends: int) -> list[_End]:
    """The best ends that differ from each other, best first."""
    best = max(end.score for end in ends)
    first = next(end for end in ends if end.score >= best - _AS_GOOD)
    chosen: list[_End] = []
    for end in [first, *sorted(ends, key=lambda end: -end.score)]:
        if len(chosen) < n_ends and all(other.score - end.score > _SAME_END for other in chosen):
            chosen.append(end)
    return chosen


def _rivals(ends: Sequence[_End], n_init: int, doubt: float) -> list[Candidate]:
    """Different ends, best first: n_init, and those that are behind by no more than is in doubt."""
    leaders = _distinct(ends, max(n_init, _MOST_RIVALS))
    in_doubt = sum(end.score > leaders[0].score - doubt for end in leaders[:_MOST_RIVALS])
    return [end.candidate for end in leaders[: max(n_init, in_doubt, 1)]]


def _others(ends: Sequence[_End]) -> list[dict[str, Any]]:
    """The next best ends: by how much they are behind per unit of weight, and their shares."""
    first, *others = _distinct(ends, 1 + MOST_OTHERS)
    return [
        {"behind": first.score - end.score, "shares": np.exp(end.candidate.point.log_shares).tolist()} for end in others
    ]


def _about(ends: Sequence[_End], n_starts: int) -> dict[str, Any]:
    """How many starts, how many of them at the best end, how many ends that are not the same; see `_Found`."""
    at_best, independent = _at_best(ends, ends), _independent(ends)
    return {
        "n_starts": n_starts,
        "n_best": len(at_best),
        "n_ends": len(_distinct(ends, len(ends))),
        "n_varied": sum(end.method in _VARIATIONS for end in at_best),
        "n_independent": len(independent),
        "n_independent_best": len(_at_best(independent, ends)),
        "n_merged": sum(end.was_merged for end in ends),
    }


# Fits to a part of the rows, in this process: the search, and most of the way to an optimum at little cost.

# A search runs on rows that list at most this many items, after equal rows were merged, and on at least 1,000 rows.
_SEARCH_LISTED = 1 << 17
_FEWEST_SEARCHED = 1_000
# It has at least 12 rows per log-worth: with fewer, components that explain a single row are the best optimum of the
# part, and not of all rows. But 8 starts must be within the budget.
_ROWS_PER_LOG_WORTH = 12
_FEWEST_STARTS = 8
# Of many rows, at most this share of the listed items: a dozen starts then cost a few passes over all rows.
_SEARCH_SHARE = 1 / 128
_ALPHA_OF_PARTS = 0.1
# The optimum of a sample is uncertain by about one over its size; iterating further gains nothing.
_SAMPLE_TOLERANCE = 1e-4
# EM alone ends sooner than this where components are well apart; where it does not, Newton steps pay.
NEWTON_AFTER = 10
_SMALL_SAMPLE_STEPS = 20
_NEWTON_AFTER_SMALL_SAMPLE = 2


class SampleFits(NamedTuple):
    """How fits to parts of the rows are run."""

    # The fit to all rows.
    em: Em
    # How many starts reach the full data.
    n_init: int
    # Where the cost of each stage is noted.
    stages: Stages
    # Where starts that failed are noted.
    failed: list[dict[str, Any]]
    # Keeps the results of finished fits, and the state of the one that runs.
    journal: Journal = NO_JOURNAL

    def search(
        self,
        sample: RankingBlock,
        starts: Sequence[Start],
        settings: FitSettings,
        mean_listed: float,
        smaller: Mixture | None = None,
        share_of_budget: float = 1.0,
    ) -> tuple[list[Candidate], dict[str, Any]]:
        """The best ends that a search finds on a sample, or on a part of it, and how often it found the best.

        A fit of fewer components gives more starts; with these, a share of the budget is enough.
        """
        em = self.em
        merged = merge_if_short(sample)
        n_listed, n_components = em.n_rankings * mean_listed, settings.n_components
        budget = share_of_budget * _budget_of(em.n_rankings, n_listed, n_components)
        n_searched = _n_searched(merged, em.n_rankings, n_listed, n_components, budget)
        rows = merged
        if n_searched < merged.n_rankings:
            rows = merge_if_short(sample_rows(sample, n_searched / merged.n_rankings, generator(em.seed, "search")))
        # MM and LSR have the same optima; passes with LSR's rates cost more than its fewer iterations save here.
        # M-steps without an objective cannot compare their ends: the likelihood can.
        fused = replace(em, kind="fused", m_step=MM if em.m_step.objective in (LOG_LIKELIHOOD, None) else em.m_step)
        with self.stages.stage("search") as record:
            part_em = _part_of(fused, rows, _TOLERANCE, _MOST_ITERATIONS)
            is_part = rows is not merged or sample.n_rankings < em.n_rankings
            options: Any = {"is_part": is_part, "smaller": smaller, "progress": self.stages.iteration}
            now = partial(search, part_em, rows, starts, settings, budget, **options)
            found = self.journal.stage("search", now)
            passes = found.n_passes * rows.n_rankings / em.n_rankings
            record |= {"rows": rows.n_rankings, "n_starts": found.about["n_starts"], "passes": passes}
        self.failed.extend(found.failed)
        return found.rivals, found.about

    def on_small_sample(self, sample: RankingBlock, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates taken some way on a small sample, and the best of them kept."""
        return self._run("small-sample-fit", sample, candidates, max_iter=_SMALL_SAMPLE_STEPS)

    def on_sample(self, sample: RankingBlock, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates run to their optima on a sample: most of the way, and the Hessian there, at little cost."""
        return self._run("sample-fit", sample, candidates)

    def _run(
        self, stage: str, part: RankingBlock, candidates: list[Candidate], max_iter: int | None = None
    ) -> list[Candidate]:
        """Fits to a part of the rows, with a prior in proportion: a race up to `max_iter`, or to the optima."""

        def fitted() -> tuple[list[Candidate], list[dict[str, Any]], dict[str, Any]]:
            em, rows = self.em, merge_if_short(part)
            cuts = () if max_iter is None else halving(len(candidates), self.n_init)
            # Steps that are drawn gain nothing on a sample: they do not come nearer to an end.
            part_em = replace(em, m_step=MM) if em.m_step.draws else em
            part_em = _part_of(part_em, rows, _SAMPLE_TOLERANCE, max_iter or em.max_iter)
            if max_iter is None:
                part_em = with_newton(part_em, rows, _NEWTON_AFTER_SMALL_SAMPLE)
            with passes_over(rankings_of_block(rows)) as passes:
                progress = self.stages.iteration
                runs, failed = run_to_ends(
                    passes, part_em, candidates, cuts=cuts, n_kept=self.n_init, progress=progress, journal=self.journal
                )
            ends = [Candidate(run.point, candidates[number].about, run.hessian) for number, run in sorted(runs.items())]
            cost = {
                "rows": part.n_rankings,
                "iterations": max(run.n_iterations for run in runs.values()),
                "passes": passes.n_passes * part.n_rankings / em.n_rankings,
            }
            return ends, failures_of(stage, failed), cost

        with self.stages.stage(stage) as record:
            ends, failed, cost = self.journal.stage(stage, fitted)
            record |= cost
        self.failed.extend(failed)
        return ends


def _n_searched(merged: RankingBlock, n_rankings: int, n_listed: float, n_components: int, budget: float) -> float:
    """How many rows a search uses, of a sample in which equal rows were merged."""
    per_row = max(1, len(merged.items)) / merged.n_rankings
    most_listed: float = _SEARCH_LISTED
    if n_rankings >= _MANY_ROWS:
        most_listed = min(most_listed, _SEARCH_SHARE * n_listed)
    affordable = budget / (_FEWEST_STARTS * _MOST_ITERATIONS * n_components)
    for_all_worths = _ROWS_PER_LOG_WORTH * merged.n_items * n_components
    return max(_FEWEST_SEARCHED, most_listed / per_row, min(for_all_worths, affordable / per_row))


def _part_of(em: Em, rows: RankingBlock, tol: float, max_iter: int) -> Em:
    """The same fit to a part of the rows: a prior in proportion, a tolerance of at least `tol`, no Newton steps."""
    # A part of the rows may have no estimate of its own without a prior, even where all of them have one.
    weight = membership_weight(rows)
    alpha, tol = (em.alpha or _ALPHA_OF_PARTS) * weight / em.weight, max(tol, em.tol)
    return replace(
        em, weight=weight, n_rankings=rows.n_rankings, alpha=alpha, tol=tol, max_iter=max_iter, newton=None, part=None
    )


def with_newton(em: Em, sample: RankingBlock, after: int) -> Em:
    """The fit with Newton steps by a Hessian estimated on a sample, where that suits: fused, accelerated EM."""
    if not em.accelerate or em.kind == "exact" or em.m_step.objective is not LOG_LIKELIHOOD:
        return em
    return replace(em, newton=Newton(SampleHessian(sample, em.alpha, em.weight, em.fixed_shares, em.m_step), after))


def halving(n_runs: int, n_kept: int, first: int = 8) -> list[tuple[int, int]]:
    """Cuts of a race: half of the runs after `first` rounds, half of those after twice as many, down to `n_kept`.

    Examples
    --------
    >>> halving(8, 1)
    [(8, 4), (16, 2), (32, 1)]
    """
    cuts = []
    while n_runs > n_kept:
        n_runs = max(n_kept, n_runs // 2)
        cuts.append((first, n_runs))
        first *= 2
    return cuts
