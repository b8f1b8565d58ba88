"""Passes: statistics of all rows, the same bits in threads and on a cluster; graphs and tasks."""

from __future__ import annotations

import gc
import operator
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from dask.core import get_deps
from dask.utils import key_split
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose

from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import ClusterError, FitError, NonFiniteError, SettingsError
from plmix_dist.kernels import EmStatistics, Prepared, em_statistics, prepare
from plmix_dist.passes import Aggregation, DistributedPasses, Finish, Passes, Request, ThreadedPasses, make_passes
from plmix_dist.passes import dask as distributed_passes
from plmix_dist.passes.dask import _cut_into_parts, _Graph
from plmix_dist.passes.rankings import Rankings
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.sampling import generator
from plmix_dist.store import open_store
from tests.helpers.fit_oracle import block_of, exact_statistics, random_rows
from tests.helpers.oracle import write_store


def by_definition(leaves: list[Any], start: int, width: int) -> Any:
    """The sum of a node: left half plus right half, or the left alone where the data end before the right."""
    if width == 1:
        return leaves[start]
    left = by_definition(leaves, start, width // 2)
    if start + width // 2 >= len(leaves):
        return left
    return left + by_definition(leaves, start + width // 2, width // 2)


def root_by_definition(leaves: list[Any]) -> Any:
    return by_definition(leaves, 0, 1 << (len(leaves) - 1).bit_length())


# --- passes over leaves ----------------------------------------------------------------------------------


N_ITEMS, N_ROWS, LEAF_ROWS, N_COMPONENTS = 6, 150, 4, 3


N_LEAVES = 38  # of 88 and of 62 rows


ROWS = random_rows(17, N_ITEMS, N_ROWS)


LOG_WORTHS = np.random.default_rng(18).normal(size=(N_COMPONENTS, N_ITEMS))


LOG_SHARES = np.log([0.5, 0.3, 0.2])


RESIDENCIES: tuple[Any, ...] = ("memory", "store")


def e_step_leaf(number: int, block: RankingBlock, prepared: Prepared) -> EmStatistics:
    return em_statistics(block, prepared, with_rates=True)


def prepare_both(params: tuple[Any, Any]) -> Prepared:
    return prepare(*params)


def total_wins(total: EmStatistics, component: int) -> float:
    return float(total.wins[component].sum())


def whole(total: Any) -> Any:
    return total


E_STEP = Aggregation("e-step", leaf=e_step_leaf, prepare=prepare_both)


FINISH = (
    Finish("summary", whole),
    *(Finish(f"m-step-{k}", partial(total_wins, component=k)) for k in range(N_COMPONENTS)),
)


REQUEST = Request(E_STEP, (LOG_WORTHS, LOG_SHARES), FINISH)


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of many tiny leaves in two partitions."""
    path = tmp_path_factory.mktemp("passes") / "store"
    block = block_of(ROWS, N_ITEMS)
    write_store(path, [[block[:88]], [block[88:]]], leaf_rows=LEAF_ROWS, chunk_bytes=1 << 16)
    return path


@pytest.fixture
def rankings(store_path: Path) -> Rankings:
    return as_rankings(open_store(store_path))


@pytest.fixture(params=["threads", "cluster"])
def make(request: pytest.FixtureRequest, rankings: Rankings, client: Client) -> Callable[[int], Passes]:
    """Makes passes of some number of tasks, in threads or on a cluster."""

    def passes(n_tasks: int) -> Passes:
        if request.param == "threads":
            return ThreadedPasses(rankings, n_threads=n_tasks)
        return DistributedPasses(rankings, client, n_tasks=n_tasks, residency="store")

    return passes


def bits_of(value: Any) -> Any:
    return [np.asarray(part).tobytes() for part in value]


def bits(passes: Passes) -> list[bytes]:
    """The bits of all statistics of one pass."""
    (answer,) = passes.run([REQUEST])
    return bits_of(answer.results[0])


def test_pass__statistics_of_all_rows(rankings: Rankings) -> None:
    (answer,) = ThreadedPasses(rankings, n_threads=2).run([REQUEST])
    exact = exact_statistics(ROWS, N_ITEMS, LOG_WORTHS, LOG_SHARES)
    total, *wins = answer.results
    for name, expected in exact._asdict().items():
        assert_allclose(getattr(total, name), expected, rtol=1e-9, atol=1e-12, err_msg=name)
    assert_allclose(wins, exact.wins.sum(axis=1), rtol=1e-9)
    assert answer.error is None
    assert 0 < answer.timing.pass_seconds <= answer.timing.seconds
    assert answer.timing.reduce_seconds >= 0


@pytest.mark.promise(10)
def test_passes__same_bits(rankings: Rankings, client: Client, two_by_three: Client) -> None:
    reference = bits(ThreadedPasses(rankings, n_threads=1))
    for n_threads in (2, 3, 7):
        assert bits(ThreadedPasses(rankings, n_threads=n_threads)) == reference
    for one, n_tasks in ((client, 1), (client, 5), (client, 38), (client, None), (two_by_three, None)):
        for residency in RESIDENCIES:
            passes = DistributedPasses(rankings, one, n_tasks=n_tasks, residency=residency)
            assert [bits(passes), bits(passes)] == [reference] * 2


def test_pass__number_of_the_leaf_reaches_its_function(make: Callable[[int], Passes]) -> None:
    for n_tasks in (1, 3):
        (answer,) = make(n_tasks).run([Request(NUMBERS)])
        assert answer.results == (list(range(N_LEAVES)),)


def number_in_list(number: int, block: RankingBlock, params: Any) -> list[int]:
    return [number]


NUMBERS = Aggregation("numbers", leaf=number_in_list, combine=operator.add)


@pytest.mark.promise(10)
def test_pass__random_numbers_by_leaf_do_not_depend_on_tasks(make: Callable[[int], Passes]) -> None:
    drawn = [make(n_tasks).run([Request(DRAWS, 7)])[0].results[0].tobytes() for n_tasks in (1, 4)]
    expected = root_by_definition([draw(number, None, 7) for number in range(N_LEAVES)])
    assert drawn == [expected.tobytes()] * 2


def draw(number: int, block: Any, seed: int) -> Any:
    return generator(seed, "test", number).normal(size=3)


DRAWS = Aggregation("draws", leaf=draw)


class SomeLeaves:
    """A source that has nothing but some leaves of another, counted from 0."""

    decoded_bytes = 0.0

    def __init__(self, source: Rankings, leaves: tuple[int, ...]) -> None:
        self.blocks = [next(source.iter_leaves(leaf, leaf + 1)) for leaf in leaves]
        self.n_leaves = len(leaves)
        self.n_entries = self.n_rankings = 1

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        return iter(self.blocks[start:stop])


@pytest.mark.parametrize("leaves", [(5,), (0, 1, 2), (0, 3, 4, 17, 30, 37), tuple(range(3, 38, 2))])
def test_subset_of_leaves__bits_of_a_source_of_these(
    make: Callable[[int], Passes], rankings: Rankings, leaves: tuple[int, ...]
) -> None:
    alone: Any = SomeLeaves(rankings, leaves)
    expected = bits(ThreadedPasses(alone, n_threads=1))
    some = Request(E_STEP, REQUEST.params, leaves=leaves)
    for n_tasks in (1, 3, 8):
        # Alone, and beside a request for all leaves.
        for requests in ([some], [REQUEST, some]):
            answers = make(n_tasks).run(requests)
            assert bits_of(answers[-1].results[0]) == expected
    assert bits_of(answers[0].results[0]) == bits(ThreadedPasses(rankings, n_threads=1))


@pytest.mark.parametrize("residency", RESIDENCIES)
def test_subset_of_leaves__only_these_are_computed(rankings: Rankings, client: Client, residency: Any) -> None:
    passes = DistributedPasses(rankings, client, n_tasks=8, residency=residency)
    (answer,) = passes.run([Request(NUMBERS, leaves=(2, 3, 20))])
    assert answer.results == ([2, 3, 20],)
    graph = graph_of(passes, [Request(NUMBERS, leaves=(2, 3, 20))])
    assert len(named(graph, "numbers")) == 2


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ((), "the request 'numbers' names no leaves"),
        ((3, 3), "the leaves of the request 'numbers' must rise, and lie within 0 to 37"),
        ((5, 38), "must rise, and lie within 0 to 37"),
        ((-1, 2), "must rise, and lie within 0 to 37"),
    ],
)
def test_subset_of_leaves__refused(make: Callable[[int], Passes], leaves: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(2).run([Request(NUMBERS, leaves=leaves)])


def test_pass__requests_of_different_kinds(make: Callable[[int], Passes], rankings: Rankings) -> None:
    passes = make(3)
    answers = passes.run([REQUEST, Request(NUMBERS), Request(DRAWS, 7), REQUEST])
    assert passes.n_passes == 1
    assert bits_of(answers[0].results[0]) == bits_of(answers[3].results[0])
    assert bits_of(answers[0].results[0]) == bits(ThreadedPasses(rankings, n_threads=1))
    assert answers[1].results == (list(range(N_LEAVES)),)
    assert [len(answer.results) for answer in answers] == [1 + N_COMPONENTS, 1, 1, 1 + N_COMPONENTS]
    assert len({answer.timing for answer in answers}) == 1


def test_make_passes__wrong_residency(rankings: Rankings, client: Client) -> None:
    for one in (None, client):
        with pytest.raises(SettingsError, match="residency must be auto, memory or store, but is 'disk'"):
            make_passes(rankings, one, "disk")  # type: ignore[arg-type]


# --- errors of requests ----------------------------------------------------------------------------------


def refuse_leaf(number: int, block: RankingBlock, unlucky: tuple[int, ...]) -> Any:
    """Fails at some leaves."""
    if number in unlucky:
        raise NonFiniteError(f"statistic {number} is not finite")
    return np.ones(1)


def refuse(params: Any) -> Any:
    raise FitError(f"{params} was refused")


UNLUCKY = Aggregation("unlucky", leaf=refuse_leaf)


@pytest.mark.promise(28)
@pytest.mark.parametrize("n_tasks", [1, 3, 8, 38])
def test_pass__error_names_the_lowest_leaf(make: Callable[[int], Passes], n_tasks: int) -> None:
    # Leaves 21 and 37 are the last of their partitions and have fewer rows.
    for unlucky, leaf, n_rows in (((25,), 25, 4), ((37, 21, 30), 21, 4), ((36, 37), 36, 4), ((37,), 37, 2)):
        (answer,) = make(n_tasks).run([Request(UNLUCKY, unlucky)])
        assert answer.results == ()
        assert type(answer.error) is NonFiniteError
        assert str(answer.error) == f"leaf {leaf} ({n_rows} rankings): statistic {leaf} is not finite"


def test_pass__failed_request_does_not_disturb_others(make: Callable[[int], Passes], rankings: Rankings) -> None:
    requests = [
        Request(UNLUCKY, (9,)),
        REQUEST,
        Request(Aggregation("unprepared", leaf=refuse_leaf, prepare=refuse), "prepare"),
        Request(UNLUCKY, (), (Finish("total", whole), Finish("refused", refuse))),
        Request(UNLUCKY, (9,), leaves=(8, 10)),
    ]
    for n_tasks in (1, 3):
        at_leaf, good, unprepared, unfinished, elsewhere = make(n_tasks).run(requests)
        assert str(at_leaf.error) == "leaf 9 (4 rankings): statistic 9 is not finite"
        assert bits_of(good.results[0]) == bits(ThreadedPasses(rankings, n_threads=1))
        assert good.error is None
        assert (str(unprepared.error), unprepared.results) == ("prepare was refused", ())
        assert (str(unfinished.error), unfinished.results) == (f"[{N_LEAVES}.] was refused", ())
        assert elsewhere.results == (2.0,)


def test_pass__other_errors_end_it(make: Callable[[int], Passes]) -> None:
    with pytest.raises(ZeroDivisionError):
        make(2).run([REQUEST, Request(Aggregation("wrong", leaf=divide_by_zero))])


def divide_by_zero(number: int, block: RankingBlock, params: Any) -> float:
    return 1 / 0


# --- on a cluster ----------------------------------------------------------------------------------------


def graph_of(passes: DistributedPasses, requests: Any = (REQUEST,)) -> dict[str, Any]:
    return dict(passes._graph(requests).dask)


def named(keys: Any, name: str) -> list[str]:
    return sorted(key for key in map(str, keys) if key.startswith(f"{name}-"))


def test_graph__private_names_of_dask_are_where_they_were() -> None:
    """passes/dask.py alone uses these. If this fails, Dask has moved them: mend that file."""
    from dask import _task_spec
    from dask.highlevelgraph import MaterializedLayer

    task = _task_spec.Task("sum", operator.add, 1, _task_spec.TaskRef("two"))
    assert set(task.dependencies) == {"two"}
    assert task({"two": 2}) == 3
    assert _task_spec.DataNode("value", 5)() == 5
    both = _task_spec.Task("list", list, _task_spec.List(_task_spec.TaskRef("two"), 3))
    assert both({"two": 2}) == [2, 3]
    assert MaterializedLayer({}, annotations={"workers": len}).annotations == {"workers": len}


def test_graph__tasks_of_one_pass(rankings: Rankings, client: Client) -> None:
    graph = graph_of(DistributedPasses(rankings, client, n_tasks=38, residency="store"))
    assert len(named(graph, "e-step")) == 38
    # 38 tasks are joined by 3, and these by one.
    assert len(named(graph, "tree-sum")) == 4
    assert [len(named(graph, f"m-step-{k}")) for k in range(N_COMPONENTS)] == [1] * N_COMPONENTS
    assert len(named(graph, "m-step")) == N_COMPONENTS
    assert {key_split(key) for key in graph} == {"e-step", "tree-sum", "m-step", "summary", "collect"}


def test_graph__requests_share_tasks_over_leaves(rankings: Rankings, client: Client) -> None:
    passes = DistributedPasses(rankings, client, n_tasks=5, residency="store")
    graph = graph_of(passes, [REQUEST, REQUEST, Request(NUMBERS)])
    assert len(named(graph, "e-step-and-numbers")) == 5
    assert len(named(graph, "m-step")) == 2 * N_COMPONENTS


def test_graph__m_steps_wait_for_the_sum_alone(rankings: Rankings, client: Client) -> None:
    graph = graph_of(DistributedPasses(rankings, client, n_tasks=8, residency="store"))
    dependencies, _ = get_deps(graph)
    (last_sum,) = named(graph, "tree-sum")
    for step in named(graph, "m-step"):
        assert set(map(str, dependencies[step])) == {last_sum}
    # Small parameters are part of each task: a task that hands them out would cost every pass a round trip.
    assert all(not dependencies[task] for task in named(graph, "e-step"))


def test_graph__large_parameters_travel_once(
    rankings: Rankings, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = bits(ThreadedPasses(rankings, n_threads=1))
    monkeypatch.setattr(distributed_passes, "_MOST_BYTES_WITH_TASKS", 5_000)
    small = DistributedPasses(rankings, client, n_tasks=2, residency="store")
    large = DistributedPasses(rankings, client, n_tasks=30, residency="store")
    assert "parameters" not in {key_split(key) for key in graph_of(small)}
    graph = graph_of(large)
    dependencies, _ = get_deps(graph)
    for task in named(graph, "e-step"):
        assert {key_split(key) for key in dependencies[task]} == {"parameters"}
    assert bits(small) == bits(large) == reference


@pytest.fixture(scope="module")
def two_by_three() -> Iterator[Client]:
    """Two workers of three threads."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=3, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def thread_of_leaf(number: int, block: RankingBlock, params: Any) -> dict[int, Any]:
    import threading
    import time

    time.sleep(0.02)
    return {number: (threading.current_thread().name, threading.get_ident())}


@pytest.mark.parametrize("residency", RESIDENCIES)
def test_distributed_passes__one_task_per_worker_with_threads_inside(
    rankings: Rankings, two_by_three: Client, residency: Any
) -> None:
    passes = DistributedPasses(rankings, two_by_three, residency=residency)
    assert [(part.start, part.stop) for part in passes.parts] == [(0, 19), (19, 38)]
    assert {part.home for part in passes.parts} == set(two_by_three.scheduler_info()["workers"])
    threads = Aggregation("threads", leaf=thread_of_leaf, combine=operator.or_)
    for _ in range(2):
        (answer,) = passes.run([Request(threads)])
        found = [answer.results[0][leaf] for leaf in range(N_LEAVES)]
        assert all(name.startswith("plmix-leaves") for name, _ in found)
        first, second = set(found[:19]), set(found[19:])
        assert len(first) == len(second) == 3
        assert not first & second


def test_distributed_passes__tasks_of_one_worker_share_its_threads(rankings: Rankings, two_by_three: Client) -> None:
    passes = DistributedPasses(rankings, two_by_three, residency="store", n_tasks=12)
    threads = Aggregation("threads", leaf=thread_of_leaf, combine=operator.or_)
    (answer,) = passes.run([Request(threads)])
    assert len(set(answer.results[0].values())) <= 6


@pytest.mark.parametrize("residency", RESIDENCIES)
def test_distributed_passes__tasks_run_at_their_homes(rankings: Rankings, client: Client, residency: Any) -> None:
    passes = DistributedPasses(rankings, client, residency=residency)
    pids = client.run(os.getpid)
    (answer,) = passes.run([Request(Aggregation("pids", leaf=pid_of_leaf, combine=operator.add))])
    expected = [pids[part.home] for part in passes.parts for _ in range(part.start, part.stop)]
    assert answer.results == (expected,)


def pid_of_leaf(number: int, block: RankingBlock, params: Any) -> list[int]:
    return [os.getpid()]


def test_cut_into_parts__in_proportion_to_threads() -> None:
    workers = {"a": {"nthreads": 1}, "b": {"nthreads": 16}, "c": {"nthreads": 3}}
    parts = _cut_into_parts(1000, workers)
    assert [part.home for part in parts] == ["a", "b", "c"]
    for part, share in zip(parts, (50, 800, 150), strict=True):
        assert part.stop - part.start == pytest.approx(share, abs=share / 8)
    # Fewer leaves than workers: some have nothing to do.
    assert [(part.number, part.start, part.stop) for part in _cut_into_parts(1, workers)] == [(0, 0, 1)]


def test_graph__no_key_twice(rankings: Rankings, client: Client) -> None:
    # Python gives the place of a dead object to the next one: a name made of it would be used again.
    seen: set[str] = set()
    for _ in range(20):
        passes = DistributedPasses(rankings, client, n_tasks=2, residency="store")
        for _ in range(2):
            keys = set(map(str, graph_of(passes)))
            assert not keys & seen
            seen |= keys
        del passes


@dataclass
class Calls:
    """What a client was asked for."""

    computed: list[Any] = field(default_factory=list)
    other: list[str] = field(default_factory=list)


@pytest.fixture
def calls(client: Client, monkeypatch: pytest.MonkeyPatch) -> Calls:
    noted = Calls()
    compute = client.compute

    def counted(collections: Any, *args: Any, **kwargs: Any) -> Any:
        noted.computed.append(collections)
        return compute(collections, *args, **kwargs)

    monkeypatch.setattr(client, "compute", counted)
    for name in ("scatter", "submit", "map", "persist", "replicate", "scheduler_info", "processing"):
        monkeypatch.setattr(client, name, lambda *_, name=name, **__: noted.other.append(name))
    return noted


@pytest.mark.parametrize("residency", ["memory", "store"])
def test_distributed_passes__one_graph_per_pass(
    rankings: Rankings, client: Client, calls: Calls, residency: Any
) -> None:
    passes = DistributedPasses(rankings, client, residency=residency)
    passes.run([REQUEST])
    calls.computed.clear()
    for n_passes in (1, 2, 3):
        passes.run([REQUEST, Request(NUMBERS)])
        assert len(calls.computed) == n_passes
    assert calls.other == []


def loaded_by(passes: DistributedPasses, client: Client) -> list[str]:
    """Blocks that workers hold for these passes; others, of earlier tests, may still be on their way out."""
    held = named({key for keys in client.has_what().values() for key in keys}, "load")
    return [key for key in held if key.startswith(f"load-{passes._name}-")]


def without_recipe(dask_scheduler: Any) -> list[str]:
    """Data on workers that no task could make again, such as what was scattered."""
    return [str(key) for key, task in dask_scheduler.tasks.items() if task.run_spec is None]


def test_distributed_passes__blocks_stay_where_they_are(rankings: Rankings, client: Client) -> None:
    passes = DistributedPasses(rankings, client, n_tasks=4, residency="memory")
    passes.run([REQUEST])
    before = loaded_by(passes, client)
    passes.run([REQUEST])
    assert len(before) == 4
    assert loaded_by(passes, client) == before
    assert client.run_on_scheduler(without_recipe) == []


def test_distributed_passes__workers_know_the_size_of_blocks(client: Client) -> None:
    block = as_rankings(np.argsort(np.random.default_rng(0).random((8192, 50)), axis=1))
    passes = DistributedPasses(block, client, n_tasks=1, residency="memory")
    passes.run([Request(NUMBERS)])
    (load,) = loaded_by(passes, client)
    assert client.nbytes(summary=False)[load] >= 8192 * 50


def test_distributed_passes__nothing_stays_with_store(rankings: Rankings, client: Client) -> None:
    passes = DistributedPasses(rankings, client, n_tasks=4, residency="store")
    assert "load" not in {key_split(key) for key in graph_of(passes)}
    passes.run([REQUEST])
    gc.collect()
    assert loaded_by(passes, client) == []
    assert client.run_on_scheduler(without_recipe) == []


def test_distributed_passes__names_on_the_dashboard(rankings: Rankings, client: Client) -> None:
    def transitions(dask_scheduler: Any) -> list[str]:
        return [str(entry[0]) for entry in dask_scheduler.transition_log if entry[2] == "memory"]

    before = set(client.run_on_scheduler(transitions))
    DistributedPasses(rankings, client, n_tasks=4, residency="store").run([REQUEST])
    done = set(client.run_on_scheduler(transitions)) - before
    for k in range(N_COMPONENTS):
        assert len(named(done, f"m-step-{k}")) == 1
    assert len(named(done, "e-step")) == 4
    assert len(named(done, "tree-sum")) == 1


def test_distributed_passes__no_workers(rankings: Rankings) -> None:
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as empty,
        dask.config.set({"plmix.no-workers-timeout": 0.5}),
        pytest.raises(ClusterError, match=r"has had no workers for \d+ s .*, start new ones with `dask worker inproc:"),
    ):
        DistributedPasses(rankings, empty)


def count_rows(number: int, block: RankingBlock, params: Any) -> int:
    return block.n_rankings


def loaded(client: Client) -> set[str]:
    return {key for keys in client.has_what().values() for key in keys if str(key).startswith("load-")}


def test_release__workers_let_go_of_blocks(client: Client) -> None:
    rankings = as_rankings(np.argsort(np.random.default_rng(0).random((9000, 3)), axis=1))
    before = loaded(client)
    passes = DistributedPasses(rankings, client, residency="memory")
    passes.run([Request(Aggregation("rows", leaf=count_rows))])
    assert len(loaded(client) - before) == len(passes.parts)
    passes.release()
    deadline = time.monotonic() + 60
    while loaded(client) - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not loaded(client) - before


@pytest.mark.parametrize(("residency", "prefix"), [("memory", "load-"), ("store", "rows-")])
def test_graph__tasks_over_leaves_prefer_their_homes(
    client: Client, monkeypatch: pytest.MonkeyPatch, residency: Any, prefix: str
) -> None:
    noted: dict[str, str] = {}
    call = _Graph.call

    def noting(self: _Graph, key: str, *arguments: Any, home: str | None = None) -> Any:
        if home is not None:
            noted[key] = home
        return call(self, key, *arguments, home=home)

    monkeypatch.setattr(_Graph, "call", noting)
    rankings = as_rankings(np.argsort(np.random.default_rng(0).random((9000, 3)), axis=1))
    passes = DistributedPasses(rankings, client, residency=residency)
    passes.run([Request(Aggregation("rows", leaf=count_rows))])
    homes = {int(key.rsplit("-", 1)[1]): home for key, home in noted.items() if key.startswith(prefix)}
    assert homes == {part.number: part.home for part in passes.parts}
    passes.release()


def test_graph__a_worker_that_is_gone_is_replaced_by_any_other() -> None:
    graph = _Graph()
    graph.call("at home", abs, -1, home="tcp://a:1")
    graph.call("anywhere", abs, -2)
    (lazy,) = graph.lazily(["at home"])
    wish = lazy.dask.layers["at-home"].annotations
    assert wish["workers"]("at home") == ["tcp://a:1"]
    assert wish["allow_other_workers"] is True
    assert set(lazy.dask.layers["at-home"]) == {"at home"}
