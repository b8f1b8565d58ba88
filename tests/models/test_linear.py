"""Features, slates, best and worst in the estimator: other tools, independent optimisers, laws, saving, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from plmix_dist import Features, PlackettLuceMixture, Ranking, RankingBlock, Slates
from plmix_dist.errors import DamagedStoreError, NotIdentifiedError, SettingsError
from plmix_dist.rankings.choice_models import CHOICES
from tests.helpers import logit_oracle

Drawn = tuple[list[Any], np.ndarray, np.ndarray]


def choices(seed: int, n: int = 400, n_items: int = 4, features: int = 3, persons: int = 1) -> Drawn:
    """Choices (chosen, offered) from all items with features, by two kinds of persons; and who made each."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n, n_items, features))
    truth = np.array([[1.5, -0.5, 0.0], [-0.5, 1.0, 0.8]])[:, :features]
    kind = rng.random(-(-n // persons)) < 0.4
    who = np.arange(n) // persons
    utilities = np.einsum("cjp,cp->cj", table, truth[kind[who].astype(int)]) + rng.gumbel(size=(n, n_items))
    # In every order, so that what is chosen need not come first.
    offered = np.argsort(rng.random((n, n_items)), axis=1)
    rows = [(int(best), own.tolist()) for best, own in zip(utilities.argmax(axis=1), offered, strict=True)]
    return rows, np.take_along_axis(table, offered[:, :, None], axis=1), who


def test_one_component__equals_an_optimiser() -> None:
    rows, table, _ = choices(1)

    def loss(values: np.ndarray) -> float:
        total = 0.0
        for (best, offered), own in zip(rows, table, strict=True):
            total -= logit_oracle.log_choice((own @ values).tolist(), offered.index(best))
        return total

    expected = minimize(loss, np.zeros(3), tol=1e-10)
    model = PlackettLuceMixture(1, alpha=0.0).fit(rows, features=table)
    assert model.feature_coefficients_ is not None
    assert_allclose(model.feature_coefficients_[0], expected.x, atol=1e-5)
    assert model.log_likelihood_ == pytest.approx(-expected.fun, abs=1e-7)
    errors = model.standard_errors(rows, features=table)
    assert errors.coefficients is not None
    step = 1e-3 * np.eye(3)
    second = [
        [sum(a * b * loss(expected.x + a * one + b * other) for a in (1, -1) for b in (1, -1)) / 4e-6 for one in step]
        for other in step
    ]
    assert_allclose(errors.coefficients.standard_errors[0] ** 2, np.diag(np.linalg.inv(second)), rtol=1e-3)
    assert model.bic(rows, features=table) == pytest.approx(2 * expected.fun + 3 * np.log(400))


def test_two_components_of_persons__nothing_near_is_better() -> None:
    rows, table, who = choices(2, persons=5)
    found = PlackettLuceMixture(2, alpha=0.0, random_state=0)
    block = RankingBlock.from_rows(
        [Ranking(((best,),), tuple(one for one in offered if one != best), "absent", 1.0) for best, offered in rows],
        n_items=4,
        groups=who.tolist(),
    )
    own = np.array([table[row][offered.index(item)] for row, (best, offered) in enumerate(rows)
                    for item in [best, *[one for one in offered if one != best]]])  # fmt: skip
    found.fit(block, features=own)
    assert found.converged_
    coefficients = found.feature_coefficients_
    assert coefficients is not None
    best = found.score(block, features=own)
    with_features = block.replace(features=own)
    expected = logit_oracle.log_likelihood(
        with_features, np.zeros((4, 0)), coefficients, np.log(found.shares_)[:, None]
    )
    assert best * 80 == pytest.approx(expected)
    rng = np.random.default_rng(0)
    for _ in range(20):
        moved = coefficients + 0.05 * rng.normal(size=coefficients.shape)
        other = logit_oracle.log_likelihood(with_features, np.zeros((4, 0)), moved, np.log(found.shares_)[:, None])
        assert other < expected
    assert found.init_["search"]["n_best"] >= 2


def test_features_of_items__are_those_of_rows_that_repeat_them() -> None:
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"price": rng.normal(size=6), "size": rng.normal(size=6)}, index=list("abcdef"))
    worths = table.to_numpy() @ [1.0, -0.7]
    rows = []
    for _ in range(300):
        offered = rng.permutation(6)[:4]
        rows.append([table.index[item] for item in offered[np.argsort(-(worths[offered] + rng.gumbel(size=4)))]])
    by_item = PlackettLuceMixture(1, alpha=0.0, unranked="absent").fit(rows, item_features=table)
    repeated = table.loc[[name for row in rows for name in row]]
    by_row = PlackettLuceMixture(1, alpha=0.0, unranked="absent").fit(rows, features=repeated)
    assert by_item.item_coefficients_ is not None
    assert by_row.feature_coefficients_ is not None
    assert_allclose(by_item.item_coefficients_, by_row.feature_coefficients_, atol=1e-7)
    centred = (table.to_numpy() - table.to_numpy().mean(axis=0)) @ by_item.item_coefficients_[0]
    assert_allclose(by_item.log_worths_[0], centred, atol=1e-12)
    shuffled = table.loc[list("fcadbe")].rename_axis("item").reset_index()
    again = PlackettLuceMixture(1, alpha=0.0, unranked="absent").fit(rows, item_features=shuffled)
    assert_allclose(again.log_worths_, by_item.log_worths_, atol=1e-12)


