"""Kernels where numbers are extreme: products of small chances, components far apart, weights that are no numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fit_oracle import block_of, exact_posteriors, slate, top
from numpy.testing import assert_allclose

from plmix_dist.kernels import em_statistics, prepare, row_posteriors
from plmix_dist.kernels.surprise import place_surprises


@pytest.mark.promise(24)
@pytest.mark.parametrize("log_range", [10, 20, 40, 60, 85, 110, 140, 170, 230, 340, 500, 700])
def test_chances__as_small_as_they_can_be_one_after_the_other(log_range: float) -> None:
    # Forty items that hardly ever win all win before forty that nearly always do.
    log_worths = np.repeat([[-log_range / 2, log_range / 2]], 40, axis=0).T.reshape(1, -1)
    rows = [slate(list(range(80)), []), slate(list(range(79, -1, -1)), []), top(*range(40))]
    logs, _ = row_posteriors(block_of(rows, 80), prepare(log_worths, np.zeros(1)))
    expected, _ = exact_posteriors(rows, 80, log_worths, np.zeros(1))
    assert_allclose(logs, expected, rtol=1e-12)


@pytest.mark.promise(24)
@pytest.mark.parametrize("likely", range(9))
def test_posteriors__one_component_far_above_all_others(likely: int) -> None:
    # Nine components are three vectors; whichever the row comes from, the others are beyond the range of floats.
    n_items = 24
    falling = np.linspace(300.0, -300.0, n_items)
    log_worths = np.tile(-falling, (9, 1))
    log_worths[likely] = falling
    log_shares = np.log(np.full(9, 1 / 9))
    rows = [slate(list(range(n_items)), [])]
    logs, posteriors = row_posteriors(block_of(rows, n_items), prepare(log_worths, log_shares))
    expected, exact = exact_posteriors(rows, n_items, log_worths, log_shares)
    assert math.isfinite(logs[0])
    assert_allclose(logs, expected, rtol=1e-12, atol=1e-12)
    assert_allclose(posteriors, exact, rtol=1e-10, atol=1e-300)


@pytest.mark.promise(28)
@pytest.mark.parametrize(
    ("n_items", "row"),
    [
        (5, slate([3, 1, 4, 0, 2], [])),
        (45, slate(list(range(45)), [])),
        (45, top(7, 3, 40, 1)),
        (400, slate([7, 399, 40], [1, 5])),
    ],
    ids=["side by side", "queued", "by line", "by pair"],
)
def test_rates__what_is_no_number_comes_out(n_items: int, row: object) -> None:
    block = block_of([row], n_items).replace(weights=np.array([np.nan]))  # type: ignore[list-item]
    params = prepare(np.zeros((2, n_items)), np.log([0.5, 0.5]))
    found = em_statistics(block, params, with_rates=True)
    assert all(np.isnan(found.rates[component]).any() for component in range(2))
    assert np.isnan(found.log_likelihood)


def test_surprises__losses_beyond_what_is_expected() -> None:
    rng = np.random.default_rng(3)
    log_worths = rng.normal(0, 1.5, 6)
    orders = [[4, 0, 2], [1, 5, 3, 0, 2, 4], [2, 1]]
    rows = [slate(orders[0], [5]), slate(orders[1], []), slate(orders[2], [])]
    found = place_surprises(block_of(rows, 6), log_worths)
    expected = []
    for order, offered in zip(orders, ([5], [], []), strict=True):
        listed = order + offered
        for place, item in enumerate(listed):
            total = 0.0
            for other_place, other in enumerate(listed):
                before = min(place, other_place)
                if other == item or before >= len(order):
                    continue  # neither of the two was placed above the other
                # The chance that the one further down would have come first.
                winner, loser = (item, other) if place < other_place else (other, item)
                upset = 1 / (1 + math.exp(log_worths[winner] - log_worths[loser]))
                total += upset if item == loser else -upset
            expected.append(total)
    assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
