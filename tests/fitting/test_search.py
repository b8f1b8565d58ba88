"""The search for the best optimum: what it finds, how it stops, and what it says."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plmix_dist import PlackettLuceMixture, RankingBlock
from plmix_dist.datasets.given import as_rankings
from plmix_dist.display.progress import Stages
from plmix_dist.errors import FitError, OptimumFoundOnceWarning
from plmix_dist.fitting import search as sample_fits
from plmix_dist.fitting import search as search_module
from plmix_dist.fitting.em import Candidate, Em, run_to_ends
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.point import Point
from plmix_dist.fitting.search import _SAME_END, SampleFits, _budget_of, _part_of, halving, search
from plmix_dist.fitting.starts.make import BATCH, Mixture, Proposer
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings
from plmix_dist.solvers import LSR, MM
from tests.helpers.fit_oracle import block_of, drawn_rows


def simulated(seed, *, n_items=10, n_components=4, m=400, length=None, unranked=None, spread=1.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, spread, (n_components, n_items))
    shares = rng.dirichlet(np.full(n_components, 5.0))
    return draw_rankings(truth, shares, m, rng, length=length, unranked=unranked)[0]


def em_on(block, alpha=0.1):
    em = Em(MM, alpha, block.total_weight, block.n_rankings)
    return _part_of(em, block, search_module._TOLERANCE, search_module._MOST_ITERATIONS)


def ends_of_random_starts(block, n_components, n_starts):
    """Objectives per ranking of plain random starts, run far."""
    rng = np.random.default_rng(99)
    candidates = [
        Candidate(
            Point.start(rng.standard_normal((n_components, block.n_items)), np.full(n_components, 1 / n_components)), {}
        )
        for _ in range(n_starts)
    ]
    em = Em(MM, 0.1, block.total_weight, block.n_rankings, tol=1e-6, max_iter=300)
    runs, _ = run_to_ends(ThreadedPasses(as_rankings(block)), em, candidates)
    return [run.objective / block.total_weight for run in runs.values()]


@pytest.mark.parametrize("seed", range(4))
def test_a_default_fit_ends_no_lower_than_the_best_of_many_random_starts(seed):
    block = simulated(seed, n_components=4, m=300, length=4, unranked="below")
    best = max(ends_of_random_starts(block, 4, 16))
    model = PlackettLuceMixture(4, alpha=0.1, random_state=0, max_iter=2000, tol=1e-6).fit(block)
    assert model.objective_ / block.total_weight > best - _SAME_END


def test_three_components_are_searched_for_too():
    """Data on which the spectral start alone ends at a worse optimum than random starts do."""
    block = simulated(1, n_components=3, m=100)
    model = PlackettLuceMixture(3, random_state=0).fit(block)
    found = model.init_["search"]
    assert found["n_starts"] >= 4
    assert 1 <= found["n_best"] <= found["n_starts"]
    assert model.init_["stages"][-2]["stage"] == "search"


@pytest.mark.parametrize("trial", [0, 1])
def test_many_items_of_which_few_differ(trial):
    """The paper's own data: on too few rows, a search ends where a component explains a single ranking."""
    truth = draw_log_worths(3, 100, 5, np.random.default_rng([3, trial, 1]))
    rng = np.random.default_rng([3, 10_000, trial, 2])
    block, _ = draw_rankings(truth, np.full(3, 1 / 3), 10_000, rng)
    near_truth = PlackettLuceMixture(3, init=truth).fit(block)
    model = PlackettLuceMixture(3, random_state=trial).fit(block)
    assert model.objective_ / 10_000 > near_truth.objective_ / 10_000 - _SAME_END
    assert model.shares_.min() > 0.2
    (searched,) = (record["rows"] for record in model.init_["stages"] if record["stage"] == "search")
    assert searched == pytest.approx(12 * 3 * 100, rel=0.01)


def test_one_component_is_not_searched_for():
    model = PlackettLuceMixture(1).fit(simulated(0, n_components=1))
    assert "search" not in model.init_


def test_the_search_stops_when_all_starts_agree():
    block = RankingBlock.from_array([[0, 1, 2, 3]] * 60 + [[3, 2, 1, 0]] * 40)
    found = search(em_on(block), block, [], FitSettings(2), budget=1e12, is_part=False)
    assert found.about == {
        "n_starts": 4,
        "n_best": 4,
        "n_ends": 1,
        "n_varied": 0,
        "n_independent": 4,
        "n_independent_best": 4,
        "n_merged": 3,
        "others": [],
    }
    assert len(found.rivals) == 1


