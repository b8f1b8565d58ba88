"""The default prior: at least as good on rankings held out as weaker ones, and no obstacle on large data."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from click import Command
from scipy.special import polygamma

from benchmarks import prior
from plmix_dist import PlackettLuceMixture
from plmix_dist.cli import plmix
from plmix_dist.fitting.methods import FitSettings
from plmix_dist.solvers.likelihood import log_prior

pytestmark = [
    pytest.mark.filterwarnings("ignore::plmix_dist.errors.CollapsedComponentWarning"),
    pytest.mark.filterwarnings("ignore::plmix_dist.errors.StartWarning"),
]


def test_default__one_value_everywhere() -> None:
    fit = plmix.commands["fit"]
    assert isinstance(fit, Command)
    (option,) = [each for each in fit.params if each.name == "alpha"]
    default = inspect.signature(PlackettLuceMixture).parameters["alpha"].default
    assert default == FitSettings(2).alpha == option.default == 1.0


def held_out(case: prior.Case, n_components: int, alpha: float, seeds: range) -> float:
    return float(np.mean([prior.held_out(prior.data_of(case, seed), n_components, alpha) for seed in seeds]))


def test_default__three_components_predict_better_than_one_on_50_short_rankings() -> None:
    case, default = prior.Case("top 5 of 20", 50), PlackettLuceMixture().alpha
    one, three = (held_out(case, n_components, default, range(3)) for n_components in (1, 3))
    assert three > one
    assert three > held_out(case, 3, 0.1, range(3)) + 0.1


def test_default__equal_on_large_data() -> None:
    case: Any = prior.Case("10 items", 5_000, n_items=10, length=None, unranked=None)
    default = held_out(case, 3, PlackettLuceMixture().alpha, range(1))
    assert default == pytest.approx(held_out(case, 3, 0.1, range(1)), abs=1e-3)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 2.0])
def test_prior__standard_deviation_as_documented(alpha: float) -> None:
    # docs/fitting.md: sqrt(2 trigamma(alpha)); here by numerical integration of the density.
    grid = np.linspace(-200, 200, 400_001)
    density = np.exp([log_prior(np.array([each]), 0.0, alpha) for each in grid[::20]])
    variance = (grid[::20] ** 2 * density).sum() / density.sum()
    assert np.sqrt(variance) == pytest.approx(np.sqrt(2 * float(polygamma(1, alpha))), rel=1e-3)
