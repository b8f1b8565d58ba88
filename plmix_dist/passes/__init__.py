"""Passes over rankings: statistics of all rows, summed along one tree, with the same bits in threads and on Dask.

request      what a pass computes, as values: Aggregation, Request, Answer; `ask` for one of them
leaves       where rows come from: leaves of a block in memory or of a store; dask_leaves: of a Dask array
rankings     Rankings: leaves that a fit can use, with weights and covariates, checked
tree         the canonical tree: which leaves are combined with which; the work of one task along it
threads      passes in threads of this process
dask         passes on a cluster: one graph per pass; what workers do in it; `passes_over` chooses between the two
by_row       results by row, computed now, lazily or by workers that write them
memory       whether rows stay in memory from pass to pass
svd          randomised singular value decomposition of rows that are made when they are needed
"""

from plmix_dist.passes.dask import DistributedPasses as DistributedPasses
from plmix_dist.passes.dask import make_passes as make_passes
from plmix_dist.passes.dask import passes_over as passes_over
from plmix_dist.passes.request import Aggregation as Aggregation
from plmix_dist.passes.request import Answer as Answer
from plmix_dist.passes.request import Finish as Finish
from plmix_dist.passes.request import Passes as Passes
from plmix_dist.passes.request import Request as Request
from plmix_dist.passes.request import ask as ask
from plmix_dist.passes.threads import ThreadedPasses as ThreadedPasses
