"""Passes on a Dask cluster: one graph per pass, one task per worker with threads inside."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.cluster import lost_workers
from plmix_dist.cluster.submission import Job, check_versions, results_of, same_version, submit, version_here
from plmix_dist.errors import SettingsError
from plmix_dist.passes import tree
from plmix_dist.passes.leaves import LeafSource, Leaves, leaves_for_task, read_leaves
from plmix_dist.passes.memory import Residency, fits_every_worker
from plmix_dist.passes.request import Aggregation, Answer, Passes, Request, Timing, answer_of, check_leaves
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings import RankingBlock
from plmix_dist.settings import shown
from plmix_dist.threads import single_thread

if TYPE_CHECKING:
    from dask.delayed import Delayed
    from distributed import Client

# Sums of this many tasks are joined by one task; more would make one worker wait for too many others.
_TREE_FAN_IN = 16
# Parameters travel with each task up to this many bytes per pass: a task for them would cost every pass 10 ms.
_MOST_BYTES_WITH_TASKS = 8 << 20
# Look for new workers at most every 2 seconds; asking the scheduler takes some milliseconds.
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

    With `residency` "auto" workers keep blocks in memory from pass to pass if every worker has room for its part. There
    are `n_tasks` tasks over leaves; by default one per worker, each in proportion to the worker's threads
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
        self._plan(lost_workers.workers_of(client))

    def _plan(self, workers: dict[str, Any]) -> None:
        """Give each worker its part. If there are none, ask for them and wait."""
        if not workers:
            workers = self._wait_for_workers()
            self._tasks_per_worker = _TASKS_TO_GROW
        check_versions(self.client, workers)
        n_tasks, per_worker = self._n_tasks, lost_workers.tasks_per_worker(self._tasks_per_worker)
        if n_tasks is None and per_worker > 1:
            n_tasks = min(self.source.n_leaves, per_worker * len(workers))
        self._workers = _in_place_of_lost(self._workers, workers)
        self._looked = time.monotonic()
        self.parts = _cut_into_parts(self.source.n_leaves, self._workers, n_tasks)
        self.in_memory = fits_every_worker(self._residency, self.source, self.parts, workers)

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests in one pass: one graph, one round trip."""
        begun = time.perf_counter()
        check_leaves(requests, self.source.n_leaves)
        self._welcome_new_workers()
        try:
            results, pass_seconds, reduce_seconds = self._compute(requests)
        except lost_workers.WorkersReplacedError:
            self._plan(lost_workers.workers_of(self.client))
            results, pass_seconds, reduce_seconds = self._compute(requests)
        timing = Timing(time.perf_counter() - begun, pass_seconds, reduce_seconds)
        rest = iter(results)
        return [answer_of([next(rest) for _ in request.finish], timing) for request in requests]

    def _wait_for_workers(self) -> dict[str, Any]:
        """The workers, once there are some: a task that waits makes an adaptive cluster start one."""
        graph = _Graph()
        wanted = graph.call(f"first-worker-{self._name}", int)
        results_of(self.client, submit(self.client, graph.lazily([wanted.key])), Job("the first pass"))
        return lost_workers.workers_of(self.client)

    def _welcome_new_workers(self) -> None:
        """Workers that came since the last pass get work. A worker that was lost needs no new plan."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        workers = lost_workers.workers_of(self.client)
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
        found: tuple[list[Any], float, float] = computed
        return found

    def release(self) -> None:
        """Let go of the blocks that workers hold."""
        self._blocks = {}
        self._latest = None

    def _graph(self, requests: Sequence[Request]) -> Any:
        self.n_passes += 1
        stamp = f"{self._name}-{self.n_passes}"
        n_leaves, every = self.source.n_leaves, lost_workers.patience().report_every
        graph = _Graph()
        what = self._handed_to_all(graph, stamp, requests)
        name = "-and-".join(dict.fromkeys(request.aggregation.name for request in requests))
        leaves = self._leaves_of_parts(graph, stamp)
        sums = []
        for part in self.parts:
            places = [tree.places_in(request, n_leaves, part.start, part.stop) for request in requests]
            if tree.wanted_leaves(places, part.start, part.stop):
                sums.append(
                    graph.call(
                        f"{name}-{stamp}-{part.number}", _sum_task, leaves[part.number], part.start, part.stop, what,
                        places, every, home=None if self.in_memory else part.home,
                    )
                )  # fmt: skip
        sizes = [tree.places_in(request, n_leaves, 0, n_leaves).size for request in requests]
        total = _joined(graph, stamp, requests, sizes, sums)
        results = [
            graph.call(f"{name}-{stamp}-{number}-{place}", _finish_task, total, number, sizes[number], function)
            for number, request in enumerate(requests)
            for place, (name, function) in enumerate(request.finish)
        ]
        last = graph.call(f"collect-{stamp}", _collect_task, graph.spec.List(*results), total)
        return graph.lazily([last.key])[0]

    def _handed_to_all(self, graph: _Graph, stamp: str, requests: Sequence[Request]) -> Any:
        """Aggregations and parameters: part of every task, or a task of their own where they are large."""
        from distributed.protocol.pickle import dumps

        what = [(request.aggregation, request.params) for request in requests]
        if len(dumps(what)) * len(self.parts) <= _MOST_BYTES_WITH_TASKS:
            return what
        return graph.value(f"parameters-{stamp}", what)

    def _leaves_of_parts(self, graph: _Graph, stamp: str) -> list[Any]:
        """The leaves of each part: kept on workers and loaded again if one is lost, or read in every pass."""
        if not self.in_memory:
            return self._unread_leaves(graph, stamp)
        missing = [part for part in self.parts if part[1:] not in self._blocks]
        if missing:
            loading, every = _Graph(), lost_workers.patience().report_every
            unread = self._unread_leaves(loading, stamp)
            tasks = [
                loading.call(
                    f"load-{stamp}-{part.number}", _load_task, unread[part.number], part.start, part.stop, every,
                    home=part.home,
                )
                for part in missing
            ]  # fmt: skip
            futures = submit(self.client, loading.lazily([task.key for task in tasks]))
            held = self._blocks | {part[1:]: future for part, future in zip(missing, futures, strict=True)}
            self._blocks = {part[1:]: held[part[1:]] for part in self.parts}
        return [graph.include(self._blocks[part[1:]]) for part in self.parts]

    def _unread_leaves(self, graph: _Graph, stamp: str) -> list[Any]:
        """What a task reads its leaves from."""
        return [
            graph.include(leaves_for_task(self.source, part.start, part.stop, f"rows-{stamp}-{part.number}"))
            for part in self.parts
        ]

    def _rows_of(self, key: str) -> str:
        """The leaves and rows that a task of these passes works on, by its key."""
        numbers = key.partition(f"{self._name}-")[2].split("-")
        if len(numbers) != 2:  # neither a task over leaves nor one that loads them
            return ""
        part = self.parts[int(numbers[1])]
        first, last = (int(self.source.leaf_bounds[leaf]) for leaf in (part.start, part.stop))
        return f"leaves {part.start:,} to {part.stop - 1:,}, rows {first:,} to {last - 1:,}"


def _in_place_of_lost(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The workers that are there now, in an order that leaves as many as possible in their place.

    So a worker that takes the place of a lost one changes no other worker's part.
    """
    new = [address for address in now if address not in before]
    places = [address if address in now else new.pop(0) if new else None for address in before]
    order = [address for address in places if address is not None]
    return {address: now[address] for address in [*order, *new]}


