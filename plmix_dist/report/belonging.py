"""Who belongs: how certain memberships are, summed over all rankings in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation
from plmix_dist.posteriors import posteriors_by_ranking, prepared_of
from plmix_dist.rankings.person_shares import with_person_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels import Prepared
    from plmix_dist.rankings import RankingBlock

N_BINS = 20
# A membership is certain from this probability on.
CERTAIN = 0.9


class Belonging(NamedTuple):
    """Memberships of all rankings; of all persons where rankings have groups.

    Parameters
    ----------
    histogram : (n_components, n_bins)
        Weight by the most probable component, and by its probability in bins of equal width from 0 to 1.
    together : (n_components, n_components)
        Entry [k, j]: the sum of the probabilities of j over what belongs most probably to k.
    certain : (n_components,)
        Weight of memberships of at least 90 %.
    weight : (n_components,)
        Weight of what belongs most probably to k.

    Examples
    --------
    >>> found = belonging_of(np.array([[0.95, 0.05], [0.4, 0.6]]), np.ones(2))
    >>> found.weight.tolist(), found.certain.tolist(), found.certainty.tolist()
    ([1.0, 1.0], [1.0, 0.0], [0.95, 0.6])
    """

    histogram: NDArray[np.float64]
    together: NDArray[np.float64]
    certain: NDArray[np.float64]
    weight: NDArray[np.float64]

    @property
    def certainty(self) -> NDArray[np.float64]:
        """(n_components,): the mean probability of the most probable component; NaN where nothing belongs."""
        total: NDArray[np.float64] = np.where(self.weight > 0, self.weight, np.nan)
        found: NDArray[np.float64] = np.diag(self.together) / total
        return found

    @property
    def share_certain(self) -> float:
        """The share of memberships of at least 90 %."""
        return float(self.certain.sum() / self.weight.sum())


def belonging_of(posteriors: NDArray[np.float64], weights: NDArray[np.float64]) -> Belonging:
    """Sums over memberships.

    Parameters
    ----------
    posteriors : (n_rankings, n_components)
    weights : (n_rankings,)

    Examples
    --------
    >>> belonging_of(np.array([[0.75, 0.25]]), np.ones(1)).together.tolist()
    [[0.75, 0.25], [0.0, 0.0]]
    """
    n_components = posteriors.shape[1]
    component = posteriors.argmax(axis=1)
    largest = posteriors.max(axis=1, initial=0.0)
    bins = np.minimum((largest * N_BINS).astype(np.int64), N_BINS - 1)
    histogram = np.zeros((n_components, N_BINS))
    np.add.at(histogram, (component, bins), weights)
    together = np.zeros((n_components, n_components))
    np.add.at(together, component, weights[:, None] * posteriors)

    def total(of_row: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(component, of_row, minlength=n_components).astype(np.float64)

    return Belonging(histogram, together, total(weights * (largest >= CERTAIN)), total(weights))


class _Params(NamedTuple):
    log_worths: NDArray[np.float64]
    log_shares: NDArray[np.float64]
    ties: str
    coefficients: NDArray[np.float64] | None


class _Prepared(NamedTuple):
    prepared: Prepared
    ties: str
    coefficients: NDArray[np.float64] | None


def _prepare(params: tuple[Any, ...]) -> _Prepared:
    given = _Params(*params)
    return _Prepared(prepared_of((given.log_worths, given.log_shares)), given.ties, given.coefficients)


def _leaf(number: int, block: RankingBlock, params: _Prepared) -> Belonging:
    """The memberships of one leaf; a person of several rankings counts once."""
    del number
    if params.coefficients is not None:
        block = with_person_shares(block, params.coefficients)
    _, posteriors = posteriors_by_ranking(params.ties, block, params.prepared)
    if block.groups is None:
        return belonging_of(posteriors, block.row_weights)
    first = block.group_starts
    return belonging_of(posteriors[first], np.ones(int(first.sum())))


BELONGING = Aggregation("memberships", leaf=_leaf, prepare=_prepare)
