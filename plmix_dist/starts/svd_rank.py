"""How many singular directions tell the components apart."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.errors import StartWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rank_above_noise(values: NDArray[np.float64], n_components: int) -> int:
    """How many singular values of a centred matrix stand out above the noise, from 1 to n_components - 1.

    K components differ in at most K - 1 directions, so the K-th value and those after it show the noise. Its edge
    falls off steadily; a value counts if it lies above that fall continued by one step.

    Parameters
    ----------
    values : (n_values,)
        Falling; of the values from the K-th on, the first three are looked at.

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

    It says so where no gap is that large, and where one direction is all that is left: the first singular vector is
    the mean ranking, in which components differ least.
    """
    threshold = float(np.sqrt(n_items * (n_rankings + n_items) * np.log(n_items)))
    gaps = values[:-1] - values[1:]
    met = np.flatnonzero(gaps[:n_components] >= threshold)
    if not len(met):
        warnings.warn(
            f"svd_rank='paper': no gap between singular values reaches the threshold {threshold:.3g} (the largest is "
            f"{gaps.max(initial=0.0):.3g}); all {n_components} directions are used. svd_rank='auto' looks at the noise",
            StartWarning,
            stacklevel=2,
        )
        return min(n_components, len(values))
    if met[-1] == 0 and n_components > 1:
        warnings.warn(
            f"svd_rank='paper': the threshold {threshold:.3g} leaves one direction, the mean ranking, which tells "
            "components apart badly; svd_rank='auto' takes the mean off first",
            StartWarning,
            stacklevel=2,
        )
    return int(met[-1]) + 1
