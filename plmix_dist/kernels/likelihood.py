"""Log-likelihood and posterior of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.kernels.jit import kernel
from plmix_dist.kernels.row import evaluate_row, longest_row, make_scratch, posterior_of_row
from plmix_dist.kernels.rows import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.rankings import RankingBlock


def row_posteriors(block: RankingBlock, params: Prepared) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood (n_rankings,) and probabilities of components (n_rankings, n_components) of each row."""
    log_likelihood = np.empty(block.n_rankings)
    posterior = np.empty((block.n_rankings, params.n_components))
    _fill(rows_of(block), params, log_likelihood, posterior)
    return log_likelihood, posterior


@kernel
def _fill(rows: Any, params: Any, log_likelihood: Any, posterior: Any) -> None:
    items, offsets, n_ordered, below, _ = rows
    scratch = make_scratch(longest_row(offsets), params.n_items, params.width)
    for row in range(offsets.shape[0] - 1):
        start, n_listed = offsets[row], offsets[row + 1] - offsets[row]
        evaluate_row(items, row, start, n_listed, np.int64(n_ordered[row]), below[row], params, scratch)
        log_likelihood[row] = posterior_of_row(scratch, params, posterior[row])
