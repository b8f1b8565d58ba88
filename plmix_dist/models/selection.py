"""MixtureSelection: the choice of the number of components, after scikit-learn's conventions."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self, Unpack

from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from plmix_dist.display.notebook import NotebookView, selection_card
from plmix_dist.display.progress import Stages, shown_progress, stage_listener
from plmix_dist.errors import FitError, NotConvergedWarning, PriorDecidesWarning, SettingsError, give_warnings
from plmix_dist.fitting.criteria import CRITERIA, aic, bic, choice_without_prior, choose, icl, in_words, text_table
from plmix_dist.fitting.selection import Selected, select_mixture
from plmix_dist.fitting.starts.settings import flat_start
from plmix_dist.models.keywords import OfFitToPersons, spelled_out
from plmix_dist.models.linear import PLACKETT_LUCE
from plmix_dist.models.plackett_luce import PlackettLuceMixture
from plmix_dist.passes import check_memory
from plmix_dist.plots import plot_selection
from plmix_dist.prediction.choices import table_of
from plmix_dist.rankings import TIES, Unranked
from plmix_dist.settings import RandomState, check_settings, seed_of, settings_of, shown
from plmix_dist.store import Checkpoint, Location


@dataclass(eq=False, repr=False)
class MixtureSelection(NotebookView, BaseEstimator):  # type: ignore[misc]
    """Fits mixtures with several numbers of components, and chooses one of them (docs/choosing-k.md).

    Parameters
    ----------
    n_components
        The numbers of components to try.
    criterion
        What decides. On all rows: "bic", "aic", "icl". "held-out": log-likelihood of held-out rankings, by
        cross-validation. "paper": BIC on validation rows, as in Nguyen and Zhang (2023).
    also
        Further criteria for the table. "bic", "aic" and "icl" are always there.
    n_folds
        The number of folds of "held-out".
    estimator
        A PlackettLuceMixture with the settings of all fits, by default PlackettLuceMixture(). Its number of components
        is not used.
    random_state
        Seed of starts, folds and parts, as in PlackettLuceMixture; None takes that of the estimator.
    progress
        True prints the stages on stderr; None shows nothing. A callable with a method `stage` is called at each stage.
    checkpoint
        A folder or URL in which searches and fits are saved as they go, or a `Checkpoint`; as in PlackettLuceMixture.

    Attributes
    ----------
    table_ : list of dict
        One row per number of components (docs/choosing-k.md). `frame()` gives it as a table of pandas.
    n_components_
        The choice.
    best_estimator_
        The fit with this number of components.
    estimators_ : dict
        All fits, by number of components.
    stages_ : list of dict
        Seconds, passes over the rows and memory of each stage.

    Examples
    --------
    >>> store = plm.simulate(tmp / "s", n_rankings=500, n_items=5, n_components=2, random_state=1)
    >>> found = MixtureSelection(range(1, 4), criterion="bic", random_state=0).fit(store)
    >>> found.n_components_, found.best_estimator_.n_components
    (2, 2)
    >>> [row["n_components"] for row in found.table_]
    [1, 2, 3]
    """

    n_components: Iterable[int] = range(2, 11)
    _: KW_ONLY
    criterion: Literal["bic", "aic", "icl", "held-out", "paper"] = "bic"
    also: Iterable[str] = ()
    n_folds: int = 5
    estimator: PlackettLuceMixture | None = None
    random_state: RandomState = None
    progress: Callable[[dict[str, Any]], None] | bool | None = None
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None

    @spelled_out
    def fit(
        self,
        X: Any,
        y: object = None,
        *,
        after: Callable[[str, Any], None] | None = None,
        item_features: Any = None,
        **how: Unpack[OfFitToPersons],
    ) -> Self:
        """Fit all numbers of components, and choose one. Fits share the passes over the rows.

        Parameters
        ----------
        X, sample_weight, n_items, unranked, client, membership_covariates, item_features, features
            As in `PlackettLuceMixture.fit`. With coefficients, ties as outcomes or noise every number of components is
            fitted by itself.
        y
            Not used; scikit-learn's pipelines pass it.
        after
            Called after every pass over all rows with the name of the stage and the state of its fits
            (`fitting/algorithm.py` writes a state down).

        Examples
        --------
        >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
        >>> MixtureSelection(range(1, 4), random_state=0).fit(rankings).n_components_
        2
        """
        del y
        numbers, names = self._numbers(), self._criteria()
        seed = getattr(self.estimator, "random_state", None) if self.random_state is None else self.random_state
        template = self._template()
        given = {"item_features": item_features, **how}
        alone = template.choices != PLACKETT_LUCE or template.noise or TIES[template.ties].order
        if alone or any(given.get(name) is not None for name in _OF_COEFFICIENTS):
            if after is not None:
                raise SettingsError(f"after is not called for {_ALONE}; leave it out")
            self._fit_each(template, X, seed, given)
            return self
        settings = template.set_params(n_components=numbers[0], random_state=seed_of(seed))._settings()
        reading = template._rankings_to_fit(X, **how)
        with shown_progress(self.progress, settings.tol, settings.max_iter) as progress, reading as (rankings, chosen):
            rankings = replace(rankings, ties=TIES[template.ties].for_later)
            check_memory(rankings.n_items, sum(numbers), settings.n_init)
            stages = Stages(stage_listener(progress))
            kept: Any = {"checkpoint": Checkpoint.of(self.checkpoint), "any_seed": seed is None}
            found = select_mixture(rankings, settings, numbers, names, self.n_folds, chosen, stages, after, **kept)
        self.stages_ = stages.records
        self._take(found, rankings.item_names, how.get("unranked") or template.unranked)
        return self

    def _fit_each(self, template: PlackettLuceMixture, X: Any, seed: RandomState, given: dict[str, Any]) -> None:
        """Fits that share no passes, one after the other, and their table."""
        other = next((name for name in self._criteria() if name not in ("bic", "aic", "icl")), None)
        if other is not None:
            raise SettingsError(f'criterion "{other}" is not made for {_ALONE}; choose bic, aic or icl')
        rows, fits, place = [], {}, Checkpoint.of(self.checkpoint)
        # A seed that was left out is that of the checkpoint, where there is one.
        common = {"random_state": seed if seed is None and place else seed_of(seed), "progress": self.progress}
        for number in self._numbers():
            model = clone(template).set_params(n_components=number, **common)
            if place is not None:
                model.checkpoint = replace(place, path=Location.of(place.path).child(f"components-{number}"))
            row: dict[str, Any] = dict.fromkeys(_COLUMNS) | {"n_components": number}
            try:
                fits[number] = model.fit(X, **given)
                row |= _row_of(model, X, given)
            except FitError as error:
                row["reason"] = str(error)
            rows.append(row)
        self.stages_ = [stage for model in fits.values() for stage in model.init_["stages"]]
        self._choose(rows)
        for model in fits.values():
            model.about_ = model.about_ | {"selection": self._record()}
        self.estimators_, self.best_estimator_ = fits, fits[self.n_components_]

    def summary(self) -> str:
        """The table, and the choice with its margin in words.

        Examples
        --------
        >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
        >>> print(MixtureSelection(range(1, 4), random_state=0).fit(rankings).summary().splitlines()[0])
        K     score    BIC  BIC, no prior    AIC    ICL  found  of      identifiable
        """
        self._check_fitted()
        return "\n".join([*text_table(self.table_), "", self.words_])

    def frame(self, *, table: str = "auto") -> Any:
        """The table as a pandas frame if pandas is installed, else as a dict of arrays.

        Parameters
        ----------
        table
            "pandas", "arrow", "dict" (of arrays), or "auto".

        Examples
        --------
        >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
        >>> MixtureSelection(range(1, 3), random_state=0).fit(rankings).frame(table="dict")["n_components"].tolist()
        [1, 2]
        """
        self._check_fitted()
        return table_of({name: _column([row[name] for row in self.table_]) for name in self.table_[0]}, table)

    def plot(self, ax: Any = None) -> Any:
        """Draw the criterion by number of components, as `plots.plot_selection`; matplotlib must be installed.

        Parameters
        ----------
        ax
            Axes to draw on; by default those of a new figure.
        """
        self._check_fitted()
        return plot_selection(self, ax=ax)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the progress function, which belongs to this process."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"progress": None}

    def _numbers(self) -> list[int]:
        """The numbers of components, rising; an error if there are none, or one is not a number."""
        found: list[int] = settings_of("select")["n_components"].kind.check("n_components", self.n_components)
        return found

    def _criteria(self) -> tuple[str, ...]:
        also = tuple(self.also) if not isinstance(self.also, str) else self.also
        check_settings("select", {"criterion": self.criterion, "also": also, "n_folds": self.n_folds})
        return (self.criterion, *also)

    def _template(self) -> PlackettLuceMixture:
        """An estimator with the settings of all fits; an error for settings that belong to one number of components."""
        if self.estimator is None:
            return PlackettLuceMixture()
        if not isinstance(self.estimator, PlackettLuceMixture):
            raise SettingsError(f"estimator must be a PlackettLuceMixture, but is {shown(self.estimator)}")
        template: PlackettLuceMixture = clone(self.estimator)
        check_settings("select", {"m_step": template.m_step, "ties": template.ties})
        if flat_start(template.init)["init"] != "spectral":
            raise SettingsError(
                f"a selection makes its own starts: init must be 'spectral', but is {shown(template.init, str)}"
            )
        if template.shares is not None:
            raise SettingsError("fixed shares belong to one number of components; leave shares out of a selection")
        return template

    def _choose(self, rows: list[dict[str, Any]]) -> None:
        """Take over a table, and the choice that it leads to."""
        criterion = CRITERIA[self.criterion]
        choice = choose(rows, criterion)
        if choice is None:
            reason = next(row["reason"] for row in rows if row["reason"])
            raise SettingsError(f"no number of components has a {criterion.words}: {reason}")
        self.table_ = rows
        self.n_components_ = choice.n_components
        self.margin_ = choice.margin
        self.words_ = in_words(rows, criterion, choice)

    def _take(self, found: Selected, item_names: tuple[str, ...], unranked: Unranked | None) -> None:
        self._choose(found.rows)
        self.estimators_ = {}
        for one in found.fits:
            if one.fit is not None:
                model = self._template().set_params(n_components=one.n_components, random_state=found.seed)
                model._take(one.fit, item_names)
                model.about_ = model.about_ | {"selection": self._record()}
                model.unranked_ = model._unranked_of_fit(unranked)
                self.estimators_[one.n_components] = model
        self.best_estimator_ = self.estimators_[self.n_components_]
        words = f"the fit with {self.n_components_} components did not converge; raise max_iter, or tol"
        more = [] if self.best_estimator_.converged_ else [NotConvergedWarning(words)]
        give_warnings([*found.warnings, *more, *self._prior_decides()])

    def _prior_decides(self) -> list[Warning]:
        """A warning if the criterion chooses another number of components at the maximum of the likelihood."""
        criterion = CRITERIA[self.criterion]
        other = choice_without_prior(self.table_, criterion)
        if other in (None, self.n_components_):
            return []
        words = (
            f"the choice hangs on the prior: {criterion.words} chooses K = {self.n_components_} at its mode and "
            f'K = {other} at the maximum of the likelihood; try other values of alpha, or criterion="held-out"'
        )
        return [PriorDecidesWarning(words)]

    def _record(self) -> dict[str, Any]:
        """How the number was chosen, as a model remembers it."""
        criterion, *also = self._criteria()
        settings = {"n_components": self._numbers(), "criterion": criterion, "also": also, "n_folds": self.n_folds}
        return {"settings": settings, "words": self.words_, "table": self.table_}

    def _card(self) -> str | None:
        if not hasattr(self, "table_"):
            return None
        criterion = CRITERIA[self.criterion]
        return selection_card(self, criterion.column, criterion.words, lowest=criterion.lowest)

    def _check_fitted(self) -> None:
        if not hasattr(self, "table_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")


_ALONE = "fits with coefficients, ties as outcomes or noise"
_OF_COEFFICIENTS = ("item_features", "features", "membership_covariates")
_COLUMNS = (
    *("n_components", "n_left", "n_parameters", "log_likelihood", "score", "bic", "aic", "icl", "identifiable"),
    *("converged", "n_iter", "n_starts", "n_best", "reason"),
)


def _row_of(model: PlackettLuceMixture, X: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The row of the table of a fit that shared no passes."""
    how = {name: given.get(name) for name in ("sample_weight", "membership_covariates", "features", "unranked")}
    log_likelihood, n_free = model.log_likelihood_, model._n_parameters()
    entropy, weight = model._entropy(X, **how)
    search = model.init_.get("search") or {}
    return {
        "n_left": len(model.shares_) - model.noise,
        "n_parameters": n_free,
        "log_likelihood": log_likelihood,
        "score": log_likelihood / weight,
        "bic": bic(log_likelihood, n_free, weight),
        "aic": aic(log_likelihood, n_free),
        "icl": icl(log_likelihood, n_free, weight, entropy),
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "n_starts": search.get("n_starts", 1),
        "n_best": search.get("n_best", 1),
    }


def _column(values: list[Any]) -> list[Any]:
    """The values of a column; of numbers, those that are not known are NaN."""
    if any(isinstance(value, str) for value in values) or all(value is None for value in values):
        return values
    return [math.nan if value is None else value for value in values]
