"""PredictionMethods: probabilities of choices, pairs and places, as methods of an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.choices.first_places import top_k_probabilities
from plmix_dist.choices.fitted_mixture import FittedMixture, chosen_component
from plmix_dist.choices.items import item_numbers
from plmix_dist.choices.probabilities import choice_probabilities, expected_ranks, pairwise_probabilities
from plmix_dist.choices.row_functions import (
    ALL,
    Given,
    next_choices_of,
    pairs_of,
    ranks_of,
    top_k_of,
)
from plmix_dist.posteriors import probabilities_of
from plmix_dist.values import whole_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.mixture import MixtureParams
    from plmix_dist.rankings import Unranked


class PredictionMethods(FittedMixture):
    """Predictions of a fitted mixture.

    All have `component`: None for the mixture, a number from 0 for one component, "all" for one result per component.
    Most have `given`: rows of what each person has ranked so far, in any form that `fit` takes. Results are then one
    per row, with the memberships of that row (with groups, of its person), about the whole ranking of what was on offer
    in the row. They are NumPy arrays for rows in memory, and lazy Dask arrays for stores and Dask arrays. Shapes begin
    with the rows, then the components of "all". If shares depend on covariates of persons, `membership_covariates` are
    those of the rows given; without rows, the mixture has the mean shares.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> issubclass(PlackettLuceMixture, PredictionMethods)
    True
    """

    def choice_probabilities(
        self,
        offered: Any = None,
        *,
        component: int | str | None = None,
        given: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """The probability that each item is chosen from an offered set.

        Parameters
        ----------
        offered : (n_offered,)
            Item names or numbers. None offers all items; with `given`, what is left to choose in each row.
        component
            None for the mixture, a number from 0, or "all".
        given
            What persons have ranked so far. With `offered`, the choice is a new one by the same person, from exactly
            this set.
        unranked, client, membership_covariates
            As in `fit`, for `given`.

        Returns
        -------
        probabilities : (n_offered,)
            In the order of `offered`. With `given` (n_rankings, n_offered); without `offered` it has all items, and 0
            for those that the row has ordered or that were not on offer. "all" adds an axis (n_components,) before the
            last.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> model.choice_probabilities(["tea", "mate"]).round(4).tolist()
        [0.75, 0.25]
        >>> model.choice_probabilities(given=[["tea"]], unranked="below").tolist()
        [[1.0, 0.0]]
        >>> model.item_names_
        ('mate', 'tea')
        """
        mixture = self._mixture()
        chosen = chosen_component(component, mixture)
        if offered is None and given is not None:
            found = self._predicted(
                given,
                next_choices_of(mixture, Given(self._ties, chosen)),
                chosen,
                unranked,
                client,
                membership_covariates,
            )
            return _shaped(found, chosen, mixture, (mixture.n_items,))
        numbers = np.arange(mixture.n_items)
        if offered is not None:
            numbers = item_numbers("offered", offered, mixture.item_names)
        by_component = choice_probabilities(mixture.log_worths[:, numbers])
        if given is None:
            return _mixed(by_component, mixture.shares, chosen)
        return self._mixed_by_row(by_component, chosen, given, unranked, client, membership_covariates)

    def pairwise_probabilities(
        self,
        items: Any = None,
        *,
        component: int | str | None = None,
        given: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """The probability that item i comes before item j.

        Parameters
        ----------
        items : (n,)
            Item names or numbers; None for all.
        component
            None for the mixture, a number from 0, or "all".
        given
            What persons have ranked so far.
        unranked, client, membership_covariates
            As in `fit`, for `given`.

        Returns
        -------
        probabilities : (n, n)
            Entry [i, j] is that of i before j; the diagonal is 0.5. With `given` (n_rankings, n, n), and NaN for items
            that were not on offer.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> model.pairwise_probabilities(["tea", "mate"]).round(4).tolist()
        [[0.5, 0.75], [0.25, 0.5]]
        """
        mixture = self._mixture()
        chosen = chosen_component(component, mixture)
        numbers = np.arange(mixture.n_items)
        if items is not None:
            numbers = item_numbers("items", items, mixture.item_names)
        if given is None:
            return _mixed(pairwise_probabilities(mixture.log_worths[:, numbers]), mixture.shares, chosen)
        found = self._predicted(
            given,
            pairs_of(mixture, Given(self._ties, chosen), numbers),
            chosen,
            unranked,
            client,
            membership_covariates,
        )
        return _shaped(found, chosen, mixture, (len(numbers), len(numbers)))

    def expected_ranks(
        self,
        *,
        component: int | str | None = None,
        given: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """The mean place of each item; 1 is the best place.

        Parameters
        ----------
        component
            None for the mixture, a number from 0, or "all".
        given
            What persons have ranked so far.
        unranked, client, membership_covariates
            As in `fit`, for `given`.

        Returns
        -------
        ranks : (n_items,)
            With `given` (n_rankings, n_items), and NaN for items that were not on offer.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([[0, 1]] * 3 + [[1, 0]])
        >>> model.expected_ranks().round(4).tolist()
        [1.25, 1.75]
        """
        mixture = self._mixture()
        chosen = chosen_component(component, mixture)
        if given is None:
            return _mixed(expected_ranks(mixture.log_worths), mixture.shares, chosen)
        found = self._predicted(
            given,
            ranks_of(mixture, Given(self._ties, chosen)),
            chosen,
            unranked,
            client,
            membership_covariates,
        )
        return _shaped(found, chosen, mixture, (mixture.n_items,))

    def top_k_probabilities(
        self,
        k: int = 1,
        *,
        component: int | str | None = None,
        given: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """The probability that each item has one of the first k places.

        It is computed by an integral over arrival times, to 1e-12.

        Parameters
        ----------
        k
            The number of places.
        component
            None for the mixture, a number from 0, or "all".
        given
            What persons have ranked so far.
        unranked, client, membership_covariates
            As in `fit`, for `given`.

        Returns
        -------
        probabilities : (n_items,)
            With `given` (n_rankings, n_items), and 0 for items that were not on offer.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        >>> model.top_k_probabilities(2).round(4).tolist()
        [0.6667, 0.6667, 0.6667]
        """
        mixture = self._mixture()
        chosen = chosen_component(component, mixture)
        whole_number("k", k, at_least=1)
        if given is None:
            return _mixed(top_k_probabilities(mixture.log_worths, int(k)), mixture.shares, chosen)
        found = self._predicted(
            given,
            top_k_of(mixture, Given(self._ties, chosen), int(k)),
            chosen,
            unranked,
            client,
            membership_covariates,
        )
        return _shaped(found, chosen, mixture, (mixture.n_items,))

    def _mixed_by_row(
        self,
        by_component: NDArray[np.float64],
        chosen: Any,
        given: Any,
        unranked: Unranked | None,
        client: ClientLike,
        covariates: ArrayLike | None,
    ) -> Any:
        """By the memberships of each row, from what is the same for all rows given the component."""
        function = probabilities_of(self._mixture(), self._ties)
        weights = self._predicted(given, function, chosen, unranked, client, covariates)
        if chosen is None:
            return weights @ by_component
        same = by_component if chosen == ALL else by_component[chosen]
        return same[None] + 0.0 * weights[:, 0].reshape(-1, *[1] * same.ndim)


def _mixed(by_component: NDArray[np.float64], shares: NDArray[np.float64], chosen: Any) -> Any:
    """The mean over components by their shares, all components, or one."""
    if chosen is None:
        return np.tensordot(shares, by_component, axes=1)
    return by_component if chosen == ALL else by_component[chosen]


def _shaped(found: Any, chosen: Any, mixture: MixtureParams, shape: tuple[int, ...]) -> Any:
    """Rows of numbers in the shape of the result."""
    axes = (mixture.n_components, *shape) if chosen == ALL else shape
    return found if found.ndim == len(axes) + 1 else found.reshape(found.shape[0], *axes)
