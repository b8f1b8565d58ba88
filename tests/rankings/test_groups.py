"""Groups share one membership, against the definition in exact decimals; where leaves are cut; equal rows merged."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp

from benchmarks.arena import panel as benchmark_panel
from benchmarks.arena import votes
from plmix_dist import PlackettLuceMixture, Spectral
from plmix_dist.errors import NoInformationWarning, NotIdentifiableWarning, RankingError
from plmix_dist.kernels import em_statistics, information, memberships_at, prepare, row_posteriors
from plmix_dist.metrics import match_components, matched_distance
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.groups import cut_leaves, default_leaf_rows, merge_equal_rows
from tests.helpers.fit_oracle import EXACT, block_of, exact_exp, exact_probability, exact_statistics, random_rows
from tests.helpers.oracle import PlainRankings, full, plain, plain_rankings, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Table = NDArray[np.float64]


class Panel(NamedTuple):
    """Rankings of persons, and a mixture."""

    n_items: int
    rows: list[Ranking]
    persons: list[int]
    log_worths: Table
    log_shares: Table

    @property
    def block(self) -> RankingBlock:
        return block_of(self.rows, self.n_items).replace(groups=np.array(self.persons))


def panel(seed: int, n_items: int = 5, n_components: int = 3, spread: float = 1.0) -> Panel:
    """Persons with one to six rankings of any kind, some of them given several times."""
    rng = random.Random(seed)
    persons = [person for person in range(12) for _ in range(rng.choice([1, 2, 3, 6]))]
    rows = [row._replace(weight=rng.choice([1.0, 1.0, 2.0, 0.5])) for row in random_rows(seed, n_items, len(persons))]
    draw = np.random.default_rng(seed)
    shares = draw.dirichlet(np.ones(n_components) * 3)
    return Panel(n_items, rows, persons, spread * draw.standard_normal((n_components, n_items)), np.log(shares))


def exact_persons(given: Panel) -> tuple[list[float], Table]:
    """Log-likelihood and posterior of each person: products of exact decimals."""
    logs, posteriors = [], []
    with localcontext(EXACT):
        for person in dict.fromkeys(given.persons):
            own = [row for row, owner in zip(given.rows, given.persons, strict=True) if owner == person]
            joint = []
            for worths, log_share in zip(given.log_worths, given.log_shares, strict=True):
                chance = exact_exp(float(log_share))
                for row in own:
                    chance *= exact_probability(row, given.n_items, worths) ** Decimal(row.weight)
                joint.append(chance)
            total = sum(joint)
            logs.append(float(total.ln()))
            posteriors.append([float(chance / total) for chance in joint])
    return logs, np.array(posteriors)


def by_row(given: Panel, posteriors: Table) -> Table:
    numbers = {person: number for number, person in enumerate(dict.fromkeys(given.persons))}
    return posteriors[[numbers[person] for person in given.persons]]


@pytest.mark.parametrize("spread", [1.0, 30.0, 100.0])
@pytest.mark.parametrize("seed", range(4))
def test_em_statistics__groups_by_definition(seed: int, spread: float) -> None:
    given = panel(seed, spread=spread)
    logs, posteriors = exact_persons(given)
    got = em_statistics(given.block, prepare(given.log_worths, given.log_shares), with_rates=True)
    exact = exact_statistics(given.rows, given.n_items, given.log_worths, given.log_shares, by_row(given, posteriors))
    assert_allclose(got.log_likelihood, math.fsum(logs), rtol=1e-12)
    assert_allclose(got.shares, posteriors.sum(axis=0), rtol=1e-9, atol=1e-300)  # a person counts once
    for name in ("expected_log_likelihood", "wins", "expected_wins"):
        assert_allclose(getattr(got, name), getattr(exact, name), rtol=1e-9, atol=1e-300, err_msg=name)
    assert_allclose(got.rates, exact.rates, rtol=1e-9, atol=1e-13)


def test_em_statistics__groups_at_frozen_posteriors() -> None:
    given = panel(7)
    frozen = given._replace(log_worths=given.log_worths[::-1].copy())
    logs, posteriors = exact_persons(frozen)
    got = em_statistics(
        given.block, prepare(given.log_worths, given.log_shares), prepare(frozen.log_worths, frozen.log_shares)
    )
    exact = exact_statistics(given.rows, given.n_items, given.log_worths, given.log_shares, by_row(given, posteriors))
    assert_allclose(got.log_likelihood, math.fsum(logs), rtol=1e-12)
    assert_allclose(got.shares, posteriors.sum(axis=0), rtol=1e-12)
    assert_allclose(got.expected_wins, exact.expected_wins, rtol=1e-11)
    assert_allclose(got.expected_log_likelihood, exact.expected_log_likelihood, rtol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_row_posteriors__rows_of_a_person_add_up_to_the_person(seed: int) -> None:
    given = panel(seed)
    logs, posteriors = exact_persons(given)
    found_logs, found = row_posteriors(given.block, prepare(given.log_worths, given.log_shares))
    assert_allclose(found, by_row(given, posteriors), rtol=1e-10)
    weights = np.array([row.weight for row in given.rows])
    of_person = np.bincount(np.unique(given.persons, return_inverse=True)[1], weights * found_logs)
    assert_allclose(of_person, logs, rtol=1e-11)


def test_row_posteriors__a_row_given_those_before() -> None:
    given = panel(3)
    found, _ = row_posteriors(given.block, prepare(given.log_worths, given.log_shares))
    last = len(given.rows) - 1
    before = given._replace(rows=given.rows[:last], persons=given.persons[:last])
    whole, part = math.fsum(exact_persons(given)[0]), math.fsum(exact_persons(before)[0])
    assert found[last] * given.rows[last].weight == pytest.approx(whole - part, rel=1e-9)


def test_memberships__rows_that_exclude_each_other() -> None:
    # Each row alone leaves one component a chance below the range of floats; both together leave them even.
    far = 300.0
    log_worths = np.array([[far, -far], [-far, far]])
    both = RankingBlock.from_array([[0, 1], [1, 0]]).replace(groups=np.array([0, 0]))
    found = memberships_at(both, prepare(log_worths, np.log([0.5, 0.5])))
    assert_allclose(found.posteriors, [[0.5, 0.5]], rtol=1e-12)
    assert_allclose(found.log_likelihoods, [-2 * far], rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_information__groups_by_differences_of_the_gradient(seed: int) -> None:
    given = panel(seed, n_components=2)
    block, n_items = given.block, given.n_items

    def gradient(flat: Table) -> Table:
        worths, shares = flat[:-2].reshape(2, n_items), flat[-2:]
        sums = em_statistics(block, prepare(worths, shares))
        n_persons = sums.shares.sum()
        # Log-shares are free here: the likelihood is divided by their sum.
        free = np.exp(shares) / np.exp(shares).sum()
        return np.concatenate([(sums.wins - sums.expected_wins).ravel(), sums.shares - n_persons * free])

    flat = np.concatenate([given.log_worths.ravel(), given.log_shares])
    step = 1e-5
    differences = np.array(
        [(gradient(flat - step * unit) - gradient(flat + step * unit)) / (2 * step) for unit in np.eye(len(flat))]
    )
    found = information(block, prepare(given.log_worths, given.log_shares)).observed
    assert_allclose(found, differences, atol=2e-7 * np.abs(differences).max())


# --- fits ------------------------------------------------------------------------------------------------------


def test_fit__votes_of_an_arena() -> None:
    # Pairs of models, ties and weights: with groups the components are found, vote by vote they are not.
    given = votes(1_000, 20, n_models=12)
    # Ties were drawn at random, so they say nothing.
    ignored = r"2,088 of 20,403 rankings tie all items that were on offer: they carry no information"
    with pytest.warns(NoInformationWarning, match=ignored):
        model = PlackettLuceMixture(3, random_state=0, ties="expand").fit(given.block)
    assert model.converged_
    assert matched_distance(model.log_worths_, given.log_worths) < 0.8
    assert_allclose(model.shares_, [0.5, 0.3, 0.2], atol=0.06)
    found = match_components(model.log_worths_, given.log_worths)[given.component] == model.predict(given.block)
    assert found.mean() > 0.85
    single = given.block.replace(groups=None)
    with pytest.warns(NotIdentifiableWarning), pytest.warns(NoInformationWarning, match=ignored):
        apart = PlackettLuceMixture(3, random_state=0, tol=1e-4, ties="expand").fit(single)
    assert matched_distance(apart.log_worths_, given.log_worths) > 2.0


def test_fit__criteria_count_persons() -> None:
    given = benchmark_panel(60, 4)
    model = PlackettLuceMixture(2, random_state=0).fit(given.block)
    n_parameters = 2 * 9 + 1
    assert model.score(given.block) == pytest.approx(model.log_likelihood_ / 60, rel=1e-12)
    assert model.bic(given.block) == pytest.approx(n_parameters * math.log(60) - 2 * model.log_likelihood_, rel=1e-12)
    assert model.shares_.sum() == pytest.approx(1.0)


def test_fit__groups_of_one_row_are_no_groups() -> None:
    block = benchmark_panel(200, 1).block
    start = np.random.default_rng(0).standard_normal((2, 10))
    grouped, single = (
        PlackettLuceMixture(2, init=start, random_state=0).fit(each) for each in (block, block.replace(groups=None))
    )
    assert_allclose(grouped.log_worths_, single.log_worths_, atol=1e-6)
    assert grouped.log_likelihood_ == pytest.approx(single.log_likelihood_, rel=1e-10)


def test_fit__three_copies_in_a_group_are_weight_three() -> None:
    block = benchmark_panel(100, 2).block
    weighted = block.replace(weights=np.tile([3.0, 1.0], 100))
    copies = block.take(np.repeat(np.arange(200), np.tile([3, 1], 100)))
    start = np.random.default_rng(1).standard_normal((2, 10))
    one, other = (PlackettLuceMixture(2, init=start, random_state=0).fit(each) for each in (weighted, copies))
    assert_allclose(one.log_worths_, other.log_worths_, atol=1e-6)
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-10)


def test_fit__ends_at_a_maximum() -> None:
    # Newton steps are on: an independent optimiser gains next to nothing from there.
    from scipy.optimize import minimize

    given = benchmark_panel(150, 3, n_items=5)
    block = given.block
    model = PlackettLuceMixture(2, random_state=0).fit(block)
    assert model.converged_
    table = block.to_array()
    person = np.arange(len(table)) // 3

    def negative(flat: Table) -> float:
        worths, odds, ghosts = flat[:10].reshape(2, 5), flat[10], flat[11:]
        joint = np.empty((150, 2))
        for k, own in enumerate(worths):
            chances = np.zeros(len(table))
            left = np.full(len(table), np.exp(own).sum())
            for place in range(3):
                chances += own[table[:, place]] - np.log(left)
                left = left - np.exp(own[table[:, place]])
            joint[:, k] = np.bincount(person, chances)
        joint -= np.logaddexp(0, [-odds, odds])
        prior = sum(
            np.logaddexp(0, own - ghost).sum() + np.logaddexp(0, ghost - own).sum()
            for own, ghost in zip(worths, ghosts, strict=True)
        )
        return float(-np.logaddexp(joint[:, 0], joint[:, 1]).sum() + model.alpha * prior)

    start = np.concatenate([model.log_worths_.ravel(), [math.log(model.shares_[0] / model.shares_[1])], model._ghosts])
    assert negative(start) == pytest.approx(-model.objective_, rel=1e-10)
    assert negative(start) - minimize(negative, start, method="BFGS").fun < 1e-6 * len(table)


def test_store__labels_of_any_kind_and_rows_without_weight(tmp_path: Path) -> None:
    given = benchmark_panel(90, 3)
    start = np.random.default_rng(2).standard_normal((2, 10))
    fits = []
    for number, labels in enumerate((np.arange(270) // 3, [f"person {row // 3}" for row in range(270)])):
        block = RankingBlock.from_rows(list(given.block.rows()), n_items=10, groups=list(labels))
        store = write_store(tmp_path / str(number), [[block[:120]], [block[120:]]], leaf_rows=31)
        fits.append(PlackettLuceMixture(2, init=start, random_state=0).fit(store, client=False))
        # The last person of a leaf and the first of the next stay two persons, in samples too.
        assert fits[-1].score(store) * 90 == pytest.approx(fits[-1].log_likelihood_, rel=1e-12)
    assert fits[0].log_worths_.tobytes() == fits[1].log_worths_.tobytes()
    # A person of whom no row has a weight is not there.
    weights = np.repeat(np.arange(90) < 60, 3).astype(float)
    fewer = PlackettLuceMixture(2, init=start, random_state=0).fit(given.block, sample_weight=weights)
    first = PlackettLuceMixture(2, init=start, random_state=0).fit(given.block[:180])
    assert_allclose(fewer.log_worths_, first.log_worths_, atol=1e-6)


@pytest.mark.parametrize(
    "settings", [{"init": Spectral(embedding="pairwise")}, {"init": "kernel"}, {"em": "exact"}, {"alpha": 0}]
)
def test_fit__other_ways_end_at_the_same_maximum(settings: dict[str, Any]) -> None:
    block = benchmark_panel(150, 5).block
    model = PlackettLuceMixture(2, random_state=0, **settings).fit(block)
    usual = PlackettLuceMixture(2, random_state=0, alpha=model.alpha, n_init=4).fit(block)
    assert model.objective_ == pytest.approx(usual.objective_, rel=1e-7)


def test_fit__rows_of_a_group_that_are_not_consecutive_are_refused() -> None:
    rows = RankingBlock.from_array([[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]])
    for labels in (["bob", "ann", "bob", "ann"], [7, 3, 7, 3]):
        block = RankingBlock.from_rows(list(rows.rows()), n_items=3, groups=labels)
        model = PlackettLuceMixture(1)
        with pytest.raises(RankingError, match=f"rows 1 and 3 have group {sorted(labels)[0]}, .* sort the rows"):
            model.fit(block)
    model.fit(rows)
    with pytest.raises(RankingError, match="sort the rows by group"):
        model.score(block)


def test_score_samples__a_row_of_weight_zero_has_the_limit_for_small_weights() -> None:
    from plmix_dist.kernels import prepare
    from plmix_dist.kernels.memberships import conditional_log_likelihoods
    from plmix_dist.rankings import RankingBlock

    params = prepare(np.zeros((2, 2)), np.log([0.3, 0.7]))
    logs = np.log([[0.8, 0.2], [0.6, 0.1]])

    def second(weight: float) -> float:
        block = RankingBlock.from_array([[0, 1], [0, 1]]).replace(
            groups=np.array([1, 1]), weights=np.array([1.0, weight])
        )
        return float(conditional_log_likelihoods(block, logs, params)[1])

    assert second(0.0) == pytest.approx(second(1e-6), abs=1e-5)


N_ITEMS, ALPHA = 6, 0.5


def drawn(seed: int, n_persons: int, n_choices: int, n_ordered: int) -> tuple[RankingBlock, list[list[Ranking]]]:
    """Persons of two kinds who each order the first items of several slates of four."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.5, (2, N_ITEMS))
    persons = []
    for _ in range(n_persons):
        utilities = truth[rng.integers(2)]
        rows = []
        for _ in range(n_choices):
            offered = rng.permutation(N_ITEMS)[:4]
            order = offered[np.argsort(-(utilities[offered] + rng.gumbel(size=4)))].tolist()
            rows.append(Ranking(tuple((item,) for item in order[:n_ordered]), tuple(order[n_ordered:]), "absent", 1.0))
        persons.append(rows)
    block = RankingBlock.from_rows([row for rows in persons for row in rows], n_items=N_ITEMS)
    return block.replace(groups=np.repeat(np.arange(n_persons), n_choices)), persons


