"""A whole fit: an overview of the data, starts, fits to samples, the fit to all rows, and the record of it all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from plmix_dist import errors
from plmix_dist.cluster.clients import Client
from plmix_dist.display.progress import Stages, stage_listener
from plmix_dist.fitting.algorithm import counted_stage, savable
from plmix_dist.fitting.covariates import run_with_covariates
from plmix_dist.fitting.em import MOST_NUMBERS, Candidate, Em, Ends, Run, failures_of, run_to_ends
from plmix_dist.fitting.existence import check_identified, check_supported, why_no_maximum
from plmix_dist.fitting.fingerprint import data_record, made_from, made_with
from plmix_dist.fitting.fixed_point import STOPPINGS
from plmix_dist.fitting.journal import NO_JOURNAL, Journal, begun
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.noise import check_noise, run_with_noise
from plmix_dist.fitting.overview import Extent, Overview, merge_if_few, take_overview, weight_warnings
from plmix_dist.fitting.point import Point, collapse_warnings
from plmix_dist.fitting.resampled import run_resampled
from plmix_dist.fitting.search import NEWTON_AFTER, SampleFits, halving, with_newton
from plmix_dist.fitting.starts.make import Mixture, Start, Starts, make_starts, starts_of_all_rows
from plmix_dist.fitting.starts.spectral import gap_warnings
from plmix_dist.fitting.tied_outcomes import check_davidson, count_ties, with_tie_weights
from plmix_dist.kernels import FIRST_FIT_SECONDS, compile_kernels, kernels_are_compiled, kernels_of_fit
from plmix_dist.passes import BlockLeaves, Passes, Rankings, passes_over
from plmix_dist.passes.threads import LITTLE_WORK
from plmix_dist.rankings import TIES, Floats, extend_ties
from plmix_dist.rankings.checks import without_information
from plmix_dist.solvers import LOG_LIKELIHOOD, LSR, M_STEPS, MM, STOCHASTIC_LSR, MStep
from plmix_dist.solvers.davidson import DAVIDSON
from plmix_dist.store import Checkpoint
from plmix_dist.threads import StoppableThreads

logger = logging.getLogger("plmix_dist")

# Up to this many listed items per ranking, comparisons are sparse and LSR's fewer passes outweigh their cost.
_SHORT_RANKINGS = 12
# What the rule for the end of a fit looks at, in the records of iterations: the first of these that is there.
_RESIDUALS = {
    "squared_change": "squared changes of log-worths",
    "gradient": "gradient",
    "largest_change": "largest change",
}

savable(Start)
savable(Starts)


@dataclass(frozen=True)
class Fit:
    """A finished fit: the best run, the M-step, where it began, what each stage cost, coefficients of covariates.

    `about` has what it was fitted to, the seed and the versions. The estimator gives the warnings.
    """

    run: Run
    m_step: str
    init: dict[str, Any]
    share_coefficients: Floats | None = None
    about: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[Warning, ...] = ()
    # The parameters of utilities that are linear, and how they are laid out.
    linear: Any = None


def fit_mixture(
    rankings: Rankings,
    settings: FitSettings,
    given: Point | None,
    client: Client | None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    any_seed: bool = False,
) -> Fit:
    """Fit from a given point, or from starts of the settings' kind, and keep the best.

    With a checkpoint, the fit goes on from what is saved there, and ends with the same bits as if it had not stopped.
    With `any_seed` the seed of the checkpoint is taken.
    """
    made_here = partial(made_from, rankings=rankings, settings=settings, given=given)
    with (
        begun(rankings, settings, client, checkpoint, made_here, any_seed=any_seed) as (passes, journal, settings),
        ExitStack() as stack,
    ):
        check_noise(settings, covariates=rankings.covariates is not None)
        check_davidson(settings, covariates=rankings.covariates is not None)
        stages = _stages_of(progress, journal)
        with stages.stage("look", passes=1):
            overview = journal.stage("look", lambda: take_overview(passes, rankings, settings.seed))
        treatment = TIES[settings.ties]
        different = _different_rows(passes, rankings, overview.extent, settings, client, journal)
        if different is not None:
            passes.release()
            there = None if different.n_entries <= LITTLE_WORK else client
            passes = stack.enter_context(passes_over(different, there, settings.residency))
            seen = journal.stage("look again", lambda: take_overview(passes, different, settings.seed))
            overview = seen._replace(extent=overview.extent)
        if treatment.order:
            with counted_stage(stages, "ties", passes):
                ties = journal.stage("ties", lambda: count_ties(passes, rankings, treatment.order))
            overview = overview.extended("half-last", tied=0, silent=0)  # a search has ties that count half
        extent = overview.extent
        warnings = [*journal.warnings, *data_warnings(overview, rankings)]
        n_components = settings.n_components + settings.noise
        warnings += check_supported(overview.sample, n_components, all_rows=overview.share == 1)
        if settings.alpha == 0:
            tied = bool(treatment.order)
            journal.stage("identified", lambda: check_identified(passes, rankings.item_names, ties_compare=tied))
        em = em_for(settings, extent, rankings)
        compile_first(em.m_step, stages)
        failed: list[dict[str, Any]] = []
        if given is None:
            sample_fits = SampleFits(em, settings.n_init, stages, failed, journal)
            made = journal.stage("starts", lambda: starts_for(passes, rankings, overview, settings, stages, client))
            candidates, about = candidates_for(overview, settings, sample_fits, made)
        else:
            shares = given.log_shares if settings.shares is None else np.log(settings.shares)
            candidates, about = [Candidate(given._replace(log_shares=shares), {"method": "given"})], {}
        if treatment.order:
            em, candidates = replace(em, m_step=DAVIDSON), with_tie_weights(candidates, ties, settings.ties)
        with counted_stage(stages, "fit", passes):
            if treatment.redraws and extent.tied:
                ends = run_resampled(passes, em, candidates[: settings.n_init], progress, journal)
            else:
                cuts, newton = halving(len(candidates), settings.n_init), with_newton(em, overview.sample, NEWTON_AFTER)
                ends = run_to_ends(passes, newton, candidates, cuts=cuts, progress=progress, journal=journal)
        if settings.alpha == 0:
            ends = with_maximum(passes, ends, rankings.item_names, journal)
        best = best_of(ends)
        run = ends.runs[best]
        warnings += gap_warnings(about, settings.n_components)
        warnings += collapse_warnings(run.events, run.point.n_components, settings.n_components)
        failed += failures_of("fit", ends.failed)
        coefficients = None
        if rankings.covariates is not None:
            with counted_stage(stages, "covariates", passes):
                run, coefficients = run_with_covariates(passes, em, run, rankings.covariates, progress, journal)
        if settings.noise:
            with counted_stage(stages, "noise", passes):
                run = run_with_noise(passes, em, run, settings.ties, progress, journal)
        warnings += found_once(about.get("search"))
        warnings += not_converged(run, settings.tol, draws=em.m_step.draws)
        record = {"data": data_record(rankings, overview), **made_with(settings.seed)}
        init = about | candidates[best].about | {"stages": stages.records, "failed_starts": failed}
        return Fit(run, em.m_step.name, init, coefficients, record, tuple(warnings))


def _stages_of(progress: Callable[[dict[str, Any]], None] | None, journal: Journal) -> Stages:
    """The record of stages; of a fit that goes on, the first says where."""
    stages = Stages(stage_listener(progress))
    if journal.resumed_from is not None:
        with stages.stage("resume", checkpoint=journal.resumed_from):
            pass
    return stages


def _different_rows(
    passes: Passes, rankings: Rankings, extent: Extent, settings: FitSettings, client: Client | None, journal: Journal
) -> Rankings | None:
    """The different rows with their weights, where there are few and each would be treated as its equals are."""
    if TIES[settings.ties].redraws or M_STEPS.get(settings.m_step, MM).draws or settings.from_all_rows:
        return None
    (few,) = journal.stage("merge", lambda: merge_if_few(passes, rankings, extent, client))
    return None if few is None else replace(rankings, source=BlockLeaves(few), weights=None)


def data_warnings(overview: Overview, rankings: Rankings) -> list[Warning]:
    """Warnings of rankings that count for nothing, and of weights that are not counts."""
    silent, rows = overview.extent.silent, overview.extent.rows
    of_silent = [errors.NoInformationWarning(without_information(silent, rows))] if silent else []
    return [*of_silent, *weight_warnings(overview, rankings.n_rankings)]


def found_once(search: dict[str, Any] | None) -> list[Warning]:
    """A warning that the optimum may not be the best one, if no start ended there but it and variations of it."""
    if search is None or search["n_starts"] == 1 or search["n_best"] - search["n_varied"] > 1:
        return []
    varied = f" ({search['n_varied']} variations of it returned there)" if search["n_varied"] else ""
    words = (
        f"of {search['n_starts']} starts, one ended at the best optimum found{varied}, so there may be a better one; "
        "fit again with another random_state or a larger n_init, or choose fewer components"
    )
    return [errors.OptimumFoundOnceWarning(words)]


def not_converged(run: Run, tol: float, *, draws: bool = False) -> list[Warning]:
    """A warning if the fit is flat at its end or reached the most iterations; drawn M-steps never settle."""
    if run.history[-1].get("flat"):
        words = (
            f"the likelihood is flat where the fit ended (gradient {run.gradient:.2g} where {tol:.2g} was asked for): "
            f"steps hardly change it. These rankings hardly tell {run.point.n_components} components apart; choose "
            "fewer components"
        )
        return [errors.NotIdentifiableWarning(words)]
    if run.converged or draws:
        return []
    last = run.history[-1]
    residual = next(f"{words} {last[name]:.2g}" for name, words in _RESIDUALS.items() if name in last)
    words = (
        f"the fit did not converge in {run.n_iterations} iterations ({residual} where {tol:.2g} was asked for); raise "
        "max_iter, or tol"
    )
    return [errors.NotConvergedWarning(words)]


def with_maximum(passes: Passes, ends: Ends, item_names: Sequence[str], journal: Journal = NO_JOURNAL) -> Ends:
    """The ends with the best objective that is a maximum; those above it, where log-worths diverge, have failed."""
    runs, failed = dict(ends.runs), dict(ends.failed)
    while True:
        best = best_of(Ends(runs, failed))
        if not runs[best].converged:
            return Ends(runs, failed)
        error = journal.stage(f"maximum-{best}", partial(why_no_maximum, passes, runs[best].point, item_names))
        if error is None:
            return Ends(runs, failed)
        failed[best] = error
        del runs[best]
        if not runs:
            raise error


def compile_first(m_step: MStep, stages: Stages) -> None:
    """Compile what this fit needs, if the cache does not have it, with a message: it takes seconds."""
    with_rates = m_step in (LSR, STOCHASTIC_LSR)
    if kernels_are_compiled(with_rates=with_rates):
        return
    logger.warning(
        "compiling kernels, once per machine and version: about %d s (`plmix compile` does it ahead)", FIRST_FIT_SECONDS
    )
    stages.report("begun", stage="compile")
    threads = StoppableThreads(1, "compile")  # an interruption does not wait for the compiler
    try:
        threads.submit(compile_kernels, kernels_of_fit(with_rates=with_rates)).result()
    finally:
        threads.stop(0.0)
    stages.report("ended", stage="compile")


def best_of(ends: Ends) -> int:
    """The number of the run with the best score."""
    return max(ends.runs, key=lambda number: ends.runs[number].score)


def starts_for(
    passes: Passes, rankings: Rankings, overview: Overview, settings: FitSettings, stages: Stages, client: Client | None
) -> Starts:
    """Starts from a sample, or from all rows."""
    if settings.from_all_rows:
        return starts_of_all_rows(passes, rankings, settings, stages, client)
    return make_starts(extend_ties(overview.small_sample).block, settings, stages, client)


def candidates_for(
    overview: Overview,
    settings: FitSettings,
    sample_fits: SampleFits,
    made: Starts,
    smaller: Mixture | None = None,
    share_of_budget: float = 1.0,
) -> tuple[list[Candidate], dict[str, Any]]:
    """Starts refined on samples, and what is known about them.

    After every stage distinct ones are left. At most n_init go on to data larger than the sample. A search also begins
    at what a fit of fewer components (`smaller`) leads to.
    """
    about = made.about
    as_made = [Candidate(Point.start(start.log_worths, start.shares), start.about) for start in made.starts]
    if not settings.sample_fits:
        return as_made, about
    if made.searched:
        mean_listed = overview.extent.listed / overview.extent.rows
        candidates, found = sample_fits.search(
            overview.sample, made.starts, settings, mean_listed, smaller, share_of_budget
        )
        about = about | {"search": found}
    else:
        candidates = as_made
        if overview.small_sample.n_rankings < overview.sample.n_rankings:
            candidates = sample_fits.on_small_sample(overview.small_sample, candidates)
    if overview.share < 1:
        candidates = sample_fits.on_sample(overview.sample, candidates)
    return candidates, about


def em_for(settings: FitSettings, extent: Extent, rankings: Rankings) -> Em:
    """EM as the settings ask for it."""
    return Em(
        choose_m_step(settings, extent, rankings.n_items),
        settings.alpha,
        weight=extent.weight,
        n_rankings=extent.rows,
        kind=settings.em,
        tol=settings.tol,
        max_iter=settings.max_iter,
        accelerate=settings.accelerate,
        fixed_shares=settings.shares is not None,
        item_names=rankings.item_names,
        seed=settings.seed,
        stopping=STOPPINGS[settings.stopping],
    )


def choose_m_step(settings: FitSettings, extent: Extent, n_items: int) -> MStep:
    """The M-step that was asked for; with "auto", LSR where rankings are short and compare few of the items.

    There its steps reach much further than those of MM, while long rankings make its passes cost many times as much.
    """
    numbers = settings.n_components * LSR.numbers(n_items)
    if settings.m_step != "auto":
        m_step = M_STEPS[settings.m_step]
        same = ", which ends at the same estimate" if m_step.objective is LOG_LIKELIHOOD else ""
        if extent.tied and not m_step.takes_ties:
            raise errors.SettingsError(
                f'm_step="{m_step.name}" takes rankings without ties, and ties={settings.ties!r} keeps {extent.tied} '
                f'ties; choose m_step="mm"{same}, or ties="expand"'
            )
        if settings.n_components * m_step.numbers(n_items) > MOST_NUMBERS:
            raise errors.SettingsError(
                f"m_step={m_step.name!r} sums {settings.n_components} x {n_items} x {n_items} numbers, more than a "
                f'worker should hold; choose m_step="mm"{same}'
            )
        return m_step
    mean_listed = float(extent.listed / extent.rows)
    sparse = mean_listed <= min(_SHORT_RANKINGS, n_items / 4) and extent.below * 2 < extent.rows
    return LSR if sparse and not extent.tied and numbers <= MOST_NUMBERS // 8 else MM
