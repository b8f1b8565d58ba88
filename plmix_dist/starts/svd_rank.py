"""How many singular vectors of an embedding separate the components."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import StartWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rank_above_noise(values: NDArray[np.float64], n_components: int) -> int:
    """How many singular values of a centred matrix are above the noise: from 1 to n_components - 1.

    K components differ in at most K - 1 directions, so the K-th and later values are noise. They decrease steadily.
    Extrapolate the noise values by one step; keep singular values above that line.

    Parameters
    ----------
    values : (n_values,)
        Singular values, largest first. Up to three values from the K-th on are used as noise.
    n_components
        The number of components, K.

    Examples
    --------
    >>> rank_above_noise(np.array([1.31, 1.020, 1.018, 1.013, 1.013]), 3)  # the second is noise
    1
    >>> rank_above_noise(np.array([1.26, 1.045, 1.020, 1.018, 1.013]), 3)
    2
    """
    most = n_components - 1
    noise = values[most : most + 3]
    if most < 2 or not len(noise):
        return max(1, min(most, len(values)))
    edge = 2 * noise[0] - noise[-1]
    return max(1, int((values[:most] > edge).sum()))


def rank_of_paper(values: NDArray[np.float64], n_components: int, n_items: int, n_rankings: float) -> int:
    """The paper's rule: the largest a up to K with S_a - S_(a+1) >= sqrt(n (m + n) log n), on the uncentred matrix.

    A StartWarning is given if no gap is that large, and if only one direction is left: the first singular vector is
    the mean ranking, in which components differ least.

    Parameters
    ----------
    values : (n_values,)
        Singular values S, largest first.
    n_components, n_items, n_rankings
        The numbers K, n and m of the rule.

    Examples
    --------
    >>> rank_of_paper(np.array([900.0, 400.0, 20.0, 10.0]), n_components=3, n_items=10, n_rankings=1_000)
    2
    """
    threshold = float(np.sqrt(n_items * (n_rankings + n_items) * np.log(n_items)))
    gaps = values[:-1] - values[1:]
    met = np.flatnonzero(gaps[:n_components] >= threshold)
    if not len(met):
        warnings.warn(
            f"svd_rank='paper': no gap between singular values reaches the threshold {threshold:.3g} (the largest is "
            f"{gaps.max(initial=0.0):.3g}); all {n_components} directions are used. Choose svd_rank='auto', which "
            "compares singular values with the noise",
            StartWarning,
            stacklevel=2,
        )
        return min(n_components, len(values))
    if met[-1] == 0 and n_components > 1:
        warnings.warn(
            f"svd_rank='paper': the threshold {threshold:.3g} leaves one direction, the mean ranking, which hardly "
            "separates components; choose svd_rank='auto', which subtracts the mean first",
            StartWarning,
            stacklevel=2,
        )
    return int(met[-1]) + 1
