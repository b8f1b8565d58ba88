"""Batch jobs: one TOML file that says what to read, fit and write; run, continued, and looked at."""

from plmix_dist.jobs.driver import run_job
from plmix_dist.jobs.job_file import Job, read_job

__all__ = ["Job", "read_job", "run_job"]
