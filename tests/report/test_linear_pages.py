"""Pages of models that are not plain: what choices depend on, and nothing that their worths do not say."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, logit, softmax

from plmix_dist import Features, PlackettLuceMixture
from plmix_dist.report.components import effects_of
from plmix_dist.uncertainty.standard_errors import standard_errors
from tests.models.test_linear import ballots, choices
from tests.models.test_linear_readings import OF_ITEMS, ROWS, SETS
from tests.report.test_report import Page

ABOVE = "ranks above an average item"


def text_of(path: Path) -> str:
    """What a reader sees, with bars between parts."""
    page = path.read_text()
    assert not Page(page).open
    page = re.sub(r"<(script|style|svg)\b.*?</\1>", "", page[page.index("<body") :], flags=re.DOTALL)
    page = re.sub(r"</?(td|th|li|p|h\d|div|span|tr|figcaption|dd|dt|a)\b[^>]*>", "|", page)
    page = html.unescape(re.sub(r"<[^>]+>", "", page)).replace("\xa0", " ")
    return re.sub(r"[\s|]*\|[\s|]*", " | ", page)


def row(text: str, name: str) -> str:
    """A row of the first table that has it, as far as the next row."""
    return text.split(f"| {name} |", 1)[1][:160]


def test_slates__cohesion_with_intervals_and_no_comparison_across(tmp_path: Path) -> None:
    rows, slates = ballots(1)
    model = PlackettLuceMixture(2, choices=slates, unranked="below", random_state=0).fit(rows)
    model.report(tmp_path / "a.html", rows)
    text = text_of(tmp_path / "a.html")
    assert "Each group draws a slate for each place, by its cohesion, and then an item of it, by worth" in text
    assert text.count(ABOVE) == text.count(f"{ABOVE} of its slate") >= 3
    for absent in ("Typical rankings", "They rank", "best first", "whatever the worths are"):
        assert absent not in text
    assert "How many groups can be told apart is known for plain rankings alone" in text
    assert "whether such rankings can tell 2 groups apart" in text
    first = model.choice_probabilities()
    best = [model.item_names_[item] for item in np.argsort(-model.choice_probabilities(component=0))[:3]]
    assert f"Most often they choose {best[0]}, {best[1]} and {best[2]} first" in text
    assert f"| {100 * first[0]:.2f} |" in text
    assert model.cohesion_ is not None
    assert f"{model.cohesion_[0, 0]:.3g} error " in row(text, "left")
    # Without the rankings there are numbers, and no errors.
    model.report(tmp_path / "b.html")
    alone = text_of(tmp_path / "b.html")
    assert "How certain these numbers are is not known here" in alone
    assert " error " not in alone


def test_cohesion__intervals_by_numerical_derivatives() -> None:
    rows, slates = ballots(2)
    model = PlackettLuceMixture(2, choices=slates, unranked="below", random_state=0).fit(rows)
    errors = standard_errors(model, rows)
    found = effects_of(model, errors)["cohesion"]
    assert errors.coefficients is not None
    values, n = errors.coefficients.values, len(errors.coefficients.names)
    columns = np.array([1.0, -1.0]) / np.sqrt(2)  # the contrast of two slates, the last column of the design
    for k in range(2):

        def cohesion(last: float) -> Any:
            return logit(softmax(columns * last))

        at = values[k, -1]
        assert_allclose(expit(cohesion(at)), found.values[k])
        slope = (cohesion(at + 1e-5) - cohesion(at - 1e-5)) / 2e-5
        spread = (
            1.959963984540054
            * np.abs(slope)
            * np.sqrt(errors.coefficients.covariance[(k + 1) * n - 1][(k + 1) * n - 1])
        )
        assert_allclose(found.low[k], expit(cohesion(at) - spread), rtol=1e-6)
        assert_allclose(found.high[k], expit(cohesion(at) + spread), rtol=1e-6)


@pytest.mark.parametrize("word", ["best-worst", "maxdiff"])
def test_best_and_worst__a_scale_alone(tmp_path: Path, word: str) -> None:
    model = PlackettLuceMixture(2, choices=word, unranked="absent", random_state=0).fit(SETS)
    model.report(tmp_path / "a.html", SETS)
    text = text_of(tmp_path / "a.html")
    assert "The dot is the worth of an item on a scale from 0 to 100, on which an average item has 50" in text
    for absent in (ABOVE, "Typical rankings", "first from all items", "choose it first", "They rank", "| First |"):
        assert absent not in text
    assert "What choices depend on" not in text
    assert "nan" not in text


@pytest.mark.parametrize("intercepts", [False, True])
def test_features_of_rows__coefficients_with_intervals(tmp_path: Path, intercepts: bool) -> None:
    rows, table, _ = choices(1)
    given = Features(table, names=["price", "size", "<age>"], intercepts=intercepts)
    ages = np.random.default_rng(0).normal(size=(len(rows), 1))
    model = PlackettLuceMixture(2, random_state=0).fit(rows, features=given, membership_covariates=ages)
    model.report(tmp_path / "a.html", rows, features=given, membership_covariates=ages)
    text = text_of(tmp_path / "a.html")
    errors = model.standard_errors(rows, features=given, membership_covariates=ages)
    assert errors.coefficients is not None
    assert errors.share_coefficients is not None
    (low, high), place = errors.coefficients.intervals(), len(errors.coefficients.names) - 3
    value, error = (part[0, place] for part in (errors.coefficients.values, errors.coefficients.standard_errors))
    assert f"{value:.3g} error {error:.2g}, {low[0, place]:.3g} to {high[0, place]:.3g}" in row(text, "price")
    assert "<age>" in text
    value, error = (
        part[1, 1] for part in (errors.share_coefficients.values, errors.share_coefficients.standard_errors)
    )
    assert f"0 | {value:.3g} error {error:.2g}, " in row(text, "covariate 0")
    assert "This fit took features too" in text
    assert "This fit took membership_covariates too" in text
    assert "Typical rankings" not in text
    if intercepts:
        assert text.count(ABOVE) == text.count(f"{ABOVE} where features are equal") >= 3
        assert "At equal features, they rank" in text
    else:
        assert "items have no worths beside them" in text
        for absent in (ABOVE, "All items", "Each group |", "they rank", "what it likes"):
            assert absent not in text


def test_pairs_that_are_known_by_features_alone__have_no_leaderboard(tmp_path: Path) -> None:
    rows, table, _ = choices(3, n_items=2)
    PlackettLuceMixture(1, alpha=0.0).fit(rows, features=table).report(tmp_path / "a.html", rows, features=table)
    assert "eaderboard" not in text_of(tmp_path / "a.html")


def test_features_of_items__a_portrait_and_coefficients(tmp_path: Path) -> None:
    model = PlackettLuceMixture(1).fit(ROWS, item_features=OF_ITEMS)
    model.report(tmp_path / "a.html", ROWS)
    text = text_of(tmp_path / "a.html")
    assert "One ranking of everyone's tastes" in text
    assert "Typical rankings begin" in text
    assert "| item_feature 1 |" in text
    assert " error " in row(text, "item_feature 0")


def test_covariates__shares_have_errors(tmp_path: Path) -> None:
    ages = np.random.default_rng(0).normal(size=(len(ROWS), 2))
    model = PlackettLuceMixture(2, random_state=0).fit(ROWS, membership_covariates=ages)
    model.report(tmp_path / "a.html", ROWS, membership_covariates=ages)
    text = text_of(tmp_path / "a.html")
    assert " error " in row(text, "covariate 1")
    assert "with 95 % intervals" in text
    kept = PlackettLuceMixture(2, random_state=0, ties="marginal").fit(ROWS, membership_covariates=ages)
    kept.report(tmp_path / "b.html", ROWS, membership_covariates=ages)  # which have none, and a page all the same
    assert "How certain these numbers are is not known here" in text_of(tmp_path / "b.html")
