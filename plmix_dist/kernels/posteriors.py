"""Log-likelihood and posterior of each row, where every row is a person of its own and has no ties."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.native import Kernel
from plmix_dist.kernels.pointers import pointers
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.scratch import Slots, logs_of, probabilities_of, slots_for
from plmix_dist.kernels.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.pointers import Room
    from plmix_dist.rankings import RankingBlock


class FilledPosteriors(NamedTuple):
    """What the kernel fills."""

    posteriors: NDArray[np.float64]
    totals: Room
    scales: Room


_fill_posteriors = Kernel("fill_posteriors", Rows, Prepared, Slots, FilledPosteriors)


def single_posteriors(
    block: RankingBlock, params: Prepared
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-likelihood (n_rankings,) and posterior (n_rankings, n_components) of each row by itself.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> params = prepare(np.log([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]), np.log([0.5, 0.5]))
    >>> log_likelihood, posteriors = single_posteriors(block, params)
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
        pointers(FilledPosteriors(posteriors, probabilities.totals, probabilities.scales)),
    )
    return logs_of(probabilities).copy(), posteriors
