"""All experiments by name. To add one, add its value here."""

from __future__ import annotations

from benchmarks.paper.elections import COMPLETED, ELECTIONS
from benchmarks.paper.learning_curves import LEARNING_CURVES
from benchmarks.paper.starts import STARTS, THRESHOLD
from benchmarks.paper.surrogates import SURROGATES
from benchmarks.paper.synthetic import RIVALS, SYNTHETIC
from benchmarks.paper.theory import BOUNDS, LSR_AGAINST_CML, RANK_RULE, START_ERROR

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        SYNTHETIC,
        RIVALS,
        STARTS,
        THRESHOLD,
        SURROGATES,
        LEARNING_CURVES,
        COMPLETED,
        ELECTIONS,
        START_ERROR,
        BOUNDS,
        LSR_AGAINST_CML,
        RANK_RULE,
    )
}