def objective(flat: np.ndarray, persons: list[list[Ranking]]) -> float:
    """Log-likelihood of all persons plus log-prior, from the definitions: log-worths, ghosts, then logits of shares."""
    log_worths = flat[: 2 * N_ITEMS].reshape(2, N_ITEMS)
    ghosts, logits = flat[2 * N_ITEMS : -2], flat[-2:]
    log_shares = logits - logsumexp(logits)
    total = 0.0
    for rows in persons:
        joint = log_shares.copy()
        for row in rows:
            left = [item for place in row.ordered for item in place] + list(row.offered)
            for (item,) in row.ordered:
                if len(left) > 1:
                    joint += log_worths[:, item] - logsumexp(log_worths[:, left], axis=1)
                left.remove(item)
        total += logsumexp(joint)
    difference = log_worths - ghosts[:, None]
    return float(total - ALPHA * (np.logaddexp(0, difference) + np.logaddexp(0, -difference)).sum())


@pytest.mark.parametrize(("n_choices", "n_ordered"), [(1, 2), (4, 1), (3, 2)], ids=["top 2", "choices", "top 2s"])
def test_slates__an_independent_optimiser_gains_nothing(n_choices: int, n_ordered: int) -> None:
    block, persons = drawn(n_choices, 60, n_choices, n_ordered)
    if n_choices == 1:
        block = block.replace(groups=None)
    model = PlackettLuceMixture(2, alpha=ALPHA, random_state=0).fit(block)
    ours = np.concatenate([model.log_worths_.ravel(), model._ghosts, np.log(model.shares_)])
    assert objective(ours, persons) == pytest.approx(model.objective_, abs=1e-8)
    best = minimize(lambda flat: -objective(flat, persons), ours, method="BFGS", options={"maxiter": 30})
    assert -best.fun - model.objective_ < 1e-6 * len(persons)


