"""The observed information over all rows, as one pass: of all parameters together, or component by component."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation
from plmix_dist.kernels import Prepared, prepare
from plmix_dist.single_thread import single_thread
from plmix_dist.uncertainty.scores import person_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.mixture import MixtureParams
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.uncertainty.scores import PersonScores


class MixturePoint(NamedTuple):
    """What travels to every task: log-worths (n_components, n_items) and shares (n_components,)."""

    log_worths: NDArray[np.float64]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, mixture: MixtureParams) -> MixturePoint:
        """The parameters of a mixture."""
        return cls(mixture.log_worths, mixture.shares)


class PreparedPoint(NamedTuple):
    """The same, ready for kernels."""

    params: Prepared
    shares: NDArray[np.float64]


class InformationTotals(NamedTuple):
    """Sums over rows. Those of two leaves can be added.

    Parameters
    ----------
    observed, products : tuple of (d, d)
        Minus the second derivatives of the log-likelihood, and the products of scores of units, times weights. One
        matrix in all log-worths and logits of shares; or one per component in its log-worths, then one in the logits.
    gradient, known : (n_components * n_items + n_components,)
        The sum of scores, and the diagonal of the information if all components were known.
    weight : ()
        Of all persons.
    n_sampled : ()
        Rows with ties whose second derivatives are estimated from draws.
    """

    observed: tuple[NDArray[np.float64], ...]
    products: tuple[NDArray[np.float64], ...]
    gradient: NDArray[np.float64]
    known: NDArray[np.float64]
    weight: NDArray[np.float64]
    n_sampled: NDArray[np.int64]


@cache
def information_pass(ties: str, *, joint: bool) -> Aggregation:
    """The aggregation of `InformationTotals`, in all parameters together or component by component.

    Examples
    --------
    >>> information_pass("expand", joint=True).name
    'information'
    """
    return Aggregation("information", leaf=partial(_leaf_totals, ties, joint), prepare=prepare_point)


def prepare_point(point: MixturePoint) -> PreparedPoint:
    """Parameters ready for kernels.

    Examples
    --------
    >>> prepare_point(MixturePoint(np.zeros((2, 3)), np.array([0.5, 0.5]))).params.n_components
    2
    """
    with np.errstate(divide="ignore"):
        return PreparedPoint(prepare(point.log_worths, np.log(point.shares)), point.shares)


def flat_scores(found: PersonScores, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n_persons, d): the scores in all log-worths, component by component, then in the logits of the shares.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> point = prepare_point(MixturePoint(np.zeros((1, 2)), np.ones(1)))
    >>> (found,) = person_scores(RankingBlock.from_array([[1, 0]]), point.params, "expand")
    >>> flat_scores(found, point.shares).tolist()
    [[-0.5, 0.5, 0.0]]
    """
    n_persons = len(found.weights)
    flat: NDArray[np.float64] = np.concatenate(
        [found.scores.reshape(n_persons, -1), found.posteriors - shares], axis=1
    )
    return flat


def _leaf_totals(
    ties: str, joint: bool, number: int, block: RankingBlock, point: PreparedPoint
) -> InformationTotals:
    del number
    n_components, n_items = point.params.n_components, point.params.n_items
    n_worths = n_components * n_items
    sizes = [n_worths + n_components] if joint else [n_items] * n_components + [n_components]
    bounds = [0, *np.cumsum(sizes).tolist()]
    observed, products = (
        [np.zeros((size, size)) for size in sizes],
        [np.zeros((size, size)) for size in sizes],
    )
    gradient, known = np.zeros((2, n_worths + n_components))
    weight, n_sampled = 0.0, 0
    with single_thread():
        for found in person_scores(block, point.params, ties):
            flat = flat_scores(found, point.shares)
            by_unit, unit_weights = _by_unit(found, flat)
            for place, (first, last) in enumerate(pairwise(bounds)):
                own = flat[:, first:last]
                squares = own.T @ (own * found.weights[:, None])
                observed[place] += squares
                same = found.unit is None
                units = by_unit[:, first:last]
                products[place] += squares if same else units.T @ (units * unit_weights[:, None])
            _add_second_derivatives(observed, found, point.shares, joint)
            gradient += found.weights @ flat
            known[:n_worths] += np.diagonal(found.complete, axis1=1, axis2=2).ravel()
            weight += float(found.weights.sum())
            n_sampled += found.n_sampled
    known[n_worths:] = weight * point.shares * (1 - point.shares)
    return InformationTotals(
        tuple(observed), tuple(products), gradient, known, np.array(weight), np.array(n_sampled)
    )


def _by_unit(
    found: PersonScores, flat: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean score (n_units, d) of each independent unit, and its weight."""
    if found.unit is None:
        return flat, found.weights
    firsts = np.flatnonzero(np.diff(found.unit, prepend=-1))
    weights = np.add.reduceat(found.weights, firsts)
    sums = np.add.reduceat(flat * found.weights[:, None], firsts, axis=0)
    return sums / weights[:, None], weights


def _add_second_derivatives(
    observed: list[NDArray[np.float64]], found: PersonScores, shares: NDArray[np.float64], joint: bool
) -> None:
    """All but the products of scores: the information of choices, less that of unknown components (Louis 1982)."""
    n_persons, n_components, n_items = found.scores.shape
    weights, posteriors = found.weights, found.posteriors
    n_worths = n_components * n_items
    for k in range(n_components):
        own = found.scores[:, k]
        per_posterior = np.divide(
            weights, posteriors[:, k], out=np.zeros(n_persons), where=posteriors[:, k] > 0
        )
        second = found.complete[k] - own.T @ (own * per_posterior[:, None])
        if joint:
            place = slice(k * n_items, (k + 1) * n_items)
            observed[0][place, place] += second
            # Products of scores have q - shares in place of q - [j = k].
            crossed = np.outer(weights @ own, shares)
            crossed[:, k] -= weights @ own
            observed[0][place, n_worths:] += crossed
            observed[0][n_worths:, place] += crossed.T
        else:
            observed[k] += second
    # Of the logits: the sum of w (diag(shares) - shares shares' - diag(q) + q q').
    total, sums = float(weights.sum()), weights @ posteriors
    own_logits = observed[-1][-n_components:, -n_components:]
    own_logits += np.outer(sums, shares) + np.outer(shares, sums) - 2 * total * np.outer(shares, shares)
    own_logits += np.diag(total * shares - sums)
