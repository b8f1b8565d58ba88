"""The sums of an EM pass for several mixtures at once: the components of all of them lie side by side.

A row is read once for all mixtures, and whole vectors are filled whatever the number of components is. The numbers of
one mixture do not depend on the others: the same bits come out however the mixtures are divided into batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plmix_dist.kernels import prepared
from plmix_dist.kernels.em_pass import PassSums, em_statistics, is_plain, room_for_pass, run_pass, statistics_of
from plmix_dist.kernels.loading import Kernel
from plmix_dist.rankings import Floats, RankingBlock

# The sums of a batch stay within the second cache.
_MOST_NUMBERS = 1 << 16
# Beyond this range of log-worths a product of four chances may be too small for float64. Mixtures with a wider range
# are computed apart, so that they do not change the order of operations of the others.
_WIDE = 150.0


class _BatchStatistics(NamedTuple):
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


def batch_statistics(block: RankingBlock, log_worths: Floats, log_shares: Floats) -> _BatchStatistics:
    """The statistics of a block at log-worths (n_mixtures, n_components, n_items) and their log-shares.

    Examples
    --------
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> found = batch_statistics(block, np.zeros((2, 1, 3)), np.zeros((2, 1)))
    >>> np.exp(found.log_likelihood).round(3).tolist(), found.wins.tolist()
    ([0.167, 0.167], [[[1.0, 1.0, 0.0]], [[1.0, 1.0, 0.0]]])
    """
    if not is_plain(block):
        single = [em_statistics(block, prepared.prepare(*point)) for point in zip(log_worths, log_shares, strict=True)]
        return _BatchStatistics(
            *(np.stack([getattr(one, name) for one in single]) for name in _BatchStatistics._fields)
        )
    n_mixtures, n_components, n_items = log_worths.shape
    found = _BatchStatistics(*map(np.empty, (n_mixtures, log_shares.shape, log_worths.shape, log_worths.shape)))
    wide = np.ptp(log_worths, axis=2).max(axis=1) > _WIDE
    at_once = max(1, _MOST_NUMBERS // (3 * n_items * n_components))
    for alike in (np.flatnonzero(~wide), np.flatnonzero(wide)):
        for first in range(0, len(alike), at_once):
            chosen = alike[first : first + at_once]
            for sums, values in zip(found, _row_sums(block, log_worths[chosen], log_shares[chosen]), strict=True):
                sums[chosen] = values
    return found


def _row_sums(block: RankingBlock, log_worths: Floats, log_shares: Floats) -> _BatchStatistics:
    """The statistics of rows that are persons of their own, without ties."""
    n_mixtures, n_components, n_items = log_worths.shape
    n_lanes = n_mixtures * n_components
    params = prepared.prepare(log_worths.reshape(n_lanes, n_items), log_shares.reshape(n_lanes))
    rows = prepared.rows_of(block, params.width)
    probabilities, sums = room_for_pass(n_mixtures * rows.n_rows, params)
    sums = sums._replace(expected=0)  # not wanted
    run_pass(_add_batch, rows, params, sums, BatchSums(n_mixtures, n_components, rows.n_rows))
    logs = probabilities.logs().reshape(n_mixtures, rows.n_rows)
    found = statistics_of(0.0, sums, np.zeros(0), params)
    return _BatchStatistics(
        (rows.weights.array * logs).sum(axis=1),
        found.shares.reshape(log_shares.shape),
        found.wins.reshape(log_worths.shape),
        found.expected_wins.reshape(log_worths.shape),
    )
