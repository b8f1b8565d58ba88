"""A mixture over tables of measurements: the columns of each row are ranked. scikit-learn's checks can run on it."""

# ruff: noqa: N803 - X is scikit-learn's name for the data

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from plmix_dist import PlackettLuceMixture


class RankedColumns(PlackettLuceMixture):
    """PlackettLuceMixture, of the order of the columns of each row, largest first."""

    def fit(self, X: Any, y: object = None, *, sample_weight: Any = None) -> RankedColumns:
        table = validate_data(self, X, ensure_min_features=2, ensure_min_samples=2)
        return super().fit(_order(table), n_items=table.shape[1], sample_weight=sample_weight)

    @property
    def n_features_in_(self) -> int:
        if "n_features_in_" not in self.__dict__:
            raise AttributeError("n_features_in_")
        return int(self.__dict__["n_features_in_"])

    @n_features_in_.setter
    def n_features_in_(self, value: int) -> None:
        self.__dict__["n_features_in_"] = value

    def predict(self, X: Any) -> Any:
        return super().predict(self._ranked(X))

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(self._ranked(X))

    def transform(self, X: Any) -> Any:
        return super().transform(self._ranked(X))

    def score_samples(self, X: Any) -> Any:
        return super().score_samples(self._ranked(X))

    def score(self, X: Any, y: object = None, *, sample_weight: Any = None) -> float:
        return super().score(self._ranked(X), sample_weight=sample_weight)

    def fit_predict(self, X: Any, y: object = None, **options: Any) -> Any:
        return self.fit(X, y, **options).predict(X)

    def _ranked(self, X: Any) -> Any:
        check_is_fitted(self)
        return _order(validate_data(self, X, reset=False))


def _order(table: Any) -> Any:
    return np.argsort(-np.asarray(table, np.float64), axis=1, kind="stable")
