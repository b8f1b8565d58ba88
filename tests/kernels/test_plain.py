"""The plain specification against the compiled kernels, and against the definitions in exact decimals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from plmix_dist.kernels import EmStatistics, em_statistics, prepare, row_posteriors
from plmix_dist.kernels.plain import plain_choices, plain_em_statistics
from plmix_dist.rankings import Ranking
from tests.helpers.fit_oracle import block_of, choices, exact_statistics, mixed_rows, random_rows, slate, top
from tests.helpers.marks import examples

# On either side of whole vectors of four, and of the number of items up to which all rates are added side by side.
SIZES = st.sampled_from([2, 3, 4, 5, 8, 11, 39, 41, 46])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Ranking], int, int, np.random.Generator]:
    n_items = draw(SIZES)
    return draw(mixed_rows(n_items)), n_items, draw(st.integers(1, 6)), rng_of(draw(st.integers(0, 2**32)))


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_equal_up_to_rounding(found: EmStatistics, expected: EmStatistics, weight: float) -> None:
    for name in EmStatistics._fields:
        # Rates of components with next to no share of a row are left out by the kernels.
        least = 2e-15 * weight if name == "rates" else 1e-13 * weight if "log" in name else 1e-300
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-11, atol=least, err_msg=name)


@given(case=cases(), spread=st.sampled_from([0.3, 2.0, 20.0]))
def test_em_statistics__as_specified(case: tuple[list[Ranking], int, int, np.random.Generator], spread: float) -> None:
    rows, n_items, n_components, rng = case
    block = block_of(rows, n_items)
    worths = rng.normal(0, spread, (n_components, n_items))
    shares = np.log(rng.dirichlet(np.ones(n_components)))
    plain = plain_em_statistics(block, worths, shares)
    params = prepare(worths, shares)
    assert_equal_up_to_rounding(em_statistics(block, params, with_rates=True), plain, block.total_weight)
    without_rates = plain._replace(rates=np.zeros((0, n_items, 0)))
    assert_equal_up_to_rounding(em_statistics(block, params), without_rates, block.total_weight)


@given(case=cases())
@examples(30)
def test_em_statistics__frozen_posteriors_as_specified(
    case: tuple[list[Ranking], int, int, np.random.Generator],
) -> None:
    rows, n_items, n_components, rng = case
    block = block_of(rows, n_items)
    current, frozen = rng.normal(0, 1, (2, n_components, n_items))
    shares = np.log(rng.dirichlet(np.ones(n_components), 2))
    logs, posteriors = row_posteriors(block, prepare(frozen, shares[1]))
    plain = plain_em_statistics(block, current, shares[0], posteriors)
    # With frozen posteriors the kernels give the log-likelihood at the frozen parameters.
    at_frozen = plain_em_statistics(block, frozen, shares[1]).log_likelihood
    assert at_frozen == pytest.approx(float(np.sum(block.row_weights * logs)), rel=1e-11)
    found = em_statistics(block, prepare(current, shares[0]), prepare(frozen, shares[1]), with_rates=True)
    assert_equal_up_to_rounding(found, plain._replace(log_likelihood=at_frozen), block.total_weight)


def test_plain__by_definition_in_exact_decimals() -> None:
    rows = random_rows(3, 6, 15)
    worths, shares = rng_of(0).normal(size=(3, 6)), np.log([0.2, 0.3, 0.5])
    found = plain_em_statistics(block_of(rows, 6), worths, shares)
    exact = exact_statistics(rows, 6, worths, shares)
    for name in EmStatistics._fields:
        assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "row",
    [
        top(3, 1),
        slate([0, 1, 2, 3], []),
        slate([2, 0], []),
        slate([2, 0], [3]),
        slate([1], [0], "below"),
        slate([2], [0, 1, 3]),
    ],
    ids=["top", "full", "subset", "slate", "slate of all", "first choice"],
)
def test_plain_choices__every_kind_of_row(row: Ranking) -> None:
    found = list(plain_choices(block_of([row], 4), 0))
    expected = [(winner, set(on_offer)) for winner, on_offer in choices(row, 4) if len(set(on_offer)) > 1]
    assert [(winner, set(on_offer)) for winner, on_offer in found] == expected
    assert all(on_offer[0] == winner for winner, on_offer in found)
