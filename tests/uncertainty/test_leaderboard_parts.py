"""Parts of leaderboards, noise and calibration, each beside its definition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.testing import assert_allclose

from plmix_dist import MixtureParams, Ranking, RankingBlock
from plmix_dist.fitting.noise import _log_bayes_factors, _prepare, _with_noise
from plmix_dist.fitting.point import Point
from plmix_dist.prediction.calibration import _first_choices
from plmix_dist.uncertainty.leaderboard import _before, _Board, _by_replicates

WORTHS = np.array([[1.0, 0.2, -1.2], [-0.9, 0.1, 0.8]])


def test_intervals__have_a_fortieth_on_each_side() -> None:
    drawn = np.linspace(0.0, 1.0, 1_001)[None, :, None]
    (board,) = _by_replicates(drawn, [_Board(np.zeros(1))])
    assert board.ends is not None
    assert_allclose(np.ravel(board.ends), [0.025, 0.975])


def test_tiers__by_the_error_of_the_difference() -> None:
    # Each rating is uncertain, and their difference is not.
    covariance = np.array([[1.0, 0.99], [0.99, 1.0]])
    assert _Board(np.array([1.0, 0.0]), covariance).tiers.tolist() == [1, 2]
    assert _Board(np.array([1.0, 0.0]), np.diag([1.0, 1.0])).tiers.tolist() == [1, 1]


def test_before__components_in_another_order() -> None:
    mixture = MixtureParams.of(WORTHS, [0.6, 0.4], ["a", "b", "c"])
    turned = MixtureParams.of(WORTHS[::-1], [0.6, 0.4], ["a", "b", "c"])
    old: Any = SimpleNamespace(_mixture=lambda: turned, _comparable=lambda: turned)
    found = _before(old, mixture, [0, 1], "log", None, False)
    assert_allclose(found[:2], mixture.log_worths)


def test_noise__has_the_mean_of_the_weights_of_ties() -> None:
    log_ties = np.array([[-1.0], [3.0]])
    point = Point(WORTHS, np.zeros(2), np.log([0.5, 0.5]), log_ties)
    assert _with_noise(point, 0.1, "davidson-each").log_ties.ravel().tolist() == [-1.0, 3.0, 1.0]


def test_noise__evidence_of_a_tie_is_the_mean_over_its_orders() -> None:
    params = _prepare(MixtureParams.of([*WORTHS, np.zeros(3)], [0.5, 0.3, 0.2], ["a", "b", "c"]))
    tied = RankingBlock.from_rows([Ranking(((0, 1), (2,)), (), "absent", 1.0)], n_items=3)
    orders = RankingBlock.from_array([[0, 1, 2], [1, 0, 2]])
    expected = _log_bayes_factors("expand", orders, params).mean()
    assert_allclose(_log_bayes_factors("expand", tied, params), [expected])


def test_calibration__a_tie_for_the_first_place_is_no_first_choice() -> None:
    rows = [Ranking(((0, 1), (2,)), (), "absent", 1.0), Ranking(((2,), (0, 1)), (), "absent", 4.0)]
    mixture = MixtureParams.of(WORTHS, [0.5, 0.5], ["a", "b", "c"])
    found = _first_choices(0, RankingBlock.from_rows(rows, n_items=3), (mixture, None, 10))
    assert (found.weight.sum(), found.observed.sum()) == (12.0, 4.0)
