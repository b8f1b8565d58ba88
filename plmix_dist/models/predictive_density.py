"""Log-likelihoods of single persons over draws: WAIC, and leave-one-out by Pareto-smoothed importance sampling (PSIS).

Vehtari, Gelman & Gabry (2017), and Vehtari, Simpson, Gelman, Yao & Gabry (2024). One pass over the rankings; a leaf is
taken some persons at a time, so memory grows neither with rankings nor with draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.kernels import Prepared, memberships_at, prepare
from plmix_dist.passes import Aggregation, Passes, Request, ask
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.rankings.groups import n_memberships, row_runs
from plmix_dist.threads import single_thread

# Log-likelihoods that are held at once, in a leaf and in a matrix for ArviZ.
_MOST_IN_LEAF = 1 << 20
_MOST_IN_MATRIX = 1 << 27
# Weights of draws may be taken at their word up to this Pareto shape.
_LARGEST_SHAPE = 0.7
# Fewer draws have no tail to fit.
_FEWEST_DRAWS = 25

_Draws = list[tuple[Floats, Floats]]


# WAIC: how well draws predict persons, from running moments over draws; one pass, in memory that draws do not fill.


class Waic(NamedTuple):
    """The widely applicable information criterion (Watanabe 2010), on the scale of a log-likelihood.

    Parameters
    ----------
    elpd
        Expected log predictive density of new persons: the higher, the better.
    standard_error
        Of `elpd`, from its spread over persons.
    n_effective
        The effective number of parameters: variances over draws of the log-likelihood, summed over persons.
    n_persons
        Persons: total weight, or groups.
    n_unstable
        Persons with a variance above 0.4: with more than a few of them WAIC is not reliable.
    """

    elpd: float
    standard_error: float
    n_effective: float
    n_persons: float
    n_unstable: float

    @property
    def waic(self) -> float:
        """Minus twice `elpd`: the lower, the better."""
        return -2 * self.elpd


# A variance of a person's log-likelihood above this (Vehtari, Gelman & Gabry 2017).
_UNSTABLE = 0.4


def _waic_leaf(_number: int, block: RankingBlock, draws: _Draws) -> Floats:
    """(5,), sums over persons: log densities less variances, their squares, variances, weights, those of unstable ones.

    For each person there are four running numbers, whatever the number of draws.
    """
    # Moments of log-likelihoods: mean and squares (Welford), and the log of the mean of their exponentials.
    mean = squares = total = np.zeros(n_memberships(block))
    largest = np.full(len(total), -np.inf)
    for count, draw in enumerate(draws, start=1):
        at = memberships_at(block, prepare(*draw))
        change = at.log_likelihoods - mean
        mean = mean + change / count
        squares = squares + change * (at.log_likelihoods - mean)
        larger = np.maximum(largest, at.log_likelihoods)
        total = total * np.exp(largest - larger) + np.exp(at.log_likelihoods - larger)
        largest = larger
    weights, variances = at.weights, squares / max(len(draws) - 1, 1)
    elpd = largest + np.log(total / len(draws)) - variances
    sums = [(weights * values).sum() for values in (elpd, elpd**2, variances)]
    return np.array([*sums, weights.sum(), weights[variances > _UNSTABLE].sum()])


_WAIC = Aggregation("waic", leaf=_waic_leaf)


def waic_of(passes: Passes, log_worths: Floats, log_shares: Floats) -> Waic:
    """WAIC from draws: log-worths (n_draws, n_components, n_items) and log-shares (n_draws, n_components)."""
    sums: Floats = ask(passes, Request(_WAIC, list(zip(log_worths, log_shares, strict=True))))
    elpd, squares, variances, n_persons, unstable = sums.tolist()
    return Waic(elpd, _error_of(elpd, squares, n_persons), variances, n_persons, unstable)


def _error_of(elpd: float, squares: float, n_persons: float) -> float:
    """The standard error of an expected log predictive density, from sums over persons."""
    return math.sqrt(n_persons * max(0.0, squares / n_persons - (elpd / n_persons) ** 2))


# Leave-one-out, from weights of draws.


class Loo(NamedTuple):
    """Leave-one-out cross-validation of persons by PSIS, on the scale of a log-likelihood.

    Parameters
    ----------
    elpd
        Expected log predictive density of new persons: the higher, the better.
    standard_error
        Of `elpd`, from its spread over persons.
    n_effective
        The effective number of parameters: log predictive density less `elpd`.
    n_persons
        Persons: total weight, or groups.
    largest_shape
        The largest Pareto shape (k) of a person.
    n_unreliable
        Persons with a shape above 0.7: the posterior without them differs too much. With more than a few, take the
        held-out likelihood of `MixtureSelection`.
    """

    elpd: float
    standard_error: float
    n_effective: float
    n_persons: float
    largest_shape: float
    n_unreliable: float

    @property
    def loo(self) -> float:
        """Minus twice `elpd`: the lower, the better."""
        return -2 * self.elpd


# Sums over persons (5,): log densities without each, their squares, those with all, weights, and weights of unreliable
# ones; and the largest shape.
_Sums = tuple[Floats, float]


def loo_of(passes: Passes, log_worths: Floats, log_shares: Floats) -> Loo:
    """Leave-one-out from draws: log-worths (n_draws, n_components, n_items) and log-shares (n_draws, n_components)."""
    if len(log_shares) < _FEWEST_DRAWS:
        raise SettingsError(
            f"leave-one-out needs {_FEWEST_DRAWS} draws or more, but has {len(log_shares)}; raise n_draws or max_draws"
        )
    sums, largest = ask(passes, Request(_LOO, list(zip(log_worths, log_shares, strict=True))))
    elpd, squares, density, n_persons, unreliable = sums.tolist()
    return Loo(elpd, _error_of(elpd, squares, n_persons), density - elpd, n_persons, largest, unreliable)


def pointwise_of(passes: Passes, log_worths: Floats, log_shares: Floats) -> Floats:
    """(n_draws, n_persons): log-likelihoods. A row of weight w is w persons, so it has w columns."""
    parts: tuple[Floats, ...] = ask(passes, Request(_POINTWISE, list(zip(log_worths, log_shares, strict=True))))
    return np.concatenate(parts, axis=1)


def _check_size(n_draws: int, n_persons: int) -> None:
    if n_draws * n_persons > _MOST_IN_MATRIX:
        raise SettingsError(
            f"log-likelihoods of {n_persons:,} persons for {n_draws:,} draws are too many for one matrix; choose a "
            "smaller max_draws, or take loo(X) or waic(X), which need no matrix"
        )


def _psis(log_ratios: Floats) -> tuple[Floats, Floats]:
    """Smoothed log-weights (n_draws, n) that sum to one, and Pareto shapes (n,), of log importance ratios (n_draws, n).

    The largest ratios are replaced by quantiles of a generalised Pareto distribution that is fitted to them.

    Examples
    --------
    >>> ratios = np.random.default_rng(0).standard_exponential((1_000, 1)) / 2  # a Pareto tail of shape 1/2
    >>> weights, shapes = _psis(ratios)
    >>> round(float(np.exp(weights).sum()), 6), bool(0.3 < shapes[0] < 0.7)
    (1.0, True)
    """
    n_draws = len(log_ratios)
    logs = log_ratios - log_ratios.max(axis=0)
    n_tail = math.ceil(min(n_draws / 5, 3 * math.sqrt(n_draws)))
    order = np.argsort(logs, axis=0, kind="stable")
    tail, cut = order[-n_tail:], np.take_along_axis(logs, order[-n_tail - 1 : -n_tail], axis=0)
    cut = np.exp(np.maximum(cut, np.log(np.finfo(np.float64).tiny)))
    excess = np.exp(np.take_along_axis(logs, tail, axis=0)) - cut
    # Ratios that are equal, or underflow, have no tail to smooth.
    smooth = excess[0] > 0
    shapes = np.where(excess[-1] > 0, np.inf, -np.inf)
    if smooth.any():
        shapes[smooth], scales = _fit_pareto(excess[:, smooth])
        places = np.log1p(-(np.arange(n_tail) + 0.5) / n_tail)[:, None]
        own = np.where(np.abs(shapes[smooth]) < 1e-12, 1e-12, shapes[smooth])
        quantiles = scales * np.expm1(-own * places) / own
        logs[tail[:, smooth], np.flatnonzero(smooth)] = np.minimum(np.log(quantiles + cut[:, smooth]), 0.0)
    found: Floats = logs - np.logaddexp.reduce(logs, axis=0)
    return found, shapes


def _fit_pareto(excess: Floats) -> tuple[Floats, Floats]:
    """Shapes and scales (n,) of rising positive numbers (n_tail, n): Zhang & Stephens (2009), shapes drawn to 1/2."""
    n_tail = len(excess)
    n_points = 30 + int(math.sqrt(n_tail))
    grid = 1 - np.sqrt(n_points / (np.arange(1, n_points + 1) - 0.5))
    points = grid[:, None] / (3 * excess[int(n_tail / 4 + 0.5) - 1]) + 1 / excess[-1]
    shapes = np.log1p(-points[:, None, :] * excess).mean(axis=1)
    fits = n_tail * (np.log(-points / shapes) - shapes - 1)
    weights = np.exp(fits - np.logaddexp.reduce(fits, axis=0))
    point = (points * np.where(weights >= 10 * np.finfo(np.float64).eps, weights, 0.0)).sum(axis=0)
    shape = np.log1p(-point * excess).mean(axis=0)
    return (n_tail * shape + 5) / (n_tail + 10), -shape / point


def _log_likelihoods(block: RankingBlock, draws: _Draws, at_once: int) -> Iterator[tuple[Floats, NDArray[np.float64]]]:
    """Log-likelihoods (n_draws, n) and weights (n,) of some persons at a time."""
    points: list[Prepared] = [prepare(*draw) for draw in draws]
    for run in row_runs(block, max(1, at_once // len(draws))):
        found = [memberships_at(run, point) for point in points]
        yield np.array([at.log_likelihoods for at in found]), found[0].weights


def _loo_leaf(_number: int, block: RankingBlock, draws: _Draws) -> _Sums:
    sums, largest = np.zeros(5), -np.inf
    with single_thread():
        for logs, weights in _log_likelihoods(block, draws, _MOST_IN_LEAF // 16):
            smoothed, shapes = _psis(-logs)
            elpd = np.logaddexp.reduce(smoothed + logs, axis=0)
            density = np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))
            columns = (elpd, elpd**2, density, np.ones_like(elpd), 1.0 * (shapes > _LARGEST_SHAPE))
            sums += [float(weights @ column) for column in columns]
            largest = max(largest, float(shapes.max()))
    return sums, largest


def _loo_combined(left: _Sums, right: _Sums) -> _Sums:
    return left[0] + right[0], max(left[1], right[1])


def _pointwise_leaf(_number: int, block: RankingBlock, draws: _Draws) -> tuple[Floats, ...]:
    parts = []
    for logs, weights in _log_likelihoods(block, draws, _MOST_IN_LEAF):
        counts = np.rint(weights).astype(np.int64)
        if (counts != weights).any():
            raise SettingsError("log-likelihoods of persons need weights that are counts: whole numbers")
        _check_size(len(logs), int(counts.sum()))
        parts.append(np.repeat(logs, counts, axis=1))
    return tuple(parts)


def _pointwise_combined(left: tuple[Floats, ...], right: tuple[Floats, ...]) -> tuple[Floats, ...]:
    parts = left + right
    _check_size(len(parts[0]), sum(part.shape[1] for part in parts))
    return parts


_LOO = Aggregation("loo", leaf=_loo_leaf, combine=_loo_combined)
_POINTWISE = Aggregation("pointwise", leaf=_pointwise_leaf, combine=_pointwise_combined)
