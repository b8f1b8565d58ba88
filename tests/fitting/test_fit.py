"""Whole fits: the M-step that is chosen, items with little data."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import NotIdentifiedError, PlmixError, SettingsError
from plmix_dist.fitting.em import Ends
from plmix_dist.fitting.fit import best_of, choose_m_step
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.fitting.overview import Extent
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import LSR, MM


@pytest.mark.parametrize(
    ("n_items", "length", "unranked", "expected"),
    [(40, 3, "absent", "lsr"), (40, 3, "below", "mm"), (40, 30, "absent", "mm"), (8, None, None, "mm")],
)
def test_m_step__auto(n_items: int, length: int, unranked: Any, expected: str) -> None:
    rng = np.random.default_rng(0)
    block, _ = draw_rankings(rng.normal(size=(1, n_items)), np.ones(1), 600, rng, length=length, unranked=unranked)
    assert PlackettLuceMixture(1).fit(block).m_step_ == expected


def test_m_step__rates_that_no_worker_can_hold() -> None:
    extent = Extent(10.0, 10, 20, 0)
    with pytest.raises(SettingsError, match=r"m_step='lsr' sums 2 x 10000 x 10000 numbers.*choose m_step=\"mm\""):
        choose_m_step(FitSettings(2, m_step="lsr"), extent, 10_000)
    assert choose_m_step(FitSettings(2, m_step="auto"), extent, 10_000) is MM
    assert choose_m_step(FitSettings(2, m_step="auto"), extent, 1_000) is LSR


def test_best_of__the_score_decides() -> None:
    def run(score: float) -> Any:
        return SimpleNamespace(score=score)

    assert best_of(Ends({0: run(-30.0), 3: run(-20.0), 5: run(-25.0)}, {})) == 3


# Items 0 to 2 are compared by everybody; item 3 never occurs.
ROWS = np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]] * 10)


def fitted(rows: object, n_components: int = 1, **options: object) -> PlackettLuceMixture:
    return PlackettLuceMixture(n_components, unranked="absent", random_state=0, **options).fit(rows, n_items=4)


@pytest.mark.parametrize("n_components", [1, 2])
def test_an_item_never_seen_has_the_worth_of_the_ghost(n_components: int) -> None:
    model = fitted(ROWS, n_components)
    np.testing.assert_allclose(model.log_worths_[:, 3], model._ghosts, atol=1e-6)


def test_without_a_prior_an_item_never_seen_is_named() -> None:
    with pytest.raises(NotIdentifiedError, match=r"never on offer: 3\)"):
        fitted(ROWS, alpha=0)


@pytest.mark.parametrize("order", [[3, 0], [0, 3]], ids=["first", "last"])
def test_an_item_seen_once_is_pulled_one_way_by_the_prior(order: list[int]) -> None:
    rows = [*ROWS.tolist(), order]
    weak, strong = fitted(rows, alpha=0.1), fitted(rows, alpha=5.0)
    sign = 1 if order[0] == 3 else -1
    distances = [sign * (model.log_worths_[0, 3] - model._ghosts[0]) for model in (weak, strong)]
    assert np.isfinite(distances).all()
    assert distances[0] > distances[1] > 0
    never = "below" if order[0] == 3 else "above"
    with pytest.raises(NotIdentifiedError, match=rf"never {never} another item: 3\)"):
        fitted(rows, alpha=0)


def test_an_item_of_another_fold_can_be_scored() -> None:
    model = fitted(ROWS)
    probability = np.exp(model.score_samples([[3, 0]]))[0]
    expected = 1 / (1 + np.exp(model.log_worths_[0, 0] - model.log_worths_[0, 3]))
    assert probability == pytest.approx(expected, rel=1e-9)


def test_an_item_that_the_model_does_not_know_is_named() -> None:
    names = np.array(["tea", "mate", "milk"])
    model = PlackettLuceMixture(1, random_state=0).fit(names[ROWS])
    with pytest.raises(PlmixError, match="water"):
        model.score([["water", "tea", "mate"]])
