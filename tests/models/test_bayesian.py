"""BayesianPlackettLuceMixture: diagnostics and criteria against ArviZ, the mode, relabelling, folders, bits, a verb."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.base import clone

import plmix_dist as pl
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import (
    DamagedStoreError,
    NotConvergedWarning,
    NotIdentifiableWarning,
    OptimumFoundOnceWarning,
    SettingsError,
    StoreExistsError,
)
from plmix_dist.fitting import chains as sampler
from plmix_dist.fitting.algorithm import run
from plmix_dist.fitting.chains import _relabelling, _starts
from plmix_dist.fitting.gibbs import Gibbs, MapEm
from plmix_dist.models import predictive_density
from plmix_dist.models.diagnostics import bulk_ess, r_hat, tail_ess
from plmix_dist.models.predictive_density import _psis, waic_of
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers.gamma_prior import GammaPrior, Parameters
from plmix_dist.store.checkpoints import Checkpoint
from tests.fitting.test_algorithm_saved_state import assert_same_way
from tests.helpers.bayes_oracle import log_likelihood, row_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.cli_helpers import Said

from tests.helpers.cli_helpers import shell  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
SHORT: dict[str, Any] = {"n_chains": 2, "n_warmup": 40, "n_draws": 60, "random_state": 3}
ignore_short_chains = pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")


def separated(n_rankings: int, seed: int = 0) -> RankingBlock:
    """Rankings of two groups that are easy to tell apart."""
    truth = np.array([[2.0, 1.0, 0.0, -1.0, -2.0], [-2.0, 1.0, -1.0, 0.5, 1.5]])
    block, _ = draw_rankings(truth, np.array([0.65, 0.35]), n_rankings, np.random.default_rng(seed))
    return block


def autocorrelated(seed: int, n_chains: int, n_draws: int, rho: float, shift: float) -> Any:
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(n_chains, n_draws))
    for number in range(1, n_draws):
        draws[:, number] += rho * draws[:, number - 1]
    return draws + shift * rng.normal(size=(n_chains, 1))


# --- diagnostics and criteria ----------------------------------------------------------------------------


def arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it announces its next version
        return pytest.importorskip("arviz")


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.9])
@pytest.mark.parametrize("n_draws", [8, 51, 300])
def test_diagnostics__as_arviz(n_draws: int, rho: float) -> None:
    az = arviz()
    for shift, n_chains in ((0.0, 4), (0.5, 3), (2.0, 1)):
        draws = autocorrelated(n_draws, n_chains, n_draws, rho, shift)
        if n_chains > 1:
            assert float(r_hat(draws)) == pytest.approx(float(az.rhat(draws)), rel=1e-9)
        assert float(bulk_ess(draws)) == pytest.approx(float(az.ess(draws, method="bulk")), rel=1e-9)
        assert float(tail_ess(draws)) == pytest.approx(float(az.ess(draws, method="tail")), rel=1e-9)


def test_diagnostics__by_parameter() -> None:
    draws = np.stack([autocorrelated(seed, 4, 100, 0.5, 0.3) for seed in range(6)], axis=-1).reshape(4, 100, 2, 3)
    for function in (r_hat, bulk_ess, tail_ess):
        found = function(draws)
        assert found.shape == (2, 3)
        assert found[1, 2] == pytest.approx(float(function(draws[..., 1, 2])))


def test_diagnostics__constant_and_too_few_draws() -> None:
    assert r_hat(np.ones((2, 10))) == 1.0
    assert bulk_ess(np.ones((2, 10))) == 20
    assert np.isnan(r_hat(np.zeros((2, 3))))


def test_waic__as_arviz_from_all_log_likelihoods() -> None:
    az = arviz()
    rows = [
        Ranking(((0,), (1,), (2,)), (), "absent", 3.0),
        Ranking(((2, 1), (0,)), (), "absent", 1.0),
        Ranking(((1,),), (), "below", 2.0),
    ]
    rng = np.random.default_rng(0)
    log_worths, log_shares = rng.normal(size=(40, 2, 3)), np.log(rng.dirichlet(np.ones(2), 40))
    passes = ThreadedPasses(as_rankings(RankingBlock.from_rows(rows, n_items=3), ties="marginal"))
    found = waic_of(passes, log_worths, log_shares)
    logs = np.logaddexp.reduce(row_logs(rows, log_worths) + log_shares, axis=-1)  # (rows, draws)
    persons = np.repeat(logs, [3, 1, 2], axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = az.waic(az.from_dict(posterior={"x": np.zeros((1, 40))}, log_likelihood={"y": persons.T[None]}))
    # ArviZ divides variances over draws by their number, and not by one less.
    mean_likelihood = np.log(np.exp(persons).mean(axis=1)).sum()
    assert found.n_effective == pytest.approx(float(expected.p_waic) * 40 / 39, rel=1e-9)
    assert found.elpd == pytest.approx(mean_likelihood - found.n_effective, rel=1e-9)
    assert found.n_persons == 6
    assert found.waic == -2 * found.elpd
    assert found.standard_error == pytest.approx(float(expected.se), rel=0.05)


# --- relabelling and the mode ----------------------------------------------------------------------------


def test_relabelling__finds_the_names_again() -> None:
    rng = np.random.default_rng(0)
    centres, spreads = rng.normal(0, 1.5, (4, 6)), rng.uniform(0.1, 0.6, (4, 6))
    draws = centres + spreads * rng.normal(size=(300, 4, 6))
    names = np.array([rng.permutation(4) for _ in range(300)])
    mixed = np.take_along_axis(draws, names[..., None], axis=1)
    order = _relabelling(mixed, np.zeros((300, 4)), pivot=7)
    again = np.take_along_axis(mixed, order[..., None], axis=1)
    # Up to one permutation for all: that of the pivot.
    assert_allclose(again, draws[:, names[7]])
    assert order[7].tolist() == [0, 1, 2, 3]


def test_relabelling__shares_tell_equal_worths_apart() -> None:
    log_shares = np.log([[0.9, 0.1], [0.2, 0.8], [0.85, 0.15]])
    assert _relabelling(np.zeros((3, 2, 3)), log_shares, 0).tolist() == [[0, 1], [1, 0], [0, 1]]


def test_map__maximum_by_another_optimiser() -> None:
    block = separated(60)
    prior = GammaPrior(np.array([2.0, 1.5, 1.0, 3.0, 2.0]), np.array([1.0, 2.0, 1.0, 0.5, 1.0]), 2.5)
    rows = list(block.rows())

    def objective(vector: Any) -> float:
        worths, logits = vector[:10].reshape(2, 5), vector[10:]
        shares = logits - np.logaddexp.reduce(logits)
        of_worths = ((prior.shape - 1) * worths - prior.rate * np.exp(worths)).sum()
        likelihood = float(log_likelihood(rows, range(len(rows)), worths, shares))
        return -(likelihood + of_worths + (prior.concentration - 1) * shares.sum())

    passes = ThreadedPasses(as_rankings(block))
    algorithm = MapEm(prior, 60.0, tol=1e-9)
    begin = Parameters(np.array([[2.0, 1, 0, -1, -2], [-2, 1, -1, 0.5, 0.5]]), np.log([0.5, 0.5]))
    mode = algorithm.result(run(passes, algorithm, algorithm.start(begin)))
    assert mode.converged
    start = np.concatenate([mode.parameters.log_worths.ravel() + 0.1, [0.3, 0.0]])
    best = minimize(objective, start, options={"gtol": 1e-6})
    worths = best.x[:10].reshape(2, 5)
    assert_allclose(mode.parameters.log_worths, worths - worths.mean(axis=1, keepdims=True), atol=2e-5)
    shares = best.x[10:] - np.logaddexp.reduce(best.x[10:])
    assert_allclose(mode.parameters.log_shares, shares, atol=2e-5)


def test_map__state_through_files() -> None:
    algorithm = MapEm(GammaPrior(np.full(5, 2.0), np.ones(5), 1.5), 60.0, max_iter=12)
    begin = algorithm.start(Parameters(np.random.default_rng(0).normal(size=(2, 5)), np.log([0.5, 0.5])))
    assert_same_way(ThreadedPasses(as_rankings(separated(60))), algorithm, begin)


def test_gibbs__state_through_files() -> None:
    prior = GammaPrior(np.ones(5), np.ones(5), 1.0)
    gibbs = Gibbs(prior, 2, 7, thin=2, seed=4)
    begin = gibbs.start(_starts(None, 2, prior, 3, 1))
    ended = assert_same_way(ThreadedPasses(as_rankings(separated(60))), gibbs, begin)
    assert sum(map(len, ended.kept)) == 7


@pytest.mark.promise(4)
def test_save__replaces_draws_that_are_there(tmp_path: Path) -> None:
    for n_draws in (8, 5):
        model = pl.BayesianPlackettLuceMixture(1, n_chains=1, n_warmup=1, n_draws=n_draws, random_state=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            model.fit([[0, 1, 2], [2, 1, 0]]).save(tmp_path / "model")
    assert pl.BayesianPlackettLuceMixture.load(tmp_path / "model").draws_.shares.shape == (1, 5, 1)


def test_checkpoint__stopped_anywhere_and_resumed_gives_the_same_draws(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop_after(n_sweeps: int) -> Any:
        def heard(record: dict[str, Any]) -> None:
            if record["iteration"] == n_sweeps:
                raise StoppedError

        return heard

    block = separated(60)
    chains: dict[str, Any] = {"n_chains": 2, "n_warmup": 3, "n_draws": 6, "random_state": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        whole = pl.BayesianPlackettLuceMixture(2, **chains).fit(block)
        for n_sweeps in (1, 5, 9):
            place = Checkpoint(tmp_path / str(n_sweeps), every=0)
            stopped = pl.BayesianPlackettLuceMixture(2, checkpoint=place, progress=stop_after(n_sweeps), **chains)
            with pytest.raises(StoppedError):
                stopped.fit(block)
            again = pl.BayesianPlackettLuceMixture(2, checkpoint=place, **chains).fit(block)
            assert again.raw_draws_.log_worths.tobytes() == whole.raw_draws_.log_worths.tobytes()
            assert again.map_.log_worths.tobytes() == whole.map_.log_worths.tobytes()
        with pytest.raises(StoreExistsError, match="n_draws is 6 there and 7 here"):
            pl.BayesianPlackettLuceMixture(2, checkpoint=place, **(chains | {"n_draws": 7})).fit(block)


# --- the estimator ---------------------------------------------------------------------------------------


def test_fit__near_the_maximum_likelihood_estimate_on_large_data() -> None:
    block = separated(20_000)
    model = pl.BayesianPlackettLuceMixture(2, n_chains=2, n_warmup=30, n_draws=60, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # 120 draws
        model.fit(block)
    best = pl.PlackettLuceMixture(2, alpha=0.0, random_state=0).fit(block)
    errors = best.standard_errors(block)
    assert (np.abs(model.log_worths_ - best.log_worths_) < errors.log_worths).all()
    assert (np.abs(model.shares_ - best.shares_) < errors.shares).all()
    spread = model.draws_.log_worths.std(axis=(0, 1))
    assert_allclose(spread, errors.log_worths, rtol=0.5)
    assert spread.mean() == pytest.approx(errors.log_worths.mean(), rel=0.15)
    assert_allclose(model.map_.log_worths, best.log_worths_, atol=1e-3)  # with a flat prior they are the same


@ignore_short_chains
def test_fit__results_fit_together() -> None:
    block = separated(150)
    model = pl.BayesianPlackettLuceMixture(2, **SHORT).fit(block)
    draws, raw = model.draws_, model.raw_draws_
    assert draws.log_worths.shape == (2, 60, 2, 5)
    assert_allclose(model.log_worths_, draws.log_worths.mean(axis=(0, 1)))
    assert_allclose(model.shares_, draws.shares.mean(axis=(0, 1)))
    assert model.shares_[0] > model.shares_[1]
    assert_allclose(draws.shares[1, 5], raw.shares[1, 5][model.labels_[1, 5]])
    expected = log_likelihood(list(block.rows()), range(150), draws.log_worths[0, 7], np.log(draws.shares[0, 7]))
    assert draws.log_likelihood[0, 7] == pytest.approx(float(expected))
    deviance = -2 * draws.log_likelihood.mean()
    assert model.dic_ == pytest.approx(2 * deviance + 2 * model.map_log_likelihood_)
    assert model.map_log_likelihood_ >= draws.log_likelihood.max()
    lower, upper = model.intervals(0.5).log_worths
    inside = ((draws.log_worths > lower) & (draws.log_worths < upper)).mean(axis=(0, 1))
    assert_allclose(inside, 0.5, atol=0.02)
    assert model.n_iter_ == 100
    assert [stage["stage"] for stage in model.stages_] == ["survey", "start", "sweeps", "map"]
    assert model.predict(block).shape == (150,)
    assert model.waic(block, max_draws=50).n_persons == 150


@ignore_short_chains
def test_fit__one_rate_for_all_changes_nothing() -> None:
    block = separated(60)
    one, other = (pl.BayesianPlackettLuceMixture(2, worth_rate=rate, **SHORT).fit(block) for rate in (1.0, 0.001))
    assert_allclose(one.draws_.log_worths, other.draws_.log_worths, atol=1e-6)


@ignore_short_chains
def test_fit__prior_without_a_mode() -> None:
    model = pl.BayesianPlackettLuceMixture(1, worth_shape=0.5, init="prior", **SHORT).fit(separated(30))
    assert (model.map_, model.dic_, model.map_log_likelihood_) == (None, None, None)


@ignore_short_chains
def test_fit__an_item_that_never_wins() -> None:
    # With a flat prior the maximum does not exist. The posterior does, and EM ends.
    model = pl.BayesianPlackettLuceMixture(1, **SHORT).fit([[0, 1, 2], [1, 0, 2]] * 10)
    assert np.isfinite(model.log_worths_).all()
    assert model.map_log_likelihood_ == pytest.approx(20 * np.log(0.5), abs=1e-2)


def test_fit__warns_of_chains_that_disagree() -> None:
    # Two optima that no chain leaves: many rankings, and starts at either.
    model = pl.BayesianPlackettLuceMixture(2, n_chains=4, n_warmup=5, n_draws=20, init="prior", random_state=1)
    with pytest.warns(NotConvergedWarning, match=r"R-hat is [\d.]+, where at most 1.05"):
        model.fit(separated(2_000))
    assert not model.converged_
    with pytest.warns(NotConvergedWarning, match="too few draws to tell"):
        pl.BayesianPlackettLuceMixture(1, n_chains=2, n_warmup=5, n_draws=3, random_state=1).fit([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_chains": 0}, "n_chains must be a whole number from 1 on, but is 0"),
        ({"n_draws": 2.5}, "n_draws must be a whole number from 1 on, but is 2.5"),
        ({"worth_shape": -1.0}, "worth_shape must be a positive number, or one per item, but is -1.0"),
        ({"worth_shape": 0.01}, "worth_shape must be at least 0.05"),
        ({"worth_shape": [1.0, 2.0]}, "worth_shape has 2 numbers, but there are 3 items"),
        ({"worth_rate": [0.0, 1.0, 1.0]}, "worth_rate must be a positive number"),
        ({"share_concentration": 0}, "share_concentration must be a finite number from 0.001 on"),
        ({"init": "priors"}, "did you mean 'prior'?"),
        ({"init": 3}, "init must be fit, prior, a fitted model"),
        ({"init": np.zeros((2, 4))}, r"init has shape \(2, 4\), but 2 components of 3 items are to be fitted"),
        ({"n_draws": 10**9}, r"GB, more than 2.1 GB; choose a smaller n_draws"),
        ({"progress": 3}, "progress must be True, a function or None, but is 3"),
    ],
)
def test_fit__refuses_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace("?", r"\?")):
        pl.BayesianPlackettLuceMixture(2, **settings).fit([[0, 1, 2], [2, 1, 0]])


def test_fit__refuses_weights_that_are_no_counts() -> None:
    with pytest.raises(SettingsError, match=r"whole numbers.* but 1 rows have others, such as 2.5; give counts"):
        pl.BayesianPlackettLuceMixture(1).fit([[0, 1], [1, 0]], sample_weight=[1.0, 2.5])


@ignore_short_chains
def test_fit__begins_around_a_model() -> None:
    block = separated(60)
    model = pl.PlackettLuceMixture(2, random_state=0).fit(block)
    unswept = {"n_chains": 3, "n_warmup": 0, "n_draws": 1, "random_state": 0}
    sampled = pl.BayesianPlackettLuceMixture(2, init=model, **unswept)
    assert sampled.fit(block).draws_.log_worths.shape == (3, 1, 2, 5)
    assert clone(sampled).init is model
    with pytest.raises(SettingsError, match="other items"):
        pl.BayesianPlackettLuceMixture(2, init=model, **unswept).fit([["a", "b", "c", "d", "e"]])


@ignore_short_chains
def test_fit__progress_pickling_and_ties() -> None:
    heard: list[dict[str, Any]] = []
    rows = [Ranking(((0, 1), (2,), (3,)), (), "absent", 2.0), Ranking(((3,), (2,)), (), "below", 1.0)] * 6
    block = RankingBlock.from_rows(rows, n_items=4)
    model = pl.BayesianPlackettLuceMixture(2, progress=heard.append, **SHORT).fit(block)
    assert [record["iteration"] for record in heard] == list(range(1, 102))
    assert heard[0]["n_sweeps"] == 101
    again = pickle.loads(pickle.dumps(model))
    assert again.progress is None
    # Scores of ties are those of the sum over their orders.
    expected = np.logaddexp.reduce(row_logs(rows[:2], model.log_worths_) + np.log(model.shares_), axis=-1)
    assert_allclose(again.score_samples(block[:2]), expected)


# --- folders, bits, ArviZ, the verb ----------------------------------------------------------------------


@ignore_short_chains
def test_save__everything_comes_back_and_no_byte_may_differ(tmp_path: Path) -> None:
    model = pl.BayesianPlackettLuceMixture(2, worth_shape=[1.0, 2.0, 1.0, 1.0, 1.5], **SHORT).fit(separated(60))
    model.save(tmp_path / "draws")
    again = pl.BayesianPlackettLuceMixture.load(tmp_path / "draws")
    for name in ("draws_", "raw_draws_"):
        for one, other in zip(getattr(model, name), getattr(again, name), strict=True):
            assert np.array_equal(one, other)
    assert np.array_equal(again.labels_, model.labels_)
    assert again.labels_.dtype == np.int64
    assert again.worth_shape == [1.0, 2.0, 1.0, 1.0, 1.5]
    assert (again.dic_, again.converged_, again.n_iter_) == (model.dic_, model.converged_, 100)
    assert np.array_equal(again.map_.log_worths, model.map_.log_worths)
    assert again.diagnostics_.largest_r_hat == model.diagnostics_.largest_r_hat
    plain = pl.PlackettLuceMixture.load(tmp_path / "draws")
    assert np.array_equal(plain.log_worths_, model.log_worths_)
    assert plain.ties == "marginal"
    for file in ("draws_log_worths.npy", "draws_labels.npy", "map_shares.npy"):
        copy = tmp_path / f"copy-{file}"
        shutil.copytree(tmp_path / "draws", copy)
        data = bytearray((copy / file).read_bytes())
        data[-3] ^= 1
        (copy / file).write_bytes(bytes(data))
        with pytest.raises(DamagedStoreError, match="was altered"):
            pl.BayesianPlackettLuceMixture.load(copy)


def test_load__a_model_without_draws(tmp_path: Path) -> None:
    pl.PlackettLuceMixture(1).fit([[0, 1], [1, 0]]).save(tmp_path / "model")
    with pytest.raises(SettingsError, match=r"has no draws; load it with PlackettLuceMixture.load"):
        pl.BayesianPlackettLuceMixture.load(tmp_path / "model")


@pytest.mark.promise(10)
@ignore_short_chains
def test_same_bits__on_threads_and_any_number_of_workers() -> None:
    rng = np.random.default_rng(3)
    rows = separated(9_000).replace(weights=rng.integers(1, 4, 9_000).astype(np.float64))  # three leaves
    settings = {"n_chains": 2, "n_warmup": 1, "n_draws": 4, "random_state": 1, "init": "prior"}

    def bits(client: Any) -> list[bytes]:
        found = []
        for block in (rows, rows.replace(weights=None), rows[:900].replace(groups=np.arange(900) // 3)):
            model = pl.BayesianPlackettLuceMixture(2, **settings).fit(block, client=client)
            found.append(b"".join(part.tobytes() for part in model.raw_draws_))
        return found

    here = bits(False)
    assert len(set(here)) == 3
    for n_workers in (1, 2, 4):
        with (
            LocalCluster(
                n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            assert bits(client) == here


@ignore_short_chains
def test_inference_data__this_arviz() -> None:
    az = arviz()
    rankings = [["tea", "milk", "mate"], ["mate", "tea", "milk"]] * 10
    model = pl.BayesianPlackettLuceMixture(2, **SHORT).fit(rankings)
    data = model.to_arviz()
    assert data["posterior"]["log_worths"].dims == ("chain", "draw", "component", "item")
    assert data["posterior"]["item"].values.tolist() == ["mate", "milk", "tea"]
    assert_allclose(data["posterior"]["shares"].values, model.draws_.shares)
    assert_allclose(data["sample_stats"]["deviance"].values, -2 * model.draws_.log_likelihood)
    assert_allclose(az.rhat(data)["shares"].values, model.diagnostics_.r_hat.shares)


@ignore_short_chains
def test_loo__largest_shape_of_all_leaves() -> None:
    left, right = ((np.full(5, shape), shape) for shape in (0.9, 0.2))
    for sums, largest in (predictive_density._loo_combined(left, right), predictive_density._loo_combined(right, left)):
        assert largest == 0.9
        assert sums == pytest.approx(1.1)


@pytest.mark.filterwarnings("ignore:the chains have not mixed")  # few draws: both sides compute from the same ones
def test_loo__as_arviz_and_weights_are_copies() -> None:
    az = arviz()
    rankings = [["tea", "milk", "mate"], ["mate", "tea", "milk"], ["milk", "mate", "tea"]]
    weights = [12, 9, 2]
    model = pl.BayesianPlackettLuceMixture(2, n_warmup=100, n_draws=150, random_state=3)
    model.fit(rankings, sample_weight=weights)
    data = model.to_arviz(rankings, sample_weight=weights)
    assert data["log_likelihood"]["rankings"].dims == ("chain", "draw", "person")
    logs = data["log_likelihood"]["rankings"].values
    assert logs.shape == (4, 150, 23)
    # Summed over persons it is the log-likelihood that the chains noted.
    assert_allclose(logs.sum(axis=2), model.draws_.log_likelihood, rtol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = az.loo(data, pointwise=True, reff=1.0)
    found = model.loo(rankings, max_draws=600, sample_weight=weights)
    assert found.elpd == pytest.approx(float(wanted.elpd_loo), rel=1e-9)
    assert found.standard_error == pytest.approx(float(wanted.se), rel=1e-6)
    assert found.n_effective == pytest.approx(float(wanted.p_loo), rel=1e-6)
    assert found.largest_shape == pytest.approx(float(wanted.pareto_k.max()), rel=1e-6)
    assert (found.n_persons, found.loo) == (23, -2 * found.elpd)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("n_draws", [60, 500])
def test_psis__as_arviz(n_draws: int, spread: float) -> None:
    az = arviz()
    ratios = spread * np.random.default_rng(n_draws).normal(size=(n_draws, 7))
    weights, shapes = _psis(ratios)
    wanted = [az.psislw(column.copy(), reff=1.0) for column in ratios.T]
    assert_allclose(weights.T, [each[0] for each in wanted], rtol=1e-9)
    assert_allclose(shapes, [float(each[1]) for each in wanted], rtol=1e-9)


def test_psis__ratios_that_are_equal() -> None:
    weights, shapes = _psis(np.zeros((100, 2)))
    assert_allclose(np.exp(weights), 0.01)
    assert (shapes == -np.inf).all()


@pytest.mark.full
@ignore_short_chains
def test_loo__is_leaving_one_out() -> None:
    """Beside chains that have not seen the person: each is fitted again without one of the rows."""
    rng = np.random.default_rng(0)
    rows = np.argsort(-(np.array([0.8, 0.2, -0.3, -0.7]) + rng.gumbel(size=(8, 4))), axis=1)
    settings: dict[str, Any] = {"n_warmup": 100, "n_draws": 1_000, "random_state": 0}
    found = pl.BayesianPlackettLuceMixture(1, **settings).fit(rows).loo(rows, max_draws=4_000)
    left_out = []
    for number in range(8):
        model = pl.BayesianPlackettLuceMixture(1, **settings).fit(np.delete(rows, number, axis=0), n_items=4)
        logs = model.pointwise_log_likelihood(rows[[number]], max_draws=4_000)
        left_out.append(np.logaddexp.reduce(logs[:, 0]) - np.log(len(logs)))
    assert found.n_unreliable == 0
    assert found.elpd == pytest.approx(sum(left_out), abs=0.1)


@ignore_short_chains
def test_pointwise__groups_are_persons_and_large_matrices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    block = RankingBlock.from_array([[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]]).replace(groups=np.array([0, 0, 1, 1]))
    model = pl.BayesianPlackettLuceMixture(2, **SHORT).fit(block)
    found = model.pointwise_log_likelihood(block, max_draws=10_000)
    assert found.shape == (model.draws_.log_likelihood.size, 2)
    assert_allclose(found.sum(axis=1), model.draws_.log_likelihood.ravel(), rtol=1e-9)
    monkeypatch.setattr(predictive_density, "_MOST_IN_MATRIX", 100)
    with pytest.raises(SettingsError, match="too many for one matrix; choose a smaller max_draws"):
        model.pointwise_log_likelihood(block, max_draws=60)


@ignore_short_chains
def test_loo__too_few_draws() -> None:
    model = pl.BayesianPlackettLuceMixture(1, n_chains=2, n_warmup=5, n_draws=10, random_state=0).fit([[0, 1], [1, 0]])
    with pytest.raises(SettingsError, match="needs 25 draws or more, but has 20"):
        model.loo([[0, 1], [1, 0]])


def test_worths__of_chains_that_have_not_mixed_come_with_r_hat() -> None:
    with pytest.warns(NotConvergedWarning):
        model = pl.BayesianPlackettLuceMixture(1, n_chains=2, n_warmup=0, n_draws=3, init="prior", random_state=0).fit(
            [[0, 1, 2]] * 50
        )
    assert list(model.worths_frame(table="dict")) == ["item", "component 0", "R-hat 0"]
    model.converged_ = True
    assert list(model.worths_frame(table="dict")) == ["item", "component 0"]


@ignore_short_chains
def test_names__can_be_listed_without_arviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)
    model = pl.BayesianPlackettLuceMixture(1, **SHORT).fit([[0, 1], [1, 0]])
    assert all(hasattr(model, name) for name in dir(model) if not name.startswith("__"))


def test_inference_data__without_arviz(monkeypatch: pytest.MonkeyPatch) -> None:
    from plmix_dist.models.diagnostics import inference_data

    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ModuleNotFoundError, match="to_arviz needs ArviZ"):
        inference_data({"log_worths": np.zeros((1, 4, 1, 2)), "shares": np.ones((1, 4, 1))}, {}, ["a", "b"])


def test_arviz__is_imported_in_one_file() -> None:
    files = (ROOT / "plmix_dist").rglob("*.py")
    importing = [path.name for path in files if "import arviz" in path.read_text(encoding="utf-8")]
    assert importing == ["diagnostics.py"]


@pytest.mark.slow
def test_inference_data__arviz_1(tmp_path: Path) -> None:
    python = os.environ.get("PLMIX_PYTHON_WITH_ARVIZ_1")
    if not python:
        pytest.skip("PLMIX_PYTHON_WITH_ARVIZ_1 does not name a Python that has ArviZ 1.x")
    program = f"""
