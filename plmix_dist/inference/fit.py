"""A whole fit: a first look at the data, starts, fits to samples, the fit to all rows, and what is kept of it all."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.engine.passes import make_passes
from plmix_dist.errors import NotIdentifiedError, OptimumFoundOnceWarning, SettingsError
from plmix_dist.inference.collapse import warn_of_collapsed
from plmix_dist.inference.covariates import run_with_covariates
from plmix_dist.inference.em import Em
from plmix_dist.inference.existence import check_identified, check_maximum
from plmix_dist.inference.fingerprint import made_from
from plmix_dist.inference.fit_record import data_record, made_with
from plmix_dist.inference.journal import NO_JOURNAL, open_journal
from plmix_dist.inference.look import take_look
from plmix_dist.inference.point import Point
from plmix_dist.inference.resampling import run_resampled
from plmix_dist.inference.sample_fits import NEWTON_AFTER, SampleFits, halving, with_newton
from plmix_dist.inference.saved_state import savable
from plmix_dist.inference.starts_to_ends import MOST_NUMBERS, Candidate, Ends, failures_of, run_to_ends
from plmix_dist.inference.stopping import STOPPINGS
from plmix_dist.inference.supported import check_supported
from plmix_dist.interruption import StoppableThreads
from plmix_dist.kernels.compilation import (
    FIRST_FIT_SECONDS,
    compile_kernels,
    kernels_are_compiled,
    kernels_of_fit,
)
from plmix_dist.progress import stage_listener
from plmix_dist.rankings.linear_extensions import extend_ties
from plmix_dist.rankings.tie_treatments import TIES
from plmix_dist.solvers import LOG_LIKELIHOOD, LSR, M_STEPS, MM, STOCHASTIC_LSR, MStep
from plmix_dist.stages import Stages
from plmix_dist.starts.make_starts import Start, Starts, make_starts, starts_of_all_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist.data import Rankings
    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.em import Run
    from plmix_dist.inference.journal import Journal
    from plmix_dist.inference.look import Extent, Look
    from plmix_dist.inference.settings import FitSettings
    from plmix_dist.starts.proposals import Mixture
    from plmix_dist.store.checkpoints import Checkpoint

logger = logging.getLogger("plmix_dist")

# Up to this many listed items per ranking, comparisons are sparse and LSR's fewer passes outweigh their cost.
_SHORT_RANKINGS = 12

# The caller of the estimator's fit, which calls fit_mixture, which calls _fit, where warnings are given.
_CALLERS_LINE = 4

savable(Start)
savable(Starts)


@dataclass(frozen=True)
class Fit:
    """A finished fit: the best run, the M-step, where it began, what each stage cost, coefficients of covariates.

    `about` says what it was fitted to, and with which seed and versions.
    """

    run: Run
    m_step: str
    init: dict[str, Any]
    share_coefficients: NDArray[np.float64] | None = None
    about: dict[str, Any] = field(default_factory=dict)


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

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.inference.settings import FitSettings
    >>> rankings = as_rankings([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
    >>> fitted = fit_mixture(rankings, FitSettings(2), given=None, client=None)
    >>> fitted.run.converged, fitted.m_step
    (True, 'mm')
    """
    passes = make_passes(rankings, client, settings.residency)
    try:
        fingerprint = partial(made_from, passes, rankings, settings, given)
        with open_journal(checkpoint, fingerprint, free=("seed",) if any_seed else ()) as journal:
            settings = replace(settings, seed=journal.fingerprint.get("seed", settings.seed))
            return _fit(passes, rankings, settings, given, client, progress, journal)
    finally:
        passes.release()


