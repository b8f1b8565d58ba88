"""Predictions equal sums over all orders: choices, pairs, ranks, first places, completions; ties, groups and slates."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plmix_dist as pl
from plmix_dist.errors import RankingError, SettingsError
from plmix_dist.models.base import MixtureEstimator
from plmix_dist.prediction.choices import top_k_probabilities
from plmix_dist.prediction.given_rows import _tied_first, _tied_pairs
from plmix_dist.prediction.most_probable import most_probable
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.store.mixture import MixtureParams
from tests.helpers.marks import examples
from tests.helpers.oracle import rankings as any_ranking

NAMES = ("tea", "coffee", "mate", "milk", "water", "juice")
TIES = ("marginal", "expand")


class Model(MixtureEstimator):
    """A mixture with given parameters."""

    def __init__(self, mixture: MixtureParams, ties: str = "marginal"):
        self.ties = ties
        self._set_mixture(mixture)


def mixture_of(n_items: int, n_components: int, seed: int, spread: float = 1.0) -> MixtureParams:
    rng = np.random.default_rng(seed)
    return MixtureParams.of(
        spread * rng.normal(size=(n_components, n_items)), rng.dirichlet([2.0] * n_components), NAMES[:n_items]
    )


# --- the same by sums over all orders ---------------------------------------------------------------------


def chance(worths, order) -> float:
    """The probability of an order of some items, when nothing else is on offer."""
    return math.prod(
        worths[item] / math.fsum(worths[other] for other in order[place:]) for place, item in enumerate(order)
    )


def orders_of(row: Ranking, n_items: int):
    """All orders of what was on offer that agree with a row."""
    listed = [item for place in row.ordered for item in place] + list(row.offered)
    left = list(row.offered)
    if row.unranked == "below":
        left += [item for item in range(n_items) if item not in listed]
    parts = [itertools.permutations(place) for place in (*row.ordered, left)]
    return [tuple(itertools.chain.from_iterable(choice)) for choice in itertools.product(*parts)]


def n_known(row: Ranking) -> int:
    """How many items a row orders; tied last items of everything on offer are not ordered."""
    listed = sum(map(len, row.ordered))
    if row.unranked == "absent" and not row.offered and len(row.ordered[-1]) > 1:
        return listed - len(row.ordered[-1])
    return listed


def posterior_of_orders(mixture: MixtureParams, rows: list[Ranking], number: int, ties: str, component=None):
    """The orders that agree with a row, and the probability of each given all rows of the person."""
    worths = np.exp(mixture.log_worths)
    shares = mixture.shares if component is None else np.eye(mixture.n_components)[component]
    row = rows[number]
    orders = orders_of(row, mixture.n_items)
    of_orders = np.array([[chance(w, order) for order in orders] for w in worths])
    of_rows = np.array([[sum(chance(w, o) for o in orders_of(r, mixture.n_items)) for r in rows] for w in worths])
    if ties == "marginal":
        person = shares * np.prod([of_rows[:, r] ** rows[r].weight for r in range(len(rows))], axis=0)
        joint = (person / person.sum())[:, None] * of_orders / of_rows[:, [number]]
        return orders, joint.sum(axis=0)
    # Linear extensions of one row: each is a row of its own, with the same part of the weight.
    assert len(rows) == 1
    known = n_known(row)
    total = np.zeros(len(orders))
    prefixes = sorted({order[:known] for order in orders})
    for prefix in prefixes:
        members = np.array([order[:known] == prefix for order in orders])
        joint = shares[:, None] * of_orders * members
        total += joint.sum(axis=0) / joint.sum() / len(prefixes)
    return orders, total


def expected(orders, chances, n_items: int, k: int):
    """Next-choice, pair, rank and top-k probabilities from orders and their probabilities."""
    ranks, top = np.zeros(n_items), np.zeros(n_items)
    pairs = np.zeros((n_items, n_items))
    for order, p in zip(orders, chances, strict=True):
        for place, item in enumerate(order):
            ranks[item] += p * (place + 1)
            top[item] += p * (place < k)
            for later in order[place + 1 :]:
                pairs[item, later] += p
    absent = [item for item in range(n_items) if item not in orders[0]]
    ranks[absent] = np.nan
    np.fill_diagonal(pairs, 0.5)
    pairs[absent] = np.nan
    pairs[:, absent] = np.nan
    return ranks, top, pairs


def agree(model: Model, block: RankingBlock, number: int, orders, chances, k: int, component=None):
    row = block.row(number)
    n_items = block.n_items
    ranks, top, pairs = expected(orders, chances, n_items, k)
    options = {"given": block, "component": component}
    np.testing.assert_allclose(model.expected_ranks(**options)[number], ranks, atol=1e-10)
    np.testing.assert_allclose(model.top_k_probabilities(k, **options)[number], top, atol=1e-10)
    np.testing.assert_allclose(model.pairwise_probabilities(**options)[number], pairs, atol=1e-10)
    following = np.zeros(n_items)
    known = n_known(row)
    for order, p in zip(orders, chances, strict=True):
        if known < len(order):
            following[order[known]] += p
    np.testing.assert_allclose(model.choice_probabilities(**options)[number], following, atol=1e-10)


# --- without rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_items", "n_components"), [(1, 1), (2, 2), (4, 3), (6, 2)])
@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0])
def test_predictions_of_components_and_mixture_equal_sums_over_all_orders(n_items, n_components, spread):
    mixture = mixture_of(n_items, n_components, seed=n_items, spread=spread)
    model = Model(mixture)
    orders = list(itertools.permutations(range(n_items)))
    by_component = np.array([[chance(w, order) for order in orders] for w in np.exp(mixture.log_worths)])
    for k in range(1, n_items + 1):
        for component in (None, *range(n_components)):
            chances = mixture.shares @ by_component if component is None else by_component[component]
            ranks, top, pairs = expected(orders, chances, n_items, k)
            np.testing.assert_allclose(model.expected_ranks(component=component), ranks, atol=1e-12)
            np.testing.assert_allclose(model.top_k_probabilities(k, component=component), top, atol=1e-12)
            np.testing.assert_allclose(model.pairwise_probabilities(component=component), pairs, atol=1e-12)
        every = model.top_k_probabilities(k, component="all")
        assert every.shape == (n_components, n_items)
        np.testing.assert_allclose(mixture.shares @ every, model.top_k_probabilities(k), atol=1e-14)


def test_choice_probabilities__any_offered_set_by_name_or_number():
    mixture = mixture_of(6, 3, seed=1)
    model = Model(mixture)
    worths = np.exp(mixture.log_worths)
    for size in range(1, 7):
        for offered in itertools.combinations(reversed(range(6)), size):
            expected_ones = mixture.shares @ (worths[:, offered] / worths[:, offered].sum(axis=1, keepdims=True))
            np.testing.assert_allclose(model.choice_probabilities(offered), expected_ones, atol=1e-14)
            by_name = model.choice_probabilities([NAMES[item] for item in offered])
            np.testing.assert_array_equal(by_name, model.choice_probabilities(np.array(offered)))


def test_choice_probabilities__worths_far_below_the_largest_do_not_vanish():
    mixture = MixtureParams.of([[0.0, -2000.0, -2001.0]], None, NAMES[:3])
    found = Model(mixture).choice_probabilities(["coffee", "mate"])
    np.testing.assert_allclose(found, [1 / (1 + math.exp(-1)), 1 / (1 + math.e)], atol=1e-15)


def test_top_k__none_or_all_places():
    log_worths = mixture_of(5, 2, seed=3).log_worths
    np.testing.assert_array_equal(top_k_probabilities(log_worths, 0), np.zeros((2, 5)))
    np.testing.assert_array_equal(top_k_probabilities(log_worths, 5), np.ones((2, 5)))


def test_top_k__many_items_sum_to_k_and_equal_draws():
    rng = np.random.default_rng(0)
    log_worths = rng.normal(size=(2, 40))
    found = top_k_probabilities(log_worths, 7)
    np.testing.assert_allclose(found.sum(axis=1), 7, atol=1e-12)
    arrivals = rng.exponential(size=(20_000, 40)) / np.exp(log_worths[0])
    drawn = (np.argsort(np.argsort(arrivals, axis=1), axis=1) < 7).mean(axis=0)
    np.testing.assert_allclose(found[0], drawn, atol=4.5 * 0.5 / math.sqrt(20_000))


# --- given rows -------------------------------------------------------------------------------------------


@examples(60)
@given(
    data=st.data(), n_items=st.integers(2, 5), seed=st.integers(0, 99), ties=st.sampled_from(TIES), k=st.integers(1, 5)
)
def test_predictions_given_a_row_equal_sums_over_its_orders(data, n_items, seed, ties, k):
    row = data.draw(any_ranking(n_items))._replace(weight=1.0)
    mixture = mixture_of(n_items, 2, seed, spread=2.0)
    block = RankingBlock.from_rows([row], n_items=n_items)
    orders, chances = posterior_of_orders(mixture, [row], 0, ties)
    agree(Model(mixture, ties), block, 0, orders, chances, k)


ROWS = [
    Ranking(((3,), (0, 1)), (), "below", 1.0),
    Ranking(((2, 4, 5), (1,)), (0,), "absent", 1.0),
    Ranking(((1,), (5,)), (2, 0), "absent", 2.0),
    Ranking(((5,), (4,), (0, 1, 2, 3)), (), "absent", 1.0),
]


def test_predictions_given_groups_use_all_rows_of_the_person():
    mixture = mixture_of(6, 2, seed=5)
    block = RankingBlock.from_rows(ROWS, n_items=6, groups=["ann", "ann", "ann", "bob"])
    model = Model(mixture)
    for number in range(3):
        orders, chances = posterior_of_orders(mixture, ROWS[:3], number, "marginal")
        agree(model, block, number, orders, chances, k=2)
    agree(model, block, 3, *posterior_of_orders(mixture, ROWS[3:], 0, "marginal"), k=3)


@pytest.mark.parametrize("component", [0, 1])
def test_predictions_given_a_row_and_its_component(component):
    mixture = mixture_of(6, 2, seed=6)
    block = RankingBlock.from_rows(ROWS, n_items=6)
    for number, row in enumerate(ROWS):
        orders, chances = posterior_of_orders(mixture, [row], 0, "marginal", component)
        agree(Model(mixture), block, number, orders, chances, k=2, component=component)


def test_all_components_come_before_the_items():
    mixture = mixture_of(6, 2, seed=6)
    block = RankingBlock.from_rows(ROWS, n_items=6)
    model = Model(mixture)
    for predict in (
        model.expected_ranks,
        model.choice_probabilities,
        model.pairwise_probabilities,
        model.top_k_probabilities,
        lambda **options: model.choice_probabilities([1, 4], **options),
    ):
        every = predict(given=block, component="all")
        for component in range(2):
            np.testing.assert_array_equal(every[:, component], predict(given=block, component=component))


def test_a_new_choice_by_the_same_person_depends_on_memberships_alone():
    mixture = mixture_of(6, 3, seed=7)
    model = Model(mixture)
    block = RankingBlock.from_rows(ROWS, n_items=6, groups=["ann", "ann", "ann", "bob"])
    by_component = model.choice_probabilities([5, 1, 2], component="all")
    found = model.choice_probabilities([5, 1, 2], given=block)
    np.testing.assert_allclose(found, model.predict_proba(block) @ by_component, atol=1e-15)


def test_tied_pairs__equal_sums_over_the_orders_of_the_tie():
    rng = np.random.default_rng(5)
    log_worths, log_rest = 2.0 * rng.normal(size=5), -1.0
    worths, rest = np.exp(log_worths), math.exp(log_rest)
    together, first = np.zeros((5, 5)), np.zeros(5)
    for order in itertools.permutations(range(5)):
        p = math.prod(worths[i] / (rest + math.fsum(worths[j] for j in order[a:])) for a, i in enumerate(order))
        first[list(order[:2])] += p
        for i, j in itertools.combinations(order, 2):
            together[i, j] += p
    total = together[0, 1] + together[1, 0]
    np.fill_diagonal(together, total / 2)
    case = (log_worths[None], np.array([log_rest]))
    np.testing.assert_allclose(_tied_pairs(*case)[0], together / total, atol=1e-12)
    np.testing.assert_allclose(_tied_first(*case, 2)[0], first / total, atol=1e-12)


@pytest.mark.parametrize("log_rest", [-30.0, 0.0, 5.0])
def test_tied_pairs__the_integral_and_the_recursion_give_the_same_mean_places(log_rest):
    log_worths = 3.0 * np.random.default_rng(6).normal(size=(4, 10))
    rest = np.full(4, log_rest)
    by_pairs = _tied_pairs(log_worths, rest).sum(axis=1) + 0.5
    by_subsets = 1 + sum(1 - _tied_first(log_worths, rest, n_first) for n_first in range(1, 10))
    np.testing.assert_allclose(by_pairs, by_subsets, atol=1e-10)


def test_first_places_within_a_large_tie_are_refused():
    mixture = MixtureParams.of(np.zeros((1, 20)), None, [f"i{number}" for number in range(20)])
    block = RankingBlock.from_rows([Ranking((tuple(range(15)), (15,)), (), "below", 1.0)], n_items=20)
    with pytest.raises(SettingsError, match="a tie of 15 items are not computed; at most 12"):
        Model(mixture).top_k_probabilities(3, given=block)
    np.testing.assert_allclose(Model(mixture, "expand").top_k_probabilities(3, given=block)[0, :15], 0.2)
    assert Model(mixture).top_k_probabilities(15, given=block)[0, :15].tolist() == [1.0] * 15


# --- rankings and completions -----------------------------------------------------------------------------


@pytest.mark.parametrize("ties", TIES)
def test_ranking_probabilities__ties_prefixes_and_slates(ties):
    mixture = mixture_of(6, 2, seed=8)
    model = Model(mixture, ties)
    block = RankingBlock.from_rows(ROWS, n_items=6)
    by_component = [
        [math.fsum(chance(w, order) for order in orders_of(row, 6)) for w in np.exp(mixture.log_worths)] for row in ROWS
    ]
    np.testing.assert_allclose(model.ranking_probabilities(block, component="all"), by_component, rtol=1e-12)
    np.testing.assert_allclose(
        model.ranking_probabilities(block, component=1), np.array(by_component)[:, 1], rtol=1e-12
    )
    found = model.ranking_probabilities(block)
    np.testing.assert_allclose(found, by_component @ mixture.shares, rtol=1e-12)
    np.testing.assert_allclose(model.ranking_probabilities(block, log=True), np.log(found), rtol=1e-12)


def test_ranking_probabilities__the_rest_of_a_ranking_given_its_beginning():
    model = Model(mixture_of(4, 2, seed=9))
    whole = model.ranking_probabilities([[2, 0, 3, 1]])
    begun = model.ranking_probabilities([[2]], unranked="below")
    rest = RankingBlock.from_array([[0, 3, 1]], n_items=4, unranked="absent")
    begin = RankingBlock.from_array([[2]], n_items=4, unranked="below")
    np.testing.assert_allclose(model.ranking_probabilities(rest, given=begin), whole / begun, rtol=1e-12)
    with pytest.raises(SettingsError, match="given has 1 rankings and X has 2"):
        model.ranking_probabilities([[0, 1, 2, 3]] * 2, given=begin)


@pytest.mark.parametrize("n_components", [1, 2, 4])
@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(4))
def test_most_probable_ranking__equals_the_best_of_all_orders(n_components, spread, seed):
    mixture = mixture_of(6, n_components, seed, spread)
    found = Model(mixture).most_probable_ranking()
    orders = list(itertools.permutations(range(6)))
    chances = [mixture.shares @ [chance(w, order) for w in np.exp(mixture.log_worths)] for order in orders]
    assert found.is_exact
    assert found.log_bound == found.log_probability
    assert found.probability == pytest.approx(max(chances), rel=1e-11)
    assert chances[orders.index(tuple(found.order.tolist()))] == pytest.approx(max(chances), rel=1e-11)
    assert (
        Model(mixture).most_probable_ranking(component=0).order.tolist() == np.argsort(-mixture.log_worths[0]).tolist()
    )


@pytest.mark.parametrize(
    ("n_items", "n_components", "spread", "seed"), [(4, 3, 0.6, 36), (5, 4, 0.3, 37), (6, 3, 0.6, 45)]
)
def test_most_probable_ranking__a_prefix_is_dropped_for_one_that_is_better_in_every_component(
    n_items, n_components, spread, seed
):
    # Of such mixtures a search that drops prefixes too early does not find the best order.
    rng = np.random.default_rng([n_components, int(10 * spread), seed, n_items])
    log_worths, shares = spread * rng.normal(size=(n_components, n_items)), rng.dirichlet(np.full(n_components, 3.0))
    found = most_probable(log_worths, np.log(shares))
    orders = itertools.permutations(range(n_items))
    best = max(shares @ [chance(w, order) for w in np.exp(log_worths)] for order in orders)
    assert found.probability == pytest.approx(best, rel=1e-11)


def test_most_probable_ranking__a_search_that_ends_early_has_a_bound():
    rng = np.random.default_rng(1)
    log_worths, log_shares = 0.3 * rng.normal(size=(3, 14)), np.log([0.4, 0.3, 0.3])
    early = most_probable(log_worths, log_shares, most_steps=3)
    longer = most_probable(log_worths, log_shares, most_steps=500)
    assert not early.is_exact
    assert early.log_probability <= longer.log_probability <= longer.log_bound <= early.log_bound
    assert sorted(early.order.tolist()) == list(range(14))


@pytest.mark.parametrize(("grouped", "ties"), [(False, "marginal"), (True, "marginal"), (False, "expand")])
def test_complete__equals_the_best_of_all_orders_that_agree_with_the_row(grouped, ties):
    for seed in range(6):
        mixture = mixture_of(6, 3, seed, spread=1.5)
        model = Model(mixture, ties)
        block = RankingBlock.from_rows(ROWS, n_items=6, groups=["ann"] * 3 + ["bob"] if grouped else None)
        quick, of_quick = model.complete(block, with_probabilities=True)
        best, of_best = model.complete(block, search=True, with_probabilities=True)
        for number, row in enumerate(ROWS):
            person = ([row], 0) if not grouped else (ROWS[:3], number) if number < 3 else (ROWS[3:], 0)
            if not grouped:
                person = ([row._replace(weight=1.0)], 0)
            orders, chances = posterior_of_orders(mixture, *person, ties)
            n_offered = len(orders[0])
            assert (best[number, n_offered:] == -1).all()
            if ties == "marginal" or max(map(len, row.ordered)) == 1:
                assert of_best[number] == pytest.approx(chances.max(), rel=1e-9)
            for order, p in ((best, of_best), (quick, of_quick)):
                assert chances[orders.index(tuple(order[number, :n_offered].tolist()))] == pytest.approx(
                    p[number], rel=1e-9
                )
            assert of_quick[number] <= of_best[number] * (1 + 1e-9)


def test_complete__of_evenly_ordered_ties_is_as_probable_as_their_pairs_say():
    model = Model(mixture_of(3, 2, seed=1), "expand")
    row = RankingBlock.from_rows([Ranking(((0, 1), (2,)), (), "absent", 1.0)], n_items=3)
    for search in (False, True):
        orders, probabilities = model.complete(row, search=search, with_probabilities=True)
        first, second, last = orders[0].tolist()
        assert (last, probabilities[0]) == (2, pytest.approx(0.5))
        assert model.pairwise_probabilities(given=row)[0, first, second] == 0.5


def test_complete__a_known_component_orders_by_its_worths():
    mixture = mixture_of(6, 3, seed=3)
    found = Model(mixture).complete([[2, 4]], component=1, unranked="below")
    by_worth = [item for item in np.argsort(-mixture.log_worths[1]).tolist() if item not in (2, 4)]
    assert found.tolist() == [[2, 4, *by_worth]]


# --- covariates of persons --------------------------------------------------------------------------------


def test_shares_of_persons_take_the_place_of_the_shares():
    mixture = mixture_of(6, 2, seed=11)
    model = Model(mixture)
    model.share_coefficients_ = np.array([[0.0, 0.0], [0.3, 1.5]])
    ages = np.array([-1.0, 0.0, 1.0, 2.0])
    block = RankingBlock.from_rows(ROWS, n_items=6)
    odds = np.exp(0.3 + 1.5 * ages)
    for number, row in enumerate(ROWS):
        shares = np.array([1.0, odds[number]]) / (1 + odds[number])
        single = Model(MixtureParams(mixture.log_worths, shares, mixture.item_names))
        alone = RankingBlock.from_rows([row], n_items=6)
        for predict in (
            lambda model, given, **own: model.choice_probabilities(given=given, **own),
            lambda model, given, **own: model.choice_probabilities([0, 5], given=given, **own),
            lambda model, given, **own: model.expected_ranks(given=given, **own),
            lambda model, given, **own: model.pairwise_probabilities(given=given, **own),
            lambda model, given, **own: model.top_k_probabilities(2, given=given, **own),
            lambda model, given, **own: model.ranking_probabilities(given, **own),
            lambda model, given, **own: model.ranking_probabilities(given, given=given, **own),
            lambda model, given, **own: model.complete(given, with_probabilities=True, **own)[1],
            lambda model, given, **own: model.memberships(given, table="dict", **own)["probability 1"],
        ):
            found = predict(model, block, membership_covariates=ages)[number]
            np.testing.assert_allclose(found, predict(single, alone)[0], rtol=1e-12)
    with pytest.raises(SettingsError, match="pass membership_covariates"):
        model.expected_ranks(given=block)
    assert model.expected_ranks(given=block, component=0).shape == (4, 6)


# --- stores -----------------------------------------------------------------------------------------------


def test_stores_are_lazy_and_give_the_same(tmp_path):
    store = pl.simulate(
        tmp_path / "s",
        n_rankings=300,
        n_items=5,
        n_components=2,
        length=2,
        unranked="below",
        leaf_rows=64,
        random_state=0,
    )
    model = Model(MixtureParams.load(store.location.sibling(".truth")))
    block = pl.rankings.block.concatenate(list(store.iter_leaves()))
    for predict in (
        lambda rows: model.choice_probabilities(given=rows),
        lambda rows: model.choice_probabilities(["1", "4"], given=rows),
        lambda rows: model.choice_probabilities(["1", "4"], given=rows, component="all"),
        lambda rows: model.pairwise_probabilities([0, 1], given=rows),
        lambda rows: model.pairwise_probabilities(given=rows, component="all"),
        lambda rows: model.expected_ranks(given=rows),
        lambda rows: model.top_k_probabilities(3, given=rows),
        model.ranking_probabilities,
        lambda rows: model.ranking_probabilities(rows, given=rows),
        model.complete,
        lambda rows: model.complete(rows, with_probabilities=True)[1],
    ):
        lazy, now = predict(store), predict(block)
        assert hasattr(lazy, "dask")
        assert lazy.shape == now.shape
        np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), now)


# --- for people -------------------------------------------------------------------------------------------


def test_tables():
    mixture = MixtureParams.of([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]], [0.6, 0.4], NAMES[:3])
    model = Model(mixture)
    worths = model.worths_frame()
    assert worths.columns.tolist() == ["item", "component 0", "component 1"]
    np.testing.assert_array_equal(worths["component 1"], mixture.log_worths[1])
    assert model.worths_frame(log=False)["component 0"].sum() == pytest.approx(1)
    errors = model.worths_frame(standard_errors=np.full((2, 3), 0.1))
    assert errors["standard error 1"].tolist() == [0.1] * 3
    with pytest.raises(SettingsError, match=r"shape \(2, 3\), as the log-worths have, but got \(1, 3\)"):
        model.worths_frame(standard_errors=np.full((1, 3), 0.1))
    top = model.top_items(2)
    assert top["component 0"].tolist() == ["tea", "mate"]
    assert top["component 1"].tolist() == ["coffee", "mate"]
    assert sorted(top["mixture"]) == sorted(NAMES[item] for item in np.argsort(-model.top_k_probabilities(2))[:2])
    assert model.top_items(9, table="arrow").num_rows == 3
    text = model.summary(2)
    assert "component 1, share 40.0 %" in text
    assert re.search(r"coffee +\S+ +0\.84\n +mate +\S+ +0\.11", text)


def test_memberships_have_ids_and_groups():
    model = Model(mixture_of(6, 2, seed=5))
    block = RankingBlock.from_rows(ROWS, n_items=6, ids=["a", "b", "c", "d"], groups=["ann", "ann", "ann", "bob"])
    found = model.memberships(block, table="dict")
    assert found["id"].tolist() == ["a", "b", "c", "d"]
    assert found["group"].tolist() == ["ann", "ann", "ann", "bob"]
    np.testing.assert_array_equal(found["probability 1"], model.predict_proba(block)[:, 1])
    np.testing.assert_array_equal(found["component"], model.predict(block))


def test_tables_without_pandas_are_arrays(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    model = Model(mixture_of(3, 1, seed=0))
    assert isinstance(model.worths_frame(), dict)
    with pytest.raises(SettingsError, match="pandas is not installed"):
        model.worths_frame(table="pandas")


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        (["cofee"], "offered: 'cofee' is not an item of the model; did you mean 'coffee'?"),
        ([0, 7], "offered: item 7 is out of range; items are numbered from 0 to 5"),
        ([-1], "offered: item -1 is out of range"),
        (["tea", 1], "offered has names and numbers"),
        ([0, 0], "offered has 0 more than once"),
        ([], "offered has no items"),
        ("tea", "offered must be a list of item names or numbers, but is 'tea'"),
        ([1.5], "offered: expected an item's name or its number, but got 1.5"),
        ([True], "expected an item's name or its number"),
    ],
)
def test_wrong_items_are_refused(offered, message):
    with pytest.raises(SettingsError) as error:
        Model(mixture_of(6, 2, seed=0)).choice_probabilities(offered)
    assert message in str(error.value)


def test_wrong_arguments_are_refused():
    model = Model(mixture_of(6, 2, seed=0))
    for component in (2, -1, "every", True, 0.5):
        with pytest.raises(
            SettingsError, match=r'component must be None .the mixture., "all", or a number from 0 to 1'
        ):
            model.expected_ranks(component=component)
    with pytest.raises(SettingsError, match="call once per component"):
        model.most_probable_ranking(component="all")
    with pytest.raises(SettingsError, match="call once per component"):
        model.complete([[0]], component="all", unranked="below")
    with pytest.raises(SettingsError, match="k must be"):
        model.top_k_probabilities(0)
    with pytest.raises(SettingsError, match="table must be"):
        model.worths_frame(table="panda")
    with pytest.raises(RankingError, match="wine"):
        model.expected_ranks(given=[["wine", "tea"]], unranked="below")


def test_an_estimator_that_is_not_fitted_says_so():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        pl.PlackettLuceMixture(2).expected_ranks()
