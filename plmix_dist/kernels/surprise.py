"""How surprising each item's place is: the choices it lost beyond what one model for everybody expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.jit import kernel
from plmix_dist.kernels.pointers import load, load_index, load_uint63, pointers, store, unpack
from plmix_dist.kernels.workspace import Workspace

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
    rows = rows_of(block, 1, Workspace.of_thread())
    held = np.ascontiguousarray(log_worths, np.float64)
    _add_surprises(pointers(rows), pointers((held, surprises)))
    return surprises


class _Surprises(NamedTuple):
    """Addresses of log-worths and of the surprises being added up."""

    log_worths: int
    surprises: int


@kernel
def _add_surprises(rows_fields: Any, sums_fields: Any) -> None:
    """Add up the surprises of all rows."""
    rows, sums = unpack(Rows, rows_fields), unpack(_Surprises, sums_fields)
    for row in range(rows.n_rows):
        start, stop = load_uint63(rows.offsets, row), load_uint63(rows.offsets, row + 1)
        for entry in range(start, start + load_index(rows.n_ordered, row)):
            log_worth = load(sums.log_worths, load_index(rows.entries, entry))
            for later in range(entry + 1, stop):
                # The probability that the later one would have come first.
                other = load(sums.log_worths, load_index(rows.entries, later))
                upset = 1.0 / (1.0 + np.exp(log_worth - other))
                store(sums.surprises, entry, load(sums.surprises, entry) - upset)
                store(sums.surprises, later, load(sums.surprises, later) + upset)
