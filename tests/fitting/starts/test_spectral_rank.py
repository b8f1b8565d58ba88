"""How many singular vectors are used: spectra with known answers, and the paper's rule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist.errors import StartWarning, give_warnings
from plmix_dist.fitting.starts.spectral import _gap_rule, _rank_above_noise, gap_warnings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]


@pytest.mark.parametrize(
    ("values", "n_components", "rank"),
    [
        ([5.0, 1.0, 0.9], 1, 1),
        ([5.0, 1.0, 0.9, 0.8], 2, 1),
        ([1.0, 1.0, 1.0, 1.0], 2, 1),
        ([1.0, 1.0, 1.0, 1.0, 1.0], 3, 1),  # equal values: nothing stands out
        ([9.0, 8.0, 1.0, 0.9, 0.8], 3, 2),
        ([9.0, 1.1, 1.0, 0.9, 0.8], 3, 1),  # 1.1 lies on the fall of the noise
        ([9.0, 1.21, 1.0, 0.9, 0.8], 3, 2),
        ([9.0, 8.0, 7.0, 1.03, 1.0, 0.98, 0.96], 5, 3),
        ([9.0, 8.0], 5, 2),  # fewer values than components: no noise to be seen
        ([9.0], 5, 1),
        ([9.0, 8.0, 7.0, 6.0], 4, 3),  # one value of noise
        ([0.0, 0.0, 0.0, 0.0, 0.0], 3, 1),
    ],
)
def test_rank_above_noise__spectra(values: list[float], n_components: int, rank: int) -> None:
    assert _rank_above_noise(np.array(values), n_components) == rank


def rank_of_paper(values: Any, n_components: int, n_items: int, n_rankings: float) -> int:
    """The rank that the paper's rule finds, with its warnings."""
    found = _gap_rule(values, n_components, n_items, n_rankings)
    give_warnings(gap_warnings({"gap_rule": found._asdict()}, n_components))
    return found.rank


def test_rank_of_paper__threshold() -> None:
    # sqrt(50 * (950 + 50) * log 50) = 442.27...
    threshold = math.sqrt(50 * 1000 * math.log(50))
    assert threshold == pytest.approx(442.27, abs=0.01)
    values = np.cumsum([0.0, 1.0, threshold + 1e-6, 1.0, threshold + 1e-6])[::-1].copy()
    assert rank_of_paper(values, 4, 50, 950) == 3
    assert rank_of_paper(values, 3, 50, 950) == 3  # the gap after the K-th counts
    below = np.cumsum([0.0, 1.0, threshold - 1e-6, 1.0, threshold + 1e-6])[::-1].copy()
    with pytest.warns(StartWarning, match=r"the threshold 442 leaves one direction, the mean ranking"):
        assert rank_of_paper(below, 4, 50, 950) == 1


def test_rank_of_paper__no_gap_is_large_enough() -> None:
    values = np.array([40.0, 30.0, 20.0, 10.0, 0.0])
    with pytest.warns(StartWarning, match=r"reaches the threshold 442 \(the largest is 10\).*rank='auto'"):
        assert rank_of_paper(values, 3, 50, 950) == 3
    with pytest.warns(StartWarning, match="no gap"):
        assert rank_of_paper(values[:1], 3, 50, 950) == 1


def test_rank_of_paper__one_component_is_no_surprise() -> None:
    assert rank_of_paper(np.array([1e4, 1.0, 0.5]), 1, 50, 950) == 1


def test_rank_of_paper__at_most_as_many_as_components() -> None:
    threshold = np.sqrt(5 * (100 + 5) * np.log(5))
    steps = np.array([1.5, 1.5, 0.1, 1.5]) * threshold
    values = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
    assert rank_of_paper(values, 3, 5, 100) == 2
    assert rank_of_paper(values, 4, 5, 100) == 4
    with pytest.warns(StartWarning, match="no gap"):
        assert rank_of_paper(np.linspace(2.0, 1.0, 7), 3, 5, 100) == 3
    with pytest.warns(StartWarning, match="leaves one direction"):
        assert rank_of_paper(np.array([2.0, 0.5, 0.4, 0.3]) * threshold, 3, 5, 100) == 1


def test_rank_above_noise__each_side_of_the_edge() -> None:
    noise = [1.0, 0.9, 0.8]
    assert _rank_above_noise(np.array([3.0, 1.21, *noise]), 3) == 2
    assert _rank_above_noise(np.array([3.0, 1.19, *noise]), 3) == 1
    assert _rank_above_noise(np.array([1.1, 1.1, *noise]), 3) == 1
    assert _rank_above_noise(np.array([3.0]), 2) == 1
