"""The comparison graph: who was ever placed above whom, and whether a maximum-likelihood estimate can exist.

An edge leads from winner to loser. Neighbouring places are enough, since being above is passed on. A top-k row
places its last item above all items but the listed ones; such edges are kept as the sets they leave out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from plmix_dist.rankings.block import RankingBlock


@dataclass(frozen=True)
class Comparisons:
    """What a set of rows says about who was above whom; these add up over blocks.

    Parameters
    ----------
    pairs : (n_pairs,)
        Distinct `winner * n_items + loser`, for places next to each other.
    rows_ending : (n_items,)
        How many top-k rows have each item last.
    listed : (n_listed,), listed_rows : (n_listed,)
        For pairs `last * n_items + item`: in how many of those rows the item is listed.
    offered : (n_items,)
        Whether each item was ever listed, or on offer without being listed.
    """

    n_items: int
    pairs: NDArray[np.int64]
    rows_ending: NDArray[np.int64]
    listed: NDArray[np.int64]
    listed_rows: NDArray[np.int64]
    offered: NDArray[np.bool_]


def comparisons(block: RankingBlock) -> Comparisons:
    """What the rows of a block say."""
    block = unorder_last_ties(block)
    n_items = block.n_items
    row, place = block.row_of_item(), block.place_of_item()
    items = block.items.astype(np.int64)
    ordered = place < block.n_ordered[row]
    follows = ordered & (place > 0)
    before = np.concatenate([[0], items[:-1]]) if len(items) else items
    pairs = [before[follows] * n_items + items[follows]]
    if block.tied is not None:  # tied items were each above the other as often as not
        pairs.append(items[block.tied] * n_items + before[block.tied])
    has_order = block.n_ordered > 0
    last = np.where(has_order, items[np.maximum(block.offsets[:-1] + block.n_ordered - 1, 0)], -1)
    loses = ~ordered & has_order[row]
    pairs.append(last[row[loses]] * n_items + items[loses])
    topk = block.below & has_order
    listed, listed_rows = np.unique(last[row[topk[row]]] * n_items + items[topk[row]], return_counts=True)
    return Comparisons(
        n_items=n_items,
        pairs=np.unique(np.concatenate(pairs)),
        rows_ending=np.bincount(last[topk], minlength=n_items),
        listed=listed,
        listed_rows=listed_rows,
        offered=(np.bincount(items, minlength=n_items) > 0) | bool(block.below.any()),
    )


def add_comparisons(parts: Iterable[Comparisons]) -> Comparisons:
    """What several blocks say together."""
    all_parts = list(parts)
    listed, slot = np.unique(np.concatenate([part.listed for part in all_parts]), return_inverse=True)
    counts = np.bincount(
        slot, np.concatenate([part.listed_rows for part in all_parts]), minlength=len(listed)
    )
    return Comparisons(
        n_items=all_parts[0].n_items,
        pairs=np.unique(np.concatenate([part.pairs for part in all_parts])),
        rows_ending=np.sum([part.rows_ending for part in all_parts], axis=0),
        listed=listed,
        listed_rows=counts.astype(np.int64),
        offered=np.any([part.offered for part in all_parts], axis=0),
    )


@dataclass(frozen=True)
class ComparisonGraph:
    """What a comparison graph means for an estimate.

    Parameters
    ----------
    group : (n_items,)
        The strongly connected group of each item; numbered by size, the largest is 0.
    never_offered, never_above, never_below : item numbers
        Items that were on offer nowhere, above no other item, below no other item.
    """

    group: NDArray[np.int64]
    never_offered: NDArray[np.int64]
    never_above: NDArray[np.int64]
    never_below: NDArray[np.int64]

    @property
    def n_groups(self) -> int:
        """The number of strongly connected groups; 1 means that an estimate exists without a prior."""
        return int(self.group.max(initial=-1)) + 1


def comparison_graph(found: Comparisons) -> ComparisonGraph:
    """Strongly connected groups, and the items that hinder them from being one.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> graph = comparison_graph(comparisons(RankingBlock.from_array([[0, 1, 2], [1, 0, 2]])))
    >>> graph.n_groups, graph.never_above.tolist()
    (2, [2])
    """
    n_items = found.n_items
    winners, losers = np.divmod(found.pairs, n_items)
    ending = np.flatnonzero(found.rows_ending)
    spared_by, spared = _always_listed(found)
    # Every item but the spared ones lies below the last item of some top-k row.
    n_sparing = np.bincount(spared, minlength=n_items)
    is_below = (np.bincount(losers, minlength=n_items) > 0) | (n_sparing < len(ending))
    n_spared = np.bincount(spared_by, minlength=n_items)
    is_above = (np.bincount(winners, minlength=n_items) > 0) | (
        (found.rows_ending > 0) & (n_spared < n_items)
    )
    sources, targets = _edges_to_all_but(ending, spared_by, spared, n_items)
    sources, targets = np.concatenate([winners, sources]), np.concatenate([losers, targets])
    n_nodes = max(n_items, int(targets.max(initial=0)) + 1, int(sources.max(initial=0)) + 1)
    graph = coo_array((np.ones(len(sources), np.int8), (sources, targets)), shape=(n_nodes, n_nodes))
    labels = connected_components(graph.tocsr(), connection="strong")[1][:n_items]
    return ComparisonGraph(
        group=_by_size(labels),
        never_offered=np.flatnonzero(~found.offered),
        never_above=np.flatnonzero(found.offered & ~is_above),
        never_below=np.flatnonzero(found.offered & ~is_below),
    )


def _always_listed(found: Comparisons) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs (last item, item listed in every top-k row that ends with it)."""
    last, item = np.divmod(found.listed, found.n_items)
    always = found.listed_rows == found.rows_ending[last]
    return last[always], item[always]


