"""MixtureEstimator: what all estimators of a mixture share: likelihoods, criteria, tables, samples, saving."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from plmix_dist import errors
from plmix_dist.cluster.clients import Client, ClientLike, client_of
from plmix_dist.datasets.given import as_rankings, first_difference
from plmix_dist.display.notebook import NotebookView, Summary, Sureness, data_of, summary_of
from plmix_dist.fitting.overview import TO_COUNTS
from plmix_dist.fitting.point import Point
from plmix_dist.models.keywords import OfFit, OfPersons, OfTotals
from plmix_dist.models.predictions import Predictions
from plmix_dist.passes import Rankings
from plmix_dist.passes.by_row import rows_now
from plmix_dist.prediction.choices import table_of, top_k_probabilities
from plmix_dist.prediction.posteriors import SCORE, Score, probabilities_of
from plmix_dist.rankings import TIES, Floats, Unranked, generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.report.write import write_report
from plmix_dist.settings import RandomState, check_settings, nearest, numbers, seed_of, shown, whole_number
from plmix_dist.store import Location, check_target
from plmix_dist.store.mixture import MixtureParams, load_with
from plmix_dist.uncertainty.results import StandardErrors


class MixtureEstimator(NotebookView, Predictions, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The base class of estimators of a mixture. After `fit` they have `log_worths_`, `shares_` and `item_names_`.

    An estimator has its settings and `fit`; the driver of its fit is in plmix_dist.fitting. As a step of a pipeline,
    `transform` gives memberships, and `set_output` chooses their container. `table` of the methods that give tables is
    "pandas", "polars", "arrow", "dict" of arrays, or "auto": pandas if it is installed, else a dict.
    """

    _ARRAY_SETTINGS: tuple[str, ...] = ()  # settings that may be arrays
    _TASK = "fit"  # whose settings it has

    @abstractmethod
    def fit(self, X: Any, y: object = None, **how: Unpack[OfFit]) -> Self:
        """Fit the mixture; every estimator has its own way."""

    def fit_predict(self, X: Any, y: object = None, **options: Any) -> Any:
        """Fit, then predict the same rankings. The options are those of `fit`.

        Examples
        --------
        >>> plm.PlackettLuceMixture(2, random_state=1).fit_predict([[0, 1, 2]] * 3 + [[2, 1, 0]]).tolist()
        [0, 0, 0, 1]
        """
        return self.fit(X, y, **options).predict(X, **_of_persons(options))

    def fit_transform(self, X: Any, y: object = None, **options: Any) -> Any:
        """Fit, then the memberships of the same rankings, as `transform` gives them. The options are those of `fit`.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(2, random_state=1)
        >>> model.fit_transform([[0, 1, 2]] * 3 + [[2, 1, 0]]).shape
        (4, 2)
        """
        return self.fit(X, y, **options).transform(X, **_of_persons(options))

    def score(self, X: Any, y: object = None, **how: Unpack[OfTotals]) -> float:
        """The log-likelihood divided by total weight.

        Examples
        --------
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> round(plm.PlackettLuceMixture(2, random_state=1).fit(rankings).score(rankings), 1)
        -0.7
        """
        del y
        total: Score = self._total(SCORE, X, ties=self._ties, **how)
        return float(total.log_likelihood / total.weight)

    def bic(self, X: Any, **how: Unpack[OfTotals]) -> float:
        """Bayesian information criterion on these rankings; lower is better.

        It is d log(w) - 2 log-likelihood, where w is the total weight (with groups, the number of persons): give the
        `sample_weight` of the fit, if it had any; weights are counts of rankings. Free
        parameters are d = K (n_items - 1) log-worths and, unless `shares` are fixed, K - 1 shares, where K is the
        number of components that are left. Shares that depend on covariates have K - 1 coefficients per column, and
        K - 1 intercepts. Every item of the model counts, even one that was never on offer. Where utilities are linear,
        d counts coefficients in place of log-worths: K per feature (1 if it is shared), K (n_items - 1) if items have
        worths of their own, and K (n_items - 1) for slates in all, those of cohesion among them. Ties as outcomes have
        parameters too.

        Examples
        --------
        >>> rankings = [[0, 1]] * 3 + [[1, 0]]
        >>> round(plm.PlackettLuceMixture(1, alpha=0).fit(rankings).bic(rankings), 4)  # log(4) + 2 * 2.2493
        5.885
        """
        total = self._checked_score(X, **how)
        return float(self._n_parameters() * np.log(total.weight) - 2 * total.log_likelihood)

    def aic(self, X: Any, **how: Unpack[OfTotals]) -> float:
        """Akaike information criterion on these rankings; lower is better.

        It is 2 d - 2 log-likelihood, with d as for `bic`.

        Examples
        --------
        >>> rankings = [[0, 1]] * 3 + [[1, 0]]
        >>> round(plm.PlackettLuceMixture(1, alpha=0).fit(rankings).aic(rankings), 4)  # 2 + 2 * 2.2493
        6.4987
        """
        total = self._checked_score(X, **how)
        return float(2 * (self._n_parameters() - total.log_likelihood))

    def sample(
        self, n: int = 1, random_state: RandomState = None, *, named: bool | str = False
    ) -> tuple[Any, NDArray[np.int64]]:
        """Full rankings (n, n_items) drawn from the mixture, and the component (n,) of each.

        With `named` the rankings are a table of item names, one column per place.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1).fit([[0, 1, 2], [2, 1, 0]])
        >>> drawn, component = model.sample(5, random_state=0)
        >>> drawn.shape, component.shape
        ((5, 3), (5,))
        """
        mixture = self._mixture()
        if mixture.tie_parameters is not None:
            raise errors.SettingsError(
                f"sample draws orders without ties, and ties={self._ties!r} has ties as outcomes"
            )
        whole_number("n", n, at_least=1)
        rng = generator(seed_of(random_state), "sample")
        if mixture.rows is not None:
            assert self._linear is not None
            terms, end = self._linear
            component = rng.choice(mixture.n_components, n, p=mixture.shares)
            orders = terms.drawn(end, component, rng)
        else:
            block, component = draw_rankings(mixture.log_worths, mixture.shares, n, rng)
            orders = block.to_array()
        return (self._named_orders(orders, named) if named else orders), component

    def worths_frame(self, *, log: bool = True, standard_errors: Any = None, table: str = "auto") -> Any:
        """A table of worths: one row per item, one column per component.

        Parameters
        ----------
        log
            Whether to give log-worths, of mean zero in each component. Otherwise worths that sum to 1 in each
            component: the probabilities of the first choice from all items. Log-worths of a model of slates compare
            items of one `slate`, and have mean zero there.
        standard_errors
            What `standard_errors(X)` gave; they belong to log-worths.
        table
            As in the class.

        Returns
        -------
        table
            Columns `item`, and `component 0` and so on; with standard errors, `standard error 0` and so on. For chains
            that have not mixed, `R-hat 0` and so on.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> found = model.worths_frame(log=False, table="dict")
        >>> found["item"].tolist(), found["component 0"].round(4).tolist()
        (['mate', 'tea'], [0.25, 0.75])
        """
        mixture = self._mixture()
        values = mixture.log_worths
        first, slates = self._reading()[2:]
        if not log:
            worths = np.exp(values - np.logaddexp.reduce(values, axis=1)[:, None])
            values = worths if first is None or slates is None else first
        columns: dict[str, Any] = {"item": mixture.item_names} | ({} if slates is None else {"slate": slates})
        columns |= {f"component {number}": line for number, line in enumerate(values)}
        if standard_errors is not None:
            if not log:
                raise errors.SettingsError("standard errors are those of log-worths; leave out log=False")
            spread = numbers("standard_errors.log_worths", getattr(standard_errors, "log_worths", standard_errors))
            if spread.shape != values.shape:
                raise errors.SettingsError(
                    f"expected standard errors of shape {values.shape}, as the log-worths have, but got {spread.shape}"
                )
            columns |= {f"standard error {number}": line for number, line in enumerate(spread)}
        return table_of(columns | self._worth_columns(), table)

    def top_items(self, k: int = 5, *, table: str = "auto") -> Any:
        """The k items that are most probably among the first k: of the mixture, and of each component.

        Parameters
        ----------
        k
            The number of items.
        table
            As in the class.

        Returns
        -------
        table
            k rows. Columns `place` (from 1), `mixture`, `component 0` and so on hold item names.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> model.top_items(1, table="dict")["mixture"].tolist()
        ['tea']
        """
        mixture = self._plain_mixture()
        k = min(int(whole_number("k", k, at_least=1)), mixture.n_items)
        by_component = top_k_probabilities(mixture.log_worths, k)
        names = np.array(mixture.item_names)
        columns: dict[str, Any] = {"place": np.arange(1, k + 1)}
        columns["mixture"] = names[np.argsort(-(mixture.shares @ by_component), kind="stable")[:k]]
        # Within a component a larger worth has a larger probability, for any k.
        for number, logs in enumerate(mixture.log_worths):
            columns[f"component {number}"] = names[np.argsort(-logs, kind="stable")[:k]]
        return table_of(columns, table)

    def memberships(self, X: Any, *, table: str = "auto", **how: Unpack[OfPersons]) -> Any:
        """A table of memberships: one row per ranking, with its id and group where there are any.

        All rows are computed now. For stores larger than memory, `predict_proba` is lazy, and `plmix predict` writes a
        file.

        Parameters
        ----------
        X, unranked, client, membership_covariates, features
            As in `fit`.
        table
            As in the class.

        Returns
        -------
        table
            Columns `id` (the number of the row, from 0, if rankings have no ids), `group`, `component` (the most
            probable one), and `probability 0` and so on.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1).fit([[0, 1]] * 3 + [[1, 0]])
        >>> found = model.memberships([[0, 1]], table="dict")
        >>> {name: column.tolist() for name, column in found.items()}
        {'id': [0], 'component': [0], 'probability 0': [1.0]}
        """
        options: dict[str, Any] = {**how}
        client = options.pop("client", None)
        rankings = self._rankings(X, **options)
        function = self._of_persons(probabilities_of(self._mixture(), self._ties), rankings)
        probabilities = rows_now(rankings, function, client)
        columns: dict[str, Any] = {"id": np.arange(rankings.n_rankings)}
        blocks = list(rankings.source.iter_leaves(0, rankings.n_leaves, labels=True))
        if blocks and blocks[0].ids is not None:
            columns["id"] = np.concatenate([block.ids for block in blocks])
        if blocks and blocks[0].groups is not None:
            columns["group"] = np.concatenate([block.groups for block in blocks])
        columns["component"] = probabilities.argmax(axis=1)
        columns |= {f"probability {number}": line for number, line in enumerate(probabilities.T)}
        return table_of(columns, table)

    def summary(self, k: int = 5, X: Any = None, *, standard_errors: Any = None, **how: Unpack[OfTotals]) -> Summary:
        """What was fitted, how it ended, criteria, and the share and the k best items of each component.

        Prompts and `print` show text, notebooks a card.

        Parameters
        ----------
        k
            How many items of each component are shown.
        X, sample_weight, unranked, client, membership_covariates, features
            The rankings of the fit, as in `fit`, to compute standard errors from.
        standard_errors
            What `standard_errors(X)` or `bootstrap(X)` gave. Draws of a posterior have their own.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> print(model.summary())
        PlackettLuceMixture: 1 component, 2 items
        fitted to 4 rankings
        log-likelihood -2.2493, BIC 5.9, AIC 6.5, converged after ... iterations
        <BLANKLINE>
        component 0, share 100.0 %
          item  log-worth  first
          tea       0.549   0.75
          mate     -0.549   0.25
        <BLANKLINE>
        first: the probability that an item is chosen first from all items
        """
        self._mixture()
        k = int(whole_number("k", k, at_least=1))
        return summary_of(self, self._n_parameters(), k, self._sureness(X, standard_errors, how))

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        *,
        title: str | None = None,
        names: Sequence[str] | None = None,
        standard_errors: StandardErrors | bool | None = None,
        selection: Any = None,
        **how: Unpack[OfTotals],
    ) -> Path:
        """Write one HTML file that needs nothing else and no network (docs/report.md).

        A report that is there is replaced; any other file is an error.

        Parameters
        ----------
        path
            The file to write.
        X, sample_weight, unranked, client, membership_covariates, features
            The rankings of the fit, as in `fit`. With them, the report says how certain memberships and worths are.
        title
            The title of the page; by default it says how many groups were found.
        names : (n_components,)
            Names for the groups, in the order of the components; by default they are "group 1" and so on.
        standard_errors
            What `standard_errors(X)` gave. None computes them if X is given and there are at most 2,000 log-worths;
            True always, False never. Draws of a posterior have their own intervals.
        selection
            How the number of components was chosen: a table with a column `n_components`, as a list of records or a
            frame, or an object that has such a table as `table_`. A model that a selection chose knows it.

        Examples
        --------
        >>> rankings = [["tea", "mate", "milk"]] * 30 + [["milk", "mate", "tea"]] * 10
        >>> model = plm.PlackettLuceMixture(2, alpha=0.1, random_state=0).fit(rankings)
        >>> model.report(tmp / "drinks.html", rankings).name
        'drinks.html'
        """
        return write_report(self, path, X, how, title, names, standard_errors, selection)

    def _sureness(self, X: Any, given: Any, how: Any) -> Sureness | None:
        """Standard errors and intervals: those given, or computed from the rankings."""
        if given is None and X is None:
            return None
        if given is None and not hasattr(self, "standard_errors"):
            raise errors.SettingsError(f"{type(self).__name__} has no standard errors; leave out X")
        found: Any = given if given is not None else self.standard_errors(X, **how)
        spread = found.standard_errors() if hasattr(found, "standard_errors") else found
        if getattr(spread, "log_worths", np.zeros(0)).shape != self._mixture().log_worths.shape:
            raise errors.SettingsError(
                "standard_errors must be what standard_errors(X) or bootstrap(X) of this model gave, but is "
                f"{shown(given)}"
            )
        return Sureness("error", spread, found.intervals())

    def transform(self, X: Any, **how: Unpack[OfPersons]) -> Any:
        """(n_rankings, n_components): the probability of each component for each ranking, as `predict_proba` gives it.

        Examples
        --------
        >>> model = plm.PlackettLuceMixture(2, random_state=1).fit([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
        >>> model.transform([[2, 1, 0]]).round(1).tolist()
        [[0.0, 1.0]]
        """
        return self.predict_proba(X, **how)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> NDArray[Any]:
        """(n_components,): the names of the columns of `transform`: "component 0" and so on.

        Examples
        --------
        >>> plm.PlackettLuceMixture(1).fit([[0, 1], [1, 0]]).get_feature_names_out().tolist()
        ['component 0']
        """
        if input_features is not None and len(input_features) == 0:
            raise errors.SettingsError("input_features is empty; leave it out: the columns are named after components")
        return np.array([f"component {number}" for number in range(self._mixture().n_components)], dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of items: a row has at most this many places. Shorter rows are allowed, so widths may differ."""
        if not hasattr(self, "log_worths_"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet, so it has no n_features_in_")
        return self._mixture().n_items

    def save(self, path: str | os.PathLike[str] | Location, *, about: dict[str, Any] | None = None) -> None:
        """Write a folder of arrays and JSON that can be read without this package; nothing is pickled.

        A model that is there is replaced, and stays whole until the new one is. Anything else that is there, such as a
        store or other files, is an error. `PlackettLuceMixture.load` reads the mixture of every estimator.

        Parameters
        ----------
        path
            The folder or URL to write.
        about
            More entries for `model.json`.

        Examples
        --------
        >>> plm.PlackettLuceMixture(1).fit([["tea", "mate"], ["mate", "tea"]]).save(tmp / "model")
        >>> plm.PlackettLuceMixture.load(tmp / "model").item_names_
        ('mate', 'tea')
        """
        mixture = self._mixture()
        check_target(Location.of(path), "model", overwrite=True)
        mixture.save_with(path, {**(about or {}), **self._record()}, self._arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str] | Location) -> Self:
        """Read what `save` wrote to a folder or URL; an error if a byte of it was altered.

        Examples
        --------
        >>> plm.MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"]).save(tmp / "model")
        >>> plm.PlackettLuceMixture.load(tmp / "model").log_worths_.tolist()
        [[-1.0, 1.0]]
        """
        mixture, (record, arrays) = load_with(path)
        return cls._restored(mixture, record, arrays, Location.of(path).url)

    @abstractmethod
    def _record(self) -> dict[str, Any]:
        """All that is saved of a model but its arrays."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that are saved beside those of the mixture."""

    @classmethod
    @abstractmethod
    def _restored(cls, mixture: MixtureParams, record: dict[str, Any], arrays: dict[str, Any], where: str) -> Self:
        """The model of what these two gave; `where` it was read from, for errors."""

    @classmethod
    def _unfitted(cls, mixture: MixtureParams, settings: dict[str, Any]) -> Self:
        """An estimator with the saved settings that this version has, and the parameters of the mixture."""
        known = {name: settings[name] for name in cls._get_param_names() if name in settings}
        try:
            check_settings(cls._TASK, known)
        except errors.SettingsError as error:
            raise errors.DamagedStoreError(f"the settings of the saved model were altered: {error}") from None
        model = cls(**(known | {"n_components": mixture.n_components - int(bool(known.get("noise")))}))
        model._set_mixture(mixture)
        return model

    def _plain_settings(self) -> dict[str, Any]:
        """The settings that JSON can hold; arrays as numbers or lists of numbers."""
        given = self._flat_settings()
        # Where a fit was saved on its way is not a setting of the model.
        named = {name: value for name, value in given.items() if name != "checkpoint"}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in named.items()}
        return {name: value for name, value in plain.items() if _is_plain(value)} | {
            name: numbers(name, given[name]).tolist() for name in self._ARRAY_SETTINGS if given[name] is not None
        }

    def _flat_settings(self) -> dict[str, Any]:
        """The settings by the names that a saved model has."""
        settings: dict[str, Any] = self.get_params(deep=False)
        return settings

    @contextmanager
    def _rankings_to_fit(
        self, X: Any, *, client: ClientLike = None, membership_covariates: ArrayLike | None = None, **options: Any
    ) -> Iterator[tuple[Rankings, Client | None]]:
        """The rankings of a fit, and where it computes; the options are those of `as_rankings`."""
        options |= {"default_unranked": self.unranked, "covariates": membership_covariates}
        with client_of(client) as chosen:
            yield as_rankings(X, client=chosen, **options), chosen

    def _given_start(self, rankings: Rankings, words: tuple[str, ...]) -> Point:
        """The point that `init` gives; `words` name the kinds of starts, for errors."""
        init, n_components, ghosts = self.init, self.n_components, None
        if isinstance(init, np.ndarray | list | tuple):
            log_worths = numbers("init", init)
            _check_shape(log_worths, n_components, rankings)
            bad = np.argwhere(~np.isfinite(log_worths)).tolist()
            if bad:
                raise errors.SettingsError(f"init must be finite log-worths, but init{bad[0]} is {log_worths[*bad[0]]}")
            return Point.start(log_worths, np.full(n_components, 1 / n_components))
        if isinstance(init, MixtureParams):
            mixture = init
        elif isinstance(init, Predictions):
            mixture, ghosts = init._mixture(), getattr(init, "_ghosts", None)
        else:
            mixture, ghosts = _saved_start(init, words)
        _check_shape(mixture.log_worths, n_components, rankings)
        if mixture.item_names != rankings.item_names:
            difference = first_difference(rankings.item_names, mixture.item_names)
            raise errors.SettingsError(f"init is a model of other items: {difference}")
        return Point.start(mixture.log_worths, mixture.shares, ghosts)

    def _unranked_of_fit(self, unranked: Unranked | None) -> Unranked | None:
        """What unlisted items meant in the fit: as its rankings say, or as it was given."""
        return unranked or self.about_["data"]["unranked"] or self.unranked

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the progress function, which belongs to this process."""
        state: dict[str, Any] = super().__getstate__()
        return {name: None if name == "progress" else value for name, value in state.items()}

    def __sklearn_clone__(self) -> Self:
        """An unfitted estimator of the same settings; a fitted model to begin with stays fitted."""
        return type(self)(**self.get_params(deep=False))

    def _n_parameters(self) -> int:
        """Log-worths are free up to a constant per component; shares that are not fixed sum to one."""
        if self._linear is not None:
            return int(self._linear[1].layout.n_free)
        mixture, coefficients = self._mixture(), self._coefficients
        n_shares = mixture.n_components - 1 if getattr(self, "shares", None) is None else 0
        n_per_component = 1 if coefficients is None else coefficients.shape[1]
        n_free = mixture.n_components - int(getattr(self, "noise", False))  # worths of noise are held
        ties = mixture.tie_parameters
        n_ties = 0 if ties is None else np.count_nonzero(ties[:1] if TIES[self._ties].shared else ties)
        return n_free * (mixture.n_items - 1) + n_shares * n_per_component + int(n_ties)

    def _checked_score(self, X: Any, **how: Unpack[OfTotals]) -> Score:
        """The sums that a criterion is made from, with warnings where it would mislead."""
        found: Score = self._total(SCORE, X, ties=self._ties, **how)
        self._check_weight(float(found.weight), how.get("sample_weight"))
        n_half = data_of(self).get("n_half", 0)
        if n_half:
            words = (
                f"ties of {n_half:,} rankings count half, so this is a criterion of an objective, not of a likelihood: "
                f"compare it with those of other fits with ties={self._ties!r} alone"
            )
            errors.give_warnings([errors.ObjectiveWarning(words)])
        return found

    def _worth_columns(self) -> dict[str, Any]:
        """Further columns of `worths_frame`, without which its worths must not be read."""
        return {}

    def _check_weight(self, weight: float, sample_weight: ArrayLike | None) -> None:
        """A warning where results would be on another scale than the fit: weights that are not counts, or forgotten."""
        data = data_of(self)
        # Rankings that count once each are as many as those of a fit that had another weight.
        of_fit = data.get("weight", weight)
        is_other = weight == data.get("n_rankings") and not math.isclose(weight, of_fit, rel_tol=1e-9)
        if sample_weight is not None and weight <= 1:
            words = f"the weights sum to {weight:.3g}, but weights are counts of rankings; {TO_COUNTS}"
        elif sample_weight is None and is_other:
            words = (
                f"the rankings of the fit had a weight of {data['weight']:,.6g}, and these have {weight:,.6g}; give "
                "the sample_weight of the fit"
            )
        else:
            return
        errors.give_warnings([errors.WeightWarning(words)])


def _of_persons(options: dict[str, Any]) -> dict[str, Any]:
    """The options of `fit` that its predictions for the same rankings take too."""
    return {name: value for name, value in options.items() if name in OfPersons.__annotations__}


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold the value of a setting."""
    return math.isfinite(value) if isinstance(value, float) else value is None or isinstance(value, bool | int | str)


def _saved_start(init: Any, words: tuple[str, ...]) -> tuple[MixtureParams, Floats | None]:
    """The mixture of the saved model that `init` is the path of, and its ghosts."""
    expected = f"init must be {', '.join(words)}, a fitted model, the path of one, or an array of log-worths"
    if not isinstance(init, str | os.PathLike):
        raise errors.SettingsError(f"{expected}, but is {shown(init)}")
    try:
        mixture, saved = load_with(init)
    except errors.StoreNotFoundError:
        if "/" in os.fspath(init):
            raise
        raise errors.SettingsError(
            f"{expected}, but is {shown(init, str)}, and no model is at this path{nearest(init, words)}"
        ) from None
    return mixture, saved.arrays.get("ghosts")


def _check_shape(log_worths: Floats, n_components: int, rankings: Rankings) -> None:
    if log_worths.shape != (n_components, rankings.n_items):
        raise errors.SettingsError(
            f"init has shape {log_worths.shape}, but {n_components} components of {rankings.n_items} items are to be "
            "fitted"
        )
