"""Standard errors beside numerical second derivatives of a log-posterior written out in plain NumPy."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import least_squares
from sklearn.exceptions import NotFittedError

from plmix_dist import MixtureParams, PlackettLuceMixture, Ranking, RankingBlock, SpectralPlackettLuce, ingest
from plmix_dist.datasets.given import as_rankings
from plmix_dist.errors import NotConvergedWarning, NotIdentifiableWarning, SettingsError, ShrunkenWarning
from plmix_dist.passes.request import Request
from plmix_dist.passes.threads import ThreadedPasses
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.uncertainty.information import information_pass
from plmix_dist.uncertainty.quasi_variances import quasi_variances
from plmix_dist.uncertainty.standard_errors import standard_errors as module_function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

SHARED = Path(__file__).resolve().parents[3] / "shared"
TIGHT = {"tol": 1e-12, "max_iter": 3_000, "random_state": 0}


# --- the oracle --------------------------------------------------------------------------------------------


def orders_of(row: Ranking) -> list[tuple[int, ...]]:
    """All orders that a row with ties allows."""
    places = [list(permutations(place)) for place in row.ordered]
    return [tuple(item for place in chosen for item in place) for chosen in product(*places)]


def order_chance(order: Sequence[int], on_offer: set[int], worths: NDArray[Any]) -> Any:
    chance, left = 1.0, set(on_offer)
    for item in order:
        if len(left) > 1:
            chance = chance * worths[item] / sum(worths[other] for other in left)
        left.remove(item)
    return chance


def row_chance(row: Ranking, worths: NDArray[Any]) -> Any:
    """The probability of a row: the sum over its orders."""
    n_items = len(worths)
    orders = orders_of(row)
    on_offer = set(range(n_items)) if row.unranked == "below" else {*orders[0], *row.offered}
    return sum(order_chance(order, on_offer, worths) for order in orders)


def log_posterior(
    rows: Sequence[Ranking], persons: Sequence[int], alpha: float, shape: tuple[int, int], theta: NDArray[Any]
) -> Any:
    """Of log-worths, ghosts and logits of shares, in one vector; analytic, so that it takes complex numbers."""
    n_components, n_items = shape
    worths = np.exp(theta[: n_components * n_items].reshape(shape))
    ghosts = np.exp(theta[n_components * n_items : -n_components])
    shares = np.exp(theta[-n_components:])
    shares = shares / shares.sum()
    total = 0.0
    for person in dict.fromkeys(persons):
        own = [row for row, of in zip(rows, persons, strict=True) if of == person]
        grouped = len(set(persons)) < len(persons)
        chances = [
            shares[k] * np.prod([row_chance(row, worths[k]) ** (row.weight if grouped else 1) for row in own])
            for k in range(n_components)
        ]
        total = total + (1 if grouped else own[0].weight) * np.log(sum(chances))
    for k in range(n_components):
        against = worths[k] / (worths[k] + ghosts[k])
        total = total + alpha * np.sum(np.log(against) + np.log(1 - against))
    return total


def gradient(function: Callable[[NDArray[Any]], Any], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """By complex steps, to the last digit."""
    steps = 1e-30j * np.eye(len(at))
    return np.array([function(at + step).imag for step in steps]) / 1e-30


def second_derivatives(
    function: Callable[[NDArray[Any]], Any], at: NDArray[np.float64], h: float = 1e-5
) -> NDArray[np.float64]:
    moves = h * np.eye(len(at))
    found = np.array([(gradient(function, at + move) - gradient(function, at - move)) / (2 * h) for move in moves])
    return (found + found.T) / 2


def flat_point(model: PlackettLuceMixture) -> NDArray[np.float64]:
    return np.concatenate([model.log_worths_.ravel(), model._ghosts, np.log(model.shares_)])


def oracle_covariance(model: PlackettLuceMixture, rows: Sequence[Ranking], persons: Sequence[int]) -> Any:
    """Of centred log-worths and shares: the inverse in a basis of what is free."""
    n_components, n_items = model.log_worths_.shape
    n_worths = n_components * n_items
    hessian = -second_derivatives(
        lambda theta: log_posterior(rows, persons, model.alpha, (n_components, n_items), theta), flat_point(model)
    )
    columns = []
    for k in range(n_components):
        for item in range(n_items - 1):
            column = np.zeros(len(hessian))
            column[k * n_items + item], column[(k + 1) * n_items - 1] = 1.0, -1.0
            columns.append(column)
        if model.alpha:
            columns.append(np.eye(len(hessian))[n_worths + k])
    if model.shares is None:
        columns += [np.eye(len(hessian))[n_worths + n_components + k] for k in range(1, n_components)]
    basis = np.array(columns).T
    covariance = basis @ np.linalg.inv(basis.T @ hessian @ basis) @ basis.T
    slopes = np.zeros((n_worths + n_components, len(hessian)))
    slopes[:n_worths, :n_worths] = np.eye(n_worths)
    slopes[n_worths:, -n_components:] = np.diag(model.shares_) - np.outer(model.shares_, model.shares_)
    return slopes @ covariance @ slopes.T


def close(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> None:
    assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


# --- data --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_components() -> RankingBlock:
    worths = np.array([[2.0, 1.0, 0.0, -1.0, -2.0], [-1.5, 0.5, 1.5, -1.0, 1.0]])
    return draw_rankings(worths, np.array([0.6, 0.4]), 120, np.random.default_rng(4))[0]


@pytest.fixture(scope="module")
def partial_rows() -> list[Ranking]:
    """Top-k rows, subsets, weights and ties of up to four items."""
    rng, rows = np.random.default_rng(1), []
    utilities = np.array([1.5, 1.0, 0.0, -0.5, -1.0])
    for number in range(60):
        order = np.argsort(-(utilities * (1 if number % 3 else -1) + rng.gumbel(size=5))).tolist()
        weight = float(1 + number % 3)
        if number % 4 == 0:
            rows.append(Ranking(((order[0],), (order[1], order[2])), (), "below", weight))
        elif number % 4 == 1:
            rows.append(Ranking(((order[0], order[1]), (order[2],), (order[3],)), (), "absent", weight))
        elif number % 4 == 2:
            rows.append(Ranking((tuple(order[:4]),), (order[4],), "absent", weight))
        else:
            rows.append(Ranking(tuple((item,) for item in order[:2]), (), "below", weight))
    return rows


# --- numerical second derivatives --------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_two_components(two_components: RankingBlock, alpha: float) -> None:
    model = PlackettLuceMixture(2, alpha=alpha, **TIGHT).fit(two_components)
    rows = list(two_components.rows())
    wanted = oracle_covariance(model, rows, range(len(rows)))
    found = model.standard_errors(two_components)
    close(found.covariance, wanted)
    close(found.log_worths.ravel(), np.sqrt(np.diag(wanted))[:10])
    close(found.shares, np.sqrt(np.diag(wanted))[10:])
    assert found.unidentified == ()
    assert found.joint


def test_fixed_shares(two_components: RankingBlock) -> None:
    model = PlackettLuceMixture(2, shares=[0.6, 0.4], **TIGHT).fit(two_components)
    rows = list(two_components.rows())
    found = model.standard_errors(two_components)
    close(found.covariance[:10, :10], oracle_covariance(model, rows, range(len(rows)))[:10, :10])
    assert_array_equal(found.shares, np.zeros(2))


def test_ties__marginal(partial_rows: list[Ranking]) -> None:
    block = RankingBlock.from_rows(partial_rows, n_items=5)
    model = PlackettLuceMixture(2, ties="marginal", **TIGHT).fit(block)
    found = model.standard_errors(block)
    close(found.covariance, oracle_covariance(model, partial_rows, range(len(partial_rows))))
    assert found.n_sampled == 0


def test_ties__groups(partial_rows: list[Ranking]) -> None:
    persons = [number // 3 for number in range(len(partial_rows))]
    block = RankingBlock.from_rows(partial_rows, n_items=5, groups=persons)
    model = PlackettLuceMixture(2, ties="marginal", **TIGHT).fit(block)
    close(model.standard_errors(block).covariance, oracle_covariance(model, partial_rows, persons))


def test_ties__expand_is_the_fit_of_linear_extensions(partial_rows: list[Ranking]) -> None:
    block = RankingBlock.from_rows(partial_rows, n_items=5)
    model = PlackettLuceMixture(1, **TIGHT).fit(block)
    rows = []
    for row in partial_rows:
        whole = len(row.ordered) > 1 and not row.offered and row.unranked == "absent" and len(row.ordered[-1]) > 1
        assert not whole, "ties in last place are not ties"
        orders = orders_of(row)
        places = [tuple((item,) for item in order) for order in orders]
        rows += [row._replace(ordered=one, weight=row.weight / len(orders)) for one in places]
    close(model.standard_errors(block).covariance, oracle_covariance(model, rows, range(len(rows))))


def test_ties__more_than_24_orders_are_counted() -> None:
    rows = [Ranking((tuple(range(5)), (5,)), (6,), "absent", 1.0), Ranking(((6,), (0,)), (), "below", 1.0)]
    block = RankingBlock.from_rows(rows, n_items=7)
    model = PlackettLuceMixture(1, ties="marginal", **TIGHT).fit(block)
    assert model.standard_errors(block).n_sampled == 1


@pytest.mark.skipif(not (SHARED / "data/nascar2002").is_dir(), reason="the races are not beside the repository")
def test_nascar__one_component(tmp_path: Path) -> None:
    store = ingest(SHARED / "data/nascar2002/nascar2002.csv", tmp_path / "nascar", unranked="absent")
    rows = []
    for row in store.block().rows():
        places = tuple((int(store.item_names[item]) - 1,) for (item,) in row.ordered)
        rows.append(row._replace(ordered=tuple(place for place in places if place[0] < 83)))
    block = RankingBlock.from_rows(rows, n_items=83)
    model = PlackettLuceMixture(1, alpha=0, **TIGHT).fit(block)
    orders = [np.array([item for (item,) in row.ordered]) for row in rows]

    def slopes(log_worths: NDArray[np.float64]) -> NDArray[np.float64]:
        found, worths = np.zeros(83), np.exp(log_worths)
        for order in orders:
            left = np.cumsum(worths[order][::-1])[::-1]
            found[order[:-1]] += 1
            found[order] -= worths[order] * np.cumsum(np.append(1 / left[:-1], 0.0))
        return found

    moves = 1e-5 * np.eye(83)
    point = model.log_worths_[0]
    hessian = -np.array([(slopes(point + move) - slopes(point - move)) / 2e-5 for move in moves])
    wanted = np.linalg.inv(hessian + 1 / 83) - 1 / 83  # centred: the direction of a constant is taken out again
    found = model.standard_errors(block)
    close(found.covariance[:83, :83], wanted)
    close(found.log_worths[0], np.sqrt(np.diag(wanted)))


# --- sandwich, blocks, weights, bits -----------------------------------------------------------------------


def oracle_sandwich(model: PlackettLuceMixture, rows: Sequence[Ranking], persons: Sequence[int]) -> Any:
    """Numerical scores of persons between two inverses, of one component without a prior."""
    inverse = oracle_covariance(model, rows, persons)[:-1, :-1]
    shape = model.log_worths_.shape
    n_items = shape[1]
    meat = np.zeros((n_items, n_items))
    for person in dict.fromkeys(persons):
        own = [row for row, of in zip(rows, persons, strict=True) if of == person]
        grouped = len(set(persons)) < len(persons)
        score = np.zeros(n_items)
        for row in own:
            slope = gradient(
                lambda theta, row=row: log_posterior([row._replace(weight=1.0)], [0], 0.0, shape, theta),
                flat_point(model),
            )[:n_items]
            score += slope * (row.weight if grouped else 1)
        meat += np.outer(score, score) * (1 if grouped else own[0].weight)
    return inverse @ meat @ inverse


@pytest.mark.parametrize("alpha", [0.1, 2.0])
@pytest.mark.promise(54)
def test_sandwich__the_prior_counts_as_rankings(alpha: float) -> None:
    """The covariance with a prior is that of a fit without one to rows and to pairs of every item and a ghost item."""
    block, _ = draw_rankings(np.array([[2.0, 0.0, -0.5, -3.0]]), np.ones(1), 50, np.random.default_rng(2))
    model = PlackettLuceMixture(1, alpha=alpha, **TIGHT).fit(block)
    pairs = [pair for item in range(4) for pair in ((item, 4), (4, item))]
    rows = [*block.rows(), *(Ranking(((a,), (b,)), (), "absent", alpha) for a, b in pairs)]
    with_ghost = RankingBlock.from_rows(rows, n_items=5)
    plain = PlackettLuceMixture(1, alpha=0, **TIGHT).fit(with_ghost)
    centre = np.hstack([np.eye(4) - 0.25, np.zeros((4, 1))])
    for kind in ("information", "sandwich"):
        wanted = centre @ plain.standard_errors(with_ghost, kind=kind).covariance[:5, :5] @ centre.T
        close(model.standard_errors(block, kind=kind).covariance[:4, :4], wanted)


def test_shrinkage__is_what_a_fit_to_expected_rankings_moves() -> None:
    """Rankings in the proportions of the fit itself give back its values, moved by the prior."""
    worths, alpha = np.array([1.0, 0.4, -0.2, -1.2]), 0.5
    orders = list(permutations(range(4)))
    chances = np.array([order_chance(order, set(range(4)), np.exp(worths)) for order in orders])
    rows = [
        Ranking(tuple((item,) for item in order), (), "absent", 2_000 * chance)
        for order, chance in zip(orders, chances, strict=True)
    ]
    block = RankingBlock.from_rows(rows, n_items=4)
    model = PlackettLuceMixture(1, alpha=alpha, **TIGHT).fit(block)
    errors = model.standard_errors(block)
    moved = model.log_worths_[0] - worths
    assert np.abs(moved).max() > 1e-4
    assert_allclose(errors.shrinkage[0], moved, rtol=2e-3, atol=1e-7)
    assert_allclose(errors.slopes[0], np.polyfit(worths, model.log_worths_[0], 1)[0], atol=1e-6)
    assert "given 1 component" in errors.notes[0]
    assert "to 100 % of their spread" in errors.notes[1]
    without = PlackettLuceMixture(1, alpha=0, **TIGHT).fit(block).standard_errors(block)
    assert_array_equal(without.shrinkage, 0.0)
    assert len(without.notes) == 1


@pytest.mark.promise(54)
def test_shrunken__items_that_were_never_chosen() -> None:
    rows = np.array([[0, 1], [1, 0], [2, 1], [0, 2]] * 25)
    model = PlackettLuceMixture(1, unranked="below", **TIGHT).fit(rows, n_items=5)
    with pytest.warns(ShrunkenWarning, match=r"component 0: '3', '4', and has moved them by up to .*alpha=0.1"):
        model.standard_errors(rows)
    PlackettLuceMixture(1, alpha=0.1, unranked="below", **TIGHT).fit(rows, n_items=5).standard_errors(rows)


def test_sandwich__weights_of_ties_that_expand_are_copies() -> None:
    rng = np.random.default_rng(1)
    orders = [tuple(rng.permutation(4).tolist()) for _ in range(30)]
    once = [Ranking(((a, b), (c,), (d,)), (), "absent", 1.0) for a, b, c, d in orders]
    weighted = [row._replace(weight=1.0 + number % 3) for number, row in enumerate(once)]
    copied = [row for number, row in enumerate(once) for _ in range(1 + number % 3)]
    found = []
    for rows in (weighted, copied):
        block = RankingBlock.from_rows(rows, n_items=4)
        model = PlackettLuceMixture(1, alpha=0, ties="expand", **TIGHT).fit(block)
        found.append(model.standard_errors(block, kind="sandwich").covariance)
    close(*found)


@pytest.mark.parametrize("per_person", [1, 3])
def test_sandwich__clustered_by_group(per_person: int) -> None:
    block, _ = draw_rankings(np.array([[1.0, 0.0, -0.5, 0.3]]), np.ones(1), 60, np.random.default_rng(2))
    rows = [row._replace(weight=1.0 + number % 2) for number, row in enumerate(block.rows())]
    persons = [number // per_person for number in range(60)]
    groups = None if per_person == 1 else persons
    given = RankingBlock.from_rows(rows, n_items=4, groups=groups)
    model = PlackettLuceMixture(1, alpha=0, **TIGHT).fit(given)
    found = model.standard_errors(given, kind="sandwich")
    close(found.covariance[:4, :4], oracle_sandwich(model, rows, persons))


def test_sandwich__extensions_of_a_ranking_are_one_unit() -> None:
    # Two orders of one tie are one ranking: weights of linear extensions must not count as rankings.
    rng = np.random.default_rng(0)
    orders = [tuple(rng.permutation(4).tolist()) for _ in range(50)]
    rows = [Ranking(((a, b), (c,), (d,)), (), "absent", 1.0) for a, b, c, d in orders]
    block = RankingBlock.from_rows(rows, n_items=4)
    model = PlackettLuceMixture(1, alpha=0, **TIGHT).fit(block)
    bread = model.standard_errors(block).covariance[:4, :4]
    scores = []
    for row in rows:
        plain = [row._replace(ordered=tuple((item,) for item in order)) for order in orders_of(row)]
        slopes = [
            gradient(lambda theta, one=one: log_posterior([one], [0], 0.0, (1, 4), theta), flat_point(model))[:4]
            for one in plain
        ]
        scores.append(np.mean(slopes, axis=0))
    meat = np.array(scores).T @ np.array(scores)
    close(model.standard_errors(block, kind="sandwich").covariance[:4, :4], bread @ meat @ bread)


def test_blocks__conditional_on_the_other_components(
    two_components: RankingBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PlackettLuceMixture(2, alpha=0, **TIGHT).fit(two_components)
    whole = model.standard_errors(two_components)
    monkeypatch.setattr("plmix_dist.uncertainty.standard_errors._MOST_PARAMETERS", 5)
    found = model.standard_errors(two_components)
    assert not found.joint
    rows = list(two_components.rows())
    hessian = -second_derivatives(
        lambda theta: log_posterior(rows, range(len(rows)), 0.0, (2, 5), theta), flat_point(model)
    )
    for k in range(2):
        own = hessian[k * 5 : (k + 1) * 5, k * 5 : (k + 1) * 5]
        # Without constants on all items the block is not singular, but its inverse is that of centred log-worths.
        basis = np.linalg.qr(np.eye(5) - 0.2)[0][:, :4]
        close(found.blocks[k], basis @ np.linalg.inv(basis.T @ own @ basis) @ basis.T)
    assert (found.log_worths <= whole.log_worths * (1 + 1e-9)).all(), "what is ignored only makes them smaller"
    assert found.covariance.shape == whole.covariance.shape
    assert_array_equal(found.covariance[:5, 5:10], 0)
    assert (found.pairwise_probabilities().standard_errors >= 0).all()


def test_weights_are_copies(two_components: RankingBlock) -> None:
    weights = np.random.default_rng(0).integers(1, 4, two_components.n_rankings)
    copies = two_components.take(np.repeat(np.arange(two_components.n_rankings), weights))
    model = PlackettLuceMixture(2, **TIGHT).fit(copies)
    for kind in ("information", "sandwich"):
        of_copies = model.standard_errors(copies, kind=kind)
        weighted = model.standard_errors(two_components, sample_weight=weights.astype(float), kind=kind)
        assert_allclose(weighted.covariance, of_copies.covariance, rtol=1e-9, atol=1e-14)


def test_same_bits_on_any_workers(client: Any) -> None:
    worths = np.random.default_rng(3).normal(size=(3, 8))
    block, _ = draw_rankings(worths, np.array([0.5, 0.3, 0.2]), 30_000, np.random.default_rng(5))
    model = PlackettLuceMixture(3, random_state=0).fit(block, client=False)
    here = model.standard_errors(block, client=False)
    there = model.standard_errors(block, client=client)
    assert_array_equal(here.covariance, there.covariance)
    request = Request(information_pass("expand", joint=True), MixtureParams(model.log_worths_, model.shares_))
    totals = []
    for n_threads in (1, 2):
        passes = ThreadedPasses(as_rankings(block), n_threads=n_threads)
        totals.append(passes.run([request])[0].results[0])
        passes.release()
    assert_array_equal(totals[0].observed[0], totals[1].observed[0])


# --- delta method ------------------------------------------------------------------------------------------


def numerical_error(
    function: Callable[[NDArray[np.float64]], float], model: PlackettLuceMixture, covariance: Any
) -> float:
    """The delta method with numerical derivatives in log-worths and shares."""
    at = np.concatenate([model.log_worths_.ravel(), model.shares_])
    moves = 1e-6 * np.eye(len(at))
    slope = np.array([(function(at + move) - function(at - move)) / 2e-6 for move in moves])
    return float(np.sqrt(slope @ covariance @ slope))


def test_delta_method(two_components: RankingBlock) -> None:
    model = PlackettLuceMixture(2, **TIGHT).fit(two_components)
    found = model.standard_errors(two_components)

    def before(at: NDArray[np.float64], k: int) -> float:
        worths = np.exp(at[:10].reshape(2, 5)[k])
        return float(worths[1] / (worths[1] + worths[3]))

    wanted = [numerical_error(lambda at, k=k: before(at, k), model, found.covariance) for k in range(2)]
    for k in range(2):
        of_component = found.pairwise_probabilities(k)
        assert of_component.standard_errors[1, 3] == pytest.approx(wanted[k], rel=1e-6)
        assert found.differences(k).standard_errors[1, 3] == pytest.approx(
            numerical_error(lambda at, k=k: float(at[5 * k + 1] - at[5 * k + 3]), model, found.covariance), rel=1e-6
        )
    mixed = found.pairwise_probabilities()
    wanted_mixed = numerical_error(
        lambda at: float(at[10] * before(at, 0) + at[11] * before(at, 1)), model, found.covariance
    )
    assert mixed.standard_errors[1, 3] == pytest.approx(wanted_mixed, rel=1e-6)
    weights = np.zeros(12)
    weights[[1, 8]] = 1.0, -1.0
    assert found.linear(weights) == pytest.approx(np.sqrt(weights @ found.covariance @ weights), rel=1e-9)


def test_intervals(two_components: RankingBlock) -> None:
    model = PlackettLuceMixture(2, **TIGHT).fit(two_components)
    found = model.standard_errors(two_components)
    (low, high), (low_share, high_share) = found.intervals(0.95)
    assert_allclose(high - low, 2 * 1.959963985 * found.log_worths, rtol=1e-8)
    assert ((low_share > 0) & (low_share < model.shares_)).all()
    assert ((high_share < 1) & (high_share > model.shares_)).all()


# --- quasi-variances ---------------------------------------------------------------------------------------


def test_quasi_variances__three_items_are_exact() -> None:
    factor = np.random.default_rng(0).normal(size=(3, 3))
    covariance = factor @ factor.T
    found = quasi_variances(covariance)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        assert found.values[i] + found.values[j] == pytest.approx(variance, rel=1e-9)
    assert max(np.abs(found.worst_errors)) < 1e-8


def test_quasi_variances__least_squares_on_logs() -> None:
    factor = np.random.default_rng(1).normal(size=(6, 9))
    covariance = factor @ factor.T
    found = quasi_variances(covariance)
    first, second = np.triu_indices(6, 1)
    logs = np.log(np.diag(covariance)[first] + np.diag(covariance)[second] - 2 * covariance[first, second])
    wanted = least_squares(
        lambda log_q: np.log(np.exp(log_q[first]) + np.exp(log_q[second])) - logs, np.zeros(6), xtol=1e-15, ftol=1e-15
    )
    assert_allclose(found.values, np.exp(wanted.x), rtol=1e-5)
    errors = np.sqrt((found.values[first] + found.values[second]) / np.exp(logs)) - 1
    assert_allclose(found.worst_errors, (errors.min(), errors.max()), rtol=1e-9)


# --- what is not identified --------------------------------------------------------------------------------


def test_items_never_compared__prior() -> None:
    rows = [[0, 1, 2]] * 5 + [[2, 1, 0]] * 4 + [[1, 0, 2]] * 3
    block = RankingBlock.from_array(rows, n_items=4, unranked="absent")
    model = PlackettLuceMixture(1, **TIGHT).fit(block)
    with pytest.warns(
        NotIdentifiableWarning, match=r"component 0: '3'\): their standard errors are those of the prior"
    ):
        found = model.standard_errors(block)
    ((component, items),) = found.unidentified
    assert (component, items) == (0, ("3",))
    assert np.isfinite(found.log_worths).all()


def at_point(worths: Any, shares: Any, ghosts: Any = None) -> PlackettLuceMixture:
    """A model at given parameters without a prior, as if it were fitted."""
    mixture = MixtureParams(
        np.asarray(worths, float), np.asarray(shares, float), tuple(str(item) for item in range(len(worths[0])))
    )
    model = PlackettLuceMixture(len(worths), alpha=0)
    model._set_mixture(mixture)
    model._ghosts = np.zeros(len(worths))
    return model


def test_items_never_compared__no_prior() -> None:
    # Items 0 to 2 are never compared with 3 and 4, and these are at even odds with one another.
    rows = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0], [3, 4, -1], [4, 3, -1]]
    block = RankingBlock.from_array(rows, n_items=5, unranked="absent")
    with pytest.warns(NotIdentifiableWarning, match=r"component 0: '3', '4'\): they have no standard error"):
        found = at_point(np.zeros((1, 5)), [1.0]).standard_errors(block)
    assert np.isnan(found.log_worths).all(), "the mean of all items moves with them"
    differences = found.differences().standard_errors
    assert np.isfinite(differences[:3, :3]).all()
    assert np.isfinite(differences[3:, 3:]).all()
    assert np.isnan(differences[:3, 3:]).all()
    assert differences[3, 4] == pytest.approx(np.sqrt(1 / (2 * 0.25)))
    assert found.linear([1, -1, 0, 0, 0, 0]) == pytest.approx(differences[0, 1])
    assert np.isnan(found.linear([1, 0, 0, -1, 0, 0]))
    with pytest.raises(SettingsError, match="not identified"):
        found.quasi_variances()


def test_collapsed_component(two_components: RankingBlock) -> None:
    one = PlackettLuceMixture(1, alpha=0, **TIGHT).fit(two_components)
    model = at_point([one.log_worths_[0], np.zeros(5)], [1.0, 0.0])
    with pytest.warns(NotIdentifiableWarning, match="component 1"):
        found = model.standard_errors(two_components)
    assert_allclose(found.log_worths[0], one.standard_errors(two_components).log_worths[0], rtol=1e-9)
    assert np.isnan(found.log_worths[1]).all()
    assert any(part.component is None for part in found.unidentified), "its share is not identified either"


def test_equal_components__the_shares_change_nothing(two_components: RankingBlock) -> None:
    one = PlackettLuceMixture(1, alpha=0, **TIGHT).fit(two_components)
    model = at_point([one.log_worths_[0]] * 2, [0.5, 0.5])
    with pytest.warns(NotIdentifiableWarning, match="the shares"):
        found = model.standard_errors(two_components)
    assert np.isnan(found.shares).all()


# --- errors ------------------------------------------------------------------------------------------------


def test_other_rankings_are_noticed(two_components: RankingBlock) -> None:
    model = PlackettLuceMixture(2, **TIGHT).fit(two_components)
    with pytest.warns(NotConvergedWarning, match="would move the parameters by .* standard errors"):
        model.standard_errors(two_components[:60])


def test_settings(two_components: RankingBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    model = PlackettLuceMixture(1, **TIGHT).fit(two_components)
    found = model.standard_errors(two_components)
    with pytest.raises(SettingsError, match="kind must be"):
        model.standard_errors(two_components, kind="sandwitch")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="level must lie between 0 and 1, but is 95"):
        found.intervals(95)
    with pytest.raises(SettingsError, match="component must be below 1"):
        found.differences(1)
    with pytest.raises(SettingsError, match="6 in all, but have shape"):
        found.linear([1.0])
    with pytest.raises(SettingsError, match="at least 3 items"):
        quasi_variances(np.eye(2))
    with pytest.raises(NotFittedError):
        PlackettLuceMixture(1).standard_errors(two_components)
    with pytest.raises(SettingsError, match="SpectralPlackettLuce is not one"):
        module_function(SpectralPlackettLuce(1, random_state=0).fit(two_components), two_components)
    monkeypatch.setattr("plmix_dist.uncertainty.standard_errors._MOST_ITEMS", 4)
    with pytest.raises(SettingsError, match="at most 4 items"):
        model.standard_errors(two_components)


# --- coverage ----------------------------------------------------------------------------------------------


def coverage(n_fits: int, n_rankings: int) -> float:
    """How often 95 % intervals of differences hold the truth, pooled over pairs, components and fits.

    Design: 6 items, 2 components of shares 0.6 and 0.4 with log-worths far apart, full rankings, alpha 0, fits begun at
    the truth.
    """
    truth = np.array([[1.5, 0.9, 0.3, -0.3, -0.9, -1.5], [-1.2, 0.2, 1.4, -1.0, 1.1, -0.5]])
    shares = np.array([0.6, 0.4])
    start = MixtureParams(truth, shares, tuple(str(item) for item in range(6)))
    inside, total = 0, 0
    upper = np.triu_indices(6, 1)
    for number in range(n_fits):
        block, _ = draw_rankings(truth, shares, n_rankings, np.random.default_rng(number))
        model = PlackettLuceMixture(2, alpha=0, init=start).fit(block)
        errors = model.standard_errors(block)
        for k in range(2):
            values, spread = errors.differences(k)
            wanted = truth[k][:, None] - truth[k][None, :]
            held = np.abs(values - wanted) <= 1.959964 * spread
            inside, total = inside + int(held[upper].sum()), total + len(upper[0])
    return inside / total


@pytest.mark.slow
def test_coverage() -> None:
    """500 simulated fits to 1,000 rankings: 15,000 intervals."""
    assert 0.93 <= coverage(500, 1_000) <= 0.97


def test_coverage__short() -> None:
    assert 0.85 <= coverage(20, 500) <= 1.0


def test_shares_at__by_draws_of_the_coefficients() -> None:
    rng = np.random.default_rng(0)
    town = rng.integers(0, 3, 600)
    columns = np.eye(3)[town][:, 1:]
    kind = rng.random(600) < np.array([0.2, 0.5, 0.8])[town]
    worths = np.where(kind[:, None], [2.0, 1.0, -1.0, -2.0], [-2.0, -1.0, 1.0, 2.0])
    rows = np.argsort(-(worths + rng.gumbel(size=worths.shape)), axis=1)
    model = PlackettLuceMixture(2, random_state=0).fit(rows, membership_covariates=columns)
    errors = model.standard_errors(rows, membership_covariates=columns)
    found = errors.shares_at([[0, 0], [1, 0], [0, 1]])
    assert np.sort(found.values[:, 0]) == pytest.approx(np.sort([0.2, 0.5, 0.8]), abs=0.1)
    own = errors.share_coefficients
    assert own is not None
    draws = rng.multivariate_normal(own.values.ravel(), own.covariance, 100_000).reshape(-1, 2, 3)
    logits = np.einsum("dkj,nj->dnk", draws, [[1, 0, 0], [1, 1, 0], [1, 0, 1]])
    shares = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    assert_allclose(found.standard_errors, shares.std(axis=0), rtol=0.05)
    with pytest.raises(SettingsError, match=r"covariates must have the shape \(n, 2\)"):
        errors.shares_at([[1.0]])
    plain = PlackettLuceMixture(2, random_state=0).fit(rows).standard_errors(rows)
    with pytest.raises(SettingsError, match="these shares do not depend on covariates"):
        plain.shares_at([[1.0]])