def test_features_that_are_shared__have_one_coefficient() -> None:
    rows, table, _ = choices(4, n=600)
    model = PlackettLuceMixture(2, alpha=1.0, random_state=0)
    model.fit(rows, features=Features(table, shared=True, intercepts=True))
    assert model.feature_coefficients_ is not None
    assert_allclose(model.feature_coefficients_[0], model.feature_coefficients_[1])
    assert not np.allclose(model.log_worths_[0], model.log_worths_[1])
    errors = model.standard_errors(rows, features=table)
    assert errors.coefficients is not None
    assert_allclose(errors.coefficients.standard_errors[0, 3:], errors.coefficients.standard_errors[1, 3:])


def test_units_of_columns__change_nothing_else() -> None:
    rows, table, _ = choices(5)
    plain = PlackettLuceMixture(1).fit(rows, features=Features(table, ridge=3.0))
    scaled = PlackettLuceMixture(1).fit(rows, features=Features(table * [1e6, 1.0, 1e-6], ridge=3.0))
    assert plain.feature_coefficients_ is not None
    assert scaled.feature_coefficients_ is not None
    assert_allclose(scaled.feature_coefficients_ * [1e6, 1.0, 1e-6], plain.feature_coefficients_, rtol=1e-6)
    shrunken = PlackettLuceMixture(1).fit(rows, features=Features(table, ridge=300.0))
    assert shrunken.feature_coefficients_ is not None
    assert np.abs(shrunken.feature_coefficients_).max() < np.abs(plain.feature_coefficients_).max()


def test_weights__are_copies() -> None:
    rows, table, _ = choices(6, n=120)
    weights = np.random.default_rng(0).integers(0, 4, len(rows))
    weighted = PlackettLuceMixture(1, alpha=0.0).fit(rows, features=table, sample_weight=weights)
    copies = [row for row, times in zip(rows, weights, strict=True) for _ in range(times)]
    copied = PlackettLuceMixture(1, alpha=0.0).fit(copies, features=np.repeat(table, weights, axis=0))
    assert_allclose(weighted.feature_coefficients_, copied.feature_coefficients_, atol=1e-9)


@pytest.mark.parametrize("model", ["best-worst", "maxdiff"])
def test_best_worst__equals_an_optimiser(model: str) -> None:
    rng = np.random.default_rng(7)
    rows = []
    for _ in range(200):
        best, *between, worst = rng.permutation(5)[:4].tolist()
        rows.append(Ranking(((best,), tuple(between), (worst,)), (), "absent", 1.0))
    block = RankingBlock.from_rows(rows, n_items=5)

    def loss(values: np.ndarray) -> float:
        worths = dict(enumerate(np.exp(np.append(values, 0.0)).tolist()))
        total = 0.0
        for row in rows:
            offered = [item for place in row.ordered for item in place]
            chances = logit_oracle.best_worst(offered, worths, model)
            total -= float(np.log(chances[row.ordered[0][0], row.ordered[-1][0]]))
        return total

    expected = minimize(loss, np.zeros(4), tol=1e-9)
    found = PlackettLuceMixture(1, alpha=0.0, choices=model).fit(block)
    assert found.log_likelihood_ == pytest.approx(-expected.fun, abs=1e-6)
    worths = np.append(expected.x, 0.0)
    assert_allclose(found.log_worths_[0], worths - worths.mean(), atol=1e-4)
    assert found.score(block) * 200 == pytest.approx(found.log_likelihood_)
    assert found.standard_errors(block).log_worths.shape == (1, 5)