def _cut_into_parts(n_leaves: int, workers: Mapping[str, Any], n_tasks: int | None = None) -> list[Part]:
    """One run of leaves per worker in proportion to its threads, or `n_tasks` runs of equal length.

    Neighbouring runs go to one worker.

    Examples
    --------
    >>> _cut_into_parts(100, {"a": {"nthreads": 1}, "b": {"nthreads": 3}})
    [Part(number=0, start=0, stop=25, home='a'), Part(number=1, start=25, stop=100, home='b')]
    """
    if n_tasks is None:
        ranges = tree.shared_ranges(n_leaves, [worker["nthreads"] for worker in workers.values()])
        homes = list(workers)
    else:
        ranges = tree.leaf_ranges(n_leaves, n_tasks)
        threads = [address for address, worker in workers.items() for _ in range(worker["nthreads"])]
        homes = [threads[number * len(threads) // len(ranges)] for number in range(len(ranges))]
    runs = [(run, home) for run, home in zip(ranges, homes, strict=True) if run[0] < run[1]]
    return [Part(number, *run, home) for number, (run, home) in enumerate(runs)]


def _joined(graph: _Graph, stamp: str, requests: Sequence[Request], sizes: Sequence[int], sums: list[Any]) -> Any:
    """The sum of all tasks, joined level by level."""
    trees = [(request.aggregation.combine, size) for request, size in zip(requests, sizes, strict=True)]
    level = 0
    while len(sums) > 1:
        groups = [sums[first : first + _TREE_FAN_IN] for first in range(0, len(sums), _TREE_FAN_IN)]
        sums = [
            graph.call(f"tree-sum-{stamp}-{level}-{number}", tree.join, trees, graph.spec.List(*group))
            for number, group in enumerate(groups)
        ]
        level += 1
    return sums[0]


def make_passes(source: LeafSource, client: Client | None, residency: Residency) -> Passes:
    """Passes at a client, or in this process if there is none."""
    if client is None:
        return ThreadedPasses(source, residency=residency)
    if not (hasattr(client, "compute") and hasattr(client, "scheduler_info")):
        raise SettingsError(f"client must be a Dask client or None, but is {shown(client)}")
    return DistributedPasses(source, client, residency=residency)


@contextmanager
def passes_over(source: LeafSource, client: Client | None = None, residency: Residency = "auto") -> Iterator[Passes]:
    """As `make_passes`; the rows that are kept in memory are let go at the end."""
    passes = make_passes(source, client, residency)
    try:
        yield passes
    finally:
        passes.release()


# What workers do in a pass: load blocks, sum leaves, join sums, finish. One task per worker, threads inside.


class _HeldBlocks:
    """The blocks of a run of leaves in the memory of a worker."""

    def __init__(self, first_leaf: int, blocks: list[RankingBlock]) -> None:
        self.first_leaf = first_leaf
        self.blocks = blocks

    def __sizeof__(self) -> int:
        # So that Dask knows what it would cost to move these elsewhere.
        return sum(block.nbytes for block in self.blocks)

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        """The block of each leaf in turn."""
        del labels
        return iter(self.blocks[start - self.first_leaf : None if stop is None else stop - self.first_leaf])


def _load_task(leaves: Leaves, start: int, stop: int, report_every: float) -> _HeldBlocks:
    """The blocks of leaves `start` to `stop`, read by all threads of a worker, to be kept by it."""
    threads = lost_workers.TaskThreads(report_every)
    runs = tree.cut_leaves_for(range(start, stop), threads.n_threads)
    with single_thread():
        parts = list(threads.pool.map(partial(_load_run, leaves, threads), runs))
    return _HeldBlocks(start, [block for part in parts for block in part])


def _load_run(leaves: Leaves, threads: lost_workers.TaskThreads, run: Sequence[int]) -> list[RankingBlock]:
    blocks = []
    for _, block in read_leaves(leaves, run):
        blocks.append(block)
        threads.beat()
    return blocks


def _sum_task(
    leaves: Leaves,
    start: int,
    stop: int,
    what: Sequence[tuple[Aggregation, Any]],
    places: Sequence[tree.Places],
    report_every: float,
) -> tree.Summed:
    """The statistics of all requests over leaves `start` to `stop`, summed by all threads of a worker."""
    threads = lost_workers.TaskThreads(report_every)
    work = [tree.Work(*both, where) for both, where in zip(what, places, strict=True)]
    wanted = tree.wanted_leaves(places, start, stop)
    read = partial(read_leaves, leaves)
    with single_thread():
        return tree.sum_leaves(read, wanted, work, threads.pool, threads.n_threads, threads.beat)


def _finish_task(summed: tree.Summed, number: int, size: int, function: Callable[[Any], Any]) -> Any:
    """What a finishing function makes of the statistic of one request, over all its `size` leaves."""
    with single_thread():
        return tree.finished(tree.total_of(summed.nodes[number], size), function)


def _collect_task(results: list[Any], summed: tree.Summed) -> tuple[list[Any], float, float]:
    """The end of a pass: all results, and its seconds over leaves and for combining."""
    return list(results), summed.pass_seconds, summed.reduce_seconds


# Graphs as plain tasks: making Delayed objects took longer than the cluster takes to schedule them.


class _Graph:
    """Tasks by name, added one by one; what `call` gives stands for a result in the arguments of later tasks."""

    def __init__(self) -> None:
        from dask import _task_spec

        self.spec: Any = _task_spec
        self.tasks: dict[str, Any] = {}
        self.homes: dict[str, str] = {}

    def call(self, key: str, function: Callable[..., Any], *arguments: Any, home: str | None = None) -> Any:
        """A task that calls a function, on the worker at `home` if it is there.

        Results of other tasks are found at the top level of its arguments alone.
        """
        self.tasks[key] = self.spec.Task(key, same_version, version_here(), function, *arguments)
        if home is not None:
            self.homes[key] = home
        return self.spec.TaskRef(key)

    def value(self, key: str, value: Any) -> Any:
        """A value that travels once and is handed from worker to worker, rather than with every task."""
        self.tasks[key] = self.spec.DataNode(key, value)
        return self.spec.TaskRef(key)

    def include(self, other: Any) -> Any:
        """The result of a future, which lives on the cluster, or of tasks that were made with Delayed; or a value."""
        from dask.delayed import Delayed
        from distributed import Future

        if isinstance(other, Delayed):
            self.tasks |= dict(other.dask)
        return self.spec.TaskRef(other.key) if isinstance(other, Delayed | Future) else other

    def lazily(self, keys: Sequence[str]) -> list[Delayed]:
        """What to compute in order to have the results of several tasks."""
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        anywhere = {key: task for key, task in self.tasks.items() if key not in self.homes}
        layers: dict[str, Any] = {"anywhere": MaterializedLayer(anywhere)}
        if self.homes:
            # A worker that is gone is replaced by any other.
            wish = {"workers": partial(_home_of, self.homes), "allow_other_workers": True}
            at_home = {key: self.tasks[key] for key in self.homes}
            layers["at-home"] = MaterializedLayer(at_home, annotations=wish)
        graph = HighLevelGraph(layers, {name: set(layers) - {name} for name in layers})
        return [Delayed(key, graph, layer="anywhere") for key in keys]


def _home_of(homes: Mapping[str, str], key: str) -> list[str]:
    """The worker that should run a task, by its key, as Dask asks for it."""
    return [homes[key]]
