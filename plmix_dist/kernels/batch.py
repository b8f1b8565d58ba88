"""The sums of an EM pass for several mixtures at once: the components of all of them lie side by side.

A row is read once for all mixtures, and whole vectors are filled whatever the number of components is. The numbers of
one mixture do not depend on the others: the same bits come out however the mixtures are divided into batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plmix_dist.kernels import prepared
from plmix_dist.kernels.em_pass import PassSums, em_statistics, is_plain, spread_below
from plmix_dist.kernels.loading import Kernel
from plmix_dist.rankings import Floats, RankingBlock

# The sums of a batch stay within the second cache.
_MOST_NUMBERS = 1 << 16
# Beyond this range of log-worths a product of four chances may be too small for float64. Mixtures with a wider range
# are computed apart, so that they do not change the order of operations of the others.
_WIDE = 150.0


class BatchStatistics(NamedTuple):
    """Sums over rows for each of several mixtures, as `EmStatistics` has them for one."""

    # (n_mixtures,)
    log_likelihood: Floats
    # (n_mixtures, n_components): sums of weight times posterior.
    shares: Floats
    # wins, expected_wins (n_mixtures, n_components, n_items)
    wins: Floats
    expected_wins: Floats


class BatchSums(NamedTuple):
    """What a pass adds up for a batch: how many mixtures there are, and how many components each has."""

    n_mixtures: int
    n_components: int
    n_rows: int


_add_batch = Kernel("add_batch", prepared.Rows, prepared.Prepared, prepared.Slots, PassSums, BatchSums)


def batch_statistics(block: RankingBlock, log_worths: Floats, log_shares: Floats) -> BatchStatistics:
    """The statistics of a block at log-worths (n_mixtures, n_components, n_items) and their log-shares.

    Examples
    --------
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> found = batch_statistics(block, np.zeros((2, 1, 3)), np.zeros((2, 1)))
    >>> np.exp(found.log_likelihood).round(3).tolist(), found.wins.tolist()
    ([0.167, 0.167], [[[1.0, 1.0, 0.0]], [[1.0, 1.0, 0.0]]])
    """
    n_mixtures, n_components, n_items = log_worths.shape
    found = BatchStatistics(
        np.empty(n_mixtures), np.empty(log_shares.shape), np.empty(log_worths.shape), np.empty(log_worths.shape)
    )
    if is_plain(block):
        wide = np.ptp(log_worths, axis=2).max(axis=1) > _WIDE
        at_once = max(1, _MOST_NUMBERS // (3 * n_items * n_components))
        for alike in (np.flatnonzero(~wide), np.flatnonzero(wide)):
            for first in range(0, len(alike), at_once):
                chosen = alike[first : first + at_once]
                for sums, values in zip(found, _row_sums(block, log_worths[chosen], log_shares[chosen]), strict=True):
                    sums[chosen] = values
        return found
    for mixture in range(n_mixtures):
        own = em_statistics(block, prepared.prepare(log_worths[mixture], log_shares[mixture]))
        for sums, values in zip(found, (own.log_likelihood, own.shares, own.wins, own.expected_wins), strict=True):
            sums[mixture] = values
    return found


def _row_sums(block: RankingBlock, log_worths: Floats, log_shares: Floats) -> BatchStatistics:
    """The statistics of rows that are persons of their own, without ties."""
    n_mixtures, n_components, n_items = log_worths.shape
    n_lanes = n_mixtures * n_components
    workspace = prepared.Workspace.of_thread()
    params = prepared.prepare(log_worths.reshape(n_lanes, n_items), log_shares.reshape(n_lanes))
    rows = prepared.rows_of(block, params.width, workspace)
    probabilities = prepared.probabilities_of(n_mixtures * rows.n_rows, workspace)
    per_item = n_items * params.width
    room = workspace.zeros("sums", 3 * per_item + params.width)
    below, shares = room.address + 8 * 2 * per_item, room.address + 8 * 3 * per_item
    sums = PassSums(probabilities.totals, probabilities.scales, 0, room, below, shares, 0)
    prepared.run_over(_add_batch, rows, params, workspace, sums, BatchSums(n_mixtures, n_components, rows.n_rows))
    if block.below.any():
        spread_below(workspace.pointers_of(params), prepared.pointers(sums))
    logs = prepared.logs_of(probabilities).reshape(n_mixtures, rows.n_rows)
    by_item = room.array[: 2 * per_item].reshape(n_items, 2, params.width)[:, :, :n_lanes]
    expected_wins = by_item[:, 0] * params.worths.reshape(n_items, params.width)[:, :n_lanes]
    return BatchStatistics(
        (rows.weights.array * logs).sum(axis=1),
        room.array[3 * per_item : 3 * per_item + n_lanes].reshape(log_shares.shape),
        by_item[:, 1].T.reshape(log_worths.shape),
        expected_wins.T.reshape(log_worths.shape),
    )
