"""A held component of noise: its share, the evidence of persons, errors, saving, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

import plmix_dist as plm
from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import SettingsError
from tests.helpers.battles import battles, golden


def _people(seed: int = 0, n_persons: int = 200, n_votes: int = 20) -> tuple[plm.RankingBlock, Any]:
    """Votes on pairs of 4 items, a tenth of the persons at random, some ties; and who is random."""
    rng = np.random.default_rng(seed)
    worths, is_random = np.array([1.5, 0.5, -0.5, -1.5]), np.arange(n_persons) % 10 == 0
    left = rng.integers(0, 4, (n_persons, n_votes))
    right = (left + rng.integers(1, 4, left.shape)) % 4
    gap = (worths[left] - worths[right]) * ~is_random[:, None] + rng.logistic(size=left.shape)
    result = np.where(np.abs(gap) < 0.2, 0.5, (gap > 0) * 1.0)
    return battles(left, right, result, np.repeat(np.arange(n_persons), n_votes)), is_random


def _by_person(block: plm.RankingBlock, log_worths: Any) -> Any:
    """(n_persons,): the log-likelihood of each person, a tie counting half."""
    logs = []
    for row in block.rows():
        items = [item for place in row.ordered for item in place]
        gap = log_worths[items[0]] - log_worths[items[1]]
        tied = len(row.ordered) == 1
        logs.append((np.log(expit(gap)) + np.log(expit(-gap))) / 2 if tied else np.log(expit(gap)))
    return np.bincount(block.groups, logs)


def _objective(parameters: Any, block: plm.RankingBlock) -> float:
    """The log-likelihood at log-worths of three items (the fourth is 0) and the logit of the share of noise."""
    share = expit(parameters[-1])
    own = _by_person(block, np.append(parameters[:-1], 0.0)) + np.log(1 - share)
    return float(np.logaddexp(own, _by_person(block, np.zeros(4)) + np.log(share)).sum())


def test_noise__is_held_and_last_and_its_share_is_at_the_maximum() -> None:
    block, is_random = _people()
    model = PlackettLuceMixture(1, alpha=0.0, noise=True, random_state=0, tol=1e-10).fit(block)
    assert model.converged_
    assert [record["iteration"] for record in model.history_] == list(range(1, model.n_iter_ + 1))
    assert model.log_worths_.shape == (2, 4)
    assert model.log_worths_[1].tolist() == [0.0] * 4
    here = np.append(model.log_worths_[0, :3] - model.log_worths_[0, 3], np.log(model.shares_[1] / model.shares_[0]))
    assert _objective(here, block) == pytest.approx(model.log_likelihood_, rel=1e-12)
    slopes = [(_objective(here + step, block) - _objective(here - step, block)) / 2e-5 for step in 1e-5 * np.eye(4)]
    assert_allclose(slopes, 0.0, atol=1e-4)
    evidence = model.evidence_of_noise(block)
    assert_allclose(evidence, _by_person(block, np.zeros(4)) - _by_person(block, model.log_worths_[0]), atol=1e-9)
    assert evidence[is_random].min() > np.median(evidence[~is_random])


def test_noise__standard_errors_are_those_of_free_parameters() -> None:
    block, _ = _people(1, 120)
    model = PlackettLuceMixture(1, alpha=0.0, noise=True, random_state=0, tol=1e-10).fit(block)
    here = np.append(model.log_worths_[0, :3] - model.log_worths_[0, 3], np.log(model.shares_[1] / model.shares_[0]))
    steps, size = 1e-3 * np.eye(4), 1e-3
    hessian = np.array(
        [
            [
                sum(a * b * _objective(here + a * one + b * other, block) for a in (-1, 1) for b in (-1, 1))
                / (4 * size**2)
                for other in steps
            ]
            for one in steps
        ]
    )
    expected = np.linalg.inv(-hessian)
    errors = model.standard_errors(block, kind="information")
    found = errors.differences().standard_errors[:3, 3]
    assert_allclose(found, np.sqrt(np.diag(expected)[:3]), rtol=1e-4)
    assert errors.shares[1] == pytest.approx(np.sqrt(expected[3, 3]) * np.prod(model.shares_), rel=1e-4)
    assert_allclose(errors.log_worths[1], 0.0, atol=1e-12)


def test_noise__with_a_prior_two_components_and_saved(tmp_path: Any) -> None:
    block, _ = _people(2)
    turned = block.replace(items=np.where(np.repeat(block.groups % 3 == 1, 2), 3 - block.items, block.items))
    model = PlackettLuceMixture(2, noise=True, random_state=0).fit(turned)
    assert model.converged_
    assert model.shares_[0] >= model.shares_[1]
    assert 0.02 < model.shares_[2] < 0.25
    assert model._n_parameters() == 2 * 3 + 2
    model.save(tmp_path / "model")
    again = PlackettLuceMixture.load(tmp_path / "model")
    assert (again.n_components, again.noise) == (2, True)
    assert again.evidence_of_noise(turned).tolist() == model.evidence_of_noise(turned).tolist()
    board = model.leaderboard(turned, without_noise=True, table="dict")
    assert set(board["component"]) == {0, 1, "all"}
    shares = model.shares_[:2] / model.shares_[:2].sum()
    chance = shares @ expit(model.log_worths_[:2])
    rated = dict(zip(board["item"][-4:], board["rating"][-4:], strict=True))
    assert_allclose([rated[name] for name in "0123"], 1000 + 400 / np.log(10) * np.log(chance / (1 - chance)))


def test_noise__where_there_is_none_its_share_is_zero(tmp_path: Any) -> None:
    rng = np.random.default_rng(5)
    left = rng.integers(0, 4, (100, 20))
    right = (left + rng.integers(1, 4, left.shape)) % 4
    block = battles(left, right, (left < right) * 1.0, np.repeat(np.arange(100), 20))
    plain, model = (PlackettLuceMixture(1, noise=noise, random_state=0).fit(block) for noise in (False, True))
    assert model.shares_.tolist() == [1.0, 0.0]
    assert model.log_worths_[0].tobytes() == plain.log_worths_[0].tobytes()
    assert model.evidence_of_noise(block).max() < 0
    assert model.score(block) == pytest.approx(plain.score(block), rel=1e-12)
    model.save(tmp_path / "model")
    assert PlackettLuceMixture.load(tmp_path / "model").shares_.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"m_step": "cml"}, "raises no likelihood"),
        ({"shares": [0.5, 0.5]}, "shares are fixed"),
        ({"ties": "resample"}, "draws orders"),
        ({"method": "paper"}, "leave method out"),
    ],
)
def test_noise__refused(settings: Any, words: str) -> None:
    block, _ = _people(3, 20)
    with pytest.raises(SettingsError, match=words):
        PlackettLuceMixture(2, noise=True, **settings).fit(block)


def test_evidence__ties_are_on_neither_side() -> None:
    block, _ = _people(3, 20)
    model = PlackettLuceMixture(1, noise=True, random_state=0).fit(block)
    found = model.evidence_of_noise(block.replace(sides=np.ones(block.n_rankings, np.uint8)), table="dict")
    assert block.tied is not None
    assert found["n_sides"].tolist() == (20 - block.tied.reshape(20, -1).sum(axis=1)).tolist()
    assert set(found["share_left"].tolist()) == {1.0}


def test_noise__refused_where_there_is_none() -> None:
    block, _ = _people(3, 20)
    with pytest.raises(SettingsError, match="fit it with noise=True"):
        PlackettLuceMixture(1).fit(block).evidence_of_noise(block)


def test_noise__continues_from_a_checkpoint_with_the_same_bits(tmp_path: Any) -> None:
    block, _ = _people(4, 60)
    settings: Any = {"noise": True, "random_state": 0}
    whole = PlackettLuceMixture(1, **settings).fit(block)
    seen = []

    def stop(record: Any) -> None:
        seen.append(record)
        if len(seen) == whole.n_iter_ - 1:
            raise KeyboardInterrupt

    place = plm.Checkpoint(str(tmp_path / "saved"), 0.0)
    with pytest.raises(KeyboardInterrupt):
        PlackettLuceMixture(1, progress=stop, checkpoint=place, **settings).fit(block)
    again = PlackettLuceMixture(1, checkpoint=place, **settings).fit(block)
    assert again.log_worths_.tobytes() == whole.log_worths_.tobytes()
    assert again.shares_.tobytes() == whole.shares_.tobytes()


def test_noise__golden_values() -> None:
    made = golden("7_noise_component")
    left, right, result, kind, *_ = made["votes"](0, 1.5, 1)
    block = battles(left, right, result, np.repeat(np.arange(2_000), 25))
    model = PlackettLuceMixture(1, alpha=0.0, noise=True, tol=1e-12, random_state=0).fit(block)
    assert_allclose(model.log_worths_[0], made["log_worths"], atol=1e-7)
    assert model.shares_[1] == pytest.approx(made["noise_share"], abs=1e-9)
    assert model.log_likelihood_ == pytest.approx(made["log_likelihood"], abs=1e-6)
    evidence = model.evidence_of_noise(block)
    assert_allclose(evidence[:5], made["first_5_log_bayes_factors"], atol=1e-7)
    for one, name in ((1, "auc_random"), (2, "auc_one_sided")):
        assert (evidence[kind == one][:, None] > evidence[kind == 0]).mean() == pytest.approx(made[name], abs=1e-6)
    sides = plm.metrics.one_sidedness(result.ravel(), block.groups)
    assert sides[kind == 2].min() > sides[kind != 2].max()


def test_noise__is_named_in_the_summary() -> None:
    block, _ = _people(3, 40)
    words = str(PlackettLuceMixture(1, noise=True, random_state=0).fit(block).summary())
    assert "component 1, noise, share" in words
    assert "component 0, share" in words


def test_noise__bootstrap_agrees_with_the_sandwich_and_holds_its_worths() -> None:
    block, _ = _people(0, 300)
    model = PlackettLuceMixture(1, noise=True, random_state=0, alpha=0.1).fit(block)
    drawn = model.bootstrap(block, 300, random_state=0)
    assert drawn.converged.all()
    assert not drawn.log_worths[:, 1].any()
    errors, spread = model.standard_errors(block, kind="sandwich"), drawn.standard_errors()
    assert_allclose(spread.log_worths[0], errors.log_worths[0], rtol=0.15)
    assert_allclose(spread.shares, errors.shares, rtol=0.15)
    board = model.leaderboard(block, interval="bootstrap", without_noise=True, table="dict")
    assert (board["lower"] < board["upper"]).all()
