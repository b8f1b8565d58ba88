"""Components that lose all their rankings: seeded again, then dropped."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from plmix_dist import PlackettLuceMixture
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import CollapsedComponentWarning
from plmix_dist.fitting import point as points
from plmix_dist.fitting.algorithm import run
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.point import Point, _collapsed_components, mend_collapsed
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import LSR
from tests.helpers.fit_oracle import block_of, drawn_rows, objective, slate

UNFINISHED = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")


def collapsing(scale: float) -> tuple[RankingBlock, NDArray[np.float64]]:
    """Rankings that agree by and large, and a start whose second component holds the opposite."""
    truth = np.linspace(5, -5, 6)
    block, _ = draw_rankings(truth[None], np.ones(1), 300, np.random.default_rng(8))
    return block, np.array([truth, np.linspace(-scale, scale, 6)])


@pytest.mark.promise(23)
@pytest.mark.parametrize("m_step", ["lsr", "mm"])
@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("scale", [20.0, 140.0], ids=["next to nothing", "nothing"])
@UNFINISHED
def test_collapse__seeded_anew(m_step: Any, accelerate: bool, scale: float) -> None:
    block, start = collapsing(scale)
    model = PlackettLuceMixture(2, init=start, m_step=m_step, accelerate=accelerate, max_iter=60, random_state=5)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(block)
    collapsed = [str(each.message) for each in said if each.category is CollapsedComponentWarning]
    if len(model.shares_) == 2:
        assert not collapsed
    else:
        (message,) = collapsed
        assert "lost all their rankings (3 seeded again, 1 dropped): 1 of 2 components" in message
    assert model.events_[0] == {"iteration": 2, "component": 1, "action": "reseed"}
    assert np.isfinite(model.log_worths_).all()
    assert_allclose(model.shares_.sum(), 1.0)
    assert len(model.shares_) == 2 or model.events_[-1]["action"] == "drop"
    assert np.isfinite([record["objective"] for record in model.history_]).all()


@pytest.mark.promise(23)
def test_collapse__dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "_MOST_RESEEDS", 0)
    block, start = collapsing(20.0)
    model = PlackettLuceMixture(2, init=start)
    with pytest.warns(CollapsedComponentWarning, match=r"\(1 dropped\): 1 of 2 components are left"):
        model.fit(block)
    assert model.events_ == [{"iteration": 2, "component": 1, "action": "drop"}]
    assert model.shares_.tolist() == [1.0]
    alone = PlackettLuceMixture(1).fit(block)
    assert_allclose(model.log_worths_, alone.log_worths_, atol=1e-5)
    assert model.predict_proba(block).shape == (300, 1)


@pytest.mark.promise(26)
@pytest.mark.parametrize("max_iter", [22, 23, 30, 60])
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.CollapsedComponentWarning")
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.WeightWarning")
@UNFINISHED
def test_collapse__the_best_point_is_returned(max_iter: int) -> None:
    # Nearly one ranking and three components: after one is seeded again, the objective is lower for a while.
    rows = [slate([2, 0, 1], []), slate([2, 1, 0], [], weight=1e-9), slate([0, 2, 1], [], weight=1e-9)]
    model = PlackettLuceMixture(3, init="random", alpha=0.1, max_iter=max_iter, random_state=0)
    model.fit(block_of(rows, 3))
    drops = [event["iteration"] for event in model.events_ if event["action"] == "drop"]

    def comparable(reached: float, n_components: int) -> float:
        # Log-priors from their maximum: three items, 0.1 wins and losses each at even odds.
        return reached + n_components * 3 * 0.1 * math.log(4)

    taken = [
        comparable(r["objective"], 3 - sum(r["iteration"] > drop for drop in drops))
        for r in model.history_
        if r["taken"]
    ]
    assert comparable(model.objective_, len(model.shares_)) == pytest.approx(max(taken), rel=1e-9)
    expected = objective(rows, 3, model.log_worths_, model._ghosts.tolist(), model.shares_.tolist(), 0.1)
    assert model.objective_ == pytest.approx(expected, rel=1e-9)
    assert model.converged_ == (model.gradient_norm_ <= model.tol)  # at the point that is returned


@pytest.mark.parametrize(("residual", "converged"), [(1e-3, False), (0.0, True)])
def test_collapse__an_earlier_better_point_has_converged_by_itself_or_not(residual: float, converged: bool) -> None:
    block, _ = collapsing(1.0)
    em = Em(LSR, 0.1, block.total_weight, block.n_rankings, tol=1e-6)
    ended = run(ThreadedPasses(as_rankings(block)), em, em.start(Point.start(np.zeros((1, 6)), np.ones(1))))
    assert em.result(ended).converged
    good = ended.iteration.best
    better = good._replace(
        evaluation=good.evaluation._replace(objective=good.evaluation.objective + 1, residual=residual)
    )
    assert em.result(ended._replace(best=better)).converged == converged


def test_mend_collapsed__policy() -> None:
    worths = np.random.default_rng(0).normal(size=(3, 4))
    point = Point.start(worths, np.array([0.25, 1e-9, 0.75 - 1e-9]))
    events: list[dict[str, Any]] = []
    seeded = []
    for _ in range(3):
        mended = mend_collapsed(point, events, 7, (1, 0))
        assert mended is not None
        events.append(mended.event)
        # It takes half of the largest component and starts near it; the others stay.
        assert_allclose(np.exp(mended.point.log_shares), [0.25, 0.375, 0.375], atol=1e-8)
        assert_allclose(mended.point.log_worths[[0, 2]], point.log_worths[[0, 2]])
        assert 0 < np.abs(mended.point.log_worths[1] - point.log_worths[2]).max() < 6
        seeded.append(mended.point.log_worths[1].tolist())
    dropped = mend_collapsed(point, events, 7, (1, 0))
    assert dropped is not None
    events.append(dropped.event)
    assert_allclose(np.exp(dropped.point.log_shares), [0.25, 0.75], atol=1e-8)
    assert_allclose(dropped.point.log_worths, point.log_worths[[0, 2]])
    assert [event["action"] for event in events] == ["reseed"] * 3 + ["drop"]
    assert mend_collapsed(dropped.point, events, 8, (1, 0)) is None
    # Every reseed draws anew, other seeds and other starts differently, the same ones the same.
    others = [mend_collapsed(point, [], 7, key) for key in ((2, 0), (1, 1), (1, 0))]
    drawn = [other.point.log_worths[1].tolist() for other in others if other is not None]
    assert len({tuple(values) for values in (*seeded, *drawn)}) == 5
    assert drawn[2] == seeded[0]


COLLAPSED = Point.start(np.array([[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]]), np.array([1.0, 0.0]))


def test_reseed__random_numbers_by_seed_number_and_times_before() -> None:
    event = {"iteration": 1, "component": 1, "action": "reseed"}
    found = {}
    for seed in (0, 1):
        for number in (0, 1):
            for n_before in (0, 1, 2):
                mended = mend_collapsed(COLLAPSED, [event] * n_before, 9, (seed, number))
                assert mended is not None
                again = mend_collapsed(COLLAPSED, [event] * n_before, 5, (seed, number))
                assert again is not None
                assert again.point.log_worths.tobytes() == mended.point.log_worths.tobytes()
                found[seed, number, n_before] = mended.point.log_worths[1].tobytes()
    assert len(set(found.values())) == 12


@pytest.mark.parametrize(("first", "second"), [((0, 0), (0, 1)), ((0, 0), (1, 0))], ids=["number", "seed"])
def test_reseed__two_fits_that_collapse_go_different_ways(first: tuple[int, int], second: tuple[int, int]) -> None:
    rows = drawn_rows(3, np.array([[1.0, 0.5, -0.5, -1.0]]), [1.0], 60)
    start = Point.start(np.array([[1.0, 0.5, -0.5, -1.0], [-300.0, 100.0, 100.0, 100.0]]), np.array([1 - 1e-9, 1e-9]))
    ends = []
    for seed, number in (first, second, first):
        em = Em(LSR, 0.1, weight=60.0, n_rankings=60, seed=seed, number=number)
        passes = ThreadedPasses(as_rankings(block_of(rows, 4)), n_threads=1)
        state = em.start(start)
        while not state.events:
            state = em.tell(state, passes.run(em.ask(state)))
        ends.append(state.iteration.point.log_worths.tobytes())
    assert ends[0] == ends[2] != ends[1]


@pytest.mark.parametrize(("share", "has_collapsed"), [(0.9e-6, True), (1.1e-6, False)])
def test_collapse__smallest_share(share: float, has_collapsed: bool) -> None:
    point = Point.start(np.zeros((2, 3)), np.array([1 - share, share]))
    assert _collapsed_components(point).tolist() == ([1] if has_collapsed else [])


def test_collapse__three_seeds_and_no_more() -> None:
    point = Point.start(np.zeros((2, 3)), np.array([1.0, 0.0]))
    event = {"iteration": 1, "component": 1, "action": "reseed"}
    actions = [mend_collapsed(point, [event] * before, 1, (0, 0)) for before in range(5)]
    assert [mended.event["action"] for mended in actions if mended is not None] == ["reseed"] * 3 + ["drop"] * 2
