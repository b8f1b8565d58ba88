"""Items with little data: never seen, seen once, always first or last, or in one fold only."""

from __future__ import annotations

import numpy as np
import pytest

from plmix_dist import PlackettLuceMixture
from plmix_dist.errors import NotIdentifiedError, PlmixError

# Items 0 to 2 are compared by everybody; item 3 never occurs.
ROWS = np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]] * 10)


def fitted(rows: object, n_components: int = 1, **options: object) -> PlackettLuceMixture:
    return PlackettLuceMixture(n_components, unranked="absent", random_state=0, **options).fit(
        rows, n_items=4
    )


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
