"""Fits that share each pass: what is read, what is cut, the same bits from spectral starts, and what is reported."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from fit_oracle import block_of, drawn_rows
from numpy.testing import assert_allclose, assert_array_equal
from oracle import write_store

from plmix_dist import PlackettLuceMixture, RankingBlock
from plmix_dist.data import as_rankings
from plmix_dist.engine.request import Aggregation, Answer, Request, Timing
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import FitError, NonFiniteError, NotIdentifiedError, SettingsError
from plmix_dist.inference import Em, Point, Together, look, run
from plmix_dist.inference.sample_fits import halving
from plmix_dist.inference.starts_to_ends import Candidate, run_to_ends
from plmix_dist.rankings.leaves import default_leaf_rows
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import LSR, MM, mm
from plmix_dist.starts.make_starts import random_start
from plmix_dist.starts.start_settings import StartSettings
from plmix_dist.store import RankingStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

UNFINISHED = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")


@pytest.fixture(scope="module")
def single_worker() -> Iterator[Client]:
    """A cluster of one worker with two threads, in this process to save the start of another."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def drawn(n_components: int, n_items: int, n_rows: int, seed: int = 1, **options: Any) -> RankingBlock:
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, (n_components, n_items))
    shares = np.arange(n_components, 0, -1) / (n_components * (n_components + 1) / 2)
    return draw_rankings(truth, shares, n_rows, rng, **options)[0]


def stored(
    path: Any, block: RankingBlock, chunk_bytes: int = 1 << 16, cuts: Sequence[int] = (2,)
) -> RankingStore:
    """The rows in a store of usual leaves, cut into partitions after whole leaves."""
    leaf_rows = default_leaf_rows(block.n_items)
    bounds = [0, *(cut * leaf_rows for cut in cuts), block.n_rankings]
    partitions = [[block[start:stop]] for start, stop in itertools.pairwise(bounds)]
    return write_store(path, partitions, leaf_rows=leaf_rows, chunk_bytes=chunk_bytes)


