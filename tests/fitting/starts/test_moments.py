"""The start by moments: probabilities of first places by their definition, exact moments recovered, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import SettingsError
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.starts.moments import (
    Moments,
    _mixture_of_moments,
    _moments_at,
    _observed_moments,
    moments_start,
)
from plmix_dist.metrics import matched_distance
from plmix_dist.rankings.simulate import draw_log_worths, draw_rankings
from tests.helpers.fit_oracle import block_of, slate, top
from tests.helpers.oracle import order_probability

SETTINGS = FitSettings(2, init="moments")


def events_of(n_items: int) -> Any:
    return _observed_moments(np.zeros((0, 3), np.int64), np.ones(1), n_items).events


@given(seed=st.integers(0, 2**32 - 1), n_items=st.integers(4, 7), share=st.floats(0.05, 0.95))
@settings(max_examples=15)
def test_moments_at__by_definition(seed: int, n_items: int, share: float) -> None:
    log_worths = np.random.default_rng(seed).normal(size=(2, n_items))
    events = events_of(n_items)
    assert len(events) == n_items * (n_items + 1)
    found, derivatives = _moments_at(events, log_worths, share)
    worths = np.exp(log_worths)
    for event, chance in zip(events.tolist(), found, strict=True):
        places = [item for item in event if item >= 0]
        first, second = (order_probability(one.tolist(), places, range(n_items)) for one in worths)
        assert chance == pytest.approx(share * first + (1 - share) * second, rel=1e-9)
    # Central differences, also in the logit of the share.
    logit = np.log(share / (1 - share))
    flat = np.append(log_worths.ravel(), logit)
    for place in range(len(flat)):
        nudge = 1e-6 * np.eye(len(flat))[place]
        ends = [
            _moments_at(events, at[:-1].reshape(2, -1), 1 / (1 + np.exp(-at[-1])))[0]
            for at in (flat + nudge, flat - nudge)
        ]
        assert_allclose(derivatives[:, place], (ends[0] - ends[1]) / 2e-6, atol=1e-8)


def test_observed_moments__by_counting() -> None:
    rng = np.random.default_rng(0)
    firsts = np.array([rng.permutation(5)[:3] for _ in range(300)])
    weights = rng.uniform(0.5, 2.0, 300)
    events, frequencies = _observed_moments(firsts, weights, 5)
    for event, share in zip(events.tolist(), frequencies, strict=True):
        places = [item for item in event if item >= 0]
        hits = [w for row, w in zip(firsts.tolist(), weights, strict=True) if row[: len(places)] == places]
        assert share == pytest.approx(sum(hits) / weights.sum())
    assert len({tuple(event) for event in events.tolist()}) == 5 + 20 + 5


@pytest.mark.parametrize("seed", range(4))
def test_mixture_of_moments__recovers_exact_moments(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, share = rng.normal(size=(2, 5)), 0.65
    moments = Moments(events_of(5), _moments_at(events_of(5), truth, share)[0])
    log_worths, shares, error = _mixture_of_moments(moments, seed=0)
    centred = truth - truth.mean(axis=1, keepdims=True)
    assert min(np.abs(log_worths[list(order)] - centred).max() for order in itertools.permutations(range(2))) < 0.02
    assert sorted(shares) == pytest.approx([0.35, 0.65], abs=0.01)
    assert error < 1e-4


def test_moments_start__comes_near_with_many_rankings() -> None:
    rng = np.random.default_rng(3)
    truth = draw_log_worths(2, 6, None, rng)
    distances = []
    for n_rankings in (1_000, 100_000):
        block, _ = draw_rankings(truth, np.array([0.6, 0.4]), n_rankings, rng, length=3, unranked="below")
        log_worths, _, about = moments_start(block, SETTINGS)
        assert about["moment_rankings"] == n_rankings
        distances.append(matched_distance(log_worths, truth))
    assert distances[1] < 0.25
    assert distances[1] < distances[0]


def test_fit__from_moments() -> None:
    rng = np.random.default_rng(5)
    truth = np.array([[2.0, 1.0, 0.0, -1.0, -2.0], [-2.0, -1.0, 0.0, 1.0, 2.0]])
    block, _ = draw_rankings(truth, np.array([0.6, 0.4]), 3_000, rng)
    model = PlackettLuceMixture(2, init="moments", random_state=0).fit(block)
    other = PlackettLuceMixture(2, init=truth).fit(block)
    assert model.init_["method"] == "moments"
    assert model.init_["moment_error"] < 0.01
    assert model.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-9)
    fixed = PlackettLuceMixture(2, init="moments", shares=[0.3, 0.7], random_state=0).fit(block)
    assert fixed.shares_ == pytest.approx([0.7, 0.3], abs=1e-12)
    assert fixed.converged_


def test_moments_start__uses_rankings_of_all_items_only() -> None:
    rows = [slate([0, 1, 2], [3]), top(0, 1), slate([0, 1, 2], []), top(3, 2, 1), top(0, 1, 2, weight=2.0)]
    # The first three say nothing about the first three places of all five items.
    _, _, about = moments_start(block_of(rows, 5), SETTINGS)
    assert about["moment_rankings"] == 2
    with pytest.raises(SettingsError, match="init='moments' needs rankings of all items that order at least three"):
        moments_start(block_of(rows[:3], 5), SETTINGS)


@pytest.mark.parametrize("n_items", [3, 31])
def test_moments_start__too_few_or_many_items(n_items: int) -> None:
    block, _ = draw_rankings(np.zeros((1, n_items)), np.ones(1), 20, np.random.default_rng(0))
    with pytest.raises(SettingsError, match=f"init='moments' takes 4 to 30 items, but there are {n_items}"):
        PlackettLuceMixture(2, init="moments").fit(block)


@pytest.mark.parametrize("n_components", [1, 3])
def test_moments_start__two_components(n_components: int) -> None:
    message = f"init='moments' is defined for two components, but n_components is {n_components}"
    with pytest.raises(SettingsError, match=message):
        PlackettLuceMixture(n_components, init="moments").fit([[0, 1, 2, 3]])
