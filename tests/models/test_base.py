"""What all estimators share: one build, free parameters, warnings at the caller's line, saving, tables."""

from __future__ import annotations

import inspect
import math
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import plmix_dist as pl
from plmix_dist import PlackettLuceMixture, SpectralPlackettLuce
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NotConvergedWarning, NotIdentifiableWarning, RankingError, SettingsError, WeightWarning
from plmix_dist.fitting.fit import fit_mixture
from plmix_dist.fitting.methods import FitSettings
from tests.helpers.fit_oracle import block_of, log_likelihood, slate

ROWS = [
    slate([0, 1, 2, 3], [], weight=7.0),
    slate([3, 1, 0, 2], [], weight=2.5),
    slate([2, 0, 3, 1], []),
    slate([1, 3, 2, 0], []),
]
WEIGHT = 11.5


def n_parameters(model: Any, rows: Any) -> tuple[float, float]:
    """The numbers of parameters that bic and aic have counted, by their definitions."""
    total = log_likelihood(ROWS, 4, model.log_worths_, model.shares_.tolist())
    return (model.bic(rows) + 2 * total) / math.log(WEIGHT), (model.aic(rows) + 2 * total) / 2


@pytest.mark.parametrize(
    ("shares", "expected"), [(None, 2 * 3 + 1), ([0.7, 0.3], 2 * 3), (np.array([0.5, 0.5]), 2 * 3)]
)
def test_free_parameters__fixed_shares_are_not_free(shares: Any, expected: int, tmp_path: Path) -> None:
    rows = block_of(ROWS, 4)
    model = PlackettLuceMixture(2, alpha=0.5, shares=shares, random_state=0).fit(rows)
    assert n_parameters(model, rows) == pytest.approx((expected, expected))
    model.save(tmp_path / "model")
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    assert loaded.bic(rows) == model.bic(rows)
    assert loaded.aic(rows) == model.aic(rows)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.StartWarning")
def test_free_parameters__spectral() -> None:
    rows = block_of(ROWS, 4)
    assert n_parameters(SpectralPlackettLuce(2, random_state=0).fit(rows), rows) == pytest.approx((7, 7))


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.CollapsedComponentWarning")
def test_free_parameters__components_that_are_left() -> None:
    rows = block_of(ROWS, 4)
    model = PlackettLuceMixture(3, alpha=3.0, random_state=0).fit(rows)
    assert len(model.shares_) == 2  # the prior is stronger than what a third component would gain
    assert n_parameters(model, rows) == pytest.approx((7, 7))


ESTIMATORS = (pl.PlackettLuceMixture, pl.SpectralPlackettLuce, pl.BayesianPlackettLuceMixture)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators__are_built_alike(estimator: type) -> None:
    own = [each for each in estimator.__mro__ if each.__module__.startswith("plmix_dist.")]
    assert len(own) <= 4, own
    assert own[1:] == list(pl.PlackettLuceMixture.__mro__[1:4])  # the same base, the same predictions


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_signatures__name_what_users_may_pass(estimator: type) -> None:
    for name in ("predict_proba", "score", "choice_probabilities", "complete", "memberships"):
        parameters = inspect.signature(getattr(estimator, name)).parameters
        assert {"unranked", "client", "membership_covariates"} <= set(parameters), name


@pytest.mark.parametrize("estimator", [*ESTIMATORS, pl.MixtureSelection])
def test_signatures__spelled_out(estimator: type) -> None:
    found = inspect.signature(estimator.fit).parameters  # type: ignore[attr-defined]
    assert "how" not in found
    assert {"sample_weight", "n_items", "unranked", "client"} <= set(found)
    assert found["client"].annotation == "ClientLike"
    assert found["client"].default is None
    assert hasattr(estimator, "set_fit_request")  # scikit-learn has read the names
    assert ("membership_covariates" in found) == (estimator in (pl.PlackettLuceMixture, pl.MixtureSelection))


def test_keywords__unknown_ones_are_refused_also_where_they_would_not_be_used() -> None:
    model = PlackettLuceMixture(1).fit([[0, 1], [1, 0]])
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (model.fit, ([[0, 1]],)),
        (model.predict, ([[0, 1]],)),
        (model.expected_ranks, ()),
        (model.choice_probabilities, ([0],)),
        (model.bic, ([[0, 1]],)),
    ]
    for method, arguments in calls:
        with pytest.raises(TypeError, match=rf"{method.__name__}\(\) got an unexpected keyword argument 'clients'"):
            method(*arguments, clients=None)
    with pytest.raises(TypeError, match="membership_covariates"):
        pl.BayesianPlackettLuceMixture(1).fit([[0, 1]], membership_covariates=[1])  # type: ignore[call-arg]


