"""Quasi-variances: one number per item such that the variance of every difference is nearly the sum of two of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.rankings import Floats

_MOST_STEPS = 200
_SETTLED = 1e-13


class QuasiVariances(NamedTuple):
    """Quasi-variances (n_items,) of log-worths, and how far they are from the truth."""

    values: Floats  # (n_items,): they may be negative for single items; the sum of two never is
    # The lowest and the highest relative error of the standard error of a difference.
    worst_errors: tuple[float, float]

    @property
    def standard_errors(self) -> Floats:
        """(n_items,): their square roots; NaN where a quasi-variance is negative."""
        with np.errstate(invalid="ignore"):
            roots: Floats = np.sqrt(self.values)
        return roots


def quasi_variances(covariance: Floats) -> QuasiVariances:
    """Quasi-variances of a covariance matrix (n_items, n_items), as qvcalc of R has them (Firth and de Menezes 2004).

    They minimise the sum over pairs of (log(q_i + q_j) - log(variance of the difference))**2.
    """
    n_items = len(covariance)
    if n_items < 3:
        raise SettingsError(f"quasi-variances need at least 3 items, but there are {n_items}")
    if not np.isfinite(covariance).all():
        raise SettingsError(
            "quasi-variances need a covariance of all items, but some log-worths are not identified; see `unidentified`"
        )
    diagonal = np.diag(covariance)
    logs = np.log(np.maximum(diagonal[:, None] + diagonal[None, :] - 2 * covariance, 1e-300))
    pairs = ~np.eye(n_items, dtype=bool)
    values = _start(np.exp(logs), pairs)
    objective = _objective(values, logs, pairs)
    for _ in range(_MOST_STEPS):
        step = _step(values, logs, pairs)
        share = 1.0
        while share > 1e-10 and not _objective(values + share * step, logs, pairs) <= objective:
            share /= 2
        moved = values + share * step
        settled = float(np.abs(share * step).max()) <= _SETTLED * float(np.abs(values).max())
        if share <= 1e-10:
            break
        values, objective = moved, _objective(moved, logs, pairs)
        if settled:
            break
    ratios = np.sqrt(np.exp(np.log(values[:, None] + values[None, :], where=pairs, out=np.zeros_like(logs)) - logs))
    errors = ratios[pairs] - 1
    return QuasiVariances(values, (float(errors.min()), float(errors.max())))


def _start(variances: Floats, pairs: NDArray[np.bool_]) -> Floats:
    """Least squares of q_i + q_j on the variances; positive numbers if some sum is not."""
    n_items = len(variances)
    sums = np.where(pairs, variances, 0.0).sum(axis=1)
    values: Floats = (sums - sums.sum() / (2 * (n_items - 1))) / (n_items - 2)
    added = (values[:, None] + values[None, :])[pairs]
    return values if added.min() > 1e-3 * variances[pairs].min() else sums / (2 * (n_items - 1))


def _objective(values: Floats, logs: Floats, pairs: NDArray[np.bool_]) -> float:
    added = (values[:, None] + values[None, :])[pairs]
    return np.inf if not added.min() > 0 else float(((np.log(added) - logs[pairs]) ** 2).sum())


def _step(values: Floats, logs: Floats, pairs: NDArray[np.bool_]) -> Floats:
    """The step of Gauss and Newton."""
    added = values[:, None] + values[None, :]
    inverse = np.divide(1.0, added, out=np.zeros_like(added), where=pairs)
    residuals = np.where(pairs, np.log(np.where(pairs, added, 1.0)) - logs, 0.0)
    matrix = inverse**2
    matrix += np.diag(matrix.sum(axis=1))
    return -np.linalg.solve(matrix, (residuals * inverse).sum(axis=1))
