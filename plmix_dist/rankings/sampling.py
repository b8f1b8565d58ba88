"""Seeded samples of the rows of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.rankings.portions import draw_portions

if TYPE_CHECKING:
    from plmix_dist.rankings.block import RankingBlock


def sample_rows(block: RankingBlock, share: float, rng: np.random.Generator) -> RankingBlock:
    """About this share of the rows, in their order. A row of integer weight w is thinned as w rankings would be.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1]] * 50 + [[1, 0]] * 50)
    >>> sample_rows(block, 0.1, np.random.default_rng(0)).n_rankings
    10
    """
    if share >= 1:
        return block
    if block.weights is None and block.groups is None:
        # Round up or down at random, so that each row has the same chance of being drawn.
        n_rows = int(np.floor(share * block.n_rankings + rng.random()))
        return block.take(np.sort(rng.choice(block.n_rankings, n_rows, replace=False)))
    weights = draw_portions(block, np.array([share, 1 - share]), rng)[0]
    kept = np.flatnonzero(weights)
    return block.take(kept).replace(weights=weights[kept])


def thinned(block: RankingBlock, n_rankings: float, rng: np.random.Generator) -> RankingBlock:
    """About this many rankings, or all rows if there are fewer. An integer weight w counts as w rankings.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[1000.0, 3000.0])
    >>> thinned(block, 400, np.random.default_rng(0)).total_weight
    393.0
    """
    is_counts = block.weights is not None and bool((block.weights == np.floor(block.weights)).all())
    part = sample_rows(block, n_rankings / (block.total_weight if is_counts else block.n_rankings), rng)
    return part if part.n_rankings else block
