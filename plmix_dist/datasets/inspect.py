"""verify() finds all damage of a store, info() lists what is in it."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.cluster.executor import run_all
from plmix_dist.passes.tree import add_statistics
from plmix_dist.rankings.checks import n_without_information
from plmix_dist.rankings.comparison import Comparisons, add_comparisons, comparison_graph, comparisons
from plmix_dist.rankings.identifiability import OrderedLengths, identifiability, ordered_lengths
from plmix_dist.store import RankingStore, open_store, verify_partition, verify_top

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from plmix_dist.cluster.clients import ClientLike
    from plmix_dist.cluster.executor import Executor
    from plmix_dist.rankings.comparison import ComparisonGraph
    from plmix_dist.store import Damage

    Progress = Callable[[int, int], None]


def verify(
    store: RankingStore | str | os.PathLike[str],
    *,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[Damage]:
    """Read, hash, decode and count everything. An empty list means that there is no damage.

    `client` is as in PlackettLuceMixture.fit.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=50, n_items=4)
    >>> verify(store)
    []
    """
    opened = _opened(store)
    numbers = list(range(opened.n_partitions))
    found = run_all(executor or client, partial(verify_partition, opened), numbers, "verify", progress)
    return [*verify_top(opened), *(damage for part in found for damage in part)]


def info(
    store: RankingStore | str | os.PathLike[str],
    *,
    graph: bool = True,
    client: ClientLike = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What is in a store: sizes, items, history and, with `graph`, what all rows show.

    With `graph`, all rows are read for the kinds of rankings, the comparison graph, and "identifiability": the largest
    numbers of components that the rankings identify, for all parameters ("certain") and for almost all ("generic").

    `client` is as in PlackettLuceMixture.fit.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=50, n_items=4)
    >>> found = info(store)
    >>> found["kinds"]["full"], found["comparison_graph"]["n_groups"], found["identifiability"]["certain"]
    (50, 1, 2)
    """
    opened = _opened(store)
    manifest = opened.manifest
    sizes = [size for number in range(opened.n_partitions) for size, _ in opened.index(number).files.values()]
    report: dict[str, Any] = {
        "location": opened.location.url,
        "format": f"{manifest.format} {manifest.version}",
        "generation": manifest.generation,
        "n_rankings": opened.n_rankings,
        "n_items": opened.n_items,
        "total_weight": opened.total_weight,
        "n_partitions": opened.n_partitions,
        "n_leaves": opened.n_leaves,
        "leaf_rows": manifest.leaf_rows,
        "n_bytes": sum(sizes),
        "item_names": list(opened.item_names),
        "history": manifest.history,
    }
    if graph:
        numbers = list(range(opened.n_partitions))
        parts = run_all(executor or client, partial(_survey_partition, opened), numbers, "survey", progress)
        report["n_without_information"] = sum(part[3] for part in parts)
        report["kinds"] = {kind: sum(part[0][kind] for part in parts) for kind in parts[0][0]}
        report["comparison_graph"] = _described(
            comparison_graph(add_comparisons(part[1] for part in parts)), opened.item_names
        )
        report["identifiability"] = _identified(reduce(add_statistics, (part[2] for part in parts)), opened)
    return report


def _identified(lengths: OrderedLengths, store: RankingStore) -> dict[str, Any]:
    """How many components the rankings identify, and why no more. There are never more than rankings."""
    found = identifiability(lengths, store.n_items)
    certain, generic = (min(most, store.n_rankings) for most in (found.certain, found.generic))
    return {
        "certain": certain,
        "generic": generic,
        "counts_like_items": found.counts_like,
        "rankings": found.described,
        "why_no_more": found.reason(generic + 1) if generic == found.generic else "there are no more rankings",
    }


def _survey_partition(store: RankingStore, number: int) -> tuple[dict[str, int], Comparisons, OrderedLengths, int]:
    """Rows of each kind in one partition, its comparisons, what its rows order, and how many say nothing."""
    n_silent = 0
    kinds = dict.fromkeys(("full", "top-k", "subset", "slate", "tied", "weighted", "grouped"), 0)
    empty = np.zeros(0, np.int64)
    n_items = store.n_items
    found = [Comparisons(n_items, empty, np.zeros(n_items, np.int64), empty, empty, np.zeros(n_items, np.bool_))]
    lengths = []
    for block in store.partition(number):
        full, slate = block.n_ordered == block.n_items, block.n_ordered < block.n_listed
        kinds["full"] += int(full.sum())
        kinds["top-k"] += int(block.below.sum())
        kinds["slate"] += int(slate.sum())
        kinds["subset"] += int((~full & ~slate & ~block.below).sum())
        kinds["weighted"] += 0 if block.weights is None else int((block.weights != 1).sum())
        kinds["grouped"] += 0 if block.groups is None else block.n_rankings
        if block.tied is not None:
            kinds["tied"] += int(np.maximum.reduceat(block.tied, block.offsets[:-1]).sum())
        n_silent += n_without_information(block)
        found.append(comparisons(block))
        lengths.append(ordered_lengths(block))
    return kinds, add_comparisons(found), reduce(add_statistics, lengths), n_silent


def _described(graph: ComparisonGraph, names: tuple[str, ...]) -> dict[str, Any]:
    outside = np.flatnonzero(graph.group > 0)
    return {
        "n_groups": graph.n_groups,
        "largest_group": int((graph.group == 0).sum()),
        "outside_largest_group": [names[item] for item in outside],
        "never_offered": [names[item] for item in graph.never_offered],
        "never_above_another": [names[item] for item in graph.never_above],
        "never_below_another": [names[item] for item in graph.never_below],
    }


def _opened(store: RankingStore | str | os.PathLike[str]) -> RankingStore:
    return store if isinstance(store, RankingStore) else open_store(store)
