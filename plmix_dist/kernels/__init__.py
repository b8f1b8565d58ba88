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

from plmix_dist.kernels.batch import batch_statistics as batch_statistics
from plmix_dist.kernels.draws import SweepSums as SweepSums
from plmix_dist.kernels.draws import drawn_statistics as drawn_statistics
from plmix_dist.kernels.draws import sweep_sums as sweep_sums
from plmix_dist.kernels.em_pass import EmStatistics as EmStatistics
from plmix_dist.kernels.em_pass import em_statistics as em_statistics
from plmix_dist.kernels.em_pass import memberships_at as memberships_at
from plmix_dist.kernels.em_pass import row_posteriors as row_posteriors
from plmix_dist.kernels.information import Information as Information
from plmix_dist.kernels.information import information as information
from plmix_dist.kernels.loading import FIRST_FIT_SECONDS as FIRST_FIT_SECONDS
from plmix_dist.kernels.loading import cache_folder as cache_folder
from plmix_dist.kernels.loading import compile_kernels as compile_kernels
from plmix_dist.kernels.loading import kernels_are_compiled as kernels_are_compiled
from plmix_dist.kernels.loading import kernels_of_fit as kernels_of_fit
from plmix_dist.kernels.pairs import PairStatistics as PairStatistics
from plmix_dist.kernels.pairs import pair_statistics as pair_statistics
from plmix_dist.kernels.pairs import pairwise_wins as pairwise_wins
from plmix_dist.kernels.pairs import place_surprises as place_surprises
from plmix_dist.kernels.plain import plain_choices as plain_choices
from plmix_dist.kernels.plain import plain_em_statistics as plain_em_statistics
from plmix_dist.kernels.plain import plain_sweep_sums as plain_sweep_sums
from plmix_dist.kernels.prepared import Prepared as Prepared
from plmix_dist.kernels.prepared import prepare as prepare