class LeavesRead:
    """Counts the leaves that are read from any store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = RankingStore.iter_leaves

        def counted(store: RankingStore, *args: Any, **options: Any) -> Iterator[RankingBlock]:
            for leaf in read(store, *args, **options):
                self.count += 1
                yield leaf

        monkeypatch.setattr(RankingStore, "iter_leaves", counted)


def lengths(records: Sequence[dict[str, Any]]) -> dict[int, int]:
    return {
        number: max(r["iteration"] for r in records if r["start"] == number)
        for number in {r["start"] for r in records}
    }


def way(records: Sequence[dict[str, Any]], start: int = 0) -> list[tuple[Any, ...]]:
    return [(r["step"], r["objective"], r["gradient"]) for r in records if r["start"] == start]


def random_log_worths(seed: int, number: int, n_components: int, n_items: int) -> NDArray[np.float64]:
    """The log-worths of a random start, as drawn: centred twice, their last bits would differ."""
    drawn_worths = generator(seed, "start", number).standard_normal((n_components, n_items))
    begin = random_start(StartSettings(n_components, seed=seed), n_items, number)
    assert begin.log_worths.tobytes() == drawn_worths.tobytes()
    assert begin.shares.tolist() == [1 / n_components] * n_components
    return drawn_worths


# --- one pass serves all ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> RankingStore:
    """Three leaves, few enough rows that a start looks at all of them."""
    return stored(tmp_path_factory.mktemp("shared") / "store", drawn(3, 6, 10_000))


@pytest.mark.parametrize("m_step", ["mm", "lsr"])
def test_random_starts__share_each_pass(
    small_store: RankingStore, m_step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = LeavesRead(monkeypatch)
    records: list[dict[str, Any]] = []
    model = PlackettLuceMixture(
        3,
        init="random",
        m_step=m_step,
        n_init=4,
        tol=1e-3,
        residency="store",
        random_state=3,
        progress=records.append,
    ).fit(small_store)
    iterations = lengths(records)
    assert sorted(iterations) == [0, 1, 2, 3]
    assert len(set(iterations.values())) > 1, (
        "starts that need different times, or the sum would show nothing"
    )
    n_passes, rest = divmod(reads.count, small_store.n_leaves)
    assert rest == 0
    # A look, and then as many passes as the longest run needs.
    assert n_passes == 1 + max(iterations.values()) < sum(iterations.values())
    assert model.init_["stages"][-1]["passes"] == max(iterations.values())
    # Each start goes, to the last bit, the way it goes alone.
    ends = []
    for number in range(4):
        worths = random_log_worths(3, number, 3, 6)
        alone = PlackettLuceMixture(3, init=worths, m_step=m_step, tol=1e-3).fit(small_store)
        assert way(alone.history_) == way(records, number)
        ends.append(alone)
    best = max(ends, key=lambda end: end.objective_)
    assert model.objective_ == best.objective_
    assert model.log_worths_.tobytes() == best.log_worths_.tobytes()
    assert model.shares_.tobytes() == best.shares_.tobytes()


def test_stages__passes_of_exact_em(small_store: RankingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = LeavesRead(monkeypatch)
    model = PlackettLuceMixture(2, em="exact", tol=1e-4, residency="store", random_state=0).fit(small_store)
    # The search runs on rows that the look has drawn.
    counted = sum(record["passes"] for record in model.init_["stages"] if record["stage"] != "search")
    assert counted == reads.count / small_store.n_leaves


@pytest.mark.parametrize("m_step", [MM, LSR], ids=lambda m_step: m_step.name)
def test_together__several_numbers_of_components(m_step: Any) -> None:
    passes = ThreadedPasses(as_rankings(drawn(3, 6, 9_000)))
    fits, begin = [], []
    for number, n_components in enumerate((1, 4, 2, 2)):
        settings = StartSettings(n_components, seed=number)
        start = random_start(settings, 6, number)
        fits.append(Em(m_step, 0.1, 9_000, 9_000, tol=1e-5, max_iter=30, seed=number, number=number))
        begin.append(fits[-1].start(Point.start(start.log_worths, start.shares)))
    together = Together(tuple(fits))
    ended = run(passes, together, together.start(begin))
    # Two at a time they go the same way, in more passes.
    by_two = replace(together, at_once=2)
    assert_same_ends(run(passes, by_two, by_two.start(begin)), ended)
    for number, (fit, state) in enumerate(zip(fits, begin, strict=True)):
        alone, shared = fit.result(run(passes, fit, state)), fit.result(ended.states[number])
        assert way(alone.history, number) == way(shared.history, number)
        assert alone.point.log_worths.tobytes() == shared.point.log_worths.tobytes()
        assert alone.point.log_shares.tobytes() == shared.point.log_shares.tobytes()


def assert_same_ends(mine: Any, theirs: Any) -> None:
    for left, right in zip(mine.states, theirs.states, strict=True):
        assert left.iteration.best.point.flat().tobytes() == right.iteration.best.point.flat().tobytes()


def test_together__algorithms_of_different_kinds() -> None:
    # Whatever asks for passes can share them: a fit, and a count of rows that asks three times.
    class Count:
        def ask(self, state: tuple[int, ...]) -> list[Request]:
            return [ROWS, ROWS] if len(state) < 6 else []

        def tell(self, state: tuple[int, ...], answers: Any) -> tuple[int, ...]:
            return (*state, *(answer.results[0] for answer in answers))

        def score(self, state: tuple[int, ...]) -> None:
            return None

    passes = ThreadedPasses(as_rankings(drawn(2, 5, 5_000)))
    fit = Em(MM, 0.1, 5_000, 5_000, max_iter=7)
    begin = fit.start(Point.start(random_log_worths(0, 0, 2, 5), np.full(2, 0.5)))
    together = Together((Count(), fit))
    ended = run(passes, together, together.start([(), begin]))
    assert ended.states[0] == (5_000,) * 6
    assert len(ended.states[1].history) == 7 == passes.n_passes


ROWS = Request(Aggregation("rows", leaf=lambda number, block, params: block.n_rankings))


# --- races -----------------------------------------------------------------------------------------------


class Scripted:
    """An algorithm that reaches one score after another, and then has a result."""

    def __init__(self, scores: Sequence[float], name: str) -> None:
        self.scores = scores
        self.name = name

    def ask(self, state: int) -> list[Request]:
        return [ROWS] if state < len(self.scores) else []

    def tell(self, state: int, answers: Sequence[Answer]) -> int:
        assert len(answers) == 1
        return state + 1

    def score(self, state: int) -> float | None:
        return max(self.scores[:state], default=None)


class Answered:
    """Passes without data; notes how many requests each of them answered."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.n_passes = 0

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        self.counts.append(len(requests))
        return [Answer((0,), None, Timing(0.0, 0.0, 0.0)) for _ in requests]

    def release(self) -> None:
        pass


