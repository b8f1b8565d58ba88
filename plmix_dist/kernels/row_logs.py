"""Log-probability of each row under each component; the rows of a person are added up later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.native import Kernel
from plmix_dist.kernels.pointers import pointers
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.scratch import Slots, slots_for
from plmix_dist.kernels.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class FilledLogs(NamedTuple):
    """(n_rows, width): what the kernel fills."""

    logs: NDArray[np.float64]


_fill_logs = Kernel("fill_logs", Rows, Prepared, Slots, FilledLogs)


def row_logs(block: RankingBlock, params: Prepared) -> NDArray[np.float64]:
    """(n_rankings, n_components): log Pr(row | component). Items that are tied count as ordered.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> params = prepare(np.log([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]), np.log([0.5, 0.5]))
    >>> np.exp(row_logs(RankingBlock.from_array([[1, 0, 2]]), params)).round(4).tolist()
    [[0.1667, 0.25]]
    """
    workspace = Workspace.of_thread()
    rows = rows_of(block, params.width, workspace)
    logs = np.empty((rows.n_rows, params.width))
    _fill_logs(
        pointers(rows),
        workspace.pointers_of(params),
        pointers(slots_for(rows, params, workspace)),
        pointers(FilledLogs(logs)),
    )
    return np.ascontiguousarray(logs[:, : params.n_components])
