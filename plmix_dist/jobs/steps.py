"""The steps of a job, one value each: read the sources, fit, write memberships and a report. They run in this order.

A step that finds its result there does nothing: "changed" is False. What the step "fit" computes is in `results.py`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from plmix_dist.cluster.executor import LazyExecutor
from plmix_dist.datasets.ingest import ingest
from plmix_dist.errors import IngestError, JobError, OtherCheckpointError, StoreExistsError, UnfinishedStoreError
from plmix_dist.jobs.file import Job
from plmix_dist.jobs.folder import CHOICE, JOB, MEMBERSHIPS, MODEL, REPORT, JobProgress, OutputFolder
from plmix_dist.jobs.results import Estimator, choice_of, is_same, model_of, record_there, saved_model, summary_of
from plmix_dist.models.plackett_luce import PlackettLuceMixture
from plmix_dist.models.selection import MixtureSelection
from plmix_dist.prediction.memberships import Written, write_predictions
from plmix_dist.store import Location, RankingStore, WritePlan, checkpoints, manifest, open_store, sealed, targets
from plmix_dist.tables.sources import file_digest, find_sources

logger = logging.getLogger(__name__)

_SWEEPS = "sweeps"  # the stage of sampling whose iterations are the history
# Keys that decide what the model is; among them, those that change no bit of it, or what may change from run to run.
_DECISIVE = ("task", "model.", "start.", "data.store", "data.covariates", "data.features", "data.intercepts")
_WITHOUT = ("model.residency", "start.warm")


class Step(NamedTuple):
    """A step of a job: its name in summary and log, whether a job asks for it, and what does it.

    `run` gives its part of the summary, in which "changed" is whether anything was done.
    """

    name: str
    wanted: Callable[[Job], bool]
    run: Callable[[Context], dict[str, Any]]


_OF_INGEST = ("format", "unranked", "on_error", "most_dropped", "merge", "columns", "choices", "delimiter")


def _read(context: Context) -> dict[str, Any]:
    """Read the sources that the store does not have yet."""
    job = context.job
    place = Location.of(job["data.store"])
    there = open_store(place) if place.exists("manifest.json") else None
    before = files_read(context.folder)
    files = {file: file_digest(file) for file in find_sources(job["data.sources"])}
    new = new_sources(files, before, there)
    if there is not None and unfinished_fit(job) is not None and not context.force:
        # The fit that was stopped is finished first, to the rankings that it began with.
        return {"changed": False, "postponed": new, "n_rankings": there.n_rankings, "files": before}
    for together in _begun_first(new, files, place):
        with context.display.bar("read") as progress:
            there = ingest(
                together,
                place,
                **{name: job[f"data.{name}"] for name in _OF_INGEST},
                append=there is not None,
                executor=context.executor,
                progress=progress,
            )
    assert there is not None
    return {"changed": bool(new), "new": new, "n_rankings": there.n_rankings, "files": before | files}


def files_read(folder: OutputFolder) -> dict[str, str]:
    """Digests of the files that the job has read, from its summary."""
    files = folder.last_summary("read").get("files")
    return files if isinstance(files, dict) else {}


def _begun_first(new: list[str], files: dict[str, str], place: Location) -> Iterator[list[str]]:
    """The new files as they are read: those that a job began to read before it was stopped, then all others."""
    begun: list[str] = []
    if place.exists(manifest.PLAN):
        plan = WritePlan.from_bytes(place.read_bytes(manifest.PLAN), f"{place.url}/{manifest.PLAN}")
        digests = {source.get("sha256") for source in plan.sources}
        begun = [file for file in new if files[file] in digests]
    yield from filter(None, (begun, [file for file in new if file not in begun]))


def new_sources(files: dict[str, str], before: dict[str, str], store: RankingStore | None) -> list[str]:
    """The files that a store, if there is one, was not made from; an error for one that was changed since.

    `files` and `before` are digests of files now, and when the job read them last.
    """
    if store is None:
        return list(files)
    events = store.manifest.history
    known = {source.get("sha256") for event in events for source in event.get("sources", [])}
    read = before.keys() | {path for event in events for path in event.get("paths", [])}
    new = [file for file, digest in files.items() if digest not in known]
    for file in new:
        if file in read:
            raise IngestError(
                f"{file} was changed since it was read into {store.location.url}, which has its rows as they were; "
                "give new rows a file of their own, or make the store anew"
            )
    return new


def refuse_another_job(job: Job, folder: OutputFolder) -> None:
    """An error if the folder holds a model, or the state of a fit, of other settings."""
    if not folder.location.child(MODEL).exists("model.json") and unfinished_fit(job) is None:
        return
    if (there := folder.read(JOB)) is None:
        raise JobError(
            f"{folder.path} holds a model, or the state of a fit, and no {JOB} says of which job; choose another "
            "outputs.folder, or replace them with `plmix run JOB.toml --force`"
        )
    mine = {name: value for name, value in job.values.items() if name.startswith(_DECISIVE) and name not in _WITHOUT}
    if there.get("task") != mine["task"]:
        mine = {"task": mine["task"]}  # all else follows from it
    if differ := targets.differences(mine, {name: there.get(name) for name in mine}):
        raise JobError(
            f"{folder.path} holds the results of another job ({differ}); choose another outputs.folder, or replace "
            "them with `plmix run JOB.toml --force`"
        )


def _fit(context: Context) -> dict[str, Any]:
    """Compute the model of a job, unless it is there; from the last model if rankings were added since."""
    job, folder, work = context.job, context.folder, context.job.work
    store, place = open_store(job["data.store"]), folder.location.child(MODEL)
    mine = work.made_from(store)
    there = None if context.force else record_there(place)
    if there is not None and is_same(mine, there):
        _clear_checkpoints(job)  # of a job that was stopped after it had saved its model
        return _fit_summary(context, store) | {"changed": False}
    if context.force:
        _clear_checkpoints(job)
    last = place if there is not None and job["start.warm"] else None
    try:
        found = _computed(context, store, last)
    except OtherCheckpointError as error:
        if job["checkpoint.folder"] is not None:
            raise  # others may save there too
        logger.warning("a fit that was stopped cannot go on, and begins again: %s", error)
        _clear_checkpoints(job)
        found = _computed(context, store, last)
    if isinstance(found, MixtureSelection):
        folder.write(CHOICE, choice_of(found))
    else:
        (folder.path / CHOICE).unlink(missing_ok=True)  # of a selection that this job has replaced
    model = model_of(found)
    model.save(place, about={"job": mine})  # it comes last: with it everything is there
    folder.write_history(model.history_ if isinstance(model, PlackettLuceMixture) else folder.history_once())
    _clear_checkpoints(job)
    return _fit_summary(context, store) | {"changed": True, "warm_start": last is not None}


def _computed(context: Context, store: RankingStore, last: Location | None) -> Estimator:
    job, work = context.job, context.job.work
    with context.display.fit(work.settings.get("tol", 1.0), work.settings.get("max_iter", 1)) as shown:
        return work.compute(
            store,
            client=context.executor.client_if_asked(),
            progress=JobProgress(context.folder, shown, history=_SWEEPS if work.task == "bayes" else None),
            checkpoint=job.checkpoint,
            last=last,
        )


def _fit_summary(context: Context, store: RankingStore) -> dict[str, Any]:
    task, folder = context.job["task"], context.folder
    found = summary_of(task, folder.location.child(MODEL), store)
    if task != "select":
        return found
    choice = folder.read(CHOICE) or {}
    return found | {name: choice.get(name) for name in ("n_components", "criterion", "margin", "words")}


def unfinished_fit(job: Job) -> int | None:
    """The number of the newest checkpoint: there is one while a fit is not finished."""
    return checkpoints.CheckpointFolder(Location.of(job.checkpoint.path)).newest()


def _clear_checkpoints(job: Job) -> None:
    checkpoints.CheckpointFolder(Location.of(job.checkpoint.path)).clear()


def _predict(context: Context) -> dict[str, Any]:
    """Write the membership of every ranking."""
    job, place = context.job, context.folder.location
    model, columns = PlackettLuceMixture.load(place.child(MODEL)), job.work.columns

    def write(*, overwrite: bool) -> Written:
        with context.display.bar("memberships") as progress:
            return write_predictions(
                model._mixture(),
                open_store(job["data.store"]),
                place.child(MEMBERSHIPS),
                overwrite=overwrite,
                executor=context.executor,
                ties=model._ties,
                progress=progress,
                share_coefficients=model.share_coefficients_,
                membership_covariates=columns,
            )

    try:
        written = write(overwrite=False)
    except (StoreExistsError, UnfinishedStoreError):  # those of the last model, in the folder of this job
        written = write(overwrite=True)
    return {"changed": written.changed, "n_rankings": written.n_rankings}


def _report(context: Context) -> dict[str, Any]:
    """Write a report about the model and the rankings, unless that of this model is there."""
    job, folder = context.job, context.folder
    about = sealed.sha256(folder.location.read_bytes(f"{MODEL}/model.json"))[:16]
    found = {"changed": False, "file": REPORT, "model": about}
    if folder.last_summary("report").get("model") == about and (folder.path / REPORT).is_file():
        return found
    saved_model(folder.location.child(MODEL)).report(
        folder.path / REPORT,
        open_store(job["data.store"]),
        title=job["name"],
        client=context.executor.client_if_asked(),
        membership_covariates=job.work.columns,
    )
    return found | {"changed": True}


_STEPS = (
    Step("read", lambda job: job["data.sources"] is not None, _read),
    Step("fit", lambda _: True, _fit),
    Step("memberships", lambda job: bool(job["outputs.memberships"]), _predict),
    Step("report", lambda job: bool(job["outputs.report"]), _report),
)


def wanted_steps(job: Job) -> Iterator[Step]:
    """The steps that a job asks for, in order."""
    return (step for step in _STEPS if step.wanted(job))


# What the steps of a job work with.


class Display(NamedTuple):
    """What shows progress to people: of a step that writes in parts, by its label, and of a fit, by tol and max_iter.

    A bar is called with (done, total); what shows a fit is as PlackettLuceMixture takes it.
    """

    bar: Callable[[str], AbstractContextManager[Callable[[int, int], None] | None]]
    fit: Callable[[float, int], AbstractContextManager[Any]]


NOTHING_SHOWN = Display(lambda _: contextlib.nullcontext(), lambda *_: contextlib.nullcontext())


class Context(NamedTuple):
    """What a step works with; with `force`, a model of other settings and its checkpoints are replaced."""

    job: Job
    folder: OutputFolder
    executor: LazyExecutor
    force: bool = False
    display: Display = NOTHING_SHOWN
