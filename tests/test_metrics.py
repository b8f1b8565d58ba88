"""Metrics against scikit-learn, counts of pairs, and plain loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, brier_score_loss
from sklearn.metrics import log_loss as log_loss_of_sklearn

import plmix_dist as pl
from plmix_dist import metrics
from plmix_dist.errors import SettingsError
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.store.mixture import MixtureParams


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_kendall_tau__equals_counted_pairs(rng):
    first, second = rng.permutation(7), rng.permutation(7)
    signs = [np.sign((first[i] - first[j]) * (second[i] - second[j])) for i, j in itertools.combinations(range(7), 2)]
    assert metrics.kendall_tau(first, second) == pytest.approx(np.mean(signs))
    assert math.isnan(metrics.kendall_tau([1, 1], [1, 2]))
    with pytest.raises(SettingsError, match=r"shapes \(2,\) and \(3,\)"):
        metrics.kendall_tau([1, 2], [1, 2, 3])
    with pytest.raises(SettingsError, match="two items or more"):
        metrics.kendall_tau([1], [1])


def test_matched_taus__components_in_any_order(rng):
    reference = rng.normal(size=(3, 6))
    changed = reference.copy()
    neighbours = np.argsort(changed[1])[2:4]
    changed[1, neighbours] = changed[1, neighbours[::-1]]
    found = metrics.matched_taus(changed[[2, 0, 1]] + 5.0, reference)
    assert found.tolist() == pytest.approx([1.0, 1 - 2 / 15, 1.0])  # one of 15 pairs is the other way round


@pytest.mark.parametrize("n_labels", [1, 2, 5])
def test_adjusted_rand_index__equals_that_of_scikit_learn(rng, n_labels):
    first, second = rng.integers(n_labels, size=60), rng.integers(3, size=60)
    assert metrics.adjusted_rand_index(first, second) == pytest.approx(adjusted_rand_score(first, second))
    assert metrics.adjusted_rand_index(first, first) == 1.0


def test_adjusted_rand_index__weights_are_counts(rng):
    first, second, counts = rng.integers(2, size=20), rng.integers(3, size=20), rng.integers(1, 4, size=20)
    repeated = adjusted_rand_score(np.repeat(first, counts), np.repeat(second, counts))
    assert metrics.adjusted_rand_index(first, second, weights=counts) == pytest.approx(repeated)


def test_log_loss_and_brier__equal_those_of_scikit_learn(rng):
    probabilities = rng.dirichlet([1.0, 1.0, 1.0], size=50)
    outcomes, weights = rng.integers(3, size=50), rng.random(50)
    wanted = log_loss_of_sklearn(outcomes, probabilities, labels=[0, 1, 2], sample_weight=weights)
    assert metrics.log_loss(probabilities, outcomes, weights=weights) == pytest.approx(wanted)
    two = probabilities[:, :2] / probabilities[:, :2].sum(axis=1, keepdims=True)
    found = metrics.calibration(two, outcomes % 2)
    assert found.brier == pytest.approx(2 * brier_score_loss(outcomes % 2, two[:, 1]))
    assert metrics.log_loss([[1.0, 0.0]], [1]) == math.inf


def test_calibration__equals_a_loop_over_events(rng):
    probabilities, outcomes = rng.dirichlet([0.5] * 4, size=80), rng.integers(4, size=80)
    weights = rng.random(80)
    found = metrics.calibration(probabilities, outcomes, weights=weights, n_bins=5)
    weight, predicted, observed = np.zeros((3, 5))
    for case, outcome in itertools.product(range(80), range(4)):
        p = probabilities[case, outcome]
        number = min(int(p * 5), 4)
        weight[number] += weights[case]
        predicted[number] += weights[case] * p
        observed[number] += weights[case] * (outcomes[case] == outcome)
    np.testing.assert_allclose(found.weight, weight)
    np.testing.assert_allclose(found.mean_predicted, predicted / weight)
    np.testing.assert_allclose(found.frequency, observed / weight)
    assert found.error == pytest.approx(np.abs(predicted - observed).sum() / weight.sum())
    assert found.table()["to"].tolist() == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_calibration__memberships_of_the_true_mixture_are_calibrated(tmp_path):
    truth = MixtureParams.of([[1.5, 0.0, -1.0, 0.3], [-1.0, 0.5, 1.0, 0.0]], [0.6, 0.4], "abcd")
    rng = np.random.default_rng(0)
    from plmix_dist.rankings.simulate import draw_rankings

    block, component = draw_rankings(truth.log_worths, truth.shares, 20_000, rng)
    model = pl.PlackettLuceMixture(2)
    model._set_mixture(truth)
    assert metrics.calibration(model.predict_proba(block), component).error < 0.02
    assert metrics.calibration(model.predict_proba(block)[:, ::-1], component).error > 0.2
    assert model.first_choice_calibration(block).error < 0.02


def test_first_choice_calibration__slates_ties_and_weights(tmp_path):
    mixture = MixtureParams.of(np.log([[4.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 5.0]]), [0.75, 0.25], "abcd")
    model = pl.PlackettLuceMixture(2, ties="marginal")
    model._set_mixture(mixture)
    rows = [
        Ranking(((0,), (1,)), (), "below", 2.0),
        Ranking(((1,),), (0, 3), "absent", 1.0),
        Ranking(((0, 1), (2,)), (), "below", 1.0),  # no single first choice
        Ranking(((3,), (0, 1, 2)), (), "absent", 3.0),
    ]
    found = model.first_choice_calibration(RankingBlock.from_rows(rows, n_items=4), n_bins=7)
    weight, predicted, observed, loss = np.zeros(7), np.zeros(7), np.zeros(7), 0.0
    worths = np.exp(mixture.log_worths)
    for first, offered, w in ((0, [0, 1, 2, 3], 2.0), (1, [0, 1, 3], 1.0), (3, [0, 1, 2, 3], 3.0)):
        for item in offered:
            p = float(mixture.shares @ (worths[:, item] / worths[:, offered].sum(axis=1)))
            number = min(int(7 * p), 6)
            weight[number] += w
            predicted[number] += w * p
            observed[number] += w * (item == first)
            loss -= w * math.log(p) * (item == first)
    np.testing.assert_allclose(found.weight, weight)
    np.testing.assert_allclose(found.predicted, predicted)
    np.testing.assert_allclose(found.observed, observed)
    assert found.mean_log_loss == pytest.approx(loss / 6)


def test_first_choice_calibration__a_store_equals_its_block(tmp_path):
    store = pl.simulate(tmp_path / "s", n_rankings=200, n_items=4, n_components=2, leaf_rows=32, random_state=0)
    model = pl.PlackettLuceMixture(2)
    model._set_mixture(MixtureParams.load(store.location.sibling(".truth")))
    block = pl.rankings.block.concatenate(list(store.iter_leaves()))
    for mine, theirs in zip(model.first_choice_calibration(store), model.first_choice_calibration(block), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_first_choice_calibration__shares_of_persons():
    model = pl.PlackettLuceMixture(2)
    model._set_mixture(MixtureParams.of(np.log([[4.0, 1.0], [1.0, 1.0]]), [0.5, 0.5], "ab"))
    model.share_coefficients_ = np.array([[0.0, 0.0], [0.0, 1.0]])
    worths = np.exp(model.log_worths_)
    ages = [0.0, 2.0]
    shares = np.array([[1.0, math.exp(age)] for age in ages])
    shares /= shares.sum(axis=1, keepdims=True)
    of_first = shares @ (worths[:, 0] / worths.sum(axis=1))
    found = model.first_choice_calibration([[0, 1], [1, 0]], membership_covariates=ages)
    assert found.mean_log_loss == pytest.approx(-(math.log(of_first[0]) + math.log(1 - of_first[1])) / 2)


def test_wrong_outcomes_are_refused():
    with pytest.raises(SettingsError, match="whole numbers from 0 to 1"):
        metrics.log_loss([[0.5, 0.5]], [2])
    with pytest.raises(SettingsError, match="one outcome per case"):
        metrics.log_loss([[0.5, 0.5]], [0, 1])
    with pytest.raises(SettingsError, match="numbers from 0 to 1"):
        metrics.log_loss([[math.nan, 0.5]], [1])
    with pytest.raises(SettingsError, match="weights must be 1 numbers"):
        metrics.log_loss([[0.5, 0.5]], [1], weights=[0.0])
    with pytest.raises(SettingsError, match="two labels per ranking"):
        metrics.adjusted_rand_index([0, 1], [0])


def test_compare_models__components_and_items_in_another_order(rng):
    names = ["tea", "mate", "milk", "water"]
    one = MixtureParams.of(rng.normal(size=(3, 4)), [0.5, 0.3, 0.2], names)
    items = [2, 0, 3, 1]
    other = MixtureParams.of(
        one.log_worths[[1, 2, 0]][:, items] + 1.0, [0.2, 0.35, 0.45], [names[item] for item in items]
    )
    found = metrics.compare_models(one, other)
    assert found["first"].tolist() == [0, 1, 2]
    assert found["second"].tolist() == [0, 2, 1]
    assert found["second share"].tolist() == [0.45, 0.2, 0.35]
    np.testing.assert_allclose(found["distance"], 0, atol=1e-12)
    np.testing.assert_allclose(found["total variation"], 0, atol=1e-12)
    assert found["kendall tau"].tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert found["first choice"].tolist() == found["second choice"].tolist()


@pytest.mark.parametrize("swapped", [False, True])
def test_compare_models__a_component_without_a_match(rng, swapped):
    names = ["tea", "mate", "milk"]
    larger = MixtureParams.of(3 * rng.normal(size=(3, 3)), [0.5, 0.3, 0.2], names)
    smaller = MixtureParams.of(larger.log_worths[[0, 2]], [0.7, 0.3], names)
    pair = (smaller, larger) if swapped else (larger, smaller)
    found = metrics.compare_models(*pair, table="dict")
    mine, theirs = ("second", "first") if swapped else ("first", "second")
    assert dict(zip(found[mine].tolist(), found[theirs].tolist(), strict=True)) == {0: 0, 2: 1, 1: -1}
    alone = found[theirs] == -1
    assert np.isnan(found["distance"][alone]).all()
    assert found[f"{theirs} choice"][alone].tolist() == [""]


def test_compare_models__refuses_other_items():
    one = MixtureParams.of([[0.0, 1.0]], None, ["tea", "mate"])
    with pytest.raises(SettingsError, match=r"1 of the first alone \('mate'\), 1 of the second alone \('milk'\)"):
        metrics.compare_models(one, MixtureParams.of([[0.0, 1.0]], None, ["tea", "milk"]))
    with pytest.raises(SettingsError, match="second must be a fitted estimator"):
        metrics.compare_models(one, pl.PlackettLuceMixture(2))


def test_local_stability__by_hand() -> None:
    worths = np.array([[9.0, 3.0, 1.0, 1.0], [1.0, 1.0, 6.0, 2.0]])
    model = pl.PlackettLuceMixture.from_arrays(np.log(worths), [0.75, 0.25], ["a", "b", "c", "d"])
    found = pl.metrics.local_stability(model, ["a", "b", "c"], table="dict")
    assert found["k"].tolist() == [1, 2, 3]
    assert found["item"].tolist() == ["b", "c", "d"]
    beside = [0.75 * 3 / 12 + 0.25 * 1 / 2, 0.75 * 1 / 13 + 0.25 * 6 / 8, 0.75 * 1 / 14 + 0.25 * 2 / 10]
    np.testing.assert_allclose(found["share"], beside)
    np.testing.assert_allclose(found["ratio"], np.multiply([1, 2, 3], beside))


def test_local_stability__a_list_of_one_taste_alone_is_not_stable() -> None:
    worths = np.array([[9.0, 9.0, 9.0, -9.0], [-9.0, -9.0, -9.0, 9.0]])
    model = pl.PlackettLuceMixture.from_arrays(worths, [0.6, 0.4])
    assert pl.metrics.local_stability(model, [0, 1, 2], table="dict")["ratio"][-1] > 1.19
    assert pl.metrics.local_stability(model, [0, 3, 1], table="dict")["ratio"].max() < 1


def test_one_sidedness__is_the_binomial_test() -> None:
    from scipy.stats import binomtest

    left = [1.0] * 9 + [0.0] + [1.0, 0.0, 0.5, 1.0]
    found = pl.metrics.one_sidedness(left, [0] * 10 + [1] * 4)
    assert found[0] == pytest.approx(-np.log10(binomtest(9, 10).pvalue))
    assert found[1] == 0.0
    with pytest.raises(SettingsError, match="one side and one person per choice"):
        pl.metrics.one_sidedness([1.0], [1, 2])
