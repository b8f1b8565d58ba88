"""Verbs for batch jobs: run, resume, status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plmix_dist.cli.main import on_interruption
from plmix_dist.cli.options import PATH, cluster_options, force_option, option, verb
from plmix_dist.cli.output import fit_progress, number, progress_bar, show, size
from plmix_dist.cluster.executor import ClusterOptions
from plmix_dist.display.progress import duration
from plmix_dist.errors import PlmixError

if TYPE_CHECKING:
    from plmix_dist.jobs.file import Job


@contextmanager
def _exit_codes_of_jobs() -> Iterator[None]:
    """Errors of jobs have exit codes of their own."""
    from plmix_dist.jobs.driver import ending_of

    try:
        yield
    except PlmixError as error:
        error.exit_code = ending_of(error).exit_code
        raise


@verb("plmix run job.toml --dry-run", "plmix run job.toml")
@click.argument("job_file", metavar="JOB.toml", type=PATH)
@option("--dry-run", is_flag=True, help="Check the job and print its plan; nothing is written.")
@force_option
@cluster_options
@_exit_codes_of_jobs()
def run(job_file: str, *, dry_run: bool, force: bool, cluster: ClusterOptions) -> int:
    """Run the batch job of a file: read sources, fit, write results. A job that was stopped goes on.

    The same job again does nothing. Options that say where to compute replace the table [cluster] of the file. Exit
    codes are those of docs/jobs.md.
    """
    from plmix_dist.jobs.file import read_job

    job = read_job(job_file, cluster=_cluster_table(cluster))
    return _plan(job, force) if dry_run else _run(job, force)


def _cluster_table(options: ClusterOptions) -> dict[str, Any] | None:
    """The table [cluster] that options stand for; None if there are none."""
    given = {
        "scheduler": options.scheduler,
        "workers": options.workers,
        "threads": options.threads,
        "memory": options.memory_limit,
        **{f"tls_{name}": path and str(Path(path).absolute()) for name, path in options.tls._asdict().items()},
    }
    if all(value is None for value in given.values()):
        return None
    return {name: value for name, value in given.items() if value or name != "workers"}  # 0: no cluster


@verb("plmix resume nightly")
@click.argument("folder", metavar="DIR", type=PATH)
@_exit_codes_of_jobs()
def resume(folder: str) -> int:
    """Go on with the job whose output folder is DIR; nothing is done if it is finished."""
    from plmix_dist.jobs.driver import job_in

    return _run(job_in(Path(folder).absolute()), force=False)


@verb("plmix status nightly", "plmix status nightly --json")
@click.argument("folder", metavar="DIR", type=PATH)
@_exit_codes_of_jobs()
def status(folder: str) -> None:
    """Show how the job whose output folder is DIR stands."""
    from plmix_dist.jobs.driver import status as status_of

    record = status_of(Path(folder).absolute())
    show(_status_lines(record), record)


def _run(job: Job, force: bool) -> int:
    from plmix_dist.jobs import driver, steps

    on_interruption(lambda: f"its state is saved in {job.folder}; `plmix resume {job.folder}` continues")
    summary = driver.run_job(job, force=force, display=steps.Display(progress_bar, fit_progress))
    show(_summary_lines(job, summary), summary)
    return int(summary["exit_code"])


def _plan(job: Job, force: bool) -> int:
    from plmix_dist.jobs import folder, plan, steps

    if not force:
        steps.refuse_another_job(job, folder.OutputFolder(job.folder))
    found = plan.plan_of(job)
    show(_plan_lines(found), found)
    return 0


def _plan_lines(plan: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("steps", ", ".join(plan["steps"]))]
    if "new_sources" in plan:
        lines.append(("to read", f"{plan['new_sources']} new files, {size(plan['new_bytes'])}"))
    if "n_rankings" not in plan:
        return [*lines, ("store", "not there yet; its rows and costs are known when the sources are read")]
    where = "kept in memory" if plan["rows_stay_in_memory"] else "read again in every pass"
    return [
        *lines,
        ("rankings", f"{number(plan['n_rankings'])} of {number(plan['n_items'])} items, {where}"),
        ("workers", f"{plan['workers']} with {plan['threads_per_worker']} threads"),
        ("tasks", f"{plan['tasks_per_pass']} per pass"),
        ("memory", f"at most {size(plan['memory_per_worker'])} per worker"),
        ("bytes", f"{size(plan['bytes_sent_per_pass'])} sent, {size(plan['bytes_read_per_pass'])} read per pass"),
        ("seconds", f"about {plan['seconds_per_pass']:.3g} per pass (m-step {plan['m_step']})"),
    ]


def _summary_lines(job: Job, summary: dict[str, Any]) -> list[tuple[str, str]]:
    fit = summary["fit"]
    more = []
    if postponed := summary["read"].get("postponed"):
        more.append(("postponed", f"{len(postponed)} new files; run this again to read them"))
    more += [("hook failed", f"{name}: {why}") for name, why in summary.get("failed_hooks", {}).items()]
    if not summary["changed"]:
        return [("nothing to do", f"{job.folder} already holds the results of this job ({summary['state']})"), *more]
    return [
        ("job", f"{summary['job']}: {summary['state']} in {duration(summary['seconds'])}"),
        ("fit", _fit_words(fit, ", from the last model" if fit.get("warm_start") else "")),
        ("rankings", number(fit["n_rankings"])),
        *([("report", str(job.folder / summary["report"]["file"]))] if job["outputs.report"] else []),
        ("folder", str(job.folder)),
        *more,
    ]


def _fit_words(fit: dict[str, Any], begun: str) -> str:
    """What was computed: by a fit, a selection, or chains."""
    score = f"{fit['score']:.6f} mean log-likelihood"
    if "largest_r_hat" in fit:
        return f"{fit['n_iter']} sweeps{begun}, R-hat {fit['largest_r_hat']:.3f} at most, {score}"
    chosen = f"{fit['n_components']} components by {fit['criterion']}, " if "criterion" in fit else ""
    return f"{chosen}{fit['n_iter']} iterations{begun}, {score}"


def _status_lines(record: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("state", record["state"])]
    lines += [(name, str(record[name])) for name in ("step", "begun", "ended", "error") if name in record]
    if (last := record["iteration"]) is not None:
        numbers = (("log_likelihood", "log-likelihood", ".8g"), ("gradient", "gradient", ".1e"))
        values = [f"{word} {last[name]:{how}}" for name, word, how in numbers if last.get(name)]
        lines.append(("iteration", ", ".join([str(last["iteration"]), *values])))
    if record["checkpoint"] is not None:
        lines.append(("checkpoint", f"number {record['checkpoint']}"))
    return lines
