"""Fits of several numbers of components to all rows: a search for each, in turn, and then one fit in shared passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.errors import FitError, SettingsError
from plmix_dist.inference.existence import check_identified
from plmix_dist.inference.fit import (
    Fit,
    best_of,
    candidates_for,
    compile_first,
    em_for,
    starts_for,
    with_maximum,
)
from plmix_dist.inference.journal import NO_JOURNAL
from plmix_dist.inference.look import take_look
from plmix_dist.inference.sample_fits import NEWTON_AFTER, SampleFits, halving, with_newton
from plmix_dist.inference.saved_state import savable
from plmix_dist.inference.starts_to_ends import MOST_NUMBERS, Ends, failures_of
from plmix_dist.inference.supported import refuse_too_many
from plmix_dist.inference.together import Together
from plmix_dist.rankings.linear_extensions import extend_ties
from plmix_dist.rankings.row_parts import RowPart
from plmix_dist.rankings.tie_treatments import TIES
from plmix_dist.starts.proposals import Mixture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distributed import Client

    from plmix_dist.data import Rankings
    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.em import Em
    from plmix_dist.inference.journal import Journal
    from plmix_dist.inference.look import Look
    from plmix_dist.inference.settings import FitSettings
    from plmix_dist.inference.starts_to_ends import Candidate
    from plmix_dist.stages import Stages

    After = Callable[[str, Any], None]

# The fit of fewer components gives good starts, so a search for each number may cost this share of a search alone.
SHARE_OF_BUDGET = 0.1


@dataclass(frozen=True)
class Task:
    """What all fits of a selection share.

    Parameters
    ----------
    passes, rankings
        The rows, with ties as they are.
    settings
        Of the fits; the number of components is not looked at.
    look
        The first look at the rows. In its samples ties are treated as in the fits.
    client
        Where dask-ml runs the SVD of the pairwise embedding.
    stages
        Where the cost of each stage is noted.
    after
        Called with the name of a stage and the new state after every pass.
    journal
        Keeps what is finished, and the states of fits.
    """

    passes: Passes
    rankings: Rankings
    settings: FitSettings
    look: Look
    client: Client | None
    stages: Stages
    after: After | None = None
    journal: Journal = NO_JOURNAL

    @property
    def extends(self) -> bool:
        """Whether rows with ties become linear extensions."""
        return TIES[self.settings.ties].extends

    def em(self, n_components: int) -> Em:
        """EM on all rows."""
        settings = replace(self.settings, n_components=n_components)
        return replace(
            em_for(settings, self.look.extent, self.rankings),
            part=RowPart(extends=True) if self.extends else None,
        )

    def told(self, stage: str) -> Callable[[Any], None]:
        """What is called after every pass of a stage."""

        def tell(state: Any) -> None:
            self.stages.iteration({"iteration": state.n_rounds})
            if self.after is not None:
                self.after(stage, state)

        return tell


class NumberFit(NamedTuple):
    """What became of one number of components: the fit, or why there is none."""

    n_components: int
    fit: Fit | None
    reason: str | None = None


@savable
class _Searched(NamedTuple):
    """Where the search for one number of components ended."""

    candidates: list[Candidate]
    about: dict[str, Any]


class _Prepared(NamedTuple):
    """A number of components before the fit to all rows."""

    n_components: int
    em: Em
    candidates: list[Candidate]
    about: dict[str, Any]


def begin(
    passes: Passes,
    rankings: Rankings,
    settings: FitSettings,
    client: Client | None,
    stages: Stages,
    after: After | None = None,
    journal: Journal = NO_JOURNAL,
) -> Task:
    """Take the first look, once for all numbers of components."""
    with stages.stage("look", passes=1):
        look = journal.stage("look", lambda: take_look(passes, rankings, settings.seed))
    task = Task(passes, rankings, settings, look, client, stages, after, journal)
    if task.extends and look.extent.tied:
        look = look._replace(
            extent=look.extent._replace(tied=0),
            sample=extend_ties(look.sample).block,
            small_sample=extend_ties(look.small_sample).block,
        )
        task = replace(task, look=look)
    if settings.alpha == 0:
        journal.stage("identified", lambda: check_identified(passes, rankings.item_names))
    return task


def fit_numbers(task: Task, numbers: Sequence[int]) -> list[NumberFit]:
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
        fits[n_components] if n_components in fits else NumberFit(n_components, None, refused[n_components])
        for n_components in numbers
    ]


def _prepare(task: Task, n_components: int, smaller: Mixture | None) -> _Prepared:
    """Starts for one number of components, as near to the best optimum as a search on a sample leads."""
    look, settings = task.look, replace(task.settings, n_components=n_components)
    if look.share == 1 and n_components > 1:
        refuse_too_many(look.sample.replace(groups=None), n_components)
    em = task.em(n_components)
    compile_first(em.m_step, task.stages)

    def searched() -> _Searched:
        failed: list[dict[str, Any]] = []
        sample_fits = SampleFits(em, settings.n_init, task.stages, failed, task.journal)
        share = 1.0 if smaller is None else SHARE_OF_BUDGET
        made = starts_for(task.passes, task.rankings, look, settings, task.stages, task.client)
        candidates, about = candidates_for(look, settings, sample_fits, made, smaller, share)
        return _Searched(candidates, about | {"failed_starts": failed})

    return _Prepared(n_components, em, *task.journal.stage(f"components-{n_components}", searched))


def _fit_together(task: Task, prepared: Sequence[_Prepared]) -> dict[int, NumberFit]:
    """All starts of all numbers of components to convergence on all rows, in the same passes."""
    races = []
    states = []
    number = 0
    for one in prepared:
        em = with_newton(one.em, task.look.sample, NEWTON_AFTER)
        fits = tuple(replace(em, number=number + place) for place in range(len(one.candidates)))
        number += len(fits)
        race = Together(fits, tuple(halving(len(fits), task.settings.n_init)), _at_once(task, one))
        races.append(race)
        begun = (
            fit.start(candidate.point, candidate.hessian)
            for fit, candidate in zip(fits, one.candidates, strict=True)
        )
        states.append(race.start(list(begun)))
    together = Together(tuple(races), at_once=min(_at_once(task, one) for one in prepared))
    with task.stages.stage("fit") as record:
        n_before = task.passes.n_passes
        begun_at = together.start(states)
        ended = task.journal.run("fit", task.passes, together, begun_at, task.told("fit"))
        record["passes"] = task.passes.n_passes - n_before
    return {
        one.n_components: _result(task, one, race, state)
        for one, race, state in zip(prepared, races, ended.states, strict=True)
    }


def _at_once(task: Task, one: _Prepared) -> int:
    """How many fits share a pass: their sums must fit into a worker."""
    numbers = one.n_components * one.em.m_step.numbers(task.rankings.n_items)
    return max(1, int(MOST_NUMBERS // (2 * numbers)))


def _result(task: Task, one: _Prepared, race: Together, state: Any) -> NumberFit:
    failed = {
        place: own.error
        for place, own in enumerate(state.states)
        if own is not None and own.error is not None
    }
    fits: Any = race.algorithms
    runs = {
        place: fits[place].result(own)
        for place, own in enumerate(state.states)
        if own is not None and place not in failed
    }
    if not runs:
        return NumberFit(one.n_components, None, str(next(iter(failed.values()))))
    ends = Ends(runs, failed)
    if task.settings.alpha == 0:
        try:
            ends = with_maximum(task.passes, ends, task.rankings.item_names)
        except FitError as error:
            return NumberFit(one.n_components, None, str(error))
    best = best_of(ends)
    about = one.about | {
        "stages": task.stages.records,
        "failed_starts": one.about["failed_starts"] + failures_of("fit", ends.failed),
    }
    fit = Fit(ends.runs[best], one.em.m_step.name, about | one.candidates[best].about)
    return NumberFit(one.n_components, fit)
