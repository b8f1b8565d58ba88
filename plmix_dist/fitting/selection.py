"""The driver of a selection: fits to all rows, criteria on all rows, fits to parts of them, and the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from plmix_dist.cluster.clients import Client
from plmix_dist.display.progress import Stages
from plmix_dist.errors import FitError, SettingsError
from plmix_dist.fitting.algorithm import Together, counted_stage
from plmix_dist.fitting.criteria import WITHOUT_PRIOR, aic, bic, icl, n_parameters
from plmix_dist.fitting.em import Candidate, Em, ends_of, failures_of, side_by_side
from plmix_dist.fitting.existence import check_identified, refuse_too_many
from plmix_dist.fitting.fingerprint import data_record, made_from, made_with
from plmix_dist.fitting.fit import Fit, best_of, candidates_for, compile_first, em_for, starts_for, with_maximum
from plmix_dist.fitting.held_out import HeldOutScores, Totals, cross_validate, paper_protocol, totals
from plmix_dist.fitting.journal import NO_JOURNAL, Journal, begun
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.overview import Overview, take_overview, weight_warnings
from plmix_dist.fitting.point import Point
from plmix_dist.fitting.search import NEWTON_AFTER, SampleFits, halving, with_newton
from plmix_dist.fitting.starts.make import Mixture
from plmix_dist.fitting.starts.spectral import gap_warnings
from plmix_dist.passes import Passes, Rankings
from plmix_dist.rankings import TIES, RowPart
from plmix_dist.rankings.identifiability import identifiability, ordered_lengths
from plmix_dist.solvers import LOG_LIKELIHOOD
from plmix_dist.store import Checkpoint

# The strength of the prior of fits that show the maximum of the likelihood, and the most iterations to it.
_HARDLY_A_PRIOR = 1e-3
_ITERATIONS_WITHOUT_PRIOR = 60
Row = dict[str, Any]
_After = Callable[[str, Any], None]


# Fits of several numbers of components to all rows: a search for each, in turn, and then one fit in shared passes.

# The fit of fewer components gives good starts, so a search for each number may cost this share of a search alone.
_SHARE_OF_BUDGET = 0.1


@dataclass(frozen=True)
class Task:
    """What all fits of a selection share."""

    passes: Passes  # the rows, with ties as they are
    rankings: Rankings
    settings: FitSettings  # of the fits; the number of components is not looked at
    overview: Overview  # in its samples ties are treated as in the fits
    data: dict[str, Any]  # what is fitted to, as a record
    client: Client | None  # where dask-ml runs the SVD of the pairwise embedding
    stages: Stages  # where the cost of each stage is noted
    after: _After | None = None  # called with the name of a stage and the new state after every pass
    journal: Journal = NO_JOURNAL  # keeps what is finished, and the states of fits

    @property
    def extended_by(self) -> str:
        """The treatment by which rows with ties become linear extensions; "" if they do not."""
        return self.settings.ties if TIES[self.settings.ties].extends else ""

    def em(self, n_components: int) -> Em:
        """EM on all rows."""
        settings = replace(self.settings, n_components=n_components)
        part = RowPart(extended_by=self.extended_by) if self.extended_by else None
        return replace(em_for(settings, self.overview.extent, self.rankings), part=part)

    def after_pass(self, stage: str) -> Callable[[Any], None]:
        """What is called after every pass of a stage."""

        def tell(state: Any) -> None:
            self.stages.iteration({"iteration": state.n_rounds})
            if self.after is not None:
                self.after(stage, state)

        return tell


class _NumberFit(NamedTuple):
    """What became of one number of components: the fit, or why there is none."""

    n_components: int
    fit: Fit | None
    reason: str | None = None


class Selected(NamedTuple):
    """What a selection found: one row of the table and one fit per number of components; the seed; warnings."""

    rows: list[Row]
    fits: list[_NumberFit]
    seed: int
    warnings: list[Warning]


class _Prepared(NamedTuple):
    """A number of components before the fit to all rows."""

    n_components: int
    em: Em
    candidates: list[Candidate]
    about: dict[str, Any]


def select_mixture(
    rankings: Rankings,
    settings: FitSettings,
    numbers: Sequence[int],
    criteria: Sequence[str],
    n_folds: int,
    client: Client | None,
    stages: Stages,
    after: _After | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    any_seed: bool = False,
) -> Selected:
    """Fit every number of components and compute criteria; those on held-out rows only if they are asked for.

    With `any_seed` the seed of the checkpoint is taken. `after` is called after every pass over all rows with the name
    of the stage and the state of its fits.
    """
    chosen = {"n_components": list(numbers), "criteria": list(criteria), "n_folds": n_folds}
    asked = settings

    def made_here(passes: Passes) -> dict[str, Any]:
        return made_from(passes, rankings, asked, None) | chosen

    with begun(rankings, settings, client, checkpoint, made_here, any_seed=any_seed) as (passes, journal, settings):
        with stages.stage("look", passes=1):
            overview = journal.stage("look", lambda: take_overview(passes, rankings, settings.seed))
        data = data_record(rankings, overview)
        task = Task(passes, rankings, settings, overview, data, client, stages, after, journal)
        if task.extended_by and overview.extent.tied:
            task = replace(task, overview=overview.extended(task.extended_by, tied=0))
        if settings.alpha == 0:
            journal.stage("identified", lambda: check_identified(passes, rankings.item_names))
        return _selected(task, numbers, criteria, n_folds)


def _fit_numbers(task: Task, numbers: Sequence[int]) -> list[_NumberFit]:
    """Fit every number of components, from the lowest to the highest; a number that cannot be fitted has a reason."""
    prepared: list[_Prepared] = []
    refused: dict[int, str] = {}
    smaller: Mixture | None = None
    for n_components in numbers:
        try:
            found = _prepare(task, n_components, smaller)
        except (FitError, SettingsError) as error:
            refused[n_components] = str(error)
            continue
        prepared.append(found)
        point = found.candidates[0].point
        smaller = Mixture(point.log_worths, np.exp(point.log_shares))
    fits = _fit_together(task, prepared) if prepared else {}
    return [
        fits[n_components] if n_components in fits else _NumberFit(n_components, None, refused[n_components])
        for n_components in numbers
    ]


def _prepare(task: Task, n_components: int, smaller: Mixture | None) -> _Prepared:
    """Starts for one number of components, as near to the best optimum as a search on a sample leads."""
    overview, settings = task.overview, replace(task.settings, n_components=n_components)
    if overview.share == 1 and n_components > 1:
        refuse_too_many(overview.sample.replace(groups=None), n_components)
    em = task.em(n_components)
    compile_first(em.m_step, task.stages)

    def searched() -> tuple[list[Candidate], dict[str, Any]]:
        failed: list[dict[str, Any]] = []
        sample_fits = SampleFits(em, settings.n_init, task.stages, failed, task.journal)
        share = 1.0 if smaller is None else _SHARE_OF_BUDGET
        made = starts_for(task.passes, task.rankings, overview, settings, task.stages, task.client)
        candidates, about = candidates_for(overview, settings, sample_fits, made, smaller, share)
        return candidates, about | {"failed_starts": failed}

    return _Prepared(n_components, em, *task.journal.stage(f"components-{n_components}", searched))


def _fit_together(task: Task, prepared: Sequence[_Prepared]) -> dict[int, _NumberFit]:
    """All starts of all numbers of components to convergence on all rows, in the same passes."""
    races, states, number = [], [], 0
    for one in prepared:
        n_fits = len(one.candidates)
        ems = [with_newton(one.em, task.overview.sample, NEWTON_AFTER)] * n_fits
        race, begin = side_by_side(ems, one.candidates, halving(n_fits, task.settings.n_init), number)
        races.append(race)
        states.append(begin)
        number += n_fits
    together = Together(tuple(races), at_once=min(race.at_once for race in races))
    with counted_stage(task.stages, "fit", task.passes):
        ended = task.journal.run("fit", task.passes, together, together.start(states), task.after_pass("fit"))
    return {
        one.n_components: _result(task, one, race, state)
        for one, race, state in zip(prepared, races, ended.states, strict=True)
    }


def _result(task: Task, one: _Prepared, race: Together, state: Any) -> _NumberFit:
    ends = ends_of(race, state)
    if not ends.runs:
        return _NumberFit(one.n_components, None, str(next(iter(ends.failed.values()))))
    if task.settings.alpha == 0:
        try:
            ends = with_maximum(task.passes, ends, task.rankings.item_names)
        except FitError as error:
            return _NumberFit(one.n_components, None, str(error))
    best = best_of(ends)
    about = one.about | {
        "stages": task.stages.records,
        "failed_starts": one.about["failed_starts"] + failures_of("fit", ends.failed),
    }
    warnings = tuple(gap_warnings(about, one.n_components))
    init = about | one.candidates[best].about
    record = {"data": task.data, **made_with(task.settings.seed)}
    return _NumberFit(one.n_components, Fit(ends.runs[best], one.em.m_step.name, init, about=record, warnings=warnings))


def _selected(task: Task, numbers: Sequence[int], criteria: Sequence[str], n_folds: int) -> Selected:
    fits = _fit_numbers(task, numbers)
    fitted = {one.n_components: one.fit for one in fits if one.fit is not None}
    if not fitted:
        raise SettingsError(f"no number of components could be fitted; {numbers[0]} components: {fits[0].reason}")
    warnings = [*task.journal.warnings, *weight_warnings(task.overview, task.rankings.n_rankings)]
    for fit in fitted.values():
        warnings += fit.warnings
    rows = {one.n_components: _blank_row(task, one) for one in fits}
    _add_criteria(task, fitted, rows)
    on_held_out: dict[str, Callable[[Task, Mapping[int, Fit]], HeldOutScores]] = {
        "held-out": partial(cross_validate, n_folds=n_folds),
        "paper": paper_protocol,
    }
    for scores_of in (compute for criterion, compute in on_held_out.items() if criterion in criteria):
        found = scores_of(task, fitted)
        warnings += found.warnings
        for n_components, row in rows.items():
            row |= dict.fromkeys(found.names) | found.columns.get(n_components, {})
            row["reason"] = row["reason"] or found.failed.get(n_components)
    return Selected(list(rows.values()), fits, task.settings.seed, warnings)


def _blank_row(task: Task, one: _NumberFit) -> Row:
    """The row of a number of components before criteria are known."""
    fit, sample = one.fit, task.overview.sample
    status = identifiability(ordered_lengths(sample), sample.n_items).status(one.n_components)
    names = ("n_components", "n_left", "n_parameters", "log_likelihood", "score", "bic", "aic", "icl", "identifiable")
    row: Row = dict.fromkeys((*names, "converged", "n_iter", "n_starts", "n_best"))
    if fit is not None:
        search = fit.init.get("search", {})
        row |= {"n_left": fit.run.point.n_components, "converged": fit.run.converged, "n_iter": fit.run.n_iterations}
        row |= {name: search.get(name, 1) for name in ("n_starts", "n_best")}
    return row | {"n_components": one.n_components, "identifiable": status, "reason": one.reason}


def _add_criteria(task: Task, fitted: Mapping[int, Fit], rows: dict[int, Row]) -> None:
    """BIC, AIC and ICL on all rows, in one pass for all numbers of components."""
    points = [fit.run.point for fit in fitted.values()]
    without = _without_prior(task, fitted)
    with task.stages.stage("criteria", passes=1):
        part = RowPart(extended_by=task.extended_by)
        sums = totals(task.passes, [(point, part) for point in (*points, *without)])
    for place, (number, point) in enumerate(zip(fitted, points, strict=True)):
        row, total = rows[number], float(sums[place].weight)
        row |= _criteria_at(point, sums[place])
        row["n_parameters"], row["score"] = n_parameters(*point.log_worths.shape), row["log_likelihood"] / total
    for row in rows.values() if without else ():  # also of numbers that could not be fitted
        row |= {f"{name}{WITHOUT_PRIOR}": None for name in ("log_likelihood", "bic", "aic", "icl")}
    for number, at, found in zip(fitted, without, sums[len(points) :], strict=bool(without)):
        rows[number] |= {f"{name}{WITHOUT_PRIOR}": value for name, value in _criteria_at(at, found).items()}


def _criteria_at(point: Point, sums: Totals) -> Row:
    n_free, value, weight = n_parameters(*point.log_worths.shape), float(sums.log_likelihood), float(sums.weight)
    return {
        "log_likelihood": value,
        "bic": bic(value, n_free, weight),
        "aic": aic(value, n_free),
        "icl": icl(value, n_free, weight, float(sums.entropy)),
    }


def _without_prior(task: Task, fitted: Mapping[int, Fit]) -> list[Point]:
    """Where fits end that go on from the modes nearly without a prior; none if they had none.

    Criteria are made for the maximum of the likelihood. A maximum may not exist without a prior, but the likelihood
    there is reached closely after few iterations with very little of it.
    """
    runs = [fit.run for fit in fitted.values()]
    ems = [task.em(run.point.n_components) for run in runs]
    if task.settings.alpha <= _HARDLY_A_PRIOR or any(em.m_step.objective is not LOG_LIKELIHOOD for em in ems):
        return []
    weak = (replace(em, alpha=_HARDLY_A_PRIOR, max_iter=_ITERATIONS_WITHOUT_PRIOR) for em in ems)
    ems = [with_newton(em, task.overview.sample, NEWTON_AFTER) for em in weak]
    together, begin = side_by_side(ems, [Candidate(run.point, {}) for run in runs])
    with counted_stage(task.stages, "without prior", task.passes):
        ended = task.journal.run("without-prior", task.passes, together, begin)
    found = ends_of(together, ended).runs
    return [found.get(number, run).point for number, run in enumerate(runs)]
