"""Pairwise wins: how often each item was ranked before each other, by component."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.kernels.jit import kernel
from plmix_dist.kernels.rows import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock


def pairwise_wins(block: RankingBlock, memberships: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_components, n_items, n_items): entry [k, i, j] adds w q wherever i is ranked before j.

    An ordered item is before every item on offer that is not ordered, listed or not.

    Parameters
    ----------
    memberships : (n_rankings, n_components)
        The probability q of each component for each row, or 0 and 1 for clusters.
    """
    wins = np.zeros((memberships.shape[1], block.n_items, block.n_items))
    _count(rows_of(block), np.array(memberships, np.float64, order="C"), wins)
    return wins


@kernel
def _count(rows: Any, memberships: Any, wins: Any) -> None:
    items, offsets, n_ordered, below, weights, _ = rows
    listed = np.full(wins.shape[1], -1, np.int64)
    for row in range(offsets.shape[0] - 1):
        start, stop = offsets[row], offsets[row + 1]
        for entry in range(start, stop):
            listed[items[entry]] = row
        for component in range(wins.shape[0]):
            added = weights[row] * memberships[row, component]
            if added == 0.0:
                continue
            for entry in range(start, start + np.int64(n_ordered[row])):
                beaten = wins[component, items[entry]]
                for other in range(entry + 1, stop):
                    beaten[items[other]] += added
                if below[row]:
                    _add_to_unlisted(beaten, listed, row, added)


@kernel
def _add_to_unlisted(beaten: Any, listed: Any, row: int, added: float) -> None:
    for item in range(beaten.shape[0]):
        if listed[item] != row:
            beaten[item] += added
