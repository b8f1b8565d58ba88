"""The canonical tree, the plan of tasks, and passes: the same bits in threads and on a cluster."""

from __future__ import annotations

import gc
import itertools
import math
import pickle
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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
from plmix_dist.engine.request import Aggregation
from plmix_dist.engine.passes import DistributedPasses, ThreadedPasses, make_passes
from plmix_dist.engine.leaf_ranges import leaf_ranges
from plmix_dist.engine.tree import TreeSum, merge_nodes
from plmix_dist.errors import ClusterError, NonFiniteError, SettingsError
from plmix_dist.inference.em import E_STEP, Em, PassParams, summarise
from plmix_dist.inference.lockstep import run_together
from plmix_dist.inference.state import EmState
from plmix_dist.solvers import LSR
from plmix_dist.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plmix_dist.engine.passes import Passes
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
    joined = merge_nodes(n_leaves, [merge_nodes(n_leaves, parts[:split]), *parts[split:]])
    whole = TreeSum(n_leaves)
    whole.add_nodes(joined)
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


@pytest.mark.parametrize(("n_leaves", "n_tasks"), [(100, 3), (1_000, 7), (4_097, 16), (9_999, 5)])
def test_leaf_ranges__few_nodes_travel(n_leaves: int, n_tasks: int) -> None:
    for start, stop in leaf_ranges(n_leaves, n_tasks):
        tree = TreeSum(n_leaves)
        for leaf in range(start, stop):
            tree.add_leaf(leaf, Total(1, 1))
        assert len(tree.nodes) <= 8


# --- passes over leaves ----------------------------------------------------------------------------------

N_ITEMS, N_ROWS, LEAF_ROWS, N_COMPONENTS = 6, 150, 4, 3
ROWS = random_rows(17, N_ITEMS, N_ROWS)
STATE = EmState.start(
    np.random.default_rng(18).normal(size=(N_COMPONENTS, N_ITEMS)), np.array([0.5, 0.3, 0.2])
)
RESIDENCIES: tuple[Any, ...] = ("memory", "store")
PARAMS = (PassParams(STATE, None, with_rates=True),)


def everything(total: Any) -> Any:
    """The whole sum, to be compared bit by bit."""
    return total[0]


def total_wins(total: Any, component: int) -> float:
    return float(total[0].wins[component].sum())


FINISH = [("summary", everything), *((f"m-step-{k}", partial(total_wins, component=k)) for k in range(3))]


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


def bits(passes: Passes) -> list[bytes]:
    """The bits of all statistics of one pass."""
    (total, *_), *_ = passes.run(E_STEP, PARAMS, FINISH)
    return [np.asarray(statistic).tobytes() for statistic in total]


def test_pass__statistics_of_all_rows(rankings: Rankings) -> None:
    result = ThreadedPasses(rankings, n_threads=2).run(E_STEP, PARAMS, FINISH)
    exact = exact_statistics(ROWS, N_ITEMS, STATE.log_worths, STATE.log_shares)
    total, *wins = result.results
    for name, expected in exact._asdict().items():
        assert_allclose(getattr(total, name), expected, rtol=1e-9, atol=1e-12, err_msg=name)
    assert_allclose(wins, exact.wins.sum(axis=1), rtol=1e-9)
    assert result.pass_seconds > 0
    assert result.reduce_seconds >= 0


@pytest.mark.promise(10)
def test_passes__same_bits(rankings: Rankings, client: Client) -> None:
    reference = bits(ThreadedPasses(rankings, n_threads=1))
    for n_threads in (2, 3, 7):
        assert bits(ThreadedPasses(rankings, n_threads=n_threads)) == reference
    for n_tasks in (1, 5, 38):
        for residency in RESIDENCIES:
            passes = DistributedPasses(rankings, client, n_tasks=n_tasks, residency=residency)
            assert [bits(passes), bits(passes)] == [reference] * 2


class CountingLeaves:
    """A source of leaves in memory that counts how often each was asked for."""

    def __init__(self, decoded_bytes: float) -> None:
        self.block = block_of(ROWS, N_ITEMS)
        self.n_leaves = 5
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


