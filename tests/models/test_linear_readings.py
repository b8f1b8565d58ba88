"""What is said of models whose log-worths are not worths among all items, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import plmix_dist as plm
from plmix_dist import Features, PlackettLuceMixture, Slates, metrics, plots
from plmix_dist.errors import SettingsError
from tests.models.test_linear import ballots, choices

SETS: list[Any] = [["a", {"b", "c"}, "d"], ["a", {"c", "d"}, "b"], ["b", {"a", "d"}, "c"], ["c", {"a", "b"}, "d"]] * 10
RNG = np.random.default_rng(0)
ROWS = np.array([RNG.permutation(4) for _ in range(300)])
OF_ITEMS = RNG.normal(size=(4, 2))


def of_two_slates() -> tuple[PlackettLuceMixture, np.ndarray]:
    """One bloc that favours a slate of two, whose items are as good as those of a slate of three."""
    rows = [[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [0, 1, 4, 2, 3], [1, 2, 0, 3, 4]] * 9 + [
        [2, 0, 1, 3, 4],
        [3, 1, 4, 2, 0],
    ] * 2
    slates = Slates({"left": ["0", "1"], "right": ["2", "3", "4"]})
    table = np.array(rows)
    return PlackettLuceMixture(1, alpha=0.0, choices=slates).fit(table), table


def of_rows(*, intercepts: bool = False) -> tuple[PlackettLuceMixture, Any, Features]:
    rows, table, _ = choices(21)
    given = Features(table, names=["price", "size", "age"], intercepts=intercepts)
    return PlackettLuceMixture(2, random_state=0).fit(rows, features=given), rows, given


def test_slates__first_choices_are_those_of_all_items() -> None:
    model, _ = of_two_slates()
    first = model.choice_probabilities()
    assert first[:2].sum() > 0.8
    frame = model.worths_frame(log=False, table="dict")
    assert_allclose(frame["component 0"], first)
    assert list(frame["slate"]) == ["left", "left", "right", "right", "right"]
    lines = str(model.summary(2)).splitlines()
    shown = [line.split()[:2] for line in lines if line.startswith("  ")]
    assert shown == [["item", "slate"], ["0", "left"], ["1", "left"]]
    assert any("share 100.0 %; cohesion: left 82" in line for line in lines)
    assert "log-worths compare items of one slate" in str(model.summary())
    card = model._repr_html_()
    assert card.index("<bdi>1</bdi>") < card.index("<bdi>2</bdi>")


def test_slates__what_compares_all_items_is_refused() -> None:
    model, rows = of_two_slates()
    plain = PlackettLuceMixture(1).fit(rows)
    for call in (
        lambda: model.leaderboard(rows),
        lambda: plain.leaderboard(against=model),
        lambda: plots.plot_components(model),
    ):
        with pytest.raises(SettingsError, match="but here worths compare items of one slate"):
            call()
    for plain_alone in (
        lambda: model.top_items(2),
        lambda: model.first_choice_calibration(rows),
        lambda: metrics.local_stability(model, [0]),
    ):
        with pytest.raises(SettingsError, match="plain Plackett-Luce models, and this one has choices='slates'"):
            plain_alone()


def test_slates__differences_across_them_are_not_known() -> None:
    model, rows = of_two_slates()
    errors = model.standard_errors(rows)
    across = np.ix_([0, 1], [2, 3, 4])
    repeated = model.bootstrap(rows, 5, random_state=0).differences()
    for found in (errors.differences(), errors.pairwise_probabilities(0), errors.pairwise_probabilities(), repeated):
        for values in found:
            assert np.isnan(values[across]).all()
            assert np.isfinite(values[:2, :2]).all()
    with pytest.raises(SettingsError, match="quasi-variances need"):
        errors.quasi_variances()


@pytest.mark.parametrize("word", ["best-worst", "maxdiff"])
def test_best_and_worst__have_no_first_choices(word: str) -> None:
    model = PlackettLuceMixture(1, choices=word, unranked="absent").fit(SETS)
    text = str(model.summary())
    assert "first" not in text
    assert "log-worths are a scale of what is chosen as best and as worst" in text
    assert "%</div>" not in model._repr_html_().split("favourites")[1]
    assert model.leaderboard(SETS, table="dict")["item"][0] == "a"
    with pytest.raises(SettingsError, match=f"of slates, and this one has choices='{word}'"):
        model.sample()
    with pytest.raises(SettingsError, match=f"and here are choices='{word}'; leave out given"):
        model.choice_probabilities(given=SETS)
    with pytest.raises(SettingsError, match=r"leave (features out|out features)"):
        model.choice_probabilities(features=[[1.0]] * 4)


def test_features_of_rows__worths_are_at_equal_features_or_none() -> None:
    model, rows, given = of_rows()
    assert "items have no worths beside features" in str(model.summary())
    assert "log-worth" not in str(model.summary()).split("component 0")[1].split("items have")[0]
    with pytest.raises(SettingsError, match="here items have no worths beside features"):
        model.leaderboard(rows, features=given)
    for call in (lambda: model.first_choice_calibration(rows, features=given), lambda: model.top_items()):
        with pytest.raises(SettingsError, match="plain Plackett-Luce models, and this one has features of rows"):
            call()
    with pytest.raises(SettingsError, match="and this one has features of rows; choice_probabilities"):
        model.sample()
    with pytest.raises(SettingsError, match="and here are features of rows; leave out given"):
        model.choice_probabilities(given=rows, features=given)
    model, rows, given = of_rows(intercepts=True)
    assert "log-worths and first choices are those at equal features" in str(model.summary())
    assert_allclose(model.worths_frame(log=False, table="dict")["component 0"].sum(), 1.0)


def test_items_offered__only_one_thing_says_it() -> None:
    model = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, item_features=OF_ITEMS)
    with pytest.raises(SettingsError, match="and here are item_features beside it; leave out given"):
        model.choice_probabilities(given=ROWS[:3], item_features=OF_ITEMS)
    with pytest.raises(SettingsError, match="item_features say what is offered, one line each; leave out offered"):
        model.choice_probabilities([0, 1], item_features=OF_ITEMS)
    with pytest.raises(SettingsError, match="leave out offered"):
        model.elasticities("item_feature 0", [0, 1], item_features=OF_ITEMS)
    assert model.choice_probabilities(given=ROWS[:3, :2], unranked="below").shape == (3, 4)
    rows, slates = ballots(22, n=100)
    blocs = PlackettLuceMixture(1, choices=slates, unranked="below").fit(rows)
    with pytest.raises(SettingsError, match="and here are choices='slates'; leave out given"):
        blocs.choice_probabilities(given=rows)
    with pytest.raises(SettingsError, match=r"leave (features out|out features)"):
        blocs.choice_probabilities(features=np.ones((6, 1)))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (OF_ITEMS[:2], ["new 0", "new 1"]),
        ({"kvass": OF_ITEMS[0], "cola": OF_ITEMS[1]}, ["kvass", "cola"]),
        (pd.DataFrame(OF_ITEMS[:2]), ["new 0", "new 1"]),
        (pd.DataFrame(OF_ITEMS[:2], index=["kvass", "cola"]), ["kvass", "cola"]),
        (pd.DataFrame(OF_ITEMS[:2]).assign(item=["kvass", "cola"]), ["kvass", "cola"]),
    ],
)
def test_new_items__have_names_of_their_own(given: Any, names: list[str]) -> None:
    model = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, item_features=OF_ITEMS)
    if not isinstance(given, dict | np.ndarray):
        given.columns = [{0: "item_feature 0", 1: "item_feature 1"}.get(name, name) for name in given.columns]
    found = model.choice_probabilities(item_features=given, named="dict")
    assert found["item"].tolist() == names
    assert_allclose(found["probability"], model.choice_probabilities([0, 1]))
    assert_array_equal(model.choice_probabilities([2, 1], named="dict")["item"], ["2", "1"])


def test_new_items__as_many_as_there_are_and_with_their_columns() -> None:
    model = PlackettLuceMixture(1, alpha=0.0).fit(ROWS, item_features=OF_ITEMS)
    found = model.choice_probabilities(item_features=np.arange(18.0).reshape(9, 2) / 20, named="dict")
    assert found["item"].tolist() == [f"new {number}" for number in range(9)]
    with pytest.raises(SettingsError, match="have 1 columns, but the"):
        model.choice_probabilities(item_features=[[1.0], [2.0]])


def test_methods_of_fits_and_rows__take_what_the_fit_took() -> None:
    model, rows, given = of_rows()
    expected = model.predict_proba(rows, features=given)
    assert_array_equal(model.transform(rows, features=given), expected)
    again = PlackettLuceMixture(2, random_state=0)
    assert_array_equal(again.fit_transform(rows, features=given), expected)
    assert_array_equal(again.fit_predict(rows, features=given), expected.argmax(axis=1))
    assert " error  " in str(PlackettLuceMixture(1).fit(rows, features=Features(given.values, intercepts=True)).summary(
        X=rows, features=given.values))  # fmt: skip
    short, ages = [["tea", "mate"], ["milk"], ["mate"]] * 20, np.arange(60.0)[:, None] / 60
    options: dict[str, Any] = {"unranked": "below", "membership_covariates": ages}
    drinks = PlackettLuceMixture(2, random_state=0)
    found = drinks.fit_transform(short, **options)
    assert_array_equal(found, drinks.predict_proba(short, **options))
    assert_array_equal(drinks.fit_predict(short, **options), found.argmax(axis=1))
    assert drinks.set_output(transform="pandas").fit_transform(short, **options).shape == (60, 2)
    assert "error" in str(drinks.summary(X=short, **options))


def test_plain_models__read_as_before() -> None:
    model = plm.PlackettLuceMixture(1).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
    reading = model._reading()
    assert (reading.kind, reading.slates) == ("all", None)
    assert reading.by is model.log_worths_
