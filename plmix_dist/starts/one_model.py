"""One Plackett-Luce model for a block of rows: a few MM steps, enough for a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.kernels import em_statistics, prepare
from plmix_dist.solvers import ComponentStatistics, Worths, gradient, mm_step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock

_N_STEPS = 10
# A weak prior: log-worths of items that always win or always lose stay finite.
_ALPHA = 0.5


def fit_one_model(block: RankingBlock, n_steps: int = _N_STEPS) -> Worths:
    """Log-worths (n_items,) near the maximum-likelihood estimate. The steps begin with equal worths.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> worths, _ = fit_one_model(RankingBlock.from_array([[0, 1, 2]] * 9 + [[2, 1, 0]]))
    >>> bool(worths[0] > worths[1] > worths[2])
    True
    """
    worths = Worths(np.zeros(block.n_items), 0.0)
    no_shares: NDArray[np.float64] = np.zeros(1)
    for _ in range(n_steps):
        statistics = em_statistics(block, prepare(worths.log_worths[None, :], no_shares))
        own = ComponentStatistics(statistics.wins[0], statistics.expected_wins[0], statistics.rates)
        worths = mm_step(worths, gradient(own, worths, _ALPHA), _ALPHA)
    return worths