def _fit(
    passes: Passes,
    rankings: Rankings,
    settings: FitSettings,
    given: Point | None,
    client: Client | None,
    progress: Callable[[dict[str, Any]], None] | None,
    journal: Journal,
) -> Fit:
    stages = Stages(stage_listener(progress))
    if journal.resumed_from is not None:
        with stages.stage("resume", checkpoint=journal.resumed_from):
            pass
    with stages.stage("look", passes=1):
        look = journal.stage("look", lambda: take_look(passes, rankings, settings.seed))
    check_supported(look.sample, settings.n_components, all_rows=look.share == 1)
    if settings.alpha == 0:
        journal.stage("identified", lambda: check_identified(passes, rankings.item_names))
    em = em_for(settings, look.extent, rankings)
    compile_first(em.m_step, stages)
    failed: list[dict[str, Any]] = []
    if given is None:
        sample_fits = SampleFits(em, settings.n_init, stages, failed, journal)
        made = journal.stage("starts", lambda: starts_for(passes, rankings, look, settings, stages, client))
        candidates, about = candidates_for(look, settings, sample_fits, made)
    else:
        shares = given.log_shares if settings.shares is None else np.log(settings.shares)
        candidates, about = [Candidate(given._replace(log_shares=shares), {"method": "given"})], {}
    with stages.stage("fit") as record:
        n_before = passes.n_passes
        if TIES[settings.ties].redraws and look.extent.tied:
            ends = run_resampled(passes, em, candidates[: settings.n_init], progress, journal)
        else:
            ends = run_to_ends(
                passes,
                with_newton(em, look.sample, NEWTON_AFTER),
                candidates,
                cuts=halving(len(candidates), settings.n_init),
                progress=progress,
                journal=journal,
            )
        record["passes"] = passes.n_passes - n_before
    if settings.alpha == 0:
        ends = with_maximum(passes, ends, rankings.item_names, journal)
    best = best_of(ends)
    run = ends.runs[best]
    warn_of_collapsed(run.events, run.point.n_components, settings.n_components, stacklevel=_CALLERS_LINE)
    failed += failures_of("fit", ends.failed)
    coefficients = None
    if rankings.covariates is not None:
        with stages.stage("covariates") as record:
            n_before = passes.n_passes
            run, coefficients = run_with_covariates(passes, em, run, rankings.covariates, progress, journal)
            record["passes"] = passes.n_passes - n_before
    began = {"stages": stages.records, "failed_starts": failed}
    _warn_if_found_once(about.get("search"))
    record = {"data": data_record(rankings, look), **made_with(settings.seed)}
    return Fit(run, em.m_step.name, about | candidates[best].about | began, coefficients, record)


def _warn_if_found_once(search: dict[str, int] | None) -> None:
    """Say that the optimum may not be the best one, if no other start ended there."""
    if search is not None and search["n_best"] == 1 and search["n_starts"] > 1:
        warnings.warn(
            f"of {search['n_starts']} starts, one ended at the best optimum found, so there may be a better one; fit "
            "again with another random_state or a larger n_init, or choose fewer components",
            OptimumFoundOnceWarning,
            stacklevel=_CALLERS_LINE + 1,
        )


def with_maximum(
    passes: Passes, ends: Ends, item_names: Sequence[str], journal: Journal = NO_JOURNAL
) -> Ends:
    """The ends with the best objective that is a maximum; those above it, where log-worths diverge, have failed."""
    runs, failed = dict(ends.runs), dict(ends.failed)
    while True:
        best = best_of(Ends(runs, failed))
        if not runs[best].converged:
            return Ends(runs, failed)
        point = runs[best].point
        error = journal.stage(f"maximum-{best}", partial(_why_no_maximum, passes, point, item_names))
        if error is None:
            return Ends(runs, failed)
        failed[best] = error
        del runs[best]
        if not runs:
            raise error


def _why_no_maximum(passes: Passes, point: Point, item_names: Sequence[str]) -> NotIdentifiedError | None:
    try:
        check_maximum(passes, point, item_names)
    except NotIdentifiedError as error:
        return error
    return None


