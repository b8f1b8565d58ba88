"""Checks of fit: covariances beside an enumeration of all rankings, discrepancies of other tools, uniform p-values."""

from __future__ import annotations

import csv
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_allclose
from scipy.stats import kstest

import plmix_dist as plm
from plmix_dist import BayesianPlackettLuceMixture, PlackettLuceMixture, Ranking, RankingBlock
from plmix_dist.errors import SettingsError
from plmix_dist.plots import plot_check
from plmix_dist.rankings import generator
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.store import MixtureParams
from plmix_dist.uncertainty import fit_check
from tests.helpers import cli_helpers

shell = cli_helpers.shell
SHARED = Path(__file__).resolve().parents[3] / "shared"
WORTHS = np.array([[1.0, 0.3, -0.4, -0.9], [-1.2, -0.1, 0.2, 1.1]])
SHARES = np.array([0.6, 0.4])


# --- the oracle: all rankings of four items, one after the other --------------------------------------------


def chance(order: tuple[int, ...], worths: Any, length: int) -> Any:
    found, left = 1.0, list(range(len(worths)))
    for item in order[:length]:
        found = found * np.exp(worths[item]) / sum(np.exp(worths[other]) for other in left)
        left.remove(item)
    return found


def log_chance(order: tuple[int, ...], length: int, theta: Any) -> Any:
    """From log-worths and logits of shares in one vector; analytic, so that it takes complex numbers."""
    shares = np.exp(theta[8:]) / np.exp(theta[8:]).sum()
    both = zip(shares, theta[:8].reshape(2, 4), strict=True)
    return np.log(sum(share * chance(order, worths, length) for share, worths in both))


def enumerated(length: int) -> tuple[Any, Any, Any]:
    """The prefixes of this length: their probabilities, events (firsts, then pairs both ways) and scores."""
    theta = np.concatenate([WORTHS.ravel(), np.log(SHARES)]).astype(complex)
    prefixes = sorted({order[:length] for order in permutations(range(4))})
    probabilities, events, scores = [], [], []
    for prefix in prefixes:
        probabilities.append(np.exp(log_chance(prefix, length, theta)).real)
        steps = [log_chance(prefix, length, theta + 1e-30j * one).imag / 1e-30 for one in np.eye(10)]
        scores.append(steps)
        place = [prefix.index(item) if item in prefix else 9 for item in range(4)]
        pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
        events.append(
            [float(p == 0) for p in place]
            + [float(place[i] < place[j]) for i, j in pairs]
            + [float(place[j] < place[i]) for i, j in pairs]
        )
    return np.array(probabilities), np.array(events), np.array(scores)


def fitted(block: RankingBlock) -> PlackettLuceMixture:
    return PlackettLuceMixture(2, alpha=0.0, init=WORTHS, tol=1e-10, random_state=0).fit(block)


def given(**settings: Any) -> PlackettLuceMixture:
    return PlackettLuceMixture.from_arrays(WORTHS, SHARES, **settings)


@pytest.mark.parametrize("length", [1, 2, 4])
def test_expected__equal_to_sums_over_all_rankings(length: int) -> None:
    probabilities, events, _ = enumerated(length)
    expected = probabilities @ events
    mixture = given()._mixture()
    pairs = fit_check._checked_pairs(None, mixture)
    tables = fit_check._expected_pairs(mixture, pairs, [1, 2])
    assert_allclose(tables[0 if length == 4 else length], expected[4:], atol=1e-12)


def sums_of(block: RankingBlock, model: PlackettLuceMixture, bands: Any, chances: Any) -> Any:
    """What pass 2 gives of one leaf, and the plan."""
    mixture = model._mixture()
    pairs = fit_check._checked_pairs(None, mixture)
    tables = fit_check._expected_pairs(mixture, pairs, [1, 2])
    plan = fit_check._Plan(mixture.unnamed(), "auto", pairs, 0, 10, tables, bands, chances)
    return fit_check._leaf_products(0, block, fit_check._prepare(plan))


