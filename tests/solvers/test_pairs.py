"""M-steps on pairs of items: wins weighted by posteriors, optima by another optimiser, EM without an objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.optimize import minimize

from plmix_dist import PlackettLuceMixture, RankingBlock
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NotConvergedWarning, NotIdentifiedError, SettingsError
from plmix_dist.fitting.algorithm import run
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import pair_statistics, prepare
from plmix_dist.passes import make_passes
from plmix_dist.rankings import Ranking
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings
from plmix_dist.solvers import CML, GMM, M_STEPS, Worths, cml_step, gmm_step
from plmix_dist.solvers.pairs import _minimise_over_pairs, _PairLosses
from tests.helpers.fit_oracle import (
    block_of,
    choices,
    drawn_rows,
    exact_posteriors,
    mixed_rows,
    mixtures,
    random_rows,
    top,
)
from tests.helpers.marks import examples

Table = NDArray[np.float64]


N_ITEMS = 5


BOTH = pytest.mark.parametrize("m_step", [CML, GMM], ids=lambda m_step: m_step.name)


TRUTH = np.array([[2.0, 1.0, 0.0, -1.0, -2.0], [-2.0, -1.0, 0.0, 1.0, 2.0]])


START = Point.start(TRUTH / 2, np.array([0.5, 0.5]))


# --- what is optimised, in plain Python ------------------------------------------------------------------


def plain_wins(rows: Sequence[Ranking], n_items: int, posteriors: Table) -> Table:
    """Every choice is won against each other item on offer."""
    wins = np.zeros((posteriors.shape[1], n_items, n_items))
    for row, posterior in zip(rows, posteriors, strict=True):
        for winner, on_offer in choices(row, n_items):
            for other in on_offer:
                if other != winner:
                    wins[:, winner, other] += row.weight * posterior
    return wins


def sigmoid(difference: float) -> float:
    return 1 / (1 + math.exp(-difference))


def composite_log_likelihood(wins: Table, theta: Sequence[float], alpha: float) -> float:
    """Of items, and of the ghost in the last place."""
    n_items = len(wins)
    total = 0.0
    for i in range(n_items):
        for j in range(n_items):
            total += wins[i, j] * math.log(sigmoid(theta[i] - theta[j]))
        total += alpha * math.log(sigmoid(theta[i] - theta[-1]) * sigmoid(theta[-1] - theta[i]))
    return total


def squared_moments(wins: Table, theta: Sequence[float], alpha: float) -> float:
    """Over ordered pairs that were seen, as the paper has it, and those of the ghost, as the M-step says."""
    n_items = len(wins)
    seen = [(i, j) for i in range(n_items) for j in range(n_items) if wins[i, j] + wins[j, i] > 0]
    total = sum((wins[i, j] / (wins[i, j] + wins[j, i]) - sigmoid(theta[i] - theta[j])) ** 2 for i, j in seen)
    per_pair = sum(wins[i, j] + wins[j, i] for i, j in seen) / len(seen)
    ghost = sum((0.5 - sigmoid(theta[i] - theta[-1])) ** 2 for i in range(n_items))
    return total + 2 * (2 * alpha / per_pair) * ghost


def by_slsqp(loss: Any, start: Table, alpha: float) -> Table:
    """The optimum by scipy's SLSQP, which the paper's authors use; items centred."""
    found = minimize(loss, start, method="SLSQP", jac="3-point", options={"ftol": 1e-16, "maxiter": 1000})
    theta: Table = found.x
    return theta - theta[:-1].mean() if alpha else np.append(theta[:-1] - theta[:-1].mean(), 0.0)


def random_wins(seed: int, n_items: int = N_ITEMS, seen: float = 1.0) -> Table:
    """Weighted wins such as posteriors give. Rows of a chain make a finite optimum exist."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n_items)
    chance = 1 / (1 + np.exp(truth[None, :] - truth[:, None]))
    count = np.triu(rng.uniform(5, 60, (n_items, n_items)) * (rng.random((n_items, n_items)) < seen), 1)
    for item in range(n_items - 1):
        count[item, item + 1] = max(count[item, item + 1], 5.0)
    count += count.T
    wins: Table = count * np.clip(chance + rng.normal(0, 0.1, chance.shape), 0.05, 0.95)
    return np.triu(wins, 1) + np.tril(count - wins.T, -1)


