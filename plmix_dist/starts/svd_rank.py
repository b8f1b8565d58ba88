"""How many singular vectors of an embedding separate the components."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

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


class GapRule(NamedTuple):
    """What the paper's rule found.

    Parameters
    ----------
    rank
        How many singular vectors are used.
    threshold
        What a gap between singular values had to reach.
    largest_gap
        The largest of the first K gaps.
    reached
        Whether any gap reached the threshold. If not, the rule names no rank, and K is taken.
    """

    rank: int
    threshold: float
    largest_gap: float
    reached: bool


def gap_rule(
    values: NDArray[np.float64], n_components: int, n_items: int, n_rankings: float, multiplier: float = 1.0
) -> GapRule:
    """The paper's rule: the largest a up to K with S_a - S_(a+1) >= sqrt(n (m + n) log n), on the uncentred matrix.

    Parameters
    ----------
    values : (n_values,)
        Singular values S, largest first.
    n_components, n_items, n_rankings
        The numbers K, n and m of the rule.
    multiplier
        The threshold is multiplied by this.

    Examples
    --------
    >>> gap_rule(np.array([900.0, 400.0, 20.0, 10.0]), n_components=3, n_items=10, n_rankings=1_000).rank
    2
    >>> gap_rule(np.array([900.0, 400.0, 20.0, 10.0]), 3, 10, 1_000, multiplier=10.0)[::3]
    (3, False)
    """
    threshold = multiplier * float(np.sqrt(n_items * (n_rankings + n_items) * np.log(n_items)))
    gaps = (values[:-1] - values[1:])[:n_components]
    met = np.flatnonzero(gaps >= threshold)
    rank = int(met[-1]) + 1 if len(met) else min(n_components, len(values))
    return GapRule(rank, threshold, float(gaps.max(initial=0.0)), bool(len(met)))


def warn_of_gaps(found: GapRule, n_components: int) -> None:
    """A StartWarning if no gap reached the threshold, and if only one direction is left.

    The first singular vector of the uncentred matrix is the mean ranking, in which components differ least.

    Examples
    --------
    >>> warn_of_gaps(GapRule(2, threshold=5.0, largest_gap=7.0, reached=True), n_components=3)
    """
    advice = f"choose svd_rank={n_components}, or without method='paper' svd_rank='auto'"
    if not found.reached:
        warnings.warn(
            f"svd_rank='paper': no gap between singular values reaches the threshold {found.threshold:.3g} (the "
            f"largest is {found.largest_gap:.3g}), so the paper's rule names no rank, and {found.rank} directions "
            f"are used; {advice}, which compares singular values with the noise",
            StartWarning,
            stacklevel=2,
        )
    elif found.rank == 1 and n_components > 1:
        warnings.warn(
            f"svd_rank='paper': the threshold {found.threshold:.3g} leaves one direction, the mean ranking, which "
            f"hardly separates components; {advice}, which subtracts the mean first",
            StartWarning,
            stacklevel=2,
        )


def rank_of_paper(
    values: NDArray[np.float64], n_components: int, n_items: int, n_rankings: float, multiplier: float = 1.0
) -> int:
    """The rank that `gap_rule` finds, with the warnings of `warn_of_gaps`.

    Examples
    --------
    >>> rank_of_paper(np.array([900.0, 400.0, 20.0, 10.0]), n_components=3, n_items=10, n_rankings=1_000)
    2
    """
    found = gap_rule(values, n_components, n_items, n_rankings, multiplier)
    warn_of_gaps(found, n_components)
    return found.rank
