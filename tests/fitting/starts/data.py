"""Rankings and helpers that several tests of starts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.fitting.starts.embeddings import PairRows, pair_frequencies
from plmix_dist.kernels import pairwise_wins
from plmix_dist.passes.svd import RowMaker
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings
from tests.helpers.fit_oracle import listed_in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist import RankingBlock
    from plmix_dist.rankings import Ranking

    Table = NDArray[np.float64]


def told_sign(row: Ranking, n_items: int, i: int, j: int) -> int:
    """1 where a row says that i comes before j, -1 where j does, 0 where it does not say."""
    ordered = listed_in_order(row)
    on_offer = set(range(n_items)) if row.unranked == "below" else {*ordered, *row.offered}
    if not {i, j} <= on_offer or not {i, j} & set(ordered):
        return 0
    places = [ordered.index(item) if item in ordered else len(ordered) for item in (i, j)]
    return 1 if places[0] < places[1] else -1


def makers_of(block: RankingBlock) -> tuple[PairRows, list[RowMaker]]:
    frequencies = pair_frequencies(pairwise_wins(block, np.ones((block.n_rankings, 1)))[0])
    parts = [PairRows(block[start : start + 4096], frequencies) for start in range(0, block.n_rankings, 4096)]
    return PairRows(block, frequencies), [RowMaker(part.scaled, part.shape) for part in parts]


def paper_data(
    seed: int, n_items: int, differing: int, n_components: int, n_rankings: int
) -> tuple[Table, RankingBlock]:
    rng = np.random.default_rng(seed)
    truth = draw_log_worths(n_components, n_items, differing, rng)
    return truth, draw_rankings(truth, np.full(n_components, 1 / n_components), n_rankings, rng)[0]