# --- leaves: where runs of rows are cut ---


@given(st.integers(0, 200), st.integers(1, 50))
def test_cut_leaves__law(n_rows: int, leaf_rows: int) -> None:
    leaves = cut_leaves(n_rows, leaf_rows)
    assert sum(leaves) == n_rows
    assert all(rows == leaf_rows for rows in leaves[:-1])
    assert all(0 < rows <= leaf_rows for rows in leaves)


@given(st.lists(st.integers(1, 12)), st.integers(1, 10))
def test_cut_leaves__keeps_groups_whole(group_sizes: list[int], leaf_rows: int) -> None:
    group_ends = list(itertools.accumulate(group_sizes))
    starts = np.array([place == 0 for size in group_sizes for place in range(size)], np.bool_)
    leaves = cut_leaves(len(starts), leaf_rows, starts)
    assert sum(leaves) == len(starts)
    leaf_ends = list(itertools.accumulate(leaves))
    assert set(leaf_ends) <= set(group_ends)
    for first, last in itertools.pairwise([0, *leaf_ends]):
        inside = [end for end in group_ends if first < end <= last]
        # A leaf is too large only if it is one group, and never so small that the next group would fit.
        assert last - first <= leaf_rows or len(inside) == 1
        following = next((end for end in group_ends if end > last), None)
        assert following is None or following - first > leaf_rows