def ballots(seed: int, n: int = 600) -> tuple[np.ndarray, Slates]:
    """Ballots of two blocs with a slate of three candidates each."""
    rng = np.random.default_rng(seed)
    cohesion = np.array([[0.8, 0.2], [0.15, 0.85]])
    worths = np.array([[0.5, 0.3, 0.2, 0.4, 0.4, 0.2], [0.3, 0.3, 0.4, 0.6, 0.3, 0.1]])
    slate_of = np.array([0, 0, 0, 1, 1, 1])
    rows = np.full((n, 6), -1)
    for row, kind in enumerate((rng.random(n) < 0.3).astype(int)):
        left = list(range(6))
        for place in range(rng.integers(2, 7)):
            open_slates = sorted({int(slate_of[item]) for item in left})
            chances = cohesion[kind][open_slates]
            slate = rng.choice(open_slates, p=chances / chances.sum())
            own = [item for item in left if slate_of[item] == slate]
            rows[row, place] = rng.choice(own, p=worths[kind][own] / worths[kind][own].sum())
            left.remove(int(rows[row, place]))
    return rows, Slates({"left": ["0", "1", "2"], "right": ["3", "4", "5"]})


def test_slates__likelihood_by_the_definition_and_a_maximum(tmp_path: Path) -> None:
    rows, slates = ballots(1)
    model = PlackettLuceMixture(2, alpha=0.0, choices=slates, unranked="below", random_state=0).fit(rows)
    assert model.cohesion_ is not None
    assert_allclose(np.sort(model.cohesion_[:, 0]), [0.15, 0.8], atol=0.12)
    block = RankingBlock.from_array(rows, n_items=6, unranked="below")

    def total(worths: np.ndarray, cohesion: np.ndarray) -> float:
        found = 0.0
        for row in block.rows():
            logs = [logit_oracle.slate_log(row, [0, 0, 0, 1, 1, 1], *own) for own in zip(worths, cohesion, strict=True)]
            found += float(np.logaddexp.reduce(np.log(model.shares_) + logs))
        return found

    worths = np.exp(model.log_worths_)
    assert total(worths, model.cohesion_) == pytest.approx(model.log_likelihood_)
    assert model.score(rows) * len(rows) == pytest.approx(model.log_likelihood_)
    rng = np.random.default_rng(0)
    for _ in range(5):
        moved = model.cohesion_ * np.exp(0.1 * rng.normal(size=(2, 2)))
        assert total(worths * np.exp(0.1 * rng.normal(size=(2, 6))), moved) < model.log_likelihood_
    # Worths within slates, cohesion up to a factor, shares.
    assert model.bic(rows) == pytest.approx(-2 * model.log_likelihood_ + (2 * (2 + 2 + 1) + 1) * np.log(600))
    model.save(tmp_path / "model")
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    assert loaded.choices == slates
    assert_allclose(loaded.predict_proba(rows), model.predict_proba(rows))
    assert_allclose(loaded.cohesion_, model.cohesion_)
    text = PlackettLuceMixture.from_json(model.to_json())
    assert_allclose(text.score_samples(rows), model.score_samples(rows))


