"""Wins of every item over every other, and places that surprise, by their definitions."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from plmix_dist.kernels import pairwise_wins
from plmix_dist.kernels.pairs import place_surprises
from plmix_dist.rankings import Ranking
from tests.helpers.fit_oracle import Parameters, block_of, choices, mixed_rows, mixtures, slate, top
from tests.helpers.marks import examples

# Both narrow and wide item numbers, and numbers of items on either side of whole vectors of four.
SIZES = st.sampled_from([2, 3, 4, 5, 8, 11, 23, 300])


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, list[Ranking], Parameters]:
    n_items = draw(SIZES)
    return n_items, draw(mixed_rows(n_items)), draw(mixtures(n_items))


@given(case=cases(), seed=st.integers(0, 2**32))
@examples(30)
def test_pairwise_wins__by_definition(case: tuple[int, list[Ranking], Parameters], seed: int) -> None:
    n_items, rows, mixture = case
    memberships = np.random.default_rng(seed).dirichlet(np.ones(len(mixture.log_shares)), len(rows))
    expected = np.zeros((memberships.shape[1], n_items, n_items))
    for row, shares in zip(rows, memberships, strict=True):
        for winner, on_offer in choices(row, n_items):
            for beaten in set(on_offer) - {winner}:
                expected[:, winner, beaten] += row.weight * shares
    assert_allclose(pairwise_wins(block_of(rows, n_items), memberships), expected, rtol=1e-12)


def test_pairwise_wins__clusters() -> None:
    block = block_of([top(2), slate([0, 1], [], weight=3.0)], 3)
    clusters = np.array([[1, 0], [0, 1]])
    assert pairwise_wins(block, clusters).tolist() == [  # type: ignore[arg-type]
        [[0, 0, 0], [0, 0, 0], [1, 1, 0]],
        [[0, 3, 0], [0, 0, 0], [0, 0, 0]],
    ]


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