def test_spectral__saved_and_loaded(tmp_path: Path) -> None:
    rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
    model = pl.SpectralPlackettLuce(2, random_state=3, residency="memory").fit(rankings)
    model.save(tmp_path / "model")
    again = pl.SpectralPlackettLuce.load(tmp_path / "model")
    for name in ("log_worths_", "shares_", "singular_values_", "vectors_", "labels_"):
        assert_array_equal(getattr(again, name), getattr(model, name))
    assert (again.rank_, again.embedding_, again.n_sampled_) == (model.rank_, model.embedding_, 40)
    assert again.get_params() == model.get_params()
    assert pl.PlackettLuceMixture.load(tmp_path / "model").score(rankings) == model.score(rankings)
    pl.PlackettLuceMixture(2, random_state=0).fit(rankings).save(tmp_path / "other")
    with pytest.raises(SettingsError, match=r"is not a spectral one; load it with PlackettLuceMixture\.load"):
        pl.SpectralPlackettLuce.load(tmp_path / "other")


SMALL = [[0, 1, 2, 3]] * 6 + [[3, 2, 1, 0]] * 4 + [[1, 0, 3, 2]] * 2
WARNED: list[tuple[str, Any]] = [
    ("fit", lambda: pl.PlackettLuceMixture(2, max_iter=1, random_state=0).fit(SMALL)),
    ("fit_predict", lambda: pl.PlackettLuceMixture(2, max_iter=1, random_state=0).fit_predict(SMALL)),
    ("fit_transform", lambda: pl.PlackettLuceMixture(2, max_iter=1, random_state=0).fit_transform(SMALL)),
    ("spectral", lambda: pl.SpectralPlackettLuce(2, method="paper", random_state=0).fit(SMALL)),
    (
        "select",
        lambda: pl.MixtureSelection(
            [1, 2], criterion="held-out", n_folds=2, estimator=pl.PlackettLuceMixture(max_iter=2), random_state=0
        ).fit(SMALL),
    ),
    ("bayes", lambda: pl.BayesianPlackettLuceMixture(2, n_warmup=1, n_draws=2, random_state=0).fit(SMALL)),
    ("standard_errors", lambda: pl.PlackettLuceMixture.from_arrays([[3.0, 1.0, 0.0, -4.0]]).standard_errors(SMALL)),
    (
        "bootstrap",
        lambda: pl.bootstrap(
            pl.PlackettLuceMixture(2, random_state=0).fit(SMALL), SMALL, 8, max_iter=2, tol=1e-9, random_state=0
        ),
    ),
]


@pytest.mark.parametrize("call", [call for _, call in WARNED], ids=[name for name, _ in WARNED])
def test_warnings__are_given_at_the_callers_line(call: Any) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert found
    package = str(Path(pl.__file__).parent)
    assert not any(each.filename.startswith(package) for each in found)
    # fit_transform is scikit-learn's, and calls fit.
    assert all(each.filename == __file__ or "sklearn" in each.filename for each in found)


