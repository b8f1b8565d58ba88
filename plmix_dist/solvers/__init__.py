"""M-steps: sums over rows in, the next worths out. Each M-step is one value in one file."""

from plmix_dist.solvers.cml import CML, cml_step
from plmix_dist.solvers.ghost import log_prior
from plmix_dist.solvers.gmm import GMM, gmm_step
from plmix_dist.solvers.likelihood import LOG_LIKELIHOOD, ComponentStatistics, gradient, mm_step
from plmix_dist.solvers.lsr import LSR, lsr_step
from plmix_dist.solvers.m_step import Gradient, MStep, Objective, Sums, Worths
from plmix_dist.solvers.mm import MM
from plmix_dist.solvers.stationary import stationary_distribution
from plmix_dist.solvers.stochastic_lsr import STOCHASTIC_LSR

# To add an M-step, add its value here.
M_STEPS = {m_step.name: m_step for m_step in (LSR, MM, CML, GMM, STOCHASTIC_LSR)}

__all__ = [
    "CML",
    "GMM",
    "LOG_LIKELIHOOD",
    "LSR",
    "MM",
    "M_STEPS",
    "STOCHASTIC_LSR",
    "ComponentStatistics",
    "Gradient",
    "MStep",
    "Objective",
    "Sums",
    "Worths",
    "cml_step",
    "gmm_step",
    "gradient",
    "log_prior",
    "lsr_step",
    "mm_step",
    "stationary_distribution",
]
