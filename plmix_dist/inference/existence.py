"""Whether a maximum-likelihood estimate exists: what data tell before a fit, and components at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from plmix_dist.engine.request import Aggregation, Finish, Request
from plmix_dist.errors import NotIdentifiedError
from plmix_dist.kernels import Prepared, pairwise_wins, prepare, row_posteriors
from plmix_dist.rankings.comparison import add_comparisons, comparison_graph, comparisons
from plmix_dist.rankings.linear_extensions import extend_ties
from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.point import Point
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.rankings.comparison import Comparisons


# Numbers that are summed for the check at the end; beyond, it is left out.
_MOST_NUMBERS = 1 << 26
# A cut is looked at if it is crossed by less than this share of the weight of a component's rankings.
_HARDLY_EVER = 1e-3
_MOST_CUTS = 4
# So far log-worths are moved down: odds of one to a billion, and farther.
_FAR_DOWN = (20.0, 40.0)
_ROUNDING = 1e-12


def _leaf_comparisons(number: int, block: RankingBlock, params: None) -> Comparisons:
    del number, params
    # Ties that are left in a fit are summed over: extensions have none.
    return comparisons(block, ties_compare=False)


def _combine(left: Comparisons, right: Comparisons) -> Comparisons:
    return add_comparisons([left, right])


COMPARISONS = Aggregation("comparisons", leaf=_leaf_comparisons, combine=_combine)


def check_identified(passes: Passes, item_names: Sequence[str]) -> None:
    """Without a prior: an error that names items, where the data alone show that no estimate exists.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> check_identified(ThreadedPasses(as_rankings([[0, 1], [1, 0]])), ["tea", "coffee"])
    """
    (answer,) = passes.run([Request(COMPARISONS, finish=(Finish("graph", comparison_graph),))])
    (graph,) = answer.results
    if graph.n_groups == 1:
        return
    reasons = [
        f"{what}: {', '.join(item_names[item] for item in items[:10])}{', ...' if len(items) > 10 else ''}"
        for what, items in (
            ("never on offer", graph.never_offered),
            ("never above another item", graph.never_above),
            ("never below another item", graph.never_below),
        )
        if len(items)
    ]
    if not reasons:
        outside = [item_names[item] for item in np.flatnonzero(graph.group > 0)[:10]]
        reasons = [f"not compared both ways with the rest: {', '.join(outside)}"]
    raise NotIdentifiedError(
        f"no maximum-likelihood estimate exists: the items fall into {graph.n_groups} groups that are not compared "
        f"both ways ({'; '.join(reasons)}). Choose alpha > 0, or leave these items out"
    )


class _Beaten(NamedTuple):
    """(n_components, n_items, n_items): entry [k, i, j] is the weight of rankings of component k with i before j."""

    wins: NDArray[np.float64]


class _Score(NamedTuple):
    """The log-likelihood of some rows."""

    log_likelihood: NDArray[np.float64]


def _prepare_point(point: Point) -> Prepared:
    return prepare(point.log_worths, point.log_shares)


def _leaf_beaten(number: int, block: RankingBlock, params: Prepared) -> _Beaten:
    del number
    extended = extend_ties(block)
    posteriors = row_posteriors(block, params)[1]
    wins = pairwise_wins(extended.block, posteriors[extended.row])
    return _Beaten(wins - _within_ties(unorder_last_ties(block), posteriors))


def _within_ties(block: RankingBlock, posteriors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_components, n_items, n_items): what wins over tied items add: in half of the extensions, each over each.

    They are no comparisons: the sum over all orders says nothing about which of the tied items is above.
    """
    wins = np.zeros((posteriors.shape[1], block.n_items, block.n_items))
    if block.tied is None:
        return wins
    place = np.cumsum(~block.tied) - 1
    tied = np.flatnonzero(np.bincount(place)[place] > 1)
    items = block.items[tied].astype(np.int64)
    by_place = csr_array(
        (np.ones(len(tied)), (place[tied], items)), shape=(int(place[-1]) + 1, block.n_items)
    )
    row = block.row_of_item()[np.flatnonzero(~block.tied)]
    for component, posterior in enumerate(posteriors.T):
        weights = 0.5 * (block.row_weights * posterior)[row]
        wins[component] = (by_place.T @ by_place.multiply(weights[:, None])).toarray()
        np.fill_diagonal(wins[component], 0.0)
    return wins


