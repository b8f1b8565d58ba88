"""The steps of a job, one value each: read the sources, fit, write memberships and a report. They run in this order.

A step that finds its result there does nothing and says so. What the step "fit" computes is in `methods.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.data.covariate_files import read_covariates
from plmix_dist.errors import IngestError, JobError, StoreExistsError, UnfinishedStoreError
from plmix_dist.estimator import PlackettLuceMixture
from plmix_dist.formats.sources import file_digest, find_sources
from plmix_dist.ingestion import ingest
from plmix_dist.jobs.methods import run_method, unfinished_fit
from plmix_dist.jobs.output_folder import CHOICE, JOB, MEMBERSHIPS, MODEL, REPORT
from plmix_dist.prediction import write_predictions
from plmix_dist.store import Location, open_store
from plmix_dist.store.manifest import PLAN, sha256
from plmix_dist.store.targets import differences
from plmix_dist.store.write_plan import WritePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plmix_dist.jobs.context import Context
    from plmix_dist.jobs.job_file import Job
    from plmix_dist.jobs.output_folder import OutputFolder
    from plmix_dist.prediction import Written
    from plmix_dist.store import RankingStore


# Keys that decide what the model is; among them, those that change no bit of it, or what may change from run to run.
_DECISIVE = ("model.", "start.", "data.store", "data.covariates")
_WITHOUT = ("model.residency", "start.warm")


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


def files_read(folder: OutputFolder) -> dict[str, str]:
    """Digests of the files that the job has read, as its summary says."""
    files = folder.told_of("read").get("files")
    return files if isinstance(files, dict) else {}


def _begun_first(new: list[str], files: dict[str, str], place: Location) -> Iterator[list[str]]:
    """The new files as they are read: those that a job began to read before it was stopped, then all others."""
    begun: list[str] = []
    if place.exists(PLAN):
        plan = WritePlan.from_bytes(place.read_bytes(PLAN), f"{place.url}/{PLAN}")
        digests = {source.get("sha256") for source in plan.sources}
        begun = [file for file in new if files[file] in digests]
    yield from filter(None, (begun, [file for file in new if file not in begun]))


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
    has_model = folder.location.child(MODEL).exists("model.json")
    if not has_model and unfinished_fit(job) is None:
        return
    there = folder.read(JOB)
    if there is None:
        raise JobError(f"{folder.path} holds a model that no job has written; choose another outputs.folder")
    mine = {
        name: value
        for name, value in job.values.items()
        if name.startswith(_DECISIVE) and name not in _WITHOUT
    }
    if there.get("model.method") != mine["model.method"]:
        mine = {"model.method": mine["model.method"]}  # all else follows from it
    if told := differences(mine, {name: there.get(name) for name in mine}):
        raise JobError(
            f"{folder.path} holds the results of another job ({told}); choose another outputs.folder, or replace them "
            "with `plmix run JOB.toml --force`"
        )


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
    except (StoreExistsError, UnfinishedStoreError):  # those of the last model, in the folder of this job
        written = write(overwrite=True)
    return {"changed": written.changed, "n_rankings": written.n_rankings}


def _report(context: Context) -> dict[str, Any]:
    """Write a report about the model and the rankings, unless that of this model is there."""
    job, folder = context.job, context.folder
    about = sha256(folder.location.read_bytes(f"{MODEL}/model.json"))[:16]
    told = {"changed": False, "file": REPORT, "model": about}
    if folder.told_of("report").get("model") == about and (folder.path / REPORT).is_file():
        return told
    method = job["model.method"]
    columns = None if job["data.covariates"] is None else read_covariates(job["data.covariates"])
    PlackettLuceMixture.load(folder.location.child(MODEL)).report(
        folder.path / REPORT,
        open_store(job["data.store"]),
        title=job["name"],
        # Those of a posterior are in its draws; at its mean the curvature of the likelihood says nothing.
        standard_errors=False if method == "bayes" else None,
        selection=(folder.read(CHOICE) or {}).get("table") if method == "select" else None,
        client=context.executor.client_if_asked(),
        membership_covariates=columns,
    )
    return told | {"changed": True}


STEPS = (
    Step("read", lambda job: job["data.sources"] is not None, _read),
    Step("fit", lambda _: True, run_method),
    Step("memberships", lambda job: bool(job["outputs.memberships"]), _predict),
    Step("report", lambda job: bool(job["outputs.report"]), _report),
)


def wanted_steps(job: Job) -> Iterator[Step]:
    """The steps that a job asks for, in order."""
    return (step for step in STEPS if step.wanted(job))
