"""The driver of fits whose utilities are linear: columns checked and scaled, a search on a sample, the fit to all rows.

A start takes persons apart by their scores where everybody is one component: directions in which these vary more than
one component explains, and k-means along them. Every cluster then takes one Newton step of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.cluster.clients import Client
from plmix_dist.datasets.given import rankings_of_block
from plmix_dist.display.progress import Stages, stage_listener
from plmix_dist.errors import CollapsedComponentWarning, FitError, SettingsError
from plmix_dist.fitting.algorithm import Together, counted_stage, run, savable
from plmix_dist.fitting.covariates import Units, take_units
from plmix_dist.fitting.em import Progress, Run, run_reported
from plmix_dist.fitting.fingerprint import data_record, made_from, made_with
from plmix_dist.fitting.fit import Fit, data_warnings, found_once, not_converged
from plmix_dist.fitting.fixed_point import Evaluation, Good
from plmix_dist.fitting.journal import Journal, begun
from plmix_dist.fitting.linear import Columns, Layout, LinearFit, LinearState, damped_step
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.overview import Overview, take_overview
from plmix_dist.fitting.point import SMALLEST_SHARE, Point
from plmix_dist.fitting.search import MOST_OTHERS
from plmix_dist.fitting.starts.clusters import cluster_rows
from plmix_dist.kernels.utilities import LinearPoint, linear_information, person_scores
from plmix_dist.passes import Aggregation, Passes, Rankings, Request, ask, passes_over
from plmix_dist.rankings import Floats, RankingBlock, generator, sample_rows
from plmix_dist.rankings.groups import membership_weight, n_memberships
from plmix_dist.store import Checkpoint
from plmix_dist.threads import single_thread

# A column whose standard deviation within choices is less than this share of its largest entry says nothing.
_CONSTANT = 1e-10
# The least eigenvalue of the correlation of columns within choices that is distinguished from zero.
_COLLINEAR = 1e-8
# A search uses this many persons per parameter, and at least the second number.
_PERSONS_PER_PARAMETER, _FEWEST_PERSONS = 50, 2_000
# It runs starts in rounds, until two independent ones share the best end.
_STARTS_PER_ROUND, _MOST_ROUNDS = 4, 4
_ITERATIONS_OF_A_SEARCH = 60
# Ends closer than this, per unit of weight, are one.
_SAME_END = 1e-6
# Entries times squared columns times components: up to this, every pass computes the information of all rows.
_MOST_WORK = 4e9
_MOST_FREE = 4_000


@savable
@dataclass(frozen=True)
class LinearModel:
    """What utilities are made of, as users say it: columns of alternatives, of features, their ridges."""

    design: Floats
    names: tuple[str, ...]
    ridge: Floats
    shared: NDArray[np.bool_]
    standardised: NDArray[np.bool_]
    n_items: int
    # Which columns are those of users, by what parameter they came; for messages.
    given: Mapping[str, str] = field(default_factory=dict)


@savable
@dataclass(frozen=True)
class LinearEnd:
    """Where such a fit ended: its parameters, and how they were laid out."""

    point: LinearPoint
    layout: Layout

    def reordered(self, order: NDArray[np.int64]) -> LinearEnd:
        """The components in another order; coefficients of shares are measured from the first."""
        own, fixed = self.point, self.layout.fixed_log_shares
        shares = own.share_coefficients[order]
        point = LinearPoint(own.design, own.coefficients[order], shares if fixed is not None else shares - shares[0])
        return LinearEnd(point, replace(self.layout, fixed_log_shares=None if fixed is None else fixed[order]))


class _Gram(NamedTuple):
    """Of choices: sums of products of columns centred within what was on offer, their number; the largest entries."""

    products: Floats
    n_choices: Floats
    largest: Floats


def _combine(left: _Gram, right: _Gram) -> _Gram:
    largest = np.maximum(left.largest, right.largest)
    return _Gram(left.products + right.products, left.n_choices + right.n_choices, largest)


def _leaf_gram(_number: int, block: RankingBlock, point: LinearPoint) -> _Gram:
    if block.features is not None and not np.isfinite(block.features).all():
        raise SettingsError(_not_finite(block))
    found = linear_information(block.replace(covariates=None), point)
    n = point.coefficients.shape[1]
    n_choices = np.minimum(block.n_ordered, np.where(block.below, block.n_items, block.n_listed) - 1)
    largest = np.abs(point.design).max(axis=0, initial=0.0)
    if block.features is not None:
        largest = np.append(largest, np.abs(block.features).max(axis=0, initial=0.0))
    return _Gram(found.observed[:n, :n], np.array(block.row_weights @ n_choices), largest)


def _not_finite(block: RankingBlock) -> str:
    assert block.features is not None
    entry, column = (int(number[0]) for number in np.nonzero(~np.isfinite(block.features)))
    return (
        f"features[{entry}, {column}] of a leaf is {block.features[entry, column]}, but must be finite; fill the value "
        "in, or leave the ranking out"
    )


def _checked_columns(passes: Passes, model: LinearModel) -> Columns:
    """The columns with their standard deviations within choices; an error for those that can have no coefficient."""
    nowhere = LinearPoint(model.design, np.zeros((1, len(model.names))), np.zeros((1, 1)))
    gram: _Gram = ask(passes, Request(Aggregation("columns", leaf=_leaf_gram, combine=_combine), nowhere))
    scale = np.sqrt(np.maximum(np.diag(gram.products), 0.0) / max(float(gram.n_choices), 1.0))
    own = np.array([name not in model.given for name in model.names], np.bool_)
    unit = np.where(own, 1.0, scale)
    for column in np.flatnonzero(scale <= _CONSTANT * gram.largest).tolist():
        name = model.names[column]
        if name in model.given:
            raise SettingsError(
                f"column {name!r} of {model.given[name]} is the same for all that is on offer in every choice, so it "
                "says nothing about choices; leave it out. What differs between persons alone belongs to "
                "membership_covariates, on which shares depend"
            )
        if model.ridge[column] == 0:
            raise SettingsError("some items are never compared with the others; choose alpha above 0")
    free = np.flatnonzero(model.ridge == 0)
    inner = gram.products[np.ix_(free, free)] / np.outer(scale[free], scale[free]) / max(float(gram.n_choices), 1.0)
    if len(free):
        values, vectors = np.linalg.eigh(inner)
        if values[0] < _COLLINEAR:
            involved = free[np.abs(vectors[:, 0]) > 0.1]
            names = [model.names[place] for place in involved if not own[place]]
            if own[involved].any():
                raise SettingsError(
                    f"these choices do not tell the worths of all items{' and ' if names else ''}{', '.join(names)} "
                    "apart; choose alpha above 0"
                )
            raise SettingsError(
                f"the columns {', '.join(names)} are linear combinations of each other within choices, so their "
                "coefficients cannot be told apart; leave one out, or give plm.Features(..., ridge=1.0)"
            )
    ridge = np.where(own | model.standardised, model.ridge, model.ridge / np.maximum(scale, _CONSTANT) ** 2)
    return Columns(model.design, model.names, model.shared, unit, ridge)


def fit_linear(
    rankings: Rankings,
    settings: FitSettings,
    model: LinearModel,
    given: LinearPoint | None,
    client: Client | None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    any_seed: bool = False,
) -> Fit:
    """Fit from a given point, or from the best ends of a search on a sample. As `fit_mixture`."""

    def made_here(passes: Passes) -> dict[str, Any]:
        return made_from(passes, rankings, settings, None, model, given)

    with begun(rankings, settings, client, checkpoint, made_here, any_seed=any_seed) as (passes, journal, chosen):
        found = _Driver(passes, rankings, chosen, model, progress, journal).fit(given)
        if rankings.choices is None:
            return found
        with passes_over(replace(rankings, choices=None, n_items=model.n_items), client, "store") as as_given:
            overview = journal.stage("look at rows", lambda: take_overview(as_given, rankings, chosen.seed))
        data = data_record(rankings, overview) | {"n_items": model.n_items}
        return replace(found, about=found.about | {"data": data})


@dataclass
class _Driver:
    """One fit: where it reads, what it was asked for."""

    passes: Passes
    rankings: Rankings
    settings: FitSettings
    model: LinearModel
    progress: Progress | None
    journal: Journal

    def fit(self, given: LinearPoint | None) -> Fit:
        """All stages of a fit."""
        passes, settings, journal, rankings = self.passes, self.settings, self.journal, self.rankings
        stages = Stages(stage_listener(self.progress))
        with stages.stage("look", passes=1):
            overview = journal.stage("look", lambda: take_overview(passes, rankings, settings.seed))
        with counted_stage(stages, "columns", passes):
            columns = journal.stage("columns", lambda: _checked_columns(passes, self.model))
            layout = self._layout(columns)
        if layout.n_components > 1 and columns.shared.all():
            raise SettingsError("all components share all coefficients, so they are one; choose one component")
        if layout.n_free > _MOST_FREE:
            raise SettingsError(
                f"{settings.n_components} components have {layout.n_free:,} coefficients, more than {_MOST_FREE:,}; "
                "choose fewer components or columns"
            )
        with counted_stage(stages, "search", passes):
            vectors, searched = journal.stage("search", lambda: self._search(overview, layout, given))
        with counted_stage(stages, "fit", passes):
            ended = self._to_ends(overview, layout, vectors)
        point, good = layout.point(ended.best.vector), ended.best
        shares = good.shares if layout.n_covariates else _shares_at(point)
        here, residual = Point.start(point.log_worths, shares), np.abs(good.gradient).max(initial=0.0)
        details = {"log_likelihood": good.log_likelihood}
        found = Evaluation(good.objective, float(residual) / overview.extent.weight, None, None, here, None, details)
        converged, history = ended.ended == "converged", ended.history
        end = Run.at(Good(here, found), converged=converged, history=history, posterior_shares=good.shares)
        warnings = [*journal.warnings, *data_warnings(overview, rankings), *not_converged(end, settings.tol)]
        empty = int(np.count_nonzero(np.exp(end.point.log_shares) < SMALLEST_SHARE))
        if empty:
            words = f"{empty} components have lost all their rankings; choose fewer components"
            warnings.append(CollapsedComponentWarning(words))
        warnings += found_once(searched.get("search"))
        record = {"data": data_record(rankings, overview), **made_with(settings.seed)}
        began = {"method": "scores" if given is None else "given", **searched}
        began |= {"stages": stages.records, "failed_starts": []}
        coefficients = point.share_coefficients if layout.n_covariates else None
        return Fit(end, "newton", began, coefficients, record, tuple(warnings), LinearEnd(point, layout))

    def _layout(self, columns: Columns) -> Layout:
        shares, covariates, units = self.settings.shares, self.rankings.covariates, Units.none()
        if covariates is not None:
            units = self.journal.stage("units", lambda: take_units(self.passes, covariates))
        fixed = None if shares is None else np.log(shares)
        return Layout(columns, self.settings.n_components, units, fixed, 0.01 * min(self.settings.alpha, 1.0))

    def _fit_of(self, layout: Layout, weight: float, n_rankings: int, **options: Any) -> LinearFit:
        return LinearFit(layout, weight, n_rankings, self.settings.tol, given=frozenset(self.model.given), **options)

    # The search.

    def _search(
        self, overview: Overview, layout: Layout, given: LinearPoint | None
    ) -> tuple[list[Floats], dict[str, Any]]:
        """At most n_init distinct ends of starts on a sample, best first; and what is known about the search."""
        if given is not None:
            return [layout.vector(given)], {}
        rows, seed = overview.small_sample, self.settings.seed
        most = max(_FEWEST_PERSONS, _PERSONS_PER_PARAMETER * layout.n_free)
        sample = sample_rows(rows, min(1.0, most / n_memberships(rows)), generator(seed, "linear-sample"))
        _, one = self._end_on(sample, replace(layout, n_components=1, fixed_log_shares=None), None)
        if layout.n_components == 1:
            return [one], {}
        starts, ends, failed = _starts(sample, layout, one, seed), list[_End](), list[FitError]()
        weight, n_wanted, n_best = membership_weight(sample), self.settings.n_init, 0
        same = _SAME_END * weight
        for _ in range(_MOST_ROUNDS * n_wanted):
            for _ in range(_STARTS_PER_ROUND):
                try:
                    ends.append(self._end_on(sample, layout, next(starts)))
                except FitError as error:
                    failed.append(error)
            ends.sort(key=lambda end: -end.objective)
            n_best = sum(ends[0].objective - end.objective <= same for end in ends)
            if n_best >= 1 + n_wanted:
                break
        if not ends:
            raise failed[0]
        distinct = ends[:1] + [end for before, end in pairwise(ends) if before.objective - end.objective > same]
        n_starts = len(ends) + len(failed)
        behind = [
            {
                "behind": (ends[0].objective - end.objective) / weight,
                "shares": _shares_at(layout.point(end.vector)).tolist(),
            }
            for end in distinct[1 : 1 + MOST_OTHERS]
        ]
        summary = {"n_starts": n_starts, "n_best": n_best, "n_varied": 0, "n_ends": len(distinct), "others": behind}
        return [end.vector for end in distinct[:n_wanted]], {"search": summary}

    def _end_on(self, sample: RankingBlock, layout: Layout, vector: Floats | None) -> _End:
        """Where a start ends on a sample; its error if it has no good point."""
        begin = np.zeros(layout.n_free) if vector is None else vector
        fit = self._fit_of(layout, membership_weight(sample), sample.n_rankings, max_iter=_ITERATIONS_OF_A_SEARCH)
        with passes_over(rankings_of_block(sample), residency="memory") as passes:
            end: LinearState = run(passes, fit, fit.start(begin))
        if end.good is None or (end.error is not None and layout.n_components == 1):
            assert end.error is not None
            raise end.error
        return _End(end.good.objective, end.good.vector)

    # The fit to all rows.

    def _to_ends(self, overview: Overview, layout: Layout, vectors: Sequence[Floats]) -> LinearState:
        """Where the best of all starts ends."""
        extent, sample = overview.extent, overview.sample
        cheap = extent.listed * (layout.n_components * layout.columns.n_columns**2 + layout.n_free**2) <= _MOST_WORK
        fit = self._fit_of(layout, extent.weight, extent.rows, max_iter=self.settings.max_iter, always_renews=cheap)
        fits = [replace(fit, number=number) for number in range(len(vectors))]
        states = []
        for one, vector in zip(fits, vectors, strict=True):
            known = None
            if not cheap:
                with single_thread():
                    found = linear_information(sample, layout.point(vector))
                known = one.curvature_of(found, extent.weight / membership_weight(sample))
            states.append(one.start(vector, known))
        together = Together(tuple(fits))
        ended = run_reported(self.passes, together, together.start(states), "fit", self.progress, self.journal)
        leaders = together.leading(ended, 1)
        if not leaders:
            raise next(state.error for state in ended.states)
        best: LinearState = ended.states[leaders[0]]
        return best


def _shares_at(point: LinearPoint) -> Floats:
    """(n_components,): the shares of persons whose covariates are zero."""
    intercepts = point.share_coefficients[:, 0]
    found: Floats = np.exp(intercepts - np.logaddexp.reduce(intercepts))
    return found


class _End(NamedTuple):
    """Where a start ended on a sample."""

    objective: float
    vector: Floats


def _starts(sample: RankingBlock, layout: Layout, vector: Floats, seed: int) -> Iterator[Floats]:
    """Starts without end: clusters of persons by their scores, and in turn coefficients drawn at random.

    `vector` is where a fit of one component ended on the sample.
    """
    scale, n, n_components = layout.columns.scale, layout.columns.n_columns, layout.n_components
    centre = replace(layout, n_components=1, fixed_log_shares=None).point(vector)
    at, scores = person_scores(sample, centre)
    scores, weights = scores[:, 0] / scale, at.weights
    known = linear_information(sample, centre).observed[:n, :n] / np.outer(scale, scale) + np.diag(layout.columns.ridge)
    values, vectors = np.linalg.eigh(known)
    whitened = scores @ (vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1])))
    spread, directions = np.linalg.eigh(whitened.T @ (weights[:, None] * whitened))
    directions = directions[:, np.argsort(-spread)]
    most = max(1, min(n, n_components - 1))
    for number in itertools.count():
        rng, shares = generator(seed, "linear-start", number), np.full(n_components, 1 / n_components)
        if number % 2:
            moves = rng.standard_normal((n_components, n))
        else:
            points = whitened @ directions[:, : (most, n, 1, min(n, 2 * most))[number // 2 % 4]]
            labels = cluster_rows(points, weights, n_components, rng)
            shares = np.bincount(labels, weights, n_components) / weights.sum() + 1e-3
            shares /= shares.sum()
            # One Newton step of each cluster from where all persons are one component.
            sums = [weights[labels == k] @ scores[labels == k] for k in range(n_components)]
            steps = [damped_step(one * known, np.diag(one * known), sums[k], 0.1) for k, one in enumerate(shares)]
            moves = np.array(steps)
        of_shares = np.zeros((n_components, 1 + layout.n_covariates))
        of_shares[:, 0] = np.log(shares)
        yield layout.vector(LinearPoint(layout.columns.design, (vector + moves) / scale, of_shares))