@pytest.mark.parametrize("length", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_covariance__of_a_copy_near_that_of_an_enumeration(length: int, weighted: bool) -> None:
    probabilities, events, scores = enumerated(length)
    expected = probabilities @ events
    chances = expected[4:10] / (expected[4:10] + expected[10:])
    centred = events - expected
    residuals = np.hstack([centred[:, :4], (1 - chances) * centred[:, 4:10] - chances * centred[:, 10:]])
    whole = np.hstack([residuals, scores])
    n_rows, weight = (400, 40.0) if weighted else (16_000, 1.0)
    rows = np.tile(np.arange(4), (n_rows, 1))[:, :length]
    block = RankingBlock.from_array(rows, n_items=4, unranked="below" if length < 4 else None)
    block = block.replace(weights=np.full(n_rows, weight)) if weighted else block
    products, slopes = sums_of(block, given(), np.zeros(32, np.int64), chances[None])
    exact = (whole.T * probabilities) @ whole
    # Products of events of 16,000 copies: errors of at most 5 standard deviations.
    fourth = np.sqrt(probabilities @ (whole[:, :, None] * whole[:, None, :]).reshape(len(whole), -1) ** 2)
    assert np.all(np.abs(products[0] / 16_000 - exact) < 5 * fourth.reshape(exact.shape) / np.sqrt(16_000) + 1e-12)
    assert_allclose(slopes[0], products[0][:10, 10:], atol=1e-9)


def test_check__covariance_after_the_fit_and_p_values_by_enumeration() -> None:
    # Every full ranking as often as it is expected: the covariance of the residuals is known exactly.
    probabilities, events, scores = enumerated(4)
    orders = sorted(permutations(range(4)))
    block = RankingBlock.from_array(orders).replace(weights=np.round(200_000 * probabilities))
    model = fitted(block)
    found = model.check_fit(block)
    assert min(found.p_values.values()) > 0.99  # nothing differs
    centred = (events - probabilities @ events)[:, :10]
    across, own = (centred.T * probabilities) @ scores, (scores.T * probabilities) @ scores
    exact = (centred.T * probabilities) @ centred - across @ np.linalg.pinv(own, rcond=1e-8) @ across.T
    # With an order moved by hand, z is the difference in these standard deviations.
    moved = block.weights.copy()
    moved[[0, 23]] += [60.0, -60.0]
    other = block.replace(weights=moved)
    again = fitted(other).check_fit(other)
    differences = np.array([one.observed - one.expected for one in again.residuals])
    z = np.array([one.z for one in again.residuals])
    assert_allclose(differences / z, np.sqrt(200_000 * np.diag(exact)), rtol=0.06)


def small_set(seed: int, kind: str) -> tuple[RankingBlock, str]:
    """Rankings of the mixture: full ones, or a mix of lengths and offers; merged, of persons, or with random ties."""
    rng = np.random.default_rng(seed)
    block, _ = draw_rankings(WORTHS, SHARES, 900, rng)
    if kind == "merged":
        return plm.rankings.groups.merge_equal_rows(block), "auto"
    if kind == "ties":
        tied = rng.random((900, 4)) < [0.0, 0.3, 0.3, 0.0]
        return block.replace(tied=tied.ravel()), "marginal"
    component = np.repeat(rng.choice(2, 300, p=SHARES), 3)
    orders = np.argsort(rng.exponential(size=(900, 4)) / np.exp(WORTHS[component]), axis=1).tolist()
    rows = []
    for number, order in enumerate(orders):
        some = [item for item in order if item != number // 4 % 4]
        rows.append(
            [
                Ranking(tuple((item,) for item in order), (), "absent", 1.0),
                Ranking(((order[0],), (order[1],)), (), "below", 1.0),
                Ranking(((some[0],),), tuple(some[1:]), "absent", 1.0),
                Ranking(tuple((item,) for item in some), (), "absent", 1.0),
            ][number % 4]
        )
    return RankingBlock.from_rows(rows, n_items=4, groups=np.repeat(np.arange(300), 3).tolist()), "auto"


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@pytest.mark.parametrize(
    ("kind", "n_sets"),
    [
        pytest.param(kind, n, marks=pytest.mark.slow if n > 50 else ())
        for n in (40, 250)
        for kind in ("merged", "ties", "persons")
    ],
)
def test_p_values__uniform_under_the_model(kind: str, n_sets: int) -> None:
    found = []
    for seed in range(n_sets):
        block, ties = small_set(seed, kind)
        model = PlackettLuceMixture(2, alpha=0.01, init=WORTHS, ties=ties, random_state=0).fit(block)
        check = model.check_fit(block, random_state=seed)
        assert check.conservative == (kind == "ties")
        found.append(list(check.p_values.values()))
    for values in np.array(found).T:
        # With ties p-values are larger than by chance, and say that they are.
        side = "greater" if kind == "ties" else "two-sided"
        assert kstest(values, "uniform", alternative=side).pvalue > 0.005
        assert (values < 0.05).mean() < 0.05 + 4 * np.sqrt(0.0475 / n_sets)


def test_p_values__are_never_zero() -> None:
    assert fit_check._p_value(1e9, np.eye(2), np.random.default_rng(0)) == 1 / 10_000


def test_p_values__given_parameters_would_be_conservative() -> None:
    # What estimation takes away is most of the variance of pairs: without it nothing would be noticed.
    block, _ = draw_rankings(WORTHS, SHARES, 3_000, np.random.default_rng(0))
    found = PlackettLuceMixture(1, alpha=0.0).fit(block).check_fit(block)
    assert not found.fits
    assert found.p_values["pairs"] < 0.001
    assert found.verdict == "1 component does not explain these rankings"
    assert found.worst(1)[0].z == max((one.z for one in found.residuals if one.z == one.z), key=abs)


def test_boundary__conservative_in_words() -> None:
    # Two components where there is one, and no prior: the information is singular.
    block, _ = draw_rankings(WORTHS[:1], np.ones(1), 400, np.random.default_rng(0))
    best = PlackettLuceMixture(1, alpha=0.0).fit(block).log_worths_[0]
    model = PlackettLuceMixture.from_arrays([best, best], [0.5, 0.5])
    model.set_params(alpha=0.0)
    found = model.check_fit(block)
    assert found.conservative
    assert found.notes[0].startswith("Conservative: the rankings do not determine all parameters")
    assert "(conservative)" in repr(found)


# --- other tools --------------------------------------------------------------------------------------------


def golden(name: str) -> Any:
    path = SHARED / "golden" / "models.json"
    if not path.exists():
        pytest.skip("the golden values are not beside the repository")
    return json.loads(path.read_text())[name]["values"]


def counted(path: str, n_items: int) -> RankingBlock:
    """Rankings of the R package PLMIX, with their counts."""
    with (SHARED / "data" / path).open() as file:
        lines = [
            (float(line["count"]), [int(item) - 1 for item in line["ordering"].split()])
            for line in csv.DictReader(file)
        ]
    rows = [Ranking(tuple((item,) for item in order), (), "below", count) for count, order in lines]
    return RankingBlock.from_rows(rows, n_items=n_items)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "n_items"), [("german", 4), ("apa", 5)])
