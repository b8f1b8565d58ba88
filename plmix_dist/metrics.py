"""Distances between two fits. Components are matched first, because their order has no meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def match_components(log_worths: ArrayLike, reference: ArrayLike) -> NDArray[np.int64]:
    """(n_components,): for each component of the reference, the number of the matching component of `log_worths`.

    The matching minimises the sum of squared differences of centred log-worths.

    Parameters
    ----------
    log_worths, reference : (n_components, n_items)
        Constants added to a component make no difference.

    Examples
    --------
    >>> match_components([[0, 1], [1, 0]], [[2, 0], [0, 2]]).tolist()
    [1, 0]
    """
    found, wanted = _centred(log_worths), _centred(reference)
    if found.shape != wanted.shape:
        raise SettingsError(
            f"cannot match components of shapes {found.shape} and {wanted.shape}; both fits need the same numbers of "
            "components and items"
        )
    costs = ((wanted[:, None, :] - found[None, :, :]) ** 2).sum(axis=2)
    matched: NDArray[np.int64] = linear_sum_assignment(costs)[1]
    return matched


def matched_distance(log_worths: ArrayLike, reference: ArrayLike) -> float:
    """Frobenius norm of the difference of centred log-worths after matching (Nguyen & Zhang 2023).

    Parameters
    ----------
    log_worths, reference : (n_components, n_items)

    Examples
    --------
    >>> matched_distance([[0, 1], [1, 0]], [[5, 4], [3, 4]])
    0.0
    """
    order = match_components(log_worths, reference)
    return float(np.linalg.norm(_centred(log_worths)[order] - _centred(reference)))


def _centred(log_worths: ArrayLike) -> NDArray[np.float64]:
    table = np.atleast_2d(np.asarray(log_worths, np.float64))
    centred: NDArray[np.float64] = table - table.mean(axis=1, keepdims=True)
    return centred
