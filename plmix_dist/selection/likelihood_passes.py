"""Passes over the rows at fitted points: log-likelihood, entropy of memberships, and held-out rows of folds."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.kernels import Prepared, memberships_at, prepare
from plmix_dist.rankings.row_parts import RowPart, rows_of_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.point import Point
    from plmix_dist.rankings import RankingBlock


class Totals(NamedTuple):
    """Sums over the persons of a part, each of shape (): log-likelihood, entropy of memberships, weight."""

    log_likelihood: NDArray[np.float64]
    entropy: NDArray[np.float64]
    weight: NDArray[np.float64]


class HeldOut(NamedTuple):
    """Sums over held-out persons, for several models.

    Parameters
    ----------
    log_likelihoods : (n_models,)
    products : (n_models, n_models)
        Sums of products of the log-likelihoods of two models, for standard errors of their differences.
    weight : ()
    """

    log_likelihoods: NDArray[np.float64]
    products: NDArray[np.float64]
    weight: NDArray[np.float64]


def totals(passes: Passes, points: Sequence[tuple[Point, RowPart]]) -> list[Totals]:
    """The sums of each point over its part of the rows, in one pass.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> from plmix_dist.inference.point import Point
    >>> point = Point.start(np.zeros((2, 2)), np.full(2, 0.5))
    >>> (found,) = totals(ThreadedPasses(as_rankings([[0, 1], [1, 0]])), [(point, RowPart())])
    >>> np.exp(found.log_likelihood).round(3).tolist(), np.exp(found.entropy).round(3).tolist()
    (0.25, 4.0)
    """
    return _results(passes, [Request(_totals_of(part), point) for point, part in points])


def held_out(passes: Passes, folds: Sequence[RowPart], points: Sequence[Sequence[Point]]) -> HeldOut:
    """The sums over all folds, in one pass. `points` has, for each model, one point per fold.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> from plmix_dist.inference.point import Point
    >>> from plmix_dist.rankings.row_parts import Division
    >>> folds = [RowPart(Division("folds", (0.5, 0.5), 0), (number,)) for number in (0, 1)]
    >>> point = Point.start(np.zeros((1, 2)), np.ones(1))
    >>> found = held_out(ThreadedPasses(as_rankings([[0, 1], [1, 0]])), folds, [[point, point]])
    >>> np.exp(found.log_likelihoods).round(3).tolist(), float(found.weight)
    ([0.25], 2.0)
    """
    (found,) = _results(passes, [Request(_held_out_of(tuple(folds)), tuple(map(tuple, points)))])
    assert isinstance(found, HeldOut)
    return found


def _results(passes: Passes, requests: list[Request]) -> list[Any]:
    answers = passes.run(requests) if requests else []
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return [answer.results[0] for answer in answers]


def _prepared(point: Point) -> Prepared:
    return prepare(point.log_worths, point.log_shares)


@cache
def _totals_of(part: RowPart) -> Aggregation:
    return Aggregation("totals", leaf=partial(_totals_leaf, part), prepare=_prepared)


def _totals_leaf(part: RowPart, number: int, block: RankingBlock, params: Prepared) -> Totals:
    rows = rows_of_part(part, number, block)
    if not rows.n_rankings:
        return Totals(np.zeros(()), np.zeros(()), np.zeros(()))
    at = memberships_at(rows, params)
    logs = np.log(np.where(at.posteriors > 0, at.posteriors, 1.0))
    entropy = -(at.weights[:, None] * at.posteriors * logs).sum()
    return Totals(
        np.array((at.weights * at.log_likelihoods).sum()), np.array(entropy), np.array(at.weights.sum())
    )


@cache
def _held_out_of(folds: tuple[RowPart, ...]) -> Aggregation:
    return Aggregation("held-out", leaf=partial(_held_out_leaf, folds), prepare=_prepared_folds)


def _prepared_folds(points: tuple[tuple[Point, ...], ...]) -> list[list[Prepared]]:
    return [[_prepared(point) for point in by_fold] for by_fold in points]


def _held_out_leaf(
    folds: tuple[RowPart, ...], number: int, block: RankingBlock, models: list[list[Prepared]]
) -> HeldOut:
    sums = HeldOut(np.zeros(len(models)), np.zeros((len(models), len(models))), np.array(0.0))
    for place, fold in enumerate(folds):
        rows = rows_of_part(fold, number, block)
        if not rows.n_rankings:
            continue
        found = [memberships_at(rows, by_fold[place]) for by_fold in models]
        logs = np.array([at.log_likelihoods for at in found])
        weights = found[0].weights
        products = np.einsum("ap,bp,p->ab", logs, logs, weights)
        sums = HeldOut(
            sums.log_likelihoods + (logs * weights).sum(axis=1),  # BLAS may change the last bits
            sums.products + products,
            sums.weight + weights.sum(),
        )
    return sums
