"""M-steps are values: one without a likelihood goes through the same loop, in this process and on a cluster."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NonFiniteError
from plmix_dist.fitting.algorithm import run
from plmix_dist.fitting.em import Candidate, Em, run_to_ends
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import Prepared, row_posteriors
from plmix_dist.passes import make_passes
from plmix_dist.rankings import RankingBlock
from plmix_dist.solvers import MStep, Worths
from tests.helpers.fit_oracle import block_of, drawn_rows, exact_posteriors

TRUTH = np.array([[2.0, 1.0, -1.0, -2.0], [-2.0, -1.0, 1.0, 2.0]])


ROWS = drawn_rows(5, TRUTH, [0.6, 0.4], 400)


BLOCK = block_of(ROWS, 4)


START = Point.start(TRUTH / 2, np.array([0.5, 0.5]))


class FirstPlaces(NamedTuple):
    """How often each item comes first, by component."""

    log_likelihood: NDArray[np.float64]
    shares: NDArray[np.float64]
    firsts: NDArray[np.float64]


def first_places(block: RankingBlock, current: Prepared, frozen: Prepared | None) -> FirstPlaces:
    log_likelihood, posteriors = row_posteriors(block, current if frozen is None else frozen)
    weighted = posteriors * block.row_weights[:, None]
    firsts = np.zeros((posteriors.shape[1], block.n_items))
    np.add.at(firsts.T, block.items[block.offsets[:-1]], weighted)
    return FirstPlaces(np.array(block.row_weights @ log_likelihood), weighted.sum(axis=0), firsts)


def worths_by_first_places(firsts: NDArray[np.float64], worths: Worths, alpha: float) -> Worths:
    log_worths = np.log(firsts + alpha)
    return Worths(log_worths - log_worths.mean(), worths.ghost)


def _own(sums: FirstPlaces, component: int) -> NDArray[np.float64]:
    return sums.firsts[component]


def _numbers(n_items: int) -> int:
    return n_items


# Ten lines: an M-step that raises no likelihood at all.
TOY = MStep("first-places", first_places, _own, worths_by_first_places, objective=None, numbers=_numbers)


def toy(**options: Any) -> Em:
    return Em(TOY, 0.5, BLOCK.total_weight, BLOCK.n_rankings, **({"tol": 1e-9, "max_iter": 400} | options))


@pytest.mark.parametrize("kind", ["fused", "exact"])
def test_toy__ends_at_its_fixed_point(kind: Any) -> None:
    em = toy(kind=kind)
    ended = em.result(run(make_passes(as_rankings(BLOCK), None, "auto"), em, em.start(START)))
    assert ended.converged
    assert ended.objective is None
    assert ended.gradient is None
    # One more step by its definition, in plain Python, leads nowhere else.
    point = ended.point
    _, posteriors = exact_posteriors(ROWS, 4, point.log_worths, point.log_shares)
    weights = np.array([row.weight for row in ROWS])
    firsts = np.zeros((2, 4))
    for row, posterior, weight in zip(ROWS, np.array(posteriors), weights, strict=True):
        firsts[:, row.ordered[0][0]] += weight * posterior
    expected = np.log(firsts + 0.5)
    assert_allclose(point.log_worths, expected - expected.mean(axis=1, keepdims=True), atol=1e-7)
    assert_allclose(np.exp(point.log_shares), np.average(posteriors, axis=0, weights=weights), atol=1e-7)


def test_toy__claims_no_likelihood() -> None:
    em = toy(accelerate=True)
    state = run(make_passes(as_rankings(BLOCK), None, "auto"), em, em.start(START))
    # Its likelihood may fall, and steps are taken all the same; none is accelerated or refused.
    likelihoods = [record["log_likelihood"] for record in state.history]
    assert min(np.diff(likelihoods)) < 0
    assert all(record["taken"] for record in state.history)
    assert {record["step"] for record in state.history} == {"start", "plain"}
    assert all(record["objective"] is None and record["change"] is None for record in state.history)
    assert state.history[-1]["largest_change"] <= 1e-9


def test_toy__shares_a_pass_with_others() -> None:
    passes = make_passes(as_rankings(BLOCK), None, "auto")
    candidates = [Candidate(START, {}), Candidate(START._replace(log_worths=-START.log_worths), {})]
    runs, failed = run_to_ends(passes, toy(), candidates)
    assert sorted(runs) == [0, 1]
    assert not failed
    assert_allclose(runs[0].point.log_worths, runs[1].point.log_worths[::-1], atol=1e-6)


def test_toy__on_a_cluster(client: Client) -> None:
    em = toy(max_iter=5)
    ended = [
        run(make_passes(as_rankings(BLOCK), where, "auto"), em, em.start(START)).iteration.point
        for where in (None, client)
    ]
    assert ended[0].flat().tobytes() == ended[1].flat().tobytes()


def test_toy__numbers_that_are_not_finite() -> None:
    def broken(block: RankingBlock, current: Prepared, frozen: Prepared | None) -> FirstPlaces:
        found = first_places(block, current, frozen)
        return found._replace(firsts=found.firsts + np.array([[0.0], [np.inf]]))

    em = Em(MStep("broken", broken, _own, worths_by_first_places, None, _numbers), 0.5, 1.0, 1)
    state = run(make_passes(as_rankings(BLOCK), None, "auto"), em, em.start(START))
    assert isinstance(state.error, NonFiniteError)
    assert str(state.error).startswith("iteration 1, leaf 0 (400 rankings): the statistics of component 1")


def test_m_step__needs_a_step() -> None:
    with pytest.raises(AssertionError, match="an M-step needs a step"):
        MStep("none", first_places, _own, None, None, _numbers)
