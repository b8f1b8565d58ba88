"""The steps of a job, one value each: read the sources, fit, write memberships. The driver runs them in this order.

A step that finds its result there does nothing and says so. A new step, such as a report, is one more value in `STEPS`.
A new method of fitting, such as selection or sampling, is one more value in `METHODS`, and its name in the schema.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist import __version__
from plmix_dist.data import weight_of_memberships
from plmix_dist.data.covariate_files import read_covariates
from plmix_dist.errors import (
    CollapsedComponentWarning,
    IngestError,
    JobError,
    NotConvergedWarning,
    StoreExistsError,
    StoreNotFoundError,
)
from plmix_dist.estimator import PlackettLuceMixture
from plmix_dist.formats.sources import file_digest, find_sources
from plmix_dist.inference.fingerprint import digest_of
from plmix_dist.ingestion import ingest
from plmix_dist.jobs.output_folder import JOB, MEMBERSHIPS, MODEL, SUMMARY, JobProgress
from plmix_dist.prediction import write_predictions
from plmix_dist.starts.start_settings import INITS
from plmix_dist.store import Location, open_store
from plmix_dist.store.checkpoints import CheckpointFolder
from plmix_dist.store.manifest import sha256
from plmix_dist.store.models import load_model
from plmix_dist.store.reader import digest_of_store
from plmix_dist.store.targets import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from plmix_dist.engine import LazyExecutor
    from plmix_dist.jobs.job_file import Job
    from plmix_dist.jobs.output_folder import OutputFolder
    from plmix_dist.prediction import Written
    from plmix_dist.store import RankingStore


# Keys that decide what the model is; among them, those that change no bit of it, or what may change from run to run.
_DECISIVE = ("model.", "start.", "data.store", "data.covariates")
_WITHOUT = ("model.residency", "start.warm")


class Display:
    """What shows progress to people; this one shows nothing."""

    def bar(self, label: str) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """A bar for a step that writes in parts: a function that is called with (done, total)."""
        del label
        return contextlib.nullcontext()

    def fit(self, tol: float, max_iter: int) -> AbstractContextManager[Any]:
        """A progress object for a fit, as PlackettLuceMixture takes it."""
        del tol, max_iter
        return contextlib.nullcontext()


NOTHING_SHOWN = Display()


class Context(NamedTuple):
    """What a step works with.

    Parameters
    ----------
    job
        The checked job.
    folder
        Where it writes.
    executor
        Where it computes.
    force
        Whether a model of other settings, and its checkpoints, are replaced.
    display
        What shows progress to people.
    """

    job: Job
    folder: OutputFolder
    executor: LazyExecutor
    force: bool = False
    display: Display = NOTHING_SHOWN


class Step(NamedTuple):
    """A step of a job.

    Parameters
    ----------
    name
        Its name in summary and log.
    wanted
        Whether a job asks for it.
    run
        Does it, and gives its part of the summary. "changed" says whether anything was done.
    """

    name: str
    wanted: Callable[[Job], bool]
    run: Callable[[Context], dict[str, Any]]


def _read(context: Context) -> dict[str, Any]:
    """Read the sources that the store does not have yet."""
    job = context.job
    place = Location.of(job["data.store"])
    there = open_store(place) if place.exists("manifest.json") else None
    before = (context.folder.read(SUMMARY) or {}).get("read", {}).get("files", {})
    files = {file: file_digest(file) for file in find_sources(job["data.sources"])}
    new = new_sources(files, before, there)
    if there is not None and unfinished_fit(job) is not None and not context.force:
        # The fit that was stopped is finished first, to the rankings that it began with.
        return {"changed": False, "postponed": new, "n_rankings": there.n_rankings, "files": before}
    if new:
        with context.display.bar("read") as progress:
            there = ingest(
                new,
                place,
                format=job["data.format"],
                unranked=job["data.unranked"],
                on_error=job["data.on_error"],
                merge=job["data.merge"],
                columns=job["data.columns"],
                delimiter=job["data.delimiter"],
                append=there is not None,
                executor=context.executor,
                progress=progress,
            )
    assert there is not None
    return {"changed": bool(new), "new": new, "n_rankings": there.n_rankings, "files": before | files}


def new_sources(files: dict[str, str], before: dict[str, str], store: RankingStore | None) -> list[str]:
    """The files that a store was not made from; an error for one that was changed since.

    Parameters
    ----------
    files, before
        Digests of files now, and when the job read them last.
    store
        The store, or None if it is not there yet.

    Examples
    --------
    >>> new_sources({"a.csv": "1", "b.csv": "2"}, {}, None)
    ['a.csv', 'b.csv']
    """
    if store is None:
        return list(files)
    events = store.manifest.history
    known = {source.get("sha256") for event in events for source in event.get("sources", [])}
    new = [file for file, digest in files.items() if digest not in known]
    for file in new:
        if file in before:
            raise IngestError(
                f"{file} was changed since it was read into {store.location.url}, which has its rows as they were; "
                "give new rows a file of their own, or make the store anew"
            )
    return new


def _fit(context: Context) -> dict[str, Any]:
    """Fit the mixture, unless its model is there; from the last model if rankings were added since."""
    job, folder = context.job, context.folder
    store = open_store(job["data.store"])
    columns = None if job["data.covariates"] is None else read_covariates(job["data.covariates"])
    made_from = model_made_from(job, store, columns)
    place = folder.location.child(MODEL)
    there = _made_from_there(place)
    if there == made_from and not context.force:
        _clear_checkpoints(job)  # of a job that was stopped after it had saved its model
        return _fit_summary(PlackettLuceMixture.load(place), store) | {"changed": False}
    if context.force:
        _clear_checkpoints(job)
    settings = job.fit_settings()
    warm = there is not None and not context.force and bool(job["start.warm"])
    if warm:
        settings["init"] = PlackettLuceMixture.load(place)
    with warnings.catch_warnings(), context.display.fit(settings["tol"], settings["max_iter"]) as shown:
        for said_in_the_summary in (NotConvergedWarning, CollapsedComponentWarning):
            warnings.simplefilter("ignore", said_in_the_summary)
        model = PlackettLuceMixture(
            random_state=job["model.seed"],
            progress=JobProgress(folder, shown),
            checkpoint=job.checkpoint,
            **settings,
        )
        model.fit(store, client=context.executor.client_if_asked(), membership_covariates=columns)
    model.init = job["start.init"]
    model.save(place, about={"job": made_from})
    folder.write_history(model.history_)
    _clear_checkpoints(job)
    return _fit_summary(model, store) | {"changed": True, "warm_start": warm}


def model_made_from(job: Job, store: RankingStore, columns: Any) -> dict[str, Any]:
    """What decides every bit of the model, but for where a warm start begins."""
    settings = {name: value for name, value in job.fit_settings().items() if name != "residency"}
    init = settings["init"]
    if init not in INITS:
        init = f"{init} {sha256(Location.of(init).read_bytes('model.json'))[:12]}"
    return {
        "rankings": sha256(f"{digest_of_store(store)} {store.item_names}".encode())[:16],
        "covariates": None if columns is None else digest_of(columns),
        "version": __version__,
        "seed": job["model.seed"],
        **settings,
        "init": init,
    }


def _made_from_there(place: Location) -> dict[str, Any] | None:
    """What the model that is there was made from; None if there is none."""
    try:
        record = load_model(place).record.get("job")
    except StoreNotFoundError:
        return None
    return record if isinstance(record, dict) else {}


def refuse_another_job(context: Context) -> None:
    """An error if the folder holds a model, or the state of a fit, of other settings."""
    job, folder = context.job, context.folder
    has_model = folder.location.child(MODEL).exists("model.json")
    if context.force or not (has_model or unfinished_fit(job) is not None):
        return
    there = folder.read(JOB)
    if there is None:
        raise JobError(f"{folder.path} holds a model that no job has written; choose another outputs.folder")
    mine = {
        name: value
        for name, value in job.values.items()
        if name.startswith(_DECISIVE) and name not in _WITHOUT
    }
    if told := differences(mine, {name: there.get(name) for name in mine}):
        raise JobError(
            f"{folder.path} holds the results of another job ({told}); choose another outputs.folder, or replace them "
            "with `plmix run JOB.toml --force`"
        )


def unfinished_fit(job: Job) -> int | None:
    """The number of the newest checkpoint: there is one while a fit is not finished."""
    return CheckpointFolder(Location.of(job.checkpoint.path)).newest()


def _clear_checkpoints(job: Job) -> None:
    CheckpointFolder(Location.of(job.checkpoint.path)).clear()


def _fit_summary(model: PlackettLuceMixture, store: RankingStore) -> dict[str, Any]:
    weight = weight_of_memberships(store)
    return {
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "log_likelihood": model.log_likelihood_,
        "score": model.log_likelihood_ / weight,
        "gradient_norm": model.gradient_norm_,
        "shares": model.shares_.tolist(),
        "m_step": model.m_step_,
        "n_rankings": store.n_rankings,
        "n_items": store.n_items,
    }


def _predict(context: Context) -> dict[str, Any]:
    """Write the membership of every ranking."""
    job, place = context.job, context.folder.location
    model = PlackettLuceMixture.load(place.child(MODEL))
    columns = None if job["data.covariates"] is None else read_covariates(job["data.covariates"])

    def write(*, overwrite: bool) -> Written:
        with context.display.bar("memberships") as progress:
            return write_predictions(
                model._mixture(),
                open_store(job["data.store"]),
                place.child(MEMBERSHIPS),
                overwrite=overwrite,
                executor=context.executor,
                ties=model.ties,
                progress=progress,
                share_coefficients=model.share_coefficients_,
                membership_covariates=columns,
            )

    try:
        written = write(overwrite=False)
    except StoreExistsError:  # those of the last model, in the folder of this job
        written = write(overwrite=True)
    return {"changed": written.changed, "n_rankings": written.n_rankings}


# What a job computes, by `model.method`; "converged" in the summary decides the exit code.
METHODS: dict[str, Callable[[Context], dict[str, Any]]] = {"fit": _fit}


def _run_method(context: Context) -> dict[str, Any]:
    return METHODS[context.job["model.method"]](context)


STEPS = (
    Step("read", lambda job: job["data.sources"] is not None, _read),
    Step("fit", lambda _: True, _run_method),
    Step("memberships", lambda job: bool(job["outputs.memberships"]), _predict),
)


def wanted_steps(job: Job) -> Iterator[Step]:
    """The steps that a job asks for, in order."""
    return (step for step in STEPS if step.wanted(job))
