"""Standard errors where utilities are linear: of coefficients, of worths, shares and cohesion made from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from plmix_dist.cluster.clients import client_of
from plmix_dist.display.notebook import data_of
from plmix_dist.errors import NotIdentifiableWarning, SettingsError, give_warnings
from plmix_dist.fitting.covariates import Units
from plmix_dist.fitting.linear import INFORMATION, Columns, Layout
from plmix_dist.fitting.linear_fit import LinearEnd
from plmix_dist.kernels.utilities import LinearInformation, LinearPoint
from plmix_dist.passes import Passes, Rankings, Request, ask, passes_over
from plmix_dist.prediction.posteriors import check_columns
from plmix_dist.rankings import Floats
from plmix_dist.rankings.choice_models import contrasts
from plmix_dist.rankings.ties import TIES, TieTreatment
from plmix_dist.store import MixtureParams
from plmix_dist.uncertainty import information
from plmix_dist.uncertainty.results import Coefficients, StandardErrors

_Sums = TypeVar("_Sums")
# A singular direction moves a coefficient if its entry is at least this large.
_FELT = 1e-8


def sums_over(rankings: Rankings, squared: Rankings | None, client: Any, add_up: Callable[[Passes], _Sums]) -> _Sums:
    """Sums over all rows. Products, the middle of a sandwich, are those of `squared` where weights are not counts."""
    found: list[Any] = []
    with client_of(client) as place:
        for rows in [rankings] if squared is None else [rankings, squared]:
            with passes_over(rows, place, "store") as passes:
                found.append(add_up(passes))
    sums: _Sums = found[0]._replace(products=found[-1].products)
    return sums


def coefficient_errors(
    model: Any, rankings: Rankings, kind: str | None, client: Any, squared: Rankings | None
) -> StandardErrors:
    """Standard errors of a fitted model with coefficients: of choices, or of shares; `squared` as in `sums_over`."""
    mixture, ties = model._mixture(), TIES[model._ties]
    check_columns(model._coefficients, rankings.covariates)
    terms, end = model._linear or (None, _of_shares(model, ties))
    layout, point = end.layout, end.point
    kind = kind or ("sandwich" if data_of(model).get("n_half") else "information")
    prior = np.diag(layout.precision), -layout.precision * layout.vector(point)
    if terms is None and model.alpha:
        prior = _ghosts(mixture, model._ghosts, model.alpha, layout.n_free)

    def choices_of(rows: Rankings) -> Rankings:
        rows = replace(rows, ties=ties)
        return rows if terms is None else terms.of_rankings(rows)

    weighted = None if squared is None else choices_of(squared)
    totals: LinearInformation = sums_over(
        choices_of(rankings), weighted, client, lambda passes: ask(passes, Request(INFORMATION, point))
    )
    to = layout.to_free
    sums = to.T @ totals.observed @ to, totals.gradient @ to, totals.known @ to**2
    middle = to.T @ totals.products @ to if kind == "sandwich" else None
    to_results = _to_results(layout, totals, layout.columns.design if terms is None else terms.worth_columns)
    solved = information.solve_at(sums, prior, np.zeros((layout.n_free, 0)), middle, to_results)
    warnings = information.far_from_maximum([solved])
    if solved.singular.shape[1]:
        words = "the rankings say nothing about some coefficients: they have no standard error; choose a ridge above 0"
        warnings.append(NotIdentifiableWarning(words))
    give_warnings(warnings)
    shrinkage = solved.shrinkage[: mixture.log_worths.size].reshape(mixture.log_worths.shape)
    everywhere, split = to @ solved.parameters @ to.T, point.coefficients.size
    unknown = np.abs(to @ solved.singular).max(axis=1, initial=0.0) > _FELT * np.abs(to).max(initial=1.0)
    everywhere[unknown] = everywhere[:, unknown] = np.nan  # the rankings say nothing about these
    of_choices = _coefficients(layout.columns.names, point.coefficients, everywhere[:split, :split])
    of_shares = None
    if layout.n_covariates:
        numbered = [f"covariate {number}" for number in range(layout.n_covariates)]
        names = ("intercept", *(model.covariate_names_ or numbered))
        of_shares = _coefficients(names, point.share_coefficients, everywhere[split:, split:])
    blocks = (solved.covariance,), (solved.blind,)
    return StandardErrors(
        mixture, *blocks, (), kind, 0, shrinkage, coefficients=of_choices, share_coefficients=of_shares
    )


def _of_shares(model: Any, ties: TieTreatment) -> LinearEnd:
    """A mixture whose shares depend on covariates, as one with a coefficient for each contrast of items."""
    if not ties.extends:
        raise SettingsError(
            f"standard errors with membership_covariates are made where ties are extended, and ties={model.ties!r} "
            'keeps them; fit with ties="expand" or "half"'
        )
    mixture, shares = model._mixture(), model.share_coefficients_
    design = contrasts(mixture.n_items)
    n, names = design.shape[1], tuple(f"contrast {number}" for number in range(design.shape[1]))
    columns = Columns(design, names, np.zeros(n, np.bool_), np.ones(n), np.zeros(n))
    n_covariates = shares.shape[1] - 1
    layout = Layout(columns, mixture.n_components, Units(np.zeros(n_covariates), np.ones(n_covariates)))
    return LinearEnd(LinearPoint(design, mixture.log_worths @ design, shares), layout)


def _ghosts(mixture: MixtureParams, ghosts: Floats, alpha: float, size: int) -> tuple[Floats, Floats]:
    """Information (size, size) and gradient of the prior in contrasts of items, with each ghost at its best value."""
    design, of_items = contrasts(mixture.n_items), information.Layout(1, mixture.n_items, True, False)
    n, found, pull = design.shape[1], np.zeros((size, size)), np.zeros(size)
    for k, worths in enumerate(mixture.log_worths):
        held, gradient, _ = of_items.prior(worths[None], ghosts[[k]], alpha)
        place = slice(k * n, (k + 1) * n)
        found[place, place] = (
            design.T @ (held[:-1, :-1] - np.outer(held[:-1, -1], held[-1, :-1]) / held[-1, -1]) @ design
        )
        pull[place] = design.T @ gradient[:-1]
    return found, pull


def _coefficients(names: tuple[str, ...], values: Floats, covariance: Floats) -> Coefficients:
    return Coefficients(names, values, np.sqrt(np.maximum(np.diag(covariance), 0.0)).reshape(values.shape), covariance)


def _to_results(layout: Layout, totals: LinearInformation, design: Floats) -> Floats:
    """(n_results, n_free): derivatives of centred log-worths of items, made of columns, and of mean shares."""
    split = layout.n_components * layout.columns.n_columns
    own = layout.to_free[:split].reshape(layout.n_components, layout.columns.n_columns, -1)[:, : design.shape[1]]
    worths = design @ own
    shares = totals.share_slopes @ layout.to_free[split:] / totals.weight
    return np.concatenate([worths.reshape(-1, shares.shape[1]), shares])
