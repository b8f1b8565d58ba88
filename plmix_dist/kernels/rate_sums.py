"""Rates between items, as LSR needs them: for every choice that j won while i was on offer, one number is added.

There are as many of these as pairs of items on offer, so a pass with rates spends its time here. Which way is fastest
depends on the row:

- side by side: one entry per pair, all components at once; for few items, and for rows that list some of them;
- queued: one line of rates per winner, over all items, of which those ranked lower are added to; for long rows. Rows
  of one component wait in a queue until there are four, so that each line is loaded and stored once for all four;
- by line: the same for a single row; for rows with few winners out of many items;
- by pair: one entry per pair and component; for rows that list few out of very many items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.pointers import aligned_zeros
from plmix_dist.kernels.prepared import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.pointers import Room
    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.kernels.workspace import Workspace
    from plmix_dist.rankings import RankingBlock

# With up to this many items all rows are treated side by side.
_MOST_ITEMS_SIDE_BY_SIDE = 40
# Numbers that fit into the cache: with more of them, components side by side cost more to rearrange than they save.
_MOST_NUMBERS_SIDE_BY_SIDE = 1 << 19
# Rows for which one line is loaded and stored once.
QUEUE = 4
SIDE_BY_SIDE, QUEUED, BY_LINE, BY_PAIR = 0, 1, 2, 3


class RateSums(NamedTuple):
    """Rates being added up.

    Parameters
    ----------
    ways : (n_rankings,)
        How each row is treated.
    side_by_side : (n_items * n_items * width,) or empty
        By winner, then beaten item, components side by side.
    lines : (n_components * n_items * padded,) or empty
        By component, then winner; lines end on whole vectors.
    places : (n_components * QUEUE * padded,)
        Of each queued row the place of each item.
    queued : (n_components * QUEUE * n_items,)
        Of each queued row what each winner adds to the items it beat.
    n_queued : (n_components,)
    on_offer : (2 * n_items,)
        The entries of a row, with those of items it does not list behind them.
    padded
        Length of a line.
    n_queues
        n_components, or 0 if there are no lines.
    """

    ways: NDArray[np.uint8]
    side_by_side: Room
    lines: NDArray[np.float64]
    places: Room
    queued: Room
    n_queued: Room
    on_offer: Room
    padded: int
    n_queues: int


def rate_sums(block: RankingBlock, params: Prepared, workspace: Workspace) -> RateSums:
    """Room for the rates of a block, all zero."""
    n_items, ways = params.n_items, _ways(block, params)
    with_lines = params.n_components if (ways != SIDE_BY_SIDE).any() else 0
    is_side_by_side = bool((ways == SIDE_BY_SIDE).any())
    padded = -(-n_items // LANES) * LANES
    return RateSums(
        ways,
        workspace.zeros("side by side", n_items * n_items * params.width if is_side_by_side else 0),
        aligned_zeros(with_lines * n_items * padded),
        workspace.zeros("queued places", with_lines * QUEUE * padded),
        workspace.zeros("queued rates", with_lines * QUEUE * n_items),
        workspace.zeros("queue lengths", with_lines, np.int32),
        # Twice as many, because a row could list an item twice if it was changed during a fit.
        workspace.zeros("on offer", 2 * n_items, np.int32),
        padded,
        with_lines,
    )


def _ways(block: RankingBlock, params: Prepared) -> NDArray[np.uint8]:
    """(n_rankings,): how each row is best treated."""
    n_items = params.n_items
    if n_items <= _MOST_ITEMS_SIDE_BY_SIDE:
        return np.full(block.n_rankings, SIDE_BY_SIDE, np.uint8)
    n_ordered, n_listed = block.n_ordered.astype(np.int64), block.n_listed.astype(np.int64)
    if n_items * n_items * params.width <= _MOST_NUMBERS_SIDE_BY_SIDE:
        listed = np.full(block.n_rankings, SIDE_BY_SIDE, np.uint8)
    else:
        listed = np.where(2 * n_listed > n_items, np.uint8(BY_LINE), np.uint8(BY_PAIR))
    # A queue is swept with every item for a winner. Few winners of many items are treated by line, and rows that
    # list but some of all items, for which a line is mostly zeros, as pairs.
    listed = np.where(4 * n_ordered > 3 * n_items, np.uint8(QUEUED), listed)
    below = np.where(2 * n_ordered > n_items, np.uint8(QUEUED), np.uint8(BY_LINE))
    return np.where(block.below, below, listed)


def rates_by_component(rates: RateSums, params: Prepared) -> NDArray[np.float64]:
    """(n_components, n_items, n_items): everything added up."""
    n_items, n_components = params.n_items, params.n_components
    lines = rates.lines.reshape(-1, n_items, rates.padded)[:, :, :n_items]
    side_by_side = rates.side_by_side.array.reshape(-1, n_items, params.width)[:, :, :n_components].transpose(
        2, 0, 1
    )
    if lines.size and side_by_side.size:
        return side_by_side + lines
    if lines.size or side_by_side.size:
        # Side by side they lie in a workspace, and must be copied.
        return np.ascontiguousarray(lines) if lines.size else side_by_side.copy()
    return np.zeros((n_components, n_items, n_items))
