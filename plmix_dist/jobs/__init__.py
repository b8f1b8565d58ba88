"""Batch jobs: one TOML file with what to read, fit and write; run, continued, and looked at.

file       keys of a job file, and all checks, before anything starts
results    fit, select and bayes, once for verbs and for jobs; what a result is made from, and whether it is there
steps      what a job does in turn: read, fit, memberships, report
driver     runs the steps with a log, a summary, limits and hooks
folder     the output folder; hooks: what happens at the end; plan: what a job would cost
"""

from plmix_dist.jobs.driver import run_job
from plmix_dist.jobs.file import Job, read_job

__all__ = ["Job", "read_job", "run_job"]