# --- the statistic ---------------------------------------------------------------------------------------


@given(data=st.data())
@examples(25)
def test_pair_statistics__by_definition(data: Any) -> None:
    rows = data.draw(mixed_rows(N_ITEMS))
    log_worths, log_shares = data.draw(mixtures(N_ITEMS, max_components=4))
    found = pair_statistics(block_of(rows, N_ITEMS), prepare(log_worths, log_shares))
    logs, posteriors = exact_posteriors(rows, N_ITEMS, log_worths, log_shares)
    weights = np.array([row.weight for row in rows])
    assert_allclose(found.wins, plain_wins(rows, N_ITEMS, posteriors), rtol=1e-9, atol=1e-9)
    assert_allclose(found.shares, weights @ posteriors, rtol=1e-9, atol=1e-12)
    assert_allclose(found.log_likelihood, weights @ logs, rtol=1e-9)


def test_pair_statistics__persons_and_frozen_posteriors() -> None:
    rows = random_rows(4, N_ITEMS, 12)
    block = block_of(rows, N_ITEMS).replace(groups=np.repeat(np.arange(4), 3))
    rng = np.random.default_rng(0)
    params, others = (prepare(rng.normal(size=(2, N_ITEMS)), np.log([0.3, 0.7])) for _ in range(2))
    found = pair_statistics(block, others, params)
    again = pair_statistics(block, params)
    assert [part.tobytes() for part in found] == [part.tobytes() for part in again]
    # A person has one membership: weight times log-probability add up over the rows of the person.
    assert found.shares.sum() == pytest.approx(4)
    from plmix_dist.kernels import memberships_at

    by_row = memberships_at(block, params).posteriors[np.repeat(np.arange(4), 3)]
    assert_allclose(found.wins, plain_wins(rows, N_ITEMS, by_row), atol=1e-9)