def test_other_ends__how_far_behind_they_are_and_their_shares():
    block = simulated(2, n_components=3, m=100)
    found = search(em_on(block), block, [], FitSettings(3), budget=1e12, is_part=False)
    others = found.about["others"]
    assert 1 <= len(others) == min(found.about["n_ends"] - 1, 3)
    behind = [other["behind"] for other in others]
    assert behind == sorted(behind)
    assert behind[0] > _SAME_END
    assert [sum(other["shares"]) for other in others] == pytest.approx([1.0] * len(others))


def end_of(method: str, score: float) -> search_module._End:
    return search_module._End(Candidate(None, {"method": method}), score)


@pytest.mark.parametrize(
    ("ends", "batches", "quiet", "n_init", "settled"),
    [
        ([("random", 0)] * 4 + [("split-component", -1)], 0, 0, 1, True),
        ([("random", 0)] * 3 + [("random", -1)], 0, 0, 1, False),
        # Variations that return to the best end are not evidence.
        ([("random", 0)] + [("random", -1)] * 3 + [("seeded-again", 0)] * 20, 2, 2, 1, False),
        ([("random", 0)] * 4 + [("handfuls", -1)] * 4 + [("seeded-again", 0)] * 8, 1, 1, 1, True),
        ([("random", 0)] * 4 + [("handfuls", -1)] * 4 + [("seeded-again", 0)] * 8, 1, 0, 1, False),
        ([("random", 0)] * 4 + [("handfuls", -1)] * 5 + [("seeded-again", 0)] * 8, 1, 1, 1, False),
        # Spectral starts are much alike: they count as one.
        ([("spectral", 0)] * 4 + [("random", 0)] + [("random", -1)] * 3, 0, 0, 1, False),
        ([("random", -1)] * 16 + [("seeded-again", 0)], 5, 4, 1, True),
        ([("random", -1)] * 16 + [("seeded-again", 0)], 5, 3, 1, False),
        ([("random", -1)] * 15 + [("seeded-again", 0)], 5, 4, 1, False),
        ([("random", 0)] * 29, 4, 4, 10, False),
        ([("random", 0)] * 30, 4, 4, 10, True),
    ],
)
@pytest.mark.promise(53)
def test_is_settled__independent_starts_decide(ends, batches, quiet, n_init, settled) -> None:
    found = search_module._is_settled([end_of(*end) for end in ends], batches, quiet, n_init)
    assert found == settled


@pytest.mark.parametrize("m", [100, 1600])
def test_doubt_after_a_part_of_the_rows__falls_with_the_root_of_their_number(m, monkeypatch):
    doubts = []

    def noted(ends, n_init, doubt):
        doubts.append(doubt)
        return rivals(ends, n_init, doubt)

    rivals = search_module._rivals
    monkeypatch.setattr(search_module, "_rivals", noted)
    block = simulated(1, n_items=5, n_components=2, m=m)
    for is_part in (True, False):
        search(em_on(block), block, [], FitSettings(2), budget=1.0, is_part=is_part)
    assert doubts == pytest.approx([0.25 / m**0.5, 0.0])


def test_the_budget_ends_a_search():
    block = simulated(5, n_components=5, m=200, length=3, unranked="below")
    settings = FitSettings(5, seed=1)
    short = search(em_on(block), block, [], settings, budget=1.0, is_part=False)
    longer = search(em_on(block), block, [], settings, budget=1e8, is_part=False)
    assert short.about["n_starts"] == 4
    assert longer.about["n_starts"] > 4


def test_a_longer_search_never_ends_lower():
    block = simulated(5, n_components=5, m=200, length=3, unranked="below")
    em, settings = em_on(block), FitSettings(5, seed=1)

    def reached(budget):
        found = search(em, block, [], settings, budget=budget, is_part=False)
        (run,) = run_to_ends(ThreadedPasses(as_rankings(block)), em, found.rivals[:1]).runs.values()
        return run.objective

    assert reached(1e8) >= reached(1.0) - 1e-6 * block.total_weight


def test_large_data_are_searched_within_eight_passes():
    assert _budget_of(2_000_000, 2e7, 4) <= 8 * 2e7 * 4
    assert _budget_of(1_000, 1e4, 4) > 8 * 1e4 * 4


def test_more_ends_go_on_where_the_rows_are_a_part():
    """On all rows the best end is the best; on a part, chance may have put it second."""
    block = simulated(7, n_components=4, m=150, length=3, unranked="below")
    em, settings = em_on(block), FitSettings(4, seed=2)
    all_rows = search(em, block, [], settings, budget=3e7, is_part=False)
    part = search(em, block, [], settings, budget=3e7, is_part=True)
    assert len(all_rows.rivals) == 1
    assert len(part.rivals) > 1
    np.testing.assert_array_equal(part.rivals[0].point.log_worths, all_rows.rivals[0].point.log_worths)