@given(st.lists(st.integers(1, 4)), st.integers(1, 10))
def test_cut_leaves__lone_rows_are_groups_of_one(group_sizes: list[int], leaf_rows: int) -> None:
    n_rows = sum(group_sizes)
    assert cut_leaves(n_rows, leaf_rows, np.ones(n_rows, np.bool_)) == cut_leaves(n_rows, leaf_rows)


@pytest.mark.parametrize("n_items", [2, 100, 2048, 2049, 5000, 20_000])
def test_default_leaf_rows__law(n_items: int) -> None:
    rows = default_leaf_rows(n_items)
    assert rows >= max(4096, 2 * n_items)
    assert rows == 4096 or rows < 4 * n_items
    assert bin(rows).count("1") == 1


# --- equal rows merged into one, with the sum of their weights ---


@given(plain_rankings(max_rows=6), st.data())
def test_merge__counts_as_a_counter_does(distinct: PlainRankings, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, len(distinct.rows) - 1), max_size=30)) if distinct.rows else []
    # Integer weights, so that their sums do not depend on the order.
    rows = [distinct.rows[number]._replace(weight=float(data.draw(st.integers(1, 9)))) for number in numbers]
    counts: Counter[object] = Counter()
    for row in rows:
        counts[row._replace(weight=1.0)] += row.weight
    merged = merge_equal_rows(PlainRankings(distinct.n_items, rows).block())
    # A Counter keeps the order of first occurrence, and so must the merged block.
    assert plain(merged).rows == [row._replace(weight=weight) for row, weight in counts.items()]


