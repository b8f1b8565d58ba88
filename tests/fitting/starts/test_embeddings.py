"""The embeddings of rankings, against entries made by hand."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from plmix_dist.fitting.starts import spectral as spectral_start
from plmix_dist.fitting.starts.clusters import fit_one_model
from plmix_dist.fitting.starts.embeddings import PairRows, PlaceRows, _place_table, pair_frequencies
from plmix_dist.kernels import pairwise_wins
from tests.helpers.fit_oracle import block_of, listed_in_order, random_rows, slate, top

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from plmix_dist.rankings import Ranking

    Table = NDArray[np.float64]
from tests.fitting.starts.data import told_sign
from tests.helpers.marks import examples


def copies(rows: Sequence[Ranking]) -> list[Ranking]:
    """Rows of whole weights as that many rows of weight 1, side by side."""
    return [row._replace(weight=1.0) for row in rows for _ in range(int(row.weight))]


def offers_all(row: Ranking, n_items: int) -> bool:
    return row.unranked == "below" or len(row.ordered) + len(row.offered) == n_items


def surprises(row: Ranking, log_worths: Table) -> dict[int, float]:
    """For each listed item, how many stand before it less how many one model expects there."""
    ordered = listed_in_order(row)
    found = dict.fromkeys((*ordered, *row.offered), 0.0)
    for before, after in itertools.combinations((*ordered, *row.offered), 2):
        if before in ordered:
            upset = math.exp(log_worths[after]) / (math.exp(log_worths[before]) + math.exp(log_worths[after]))
            found[after] += 1 - (1 - upset)
            found[before] += 0 - upset
    return found


def places_by_hand(rows: Sequence[Ranking], n_items: int) -> Table:
    """The rank embedding by its definition."""
    model = fit_one_model(block_of(rows, n_items)).log_worths
    table = np.zeros((len(rows), n_items))
    told = np.array([offers_all(row, n_items) for row in rows])
    weights = np.array([row.weight for row in rows])
    for number, row in enumerate(rows):
        ordered = listed_in_order(row)
        if told[number]:
            table[number] = statistics.fmean(range(len(ordered), n_items)) if len(ordered) < n_items else 0.0
            table[number, ordered] = range(len(ordered))
        else:
            for item, surprise in surprises(row, model).items():
                table[number, item] = surprise
    if told.any():
        table[told] -= np.average(table[told], axis=0, weights=weights[told])
    if np.average([len(row.ordered) for row in rows], weights=weights) < n_items / 2:
        deviation = np.sqrt(np.average(table**2, axis=0, weights=weights))
        table = np.divide(table, deviation, out=np.zeros_like(table), where=deviation > 1e-9)
    return table


def rows_of_kind(kind: str, weighted: bool) -> list[Ranking]:
    rng = random.Random(7)
    rows = []
    for number in range(40):
        order = rng.sample(range(9), 9)
        length = rng.randint(1, 4)
        weight = float(1 + number % 3) if weighted else 1.0
        kinds = ["full", "top-k", "subset", "slate", "slate of all"]
        match rng.choice(kinds) if kind == "mixed" else kind:
            case "full":
                rows.append(slate(order, [], weight=weight))
            case "top-k":
                rows.append(top(*order[:length], weight=weight))
            case "subset":
                rows.append(slate(order[: length + 1], [], weight=weight))
            case "slate":
                rows.append(slate(order[:length], order[length:7], weight=weight))
            case _:
                rows.append(slate(order[:length], order[length:], weight=weight))
    return rows


KINDS = pytest.mark.parametrize("kind", ["full", "top-k", "subset", "slate", "slate of all", "mixed"])


@KINDS
@pytest.mark.parametrize("weighted", [False, True])
def test_place_rows__by_hand(kind: str, weighted: bool) -> None:
    rows = rows_of_kind(kind, weighted)
    embedded = PlaceRows(block_of(rows, 9))
    expected = places_by_hand(rows, 9)
    assert embedded.shape == expected.shape == (40, 9)
    assert np.abs(expected).max() > 0.1
    assert_allclose(embedded.dense(0, 40), expected, atol=1e-10)
    assert_allclose(embedded.dense(11, 23), expected[11:23], atol=1e-10)


def test_place_rows__scaled_only_where_rankings_are_short() -> None:
    halves = [top(*random.Random(seed).sample(range(8), 4)) for seed in range(30)]
    assert_array_equal(PlaceRows(block_of(halves, 8)).scale, np.ones(8))
    shorter = [*halves[:-1], top(0, 1, 2)]
    scaled = PlaceRows(block_of(shorter, 8)).dense(0, 30)
    assert_allclose((scaled**2).mean(axis=0), np.ones(8))


@given(seed=st.integers(0, 2**32), n_items=st.integers(2, 9), n_rows=st.integers(1, 20))
@examples(30)
def test_place_rows__products(seed: int, n_items: int, n_rows: int) -> None:
    rows = random_rows(seed, n_items, n_rows)
    embedded = PlaceRows(block_of(rows, n_items))
    dense = embedded.dense(0, n_rows)
    rng = np.random.default_rng(seed)
    right, other = rng.normal(size=(n_items, 3)), rng.normal(size=(n_rows, 2))
    size = max(1.0, np.abs(embedded.scale).max())  # of rounding, where columns hardly vary
    assert_allclose(embedded.times(right), dense @ right, atol=1e-9 * size)
    assert_allclose(embedded.transposed_times(other), dense.T @ other, atol=1e-9 * size)


@KINDS
@pytest.mark.promise(12)
def test_place_rows__weight_is_copies(kind: str) -> None:
    rows = rows_of_kind(kind, weighted=True)
    one, many = PlaceRows(block_of(rows, 9)), PlaceRows(block_of(copies(rows), 9))
    assert_allclose(one.means, many.means, atol=1e-12)
    assert_allclose(one.scale, many.scale, rtol=1e-10)
    mine, theirs = (spectral_start._place_directions(embedded, 5) for embedded in (one, many))
    assert_allclose(mine.singular_values, theirs.singular_values, rtol=1e-9)
    assert_allclose(mine.vectors, theirs.vectors, atol=1e-7)
    dense = many.dense(0, many.shape[0])
    assert_allclose(mine.singular_values, np.linalg.svd(dense, compute_uv=False)[:5], rtol=1e-7, atol=1e-6)


@pytest.mark.promise(12)
def test_place_rows__weight_is_copies_where_lengths_differ() -> None:
    rows = [slate(list(range(8)), []), slate(list(range(8))[::-1], []), top(3, weight=9.0)]
    one, many = PlaceRows(block_of(rows, 8)), PlaceRows(block_of(copies(rows), 8))
    assert_allclose(one.scale, many.scale, rtol=1e-10)


def pairs_by_hand(rows: Sequence[Ranking], n_items: int, centred: bool) -> Table:
    columns = []
    for i, j in itertools.combinations(range(n_items), 2):
        signs = [told_sign(row, n_items, i, j) for row in rows]
        won = math.fsum(row.weight for row, sign in zip(rows, signs, strict=True) if sign == 1)
        lost = math.fsum(row.weight for row, sign in zip(rows, signs, strict=True) if sign == -1)
        mean = won / (won + lost) if won + lost else 0.5
        off = mean if centred else 0.0
        columns.append([{1: 1.0, -1: 0.0, 0: mean}[sign] - off for sign in signs])
    return np.array(columns).T


@KINDS
@pytest.mark.parametrize("centred", [True, False])
def test_pair_rows__by_hand(kind: str, centred: bool) -> None:
    rows = rows_of_kind(kind, weighted=True)
    block = block_of(rows, 9)
    frequencies = pair_frequencies(pairwise_wins(block, np.ones((40, 1)))[0])
    embedded = PairRows(block, frequencies, centred=centred)
    expected = pairs_by_hand(rows, 9, centred)
    assert embedded.shape == expected.shape == (40, 36)
    assert_allclose(embedded.dense(0, 40), expected, atol=1e-12)
    assert_allclose(embedded.dense(5, 17), expected[5:17], atol=1e-12)
    roots = np.sqrt([row.weight for row in rows])[:, None]
    assert_allclose(embedded.scaled(3, 40), (roots * expected)[3:], atol=1e-12)


@given(rows=st.integers(0, 2**32).map(lambda seed: random_rows(seed, 6, 12)))
@examples(30)
def test_place_table__tells_what_rows_tell(rows: list[Ranking]) -> None:
    table = _place_table(block_of(rows, 6))
    for number, row in enumerate(rows):
        for i, j in itertools.permutations(range(6), 2):
            here, there = table[number, i], table[number, j]
            assert int(here < there) - int(here > there) == told_sign(row, 6, i, j)


def test_pair_frequencies__unseen_pairs_are_even() -> None:
    found = pair_frequencies(np.array([[0.0, 3.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert_array_equal(found, [[0.5, 0.75, 0.5], [0.25, 0.5, 0.5], [0.5, 0.5, 0.5]])
