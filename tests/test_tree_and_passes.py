"""The canonical tree, the plan of tasks, and passes: the same bits in threads and on a cluster."""

from __future__ import annotations

import gc
import itertools
import math
import operator
import os
import pickle
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import pytest
from dask.core import get_deps
from dask.utils import key_split
from distributed import Client, LocalCluster
from fit_oracle import block_of, exact_statistics, random_rows
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from oracle import write_store

from plmix_dist.data import Rankings, as_rankings
from plmix_dist.engine import distributed as distributed_passes
from plmix_dist.engine.dask_leaves import DaskLeaves
from plmix_dist.engine.distributed import DistributedPasses, cut_into_parts
from plmix_dist.engine.leaf_ranges import leaf_ranges, shared_ranges
from plmix_dist.engine.passes import make_passes
from plmix_dist.engine.request import Aggregation, Finish, Request
from plmix_dist.engine.residency import fits_every_worker
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.engine.tree import TreeSum
from plmix_dist.errors import ClusterError, FitError, NonFiniteError, SettingsError
from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.rankings.randomness import generator
from plmix_dist.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plmix_dist.engine.passes import Passes
    from plmix_dist.kernels import EmStatistics, Prepared
    from plmix_dist.rankings import RankingBlock


# --- the tree --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """A number that remembers how it was added up."""

    text: str

    def __add__(self, other: Term) -> Term:
        return Term(f"({self.text}+{other.text})")


class Total(NamedTuple):
    sum: Any
    square: Any


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


@st.composite
def runs_in_any_order(draw: st.DrawFn, n_leaves: int) -> list[tuple[int, int]]:
    """All leaves cut into runs, the runs shuffled."""
    cuts = sorted(draw(st.sets(st.integers(1, n_leaves - 1), max_size=6))) if n_leaves > 1 else []
    return draw(st.permutations(list(itertools.pairwise([0, *cuts, n_leaves]))))


@given(data=st.data(), n_leaves=st.integers(1, 40))
def test_tree_sum__brackets_of_the_definition(data: st.DataObject, n_leaves: int) -> None:
    leaves = [Term(str(number)) for number in range(n_leaves)]
    tree = TreeSum(n_leaves)
    for leaf in data.draw(st.permutations(range(n_leaves))):
        tree.add_leaf(leaf, Total(leaves[leaf], leaves[leaf]))
    assert tree.root() == Total(*[root_by_definition(leaves)] * 2)


