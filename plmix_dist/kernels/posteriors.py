"""Log-likelihood and posterior of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.kernels.choices import (
    Slots,
    evaluate_row,
    logs_of,
    posterior_of_row,
    probabilities_of,
    row_at,
    scratch_at,
    slots_for,
)
from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.jit import kernel
from plmix_dist.kernels.pointers import load4, pointers, store, store4, unpack
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.pointers import Room
    from plmix_dist.rankings import RankingBlock


def row_posteriors(block: RankingBlock, params: Prepared) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, n_components) of each row.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> params = prepare(np.log([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]), np.log([0.5, 0.5]))
    >>> log_likelihood, posteriors = row_posteriors(block, params)
    >>> np.exp(log_likelihood).round(12).tolist(), posteriors.round(3).tolist()
    ([0.208333333333], [[0.4, 0.6]])
    """
    workspace = Workspace.of_thread()
    rows = rows_of(block, params.width, workspace)
    log_likelihood, posteriors = padded_posteriors(rows, params, workspace)
    return log_likelihood, np.ascontiguousarray(posteriors[:, : params.n_components])


def padded_posteriors(
    rows: Rows, params: Prepared, workspace: Workspace
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, width) of each row."""
    posteriors = np.empty((rows.n_rows, params.width))
    probabilities = probabilities_of(rows.n_rows, workspace)
    _fill_posteriors(
        pointers(rows),
        workspace.pointers_of(params),
        pointers(slots_for(rows, params, workspace)),
        pointers(_Filled(posteriors, probabilities.totals, probabilities.scales)),
    )
    return logs_of(probabilities).copy(), posteriors


class _Filled(NamedTuple):
    """What the kernel fills."""

    posteriors: NDArray[np.float64]
    totals: Room
    scales: Room


@kernel
def _fill_posteriors(rows_fields: Any, params_fields: Any, slots_fields: Any, filled_fields: Any) -> None:
    """Fill the posterior of each row, and its probability as total * 2**scale."""
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    slots, filled = unpack(Slots, slots_fields), unpack(_Filled, filled_fields)
    scratch = scratch_at(0, slots, params.width)
    for index in range(rows.n_rows):
        evaluate_row(row_at(index, rows), params, scratch)
        total, scale = posterior_of_row(1.0, params, scratch)
        store(filled.totals, index, total)
        store(filled.scales, index, scale)
        for lane in range(0, params.width, 4):
            store4(filled.posteriors, index * params.width + lane, load4(scratch.posterior, lane))