# --- optima ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("seen", [1.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_cml__maximum_by_slsqp(seed: int, seen: float, alpha: float) -> None:
    wins = random_wins(seed, seen=seen)
    expected = by_slsqp(
        lambda theta: -composite_log_likelihood(wins, theta, alpha) / wins.sum(), np.zeros(N_ITEMS + 1), alpha
    )
    for start in (np.zeros(N_ITEMS), np.linspace(20, -20, N_ITEMS)):
        found = cml_step(wins, Worths(start, 3.0), alpha)
        assert_allclose(found.log_worths, expected[:-1], atol=1e-6)
        if alpha:
            assert found.ghost == pytest.approx(expected[-1], abs=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("seen", [1.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_gmm__minimum_by_slsqp(seed: int, seen: float, alpha: float) -> None:
    wins = random_wins(seed, seen=seen)

    def loss(theta: Any) -> float:
        return squared_moments(wins, theta, alpha)

    found = gmm_step(wins, Worths(np.zeros(N_ITEMS), 0.0), alpha)
    rng = np.random.default_rng(seed)
    here = np.append(found.log_worths, found.ghost)
    ends = [by_slsqp(loss, start, alpha) for start in (np.zeros(N_ITEMS + 1), rng.normal(size=N_ITEMS + 1))]
    # The sum is not convex. Of the ends that SLSQP finds from two starts, none is lower than ours.
    assert loss(here) <= min(map(loss, ends)) + 1e-12
    best = min(ends, key=loss)
    assert_allclose(found.log_worths, best[:-1], atol=1e-6)
    if alpha:
        assert found.ghost == pytest.approx(best[-1], abs=1e-6)


@given(seed=st.integers(0, 2**32 - 1), n_items=st.integers(2, 12), alpha=st.sampled_from([0.0, 0.1, 2.0]))
@examples(40)
def test_pair_steps__are_fixed_points_and_stationary(seed: int, n_items: int, alpha: float) -> None:
    wins = random_wins(seed, n_items, seen=0.6)
    for step, loss in ((cml_step, composite_log_likelihood), (gmm_step, squared_moments)):
        found = step(wins, Worths(np.zeros(n_items), 0.0), alpha)
        again = step(wins, found, alpha)
        assert_allclose(again.log_worths, found.log_worths, atol=1e-9)
        # Central differences of the loss by its definition.
        theta = np.append(found.log_worths, found.ghost)
        for place in range(n_items):
            nudge = 1e-5 * np.eye(n_items + 1)[place]
            slope = (loss(wins, theta + nudge, alpha) - loss(wins, theta - nudge, alpha)) / 2e-5
            assert abs(slope) <= 1e-7 * max(1.0, float(wins.sum()))


def test_pair_steps__a_prior_pulls_towards_the_ghost() -> None:
    wins = random_wins(3)
    for step in (cml_step, gmm_step):
        spreads = [np.ptp(step(wins, Worths(np.zeros(N_ITEMS), 0.0), a).log_worths) for a in (0.0, 1.0, 10.0, 1e4)]
        assert sorted(spreads, reverse=True) == spreads
        assert spreads[-1] < 0.2 * spreads[0]
    # An item that no pair mentions has the worth of the ghost.
    lonely = np.pad(wins, (0, 1))
    for step in (cml_step, gmm_step):
        found = step(lonely, Worths(np.zeros(N_ITEMS + 1), 0.0), 1.0)
        assert found.log_worths[-1] == pytest.approx(found.ghost, abs=1e-8)


def test_minimise_over_pairs__leaves_a_saddle() -> None:
    # A double well: at 0 the curvature is negative, and the bounds lead on.
    def wells(d: Table) -> _PairLosses:
        return _PairLosses(float(((d**2 - 1) ** 2).sum()) / 2, 4 * d * (d**2 - 1), 12 * d**2 - 4, np.full_like(d, 8.0))

    found = _minimise_over_pairs(wells, np.array([0.01, 0.0]))
    assert abs(found[0] - found[1]) == pytest.approx(1, abs=1e-12)


# --- EM --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fused", "exact"])
@BOTH
def test_em__ends_at_its_fixed_point(m_step: Any, kind: Any) -> None:
    rows = drawn_rows(6, TRUTH, [0.6, 0.4], 250)
    block = block_of(rows, N_ITEMS)
    em = Em(m_step, 0.3, block.total_weight, block.n_rankings, kind=kind, tol=1e-9)
    state = run(make_passes(as_rankings(block), None, "auto"), em, em.start(START))
    ended = em.result(state)
    assert ended.converged
    assert (ended.objective, ended.gradient) == (None, None)
    assert {record["step"] for record in state.history} == {"start", "plain"}
    # The history has the log-likelihood, which these steps do not raise.
    assert all(record["objective"] is None and record["taken"] for record in state.history)
    _, posteriors = exact_posteriors(rows, N_ITEMS, ended.point.log_worths, ended.point.log_shares)
    loss = composite_log_likelihood if m_step is CML else squared_moments
    sign = -1 if m_step is CML else 1
    for k, wins in enumerate(plain_wins(rows, N_ITEMS, posteriors)):
        here = np.append(ended.point.log_worths[k], ended.point.ghosts[k])
        expected = by_slsqp(lambda theta, wins=wins: sign * loss(wins, theta, 0.3), here * 0.9, 0.3)
        assert_allclose(here, expected, atol=1e-6)


def test_em__lsr_and_mm_agree_and_are_above_the_others() -> None:
    rng = np.random.default_rng(2)
    truth = draw_log_worths(3, 10, None, rng)
    block, _ = draw_rankings(truth, np.array([0.5, 0.3, 0.2]), 5_000, rng)
    start = truth + 0.3 * rng.standard_normal(truth.shape)
    mean = {}
    for name in ("lsr", "mm", "cml", "gmm"):
        model = PlackettLuceMixture(3, m_step=name, init=start, alpha=0.0, max_iter=2_000).fit(block)
        assert model.converged_
        mean[name] = model.log_likelihood_ / block.n_rankings
    assert mean["lsr"] == pytest.approx(mean["mm"], abs=1e-8)
    assert max(mean["cml"], mean["gmm"]) < mean["lsr"] - 1e-5


def test_fit__not_converged_says_what_moved() -> None:
    block, _ = draw_rankings(TRUTH, np.array([0.5, 0.5]), 300, np.random.default_rng(0))
    model = PlackettLuceMixture(2, m_step="cml", init=TRUTH / 2, max_iter=2)
    with pytest.warns(NotConvergedWarning, match=r"in 2 iterations \(largest change [\d.e-]+ where 1e-08"):
        model.fit(block)
    assert (model.objective_, model.gradient_norm_) == (None, None)


@pytest.mark.parametrize("name", sorted(M_STEPS))
def test_fit__a_whole_number_as_alpha(name: str) -> None:
    block, _ = draw_rankings(TRUTH, np.array([0.5, 0.5]), 300, np.random.default_rng(0))
    models = [
        PlackettLuceMixture(2, m_step=name, alpha=alpha, init=TRUTH / 2, max_iter=6, tol=1e-2, random_state=0).fit(
            block
        )
        for alpha in (1, 1.0)
    ]
    assert models[0].log_worths_.tobytes() == models[1].log_worths_.tobytes()


@BOTH
def test_fit__no_estimate_without_a_prior(m_step: Any) -> None:
    # Each half of the rows alone orders all items the same way: its component has no finite optimum.
    block = block_of([top(0, 1, 2)] * 30 + [top(2, 1, 0)] * 30, 3)
    apart = np.array([[9.0, 0.0, -9.0], [-9.0, 0.0, 9.0]])
    estimate = f"(maximum-likelihood|{m_step.name})"
    with pytest.raises(NotIdentifiedError, match=f"component 0 has no {estimate} estimate"):
        PlackettLuceMixture(2, m_step=m_step.name, alpha=0.0, init=apart, max_iter=3_000).fit(block)


@pytest.mark.parametrize("name", ["cml", "gmm", "stochastic-lsr"])
def test_fit__every_kind_of_row(name: Any) -> None:
    rows = random_rows(8, N_ITEMS, 300)
    for block in (block_of(rows, N_ITEMS), block_of(rows, N_ITEMS).replace(groups=np.arange(300) // 2)):
        model = PlackettLuceMixture(2, m_step=name, init="random", max_iter=60, random_state=0, tol=1e-2)
        assert np.isfinite(model.fit(block).log_worths_).all()
        assert model.m_step_ == name
        # The log-likelihood of a fit is that of its parameters, whatever the M-step.
        weight = 150.0 if block.groups is not None else block.total_weight
        assert model.log_likelihood_ == pytest.approx(model.score(block) * weight, rel=1e-9)


@pytest.mark.parametrize("name", ["cml", "gmm", "stochastic-lsr"])
def test_fit__ties(name: Any) -> None:
    tied = [[(0, 1), 2, 3], [(3, 2), 0, 1], [0, (1, 2), 3], [3, 1, 2, 0]] * 20
    block = RankingBlock.from_rows([_row_with_ties(row) for row in tied], n_items=4)
    model = PlackettLuceMixture(2, m_step=name, init="random", max_iter=60, random_state=0, tol=1e-2)
    assert np.isfinite(model.fit(block).log_worths_).all()
    with pytest.raises(SettingsError, match=f'm_step="{name}" takes rankings without ties.*choose m_step="mm", or'):
        PlackettLuceMixture(2, m_step=name, ties="marginal", random_state=0).fit(block)


def _row_with_ties(row: Sequence[Any]) -> Ranking:
    from plmix_dist.rankings import Ranking

    places = tuple(place if isinstance(place, tuple) else (place,) for place in row)
    return Ranking(places, (), "below", 1.0)


@pytest.mark.parametrize("name", ["cml", "gmm", "stochastic-lsr"])
def test_no_likelihood__no_covariates_no_standard_errors(name: Any) -> None:
    block, _ = draw_rankings(TRUTH, np.array([0.5, 0.5]), 200, np.random.default_rng(0))
    model = PlackettLuceMixture(2, m_step=name, init=TRUTH, max_iter=40, tol=1e-3)
    with pytest.raises(SettingsError, match=f'm_step="{name}" raises no likelihood'):
        model.fit(block, membership_covariates=np.zeros((200, 1)))
    with pytest.raises(SettingsError, match=f'm_step="{name}" does not end there'):
        model.fit(block).standard_errors(block)


def test_m_steps__who_maximises_the_likelihood() -> None:
    named = {name: m_step.objective is not None for name, m_step in M_STEPS.items()}
    assert named == {"lsr": True, "mm": True, "cml": False, "gmm": False, "stochastic-lsr": False}
