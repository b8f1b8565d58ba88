"""Stochastic LSR: memberships are drawn by seed, start, iteration and leaf; a fit takes a fixed number of steps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from plmix_dist import PlackettLuceMixture, simulate
from plmix_dist.cli import main
from plmix_dist.datasets.given import as_rankings
from plmix_dist.fitting.algorithm import run
from plmix_dist.fitting.e_step import PassParams, e_step
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import em_statistics, prepare, row_posteriors
from plmix_dist.kernels.draws import _drawn_memberships, drawn_statistics
from plmix_dist.passes import ThreadedPasses
from plmix_dist.rankings.sampling import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import STOCHASTIC_LSR
from tests.helpers.fit_oracle import block_of, exact_posteriors, exact_statistics, random_rows

TRUTH = np.array([[2.0, 1.0, 0.0, -1.0, -2.0], [-2.0, -1.0, 0.0, 1.0, 2.0]])


START = Point.start(TRUTH / 2, np.array([0.5, 0.5]))


PARAMS = prepare(TRUTH / 2, np.log([0.5, 0.5]))


def drawn_block(n_rows: int, seed: int = 0) -> Any:
    return draw_rankings(TRUTH, np.array([0.6, 0.4]), n_rows, np.random.default_rng(seed))[0]


# --- draws -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [1.0, 7.0, 2.5, 0.3])
def test_drawn_memberships__have_the_chances_of_the_posterior(weight: float) -> None:
    posterior = np.array([0.2, 0.5, 0.3])
    n_rows = 4_000
    drawn = _drawn_memberships(np.tile(posterior, (n_rows, 1)), np.full(n_rows, weight), np.random.default_rng(3))
    assert_allclose(drawn.sum(axis=1), 1, rtol=1e-12)
    n_trials = int(weight) if weight == int(weight) else 1
    assert_allclose(drawn * n_trials, np.round(drawn * n_trials), atol=1e-9)
    for component, chance in enumerate(posterior):
        # How many of a row's persons fall to the component has a binomial distribution.
        counts = np.bincount(np.round(drawn[:, component] * n_trials).astype(int), minlength=n_trials + 1)
        expected = n_rows * binom.pmf(np.arange(n_trials + 1), n_trials, chance)
        assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 5).all()


def test_drawn_memberships__certain_persons() -> None:
    posteriors = np.array([[1.0, 0.0], [0.0, 1.0]] * 50)
    drawn = _drawn_memberships(posteriors, np.tile([1.0, 3.0], 50), np.random.default_rng(0))
    assert drawn.tolist() == posteriors.tolist()


def test_drawn_statistics__are_those_of_the_clusters() -> None:
    rows = random_rows(1, 5, 40, weighted=False)
    block = block_of(rows, 5)
    found = drawn_statistics(block, PARAMS, None, np.random.default_rng(6))
    logs, posteriors = exact_posteriors(rows, 5, TRUTH / 2, np.log([0.5, 0.5]))
    drawn = _drawn_memberships(posteriors, np.ones(40), np.random.default_rng(6))
    assert set(np.unique(drawn)) == {0.0, 1.0}
    # Unweighted statistics of each cluster by itself, as if there were no other component.
    for k in range(2):
        cluster = [row for row, own in zip(rows, drawn[:, k], strict=True) if own]
        alone = exact_statistics(cluster, 5, TRUTH[[k]] / 2, np.zeros(1))
        assert_allclose(found.rates[k], alone.rates[0], rtol=1e-9, atol=1e-12)
        assert_allclose(found.wins[k], alone.wins[0], atol=1e-9)
        assert found.shares[k] == len(cluster)
    assert_allclose(found.log_likelihood, logs.sum(), rtol=1e-9)


def test_drawn_statistics__one_draw_for_a_person() -> None:
    block = drawn_block(60).replace(groups=np.repeat(np.arange(20), 3))
    found = drawn_statistics(block, PARAMS, None, np.random.default_rng(0))
    # Each person's three rankings of five items win twelve choices, all in one component.
    assert found.shares.sum() == pytest.approx(20)
    assert_allclose(found.wins.sum(axis=1), 12 * found.shares)


def test_drawn_statistics__unbiased() -> None:
    block = drawn_block(50)
    exact = em_statistics(block, PARAMS, with_rates=True)
    many = [drawn_statistics(block, PARAMS, None, np.random.default_rng(seed)) for seed in range(400)]
    for name in ("shares", "wins", "rates"):
        values = np.array([getattr(one, name) for one in many])
        error = values.std(axis=0) / np.sqrt(len(many))
        assert (np.abs(values.mean(axis=0) - getattr(exact, name)) <= 5 * error + 1e-9).all()


# --- the key ---------------------------------------------------------------------------------------------


def test_key__seed_start_iteration_and_leaf_matter() -> None:
    block, leaf = drawn_block(300), e_step(STOCHASTIC_LSR).leaf
    prepared = e_step(STOCHASTIC_LSR).prepare
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    shares = [tuple(leaf(0, block, prepared(PassParams(START, None, key))).wins.ravel()) for key in keys]
    shares.append(tuple(leaf(1, block, prepared(PassParams(START, None, keys[0]))).wins.ravel()))
    assert len(set(shares)) == 5
    assert shares[0] == tuple(leaf(0, block, prepared(PassParams(START, None, keys[0]))).wins.ravel())


# --- the fit ---------------------------------------------------------------------------------------------


def test_fit__takes_exactly_max_iter_iterations_and_does_not_warn() -> None:
    block = drawn_block(1_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PlackettLuceMixture(2, m_step="stochastic-lsr", max_iter=30, init=TRUTH / 2, random_state=1).fit(block)
    assert (model.n_iter_, model.converged_, model.objective_, model.gradient_norm_) == (30, False, None, None)
    assert {record["step"] for record in model.history_} == {"start", "plain"}
    assert_allclose(model.log_worths_, TRUTH, atol=0.4)


def test_fit__goes_on_where_two_draws_are_equal_by_chance() -> None:
    # Components so far apart that every draw is the same: the parameters stop moving, and the fit does not end.
    block = drawn_block(40)
    em = Em(STOCHASTIC_LSR, 1.0, 40.0, 40, max_iter=60)
    begin = em.start(Point.start(np.array([[20.0, 0, 0, 0, -20.0], [-20.0, 0, 0, 0, 20.0]]), np.full(2, 0.5)))
    state = run(ThreadedPasses(as_rankings(block[:1])), em, begin)
    assert len(state.history) == 60
    assert min(record["largest_change"] for record in state.history) < 1e-8


def test_fit__scatters_about_the_estimate_of_lsr() -> None:
    block = drawn_block(2_000)
    exact = PlackettLuceMixture(2, m_step="lsr", init=TRUTH / 2).fit(block)
    ends = []
    for seed in range(12):
        model = PlackettLuceMixture(2, m_step="stochastic-lsr", max_iter=12, init=exact, random_state=seed).fit(block)
        ends.append(model.log_worths_)
        # The estimate maximises the objective, so no draw ends above it.
        assert model.log_likelihood_ < exact.log_likelihood_ + 0.5
    spread = np.std(ends, axis=0)
    assert (spread > 1e-3).all()
    assert (np.abs(np.mean(ends, axis=0) - exact.log_worths_) <= 5 * spread / np.sqrt(12) + 0.02).all()


def test_fit__exact_solves_each_cluster_to_its_end() -> None:
    block, alpha = drawn_block(300), 0.5
    em = Em(STOCHASTIC_LSR, alpha, 300.0, 300, kind="exact", max_iter=2, seed=5)
    state = run(ThreadedPasses(as_rankings(block)), em, em.start(START))
    drawn = _drawn_memberships(row_posteriors(block, PARAMS)[1], np.ones(300), generator(5, "memberships", 0, 0, 0))
    assert min(record["inner_passes"] for record in state.history) > 2
    for component in range(2):
        cluster = block.take(np.flatnonzero(drawn[:, component]))
        alone = PlackettLuceMixture(1, alpha=alpha, tol=1e-10).fit(cluster)
        # The second iteration has looked at the point to which the first led.
        assert_allclose(state.iteration.point.log_worths[component], alone.log_worths_[0], atol=1e-6)


def test_fit__exact_takes_exactly_max_iter_iterations_too() -> None:
    model = PlackettLuceMixture(2, m_step="stochastic-lsr", em="exact", max_iter=9, init=TRUTH / 2, random_state=1).fit(
        drawn_block(1_000)
    )
    assert (model.n_iter_, model.converged_, model.objective_) == (9, False, None)
    assert_allclose(model.log_worths_, TRUTH, atol=0.4)


def test_cli__random_steps_are_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path / "store", n_rankings=200, n_items=5, n_components=2)
    words = ["fit", str(tmp_path / "store"), "--components", "2", "--out", str(tmp_path / "model")]
    words += ["--m-step", "stochastic-lsr", "--max-iter", "7", "--init", "random"]
    for said in ("random steps for 7 iterations", "nothing to do"):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code in (0, None)
        assert said in capsys.readouterr().out
