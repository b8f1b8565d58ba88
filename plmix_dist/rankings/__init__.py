"""Rankings in memory: blocks, checks of rows, merging, random portions, simulation, comparison graph."""

from plmix_dist.rankings.block import Ranking, RankingBlock, concatenate
from plmix_dist.rankings.columns import Unranked
from plmix_dist.rankings.validate import RowProblem, check_rows, row_problems

__all__ = [
    "Ranking",
    "RankingBlock",
    "RowProblem",
    "Unranked",
    "check_rows",
    "concatenate",
    "row_problems",
]
