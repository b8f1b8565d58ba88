"""plmix: the command line. Each verb calls the function or the estimator of the same name.

main       the group, errors and exit codes; Ctrl-C: what is left, and how to go on
options    options that verbs share; those of fit, select and bayes are made from the table of settings
output     text, JSON and progress
data       example, ingest, export, simulate, split, verify, info; ratings has the options of ratings
model      fit, score, predict; select: select, elections, bayes
report     report, leaderboard, check; what info shows of a model
jobs       run, resume, status
cluster    scheduler, worker, certificates, doctor, compile, completion
"""

from plmix_dist.cli import cluster, data, jobs, model, report, select
from plmix_dist.cli.main import main, plmix

__all__ = ["cluster", "data", "jobs", "main", "model", "plmix", "report", "select"]
