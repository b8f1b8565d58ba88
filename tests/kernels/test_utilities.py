"""Sums, scores and information where utilities are linear: against the definition, and against differences."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist.kernels import row_posteriors
from plmix_dist.kernels.prepared import prepare
from plmix_dist.kernels.utilities import LinearPoint, _utility_logs, linear_information, linear_sums, person_scores
from plmix_dist.rankings import Ranking, RankingBlock
from plmix_dist.rankings.choice_models import listing_all
from tests.helpers import logit_oracle

N_ITEMS, N_COMPONENTS = 6, 2


def drawn(seed: int, *, groups: bool, features: int, covariates: int) -> tuple[RankingBlock, LinearPoint]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(30):
        items = rng.permutation(N_ITEMS)[: rng.integers(2, N_ITEMS + 1)].tolist()
        ordered = int(rng.integers(1, len(items) + 1))
        weight = float(rng.integers(1, 4))
        rows.append(Ranking(tuple((item,) for item in items[:ordered]), tuple(items[ordered:]), "absent", weight))
    persons = np.arange(30) // 3
    block = RankingBlock.from_rows(rows, n_items=N_ITEMS, groups=persons.tolist() if groups else None)
    if features:
        block = block.replace(features=rng.normal(size=(len(block.items), features)).astype(np.float32))
    if covariates:
        of_persons = rng.normal(size=(30, covariates))
        block = block.replace(covariates=of_persons[persons] if groups else of_persons)
    design = rng.normal(size=(N_ITEMS, 2))
    return block, LinearPoint(
        design, rng.normal(size=(N_COMPONENTS, 2 + features)), rng.normal(size=(N_COMPONENTS, 1 + covariates))
    )


CASES = list(itertools.product([False, True], [0, 3], [0, 2]))


def as_vector(point: LinearPoint) -> np.ndarray:
    return np.concatenate([point.coefficients.ravel(), point.share_coefficients.ravel()])


def at(point: LinearPoint, vector: np.ndarray) -> LinearPoint:
    n = point.coefficients.size
    return point._replace(
        coefficients=vector[:n].reshape(point.coefficients.shape),
        share_coefficients=vector[n:].reshape(point.share_coefficients.shape),
    )


def gradient(block: RankingBlock, point: LinearPoint) -> np.ndarray:
    found = linear_sums(block, point)
    return np.concatenate([found.gradient.ravel(), found.share_gradient.ravel()])


@pytest.mark.parametrize(("groups", "features", "covariates"), CASES)
def test_log_likelihood__by_its_definition(groups: bool, features: int, covariates: int) -> None:
    block, point = drawn(1, groups=groups, features=features, covariates=covariates)
    expected = logit_oracle.log_likelihood(block, *point)
    assert float(linear_sums(block, point).log_likelihood) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("groups", "features", "covariates"), CASES)
def test_gradient_and_information__by_differences(groups: bool, features: int, covariates: int) -> None:
    block, point = drawn(2, groups=groups, features=features, covariates=covariates)
    vector, step = as_vector(point), 1e-5
    logs, slopes = [], []
    for place in np.eye(len(vector)):
        sides = [at(point, vector + sign * step * place) for sign in (1, -1)]
        up, down = (float(linear_sums(block, side).log_likelihood) for side in sides)
        logs.append((up - down) / (2 * step))
        up, down = (gradient(block, side) for side in sides)
        slopes.append((up - down) / (2 * step))
    assert_allclose(gradient(block, point), logs, atol=1e-6)
    found = linear_information(block, point)
    assert_allclose(found.observed, -np.array(slopes), atol=1e-6)
    assert_allclose(found.gradient, gradient(block, point), atol=1e-10)
    assert found.weight == (10 if groups else block.total_weight)


def test_information__weights_are_copies_and_products_are_of_persons() -> None:
    block, point = drawn(3, groups=False, features=2, covariates=1)
    copies = block.take(np.repeat(np.arange(block.n_rankings), block.row_weights.astype(int))).replace(weights=None)
    for one, other in zip(linear_information(block, point), linear_information(copies, point), strict=True):
        assert_allclose(one, other, atol=1e-9)
    memberships, scores = person_scores(copies, point)
    mean = (memberships.posteriors[:, :, None] * scores).reshape(len(scores), -1)
    n = mean.shape[1]
    assert_allclose(linear_information(copies, point).products[:n, :n], mean.T @ mean, atol=1e-9)


def test_runs_of_rows__change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    block, point = drawn(4, groups=True, features=2, covariates=1)
    before = linear_information(block, point), linear_sums(block, point)
    monkeypatch.setattr("plmix_dist.kernels.utilities._MOST_NUMBERS", 60)
    for one, other in zip(before, (linear_information(block, point), linear_sums(block, point)), strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert_allclose(mine, theirs, atol=1e-9)


def test_unlisted_items__are_offered_too() -> None:
    block = RankingBlock.from_array([[2, 0, -1], [1, -1, -1], [0, 1, 2]], n_items=5, unranked="below")
    listed = listing_all(block)
    assert [listed.row(row).offered for row in range(3)] == [(1, 3, 4), (0, 2, 3, 4), (3, 4)]
    log_worths = np.random.default_rng(0).normal(size=(2, 5))
    params = prepare(log_worths, np.log([0.3, 0.7]))
    expected = row_posteriors(block, params)[0]
    found = np.logaddexp.reduce(_utility_logs(block, log_worths) + np.log([0.3, 0.7]), axis=1)
    assert_allclose(found, expected, atol=1e-12)


def test_far_worths__stay_finite() -> None:
    block = RankingBlock.from_array([[0, 1, 2, 3], [3, 2, 1, 0]])
    log_worths = np.array([[400.0, 0.0, -400.0, -401.0]])
    expected = [-np.log1p(np.exp(-1)), -1602.0 - np.log1p(np.exp(-1)) + np.log1p(np.exp(-1))]
    logs = _utility_logs(block, log_worths)[:, 0]
    assert logs[0] == pytest.approx(expected[0])
    assert logs[1] == pytest.approx(logit_oracle_log([-401.0, -400.0, 0.0, 400.0]))


def logit_oracle_log(utilities: list[float]) -> float:
    """In logarithms, for utilities too far apart for their exponentials."""
    return sum(utilities[place] - float(np.logaddexp.reduce(utilities[place:])) for place in range(len(utilities) - 1))


def test_ties_that_count_half__have_one_membership() -> None:
    from plmix_dist.rankings.ties import extend_ties

    rows = [Ranking(((0, 1),), (), "absent", 2.0), Ranking(((1,), (0,)), (), "absent", 1.0)]
    extended = extend_ties(RankingBlock.from_rows(rows, n_items=2), "rows").block
    point = LinearPoint(np.array([[0.5], [-0.5]]), np.array([[1.0], [-0.3]]), np.log([[0.4], [0.6]]))
    wins = 1 / (1 + np.exp(-np.array([1.0, -0.3])))
    half = np.sqrt(wins * (1 - wins))
    expected = 2 * np.log([0.4, 0.6] @ half) + np.log([0.4, 0.6] @ (1 - wins))
    assert float(linear_sums(extended, point).log_likelihood) == pytest.approx(expected)
    assert float(linear_information(extended, point).weight) == 3.0


def test_listing_all__ties_stay_with_their_items() -> None:
    rows = [Ranking(((2,), (0, 1)), (), "below", 1.0), Ranking(((1, 2), (3,)), (), "below", 1.0)]
    listed = listing_all(RankingBlock.from_rows(rows, n_items=5))
    assert listed.tied is not None
    assert np.flatnonzero(listed.tied).tolist() == [2, 6]
    assert listed.items.tolist() == [2, 0, 1, 3, 4, 1, 2, 3, 0, 4]