def test_fit__carries_its_warnings() -> None:
    rankings = as_rankings(SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is given on the way
        fitted = fit_mixture(rankings, FitSettings(2, max_iter=1), None, None)
    kinds = [type(each) for each in fitted.warnings]
    assert NotConvergedWarning in kinds
    assert len(kinds) == len(set(kinds))


def test_fit__gives_all_of_its_warnings() -> None:
    pairs = [[0, 1]] * 6 + [[1, 2]] * 5 + [[2, 0]] * 4 + [[1, 0]] * 3
    with pytest.warns() as found:
        PlackettLuceMixture(3, max_iter=1, init="random", unranked="absent", random_state=0).fit(pairs)
    assert {each.category for each in found} >= {NotConvergedWarning, NotIdentifiableWarning}


VOTES = [["tea", "mate", "milk"]] * 30 + [["milk", "mate", "tea"]] * 10


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict"])
def test_tables__of_every_kind_with_ids(tmp_path, kind):
    lines = ["id,item,rank", *(f"voter-{row},{item},{place}" for row, items in enumerate(VOTES) for place, item in
             enumerate(items, start=1))]  # fmt: skip
    (tmp_path / "v.csv").write_text("\n".join(lines) + "\n")
    store = pl.ingest(tmp_path / "v.csv", tmp_path / "s", format="long")
    model = pl.PlackettLuceMixture(2, random_state=0).fit(store)
    members, worths = model.memberships(store, table=kind), model.worths_frame(table=kind)
    as_lists = [
        {name: list(np.asarray(table[name])) for name in (table.column_names if kind == "arrow" else table)}
        if kind != "polars"
        else table.to_dict(as_series=False)
        for table in (members, worths)
    ]
    assert [str(one) for one in as_lists[0]["id"]] == [f"voter-{row}" for row in range(40)]
    np.testing.assert_allclose(as_lists[0]["probability 0"], np.asarray(model.predict_proba(store))[:, 0], rtol=1e-12)
    assert [str(one) for one in as_lists[1]["item"]] == list(model.item_names_)


# --- summaries, and predictions with names ------------------------------------------------------------------------

DRINKS = [["tea", "mate", "milk"]] * 30 + [["milk", "mate", "tea"]] * 12 + [["mate", "tea", "milk"]] * 9


@pytest.fixture(scope="module")
def drinks() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pl.PlackettLuceMixture(2, random_state=0).fit(DRINKS, sample_weight=np.full(51, 2.0))


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.ShrunkenWarning")
def test_summary__has_criteria_errors_and_intervals(drinks: Any) -> None:
    weights = np.full(51, 2.0)
    errors = drinks.standard_errors(DRINKS, sample_weight=weights)
    text = str(drinks.summary(2, standard_errors=errors))
    twice = DRINKS + DRINKS
    assert f"BIC {drinks.bic(twice):,.1f}, AIC {drinks.aic(twice):,.1f}" in text
    assert "fitted to 51 rankings, total weight 102" in text
    best = int(drinks.log_worths_[0].argmax())
    low, high = (end[0, best] for end in errors.intervals().log_worths)
    assert re.search(
        rf"{drinks.item_names_[best]} +{drinks.log_worths_[0, best]:.3f} +{errors.log_worths[0, best]:.3f} +"
        rf"{low:.3f} to {high:.3f}",
        text,
    )
    assert "1 more item in each component" in text
    assert "95 % interval" not in drinks.summary()
    assert drinks.summary(2, X=twice) == text
    found = drinks.bootstrap(DRINKS, 20, sample_weight=weights, random_state=0)
    assert_array_equal(found.shares, pl.bootstrap(drinks, DRINKS, 20, sample_weight=weights, random_state=0).shares)
    assert f"{found.standard_errors().log_worths[0, best]:.3f}" in drinks.summary(standard_errors=found)
    with pytest.raises(SettingsError, match="of this model gave"):
        drinks.summary(standard_errors=3)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.ShrunkenWarning")
def test_summary__for_prompts_and_notebooks(drinks: Any) -> None:
    found = drinks.summary()
    assert repr(found) == str(found)
    assert "<td><bdi>tea</bdi></td>" in found._repr_html_()
    assert pickle.loads(pickle.dumps(found)).html == found.html
    for one in (drinks.standard_errors(DRINKS * 2), drinks.bootstrap(DRINKS * 2, 20, random_state=0)):
        assert 2 <= len(repr(one).splitlines()) <= 4
        assert "array" not in repr(one)
    with pytest.raises(SettingsError, match="has no standard errors"):
        pl.SpectralPlackettLuce(2, random_state=0).fit(DRINKS).summary(X=DRINKS)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotIdentifiableWarning")
def test_summary__of_draws_has_r_hat_and_effective_sizes() -> None:
    model = pl.BayesianPlackettLuceMixture(2, n_warmup=5, n_draws=8, random_state=0).fit(DRINKS)
    text, mixed = str(model.summary()), model.diagnostics_
    assert ("HAVE NOT MIXED" in text) != model.converged_
    assert f"{mixed.r_hat.log_worths[0].max():.3f}" in text
    assert f"{min(mixed.bulk_ess.log_worths[0, 0], mixed.tail_ess.log_worths[0, 0]):,.0f}" in text
    with pytest.raises(SettingsError, match="have their own errors"):
        model.summary(X=DRINKS)


@pytest.mark.parametrize("given", [None, [["tea"], ["milk", "mate"]]])
@pytest.mark.parametrize("component", [None, "all"])
@pytest.mark.parametrize(
    ("name", "options", "number"),
    [
        ("expected_ranks", {}, "expected rank"),
        ("choice_probabilities", {}, "probability"),
        ("choice_probabilities", {"offered": ["tea", "mate"]}, "probability"),
        ("top_k_probabilities", {"k": 2}, "probability"),
        ("pairwise_probabilities", {"items": ["tea", "milk"]}, "probability"),
    ],
)
def test_named__every_row_is_its_number(
    drinks: Any, name: str, options: dict[str, Any], number: str, component: str | None, given: Any
) -> None:
    more = {"component": component, "given": given, **({"unranked": "below"} if given else {}), **options}
    values = getattr(drinks, name)(**more)
    table = getattr(drinks, name)(**more, named="dict")
    names = options.get("items") or options.get("offered") or list(drinks.item_names_)
    assert len(table[number]) == values.size
    for row in range(values.size):
        place = [table[column][row] for column in ("ranking", "component") if column in table]
        place += [names.index(table[column][row]) for column in ("item", "other") if column in table]
        assert_array_equal(table[number][row], values[tuple(place)])


def test_named__rankings_go_back_into_a_fit(drinks: Any) -> None:
    table, component = drinks.sample(30, random_state=0, named=True)
    orders, same = drinks.sample(30, random_state=0)
    assert_array_equal(component, same)
    assert table["place 1"].tolist() == [drinks.item_names_[row[0]] for row in orders]
    assert drinks.score(table) == pytest.approx(drinks.score(orders))
    completed = drinks.complete([["tea", "mate"], ["milk", "tea"]], unranked="absent", named="dict")
    assert [completed[f"place {place}"].tolist() for place in (1, 2, 3)] == [["tea", "milk"], ["mate", "tea"], ["", ""]]
    found = drinks.most_probable_ranking(named=True)
    assert found.order.tolist() == [drinks.item_names_[item] for item in drinks.most_probable_ranking().order]


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotIdentifiableWarning")
@pytest.mark.parametrize("unranked", ["below", "absent"])
def test_unranked__is_remembered_after_a_fit_of_a_store(tmp_path: Path, unranked: Any) -> None:
    rows = [["tea", "mate"], ["mate", "tea"], ["tea", "mate", "milk"], ["milk", "tea"]] * 5
    block = pl.RankingBlock.from_array(
        [[0, 1, -1], [1, 0, -1], [0, 1, 2], [2, 0, -1]] * 5, n_items=3, unranked=unranked
    )
    pl.PlackettLuceMixture(1).fit(block).save(tmp_path / "model")
    (tmp_path / "rows.csv").write_text("".join(",".join([*row, "", ""][:3]) + "\n" for row in rows))
    store = pl.ingest(tmp_path / "rows.csv", tmp_path / "store", unranked=unranked)
    for model in (
        pl.PlackettLuceMixture.load(tmp_path / "model"),
        pl.PlackettLuceMixture(1).fit(store),
        pl.MixtureSelection([1], random_state=0).fit(store).best_estimator_,
    ):
        assert model.unranked_ == unranked
        assert model.predict([[0, 1]] if model.item_names_[0] == "0" else [["tea", "milk"]]).tolist() == [0]


def test_unranked__of_rows_that_do_not_agree_is_not_guessed() -> None:
    block = pl.RankingBlock.from_rows(
        [pl.Ranking(((0,), (1,)), (), "below", 1.0), pl.Ranking(((2,), (1,)), (), "absent", 1.0)], n_items=3
    )
    model = pl.PlackettLuceMixture(1).fit(block)
    assert model.unranked_ is None
    with pytest.raises(RankingError, match="unranked"):
        model.predict([[0]])


def test_package__lists_what_users_call() -> None:
    assert {"plots", "metrics", "errors", "PlackettLuceMixture"} <= set(dir(pl))
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib"} & set(dir(pl))
    assert pl.plots.plot_worths.__module__ == "plmix_dist.plots"
    assert issubclass(pl.errors.SettingsError, Exception)
    with pytest.raises(AttributeError, match="has no attribute 'Any'"):
        pl.__getattr__("Any")


# --- weights are counts ------------------------------------------------------------------------------------


def test_criteria__sample_weight_is_copies() -> None:
    rows, weights = np.array([[0, 1, 2], [2, 1, 0], [1, 0, 2]]), np.array([9.0, 4.0, 2.0])
    copies = np.repeat(rows, weights.astype(int), axis=0)
    model = PlackettLuceMixture(2, random_state=0).fit(rows, sample_weight=weights)
    for name in ("bic", "aic"):
        criterion = getattr(model, name)
        assert criterion(rows, sample_weight=weights) == pytest.approx(criterion(copies), rel=1e-12)
        with pytest.warns(WeightWarning, match="had a weight of 15, and these have 3; give the sample_weight"):
            criterion(rows)


def test_criteria__weights_that_sum_to_one() -> None:
    rows, shares = np.array([[0, 1, 2], [2, 1, 0], [1, 0, 2]]), np.array([0.6, 0.3, 0.1])
    with pytest.warns(WeightWarning, match="weights of 3 rankings sum to about 1, but weights are counts"):
        model = PlackettLuceMixture(1, random_state=0).fit(rows, sample_weight=shares)
    with pytest.warns(WeightWarning, match="sum to 1, but weights are counts of rankings; multiply them"):
        model.bic(rows, sample_weight=shares)
    with pytest.warns(WeightWarning):
        pl.MixtureSelection((1,), random_state=0).fit(rows, sample_weight=shares)
