"""Fits that share each pass: what is read, what is cut, the same bits from spectral starts, and what is reported."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from plmix_dist import KernelStart, PlackettLuceMixture, RankingBlock, Spectral
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NonFiniteError, NotIdentifiedError, SettingsError
from plmix_dist.fitting import batch, overview, search
from plmix_dist.fitting import fit as fitting
from plmix_dist.fitting.em import Candidate, Em, run_to_ends
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.point import Point
from plmix_dist.fitting.starts.make import _random_start
from plmix_dist.kernels import batch_statistics
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings.groups import default_leaf_rows
from plmix_dist.rankings.sampling import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import MM
from plmix_dist.store import RankingStore
from tests.helpers.fit_oracle import block_of, drawn_rows
from tests.helpers.oracle import write_store

UNFINISHED = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")


@pytest.fixture(scope="module")
def single_worker() -> Iterator[Client]:
    """A cluster of one worker with two threads, in this process to save the start of another."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def drawn(n_components: int, n_items: int, n_rows: int, seed: int = 1, **options: Any) -> RankingBlock:
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, (n_components, n_items))
    shares = np.arange(n_components, 0, -1) / (n_components * (n_components + 1) / 2)
    return draw_rankings(truth, shares, n_rows, rng, **options)[0]


def stored(path: Any, block: RankingBlock, chunk_bytes: int = 1 << 16, cuts: Sequence[int] = (2,)) -> RankingStore:
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
        number: max(r["iteration"] for r in records if r["start"] == number) for number in {r["start"] for r in records}
    }


def way(records: Sequence[dict[str, Any]], start: int = 0) -> list[tuple[Any, ...]]:
    return [(r["step"], r["objective"], r["gradient"]) for r in records if r["start"] == start]


def random_log_worths(seed: int, number: int, n_components: int, n_items: int) -> NDArray[np.float64]:
    """The log-worths of a random start, as drawn: centred twice, their last bits would differ."""
    drawn_worths = generator(seed, "start", number).standard_normal((n_components, n_items))
    begin = _random_start(FitSettings(n_components, seed=seed), n_items, number)
    assert begin.log_worths.tobytes() == drawn_worths.tobytes()
    assert begin.shares.tolist() == [1 / n_components] * n_components
    return drawn_worths


# --- one pass serves all ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> RankingStore:
    """Three leaves, few enough rows that a start looks at all of them."""
    return stored(tmp_path_factory.mktemp("shared") / "store", drawn(3, 8, 10_000))


