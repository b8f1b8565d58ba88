"""The only numba: sums over the rows of a block, compiled; arrays in, arrays out.

`plain.py` says in a few lines of NumPy what `em_statistics` and `sweep_sums` compute: read it first.
"""

from plmix_dist.kernels.compilation import (
    FIRST_FIT_SECONDS,
    CompiledKernel,
    compile_kernels,
    kernels_are_compiled,
    kernels_of_fit,
)
from plmix_dist.kernels.drawn_statistics import drawn_statistics
from plmix_dist.kernels.e_step import em_statistics, memberships_at, row_posteriors
from plmix_dist.kernels.em_pass import EmStatistics
from plmix_dist.kernels.memberships import Memberships
from plmix_dist.kernels.native import cache_folder
from plmix_dist.kernels.observed_information import Information, information
from plmix_dist.kernels.pair_statistics import PairStatistics, pair_statistics
from plmix_dist.kernels.pairwise import pairwise_wins
from plmix_dist.kernels.prepared import Prepared, prepare
from plmix_dist.kernels.surprise import place_surprises
from plmix_dist.kernels.sweep_sums import SweepSums, sweep_sums

__all__ = [
    "FIRST_FIT_SECONDS",
    "CompiledKernel",
    "EmStatistics",
    "Information",
    "Memberships",
    "PairStatistics",
    "Prepared",
    "SweepSums",
    "cache_folder",
    "compile_kernels",
    "drawn_statistics",
    "em_statistics",
    "information",
    "kernels_are_compiled",
    "kernels_of_fit",
    "memberships_at",
    "pair_statistics",
    "pairwise_wins",
    "place_surprises",
    "prepare",
    "row_posteriors",
    "sweep_sums",
]
