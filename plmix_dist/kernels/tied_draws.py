"""One linear extension per row with ties, drawn from the current fit: first a component per person, then an order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.kernels.e_step import memberships_at
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.rankings import RankingBlock


def draw_extensions(
    block: RankingBlock, params: Prepared, rng: np.random.Generator
) -> tuple[RankingBlock, float]:
    """The block with an order drawn for every tie, and the log-likelihood of the block with its ties.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import Ranking, RankingBlock
    >>> block = RankingBlock.from_rows([Ranking(((0, 1), (2,)), (), "absent", 1.0)], n_items=3)
    >>> params = prepare(np.array([[0.0, 40.0, 0.0]]), np.zeros(1))
    >>> drawn, log_likelihood = draw_extensions(block, params, np.random.default_rng(0))
    >>> drawn.to_array().tolist(), round(float(np.exp(log_likelihood)), 6)
    ([[1, 0, 2]], 0.5)
    """
    block = unorder_last_ties(block)
    ties = TiedRows.of(block)
    at = memberships_at(block, params)
    log_likelihood = float((at.weights * at.log_likelihoods).sum())
    if ties is None:
        return block.replace(tied=None), log_likelihood
    reached = np.cumsum(at.posteriors, axis=1)
    chosen = np.argmax(reached > rng.random(len(reached))[:, None] * reached[:, -1:], axis=1)
    items = block.items.copy()
    items[np.repeat(np.isin(np.arange(block.n_rankings), ties.numbers), block.n_listed)] = ties.drawn(
        params, chosen[at.person[ties.numbers]], rng
    )
    return block.replace(items=items, tied=None), log_likelihood
