"""Whether a maximum-likelihood estimate exists: checked on the data before a fit, and on each component at its end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from plmix_dist.errors import NotIdentifiableWarning, NotIdentifiedError, SettingsError
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import Prepared, pairwise_wins, row_posteriors
from plmix_dist.passes import Aggregation, Finish, Passes, Request, ask
from plmix_dist.rankings import Floats, RankingBlock, RowPart, extend_ties, rows_of_part, unorder_last_ties
from plmix_dist.rankings.comparison import Comparisons, add_comparisons, comparison_graph, comparisons
from plmix_dist.rankings.groups import merge_equal_rows
from plmix_dist.rankings.identifiability import identifiability, ordered_lengths

# Numbers that are summed for the check at the end; beyond, it is left out.
_MOST_NUMBERS = 1 << 26
# A cut is examined if it is crossed by less than this share of the weight of a component's rankings.
_HARDLY_EVER = 1e-3
_MOST_CUTS = 4
# How far log-worths are moved down: odds of one to a billion, and farther.
_FAR_DOWN = (20.0, 40.0)
_ROUNDING = 1e-12


def _leaf_comparisons(part: RowPart | None, number: int, block: RankingBlock, ties_compare: bool) -> Comparisons:
    # Ties that are left in a fit are summed over, unless they are outcomes: extensions have none.
    return comparisons(rows_of_part(part, number, block), ties_compare=ties_compare)


def comparisons_request(part: RowPart | None = None, *, ties_compare: bool = False) -> Request:
    """A pass for the graph of all comparisons, in all rows or a part of them."""
    compared = Aggregation("comparisons", leaf=partial(_leaf_comparisons, part), combine=add_comparisons)
    return Request(compared, ties_compare, (Finish("graph", comparison_graph),))


def check_identified(passes: Passes, item_names: Sequence[str], *, ties_compare: bool = False) -> None:
    """Without a prior: an error that names items, where the data alone show that no estimate exists."""
    graph = ask(passes, comparisons_request(ties_compare=ties_compare))
    if graph.n_groups == 1:
        return
    found = {"never on offer": graph.never_offered, "never above another item": graph.never_above}
    found["never below another item"] = graph.never_below
    reasons = [f"{what}: {_first_names(item_names, items)}" for what, items in found.items() if len(items)]
    if not reasons:
        outside = [item_names[item] for item in np.flatnonzero(graph.group > 0)[:10]]
        reasons = [f"not compared both ways with the rest: {', '.join(outside)}"]
    raise NotIdentifiedError(
        f"no maximum-likelihood estimate exists: the items fall into {graph.n_groups} groups that are not compared "
        f"both ways ({'; '.join(reasons)}). Choose alpha > 0, or leave these items out"
    )


def _leaf_beaten(_number: int, block: RankingBlock, params: Prepared) -> Floats:
    """(n_components, n_items, n_items): entry [k, i, j] is the weight of rankings of component k with i before j."""
    extended = extend_ties(block)
    posteriors = row_posteriors(block, params)[1]
    return pairwise_wins(extended.block, posteriors[extended.row]) - _within_ties(unorder_last_ties(block), posteriors)


def _within_ties(block: RankingBlock, posteriors: Floats) -> Floats:
    """(n_components, n_items, n_items): what wins over tied items add: in half of the extensions, each over each.

    They are not comparisons: the sum over all orders does not depend on which of the tied items is above.
    """
    wins = np.zeros((posteriors.shape[1], block.n_items, block.n_items))
    if block.tied is None:
        return wins
    place = np.cumsum(~block.tied) - 1
    tied = np.flatnonzero(np.bincount(place)[place] > 1)
    items = block.items[tied].astype(np.int64)
    by_place = csr_array((np.ones(len(tied)), (place[tied], items)), shape=(int(place[-1]) + 1, block.n_items))
    row = block.row_of_item()[np.flatnonzero(~block.tied)]
    for component, posterior in enumerate(posteriors.T):
        weights = 0.5 * (block.row_weights * posterior)[row]
        wins[component] = (by_place.T @ by_place.multiply(weights[:, None])).toarray()
        np.fill_diagonal(wins[component], 0.0)
    return wins


def _leaf_score(_number: int, block: RankingBlock, params: Prepared) -> float:
    return float(block.row_weights @ row_posteriors(block, params)[0])


_BEATEN = Aggregation("beaten", leaf=_leaf_beaten, prepare=Point.prepared)
_LIKELIHOOD = Aggregation("log-likelihood", leaf=_leaf_score, prepare=Point.prepared)


class _Cut(NamedTuple):
    """The lowest items of a component, which its rankings hardly ever place above the others."""

    component: int
    items: NDArray[np.int64]


def why_no_maximum(passes: Passes, point: Point, item_names: Sequence[str]) -> NotIdentifiedError | None:
    """Without a prior, at the end of a fit: an error if log-worths can diverge without lowering the likelihood.

    A component may have no maximum although the data as a whole have one: all its rankings place some items below the
    others. Such items can be moved down without end. Where the rankings of a component hardly ever place its lowest
    items above others, these items are moved down by a large step, and by a larger one. If the likelihood does not
    fall, it has no maximum. `point` is where a fit has converged: elsewhere a large step may simply be a good one.
    """
    n_components, n_items = point.log_worths.shape
    if n_components * n_items**2 > _MOST_NUMBERS:
        return None  # the limit on the range of log-worths is all that is checked
    cuts = _cuts(point, ask(passes, Request(_BEATEN, point)))
    if not cuts:
        return None
    points = [point, *(_moved_down(point, cut, by) for cut in cuts for by in _FAR_DOWN)]
    here, *there = (each.get()[0] for each in passes.run([Request(_LIKELIHOOD, each) for each in points]))
    slack = _ROUNDING * abs(here)
    for cut, far, farther in zip(cuts, there[::2], there[1::2], strict=True):
        if far >= here - slack and farther >= far - slack:
            return NotIdentifiedError(
                f"component {cut.component} has no maximum-likelihood estimate: its log-worths of "
                f"{_first_names(item_names, cut.items)} can fall without end and never lower the likelihood. Choose "
                "alpha > 0, or fewer components"
            )
    return None


def _first_names(item_names: Sequence[str], items: NDArray[np.int64]) -> str:
    return ", ".join(item_names[item] for item in items[:10]) + (", ..." if len(items) > 10 else "")


def _cuts(point: Point, wins: Floats) -> list[_Cut]:
    """For each component the few cuts of its items by worth that its rankings cross least."""
    found = []
    for component, (log_worths, own) in enumerate(zip(point.log_worths, wins, strict=True)):
        order = np.argsort(log_worths, kind="stable")
        ordered = own[np.ix_(order, order)]
        # How often one of the c lowest items comes before one of the others, for c = 1 to n_items - 1.
        crossed = np.array([ordered[:low, low:].sum() for low in range(1, len(order))])
        most = _HARDLY_EVER * max(ordered.sum() / max(1, len(order)), 1e-300)
        least = np.argsort(crossed, kind="stable")[:_MOST_CUTS]
        found += [_Cut(component, order[: low + 1]) for low in least if crossed[low] <= most]
    return found


def _moved_down(point: Point, cut: _Cut, by: float) -> Point:
    log_worths = point.log_worths.copy()
    log_worths[cut.component, cut.items] -= by
    return point._replace(log_worths=log_worths)


# Whether the data support the number of components: refused where they cannot, a warning where it is not certain.

# This many rows per component are searched for distinct rankings first; all of them only if these are too few.
_ROWS_PER_COMPONENT = 64


def check_supported(sample: RankingBlock, n_components: int, *, all_rows: bool) -> list[Warning]:
    """Refuse more components than distinct rankings; a warning of more components than the rankings identify.

    `sample` are rows drawn at random. Nothing is refused unless they are `all_rows` of the data.
    """
    if n_components == 1:
        return []
    if all_rows:
        refuse_too_many(sample.replace(groups=None), n_components)
    found = identifiability(ordered_lengths(sample), sample.n_items)
    status = found.status(n_components)
    if status in ("identifiable", "generic"):
        return []
    are = "are not" if status == "not identifiable" else "may not be"
    words = (
        f"{n_components} components {are} identifiable: {found.reason(n_components)}. Other components "
        f"may give the same probabilities. Predictions are not affected, but do not read much into single components; "
        f"at most {found.generic} are known to be identifiable"
    )
    if found.at_most_like == 2 and found.per_person == 1:
        words += ". Rankings of three or more items, or three votes of each person, identify what single pairs cannot"
    return [NotIdentifiableWarning(words)]


def refuse_too_many(rows: RankingBlock, n_components: int) -> None:
    """An error if there are more components than distinct rankings; `rows` have no groups."""
    for most in (_ROWS_PER_COMPONENT * n_components, rows.n_rankings):
        n_distinct = merge_equal_rows(rows[:most]).n_rankings
        if n_distinct >= n_components:
            return
    raise SettingsError(
        f"there are {n_components} components, but only {n_distinct} distinct ranking{'s'[: n_distinct != 1]}: "
        f"choose n_components <= {n_distinct} (--components in the shell)"
    )