def test_discrepancies__those_of_plmix(name: str, n_items: int) -> None:
    values = golden("8_discrepancies")[name]
    worths = {
        4: [[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]],
        5: [[0.3, 0.25, 0.2, 0.15, 0.1], [0.1, 0.15, 0.2, 0.25, 0.3]],
    }
    block = counted({"german": "german/german.csv", "apa": "apa1980/apa1980.csv"}[name], n_items)
    found = PlackettLuceMixture.from_arrays(np.log(worths[n_items]), [0.6, 0.4]).check_fit(block)
    assert_allclose(found.discrepancies["first places"], values["top1"], rtol=1e-10)
    if name == "german":  # of top-k rankings the golden value is not the expectation
        # PLMIX takes one cell of each pair, the item of the larger number first; here both count.
        pairs = found.residuals[n_items:]
        one_way, other_way = (
            sum((one.observed - one.expected) ** 2 / cell for one, cell in zip(pairs, cells, strict=True))
            for cells in ([one.expected for one in pairs], [one.out_of - one.expected for one in pairs])
        )
        assert_allclose(other_way, values["pairs_right"], rtol=1e-10)
        assert_allclose(found.discrepancies["pairs"], one_way + other_way, rtol=1e-10)


def test_german_ballots__one_component_does_not_explain_them() -> None:
    assert golden("8_german_p_values")["corrected_K1"] == {"top1": 0.0, "pairs": 0.0}
    block = counted("german/german.csv", 4)
    found = PlackettLuceMixture(1, alpha=0.0).fit(block).check_fit(block)
    assert max(found.p_values.values()) < 0.001


