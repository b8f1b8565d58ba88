"""The only numba: sums over the rows of a block, compiled; arrays in, arrays out."""

from plmix_dist.kernels.em_pass import EmStatistics, em_statistics
from plmix_dist.kernels.likelihood import row_posteriors
from plmix_dist.kernels.observed_information import Information, information
from plmix_dist.kernels.pairwise import pairwise_wins
from plmix_dist.kernels.prepared import Prepared, prepare
from plmix_dist.kernels.surprise import place_surprises

__all__ = [
    "EmStatistics",
    "Information",
    "Prepared",
    "em_statistics",
    "information",
    "pairwise_wins",
    "place_surprises",
    "prepare",
    "row_posteriors",
]
