"""Passes on a Dask cluster: one graph per pass, one task per worker with threads inside."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.engine.answers import answer_of, check_leaves
from plmix_dist.engine.graph import Graph
from plmix_dist.engine.job import Job
from plmix_dist.engine.leaf_ranges import leaf_ranges, shared_ranges
from plmix_dist.engine.pass_tasks import collect_task, finish_task, load_task, sum_task
from plmix_dist.engine.request import Timing
from plmix_dist.engine.residency import fits_every_worker
from plmix_dist.engine.submission import results_of, submit
from plmix_dist.engine.summing import join, places_in, wanted_leaves
from plmix_dist.engine.waiting import patience, tasks_per_worker
from plmix_dist.engine.watch import WorkersReplacedError, workers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distributed import Client

    from plmix_dist.engine.leaf_source import LeafSource
    from plmix_dist.engine.request import Answer, Request
    from plmix_dist.engine.residency import Residency

# Sums of this many tasks are joined by one task; more would make one worker wait for too many others.
TREE_FAN_IN = 16
# Parameters travel with each task up to this many bytes per pass: a task for them would cost every pass 10 ms.
_MOST_BYTES_WITH_TASKS = 8 << 20
# New workers are looked for at most every so many seconds; to ask the scheduler costs some milliseconds.
_LOOK_SECONDS = 2.0
# An adaptive cluster that began without workers adds some if tasks wait; with one task per worker none would.
_TASKS_TO_GROW = 2


class Part(NamedTuple):
    """A run of leaves that one task goes through, and the worker that should do so."""

    number: int
    start: int
    stop: int
    home: str


class DistributedPasses:
    """Runs passes over one source of leaves on a Dask cluster.

    Parameters
    ----------
    source
        The leaves.
    client
        The client of the cluster.
    residency
        Whether workers keep blocks in memory from pass to pass. With "auto" they do if every worker has room for its
        part.
    n_tasks
        The number of tasks over leaves; by default one per worker, each in proportion to the worker's threads
        (`plmix.tasks-per-worker` of Dask's configuration).
    """

    def __init__(
        self, source: LeafSource, client: Client, *, residency: Residency = "auto", n_tasks: int | None = None
    ) -> None:
        self.source = source
        self.client = client
        self.n_passes = 0
        self._residency: Residency = residency
        self._n_tasks = n_tasks
        self._name = uuid.uuid4().hex[:8]
        self._blocks: dict[tuple[int, int, str], Any] = {}
        self._latest: Any = None
        self._workers: dict[str, Any] = {}
        self._tasks_per_worker = 1
        self._plan(workers_of(client))

    def _plan(self, workers: dict[str, Any]) -> None:
        """Give each worker its part. If there are none, ask for them and wait."""
        if not workers:
            workers = self._wait_for_workers()
            self._tasks_per_worker = _TASKS_TO_GROW
        n_tasks, per_worker = self._n_tasks, tasks_per_worker(self._tasks_per_worker)
        if n_tasks is None and per_worker > 1:
            n_tasks = min(self.source.n_leaves, per_worker * len(workers))
        self._workers = in_place_of_lost(self._workers, workers)
        self._looked = time.monotonic()
        self.parts = cut_into_parts(self.source.n_leaves, self._workers, n_tasks)
        self.in_memory = fits_every_worker(self._residency, self.source, self.parts, workers)

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests in one pass: one graph, one round trip."""
        begun = time.perf_counter()
        check_leaves(requests, self.source.n_leaves)
        self._welcome_new_workers()
        try:
            results, pass_seconds, reduce_seconds = self._compute(requests)
        except WorkersReplacedError:
            self._plan(workers_of(self.client))
            results, pass_seconds, reduce_seconds = self._compute(requests)
        timing = Timing(time.perf_counter() - begun, pass_seconds, reduce_seconds)
        rest = iter(results)
        return [answer_of([next(rest) for _ in request.finish], timing) for request in requests]

    def _wait_for_workers(self) -> dict[str, Any]:
        """The workers, once there are some: a task that waits makes an adaptive cluster start one."""
        graph = Graph()
        wanted = graph.call(f"first-worker-{self._name}", int)
        results_of(self.client, submit(self.client, [graph.lazy(wanted.key)]), Job("the first pass"))
        return workers_of(self.client)

    def _welcome_new_workers(self) -> None:
        """Workers that came since the last pass get work. A worker that was lost needs no new plan."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        workers = workers_of(self.client)
        if workers.keys() - self._workers.keys():
            self._plan(workers)

    def _compute(self, requests: Sequence[Request]) -> tuple[list[Any], float, float]:
        names = " and ".join(dict.fromkeys(request.aggregation.name for request in requests))
        homes = frozenset(part.home for part in self.parts)
        job = Job(f"the pass {names!r}", self._rows_of, rows_kept=self.in_memory, homes=homes)
        try:
            (future,) = submit(self.client, [self._graph(requests)])
            # A client sends every 10 ms at most. Letting go of a result is a message too: were the last one let go
            # before, this graph would have to wait for its turn.
            self._latest = future
            (computed,) = results_of(self.client, [future], job)
        except BaseException:
            self.release()
            raise
        result: tuple[list[Any], float, float] = computed
        return result

    def release(self) -> None:
        """Let go of the blocks that workers hold."""
        self._blocks = {}
        self._latest = None

    def _graph(self, requests: Sequence[Request]) -> Any:
        self.n_passes += 1
        stamp = f"{self._name}-{self.n_passes}"
        n_leaves, every = self.source.n_leaves, patience().report_every
        graph = Graph()
        what = self._handed_to_all(graph, stamp, requests)
        name = "-and-".join(dict.fromkeys(request.aggregation.name for request in requests))
        leaves = self._leaves_of_parts(graph, stamp)
        sums = []
        for part in self.parts:
            places = [places_in(request, n_leaves, part.start, part.stop) for request in requests]
            if wanted_leaves(places, part.start, part.stop):
                sums.append(
                    graph.call(
                        f"{name}-{stamp}-{part.number}", sum_task, leaves[part.number], part.start, part.stop, what,
                        places, every, home=None if self.in_memory else part.home,
                    )
                )  # fmt: skip
        sizes = [places_in(request, n_leaves, 0, n_leaves).size for request in requests]
        total = _joined(graph, stamp, requests, sizes, sums)
        results = [
            graph.call(
                f"{name}-{stamp}-{number}-{place}", finish_task, total, number, sizes[number], function
            )
            for number, request in enumerate(requests)
            for place, (name, function) in enumerate(request.finish)
        ]
        last = graph.call(f"collect-{stamp}", collect_task, graph.together(results), total)
        return graph.lazy(last.key)

    def _handed_to_all(self, graph: Graph, stamp: str, requests: Sequence[Request]) -> Any:
        """Aggregations and parameters: part of every task, or a task of their own where they are large."""
        from distributed.protocol.pickle import dumps

        what = [(request.aggregation, request.params) for request in requests]
        if len(dumps(what)) * len(self.parts) <= _MOST_BYTES_WITH_TASKS:
            return what
        return graph.value(f"parameters-{stamp}", what)

    def _leaves_of_parts(self, graph: Graph, stamp: str) -> list[Any]:
        """The leaves of each part: kept on workers and loaded again if one is lost, or read in every pass."""
        if not self.in_memory:
            return self._unread_leaves(graph, stamp)
        missing = [part for part in self.parts if part[1:] not in self._blocks]
        if missing:
            loading, every = Graph(), patience().report_every
            unread = self._unread_leaves(loading, stamp)
            tasks = [
                loading.call(
                    f"load-{stamp}-{part.number}", load_task, unread[part.number], part.start, part.stop, every,
                    home=part.home,
                )
                for part in missing
            ]  # fmt: skip
            futures = submit(self.client, loading.lazily([task.key for task in tasks]))
            held = self._blocks | {part[1:]: future for part, future in zip(missing, futures, strict=True)}
            self._blocks = {part[1:]: held[part[1:]] for part in self.parts}
        return [graph.include(self._blocks[part[1:]]) for part in self.parts]

    def _unread_leaves(self, graph: Graph, stamp: str) -> list[Any]:
        """What a task reads its leaves from: a part of the source, or rows that the cluster computes before."""
        from dask.delayed import delayed

        found: list[Any] = []
        for part in self.parts:
            lazy = self.source.lazy_rows(part.start, part.stop)
            if lazy is None:
                found.append(self.source.only(part.start, part.stop))
            else:
                make = delayed(lazy.leaves_of, pure=False, traverse=False)
                found.append(graph.include(make(lazy.array, dask_key_name=f"rows-{stamp}-{part.number}")))
        return found

    def _rows_of(self, key: str) -> str:
        """The leaves and rows that a task of these passes works on, by its key."""
        numbers = key.partition(f"{self._name}-")[2].split("-")
        if len(numbers) != 2:  # neither a task over leaves nor one that loads them
            return ""
        part = self.parts[int(numbers[1])]
        first, last = (int(self.source.leaf_bounds[leaf]) for leaf in (part.start, part.stop))
        return f"leaves {part.start:,} to {part.stop - 1:,}, rows {first:,} to {last - 1:,}"


def in_place_of_lost(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The workers that are there now, in an order that leaves as many as possible in their place.

    So a worker that takes the place of a lost one changes no other worker's part.

    Examples
    --------
    >>> list(in_place_of_lost({"a": 1, "b": 1, "c": 1}, {"c": 1, "d": 1, "a": 1}))
    ['a', 'd', 'c']
    """
    new = [address for address in now if address not in before]
    places = [address if address in now else new.pop(0) if new else None for address in before]
    order = [address for address in places if address is not None]
    return {address: now[address] for address in [*order, *new]}


def cut_into_parts(n_leaves: int, workers: Mapping[str, Any], n_tasks: int | None = None) -> list[Part]:
    """One run of leaves per worker in proportion to its threads, or `n_tasks` runs of equal length.

    Neighbouring runs go to one worker.

    Examples
    --------
    >>> cut_into_parts(100, {"a": {"nthreads": 1}, "b": {"nthreads": 3}})
    [Part(number=0, start=0, stop=25, home='a'), Part(number=1, start=25, stop=100, home='b')]
    """
    if n_tasks is None:
        ranges = shared_ranges(n_leaves, [worker["nthreads"] for worker in workers.values()])
        homes = list(workers)
    else:
        ranges = leaf_ranges(n_leaves, n_tasks)
        threads = [address for address, worker in workers.items() for _ in range(worker["nthreads"])]
        homes = [threads[number * len(threads) // len(ranges)] for number in range(len(ranges))]
    runs = [(run, home) for run, home in zip(ranges, homes, strict=True) if run[0] < run[1]]
    return [Part(number, *run, home) for number, (run, home) in enumerate(runs)]


def _joined(
    graph: Graph, stamp: str, requests: Sequence[Request], sizes: Sequence[int], sums: list[Any]
) -> Any:
    """The sum of all tasks, joined level by level."""
    trees = [(request.aggregation.combine, size) for request, size in zip(requests, sizes, strict=True)]
    level = 0
    while len(sums) > 1:
        groups = [sums[first : first + TREE_FAN_IN] for first in range(0, len(sums), TREE_FAN_IN)]
        sums = [
            graph.call(f"tree-sum-{stamp}-{level}-{number}", join, trees, graph.together(group))
            for number, group in enumerate(groups)
        ]
        level += 1
    return sums[0]
