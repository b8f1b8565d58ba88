"""Predictions: what a fitted mixture predicts of persons, choices, pairs, places and whole rankings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from plmix_dist.cluster.clients import ClientLike, client_of
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import SettingsError
from plmix_dist.kernels.utilities import LinearRows
from plmix_dist.models.keywords import OfPersons, OfPredictions, spell_out
from plmix_dist.passes import Aggregation, Passes, Rankings, Request, ask, passes_over
from plmix_dist.passes.by_row import RowFunction, rows_lazily, rows_now
from plmix_dist.prediction import choices, given_rows, posteriors
from plmix_dist.prediction.calibration import FIRST_CHOICES, Calibration
from plmix_dist.prediction.most_probable import MOST_STEPS, MostProbable, most_probable
from plmix_dist.rankings import TIES, Floats
from plmix_dist.settings import whole_number
from plmix_dist.solvers.davidson import outcomes
from plmix_dist.store import MixtureParams


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

    def predict_proba(self, X: Any, **how: Unpack[OfPersons]) -> Any:
        """(n_rankings, n_components): the probability of each component for each ranking.

        A lazy result is computed where Dask computes it: `client` is then not used.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
        >>> model.predict_proba([[0, 1, 2]]).round(1).tolist()
        [[1.0, 0.0]]
        """
        return self._by_row(X, posteriors.probabilities_of(self._mixture(), self._ties), **how)

    def predict(self, X: Any, **how: Unpack[OfPersons]) -> Any:
        """(n_rankings,): the most probable component of each ranking. Lazy as for `predict_proba`.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
        >>> model.predict([[0, 1, 2], [2, 1, 0]]).tolist()
        [0, 1]
        """
        return self._by_row(X, posteriors.components_of(self._mixture(), self._ties), **how)

    def score_samples(self, X: Any, **how: Unpack[OfPersons]) -> Any:
        """(n_rankings,): the log-likelihood of each ranking. Lazy as for `predict_proba`.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
        >>> np.exp(model.score_samples([[0, 1, 2], [2, 1, 0]])).round(1).tolist()
        [0.7, 0.2]
        """
        return self._by_row(X, posteriors.log_likelihoods_of(self._mixture(), self._ties), **how)

    def choice_probabilities(
        self, offered: Any = None, *, item_features: Any = None, **how: Unpack[OfPredictions]
    ) -> Any:
        """The probability that each item is chosen from an offered set.

        Parameters
        ----------
        offered : (n_offered,)
            Item names or numbers. None offers all items; with `given`, what is left to choose in each row.
        item_features
            Features of what is offered, one line each, in place of `offered`: items may be new then, if the fit had no
            intercepts. They have the names of a table or dict, or are "new 0" and so on. `features` are those of what
            is offered, if the fit had features of rows.
        given
            What persons have ranked so far. With `offered`, the choice is a new one by the same person, from exactly
            this set. For plain Plackett-Luce models alone.

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
        features = how.pop("features", None) if how.get("given") is None else None
        if self._linear is not None and not (self._linear[0].is_plain and item_features is None):
            if how.get("given") is not None:
                what = "item_features beside it" if self._linear[0].is_plain else self._linear[0].described
                raise SettingsError(f"given is for plain Plackett-Luce models, and here are {what}; leave out given")
            worths, names, _ = self._linear[0].offered(self._linear[1], offered, item_features, features)
            found = posteriors.mixed(choices.choice_probabilities(worths), self._mixture(), how.get("component"))
            return self._named(found, how.get("named") or False, "probability", how.get("component"), None, names)
        if item_features is not None or features is not None:
            raise SettingsError("this model was fitted without features; leave them out")
        if offered is None:
            return self._prediction("probability", choices.choice_probabilities, given_rows.next_choices, **how)
        some = choices.item_numbers("offered", offered, self._mixture().item_names)
        plain, by_row = partial(_among, choices.choice_probabilities, some), partial(given_rows.new_choices, some)
        return self._prediction("probability", plain, by_row, some, **how)

    def pairwise_probabilities(self, items: Any = None, **how: Unpack[OfPredictions]) -> Any:
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
        names = self._plain_mixture().item_names
        some = np.arange(len(names)) if items is None else choices.item_numbers("items", items, names)
        plain, by_row = partial(_among, choices.pairwise_probabilities, some), partial(given_rows.pairs_among, some)
        return self._prediction("probability", plain, by_row, some, some, **how)

    def expected_ranks(self, **how: Unpack[OfPredictions]) -> Any:
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
        return self._prediction("expected rank", choices.expected_ranks, given_rows.ranks, **how)

    def top_k_probabilities(self, k: int = 1, **how: Unpack[OfPredictions]) -> Any:
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
        k = int(whole_number("k", k, at_least=1))
        by_row = partial(given_rows.top_k, k=k)
        return self._prediction("probability", partial(choices.top_k_probabilities, k=k), by_row, **how)

    def ranking_probabilities(
        self,
        X: Any,
        *,
        component: int | str | None = None,
        given: Any = None,
        log: bool = False,
        **how: Unpack[OfPersons],
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
        mixture = self._plain_mixture()
        chosen = posteriors.chosen_component(component, mixture)
        if chosen is None and given is None:
            logs = self._by_row(X, posteriors.mixture_logs_of(mixture), **how)
        else:
            logs = self._by_row(X, posteriors.component_logs_of(mixture), posteriors.ALL, **how)
            if chosen is None:
                weights = self._by_row(given, posteriors.probabilities_of(mixture, self._ties), **how)
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
        mixture = self._plain_mixture()
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
        named: bool | str = False,
        **how: Unpack[OfPersons],
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
        mixture = self._plain_mixture()
        chosen = posteriors.one_component(component, mixture)
        found = self._by_row(X, posteriors.completions_of(mixture, self._ties, chosen, bool(search)), chosen, **how)
        orders = found[:, :-1].astype(np.int64)
        if named:
            orders = self._named_orders(orders, named)
        return (orders, found[:, -1]) if with_probabilities else orders

    def first_choice_calibration(self, X: Any, *, n_bins: int = 10, **how: Unpack[OfPersons]) -> Calibration:
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
        self._plain_mixture()
        whole_number("n_bins", n_bins, at_least=1)
        found: Calibration = self._total(FIRST_CHOICES, X, int(n_bins), **how)
        return found

    def outcome_probabilities(self, items: Any = None, *, component: int | str | None = None) -> Floats:
        """The probabilities that item i wins against item j, ties with it, and loses, where ties are outcomes.

        All other predictions are of orders: they hold given that nothing ties.

        Parameters
        ----------
        items : (n,)
            Item names or numbers; None for all.

        Returns
        -------
        probabilities : (3, n, n)
            With component="all" (n_components, 3, n, n).

        Examples
        --------
        >>> rows = [plm.Ranking(places, (), "absent", 1.0) for places in [((0,), (1,)), ((1,), (0,)), ((0, 1),)]]
        >>> battles = plm.RankingBlock.from_rows(rows, n_items=2)
        >>> model = plm.PlackettLuceMixture(1, ties="davidson", alpha=0.0).fit(battles)
        >>> model.outcome_probabilities()[:, 0, 1].round(4).tolist()
        [0.3333, 0.3333, 0.3333]
        """
        mixture = self._mixture()
        if mixture.log_ties is None:
            raise SettingsError(f'ties={self._ties!r} has no probability of a tie; fit with ties="davidson"')
        numbers = slice(None) if items is None else choices.item_numbers("items", items, mixture.item_names)
        worths = mixture.log_worths[:, numbers]
        found = outcomes(worths[:, :, None] - worths[:, None, :], mixture.log_ties[:, :1, None])
        probabilities: Floats = posteriors.mixed(np.moveaxis(found, 0, 1), mixture, component)
        return probabilities

    def _named(
        self, found: Any, named: bool | str, quantity: str, component: Any, given: Any, *items: NDArray[Any]
    ) -> Any:
        """The numbers as they are, or one per row of a table; the last axes are those of `items`, by default all.

        These are numbers of items, or names.
        """
        if not named:
            return found
        values, names = np.asarray(found), np.array(self.item_names_, object)
        labels = {} if given is None else {"ranking": np.arange(len(values))}
        if component == posteriors.ALL:
            labels["component"] = np.arange(len(self.shares_))
        shown = [one if one.dtype == object else names[one] for one in items] or [names]
        labels |= zip(("item", "other"), shown, strict=False)
        places = np.indices(values.shape).reshape(values.ndim, -1)
        columns = {name: label[place] for (name, label), place in zip(labels.items(), places, strict=True)}
        return choices.table_of(columns | {quantity: values.ravel()}, "auto" if named is True else str(named))

    def _named_orders(self, orders: Any, named: bool | str) -> Any:
        """A table of rankings of names, one column per place, as `fit` takes it."""
        names = np.array([*self._mixture().item_names, ""], object)
        columns = {f"place {place}": names[column] for place, column in enumerate(np.asarray(orders).T, start=1)}
        return choices.table_of(columns, "auto" if named is True else str(named))

    # How a fitted mixture meets rankings.

    def __init_subclass__(cls, **options: Any) -> None:
        """Signatures show every keyword, before scikit-learn reads them."""
        spell_out(cls)
        super().__init_subclass__(**options)

    def _mixture(self) -> MixtureParams:
        """The fitted mixture; an error before `fit`."""
        if not hasattr(self, "log_worths_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
        ties = getattr(self, "tie_parameters_", None)
        rows = None
        if self._linear is not None and not self._linear[0].is_plain:
            terms, end = self._linear
            rows = LinearRows(terms.choices, end.point, terms.row_names)
        return MixtureParams(self.log_worths_, self.shares_, self.item_names_, ties, rows)

    # What utilities are made of, and the end of the fit, where they are linear in coefficients.
    _linear: tuple[Any, Any] | None = None

    def _plain_mixture(self) -> MixtureParams:
        """The fitted mixture; an error where its worths alone do not say what is predicted."""
        mixture = self._mixture()
        if self._linear is not None and mixture.rows is not None:
            raise SettingsError(
                f"this is a prediction of plain Plackett-Luce models, and this one has {self._linear[0].described}; "
                "choice_probabilities, predict, predict_proba and score know them"
            )
        return mixture

    def _reading(self) -> choices.Reading:
        """How the log-worths of the fitted mixture are read."""
        mixture = self._mixture()
        if self._linear is None or mixture.rows is None:
            worths = mixture.log_worths
            return choices.Reading("all", worths, choices.choice_probabilities(worths))
        found: choices.Reading = self._linear[0].reading(self._linear[1])
        return found

    def _comparable(self) -> MixtureParams:
        """The fitted mixture; an error where its log-worths do not compare all items."""
        whys = {"slates": "worths compare items of one slate", "none": "items have no worths beside features"}
        if why := whys.get(self._reading().kind):
            raise SettingsError(f"this compares the worths of all items, but here {why}; see choice_probabilities")
        return self._mixture()

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
        return "kept" if self._linear is not None and self._linear[0].keeps_ties else str(getattr(self, "ties", "auto"))

    def _rankings(
        self, X: Any, *, membership_covariates: ArrayLike | None = None, ties: str | None = None, **how: Any
    ) -> Rankings:
        """The rankings; row functions treat ties themselves (None), so that results are per ranking."""
        how |= {"item_names": self._mixture().item_names, "default_unranked": getattr(self, "unranked_", None)}
        known = () if self._linear is None else self._linear[0].row_names
        how["covariate_names"] = getattr(self, "covariate_names_", None)
        how["person_columns"] = getattr(self, "person_columns_", None)
        found = as_rankings(X, covariates=membership_covariates, feature_names=known, **how)
        if isinstance(X, Rankings):
            return found
        return replace(found, ties=TIES[self._ties].for_later if ties is None else TIES[ties])

    @contextmanager
    def _passes_over(self, X: Any, *, client: ClientLike = None, **how: Any) -> Iterator[tuple[Passes, Rankings]]:
        """Passes over rankings, and the rankings."""
        rankings = self._rankings(X, **how)
        with client_of(client) as chosen, passes_over(rankings, chosen, "store") as passes:
            yield passes, rankings

    def _of_persons(self, function: RowFunction, rankings: Rankings) -> RowFunction:
        """A row function with each person's own shares, if shares depend on covariates."""
        coefficients = posteriors.check_columns(self._coefficients, rankings.covariates)
        return function if coefficients is None else posteriors.with_own_shares(function, coefficients)

    def _total(self, aggregation: Aggregation, X: Any, *more: Any, **how: Any) -> Any:
        """An aggregation over all rows; its parameters are the mixture, the coefficients of its shares, and `more`."""
        with self._passes_over(X, **how) as (passes, rankings):
            coefficients = posteriors.check_columns(self._coefficients, rankings.covariates)
            return ask(passes, Request(aggregation, (self._mixture().unnamed(), coefficients, *more)))

    def _entropy(self, X: Any, **how: Any) -> tuple[float, float]:
        """The entropy of the memberships of all persons, and their weight."""
        entropy, weight = self._total(posteriors.ENTROPY, X, ties=self._ties, **how)
        return float(entropy), float(weight)

    def _by_row(
        self,
        X: Any,
        function: RowFunction,
        chosen: int | str | None = None,
        *,
        client: ClientLike = None,
        membership_covariates: ArrayLike | None = None,
        **how: Any,
    ) -> Any:
        """One result per row, with each person's own shares; of chosen components, shares do not matter."""
        rankings = self._rankings(X, membership_covariates=membership_covariates if chosen is None else None, **how)
        if chosen is None:
            function = self._of_persons(function, rankings)
        return rows_lazily(rankings, function) if rankings.is_lazy else rows_now(rankings, function, client)

    def _prediction(
        self,
        quantity: str,
        by_component: Callable[[Floats], Floats],
        by_row: Callable[..., Floats],
        *items: NDArray[np.int64],
        component: int | str | None = None,
        given: Any = None,
        named: bool | str = False,
        **how: Unpack[OfPersons],
    ) -> Any:
        """Numbers of the mixture or of components, or of each row of `given`; their last axes are those of `items`."""
        mixture = self._plain_mixture()
        if given is None:
            found = posteriors.mixed(by_component(mixture.log_worths), mixture, component)
        else:
            chosen = posteriors.chosen_component(component, mixture)
            sizes = [len(each) for each in items] or [mixture.n_items]
            function = posteriors.predictions_of(mixture, self._ties, chosen, by_row, math.prod(sizes))
            found = self._by_row(given, function, chosen, **how)
            shape = [mixture.n_components, *sizes] if chosen == posteriors.ALL else sizes
            found = found.reshape(found.shape[0], *shape) if len(shape) > 1 else found
        return self._named(found, named, quantity, component, given, *items)


def _among(function: Callable[[Floats], Floats], items: NDArray[np.int64], log_worths: Floats) -> Floats:
    return function(log_worths[:, items])


spell_out(Predictions)
