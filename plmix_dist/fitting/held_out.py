"""Held-out rows: fits to a part of the rows, started at the fit to all rows, and likelihoods of the other rows.

Rows are divided inside each leaf, keyed by (seed, leaf); persons are not divided. Nothing is copied: a fit to a part
sees the rows of a leaf with other weights. A fit to a part ends at the maximum for its own rows. The fit to all rows
decides where it begins, and so near which optimum it ends, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.errors import NotConvergedWarning, NotIdentifiedError, SettingsError
from plmix_dist.fitting.algorithm import counted_stage
from plmix_dist.fitting.criteria import bic, n_parameters
from plmix_dist.fitting.em import Candidate, Em, Ends, ends_of, side_by_side
from plmix_dist.fitting.existence import comparisons_request
from plmix_dist.fitting.overview import overviews_of_parts
from plmix_dist.fitting.point import Point
from plmix_dist.fitting.search import NEWTON_AFTER, with_newton
from plmix_dist.kernels import Prepared, memberships_at
from plmix_dist.passes.request import Aggregation, Passes, Request, ask
from plmix_dist.passes.tree import add_statistics
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.sampling import Division, RowPart, rows_of_part

if TYPE_CHECKING:
    from plmix_dist.fitting.fit import Fit
    from plmix_dist.fitting.selection import Task


# Passes over the rows at fitted points: log-likelihood, entropy of memberships, and held-out rows of folds.


class Totals(NamedTuple):
    """Sums over the persons of a part, each of shape (): log-likelihood, entropy of memberships, weight."""

    log_likelihood: Floats
    entropy: Floats
    weight: Floats


class _HeldOut(NamedTuple):
    """Sums over held-out persons, for several models."""

    log_likelihoods: Floats  # (n_models,)
    # (n_models, n_models): sums of products of the log-likelihoods of two models, for standard errors of their
    # differences.
    products: Floats
    weight: Floats  # ()


def totals(passes: Passes, points: Sequence[tuple[Point, RowPart]]) -> list[Totals]:
    """The sums of each point over its part of the rows, in one pass."""
    requests = [
        Request(Aggregation("totals", leaf=partial(_totals_leaf, part), prepare=Point.prepared), point)
        for point, part in points
    ]
    return [answer.get()[0] for answer in passes.run(requests)] if requests else []


def held_out(passes: Passes, folds: Sequence[RowPart], points: Sequence[Sequence[Point]]) -> _HeldOut:
    """The sums over all folds, in one pass. `points` has, for each model, one point per fold."""
    sums = Aggregation("held-out", leaf=partial(_held_out_leaf, tuple(folds)), prepare=_prepared_folds)
    found: _HeldOut = ask(passes, Request(sums, tuple(map(tuple, points))))
    return found


def _totals_leaf(part: RowPart, number: int, block: RankingBlock, params: Prepared) -> Totals:
    rows = rows_of_part(part, number, block)
    if not rows.n_rankings:
        return Totals(np.zeros(()), np.zeros(()), np.zeros(()))
    at = memberships_at(rows, params)
    logs = np.log(np.where(at.posteriors > 0, at.posteriors, 1.0))
    entropy = -(at.weights[:, None] * at.posteriors * logs).sum()
    return Totals(np.array((at.weights * at.log_likelihoods).sum()), np.array(entropy), np.array(at.weights.sum()))


def _prepared_folds(points: tuple[tuple[Point, ...], ...]) -> list[list[Prepared]]:
    return [[point.prepared() for point in by_fold] for by_fold in points]


def _held_out_leaf(
    folds: tuple[RowPart, ...], number: int, block: RankingBlock, models: list[list[Prepared]]
) -> _HeldOut:
    sums = _HeldOut(np.zeros(len(models)), np.zeros((len(models), len(models))), np.array(0.0))
    for place, fold in enumerate(folds):
        rows = rows_of_part(fold, number, block)
        if not rows.n_rankings:
            continue
        found = [memberships_at(rows, by_fold[place]) for by_fold in models]
        logs = np.array([at.log_likelihoods for at in found])
        weights = found[0].weights
        products = np.einsum("ap,bp,p->ab", logs, logs, weights)
        # BLAS may change the last bits of the first.
        sums = add_statistics(sums, _HeldOut((logs * weights).sum(axis=1), products, weights.sum()))
    return sums


# The division of the paper: 80 % for training, of which 80 % for inference and 20 % for validation; 20 % for the test.
_PAPER_SHARES = (0.64, 0.16, 0.2)


class HeldOutScores(NamedTuple):
    """Columns of the table on held-out rows, by number of components; why other numbers have none; warnings of fits."""

    names: tuple[str, ...]  # of the columns
    columns: dict[int, dict[str, float]]
    failed: dict[int, str]
    warnings: list[Warning]


class _PartFits(NamedTuple):
    """Points by number of components, one per part of the rows; why other numbers have none; warnings."""

    points: dict[int, list[Point]]
    failed: dict[int, str]
    warnings: list[Warning]


def cross_validate(task: Task, fits: Mapping[int, Fit], n_folds: int) -> HeldOutScores:
    """Cross-validated log-likelihoods per unit of weight, and how sure their differences from the best are."""
    division = Division("folds", (1 / n_folds,) * n_folds, task.settings.seed)
    folds = [RowPart(division, (fold,), task.extended_by) for fold in range(n_folds)]
    others = [
        RowPart(division, tuple(other for other in range(n_folds) if other != fold), task.extended_by)
        for fold in range(n_folds)
    ]
    found = _fit_parts(task, fits, others, "folds", "outside fold")
    names = ("held_out", "held_out_error")
    if not found.points:
        return HeldOutScores(names, {}, found.failed, found.warnings)
    with task.stages.stage("held-out", passes=1):
        sums = held_out(task.passes, folds, list(found.points.values()))
    means = sums.log_likelihoods / sums.weight
    seconds = sums.products / sums.weight
    variances = np.diag(seconds)[:, None] + np.diag(seconds) - 2 * seconds
    variances -= (means[:, None] - means) ** 2
    # Both means are computed on the same persons, so what these persons have in common cancels.
    errors = np.sqrt(np.maximum(variances, 0.0) / sums.weight)[:, int(means.argmax())]
    pairs = zip(means.tolist(), errors.tolist(), strict=True)
    columns = {number: dict(zip(names, pair, strict=True)) for number, pair in zip(found.points, pairs, strict=True)}
    return HeldOutScores(names, columns, found.failed, found.warnings)


def paper_protocol(task: Task, fits: Mapping[int, Fit]) -> HeldOutScores:
    """BIC on validation rows and log-likelihood per test ranking: the protocol of Nguyen and Zhang (2023).

    Its parts are those that `split` writes with the same seed.
    """
    division = Division("split", _PAPER_SHARES, task.settings.seed)
    inference, validation, test = (RowPart(division, (part,), task.extended_by) for part in range(3))
    found = _fit_parts(task, fits, [inference], "paper", "inference part, number")
    points = [point for (point,) in found.points.values()]
    with task.stages.stage("validation and test", passes=1):
        sums = totals(task.passes, [(point, part) for point in points for part in (validation, test)])
    columns = {}
    for place, n_components in enumerate(found.points):
        on_validation, on_test = sums[2 * place : 2 * place + 2]
        if not (on_validation.weight > 0 and on_test.weight > 0):
            raise SettingsError(
                "there are too few rankings for a validation part and a test part; choose another criterion"
            )
        n_free = n_parameters(*points[place].log_worths.shape)
        columns[n_components] = {
            "validation_bic": bic(float(on_validation.log_likelihood), n_free, float(on_validation.weight)),
            "test_score": float(on_test.log_likelihood / on_test.weight),
        }
    return HeldOutScores(("validation_bic", "test_score"), columns, found.failed, found.warnings)


def _fit_parts(task: Task, fits: Mapping[int, Fit], parts: Sequence[RowPart], stage: str, words: str) -> _PartFits:
    """Fit every number of components to every part of the rows, in the same passes."""
    with counted_stage(task.stages, stage, task.passes):
        ems = _ems_of_parts(task, list(fits), parts, words)
        candidates = [Candidate(fit.run.point, {}, fit.run.hessian) for fit in fits.values() for _ in parts]
        together, begin = side_by_side(ems, candidates)
        ended = task.journal.run(stage, task.passes, together, begin, task.after_pass(stage))
    return _gathered(list(fits), ends_of(together, ended), len(parts), words)


def _gathered(numbers: Sequence[int], ends: Ends, n_parts: int, words: str) -> _PartFits:
    """Where the fits to parts ended; a number of components with a failed part has a reason instead."""
    points: dict[int, list[Point]] = {}
    failed: dict[int, str] = {}
    warnings: list[Warning] = []
    for place, n_components in enumerate(numbers):
        own = range(place * n_parts, (place + 1) * n_parts)
        fault = next((number for number in own if number in ends.failed), None)
        if fault is not None:
            failed[n_components] = f"{words} {fault - own[0] + 1}: {ends.failed[fault]}"
            continue
        runs = [ends.runs[number] for number in own]
        points[n_components] = [each.point for each in runs]
        n_not = sum(not each.converged for each in runs)
        if n_not:
            found = f"{n_components} components: {n_not} of {n_parts} fits to parts of the rows did not converge"
            warnings.append(NotConvergedWarning(f"{found}; raise max_iter, or tol"))
    return _PartFits(points, failed, warnings)


def _ems_of_parts(task: Task, numbers: Sequence[int], parts: Sequence[RowPart], words: str) -> list[Em]:
    """EM on each part of the rows, for one number of components after the other."""
    # Newton steps need the Hessian of the rows that are fitted, so every part has a sample of its own.
    overviews = overviews_of_parts(task.passes, parts, task.overview.share, task.settings.seed)
    for place, (extent, _) in enumerate(overviews):
        if not extent.weight > 0:
            raise SettingsError(f"{words} {place + 1} there are no rankings; there are too few to be divided so")
    if task.settings.alpha == 0:
        _check_identified(task, parts, words)
    return [
        with_newton(replace(em, part=part, weight=extent.weight, n_rankings=extent.rows), sample, NEWTON_AFTER)
        for em in map(task.em, numbers)
        for part, (extent, sample) in zip(parts, overviews, strict=True)
    ]


def _check_identified(task: Task, parts: Sequence[RowPart], words: str) -> None:
    """Without a prior: an error if some part of the rows does not compare all items both ways.

    The worth of an item that a part never offers would stay where the fit to all rows has put it: held-out rows would
    decide on it.
    """
    for place, answer in enumerate(task.passes.run([comparisons_request(part) for part in parts])):
        (graph,) = answer.get()
        if graph.n_groups > 1:
            outside = int(np.flatnonzero(graph.group > 0)[0])
            raise NotIdentifiedError(
                f"{words} {place + 1} item {task.rankings.item_names[outside]!r} is not compared both ways with all "
                "others, so there is no maximum-likelihood estimate. Choose alpha > 0, which gives it a worth, or "
                'criterion="bic"'
            )
