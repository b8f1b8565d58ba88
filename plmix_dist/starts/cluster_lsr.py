"""One Plackett-Luce model per cluster by Luce spectral ranking: the other estimate of worths at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.kernels import prepare
from plmix_dist.kernels.em_pass import EmStatistics, statistics_at
from plmix_dist.solvers import LSR, Worths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from plmix_dist.rankings import RankingBlock

# Half a win and half a loss per item, as least squares has per pair: in a small cluster an item may win always.
_ALPHA = 0.5
# LSR ends when the squares of all changes of log-worths sum to at most this. A start needs no more digits.
_TOLERANCE = 1e-4
_MOST_STEPS = 50


def lsr_in_clusters(
    step: Callable[[Sequence[Worths]], Sequence[Worths]], n_clusters: int, n_items: int
) -> NDArray[np.float64]:
    """(n_clusters, n_items): log-worths of each cluster. The steps begin with equal worths.

    Parameters
    ----------
    step
        From the worths of all clusters to those after one step of LSR on the rows of each.
    n_clusters, n_items
        The numbers of clusters and items.

    Examples
    --------
    >>> halfway = lambda worths: [Worths((own.log_worths + np.array([1.0, -1.0])) / 2, 0.0) for own in worths]
    >>> lsr_in_clusters(halfway, n_clusters=1, n_items=2).round(1).tolist()
    [[1.0, -1.0]]
    """
    worths: Sequence[Worths] = [Worths(np.zeros(n_items), 0.0) for _ in range(n_clusters)]
    for _ in range(_MOST_STEPS):
        after = step(worths)
        change = sum(
            float(((new.log_worths - old.log_worths) ** 2).sum())
            for new, old in zip(after, worths, strict=True)
        )
        worths = after
        if change <= _TOLERANCE:
            break
    return np.array([own.log_worths for own in worths])


def cluster_sums(
    block: RankingBlock, memberships: NDArray[np.float64], worths: Sequence[Worths]
) -> EmStatistics:
    """The rates of each cluster over the rows of a block.

    Parameters
    ----------
    block
        The rankings.
    memberships : (n_rankings, n_clusters)
        0 and 1.
    worths
        Those of each cluster.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [0, 1], [1, 0]])
    >>> cluster_sums(block, np.ones((3, 1)), [Worths(np.zeros(2), 0.0)]).wins.tolist()
    [[2.0, 1.0]]
    """
    log_worths = np.array([own.log_worths for own in worths])
    no_shares = np.full(len(worths), -np.log(len(worths)))
    return statistics_at(block, prepare(log_worths, no_shares), memberships, 0.0, with_rates=True)


def cluster_step(sums: EmStatistics, cluster: int, worths: Worths) -> Worths:
    """The worths of one cluster after a step of LSR with a weak prior.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> begin = Worths(np.zeros(2), 0.0)
    >>> sums = cluster_sums(RankingBlock.from_array([[0, 1]] * 3 + [[1, 0]]), np.ones((4, 1)), [begin])
    >>> cluster_step(sums, 0, begin).log_worths.round(2).tolist()
    [0.48, -0.48]
    """
    assert LSR.step is not None
    return LSR.step(LSR.component(sums, cluster), worths, _ALPHA)
