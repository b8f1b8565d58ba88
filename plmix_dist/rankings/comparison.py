"""The comparison graph: which items were placed above which, and whether a maximum-likelihood estimate exists.

An edge leads from winner to loser. Edges between neighbouring places are enough, because paths connect the rest.
A top-k row places its last item above all unlisted items. Such edges are stored by the items they leave out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.ties import unorder_last_ties


@dataclass(frozen=True)
class Comparisons:
    """Which items a set of rows places above which. `add_comparisons` joins those of several blocks."""

    n_items: int
    pairs: NDArray[np.int64]  # (n_pairs,): distinct `winner * n_items + loser` of neighbouring places
    # (n_items,): for each item, the number of top-k rows in which it is the last listed item
    rows_ending: NDArray[np.int64]
    # (n_listed,), listed_rows : (n_listed,): Pairs `last * n_items + item`, and the number of top-k rows
    # with this last item that list this item
    listed: NDArray[np.int64]
    listed_rows: NDArray[np.int64]
    offered: NDArray[np.bool_]  # (n_items,): whether each item was ever on offer, listed or not


def comparisons(block: RankingBlock, *, ties_compare: bool = True) -> Comparisons:
    """The comparisons in the rows of a block. `ties_compare`: tied items count as above each other.

    So it is in linear extensions. If all orders are summed over, a tie does not show which of its items is above:
    its items are above what comes after them, and that is all.

    Examples
    --------
    >>> from plmix_dist.rankings.block import Ranking, RankingBlock
    >>> comparisons(RankingBlock.from_array([[1, 0]], n_items=3, unranked="below")).rows_ending.tolist()
    [1, 0, 0]
    >>> block = RankingBlock.from_rows([Ranking(((0, 1), (2,)), (), "absent", 1.0)], n_items=3)
    >>> comparisons(block, ties_compare=False).pairs.tolist()  # 0 above 2, 1 above 2
    [2, 5]
    """
    block = unorder_last_ties(block)
    if not ties_compare and block.tied is not None and block.n_rankings:
        tied_rows = np.logical_or.reduceat(block.tied, block.offsets[:-1])
        others = comparisons(block.take(np.flatnonzero(~tied_rows)).replace(tied=None))
        return add_comparisons(others, _of_places(block.take(np.flatnonzero(tied_rows))))
    n_items = block.n_items
    row, place = block.row_of_item(), block.place_of_item()
    items = block.items.astype(np.int64)
    ordered = place < block.n_ordered[row]
    follows = ordered & (place > 0)
    before = np.concatenate([[0], items[:-1]]) if len(items) else items
    pairs = [before[follows] * n_items + items[follows]]
    if block.tied is not None:  # tied items count as above each other
        pairs.append(items[block.tied] * n_items + before[block.tied])
    has_order = block.n_ordered > 0
    last = np.where(has_order, items[np.maximum(block.offsets[:-1] + block.n_ordered - 1, 0)], -1)
    loses = ~ordered & has_order[row]
    pairs.append(last[row[loses]] * n_items + items[loses])
    topk = block.below & has_order
    return _found(block, np.concatenate(pairs), last[topk], last[row[topk[row]]] * n_items + items[topk[row]])


def _found(
    block: RankingBlock, pairs: NDArray[np.int64], ending: NDArray[np.int64], listed: NDArray[np.int64]
) -> Comparisons:
    """Comparisons by pairs, the last items of top-k rows, and pairs `last * n_items + item` of what these list."""
    n_items = block.n_items
    offered = (np.bincount(block.items, minlength=n_items) > 0) | bool(block.below.any())
    rows_ending = np.bincount(ending, minlength=n_items)
    return Comparisons(n_items, np.unique(pairs), rows_ending, *np.unique(listed, return_counts=True), offered)


def _of_places(block: RankingBlock) -> Comparisons:
    """The comparisons in rows with ties, each item of a place above each of the next place."""
    assert block.tied is not None
    n_items, items = block.n_items, block.items.astype(np.int64)
    row, entry = block.row_of_item(), np.arange(len(items))
    ordered = block.place_of_item() < block.n_ordered[row]
    # Items that are on offer but not ordered are the last place of their row.
    unordered_follow = ~ordered & (block.place_of_item() > block.n_ordered[row])
    place = np.cumsum(~(block.tied | unordered_follow)) - 1
    first_place = place[block.offsets[:-1]]
    holds = csr_array((np.ones(len(items)), (place, items)), shape=(int(place[-1]) + 1, n_items))
    above = np.setdiff1d(np.arange(holds.shape[0] - 1), first_place - 1)
    winners, losers = (holds[above].T @ holds[above + 1]).nonzero()
    # Every item of the last place of a top-k row is above the unlisted items, as if each ended a row of its own.
    last_place = place[block.offsets[:-1] + np.maximum(block.n_ordered, 1) - 1]
    ends = entry[block.below[row] & (place == last_place[row])]
    n_listed = block.n_listed[row[ends]].astype(np.int64)
    whole_row = np.arange(n_listed.sum()) - np.repeat(np.cumsum(n_listed) - n_listed, n_listed)
    of_row = items[whole_row + np.repeat(block.offsets[row[ends]], n_listed)]
    listed = np.repeat(items[ends], n_listed) * n_items + of_row
    return _found(block, winners.astype(np.int64) * n_items + losers, items[ends], listed)


def add_comparisons(*parts: Comparisons) -> Comparisons:
    """The comparisons of several blocks together.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> blocks = [RankingBlock.from_array([[0, 1]]), RankingBlock.from_array([[1, 0]])]
    >>> add_comparisons(*map(comparisons, blocks)).pairs.tolist()
    [1, 2]
    """
    listed, slot = np.unique(np.concatenate([part.listed for part in parts]), return_inverse=True)
    counts = np.bincount(slot, np.concatenate([part.listed_rows for part in parts]), minlength=len(listed))
    pairs = np.unique(np.concatenate([part.pairs for part in parts]))
    rows_ending = np.sum([part.rows_ending for part in parts], axis=0)
    offered = np.any([part.offered for part in parts], axis=0)
    return Comparisons(parts[0].n_items, pairs, rows_ending, listed, counts.astype(np.int64), offered)


@dataclass(frozen=True)
class ComparisonGraph:
    """Strongly connected groups of items. An estimate without a prior exists if there is only one group."""

    # (n_items,): the group of each item. Groups are numbered by size; the largest is 0
    group: NDArray[np.int64]
    # item numbers: items that were never on offer, never above another item, never below another item
    never_offered: NDArray[np.int64]
    never_above: NDArray[np.int64]
    never_below: NDArray[np.int64]

    @property
    def n_groups(self) -> int:
        """The number of strongly connected groups. If it is 1, an estimate exists without a prior."""
        return int(self.group.max(initial=-1)) + 1


def comparison_graph(found: Comparisons) -> ComparisonGraph:
    """Strongly connected groups, and the items that are never above or never below another.

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
    last, item = np.divmod(found.listed, n_items)
    always = found.listed_rows == found.rows_ending[last]  # every top-k row with this last item lists the other one
    spared_by, spared = last[always], item[always]
    # The last item of top-k rows is above all items but those that every one of its rows lists.
    is_below = (np.bincount(losers, minlength=n_items) > 0) | (np.bincount(spared, minlength=n_items) < len(ending))
    n_spared = np.bincount(spared_by, minlength=n_items)
    is_above = (np.bincount(winners, minlength=n_items) > 0) | ((found.rows_ending > 0) & (n_spared < n_items))
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


def _edges_to_all_but(
    ending: NDArray[np.int64], spared_by: NDArray[np.int64], spared: NDArray[np.int64], n_items: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges from each of `ending` to all items but those it spares, through a binary tree over the items.

    Node n_items + t of the tree stands for a run of items and has edges to its two halves. So "all items but a few"
    takes a few dozen edges instead of n_items.
    """
    if not len(ending):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    width = 1 << max(1, (n_items - 1).bit_length())
    # Tree nodes t >= 1 in heap order; the leaves, nodes width + item, are the items themselves.
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
    """The graph node of a tree node: the item for a leaf, a number above all items for every other node."""
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
    """Group labels by size: the largest group is 0, groups of equal size follow in the order of their first item."""
    _, first, slot, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[slot]
