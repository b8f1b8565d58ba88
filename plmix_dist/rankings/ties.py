"""Ties in last place: items that share the last place of everything on offer are unordered, not tied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from plmix_dist.rankings.block import RankingBlock


def unorder_last_ties(block: RankingBlock) -> RankingBlock:
    """Turn a tied last group into items that were on offer but not ordered.

    This applies to rows that list everything on offer. All other ties stay ties.

    Examples
    --------
    >>> from plmix_dist.rankings.block import Ranking, RankingBlock
    >>> block = RankingBlock.from_rows([Ranking(((2,), (0, 1)), (), "absent", 1.0)], n_items=3)
    >>> unorder_last_ties(block).row(0)
    Ranking(ordered=((2,),), offered=(0, 1), unranked='absent', weight=1.0)
    """
    if block.tied is None or not block.n_rankings:
        return block
    entries = np.arange(len(block.items))
    group_start = np.maximum.reduceat(np.where(block.tied, -1, entries), block.offsets[:-1])
    group_size = block.offsets[1:] - group_start
    whole_offer = (block.n_ordered == block.n_listed) & ~block.below
    changes = whole_offer & (group_size > 1)
    n_ordered = np.where(changes, group_start - block.offsets[:-1], block.n_ordered)
    unordered = np.repeat(changes, block.n_listed) & (entries >= np.repeat(group_start, block.n_listed))
    tied = block.tied & ~unordered
    return block.replace(n_ordered=n_ordered.astype(block.n_ordered.dtype), tied=tied if tied.any() else None)
