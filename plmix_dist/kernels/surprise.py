"""How surprising each item's place is: the choices it lost beyond what one model for everybody expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.kernels.jit import kernel
from plmix_dist.kernels.rows import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


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
    _surprise(rows_of(block), np.array(log_worths, np.float64, order="C"), surprises)
    return surprises


@kernel
def _surprise(rows: Any, log_worths: Any, surprises: Any) -> None:
    items, offsets, n_ordered = rows.entries, rows.offsets, rows.n_ordered
    for row in range(offsets.shape[0] - 1):
        start, stop = offsets[row], offsets[row + 1]
        for entry in range(start, start + np.int64(n_ordered[row])):
            for later in range(entry + 1, stop):
                # The probability that the later one would have come first.
                upset = 1.0 / (1.0 + np.exp(log_worths[items[entry]] - log_worths[items[later]]))
                surprises[entry] -= upset
                surprises[later] += upset