import importlib.util, json
import arviz, numpy as np
spec = importlib.util.spec_from_file_location("arviz_data", {str(ROOT / "plmix_dist/models/diagnostics.py")!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
rng = np.random.default_rng(0)
draws = {{"log_worths": rng.normal(size=(2, 50, 2, 3)), "shares": rng.random((2, 50, 2))}}
data = module.inference_data(draws, {{"lp": np.zeros((2, 50))}}, ["a", "b", "c"])
posterior = data["posterior"]
print(json.dumps([arviz.__version__, list(posterior["log_worths"].dims), posterior["item"].values.tolist(),
                  float(abs(posterior["shares"].values - draws["shares"]).max()), "lp" in data["sample_stats"]]))
"""
    done = subprocess.run([python, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    version, dims, items, difference, has_lp = json.loads(done.stdout.strip().splitlines()[-1])
    assert version.startswith("1.")
    assert dims == ["chain", "draw", "component", "item"]
    assert (items, difference, has_lp) == (["a", "b", "c"], 0.0, True)


@pytest.mark.slow
def test_posterior__as_r_plmix() -> None:
    r = shutil.which("Rscript")
    if r is None:
        pytest.skip("R is not installed")
    if subprocess.run([r, "-e", "library(PLMIX)"], capture_output=True, check=False).returncode:
        pytest.skip("R has no PLMIX")
    block = separated(300)
    orderings = ",".join(str(item + 1) for item in block.to_array().T.ravel())
    program = f"""
library(PLMIX)
orderings <- matrix(c({orderings}), nrow = 300)
set.seed(1)
drawn <- gibbsPLMIX(pi_inv = as.top_ordering(orderings, format_input = "ordering"), K = 5, G = 1,
                    n_iter = 6000, n_burn = 1000)
cat(colMeans(log(drawn$P) - rowMeans(log(drawn$P))))
"""
    done = subprocess.run([r, "-e", program], capture_output=True, text=True, check=True)
    theirs = np.array(done.stdout.split()[-5:], float)
    model = pl.BayesianPlackettLuceMixture(1, n_warmup=200, n_draws=1_500, random_state=0).fit(block)
    spread = model.draws_.log_worths.std(axis=(0, 1))[0]
    assert (np.abs(model.log_worths_[0] - theirs) < 0.15 * spread).all()


def test_verb__draws_a_model_and_does_nothing_twice(shell: Callable[..., Said]) -> None:  # noqa: F811
    shell("simulate", "store", "--rankings", "300", "--items", "5", "--components", "2", "--workers", "0")
    options = ("--components", "2", "--warmup", "150", "--draws", "250", "--workers", "0")
    said = shell("bayes", "store", *options, "--out", "draws", "--waic")
    assert "draws" in said.line("model")
    assert "4 x 250 draws, 400 sweeps" in said.line("chains")
    assert float(said.line("R-hat").split()[0]) > 0.9
    assert float(said.line("WAIC").split()[0].replace(",", "")) > 1_000
    again = shell("bayes", "store", *options, "--out", "draws")
    assert "already holds these draws" in again.line("nothing to do")
    refused = shell("bayes", "store", *options, "--out", "draws", "--seed", "1", code=1)
    assert "seed" in refused.err
    record = json.loads(shell("bayes", "store", *options, "--out", "more", "--seed", "1", "--json").out)
    assert record["n_sweeps"] == 400
    assert len(record["share_intervals"][0]) == 2
    score = json.loads(shell("score", "draws", "store", "--json", "--workers", "0").out)["score"]
    assert score == pytest.approx(pl.BayesianPlackettLuceMixture.load("draws").score("store"))


@ignore_short_chains
def test_save__draws_are_replaced_by_draws_and_by_a_fit(tmp_path: Path) -> None:
    rankings = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3]] * 10
    model = pl.BayesianPlackettLuceMixture(2, **SHORT).fit(rankings)
    model.save(tmp_path / "m")
    model.save(tmp_path / "m")
    found = pl.BayesianPlackettLuceMixture.load(tmp_path / "m")
    assert np.array_equal(found.draws_.shares, model.draws_.shares)
    pl.PlackettLuceMixture(2, random_state=0).fit(rankings).save(tmp_path / "m")
    with pytest.raises(SettingsError, match="has no draws"):
        pl.BayesianPlackettLuceMixture.load(tmp_path / "m")


@ignore_short_chains
def test_map__a_component_that_loses_all_persons() -> None:
    # One person with 900 rankings: all but one component end with nothing, and no number becomes infinite.
    block = RankingBlock.from_array([[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3]] * 300)
    one_person = block.replace(groups=np.zeros(block.n_rankings, np.int64))
    model = pl.BayesianPlackettLuceMixture(2, **SHORT).fit(one_person)
    assert model.map_ is not None
    assert model.map_.shares.max() == pytest.approx(1)
    assert model.dic_ is not None
    assert np.isfinite(model.dic_)


def test_fit__refuses_counts_that_cannot_be_drawn() -> None:
    model = pl.BayesianPlackettLuceMixture(1, init="prior", **SHORT)
    with pytest.raises(SettingsError, match=r"counts of at most 2\*\*53, but the largest is 1e\+19"):
        model.fit([[0, 1, 2], [2, 1, 0]], sample_weight=[1e19, 2])
    rows = [Ranking(((0, 1), (2,), (3,)), (), "absent", 1e9), Ranking(((3,), (1,), (0,), (2,)), (), "absent", 1e9)]
    with pytest.raises(SettingsError, match="4e\\+09 items of such copies"):
        model.fit(RankingBlock.from_rows(rows, n_items=4))


@ignore_short_chains
def test_waic__one_draw_and_shares_of_zero() -> None:
    rankings = separated(60)
    one = pl.BayesianPlackettLuceMixture(1, n_chains=1, n_warmup=5, n_draws=1, random_state=0).fit(rankings)
    with pytest.raises(SettingsError, match="there is 1 draw"):
        one.waic(rankings)
    model = pl.BayesianPlackettLuceMixture(4, share_concentration=1e-3, **SHORT).fit(rankings)
    assert model.raw_draws_.shares.min() == 0  # too small to be held
    assert np.isfinite(model.waic(rankings).elpd)


@ignore_short_chains
def test_save__numbers_of_numpy_among_the_settings(tmp_path: Path) -> None:
    settings: Any = {"n_draws": np.int64(20), "share_concentration": np.float32(2), "thin": np.uint8(2)}
    model = pl.BayesianPlackettLuceMixture(1, n_chains=2, n_warmup=20, random_state=0, **settings)
    model.fit(separated(60)).save(tmp_path / "m")
    found = pl.BayesianPlackettLuceMixture.load(tmp_path / "m")
    assert (found.n_draws, found.share_concentration, found.thin) == (20, 2.0, 2)


@ignore_short_chains
def test_map__says_whether_it_has_converged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rankings = separated(200)
    assert pl.BayesianPlackettLuceMixture(2, **SHORT).fit(rankings).map_converged_ is True
    without = pl.BayesianPlackettLuceMixture(2, share_concentration=0.5, **SHORT).fit(rankings)
    assert without.map_converged_ is None
    monkeypatch.setattr(sampler, "MapEm", partial(MapEm, max_iter=2))
    stopped = pl.BayesianPlackettLuceMixture(2, **SHORT).fit(rankings)
    assert stopped.map_converged_ is False
    stopped.save(tmp_path / "m")
    assert pl.BayesianPlackettLuceMixture.load(tmp_path / "m").map_converged_ is False


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_waic__of_two_draws_uses_both() -> None:
    rows = np.argsort(np.random.default_rng(0).gumbel(size=(40, 4)), axis=1)
    model = pl.BayesianPlackettLuceMixture(1, n_chains=1, n_warmup=1, n_draws=2, random_state=0).fit(rows)
    logs = [
        pl.PlackettLuceMixture.from_arrays(worths, [1.0]).score_samples(rows) for worths in model.draws_.log_worths[0]
    ]
    assert model.waic(rows).n_effective == pytest.approx(np.var(logs, axis=0, ddof=1).sum(), rel=1e-9)


def test_warnings__of_the_search_before_the_chains_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, given = sampler._fitted, (OptimumFoundOnceWarning("found once"), NotIdentifiableWarning("not identifiable"))
    monkeypatch.setattr(sampler, "_fitted", lambda *how: replace(fitted(*how), warnings=given))
    with pytest.warns() as found:
        pl.BayesianPlackettLuceMixture(1, n_chains=2, n_warmup=5, n_draws=8, random_state=0).fit([[0, 1, 2]] * 9)
    kinds = {each.category for each in found}
    assert NotIdentifiableWarning in kinds  # chains do not see it
    assert OptimumFoundOnceWarning not in kinds  # chains that agree do
