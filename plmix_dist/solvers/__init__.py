"""M-steps: sums over rows in, the next worths out. Each M-step is one value.

m_step       MStep: one way of re-estimating worths; Objective: what its steps raise
likelihood   MM, the log-likelihood, and the prior, a ghost against which every item is compared
lsr          LSR, and the stationary distributions of Markov chains
pairs        CML and GMM, which break rankings into pairs
gamma_prior  the prior of Gibbs sampling
"""

from plmix_dist.settings.table import M_STEP_NAMES
from plmix_dist.solvers.likelihood import LOG_LIKELIHOOD as LOG_LIKELIHOOD
from plmix_dist.solvers.likelihood import MM as MM
from plmix_dist.solvers.likelihood import ComponentStatistics as ComponentStatistics
from plmix_dist.solvers.likelihood import gradient as gradient
from plmix_dist.solvers.likelihood import log_prior as log_prior
from plmix_dist.solvers.likelihood import mm_step as mm_step
from plmix_dist.solvers.lsr import LSR as LSR
from plmix_dist.solvers.lsr import STOCHASTIC_LSR as STOCHASTIC_LSR
from plmix_dist.solvers.lsr import lsr_step as lsr_step
from plmix_dist.solvers.lsr import stationary_distribution as stationary_distribution
from plmix_dist.solvers.m_step import Gradient as Gradient
from plmix_dist.solvers.m_step import MStep as MStep
from plmix_dist.solvers.m_step import Objective as Objective
from plmix_dist.solvers.m_step import Sums as Sums
from plmix_dist.solvers.m_step import Worths as Worths
from plmix_dist.solvers.pairs import CML as CML
from plmix_dist.solvers.pairs import GMM as GMM
from plmix_dist.solvers.pairs import cml_step as cml_step
from plmix_dist.solvers.pairs import gmm_step as gmm_step

M_STEPS = {m_step.name: m_step for m_step in (LSR, MM, CML, GMM, STOCHASTIC_LSR)}


def add_m_step(m_step: MStep) -> None:
    """Make an M-step known by its name, to estimators, verbs and job files."""
    M_STEPS[m_step.name] = m_step
    if m_step.name not in M_STEP_NAMES:
        M_STEP_NAMES.append(m_step.name)
