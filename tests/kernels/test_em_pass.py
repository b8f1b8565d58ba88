"""Kernels against the definitions in exact decimals: every statistic, kind of row and range of worths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from plmix_dist.errors import SettingsError
from plmix_dist.kernels import EmStatistics, em_statistics, prepare, row_posteriors
from plmix_dist.kernels.em_pass import BY_LINE, BY_PAIR, QUEUED, SIDE_BY_SIDE, _rate_sums
from plmix_dist.kernels.prepared import _WIDEST_LOG_RANGE
from plmix_dist.rankings import Ranking
from plmix_dist.rankings.ties import unorder_last_ties
from tests.helpers.fit_oracle import (
    ExactStatistics,
    Parameters,
    block_of,
    exact_posteriors,
    exact_probability,
    exact_statistics,
    mixed_rows,
    mixtures,
    random_rows,
    slate,
    top,
)
from tests.helpers.marks import examples

# Both narrow and wide item numbers, and numbers of items on either side of whole vectors of four.
SIZES = st.sampled_from([2, 3, 4, 5, 8, 11, 23, 300])


def assert_statistics_agree(got: EmStatistics, exact: ExactStatistics, rows: Sequence[Ranking]) -> None:
    weight = math.fsum(row.weight for row in rows)
    for name in ("shares", "wins", "expected_wins"):
        assert_allclose(getattr(got, name), getattr(exact, name), rtol=1e-9, atol=1e-300, err_msg=name)
    # The logarithm of a chance next to 1 is as exact as that chance is, not as its own small size.
    for name in ("log_likelihood", "expected_log_likelihood"):
        assert_allclose(getattr(got, name), getattr(exact, name), rtol=1e-9, atol=1e-13 * weight, err_msg=name)
    # Components with next to no share of a row are left out of its rates.
    assert_allclose(got.rates, exact.rates, rtol=1e-9, atol=2e-15 * weight, err_msg="rates")


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, list[Ranking], Parameters]:
    n_items = draw(SIZES)
    return n_items, draw(mixed_rows(n_items)), draw(mixtures(n_items))


@given(case=cases())
def test_em_statistics__by_definition(case: tuple[int, list[Ranking], Parameters]) -> None:
    n_items, rows, mixture = case
    got = em_statistics(block_of(rows, n_items), prepare(*mixture), with_rates=True)
    assert_statistics_agree(got, exact_statistics(rows, n_items, *mixture), rows)


@given(case=cases(), data=st.data())
@examples(30)
def test_em_statistics__frozen_posteriors(case: tuple[int, list[Ranking], Parameters], data: st.DataObject) -> None:
    n_items, rows, current = case
    worths = np.random.default_rng(data.draw(st.integers(0, 2**32))).normal(size=current.log_worths.shape)
    frozen = Parameters(worths, np.roll(current.log_shares, 1))
    got = em_statistics(block_of(rows, n_items), prepare(*current), prepare(*frozen), with_rates=True)
    logs, memberships = exact_posteriors(rows, n_items, *frozen)
    exact = exact_statistics(rows, n_items, *current, memberships)
    at_frozen = math.fsum(row.weight * log for row, log in zip(rows, logs, strict=True))
    assert_statistics_agree(got, exact._replace(log_likelihood=at_frozen), rows)


@given(case=cases())
@examples(30)
def test_row_posteriors__by_definition(case: tuple[int, list[Ranking], Parameters]) -> None:
    n_items, rows, mixture = case
    logs, posteriors = row_posteriors(block_of(rows, n_items), prepare(*mixture))
    exact_logs, exact_memberships = exact_posteriors(rows, n_items, *mixture)
    assert_allclose(logs, exact_logs, rtol=1e-12, atol=1e-13)
    assert_allclose(posteriors, exact_memberships, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize(("n_items", "dtype"), [(256, np.uint8), (257, np.uint16), (65_537, np.uint32)])
def test_em_statistics__items_of_every_type(n_items: int, dtype: type) -> None:
    # The last item is the one that a narrower type would not hold.
    rows = [slate([n_items - 1, 0], [3]), slate([1, n_items - 1, 2], [], weight=2.0), slate([0], [n_items - 1])]
    block = block_of(rows, n_items)
    assert block.items.dtype == dtype
    worths = np.random.default_rng(0).normal(size=(2, n_items))
    shares = np.log([0.25, 0.75])
    got = em_statistics(block, prepare(worths, shares))
    few = [0, 1, 2, 3, n_items - 1]
    renumbered = [
        row._replace(
            ordered=tuple((few.index(item),) for (item,) in row.ordered),
            offered=tuple(few.index(item) for item in row.offered),
        )
        for row in rows
    ]
    exact = exact_statistics(renumbered, 5, worths[:, few], shares)
    assert_allclose(got.wins[:, few], exact.wins, rtol=1e-12)
    assert_allclose(got.expected_wins[:, few], exact.expected_wins, rtol=1e-12)
    assert_allclose(got.log_likelihood, exact.log_likelihood, rtol=1e-12)
    assert got.wins.sum() == pytest.approx(exact.wins.sum(), rel=1e-12)
    assert got.rates.size == 0


# --- every way to add up rates ---------------------------------------------------------------------------


def rows_of_kind(kind: str, n_items: int, n_rows: int) -> list[Ranking]:
    rng = np.random.default_rng(n_rows)
    lengths = {
        "full": n_items,
        "most": n_items - 3,
        "some": n_items // 2,
        "few": 5,
        "top few": 5,
        "top most": n_items - 3,
    }
    rows = []
    for number in range(n_rows):
        order = rng.permutation(n_items).tolist()[: lengths[kind]]
        weight = 0.5 + number
        rows.append(top(*order, weight=weight) if kind.startswith("top") else slate(order, [], weight=weight))
    return rows


@pytest.mark.parametrize(
    ("n_items", "kind", "way"),
    [
        (12, "full", SIDE_BY_SIDE),
        (12, "top few", SIDE_BY_SIDE),
        (45, "full", QUEUED),
        (45, "most", QUEUED),
        (45, "top most", QUEUED),
        (45, "some", SIDE_BY_SIDE),
        (45, "top few", BY_LINE),
        (370, "few", BY_PAIR),
        (370, "top few", BY_LINE),
    ],
)
# A queue that is not full, one that is, and one that is begun again.
@pytest.mark.parametrize("n_rows", [1, 4, 6])
def test_rates__every_way(n_items: int, kind: str, way: int, n_rows: int) -> None:
    rows = rows_of_kind(kind, n_items, n_rows)
    mixture = Parameters(np.random.default_rng(0).normal(0, 0.2, (2, n_items)), np.log([0.4, 0.6]))
    block, params = block_of(rows, n_items), prepare(*mixture)
    assert set(_rate_sums(block, params).ways.tolist()) == {way}
    got = em_statistics(block, params, with_rates=True)
    assert_statistics_agree(got, exact_statistics(rows, n_items, *mixture), rows)


def test_rates__all_ways_in_one_block() -> None:
    n_items = 370
    # The queue of a component is used for the places of rows that do not wait, too.
    kinds = [rows_of_kind(kind, n_items, 3) for kind in ("top few", "few", "some")]
    rows = [row for each in zip(*kinds, strict=True) for row in each]
    rows[1:1] = rows_of_kind("most", n_items, 1)
    mixture = Parameters(np.random.default_rng(0).normal(0, 0.2, (5, n_items)), np.log(np.full(5, 0.2)))
    block, params = block_of(rows, n_items), prepare(*mixture)
    assert set(_rate_sums(block, params).ways.tolist()) == {QUEUED, BY_LINE, BY_PAIR}
    got = em_statistics(block, params, with_rates=True)
    assert_statistics_agree(got, exact_statistics(rows, n_items, *mixture), rows)


# --- shares that are hardly there ------------------------------------------------------------------------


def test_row_posteriors__shares_below_the_range_of_floats() -> None:
    rows = random_rows(5, 6, 12)
    log_shares = np.array([-1e-300, -800.0, -2_000.0])
    mixture = Parameters(np.random.default_rng(0).normal(size=(3, 6)), log_shares)
    logs, posteriors = row_posteriors(block_of(rows, 6), prepare(*mixture))
    exact_logs, exact_memberships = exact_posteriors(rows, 6, *mixture)
    assert_allclose(logs, exact_logs, rtol=1e-12, atol=1e-13)
    assert_allclose(posteriors, exact_memberships, rtol=1e-10, atol=1e-300)
    # All of them far below: only their ratios count.
    far = Parameters(mixture.log_worths, np.array([-5_000.0, -5_001.0, -np.inf]))
    near = Parameters(mixture.log_worths[:2], np.array([0.0, -1.0]))
    logs, posteriors = row_posteriors(block_of(rows, 6), prepare(*far))
    near_logs, near_posteriors = row_posteriors(block_of(rows, 6), prepare(*near))
    assert_allclose(logs, near_logs - 5_000, rtol=1e-12)
    assert_allclose(posteriors[:, :2], near_posteriors, rtol=1e-10)
    assert not posteriors[:, 2].any()


def test_em_statistics__shares_that_are_no_number_are_not_hidden() -> None:
    block = block_of(random_rows(5, 6, 12), 6)
    got = em_statistics(block, prepare(np.zeros((2, 6)), np.array([-1.0, np.nan])))
    assert np.isnan(got.log_likelihood)
    assert np.isnan(got.shares).all()
    assert np.isnan(got.expected_wins).all()


@pytest.mark.parametrize("n_items", [3, 40])
def test_em_statistics__rows_are_added_in_their_order(n_items: int) -> None:
    # Rows are worked on several at a time; one at a time, and added up in the same order, they give the same bits.
    rows = random_rows(9, n_items, 11)
    block = block_of(rows, n_items)
    params = prepare(np.random.default_rng(0).normal(size=(5, n_items)), np.log(np.full(5, 0.2)))
    together = em_statistics(block, params)
    one_by_one = [em_statistics(block[number : number + 1], params) for number in range(len(rows))]
    for name in ("shares", "expected_log_likelihood"):
        total = np.zeros(5)
        for single in one_by_one:
            total = total + getattr(single, name)
        assert np.array_equal(getattr(together, name), total), name


def test_log_likelihood__least_chance_of_all() -> None:
    # The least of 20,000 items, all others e ** 700 above it, comes first: a chance below what float64 holds in full.
    n_items = 20_000
    worths = np.append(-700.0, np.zeros(n_items - 1))
    logs, _ = row_posteriors(block_of([top(0)], n_items), prepare(worths[None], np.zeros(1)))
    assert logs[0] == pytest.approx(-700 - math.log(n_items - 1), rel=1e-14)


def test_em_statistics__read_only_columns() -> None:
    rows = random_rows(3, 9, 20)
    block = block_of(rows, 9)
    params = prepare(np.random.default_rng(0).normal(size=(2, 9)), np.log([0.5, 0.5]))
    before = em_statistics(block, params, with_rates=True)
    for column in (block.items, block.n_listed, block.n_ordered, block.below, block.weights):
        assert column is not None
        column.setflags(write=False)
    for mine, theirs in zip(before, em_statistics(block, params, with_rates=True), strict=True):
        assert np.array_equal(mine, theirs)


def test_em_statistics__no_rows() -> None:
    block = block_of(random_rows(0, 5, 3), 5)[:0]
    got = em_statistics(block, prepare(np.zeros((2, 5)), np.log([0.5, 0.5])), with_rates=True)
    assert [float(np.abs(statistic).sum()) for statistic in got] == [0.0] * 6
    assert got.rates.shape == (2, 5, 5)


def test_row_of_ties_alone__says_nothing() -> None:
    everything_tied = Ranking(((0, 1, 2),), (), "absent", 4.0)
    block = unorder_last_ties(block_of([everything_tied], 3))
    assert block.n_ordered.tolist() == [0]
    shares = np.array([0.25, 0.75])
    params = prepare(np.random.default_rng(0).normal(size=(2, 3)), np.log(shares))
    logs, posteriors = row_posteriors(block, params)
    assert_allclose(logs, [0.0], atol=1e-15)
    assert_allclose(posteriors, [shares], rtol=1e-15)
    got = em_statistics(block, params, with_rates=True)
    assert_allclose(got.shares, 4.0 * shares, rtol=1e-15)
    assert not got.wins.any()
    assert not got.expected_wins.any()
    assert not got.rates.any()


# --- worths that range far -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def far_apart() -> Parameters:
    """5,000 items whose worths range over e ** 700 in each of three components."""
    rng = np.random.default_rng(24)
    worths = rng.uniform(-350, 350, (3, 5_000))
    # Items 0 to 9 dominate all others by more than e ** 300 in the second component.
    worths[1] = rng.uniform(-350, 0, 5_000)
    worths[1, :10] = rng.uniform(340, 350, 10)
    worths[:, -2:] = 350, -350
    return Parameters(worths, np.log([0.5, 0.3, 0.2]))


@pytest.mark.promise(24)
@pytest.mark.parametrize(
    "row",
    [
        slate(np.random.default_rng(0).permutation(5_000).tolist(), []),
        top(*range(10)),
        top(4_999, 3, 17),
        top(*range(20, 30)),
        slate(list(range(0, 400, 10)), []),
        slate([4_999, 4_998], list(range(100))),
        slate([7, 4_999], list(range(10, 60)), "below"),
    ],
    ids=["full", "dominating", "least first", "dominated", "subset", "slate", "slate of all"],
)
def test_row_posteriors__widest_range(row: Ranking, far_apart: Parameters) -> None:
    logs, posteriors = row_posteriors(block_of([row], 5_000), prepare(*far_apart))
    exact_logs, exact_memberships = exact_posteriors([row], 5_000, *far_apart)
    assert np.isfinite(logs).all()
    assert_allclose(logs, exact_logs, rtol=1e-10)
    assert_allclose(posteriors.sum(axis=1), 1.0, rtol=1e-15)
    assert_allclose(posteriors, exact_memberships, rtol=1e-10, atol=1e-10)


@pytest.mark.promise(24)
def test_em_statistics__widest_range(far_apart: Parameters) -> None:
    rows = [
        top(*range(10)),
        top(*range(20, 30), weight=2.0),
        slate(list(range(0, 400, 10)), [], weight=0.5),
        slate([4_998, 3], [4_999, 5]),
    ]
    # One component at a time: the posterior of far components is 0, and nothing would be tried of them.
    for worths in far_apart.log_worths:
        mixture = Parameters(worths[None], np.zeros(1))
        got = em_statistics(block_of(rows, 5_000), prepare(*mixture))
        exact = exact_statistics(rows, 5_000, *mixture, with_rates=False)
        assert_allclose(got.wins, exact.wins, rtol=1e-10)
        # Below 1e-300 float64 has no digits left to compare.
        assert_allclose(got.expected_wins, exact.expected_wins, rtol=1e-10, atol=1e-300)
        assert_allclose(got.log_likelihood, exact.log_likelihood, rtol=1e-10)


@pytest.mark.promise(24)
def test_em_statistics__all_but_one_at_the_bottom() -> None:
    # The winner is out after the first place, and 4,999 equals e ** 700 below it are left: the chance of each
    # to win a choice from k of them is 1 / k, so that expected wins are sums of 1 / k.
    worths = np.append(0.0, np.full(4_999, -700.0))
    row = slate(list(range(5_000)), [])
    got = em_statistics(block_of([row], 5_000), prepare(worths[None], np.zeros(1)))
    assert got.log_likelihood == pytest.approx(-math.lgamma(5_000), rel=1e-12)
    harmonic = np.cumsum(1 / np.arange(4_999, 1, -1))
    assert_allclose(got.expected_wins[0], [1.0, *harmonic, harmonic[-1]], rtol=1e-10)


@pytest.mark.parametrize("log_range", [5.0, 20.0, 46.0, 100.0, 300.0])
def test_expected_wins__unlikely_winner_of_a_top_k_row(log_range: float) -> None:
    # Item 1 wins against all odds, and the last choice is between two items as unlikely as itself: what is
    # added up for unlisted items and taken off again for item 1 is far larger than what must be left of it.
    rows = [top(1, 0, 3)]
    mixture = Parameters(np.array([[0.0, -log_range, 0.1 - log_range, -log_range]]), np.zeros(1))
    got = em_statistics(block_of(rows, 4), prepare(*mixture))
    exact = exact_statistics(rows, 4, *mixture)
    assert (got.expected_wins > 0).all()
    assert_allclose(got.expected_wins, exact.expected_wins, rtol=1e-9)


@pytest.mark.parametrize("n_items", [30, 300, 5_000])
def test_expected_wins__first_of_many_against_all_odds(n_items: int) -> None:
    # The least of all items wins over one that outweighs the sum of the others, by more and more orders of
    # magnitude; the choices that follow are between those others.
    rng = np.random.default_rng(n_items)
    worths = rng.uniform(-3, 0, n_items)
    least = 1 + int(np.argmin(worths[1:]))
    others = rng.choice(np.setdiff1d(np.arange(1, n_items), [least]), 3, replace=False).tolist()
    rows = [top(least, 0, *others)]
    for decades in np.linspace(0, 9, 37):
        worths[0] = np.log(np.exp(worths[1:]).sum()) + decades * math.log(10)
        got = em_statistics(block_of(rows, n_items), prepare(worths[None], np.zeros(1)))
        exact = exact_statistics(rows, n_items, worths[None], np.zeros(1), with_rates=False)
        assert_allclose(got.expected_wins, exact.expected_wins, rtol=1e-9, err_msg=str(decades))


@pytest.mark.parametrize("log_range", [700.0 + 1e-9, 1e4, math.inf, math.nan])
def test_prepare__range_too_wide(log_range: float) -> None:
    with pytest.raises(SettingsError, match=rf"range over {log_range:g}; at most 700 can be told apart"):
        prepare(np.array([[0.0, 1.0], [0.0, log_range]]), np.log([0.5, 0.5]))
    assert _WIDEST_LOG_RANGE == 700.0
    prepare(np.array([[0.0, 700.0]]), np.zeros(1))


# --- probabilities sum to one ----------------------------------------------------------------------------


@pytest.mark.promise(25)
@pytest.mark.parametrize("n_items", [2, 3, 5, 6])
@pytest.mark.parametrize("kind", ["full", "top-k", "subset", "slate", "slate of all"])
def test_probabilities__all_orders_sum_to_one(n_items: int, kind: str) -> None:
    items = range(n_items)
    mixture = Parameters(np.random.default_rng(n_items).normal(0, 3, (3, n_items)), np.log([0.5, 0.3, 0.2]))
    lengths = {"full": [n_items], "subset": [n_items - 1] if n_items > 2 else [2]}
    for length in lengths.get(kind, range(1, n_items)):
        if kind in ("full", "top-k"):
            make = slate if kind == "full" else lambda order, _: top(*order)
            rows = [make(order, []) for order in itertools.permutations(items, length)]
        elif kind == "subset":
            rows = [slate(order, []) for order in itertools.permutations(range(length))]
        else:
            # What is on offer without being ordered is listed, all of it or in part.
            unranked = "absent" if kind == "slate" else "below"
            rows = []
            for order in itertools.permutations(items, length):
                rest = [item for item in items if item not in order]
                rows.append(slate(order, rest if kind == "slate" else rest[:-1], unranked))
        logs, _ = row_posteriors(block_of(rows, n_items), prepare(*mixture))
        assert math.fsum(np.exp(logs)) == pytest.approx(1.0, abs=1e-13)


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


def rare_component(row: Ranking, n_items: int, posterior: float) -> tuple[Any, Any, Any]:
    """One row, and a mixture whose second component has about this posterior on it."""
    rng = np.random.default_rng(n_items)
    log_worths = np.stack([np.zeros(n_items), rng.normal(0, 0.1, n_items)])
    ratio = exact_probability(row, n_items, log_worths[0]) / exact_probability(row, n_items, log_worths[1])
    log_shares = np.log([1.0, posterior * float(ratio)])
    return [row], log_worths, log_shares - np.logaddexp.reduce(log_shares)


WAYS = {
    "side by side": (5, slate([3, 1, 4, 0, 2], [])),
    "queued": (45, slate(list(range(45)), [])),
    "by line": (45, top(7, 3, 40, 1)),
    "by pair": (400, slate([7, 399, 40], [1, 5])),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("posterior", [1e-12, 3e-15])
def test_rates__of_components_that_have_hardly_any_of_a_row(way: str, posterior: float) -> None:
    n_items, row = WAYS[way]
    rows, *mixture = rare_component(row, n_items, posterior)
    found = em_statistics(block_of(rows, n_items), prepare(*mixture), with_rates=True).rates
    expected = exact_statistics(rows, n_items, *mixture).rates
    assert 0.5 * posterior < exact_posteriors(rows, n_items, *mixture)[1][0, 1] < 2 * posterior
    assert expected[1].max() > 0
    assert_allclose(found, expected, rtol=1e-9, atol=0)