def raced(
    scripts: Sequence[tuple[Sequence[float], str]], cuts: Sequence[tuple[int, int]] = ()
) -> tuple[dict[int, str], list[int]]:
    """The names of those that reach the end of a race, by number, and how many were answered in each pass."""
    together = Together(tuple(Scripted(*script) for script in scripts), tuple(cuts))
    passes = Answered()
    ended = run(passes, together, together.start([0] * len(scripts)))
    left = {number: scripts[number][1] for number, state in enumerate(ended.states) if state is not None}
    return left, passes.counts


def test_together__cuts_keep_the_best() -> None:
    scripts = [([-100 + k + 10 * n for n in range(6)], f"fit {k}") for k in (3, 0, 7, 5)]
    assert raced(scripts, [(2, 3), (4, 1)]) == ({2: "fit 7"}, [4, 4, 3, 3, 1, 1])


def test_together__no_cuts_keep_all() -> None:
    # Twins too: nobody asked for a race.
    scripts = [([-5.0] * length, str(length)) for length in (1, 4, 4, 2)]
    assert raced(scripts) == ({0: "1", 1: "4", 2: "4", 3: "2"}, [4, 3, 2, 2])


def test_together__finished_fits_stay_in_the_race() -> None:
    good, poor, fair = [-9.0], [-50.0, -49.0, -48.0, -47.0], [-20.0, -19.0, -18.0, -17.0]
    assert raced([(poor, "poor"), (good, "good"), (fair, "fair")], [(2, 2)])[0] == {1: "good", 2: "fair"}
    # ... and leave it where others overtake them.
    assert raced([([-60.0], "early"), (poor, "poor"), (fair, "fair")], [(2, 2)])[0] == {1: "poor", 2: "fair"}


def test_together__a_fall_is_forgiven() -> None:
    # A step that is not taken may show a low likelihood just when a cut is made; the best so far counts.
    stumbling, steady = [-10.0, -99.0, -9.0], [-30.0, -29.0, -28.0]
    assert raced([(steady, "steady"), (stumbling, "stumbling")], [(2, 1)])[0] == {1: "stumbling"}


def test_together__in_step_are_dropped() -> None:
    twin, other = [-100.0, -90.0, -80.0], [-200.0, -190.0, -180.0]
    nearly = [likelihood * (1 + 1e-9) for likelihood in twin]
    found = raced([(nearly, "nearly"), (twin, "twin"), (other, "other")], [(2, 2)])
    assert found == ({1: "twin", 2: "other"}, [3, 3, 2])
    # One part in 100,000 is another optimum.
    apart = [likelihood * (1 + 1e-5) for likelihood in twin]
    assert raced([(apart, "apart"), (twin, "twin"), (other, "other")], [(2, 2)])[0] == {0: "apart", 1: "twin"}


def test_together__the_dead_take_no_places() -> None:
    # The twin is dropped as in step at the first cut; what it had reached by then still beats "other" at the second.
    twin, other, last = ([start + 10.0 * n for n in range(6)] for start in (-100.0, -200.0, -300.0))
    scripts = [(twin, "twin"), (twin, "its twin"), (other, "other"), (last, "last")]
    assert raced(scripts, [(2, 3), (4, 2)])[0] == {0: "twin", 2: "other"}


def test_together__nothing_to_do() -> None:
    assert raced([]) == ({}, [])
    assert raced([([], "at once")]) == ({0: "at once"}, [])


@pytest.mark.parametrize(
    ("n_runs", "n_kept", "cuts"),
    [
        (1, 1, []),
        (4, 4, []),
        (3, 4, []),
        (2, 1, [(8, 1)]),
        (7, 2, [(8, 3), (16, 2)]),
        (20, 3, [(8, 10), (16, 5), (32, 3)]),
    ],
)
def test_halving__cuts(n_runs: int, n_kept: int, cuts: list[tuple[int, int]]) -> None:
    assert halving(n_runs, n_kept) == cuts