def _leaf_score(number: int, block: RankingBlock, params: Prepared) -> _Score:
    del number
    return _Score(np.array(block.row_weights @ row_posteriors(block, params)[0]))


BEATEN = Aggregation("beaten", leaf=_leaf_beaten, prepare=_prepare_point)
LIKELIHOOD = Aggregation("log-likelihood", leaf=_leaf_score, prepare=_prepare_point)


class Cut(NamedTuple):
    """The lowest items of a component, which its rankings hardly ever place above the others."""

    component: int
    items: NDArray[np.int64]


def check_maximum(passes: Passes, point: Point, item_names: Sequence[str]) -> None:
    """Without a prior, at the end of a fit: an error if log-worths can diverge without lowering the likelihood.

    A component may have no maximum although the data as a whole have one: all its rankings place some items below the
    others. Such items can be moved down for ever. Where the rankings of a component hardly ever place its lowest items
    above others, these items are moved down by a large step, and by a larger one. If the likelihood does not fall, it
    has no maximum. `point` is where a fit has converged: elsewhere a large step may simply be a good one.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> from plmix_dist.inference.point import Point
    >>> point = Point.start(np.array([[9.0, -9.0], [-9.0, 9.0]]), np.array([0.5, 0.5]))
    >>> check_maximum(ThreadedPasses(as_rankings([[0, 1], [1, 0]])), point, ["tea", "coffee"])
    Traceback (most recent call last):
    plmix_dist.errors.NotIdentifiedError: component 0 has no maximum-likelihood estimate: ...
    """
    n_components, n_items = point.log_worths.shape
    if n_components * n_items**2 > _MOST_NUMBERS:
        return  # the limit on the range of log-worths is all that is checked
    (answer,) = passes.run([Request(BEATEN, point)])
    if answer.error is not None:
        raise answer.error
    (beaten,) = answer.results
    cuts = _cuts(point, beaten.wins)
    if not cuts:
        return
    points = [point, *(_moved_down(point, cut, by) for cut in cuts for by in _FAR_DOWN)]
    answers = passes.run([Request(LIKELIHOOD, each) for each in points])
    here, *there = (float(each.results[0].log_likelihood) for each in answers)
    slack = _ROUNDING * abs(here)
    for cut, far, farther in zip(cuts, there[::2], there[1::2], strict=True):
        if far >= here - slack and farther >= far - slack:
            names = ", ".join(item_names[item] for item in cut.items[:10])
            more = ", ..." if len(cut.items) > 10 else ""
            raise NotIdentifiedError(
                f"component {cut.component} has no maximum-likelihood estimate: its log-worths of {names}{more} "
                "can fall without end and never lower the likelihood. Choose alpha > 0, or fewer components"
            )


def _cuts(point: Point, wins: NDArray[np.float64]) -> list[Cut]:
    """For each component the few cuts of its items by worth that its rankings cross least."""
    found = []
    for component, (log_worths, own) in enumerate(zip(point.log_worths, wins, strict=True)):
        order = np.argsort(log_worths, kind="stable")
        ordered = own[np.ix_(order, order)]
        # How often one of the c lowest items comes before one of the others, for c = 1 to n_items - 1.
        crossed = np.array([ordered[:low, low:].sum() for low in range(1, len(order))])
        most = _HARDLY_EVER * max(ordered.sum() / max(1, len(order)), 1e-300)
        least = np.argsort(crossed, kind="stable")[:_MOST_CUTS]
        found += [Cut(component, order[: low + 1]) for low in least if crossed[low] <= most]
    return found


def _moved_down(point: Point, cut: Cut, by: float) -> Point:
    log_worths = point.log_worths.copy()
    log_worths[cut.component, cut.items] -= by
    return point._replace(log_worths=log_worths)