def test_make_passes__wrong_residency(rankings: Rankings) -> None:
    with pytest.raises(SettingsError, match="residency must be auto, memory or store, but is 'disk'"):
        make_passes(rankings, None, "disk")  # type: ignore[arg-type]


# --- on a cluster ----------------------------------------------------------------------------------------


def graph_of(passes: DistributedPasses, finish: Any = FINISH) -> dict[str, Any]:
    return dict(passes._graph(E_STEP, PARAMS, finish).dask)


def named(keys: Any, name: str) -> list[str]:
    return sorted(key for key in map(str, keys) if key.startswith(f"{name}-"))


def test_graph__tasks_of_one_pass(rankings: Rankings, client: Client) -> None:
    graph = graph_of(DistributedPasses(rankings, client, n_tasks=38, residency="store"))
    assert len(named(graph, "e-step")) == 38
    # 38 tasks are joined by 3, and these by one.
    assert len(named(graph, "tree-sum")) == 4
    assert [len(named(graph, f"m-step-{k}")) for k in range(N_COMPONENTS)] == [1] * N_COMPONENTS
    assert len(named(graph, "m-step")) == N_COMPONENTS
    assert {key_split(key) for key in graph} >= {"e-step", "tree-sum", "m-step", "summary", "collect"}


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
    monkeypatch.setattr("plmix_dist.engine.passes._MOST_BYTES_WITH_TASKS", 5_000)
    small = DistributedPasses(rankings, client, n_tasks=2, residency="store")
    large = DistributedPasses(rankings, client, n_tasks=30, residency="store")
    assert "parameters" not in {key_split(key) for key in graph_of(small)}
    graph = graph_of(large)
    dependencies, _ = get_deps(graph)
    for task in named(graph, "e-step"):
        assert {key_split(key) for key in dependencies[task]} == {"parameters", "aggregation"}
    assert bits(small) == bits(large) == reference


def workers_of_tasks(dask_scheduler: Any, prefix: str) -> dict[str, str]:
    """The worker that holds each task's result."""
    return {
        str(key): next(iter(task.who_has)).address
        for key, task in dask_scheduler.tasks.items()
        if str(key).startswith(prefix) and task.who_has
    }


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


def test_graph__sums_of_one_worker_meet_first(rankings: Rankings, two_by_three: Client) -> None:
    passes = DistributedPasses(rankings, two_by_three, residency="memory")
    assert bits(passes) == bits(ThreadedPasses(rankings, n_threads=1))
    homes = two_by_three.run_on_scheduler(workers_of_tasks, prefix=f"load-{passes._name}-")
    by_number = [homes[key] for key in sorted(homes)]
    assert len(by_number) == 6
    assert len(set(by_number[:3])) == len(set(by_number[3:])) == 1
    assert by_number[0] != by_number[-1]
    graph = graph_of(passes)
    dependencies, _ = get_deps(graph)
    first, second, last = named(graph, "tree-sum")
    e_steps = named(graph, "e-step")
    assert dependencies[first] == set(e_steps[:3])
    assert dependencies[second] == set(e_steps[3:])
    assert dependencies[last] == {first, second}


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
    for name in ("scatter", "submit", "map", "persist", "gather", "replicate"):
        monkeypatch.setattr(client, name, lambda *_, name=name, **__: noted.other.append(name))
    return noted


@pytest.mark.parametrize("residency", ["memory", "store"])
def test_distributed_passes__one_graph_a_pass(
    rankings: Rankings, client: Client, calls: Calls, residency: Any
) -> None:
    passes = DistributedPasses(rankings, client, residency=residency)
    passes.run(E_STEP, PARAMS, FINISH)
    calls.computed.clear()
    for n_passes in (1, 2, 3):
        passes.run(E_STEP, PARAMS, FINISH)
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
    passes.run(E_STEP, PARAMS, FINISH)
    before = loaded_by(passes, client)
    passes.run(E_STEP, PARAMS, FINISH)
    assert len(before) == 4
    assert loaded_by(passes, client) == before
    assert client.run_on_scheduler(without_recipe) == []


def test_distributed_passes__nothing_stays_with_store(rankings: Rankings, client: Client) -> None:
    passes = DistributedPasses(rankings, client, n_tasks=4, residency="store")
    assert "load" not in {key_split(key) for key in graph_of(passes)}
    passes.run(E_STEP, PARAMS, FINISH)
    gc.collect()
    assert loaded_by(passes, client) == []
    assert client.run_on_scheduler(without_recipe) == []


