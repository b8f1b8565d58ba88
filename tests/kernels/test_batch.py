"""Several mixtures in one pass: the same sums as one by one, whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest

from plmix_dist.kernels import batch as batch_module
from plmix_dist.kernels import batch_statistics, em_statistics, plain_em_statistics, prepare
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.simulate import draw_rankings


def block_of_kind(kind: str) -> RankingBlock:
    rng = np.random.default_rng(4)
    how = {"top": {"length": 2, "unranked": "below"}, "few": {"length": 1, "unranked": "below"}}.get(kind, {})
    n_items = 12 if kind == "few" else 6
    block = draw_rankings(rng.normal(size=(2, n_items)), np.array([0.6, 0.4]), 40, rng, **how)[0]
    block = block.replace(weights=rng.gamma(1.0, size=40))
    return block.replace(groups=np.arange(40) // 3) if kind == "persons" else block


@pytest.mark.parametrize("kind", ["full", "top", "few", "persons"])
@pytest.mark.parametrize("n_components", [1, 3, 5])
def test_batch__equals_the_plain_sums_of_each_mixture(kind: str, n_components: int) -> None:
    block, rng = block_of_kind(kind), np.random.default_rng(n_components)
    log_worths = rng.normal(size=(4, n_components, block.n_items))
    log_shares = np.log(rng.dirichlet(np.ones(n_components), 4))
    found = batch_statistics(block, log_worths, log_shares)
    for mixture in range(4):
        expected = (
            em_statistics(block, prepare(log_worths[mixture], log_shares[mixture]))  # the plain ones know no groups
            if kind == "persons"
            else plain_em_statistics(block, log_worths[mixture], log_shares[mixture])
        )
        for name in ("log_likelihood", "shares", "wins", "expected_wins"):
            np.testing.assert_allclose(getattr(found, name)[mixture], getattr(expected, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["full", "top", "few"])
def test_batch__bits_of_a_mixture_do_not_depend_on_the_others(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block, rng = block_of_kind(kind), np.random.default_rng(7)
    log_worths = rng.normal(size=(7, 3, block.n_items))
    log_worths[4] *= 100  # a range for which the others would be computed in another order
    log_shares = np.log(rng.dirichlet(np.ones(3), 7))
    whole = batch_statistics(block, log_worths, log_shares)
    monkeypatch.setattr(batch_module, "_MOST_NUMBERS", 1)
    for chosen in ([0], [5, 2], [4, 3, 1, 6]):
        part = batch_statistics(block, log_worths[chosen], log_shares[chosen])
        for one, other in zip(part, whole, strict=True):
            np.testing.assert_array_equal(one, other[chosen])


def test_batch__component_without_a_share() -> None:
    block = block_of_kind("full")
    log_worths = np.random.default_rng(1).normal(size=(1, 3, 6))
    found = batch_statistics(block, log_worths, np.log([[0.5, 0.5, 1e-300]]) + np.array([0, 0, -np.inf]))
    expected = batch_statistics(block, log_worths[:, :2], np.log([[0.5, 0.5]]))
    np.testing.assert_array_equal(found.log_likelihood, expected.log_likelihood)
    assert found.shares[0, 2] == 0
    np.testing.assert_array_equal(found.wins[0, :2], expected.wins[0])
