"""Fits in which ties are outcomes: golden values of other tools, maxima by BFGS, errors, everything they go with."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.distributed import Client
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import plmix_dist as plm
from plmix_dist import PlackettLuceMixture, Ranking, RankingBlock
from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.kernels import prepare
from plmix_dist.kernels.tied_choices import tie_statistics
from tests.helpers import tie_oracle
from tests.helpers.battles import arena_battles, battles, golden
from tests.helpers.oracle import write_store


def pudding() -> tuple[RankingBlock, dict[str, Any]]:
    """Davidson's pudding data."""
    found, rows = golden("1_davidson_pudding"), []
    for line in found["data"]:
        i, j, *counts = map(int, line.split())
        outcomes = [((i - 1,), (j - 1,)), ((j - 1,), (i - 1,)), ((i - 1, j - 1),)]
        rows += [Ranking(places, (), "absent", count) for places, count in zip(outcomes, counts, strict=True)]
    return RankingBlock.from_rows(rows, n_items=6), found


def draw_row(rng: np.random.Generator, worths: Any, log_ties: Any) -> Ranking:
    """A full ranking with ties, choice by choice."""
    places, left = [], list(range(len(worths)))
    while len(left) > 1:
        sets = tie_oracle.chances(left, worths, log_ties)
        chosen = list(sets)[rng.choice(len(sets), p=list(sets.values()))]
        places.append(chosen)
        left = [item for item in left if item not in chosen]
    return Ranking((*places, tuple(left)) if left else tuple(places), (), "absent", 1.0)


