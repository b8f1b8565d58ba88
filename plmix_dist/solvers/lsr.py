"""LSR: weighted Luce spectral ranking (Maystre & Grossglauser 2015; Nguyen & Zhang 2023), n x n numbers each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.kernels import em_statistics
from plmix_dist.solvers.ghost import probabilities_against_ghost
from plmix_dist.solvers.likelihood import LOG_LIKELIHOOD, component_statistics, moved
from plmix_dist.solvers.m_step import MStep
from plmix_dist.solvers.stationary import stationary_distribution

if TYPE_CHECKING:
    from plmix_dist.kernels import EmStatistics, Prepared
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.solvers.likelihood import ComponentStatistics
    from plmix_dist.solvers.m_step import Worths


def lsr_step(statistics: ComponentStatistics, worths: Worths, alpha: float) -> Worths:
    """The stationary distribution of the chain whose rates lead from beaten items to winners.

    The chain is scaled by the present worths: its stationary distribution is the ratio of next to present worths.

    Examples
    --------
    >>> from plmix_dist.solvers.likelihood import ComponentStatistics
    >>> from plmix_dist.solvers.m_step import Worths
    >>> rates = np.array([[0.0, 1.5], [0.5, 0.0]])  # item 0 won three of four choices
    >>> statistics = ComponentStatistics(np.array([3.0, 1.0]), np.array([2.0, 2.0]), rates)
    >>> np.exp(lsr_step(statistics, Worths(np.zeros(2), 0.0), alpha=0.0).log_worths).round(3).tolist()
    [1.732, 0.577]
    """
    log_worths, ghost = worths
    flows = statistics.rates.T * np.exp(log_worths[:, None] - log_worths[None, :])
    if alpha:
        beats, loses = probabilities_against_ghost(log_worths, ghost)
        flows = np.block([[flows, alpha * beats[:, None]], [alpha * loses[None, :], np.zeros((1, 1))]])
    # Without a prior the chain may fall apart; its worths then diverge, which the caller checks.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(stationary_distribution(flows))
    return moved(worths, ratio if alpha else np.append(ratio, 0.0))


def _sums(block: RankingBlock, current: Prepared, frozen: Prepared | None) -> EmStatistics:
    return em_statistics(block, current, frozen, with_rates=True)


def _numbers(n_items: int) -> int:
    return n_items * n_items


LSR = MStep("lsr", _sums, component_statistics, lsr_step, objective=LOG_LIKELIHOOD, numbers=_numbers)
