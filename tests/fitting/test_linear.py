"""Fits with linear utilities, part by part: how coefficients are laid out, what their prior holds, what samples say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist import RankingBlock
from plmix_dist.datasets.given import rankings_of_block
from plmix_dist.fitting.algorithm import run
from plmix_dist.fitting.covariates import Units
from plmix_dist.fitting.linear import Columns, Layout, LinearFit, LinearState, _LinearGood, damped_step
from plmix_dist.fitting.linear_fit import LinearEnd, _combine, _Gram
from plmix_dist.kernels.utilities import linear_information
from plmix_dist.passes.dask import passes_over

RNG = np.random.default_rng(0)
SHARED, SCALE, RIDGE = np.array([False, True, False]), np.array([2.0, 1.0, 0.5]), np.array([0.0, 1.0, 2.0])
COLUMNS = Columns(RNG.normal(size=(4, 2)), ("a", "b", "c"), SHARED, SCALE, RIDGE)


def test_layout__vectors_and_points_say_the_same() -> None:
    layout = Layout(COLUMNS, 3, Units(np.array([1.0]), np.array([2.0])), share_ridge=0.5)
    vector = RNG.normal(size=layout.n_free)
    assert_allclose(layout.vector(layout.point(vector)), vector)
    # Intercepts of shares have no prior.
    assert layout.precision.tolist() == [0.0, 1.0, 2.0, *[0.0, 2.0] * 2, *[0.0, 0.5] * 2]


def test_curvature__of_a_sample_stands_for_all_rows() -> None:
    layout = Layout(COLUMNS, 2, Units.none())
    rows = np.array([RNG.permutation(4) for _ in range(50)])
    block = RankingBlock.from_array(rows).replace(features=RNG.normal(size=(200, 1)))
    fit, point = LinearFit(layout, 100.0, 50), layout.point(RNG.normal(size=layout.n_free))
    sampled = fit.curvature_of(linear_information(block, point), 2.0)
    for mine, whole in zip(
        sampled, fit.curvature_of(linear_information(block.replace(weights=np.full(50, 2.0)), point)), strict=True
    ):
        assert_allclose(mine, whole)


def test_error__says_in_which_iteration() -> None:
    layout = Layout(COLUMNS, 1, Units.none())
    rows = rankings_of_block(
        RankingBlock.from_array([[0, 1, 2, 3], [3, 1, 0, 2]]).replace(features=RNG.normal(size=(8, 1)))
    )
    fit = LinearFit(layout, 2.0, 2, given=frozenset("abc"))
    with passes_over(rows) as passes:
        ended = run(passes, fit, fit.start(np.array([20.0, 0.0, 0.0])))
    assert str(ended.error).startswith("iteration 1, the coefficient of a in component 0 has no")


def test_order_of_components__shares_are_measured_from_the_first() -> None:
    end = LinearEnd(Layout(COLUMNS, 2, Units.none()).point(np.arange(6.0)), Layout(COLUMNS, 2, Units.none()))
    assert end.reordered(np.array([1, 0])).point.share_coefficients.tolist() == [[0.0], [-5.0]]


@pytest.mark.parametrize(("gradient", "ended"), [(1e-6, "converged"), (1e-3, "stalled")])
def test_end__where_no_step_is_short_enough(gradient: float, ended: str) -> None:
    layout = Layout(COLUMNS, 1, Units.none())
    good = _LinearGood(np.zeros(3), 0.0, 0.0, np.full(3, gradient), np.ones(1))
    fit = LinearFit(layout, 2.0, 2, tol=1e-8)
    assert fit._shortened(LinearState(np.zeros(3), good, damping=1e8)).ended == ended


def test_step__goes_no_further_than_two_either_way() -> None:
    for sign in (1.0, -1.0):
        assert_allclose(
            damped_step(np.eye(2), np.ones(2), np.array([40.0, 10.0]) * sign, 0.0), [2.0 * sign, 0.5 * sign]
        )


@pytest.mark.parametrize(("before", "renewed"), [(1e-3, True), (1e6, False)])
def test_information__is_computed_again_where_the_gradient_does_not_come_down(before: float, renewed: bool) -> None:
    layout = Layout(COLUMNS, 1, Units.none())
    block = RankingBlock.from_array([[0, 1, 2, 3], [3, 1, 0, 2]]).replace(features=RNG.normal(size=(8, 1)))
    fit = LinearFit(layout, 2.0, 2, always_renews=False)
    state = fit.start(np.zeros(3), (np.eye(3), np.ones(3)))
    # The gradient of the twelfth point, which comes next, is beside that of the sixth.
    state = state._replace(history=({"gradient": before, "taken": True},) * 11)
    with passes_over(rankings_of_block(block)) as passes:
        state = fit.tell(state, passes.run(fit.ask(state)))
        assert state.renews == renewed
        assert len(fit.ask(state)) == 1 + renewed


def test_end__not_where_the_gradient_is_large() -> None:
    # A step that changes nothing, such as one that was cut short, is not the end.
    layout = Layout(COLUMNS, 1, Units.none())
    block = RankingBlock.from_array([[0, 1, 2, 3], [3, 1, 0, 2]]).replace(features=RNG.normal(size=(8, 1)))
    fit = LinearFit(layout, 2.0, 2, tol=1e-6)
    state = fit.start(np.ones(3))
    with passes_over(rankings_of_block(block)) as passes:
        for _ in range(2):
            state = fit.tell(state._replace(vector=np.ones(3)), passes.run(fit.ask(state._replace(vector=np.ones(3)))))
    assert (state.history[-1]["change"], state.ended) == (0.0, None)
    assert state.history[-1]["gradient"] > 1e-3


def test_columns__the_largest_entry_is_that_of_all_leaves() -> None:
    small, large = (_Gram(np.eye(1), np.array(1.0), np.array([size])) for size in (1.0, 9.0))
    assert _combine(small, large).largest.tolist() == _combine(large, small).largest.tolist() == [9.0]
