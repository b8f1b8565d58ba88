"""Choices, pairs and expected ranks of Plackett-Luce models: pure functions of log-worths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def choice_probabilities(
    log_worths: ArrayLike, offered: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """The probability that each item is chosen from an offered set: its worth divided by the worth of the set.

    Parameters
    ----------
    log_worths : (n_components, n_items)
    offered : (n_sets, n_items) or (n_items,)
        True for the items on offer. None offers all items.

    Returns
    -------
    probabilities : (n_components, n_sets, n_items), or (n_components, n_items) for one set
        0 for items not on offer. A set without items has zeros only.

    Examples
    --------
    >>> choice_probabilities(np.log([[2.0, 1.0, 1.0]]), np.array([True, True, False])).round(4).tolist()
    [[0.6667, 0.3333, 0.0]]
    """
    table = np.atleast_2d(np.asarray(log_worths, np.float64))
    sets = np.ones(table.shape[1], np.bool_) if offered is None else np.asarray(offered, np.bool_)
    logs = np.where(sets, table.reshape(len(table), *[1] * (sets.ndim - 1), -1), -np.inf)
    largest = logs.max(axis=-1, keepdims=True, initial=-np.inf)
    worths = np.exp(logs - np.where(np.isfinite(largest), largest, 0.0))
    total = worths.sum(axis=-1, keepdims=True)
    found: NDArray[np.float64] = worths / np.where(total > 0, total, 1.0)
    return found


def pairwise_probabilities(log_worths: ArrayLike) -> NDArray[np.float64]:
    """(n_components, n_items, n_items): entry [k, i, j] is the probability that i comes before j in component k.

    It is w_i / (w_i + w_j), whatever else is on offer. The diagonal is 0.5.

    Parameters
    ----------
    log_worths : (n_components, n_items)

    Examples
    --------
    >>> pairwise_probabilities(np.log([[3.0, 1.0]])).round(4).tolist()
    [[[0.5, 0.75], [0.25, 0.5]]]
    """
    from scipy.special import expit

    table = np.atleast_2d(np.asarray(log_worths, np.float64))
    found: NDArray[np.float64] = expit(table[:, :, None] - table[:, None, :])
    return found


def expected_ranks(log_worths: ArrayLike) -> NDArray[np.float64]:
    """(n_components, n_items): the mean place of each item among all items; 1 is the best place.

    It is 1 plus the sum over the other items j of the probability that j comes before.

    Parameters
    ----------
    log_worths : (n_components, n_items)

    Examples
    --------
    >>> expected_ranks(np.log([[3.0, 1.0]])).round(4).tolist()
    [[1.25, 1.75]]
    """
    ranks: NDArray[np.float64] = pairwise_probabilities(log_worths).sum(axis=1) + 0.5
    return ranks


def order_logs(log_worths: NDArray[np.float64], orders: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n_orders, n_components): the log-probability of each order of the items that it lists.

    Parameters
    ----------
    log_worths : (n_components, n_items)
    orders : (n_orders, n_places)
        Items, best first; -1 after the end. Nothing else is on offer.

    Examples
    --------
    >>> np.exp(order_logs(np.log([[3.0, 1.0, 1.0]]), np.array([[0, 1, -1], [0, 1, 2]]))).round(4).tolist()
    [[0.75], [0.3]]
    """
    found = np.empty((len(orders), len(log_worths)))
    listed = orders >= 0
    for component, logs in enumerate(log_worths):
        chosen = np.where(listed, logs[orders], -np.inf)
        on_offer = np.logaddexp.accumulate(chosen[:, ::-1], axis=1)[:, ::-1]
        found[:, component] = np.where(listed, logs[orders] - np.where(listed, on_offer, 0.0), 0.0).sum(
            axis=1
        )
    return found
