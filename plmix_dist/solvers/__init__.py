"""Small statistics in, worths out: the solvers of the M-step, in NumPy and SciPy alone."""

from plmix_dist.solvers.ghost import log_prior
from plmix_dist.solvers.stationary import stationary_distribution
from plmix_dist.solvers.steps import LSR, MM, SOLVERS, ComponentStatistics, Solver, Worths, gradient, mm_step

__all__ = [
    "LSR",
    "MM",
    "SOLVERS",
    "ComponentStatistics",
    "Solver",
    "Worths",
    "gradient",
    "log_prior",
    "mm_step",
    "stationary_distribution",
]
