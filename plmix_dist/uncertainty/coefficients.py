"""Standard errors where utilities are linear: of coefficients, of worths, shares and cohesion made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from plmix_dist.errors import NotConvergedWarning, NotIdentifiableWarning, SettingsError, give_warnings
from plmix_dist.fitting.linear import INFORMATION, Layout
from plmix_dist.fitting.linear_fit import LinearEnd
from plmix_dist.kernels.utilities import LinearInformation
from plmix_dist.passes.request import Passes, Request, ask
from plmix_dist.rankings.columns import Floats
from plmix_dist.settings import nearest
from plmix_dist.store.mixture import MixtureParams
from plmix_dist.uncertainty.information import invert
from plmix_dist.uncertainty.results import FAR, StandardErrors, checked_level, far_words


class Ratios(NamedTuple):
    """Ratios of coefficients, one per component, with standard errors by the delta method and Fieller's intervals.

    An interval is infinite where the denominator may be zero: then any ratio is possible.
    """

    values: Floats
    standard_errors: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of columns, with their standard errors.

    Parameters
    ----------
    names : (n_columns,)
        The columns.
    values, standard_errors : (n_components, n_columns)
        In the units of the columns as they were given.
    covariance : (n_components * n_columns, n_components * n_columns)
        Component by component.
    """

    names: tuple[str, ...]
    values: Floats
    standard_errors: Floats
    covariance: Floats

    def intervals(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """(n_components, n_columns) each: lower and upper ends."""
        spread = float(ndtri((1 + checked_level(level)) / 2)) * self.standard_errors
        return self.values - spread, self.values + spread

    def wald(self, column: str) -> tuple[float, int]:
        """The Wald statistic of a column over all components that have its coefficient free, and its degrees of freedom."""
        place = np.arange(len(self.values)) * len(self.names) + self._number(column)
        own = self.covariance[np.ix_(place, place)]
        free = np.flatnonzero(np.diag(own) > 0)
        values = self.values.ravel()[place][free]
        return float(values @ np.linalg.pinv(own[np.ix_(free, free)]) @ values), len(free)

    def willingness_to_pay(self, column: str, price: str, level: float = 0.95) -> Ratios:
        """How much price one unit of a column is worth: minus the ratio of both coefficients, in each component.

        Examples
        --------
        >>> found = Coefficients(("price", "legroom"), np.array([[-0.5, 1.0]]), np.full((1, 2), 0.1), 0.01 * np.eye(2))
        >>> found.willingness_to_pay("legroom", "price").values.tolist()
        [2.0]
        """
        top, bottom = self._number(column), self._number(price)
        squared = float(ndtri((1 + checked_level(level)) / 2)) ** 2
        found = np.empty((4, len(self.values)))
        for k, own in enumerate(self.values):
            place = [k * len(self.names) + top, k * len(self.names) + bottom]
            (v, c), (_, w) = self.covariance[np.ix_(place, place)]
            a, b = float(own[top]), float(own[bottom])
            ratio = -a / b
            found[:2, k] = ratio, np.sqrt(v + 2 * ratio * c + ratio**2 * w) / abs(b)
            # Fieller: ratios r for which a + r b is zero within its standard error.
            quadratic = np.array([b * b - squared * w, 2 * (a * b - squared * c), a * a - squared * v])
            roots = np.sort(np.roots(quadratic).real) if quadratic[0] > 0 else np.array([-np.inf, np.inf])
            found[2:, k] = roots
        return Ratios(*found)

    def table(self) -> dict[str, Floats | list[str]]:
        """One line per column: its name, then coefficient and standard error of each component."""
        found: dict[str, Floats | list[str]] = {"column": list(self.names)}
        for k, (values, errors) in enumerate(zip(self.values, self.standard_errors, strict=True)):
            found |= {f"component {k}": values, f"standard error {k}": errors}
        return found

    def _number(self, column: str) -> int:
        if column not in self.names:
            raise SettingsError(f"{column!r} is not a column{nearest(column, self.names)}; there are {self.names}")
        return self.names.index(column)


def linear_errors(
    passes: Passes,
    end: LinearEnd,
    mixture: MixtureParams,
    kind: str,
    covariates: Sequence[str] = (),
    prior: Floats | None = None,
) -> StandardErrors:
    """Standard errors at the end of a fit. `prior` (d, d) is that of coefficients that the layout does not have."""
    point, layout = end.point, end.layout
    totals: LinearInformation = ask(passes, Request(INFORMATION, point))
    to, vector = layout.to_free, layout.vector(point)
    held = np.diag(layout.precision) if prior is None else prior
    information = to.T @ totals.observed @ to + held
    found = invert(information, np.zeros((len(information), 0)), totals.known @ to**2 + np.diag(held))
    covariance = found.covariance
    if kind == "sandwich":
        covariance = covariance @ (to.T @ totals.products @ to) @ covariance
    to_results = _to_results(layout, totals, mixture.n_items)
    results = to_results @ covariance @ to_results.T
    pull = -held @ vector
    step = np.abs(found.covariance @ (totals.gradient @ to + (pull if prior is None else 0.0)))
    far = float((step / np.sqrt(np.maximum(np.diag(found.covariance), 1e-300))).max(initial=0.0))
    warnings: list[Warning] = [NotConvergedWarning(far_words(far))] if far > FAR else []
    if found.singular.shape[1]:
        words = "the rankings say nothing about some coefficients: they have no standard error; choose a ridge above 0"
        warnings.append(NotIdentifiableWarning(words))
    n_worths = mixture.log_worths.size
    shrinkage = (to_results @ (found.covariance @ pull))[:n_worths].reshape(mixture.log_worths.shape)
    give_warnings(warnings)
    everywhere = to @ covariance @ to.T
    split = layout.n_components * layout.columns.n_columns
    of_shares = None
    if layout.n_covariates:
        names = ("intercept", *covariates)
        of_shares = _coefficients(names, point.share_coefficients, everywhere[split:, split:])
    largest = np.abs(to_results @ found.singular).max(axis=0, initial=0.0)
    blind = (to_results @ found.singular)[:, largest > 0] / largest[largest > 0]
    return StandardErrors(
        mixture, ((results + results.T) / 2,), (blind,), (), kind, 0, shrinkage,
        coefficients=_coefficients(layout.columns.names, point.coefficients, everywhere[:split, :split]),
        share_coefficients=of_shares,
    )  # fmt: skip


def _coefficients(names: tuple[str, ...], values: Floats, covariance: Floats) -> Coefficients:
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0)).reshape(values.shape)
    return Coefficients(names, values, errors, covariance)


def _to_results(layout: Layout, totals: LinearInformation, n_items: int) -> Floats:
    """(n_results, n_free): derivatives of centred log-worths of items, and of mean shares."""
    n_columns, design = layout.columns.n_columns, layout.columns.design[:n_items]
    centred = design - design.mean(axis=0)
    rows = []
    for k in range(layout.n_components):
        own = layout.to_free[k * n_columns : k * n_columns + design.shape[1]]
        rows.append(centred @ own)
    of_shares = layout.to_free[layout.n_components * n_columns :]
    return np.concatenate([*rows, totals.share_slopes @ of_shares / totals.weight])
