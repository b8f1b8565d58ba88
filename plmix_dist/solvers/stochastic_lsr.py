"""Stochastic LSR (Liu et al. 2019): every ranking is put into one component at random, then LSR is run in each.

Components are drawn from the posteriors, anew in every iteration. Steps are noisy and never settle, so EM with this
M-step takes a fixed number of iterations and has no objective. While the draws are held, it is LSR in each cluster.
"""

from __future__ import annotations

from plmix_dist.kernels import drawn_statistics
from plmix_dist.solvers.likelihood import LOG_LIKELIHOOD
from plmix_dist.solvers.lsr import LSR, lsr_step
from plmix_dist.solvers.m_step import MStep

STOCHASTIC_LSR = MStep(
    "stochastic-lsr",
    LSR.sums,
    LSR.component,
    lsr_step,
    objective=None,
    numbers=LSR.numbers,
    drawn_sums=drawn_statistics,
    objective_of_draws=LOG_LIKELIHOOD,
)
