"""WAIC: how well draws predict persons, from running moments over draws; one pass, in memory that draws do not fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.kernels import memberships_at, prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.engine.passes import Passes
    from plmix_dist.rankings import RankingBlock

    Table = NDArray[np.float64]


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


class _Sums(NamedTuple):
    """Sums over persons: of log predictive densities less variances, of their squares, of variances, of weights."""

    elpd: Table
    squares: Table
    variances: Table
    weight: Table
    unstable: Table


# A variance of a person's log-likelihood above this (Vehtari, Gelman & Gabry 2017).
_UNSTABLE = 0.4


def _leaf(number: int, block: RankingBlock, draws: list[tuple[Table, Table]]) -> _Sums:
    """One leaf: for each person four running numbers, whatever the number of draws."""
    del number
    running: _Running | None = None
    weights = np.zeros(0)
    for log_worths, log_shares in draws:
        at = memberships_at(block, prepare(log_worths, log_shares))
        running = _Running(at.log_likelihoods) if running is None else running.add(at.log_likelihoods)
        weights = at.weights
    assert running is not None, "there is at least one draw"
    variances = running.squares / max(running.count - 1, 1)
    elpd = running.largest + np.log(running.total / running.count) - variances
    return _Sums(
        np.array((weights * elpd).sum()),
        np.array((weights * elpd**2).sum()),
        np.array((weights * variances).sum()),
        np.array(weights.sum()),
        np.array(weights[variances > _UNSTABLE].sum()),
    )


class _Running:
    """Moments of log-likelihoods so far: the log of the mean of their exponentials, mean and squares (Welford)."""

    def __init__(self, first: Table) -> None:
        self.count = 1
        self.mean, self.squares = first.copy(), np.zeros_like(first)
        self.largest, self.total = first.copy(), np.ones_like(first)

    def add(self, values: Table) -> _Running:
        self.count += 1
        change = values - self.mean
        self.mean += change / self.count
        self.squares += change * (values - self.mean)
        larger = np.maximum(self.largest, values)
        self.total = self.total * np.exp(self.largest - larger) + np.exp(values - larger)
        self.largest = larger
        return self


_WAIC = Aggregation("waic", leaf=_leaf)


def waic_of(passes: Passes, log_worths: Table, log_shares: Table) -> Waic:
    """WAIC from draws: log-worths (n_draws, n_components, n_items) and log-shares (n_draws, n_components).

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> passes = ThreadedPasses(as_rankings([[0, 1]] * 3 + [[1, 0]]))
    >>> found = waic_of(passes, np.zeros((5, 1, 2)), np.zeros((5, 1)))
    >>> bool(np.isclose(found.elpd, 4 * np.log(0.5))), found.n_effective
    (True, 0.0)
    """
    (answer,) = passes.run([Request(_WAIC, list(zip(log_worths, log_shares, strict=True)))])
    if answer.error is not None:
        raise answer.error
    sums: _Sums = answer.results[0]
    n_persons, elpd = float(sums.weight), float(sums.elpd)
    spread = max(0.0, float(sums.squares) / n_persons - (elpd / n_persons) ** 2)
    return Waic(
        elpd, float(np.sqrt(n_persons * spread)), float(sums.variances), n_persons, float(sums.unstable)
    )
