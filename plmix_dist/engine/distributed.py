"""Passes on a Dask cluster, one graph each."""


from __future__ import annotations

import itertools
import os
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from plmix_dist.engine.graph import Graph, preferring
from plmix_dist.engine.leaf_ranges import leaf_ranges
from plmix_dist.engine.tree import TreeSum, merge_nodes
from plmix_dist.errors import ClusterError, NonFiniteError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from distributed import Client

    from plmix_dist.engine.aggregation import Aggregation, LeafSource
    from plmix_dist.engine.tree import Nodes
    from plmix_dist.rankings import RankingBlock

    Finish = tuple[str, Callable[[Any], Any]]
    LeafFunction = Callable[[int, RankingBlock], Any]



class DistributedPasses:
    """Passes on a Dask cluster, one graph each."""

    def __init__(
        self, source: LeafSource, client: Client, *, residency: Residency = "auto", n_tasks: int | None = None
    ) -> None:
        self.source = source
        self.client = client
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise ClusterError("the cluster has no workers; start some with `dask worker ADDRESS`")
        threads = [address for address, worker in workers.items() for _ in range(worker["nthreads"])]
        memory = sum(worker["memory_limit"] or _free_memory() for worker in workers.values())  # 0: no limit
        self.in_memory = residency == "memory" or (residency == "auto" and _fits(source, memory))
        self._ranges = leaf_ranges(source.n_leaves, n_tasks or len(threads))
        # Neighbouring ranges go to one worker: their sums then meet, and are joined, before they travel.
        self._homes = [
            threads[number * len(threads) // len(self._ranges)] for number in range(len(self._ranges))
        ]
        self._blocks: list[Any] | None = None
        self._latest: Any = None
        self._name = uuid.uuid4().hex[:8]
        self.n_passes = 0

    def run(self, aggregation: Aggregation, params: Any, finish: Sequence[Finish]) -> PassResult:
        """One pass: one graph, one round trip."""
        result: PassResult = self._compute(aggregation.name, self._graph(aggregation, params, finish))
        return result

    def gather(self, name: str, function: LeafFunction) -> list[Any]:
        """What a function gives for each leaf, as one list."""
        stamp = self._next_stamp()
        graph = Graph()
        parts = [
            graph.call(f"{name}-{stamp}-{number}", map_leaves, blocks, start, function)
            for number, ((start, _), blocks) in enumerate(self._ranges_and_blocks(graph, stamp))
        ]
        last = graph.call(f"gather-{stamp}", list, graph.together(parts))
        gathered = self._compute(name, graph.lazy(last.key))
        self._latest = None  # it may be large
        return [value for values in gathered for value in values]

    def release(self) -> None:
        """Let go of the blocks that workers hold."""
        self._blocks = self._latest = None

    def _compute(self, name: str, graph: Any) -> Any:
        from distributed import KilledWorker

        try:
            future = self.client.compute(graph, optimize_graph=False)
            # A client sends every 10 ms at most. Letting go of a result is a message too: were the last one let go
            # before, this graph would have to wait for its turn.
            self._latest = future
            return future.result()
        except KilledWorker as error:
            raise ClusterError(
                f"a task of the pass {name!r} killed its workers, most likely for want of memory "
                f'({error}); give the workers more memory, or choose residency="store"'
            ) from error

    def _next_stamp(self) -> str:
        self.n_passes += 1
        return f"{self._name}-{self.n_passes}"

    def _graph(self, aggregation: Aggregation, params: Any, finish: Sequence[Finish]) -> Any:
        stamp = self._next_stamp()
        n_leaves = self.source.n_leaves
        graph = Graph()
        how = self._handed_to_all(graph, stamp, aggregation, params)
        parts = [
            graph.call(f"{aggregation.name}-{stamp}-{number}", sum_leaves, blocks, start, n_leaves, *how)
            for number, ((start, _), blocks) in enumerate(self._ranges_and_blocks(graph, stamp))
        ]
        total = self._joined(graph, stamp, parts)
        finished = [
            graph.call(f"{name}-{stamp}", _finish, n_leaves, total, function) for name, function in finish
        ]
        last = graph.call(f"collect-{stamp}", _collect, graph.together(finished), total)
        return graph.lazy(last.key)

    def _handed_to_all(self, graph: Graph, stamp: str, aggregation: Aggregation, params: Any) -> list[Any]:
        """The aggregation and its parameters: part of every task, or tasks of their own where they are large."""
        from distributed.protocol.pickle import dumps

        if len(dumps((aggregation, params))) * len(self._ranges) <= _MOST_BYTES_WITH_TASKS:
            return [aggregation, params]
        return [
            graph.value(f"aggregation-{stamp}", aggregation),
            graph.value(f"parameters-{stamp}", params),
        ]

    def _joined(self, graph: Graph, stamp: str, parts: list[Any]) -> Any:
        """The sum of all parts: first, where blocks have a home, of those on one worker, then level by level."""
        if self.in_memory and max(Counter(self._homes).values()) > 1:
            groups = [
                [part for _, part in neighbours]
                for _, neighbours in itertools.groupby(
                    zip(self._homes, parts, strict=True), key=lambda pair: pair[0]
                )
            ]
        else:
            groups = _in_groups(parts)
        level = 0
        while len(parts) > 1:
            parts = [
                graph.call(
                    f"tree-sum-{stamp}-{level}-{number}", join, self.source.n_leaves, graph.together(group)
                )
                for number, group in enumerate(groups)
            ]
            groups = _in_groups(parts)
            level += 1
        return parts[0]

    def _ranges_and_blocks(self, graph: Graph, stamp: str) -> list[tuple[tuple[int, int], Any]]:
        """Each range with its blocks: kept on workers and recomputed if one is lost, or read again every pass."""
        if not self.in_memory and not hasattr(self.source.source, "rows"):
            return [
                ((start, stop), LeafReader(self.source.only(start, stop), start, stop))
                for start, stop in self._ranges
            ]
        loaded = self._kept_blocks(stamp) if self.in_memory else self._loading(stamp)
        return list(zip(self._ranges, map(graph.include, loaded), strict=True))

    def _kept_blocks(self, stamp: str) -> list[Any]:
        if self._blocks is None:
            loading = self._loading(stamp)
            homes = {task.key: home for task, home in zip(loading, self._homes, strict=True)}
            self._blocks = self.client.compute(preferring(loading, homes), optimize_graph=False)
        return self._blocks

    def _loading(self, stamp: str) -> list[Any]:
        from dask.delayed import delayed

        load = delayed(load_leaves, pure=False, traverse=False)
        return [
            load(
                self.source.only(start, stop), start, stop, *self._lazy_rows(start, stop),
                dask_key_name=f"load-{stamp}-{number}",
            )
            for number, (start, stop) in enumerate(self._ranges)
        ]  # fmt: skip

    def _lazy_rows(self, start: int, stop: int) -> list[Any]:
        """The rows of a Dask array, to be computed by the cluster before the task that needs them."""
        lazy = getattr(self.source.source, "rows", None)
        return [] if lazy is None else [lazy(start, stop)]


class LeafReader:
    """Leaves that are read when they are asked for: what travels to a worker in place of the rows."""

    def __init__(self, source: LeafSource, start: int, stop: int) -> None:
        self.source = source
        self.start = start
        self.stop = stop

    def __iter__(self) -> Any:
        return self.source.iter_leaves(self.start, self.stop, labels=False)


def load_leaves(source: LeafSource, start: int, stop: int, *rows: Any) -> list[RankingBlock]:
    """The blocks of a run of leaves, read or made from rows that were computed, to be kept by their worker."""
    if rows:
        return source.usable_leaves(source.source.leaves_of(rows[0], start, stop), start)
    return list(source.iter_leaves(start, stop, labels=False))


def _finish(n_leaves: int, summed: Summed, function: Callable[[Any], Any]) -> Any:
    tree = TreeSum(n_leaves)
    tree.add_nodes(summed.nodes)
    return function(tree.root())


def _in_groups(parts: list[Any]) -> list[list[Any]]:
    return [parts[first : first + _TREE_FAN_IN] for first in range(0, len(parts), _TREE_FAN_IN)]


def _collect(results: list[Any], summed: Summed) -> PassResult:
    return PassResult(list(results), summed.pass_seconds, summed.reduce_seconds)


