"""The M-step of one component: shortened, and without rankings."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from plmix_dist.fitting import e_step
from plmix_dist.fitting.e_step import component_step
from plmix_dist.kernels import prepare
from plmix_dist.solvers import LSR, MM, MStep, Worths
from tests.helpers.fit_oracle import block_of, drawn_rows


@pytest.mark.parametrize(
    ("log_range", "alpha", "expected"),
    [(599.0, 0.1, 599.0), (601.0, 0.1, 300.5), (1e6, 0.1, 1e6 / 2**11), (1e6, 0.0, 1e6)],
    ids=["near", "halved", "halved often", "no prior"],
)
def test_m_step__halved_until_it_can_be_computed_with(log_range: float, alpha: float, expected: float) -> None:
    step = Worths(np.array([log_range / 2, -log_range / 2]), log_range)
    found = e_step._shortened(Worths(np.zeros(2), 0.0), step, alpha)
    assert np.ptp(found.log_worths) == pytest.approx(expected, rel=1e-12)
    assert found.ghost == pytest.approx(expected, rel=1e-12)


@pytest.mark.promise(23)
@pytest.mark.parametrize("m_step", [LSR, MM], ids=lambda m_step: m_step.name)
@pytest.mark.parametrize(("share", "alpha", "moves"), [(1e-7, 0.0, False), (1e-5, 0.0, True), (1e-7, 0.1, True)])
def test_m_step__of_a_component_without_rankings(m_step: MStep, share: float, alpha: float, moves: bool) -> None:
    # Both components have the same worths, so posteriors are shares.
    block = block_of(drawn_rows(1, np.array([[1.0, 0.0, -1.0]]), [1.0], 50), 3)
    worths = np.array([[0.5, 0.0, -0.5]] * 2)
    sums = m_step.sums(block, prepare(worths, np.log([1 - share, share])), None)
    step = component_step(m_step, 1, Worths(worths[1], 0.0), alpha, sums)
    assert bool(np.abs(step.next.log_worths - worths[1]).max() > 1e-3) is moves
    if not moves:
        # Nothing to learn from: the worths stay, and no derivative says otherwise.
        assert step.safe is not None
        assert step.gradient is not None
        assert np.abs(step.gradient.values).max() == step.log_prior == 0.0
        assert_allclose(step.safe.log_worths, worths[1])
