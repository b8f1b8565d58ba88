"""The only numba: sums over the rows of a block, compiled; arrays in, arrays out."""

from plmix_dist.kernels.em_pass import EmStatistics, em_statistics
from plmix_dist.kernels.likelihood import row_posteriors
from plmix_dist.kernels.pairwise import pairwise_wins
from plmix_dist.kernels.prepared import Prepared, prepare

__all__ = ["EmStatistics", "Prepared", "em_statistics", "pairwise_wins", "prepare", "row_posteriors"]
