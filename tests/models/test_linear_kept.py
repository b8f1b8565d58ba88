"""Fits with features and choices that are saved, begun again, repeated, fixed in part; and their settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist import Features, MixtureSelection, PlackettLuceMixture, Ranking, RankingBlock, Slates
from plmix_dist.errors import NotIdentifiableWarning, NotIdentifiedError, OptimumFoundOnceWarning, SettingsError
from plmix_dist.fitting import linear_fit, overview
from plmix_dist.fitting.linear import LinearFit
from plmix_dist.uncertainty.results import Coefficients

RNG = np.random.default_rng(0)
ROWS = np.array([RNG.permutation(4) for _ in range(300)])
SLATES = Slates({"l": ["0", "1"], "r": ["2", "3"]})
COLUMN = RNG.normal(size=(300, 4, 1))
SETS: list[Any] = [[0, {1, 2}, 3], [0, {1, 3}, 2], [1, {0, 2}, 3], [0, {2, 3}, 1]] * 20


def test_slates_of_a_file__are_kept_with_the_model(tmp_path: Path) -> None:
    place = tmp_path / "slates.json"
    place.write_text(json.dumps({"l": ["0", "1"], "r": ["2", "3"]}))
    model = PlackettLuceMixture(1, choices=str(place)).fit(ROWS)
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")  # in place of itself, with all its arrays
    place.write_text(json.dumps({"l": ["0", "2"], "r": ["1", "3"]}))
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    assert loaded.choices == SLATES
    assert loaded.score(ROWS) == model.score(ROWS)


def test_fixed_shares__stay_with_their_components() -> None:
    model = PlackettLuceMixture(2, shares=[0.3, 0.7], choices=SLATES, random_state=0).fit(ROWS)
    assert_allclose(model.shares_, [0.7, 0.3])
    assert_allclose(model.bootstrap(ROWS, 3, random_state=0).shares, [[0.7, 0.3]] * 3)
    again = PlackettLuceMixture.from_json(model.to_json())
    assert again.bic(ROWS) == model.bic(ROWS)
    assert again.standard_errors(ROWS).shares.tolist() == [0.0, 0.0]


def test_maxdiff__derivatives_of_worths_have_their_sign() -> None:
    options: dict[str, Any] = {"choices": "maxdiff", "unranked": "absent"}
    model = PlackettLuceMixture(1, alpha=1.0, **options).fit(SETS)
    free = PlackettLuceMixture(1, alpha=1e-6, **options).fit(SETS)
    errors = model.standard_errors(SETS)
    assert errors.slopes[0] < 1
    assert_allclose(errors.shrinkage, model.log_worths_ - free.log_worths_, rtol=0.1, atol=2e-3)


def test_bootstrap__with_a_checkpoint_ends_with_the_same_bits(tmp_path: Path) -> None:
    model = PlackettLuceMixture(2, choices=SLATES, random_state=0).fit(ROWS)
    plain = model.bootstrap(ROWS, 4, random_state=3)
    for _ in range(2):
        kept = model.bootstrap(ROWS, 4, random_state=3, checkpoint=tmp_path / "c")
        assert kept.log_worths.tobytes() == plain.log_worths.tobytes()
    loose = model.bootstrap(ROWS, 4, random_state=3, tol=1.0)
    assert loose.n_passes < plain.n_passes


def test_selection__keeps_checkpoints_of_every_fit(tmp_path: Path) -> None:
    template = PlackettLuceMixture(choices=SLATES, alpha=0.0)
    seen: list[Any] = []
    how: dict[str, Any] = {"checkpoint": tmp_path / "c", "progress": seen.append, "random_state": 0}
    found = MixtureSelection(range(1, 3), estimator=template, **how).fit(ROWS)
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["components-1", "components-2"]
    assert seen
    again = MixtureSelection(range(1, 3), estimator=template, **how).fit(ROWS)
    assert again.best_estimator_.log_worths_.tobytes() == found.best_estimator_.log_worths_.tobytes()
    with pytest.raises(SettingsError, match="after is not called"):
        MixtureSelection(range(1, 3), estimator=template).fit(ROWS, after=print)


def test_init__a_saved_model_of_as_many_components(tmp_path: Path) -> None:
    model = PlackettLuceMixture(2, choices=SLATES, random_state=0).fit(ROWS)
    model.save(tmp_path / "model")
    assert PlackettLuceMixture(2, choices=SLATES, init=tmp_path / "model").fit(ROWS).n_iter_ <= 2
    with pytest.raises(SettingsError, match="init has 2 components, but n_components is 3"):
        PlackettLuceMixture(3, choices=SLATES, init=model).fit(ROWS)


def test_shared_coefficients__alone_are_those_of_one_component() -> None:
    given = Features(COLUMN, shared=True)
    plain = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, features=COLUMN)
    shared = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, features=given)
    assert_allclose(shared.feature_coefficients_, plain.feature_coefficients_)
    with pytest.raises(SettingsError, match="share all coefficients, so they are one"):
        PlackettLuceMixture(2, alpha=0.0).fit(ROWS, features=given)


def test_coefficients__no_more_than_newton_steps_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_fit, "_MOST_FREE", 3)
    assert PlackettLuceMixture(2).fit(ROWS, features=Features(COLUMN, ridge=1.0)).n_iter_ > 0
    with pytest.raises(SettingsError, match="3 components have 5 coefficients, more than 3; choose fewer components"):
        PlackettLuceMixture(3).fit(ROWS, features=Features(COLUMN, ridge=1.0))


@pytest.mark.parametrize("unit", [1.0, 1e-5, 1e6])
@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_ridge_of_columns_as_they_are__in_any_unit(unit: float, ridge: float) -> None:
    plain = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, features=Features(COLUMN, ridge=ridge, standardised=False))
    given = Features(COLUMN * unit, ridge=ridge * unit**2, standardised=False)
    found = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, features=given)
    assert plain.feature_coefficients_ is not None
    assert found.feature_coefficients_ is not None
    assert_allclose(found.feature_coefficients_ * unit, plain.feature_coefficients_, rtol=1e-5)


def test_ridge_by_deviation__is_that_of_all_choices_by_weight() -> None:
    table, weights = Features(RNG.normal(size=(4, 1)), ridge=100.0), np.arange(300) % 3 + 1

    def coefficient(rows: Any, **how: Any) -> Any:
        return (
            PlackettLuceMixture(1, alpha=0.0, unranked="below").fit(rows, item_features=table, **how).item_coefficients_
        )

    expected = coefficient(np.repeat(ROWS[:, :2], weights, axis=0))
    assert_allclose(coefficient(ROWS[:, :2], sample_weight=weights), expected)
    listed = [Ranking(((one,), (two,)), tuple(rest), "absent", 1.0) for one, two, *rest in ROWS.tolist()]
    assert_allclose(coefficient(RankingBlock.from_rows(listed, n_items=4), sample_weight=weights), expected)


def test_prior_of_worths__is_that_of_plain_models() -> None:
    plain = PlackettLuceMixture(1, alpha=100.0).fit(ROWS)
    none = Features(COLUMN, ridge=1e9, intercepts=True)
    assert_allclose(
        PlackettLuceMixture(1, alpha=100.0).fit(ROWS, features=none).log_worths_, plain.log_worths_, rtol=0.02
    )


def test_worths_of_items__that_have_no_estimate_are_named() -> None:
    given = Features(RNG.normal(size=(8, 1)), intercepts=True, ridge=1.0)
    with pytest.raises(SettingsError, match="do not tell the worths of all items apart; choose alpha above 0"):
        PlackettLuceMixture(1, alpha=0.0, unranked="absent").fit([[0, 1], [1, 0], [2, 3], [3, 2]], features=given)
    given = Features(RNG.normal(size=(120, 1)), intercepts=True, ridge=1.0)
    with pytest.raises(NotIdentifiedError, match="some are always chosen before others; choose alpha above 0"):
        PlackettLuceMixture(1, alpha=0.0).fit([[0, 1, 2], [1, 0, 2]] * 20, features=given)


def test_willingness_to_pay__where_price_has_no_effect() -> None:
    found = Coefficients(("price", "room"), np.array([[0.0, 1.0]]), np.full((1, 2), 0.1), 0.01 * np.eye(2))
    ratio = found.willingness_to_pay("room", "price")
    assert np.isnan(ratio.values).all()
    assert (ratio.lower[0], ratio.upper[0]) == (-np.inf, np.inf)


def test_to_votekit__its_generators_draw_from_the_mixture() -> None:
    pytest.importorskip("votekit", reason="needs votekit")
    from votekit.ballot_generator import name_pl_profile_generator, slate_pl_profile_generator

    np.random.seed(0)  # noqa: NPY002 - VoteKit draws from it
    by_slate = PlackettLuceMixture(1, choices=SLATES, alpha=0.0).fit(ROWS)
    drawn = slate_pl_profile_generator(by_slate.to_votekit(20_000), rng_seed=1)
    again = PlackettLuceMixture(1, choices=SLATES, alpha=0.0).fit(drawn)
    assert_allclose(again.cohesion_, by_slate.cohesion_, atol=0.02)
    assert_allclose(again.choice_probabilities(), by_slate.choice_probabilities(), atol=0.02)
    plain = PlackettLuceMixture(1).fit(ROWS)
    again = PlackettLuceMixture(1).fit(name_pl_profile_generator(plain.to_votekit(20_000, SLATES.slates), rng_seed=1))
    assert_allclose(again.choice_probabilities(), plain.choice_probabilities(), atol=0.02)
    for model, slates in ((by_slate, SLATES.slates), (plain, None)):
        with pytest.raises(SettingsError, match="slates are those of the fit"):
            model.to_votekit(10, slates)


@pytest.mark.parametrize("offset", [1e5, 1.7e12, -1.7e12])
def test_features_far_from_zero__lose_no_digits(offset: float) -> None:
    column = np.round(COLUMN, 2)
    near = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, features=column)
    far = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, features=column + offset)
    assert_allclose(far.feature_coefficients_, near.feature_coefficients_, rtol=1e-2)
    errors = [model.standard_errors(ROWS, features=column).coefficients for model in (near, far)]
    assert_allclose(errors[1].standard_errors, errors[0].standard_errors, rtol=1e-3)  # type: ignore[union-attr]
    assert far.score(ROWS, features=column + offset) == pytest.approx(near.score(ROWS, features=column))


def test_standard_errors__of_what_rankings_say_nothing_about() -> None:
    columns = np.concatenate([COLUMN, RNG.normal(size=(300, 4, 1))], axis=2)
    model = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, features=columns)
    with pytest.warns(NotIdentifiableWarning):
        errors = model.standard_errors(ROWS, features=columns * [1.0, 0.0]).coefficients
    assert errors is not None
    assert np.isnan(errors.standard_errors).tolist() == [[False, True]]
    assert np.isnan(errors.covariance).tolist() == [[False, True], [True, True]]


def test_standard_errors__of_ties_that_count_half_are_of_the_sandwich() -> None:
    model = PlackettLuceMixture(1, ties="half").fit(
        SETS, item_features=Features([[1.0], [0.0], [2.0], [1.0]], ridge=1.0)
    )
    assert model.standard_errors(SETS).kind == "sandwich"
    assert model.standard_errors(SETS, kind="information").kind == "information"


def test_best_end__that_was_found_once_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_fit, "_SAME_END", 0.0)  # no two ends are one
    monkeypatch.setattr(linear_fit, "_MOST_ROUNDS", 1)
    with pytest.warns(OptimumFoundOnceWarning):
        PlackettLuceMixture(2, random_state=0).fit(ROWS, features=Features(COLUMN, ridge=1.0))


@pytest.mark.parametrize(("alpha", "ridge"), [(0.5, 0.005), (3.0, 0.01)])
def test_shares_of_persons__have_a_weak_prior_and_their_mean_is_told(alpha: float, ridge: float) -> None:
    ages = np.arange(len(ROWS))[:, None] / len(ROWS)
    model = PlackettLuceMixture(2, alpha=alpha, choices=SLATES, random_state=0)
    model.fit(ROWS, membership_covariates=ages)
    assert model._linear is not None
    assert model._linear[1].layout.share_ridge == pytest.approx(ridge)
    posteriors = model.predict_proba(ROWS, membership_covariates=ages)
    assert_allclose(model.shares_, posteriors.mean(axis=0), atol=1e-6)


def test_curvature_of_a_sample__stands_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = LinearFit.start

    def noted(self: LinearFit, vector: Any, curvature: Any = None) -> Any:
        started.append((self.weight, curvature))
        return start(self, vector, curvature)

    monkeypatch.setattr(LinearFit, "start", noted)
    rows = np.array([RNG.permutation(4) for _ in range(20_000)])
    for name, value in (("_MOST_WORK", 0), ("_SAMPLE_ROWS", 2_000)):
        monkeypatch.setattr(linear_fit if name == "_MOST_WORK" else overview, name, value)
        PlackettLuceMixture(1, choices=SLATES).fit(rows)
    (_, of_all), (_, of_sample) = [one for one in started if one[1] is not None]
    assert_allclose(of_sample[1], of_all[1], rtol=0.2)
