"""TransformMethods: memberships as features of a scikit-learn pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import TransformerMixin

from plmix_dist.choices.fitted_mixture import FittedMixture
from plmix_dist.errors import SettingsError
from plmix_dist.posteriors import probabilities_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class TransformMethods(FittedMixture, TransformerMixin):  # type: ignore[misc]
    """A mixture as a step of a pipeline: `transform` gives memberships, `set_output` chooses their container.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> model = PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
    >>> model.set_output(transform="pandas").transform([[0, 1, 2]]).round(1)
       component 0  component 1
    0          1.0          0.0
    """

    def transform(self, X: Any) -> Any:
        """(n_rankings, n_components): the probability of each component for each ranking, as `predict_proba` gives it.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
        >>> model.transform([[2, 1, 0]]).round(1).tolist()
        [[0.0, 1.0]]
        """
        return self._by_person(X, None, None, probabilities_of(self._mixture(), self._ties), None)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> NDArray[Any]:
        """(n_components,): the names of the columns of `transform`: "component 0" and so on.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> PlackettLuceMixture(1).fit([[0, 1], [1, 0]]).get_feature_names_out().tolist()
        ['component 0']
        """
        if input_features is not None and len(input_features) == 0:
            raise SettingsError(
                "input_features is empty; leave it out: the columns are named after components"
            )
        return np.array(
            [f"component {number}" for number in range(self._mixture().n_components)], dtype=object
        )

    @property
    def n_features_in_(self) -> int:
        """The number of items: a row has at most so many places. Shorter rows are allowed, so widths may differ."""
        if not hasattr(self, "log_worths_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet, so it has no n_features_in_")
        return self._mixture().n_items
