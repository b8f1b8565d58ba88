"""A whole fit: a first look at the data, starts, the EM loop, and what is kept of it all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.engine.passes import make_passes
from plmix_dist.errors import NotIdentifiedError, SettingsError
from plmix_dist.inference.em import Em
from plmix_dist.inference.lockstep import run_together
from plmix_dist.inference.look import take_look
from plmix_dist.inference.run import run_from
from plmix_dist.inference.sample_fits import (
    NEWTON_AFTER,
    Start,
    halving,
    newton_for,
    run_on_sample,
    run_on_small_sample,
)
from plmix_dist.inference.starting import make_starts
from plmix_dist.rankings.comparison import add_comparisons, comparison_graph, comparisons
from plmix_dist.solvers import LSR, MM, SOLVERS, Solver
from plmix_dist.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client

    from plmix_dist.data import Rankings
    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.look import Extent
    from plmix_dist.inference.newton import Newton
    from plmix_dist.inference.run import Run
    from plmix_dist.inference.settings import FitSettings
    from plmix_dist.inference.state import EmState

# Statistics of n x n numbers a component must fit in a worker beside the data.
_MOST_RATES = 1 << 27
# Below this many listed items a ranking, comparisons are sparse and LSR's fewer passes outweigh their cost.
_SHORT_RANKINGS = 12


@dataclass(frozen=True)
class Fit:
    """A finished fit: the best run, the solver, and where it began, with what each stage cost."""

    run: Run
    m_step: str
    init: dict[str, Any]


def fit_mixture(
    rankings: Rankings,
    settings: FitSettings,
    given: EmState | None,
    client: Client | None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> Fit:
    """Fit from a given state, or from starts of the settings' kind, and keep the best."""
    passes = make_passes(rankings, client, settings.residency)
    stages = Stages()
    with stages.stage("look", passes=1):
        look = take_look(passes, rankings, settings.seed)
    if settings.alpha == 0:
        check_identified(rankings)
    solver = choose_solver(settings, look.extent, rankings.n_items)
    em = Em(
        solver,
        settings.alpha,
        unit=look.extent.weight,
        n_rankings=look.extent.rows,
        fixed_shares=settings.shares is not None,
        item_names=rankings.item_names,
    )
    about: dict[str, Any] = {}
    if given is None:
        starts, about = make_starts(look, settings, em, stages, client)
        if look.small_sample.n_rankings < look.sample.n_rankings:
            starts = run_on_small_sample(look.small_sample, starts, settings, em, stages)
        if look.share < 1:
            starts = run_on_sample(look.sample, starts, settings, em, stages)
    else:
        shares = given.log_shares if settings.shares is None else np.log(settings.shares)
        starts = [Start(given._replace(log_shares=shares), {"method": "given"})]
    try:
        with stages.stage("fit") as record:
            newton = partial(newton_for, look.sample, em, settings, NEWTON_AFTER)
            n_before = passes.n_passes
            runs = _run_all(passes, em, starts, settings, newton, progress)
            record["passes"] = passes.n_passes - n_before
    finally:
        passes.release()
    best = max(runs, key=lambda number: runs[number].objective)
    return Fit(runs[best], solver.name, about | starts[best].about | {"stages": stages.records})


def _run_all(
    passes: Passes,
    em: Em,
    starts: list[Start],
    settings: FitSettings,
    newton: Callable[[Start], Newton | None],
    progress: Callable[[dict[str, Any]], None] | None,
) -> dict[int, Run]:
    """All starts to their ends, as many sharing each pass as their statistics leave room for."""
    n_components, n_items = starts[0].state.log_worths.shape
    numbers = n_components * n_items * (n_items if em.solver.needs_rates else 1)
    together = max(1, _MOST_RATES // (2 * numbers))
    runs: dict[int, Run] = {}
    for first in range(0, len(starts), together):
        fits = [
            run_from(
                em, start.state, settings, number=number, tol=settings.tol, max_iter=settings.max_iter,
                newton=newton(start), progress=progress,
            )
            for number, start in enumerate(starts[first : first + together], start=first)
        ]  # fmt: skip
        ended = run_together(passes, fits, cuts=halving(len(fits), settings.n_init))
        runs |= {first + number: run for number, run in ended.items()}
    return runs


def choose_solver(settings: FitSettings, extent: Extent, n_items: int) -> Solver:
    """The solver that was asked for; with "auto", LSR where rankings are short and compare few of the items.

    There its steps reach much further than MM's, while long rankings make its passes cost many times as much.
    """
    if settings.m_step != "auto":
        solver = SOLVERS[settings.m_step]
        if solver.needs_rates and settings.n_components * n_items**2 > _MOST_RATES:
            raise SettingsError(
                f"m_step={solver.name!r} sums {settings.n_components} x {n_items} x {n_items} numbers, more than a "
                'worker should hold; choose m_step="mm", which ends at the same estimate'
            )
        return solver
    mean_listed = float(extent.listed / extent.rows)
    sparse = mean_listed <= min(_SHORT_RANKINGS, n_items / 4) and extent.below * 2 < extent.rows
    return LSR if sparse and settings.n_components * n_items**2 <= _MOST_RATES // 8 else MM


def check_identified(rankings: Rankings) -> None:
    """Without a prior: an error that names items, where the data alone show that no estimate exists."""
    found = add_comparisons(comparisons(block) for block in rankings.iter_leaves(labels=False))
    graph = comparison_graph(found)
    if graph.n_groups == 1:
        return
    names = rankings.item_names
    reasons = [
        f"{what}: {', '.join(names[item] for item in items[:10])}{', ...' if len(items) > 10 else ''}"
        for what, items in (
            ("never on offer", graph.never_offered),
            ("never above another item", graph.never_above),
            ("never below another item", graph.never_below),
        )
        if len(items)
    ]
    if not reasons:
        outside = [names[item] for item in np.flatnonzero(graph.group > 0)[:10]]
        reasons = [f"not compared both ways with the rest: {', '.join(outside)}"]
    raise NotIdentifiedError(
        f"no maximum-likelihood estimate exists: the items fall into {graph.n_groups} groups that are not compared "
        f"both ways ({'; '.join(reasons)}). Choose alpha > 0, or leave these items out"
    )
