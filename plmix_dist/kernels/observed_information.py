"""The observed information of a block: minus the second derivatives of its log-likelihood.

For a row with posteriors q let s_k be its score under component k (wins less expected wins), and C_k the variance of
its choices, summed over them. Then the information in the log-worths is

    sum over k of q_k (C_k - s_k s_k')  in the blocks on the diagonal,  plus  q_k q_j s_k s_j'  in every block (k, j);

between the log-worths of k and the log-share of j it is q_k s_k (q_j - [j = k]), and between log-shares
beta - beta beta' - q + q q' (the first two terms of matrices diag(beta) and so on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.kernels.jit import kernel
from plmix_dist.kernels.row import evaluate_row, longest_row, make_scratch, posterior_of_row
from plmix_dist.kernels.rows import rows_of
from plmix_dist.kernels.simd import load4, splat4, store4, where_greater4

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.rankings import RankingBlock

# Components with less than this share of a row are left out of it: curvature guides steps, and is not a result.
_LEAST_POSTERIOR = 1e-6


class Information(NamedTuple):
    """Sums over rows; those of two blocks add up.

    Parameters
    ----------
    observed : (d, d)
        With d = n_components * n_items + n_components: log-worths component by component, then log-shares.
    complete : (n_components, n_items, n_items)
        The sums of q_k C_k: what the information in the log-worths would be if the components of rows were known.
    """

    observed: NDArray[np.float64]
    complete: NDArray[np.float64]


def information(block: RankingBlock, params: Prepared) -> Information:
    """The information of a block at given parameters."""
    n_items, n_components = params.n_items, params.n_components
    padded = -(-n_items // 4) * 4
    own = np.zeros((n_components, n_items))
    shared = np.zeros((n_components, n_items, padded))
    scores = np.zeros((block.n_rankings, n_components, n_items))
    posteriors = np.zeros((block.n_rankings, n_components))
    _add_rows(rows_of(block), params, own, shared.reshape(-1), padded, scores, posteriors)
    complete = _complete(own, shared[:, :, :n_items], params)
    weights = np.ones(block.n_rankings) if block.weights is None else block.weights
    roots = np.sqrt(weights)
    n_worths = n_components * n_items
    total = np.empty((n_worths + n_components,) * 2)
    flat = scores.reshape(block.n_rankings, n_worths)
    # Products of a matrix with its own transpose: BLAS forms half of each.
    weighted = posteriors * weights[:, None]
    across = flat.T @ weighted
    rooted = flat * roots[:, None]
    total[:n_worths, :n_worths] = rooted.T @ rooted
    for k in range(n_components):
        place = slice(k * n_items, (k + 1) * n_items)
        per_root = np.divide(
            1.0, np.sqrt(posteriors[:, k]), out=np.zeros(len(roots)), where=posteriors[:, k] > 0
        )
        missing = rooted[:, place] * per_root[:, None]
        total[place, place] += complete[k] - missing.T @ missing
        across[place, k] -= weights @ flat[:, place]
    total[:n_worths, n_worths:] = across
    total[n_worths:, :n_worths] = across.T
    shares = np.exp(params.log_shares)
    expected = (np.diag(shares) - np.outer(shares, shares)) * weights.sum()
    total[n_worths:, n_worths:] = expected - np.diag(weighted.sum(axis=0)) + posteriors.T @ weighted
    return Information(total, complete)


def _complete(own: NDArray[np.float64], shared: NDArray[np.float64], params: Prepared) -> NDArray[np.float64]:
    """The variances of choices, from the sums of expected wins and of the choices that two items share."""
    n_components, n_items = own.shape
    worths = params.worths.reshape(n_items, params.width)[:, :n_components].T
    between = shared * worths[:, None, :]
    complete: NDArray[np.float64] = -(between + between.transpose(0, 2, 1))
    complete[:, np.arange(n_items), np.arange(n_items)] += own
    return complete


@kernel
def _add_rows(
    rows: Any, params: Any, own: Any, shared: Any, padded: int, scores: Any, posteriors: Any
) -> None:
    """Fill posteriors q and scores q s, and add up what the variances of choices are made of.

    `own[k, i]` adds w q times the variance of item i alone; `shared[k, i, j]`, of two items, w q worth_i times the sum
    of 1 / S^2 over the choices that offered both, in the row of the one that left first.
    """
    items, offsets, n_ordered, below, weights = rows
    width, n_components, n_items = params.width, params.n_components, params.n_items
    scratch = make_scratch(longest_row(offsets), n_items, width)
    posterior = np.zeros(width)
    places = np.empty(padded)
    for row in range(offsets.shape[0] - 1):
        start, n_listed = offsets[row], offsets[row + 1] - offsets[row]
        ordered, is_below = np.int64(n_ordered[row]), below[row]
        n_choices = evaluate_row(items, row, start, n_listed, ordered, is_below, params, scratch)
        posterior_of_row(scratch, params, posterior)
        # An item at place b is on offer at all choices up to b: those not ordered at all of them, absent ones at none.
        for item in range(padded):
            places[item] = n_choices if is_below and item < n_items else -1.0
        for place in range(n_listed):
            places[items[start + place]] = min(place, n_choices)
        for component in range(n_components):
            share = posterior[component]
            posteriors[row, component] = share
            if share >= _LEAST_POSTERIOR:
                _add_component(
                    items, start, n_choices, component, share, weights[row], params, scratch, places, padded,
                    own, shared, scores[row, component],
                )  # fmt: skip


@kernel
def _add_component(
    items: Any,
    start: int,
    n_choices: int,
    component: int,
    share: float,
    weight: float,
    params: Any,
    scratch: Any,
    places: Any,
    padded: int,
    own: Any,
    shared: Any,
    scores: Any,
) -> None:
    width, n_items = params.width, params.n_items
    weight *= share
    offers, squares = 0.0, 0.0
    for place in range(n_choices):
        item = np.intp(items[start + place])
        inverse = scratch.inverse[place * width + component]
        worth = params.worths[item * width + component]
        offers += inverse
        squares += inverse * inverse
        scores[item] = share * (1.0 - worth * offers)
        own[component, item] += weight * (worth * offers - worth * worth * squares)
        here, added = splat4(np.float64(place)), splat4(weight * (worth * squares))
        base = (component * n_items + item) * padded
        for other in range(0, padded, 4):
            with_both = where_greater4(load4(places, other), here, added)
            store4(shared, base + other, load4(shared, base + other) + with_both)
    for item in range(n_items):
        if places[item] != n_choices:
            continue
        worth = params.worths[item * width + component]
        scores[item] = -share * (worth * offers)
        own[component, item] += weight * (worth * offers - worth * worth * squares)
        base = (component * n_items + item) * padded
        for other in range(item + 1, n_items):
            if places[other] == n_choices:
                shared[base + other] += weight * (worth * squares)
