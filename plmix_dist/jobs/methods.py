"""What a job computes, one value per method: fit, select or sample. All leave a model, and go on after a stop."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist import __version__
from plmix_dist.bayesian import BayesianPlackettLuceMixture
from plmix_dist.data import weight_of_memberships
from plmix_dist.data.covariate_files import read_covariates
from plmix_dist.errors import (
    CollapsedComponentWarning,
    NotConvergedWarning,
    OtherCheckpointError,
    StoreNotFoundError,
    UnfinishedStoreError,
)
from plmix_dist.estimator import PlackettLuceMixture
from plmix_dist.inference.fingerprint import digest_of
from plmix_dist.jobs.output_folder import CHOICE, MODEL, JobProgress
from plmix_dist.jobs.schema import BAYES_INITS
from plmix_dist.selection import MixtureSelection
from plmix_dist.starts.start_settings import INITS
from plmix_dist.store import Location, open_store
from plmix_dist.store.checkpoints import CheckpointFolder
from plmix_dist.store.manifest import sha256
from plmix_dist.store.models import load_model
from plmix_dist.store.reader import digest_of_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from plmix_dist.jobs.context import Context
    from plmix_dist.jobs.job_file import Job
    from plmix_dist.jobs.output_folder import OutputFolder
    from plmix_dist.store import RankingStore

logger = logging.getLogger(__name__)

_SWEEPS = "sweeps"  # the stage of sampling whose iterations are the history


class Computed(NamedTuple):
    """A fitted model, which is not saved yet, and its history."""

    model: PlackettLuceMixture | BayesianPlackettLuceMixture
    history: Iterable[dict[str, Any]]


class Method(NamedTuple):
    """What a job computes.

    Parameters
    ----------
    settings
        The settings of a job that decide the model, by name.
    compute
        Computes the model for the rankings of a store, beginning at the last model if one is given.
    summary
        Tells of the results in an output folder; "converged" decides the exit code.
    """

    settings: Callable[[Job], dict[str, Any]]
    compute: Callable[[Context, RankingStore, Location | None], Computed]
    summary: Callable[[OutputFolder, RankingStore], dict[str, Any]]


def run_method(context: Context) -> dict[str, Any]:
    """Compute the model of a job, unless it is there; from the last model if rankings were added since."""
    job, folder = context.job, context.folder
    method, store = METHODS[job["model.method"]], open_store(job["data.store"])
    made_from = model_made_from(job, store)
    place = folder.location.child(MODEL)
    there = None if context.force else _made_from_there(place)
    if there == made_from:
        _clear_checkpoints(job)  # of a job that was stopped after it had saved its model
        return method.summary(folder, store) | {"changed": False}
    if context.force:
        _clear_checkpoints(job)
    last = place if there is not None and job["start.warm"] else None
    with warnings.catch_warnings():
        for said_in_the_summary in (NotConvergedWarning, CollapsedComponentWarning):
            warnings.simplefilter("ignore", said_in_the_summary)
        try:
            computed = method.compute(context, store, last)
        except OtherCheckpointError as error:
            if job["checkpoint.folder"] is not None:
                raise  # others may save there too
            logger.warning("a fit that was stopped cannot go on, and begins again: %s", error)
            _clear_checkpoints(job)
            computed = method.compute(context, store, last)
    computed.model.save(place, about={"job": made_from})  # it comes last, and says that all is there
    folder.write_history(computed.history)
    if job["model.method"] != "select":
        (folder.path / CHOICE).unlink(missing_ok=True)  # of a selection that this job has replaced
    _clear_checkpoints(job)
    return method.summary(folder, store) | {"changed": True, "warm_start": last is not None}


def model_made_from(job: Job, store: RankingStore) -> dict[str, Any]:
    """What decides every bit of the model, but for where a warm start begins."""
    settings = METHODS[job["model.method"]].settings(job)
    init = settings.get("init")
    if init not in (None, *INITS, *BAYES_INITS):
        settings["init"] = f"{init} {sha256(Location.of(init).read_bytes('model.json'))[:12]}"
    columns = _covariates(job)
    return {
        "method": job["model.method"],
        "rankings": sha256(f"{digest_of_store(store)} {store.item_names}".encode())[:16],
        "covariates": None if columns is None else digest_of(columns),
        "version": __version__,
        "seed": job["model.seed"],
        **{name: value for name, value in settings.items() if name != "residency"},
    }


def unfinished_fit(job: Job) -> int | None:
    """The number of the newest checkpoint: there is one while a fit is not finished."""
    return CheckpointFolder(Location.of(job.checkpoint.path)).newest()


def _clear_checkpoints(job: Job) -> None:
    CheckpointFolder(Location.of(job.checkpoint.path)).clear()


def _made_from_there(place: Location) -> dict[str, Any] | None:
    """What the model that is there was made from; None if there is none, or one that was not written to its end."""
    try:
        record = load_model(place).record.get("job")
    except (StoreNotFoundError, UnfinishedStoreError):
        return None
    return record if isinstance(record, dict) else {}


def _covariates(job: Job) -> Any:
    return None if job["data.covariates"] is None else read_covariates(job["data.covariates"])


def _fit(context: Context, store: RankingStore, last: Location | None) -> Computed:
    """Fit a mixture by EM."""
    job, settings = context.job, context.job.fit_settings()
    if last is not None:
        settings["init"] = PlackettLuceMixture.load(last)
    with context.display.fit(settings["tol"], settings["max_iter"]) as shown:
        model = PlackettLuceMixture(
            random_state=job["model.seed"],
            progress=JobProgress(context.folder, shown),
            checkpoint=job.checkpoint,
            **settings,
        )
        client = context.executor.client_if_asked()
        model.fit(store, client=client, membership_covariates=_covariates(job))
    model.init = job["start.init"]
    return Computed(model, model.history_)


def _fit_summary(folder: OutputFolder, store: RankingStore) -> dict[str, Any]:
    model = PlackettLuceMixture.load(folder.location.child(MODEL))
    return {
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "log_likelihood": model.log_likelihood_,
        "score": model.log_likelihood_ / weight_of_memberships(store),
        "gradient_norm": model.gradient_norm_,
        "shares": model.shares_.tolist(),
        "m_step": model.m_step_,
        "n_rankings": store.n_rankings,
        "n_items": store.n_items,
    }


def _select(context: Context, store: RankingStore, last: Location | None) -> Computed:
    """Fit several numbers of components, and choose one. The table and the choice are written."""
    del last  # a selection makes its own starts
    job, settings = context.job, context.job.fit_settings()
    with context.display.fit(settings["tol"], settings["max_iter"]) as shown:
        found = MixtureSelection(
            job.component_numbers,
            **job.choice_settings(),
            estimator=PlackettLuceMixture(**settings),
            random_state=job["model.seed"],
            progress=JobProgress(context.folder, shown),
            checkpoint=job.checkpoint,
        )
        found.fit(store, client=context.executor.client_if_asked())
    record = {
        "n_components": found.n_components_,
        "criterion": found.criterion,
        "margin": found.margin_,
        "words": found.words_,
        "table": found.table_,
    }
    context.folder.write(CHOICE, record)
    return Computed(found.best_estimator_, found.best_estimator_.history_)


def _select_settings(job: Job) -> dict[str, Any]:
    return job.fit_settings() | {"n_components": list(job.component_numbers)} | job.choice_settings()


def _select_summary(folder: OutputFolder, store: RankingStore) -> dict[str, Any]:
    choice = folder.read(CHOICE) or {}
    told = {name: choice.get(name) for name in ("n_components", "criterion", "margin", "words")}
    return _fit_summary(folder, store) | told


def _sample(context: Context, store: RankingStore, last: Location | None) -> Computed:
    """Draw from the posterior."""
    job, settings = context.job, context.job.bayes_settings()
    if last is not None:
        settings["init"] = BayesianPlackettLuceMixture.load(last)
    with context.display.fit(1.0, 1) as shown:
        model = BayesianPlackettLuceMixture(
            random_state=job["model.seed"],
            progress=JobProgress(context.folder, shown, history=_SWEEPS),
            checkpoint=job.checkpoint,
            **settings,
        )
        model.fit(store, client=context.executor.client_if_asked())
    model.init = job["start.init"]
    return Computed(model, context.folder.history_once())


def _sample_summary(folder: OutputFolder, store: RankingStore) -> dict[str, Any]:
    model = BayesianPlackettLuceMixture.load(folder.location.child(MODEL))
    return {
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "log_likelihood": model.log_likelihood_,
        "score": model.log_likelihood_ / weight_of_memberships(store),
        "largest_r_hat": model.diagnostics_.largest_r_hat,
        "least_ess": model.diagnostics_.least_ess,
        "dic": model.dic_,
        "shares": model.shares_.tolist(),
        "n_rankings": store.n_rankings,
        "n_items": store.n_items,
    }


# By `model.method`. To add one, add its value here, its name in `schema.METHODS`, and its keys in the schema.
METHODS = {
    "fit": Method(lambda job: job.fit_settings(), _fit, _fit_summary),
    "select": Method(_select_settings, _select, _select_summary),
    "bayes": Method(lambda job: job.bayes_settings(), _sample, _sample_summary),
}
