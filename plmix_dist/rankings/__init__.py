"""What a ranking is, in memory.

block.py: many rankings as flat arrays; columns.py: their dtypes and labels; checks.py: no bad row reaches a kernel;
ties.py: what ties mean; groups.py: rows of one person, runs of rows (leaves), equal rows; sampling.py: parts of the
rows at random; simulate.py; comparison.py: who is above whom, whether an estimate exists; identifiability.py: how many
components the rankings can identify.
"""

from plmix_dist.rankings.block import Ranking, RankingBlock, concatenate
from plmix_dist.rankings.checks import RowProblem, check_numbered_from_zero, check_ranges, check_rows, row_problems
from plmix_dist.rankings.choice_models import ChoiceModel
from plmix_dist.rankings.columns import STRING, Floats, Unranked, item_dtype, label_column, narrowest
from plmix_dist.rankings.groups import default_leaf_rows, membership_weight, person_of_row, row_runs, weights_within
from plmix_dist.rankings.identifiability import ordered_lengths
from plmix_dist.rankings.sampling import RowPart, generator, rows_of_part, sample_rows
from plmix_dist.rankings.ties import TIES, extend_ties, unorder_last_ties

__all__ = ["STRING", "TIES", "ChoiceModel", "Floats", "Ranking", "RankingBlock", "RowPart", "RowProblem"]
__all__ += ["Unranked", "check_numbered_from_zero", "check_ranges", "check_rows", "concatenate", "default_leaf_rows"]
__all__ += ["extend_ties", "generator", "item_dtype", "label_column", "membership_weight", "narrowest"]
__all__ += ["ordered_lengths", "person_of_row", "row_problems", "row_runs", "rows_of_part", "sample_rows"]
__all__ += ["unorder_last_ties", "weights_within"]