def test_merge__rows_alike_but_for_one_thing_stay_apart(every_column: PlainRankings) -> None:
    tied = every_column.rows[0]
    rows = [
        tied,
        tied._replace(unranked="absent"),
        tied._replace(ordered=((0,), (1,), (2,), (3,))),
        tied._replace(ordered=((0,), (1, 2, 3))),
        tied._replace(ordered=((0,), (1, 2)), offered=(3, 4)),
        tied._replace(ordered=((0,), (1, 2), (4,)), offered=(3,)),
    ]
    merged = merge_equal_rows(PlainRankings(6, rows * 2).block())
    assert plain(merged).rows == [row._replace(weight=5.0) for row in rows]


def test_merge__drops_ids() -> None:
    block = RankingBlock.from_rows([full(0, 1), full(0, 1)], n_items=2, ids=["a", "b"])
    assert merge_equal_rows(block).ids is None


def test_merge__groups_are_refused() -> None:
    block = RankingBlock.from_rows([full(0, 1), full(0, 1)], n_items=2, groups=["ann", "bob"])
    with pytest.raises(RankingError, match="rankings with groups cannot be merged"):
        merge_equal_rows(block)


def test_merge__items_of_two_bytes() -> None:
    # Items with equal low bytes are different items.
    block = RankingBlock.from_array([[1, 257], [257, 1], [1, 513], [1, 257]], n_items=600, unranked="absent")
    assert merge_equal_rows(block).weights.tolist() == [2.0, 1.0, 1.0]
