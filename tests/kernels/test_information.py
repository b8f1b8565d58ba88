"""The information, by its definition."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from plmix_dist.fitting.point import Point
from plmix_dist.kernels import information, prepare
from plmix_dist.rankings import Ranking
from tests.helpers.fit_oracle import (
    KINDS,
    block_of,
    exact_posteriors,
    exact_probability,
    listed_in_order,
    log_likelihood,
    log_probability,
    random_row,
    random_rows,
    slate,
)

Vector = NDArray[np.float64]


Matrix = NDArray[np.float64]


DIFFERENCE = 2e-3


def second_derivatives(function: Callable[[Vector], float], at: Vector) -> Matrix:
    """All second derivatives, by differences of both orders, so that errors are of the fourth power of the step."""
    coarse, fine = _differences(function, at, DIFFERENCE), _differences(function, at, DIFFERENCE / 2)
    return (4 * fine - coarse) / 3


def _differences(function: Callable[[Vector], float], at: Vector, step: float) -> Matrix:
    table = np.empty((len(at), len(at)))
    steps = step * np.eye(len(at))
    for i, j in itertools.combinations_with_replacement(range(len(at)), 2):
        corners = [
            sign_i * sign_j * function(at + sign_i * steps[i] + sign_j * steps[j])
            for sign_i, sign_j in itertools.product((1, -1), repeat=2)
        ]
        table[i, j] = table[j, i] = math.fsum(corners) / (4 * step**2)
    return table


def softmax(log_shares: Vector) -> Vector:
    shares: Vector = np.exp(log_shares - np.logaddexp.reduce(log_shares))
    return shares


def random_state(seed: int, n_components: int, n_items: int, spread: float = 0.8) -> Point:
    rng = np.random.default_rng(seed)
    worths = rng.normal(0, spread, (n_components, n_items))
    state = Point.start(worths, rng.dirichlet(np.full(n_components, 5.0)))
    return state._replace(ghosts=rng.normal(0, 0.5, n_components))


def rows_of_kind(kind: str, seed: int, n_items: int, n_rows: int) -> list[Ranking]:
    rng = random.Random(seed)
    return [random_row(rng, n_items, kind, rng.randint(2, n_items), rng.uniform(0.2, 4.0)) for _ in range(n_rows)]


def observed_by_definition(rows: Sequence[Ranking], state: Point) -> Matrix:
    """Minus the second derivatives of the log-likelihood in log-worths and log-shares."""
    n_components, n_items = state.log_worths.shape

    def likelihood(point: Vector) -> float:
        worths = point[:-n_components].reshape(n_components, n_items)
        return log_likelihood(rows, n_items, worths, softmax(point[-n_components:]).tolist())

    point = np.concatenate([state.log_worths.ravel(), state.log_shares])
    return -second_derivatives(likelihood, point)


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_information__observed(kind: str, n_components: int) -> None:
    rows = rows_of_kind(kind, n_components, 5, 6)
    state = random_state(n_components, n_components, 5)
    found = information(block_of(rows, 5), prepare(state.log_worths, state.log_shares)).observed
    expected = observed_by_definition(rows, state)
    assert_allclose(found, expected, atol=2e-6)
    assert_allclose(found, found.T, atol=1e-12)
    # What is checked is not zero: each kind of block, log-worths with each other, with shares, and shares, is there.
    n_worths = n_components * 5
    assert np.abs(expected[:n_worths, :n_worths]).max() > 0.1
    if n_components > 1:
        assert np.abs(expected[:n_worths, n_worths:]).max() > 1e-2
        assert np.abs(expected[n_worths:, n_worths:]).max() > 1e-2
        assert np.abs(expected[:5, 5:10]).max() > 1e-2


@pytest.mark.parametrize("n_items", [2, 4, 7, 9])
def test_information__observed_of_all_kinds_together(n_items: int) -> None:
    rows = random_rows(n_items, n_items, 7)
    state = random_state(n_items, 2, n_items)
    found = information(block_of(rows, n_items), prepare(state.log_worths, state.log_shares)).observed
    assert_allclose(found, observed_by_definition(rows, state), atol=5e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_information__complete(kind: str) -> None:
    n_items, state = 5, random_state(4, 2, 5)
    rows = rows_of_kind(kind, 8, n_items, 6)
    _, posteriors = exact_posteriors(rows, n_items, state.log_worths, state.log_shares)
    found = information(block_of(rows, n_items), prepare(state.log_worths, state.log_shares)).complete
    for k, worths in enumerate(state.log_worths):

        def expected_log_likelihood(point: Vector, k: int = k) -> float:
            # The components of rows are known as well as the posteriors tell, and stay so.
            return math.fsum(
                row.weight * q[k] * log_probability(row, n_items, point.tolist())
                for row, q in zip(rows, posteriors, strict=True)
            )

        assert_allclose(found[k], -second_derivatives(expected_log_likelihood, worths), atol=2e-6)


def test_information__adds_up_over_blocks() -> None:
    rows, state = random_rows(3, 6, 40), random_state(3, 3, 6)
    params = prepare(state.log_worths, state.log_shares)
    whole, *parts = (information(block_of(part, 6), params) for part in (rows, rows[:17], rows[17:]))
    for name in ("observed", "complete"):
        both = getattr(parts[0], name) + getattr(parts[1], name)
        assert_allclose(getattr(whole, name), both, atol=1e-10)


def test_information__weights_are_counts() -> None:
    rows, state = random_rows(5, 5, 8, weighted=False), random_state(5, 2, 5)
    params = prepare(state.log_worths, state.log_shares)
    thrice = [row._replace(weight=3.0) for row in rows]
    for found, expected in zip(
        information(block_of(thrice, 5), params), information(block_of(rows * 3, 5), params), strict=True
    ):
        assert_allclose(found, expected, atol=1e-11)


def test_information__shifts_of_worths_and_shares_are_not_felt() -> None:
    state = random_state(6, 3, 6)
    observed = information(block_of(random_rows(6, 6, 30), 6), prepare(state.log_worths, state.log_shares))[0]
    shifts = np.zeros((4, 21))
    for k in range(3):
        shifts[k, 6 * k : 6 * k + 6] = 1
    shifts[3, 18:] = 1
    assert_allclose(observed @ shifts.T, 0, atol=1e-11)


def rare_component(row: Ranking, n_items: int, posterior: float) -> tuple[Any, Any, Any]:
    """One row, and a mixture whose second component has about this posterior on it."""
    rng = np.random.default_rng(n_items)
    log_worths = np.stack([np.zeros(n_items), rng.normal(0, 0.1, n_items)])
    ratio = exact_probability(row, n_items, log_worths[0]) / exact_probability(row, n_items, log_worths[1])
    log_shares = np.log([1.0, posterior * float(ratio)])
    return [row], log_worths, log_shares - np.logaddexp.reduce(log_shares)


@pytest.mark.parametrize("posterior", [1e-4, 2e-6])
def test_information__of_components_that_have_little_of_a_row(posterior: float) -> None:
    n_items = 6
    rows, log_worths, log_shares = rare_component(slate([3, 1, 5, 4, 0, 2], []), n_items, posterior)
    found = information(block_of(rows, n_items), prepare(log_worths, log_shares)).complete
    # The variance of each choice, by its definition.
    order, share = listed_in_order(rows[0]), exact_posteriors(rows, n_items, log_worths, log_shares)[1][0, 1]
    expected = np.zeros((n_items, n_items))
    for place in range(n_items):
        offer = order[place:]
        chances = np.exp(log_worths[1, offer]) / np.exp(log_worths[1, offer]).sum()
        expected[np.ix_(offer, offer)] += np.diag(chances) - np.outer(chances, chances)
    assert_allclose(found[1], share * expected, rtol=1e-8, atol=1e-12 * posterior)
