"""M-steps: sums over rows in, the next worths out. Each M-step is one value in one file."""

from plmix_dist.solvers.ghost import log_prior
from plmix_dist.solvers.likelihood import LOG_LIKELIHOOD, ComponentStatistics, gradient, mm_step
from plmix_dist.solvers.lsr import LSR, lsr_step
from plmix_dist.solvers.m_step import Gradient, MStep, Objective, Sums, Worths
from plmix_dist.solvers.mm import MM
from plmix_dist.solvers.stationary import stationary_distribution

# To add an M-step, add its value here.
M_STEPS = {m_step.name: m_step for m_step in (LSR, MM)}

__all__ = [
    "LOG_LIKELIHOOD",
    "LSR",
    "MM",
    "M_STEPS",
    "ComponentStatistics",
    "Gradient",
    "MStep",
    "Objective",
    "Sums",
    "Worths",
    "gradient",
    "log_prior",
    "lsr_step",
    "mm_step",
    "stationary_distribution",
]
