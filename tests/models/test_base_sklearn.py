"""scikit-learn's own checks of an estimator: which pass, which do not apply to rankings, and why."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import plmix_dist as pl
from plmix_dist.errors import RankingError
from tests.helpers.ranked_columns import RankedColumns

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

# --- the checks ------------------------------------------------------------------------------------------

_MEASUREMENTS = "its table holds measurements; a row of rankings holds item numbers, and a measurement is an error"
_NUMBERED = "its items run from 1 to 4; item numbers begin with 0, and the error says so"
_ITS_WORDS = "it expects scikit-learn's words of an error; ours speak of rankings"

# Of PlackettLuceMixture itself. With RankedColumns, which ranks the columns of a table, every one of these passes.
NOT_FOR_RANKINGS = {
    **dict.fromkeys(
        (
            "check_dict_unchanged",
            "check_dont_overwrite_parameters",
            "check_dtype_object",
            "check_estimators_dtypes",
            "check_estimators_fit_returns_self",
            "check_estimators_nan_inf",
            "check_estimators_overwrite_params",
            "check_estimators_pickle",
            "check_f_contiguous_array_estimator",
            "check_fit2d_predict1d",
            "check_fit_check_is_fitted",
            "check_fit_idempotent",
            "check_fit_score_takes_y",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
            "check_n_features_in",
            "check_n_features_in_after_fitting",
            "check_pipeline_consistency",
            "check_positive_only_tag_during_fit",
            "check_readonly_memmap_input",
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weights_list",
            "check_transformer_data_not_an_array",
            "check_transformer_general",
            "check_transformer_n_iter",
            "check_transformer_preserve_dtypes",
        ),
        _MEASUREMENTS,
    ),
    **dict.fromkeys(
        (
            "check_sample_weights_not_an_array",
            "check_sample_weights_not_overwritten",
            "check_sample_weights_pandas_series",
            "check_sample_weights_shape",
        ),
        _NUMBERED,
    ),
    **dict.fromkeys(
        (
            "check_all_zero_sample_weights_error",
            "check_complex_data",
            "check_estimators_empty_data_messages",
            "check_fit2d_1feature",
            "check_fit2d_1sample",
        ),
        _ITS_WORDS,
    ),
}
_QUICK = {"init": "random", "tol": 1e-6, "random_state": 0}
_ANOTHER_MACHINE = "check_array_api_input"  # skipped unless SCIPY_ARRAY_API is set


def outcomes(estimator: Any, expected: dict[str, str] | None = None) -> dict[str, set[str]]:
    """The statuses of each of scikit-learn's checks; a check may run several times."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=expected)
    statuses: dict[str, set[str]] = {}
    for record in found:
        statuses.setdefault(record["check_name"], set()).add(record["status"])
    statuses.pop(_ANOTHER_MACHINE, None)
    return statuses


@pytest.mark.promise(41)
def test_scikit_learns_checks__those_that_do_not_apply_are_listed_with_the_reason() -> None:
    found = outcomes(pl.PlackettLuceMixture(**_QUICK), NOT_FOR_RANKINGS)
    assert {name for name, status in found.items() if status == {"xfail"}} == set(NOT_FOR_RANKINGS) & set(found)
    assert {name for name, status in found.items() if status == {"passed"}} == set(found) - set(NOT_FOR_RANKINGS)
    assert len(found) - len(NOT_FOR_RANKINGS) >= 16  # names, parameters, clones, sparse and one-dimensional data


@pytest.mark.promise(41)
def test_scikit_learns_checks__all_pass_where_the_columns_of_a_table_are_ranked() -> None:
    found = outcomes(RankedColumns(**_QUICK))
    assert {name: status for name, status in found.items() if status != {"passed"}} == {}
    assert set(NOT_FOR_RANKINGS) & set(found)


# --- pipelines, searches, containers ----------------------------------------------------------------------


def two_groups(n_rankings: int = 200) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Full rankings of five items by two groups of opposite tastes, and the group of each."""
    mixture = pl.PlackettLuceMixture.from_arrays([[2.0, 1, 0, -1, -2], [-2, -1, 0, 1, 2]], [0.6, 0.4])
    return mixture.sample(n_rankings, random_state=3)


def test_pipeline__from_a_table_of_scores_to_memberships_to_a_classifier() -> None:
    rankings, group = two_groups()
    scores = -np.argsort(rankings, axis=1)
    ranked = FunctionTransformer(lambda table: np.argsort(-table, axis=1))
    pipeline = make_pipeline(ranked, pl.PlackettLuceMixture(2, random_state=0), LogisticRegression())
    pipeline.fit(scores, group)
    assert pipeline.score(scores, group) > 0.85
    assert pipeline[1].get_feature_names_out().tolist() == ["component 0", "component 1"]
    memberships = pipeline[:-1].transform(scores)
    np.testing.assert_array_equal(memberships, pipeline[1].predict_proba(rankings))


def test_cross_validation__held_out_scores_prefer_two_groups() -> None:
    rankings, _ = two_groups()
    one, two = (cross_val_score(pl.PlackettLuceMixture(k, random_state=0), rankings, cv=3).mean() for k in (1, 2))
    assert two > one + 0.1
    search = GridSearchCV(pl.PlackettLuceMixture(random_state=0), {"n_components": [1, 2]}, cv=3).fit(rankings)
    assert search.best_params_ == {"n_components": 2}
    assert search.best_score_ == pytest.approx(two)
    assert search.n_features_in_ == 5


def test_set_output__chooses_the_container_of_memberships() -> None:
    rankings, _ = two_groups(50)
    model = pl.PlackettLuceMixture(2, random_state=0).set_output(transform="pandas")
    table = model.fit_transform(rankings)
    assert isinstance(table, pd.DataFrame)
    assert table.columns.tolist() == ["component 0", "component 1"]
    np.testing.assert_array_equal(table.to_numpy(), model.predict_proba(rankings))
    assert isinstance(model.set_output(transform="default").transform(rankings), np.ndarray)


def test_n_features_in__is_the_number_of_items_after_a_fit_and_after_loading(tmp_path: Path) -> None:
    model = pl.PlackettLuceMixture(1, unranked="below", random_state=0)
    assert not hasattr(model, "n_features_in_")
    model.fit([["tea", "mate"], ["mate"], ["milk", "tea"]])
    assert model.n_features_in_ == 3
    model.save(tmp_path / "model")
    assert pl.PlackettLuceMixture.load(tmp_path / "model").n_features_in_ == 3


def test_sparse_input__is_refused_in_words() -> None:
    with pytest.raises(RankingError, match=r"sparse input is not supported: .*item 0 would be lost; give a dense"):
        pl.PlackettLuceMixture(1).fit(sparse.csr_array(np.array([[0, 1], [1, 0]])))
