"""Numbers of the page: memberships in bins, what sets components apart, and how their number was chosen."""

from __future__ import annotations

import numpy as np
import pytest

import plmix_dist as pl
from plmix_dist.report.components import component_views, items_that_differ, membership_sums, scale_of
from plmix_dist.report.history import selection_table, smaller_is_better


def test_memberships__bins_and_sums_of_three_components() -> None:
    posteriors = np.array([[0.95, 0.05, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
    found = membership_sums(posteriors, np.array([1.0, 2.0, 3.0]))
    assert found.histogram.shape == (3, 20)
    assert [np.flatnonzero(line).tolist() for line in found.histogram] == [[19], [12], [19]]
    assert found.weight.tolist() == [1.0, 2.0, 3.0]
    assert found.certain.tolist() == [1.0, 0.0, 3.0]
    np.testing.assert_allclose(found.certainty, [0.95, 0.6, 1.0])
    np.testing.assert_allclose(found.together[1], [0.8, 1.2, 0.0])


def test_components__what_sets_them_apart() -> None:
    mixture = pl.MixtureParams.of([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]], [0.6, 0.4], ["tea", "mate", "milk"])
    scale = scale_of(mixture, None)
    views = component_views(mixture, scale, None)
    assert views[1].beginnings[0].items == (1, 2, 0)
    assert [apart.item for apart in views[1].liked] == [1]
    assert [apart.item for apart in views[1].disliked] == [0]
    assert items_that_differ(scale, most=2) == [0, 1]


def test_selection_table__columns_of_numbers_and_the_best() -> None:
    table = selection_table({"n_components": [3, 2], "bic": [10.0, 11.0], "held_out": [-2.0, -1.0], "note": "ab"})
    assert table.n_components == [2, 3]
    assert table.columns == {"bic": [11.0, 10.0], "held_out": [-1.0, -2.0]}
    assert (table.best("bic"), table.best("held_out")) == (3, 2)
    assert smaller_is_better("bic")
    assert not smaller_is_better("held_out")


@pytest.mark.parametrize(("n_items", "n_shown"), [(15, 15), (16, 10)])
def test_components__few_items_are_all_shown(n_items: int, n_shown: int) -> None:
    mixture = pl.MixtureParams.of([np.arange(n_items)], [1.0], [f"item {number}" for number in range(n_items)])
    (view,) = component_views(mixture, scale_of(mixture, None), None)
    assert view.shown == list(range(n_items))[::-1][:n_shown]
