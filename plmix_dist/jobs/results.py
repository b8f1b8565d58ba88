"""Fit, select and bayes, once for verbs and jobs: what a model is made from, whether it is there, its computation."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from plmix_dist import __version__, errors
from plmix_dist.cluster.clients import ClientLike
from plmix_dist.datasets.given import weight_of_memberships
from plmix_dist.fitting import chains, fingerprint, methods
from plmix_dist.fitting.starts.settings import start_of
from plmix_dist.models.bayesian import BayesianPlackettLuceMixture
from plmix_dist.models.linear import choices_of
from plmix_dist.models.plackett_luce import PlackettLuceMixture
from plmix_dist.models.selection import MixtureSelection
from plmix_dist.rankings.features import Features
from plmix_dist.settings import BAYES_INITS, INITS, TASKS, settings_of
from plmix_dist.store import Checkpoint, Location, RankingStore, mixture, reader, sealed, targets
from plmix_dist.tables.sources import covariates_named

_Fitted = PlackettLuceMixture | BayesianPlackettLuceMixture
Estimator = _Fitted | MixtureSelection
# Settings of MixtureSelection itself; all others of a selection are those of its fits.
_OF_SELECTION = ("n_components", "criterion", "also", "n_folds")
# A setting that changes no bit of a result.
_WITHOUT_EFFECT = "residency"


class Work(NamedTuple):
    """What a verb or a job computes: a task, its settings by flat names, a seed, a file of covariates, features."""

    task: str
    settings: dict[str, Any]
    seed: int = 0
    covariates: str | list[str] | None = None
    features: Sequence[str] | None = None  # columns of the store
    intercepts: bool | None = None  # whether items have worths beside features

    def estimator(self, **how: Any) -> Estimator:
        """The estimator of these settings; `how` is its progress and checkpoint."""
        if self.task == "bayes":
            return BayesianPlackettLuceMixture(**self.settings, random_state=self.seed, **how)
        known = settings_of(self.task)
        own = {name: value for name, value in self.settings.items() if not known[name].field}
        own |= {"init": start_of(self.settings), "random_state": self.seed}
        if self.task == "fit":
            return PlackettLuceMixture(**own, **how)
        of_selection = {name: own.pop(name) for name in _OF_SELECTION}
        return MixtureSelection(**of_selection, estimator=PlackettLuceMixture(**own), **how)

    def checked(self, typed: Collection[str] = ()) -> methods.FitSettings | chains.BayesSettings:
        """The settings; an error if some are wrong, or contradict each other or the method. `typed` ones were meant."""
        if self.task != "bayes":
            methods.with_method(self.settings["method"], self.settings, typed)
        choices_of(self.settings.get("choices"))
        if self.intercepts and not self.features:
            raise errors.SettingsError("intercepts are worths of items beside features; name features too")
        found = self.estimator()
        if isinstance(found, MixtureSelection):
            found._numbers()
            found._criteria()
            found = found._template()
        return found._settings()

    def made_from(self, store: RankingStore) -> dict[str, Any]:
        """What decides every bit of the result: the rankings, the settings, the seed, the version."""
        settings = {
            name: list(value) if isinstance(value, tuple | range) else value
            for name, value in self.settings.items()
            if name != _WITHOUT_EFFECT
        }
        if "choices" in settings:  # what a file says, not where it is
            settings["choices"] = str(choices_of(settings["choices"]))
        init: Any = settings.get("init")
        if init not in (None, *INITS, *BAYES_INITS):
            with contextlib.suppress(errors.PlmixError, OSError):  # the fit will say what is wrong with it
                settings["init"] = f"{init} {sealed.sha256(Location.of(init).read_bytes('model.json'))[:12]}"
        columns = self.columns
        return {
            **({"verb": "bayes"} if self.task == "bayes" else {}),
            "rankings": sealed.sha256(f"{reader.digest_of_store(store)} {store.item_names}".encode())[:16],
            "version": __version__,
            "seed": self.seed,
            **settings,
            **({} if columns is None else {"covariates": fingerprint.digest_of(columns)}),
            **({"features": list(self.features)} if self.features else {}),
            **({"intercepts": True} if self.intercepts else {}),
        }

    @property
    def columns(self) -> Any:
        """The covariates of persons (n_rankings, n_columns), or names of columns of the store, if there are any."""
        return covariates_named(self.covariates)

    def compute(
        self,
        store: RankingStore,
        *,
        client: ClientLike,
        progress: Any = None,
        checkpoint: Checkpoint | None = None,
        last: Location | None = None,
    ) -> Estimator:
        """The fitted estimator; it begins at the model `last` if one is given. Its results say what warnings would."""
        found = self.estimator(progress=progress, checkpoint=checkpoint)
        given = getattr(found, "init", None)
        if last is not None and not isinstance(found, MixtureSelection):  # a selection makes its own starts
            found.init = type(found).load(last)
        more: dict[str, Any] = {"membership_covariates": self.columns} if self.task == "fit" else {}
        more |= {"features": Features(self.features, intercepts=bool(self.intercepts))} if self.features else {}
        with warnings.catch_warnings():
            for shown_in_the_result in (errors.NotConvergedWarning, errors.CollapsedComponentWarning):
                warnings.simplefilter("ignore", shown_in_the_result)
            found.fit(store, client=client, **more)
        if not isinstance(found, MixtureSelection):
            found.init = given
        return found


def saved_model(place: str | Location) -> _Fitted:
    """A saved model, as the estimator that made it."""
    is_sampled = "bayes" in mixture.load_model(Location.of(place)).record
    return (BayesianPlackettLuceMixture if is_sampled else PlackettLuceMixture).load(place)


def model_of(found: Estimator) -> _Fitted:
    """The model to save: of a selection, the chosen one."""
    return found.best_estimator_ if isinstance(found, MixtureSelection) else found


# --- is it there already -----------------------------------------------------------------------------------


def record_there(place: Location) -> dict[str, Any] | None:
    """What the model that is there was made from; None if there is none, or one that was not written to its end."""
    try:
        record = mixture.load_model(place).record.get("job")
    except (errors.StoreNotFoundError, errors.UnfinishedStoreError):
        return None
    return record if isinstance(record, dict) else {}


def is_there(place: Location, mine: dict[str, Any]) -> bool:
    """Whether the model that is made from `mine` is there; an error if another one is."""
    if not place.exists("model.json"):
        return False
    there = mixture.load_model(place).record.get("job")
    if not isinstance(there, dict):
        raise errors.StoreExistsError(
            f"{place.url} already holds a model, and it does not say what it was fitted to; {targets.HOW_TO_REPLACE}"
        )
    return is_same(mine, there) or refuse_other(place, "model", mine, there)


def is_same(mine: dict[str, Any], there: dict[str, Any]) -> bool:
    """Whether two results are made from the same."""
    return _complete(mine) == _complete(there)


def refuse_other(place: Location, kind: str, mine: dict[str, Any], there: dict[str, Any]) -> bool:
    """An error that names what differs."""
    differ = targets.differences(_complete(mine), _complete(there))
    raise errors.StoreExistsError(f"{place.url} already holds another {kind} ({differ}); {targets.HOW_TO_REPLACE}")


def _complete(record: dict[str, Any]) -> dict[str, Any]:
    """A record with the defaults of settings that were added after it was written."""
    found = {name: value for name, value in record.items() if name != "covariates" or value is not None}
    if found.get("method") in TASKS:  # jobs once recorded their task by this name
        found |= {"verb": "bayes"} if found.pop("method") == "bayes" else {}
    task = "bayes" if found.get("verb") == "bayes" else "select" if "criterion" in found else "fit"
    for name, setting in settings_of(task).items():
        if setting.text is not None and name != _WITHOUT_EFFECT:
            default = setting.default
            found.setdefault(name, list(default) if isinstance(default, tuple | range) else default)
    return found


# --- summaries ---------------------------------------------------------------------------------------------


def summary_of(task: str, place: Location, store: RankingStore) -> dict[str, Any]:
    """The results of a saved model in numbers."""
    model: Any = saved_model(place)
    found = {
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "log_likelihood": model.log_likelihood_,
        "score": model.log_likelihood_ / weight_of_memberships(store),
        "shares": model.shares_.tolist(),
        "n_rankings": store.n_rankings,
        "n_items": store.n_items,
    }
    if task == "bayes":
        mixed = model.diagnostics_
        more = {"largest_r_hat": mixed.largest_r_hat, "least_ess": mixed.least_ess, "dic": model.dic_}
    else:
        more = {"gradient_norm": model.gradient_norm_, "m_step": model.m_step_}
    return found | more


def choice_of(found: MixtureSelection) -> dict[str, Any]:
    """What a selection found, as plain values."""
    of_choice = {"n_components": found.n_components_, "criterion": found.criterion, "margin": found.margin_}
    return of_choice | {"words": found.words_, "table": found.table_}