@pytest.mark.parametrize("m_step", ["mm", "lsr"])
def test_random_starts__share_each_pass(
    small_store: RankingStore, m_step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = LeavesRead(monkeypatch)
    records: list[dict[str, Any]] = []
    model = PlackettLuceMixture(
        3, init="random", m_step=m_step, n_init=4, tol=1e-3, residency="store", random_state=3, progress=records.append
    ).fit(small_store)
    iterations = lengths(records)
    assert sorted(iterations) == [0, 1, 2, 3]
    assert len(set(iterations.values())) > 1, "starts that need different times, or the sum would show nothing"
    n_passes, rest = divmod(reads.count, small_store.n_leaves)
    assert rest == 1  # the leaf that shows that rows do not repeat
    # A look, and then as many passes as the longest run needs.
    assert n_passes == 1 + max(iterations.values()) < sum(iterations.values())
    assert model.init_["stages"][-1]["passes"] == max(iterations.values())
    # Each start goes, to the last bit, the way it goes alone.
    ends = []
    for number in range(4):
        worths = random_log_worths(3, number, 3, 8)
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
    # The search runs on rows that the look has drawn. One leaf shows that rows do not repeat.
    counted = sum(record["passes"] for record in model.init_["stages"] if record["stage"] != "search")
    assert counted * small_store.n_leaves + 1 == reads.count


def failing_kernel(monkeypatch: pytest.MonkeyPatch, n_rows: int, calls: Sequence[int]) -> None:
    """Statistics of the leaf with this many rows that are not finite, at the given calls for it."""
    n_calls = itertools.count(1)

    def breaking(block: RankingBlock, *args: Any) -> Any:
        found = MM.sums(block, *args)
        if block.n_rankings == n_rows and next(n_calls) in calls:
            found.expected_wins[1] = np.nan
        return found

    monkeypatch.setattr(fitting, "MM", replace(MM, sums=breaking))


@pytest.mark.promise(28)
def test_fit__non_finite_names_iteration_and_leaf(small_store: RankingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # The third leaf is the shortest; its statistics break in the fourth pass.
    failing_kernel(monkeypatch, 10_000 - 2 * 4096, [4])
    message = r"^iteration 4, leaf 2 \(1808 rankings\): the statistics of component 1 are not finite"
    with pytest.raises(NonFiniteError, match=message):
        PlackettLuceMixture(2, init="random", random_state=0).fit(small_store)


@pytest.mark.promise(28)
@UNFINISHED
def test_fit__one_start_that_fails_ends_alone(small_store: RankingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(**options: Any) -> PlackettLuceMixture:
        return PlackettLuceMixture(2, init="random", n_init=3, max_iter=9, random_state=0, **options).fit(small_store)

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
def test_fit__a_start_that_fails_on_a_sample_is_recorded(large: RankingBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    # The third of many starts breaks in its first pass.
    calls = itertools.count()

    def broken(block: RankingBlock, log_worths: Any, log_shares: Any) -> Any:
        found = batch_statistics(block, log_worths, log_shares)
        if next(calls) == 0:
            found.log_likelihood[2] = np.nan
        return found

    monkeypatch.setattr(batch, "batch_statistics", broken)
    monkeypatch.setattr("plmix_dist.fitting.search._LITTLE_WORK", 1 << 40)
    model = PlackettLuceMixture(5, random_state=0, max_iter=3).fit(large[:10_000])
    (failed,) = model.init_["failed_starts"]
    assert (failed["stage"], failed["start"]) == ("search", 2)
    assert failed["error"] == "the objective is not finite where the fit begins"


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


# --- starts that meet ------------------------------------------------------------------------------------


@UNFINISHED
def test_fit__starts_that_meet_are_one_start(large: RankingBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every start is the same: all end at one optimum on the sample.
    make = fitting.make_starts

    def the_same(*args: Any, **options: Any) -> Any:
        made = make(*args, **options)
        return made._replace(starts=[made.starts[0]] * len(made.starts))

    monkeypatch.setattr(fitting, "make_starts", the_same)
    records: list[dict[str, Any]] = []
    model = PlackettLuceMixture(5, init="random", n_init=3, random_state=0, max_iter=5, progress=records.append).fit(
        large
    )
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
        patch.setattr(overview, "_SAMPLE_ROWS", 21_000)
        yield


N_ITEMS = 12  # more pairs than are decomposed at once, so that dask-ml has a part in it


@pytest.fixture(scope="module")
def large() -> RankingBlock:
    """Rankings that fill several leaves, more than a start looks at."""
    return drawn(5, N_ITEMS, 22_000, seed=6)


def digest(data: Any, n_components: int, embedding: Any, residency: Any = "auto", **options: Any) -> str:
    """A hash of all that a fit finds, of the way it took, and of its start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_SEARCH_LISTED", 1 << 14)  # most of the time would go into the search
        model = PlackettLuceMixture(
            n_components, init=Spectral(embedding=embedding), residency=residency, max_iter=3, random_state=5
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
@pytest.mark.parametrize("kind", [{}, {"length": 6, "unranked": "below"}, {"length": 6, "unranked": "absent"}])
def test_spectral_fit__weight_is_copies(embedding: Any, kind: dict[str, Any]) -> None:
    block = drawn(2, N_ITEMS, 1_200, seed=2, **kind)
    one = PlackettLuceMixture(2, init=Spectral(embedding=embedding), random_state=0, tol=1e-11)
    one.fit(block, sample_weight=np.full(1_200, 3.0))
    many = PlackettLuceMixture(2, init=Spectral(embedding=embedding), random_state=0, tol=1e-11)
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


def test_spectral_fit__race_with_large_weights() -> None:
    block = drawn(5, 6, 200, seed=3)
    model = PlackettLuceMixture(5, random_state=0).fit(block, sample_weight=np.full(200, 1e6 + 0.5))
    assert np.isfinite(model.log_worths_).all()


def test_kernel_fit__large_weights() -> None:
    block = drawn(2, 6, 200, seed=3)
    model = PlackettLuceMixture(2, init="kernel", random_state=0).fit(block, sample_weight=np.full(200, 1e6 + 0.5))
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
    model = PlackettLuceMixture(2, init=KernelStart(kernel=kernel), random_state=0).fit(block)
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
    with pytest.raises(SettingsError, match=r"it takes at most 300 items, but there are 301; choose init='spectral'"):
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
    (5, 22_000, {"init": Spectral(embedding="pairwise")}, [*SPECTRAL, "search", "sample-fit", "fit"]),
    (2, 20_500, {"init": "random"}, ["look", "small-sample-fit", "fit"]),
    (2, 22_000, {"init": "random"}, ["look", "small-sample-fit", "sample-fit", "fit"]),
    (2, 3_000, {"init": "random", "n_init": 2}, ["look", "fit"]),
    (2, 150, {"init": "kernel"}, ["look", "semidefinite-program", "assign", "worths", "fit"]),
    (2, 3_000, {"init": np.zeros((2, N_ITEMS)).tolist()}, ["look", "fit"]),
]


@UNFINISHED
@pytest.mark.parametrize(("n_components", "n_rows", "options", "stages"), CASES)
def test_init_report__stages(
    n_components: int, n_rows: int, options: dict[str, Any], stages: list[str], large: RankingBlock, tmp_path: Any
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
    by_pairs = isinstance(method, Spectral)
    method = "spectral" if by_pairs else method
    if method == "spectral":
        assert report["embedding"] == ("pairwise" if by_pairs else "rank")
        columns = math.comb(N_ITEMS, 2) if by_pairs else N_ITEMS
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