# --- posterior predictive values ----------------------------------------------------------------------------


def sums_of_draw(block: RankingBlock, mixture: MixtureParams) -> tuple[Any, Any]:
    """First places (observed, of a copy, expected) by length, and pairs (observed, of a copy), at one draw."""
    pairs = fit_check._checked_pairs(None, mixture)
    tables = fit_check._expected_pairs(mixture, pairs, [])
    plan = fit_check._Plan(mixture, "marginal", pairs, 5, 0, tables)
    firsts, both = fit_check._leaf_predictive(0, block, (plan, 3, [mixture]))
    return firsts[0], both[0]


@pytest.mark.parametrize(("name", "n_items"), [("german", 4), ("apa", 5)])
def test_posterior_predictive__discrepancies_of_plmix(name: str, n_items: int) -> None:
    values = golden("8_discrepancies")[name]
    worths = np.array({4: [0.4, 0.3, 0.2, 0.1], 5: [0.3, 0.25, 0.2, 0.15, 0.1]}[n_items])
    mixture = MixtureParams(np.log([worths, worths[::-1]]), np.array([0.6, 0.4]))
    block = counted({"german": "german/german.csv", "apa": "apa1980/apa1980.csv"}[name], n_items)
    firsts, pairs = sums_of_draw(block, mixture)
    assert_allclose(fit_check._chi_square(firsts[0], firsts[2], 5.0), values["top1"], rtol=1e-10)
    means, (one, two) = 0.6 * worths + 0.4 * worths[::-1], np.triu_indices(n_items, 1)
    expected = pairs[0].sum(axis=0) * means[two] / (means[one] + means[two])
    assert_allclose(fit_check._chi_square(pairs[0, 1], expected, 0.0), values["pairs_plmix"], rtol=1e-10)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n_components", [1, 2])
def test_posterior_predictive__p_values_of_plmix(n_components: int) -> None:
    # Of three components single chains of this length do not mix: seeds give 0.09 to 0.22 here, PLMIX has 0.24.
    values, block = golden("8_german_p_values"), counted("german/german.csv", 4)
    how: Any = {"n_chains": 2, "n_warmup": 300, "n_draws": 300, "random_state": 1}
    found = BayesianPlackettLuceMixture(n_components, **how).fit(block).check_fit(block).posterior_predictive
    assert found is not None
    wanted = values["plmix_paired"][n_components - 1]
    assert found["first places"] == values["plmix_top1"][n_components - 1]
    assert abs(found["pairs"] - wanted) < 4 * np.sqrt(wanted * (1 - wanted) * (1 / 300 + 1 / 600))


def plain_counts(block: RankingBlock) -> tuple[Any, Any]:
    """First places by length, and pairs both ways, of rows of four items, one row after the other."""
    firsts, pairs = np.zeros((32, 4)), np.zeros((2, 6))
    numbers = {pair: number for number, pair in enumerate(zip(*np.triu_indices(4, 1), strict=True))}
    for row in block.rows():
        order, others = [one for (one,) in row.ordered], list(row.offered)
        below = [item for item in range(4) if item not in order] if row.unranked == "below" else others
        offered = len(order) + len(below)
        firsts[offered if len(below) <= 1 else len(order), order[0]] += row.weight
        if len(below) > 1 and offered < 4:
            continue
        for place, item in enumerate(order):
            for other in order[place + 1 :] + below:
                pairs[int(item > other), numbers[min(item, other), max(item, other)]] += row.weight
    return firsts, pairs


