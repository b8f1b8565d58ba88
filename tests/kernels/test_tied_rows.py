"""Ties: the sum over all linear extensions, the extensions themselves, and fits, against brute force."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import SettingsError
from plmix_dist.kernels import em_statistics, prepare, row_posteriors
from plmix_dist.kernels.draws import draw_extensions
from plmix_dist.kernels.em_pass import component_logs
from plmix_dist.kernels.tied_places import (
    draw_order_by_integral,
    draw_order_by_subsets,
    tie_by_integral,
    tie_by_subsets,
)
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.ties import MOST_EXTENSIONS, extend_ties, unorder_last_ties
from tests.helpers.fit_oracle import block_of, exact_posteriors, exact_probability, exact_statistics
from tests.helpers.oracle import write_store

Table = NDArray[np.float64]


def extensions(row: Ranking) -> Iterator[Ranking]:
    """Every order without ties that a row allows."""
    for orders in itertools.product(*[itertools.permutations(place) for place in row.ordered]):
        yield row._replace(ordered=tuple((item,) for order in orders for item in order))


def tied_row(rng: random.Random, n_items: int, largest: int = 4) -> Ranking:
    """A row of any kind, most with ties."""
    items = rng.sample(range(n_items), rng.randint(2, n_items))
    n_offered = rng.choice([0, 0, 1]) if len(items) > 2 else 0
    ordered, offered = items[: len(items) - n_offered], items[len(items) - n_offered :]
    places: list[tuple[int, ...]] = []
    while ordered:
        size = rng.randint(1, min(largest, len(ordered)))
        places.append(tuple(ordered[:size]))
        ordered = ordered[size:]
    below = len(items) < n_items and rng.random() < 0.5
    return Ranking(tuple(places), tuple(offered), "below" if below else "absent", rng.choice([1.0, 2.0, 0.25]))


def unordered_at_the_end(row: Ranking, n_items: int) -> Ranking:
    """The row as kernels see it: items tied for the last of all places are not ordered."""
    return unorder_last_ties(block_of([row], n_items)).row(0)


def mixture(seed: int, n_components: int, n_items: int, spread: float) -> tuple[Table, Table]:
    draw = np.random.default_rng(seed)
    return spread * draw.standard_normal((n_components, n_items)), np.log(draw.dirichlet(np.full(n_components, 4.0)))


# --- the sum over all orders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [1.0, 20.0, 90.0])
@pytest.mark.parametrize("seed", range(5))
def test_component_logs__brute_force(seed: int, spread: float) -> None:
    rng, n_items = random.Random(seed), 7
    rows = [tied_row(rng, n_items) for _ in range(30)]
    log_worths, log_shares = mixture(seed, 2, n_items, spread)
    found = component_logs(block_of(rows, n_items), prepare(log_worths, log_shares))
    for row, logs in zip(rows, found, strict=True):
        seen = unordered_at_the_end(row, n_items)
        for worths, log in zip(log_worths, logs, strict=True):
            exact = sum(exact_probability(one, n_items, worths) for one in extensions(seen))
            assert log == pytest.approx(float(exact.ln()), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("spread", [1.0, 15.0])
@pytest.mark.parametrize("seed", range(4))
def test_em_statistics__expectations_over_all_orders(seed: int, spread: float) -> None:
    rng, n_items = random.Random(seed), 6
    rows = [tied_row(rng, n_items, largest=3) for _ in range(15)]
    log_worths, log_shares = mixture(seed, 2, n_items, spread)
    got = em_statistics(block_of(rows, n_items), prepare(log_worths, log_shares))
    wins, expected_wins = np.zeros((2, 2, n_items))
    shares, log_likelihood = np.zeros(2), 0.0
    for row in rows:
        seen = unordered_at_the_end(row, n_items)
        orders = list(extensions(seen))
        chances = np.array(
            [[float(exact_probability(one, n_items, worths)) for worths in log_worths] for one in orders]
        )
        joint = chances * np.exp(log_shares)
        total = joint.sum()
        log_likelihood += row.weight * math.log(total)
        shares += row.weight * joint.sum(axis=0) / total
        # Each order has its part of the row; exact_statistics takes memberships as they are.
        of_orders = exact_statistics(orders, n_items, log_worths, log_shares, joint / total)
        wins += of_orders.wins
        expected_wins += of_orders.expected_wins
    assert_allclose(got.log_likelihood, log_likelihood, rtol=1e-11)
    assert_allclose(got.shares, shares, rtol=1e-10)
    assert_allclose(got.wins, wins, rtol=1e-10, atol=1e-300)
    assert_allclose(got.expected_wins, expected_wins, rtol=1e-9, atol=1e-290)


def test_em_statistics__gradient_by_differences_with_groups() -> None:
    rng, n_items = random.Random(4), 9
    # Nine items tied with one below: by the integral. Groups and ties together.
    rows = [tied_row(rng, n_items, largest=8) for _ in range(20)]
    block = block_of(rows, n_items).replace(groups=np.sort(np.random.default_rng(0).integers(8, size=20)))
    log_worths, log_shares = mixture(4, 2, n_items, 1.5)

    def likelihood(flat: Table) -> float:
        params = prepare(flat.reshape(2, n_items), log_shares)
        return float(block.row_weights @ row_posteriors(block, params)[0])

    sums = em_statistics(block, prepare(log_worths, log_shares))
    flat, step = log_worths.ravel(), 1e-5
    differences = [
        (likelihood(flat + step * unit) - likelihood(flat - step * unit)) / (2 * step) for unit in np.eye(len(flat))
    ]
    assert_allclose((sums.wins - sums.expected_wins).ravel(), differences, atol=1e-7)
    assert sums.log_likelihood == pytest.approx(likelihood(flat), rel=1e-12)


@pytest.mark.parametrize("spread", [0.5, 5.0, 50.0])
@pytest.mark.parametrize("n_tied", [1, 2, 5, 8])
def test_tie_by_integral__equals_the_recursion(n_tied: int, spread: float) -> None:
    draw = np.random.default_rng(n_tied)
    worths, rest = (np.exp(spread * draw.standard_normal((n_tied, 40))), np.exp(spread * draw.standard_normal(40)))
    by_subsets, by_integral = tie_by_subsets(worths, rest), tie_by_integral(worths, rest)
    assert_allclose(by_integral.logs, by_subsets.logs, rtol=1e-12, atol=1e-12)
    assert_allclose(by_integral.expected, by_subsets.expected, rtol=1e-11)
    assert_allclose(by_integral.offers, by_subsets.offers, rtol=1e-11)


@pytest.mark.parametrize("n_tied", [20, 100, 400])
def test_tie_by_integral__many_equal_items(n_tied: int) -> None:
    # Items of equal worth: the tied ones come first in one of (n choose n_tied) ways.
    n_rest = 7
    sums = tie_by_integral(np.full((n_tied, 1), 3.0), np.array([3.0 * n_rest]))
    ways = math.lgamma(n_tied + n_rest + 1) - math.lgamma(n_tied + 1) - math.lgamma(n_rest + 1)
    assert sums.logs[0] == pytest.approx(-ways, rel=1e-12)
    on_offer = [math.fsum(1 / (n_tied + n_rest - taken) for taken in range(n_tied))]
    assert sums.offers[0] * 3.0 == pytest.approx(on_offer[0], rel=1e-11)


@pytest.mark.parametrize("draw_order", [draw_order_by_subsets, draw_order_by_integral])
def test_draw_order__frequencies(draw_order: object) -> None:
    n_draws, worths, rest = 60_000, np.array([3.0, 1.0, 0.3]), 2.0
    uniforms = np.random.default_rng(1).random((5, n_draws))
    given = uniforms[:3] if draw_order is draw_order_by_subsets else uniforms
    order = draw_order(np.repeat(worths[:, None], n_draws, axis=1), np.full(n_draws, rest), given)  # type: ignore[operator]
    found = Counter(map(tuple, order.T.tolist()))
    chances = {}
    for one in itertools.permutations(range(3)):
        left, chance = worths.sum() + rest, 1.0
        for item in one:
            chance *= worths[item] / left
            left -= worths[item]
        chances[one] = chance
    total = sum(chances.values())
    for one, chance in chances.items():
        share = chance / total
        assert abs(found[one] / n_draws - share) < 5 * math.sqrt(share / n_draws)


# --- linear extensions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_extend_ties__all_extensions_or_draws(seed: int) -> None:
    rng, n_items = random.Random(seed), 9
    rows = [tied_row(rng, n_items, largest=5) for _ in range(40)]
    extended = extend_ties(block_of(rows, n_items))
    assert not extended.block.has_ties
    for number, row in enumerate(rows):
        seen = unordered_at_the_end(row, n_items)
        allowed = {one.ordered for one in extensions(seen)}
        own = extended.block.take(extended.row == number)
        found = [own.row(place) for place in range(own.n_rankings)]
        assert {one.ordered for one in found} <= allowed
        assert {(one.offered, one.unranked) for one in found} == {(seen.offered, seen.unranked)}
        assert own.total_weight == pytest.approx(row.weight)
        if len(allowed) <= MOST_EXTENSIONS:
            assert Counter(one.ordered for one in found) == Counter(allowed)
        else:
            assert len(found) == MOST_EXTENSIONS


def test_extend_ties__draws_depend_on_the_ranking_alone() -> None:
    tie = Ranking((tuple(range(8)), (8,)), (9,), "absent", 1.0)
    other = Ranking(((9,), (0, 1)), (8,), "absent", 1.0)
    alone = extend_ties(block_of([tie], 10)).block
    among = extend_ties(block_of([other, tie, other], 10))
    assert among.block.take(among.row == 1).items.tolist() == alone.items.tolist()
    rewritten = tie._replace(ordered=(tuple(reversed(range(8))), (8,)))
    assert extend_ties(block_of([rewritten], 10)).block.items.tolist() == alone.items.tolist()
    places = np.argsort(alone.items.reshape(MOST_EXTENSIONS, 10)[:, :8], axis=1)
    assert_allclose(places.mean(axis=0), 3.5)  # an order and its reverse


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NoInformationWarning")
def test_posteriors__expand_is_the_mean_over_extensions() -> None:
    rng, n_items = random.Random(2), 6
    rows = [tied_row(rng, n_items, largest=3) for _ in range(20)]
    model = PlackettLuceMixture(2, ties="expand", random_state=0).fit(block_of(rows, n_items))
    probabilities, logs = (model.predict_proba(block_of(rows, n_items)), model.score_samples(block_of(rows, n_items)))
    assert probabilities.shape == (20, 2)
    for row, found, log in zip(rows, probabilities, logs, strict=True):
        orders = list(extensions(unordered_at_the_end(row, n_items)))
        if len(orders) <= MOST_EXTENSIONS:
            of_orders = exact_posteriors(orders, n_items, model.log_worths_, np.log(model.shares_))
            assert_allclose(found, of_orders[1].mean(axis=0), rtol=1e-9)
            assert log == pytest.approx(of_orders[0].mean(), rel=1e-9)


# --- fits ------------------------------------------------------------------------------------------------------


def rounded_rankings(seed: int, n_rows: int, n_items: int, n_components: int) -> tuple[list[Ranking], Table]:
    """Rankings by utilities rounded to a coarse grid, so that many items are tied; the best items are listed."""
    draw = np.random.default_rng(seed)
    log_worths = 1.5 * draw.standard_normal((n_components, n_items))
    rows = []
    for _ in range(n_rows):
        utility = log_worths[draw.integers(n_components)] + draw.gumbel(size=n_items)
        grades = np.round(utility)
        order = sorted(set(grades.tolist()), reverse=True)[:-1] or [grades.max()]
        places = tuple(tuple(np.flatnonzero(grades == grade).tolist()) for grade in order)
        listed = sum(map(len, places))
        rows.append(Ranking(places, (), "below" if listed < n_items else "absent", 1.0))
    return rows, log_worths - log_worths.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("ties", ["expand", "marginal"])
def test_fit__same_bits_in_a_store_and_on_a_cluster(ties: str, tmp_path: Path, client: Client) -> None:
    rows, _ = rounded_rankings(0, 300, 6, 2)
    block = block_of(rows, 6).replace(groups=np.arange(300) // 3)
    store = write_store(tmp_path / "store", [[block[:150]], [block[150:]]], leaf_rows=30)
    start = np.random.default_rng(0).standard_normal((2, 6))
    fits = [
        PlackettLuceMixture(2, ties=ties, init=start, random_state=0).fit(store, client=where)  # type: ignore[arg-type]
        for where in (False, client)
    ]
    assert fits[0].log_worths_.tobytes() == fits[1].log_worths_.tobytes()
    assert fits[0].score(store) * 100 == pytest.approx(fits[0].log_likelihood_, rel=1e-12)  # per person
    logs, probabilities = fits[0].score_samples(store).compute(), fits[0].predict_proba(store).compute()
    assert logs.sum() == pytest.approx(fits[0].log_likelihood_, rel=1e-11)
    assert_allclose(probabilities[::3], probabilities[1::3])


def test_fit__marginal_ends_at_a_maximum() -> None:
    from scipy.optimize import minimize

    rows, _ = rounded_rankings(3, 400, 5, 2)
    block = block_of(rows, 5)
    model = PlackettLuceMixture(2, ties="marginal", random_state=0).fit(block)
    assert model.converged_
    # An independent optimiser on the probabilities of distinct rows, by brute force over their orders.
    counts = Counter(unordered_at_the_end(row, 5) for row in rows)
    orders = [(list(extensions(row)), count) for row, count in counts.items()]

    def negative(flat: Table) -> float:
        worths, share = flat[:10].reshape(2, 5), 1 / (1 + math.exp(-flat[10]))
        value = 0.0
        for own, count in orders:
            chances = [sum(_probability(one, 5, np.exp(worths[k])) for one in own) for k in range(2)]
            value -= count * math.log(share * chances[0] + (1 - share) * chances[1])
        for k in range(2):
            difference = worths[k] - flat[11 + k]
            value += model.alpha * float(np.logaddexp(0, difference).sum() + np.logaddexp(0, -difference).sum())
        return value

    start = np.concatenate([model.log_worths_.ravel(), [math.log(model.shares_[0] / model.shares_[1])], model._ghosts])
    assert negative(start) == pytest.approx(-model.objective_, rel=1e-10)
    found = minimize(negative, start, method="BFGS", options={"maxiter": 15})
    assert negative(start) - found.fun < 1e-6 * len(rows)


def _probability(row: Ranking, n_items: int, worths: Table) -> float:
    listed = [item for (item,) in row.ordered]
    left = float(worths.sum()) if row.unranked == "below" else float(worths[[*listed, *row.offered]].sum())
    chance = 1.0
    for item in listed:
        chance *= worths[item] / left
        left -= worths[item]
    return chance


def test_fit__lsr_needs_rows_without_ties() -> None:
    rows, _ = rounded_rankings(1, 50, 5, 1)
    with pytest.raises(SettingsError, match='m_step="lsr" takes rankings without ties'):
        PlackettLuceMixture(1, ties="marginal", m_step="lsr").fit(block_of(rows, 5))
    assert PlackettLuceMixture(1, ties="expand", m_step="lsr").fit(block_of(rows, 5)).converged_


def test_draw_extensions__order_of_ties_by_the_component_of_the_own_person() -> None:
    # Two persons, each certain by the first row to be of one component; these order items 0 and 1 in opposite ways.
    worths = np.array([[10.0, -10, 5, -5], [-10.0, 10, -5, 5]])
    rows = [((2,), (3,)), ((0, 1), (3,)), ((3,), (2,)), ((0, 1), (2,)), ((0, 1), (2,))]
    block = RankingBlock.from_rows(
        [Ranking(row, (), "absent", 1.0) for row in rows], n_items=4, groups=["a", "a", "b", "b", "b"]
    )
    for seed in range(5):
        drawn, _ = draw_extensions(block, prepare(worths, np.log([0.5, 0.5])), np.random.default_rng(seed))
        assert drawn.tied is None
        firsts = drawn.items[drawn.offsets[:-1]].tolist()
        assert firsts == [2, 0, 3, 1, 1]
