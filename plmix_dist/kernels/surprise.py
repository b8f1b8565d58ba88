"""How surprising each item's place is: the pairs it lost beyond what one model for all rankings expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.native import Kernel
from plmix_dist.kernels.pointers import pointers
from plmix_dist.kernels.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


class Surprises(NamedTuple):
    """Log-worths, and the surprises being added up."""

    log_worths: NDArray[np.float64]
    surprises: NDArray[np.float64]


_add_surprises = Kernel("add_surprises", Rows, Surprises)


def place_surprises(block: RankingBlock, log_worths: NDArray[np.float64]) -> NDArray[np.float64]:
    """(total listed,): for each listed item, how many listed items stand before it, less the number expected.

    Only pairs whose order the row tells count. Item j is expected before i with probability
    worth_j / (worth_i + worth_j), whatever else was on offer, so that what was offered leaves no trace.

    Parameters
    ----------
    log_worths : (n_items,)

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[2, 0]], n_items=3, unranked="absent")
    >>> place_surprises(block, np.zeros(3)).tolist()
    [-0.5, 0.5]
    """
    surprises = np.zeros(len(block.items))
    rows = rows_of(block, 1, Workspace.of_thread())
    held = np.ascontiguousarray(log_worths, np.float64)
    _add_surprises(pointers(rows), pointers(Surprises(held, surprises)))
    return surprises
