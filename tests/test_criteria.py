"""bic and aic count free parameters; starts with different numbers of components left compare by what they share."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fit_oracle import block_of, log_likelihood, slate

from plmix_dist import PlackettLuceMixture, SpectralPlackettLuce
from plmix_dist.data import as_rankings
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.errors import CollapsedComponentWarning, NotConvergedWarning, StartWarning
from plmix_dist.inference import Em, Point
from plmix_dist.inference.fit import best_of
from plmix_dist.inference.starts_to_ends import Candidate, run_to_ends
from plmix_dist.rankings.simulate import draw_rankings
from plmix_dist.solvers import MM

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    slate([0, 1, 2, 3], [], weight=7.0),
    slate([3, 1, 0, 2], [], weight=2.5),
    slate([2, 0, 3, 1], []),
    slate([1, 3, 2, 0], []),
]
WEIGHT = 11.5


def n_parameters(model: Any, rows: Any) -> tuple[float, float]:
    """The numbers of parameters that bic and aic have counted, by their definitions."""
    total = log_likelihood(ROWS, 4, model.log_worths_, model.shares_.tolist())
    return (model.bic(rows) + 2 * total) / math.log(WEIGHT), (model.aic(rows) + 2 * total) / 2


@pytest.mark.parametrize(
    ("shares", "expected"), [(None, 2 * 3 + 1), ([0.7, 0.3], 2 * 3), (np.array([0.5, 0.5]), 2 * 3)]
)
def test_free_parameters__fixed_shares_are_not_free(shares: Any, expected: int, tmp_path: Path) -> None:
    rows = block_of(ROWS, 4)
    model = PlackettLuceMixture(2, alpha=0.5, shares=shares, random_state=0).fit(rows)
    assert n_parameters(model, rows) == pytest.approx((expected, expected))
    model.save(tmp_path / "model")
    loaded = PlackettLuceMixture.load(tmp_path / "model")
    assert loaded.bic(rows) == model.bic(rows)
    assert loaded.aic(rows) == model.aic(rows)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.StartWarning")
def test_free_parameters__spectral() -> None:
    rows = block_of(ROWS, 4)
    assert n_parameters(SpectralPlackettLuce(2, random_state=0).fit(rows), rows) == pytest.approx((7, 7))


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.CollapsedComponentWarning")
def test_free_parameters__components_that_are_left() -> None:
    rows = block_of(ROWS, 4)
    model = PlackettLuceMixture(3, alpha=3.0, random_state=0).fit(rows)
    assert len(model.shares_) == 2  # the prior is stronger than what a third component would gain
    assert n_parameters(model, rows) == pytest.approx((7, 7))


def test_n_init__a_start_does_not_win_by_losing_components() -> None:
    # Two components, and a prior that costs more per component than the second one gains: by the objective, the
    # start that has one component left wins, although a second one of share zero would cost as much as any other.
    truth = np.array([[1.0, 0.5, 0.0, -0.5, -1.0], [-1.0, -0.5, 0.0, 0.5, 1.0]])
    block, _ = draw_rankings(truth, np.array([0.8, 0.2]), 30, np.random.default_rng(0))
    em = Em(MM, 2.0, weight=30.0, n_rankings=30, tol=1e-6)
    starts = [Point.start(truth, np.array([0.8, 0.2])), Point.start(truth[:1], np.ones(1))]
    ends = run_to_ends(ThreadedPasses(as_rankings(block)), em, [Candidate(start, {}) for start in starts])
    two, one = ends.runs[0], ends.runs[1]
    assert two.point.n_components == 2
    assert two.objective is not None
    assert one.objective is not None
    assert one.objective > two.objective
    assert two.log_likelihood > one.log_likelihood
    # As one of two components, the other of share zero and with the worths that the prior likes best.
    unused = -2 * 5 * 2.0 * math.log(2)
    assert one.objective + unused < two.objective
    assert best_of(ends) == 0
    assert two.score - one.score == pytest.approx(two.objective - (one.objective + unused))


TINY = [(10, 4, 5, 1), (10, 10, 5, 2), (24, 3, 4, 2), (50, 3, 2, 2), (50, 3, 3, 0), (50, 3, 4, 0)]


@pytest.mark.parametrize(("n_rankings", "n_items", "n_components", "seed"), TINY)
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_few_rows__converge_and_say_one_thing_once(
    n_rankings: int, n_items: int, n_components: int, seed: int, alpha: float
) -> None:
    rng = np.random.default_rng([n_rankings, n_items, n_components, seed])
    block, _ = draw_rankings(rng.normal(size=(3, n_items)), np.full(3, 1 / 3), n_rankings, rng)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = PlackettLuceMixture(n_components, alpha=alpha, random_state=0).fit(block)
    assert model.converged_
    assert model.n_iter_ < 300
    assert (model.shares_ > 1e-6).all()
    kinds = [each.category for each in said if not issubclass(each.category, StartWarning)]
    assert len(kinds) == len(set(kinds))
    assert NotConvergedWarning not in kinds
    if len(model.shares_) < n_components:
        (collapsed,) = [each for each in said if each.category is CollapsedComponentWarning]
        assert f"{len(model.shares_)} of {n_components} components are left" in str(collapsed.message)