@pytest.mark.promise(10)
@given(
    data=st.data(),
    n_leaves=st.integers(1, 70),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_tree_sum__same_bits_for_any_tasks(
    data: st.DataObject, n_leaves: int, seed: int, dtype: type
) -> None:
    # Numbers of many magnitudes and both signs: almost any other order of adding gives other bits.
    rng = np.random.default_rng(seed)
    leaves = [(rng.normal(size=3) * 10.0 ** rng.integers(-8, 8, 3)).astype(dtype) for _ in range(n_leaves)]
    parts = []
    for start, stop in data.draw(runs_in_any_order(n_leaves)):
        tree = TreeSum(n_leaves)
        for leaf in data.draw(st.permutations(range(start, stop))):
            tree.add_leaf(leaf, Total(leaves[leaf], leaves[leaf] ** 2))
        parts.append(tree.nodes)
    # Some tasks' nodes are joined first, and these with the others, as the levels of a graph do.
    split = data.draw(st.integers(0, len(parts)))
    some, whole = TreeSum(n_leaves), TreeSum(n_leaves)
    for nodes in parts[:split]:
        some.add_nodes(nodes)
    for nodes in (some.nodes, *parts[split:]):
        whole.add_nodes(nodes)
    expected = root_by_definition(leaves), root_by_definition([leaf**2 for leaf in leaves])
    for found, wanted in zip(whole.root(), expected, strict=True):
        assert found.dtype == dtype
        assert found.tobytes() == wanted.tobytes()


def test_tree_sum__missing_leaf() -> None:
    tree = TreeSum(5)
    for leaf in (0, 1, 2, 4):
        tree.add_leaf(leaf, Total(leaf, leaf))
    # Leaf 4 has no sibling and has climbed as far as it goes.
    with pytest.raises(ValueError, match=r"not complete: \[\(0, 2\), \(1, 0\), \(2, 1\)\] of 5 leaves"):
        tree.root()
    tree.add_leaf(3, Total(3, 3))
    assert tree.root() == Total(10, 10)


@given(n_leaves=st.integers(1, 20_000), n_tasks=st.integers(1, 300))
def test_leaf_ranges__laws(n_leaves: int, n_tasks: int) -> None:
    ranges = leaf_ranges(n_leaves, n_tasks)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == n_leaves
    assert len(ranges) == min(n_leaves, n_tasks)
    share = n_leaves / len(ranges)
    lengths = [stop - start for start, stop in ranges]
    assert min(lengths) >= 1
    assert max(abs(length - share) for length in lengths) <= max(1.0, share / 8)


@given(
    n_leaves=st.integers(0, 20_000),
    shares=st.lists(st.integers(1, 64), min_size=1, max_size=40),
    first=st.integers(0, 100),
)
def test_shared_ranges__laws(n_leaves: int, shares: list[int], first: int) -> None:
    ranges = shared_ranges(n_leaves, shares, first)
    assert len(ranges) == len(shares)
    assert [start for start, _ in ranges] == [first, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == first + n_leaves
    for share, (start, stop) in zip(shares, ranges, strict=True):
        fair = n_leaves * share / sum(shares)
        assert stop - start >= 0
        assert abs(stop - start - fair) <= max(1.0, fair / 8)


@pytest.mark.parametrize(("n_leaves", "n_tasks"), [(100, 3), (1_000, 7), (4_097, 16), (9_999, 5)])
def test_leaf_ranges__few_nodes_travel(n_leaves: int, n_tasks: int) -> None:
    for start, stop in leaf_ranges(n_leaves, n_tasks):
        tree = TreeSum(n_leaves)
        for leaf in range(start, stop):
            tree.add_leaf(leaf, Total(1, 1))
        assert len(tree.nodes) <= 8


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

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
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
def test_subset_of_leaves__only_these_are_computed(
    rankings: Rankings, client: Client, residency: Any
) -> None:
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


class CountingLeaves:
    """A source of leaves in memory that counts how often each was asked for."""

    def __init__(self, decoded_bytes: float) -> None:
        self.block = block_of(ROWS, N_ITEMS)
        self.n_leaves = 5
        self.n_entries = 1_000_000
        self.decoded_bytes = decoded_bytes
        self.n_reads = [0] * 5

    def iter_leaves(
        self, start: int = 0, stop: int | None = None, *, labels: bool = True
    ) -> Iterator[RankingBlock]:
        assert not labels, "a pass needs no ids"
        for leaf in range(start, self.n_leaves if stop is None else stop):
            self.n_reads[leaf] += 1
            yield self.block[leaf * 30 : (leaf + 1) * 30]


@pytest.mark.parametrize(
    ("residency", "decoded_bytes", "n_reads"),
    [("memory", 1e30, 1), ("store", 0.0, 3), ("auto", 1e30, 3), ("auto", 1.0, 1)],
)
def test_threaded_passes__residency(residency: Any, decoded_bytes: float, n_reads: int) -> None:
    source: Any = CountingLeaves(decoded_bytes)
    passes = ThreadedPasses(source, residency=residency, n_threads=2)
    found = {tuple(bits(passes)) for _ in range(3)}
    assert len(found) == 1
    assert source.n_reads == [n_reads] * 5


def test_threaded_passes__reads_what_is_asked_for() -> None:
    source: Any = CountingLeaves(1.0)
    passes = ThreadedPasses(source, residency="memory", n_threads=2)
    passes.run([Request(NUMBERS, leaves=(1, 4))])
    assert source.n_reads == [0, 1, 0, 0, 1]
    passes.run([Request(NUMBERS)])
    assert source.n_reads == [1] * 5
    passes.release()
    passes.run([Request(NUMBERS)])
    assert source.n_reads == [2] * 5


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


def test_pass__failed_request_does_not_disturb_others(
    make: Callable[[int], Passes], rankings: Rankings
) -> None:
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
    """engine/graph.py alone uses these. If this fails, Dask has moved them: mend that file."""
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
        LocalCluster(
            n_workers=2, threads_per_worker=3, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
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


def test_distributed_passes__tasks_of_one_worker_share_its_threads(
    rankings: Rankings, two_by_three: Client
) -> None:
    passes = DistributedPasses(rankings, two_by_three, residency="store", n_tasks=12)
    threads = Aggregation("threads", leaf=thread_of_leaf, combine=operator.or_)
    (answer,) = passes.run([Request(threads)])
    assert len(set(answer.results[0].values())) <= 6


@pytest.mark.parametrize("residency", RESIDENCIES)
def test_distributed_passes__tasks_run_at_their_homes(
    rankings: Rankings, client: Client, residency: Any
) -> None:
    passes = DistributedPasses(rankings, client, residency=residency)
    pids = client.run(os.getpid)
    (answer,) = passes.run([Request(Aggregation("pids", leaf=pid_of_leaf, combine=operator.add))])
    expected = [pids[part.home] for part in passes.parts for _ in range(part.start, part.stop)]
    assert answer.results == (expected,)


def pid_of_leaf(number: int, block: RankingBlock, params: Any) -> list[int]:
    return [os.getpid()]


def test_cut_into_parts__in_proportion_to_threads() -> None:
    workers = {"a": {"nthreads": 1}, "b": {"nthreads": 16}, "c": {"nthreads": 3}}
    parts = cut_into_parts(1000, workers)
    assert [part.home for part in parts] == ["a", "b", "c"]
    for part, share in zip(parts, (50, 800, 150), strict=True):
        assert part.stop - part.start == pytest.approx(share, abs=share / 8)
    # Fewer leaves than workers: some have nothing to do.
    assert [(part.number, part.start, part.stop) for part in cut_into_parts(1, workers)] == [(0, 0, 1)]


@pytest.mark.parametrize(
    ("limits", "stays"),
    [((1e9, 1e9), True), ((1e9, 1.2e8), False), ((1.2e8, 1e9), False), ((1.4e8, 1.4e8), True)],
)
def test_residency__holds_for_every_worker(limits: tuple[float, float], stays: bool) -> None:
    # 100 MB, half of them for each worker, which may take 40 % of its memory.
    source: Any = CountingLeaves(1e8)
    source.n_leaves = 100
    workers = {
        address: {"nthreads": 1, "memory_limit": limit, "host": "here"}
        for address, limit in zip("ab", limits, strict=True)
    }
    assert fits_every_worker("auto", source, cut_into_parts(100, workers), workers) == stays
    assert fits_every_worker("memory", source, cut_into_parts(100, workers), workers)
    assert not fits_every_worker("store", source, cut_into_parts(100, workers), workers)


def test_residency__workers_without_a_limit_share_their_machine() -> None:
    import psutil

    source: Any = CountingLeaves(0.6 * psutil.virtual_memory().available)
    workers = {name: {"nthreads": 1, "memory_limit": 0, "host": "here"} for name in "abcd"}
    # Dask says 0 where a worker may use whatever there is; that is not no memory at all.
    assert not fits_every_worker("auto", source, cut_into_parts(5, workers), workers)
    source.decoded_bytes /= 6
    assert fits_every_worker("auto", source, cut_into_parts(5, workers), workers)


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
        pytest.raises(
            ClusterError, match=r"has had no workers for \d+ s .*, start new ones with `dask worker inproc:"
        ),
    ):
        DistributedPasses(rankings, empty)


# --- what travels to a worker ----------------------------------------------------------------------------


def many_rows(kind: str) -> Any:
    """Eight leaves of rows, in memory or as a Dask array."""
    table = np.argsort(np.random.default_rng(0).random((8 * 4096, 5)), axis=1)
    return table if kind == "array" else da.from_array(table, chunks=(4096, 5))


def test_only__leaves_others_behind() -> None:
    weights = np.random.default_rng(1).random(8 * 4096)
    whole = as_rankings(many_rows("array"), sample_weight=weights)
    assert whole.n_leaves == 8
    of_all, of_one = (len(pickle.dumps(rankings)) for rankings in (whole, whole.only(2, 3)))
    assert of_one <= of_all / 8 + 1_000


def test_lazy_rows__leave_others_behind() -> None:
    weights = np.random.default_rng(1).random(8 * 4096)
    whole = as_rankings(many_rows("Dask array"), n_items=5, sample_weight=weights)
    lazy = whole.lazy_rows(2, 3)
    assert lazy is not None
    assert lazy.array.shape == (4096, 5)
    assert len(pickle.dumps(lazy.leaves_of)) <= 8 * 4096 + 2_000


def test_only__part_of_a_store_names_its_own_partitions(tmp_path: Path) -> None:
    block = block_of(ROWS, N_ITEMS)
    partitions = [[block[start : start + 2]] for start in range(0, N_ROWS, 2)]
    store = write_store(tmp_path / "s", partitions, leaf_rows=1, chunk_bytes=1 << 16)
    whole = as_rankings(store)
    part = whole.only(51, 54)
    # 75 partitions and 150 leaves are behind, of which a task needs 3 and 3.
    assert len(pickle.dumps(part)) < len(pickle.dumps(store)) / 5
    again = pickle.loads(pickle.dumps(part))
    for start, stop in ((51, 54), (52, 53), (53, 54)):
        mine, theirs = list(again.iter_leaves(start, stop)), list(whole.iter_leaves(start, stop))
        assert len(mine) == stop - start
        assert all(one.equals(other) for one, other in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("kind", ["array", "Dask array"])
def test_only__same_rows_and_weights(kind: str) -> None:
    weights = np.random.default_rng(1).random(8 * 4096)
    whole = as_rankings(many_rows(kind), n_items=5, sample_weight=weights)
    lazy = whole.lazy_rows(3, 5)
    part = whole.only(3, 5) if lazy is None else lazy.leaves_of(lazy.array.compute(scheduler="synchronous"))
    mine = list(part.iter_leaves(3, 5))
    theirs = list(as_rankings(many_rows("array"), sample_weight=weights).iter_leaves(3, 5))
    assert [block.n_rankings for block in mine] == [4096, 4096]
    assert all(one.equals(other) for one, other in zip(mine, theirs, strict=True))
    assert next(part.iter_leaves(4, 5)).equals(theirs[1])
    assert math.fsum(block.total_weight for block in mine) == pytest.approx(
        weights[3 * 4096 : 5 * 4096].sum()
    )


@pytest.mark.parametrize("n_items", [5, 256, 257, 1000])
def test_dask_leaves__bytes_of_blocks(n_items: int) -> None:
    table = np.argsort(np.random.default_rng(0).random((100, n_items)), axis=1)[:, :5]
    leaves = DaskLeaves(da.from_array(table), n_items, "below")
    (block,) = leaves.iter_leaves()
    # Rows may come with weights.
    n_bytes = block.replace(weights=np.ones(100)).nbytes
    assert n_bytes <= leaves.decoded_bytes <= 1.1 * n_bytes
