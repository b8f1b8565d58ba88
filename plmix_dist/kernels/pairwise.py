"""Pairwise wins: how often each item was ranked before each other, by component."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.native import Kernel
from plmix_dist.kernels.pointers import pointers
from plmix_dist.kernels.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.pointers import Room
    from plmix_dist.rankings import RankingBlock


class WinSums(NamedTuple):
    """Memberships, the number of the last row that listed each item, and the wins being added up."""

    memberships: NDArray[np.float64]
    listed: Room
    wins: NDArray[np.float64]
    n_components: int
    n_items: int


_count_wins = Kernel("count_wins", Rows, WinSums)


def pairwise_wins(block: RankingBlock, memberships: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_components, n_items, n_items): entry [k, i, j] adds w q wherever i is ranked before j.

    An ordered item is before every item on offer that is not ordered, listed or not.

    Parameters
    ----------
    memberships : (n_rankings, n_components)
        The probability q of each component for each row, or 0 and 1 for clusters.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> pairwise_wins(RankingBlock.from_array([[1, 0]]), np.ones((1, 1))).tolist()
    [[[0.0, 0.0], [1.0, 0.0]]]
    """
    n_components, n_items = memberships.shape[1], block.n_items
    wins = np.zeros((n_components, n_items, n_items))
    given = np.ascontiguousarray(memberships, np.float64)
    workspace = Workspace.of_thread()
    rows = rows_of(block, 1, workspace)
    listed = workspace.zeros("listed", n_items, np.int32)
    _count_wins(pointers(rows), pointers(WinSums(given, listed, wins, n_components, n_items)))
    return wins