def failing_kernel(monkeypatch: pytest.MonkeyPatch, n_rows: int, calls: Sequence[int]) -> None:
    """Statistics of the leaf with so many rows that are not finite, at the given calls for it."""
    kernel, n_calls = mm.em_statistics, itertools.count(1)

    def breaking(block: RankingBlock, *args: Any, **options: Any) -> Any:
        found = kernel(block, *args, **options)
        if block.n_rankings == n_rows and next(n_calls) in calls:
            found.expected_wins[1] = np.nan
        return found

    monkeypatch.setattr(mm, "em_statistics", breaking)


@pytest.mark.promise(28)
def test_fit__non_finite_names_iteration_and_leaf(
    small_store: RankingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The third leaf is the shortest; its statistics break in the fourth pass.
    failing_kernel(monkeypatch, 10_000 - 2 * 4096, [4])
    message = r"^iteration 4, leaf 2 \(1808 rankings\): the statistics of component 1 are not finite"
    with pytest.raises(NonFiniteError, match=message):
        PlackettLuceMixture(2, init="random", random_state=0).fit(small_store)


@pytest.mark.promise(28)
@UNFINISHED
def test_fit__one_start_that_fails_ends_alone(
    small_store: RankingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(**options: Any) -> PlackettLuceMixture:
        return PlackettLuceMixture(2, init="random", n_init=3, max_iter=9, random_state=0, **options).fit(
            small_store
        )

    undisturbed: list[dict[str, Any]] = []
    fit(progress=undisturbed.append)
    # In the fourth pass the leaf is met for the tenth, eleventh and twelfth time: once by each of three fits.
    failing_kernel(monkeypatch, 10_000 - 2 * 4096, [11])
    records: list[dict[str, Any]] = []
    model = fit(progress=records.append)
    assert lengths(records) == {0: 9, 1: 3, 2: 9}
    for number in (0, 2):
        assert way(records, number) == way(undisturbed, number)
    (failed,) = model.init_["failed_starts"]
    assert (failed["stage"], failed["start"]) == ("fit", 1)
    assert failed["error"].startswith("iteration 4, leaf 2 (1808 rankings): the statistics of component 1")
    assert model.objective_ == max(r["objective"] for r in records if r["start"] != 1)


@pytest.mark.promise(28)
@UNFINISHED
def test_fit__a_start_that_fails_on_a_sample_is_recorded(
    large: RankingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last leaf of a search with 10,000 rows: the third of many starts breaks in its first pass.
    failing_kernel(monkeypatch, 10_000 - 2 * 4_096, [3])
    model = PlackettLuceMixture(5, random_state=0, max_iter=3).fit(large[:10_000])
    (failed,) = model.init_["failed_starts"]
    assert (failed["stage"], failed["start"]) == ("search", 2)
    assert failed["error"].startswith("iteration 1, leaf 2 (1808 rankings)")


@pytest.mark.promise(28)
def test_fit__all_starts_fail(small_store: RankingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_kernel(monkeypatch, 10_000 - 2 * 4096, [4, 5, 9])
    with pytest.raises(NonFiniteError, match=r"^start 0, iteration 2, leaf 2 "):
        PlackettLuceMixture(2, init="random", n_init=3, random_state=0).fit(small_store)


@pytest.mark.promise(22)
def test_fit__a_start_that_diverges_ends_alone() -> None:
    # Two rankings and their reverses: a component that learns one of them alone has no maximum.
    table = np.array([[0, 1, 2]] * 30 + [[2, 1, 0]] * 30)
    apart = np.array([[9.0, 0.0, -9.0], [-9.0, 0.0, 9.0]])
    together = np.array([[0.1, 0.0, -0.1], [0.1, 0.0, -0.1]])
    passes = ThreadedPasses(as_rankings(table))
    em = Em(MM, 0.0, weight=60.0, n_rankings=60, max_iter=3_000, item_names=("a", "b", "c"))
    candidates = [
        Candidate(Point.start(worths, np.full(2, 0.5)), {"name": name})
        for name, worths in (("apart", apart), ("together", together))
    ]
    runs, failed = run_to_ends(passes, em, candidates)
    assert sorted(runs) == [1]
    assert runs[1].converged
    assert isinstance(failed[0], NotIdentifiedError)
    assert "component 0 has no maximum-likelihood estimate" in str(failed[0])
    with pytest.raises(NotIdentifiedError, match=r"^iteration \d+, component 0 has no maximum"):
        run_to_ends(passes, em, candidates[:1])


def test_together__a_point_that_cannot_be_computed_with_ends_alone() -> None:
    passes = ThreadedPasses(as_rankings(drawn(2, 5, 500)))
    fits = [Em(MM, 0.1, 500, 500, max_iter=5, number=number) for number in range(3)]
    wide, nan = np.zeros((2, 5)), np.full((2, 5), np.nan)
    wide[0, 0] = 900.0
    points = [Point(worths, np.zeros(2), np.log([0.5, 0.5])) for worths in (wide, np.eye(2, 5), nan)]
    together = Together(tuple(fits))
    ended = run(
        passes, together, together.start([fit.start(point) for fit, point in zip(fits, points, strict=True)])
    )
    errors = [state.error for state in ended.states]
    assert isinstance(errors[0], NonFiniteError)
    assert errors[1] is None
    assert isinstance(errors[2], NonFiniteError)
    assert len(ended.states[1].history) == 5


def test_together__scores_are_objectives() -> None:
    # With a strong prior the likelihood says little about which start is ahead. Log-priors count from their maximum.
    passes = ThreadedPasses(as_rankings(drawn(2, 5, 60)))
    em = Em(MM, 5.0, 60, 60, max_iter=6)
    state = run(passes, em, em.start(Point.start(random_log_worths(0, 0, 2, 5), np.full(2, 0.5))))
    best = max(record["objective"] for record in state.history if record["taken"])
    assert em.score(state) == pytest.approx(best + 2 * 2 * 5.0 * 5 * math.log(2), rel=1e-12)
    assert together_ignores_nan()


def together_ignores_nan() -> bool:
    class Nan(Scripted):
        def score(self, state: int) -> float | None:
            return float("nan")

    together = Together((Nan([1.0], "nan"), Scripted([-3.0], "good")))
    return together.leading(together.start([1, 1]), 1) == [1]


def test_run__other_errors_end_everything() -> None:
    # A bug, or a damaged store, is nobody's own: it is not swallowed as the failure of one fit.
    def broken(number: int, block: RankingBlock, params: None) -> int:
        raise ValueError("this is a bug")

    passes = ThreadedPasses(as_rankings(drawn(2, 5, 500)))
    with pytest.raises(ValueError, match="this is a bug"):
        passes.run([ROWS, Request(Aggregation("broken", leaf=broken))])
    assert not issubclass(SettingsError, FitError)


# --- starts that meet ------------------------------------------------------------------------------------


@UNFINISHED
def test_fit__starts_that_meet_are_one_start(large: RankingBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every start is the same: all end at one optimum on the sample.
    from plmix_dist.inference import fit as fitting

    make = fitting.make_starts

    def the_same(*args: Any, **options: Any) -> Any:
        made = make(*args, **options)
        return made._replace(starts=[made.starts[0]] * len(made.starts))

    monkeypatch.setattr(fitting, "make_starts", the_same)
    records: list[dict[str, Any]] = []
    model = PlackettLuceMixture(
        5, init="random", n_init=3, random_state=0, max_iter=5, progress=records.append
    ).fit(large)
    assert "sample-fit" in {record["stage"] for record in model.init_["stages"]}
    assert {record["start"] for record in records} == {0}


@UNFINISHED
@pytest.mark.parametrize("n_init", [1, 2])
def test_fit__at_most_n_init_starts_reach_the_full_data(large: RankingBlock, n_init: int) -> None:
    records: list[dict[str, Any]] = []
    PlackettLuceMixture(5, n_init=n_init, random_state=0, max_iter=5, progress=records.append).fit(large)
    assert len({record["start"] for record in records}) <= n_init


# --- the same bits ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _few_rows_are_many() -> Any:
    """Samples so small that some ten thousand rows go through every stage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look, "_SAMPLE_ROWS", 21_000)
        yield


N_ITEMS = 12  # more pairs than are decomposed at once, so that dask-ml has a part in it


@pytest.fixture(scope="module")
def large() -> RankingBlock:
    """Rankings that fill several leaves, more than a start looks at."""
    return drawn(5, N_ITEMS, 22_000, seed=6)


def digest(data: Any, n_components: int, embedding: Any, residency: Any = "auto", **options: Any) -> str:
    """A hash of all that a fit finds, of the way it took, and of its start."""
    model = PlackettLuceMixture(
        n_components, embedding=embedding, residency=residency, max_iter=3, random_state=5
    ).fit(data, **options)
    stages = [record["stage"] for record in model.init_["stages"]]
    assert "sample-fit" in stages
    assert "search" in stages
    steps = np.array([(record["objective"], record["gradient"]) for record in model.history_])
    parts = (
        model.log_worths_,
        model.shares_,
        model._ghosts,
        steps,
        *(model.init_[name] for name in ("singular_values", "vectors")),
    )
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def in_this_process(large: RankingBlock) -> dict[tuple[int, str], str]:
    """What every way must give: the fits of an array."""
    table = large.to_array()
    return {(k, embedding): digest(table, k, embedding) for k in (2, 5) for embedding in ("rank", "pairwise")}


@UNFINISHED
def test_spectral_fit__digest_tells_fits_apart(in_this_process: dict[tuple[int, str], str]) -> None:
    assert len(set(in_this_process.values())) == 4


@pytest.mark.promise(10)
@pytest.mark.promise(11)
@UNFINISHED
@pytest.mark.parametrize("embedding", ["rank", "pairwise"])
@pytest.mark.parametrize("n_components", [2, 5])
def test_spectral_fit__same_bits(
    n_components: int,
    embedding: str,
    large: RankingBlock,
    in_this_process: dict[tuple[int, str], str],
    tmp_path: Any,
    client: Client,
    single_worker: Client,
) -> None:
    store = stored(tmp_path / "store", large)
    again = stored(tmp_path / "again", large, 5_000, [1, 2, 3])
    lazy = da.from_array(large.to_array(), chunks=(7_001, 5))
    ways: list[tuple[str, Any, Any, Client | None]] = [
        ("one worker", store, "memory", single_worker),
        ("rechunked, two workers", again, "store", client),
    ]
    if n_components == 2:
        ways += [("read again every pass", store, "store", None)]
        ways += [("rechunked", again, "memory", None), ("Dask array, two workers", lazy, "auto", client)]
    for name, data, residency, where in ways:
        found = digest(data, n_components, embedding, residency, client=where)
        assert found == in_this_process[n_components, embedding], name


# --- laws ------------------------------------------------------------------------------------------------


@pytest.mark.promise(12)
@pytest.mark.parametrize("embedding", ["rank", "pairwise"])
@pytest.mark.parametrize(
    "kind", [{}, {"length": 6, "unranked": "below"}, {"length": 6, "unranked": "absent"}]
)
def test_spectral_fit__weight_is_copies(embedding: Any, kind: dict[str, Any]) -> None:
    block = drawn(2, N_ITEMS, 1_200, seed=2, **kind)
    one = PlackettLuceMixture(2, embedding=embedding, random_state=0, tol=1e-11)
    one.fit(block, sample_weight=np.full(1_200, 3.0))
    many = PlackettLuceMixture(2, embedding=embedding, random_state=0, tol=1e-11)
    many.fit(block.take(np.repeat(np.arange(1_200), 3)))
    assert_allclose(one.shares_, many.shares_, atol=1e-8)
    assert_allclose(one.log_worths_, many.log_worths_, atol=1e-8)
    assert one.log_likelihood_ == pytest.approx(many.log_likelihood_, rel=1e-12)


def test_spectral_fit__fixed_shares_find_their_clusters() -> None:
    rng = np.random.default_rng(0)
    block, _ = draw_rankings(rng.normal(0, 1, (2, 8)), np.array([0.85, 0.15]), 1_500, rng)
    best = PlackettLuceMixture(2, init="random", n_init=10, shares=[0.85, 0.15], random_state=0).fit(block)
    for shares in ([0.85, 0.15], [0.15, 0.85]):
        found = PlackettLuceMixture(2, shares=shares, random_state=0).fit(block)
        assert found.objective_ == pytest.approx(best.objective_, abs=1e-3)


def test_fit__a_sample_without_an_estimate_stops_nothing() -> None:
    # Item 3 wins once in 60,000 rankings, and with that the estimate exists; two samples of three miss it.
    orders = [([0, 1, 2, 3], 20_000), ([1, 2, 0, 3], 20_000), ([2, 0, 1, 3], 19_999), ([3, 0, 1, 2], 1)]
    table = np.concatenate([np.tile(order, (count, 1)) for order, count in orders])
    for seed in range(3):
        model = PlackettLuceMixture(1, alpha=0, random_state=seed).fit(table)
        assert model.log_worths_[0].argmin() == 3


FRACTIONS = (
    "a row of a weight that is no whole number is kept or left as a whole, and the share is one of weight"
)


def test_spectral_fit__race_with_large_weights() -> None:
    block = drawn(5, 6, 200, seed=3)
    model = PlackettLuceMixture(5, random_state=0).fit(block, sample_weight=np.full(200, 1e6 + 0.5))
    assert np.isfinite(model.log_worths_).all()


def test_kernel_fit__large_weights() -> None:
    block = drawn(2, 6, 200, seed=3)
    model = PlackettLuceMixture(2, init="kernel", random_state=0).fit(
        block, sample_weight=np.full(200, 1e6 + 0.5)
    )
    assert np.isfinite(model.log_worths_).all()


# --- kernel starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["kendall", "mallows"])
@pytest.mark.parametrize("kind", ["top-k", "subset", "mixed"])
def test_kernel_fit__partial_rankings(kernel: Any, kind: str) -> None:
    truth = np.array([[4.0, 3, 2, 1, 0, -1, -2, -3], [-3.0, -2, -1, 0, 1, 2, 3, 4]])
    if kind == "mixed":
        block = block_of(drawn_rows(2, truth, [0.6, 0.4], 800), 8)
    else:
        unranked: Any = {"top-k": "below", "subset": "absent"}[kind]
        block, _ = draw_rankings(
            truth, np.array([0.6, 0.4]), 800, np.random.default_rng(2), length=4, unranked=unranked
        )
    model = PlackettLuceMixture(2, init="kernel", kernel=kernel, random_state=0).fit(block)
    assert model.init_["method"] == "kernel"
    assert model.init_["kernel"] == kernel
    best = PlackettLuceMixture(2, init="random", n_init=5, random_state=0).fit(block)
    assert model.objective_ == pytest.approx(best.objective_, abs=1e-3)
    assert [record["stage"] for record in model.init_["stages"]] == [
        "look",
        "semidefinite-program",
        "assign",
        "worths",
        "fit",
    ]


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.CollapsedComponentWarning")
@pytest.mark.parametrize("table", [[[0, 1, 2]], [[0, 1, 2]] * 9, [[0, 1, 2]] * 3 + [[2, 1, 0]] * 2])
def test_kernel_fit__hardly_any_data(table: list[list[int]]) -> None:
    # Three components would be more than distinct rankings.
    model = PlackettLuceMixture(1, init="kernel", random_state=0).fit(np.array(table))
    assert np.isfinite(model.log_worths_).all()
    assert model.shares_.sum() == pytest.approx(1)


@pytest.mark.promise(42)
def test_kernel_fit__refuses_many_items() -> None:
    table = np.array([[0, 1, 2], [4, 2, 5]] * 20)
    with pytest.raises(
        SettingsError, match=r"it takes at most 300 items, but there are 301; choose init='spectral'"
    ):
        PlackettLuceMixture(2, init="kernel", random_state=0).fit(table, n_items=301, unranked="absent")


# --- the report ------------------------------------------------------------------------------------------


def without_arrays(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if not isinstance(value, np.ndarray)}


SPECTRAL = ["look", "embedding", "svd", "k-means", "worths"]
CASES = [
    (2, 3_000, {}, [*SPECTRAL, "search", "fit"]),
    (2, 20_500, {}, [*SPECTRAL, "search", "fit"]),
    (2, 22_000, {}, [*SPECTRAL, "search", "sample-fit", "fit"]),
    (5, 3_000, {}, [*SPECTRAL, "search", "fit"]),
    (5, 22_000, {"embedding": "pairwise"}, [*SPECTRAL, "search", "sample-fit", "fit"]),
    (2, 20_500, {"init": "random"}, ["look", "small-sample-fit", "fit"]),
    (2, 22_000, {"init": "random"}, ["look", "small-sample-fit", "sample-fit", "fit"]),
    (2, 3_000, {"init": "random", "n_init": 2}, ["look", "fit"]),
    (2, 150, {"init": "kernel"}, ["look", "semidefinite-program", "assign", "worths", "fit"]),
    (2, 3_000, {"init": np.zeros((2, N_ITEMS)).tolist()}, ["look", "fit"]),
]


@UNFINISHED
@pytest.mark.parametrize(("n_components", "n_rows", "options", "stages"), CASES)
def test_init_report__stages(
    n_components: int,
    n_rows: int,
    options: dict[str, Any],
    stages: list[str],
    large: RankingBlock,
    tmp_path: Any,
) -> None:
    model = PlackettLuceMixture(n_components, random_state=0, max_iter=20, **options).fit(large[:n_rows])
    report = model.init_
    # With several ranks to try, k-means and worths come once a rank.
    names = [record["stage"] for record in report["stages"]]
    assert [name for number, name in enumerate(names) if name not in names[:number]] == stages
    for record in report["stages"]:
        assert record["seconds"] >= 0
        assert record["passes"] >= 0
        assert 1 << 20 < record["peak_memory"] < 1 << 40
    peaks = [record["peak_memory"] for record in report["stages"]]
    assert peaks == sorted(peaks)
    assert report["stages"][0]["passes"] == 1
    assert report["stages"][-1]["passes"] >= model.n_iter_
    method = options.get("init", "spectral")
    if method == "spectral":
        assert report["embedding"] == options.get("embedding", "rank")
        columns = math.comb(N_ITEMS, 2) if options.get("embedding") == "pairwise" else N_ITEMS
        assert report["singular_values"].shape == (n_components + 2,)
        assert report["vectors"].shape == (columns, n_components + 2)
    if isinstance(method, str):
        varied = ("handfuls", "seeded-again", "worst-explained") if method == "spectral" else ()
        assert report["method"] in (method, "random", *varied)
    else:
        assert report["method"] == "given"
    if "rank" in report:
        assert 1 <= report["rank"] < n_components
    plain = without_arrays(report)
    assert json.loads(json.dumps(plain)) == plain
    model.save(tmp_path / "model")
    again = PlackettLuceMixture.load(tmp_path / "model").init_
    assert without_arrays(again) == plain
    assert set(again) == set(report)
    for name in set(report) - set(plain):
        assert_array_equal(again[name], report[name])


def test_init_report__search_and_sample_fit_say_what_they_cost(large: RankingBlock) -> None:
    model = PlackettLuceMixture(5, random_state=0, tol=1e-4).fit(large)
    by_name = {record["stage"]: record for record in model.init_["stages"]}
    searched, sample_fit = by_name["search"], by_name["sample-fit"]
    assert searched["n_starts"] == model.init_["search"]["n_starts"] >= 4
    # Rows that list 131,072 items.
    assert searched["rows"] == pytest.approx(131_072 / N_ITEMS, rel=0.01)
    n_batches = 1 + -(-searched["n_starts"] // 8)
    assert 0 < searched["passes"] <= 60 * n_batches * searched["rows"] / large.n_rankings
    assert sample_fit["rows"] == pytest.approx(21_000, abs=10)
    assert sample_fit["passes"] > 0


@UNFINISHED
def test_n_init__more_starts_than_one(large: RankingBlock) -> None:
    records: list[dict[str, Any]] = []
    model = PlackettLuceMixture(
        2, init="random", n_init=3, random_state=0, max_iter=6, tol=1e-12, progress=records.append
    ).fit(large[:3_000])
    assert lengths(records) == {0: 6, 1: 6, 2: 6}
    ends = [[r["objective"] for r in records if r["start"] == number][-1] for number in range(3)]
    assert model.objective_ >= max(ends)
    alone = PlackettLuceMixture(2, init=random_log_worths(0, 1, 2, N_ITEMS), max_iter=6, tol=1e-12)
    alone.fit(large[:3_000])
    assert way(alone.history_) == way(records, 1)