def compile_first(m_step: MStep, stages: Stages) -> None:
    """Compile what this fit needs, if it was not done before, and say why nothing seems to happen."""
    with_rates = m_step in (LSR, STOCHASTIC_LSR)
    if kernels_are_compiled(with_rates=with_rates):
        return
    logger.warning(
        "compiling kernels, once per machine and version: about %d s (`plmix compile` does it ahead)",
        FIRST_FIT_SECONDS,
    )
    stages.tell("begun", stage="compile")
    threads = StoppableThreads(1, "compile")  # an interruption does not wait for the compiler
    try:
        threads.submit(compile_kernels, kernels_of_fit(with_rates=with_rates)).result()
    finally:
        threads.stop(0.0)
    stages.tell("ended", stage="compile")


def best_of(ends: Ends) -> int:
    """The number of the run with the best score."""
    return max(ends.runs, key=lambda number: ends.runs[number].score)


def starts_for(
    passes: Passes,
    rankings: Rankings,
    look: Look,
    settings: FitSettings,
    stages: Stages,
    client: Client | None,
) -> Starts:
    """Starts from a sample, or from all rows."""
    if settings.start.from_all_rows:
        return starts_of_all_rows(passes, rankings, rankings.n_items, settings.start, stages, client)
    return make_starts(extend_ties(look.small_sample).block, settings.start, stages, client)


def candidates_for(
    look: Look,
    settings: FitSettings,
    sample_fits: SampleFits,
    made: Starts,
    smaller: Mixture | None = None,
    share_of_budget: float = 1.0,
) -> tuple[list[Candidate], dict[str, Any]]:
    """Starts as near to the optimum as samples lead, and what is known about them.

    After every stage distinct ones are left. At most n_init go on to data larger than the sample. A search also begins
    at what a fit of fewer components (`smaller`) leads to.
    """
    about = made.about
    as_made = [Candidate(Point.start(start.log_worths, start.shares), start.about) for start in made.starts]
    if not settings.sample_fits:
        return as_made, about
    if made.searched:
        mean_listed = look.extent.listed / look.extent.rows
        candidates, found = sample_fits.search(
            look.sample, made.starts, settings.start, mean_listed, smaller, share_of_budget
        )
        about = about | {"search": found}
    else:
        candidates = as_made
        if look.small_sample.n_rankings < look.sample.n_rankings:
            candidates = sample_fits.on_small_sample(look.small_sample, candidates)
    if look.share < 1:
        candidates = sample_fits.on_sample(look.sample, candidates)
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

    Examples
    --------
    >>> from plmix_dist.inference.look import Extent
    >>> from plmix_dist.inference.settings import FitSettings
    >>> choose_m_step(FitSettings(2), Extent(weight=100.0, rows=100, listed=300, below=0), n_items=40).name
    'lsr'
    """
    numbers = settings.n_components * LSR.numbers(n_items)
    if settings.m_step != "auto":
        m_step = M_STEPS[settings.m_step]
        same = ", which ends at the same estimate" if m_step.objective is LOG_LIKELIHOOD else ""
        if extent.tied and not m_step.takes_ties:
            raise SettingsError(
                f'm_step="{m_step.name}" takes rankings without ties, and ties={settings.ties!r} keeps {extent.tied} '
                f'ties; choose m_step="mm"{same}, or ties="expand"'
            )
        if settings.n_components * m_step.numbers(n_items) > MOST_NUMBERS:
            raise SettingsError(
                f"m_step={m_step.name!r} sums {settings.n_components} x {n_items} x {n_items} numbers, more than a "
                f'worker should hold; choose m_step="mm"{same}'
            )
        return m_step
    mean_listed = float(extent.listed / extent.rows)
    sparse = mean_listed <= min(_SHORT_RANKINGS, n_items / 4) and extent.below * 2 < extent.rows
    return LSR if sparse and not extent.tied and numbers <= MOST_NUMBERS // 8 else MM
