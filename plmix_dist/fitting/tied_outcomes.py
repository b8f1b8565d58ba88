"""Fits in which ties are outcomes of choices: what is refused, how weights of ties begin, and their step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.point import Point
from plmix_dist.kernels.prepared import NO_TIES
from plmix_dist.kernels.tied_choices import place_sizes
from plmix_dist.passes.rankings import Rankings
from plmix_dist.passes.request import Aggregation, Passes, Request, ask
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.ties import TIES
from plmix_dist.solvers.davidson import ghost_ties

if TYPE_CHECKING:
    from plmix_dist.fitting.em import Candidate


def check_davidson(settings: FitSettings, *, covariates: bool) -> None:
    """An error for settings that do not go together with ties as outcomes."""
    if not TIES[settings.ties].order:
        return
    if settings.m_step not in ("auto", "mm"):
        words = f'has a step of its own; leave m_step="{settings.m_step}" out'
    elif covariates:
        words = 'is not built for shares that depend on membership_covariates; leave them out, or take ties="half"'
    else:
        return
    raise SettingsError(f"ties={settings.ties!r} {words}")


def _leaf_counts(order: int, _number: int, block: RankingBlock, _params: None) -> Floats:
    """The weight of places by how many items they have: 1 to `order`, and more."""
    first, sizes = place_sizes(block)
    weights = block.row_weights[block.row_of_item()[first]]
    return np.bincount(np.minimum(sizes, order + 1), weights, minlength=order + 2)[1:].astype(np.float64)


def count_ties(passes: Passes, rankings: Rankings, order: int) -> Floats:
    """(order,): the weight of places by how many items they have; an error that names the first row with more."""
    found: Floats = ask(passes, Request(Aggregation("ties", leaf=partial(_leaf_counts, order))))
    if not found[order]:
        return found[:order]
    for begin, block in zip(rankings.leaf_bounds, rankings.iter_leaves(labels=False), strict=False):
        first, sizes = place_sizes(block)
        if sizes.max(initial=0) > order:
            row = int(begin) + int(block.row_of_item()[first[np.argmax(sizes > order)]])
            break
    raise RankingError(
        f"ranking {row} (from 0) ties {sizes.max()} items, and these ties are of at most {order} items; choose "
        f"ties=Davidson(order={sizes.max()}), or leave the ranking out"
    )


def with_tie_weights(candidates: Sequence[Candidate], counts: Floats, ties: str) -> list[Candidate]:
    """Starts with weights of ties by the counts; an order that never occurs stays out of the model."""
    begin = np.log(np.maximum(counts[1:] / counts.sum(), np.exp(NO_TIES)))
    n_lines = [1 if TIES[ties].shared else one.point.n_components for one in candidates]
    points = [one.point._replace(log_ties=np.tile(begin, (n, 1))) for one, n in zip(candidates, n_lines, strict=True)]
    return [one._replace(point=point, hessian=None) for one, point in zip(candidates, points, strict=True)]


def tie_step(point: Point, ties: Floats | None, alpha: float, *, n_held: int) -> tuple[Floats, Floats, Floats]:
    """The next log-weights of ties, and gradient and scale (n,) in the present ones.

    `ties` (2, n_components, n_orders - 1) are those that were seen and those expected; the prior says nothing of the
    last `n_held` components.
    """
    if ties is None:
        return point.log_ties, np.zeros(0), np.zeros(0)
    seen, expected = ties[0], ties[1].copy()
    for k, worths in enumerate(point.components()[: point.n_components - n_held]):
        expected[k, 0] += ghost_ties(worths, alpha)
    if len(point.log_ties) == 1:
        seen, expected = seen.sum(axis=0, keepdims=True), expected.sum(axis=0, keepdims=True)
    free = seen > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        move = np.where(free, (np.log(seen) - np.log(expected)) / 2, 0.0)
    return point.log_ties + move, np.where(free, seen - expected, 0.0).ravel(), expected.ravel()
