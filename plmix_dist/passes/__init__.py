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

from plmix_dist.passes.by_row import RowFunction
from plmix_dist.passes.dask import DistributedPasses, make_passes, passes_over
from plmix_dist.passes.leaves import BlockLeaves, StoreLeaves
from plmix_dist.passes.memory import Residency, check_memory
from plmix_dist.passes.rankings import Rankings
from plmix_dist.passes.request import Aggregation, Answer, Finish, Passes, Request, ask
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.passes.tree import add_statistics

__all__ = ["Aggregation", "Answer", "BlockLeaves", "DistributedPasses", "Finish", "Passes", "Rankings", "Request"]
__all__ += ["Residency", "RowFunction", "StoreLeaves", "ThreadedPasses", "add_statistics", "ask", "check_memory"]
__all__ += ["make_passes", "passes_over"]