def test_weights_of_zero__a_part_without_rows_changes_nothing() -> None:
    rows, slates = ballots(2, n=9_000)
    weights = np.ones(len(rows))
    weights[:4_096] = 0
    model = PlackettLuceMixture(1, choices=slates, unranked="below")
    with_zeros = model.fit(rows, sample_weight=weights).log_likelihood_
    assert with_zeros == pytest.approx(model.fit(rows[4_096:]).log_likelihood_)
    assert model.standard_errors(rows, sample_weight=weights).shares.tolist() == [0.0]
    for name in CHOICES:
        empty = RankingBlock.from_rows([Ranking(((0,), (1,)), (), "absent", 1.0)], n_items=2)[:0]
        assert CHOICES[name].rows(empty).n_rankings == 0


def test_saved_coefficients__altered_ones_are_refused() -> None:
    rows, slates = ballots(2, n=100)
    saved = json.loads(PlackettLuceMixture(1, choices=slates, unranked="below").fit(rows).to_json())
    coefficients = saved["coefficients"]
    saved["coefficients"] = [row[1:] for row in coefficients]
    with pytest.raises(DamagedStoreError, match="its coefficients are damaged: shapes"):
        PlackettLuceMixture.from_json(json.dumps(saved))
    saved["coefficients"], saved["unit_scale"] = coefficients, [1.0]
    with pytest.raises(DamagedStoreError, match="its coefficients are damaged: shapes"):
        PlackettLuceMixture.from_json(json.dumps(saved))
    del saved["coefficients"]
    with pytest.raises(DamagedStoreError, match="'coefficients'"):
        PlackettLuceMixture.from_json(json.dumps(saved))


def test_fit_begins_at_a_fitted_model() -> None:
    rows, slates = ballots(3)
    options: dict[str, Any] = {"choices": slates, "unranked": "below", "alpha": 0.0}
    first = PlackettLuceMixture(2, random_state=0, **options).fit(rows)
    again = PlackettLuceMixture(2, init=first, **options).fit(rows)
    assert again.n_iter_ <= 2
    assert again.log_likelihood_ == pytest.approx(first.log_likelihood_)
    with pytest.raises(SettingsError, match="init is a fitted model of the same items and columns"):
        PlackettLuceMixture(2, init="random", **options).fit(rows)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda table: table * [1.0, 1.0, 0.0], "column 'feature 2' of features is the same for all that is on offer"),
        (lambda table: np.repeat(table[:, :1], 4, axis=1), "column 'feature [0-2]' of features is the same"),
        (lambda table: table @ [[1, 0, 1], [0, 1, 1], [0, 0, 0.0]], "are linear combinations of each other"),
        (lambda table: np.where(table > 3, np.nan, table), "is nan, but must be finite"),
        (lambda table: table[:-1], "those of 399 rankings of 4 items each, but there are 400 rankings"),
        (lambda table: table.astype(str), "features must be numbers"),
        (lambda table: np.where(table == 4.0, 2e100, table), r"\[0, 0\] is 2e\+100, but .* at most 1e\+100"),
    ],
)
def test_features_that_cannot_work__are_named(changed: Any, words: str) -> None:
    rows, table, _ = choices(8)
    table[0, 0, 0] = 4.0
    with pytest.raises(SettingsError, match=words):
        PlackettLuceMixture(1, alpha=0.0).fit(rows, features=changed(table))


def test_a_column_that_separates__is_named_and_a_ridge_helps() -> None:
    rows, table, _ = choices(9)
    for (best, offered), own in zip(rows, table, strict=True):
        own[:, 1] = np.arange(4) == offered.index(best)
    with pytest.raises(NotIdentifiedError, match=r"coefficient of feature 1 in component 0 .* plm.Features"):
        PlackettLuceMixture(1, alpha=0.0).fit(rows, features=table)
    assert PlackettLuceMixture(1).fit(rows, features=Features(table, ridge=1.0)).converged_


