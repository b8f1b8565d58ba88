"""What a ranking is, in memory.

block.py: many rankings as flat arrays; columns.py: their dtypes and labels; checks.py: no bad row reaches a kernel;
ties.py: what ties mean; groups.py: rows of one person, runs of rows (leaves), equal rows; sampling.py: parts of the
rows at random; simulate.py; comparison.py: who is above whom, whether an estimate exists; identifiability.py: how many
components the rankings can identify.
"""

from plmix_dist.rankings.block import Ranking, RankingBlock, concatenate
from plmix_dist.rankings.checks import RowProblem, check_rows, row_problems
from plmix_dist.rankings.columns import Floats, Unranked

__all__ = ["Floats", "Ranking", "RankingBlock", "RowProblem", "Unranked", "check_rows", "concatenate", "row_problems"]
