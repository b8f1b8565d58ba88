"""Batch jobs: one TOML file with what to read, fit and write; run, continued, and looked at.

file       keys of a job file, and all checks, before anything starts
results    fit, select and bayes, once for verbs and for jobs; what a result is made from, and whether it is there
steps      what a job does in turn: read, fit, memberships, report
driver     runs the steps with a log, a summary, limits and hooks
elections  a battery: one selection for every file of a folder, and one table
folder     the output folder; hooks: what happens at the end; plan: what a job would cost

Names are imported when they are first used: verbs that fit need `results` alone.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plmix_dist.jobs.driver import run_job
    from plmix_dist.jobs.file import Job, read_job

__all__ = ["Job", "read_job", "run_job"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "driver" if name == "run_job" else "file"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