def test_predictions__need_the_features_of_their_rankings() -> None:
    rows, table, _ = choices(10)
    model = PlackettLuceMixture(1, alpha=0.0).fit(rows, features=table)
    with pytest.raises(SettingsError, match=r"coefficients of 3 features: feature 0, feature 1, feature 2; give those"):
        model.score(rows)
    with pytest.raises(SettingsError, match=r"features describe the items that a row lists"):
        PlackettLuceMixture(1, unranked="below").fit([[0, 1], [1, 2]], features=np.ones((4, 1)))


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.CollapsedComponentWarning")
def test_several_starts__are_numbered_in_the_history() -> None:
    rows, table, _ = choices(0, n=60)
    seen: list[Any] = []
    model = PlackettLuceMixture(4, n_init=3, random_state=0, progress=seen.append, max_iter=5)
    found = model.fit(rows, features=Features(table, ridge=1.0)).init_["search"]["n_ends"]
    assert {record.get("start") for record in seen} == set(range(found)) == {0, 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": True}, "noise=True does not go together"),
        ({"em": "exact"}, "em='exact' does not go together"),
        ({"accelerate": False}, "accelerate=False does not go together"),
        ({"m_step": "lsr"}, "m_step='lsr' does not go together"),
        ({"ties": "davidson"}, "ties='davidson' does not go together"),
        ({"choices": "maxdif"}, "choices must be"),
    ],
)
def test_settings_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    rows, table, _ = choices(11, n=50)
    with pytest.raises(SettingsError, match=words):
        PlackettLuceMixture(1, **options).fit(rows, features=table)


@pytest.mark.promise(10)
def test_same_bits__threads_and_any_number_of_workers(client: Any) -> None:
    rows, slates = ballots(12, n=9_000)
    options: dict[str, Any] = {"choices": slates, "unranked": "below", "random_state": 0}
    here = PlackettLuceMixture(2, **options).fit(rows, client=False)
    there = PlackettLuceMixture(2, **options).fit(rows, client=client)
    assert here.log_worths_.tobytes() == there.log_worths_.tobytes()
    assert here.cohesion_ is not None
    assert there.cohesion_ is not None
    assert here.cohesion_.tobytes() == there.cohesion_.tobytes()


def test_checkpoint__goes_on_to_the_same_bits(tmp_path: Path) -> None:
    rows, slates = ballots(13)
    options: dict[str, Any] = {"choices": slates, "unranked": "below", "random_state": 0}
    plain = PlackettLuceMixture(2, **options).fit(rows)

    class StopError(Exception):
        pass

    def stop(record: dict[str, Any]) -> None:
        raise StopError

    with pytest.raises(StopError):
        PlackettLuceMixture(2, checkpoint=tmp_path / "c", progress=stop, **options).fit(rows)
    resumed = PlackettLuceMixture(2, checkpoint=tmp_path / "c", **options).fit(rows)
    assert resumed.log_worths_.tobytes() == plain.log_worths_.tobytes()
    assert resumed.init_["stages"][0]["stage"] in ("resume", "look")


# Values of other tools; how each was made is told in the file.
GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "models.json"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    if not GOLDEN.exists():
        pytest.skip("../shared is not there")
    found: dict[str, Any] = json.loads(GOLDEN.read_text())
    return found


