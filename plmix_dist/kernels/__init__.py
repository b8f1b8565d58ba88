"""The only numba: sums over the rows of a block, compiled; arrays in, arrays out.

plain        what `em_statistics` and `sweep_sums` compute, in a few lines of NumPy: read it first
prepared     parameters and rows as compiled code takes them; structures, and workspaces of threads
em_pass      the E-step of a block and the sums of one pass of EM; memberships: posteriors of persons
pairs        wins of every item over every other
draws        a Gibbs sweep, and memberships that are drawn
information  second derivatives
tied_rows    rows with ties, place by place; tied_places: the sum over the orders of one place
loading      kernels as Python calls them, from a cache of machine code
compiled/    the kernels themselves
"""

from plmix_dist.kernels.batch import batch_statistics
from plmix_dist.kernels.draws import SweepSums, drawn_statistics, sweep_sums
from plmix_dist.kernels.em_pass import EmStatistics, em_statistics, memberships_at, row_posteriors
from plmix_dist.kernels.information import Information, information
from plmix_dist.kernels.loading import (
    FIRST_FIT_SECONDS,
    cache_folder,
    compile_kernels,
    kernels_are_compiled,
    kernels_of_fit,
)
from plmix_dist.kernels.pairs import PairStatistics, pair_statistics, pairwise_wins, place_surprises
from plmix_dist.kernels.plain import plain_choices, plain_em_statistics, plain_sweep_sums
from plmix_dist.kernels.prepared import Prepared, prepare

__all__ = ["FIRST_FIT_SECONDS", "EmStatistics", "Information", "PairStatistics", "Prepared", "SweepSums"]
__all__ += ["batch_statistics", "cache_folder", "compile_kernels", "drawn_statistics", "em_statistics"]
__all__ += ["information", "kernels_are_compiled", "kernels_of_fit", "memberships_at", "pair_statistics"]
__all__ += ["pairwise_wins", "place_surprises", "plain_choices", "plain_em_statistics", "plain_sweep_sums"]
__all__ += ["prepare", "row_posteriors", "sweep_sums"]
