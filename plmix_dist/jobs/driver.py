"""Runs a job: its steps in turn, with a log, a summary, checkpoints, limits and hooks. The driver is a short loop."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

from plmix_dist import __version__, errors
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.cluster.tls import TlsFiles
from plmix_dist.jobs import hooks, steps
from plmix_dist.jobs.file import KEYS, Job, read_job
from plmix_dist.jobs.folder import JOB, SUMMARY, OutputFolder, now
from plmix_dist.store.lock import HeldLock, write_lock
from plmix_dist.threads import OutOfTime, time_limit

_OUT_OF_TIME = "out of time"
_LAST_SECONDS = 2.0


class _Ending(NamedTuple):
    """A way in which a job ends: a word for it, and the exit code of the command line."""

    state: str
    exit_code: int


# The first that fits: errors, and how a job ends with them.
_ENDINGS: tuple[tuple[Any, _Ending], ...] = (
    (OutOfTime, _Ending(_OUT_OF_TIME, 75)),
    (KeyboardInterrupt, _Ending("interrupted", 130)),
    (errors.ClusterError, _Ending("cluster lost", 6)),
    (errors.DamagedStoreError, _Ending("damaged", 3)),
    ((errors.IngestError, errors.RankingError, errors.StoreNotFoundError), _Ending("bad input", 5)),
    (errors.SettingsError, _Ending("bad job", 2)),
)


def ending_of(error: BaseException) -> _Ending:
    """How a job ends with an error."""
    return next((ending for kind, ending in _ENDINGS if isinstance(error, kind)), _Ending("failed", 1))


def run_job(job: Job, *, force: bool = False, display: steps.Display = steps.NOTHING_SHOWN) -> dict[str, Any]:
    """Run a job, or go on with one that was stopped; gives the summary, which `summary.json` holds too.

    A job whose results are all there does nothing: "changed" is False. An error is in the summary and is raised. With
    `force`, results of other settings are replaced.

    Examples
    --------
    >>> from plmix_dist.jobs.file import _job_of
    >>> _ = plm.simulate(tmp / "ballots", n_rankings=200, n_items=4, n_components=2, random_state=1)
    >>> job = _job_of({"data": {"store": "ballots"}, "model": {"components": 2}, "outputs": {"folder": "out"}}, tmp)
    >>> [run_job(job)["changed"] for _ in range(2)]
    [True, False]
    """
    folder = OutputFolder(job.folder)
    folder.location.check_writable()
    with write_lock(folder.location) as lock, folder.logging_messages():
        folder.remove_drafts()
        return _run(job, folder, lock, force=force, display=display)


def _run(job: Job, folder: OutputFolder, lock: HeldLock, *, force: bool, display: steps.Display) -> dict[str, Any]:
    begun = time.monotonic()
    summary: dict[str, Any] = {
        "job": job["name"],
        "folder": str(job.folder),
        "version": __version__,
        "state": "running",
        "begun": now(),
        # What the steps of this run compare with, until they have run.
        "read": folder.last_summary("read"),
    }
    if report := folder.last_summary("report"):
        summary["report"] = report
    try:
        folder.log("begun", job=job["name"], version=__version__)
        with time_limit(job["limits.seconds"]), LazyExecutor(cluster_options(job)) as executor:
            context = steps.Context(job, folder, executor, force, display)
            if not force:
                steps.refuse_another_job(job, folder)
            # The address of a webhook often holds a token.
            folder.write(JOB, job.values, private=bool(job["hooks.url"] or job["hooks.command"]))
            folder.write_environment()
            _run_steps(context, summary, lock)
    except BaseException as error:
        ending = ending_of(error)
        summary["error"] = f"{type(error).__name__}: {error}"
        raise
    else:
        ending = _Ending("converged", 0) if summary["fit"]["converged"] else _Ending("not converged", 4)
    finally:
        summary |= {"state": ending.state, "exit_code": ending.exit_code}
        summary |= {"ended": now(), "seconds": round(time.monotonic() - begun, 3)}
        _finish(job, folder, summary)
    return summary


def _run_steps(context: steps.Context, summary: dict[str, Any], lock: HeldLock) -> None:
    """Run the steps that are wanted. The summary on disk has the one that runs, and the results of those before."""
    folder, changed = context.folder, False
    for step in steps.wanted_steps(context.job):
        folder.write(SUMMARY, summary | {"step": step.name})
        folder.log("step begun", step=step.name)
        begun = time.monotonic()
        found = step.run(context)
        lock.check()
        changed = changed or found["changed"]
        summary[step.name] = found | {"seconds": round(time.monotonic() - begun, 3)}
        folder.log("step ended", step=step.name, changed=found["changed"])
    summary["changed"] = changed


def _finish(job: Job, folder: OutputFolder, summary: dict[str, Any]) -> None:
    """Write how the job ended: summary, log, metrics, hooks. What fails here is recorded, and changes nothing else."""
    with contextlib.suppress(OSError):
        folder.write(SUMMARY, summary)
        folder.log("ended", "info" if "error" not in summary else "error", **summary)
    failures: dict[str, str] = {}
    if job["outputs.metrics"] is not None:
        failures |= hooks.write_metrics(job["outputs.metrics"], summary)
    short = summary["state"] in (_OUT_OF_TIME, "interrupted")  # the process has a few seconds left
    failures |= hooks.run_hooks(job, summary, min(job["hooks.timeout"], _LAST_SECONDS if short else math.inf))
    if failures:
        summary["failed_hooks"] = failures
        with contextlib.suppress(OSError):
            folder.write(SUMMARY, summary)
            folder.log("hooks failed", "warning", **failures)


def cluster_options(job: Job) -> ClusterOptions:
    """Where a job computes; without a scheduler or workers, in threads of this process."""
    scheduler, workers = job["cluster.scheduler"], job["cluster.workers"]
    return ClusterOptions(
        scheduler=scheduler,
        workers=0 if scheduler is None and workers is None else workers,
        threads=job["cluster.threads"],
        memory_limit=job["cluster.memory"],
        tls=TlsFiles(*(job[f"cluster.tls_{part}"] for part in TlsFiles._fields)),
    )


def job_in(path: Path) -> Job:
    """The job whose output folder this is."""
    if not (path / JOB).is_file():
        raise errors.JobError(
            f"{path} is not the output folder of a job: it has no {JOB}; begin with `plmix run JOB.toml`, or with "
            "`plmix run JOB.toml --force` if results of a run that was disturbed are there"
        )
    job = read_job(path / JOB)
    if job.folder.resolve() != path.resolve():
        raise errors.JobError(
            f"{path} was moved or copied: its job writes to {job.folder}; move it back, or set outputs.folder in the "
            "job file and begin with `plmix run JOB.toml`"
        )
    return job


def status(path: Path) -> dict[str, Any]:
    """How the job in an output folder stands."""
    folder = OutputFolder(path)
    summary = {"state": "not begun"} | (folder.read(SUMMARY) or {})
    if summary["state"] == "running" and not _is_running(folder):
        summary["state"] = "stopped"
    return summary | {"checkpoint": steps.unfinished_fit(_job_as_written(folder)), "iteration": folder.last_iteration()}


def _job_as_written(folder: OutputFolder) -> Job:
    """The job of a folder. What it refers to need not be there: its certificates may be those of a service."""
    if (values := folder.read(JOB)) is None:
        return job_in(folder.path)  # raises an error that explains
    return Job({key.key: key.default for key in KEYS} | values | {"outputs.folder": str(folder.path)})


def _is_running(folder: OutputFolder) -> bool:
    """Whether a process holds the lock of the folder."""
    if folder.location.exists("wip/lock"):
        with contextlib.suppress(errors.PlmixError), write_lock(folder.location):
            return False
        return True
    return False