def made(entry: dict[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {"np": np}
    exec(entry["code"], names)
    return names


def test_golden__conditional_logit(golden: dict[str, Any]) -> None:
    entry = golden["3_conditional_logit"]
    data = made(entry)
    rows = [(int(best), list(range(4))) for best in data["c"]]
    model = PlackettLuceMixture(1, alpha=0.0).fit(rows, features=data["Z"])
    assert_allclose(model.feature_coefficients_[0], entry["values"]["statsmodels_coef"], atol=1e-8)  # type: ignore[index]
    errors = model.standard_errors(rows, features=data["Z"]).coefficients
    assert errors is not None
    assert_allclose(errors.standard_errors[0], entry["values"]["statsmodels_se"], atol=1e-8)


def test_golden__latent_classes_with_a_covariate(golden: dict[str, Any]) -> None:
    entry = golden["3_4_latent_class_with_covariate"]
    data, values = made(entry), entry["values"]
    chosen, table, who = data["c"], data["Z"], data["who"]
    order = np.argsort(np.arange(4) != chosen[:, None], axis=1, kind="stable")
    rows = [Ranking(((own[0],),), tuple(own[1:]), "absent", 1.0) for own in order.tolist()]
    block = RankingBlock.from_rows(rows, n_items=4, groups=who.tolist())
    given = {
        "features": np.take_along_axis(table, order[:, :, None], axis=1),
        "membership_covariates": data["inc"][who],
    }
    model = PlackettLuceMixture(2, alpha=0.0, random_state=0).fit(block, **given)
    assert_allclose(model.feature_coefficients_, values["beta"], atol=1e-7)
    assert_allclose(model.share_coefficients_[1], values["share_coefficients"], atol=1e-7)  # type: ignore[index]
    assert_allclose(model.shares_, values["mean_shares"], atol=1e-7)
    for kind, of_choices, of_shares in (
        ("information", "se_beta", "se_share_coefficients"),
        ("sandwich", "sandwich_se_beta", "sandwich_se_share"),
    ):
        errors = model.standard_errors(block, kind=kind, **given)  # type: ignore[arg-type]
        assert errors.coefficients is not None
        assert errors.share_coefficients is not None
        assert_allclose(errors.coefficients.standard_errors, values[of_choices], atol=1e-9)
        assert_allclose(errors.share_coefficients.standard_errors[1], values[of_shares], atol=1e-9)


def test_golden__features_of_items(golden: dict[str, Any]) -> None:
    entry = golden["3a_item_features"]
    data, values = made(entry), entry["values"]
    model = PlackettLuceMixture(2, alpha=0.0, random_state=0, unranked="absent")
    model.fit(data["rows"], item_features=data["x"], n_items=30)
    assert_allclose(model.item_coefficients_, values["beta"], atol=1e-8)
    assert model.log_likelihood_ == pytest.approx(values["log_likelihood"])
    errors = model.standard_errors(data["rows"])
    assert errors.coefficients is not None
    assert_allclose(errors.coefficients.standard_errors.ravel(), values["se"][:6], atol=1e-8)
    assert_allclose(errors.shares, values["se"][6] * np.prod(values["shares"]), atol=1e-9)


def test_golden__covariates(golden: dict[str, Any]) -> None:
    entry = golden["4_covariates_standard_errors"]
    data, values = made(entry), entry["values"]
    model = PlackettLuceMixture(2, alpha=0.0, random_state=0).fit(data["rankings"], membership_covariates=data["age"])
    errors = model.standard_errors(data["rankings"], membership_covariates=data["age"])
    assert errors.share_coefficients is not None
    # The prior of coefficients, of standard deviation 10, moves the point by 1e-4.
    assert_allclose(errors.share_coefficients.standard_errors[1], values["se_share_coefficients"], atol=2e-5)
    assert_allclose(errors.log_worths, values["se_log_worths"], atol=2e-5)


def test_golden__slates(golden: dict[str, Any]) -> None:
    entry = golden["5_slate_pl_fit"]
    data, values = made(entry), entry["values"]
    rows = np.where(np.arange(6) < data["length"][:, None], data["rows"], -1)
    slates = Slates({"A": ["0", "1", "2"], "B": ["3", "4", "5"]})
    model = PlackettLuceMixture(2, alpha=0.0, choices=slates, unranked="below", random_state=0).fit(rows)
    assert_allclose(model.cohesion_, values["cohesion"], atol=1e-7)
    assert_allclose(model.shares_, values["shares"], atol=1e-7)
    worths = np.exp(model.log_worths_).reshape(2, 2, 3)
    worths /= worths.sum(axis=2, keepdims=True)
    assert_allclose(worths.reshape(2, 6), values["worths_within_slate"], atol=1e-7)
    assert model.log_likelihood_ == pytest.approx(values["log_likelihood"])


@pytest.mark.parametrize("name", ["sequential", "maxdiff"])
def test_golden__best_worst(golden: dict[str, Any], name: str) -> None:
    entry = golden["6_best_worst"]
    data, values = made(entry), entry["values"][name]
    rows = []
    for offered, best, worst in zip(data["sets"].tolist(), data["best"].tolist(), data["worst"].tolist(), strict=True):
        rows.append(Ranking(((best,), tuple({*offered} - {best, worst}), (worst,)), (), "absent", 1.0))
    block = RankingBlock.from_rows(rows, n_items=6)
    choices = "best-worst" if name == "sequential" else name
    model = PlackettLuceMixture(1, alpha=0.0, choices=choices).fit(block)
    assert_allclose(model.log_worths_[0], values["log_worths"], atol=1e-8)
    assert model.log_likelihood_ == pytest.approx(values["log_likelihood"])


@pytest.mark.parametrize("weights", ["exponential", "poisson"])
def test_bootstrap__agrees_with_the_sandwich(weights: str) -> None:
    rows, table, _ = choices(14, n=900)
    model = PlackettLuceMixture(1, alpha=0.0).fit(rows, features=table)
    found = model.bootstrap(rows, 120, features=table, weights=weights, random_state=0)
    assert found.converged.all()
    assert found.coefficients is not None
    errors = model.standard_errors(rows, features=table, kind="sandwich").coefficients
    assert errors is not None
    assert_allclose(found.coefficients.std(axis=0, ddof=1), errors.standard_errors, rtol=0.25)
    assert found.coefficients.mean(axis=0) == pytest.approx(model.feature_coefficients_, abs=0.05)


def test_bootstrap__of_persons_refits_with_their_weights() -> None:
    rows, slates = ballots(15, n=300)
    model = PlackettLuceMixture(2, choices=slates, unranked="below", random_state=0).fit(rows)
    found = model.bootstrap(rows, 3, random_state=1, tol=1e-4)
    assert found.shares.shape == (3, 2)
    assert_allclose(found.shares.sum(axis=1), 1.0)
    again = model.bootstrap(rows, 3, random_state=1, tol=1e-4)
    assert found.log_worths.tobytes() == again.log_worths.tobytes()
    from plmix_dist.rankings import RankingBlock as Block
    from plmix_dist.uncertainty.replicates import draw_weights

    terms = model._linear[0]
    block = terms.choices.rows(Block.from_array(rows, n_items=6, unranked="below"))
    factors = draw_weights(block, "exponential", 1, 0, 0)
    refitted = PlackettLuceMixture(2, choices=slates, unranked="below", init=model)
    refitted.fit(rows, sample_weight=factors)
    assert_allclose(found.shares[0], refitted.shares_, atol=1e-4)
    assert_allclose(found.log_worths[0], refitted.log_worths_, atol=2e-3)


def test_selection__finds_the_number_of_blocs() -> None:
    rows, slates = ballots(16, n=900)
    from plmix_dist import MixtureSelection

    template = PlackettLuceMixture(choices=slates, unranked="below")
    found = MixtureSelection(range(1, 4), estimator=template, random_state=0).fit(rows)
    assert found.n_components_ == 2
    for row in found.table_:
        model = found.estimators_[row["n_components"]]
        assert row["bic"] == pytest.approx(model.bic(rows))
        assert row["aic"] == pytest.approx(model.aic(rows))
        chances = model.predict_proba(rows)
        entropy = -(chances * np.log(np.maximum(chances, 1e-300))).sum()
        assert row["icl"] == pytest.approx(row["bic"] + 2 * entropy)
    assert found.best_estimator_.about_["selection"]["words"] == found.words_
    with pytest.raises(SettingsError, match='criterion "held-out" is not made for fits with coefficients'):
        MixtureSelection(range(1, 3), estimator=template, criterion="held-out").fit(rows)


@pytest.mark.parametrize("key", ["reweighted=False,reg=0.5", "reweighted=True,reg=0.5", "reweighted=True,reg=0.001"])
def test_golden__leaderboard_at_equal_style(golden: dict[str, Any], key: str) -> None:
    import plmix_dist as plm

    entry = golden["3_style_control"]
    data, values = made(entry), entry["values"][key]
    reweighted, strength = "True" in key, float(key.split("reg=")[1])
    first, second, outcome = data["a"].tolist(), data["b"].tolist(), data["win"].tolist()
    style = (data["f"] - data["f"].mean(axis=0)) / data["f"].std(axis=0)
    rows, table = [], []
    for a, b, word, own in zip(first, second, outcome, style, strict=True):
        rows.append([{a, b}] if word == "tie" else [a, b] if word == "model_a" else [b, a])
        order = sorted((a, b), key=str) if word == "tie" else rows[-1]
        table += [own if item == a else 0 * own for item in order]
    weights = None
    if reweighted:
        weights = plm.pair_weights([[a, b] for a, b in zip(first, second, strict=True)], min_count=50)
        weights = weights / weights.mean()
    given = Features(np.array(table), intercepts=True, ridge=strength * len(rows), standardised=False)
    model = PlackettLuceMixture(1, alpha=0.0, ties="half", unranked="absent")
    model.fit(rows, features=given, sample_weight=weights)
    assert_allclose(model.feature_coefficients_[0], values["coeffs"], atol=1e-7)  # type: ignore[index]
    board = model.leaderboard(rows, features=given, sample_weight=weights, table="dict")
    order = np.argsort([int(item) for item in board["item"]])
    assert_allclose(board["rating"][order], values["ratings"], atol=1e-6)
    errors = (board["upper"] - board["lower"])[order] / (2 * 1.959963984540054)
    assert_allclose(errors, values["our_sandwich_se_elo"], atol=1e-6)


def test_choice_probabilities__of_rows_and_of_new_items() -> None:
    rows, table, _ = choices(17)
    model = PlackettLuceMixture(2, random_state=0).fit(rows, features=table)
    offered = np.array([[0.3, 0.0, 1.0], [1.0, -1.0, 0.0]])
    utilities = np.exp(offered @ model.feature_coefficients_.T)  # type: ignore[union-attr]
    expected = (utilities / utilities.sum(axis=0)) @ model.shares_
    assert_allclose(model.choice_probabilities([0, 3], features=offered), expected)
    assert model.choice_probabilities([0, 3], features=offered, component="all").shape == (2, 2)
    with pytest.raises(SettingsError, match="coefficients of 3 features of rows; give those of what is offered"):
        model.choice_probabilities([0, 3])
    with pytest.raises(SettingsError, match="this is a prediction of plain Plackett-Luce models"):
        model.expected_ranks()
    rng = np.random.default_rng(0)
    of_items = rng.normal(size=(6, 2))
    keys = of_items @ [1.0, -1.0] + rng.gumbel(size=(300, 6))
    by_item = PlackettLuceMixture(1, alpha=0.0).fit(np.argsort(-keys, axis=1), item_features=of_items)
    assert by_item.expected_ranks().shape == (6,)
    new = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    worths = np.exp(new @ by_item.item_coefficients_[0])  # type: ignore[index]
    assert_allclose(by_item.choice_probabilities(item_features=new), worths / worths.sum())
    assert_allclose(by_item.choice_probabilities([1, 4]), by_item.choice_probabilities(item_features=of_items[[1, 4]]))


def test_elasticities__by_differences() -> None:
    rows, table, _ = choices(18)
    model = PlackettLuceMixture(2, random_state=0).fit(rows, features=Features(table, names=["price", "size", "age"]))
    offered = np.array([[0.3, 0.5, 1.0], [1.0, -1.0, 0.2], [0.7, 0.1, 0.4]])
    found = model.elasticities("size", [0, 1, 2], features=offered)
    for item in range(3):
        sides = []
        for sign in (1, -1):
            moved = offered.copy()
            moved[item, 1] *= 1 + sign * 1e-6
            sides.append(np.log(model.choice_probabilities([0, 1, 2], features=moved)))
        assert_allclose(found[:, item], (sides[0] - sides[1]) / 2e-6, atol=1e-6)
    with pytest.raises(SettingsError, match="'weight' is not a feature of this model"):
        model.elasticities("weight", features=offered)


def test_slates__sample_and_first_choices() -> None:
    rows, slates = ballots(19)
    model = PlackettLuceMixture(2, choices=slates, unranked="below", random_state=0).fit(rows)
    drawn, component = model.sample(20_000, random_state=0)
    assert np.sort(drawn, axis=1).tolist() == [list(range(6))] * len(drawn)
    assert_allclose(np.bincount(component) / len(component), model.shares_, atol=0.02)
    chances = model.choice_probabilities()
    assert chances.sum() == pytest.approx(1.0)
    assert_allclose(np.bincount(drawn[:, 0], minlength=6) / len(drawn), chances, atol=0.015)
    block = RankingBlock.from_array(drawn)
    by_score = -model.score(block)
    again = -model.score(RankingBlock.from_array(model.sample(20_000, random_state=1)[0]))
    assert by_score == pytest.approx(again, rel=0.01)  # the entropy of the model