def test_n_init_distinct_ends_go_on():
    block = simulated(7, n_components=4, m=150, length=3, unranked="below")
    found = search(em_on(block), block, [], FitSettings(4, seed=2, n_init=3), budget=3e7, is_part=False)
    assert len(found.rivals) == min(3, found.about["n_ends"])
    for one, other in itertools.combinations(found.rivals, 2):
        assert not np.allclose(one.point.log_worths, other.point.log_worths)


def test_the_same_search_twice_gives_the_same_bits():
    block = simulated(2, n_components=3, m=200)
    one, other = (search(em_on(block), block, [], FitSettings(3), budget=1e8, is_part=False) for _ in range(2))
    assert one.about == other.about
    np.testing.assert_array_equal(one.rivals[0].point.log_worths, other.rivals[0].point.log_worths)


@pytest.mark.parametrize("make", sorted(set(BATCH), key=lambda make: make.__name__), ids=lambda make: make.__name__)
@pytest.mark.parametrize("n_left", [2, 4])
def test_proposals_have_all_components_and_fixed_shares_where_asked(make, n_left):
    block = simulated(0, n_components=4, m=60)
    rng = np.random.default_rng(0)
    best = Mixture(rng.normal(size=(n_left, 10)), np.full(n_left, 1 / n_left))
    free = make(Proposer(block, FitSettings(4)), best, 5)
    assert free.log_worths.shape == (4, 10)
    assert np.isfinite(free.log_worths).all()
    np.testing.assert_allclose(free.shares.sum(), 1)
    fixed = np.array([0.4, 0.3, 0.2, 0.1])
    held = make(Proposer(block, FitSettings(4, shares=fixed)), best, 5)
    np.testing.assert_array_equal(held.shares, fixed)
    np.testing.assert_array_equal(make(Proposer(block, FitSettings(4)), best, 5).log_worths, free.log_worths)


def test_a_start_that_varies_the_best_end_keeps_the_other_components():
    block = simulated(0, n_components=4, m=60)
    best = Mixture(np.random.default_rng(0).normal(size=(4, 10)), np.full(4, 0.25))
    for make, n_new in zip(BATCH, (4, 2, 1, 4, 1, 1, 4, 2), strict=True):
        made = make(Proposer(block, FitSettings(4)), best, 3)
        assert (made.log_worths != best.log_worths).any(axis=1).sum() == n_new


@pytest.mark.promise(48)
def test_a_best_end_found_once_is_said(monkeypatch):
    monkeypatch.setattr(search_module, "_BUDGET", 1.0)
    for seed in range(20):
        block = simulated(seed, n_components=6, m=150, length=3, unranked="below")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = PlackettLuceMixture(6, random_state=seed, max_iter=3).fit(block)
        said = [entry for entry in caught if entry.category is OptimumFoundOnceWarning]
        found = model.init_["search"]
        assert len(said) == (found["n_best"] - found["n_varied"] <= 1)
        if said:
            assert "starts, one ended at the best optimum found" in str(said[0].message)
            assert said[0].filename == __file__
            return
    pytest.fail("no data on which the best end is found once")


@pytest.mark.promise(48)
@pytest.mark.promise(53)
def test_about__counts_of_ends_agree() -> None:
    # Scores in small steps: those at the best end are one end, so the rest are at least one other.
    ends = [search_module._End(Candidate(None, {}), -1.0 - 0.4 * _SAME_END * step) for step in range(12)]
    about = search_module._about(ends, 12)
    assert about["n_best"] == 3
    assert about["n_ends"] == 4


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


@pytest.mark.parametrize(("alpha", "expected"), [(2.0, 2.0), (0.0, 0.1)])
def test_sample_fits__prior_in_proportion(monkeypatch: pytest.MonkeyPatch, alpha: float, expected: float) -> None:
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
        fits.search(sample_of(12_000, n_items), [], FitSettings(2), mean_listed=n_items)
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


@pytest.mark.parametrize(("alpha", "weight"), [(1e100, 1.0), (0.0, 1e-100), (1.0, 1e100)])
def test_fit__scores_in_which_a_tolerance_is_lost(alpha: float, weight: float) -> None:
    rows = np.array([[0, 1, 2]] * 6 + [[2, 1, 0]] * 3 + [[1, 0, 2]])
    model = PlackettLuceMixture(2, alpha=alpha, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(rows, sample_weight=np.full(10, weight))
        except FitError:
            return
    assert model.init_["search"]["n_best"] >= 1
