"""Log-likelihood and posterior of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.kernels.jit import kernel
from plmix_dist.kernels.memory import address_of, load4, store4
from plmix_dist.kernels.prepared import parameters_of
from plmix_dist.kernels.row import (
    evaluate_row,
    logs_of_rows,
    posterior_of_row,
    row_at,
    scratch_at,
    scratch_memory,
    slots_of,
    totals_and_scales,
)
from plmix_dist.kernels.rows import addresses_of, rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.kernels.rows import Rows
    from plmix_dist.rankings import RankingBlock


def row_posteriors(block: RankingBlock, params: Prepared) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood (n_rankings,) and probabilities of components (n_rankings, n_components) of each row."""
    log_likelihood, posteriors = padded_posteriors(rows_of(block, params.width), params)
    return log_likelihood, np.ascontiguousarray(posteriors[:, : params.n_components])


def padded_posteriors(rows: Rows, params: Prepared) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, width) of each row."""
    n_rows = len(rows.weights)
    posteriors = np.empty((n_rows, params.width))
    totals, scales = totals_and_scales(n_rows)
    _fill(rows, params, scratch_memory(rows, params), posteriors, totals, scales)
    logs_of_rows(totals, scales)
    return totals[:n_rows], posteriors


@kernel
def _fill(rows: Any, prepared: Any, memory: Any, posteriors: Any, totals: Any, scales: Any) -> None:
    """Fill the posterior of each row, and its probability as total * 2**scale."""
    params, addresses = parameters_of(prepared), addresses_of(rows)
    scratch = scratch_at(0, slots_of(memory), params.width)
    filled = address_of(posteriors)
    for index in range(addresses.n_rows):
        evaluate_row(row_at(index, addresses), params, scratch)
        totals[index], scales[index] = posterior_of_row(1.0, params, scratch)
        for lane in range(0, params.width, 4):
            store4(filled, index * params.width + lane, load4(scratch.posterior, lane))