def test_em_pass__names_on_the_dashboard(rankings: Rankings, client: Client) -> None:
    def transitions(dask_scheduler: Any) -> list[str]:
        return [str(entry[0]) for entry in dask_scheduler.transition_log if entry[2] == "memory"]

    before = set(client.run_on_scheduler(transitions))
    passes = DistributedPasses(rankings, client, n_tasks=4, residency="store")
    run_together(passes, [Em(LSR, 0.1, unit=1.0, n_rankings=N_ROWS).fused(STATE)])
    done = set(client.run_on_scheduler(transitions)) - before
    for k in range(N_COMPONENTS):
        assert len(named(done, f"m-step-{k}")) == 1
    assert len(named(done, "e-step")) == 4
    assert len(named(done, "tree-sum")) == 1


def test_distributed_passes__no_workers(rankings: Rankings) -> None:
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as empty,
        pytest.raises(ClusterError, match="the cluster has no workers; start some with `dask worker"),
    ):
        DistributedPasses(rankings, empty)


def test_distributed_passes__workers_without_a_limit(rankings: Rankings) -> None:
    # Dask says 0 where a worker may use whatever there is; that is not no memory at all.
    with (
        LocalCluster(
            n_workers=1, processes=False, memory_limit=0, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as unlimited,
    ):
        assert DistributedPasses(rankings, unlimited, residency="auto").in_memory


# --- errors of leaves ------------------------------------------------------------------------------------


def refuse_leaf(block: RankingBlock, unlucky: float) -> Total:
    """Fails where a row has exactly this weight."""
    assert block.weights is not None
    if unlucky in block.weights:
        raise NonFiniteError("the statistics of component 1 are not finite")
    return Total(np.ones(1), np.ones(1))


UNLUCKY = Aggregation("unlucky", leaf=refuse_leaf, prepare=float)


@pytest.mark.promise(28)
@pytest.mark.parametrize("distributed", [False, True], ids=["threads", "cluster"])
def test_pass__error_names_the_leaf(rankings: Rankings, client: Client, distributed: bool) -> None:
    row = 101
    # The second partition begins at row 88, which is a whole number of leaves.
    leaf, n_rows = row // LEAF_ROWS, LEAF_ROWS
    passes: Any = (
        DistributedPasses(rankings, client, n_tasks=5)
        if distributed
        else ThreadedPasses(rankings, n_threads=3)
    )
    message = rf"^leaf {leaf} \({n_rows} rankings\): the statistics of component 1 are not finite$"
    with pytest.raises(NonFiniteError, match=message):
        passes.run(UNLUCKY, ROWS[row].weight, [("total", summarise)])


# --- what travels to a worker ----------------------------------------------------------------------------


def many_rows(kind: str) -> Any:
    """Eight leaves of rows, in memory or as a Dask array."""
    import dask.array as da

    table = np.argsort(np.random.default_rng(0).random((8 * 4096, 5)), axis=1)
    return table if kind == "array" else da.from_array(table, chunks=(4096, 5))


@pytest.mark.parametrize("kind", ["array", "Dask array"])
def test_only__leaves_others_behind(kind: str) -> None:
    weights = np.random.default_rng(1).random(8 * 4096)
    whole = as_rankings(many_rows(kind), n_items=5, sample_weight=weights)
    assert whole.n_leaves == 8
    of_all, of_one = (len(pickle.dumps(rankings)) for rankings in (whole, whole.only(2, 3)))
    assert of_one <= of_all / 8 + 20_000


def test_only__same_rows_and_weights() -> None:
    weights = np.random.default_rng(1).random(8 * 4096)
    whole = as_rankings(many_rows("array"), sample_weight=weights)
    mine, theirs = list(whole.only(3, 5).iter_leaves(3, 5)), list(whole.iter_leaves(3, 5))
    assert [block.n_rankings for block in mine] == [4096, 4096]
    assert all(one.equals(other) for one, other in zip(mine, theirs, strict=True))
    assert math.fsum(block.total_weight for block in mine) == pytest.approx(
        weights[3 * 4096 : 5 * 4096].sum()
    )
