"""Predictions: what a fitted mixture predicts of persons, choices, pairs, places and whole rankings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from plmix_dist.cluster.clients import client_of
from plmix_dist.datasets.given import as_rankings
from plmix_dist.passes.by_row import RowFunction, rows_lazily, rows_now
from plmix_dist.passes.dask import passes_over
from plmix_dist.passes.rankings import Rankings
from plmix_dist.passes.request import Aggregation, Request, ask
from plmix_dist.prediction import posteriors
from plmix_dist.prediction.calibration import FIRST_CHOICES, Calibration
from plmix_dist.prediction.choices import (
    choice_probabilities,
    expected_ranks,
    item_numbers,
    pairwise_probabilities,
    table_of,
    top_k_probabilities,
)
from plmix_dist.prediction.most_probable import MOST_STEPS, MostProbable, most_probable
from plmix_dist.rankings import Unranked
from plmix_dist.rankings.ties import TIES
from plmix_dist.settings import whole_number
from plmix_dist.store.mixture import Floats, MixtureParams

if TYPE_CHECKING:
    from plmix_dist.cluster.clients import ClientLike


class Predictions:
    """What every estimator of a mixture predicts once it is fitted.

    Parameters that many methods share are described here. X, `unranked`, `client` and `membership_covariates` are as
    in PlackettLuceMixture.fit, for X or `given`; what `unranked` was in the fit is remembered. Item names are looked up
    in `item_names_`; an unknown name is an error. Results are NumPy arrays for rows in memory, and lazy Dask arrays for
    stores and Dask arrays.

    Many methods have `component`: None for the mixture, a number from 0 for one component, "all" for one result per
    component. Many have `given`: rows of what each person has ranked so far, in any form that `fit` takes. Results are
    then one per row, with the memberships of that row (with groups, of its person), about the whole ranking of what was
    on offer in the row. Shapes begin with the rows, then the components of "all". If shares depend on covariates of
    persons, `membership_covariates` are those of the rows given; without rows, the mixture has the mean shares.

    Many have `named`: True gives a table with one row per number instead of an array, computed now. Its columns are
    `ranking` (with `given`, from 0), `component` (with "all"), `item`, for pairs also `other`, and the number.
    "pandas", "polars", "arrow" and "dict" ask for a kind of table; True is pandas if it is installed, else a dict of
    arrays.
    """

    def predict_proba(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """(n_rankings, n_components): the probability of each component for each ranking.

        A lazy result is computed where Dask computes it: `client` is then not used.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
        >>> model.predict_proba([[0, 1, 2]]).round(1).tolist()
        [[1.0, 0.0]]
        """
        function = posteriors.probabilities_of(self._mixture(), self._ties)
        return self._by_row(X, function, unranked, client, membership_covariates)

    def predict(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """(n_rankings,): the most probable component of each ranking. Lazy as for `predict_proba`.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
        >>> model.predict([[0, 1, 2], [2, 1, 0]]).tolist()
        [0, 1]
        """
        function = posteriors.components_of(self._mixture(), self._ties)
        return self._by_row(X, function, unranked, client, membership_covariates)

    def score_samples(
        self,
        X: Any,
        *,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """(n_rankings,): the log-likelihood of each ranking. Lazy as for `predict_proba`.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
        >>> np.exp(model.score_samples([[0, 1, 2], [2, 1, 0]])).round(1).tolist()
        [0.7, 0.2]
        """
        function = posteriors.log_likelihoods_of(self._mixture(), self._ties)
        return self._by_row(X, function, unranked, client, membership_covariates)

    def choice_probabilities(
        self,
        offered: Any = None,
        *,
        component: int | str | None = None,
        given: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
        named: bool | str = False,
    ) -> Any:
        """The probability that each item is chosen from an offered set.

        Parameters
        ----------
        offered : (n_offered,)
            Item names or numbers. None offers all items; with `given`, what is left to choose in each row.
        given
            What persons have ranked so far. With `offered`, the choice is a new one by the same person, from exactly
            this set.

        Returns
        -------
        probabilities : (n_offered,)
            In the order of `offered`. With `given` (n_rankings, n_offered); without `offered` it has all items, and 0
            for those that the row has ordered or that were not on offer. "all" adds an axis (n_components,) before the
            last.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> model.choice_probabilities(["tea", "mate"]).round(4).tolist()
        [0.75, 0.25]
        >>> model.choice_probabilities(named="dict")["item"].tolist()
        ['mate', 'tea']
        >>> model.choice_probabilities(given=[["tea"]], unranked="below").tolist()  # of mate and tea
        [[1.0, 0.0]]
        """
        mixture = self._mixture()
        if offered is None and given is not None:
            function = posteriors.next_choices_of
            found = self._prediction(function, component, given, unranked, client, membership_covariates)
            return self._named(found, named, "probability", component, given)
        numbers = np.arange(mixture.n_items)
        if offered is not None:
            numbers = item_numbers("offered", offered, mixture.item_names)
        by_component = choice_probabilities(mixture.log_worths[:, numbers])
        if given is None:
            found = posteriors.mixed(by_component, mixture, component)
            return self._named(found, named, "probability", component, given, numbers)
        # Given the component, a new choice is the same for all rows: only their memberships differ.
        chosen = posteriors.chosen_component(component, mixture)
        memberships = posteriors.probabilities_of(mixture, self._ties)
        weights = self._by_row(given, memberships, unranked, client, membership_covariates, chosen)
        if chosen is None:
            found = weights @ by_component
        else:
            same = posteriors.mixed(by_component, mixture, component)
            found = same[None] + 0.0 * weights[:, 0].reshape(-1, *[1] * same.ndim)
        return self._named(found, named, "probability", component, given, numbers)

    def pairwise_probabilities(
        self,
        items: Any = None,
        *,
        component: int | str | None = None,
        given: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
        named: bool | str = False,
    ) -> Any:
        """The probability that item i comes before item j.

        Parameters
        ----------
        items : (n,)
            Item names or numbers; None for all.

        Returns
        -------
        probabilities : (n, n)
            Entry [i, j] is that of i before j; the diagonal is 0.5. With `given` (n_rankings, n, n), and NaN for items
            that were not on offer.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> model.pairwise_probabilities(["tea", "mate"]).round(4).tolist()
        [[0.5, 0.75], [0.25, 0.5]]
        """
        mixture = self._mixture()
        numbers = np.arange(mixture.n_items)
        if items is not None:
            numbers = item_numbers("items", items, mixture.item_names)
        if given is None:
            found = posteriors.mixed(pairwise_probabilities(mixture.log_worths[:, numbers]), mixture, component)
            return self._named(found, named, "probability", component, given, numbers, numbers)
        function = partial(posteriors.pairs_of, items=numbers)
        found = self._prediction(function, component, given, unranked, client, membership_covariates)
        found = found.reshape(*found.shape[:-1], len(numbers), len(numbers))
        return self._named(found, named, "probability", component, given, numbers, numbers)

    def expected_ranks(
        self,
        *,
        component: int | str | None = None,
        given: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
        named: bool | str = False,
    ) -> Any:
        """The mean place of each item; 1 is the best place.

        Returns
        -------
        ranks : (n_items,)
            With `given` (n_rankings, n_items), and NaN for items that were not on offer.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([[0, 1]] * 3 + [[1, 0]])
        >>> model.expected_ranks().round(4).tolist()
        [1.25, 1.75]
        """
        mixture = self._mixture()
        if given is None:
            found = posteriors.mixed(expected_ranks(mixture.log_worths), mixture, component)
        else:
            function = posteriors.ranks_of
            found = self._prediction(function, component, given, unranked, client, membership_covariates)
        return self._named(found, named, "expected rank", component, given)

    def top_k_probabilities(
        self,
        k: int = 1,
        *,
        component: int | str | None = None,
        given: Any = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
        named: bool | str = False,
    ) -> Any:
        """The probability that each item has one of the first k places, by an integral over arrival times, to 1e-12.

        Parameters
        ----------
        k
            The number of places.

        Returns
        -------
        probabilities : (n_items,)
            With `given` (n_rankings, n_items), and 0 for items that were not on offer.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        >>> model.top_k_probabilities(2).round(4).tolist()
        [0.6667, 0.6667, 0.6667]
        """
        mixture = self._mixture()
        whole_number("k", k, at_least=1)
        if given is None:
            found = posteriors.mixed(top_k_probabilities(mixture.log_worths, int(k)), mixture, component)
        else:
            function = partial(posteriors.top_k_of, k=int(k))
            found = self._prediction(function, component, given, unranked, client, membership_covariates)
        return self._named(found, named, "probability", component, given)

    def ranking_probabilities(
        self,
        X: Any,
        *,
        component: int | str | None = None,
        given: Any = None,
        log: bool = False,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Any:
        """The probability of each ranking: full, a prefix (`unranked="below"`), or of some items ("absent").

        A ranking with ties is the event that one of its orders happens, whatever `ties` was in the fit. Each row is
        taken by itself, also where rows have groups.

        Parameters
        ----------
        given
            What the same persons have ranked before: as many rows as X. Rows of X are then new rankings. To continue a
            ranking, let X order the items that are left.
        log
            Whether to give logarithms.

        Returns
        -------
        probabilities : (n_rankings,)
            With component="all" (n_rankings, n_components).

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        >>> model.ranking_probabilities([[0, 1, 2], [0, -1, -1]], unranked="below").round(4).tolist()
        [0.1667, 0.3333]
        """
        mixture = self._mixture()
        chosen = posteriors.chosen_component(component, mixture)
        if chosen is None and given is None:
            logs = self._by_row(X, posteriors.mixture_logs_of(mixture), unranked, client, membership_covariates)
        else:
            logs = self._by_row(X, posteriors.component_logs_of(mixture), unranked, client, None, posteriors.ALL)
            if chosen is None:
                function = posteriors.probabilities_of(mixture, self._ties)
                weights = self._by_row(given, function, unranked, client, membership_covariates)
                logs = posteriors.mixed_logs(logs, weights)
            elif chosen != posteriors.ALL:
                logs = logs[:, chosen]
        return logs if log else np.exp(logs)

    def most_probable_ranking(
        self, *, component: int | None = None, most_steps: int = MOST_STEPS, named: bool = False
    ) -> MostProbable:
        """The most probable ranking of all items, and its probability.

        For a component it is the order of the worths. For a mixture it is searched for: exactly for up to 6 items, and
        for more as long as `most_steps` are enough (30 items with log-worths of standard deviation 1 take a few).
        `is_exact` is True if the search ended. If not, the ranking is the best that was met, and `log_bound` bounds
        the log-probability of every ranking.

        Parameters
        ----------
        component
            None for the mixture, or a number from 0.
        most_steps
            Prefixes that the search extends at most.
        named
            Whether `order` has the names of items in place of their numbers.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([[0, 1]] * 3 + [[1, 0]])
        >>> found = model.most_probable_ranking()
        >>> found.order.tolist(), round(found.probability, 4), found.is_exact
        ([0, 1], 0.75, True)
        """
        mixture = self._mixture()
        chosen = posteriors.one_component(component, mixture)
        whole_number("most_steps", most_steps, at_least=1)
        if chosen is None:
            found = most_probable(mixture.log_worths, mixture.log_shares, most_steps=int(most_steps))
        else:
            found = most_probable(mixture.log_worths[[chosen]], np.zeros(1))
        return found._replace(order=np.array(mixture.item_names, object)[found.order]) if named else found

    def complete(
        self,
        X: Any,
        *,
        component: int | None = None,
        search: bool = False,
        with_probabilities: bool = False,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
        named: bool | str = False,
    ) -> Any:
        """The most probable complete order of what was on offer in each row.

        What a row has ordered stays in its order; tied items and items not ordered yet are put in order. Each row takes
        the most probable, given its memberships, of these: the order of the worths of each component, and the order of
        the expected ranks. `search=True` looks for the most probable order of all, which takes longer. After a fit with
        ties="expand" all orders of tied items are equally probable, and the search is for the order of the others.

        Parameters
        ----------
        component
            None for the mixture, or a number from 0.
        search
            Whether to search for the best order of each row.
        with_probabilities
            Whether to give the probability of the order, given the row, too.

        Returns
        -------
        orders : (n_rankings, n_items)
            Item numbers, best first; -1 after the last item on offer. With `named`, a table with columns `place 1` and
            so on, and "" after the last item.
        probabilities : (n_rankings,)
            If they are asked for.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([[0, 1, 2]] * 3 + [[1, 2, 0], [2, 0, 1]])
        >>> model.complete([[2]], unranked="below").tolist()
        [[2, 0, 1]]
        """
        mixture = self._mixture()
        chosen = posteriors.one_component(component, mixture)
        function = posteriors.completions_of(mixture, posteriors.Given(self._ties, chosen), bool(search))
        found = self._by_row(X, function, unranked, client, membership_covariates, chosen)
        orders = found[:, :-1].astype(np.int64)
        if named:
            orders = self._named_orders(orders, named)
        return (orders, found[:, -1]) if with_probabilities else orders

    def first_choice_calibration(
        self,
        X: Any,
        *,
        n_bins: int = 10,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
    ) -> Calibration:
        """How often items predicted as first choice with probability p are the first choice, by bins of p.

        One pass over the rankings. Every item on offer in a row is one event. Memberships are the shares: nothing else
        is known of the person. Rows whose first place is tied do not count.

        Parameters
        ----------
        n_bins
            The number of bins of equal width.

        Examples
        --------
        >>> rankings = [[0, 1]] * 3 + [[1, 0]]
        >>> found = plm.PlackettLuceMixture(1, alpha=0).fit(rankings).first_choice_calibration(rankings)
        >>> round(found.error, 6), round(found.mean_log_loss, 4)
        (0.0, 0.5623)
        """
        whole_number("n_bins", n_bins, at_least=1)
        rankings = self._rankings(X, unranked, covariates=membership_covariates)
        found: Calibration = self._total(FIRST_CHOICES, rankings, client, int(n_bins))
        return found

    def _named(
        self, found: Any, named: bool | str, quantity: str, component: Any, given: Any, *items: NDArray[np.int64]
    ) -> Any:
        """The numbers as they are, or one per row of a table; the last axes are those of `items`, by default all."""
        if not named:
            return found
        values, names = np.asarray(found), np.array(self.item_names_, object)
        labels = {} if given is None else {"ranking": np.arange(len(values))}
        if component == posteriors.ALL:
            labels["component"] = np.arange(len(self.shares_))
        labels |= zip(("item", "other"), [names[one] for one in items] or [names], strict=False)
        places = np.indices(values.shape).reshape(values.ndim, -1)
        columns = {name: label[place] for (name, label), place in zip(labels.items(), places, strict=True)}
        return table_of(columns | {quantity: values.ravel()}, "auto" if named is True else str(named))

    def _named_orders(self, orders: Any, named: bool | str) -> Any:
        """A table of rankings of names, one column per place, as `fit` takes it."""
        names = np.array([*self._mixture().item_names, ""], object)
        columns = {f"place {place}": names[column] for place, column in enumerate(np.asarray(orders).T, start=1)}
        return table_of(columns, "auto" if named is True else str(named))

    # How a fitted mixture meets rankings.

    def _mixture(self) -> MixtureParams:
        """The fitted mixture; an error before `fit`."""
        if not hasattr(self, "log_worths_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
        return MixtureParams(self.log_worths_, self.shares_, self.item_names_)

    def _set_mixture(self, mixture: MixtureParams) -> None:
        self.log_worths_ = mixture.log_worths
        self.shares_ = mixture.shares
        self.item_names_ = mixture.item_names

    @property
    def _coefficients(self) -> Floats | None:
        """(n_components, n_columns + 1): what shares depend on; None if all persons have the same shares."""
        return getattr(self, "share_coefficients_", None)

    @property
    def _ties(self) -> str:
        """How ties are treated: as in the settings, or else as in PlackettLuceMixture."""
        return str(getattr(self, "ties", "auto"))

    def _rankings(
        self,
        X: Any,
        unranked: Unranked | None,
        sample_weight: ArrayLike | None = None,
        *,
        ties: str | None = None,
        covariates: ArrayLike | None = None,
    ) -> Rankings:
        """The rankings; row functions treat ties themselves (None), so that results are per ranking."""
        found = as_rankings(
            X,
            unranked=unranked,
            default_unranked=getattr(self, "unranked_", None),
            sample_weight=sample_weight,
            item_names=self._mixture().item_names,
            covariates=covariates,
        )
        if isinstance(X, Rankings):
            return found
        return replace(found, ties=TIES[self._ties].for_later if ties is None else TIES[ties])

    def _of_persons(self, function: RowFunction, rankings: Rankings) -> RowFunction:
        """A row function with each person's own shares, if shares depend on covariates."""
        coefficients = posteriors.check_columns(self._coefficients, rankings.covariates)
        return function if coefficients is None else posteriors.with_own_shares(function, coefficients)

    def _total(self, aggregation: Aggregation, rankings: Rankings, client: ClientLike, *more: Any) -> Any:
        """An aggregation over all rows; its parameters are the mixture, the coefficients of its shares, and `more`."""
        coefficients = posteriors.check_columns(self._coefficients, rankings.covariates)
        request = Request(aggregation, (self._mixture().unnamed(), coefficients, *more))
        with client_of(client) as chosen, passes_over(rankings, chosen, "store") as passes:
            return ask(passes, request)

    def _by_row(
        self,
        X: Any,
        function: RowFunction,
        unranked: Unranked | None,
        client: ClientLike,
        covariates: ArrayLike | None,
        chosen: int | str | None = None,
    ) -> Any:
        """One result per row, with each person's own shares; of chosen components, shares do not matter."""
        rankings = self._rankings(X, unranked, covariates=covariates if chosen is None else None)
        if chosen is None:
            function = self._of_persons(function, rankings)
        return rows_lazily(rankings, function) if rankings.is_lazy else rows_now(rankings, function, client)

    def _prediction(
        self,
        function: Callable[[MixtureParams, posteriors.Given], RowFunction],
        component: int | str | None,
        given: Any,
        unranked: Unranked | None,
        client: ClientLike,
        covariates: ArrayLike | None,
    ) -> Any:
        """(n_rankings, n), or (n_rankings, n_components, n): a prediction for each row of `given`."""
        mixture = self._mixture()
        chosen = posteriors.chosen_component(component, mixture)
        row_function = function(mixture, posteriors.Given(self._ties, chosen))
        found = self._by_row(given, row_function, unranked, client, covariates, chosen)
        if chosen == posteriors.ALL:
            return found.reshape(found.shape[0], mixture.n_components, found.shape[1] // mixture.n_components)
        return found
