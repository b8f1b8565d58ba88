"""M-steps: sums over rows in, the next worths out. Each M-step is one value.

m_step       MStep: one way of re-estimating worths; Objective: what its steps raise
likelihood   MM, the log-likelihood, and the prior, a ghost against which every item is compared
lsr          LSR, and the stationary distributions of Markov chains
pairs        CML and GMM, which break rankings into pairs
gamma_prior  the prior of Gibbs sampling
"""

from plmix_dist.settings.table import M_STEP_NAMES
from plmix_dist.solvers.likelihood import LOG_LIKELIHOOD, MM, ComponentStatistics, gradient, log_prior, mm_step
from plmix_dist.solvers.lsr import LSR, STOCHASTIC_LSR, lsr_step, stationary_distribution
from plmix_dist.solvers.m_step import Gradient, MStep, Sums, Worths
from plmix_dist.solvers.pairs import CML, GMM, cml_step, gmm_step

__all__ = ["CML", "GMM", "LOG_LIKELIHOOD", "LSR", "MM", "STOCHASTIC_LSR", "ComponentStatistics", "Gradient", "MStep"]
__all__ += ["Sums", "Worths", "cml_step", "gmm_step", "gradient", "log_prior", "lsr_step", "mm_step"]
__all__ += ["M_STEPS", "add_m_step", "stationary_distribution"]

M_STEPS = {m_step.name: m_step for m_step in (LSR, MM, CML, GMM, STOCHASTIC_LSR)}


def add_m_step(m_step: MStep) -> None:
    """Make an M-step known by its name, to estimators, verbs and job files."""
    M_STEPS[m_step.name] = m_step
    if m_step.name not in M_STEP_NAMES:
        M_STEP_NAMES.append(m_step.name)
