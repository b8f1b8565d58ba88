"""The search for the best optimum: what it finds, how it stops, and what it says."""

import itertools
import warnings

import numpy as np
import pytest

from plmix_dist import PlackettLuceMixture
from plmix_dist.data import as_rankings
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import OptimumFoundOnceWarning
from plmix_dist.inference import Em, Point
from plmix_dist.inference import search as search_module
from plmix_dist.inference.sample_fits import part_of
from plmix_dist.inference.search import SAME_END, budget_of, search
from plmix_dist.inference.starts_to_ends import Candidate, run_to_ends
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings
from plmix_dist.solvers import MM
from plmix_dist.starts.proposals import BATCH, Mixture, Proposer
from plmix_dist.starts.start_settings import StartSettings


def simulated(seed, *, n_items=10, n_components=4, m=400, length=None, unranked=None, spread=1.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, spread, (n_components, n_items))
    shares = rng.dirichlet(np.full(n_components, 5.0))
    return draw_rankings(truth, shares, m, rng, length=length, unranked=unranked)[0]


def em_on(block, alpha=0.1):
    em = Em(MM, alpha, block.total_weight, block.n_rankings)
    return part_of(em, block, search_module.TOLERANCE, search_module.MOST_ITERATIONS)


def ends_of_random_starts(block, n_components, n_starts):
    """Objectives per ranking of plain random starts, run far."""
    rng = np.random.default_rng(99)
    candidates = [
        Candidate(
            Point.start(
                rng.standard_normal((n_components, block.n_items)), np.full(n_components, 1 / n_components)
            ),
            {},
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
    assert model.objective_ / block.total_weight > best - SAME_END


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
    assert model.objective_ / 10_000 > near_truth.objective_ / 10_000 - SAME_END
    assert model.shares_.min() > 0.2
    (searched,) = (record["rows"] for record in model.init_["stages"] if record["stage"] == "search")
    assert searched == pytest.approx(12 * 3 * 100, rel=0.01)


def test_one_component_is_not_searched_for():
    model = PlackettLuceMixture(1).fit(simulated(0, n_components=1))
    assert "search" not in model.init_


def test_the_search_stops_when_all_starts_agree():
    block = RankingBlock.from_array([[0, 1, 2, 3]] * 60 + [[3, 2, 1, 0]] * 40)
    found = search(em_on(block), block, [], StartSettings(2), budget=1e12, is_part=False)
    assert found.about == {"n_starts": 4, "n_best": 4, "n_ends": 1}
    assert len(found.rivals) == 1


def test_the_budget_ends_a_search():
    block = simulated(3, n_components=5, m=200, length=3, unranked="below")
    settings = StartSettings(5, seed=1)
    short = search(em_on(block), block, [], settings, budget=1.0, is_part=False)
    longer = search(em_on(block), block, [], settings, budget=1e8, is_part=False)
    assert short.about["n_starts"] == 4
    assert longer.about["n_starts"] > 4


def test_a_longer_search_never_ends_lower():
    block = simulated(5, n_components=5, m=200, length=3, unranked="below")
    em, settings = em_on(block), StartSettings(5, seed=1)

    def reached(budget):
        found = search(em, block, [], settings, budget=budget, is_part=False)
        (run,) = run_to_ends(ThreadedPasses(as_rankings(block)), em, found.rivals[:1]).runs.values()
        return run.objective

    assert reached(1e8) >= reached(1.0) - 1e-6 * block.total_weight


def test_large_data_are_searched_within_eight_passes():
    assert budget_of(2_000_000, 2e7, 4) <= 8 * 2e7 * 4
    assert budget_of(1_000, 1e4, 4) > 8 * 1e4 * 4


def test_more_ends_go_on_where_the_rows_are_a_part():
    """On all rows the best end is the best; on a part, chance may have put it second."""
    block = simulated(7, n_components=4, m=150, length=3, unranked="below")
    em, settings = em_on(block), StartSettings(4, seed=2)
    all_rows = search(em, block, [], settings, budget=3e7, is_part=False)
    part = search(em, block, [], settings, budget=3e7, is_part=True)
    assert len(all_rows.rivals) == 1
    assert len(part.rivals) > 1
    np.testing.assert_array_equal(part.rivals[0].point.log_worths, all_rows.rivals[0].point.log_worths)


def test_n_init_distinct_ends_go_on():
    block = simulated(7, n_components=4, m=150, length=3, unranked="below")
    found = search(em_on(block), block, [], StartSettings(4, seed=2, n_init=3), budget=3e7, is_part=False)
    assert len(found.rivals) == min(3, found.about["n_ends"])
    for one, other in itertools.combinations(found.rivals, 2):
        assert not np.allclose(one.point.log_worths, other.point.log_worths)


def test_the_same_search_twice_gives_the_same_bits():
    block = simulated(2, n_components=3, m=200)
    one, other = (
        search(em_on(block), block, [], StartSettings(3), budget=1e8, is_part=False) for _ in range(2)
    )
    assert one.about == other.about
    np.testing.assert_array_equal(one.rivals[0].point.log_worths, other.rivals[0].point.log_worths)


@pytest.mark.parametrize(
    "make", sorted(set(BATCH), key=lambda make: make.__name__), ids=lambda make: make.__name__
)
@pytest.mark.parametrize("n_left", [2, 4])
def test_proposals_have_all_components_and_fixed_shares_where_asked(make, n_left):
    block = simulated(0, n_components=4, m=60)
    rng = np.random.default_rng(0)
    best = Mixture(rng.normal(size=(n_left, 10)), np.full(n_left, 1 / n_left))
    free = make(Proposer(block, StartSettings(4)), best, 5)
    assert free.log_worths.shape == (4, 10)
    assert np.isfinite(free.log_worths).all()
    np.testing.assert_allclose(free.shares.sum(), 1)
    fixed = np.array([0.4, 0.3, 0.2, 0.1])
    held = make(Proposer(block, StartSettings(4, shares=fixed)), best, 5)
    np.testing.assert_array_equal(held.shares, fixed)
    np.testing.assert_array_equal(
        make(Proposer(block, StartSettings(4)), best, 5).log_worths, free.log_worths
    )


def test_a_start_that_varies_the_best_end_keeps_the_other_components():
    block = simulated(0, n_components=4, m=60)
    best = Mixture(np.random.default_rng(0).normal(size=(4, 10)), np.full(4, 0.25))
    for make, n_new in zip(BATCH, (4, 2, 1, 4, 1, 1, 4, 2), strict=True):
        made = make(Proposer(block, StartSettings(4)), best, 3)
        assert (made.log_worths != best.log_worths).any(axis=1).sum() == n_new


def test_a_best_end_found_once_is_said(monkeypatch):
    monkeypatch.setattr(search_module, "_BUDGET", 1.0)
    for seed in range(20):
        block = simulated(seed, n_components=6, m=150, length=3, unranked="below")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = PlackettLuceMixture(6, random_state=seed, max_iter=3).fit(block)
        said = [entry for entry in caught if entry.category is OptimumFoundOnceWarning]
        assert len(said) == (model.init_["search"]["n_best"] == 1)
        if said:
            assert "starts, one ended at the best optimum found" in str(said[0].message)
            assert said[0].filename == __file__
            return
    pytest.fail("no data on which the best end is found once")


def test_about__counts_of_ends_agree() -> None:
    # Scores in small steps: those at the best end are one end, so the rest are at least one other.
    ends = [search_module.End(Candidate(None, {}), -1.0 - 0.4 * SAME_END * step) for step in range(12)]
    about = search_module._about(ends, 12)
    assert about["n_best"] == 3
    assert about["n_ends"] == 4
