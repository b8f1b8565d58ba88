"""MixtureSelection: the choice of the number of components, after scikit-learn's conventions."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from plmix_dist.choices.tables import table_of
from plmix_dist.data import as_rankings
from plmix_dist.display.notebook import NotebookView, selection_card
from plmix_dist.engine.clients import client_of
from plmix_dist.engine.memory_needed import check_memory
from plmix_dist.engine.passes import make_passes
from plmix_dist.errors import NotConvergedWarning, SettingsError
from plmix_dist.estimator import PlackettLuceMixture
from plmix_dist.inference.fingerprint import made_from
from plmix_dist.inference.journal import open_journal
from plmix_dist.progress import shown_progress, stage_listener
from plmix_dist.selection.all_rows import begin
from plmix_dist.selection.criteria import CRITERIA
from plmix_dist.selection.driver import select_number
from plmix_dist.selection.plot import plot_table
from plmix_dist.selection.table import choose, in_words, text_table
from plmix_dist.stages import Stages
from plmix_dist.store.checkpoints import Checkpoint
from plmix_dist.values import one_of, seed_of, shown, whole_number

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from numpy.typing import ArrayLike

    from plmix_dist.data import Rankings
    from plmix_dist.engine.clients import ClientLike
    from plmix_dist.engine.passes import Passes
    from plmix_dist.inference.settings import FitSettings
    from plmix_dist.rankings import Unranked
    from plmix_dist.selection.driver import Selected
    from plmix_dist.values import RandomState


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
        True prints the stages on stderr; None shows nothing. An object with a method `stage` hears of stages.
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
    >>> import plmix_dist as pl
    >>> import tempfile
    >>> store = pl.simulate(tempfile.mkdtemp() + "/s", n_rankings=500, n_items=5, n_components=2, random_state=1)
    >>> found = MixtureSelection(range(1, 4), criterion="bic", random_state=0).fit(store)
    >>> found.n_components_, found.best_estimator_.n_components
    (2, 2)
    >>> [row["n_components"] for row in found.table_]
    [1, 2, 3]
    """

    def __init__(
        self,
        n_components: Iterable[int] = range(2, 11),
        *,
        criterion: Literal["bic", "aic", "icl", "held-out", "paper"] = "bic",
        also: Iterable[str] = (),
        n_folds: int = 5,
        estimator: PlackettLuceMixture | None = None,
        random_state: RandomState = None,
        progress: Callable[[dict[str, Any]], None] | bool | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    ) -> None:
        self.n_components = n_components
        self.criterion = criterion
        self.also = also
        self.n_folds = n_folds
        self.estimator = estimator
        self.random_state = random_state
        self.progress = progress
        self.checkpoint = checkpoint

    def fit(
        self,
        X: Any,
        y: object = None,
        *,
        sample_weight: ArrayLike | None = None,
        n_items: int | None = None,
        unranked: Unranked | None = None,
        client: ClientLike = None,
        after: Callable[[str, Any], None] | None = None,
    ) -> Self:
        """Fit all numbers of components, and choose one. Fits share the passes over the rows.

        Parameters
        ----------
        X, sample_weight, n_items, unranked, client
            As in `PlackettLuceMixture.fit`.
        y
            Not used; scikit-learn's pipelines pass it.
        after
            Called after every pass over all rows with the name of the stage and the state of its fits
            (`inference/saved_state.py` writes a state down).

        Examples
        --------
        >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
        >>> MixtureSelection(range(1, 4), random_state=0).fit(rankings).n_components_
        2
        """
        del y
        numbers, names, seed = self._numbers(), self._criteria(), self._seed()
        template = self._template()
        settings = template.set_params(n_components=numbers[0], random_state=seed)._settings()
        with shown_progress(self.progress, settings.tol, settings.max_iter) as told:
            stages = Stages(stage_listener(told))
            with client_of(client) as chosen:
                rankings = as_rankings(
                    X,
                    n_items=n_items,
                    unranked=unranked,
                    default_unranked=template.unranked,
                    sample_weight=sample_weight,
                    client=chosen,
                )
                check_memory(rankings.n_items, sum(numbers), settings.n_init)
                passes = make_passes(rankings, chosen, settings.residency)
                fingerprint = partial(self._made_from, passes, rankings, settings, numbers, names)
                free = ("seed",) if self._given_seed() is None else ()
                try:
                    with open_journal(Checkpoint.of(self.checkpoint), fingerprint, free=free) as journal:
                        settings = replace(settings, seed=journal.fingerprint.get("seed", settings.seed))
                        task = begin(passes, rankings, settings, chosen, stages, after, journal)
                        found = select_number(task, numbers, names, self.n_folds)
                finally:
                    passes.release()
        self.stages_ = stages.records
        self._take(found, settings, rankings.item_names, unranked or template.unranked)
        return self

    def summary(self) -> str:
        """The table, and the choice with its margin in words.

        Examples
        --------
        >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
        >>> print(MixtureSelection(range(1, 4), random_state=0).fit(rankings).summary().splitlines()[0])
        K     score    BIC    AIC    ICL  found  of      identifiable
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
        """Draw the criterion over the number of components; matplotlib must be installed. Gives the axes.

        Parameters
        ----------
        ax
            Axes to draw on; by default those of a new figure.
        """
        self._check_fitted()
        return plot_table(self.table_, CRITERIA[self.criterion], self.n_components_, ax)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the progress function, which belongs to this process."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"progress": None}

    def _numbers(self) -> list[int]:
        """The numbers of components, rising; an error if there are none, or one is no number."""
        given = self.n_components
        if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
            raise SettingsError(
                f"n_components must be several numbers, such as range(2, 11), but is {shown(given)}; to fit one "
                "number of components use PlackettLuceMixture"
            )
        numbers = sorted({whole_number("n_components", number, at_least=1) for number in given})
        if not numbers:
            raise SettingsError(f"n_components names no number of components: {shown(given)}")
        return numbers

    def _criteria(self) -> tuple[str, ...]:
        one_of("criterion", self.criterion, tuple(CRITERIA))
        if isinstance(self.also, str):
            raise SettingsError(f"also must be a list of criteria, but is {shown(self.also, str)}")
        also = tuple(one_of("also", name, tuple(CRITERIA)) for name in self.also)
        whole_number("n_folds", self.n_folds, at_least=2)
        return (self.criterion, *also)

    def _seed(self) -> int:
        return seed_of(self._given_seed())

    def _given_seed(self) -> RandomState:
        given = self.random_state
        if given is None and self.estimator is not None:
            given = getattr(self.estimator, "random_state", None)
        return given

    def _made_from(
        self,
        passes: Passes,
        rankings: Rankings,
        settings: FitSettings,
        numbers: list[int],
        names: tuple[str, ...],
    ) -> dict[str, Any]:
        """What the selection depends on: the data, the settings of fits, the numbers, the criteria."""
        chosen = {"n_components": numbers, "criteria": list(names), "n_folds": self.n_folds}
        return made_from(passes, rankings, settings, None) | chosen

    def _template(self) -> PlackettLuceMixture:
        """An estimator with the settings of all fits; an error for settings that belong to one number of components."""
        if self.estimator is None:
            return PlackettLuceMixture()
        if not isinstance(self.estimator, PlackettLuceMixture):
            raise SettingsError(f"estimator must be a PlackettLuceMixture, but is {shown(self.estimator)}")
        template: PlackettLuceMixture = clone(self.estimator)
        if not (isinstance(template.init, str) and template.init == "spectral"):
            raise SettingsError(
                f"a selection makes its own starts: init must be 'spectral', but is {shown(template.init, str)}"
            )
        if template.shares is not None:
            raise SettingsError(
                "fixed shares belong to one number of components; leave shares out of a selection"
            )
        if template.ties == "resample":
            raise SettingsError(
                'a selection compares likelihoods, and ties="resample" has none; choose ties="marginal", which is exact'
            )
        return template

    def _take(
        self, found: Selected, settings: FitSettings, item_names: tuple[str, ...], unranked: Unranked | None
    ) -> None:
        criterion = CRITERIA[self.criterion]
        choice = choose(found.rows, criterion)
        if choice is None:
            reason = next(row["reason"] for row in found.rows if row["reason"])
            raise SettingsError(f"no number of components has a {criterion.words}: {reason}")
        self.table_ = found.rows
        self.n_components_ = choice.n_components
        self.margin_ = choice.margin
        self.words_ = in_words(found.rows, criterion, choice)
        self.estimators_ = {}
        for one in found.fits:
            if one.fit is not None:
                model = self._template().set_params(n_components=one.n_components, random_state=settings.seed)
                model._take(one.fit, item_names)
                model.unranked_ = unranked
                self.estimators_[one.n_components] = model
        self.best_estimator_ = self.estimators_[choice.n_components]
        if not self.best_estimator_.converged_:
            warnings.warn(
                f"the fit with {choice.n_components} components did not converge; raise max_iter, or tol",
                NotConvergedWarning,
                stacklevel=3,
            )

    def _card(self) -> str | None:
        if not hasattr(self, "table_"):
            return None
        criterion = CRITERIA[self.criterion]
        return selection_card(self, criterion.column, criterion.words, lowest=criterion.lowest)

    def _check_fitted(self) -> None:
        if not hasattr(self, "table_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")


def _column(values: list[Any]) -> list[Any]:
    """The values of a column; of numbers, those that are not known are NaN."""
    if any(isinstance(value, str) for value in values) or all(value is None for value in values):
        return values
    return [math.nan if value is None else value for value in values]
