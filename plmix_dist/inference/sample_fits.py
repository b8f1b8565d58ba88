"""Fits to a part of the rows, in this process: the search for an optimum, and most of the way to it at little cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.data import rankings_of_block
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.inference.hessian import SampleHessian
from plmix_dist.inference.journal import NO_JOURNAL
from plmix_dist.inference.newton import Newton
from plmix_dist.inference.saved_state import savable
from plmix_dist.inference.search import MANY_ROWS, MOST_ITERATIONS, TOLERANCE, budget_of, search
from plmix_dist.inference.starts_to_ends import Candidate, failures_of, run_to_ends
from plmix_dist.rankings.groups import membership_weight
from plmix_dist.rankings.merge import merge_if_short
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.sampling import sample_rows
from plmix_dist.solvers import LOG_LIKELIHOOD, MM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.inference.em import Em
    from plmix_dist.inference.journal import Journal
    from plmix_dist.inference.search import Found
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.stages import Stages
    from plmix_dist.starts.make_starts import Start
    from plmix_dist.starts.proposals import Mixture
    from plmix_dist.starts.start_settings import StartSettings

# A search runs on rows that list at most so many items, after equal rows were merged, but on some rows at least.
_SEARCH_LISTED = 1 << 17
_FEWEST_SEARCHED = 1_000
# It has so many rows for every log-worth, too: with fewer, components that explain a single row are the best optimum of
# the part, and not of all rows. But so many starts must be within the budget.
_ROWS_PER_LOG_WORTH = 12
_FEWEST_STARTS = 8
# Of many rows, so many of the listed items at most: a dozen starts then cost a few passes over all rows.
_SEARCH_SHARE = 1 / 128
_ALPHA_OF_PARTS = 0.1
# The optimum of a sample is uncertain by about one over its size; there is no use in going on further than that.
_SAMPLE_TOLERANCE = 1e-4
# EM alone ends sooner than this where components are well apart; where it does not, Newton steps pay.
NEWTON_AFTER = 10
_SMALL_SAMPLE_STEPS = 20
_NEWTON_AFTER_SMALL_SAMPLE = 2


@savable
class _PartEnds(NamedTuple):
    """Where fits to a part of the rows ended, records of those that failed, and what it cost."""

    candidates: list[Candidate]
    failed: list[dict[str, Any]]
    cost: dict[str, Any]


class SampleFits(NamedTuple):
    """How fits to parts of the rows are run.

    Parameters
    ----------
    em
        The fit to all rows.
    n_init
        How many starts shall reach the full data.
    stages
        Where the cost of each stage is noted.
    failed
        Where starts that failed are noted.
    journal
        Keeps the results of finished fits, and the state of the one that runs.
    """

    em: Em
    n_init: int
    stages: Stages
    failed: list[dict[str, Any]]
    journal: Journal = NO_JOURNAL

    def search(
        self,
        sample: RankingBlock,
        starts: Sequence[Start],
        settings: StartSettings,
        mean_listed: float,
        smaller: Mixture | None = None,
        share_of_budget: float = 1.0,
    ) -> tuple[list[Candidate], dict[str, int]]:
        """The best ends that a search finds on a sample, or on a part of it, and how often it found the best.

        A fit of fewer components gives more starts; with these, a share of the budget is enough.
        """
        em = self.em
        merged = merge_if_short(sample)
        n_listed, n_components = em.n_rankings * mean_listed, settings.n_components
        budget = share_of_budget * budget_of(em.n_rankings, n_listed, n_components)
        n_searched = _n_searched(merged, em.n_rankings, n_listed, n_components, budget)
        rows = merged
        if n_searched < merged.n_rankings:
            share = n_searched / merged.n_rankings
            rows = merge_if_short(sample_rows(sample, share, generator(em.seed, "search")))
        # MM and LSR have the same optima; passes with LSR's rates cost more than its fewer iterations save here.
        # M-steps without an objective cannot tell which of their ends is the best: the likelihood can.
        m_step = MM if em.m_step.objective in (LOG_LIKELIHOOD, None) else em.m_step
        fused = replace(em, kind="fused", m_step=m_step)
        with self.stages.stage("search") as record:

            def search_now() -> Found:
                return search(
                    part_of(fused, rows, TOLERANCE, MOST_ITERATIONS),
                    rows,
                    starts,
                    settings,
                    budget,
                    is_part=rows is not merged or sample.n_rankings < em.n_rankings,
                    smaller=smaller,
                    progress=self.stages.iteration,
                )

            found = self.journal.stage("search", search_now)
            passes = found.n_passes * rows.n_rankings / em.n_rankings
            record |= {"rows": rows.n_rankings, "n_starts": found.about["n_starts"], "passes": passes}
        self.failed.extend(found.failed)
        return found.rivals, found.about

    def on_small_sample(self, sample: RankingBlock, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates taken some way on a small sample, and the best of them kept."""
        cuts = halving(len(candidates), self.n_init)
        with self.stages.stage("small-sample-fit") as record:
            return self._run(
                record, sample, candidates, cuts, n_kept=self.n_init, max_iter=_SMALL_SAMPLE_STEPS
            )

    def on_sample(self, sample: RankingBlock, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates run to their optima on a sample: most of the way, and the Hessian there, at little cost."""
        with self.stages.stage("sample-fit") as record:
            return self._run(
                record, sample, candidates, (), n_kept=self.n_init, newton_after=_NEWTON_AFTER_SMALL_SAMPLE
            )

    def _run(
        self,
        record: dict[str, Any],
        part: RankingBlock,
        candidates: list[Candidate],
        cuts: Sequence[tuple[int, int]],
        n_kept: int,
        max_iter: int | None = None,
        newton_after: int | None = None,
    ) -> list[Candidate]:
        """Fits to a part of the rows, with a prior in proportion."""

        def fitted() -> _PartEnds:
            em, rows = self.em, merge_if_short(part)
            # Steps that are drawn gain nothing on a sample: they do not come nearer to an end.
            part_em = replace(em, m_step=MM) if em.m_step.draws else em
            part_em = part_of(part_em, rows, _SAMPLE_TOLERANCE, max_iter or em.max_iter)
            if newton_after is not None:
                part_em = with_newton(part_em, rows, newton_after)
            passes = ThreadedPasses(rankings_of_block(rows))
            try:
                runs, failed = run_to_ends(
                    passes,
                    part_em,
                    candidates,
                    cuts=cuts,
                    n_kept=n_kept,
                    progress=self.stages.iteration,
                    journal=self.journal,
                )
            finally:
                passes.release()
            ends = [
                Candidate(run.point, candidates[number].about, run.hessian)
                for number, run in sorted(runs.items())
            ]
            cost = {
                "rows": part.n_rankings,
                "iterations": max(run.n_iterations for run in runs.values()),
                "passes": passes.n_passes * part.n_rankings / em.n_rankings,
            }
            return _PartEnds(ends, failures_of(record["stage"], failed), cost)

        found = self.journal.stage(record["stage"], fitted)
        record |= found.cost
        self.failed.extend(found.failed)
        return found.candidates


def _n_searched(
    merged: RankingBlock, n_rankings: int, n_listed: float, n_components: int, budget: float
) -> float:
    """How many rows a search looks at, of a sample in which equal rows were merged."""
    per_row = max(1, len(merged.items)) / merged.n_rankings
    most_listed: float = _SEARCH_LISTED
    if n_rankings >= MANY_ROWS:
        most_listed = min(most_listed, _SEARCH_SHARE * n_listed)
    affordable = budget / (_FEWEST_STARTS * MOST_ITERATIONS * n_components)
    for_all_worths = _ROWS_PER_LOG_WORTH * merged.n_items * n_components
    return max(_FEWEST_SEARCHED, most_listed / per_row, min(for_all_worths, affordable / per_row))


def part_of(em: Em, rows: RankingBlock, tol: float, max_iter: int) -> Em:
    """The same fit to a part of the rows: a prior in proportion, a tolerance of at least `tol`, no Newton steps."""
    # A part of the rows may have no estimate of its own without a prior, even where all of them have one.
    weight = membership_weight(rows)
    alpha = (em.alpha or _ALPHA_OF_PARTS) * weight / em.weight
    return replace(
        em,
        weight=weight,
        n_rankings=rows.n_rankings,
        alpha=alpha,
        tol=max(tol, em.tol),
        max_iter=max_iter,
        newton=None,
        part=None,
    )


def with_newton(em: Em, sample: RankingBlock, after: int) -> Em:
    """The fit with Newton steps by a Hessian estimated on a sample, where that suits: fused, accelerated EM."""
    if not em.accelerate or em.kind == "exact" or em.m_step.objective is not LOG_LIKELIHOOD:
        return em
    return replace(
        em, newton=Newton(SampleHessian(sample, em.alpha, em.weight, em.fixed_shares, em.m_step), after)
    )


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
