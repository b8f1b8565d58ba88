"""The weights that users give to their rows, and checks of total weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.ranges import LARGEST_WEIGHT, SMALLEST_TOTAL
from plmix_dist.values import numbers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def checked_weights(sample_weight: ArrayLike | None, n_rankings: int) -> NDArray[np.float64] | None:
    """(n_rankings,): the weights; an error if they are not one finite number per row, from 0 on.

    Examples
    --------
    >>> checked_weights([3, 0], 2).tolist()
    [3.0, 0.0]
    """
    if sample_weight is None:
        return None
    weights = numbers("sample_weight", sample_weight)
    if weights.shape != (n_rankings,):
        raise SettingsError(
            f"expected {n_rankings} sample weights, one per ranking, but got shape {weights.shape}"
        )
    bad = np.flatnonzero(~((weights >= 0) & (weights <= LARGEST_WEIGHT)))
    if len(bad):
        raise SettingsError(
            f"sample_weight[{int(bad[0])}] is {weights[bad[0]]}, but must be finite, not negative, and at most "
            f"{LARGEST_WEIGHT:g}"
        )
    check_total(float(weights.sum()))
    return weights


def check_total(weight: float) -> None:
    """An error if all weights together are zero, or so small that sums of them lose digits.

    Examples
    --------
    >>> check_total(0.0)
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: all weights are zero
    """
    if weight < SMALLEST_TOTAL:
        raise SettingsError(
            f"all weights together are {weight:g}, which is too little: at least {SMALLEST_TOTAL:g}; multiply them"
            if weight
            else "all weights are zero"
        )