def _edges_to_all_but(
    ending: NDArray[np.int64], spared_by: NDArray[np.int64], spared: NDArray[np.int64], n_items: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges from each of `ending` to all items but those it spares, by way of a binary tree over the items.

    Node n_items + t of the tree stands for a run of items and leads to its two halves, so that "all but a few" takes
    a few dozen edges instead of n_items.
    """
    if not len(ending):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    width = 1 << max(1, (n_items - 1).bit_length())
    # Tree node t >= 1 in heap order; leaves are nodes width + item, and these are the items themselves.
    inner = np.arange(1, width)
    sources = [np.repeat(_node(inner, width, n_items), 2)]
    targets = [_node(np.stack([2 * inner, 2 * inner + 1], axis=1).ravel(), width, n_items)]
    order = np.argsort(spared_by * n_items + spared)
    first = np.searchsorted(spared_by[order], ending)
    last = np.searchsorted(spared_by[order], ending, side="right")
    for item, start, stop in zip(ending.tolist(), first.tolist(), last.tolist(), strict=True):
        nodes = _runs_between([-1, *spared[order[start:stop]].tolist(), n_items], width)
        targets.append(_node(np.array(nodes, np.int64), width, n_items))
        sources.append(np.full(len(nodes), item))
    return np.concatenate(sources), np.concatenate(targets)


def _node(tree_node: NDArray[np.int64], width: int, n_items: int) -> NDArray[np.int64]:
    """The graph node of a tree node: items for leaves, numbers above them for runs and for leaves beyond the end."""
    item = tree_node - width
    return np.where((item >= 0) & (item < n_items), item, n_items + tree_node)


def _runs_between(excluded: list[int], width: int) -> list[int]:
    """Tree nodes that cover exactly the items strictly between neighbours of a sorted list."""
    nodes = []
    for left, right in itertools.pairwise(excluded):
        low, high = left + 1 + width, right + width
        while low < high:
            if low & 1:
                nodes.append(low)
                low += 1
            if high & 1:
                high -= 1
                nodes.append(high)
            low, high = low >> 1, high >> 1
    return nodes


def _by_size(labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Group labels renumbered: the largest group is 0, equal ones in the order of their first item."""
    _, first, slot, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[slot]
