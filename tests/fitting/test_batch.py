"""EM for many starts at once: the steps of `Em`, start by start, and starts that become one."""

from __future__ import annotations

import numpy as np
import pytest

from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting import batch as batch_module
from plmix_dist.fitting.batch import MERGED, BatchEm
from plmix_dist.fitting.em import Candidate, Em, run_to_ends
from plmix_dist.fitting.point import Point
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import MM
from plmix_dist.threads import StoppableThreads


def simulated(n_items: int, n_components: int, m: int, **how: object) -> RankingBlock:
    rng = np.random.default_rng(n_items)
    truth = rng.normal(size=(n_components, n_items))
    return draw_rankings(truth, np.full(n_components, 1 / n_components), m, rng, **how)[0]  # type: ignore[arg-type]


def points(n_starts: int, n_components: int, n_items: int, seed: int = 0) -> list[Point]:
    rng = np.random.default_rng(seed)
    shares = np.full(n_components, 1 / n_components)
    return [Point.start(rng.normal(size=(n_components, n_items)), shares) for _ in range(n_starts)]


@pytest.mark.parametrize("how", [{}, {"length": 3, "unranked": "below"}], ids=["full", "top-3"])
@pytest.mark.parametrize("accelerate", [True, False])
def test_ends__those_of_em_start_by_start(how: dict[str, object], accelerate: bool, monkeypatch) -> None:
    monkeypatch.setattr(batch_module, "_SAME_WAY", 0.0)
    block = simulated(6, 2, 150, **how)
    em = Em(MM, 0.5, block.total_weight, block.n_rankings, tol=1e-5, max_iter=40, accelerate=accelerate)
    begin = points(5, 2, 6)
    runs, failed = run_to_ends(ThreadedPasses(as_rankings(block)), em, [Candidate(point, {}) for point in begin])
    assert not failed
    batch, into = BatchEm(em, block, (2, 6)).ends(begin, 0)
    assert into.tolist() == list(range(5))
    for number, run in runs.items():
        assert batch.n_evaluations[number] == run.n_iterations
        assert batch.objective[number] == pytest.approx(run.objective, rel=1e-9)
        np.testing.assert_allclose(batch.best[number], run.point.flat(), atol=1e-5)


def test_ends__same_bits_for_any_division(monkeypatch) -> None:
    block = simulated(7, 3, 200)
    em = Em(MM, 0.5, block.total_weight, block.n_rankings, tol=1e-5, max_iter=30)
    begin = points(6, 3, 7)
    alone, alone_into = BatchEm(em, block, (3, 7)).ends(begin, 0)
    threads = StoppableThreads(4, "test")
    try:
        divided, divided_into = BatchEm(em, block, (3, 7), threads).ends(begin, 0)
    finally:
        threads.stop()
    for one, other in zip(alone, divided, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(alone_into, divided_into)


def test_ends__starts_on_the_same_way_are_one() -> None:
    block = RankingBlock.from_array([[0, 1, 2, 3]] * 60 + [[3, 2, 1, 0]] * 40)
    em = Em(MM, 0.5, block.total_weight, block.n_rankings, tol=1e-8, max_iter=200)
    (start,) = points(1, 2, 4)
    turned = Point(start.log_worths[::-1] + 1e-3, start.ghosts, start.log_shares)
    batch, into = BatchEm(em, block, (2, 4)).ends([start, turned], 0)
    assert sorted(batch.status.tolist())[-1] == MERGED
    assert len(set(into.tolist())) == 1
    merged = int(np.flatnonzero(batch.status == MERGED)[0])
    assert batch.n_evaluations[merged] < batch.n_evaluations[into[merged]]


def test_distances__of_mixtures_with_their_components_matched() -> None:
    rng = np.random.default_rng(3)
    block = simulated(5, 3, 20)
    batch_em = BatchEm(Em(MM, 0.5, 20.0, 20), block, (3, 5))
    one = Point.start(rng.normal(size=(3, 5)), np.array([0.5, 0.3, 0.2]))
    near = Point(one.log_worths + 0.01 * rng.normal(size=(3, 5)), one.ghosts, one.log_shares)
    order = [2, 0, 1]
    same = Point(near.log_worths[order], near.ghosts[order], near.log_shares[order])
    far = Point.start(rng.normal(size=(3, 5)), np.array([0.5, 0.3, 0.2]))
    found = batch_em.distances(np.array([point.flat() for point in (one, near, same, far)]))

    def chances(worths):
        return np.exp(worths) / np.exp(worths).sum()

    total = 0.0
    for a, b, log_share in zip(one.log_worths, near.log_worths, one.log_shares, strict=True):
        v, w = np.exp(log_share) * chances(a), np.exp(log_share) * chances(b)
        a, b = a - chances(a) @ a, b - chances(b) @ b
        total += ((v + w) / 2 * (a - b) ** 2).sum()
    assert found[0, 1] == pytest.approx(np.sqrt(total), rel=1e-6)
    assert found[0, 2] == pytest.approx(found[0, 1], rel=1e-9)
    assert found[1, 2] == pytest.approx(0.0, abs=1e-6)
    assert found[0, 3] > 0.2


def test_ends__components_that_collapse_are_seeded_again_then_dropped() -> None:
    block = RankingBlock.from_array([[0, 1, 2]] * 50)
    em = Em(MM, 50.0, block.total_weight, block.n_rankings, tol=1e-6, max_iter=300)
    shares = np.array([1 - 1e-9, 1e-9])
    begin = [Point.start(np.array([[1.0, 0, -1], [-30.0, 0, 30]]), shares)]
    batch_em = BatchEm(em, block, (2, 3))
    batch, _ = batch_em.ends(begin, 0)
    assert batch.n_reseeds[0] >= 1
    assert np.isfinite(batch.objective[0])
    assert np.exp(batch_em.point(batch.best[0]).log_shares).sum() == pytest.approx(1)


def test_distances__two_components_with_one_nearest_are_far() -> None:
    batch_em = BatchEm(Em(MM, 0.5, 20.0, 20), simulated(5, 2, 20), (2, 5))
    worths = np.random.default_rng(3).normal(size=(2, 5))
    both, twice = (Point.start(worths[order], np.array([0.5, 0.5])) for order in ([0, 1], [0, 0]))
    found = batch_em.distances(np.array([both.flat(), twice.flat()]))
    assert np.isinf(found[0, 1])
    assert found[0, 0] == pytest.approx(0.0, abs=1e-6)
