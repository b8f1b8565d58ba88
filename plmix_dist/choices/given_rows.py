"""Predictions given what each row has ranked so far, with the probability of each component per row.

All are about the whole ranking of what was on offer in the row: places that are ordered are known, the rest is to come.
Items not on offer have no place. The order of tied items is either that of the model given the tie, or any order with
equal probability (`is_even`), as in a fit with ties="expand".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.choices.first_places import top_k_probabilities
from plmix_dist.choices.probabilities import choice_probabilities, order_logs, pairwise_probabilities
from plmix_dist.choices.tied_places import tied_first, tied_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.choices.row_places import RowPlaces


def next_choices(
    places: RowPlaces, log_worths: NDArray[np.float64], posteriors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n_rankings, n_items): the probability that each item is the next choice; zeros if nothing is left to choose.

    Parameters
    ----------
    places
        What the rows have ranked.
    log_worths : (n_components, n_items)
    posteriors : (n_rankings, n_components)

    Examples
    --------
    >>> from plmix_dist.choices.row_places import row_places
    >>> from plmix_dist.rankings import RankingBlock
    >>> places = row_places(RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> next_choices(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1))).tolist()
    [[0.75, 0.25, 0.0]]
    """
    found = np.zeros(places.place.shape)
    for component, logs in enumerate(log_worths):
        found += posteriors[:, component, None] * choice_probabilities(logs[None], places.is_open)[0]
    return found


def ranks(
    places: RowPlaces,
    log_worths: NDArray[np.float64],
    posteriors: NDArray[np.float64],
    *,
    is_even: bool = False,
) -> NDArray[np.float64]:
    """(n_rankings, n_items): the expected place of each item, from 1; NaN for items not on offer.

    Parameters
    ----------
    places
        What the rows have ranked.
    log_worths : (n_components, n_items)
    posteriors : (n_rankings, n_components)
    is_even
        Whether all orders of tied items are equally probable.

    Examples
    --------
    >>> from plmix_dist.choices.row_places import row_places
    >>> from plmix_dist.rankings import RankingBlock
    >>> places = row_places(RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> ranks(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1))).tolist()
    [[2.25, 2.75, 1.0]]
    """
    found = np.where(places.place >= 0, places.before + (places.size + 1) / 2, np.nan)
    is_open = places.is_open.astype(np.float64)
    later = np.zeros(found.shape)
    for component, pairs in enumerate(pairwise_probabilities(log_worths)):
        later += posteriors[:, component, None] * (is_open @ pairs)
    found = np.where(places.is_open, places.before + 0.5 + later, found)
    if not is_even:
        for tied in places.ties():
            within = np.zeros(tied.items.shape)
            for component, logs in enumerate(log_worths):
                pairs = tied_pairs(logs[tied.items], tied.log_rest(logs))
                within += posteriors[tied.row, component, None] * pairs.sum(axis=1)
            owner = tied.row[:, None]
            found[owner, tied.items] = places.before[owner, tied.items] + 0.5 + within
    return found


def pairs(
    places: RowPlaces,
    log_worths: NDArray[np.float64],
    posteriors: NDArray[np.float64],
    *,
    is_even: bool = False,
) -> NDArray[np.float64]:
    """(n_rankings, n_items, n_items): the probability that i comes before j; NaN if one was not on offer.

    Parameters
    ----------
    places
        What the rows have ranked.
    log_worths : (n_components, n_items)
    posteriors : (n_rankings, n_components)
    is_even
        Whether all orders of tied items are equally probable.

    Examples
    --------
    >>> from plmix_dist.choices.row_places import row_places
    >>> from plmix_dist.rankings import RankingBlock
    >>> places = row_places(RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> pairs(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1)))[0, 0].tolist()
    [0.5, 0.75, 0.0]
    """
    n_items = log_worths.shape[1]
    first, second = places.place[:, :, None], places.place[:, None, :]
    found = np.where(first < second, 1.0, np.where(first > second, 0.0, 0.5))
    open_pairs = (posteriors @ pairwise_probabilities(log_worths).reshape(len(log_worths), -1)).reshape(
        -1, n_items, n_items
    )
    found = np.where(places.is_open[:, :, None] & places.is_open[:, None, :], open_pairs, found)
    if not is_even:
        for tied in places.ties():
            within = np.zeros((*tied.items.shape, tied.items.shape[1]))
            for component, logs in enumerate(log_worths):
                weights = posteriors[tied.row, component, None, None]
                within += weights * tied_pairs(logs[tied.items], tied.log_rest(logs))
            found[tied.row[:, None, None], tied.items[:, :, None], tied.items[:, None, :]] = within
    return np.where((first >= 0) & (second >= 0), found, np.nan)


