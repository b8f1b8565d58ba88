"""A whole fit: starts, the EM loop, components that collapse, and what is kept of it all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from plmix_dist.engine.aggregation import Aggregation
from plmix_dist.engine.passes import make_passes
from plmix_dist.errors import NonFiniteError, NotIdentifiedError, SettingsError
from plmix_dist.inference.collapse import has_collapsed, mend_collapsed
from plmix_dist.inference.em import Em
from plmix_dist.inference.fixed_point import Evaluation, Outcome, iterate
from plmix_dist.inference.state import EmState
from plmix_dist.rankings.comparison import add_comparisons, comparison_graph, comparisons
from plmix_dist.rankings.randomness import generator
from plmix_dist.solvers import LSR, MM, SOLVERS, Solver

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client
    from numpy.typing import NDArray

    from plmix_dist.data import Rankings
    from plmix_dist.engine.passes import Residency
    from plmix_dist.rankings import RankingBlock

# Statistics of n x n numbers a component must fit in a worker beside the data.
_MOST_RATES = 1 << 27
# Below this many listed items a ranking, comparisons are sparse and LSR's fewer passes outweigh their cost.
_SHORT_RANKINGS = 12


@dataclass(frozen=True)
class FitSettings:
    """What the user asked for; see PlackettLuceMixture."""

    n_components: int
    m_step: str = "auto"
    em: Literal["fused", "exact"] = "fused"
    n_init: int = 1
    alpha: float = 0.1
    shares: NDArray[np.float64] | None = None
    tol: float = 1e-8
    max_iter: int = 500
    accelerate: bool = True
    residency: Residency = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.n_components < 1:
            raise SettingsError(f"n_components must be at least 1, but is {self.n_components}")
        if self.m_step not in ("auto", *SOLVERS):
            raise SettingsError(f"m_step must be one of auto, {', '.join(SOLVERS)}, but is {self.m_step!r}")
        if self.em not in ("fused", "exact"):
            raise SettingsError(f"em must be fused or exact, but is {self.em!r}")
        if self.n_init < 1 or self.max_iter < 1:
            raise SettingsError("n_init and max_iter must be at least 1")
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise SettingsError(f"alpha must be finite and not negative, but is {self.alpha}")
        if not self.tol > 0:
            raise SettingsError(f"tol must be positive, but is {self.tol}")
        if self.shares is not None and (
            self.shares.shape != (self.n_components,)
            or not (self.shares > 0).all()
            or not np.isclose(self.shares.sum(), 1)
        ):
            raise SettingsError(f"shares must be {self.n_components} positive numbers that sum to 1")


@dataclass(frozen=True)
class Fit:
    """A finished fit."""

    state: EmState
    converged: bool
    n_iterations: int
    log_likelihood: float
    objective: float
    gradient: float
    m_step: str
    history: list[dict[str, Any]]
    events: list[dict[str, Any]]


class Extent(NamedTuple):
    """Sums over rows: weight, rows, listed items, and rows whose unlisted items rank below."""

    weight: NDArray[np.float64]
    rows: NDArray[np.int64]
    listed: NDArray[np.int64]
    below: NDArray[np.int64]


def leaf_extent(block: RankingBlock, _: None) -> Extent:
    """The extent of one leaf."""
    counts = (block.n_rankings, len(block.items), int(block.below.sum()))
    return Extent(np.array(block.total_weight), *(np.array(count) for count in counts))


def _nothing(_: None) -> None:
    return None


def _itself(total: Any) -> Any:
    return total


EXTENT = Aggregation("extent", leaf=leaf_extent, prepare=_nothing)


def fit_mixture(
    rankings: Rankings,
    settings: FitSettings,
    start: EmState | None,
    client: Client | None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> Fit:
    """Fit from a given start, or from random ones, and keep the best."""
    passes = make_passes(rankings, client, settings.residency)
    (extent,) = passes.run(EXTENT, None, [("total", _itself)]).results
    if settings.alpha == 0:
        check_identified(rankings)
    solver = choose_solver(settings, extent, rankings.n_items)
    em = Em(
        passes,
        solver,
        settings.alpha,
        unit=float(extent.weight),
        n_rankings=int(extent.rows),
        fixed_shares=settings.shares is not None,
        item_names=rankings.item_names,
    )
    states = _starts(settings, start, rankings.n_items)
    try:
        fits = [_run(em, state, settings, number, progress) for number, state in enumerate(states)]
    finally:
        passes.release()
    return max(fits, key=lambda fit: fit.objective)


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


def _starts(settings: FitSettings, start: EmState | None, n_items: int) -> list[EmState]:
    shares = settings.shares
    if start is not None:
        return [start if shares is None else start._replace(log_shares=np.log(shares))]
    shape = (settings.n_components, n_items)
    equal = np.full(settings.n_components, 1 / settings.n_components)
    return [
        EmState.start(
            generator(settings.seed, "start", number).standard_normal(shape),
            equal if shares is None else shares,
        )
        for number in range(settings.n_init)
    ]


def _run(
    em: Em,
    state: EmState,
    settings: FitSettings,
    number: int,
    progress: Callable[[dict[str, Any]], None] | None,
) -> Fit:
    """One start to its end. Where a component collapses, it is mended and the iteration begins anew from there."""
    history: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []

    def observe(record: dict[str, Any]) -> None:
        numbered = record | {"iteration": len(history) + 1, "start": number}
        history.append(numbered)
        if progress is not None:
            progress(numbered)

    step = em.fused if settings.em == "fused" else partial(em.exact, tol=settings.tol)

    def evaluate(state: EmState) -> Evaluation:
        try:
            return step(state)
        except NonFiniteError as error:
            raise NonFiniteError(f"iteration {len(history) + 1}, {error}") from None

    rng = generator(settings.seed, "collapse", number)
    while True:
        outcome: Outcome = iterate(
            evaluate,
            state,
            tol=settings.tol,
            max_iter=settings.max_iter - len(history),
            unit=em.unit,
            accelerate=settings.accelerate,
            observe=observe,
            interrupt=None if em.fixed_shares else has_collapsed,
        )
        left = settings.max_iter - len(history)
        mended = (
            None if em.fixed_shares or not left else mend_collapsed(outcome.state, events, len(history), rng)
        )
        if mended is None:
            break
        state = mended
    evaluation = outcome.evaluation
    return Fit(
        state=outcome.state,
        converged=outcome.converged,
        n_iterations=len(history),
        log_likelihood=float(evaluation.details["log_likelihood"]),
        objective=evaluation.objective,
        gradient=evaluation.gradient,
        m_step=em.solver.name,
        history=history,
        events=events,
    )
