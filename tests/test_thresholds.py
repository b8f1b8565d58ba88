"""Numbers that decide: what happens on either side of each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fit_oracle import (
    block_of,
    drawn_rows,
    exact_posteriors,
    exact_probability,
    exact_statistics,
    listed_in_order,
    slate,
    top,
)
from numpy.testing import assert_allclose
from oracle import write_store

from plmix_dist import export
from plmix_dist.data import as_rankings
from plmix_dist.engine import ClusterOptions, LazyExecutor, cluster, run_all
from plmix_dist.engine.distributed import DistributedPasses
from plmix_dist.engine.graph import Graph
from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.engine.residency import stays_in_memory
from plmix_dist.errors import IngestError, StartWarning
from plmix_dist.formats import preflib
from plmix_dist.formats.items import LONGEST_LABEL, label_problem
from plmix_dist.formats.sources import SourceFile
from plmix_dist.inference import Em, Point, e_step, sample_fits
from plmix_dist.inference.e_step import component_step
from plmix_dist.inference.sample_fits import SampleFits
from plmix_dist.inference.starts_to_ends import Candidate
from plmix_dist.inference.together import leading
from plmix_dist.kernels import em_statistics, information, native, prepare
from plmix_dist.solvers import LSR, MM, MStep, Worths, stationary, stationary_distribution
from plmix_dist.stages import Stages
from plmix_dist.starts.clusters import cluster_rows
from plmix_dist.starts.sdp_start import _nearest
from plmix_dist.starts.svd_rank import rank_above_noise, rank_of_paper

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

    from plmix_dist.rankings import Ranking, RankingBlock

# --- clusters and memory ------------------------------------------------------------------------------------


def test_lazy__four_tasks_are_worth_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cluster(options: ClusterOptions) -> Any:
        raise LookupError("a cluster was wanted")

    monkeypatch.setattr(cluster, "open_client", no_cluster)
    with LazyExecutor(ClusterOptions()) as executor:
        assert run_all(executor, abs, [-1, -2, -3], "abs") == [1, 2, 3]
        with pytest.raises(LookupError, match="a cluster was wanted"):
            run_all(executor, abs, [-1, -2, -3, -4], "abs")


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
    call = Graph.call

    def noting(self: Graph, key: str, *arguments: Any, home: str | None = None) -> Any:
        if home is not None:
            noted[key] = home
        return call(self, key, *arguments, home=home)

    monkeypatch.setattr(Graph, "call", noting)
    rankings = as_rankings(np.argsort(np.random.default_rng(0).random((9000, 3)), axis=1))
    passes = DistributedPasses(rankings, client, residency=residency)
    passes.run([Request(Aggregation("rows", leaf=count_rows))])
    homes = {int(key.rsplit("-", 1)[1]): home for key, home in noted.items() if key.startswith(prefix)}
    assert homes == {part.number: part.home for part in passes.parts}
    passes.release()


@pytest.mark.parametrize(("decoded", "stays"), [(39.9e6, True), (40.1e6, False)])
def test_residency__four_tenths_of_memory(decoded: float, stays: bool) -> None:
    assert stays_in_memory("auto", decoded, 100e6) is stays
    assert stays_in_memory("memory", decoded, 1.0)
    assert not stays_in_memory("store", decoded, 1e12)


# --- the cache of kernels -----------------------------------------------------------------------------------


def test_digest__covers_every_byte_of_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = sorted(path.relative_to(native._SOURCES) for path in native._SOURCES.rglob("*.py"))
    assert {"native.py", "rate_sums.py", "compiled/rates.py", "compiled/choices.py"} <= set(map(str, sources))
    for source in sources:
        (tmp_path / source).parent.mkdir(exist_ok=True)
        (tmp_path / source).write_bytes((native._SOURCES / source).read_bytes())
    monkeypatch.setattr(native, "_SOURCES", tmp_path)
    digest = native._digest.__wrapped__
    found = {digest()}
    for source in sources:
        content = (tmp_path / source).read_bytes()
        (tmp_path / source).write_bytes(content + b"\n")
        found.add(digest())
        (tmp_path / source).write_bytes(content)
    assert len(found) == len(sources) + 1
    for version, processor in [("0", native.processor()), (None, ("other", "")), (None, ("", "other"))]:
        if version is not None:
            monkeypatch.setattr("llvmlite.__version__", version)
        monkeypatch.setattr(native, "processor", lambda found=processor: found)
        found.add(digest())
    assert len(found) == len(sources) + 4


# --- fits ---------------------------------------------------------------------------------------------------


def test_leading__likelihoods_that_differ_by_little() -> None:
    assert leading({0: -1000.0, 1: -1000.0 - 1e-2}, n_kept=2) == [0, 1]  # 1e-5 of the value
    assert leading({0: -1000.0, 1: -1000.0 - 2e-4}, n_kept=2) == [0, 1]
    assert leading({0: -1000.0, 1: -1000.0 - 0.5e-4}, n_kept=2) == [0]


@pytest.mark.parametrize(("alpha", "expected"), [(2.0, 2.0), (0.0, 0.1)])
def test_sample_fits__prior_in_proportion(
    monkeypatch: pytest.MonkeyPatch, alpha: float, expected: float
) -> None:
    seen: list[Em] = []

    def stop(passes: Any, em: Em, *arguments: Any, **options: Any) -> Any:
        seen.append(em)
        raise LookupError("seen enough")

    monkeypatch.setattr(sample_fits, "run_to_ends", stop)
    sample = block_of(drawn_rows(1, np.zeros((1, 4)), [1.0], 50), 4)
    em = Em(LSR, alpha, weight=1000.0, n_rankings=400, tol=1e-9, max_iter=77)
    start = Candidate(Point.start(np.zeros((1, 4)), np.ones(1)), {})
    with pytest.raises(LookupError, match="seen enough"):
        SampleFits(em, 1, Stages(), []).on_sample(sample, [start])
    (of_sample,) = seen
    assert of_sample.weight == 50
    assert of_sample.alpha == pytest.approx(expected * 50 / 1000)
    assert (of_sample.tol, of_sample.max_iter) == (1e-4, 77)


@pytest.mark.parametrize(
    ("log_range", "alpha", "expected"),
    [(599.0, 0.1, 599.0), (601.0, 0.1, 300.5), (1e6, 0.1, 1e6 / 2**11), (1e6, 0.0, 1e6)],
    ids=["near", "halved", "halved often", "no prior"],
)
def test_m_step__halved_until_it_can_be_computed_with(
    log_range: float, alpha: float, expected: float
) -> None:
    step = Worths(np.array([log_range / 2, -log_range / 2]), log_range)
    found = e_step._shortened(Worths(np.zeros(2), 0.0), step, alpha)
    assert np.ptp(found.log_worths) == pytest.approx(expected, rel=1e-12)
    assert found.ghost == pytest.approx(expected, rel=1e-12)


@pytest.mark.promise(23)
@pytest.mark.parametrize("m_step", [LSR, MM], ids=lambda m_step: m_step.name)
@pytest.mark.parametrize(
    ("share", "alpha", "moves"), [(1e-7, 0.0, False), (1e-5, 0.0, True), (1e-7, 0.1, True)]
)
def test_m_step__of_a_component_without_rankings(
    m_step: MStep, share: float, alpha: float, moves: bool
) -> None:
    # Both components have the same worths, so posteriors are shares.
    block = block_of(drawn_rows(1, np.array([[1.0, 0.0, -1.0]]), [1.0], 50), 3)
    worths = np.array([[0.5, 0.0, -0.5]] * 2)
    sums = m_step.sums(block, prepare(worths, np.log([1 - share, share])), None)
    step = component_step(m_step, 1, Worths(worths[1], 0.0), alpha, sums)
    assert bool(np.abs(step.next.log_worths - worths[1]).max() > 1e-3) is moves
    if not moves:
        # Nothing to learn from: the worths stay, and no derivative says otherwise.
        assert step.safe is not None
        assert step.gradient is not None
        assert np.abs(step.gradient.values).max() == step.log_prior == 0.0
        assert_allclose(step.safe.log_worths, worths[1])


# --- kernels ------------------------------------------------------------------------------------------------


def rare_component(row: Ranking, n_items: int, posterior: float) -> tuple[Any, Any, Any]:
    """One row, and a mixture whose second component has about this posterior on it."""
    rng = np.random.default_rng(n_items)
    log_worths = np.stack([np.zeros(n_items), rng.normal(0, 0.1, n_items)])
    ratio = exact_probability(row, n_items, log_worths[0]) / exact_probability(row, n_items, log_worths[1])
    log_shares = np.log([1.0, posterior * float(ratio)])
    return [row], log_worths, log_shares - np.logaddexp.reduce(log_shares)


WAYS = {
    "side by side": (5, slate([3, 1, 4, 0, 2], [])),
    "queued": (45, slate(list(range(45)), [])),
    "by line": (45, top(7, 3, 40, 1)),
    "by pair": (400, slate([7, 399, 40], [1, 5])),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("posterior", [1e-12, 3e-15])
def test_rates__of_components_that_have_hardly_any_of_a_row(way: str, posterior: float) -> None:
    n_items, row = WAYS[way]
    rows, *mixture = rare_component(row, n_items, posterior)
    found = em_statistics(block_of(rows, n_items), prepare(*mixture), with_rates=True).rates
    expected = exact_statistics(rows, n_items, *mixture).rates
    assert 0.5 * posterior < exact_posteriors(rows, n_items, *mixture)[1][0, 1] < 2 * posterior
    assert expected[1].max() > 0
    assert_allclose(found, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("posterior", [1e-4, 2e-6])
def test_information__of_components_that_have_little_of_a_row(posterior: float) -> None:
    n_items = 6
    rows, log_worths, log_shares = rare_component(slate([3, 1, 5, 4, 0, 2], []), n_items, posterior)
    found = information(block_of(rows, n_items), prepare(log_worths, log_shares)).complete
    # The variance of each choice, by its definition.
    order, share = listed_in_order(rows[0]), exact_posteriors(rows, n_items, log_worths, log_shares)[1][0, 1]
    expected = np.zeros((n_items, n_items))
    for place in range(n_items):
        offer = order[place:]
        chances = np.exp(log_worths[1, offer]) / np.exp(log_worths[1, offer]).sum()
        expected[np.ix_(offer, offer)] += np.diag(chances) - np.outer(chances, chances)
    assert_allclose(found[1], share * expected, rtol=1e-8, atol=1e-12 * posterior)


# --- solvers and starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [-1e-9, 0.0, np.nan])
def test_stationary__shares_that_are_not_positive_are_not_believed(
    monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    rates = np.random.default_rng(3).uniform(0.5, 2.0, (8, 8))
    np.fill_diagonal(rates, 0.0)
    expected = stationary_distribution(rates)
    monkeypatch.setattr(stationary, "_LARGEST_FOR_FACTORISATION", 7)

    def bad_gmres(operator: Any, right: Any, start: Any, **options: Any) -> tuple[Any, int]:
        found = np.ones(len(right))
        found[2] = wrong
        return found, 0

    monkeypatch.setattr(stationary, "gmres", bad_gmres)
    assert_allclose(stationary_distribution(rates), expected, rtol=1e-12)


def test_clusters__weights_count_after_the_tries_too() -> None:
    # More rows than are tried first: evenly on a line, those at its right end heavy.
    points = np.linspace(0.0, 10.0, 6000)[:, None]
    weights = np.where(points[:, 0] > 8, 20.0, 1.0)
    labels = cluster_rows(points, weights, 2, np.random.default_rng(1))
    split = float(points[np.flatnonzero(np.diff(labels)), 0].item())
    left, right = points[:, 0] <= split, points[:, 0] > split
    means = [np.average(points[side, 0], weights=weights[side]) for side in (left, right)]
    # The border of two clusters is half-way between their means. Without weights it would be at 5.
    assert split == pytest.approx(sum(means) / 2, abs=0.05)
    assert abs(split - 5) > 0.5


def test_rank_of_paper__at_most_as_many_as_components() -> None:
    threshold = np.sqrt(5 * (100 + 5) * np.log(5))
    steps = np.array([1.5, 1.5, 0.1, 1.5]) * threshold
    values = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
    assert rank_of_paper(values, 3, 5, 100) == 2
    assert rank_of_paper(values, 4, 5, 100) == 4
    with pytest.warns(StartWarning, match="no gap"):
        assert rank_of_paper(np.linspace(2.0, 1.0, 7), 3, 5, 100) == 3
    with pytest.warns(StartWarning, match="leaves one direction"):
        assert rank_of_paper(np.array([2.0, 0.5, 0.4, 0.3]) * threshold, 3, 5, 100) == 1


def test_rank_above_noise__each_side_of_the_edge() -> None:
    noise = [1.0, 0.9, 0.8]
    assert rank_above_noise(np.array([3.0, 1.21, *noise]), 3) == 2
    assert rank_above_noise(np.array([3.0, 1.19, *noise]), 3) == 1
    assert rank_above_noise(np.array([1.1, 1.1, *noise]), 3) == 1
    assert rank_above_noise(np.array([3.0]), 2) == 1


def test_nearest__heavy_rows_move_their_cluster() -> None:
    # Points 0 and 4 are one cluster, 10 another. With equal weights the centre is 2, and 7 is nearer to 10.
    points = np.array([0.0, 4.0, 10.0])
    clusters = np.array([0, 0, 1])
    rows = np.array([6.9, 7.1, 2.0])
    similarity, affinity = np.outer(rows, points), np.outer(points, points)
    assert _nearest(similarity, affinity, clusters, np.ones(3)).tolist() == [1, 1, 0]
    assert _nearest(similarity, affinity, clusters, np.array([1.0, 1e6, 1.0])).tolist() == [0, 1, 0]


# --- names --------------------------------------------------------------------------------------------------


def test_label__line_break() -> None:
    assert "a line break" in str(label_problem("tea\n"))


@pytest.mark.parametrize("sign", [" ", "~", "\xa0", "é", "\x00", "\x1f", "\x7f", "\x80", "\x9f"])
def test_label__signs_that_are_allowed(sign: str) -> None:
    assert label_problem(f"tea{sign}") is None
    assert label_problem("a" * LONGEST_LABEL) is None
    assert "longer than" in str(label_problem("a" * (LONGEST_LABEL + 1)))


# --- PrefLib ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claimed", "read"), [("0", False), ("1", True), ("1000000", True), ("1000001", False)]
)
def test_preflib__number_of_alternatives(claimed: str, read: bool) -> None:
    file = SourceFile("a.toi", 1)
    if read:
        assert preflib._count(claimed, "NUMBER ALTERNATIVES", file) == int(claimed)
        return
    with pytest.raises(IngestError, match="at most 1,000,000 are read"):
        preflib._count(claimed, "NUMBER ALTERNATIVES", file)


@pytest.mark.parametrize(
    ("weight", "fits"), [(2.0**53, True), (2.0**53 + 2, False), (0.5, False), (3.0, True)]
)
def test_preflib__whole_counts_only(tmp_path: Path, weight: float, fits: bool) -> None:
    store = write_store(tmp_path / "store", [[block_of([slate([0, 1], [], weight=weight)], 2)]])
    if fits:
        export(store, tmp_path / "a.soc")
        assert f"{int(weight)}: 1,2" in (tmp_path / "a.soc").read_text()
        return
    with pytest.raises(IngestError, match="PrefLib has whole counts"):
        export(store, tmp_path / "a.soc")