def test_posterior_predictive__sums_are_those_of_plain_loops() -> None:
    block, _ = small_set(3, "persons")
    block = block.replace(weights=np.tile([1.0, 2.0, 3.0], 300))
    mixture = MixtureParams(WORTHS, SHARES)
    firsts, pairs = sums_of_draw(block, mixture)
    copied = block.take(np.repeat(np.arange(900), block.row_weights.astype(int))).replace(weights=None)
    copy = fit_check._drawn(copied, mixture, generator(5, "check-posterior", 3, 0))
    for number, rows in enumerate([block, copy]):
        for found, plain in zip([firsts[number], pairs[number]], plain_counts(rows), strict=True):
            assert np.array_equal(found, plain)
    assert pairs[0].tobytes() != pairs[1].tobytes()
    # As many first places are expected at each length as there are.
    assert_allclose(firsts[2].sum(axis=1), firsts[0].sum(axis=1), rtol=1e-12)
    assert np.array_equal(firsts[1].sum(axis=1), firsts[0].sum(axis=1))


def test_posterior_predictive__on_bayesian_fits_with_the_same_bits(
    tmp_path: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plm.simulate(tmp_path / "s", n_rankings=3_000, n_items=4, n_components=1, random_state=1, leaf_rows=500)
    short: Any = {"n_warmup": 50, "n_draws": 50, "random_state": 0}
    model = BayesianPlackettLuceMixture(1, **short).fit(tmp_path / "s", client=False)
    with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        found = [model.check_fit(tmp_path / "s", client=place, max_draws=30) for place in (False, client)]
    assert found[0] == found[1]
    few = dict(found[0].posterior_predictive or {})
    assert min(few.values()) > 0.05
    assert not found[0].conservative
    words = f"posterior predictive, conservative: first places p = {few['first places']:.4f}, pairs p = "
    assert words in found[0].summary()
    assert "hardly any power for pairs" in found[0].summary()
    # A few draws in a pass, as with many items: the same copies.
    plan = fit_check._Plan(
        model._mixture().unnamed(),
        "marginal",
        fit_check._checked_pairs(None, model._mixture()),
        0,
        0,
        np.zeros((32, 12)),
    )
    draws = [MixtureParams(logs, np.ones(1)) for logs in model._thinned(30)[0]]
    with monkeypatch.context() as patch, model._passes_over(tmp_path / "s", client=False) as (passes, _):
        patch.setattr(fit_check, "_MOST_PRODUCTS", 2_000)
        assert fit_check._predictive(passes, plan, draws) == few
    assert model.check_fit(tmp_path / "s", max_draws=0).posterior_predictive is None
    only = model.check_fit(tmp_path / "s", max_draws=10, pairs=[]).posterior_predictive
    assert list(only or {}) == ["first places"]
    model.save(tmp_path / "model")
    record = json.loads(shell("check", "model", "s", "--json").out)
    assert list(record["posterior_predictive"]) == ["first places", "pairs"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_posterior_predictive__none_with_ties_and_conservative_where_the_prior_tells() -> None:
    short: Any = {"n_warmup": 50, "n_draws": 50, "random_state": 0}
    block, _ = small_set(0, "ties")
    block = block[:300]
    found = BayesianPlackettLuceMixture(1, **short).fit(block).check_fit(block)
    assert found.posterior_predictive is None
    assert "not defined for rankings with ties" in found.summary()
    untied = block.replace(tied=None)
    found = BayesianPlackettLuceMixture(1, worth_shape=2.0, **short).fit(untied).check_fit(untied)
    assert found.conservative
    assert found.notes[0].startswith("Conservative: the prior is not flat")
    assert found.posterior_predictive is not None
    model = BayesianPlackettLuceMixture(1, **short).fit(untied)
    with pytest.raises(SettingsError, match="max_draws=0"):
        model.check_fit(untied, sample_weight=np.full(300, 1.5))


# --- what people see ----------------------------------------------------------------------------------------


def test_words__first_places_pairs_and_lengths() -> None:
    full, _ = draw_rankings(WORTHS, SHARES, 600, np.random.default_rng(1))
    top, _ = draw_rankings(WORTHS, SHARES, 600, np.random.default_rng(2), length=2, unranked="below")
    block = plm.rankings.block.concatenate([full, top])
    model = PlackettLuceMixture(1).fit(block)
    found = model.check_fit(block)
    assert [one.places for one in found.lengths] == ["2", "4"]
    assert [one.weight for one in found.lengths] == [600.0, 600.0]
    first = found.residuals[0]
    orders = [row.ordered[0][0] for row in block.rows()]
    assert (first.items, first.observed, first.out_of) == (("0",), float(orders.count(0)), 1200.0)
    assert str(first).startswith(f"0 is first in {orders.count(0) / 12:.1f} % of 1,200 rankings, expected ")
    assert "is before" in str(found.residuals[-1])
    assert "<bdi>" in found._repr_html_()
    assert found.summary().count("\n") == len(found.lines())
    axes = plot_check(found)
    assert sum(len(line.get_xdata()) for line in axes.lines[1:]) == len(found.residuals)
    assert list(model.check_fit(block, pairs=[]).p_values) == ["first places"]
    (pair,) = model.check_fit(block, pairs=[[3, 1]]).residuals[4:]
    assert pair.items == ("3", "1")


def test_pairs__refused_in_words() -> None:
    block, _ = draw_rankings(WORTHS, SHARES, 60, np.random.default_rng(1))
    model = PlackettLuceMixture(1).fit(block)
    with pytest.raises(SettingsError, match="ties as outcomes"):
        PlackettLuceMixture(1, ties="davidson").fit(block).check_fit(block)
    with pytest.raises(SettingsError, match="two items each"):
        model.check_fit(block, pairs=[[0, 1, 2]])
    with pytest.raises(SettingsError, match="not an item of the model"):
        model.check_fit(block, pairs=[["0", "9"]])


def test_verb_and_report(tmp_path: Path, shell: Any) -> None:
    plm.simulate(tmp_path / "store", n_rankings=2_000, n_items=4, n_components=2, random_state=1)
    model = PlackettLuceMixture(1).fit(tmp_path / "store")
    model.save(tmp_path / "model")
    found = model.check_fit(tmp_path / "store")
    record = json.loads(shell("check", "model", "store", "--json").out)
    assert record["p_values"] == found.p_values
    assert record["residuals"][0]["items"] == ["1"]
    page = model.report(tmp_path / "report.html", tmp_path / "store").read_text()
    assert found.verdict in shell("check", "model", "store", "--pair", "3", "1").out
    assert "Does it reproduce the rankings?" in page
    assert found.verdict in page


def test_check__the_same_bits_on_a_cluster(tmp_path: Path) -> None:
    plm.simulate(tmp_path / "s", n_rankings=9_000, n_items=5, n_components=2, random_state=1, leaf_rows=1_000)
    model = PlackettLuceMixture(1).fit(tmp_path / "s")
    with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as client:
        found = [model.check_fit(tmp_path / "s", client=place) for place in (False, client)]
    assert found[0] == found[1]


def test_bands__every_one_has_weight():
    # Lengths 1, 2, 3, 5, 8 and 15: those between, which no ranking has, must not become bands of their own.
    weight = np.zeros(32)
    weight[[1, 2, 3, 5, 8, 15]] = 65, 12, 10, 6, 4, 3
    for most in range(1, 8):
        bands = fit_check._bands(weight, most)
        assert np.bincount(bands, weight).min() > 0, most
        assert bands.max() + 1 <= most
    few = np.where(weight > 9, weight, 0.0)
    assert fit_check._bands(few, 7)[:6].tolist() == [0, 0, 1, 2, 2, 2]
