"""Shares that depend on covariates of persons, against a plain likelihood and an independent optimiser."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from distributed import Client
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from plmix_dist import PlackettLuceMixture, RankingBlock, SpectralPlackettLuce
from plmix_dist.cli import plmix
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import SettingsError, StoreExistsError
from plmix_dist.fitting import fit
from plmix_dist.fitting.algorithm import from_plain, run, to_plain
from plmix_dist.fitting.covariates import Units, _CovariateEm, _CovariateState, take_units
from plmix_dist.fitting.em import Em
from plmix_dist.fitting.fit import fit_mixture
from plmix_dist.fitting.fixed_point import Iteration
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.point import Point
from plmix_dist.passes import DistributedPasses, ThreadedPasses
from plmix_dist.rankings import Ranking
from plmix_dist.solvers import LSR, MM
from plmix_dist.tables.sources import covariates_named
from tests.helpers.oracle import write_store

pytestmark = [
    pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotIdentifiableWarning"),
    pytest.mark.filterwarnings("ignore::plmix_dist.errors.OptimumFoundOnceWarning"),
]


Table = np.ndarray[Any, Any]


PRECISION = 0.01  # as the page says


class Drawn(NamedTuple):
    rankings: Table
    covariates: Table
    log_worths: Table
    coefficients: Table


def draw(
    n: int, n_items: int, coefficients: Table, rng: np.random.Generator, *, centre: float = 0.0, spread: float = 1.5
) -> Drawn:
    """Full rankings of persons whose shares follow a multinomial logit."""
    n_components, n_columns = coefficients.shape
    covariates = rng.normal(centre, 1.0, (n, n_columns - 1))
    logits = np.column_stack([np.ones(n), covariates - centre]) @ coefficients.T
    component = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    log_worths = rng.normal(0, spread, (n_components, n_items))
    rankings = np.argsort(-(log_worths[component] + rng.gumbel(size=(n, n_items))), axis=1)
    return Drawn(rankings, covariates, log_worths, coefficients)


# --- the model in plain words ----------------------------------------------------------------------------


def ranking_logs(rankings: Table, log_worths: Table) -> Table:
    """(n_rankings, n_components): log Pr(full ranking | component)."""
    found = np.zeros((len(rankings), len(log_worths)))
    for component, logs in enumerate(log_worths):
        ordered = logs[rankings]
        for place in range(rankings.shape[1]):
            found[:, component] += ordered[:, place] - np.log(np.exp(ordered[:, place:]).sum(axis=1))
    return found


def plain_shares(covariates: Table, coefficients: Table) -> Table:
    weights = np.exp(np.column_stack([np.ones(len(covariates)), covariates]) @ coefficients.T)
    return weights / weights.sum(axis=1, keepdims=True)


def plain_log_likelihoods(drawn: Drawn, log_worths: Table, coefficients: Table) -> Table:
    joint = np.exp(ranking_logs(drawn.rankings, log_worths)) * plain_shares(drawn.covariates, coefficients)
    return np.log(joint.sum(axis=1))


def log_prior(log_worths: Table, ghosts: Table, alpha: float, coefficients: Table) -> float:
    """Wins and losses against ghosts; a normal distribution of centred coefficients, but for the intercept."""
    total = 0.0
    for logs, ghost in zip(log_worths, ghosts, strict=True):
        for item in logs:
            total -= alpha * (math.log1p(math.exp(item - ghost)) + math.log1p(math.exp(ghost - item)))
    slopes = coefficients[:, 1:] - coefficients[:, 1:].mean(axis=0)
    return total - PRECISION / 2 * float((slopes**2).sum())


def standardised(covariates: Table, weights: Table | None = None) -> Table:
    mean = np.average(covariates, axis=0, weights=weights)
    deviation = np.sqrt(np.average((covariates - mean) ** 2, axis=0, weights=weights))
    return (covariates - mean) / deviation


def objective(drawn: Drawn, vector: Table, alpha: float, weights: Table | None = None) -> float:
    """The objective, of all log-worths, ghosts and coefficients (of standardised covariates) one after the other."""
    n_components, n_items = drawn.log_worths.shape
    log_worths = vector[: n_components * n_items].reshape(n_components, n_items)
    ghosts = vector[n_components * n_items : n_components * (n_items + 1)]
    coefficients = vector[n_components * (n_items + 1) :].reshape(n_components, -1)
    of_rows = plain_log_likelihoods(
        drawn._replace(covariates=standardised(drawn.covariates, weights)), log_worths, coefficients
    )
    total = float(of_rows.sum() if weights is None else of_rows @ weights)
    return total + log_prior(log_worths, ghosts, alpha, coefficients)


@pytest.fixture(scope="module")
def small() -> Drawn:
    return draw(150, 4, np.array([[0, 0, 0], [-0.5, 1.5, -0.7]]), np.random.default_rng(3))


@pytest.fixture(scope="module")
def small_fit(small: Drawn) -> PlackettLuceMixture:
    return PlackettLuceMixture(2, random_state=1).fit(small.rankings, membership_covariates=small.covariates)


# --- what the algorithm computes -------------------------------------------------------------------------


def algorithm_for(rankings: Any, m_step: Any, alpha: float) -> tuple[ThreadedPasses, _CovariateEm]:
    passes = ThreadedPasses(rankings)
    em = Em(m_step, alpha, weight=1.0, n_rankings=rankings.n_rankings)
    return passes, _CovariateEm(em, take_units(passes, rankings.covariates))


@pytest.mark.parametrize("m_step", [MM, LSR], ids=["mm", "lsr"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient__is_that_of_the_plain_objective(small: Drawn, m_step: Any, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2, 150) if weighted else None
    rankings = as_rankings(small.rankings, covariates=small.covariates, sample_weight=weights)
    passes, algorithm = algorithm_for(rankings, m_step, alpha=0.7)
    begin = Point(rng.normal(size=(2, 4)), rng.normal(size=2), rng.normal(size=(2, 3)))
    begin = begin.like(begin.flat())
    state = _CovariateState(Iteration.start(begin))
    state = algorithm.tell(state, passes.run(algorithm.ask(state)))
    found = state.iteration.best.evaluation
    vector = begin.flat()
    assert_allclose(found.objective, objective(small, vector, 0.7, weights), rtol=1e-12)
    steps = 1e-5 * np.eye(len(vector))
    expected = [
        (objective(small, vector + step, 0.7, weights) - objective(small, vector - step, 0.7, weights)) / 2e-5
        for step in steps
    ]
    assert_allclose(found.gradient, expected, rtol=1e-6, atol=1e-6)


def test_safe_step__raises_the_objective_from_anywhere(small: Drawn) -> None:
    rankings = as_rankings(small.rankings, covariates=small.covariates)
    passes, algorithm = algorithm_for(rankings, MM, alpha=1.0)
    rng = np.random.default_rng(1)
    for _ in range(10):
        begin = Point(rng.normal(size=(2, 4)), rng.normal(size=2), 4 * rng.normal(size=(2, 3)))
        state = _CovariateState(Iteration.start(begin.like(begin.flat())))
        state = algorithm.tell(state, passes.run(algorithm.ask(state)))
        evaluation = state.iteration.best.evaluation
        assert evaluation.safe is not None
        assert objective(small, evaluation.safe.flat(), 1.0) > objective(small, begin.flat(), 1.0) - 1e-9


def test_fit__an_independent_optimiser_ends_at_the_same_parameters(
    small: Drawn, small_fit: PlackettLuceMixture
) -> None:
    rng = np.random.default_rng(2)
    ours = _vector_of(small, small_fit)
    at_ours = objective(small, ours, 1.0)
    assert_allclose(small_fit.objective_, at_ours, rtol=1e-10)
    for spread in (0.0, 0.5):
        found = minimize(
            lambda vector: -objective(small, vector, 1.0) / 150,
            ours + spread * rng.normal(size=ours.shape),
            method="L-BFGS-B",
            jac="3-point",
            options={"ftol": 1e-15, "gtol": 1e-8, "maxiter": 2000, "maxfun": 10**6},
        )
        assert at_ours >= -150 * found.fun - 1e-6
        assert_allclose(_canonical(small, found.x), _canonical(small, ours), atol=1e-4)


def _vector_of(drawn: Drawn, model: PlackettLuceMixture) -> Table:
    """The parameters of a model, with coefficients of standardised covariates."""
    assert model.share_coefficients_ is not None
    mean, deviation = drawn.covariates.mean(axis=0), drawn.covariates.std(axis=0)
    given = model.share_coefficients_ - model.share_coefficients_.mean(axis=0)
    coefficients = np.column_stack([given[:, 0] + given[:, 1:] @ mean, given[:, 1:] * deviation])
    return np.concatenate([model.log_worths_.ravel(), model._ghosts, coefficients.ravel()])


def _canonical(drawn: Drawn, vector: Table) -> Table:
    """Log-worths and coefficients of a vector, centred."""
    n_components, n_items = drawn.log_worths.shape
    log_worths = vector[: n_components * n_items].reshape(n_components, n_items)
    coefficients = vector[n_components * (n_items + 1) :].reshape(n_components, -1)
    centred = log_worths - log_worths.mean(axis=1, keepdims=True)
    return np.concatenate([centred.ravel(), (coefficients - coefficients.mean(axis=0)).ravel()])


def test_fit__goes_on_from_the_ordinary_fit(small: Drawn, small_fit: PlackettLuceMixture) -> None:
    ordinary = PlackettLuceMixture(2, random_state=1).fit(small.rankings)
    begun = small_fit.history_[ordinary.n_iter_]
    assert begun["step"] == "start"
    assert begun["objective"] == pytest.approx(ordinary.objective_, rel=1e-12)
    assert [record["iteration"] for record in small_fit.history_] == [*range(1, small_fit.n_iter_ + 1)]
    assert small_fit.converged_
    assert small_fit.gradient_norm_ is not None
    assert small_fit.gradient_norm_ <= 1e-8
    assert [stage["stage"] for stage in small_fit.init_["stages"]][-1] == "covariates"


def test_fit__lsr_and_exact_em_end_at_the_same_estimate(small: Drawn, small_fit: PlackettLuceMixture) -> None:
    for settings in ({"m_step": "lsr"}, {"em": "exact"}, {"accelerate": False}):
        other = PlackettLuceMixture(2, random_state=1, max_iter=5_000, **settings).fit(  # type: ignore[arg-type]
            small.rankings, membership_covariates=small.covariates
        )
        assert_allclose(other.share_coefficients_, small_fit.share_coefficients_, atol=1e-4)
        assert_allclose(other.log_worths_, small_fit.log_worths_, atol=1e-4)


def standard_errors(covariates: Table, coefficients: Table) -> Table:
    """(n_components - 1, n_columns + 1): of an estimate that knew the component of every person, which is the least."""
    shares, design = (plain_shares(covariates, coefficients), np.column_stack([np.ones(len(covariates)), covariates]))
    n_free = len(coefficients) - 1
    information = [
        [
            design.T @ ((shares[:, one + 1] * ((one == other) - shares[:, other + 1]))[:, None] * design)
            for other in range(n_free)
        ]
        for one in range(n_free)
    ]
    return np.sqrt(np.diag(np.linalg.inv(np.block(information)))).reshape(n_free, -1)


@pytest.mark.parametrize("seed", [5, 6])
def test_fit__finds_the_true_coefficients(seed: int) -> None:
    truth = np.array([[0, 0, 0], [-0.8, 1.2, 0], [-1.5, 0, -1.0]])
    drawn = draw(12_000, 8, truth, np.random.default_rng(seed), centre=20.0, spread=2.0)
    model = PlackettLuceMixture(3, random_state=0).fit(drawn.rankings, membership_covariates=drawn.covariates)
    assert model.share_coefficients_ is not None
    found = model.share_coefficients_.copy()
    assert (found[0] == 0).all()
    found[:, 0] += found[:, 1:] @ np.full(2, 20.0)  # the truth is in covariates less 20
    errors = (found - truth)[1:] / standard_errors(drawn.covariates - 20.0, truth)
    assert np.abs(errors).max() < 4
    assert_allclose(model.shares_, plain_shares(drawn.covariates - 20.0, truth).mean(axis=0), atol=0.02)


def test_zero_columns__are_the_ordinary_fit(small: Drawn) -> None:
    ordinary = PlackettLuceMixture(2, random_state=1).fit(small.rankings)
    none = PlackettLuceMixture(2, random_state=1).fit(small.rankings, membership_covariates=np.zeros((150, 0)))
    assert none.log_worths_.tobytes() == ordinary.log_worths_.tobytes()
    assert none.shares_.tobytes() == ordinary.shares_.tobytes()
    assert none.bic(small.rankings) == ordinary.bic(small.rankings)
    assert none.share_coefficients_ is not None
    assert_allclose(none.share_coefficients_[:, 0], np.log(ordinary.shares_ / ordinary.shares_[0]), rtol=1e-12)


def test_intercept_alone__the_ordinary_fit_is_its_end(small: Drawn) -> None:
    rankings = as_rankings(small.rankings, covariates=np.zeros((150, 0)))
    before = fit_mixture(rankings, FitSettings(2), None, None).run
    em = Em(MM, 1.0, weight=150.0, n_rankings=150)
    algorithm = _CovariateEm(em, Units(np.zeros(0), np.zeros(0)))
    ended = run(ThreadedPasses(rankings), algorithm, algorithm.start(before.point))
    found, coefficients = algorithm.result(ended, before)
    assert ended.history[0]["gradient"] < 1e-8
    assert_allclose(found.objective, before.objective, rtol=1e-12)  # type: ignore[arg-type]
    assert_allclose(coefficients[:, 0] - coefficients[0, 0], before.point.log_shares - before.point.log_shares[0])


def test_weights__are_copies(small: Drawn) -> None:
    counts = np.arange(150) % 3
    options = {"random_state": 1, "init": small.log_worths}
    weighted = PlackettLuceMixture(2, **options).fit(
        small.rankings, sample_weight=counts, membership_covariates=small.covariates
    )
    row = np.repeat(np.arange(150), counts)
    copied = PlackettLuceMixture(2, **options).fit(small.rankings[row], membership_covariates=small.covariates[row])
    assert_allclose(weighted.objective_, copied.objective_, rtol=1e-12)
    assert_allclose(weighted.share_coefficients_, copied.share_coefficients_, atol=1e-5)
    assert_allclose(weighted.shares_, copied.shares_, atol=1e-7)


def test_units__scale_and_centre_of_a_column_change_nothing_else(small: Drawn, small_fit: PlackettLuceMixture) -> None:
    other = PlackettLuceMixture(2, random_state=1).fit(
        small.rankings, membership_covariates=small.covariates * [1e-6, 1e4] + [0, 2e6]
    )
    assert other.share_coefficients_ is not None
    assert small_fit.share_coefficients_ is not None
    assert_allclose(other.objective_, small_fit.objective_, rtol=1e-9)
    scaled = small_fit.share_coefficients_[:, 1:] / [1e-6, 1e4]
    assert_allclose(other.share_coefficients_[:, 1:], scaled, rtol=1e-4)


def test_separation__coefficients_stay_finite() -> None:
    rankings = np.array([[0, 1, 2, 3]] * 60 + [[3, 2, 1, 0]] * 60)
    column = np.r_[np.linspace(-2, -1, 60), np.linspace(1, 2, 60)]
    model = PlackettLuceMixture(2, random_state=0).fit(rankings, membership_covariates=column)
    assert model.converged_
    assert model.share_coefficients_ is not None
    assert 3 < abs(model.share_coefficients_[1, 1]) < 100


# --- persons ---------------------------------------------------------------------------------------------


def grouped(rankings: Table, n_rows: int) -> RankingBlock:
    return RankingBlock.from_array(rankings).replace(groups=np.arange(len(rankings)) // n_rows)


@pytest.fixture(scope="module")
def panel() -> tuple[RankingBlock, Drawn]:
    """Two rankings of each of 80 persons."""
    rng = np.random.default_rng(9)
    coefficients = np.array([[0, 0], [0.3, 1.5]])
    persons = rng.normal(size=(80, 1))
    component = (plain_shares(persons, coefficients)[:, 1] > rng.random(80)).astype(int)
    log_worths = rng.normal(0, 1.2, (2, 4))
    rankings = np.argsort(-(np.repeat(log_worths[component], 2, axis=0) + rng.gumbel(size=(160, 4))), axis=1)
    drawn = Drawn(rankings, np.repeat(persons, 2, axis=0), log_worths, coefficients)
    return grouped(rankings, 2), drawn


def test_groups__a_person_has_one_membership_and_counts_once(panel: tuple[RankingBlock, Drawn]) -> None:
    block, drawn = panel
    model = PlackettLuceMixture(2, random_state=0).fit(block, membership_covariates=drawn.covariates)
    logs = ranking_logs(drawn.rankings, model.log_worths_).reshape(80, 2, 2).sum(axis=1)
    assert model.share_coefficients_ is not None
    persons = drawn.covariates[::2]
    joint = np.exp(logs) * plain_shares(persons, model.share_coefficients_)
    assert_allclose(model.log_likelihood_, np.log(joint.sum(axis=1)).sum(), rtol=1e-10)
    assert_allclose(model.shares_, plain_shares(persons, model.share_coefficients_).mean(axis=0), rtol=1e-6)
    posterior = joint / joint.sum(axis=1, keepdims=True)
    found = model.predict_proba(block, membership_covariates=drawn.covariates)
    assert_allclose(found, np.repeat(posterior, 2, axis=0), rtol=1e-9, atol=1e-12)
    score = model.score(block, membership_covariates=drawn.covariates)
    assert_allclose(score, np.log(joint.sum(axis=1)).mean(), rtol=1e-10)
    of_rows = model.score_samples(block, membership_covariates=drawn.covariates)
    assert_allclose(of_rows.reshape(80, 2).sum(axis=1), np.log(joint.sum(axis=1)), rtol=1e-10)
    # The mean of the posteriors is the mean of the shares, and residuals are orthogonal to the covariate.
    residuals = posterior - plain_shares(persons, model.share_coefficients_)
    assert_allclose(residuals.mean(axis=0), 0, atol=1e-7)


def test_groups__rows_of_a_person_that_differ_are_named(panel: tuple[RankingBlock, Drawn]) -> None:
    block, drawn = panel
    wrong = drawn.covariates.copy()
    wrong[41] = 7.5
    with pytest.raises(SettingsError, match=r"membership_covariates\[41, 0\] is 7.5, but the row before"):
        PlackettLuceMixture(2).fit(block, membership_covariates=wrong)
    leaves = RankingBlock.from_array([[0, 1]] * 9_000).replace(groups=np.arange(9_000) // 2)
    with pytest.raises(SettingsError, match=r"membership_covariates\[8001, 0\] is 1, but the row before"):
        PlackettLuceMixture(2).fit(leaves, membership_covariates=np.arange(9_000) == 8_001)


@pytest.mark.parametrize("ties", ["expand", "marginal"])
def test_ties__likelihood_of_rows_with_ties(ties: str) -> None:
    rng = np.random.default_rng(4)
    covariates = rng.normal(size=(60, 1))
    rows = [
        Ranking(((0, 1), (2,), (3,)), (), "absent", 1.0)
        if value > 0
        else Ranking(((3,), (2,), (1, 0)), (), "absent", 1.0)
        for value in (covariates[:, 0] + rng.normal(size=60)).tolist()
    ]
    block = RankingBlock.from_rows(rows, n_items=4)
    model = PlackettLuceMixture(2, ties=ties, random_state=0).fit(block, membership_covariates=covariates)  # type: ignore[arg-type]
    assert model.converged_
    assert model.share_coefficients_ is not None
    assert abs(model.share_coefficients_[1, 1]) > 0.3
    of_rows = model.score_samples(block, membership_covariates=covariates)
    assert of_rows.shape == (60,)
    assert_allclose(model.log_likelihood_, of_rows.sum(), rtol=1e-9)


# --- predictions -----------------------------------------------------------------------------------------


def test_predictions__use_the_persons_own_shares(small: Drawn, small_fit: PlackettLuceMixture) -> None:
    assert small_fit.share_coefficients_ is not None
    logs = ranking_logs(small.rankings, small_fit.log_worths_)
    joint = np.exp(logs) * plain_shares(small.covariates, small_fit.share_coefficients_)
    posterior = joint / joint.sum(axis=1, keepdims=True)
    rows, covariates = small.rankings, small.covariates
    assert_allclose(small_fit.predict_proba(rows, membership_covariates=covariates), posterior, rtol=1e-9)
    found = small_fit.predict(rows, membership_covariates=covariates)
    assert found.tolist() == posterior.argmax(axis=1).tolist()
    of_rows = np.log(joint.sum(axis=1))
    assert_allclose(small_fit.score_samples(rows, membership_covariates=covariates), of_rows, rtol=1e-9)
    assert_allclose(small_fit.score(rows, membership_covariates=covariates), of_rows.mean(), rtol=1e-9)
    assert_allclose(small_fit.log_likelihood_, of_rows.sum(), rtol=1e-9)
    n_parameters = 2 * 3 + 3  # log-worths; an intercept and two coefficients
    bic = n_parameters * math.log(150) - 2 * of_rows.sum()
    assert_allclose(small_fit.bic(rows, membership_covariates=covariates), bic, rtol=1e-9)
    aic = 2 * n_parameters - 2 * of_rows.sum()
    assert_allclose(small_fit.aic(rows, membership_covariates=covariates), aic, rtol=1e-9)
    lazy = small_fit.predict_proba(da.from_array(rows, chunks=(40, 4)), membership_covariates=covariates)
    assert_allclose(lazy.compute(scheduler="synchronous"), posterior, rtol=1e-9)
    again = PlackettLuceMixture(2, random_state=1).fit_predict(rows, membership_covariates=covariates)
    assert again.tolist() == found.tolist()


def test_saved_model__has_its_coefficients(small: Drawn, small_fit: PlackettLuceMixture, tmp_path: Path) -> None:
    small_fit.save(tmp_path / "model")
    assert (tmp_path / "model" / "share_coefficients.npy").exists()
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    assert loaded.share_coefficients_ is not None
    assert loaded.share_coefficients_.tobytes() == small_fit.share_coefficients_.tobytes()  # type: ignore[union-attr]
    score = loaded.score(small.rankings, membership_covariates=small.covariates)
    assert score == small_fit.score(small.rankings, membership_covariates=small.covariates)
    # Saved again without covariates, the coefficients are gone.
    PlackettLuceMixture(2, random_state=1).fit(small.rankings).save(tmp_path / "model")
    assert PlackettLuceMixture.load(tmp_path / "model").share_coefficients_ is None
    assert not (tmp_path / "model" / "share_coefficients.npy").exists()


def test_command_line__covariates_from_a_file(small: Drawn, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [[RankingBlock.from_array(small.rankings)]])
    np.save(tmp_path / "z.npy", small.covariates)
    lines = [",".join(map(repr, row)) for row in small.covariates.tolist()]
    (tmp_path / "z.csv").write_text("\n".join(["age,income", *lines]))
    model, paths = str(tmp_path / "model"), [str(tmp_path / name) for name in ("z.npy", "z.csv")]
    fit_command = ["fit", str(store.location.url), "--components", "2", "--out", model, "--seed", "1"]
    assert plmix_json([*fit_command, "--covariates", paths[0]])["changed"]
    assert not plmix_json([*fit_command, "--covariates", paths[1]])["changed"]  # the same numbers
    assert isinstance(CliRunner().invoke(plmix, fit_command).exception, StoreExistsError)  # without covariates
    loaded = PlackettLuceMixture.load(model)
    score = loaded.score(store, membership_covariates=small.covariates)
    assert plmix_json(["score", model, str(store.location.url), "--covariates", paths[1]])["score"] == score
    out = str(tmp_path / "out")
    assert plmix_json(["predict", model, str(store.location.url), out, "--covariates", paths[0]])["changed"]
    probabilities: Any = zarr.open_group(out, mode="r")["probabilities"]
    expected = loaded.predict_proba(store, membership_covariates=small.covariates).compute(scheduler="synchronous")
    assert_allclose(probabilities[:], expected, rtol=1e-6)
    table = loaded.memberships(store, membership_covariates=small.covariates, table="dict")
    assert table["probability 1"].tolist() == expected[:, 1].tolist()
    refused = CliRunner().invoke(plmix, ["predict", model, str(store.location.url), str(tmp_path / "other")])
    assert isinstance(refused.exception, SettingsError)
    assert "--covariates" in str(refused.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "row 3 has 1 values, but the first one has 2"),
        ("1,2\n3,x\n", "row 2 has 'x' where a number is expected"),
        ("age\n1\n\nlow\n", "has 'low' where a number is expected"),
    ],
)
def test_file__what_is_wrong_with_it(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "z.csv").write_text(text)
    with pytest.raises(SettingsError, match=message):
        covariates_named(str(tmp_path / "z.csv"))
    (tmp_path / "z.npy").write_text(text)
    with pytest.raises(SettingsError, match="cannot be read from"):
        covariates_named(str(tmp_path / "z.npy"))


def plmix_json(arguments: list[str]) -> dict[str, Any]:
    done = CliRunner().invoke(plmix, [*arguments, "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- the same bits ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> Drawn:
    """Rows that fill several leaves, the last in part."""
    return draw(20_000, 7, np.array([[0, 0, 0], [-0.5, 1, 0], [-1, 0, 1.0]]), np.random.default_rng(8))


def bits(drawn: Drawn, rows: Any = None, **options: Any) -> bytes:
    model = PlackettLuceMixture(3, max_iter=6, random_state=0).fit(
        drawn.rankings if rows is None else rows, membership_covariates=drawn.covariates, **options
    )
    way = np.array([record["objective"] for record in model.history_])
    assert model.share_coefficients_ is not None
    parts = (model.log_worths_, model.shares_, model.share_coefficients_, way)
    return b"".join(part.tobytes() for part in parts)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_same_bits__threads_chunks_and_workers(large: Drawn, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = bits(large)
    assert bits(large._replace(covariates=large.covariates * (1 + 1e-12))) != reference
    assert bits(large, da.from_array(large.rankings, chunks=(7_001, 7)), n_items=7) == reference
    for n_threads in (1, 2, 3):
        with monkeypatch.context() as patch:
            patch.setattr(
                fit,
                "passes_over",
                lambda source, _, residency, n=n_threads: nullcontext(
                    ThreadedPasses(source, residency=residency, n_threads=n)
                ),
            )
            assert bits(large) == reference
    for n_tasks in (1, 3):
        with monkeypatch.context() as patch:
            patch.setattr(
                fit,
                "passes_over",
                lambda source, client, residency, n=n_tasks: nullcontext(
                    DistributedPasses(source, client, residency=residency, n_tasks=n)
                ),
            )
            assert bits(large, client=client) == reference


def test_state__through_arrays_and_json_after_every_step(small: Drawn) -> None:
    rankings = as_rankings(small.rankings, covariates=small.covariates)
    passes, algorithm = algorithm_for(rankings, MM, alpha=1.0)
    before = fit_mixture(rankings, FitSettings(2), None, None).run
    states: list[_CovariateState] = []
    ended = run(passes, algorithm, algorithm.start(before.point), states.append)
    state = algorithm.start(before.point)
    while asked := algorithm.ask(state):
        state = from_plain(*to_plain(algorithm.tell(state, passes.run(asked))))
    assert len(state.history) == len(states)
    assert state.iteration.best.point.flat().tobytes() == ended.iteration.best.point.flat().tobytes()


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        (np.zeros((3, 2)), r"must have 150 rows, one per ranking, but has shape \(3, 2\)"),
        (np.zeros((150, 2, 2)), "must have 150 rows, one per ranking"),
        ("age", "'age' is not a column about persons"),
        (np.r_[np.arange(149.0), np.nan], r"membership_covariates\[149, 0\] is nan, but must be finite"),
        (np.r_[np.inf, np.arange(149.0)], r"membership_covariates\[0, 0\] is inf, but must be finite"),
        (np.column_stack([np.arange(150), np.full(150, 0.1)]), r"column 1 .* is constant \(0.1\)"),
        (np.column_stack([np.arange(150), np.arange(150) % 7, 3 - np.arange(150)]), "column 2 .* linear combination"),
        (np.eye(3)[np.arange(150) % 3], "column 2 .* linear combination .* leave one out"),
    ],
)
def test_bad_covariates__are_named(small: Drawn, covariates: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        PlackettLuceMixture(2).fit(small.rankings, membership_covariates=covariates)


def test_bad_covariates__constant_where_rows_have_weight(small: Drawn) -> None:
    column = np.r_[1.0, np.full(149, 3.0)]
    with pytest.raises(SettingsError, match="constant among the persons that have a weight"):
        PlackettLuceMixture(2).fit(small.rankings, sample_weight=np.r_[0.0, np.ones(149)], membership_covariates=column)


def test_settings__that_do_not_go_together(small: Drawn) -> None:
    with pytest.raises(SettingsError, match="shares are fixed"):
        PlackettLuceMixture(2, shares=[0.5, 0.5]).fit(small.rankings, membership_covariates=small.covariates)
    with pytest.raises(SettingsError, match='choose ties="marginal"'):
        PlackettLuceMixture(2, ties="resample").fit(small.rankings, membership_covariates=small.covariates)
    with pytest.raises(SettingsError, match="2002 coefficients"):
        PlackettLuceMixture(2).fit(
            small.rankings, membership_covariates=np.random.default_rng(0).normal(size=(150, 1000))
        )


def test_predictions__need_the_covariates_of_the_fit(small: Drawn, small_fit: PlackettLuceMixture) -> None:
    for method in ("predict", "predict_proba", "score_samples", "score", "bic", "aic"):
        with pytest.raises(SettingsError, match="depend on 2 covariates of persons; pass membership_covariates"):
            getattr(small_fit, method)(small.rankings)
        with pytest.raises(SettingsError, match="has 1 columns, but the model was fitted with 2"):
            getattr(small_fit, method)(small.rankings, membership_covariates=small.covariates[:, :1])
    spectral = SpectralPlackettLuce(2, random_state=0).fit(small.rankings)
    with pytest.raises(SettingsError, match="fitted without membership_covariates"):
        spectral.predict(small.rankings, membership_covariates=small.covariates)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_shares__are_means_at_the_coefficients_also_after_a_refused_step() -> None:
    rng = np.random.default_rng(2)
    columns = 2 * rng.normal(size=(300, 1))
    component = (columns[:, 0] + rng.logistic(size=300) > 0).astype(int)
    truth = rng.normal(size=(2, 5))
    rows = np.argsort(-truth[component] - rng.gumbel(size=(300, 5)), axis=1)
    refused = 0
    for max_iter in range(3, 13):
        model = PlackettLuceMixture(2, random_state=0, tol=1e-12, max_iter=max_iter)
        model.fit(rows, membership_covariates=columns)
        logits = np.column_stack([np.ones(300), columns]) @ np.asarray(model.share_coefficients_).T
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        assert model.shares_ == pytest.approx(shares.mean(axis=0), abs=1e-9)
        refused += not model.history_[-1]["taken"]
    assert refused


def test_names_of_columns__are_kept_and_found_again() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    persons = pd.DataFrame({"age": rng.normal(size=400), "town": rng.integers(0, 2, 400)})
    old = rng.random(400) < 1 / (1 + np.exp(-1.5 * persons["age"]))
    worths = np.where(old.to_numpy()[:, None], [2.0, 1.0, 0.0, -1.0], [-1.0, 0.0, 1.0, 2.0])
    rows = np.argsort(-(worths + rng.gumbel(size=worths.shape)), axis=1)
    model = PlackettLuceMixture(2, random_state=0).fit(rows, membership_covariates=persons)
    assert model.covariate_names_ == ("age", "town")
    again = PlackettLuceMixture.from_json(model.to_json())
    expected = model.score(rows, membership_covariates=persons)
    for given in (persons[["town", "age"]], persons.to_numpy()):
        assert again.score(rows, membership_covariates=given) == expected
    errors = again.standard_errors(rows, membership_covariates=persons).share_coefficients
    assert errors is not None
    assert errors.names == ("intercept", "age", "town")
    with pytest.raises(SettingsError, match="'town' is missing"):
        model.score(rows, membership_covariates=persons[["age"]])
    one = PlackettLuceMixture(2, random_state=0).fit(rows, membership_covariates=persons["age"])
    assert one.covariate_names_ == ("age",)
    nameless = PlackettLuceMixture(2, random_state=0).fit(rows, membership_covariates=persons["age"].to_numpy())
    assert nameless.covariate_names_ is None
    assert nameless.score(rows, membership_covariates=persons["age"]) == one.score(
        rows, membership_covariates=persons["age"]
    )
