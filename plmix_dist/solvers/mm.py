"""MM: minorise and maximise (Hunter 2004; Gormley & Murphy 2008). n numbers per component; every step is safe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.kernels import em_statistics
from plmix_dist.solvers.likelihood import LOG_LIKELIHOOD, component_statistics
from plmix_dist.solvers.m_step import MStep

if TYPE_CHECKING:
    from plmix_dist.kernels import EmStatistics, Prepared
    from plmix_dist.rankings import RankingBlock


def _sums(block: RankingBlock, current: Prepared, frozen: Prepared | None) -> EmStatistics:
    return em_statistics(block, current, frozen, with_rates=False)


def _numbers(n_items: int) -> int:
    return n_items


MM = MStep(
    "mm", _sums, component_statistics, None, objective=LOG_LIKELIHOOD, numbers=_numbers, takes_ties=True
)
