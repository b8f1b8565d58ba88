"""Pairwise wins: how often each item was ranked before each other, by component."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.jit import kernel, kernel_part
from plmix_dist.kernels.pointers import (
    load,
    load_index,
    load_uint8,
    load_uint63,
    pointers,
    store,
    store_index,
    unpack,
)
from plmix_dist.kernels.workspace import Workspace

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
    n_components, n_items = memberships.shape[1], block.n_items
    wins = np.zeros((n_components, n_items, n_items))
    given = np.ascontiguousarray(memberships, np.float64)
    workspace = Workspace.of_thread()
    rows = rows_of(block, 1, workspace)
    listed = workspace.zeros("listed", n_items, np.int32)
    _count_wins(pointers(rows), pointers((given, listed, wins, n_components, n_items)))
    return wins


class _WinSums(NamedTuple):
    """Addresses of memberships, of the number of the last row that listed each item, and of wins."""

    memberships: int
    listed: int
    wins: int
    n_components: int
    n_items: int


@kernel
def _count_wins(rows_fields: Any, sums_fields: Any) -> None:
    """Add up the wins of all rows."""
    rows, sums = unpack(Rows, rows_fields), unpack(_WinSums, sums_fields)
    for row in range(rows.n_rows):
        start, stop = load_uint63(rows.offsets, row), load_uint63(rows.offsets, row + 1)
        below = load_uint8(rows.below, row) != 0
        for entry in range(start, stop):
            store_index(sums.listed, load_index(rows.entries, entry), row + 1)
        for component in range(sums.n_components):
            weight = load(rows.weights, row)
            added = weight * load(sums.memberships, row * sums.n_components + component)
            if added != 0.0:
                for entry in range(start, start + load_index(rows.n_ordered, row)):
                    winner = component * sums.n_items + load_index(rows.entries, entry)
                    line = winner * sums.n_items
                    for other in range(entry + 1, stop):
                        _add(sums.wins, line + load_index(rows.entries, other), added)
                    if below:
                        _add_to_unlisted(line, row + 1, added, sums)


@kernel_part
def _add_to_unlisted(line: int, number: int, added: float, sums: Any) -> None:
    """Add wins of one item over all items that a row does not list."""
    for item in range(sums.n_items):
        if load_index(sums.listed, item) != number:
            _add(sums.wins, line + item, added)


@kernel_part
def _add(sums: int, entry: int, value: float) -> None:
    store(sums, entry, load(sums, entry) + value)
