"""How much is looked at, searched and computed at once: the sizes that decide how a fit goes."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist.data import as_rankings
from plmix_dist.engine import memory_needed
from plmix_dist.engine.dask_arrays import row_blocks
from plmix_dist.engine.graph import Graph
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import NotIdentifiedError, SettingsError
from plmix_dist.inference import Em, Point, look, sample_fits
from plmix_dist.inference.collapse import collapsed_components, mend_collapsed
from plmix_dist.inference.fixed_point import Evaluation, Iteration, Rules, advance
from plmix_dist.inference.look import take_look
from plmix_dist.inference.sample_fits import SampleFits
from plmix_dist.inference.starts_to_ends import Candidate
from plmix_dist.inference.together import Together
from plmix_dist.ingestion.ingest_plan import ARRAY_PARTITION_ENTRIES
from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.simulate import checked_length
from plmix_dist.solvers import LSR, MM, stationary, stationary_distribution
from plmix_dist.stages import Stages
from plmix_dist.starts.start_settings import StartSettings

if TYPE_CHECKING:
    from collections.abc import Callable

START = Candidate(Point.start(np.zeros((1, 4)), np.ones(1)), {})


class Asked(Exception):  # noqa: N818 - carries what a fit was asked to do
    """What a fit to a part of the rows was asked to do."""

    def __init__(self, rows: float, em: Em, cuts: Any, n_kept: int) -> None:
        super().__init__()
        self.rows, self.em, self.cuts, self.n_kept = rows, em, cuts, n_kept


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """Calls a fit to a part of the rows, and tells what would be run."""

    def stop(passes: Any, em: Em, candidates: Any, *, cuts: Any, n_kept: int, **options: Any) -> Any:
        raise Asked(em.weight, em, list(cuts), n_kept)

    monkeypatch.setattr(sample_fits, "run_to_ends", stop)

    def call(fit: Callable[..., Any], *arguments: Any) -> Asked:
        with pytest.raises(Asked) as caught:
            fit(*arguments)
        return caught.value

    return call


def sample_of(n_rows: int, n_items: int) -> RankingBlock:
    return RankingBlock.from_array(np.argsort(np.random.default_rng(0).random((n_rows, n_items)), axis=1))


@pytest.mark.parametrize(
    ("n_items", "n_searched"), [(4, 12_000), (100, 2_400), (400, 5_592)], ids=["all", "long", "very long"]
)
def test_search__rows(monkeypatch: pytest.MonkeyPatch, n_items: int, n_searched: int) -> None:
    asked: dict[str, Any] = {}

    def stop(em: Em, rows: Any, starts: Any, settings: Any, budget: float, **options: Any) -> Any:
        asked.update(em=em, rows=rows, budget=budget, **options)
        raise LookupError("seen enough")

    monkeypatch.setattr(sample_fits, "search", stop)
    em = Em(LSR, 0.1, weight=12_000.0, n_rankings=12_000, kind="exact")
    fits = SampleFits(em, 1, Stages(), [])
    with pytest.raises(LookupError, match="seen enough"):
        fits.search(sample_of(12_000, n_items), [], StartSettings(2), mean_listed=n_items)
    n_rows = asked["rows"].total_weight
    assert n_rows == pytest.approx(n_searched, rel=0.01)
    assert asked["is_part"] == (n_searched < 12_000)
    # Exact EM is searched by fused EM, and LSR by MM: they have the same optima.
    assert (asked["em"].kind, asked["em"].m_step, asked["em"].newton) == ("fused", MM, None)
    assert asked["em"].alpha == pytest.approx(0.1 * n_rows / 12_000)
    assert (asked["em"].max_iter, asked["em"].tol) == (60, 1e-4)


def test_small_sample__halves_and_steps(asked: Callable[..., Asked]) -> None:
    em = Em(LSR, 0.1, weight=1e5, n_rankings=100_000)
    found = asked(SampleFits(em, 2, Stages(), []).on_small_sample, sample_of(500, 4), [START] * 8)
    assert found.cuts == [(8, 4), (16, 2)]
    assert (found.n_kept, found.em.max_iter, found.em.newton) == (2, 20, None)


@pytest.mark.parametrize("fails", [False, True])
def test_sample_fits__let_go_of_their_passes(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    released: list[Any] = []
    monkeypatch.setattr(ThreadedPasses, "release", lambda self: released.append(self))
    if fails:
        monkeypatch.setattr(sample_fits, "run_to_ends", lambda *arguments, **options: 1 / 0)
    em = Em(LSR, 0.1, weight=1e5, n_rankings=100_000, accelerate=False)
    fits = SampleFits(em, 1, Stages(), [])
    with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
        fits.on_sample(sample_of(500, 4), [START])
    assert len(released) == 1


def test_look__size_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    rankings = as_rankings(np.tile([[0, 1, 2], [2, 1, 0]], (125_000, 1)))
    found = take_look(ThreadedPasses(rankings, n_threads=1), rankings, seed=1)
    assert found.extent == (250_000.0, 250_000, 750_000, 0, 0)
    assert found.sample.total_weight == pytest.approx(100_000, rel=0.02)
    assert found.small_sample.total_weight == pytest.approx(20_000, rel=0.05)
    assert found.share == found.sample.n_rankings / 250_000
    # Rows of three items: a bound on listed items is a bound on a third as many rows.
    monkeypatch.setattr(look, "_MOST_LISTED", 90_000)
    found = take_look(ThreadedPasses(rankings, n_threads=1), rankings, seed=1)
    assert found.sample.total_weight == pytest.approx(30_000, rel=0.05)


@pytest.mark.parametrize(
    ("mean_listed", "n_rankings", "share"),
    [(10.0, 50_000, 1.0), (10.0, 10**6, 0.1), (1000.0, 10**6, 2**24 / 10**9)],
    ids=["all", "rows", "listed items"],
)
def test_look__share_of_rows(mean_listed: float, n_rankings: int, share: float) -> None:
    asked: list[Any] = []

    def run(requests: Any) -> Any:
        asked.extend(requests)
        raise LookupError("seen enough")

    rankings: Any = SimpleNamespace(mean_listed=mean_listed, n_weighted=n_rankings, n_items=10)
    passes: Any = SimpleNamespace(run=run)
    with pytest.raises(LookupError, match="seen enough"):
        take_look(passes, rankings, seed=3)
    assert asked[0].params == (pytest.approx(share), 3)


@pytest.mark.parametrize(("share", "has_collapsed"), [(0.9e-6, True), (1.1e-6, False)])
def test_collapse__smallest_share(share: float, has_collapsed: bool) -> None:
    point = Point.start(np.zeros((2, 3)), np.array([1 - share, share]))
    assert collapsed_components(point).tolist() == ([1] if has_collapsed else [])


def test_collapse__three_seeds_and_no_more() -> None:
    point = Point.start(np.zeros((2, 3)), np.array([1.0, 0.0]))
    event = {"iteration": 1, "component": 1, "action": "reseed"}
    actions = [mend_collapsed(point, [event] * before, 1, (0, 0)) for before in range(5)]
    assert [mended.event["action"] for mended in actions if mended is not None] == ["reseed"] * 3 + [
        "drop"
    ] * 2


@pytest.mark.parametrize(
    ("log_range", "alpha", "refused"), [(299, 0, False), (301, 0, True), (301, 0.1, False)]
)
def test_em__log_worths_that_diverge(log_range: float, alpha: float, refused: bool) -> None:
    em = Em(LSR, alpha, weight=1.0, n_rankings=1, item_names=("tea", "mate"))
    after = Point.start(np.array([[log_range / 2, -log_range / 2]]), np.ones(1))
    if not refused:
        em.refuse_divergence(START.point, after)
        return
    with pytest.raises(
        NotIdentifiedError, match=r"component 0 .* diverge .*lowest 'mate' at -15[01], highest 'tea'"
    ):
        em.refuse_divergence(START.point, after)


@pytest.mark.parametrize(("log_range", "step"), [(598.0, "accelerated"), (602.0, "plain")])
def test_acceleration__not_beyond_what_kernels_can_compute(log_range: float, step: str) -> None:
    here = Point.start(np.array([[0.0, 0.0]]), np.ones(1))
    there = here._replace(log_worths=np.array([[log_range / 2, -log_range / 2]]))
    evaluation = Evaluation(-1.0, 1.0, np.ones(4), np.ones(4), there, there, {})
    after, _ = advance(Iteration.start(here), evaluation, Rules(1e-9, 9, 1.0))
    assert after.step == step


@pytest.mark.parametrize(("fall", "taken"), [(0.9e-13, True), (1.2e-13, False)])
def test_iteration__a_fall_within_rounding_is_no_fall(fall: float, taken: bool) -> None:
    here = Point.start(np.zeros((1, 2)), np.ones(1))
    first = Evaluation(-1.0e6, 1.0, np.ones(4), np.ones(4), here, here, {})
    iteration, _ = advance(Iteration.start(here), first, Rules(1e-9, 9, 1.0, accelerate=False))
    second = first._replace(objective=-1.0e6 * (1 + fall))
    _, record = advance(iteration, second, Rules(1e-9, 9, 1.0, accelerate=False))
    assert record["taken"] is taken


@pytest.mark.parametrize(
    ("n", "way"),
    [
        (300, "_by_elimination"),
        (301, "_by_factorisation"),
        (2000, "_by_factorisation"),
        (2001, "_by_iteration"),
    ],
)
def test_stationary__which_way(monkeypatch: pytest.MonkeyPatch, n: int, way: str) -> None:
    for name in ("_by_elimination", "_by_factorisation", "_by_iteration"):
        monkeypatch.setattr(
            stationary,
            name,
            lambda rates, name=name: np.arange(1.0, n + 1) * (1.0 if name == way else np.nan),
        )
    rates = np.broadcast_to(np.ones(1), (n, n))
    assert stationary_distribution(rates)[-1] == pytest.approx(2 * n / (n + 1))


@pytest.mark.parametrize(("n_rows", "little"), [(50_000, True), (50_001, False)])
def test_threads__one_where_there_is_little_work(n_rows: int, little: bool) -> None:
    rankings = as_rankings(np.tile([[0, 1]], (n_rows, 1)))
    passes = ThreadedPasses(rankings)
    assert passes.n_threads == (1 if little else os.cpu_count())
    assert ThreadedPasses(rankings, n_threads=3).n_threads == 3


# --- memory -------------------------------------------------------------------------------------------------


@pytest.mark.promise(34)
@pytest.mark.parametrize(
    ("sizes", "needed"),
    [((1000,), 400_000), ((1000, 3), 800_000), ((1000, 3, 5), 1_088_000)],
    ids=["items", "components", "starts"],
)
def test_memory__refused_beyond_what_is_free(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], needed: int
) -> None:
    # 200 bytes for each name, 200 for each worth, 24 for each further start of it.
    monkeypatch.setattr(memory_needed, "free_memory", lambda: float(needed))
    memory_needed.check_memory(*sizes)
    monkeypatch.setattr(memory_needed, "free_memory", lambda: needed - 1.0)
    with pytest.raises(SettingsError, match=r"1,000 items .*need at least [\d.e-]+ GB") as caught:
        memory_needed.check_memory(*sizes)
    message = str(caught.value)
    assert ("3 components" in message) == (len(sizes) > 1)
    assert ("5 starts" in message) == (len(sizes) > 2)
    assert ("number the items from 0" in message) == (len(sizes) == 1)


@pytest.mark.parametrize(
    ("n_components", "fits"), [(1, True), (4, True), (5, False)], ids=["one", "one vector", "two vectors"]
)
def test_memory__worths_that_int32_can_number(
    monkeypatch: pytest.MonkeyPatch, n_components: int, fits: bool
) -> None:
    monkeypatch.setattr(memory_needed, "free_memory", lambda: 1e15)
    n_items = 2**29 - 1
    if fits:
        memory_needed.check_memory(n_items, n_components)
        with pytest.raises(SettingsError, match="more than can be fitted"):
            memory_needed.check_memory(n_items + 1, n_components)
        return
    with pytest.raises(SettingsError, match="more than can be fitted"):
        memory_needed.check_memory(n_items, n_components)


# --- shapes of data -----------------------------------------------------------------------------------------


def test_simulate__at_least_two_items() -> None:
    assert checked_length(None, 2, None) == 2
    assert checked_length(1, 3, "below") == 1
    assert checked_length(2, 3, "absent") == 2
    for length, n_items, unranked in [(None, 1, None), (0, 3, "below"), (1, 3, "absent"), (4, 3, "below")]:
        with pytest.raises(SettingsError):
            checked_length(length, n_items, unranked)  # type: ignore[arg-type]


@pytest.mark.parametrize(("n_rows", "n_partitions"), [(2**21, 1), (2**21 + 1, 2)])
def test_arrays__four_million_entries_per_partition(n_rows: int, n_partitions: int) -> None:
    array = np.broadcast_to(np.int8(0), (n_rows, 2))
    blocks = row_blocks(array, ARRAY_PARTITION_ENTRIES)
    assert [block.first_row for block in blocks] == [0, 2**21][:n_partitions]
    assert sum(block.n_rows for block in blocks) == n_rows


def test_block__number_of_items_as_an_integer_of_numpy() -> None:
    block = RankingBlock.from_array([[0, 1, 2]]).replace(n_items=np.int64(3))
    assert type(block.n_items) is int
    statistics = em_statistics(block, prepare(np.zeros((1, 3)), np.zeros(1)), with_rates=True)
    assert statistics.wins.tolist() == [[1.0, 1.0, 0.0]]


# --- passes -------------------------------------------------------------------------------------------------


class Counting:
    """An algorithm that asks for one thing, three times."""

    def ask(self, state: int) -> list[Any]:
        return ["request"] if state < 3 else []

    def tell(self, state: int, answers: Any) -> int:
        assert list(answers) == ["answer"]
        return state + 1

    def score(self, state: int) -> float:
        return float(state)


@pytest.mark.parametrize(
    ("at_once", "expected"), [(1, [1] * 15), (2, [2, 2, 1] * 3), (5, [5] * 3), (9, [5] * 3)]
)
def test_together__at_most_so_many_share_a_pass(at_once: int, expected: list[int]) -> None:
    together = Together(tuple(Counting() for _ in range(5)), at_once=at_once)  # type: ignore[arg-type]
    state, sizes = together.start([0] * 5), []
    while requests := together.ask(state):
        sizes.append(len(requests))
        state = together.tell(state, ["answer"] * len(requests))  # type: ignore[list-item]
    assert sizes == expected
    assert (state.states, state.n_rounds) == ((3,) * 5, 3)


def test_graph__a_worker_that_is_gone_is_replaced_by_any_other() -> None:
    graph = Graph()
    graph.call("at home", abs, -1, home="tcp://a:1")
    graph.call("anywhere", abs, -2)
    (lazy,) = graph.lazily(["at home"])
    wish = lazy.dask.layers["at-home"].annotations
    assert wish["workers"]("at home") == ["tcp://a:1"]
    assert wish["allow_other_workers"] is True
    assert set(lazy.dask.layers["at-home"]) == {"at home"}
