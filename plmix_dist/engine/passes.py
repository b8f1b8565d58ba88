"""Passes over the data: an aggregation run over all leaves, summed by the canonical tree, then finished.

Two runners with one meaning and the same bits. `ThreadedPasses` works in this process. `DistributedPasses` makes one
graph a pass - tasks that sum many leaves each, tree sums, and the finishing steps - so that a pass is one round trip.
"""

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
from plmix_dist.engine.plan import leaf_ranges
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

Residency = Literal["auto", "memory", "store"]

# Nodes of this many tasks are joined by one task; more would make one worker wait for too many others.
_TREE_FAN_IN = 16
# Parameters travel with each task up to this many bytes a pass: a task for them would cost every pass 10 ms.
_MOST_BYTES_WITH_TASKS = 8 << 20
# With residency "auto", blocks are kept in memory when they take no more than this share of it.
_MEMORY_SHARE = 0.4
_LITTLE_WORK = 100_000


class Passes(Protocol):
    """Runs passes over one set of rankings, and counts them."""

    n_passes: int

    def run(self, aggregation: Aggregation, params: Any, finish: Sequence[Finish]) -> PassResult:
        """Sum over all leaves, then call each named finishing function with the sum; their results in order."""
        ...

    def gather(self, name: str, function: LeafFunction) -> list[Any]:
        """What `function(leaf, block)` gives for each leaf, in order: for what cannot be summed, such as samples."""
        ...

    def release(self) -> None:
        """Let go of rows that are kept in memory; a later pass loads them again."""
        ...


class Summed(NamedTuple):
    """Nodes of the tree that some tasks have summed, and the seconds that took: the slowest task's, and joining."""

    nodes: Nodes
    pass_seconds: float
    reduce_seconds: float


class PassResult(NamedTuple):
    """Results of the finishing functions, and where the seconds went."""

    results: list[Any]
    pass_seconds: float
    reduce_seconds: float


def sum_leaves(
    blocks: Iterable[RankingBlock], first_leaf: int, n_leaves: int, aggregation: Aggregation, params: Any
) -> Summed:
    """Statistics of a run of leaves, joined as far as the tree allows. This is the work of one task."""
    begun = time.perf_counter()
    prepared = aggregation.prepare(params)
    tree = TreeSum(n_leaves)
    for leaf, block in enumerate(blocks, start=first_leaf):
        try:
            tree.add_leaf(leaf, aggregation.leaf(block, prepared))
        except NonFiniteError as error:
            raise NonFiniteError(f"leaf {leaf} ({block.n_rankings} rankings): {error}") from None
    return Summed(tree.nodes, time.perf_counter() - begun, 0.0)


def map_leaves(blocks: Iterable[RankingBlock], first_leaf: int, function: LeafFunction) -> list[Any]:
    """What a function gives for each of a run of leaves."""
    return [function(leaf, block) for leaf, block in enumerate(blocks, start=first_leaf)]


def join(n_leaves: int, parts: Sequence[Summed]) -> Summed:
    """The sums of several tasks, siblings joined."""
    begun = time.perf_counter()
    nodes = merge_nodes(n_leaves, (part.nodes for part in parts))
    slowest = max(part.pass_seconds for part in parts)
    earlier = max(part.reduce_seconds for part in parts)
    return Summed(nodes, slowest, earlier + time.perf_counter() - begun)


class ThreadedPasses:
    """Passes in threads of this process."""

    def __init__(
        self, source: LeafSource, *, residency: Residency = "auto", n_threads: int | None = None
    ) -> None:
        self.source = source
        self.n_threads = n_threads or os.cpu_count() or 1
        self.in_memory = residency == "memory" or (residency == "auto" and _fits(source, _free_memory()))
        # Waking threads takes longer than a little work, unless it is asked for.
        n_tasks = 1 if n_threads is None and source.n_entries <= _LITTLE_WORK else self.n_threads
        self._ranges = leaf_ranges(source.n_leaves, n_tasks)
        self._kept: dict[int, list[RankingBlock]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self.n_passes = 0

    def run(self, aggregation: Aggregation, params: Any, finish: Sequence[Finish]) -> PassResult:
        """One pass."""
        self.n_passes += 1
        parts = self._over_ranges(aggregation.name, partial(self._sum_range, aggregation, params))
        summed = join(self.source.n_leaves, parts)
        results = [_finish(self.source.n_leaves, summed, function) for _, function in finish]
        return PassResult(results, summed.pass_seconds, summed.reduce_seconds)

    def gather(self, name: str, function: LeafFunction) -> list[Any]:
        """What a function gives for each leaf."""
        self.n_passes += 1

        def work(number: int) -> list[Any]:
            return map_leaves(self._blocks(number), self._ranges[number][0], function)

        return [value for values in self._over_ranges(name, work) for value in values]

    def release(self) -> None:
        """Let go of the blocks that are kept, and of the threads."""
        self._kept.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _over_ranges(self, name: str, work: Callable[[int], Any]) -> list[Any]:
        if len(self._ranges) == 1:
            return [work(0)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix=name)
        return list(self._pool.map(work, range(len(self._ranges))))

    def _sum_range(self, aggregation: Aggregation, params: Any, number: int) -> Summed:
        start = self._ranges[number][0]
        return sum_leaves(self._blocks(number), start, self.source.n_leaves, aggregation, params)

    def _blocks(self, number: int) -> Iterable[RankingBlock]:
        if number in self._kept:
            return self._kept[number]
        blocks = self.source.iter_leaves(*self._ranges[number], labels=False)
        if not self.in_memory:
            return blocks
        kept = self._kept[number] = list(blocks)
        return kept


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


def make_passes(source: LeafSource, client: Client | None, residency: Residency) -> Passes:
    """The runner for a client, or for this process where there is none."""
    if residency not in ("auto", "memory", "store"):
        raise SettingsError(f"residency must be auto, memory or store, but is {residency!r}")
    if client is None:
        return ThreadedPasses(source, residency=residency)
    return DistributedPasses(source, client, residency=residency)


def _fits(source: LeafSource, memory: float) -> bool:
    return source.decoded_bytes <= _MEMORY_SHARE * memory


def _free_memory() -> float:
    import psutil

    return float(psutil.virtual_memory().available)