def drawn(seed: int = 0, n_persons: int = 60, n_each: int = 3) -> RankingBlock:
    """Rankings of four items by persons of two kinds, with ties of up to two."""
    rng = np.random.default_rng(seed)
    kinds = np.array([[1.5, 0.5, -0.5, -1.5], [-1.0, 1.0, -1.0, 1.0]])
    rows = [
        draw_row(rng, kinds[int(person % 3 == 0)], np.array([-0.5]))
        for person in range(n_persons)
        for _ in range(n_each)
    ]
    return RankingBlock.from_rows(rows, n_items=4, groups=[row // n_each for row in range(len(rows))])


def test_davidson__pudding() -> None:
    """Davidson (1970); the errors are those that R's PlackettLuce prints."""
    block, found = pudding()
    model = PlackettLuceMixture(1, alpha=0.0, ties=plm.Davidson(), tol=1e-12).fit(block)
    assert model.converged_
    assert_allclose(model.worths_frame(log=False, table="dict")["component 0"], found["worths"], atol=1e-9)
    assert model.tie_parameters_ is not None
    assert_allclose(model.tie_parameters_, [[found["delta"]]], atol=1e-8)
    assert model.log_likelihood_ == pytest.approx(found["log_likelihood"], abs=1e-7)
    errors = model.standard_errors(block)
    assert errors.kind == "information"
    assert_allclose(errors.log_ties, [[found["se_log_delta"]]], atol=1e-8)
    assert_allclose(errors.differences().standard_errors[0, 1:], found["se_log_worth_minus_first"], atol=1e-8)
    assert "ties: weight 0.747 (error 0.062); two equal items tie with probability 0.272" in model.summary(X=block)
    assert model.bic(block) == pytest.approx(6 * np.log(block.row_weights.sum()) - 2 * model.log_likelihood_)


@pytest.mark.parametrize("alpha", [0.5, 0.0])
def test_davidson__fruits(alpha: float) -> None:
    """Ties in rankings, and with the ghost: R's PlackettLuce with npseudo = 0.5."""
    found, rows = golden("1_davidson_fruits"), []
    for ranks in ("120", "312", "211", "123", "211", "102"):
        places = [tuple(i for i in range(3) if ranks[i] == rank) for rank in "123"]
        rows.append(Ranking(tuple(place for place in places if place), (), "absent", 1.0))
    block = RankingBlock.from_rows(rows, n_items=3)
    model = PlackettLuceMixture(1, alpha=alpha, ties="davidson", tol=1e-12).fit(block)
    named = "" if alpha else "no_prior_"
    assert model.tie_parameters_ is not None
    worths = model.log_worths_[0] - model.log_worths_[0, 0]
    assert_allclose(worths, found[f"{named}log_worths_minus_first"], atol=1e-8)
    assert float(np.log(model.tie_parameters_)[0, 0]) == pytest.approx(found[f"{named}log_delta"], abs=1e-8)
    if not alpha:
        assert model.log_likelihood_ == pytest.approx(found["no_prior_log_likelihood"], abs=1e-9)


def test_davidson__order_three() -> None:
    found = golden("1_davidson_order3")
    rows = [Ranking(tuple(tuple(map(int, place)) for place in sets), (), "absent", 1.0) for sets, _ in found["R3"]]
    block = RankingBlock.from_rows(rows, n_items=5)
    model = PlackettLuceMixture(1, alpha=0.0, ties=plm.Davidson(order=3), tol=1e-12).fit(block)
    assert model.tie_parameters_ is not None
    assert_allclose(model.log_worths_[0], found["log_worths"], atol=1e-9)
    assert_allclose(np.log(model.tie_parameters_[0]), found["log_delta"], atol=1e-9)
    assert model.log_likelihood_ == pytest.approx(found["log_likelihood"], abs=1e-7)


def test_davidson__battles() -> None:
    """Leaderbot's Davidson, and evalica's Newman, which is the same model with v = delta / 2."""
    block, _ = arena_battles()
    found = golden("1_davidson_battles")
    model = PlackettLuceMixture(1, alpha=0.0, ties="davidson", tol=1e-12).fit(block)
    assert model.tie_parameters_ is not None
    delta = float(model.tie_parameters_[0, 0])
    assert_allclose(model.log_worths_[0], found["log_worths"], atol=1e-9)
    assert_allclose(model.log_worths_[0], found["leaderbot"]["log_worths"], atol=1e-7)
    assert np.log(delta) == pytest.approx(found["leaderbot"]["tie"][0], abs=1e-7)
    assert_allclose(model.log_worths_[0], found["evalica_newman"]["log_worths"], atol=1e-7)
    assert delta / 2 == pytest.approx(found["evalica_newman"]["v"], abs=1e-7)
    win, tie, loss = model.outcome_probabilities([0, 1])
    odds = np.exp(model.log_worths_[0, 0] - model.log_worths_[0, 1])
    assert_allclose(
        [win[0, 1], tie[0, 1], loss[0, 1]], np.array([odds, delta * odds**0.5, 1]) / (odds + delta * odds**0.5 + 1)
    )
    board = model.leaderboard(block, table="dict")
    assert (board["lower"] < board["upper"]).all()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("grouped", [True, False])
def test_davidson__two_components_are_at_a_maximum(*, shared: bool, grouped: bool) -> None:
    """The likelihood by enumeration has the same value there, and no slope."""
    block = drawn() if grouped else drawn(n_persons=150, n_each=1).replace(groups=None)
    block = block.replace(weights=1.0 + np.arange(block.n_rankings) % 3)
    model = PlackettLuceMixture(2, alpha=0.0, ties=plm.Davidson(shared=shared), random_state=0, tol=1e-10).fit(block)
    assert model.converged_
    assert model.tie_parameters_ is not None
    log_ties = np.log(model.tie_parameters_)
    assert (log_ties[0] == log_ties[1]).all() == shared

    def value(parameters: Any) -> float:
        worths, ties = parameters[:8].reshape(2, 4), parameters[8:10, None]
        shares = np.exp(parameters[10:] - np.logaddexp.reduce(parameters[10:]))
        return tie_oracle.log_likelihood(block, worths, shares, np.full((2, 1), ties[0]) if shared else ties)

    here = np.concatenate([model.log_worths_.ravel(), log_ties.ravel(), np.log(model.shares_)])
    assert value(here) == pytest.approx(model.log_likelihood_, rel=1e-12)
    slopes = [(value(here + step) - value(here - step)) / 2e-5 for step in 1e-5 * np.eye(len(here))]
    assert_allclose(slopes, 0.0, atol=2e-4)

    # Errors from differences of the kernel's gradient, in parameters that are free.
    def gradient(parameters: Any) -> Any:
        logs = parameters[10:] - np.logaddexp.reduce(parameters[10:])
        sums = tie_statistics(block, prepare(parameters[:8].reshape(2, 4), logs, parameters[8:10, None]))
        of_shares = sums.shares - sums.shares.sum() * np.exp(logs)
        parts = (sums.wins - sums.expected_wins, sums.ties - sums.expected_ties, of_shares)
        return np.concatenate([part.ravel() for part in parts])

    free = np.zeros((len(here), 9 - shared))
    for k, item in itertools.product(range(2), range(3)):
        free[[4 * k + item, 4 * k + 3], 3 * k + item] = 1.0, -1.0
    free[8:10, 6 : 8 - shared] = np.ones((2, 1)) if shared else np.eye(2)
    free[10, 8 - shared] = 1.0
    step = 1e-5
    second = [(gradient(here - step * move) - gradient(here + step * move)) / (2 * step) for move in free.T]
    covariance = free @ np.linalg.inv(free.T @ np.array(second).T) @ free.T
    errors = model.standard_errors(block, kind="information")
    assert_allclose(errors.log_worths.ravel(), np.sqrt(np.diag(covariance)[:8]), rtol=1e-6)
    assert_allclose(errors.log_ties, np.sqrt(np.diag(covariance)[8:10, None]), rtol=1e-6)
    sandwich = model.standard_errors(block, kind="sandwich")
    assert_allclose(sandwich.log_ties, errors.log_ties, rtol=0.6)


def test_davidson__the_prior_and_its_errors() -> None:
    """With a prior the ghost may tie: rows against one more item, in halves of wins, give the same maximum."""
    block = drawn(n_persons=40, n_each=1).replace(groups=None)
    model = PlackettLuceMixture(1, alpha=0.5, ties="davidson", tol=1e-12).fit(block)
    rows = [Ranking(places, (), "absent", 0.5) for item in range(4) for places in (((item,), (4,)), ((4,), (item,)))]
    with_ghost = RankingBlock.from_rows([*block.rows(), *rows], n_items=5)
    plain = PlackettLuceMixture(1, alpha=0.0, ties="davidson", tol=1e-12).fit(with_ghost)
    assert_allclose(np.diff(model.log_worths_[0]), np.diff(plain.log_worths_[0, :4]), atol=1e-9)
    assert model.tie_parameters_ is not None
    assert_allclose(model.tie_parameters_, plain.tie_parameters_, atol=1e-9)
    for kind in ("information", "sandwich"):
        mine, theirs = (fit.standard_errors(X, kind=kind) for fit, X in ((model, block), (plain, with_ghost)))
        assert_allclose(mine.log_ties, theirs.log_ties, rtol=1e-7)
        assert_allclose(
            mine.differences().standard_errors, theirs.differences().standard_errors[:4, :4], rtol=1e-7, atol=1e-12
        )


def test_davidson__never_falls_and_needs_few_passes() -> None:
    model = PlackettLuceMixture(2, ties="davidson", random_state=0).fit(drawn())
    objectives = [record["objective"] for record in model.history_ if record["taken"]]
    assert (np.diff(objectives) >= -1e-12 * abs(objectives[-1])).all()
    exact = PlackettLuceMixture(2, ties="davidson", random_state=0, em="exact").fit(drawn())
    assert exact.log_likelihood_ == pytest.approx(model.log_likelihood_, abs=1e-5)


def test_davidson__an_order_that_never_occurs_stays_out() -> None:
    block = drawn()
    two = PlackettLuceMixture(1, alpha=0.1, ties="davidson", tol=1e-10).fit(block)
    four = PlackettLuceMixture(1, alpha=0.1, ties=plm.Davidson(4), tol=1e-10).fit(block)
    assert two.tie_parameters_ is not None
    assert four.tie_parameters_ is not None
    assert four.tie_parameters_[0, 1:].tolist() == [0.0, 0.0]
    assert_allclose(four.tie_parameters_[0, 0], two.tie_parameters_[0, 0], atol=1e-8)
    assert four.bic(block) == pytest.approx(two.bic(block), abs=1e-6)
    errors = four.standard_errors(block)
    assert errors.log_ties is not None
    assert errors.log_ties[0, 1:].tolist() == [0.0, 0.0]


def test_davidson__a_tie_of_a_higher_order_is_refused_with_its_row() -> None:
    rows = [Ranking(((0,), (1,), (2,)), (), "absent", 1.0)] * 6 + [Ranking(((2, 0, 1),), (), "absent", 1.0)]
    block = RankingBlock.from_rows(rows, n_items=3)
    with pytest.raises(RankingError, match=r"ranking 6 \(from 0\) ties 3 items.*Davidson\(order=3\)"):
        PlackettLuceMixture(1, ties="davidson").fit(block)


def test_davidson__top_k_rows_tie_against_everything_below() -> None:
    rng = np.random.default_rng(3)
    block = tie_oracle.drawn_rows(rng, 60, 6, 2, "below").replace(weights=None)
    model = PlackettLuceMixture(1, ties="davidson", alpha=0.0, tol=1e-10).fit(block)
    assert model.tie_parameters_ is not None
    log_ties = np.log(model.tie_parameters_)
    value = tie_oracle.log_likelihood(block, model.log_worths_, np.ones(1), log_ties)
    assert model.log_likelihood_ == pytest.approx(value, rel=1e-12)

    def lost(parameters: Any) -> float:
        return -tie_oracle.log_likelihood(block, np.append(parameters[:5], 0.0)[None], np.ones(1), parameters[5:, None])

    best = minimize(
        lost, np.append(model.log_worths_[0, :5] - model.log_worths_[0, 5], log_ties), options={"maxiter": 3}
    )
    assert -best.fun <= value + 1e-7


def test_davidson__same_bits_on_a_cluster_from_a_store_and_after_an_interruption(
    tmp_path: Path, client: Client
) -> None:
    block = drawn(n_persons=200)
    store = write_store(tmp_path / "rows", [[block[:300]], [block[300:]]], leaf_rows=60)
    settings: dict[str, Any] = {"n_components": 2, "ties": "davidson", "random_state": 1}
    here = PlackettLuceMixture(**settings).fit(store, client=False)
    there = PlackettLuceMixture(**settings).fit(store, client=client)

    def stop(record: dict[str, Any]) -> None:
        if record["iteration"] == 5:
            raise KeyboardInterrupt

    place = plm.Checkpoint(tmp_path / "checkpoint", every=0)
    with pytest.raises(KeyboardInterrupt):
        PlackettLuceMixture(**settings, progress=stop, checkpoint=place).fit(store, client=False)
    again = PlackettLuceMixture(**settings, checkpoint=place).fit(store, client=False)
    here.save(tmp_path / "model")
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    of_json = PlackettLuceMixture.from_json(here.to_json())
    for other in (there, again, loaded, of_json):
        assert other.log_worths_.tobytes() == here.log_worths_.tobytes()
        assert other.tie_parameters_ is not None
        assert here.tie_parameters_ is not None
        assert other.tie_parameters_.tobytes() == here.tie_parameters_.tobytes()
    assert loaded.score(block) == here.score(block)
    assert loaded.score(block) == pytest.approx(here.log_likelihood_ / 200, rel=1e-12)


def test_davidson__noise() -> None:
    """A component of equal worths has the same weight of ties."""
    rng = np.random.default_rng(1)
    kinds = np.array([[2.0, 0.7, -0.7, -2.0], np.zeros(4)])
    rows = [draw_row(rng, kinds[int(person < 8)], np.array([0.0])) for person in range(80) for _ in range(6)]
    block = RankingBlock.from_rows(rows, n_items=4, groups=[row // 6 for row in range(480)])
    for shared in (True, False):
        model = PlackettLuceMixture(1, noise=True, ties=plm.Davidson(shared=shared), random_state=0).fit(block)
        assert model.converged_
        assert model.log_worths_[1].tolist() == [0.0] * 4
        assert model.shares_[1] == pytest.approx(0.1, abs=0.05)
        evidence = model.evidence_of_noise(block)
        assert evidence[:8].min() > np.median(evidence[8:])
        assert model.standard_errors(block).log_ties is not None
        assert model.tie_parameters_ is not None
        assert (model.tie_parameters_[0] == model.tie_parameters_[1]).all() == shared
        value = tie_oracle.log_likelihood(block, model.log_worths_, model.shares_, np.log(model.tie_parameters_))
        assert model.log_likelihood_ == pytest.approx(value, rel=1e-12)


def test_davidson__what_it_does_not_go_with() -> None:
    block = drawn()
    with pytest.raises(SettingsError, match=r"ties='davidson' has a step of its own; leave m_step=\"lsr\" out"):
        PlackettLuceMixture(1, ties="davidson", m_step="lsr").fit(block)
    with pytest.raises(SettingsError, match="not built for shares that depend on membership_covariates"):
        PlackettLuceMixture(2, ties="davidson").fit(block, membership_covariates=np.repeat(np.arange(60.0), 3))
    with pytest.raises(SettingsError, match="order must be at most 9"):
        plm.Davidson(order=10)
    with pytest.raises(SettingsError, match=r"ties must be auto, .* or davidson, but is 'davidson-1'"):
        PlackettLuceMixture(1, ties="davidson-1").fit(block)
    model = PlackettLuceMixture(1, ties="davidson").fit(block)
    with pytest.raises(SettingsError, match="sample draws orders without ties"):
        model.sample(3)
    with pytest.raises(SettingsError, match="has no bootstrap"):
        model.bootstrap(block, 20)
    with pytest.raises(SettingsError, match='fit with ties="davidson"'):
        PlackettLuceMixture(1).fit(block).outcome_probabilities()


def test_half_is_davidson_with_hardly_any_ties() -> None:
    """P(tie) / delta goes to sqrt(p q) / (p + q): with one tie among many battles both order items alike."""
    rng = np.random.default_rng(5)
    left, result = rng.integers(0, 4, 800), (rng.random(800) < 0.6) * 1.0
    result[::100] = 0.5
    block = battles(left, (left + 1) % 4, result)
    half, davidson = (PlackettLuceMixture(1, ties=ties, alpha=0.0).fit(block) for ties in ("half", "davidson"))
    assert_allclose(davidson.log_worths_, half.log_worths_, atol=0.02)