def top_k(
    places: RowPlaces,
    log_worths: NDArray[np.float64],
    posteriors: NDArray[np.float64],
    k: int,
    *,
    is_even: bool = False,
) -> NDArray[np.float64]:
    """(n_rankings, n_items): the probability that each item has one of the first k places; 0 for items not on offer.

    Parameters
    ----------
    places
        What the rows have ranked.
    log_worths : (n_components, n_items)
    posteriors : (n_rankings, n_components)
    k
        The number of places.
    is_even
        Whether all orders of tied items are equally probable.

    Examples
    --------
    >>> from plmix_dist.choices.row_places import row_places
    >>> from plmix_dist.rankings import RankingBlock
    >>> places = row_places(RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> top_k(places, np.log([[3.0, 1.0, 1.0]]), np.ones((1, 1)), 2).round(6).tolist()
    [[0.75, 0.25, 1.0]]
    """
    n_free = k - places.before
    found = np.where(places.place >= 0, np.clip(n_free / np.maximum(places.size, 1), 0.0, 1.0), 0.0)
    across = places.is_open & (n_free > 0) & (n_free < places.size)
    rows = np.flatnonzero(across.any(axis=1))
    n_left = across[rows].sum(axis=1)
    free = np.where(across[rows], n_free[rows], 0).max(axis=1, initial=0)
    for size, n_first in sorted(set(zip(n_left.tolist(), free.tolist(), strict=True))):
        chosen = rows[(n_left == size) & (free == n_first)]
        items = np.nonzero(across[chosen])[1].reshape(-1, size)
        sets, which = np.unique(items, axis=0, return_inverse=True)
        within = np.zeros(items.shape)
        for component, logs in enumerate(log_worths):
            of_sets = top_k_probabilities(logs[sets], n_first)
            within += posteriors[chosen, component, None] * of_sets[which.reshape(-1)]
        found[chosen[:, None], items] = within
    return found if is_even else _with_tied_first(found, places, log_worths, posteriors, k)


def _with_tied_first(
    found: NDArray[np.float64],
    places: RowPlaces,
    log_worths: NDArray[np.float64],
    posteriors: NDArray[np.float64],
    k: int,
) -> NDArray[np.float64]:
    """The first k places where the k-th lies within a tie."""
    for tied in places.ties():
        n_free = k - places.before[tied.row, tied.items[:, 0]]
        for n_first in np.unique(n_free[(n_free > 0) & (n_free < tied.items.shape[1])]).tolist():
            chosen = np.flatnonzero(n_free == n_first)
            part = type(tied)(tied.row[chosen], tied.items[chosen], tied.after[chosen])
            within = np.zeros(part.items.shape)
            for component, logs in enumerate(log_worths):
                first = tied_first(logs[part.items], part.log_rest(logs), n_first)
                within += posteriors[part.row, component, None] * first
            found[part.row[:, None], part.items] = within
    return found


def completions(
    places: RowPlaces, log_worths: NDArray[np.float64], log_weights: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The most probable of some complete orders of what was on offer, and its log-probability.

    Candidates are the mode of each component given the row, and the order of the expected ranks.

    Parameters
    ----------
    places
        What the rows have ranked.
    log_worths : (n_components, n_items)
    log_weights : (n_rankings, n_components)
        The log-posterior minus the log-probability of the row, of each component.

    Returns
    -------
    orders : (n_rankings, n_items)
        Best first; -1 after the last item on offer.
    logs : (n_rankings,)

    Examples
    --------
    >>> from plmix_dist.choices.row_places import row_places
    >>> from plmix_dist.rankings import RankingBlock
    >>> places = row_places(RankingBlock.from_array([[2, -1, -1]], n_items=3, unranked="below"))
    >>> orders, logs = completions(places, np.log([[3.0, 1.0, 1.0]]), np.log([[5.0]]))  # Pr(2 first) is 1/5
    >>> orders.tolist(), np.exp(logs).round(6).tolist()
    ([[2, 0, 1]], [0.75])
    """
    on_offer = places.place >= 0
    rows = np.where(on_offer, places.place, places.place.shape[1] + 1)
    n_offered = on_offer.sum(axis=1)[:, None]
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    keys = [np.broadcast_to(-logs, rows.shape) for logs in log_worths]
    if len(keys) > 1:
        keys.append(
            np.nan_to_num(
                ranks(places, log_worths, weights / weights.sum(axis=1, keepdims=True), is_even=True)
            )
        )
    best = np.full(rows.shape, -1, np.int64)
    best_logs = np.full(len(rows), -np.inf)
    for key in keys:
        order = np.lexsort((key, rows), axis=1)
        order = np.where(np.arange(rows.shape[1]) < n_offered, order, -1)
        logs = np.logaddexp.reduce(order_logs(log_worths, order) + log_weights, axis=1)
        better = logs > best_logs
        best[better], best_logs[better] = order[better], logs[better]
    return best, best_logs
