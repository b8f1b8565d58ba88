"""Whether a maximum-likelihood estimate exists at all: what the comparisons in the data alone can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.engine.request import Aggregation, Finish, Request
from plmix_dist.errors import NotIdentifiedError
from plmix_dist.rankings.comparison import add_comparisons, comparison_graph, comparisons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.engine.passes import Passes
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.rankings.comparison import Comparisons


def _leaf_comparisons(number: int, block: RankingBlock, params: None) -> Comparisons:
    del number, params
    return comparisons(block)


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
