"""What an iteration remembers, and when it must forget: acceleration, Newton's map, random numbers of new seeds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fit_oracle import block_of, drawn_rows
from numpy.testing import assert_allclose

from plmix_dist.data import as_rankings
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.inference import Em, Point
from plmix_dist.inference.anderson import MEMORY, AndersonMemory, propose
from plmix_dist.inference.collapse import mend_collapsed
from plmix_dist.inference.fit import best_of
from plmix_dist.inference.fixed_point import Evaluation, Good, Iteration, Rules, advance
from plmix_dist.inference.newton import NewtonState
from plmix_dist.inference.starts_to_ends import Ends
from plmix_dist.solvers import LSR

HERE = Point.start(np.array([[0.3, -0.3]]), np.ones(1))
THERE = HERE._replace(log_worths=np.array([[0.9, -0.9]]))
LEAP = HERE._replace(log_worths=np.array([[0.5, -0.5]]))


class OneLeap:
    """Newton that always proposes the same point, by a map that is new or not."""

    def __init__(self, *, is_new: bool) -> None:
        self.is_new = is_new

    def propose(self, state: NewtonState, point: Point, evaluation: Evaluation) -> tuple[NewtonState, Point]:
        return state._replace(is_new=self.is_new), LEAP


def accelerated(newton: Any) -> Iteration:
    """One step of an iteration that remembers an earlier point."""
    before = Evaluation(-2.0, 1.0, np.ones(4), np.ones(4), HERE, HERE, {})
    earlier = HERE._replace(log_worths=np.array([[0.1, -0.1]]))
    memory, _ = propose(
        AndersonMemory.empty(4), earlier.flat(), earlier.flat() + np.array([0.3, -0.3, 0.0, 0.0])
    )
    iteration = Iteration.start(HERE, NewtonState(None, wait=0))._replace(
        good=Good(earlier, before), anderson=memory
    )
    now = Evaluation(-1.0, 1.0, np.ones(4), np.ones(4), THERE, THERE, {})
    return advance(iteration, now, Rules(1e-9, 50, 1.0, newton=newton))[0]


def test_acceleration__forgets_points_of_another_map() -> None:
    fresh = accelerated(OneLeap(is_new=True))
    assert fresh.step == "newton"
    assert_allclose(fresh.point.flat(), LEAP.flat(), atol=1e-15)
    assert len(fresh.anderson.points) == 1
    mixed = accelerated(OneLeap(is_new=False))
    assert len(mixed.anderson.points) == 2
    assert np.abs(mixed.point.flat() - LEAP.flat()).max() > 1e-3


def test_acceleration__remembers_the_last_few_points() -> None:
    rng = np.random.default_rng(0)
    memory, points = AndersonMemory.empty(9), rng.normal(size=(9, 9))
    for count, point in enumerate(points, start=1):
        memory, _ = propose(memory, point, point + rng.normal(size=9))
        assert_allclose(memory.points, points[max(0, count - MEMORY - 1) : count])
        assert len(memory.residuals) == len(memory.points)


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
def test_reseed__two_fits_that_collapse_go_different_ways(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    rows = drawn_rows(3, np.array([[1.0, 0.5, -0.5, -1.0]]), [1.0], 60)
    start = Point.start(
        np.array([[1.0, 0.5, -0.5, -1.0], [-300.0, 100.0, 100.0, 100.0]]), np.array([1 - 1e-9, 1e-9])
    )
    ends = []
    for seed, number in (first, second, first):
        em = Em(LSR, 0.1, weight=60.0, n_rankings=60, seed=seed, number=number)
        passes = ThreadedPasses(as_rankings(block_of(rows, 4)), n_threads=1)
        state = em.start(start)
        while not state.events:
            state = em.tell(state, passes.run(em.ask(state)))
        ends.append(state.iteration.point.log_worths.tobytes())
    assert ends[0] == ends[2] != ends[1]


# --- which run is best --------------------------------------------------------------------------------------


def test_best_of__the_score_decides() -> None:
    def run(score: float) -> Any:
        return SimpleNamespace(score=score)

    assert best_of(Ends({0: run(-30.0), 3: run(-20.0), 5: run(-25.0)}, {})) == 3


def test_score__the_objective_of_the_best_point_so_far() -> None:
    rows = block_of(drawn_rows(3, np.array([[1.0, 0.5, -0.5, -1.0]]), [1.0], 60), 4)
    passes = ThreadedPasses(as_rankings(rows), n_threads=1)
    em = Em(LSR, 5.0, weight=60.0, n_rankings=60)
    # A strong prior: from the estimate without a prior the likelihood falls while the objective rises.
    state = em.start(Point.start(np.array([[1.2, 0.6, -0.6, -1.2]]), np.ones(1)))
    while not state.iteration.ended:
        state = em.tell(state, passes.run(em.ask(state)))
        highest = max(record["objective"] for record in state.history if record["taken"])
        # Four items, five wins and five losses each against the ghost: the prior is 4 ** -20 at its maximum.
        assert em.score(state) == pytest.approx(highest + 20 * np.log(4), rel=1e-14)
    likelihoods = [record["log_likelihood"] for record in state.history]
    assert likelihoods[-1] < max(likelihoods)


def test_anderson__nearly_parallel_steps_are_still_told_apart() -> None:
    # One direction shrinks by half, another hardly: their differences are small beside the rest, and yet they count.
    factors = np.array([0.5, 0.999, 0.9])
    memory, point = AndersonMemory.empty(3), np.array([1.0, 1e-4, 1.0])
    for _ in range(6):
        memory, point = propose(memory, point, factors * point)
    assert np.abs(point).max() < 1e-9
