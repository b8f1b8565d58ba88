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

from plmix_dist.kernels.choices import Slots, evaluate_row, item_at, row_at, scratch_at, slots_for
from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.jit import kernel, kernel_part
from plmix_dist.kernels.pointers import load, load4, pointers, store, store4, unpack
from plmix_dist.kernels.posteriors import padded_posteriors
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.simd import splat4, where_greater4
from plmix_dist.kernels.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    workspace = Workspace.of_thread()
    rows = rows_of(block, params.width, workspace)
    posteriors = np.ascontiguousarray(padded_posteriors(rows, params, workspace)[1][:, :n_components])
    places = workspace.empty("places", padded)
    _add_information(
        pointers(rows),
        workspace.pointers_of(params),
        pointers(slots_for(rows, params, workspace)),
        pointers((posteriors, own, shared, scores, places, padded)),
    )
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
    shares = (params.share_mantissas * 2.0**params.share_exponents)[:n_components]
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


class _InformationSums(NamedTuple):
    """Addresses of the posteriors, of what is added up, and of working memory for the places of items in one row."""

    posteriors: int
    own: int
    shared: int
    scores: int
    places: int
    padded: int


@kernel
def _add_information(rows_fields: Any, params_fields: Any, slots_fields: Any, sums_fields: Any) -> None:
    """Fill scores q s, and add up what the variances of choices are made of.

    `own[k, i]` adds w q times the variance of item i alone; `shared[k, i, j]`, of two items, w q worth_i times the sum
    of 1 / S^2 over the choices that offered both, in the row of the one that left first.
    """
    rows, params = unpack(Rows, rows_fields), unpack(Prepared, params_fields)
    sums = unpack(_InformationSums, sums_fields)
    scratch = scratch_at(0, unpack(Slots, slots_fields), params.width)
    n_items, n_components = params.n_items, params.n_components
    for index in range(rows.n_rows):
        row = row_at(index, rows)
        evaluate_row(row, params, scratch)
        _fill_places(row, params, sums)
        for component in range(n_components):
            share = load(sums.posteriors, index * n_components + component)
            if share >= _LEAST_POSTERIOR:
                of_component = _InformationSums(
                    sums.posteriors,
                    sums.own + 8 * component * n_items,
                    sums.shared + 8 * component * n_items * sums.padded,
                    sums.scores + 8 * (index * n_components + component) * n_items,
                    sums.places,
                    sums.padded,
                )
                weight = share * load(rows.weights, index)
                _add_component(row, component, share, weight, params, scratch, of_component)


@kernel_part
def _fill_places(row: Any, params: Any, sums: Any) -> None:
    """The place of each item: it is on offer at all choices up to that one.

    Items that are not ordered are on offer at all choices, absent ones at none.
    """
    for item in range(sums.padded):
        store(sums.places, item, np.float64(row.n_choices) if row.below and item < params.n_items else -1.0)
    for place in range(row.n_listed):
        store(sums.places, item_at(place, row, params), np.float64(min(place, row.n_choices)))


@kernel_part
def _add_component(
    row: Any, component: int, share: float, weight: float, params: Any, scratch: Any, sums: Any
) -> None:
    """Add one row to the sums of one component, whose addresses are given."""
    width, places, padded = params.width, sums.places, sums.padded
    offers, squares = 0.0, 0.0
    for place in range(row.n_choices):
        item = item_at(place, row, params)
        inverse = load(scratch.inverse, place * width + component)
        worth = load(params.worths, item * width + component)
        offers += inverse
        squares += inverse * inverse
        store(sums.scores, item, share * (1.0 - worth * offers))
        store(sums.own, item, load(sums.own, item) + weight * (worth * offers - worth * worth * squares))
        here, added = splat4(np.float64(place)), splat4(weight * (worth * squares))
        for other in range(item * padded, (item + 1) * padded, 4):
            with_both = where_greater4(load4(places, other - item * padded), here, added)
            store4(sums.shared, other, load4(sums.shared, other) + with_both)
    for item in range(params.n_items):
        if load(places, item) == row.n_choices:
            worth = load(params.worths, item * width + component)
            store(sums.scores, item, -share * (worth * offers))
            store(sums.own, item, load(sums.own, item) + weight * (worth * offers - worth * worth * squares))
            for other in range(item + 1, params.n_items):
                if load(places, other) == row.n_choices:
                    entry = item * padded + other
                    store(sums.shared, entry, load(sums.shared, entry) + weight * (worth * squares))
