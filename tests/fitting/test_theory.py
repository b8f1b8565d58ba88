"""What the paper proves, on random cases: the least-squares lemma, the Jacobian of LSR's map, fixed points of EM."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.special import logit
from scipy.stats import norm

from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting.algorithm import run
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.point import Point
from plmix_dist.fitting.starts.clusters import least_squares
from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings import RankingBlock
from plmix_dist.solvers import CML, GMM, LSR, MM, ComponentStatistics, Worths, gradient, lsr_step, mm_step
from tests.helpers.fit_oracle import block_of, choices, random_rows
from tests.helpers.marks import examples
from tests.helpers.oracle import order_probability

Table = NDArray[np.float64]


SEEDS = st.integers(0, 2**32 - 1)


def statistics(block: RankingBlock, log_worths: Table) -> ComponentStatistics:
    sums = em_statistics(block, prepare(log_worths[None], np.zeros(1)), with_rates=True)
    return ComponentStatistics(sums.wins[0], sums.expected_wins[0], sums.rates[0])


def connected_rows(seed: int, n_items: int) -> list[Any]:
    """Rows of all kinds with weights, and rankings in both directions, so that an estimate exists."""
    rows = random_rows(seed, n_items, 25)
    order = tuple((item,) for item in range(n_items))
    return [*rows, *(rows[0]._replace(ordered=way, offered=(), unranked="absent") for way in (order, order[::-1]))]


# --- the least-squares estimate --------------------------------------------------------------------------


@pytest.mark.parametrize(("link", "quantile"), [("logit", logit), ("probit", norm.ppf)])
@given(seed=SEEDS, n_items=st.integers(2, 12), noise=st.sampled_from([0.01, 0.5, 5.0]))
@examples(30)
def test_least_squares__error_is_bounded_by_that_of_the_differences(
    link: str, quantile: Any, seed: int, n_items: int, noise: float
) -> None:
    """The lemma of the supplement: |N(estimate) - N(truth)|^2 <= |differences - true ones|^2 / (2 n)."""
    rng = np.random.default_rng(seed)
    truth = noise * rng.normal(size=n_items)
    truth -= truth.mean()
    wins = rng.uniform(0.0, 20.0, (n_items, n_items))
    np.fill_diagonal(wins, 0.0)
    measured = quantile((wins + 0.5) / (wins + wins.T + 1))
    np.fill_diagonal(measured, 0.0)
    error = np.sum((measured - (truth[:, None] - truth[None, :])) ** 2)
    assert np.sum((least_squares(wins, link) - truth) ** 2) <= error / (2 * n_items) * (1 + 1e-9)


def test_least_squares__the_bound_is_reached() -> None:
    # Where measured differences are differences of numbers, nothing is lost.
    truth, other = np.array([1.0, 0.0, -1.0]), np.array([0.5, 0.5, -1.0])
    chance = 1 / (1 + np.exp(other[None, :] - other[:, None]))
    wins = 1e9 * chance
    np.fill_diagonal(wins, 0.0)
    error = np.sum(((other - truth)[:, None] - (other - truth)[None, :]) ** 2)
    assert np.sum((least_squares(wins) - truth) ** 2) == pytest.approx(error / 6, rel=1e-6)


# --- the map of LSR --------------------------------------------------------------------------------------


def one_step_of_the_chain(block: RankingBlock, worths: Table, scale: float) -> Table:
    """T(p) = p M(p), with the rates of the chain as the kernel gives them: from i to j, times the worth of j."""
    rates = statistics(block, np.log(worths)).rates / worths[:, None]
    into = rates @ worths
    out = worths * rates.sum(axis=0)
    return worths + scale * (into - out)


@given(seed=SEEDS, n_items=st.integers(2, 7))
@examples(25)
def test_lsr_map__its_jacobian_is_stochastic(seed: int, n_items: int) -> None:
    """The proof of Theorem 2: dT_j / dp_i = scale * sum of w p_j / S^2 over choices with i and j; rows sum to 1."""
    rows = connected_rows(seed, n_items)
    block = block_of(rows, n_items)
    worths = np.exp(0.7 * np.random.default_rng(seed).normal(size=n_items))
    shared = np.zeros((n_items, n_items))
    for row in rows:
        for _, on_offer in choices(row, n_items):
            total = worths[on_offer].sum()
            shared[np.ix_(on_offer, on_offer)] += row.weight / total**2
    scale = 0.5 / (shared * worths[None, :]).sum(axis=1).max()
    expected = scale * shared * worths[None, :]
    np.fill_diagonal(expected, 0.0)
    np.fill_diagonal(expected, 1 - expected.sum(axis=1))
    nudges = 1e-5 * np.diag(worths)
    jacobian = np.array(
        [
            (one_step_of_the_chain(block, worths + nudge, scale) - one_step_of_the_chain(block, worths - nudge, scale))
            / (2 * nudge.sum())
            for nudge in nudges
        ]
    )
    assert_allclose(jacobian, expected, atol=1e-6)
    assert_allclose(jacobian.sum(axis=1), 1, atol=1e-6)
    assert (jacobian > -1e-7).all()


@given(seed=SEEDS, n_items=st.integers(2, 7), alpha=st.sampled_from([0.0, 3.0]))
@examples(25)
def test_lsr_and_mm__have_the_same_fixed_points(seed: int, n_items: int, alpha: float) -> None:
    block = block_of(connected_rows(seed, n_items), n_items)
    worths = Worths(np.zeros(n_items), 0.0)
    for _ in range(3_000):
        here, worths = worths, lsr_step(statistics(block, worths.log_worths), worths, alpha)
        if np.abs(np.append(*worths[:2]) - np.append(*here[:2])).max() < 1e-13:
            break
    own = statistics(block, worths.log_worths)
    at = gradient(own, worths, alpha)
    assert np.abs(at.values).max() < 1e-8 * block.total_weight
    assert_allclose(mm_step(worths, at, alpha).log_worths, worths.log_worths, atol=1e-9)
    # LSR's map contracts here: its derivative in the log-worths, all shifts left out, has no eigenvalue beyond 1.
    if not alpha:
        steps = [
            lsr_step(statistics(block, worths.log_worths + nudge), Worths(worths.log_worths + nudge, 0.0), 0.0)
            for nudge in 1e-5 * np.vstack([np.eye(n_items), -np.eye(n_items)])
        ]
        ends = np.array([step.log_worths for step in steps])
        derivative = (ends[:n_items] - ends[n_items:]) / 2e-5
        assert np.abs(np.linalg.eigvals(derivative)).max() < 1 - 1e-6
        assert_allclose(derivative.sum(axis=0), 0, atol=1e-6)


# --- where EM stays, with as many rankings as one likes --------------------------------------------------


@pytest.mark.parametrize("m_step", [LSR, MM, CML, GMM], ids=lambda m_step: m_step.name)
def test_em__the_truth_is_a_fixed_point_of_every_m_step(m_step: Any) -> None:
    """Rankings in their exact proportions: the posteriors are right, so weighted pairs have their true frequencies."""
    truth = np.array([[1.2, 0.4, -0.1, -1.5], [-0.9, 0.8, 0.5, -0.4]])
    shares = np.array([0.7, 0.3])
    orders = list(itertools.permutations(range(4)))
    for length, unranked in ((4, None), (2, "below")):
        tops = sorted({order[:length] for order in orders})
        chances = [
            sum(
                share * order_probability(np.exp(worths).tolist(), top, range(4))
                for share, worths in zip(shares, truth, strict=True)
            )
            for top in tops
        ]
        block = RankingBlock.from_array(np.array(tops), n_items=4, unranked=unranked, weights=1e4 * np.array(chances))
        em = Em(m_step, 0.0, block.total_weight, block.n_rankings, max_iter=2, accelerate=False)
        state = run(ThreadedPasses(as_rankings(block)), em, em.start(Point.start(truth, shares)))
        after = state.iteration.point
        assert_allclose(after.log_worths, truth - truth.mean(axis=1, keepdims=True), atol=1e-8)
        assert_allclose(np.exp(after.log_shares), shares, atol=1e-8)
