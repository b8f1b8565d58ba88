"""Standard errors where utilities are linear: of coefficients, of worths, shares and cohesion made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plmix_dist.cluster.clients import client_of
from plmix_dist.errors import NotIdentifiableWarning, SettingsError, give_warnings
from plmix_dist.fitting.covariates import Units
from plmix_dist.fitting.linear import INFORMATION, Columns, Layout
from plmix_dist.fitting.linear_fit import LinearEnd
from plmix_dist.kernels.utilities import LinearInformation, LinearPoint
from plmix_dist.passes.dask import passes_over
from plmix_dist.passes.rankings import Rankings
from plmix_dist.passes.request import Request, ask
from plmix_dist.prediction.posteriors import check_columns
from plmix_dist.rankings.choice_models import contrasts
from plmix_dist.rankings.columns import Floats
from plmix_dist.rankings.ties import TIES, TieTreatment
from plmix_dist.solvers.likelihood import probabilities_against_ghost
from plmix_dist.store.mixture import MixtureParams
from plmix_dist.uncertainty.information import invert
from plmix_dist.uncertainty.results import Coefficients, StandardErrors, far_from_maximum

if TYPE_CHECKING:
    from plmix_dist.cluster.clients import Client


def coefficient_errors(
    model: Any, rankings: Rankings, kind: str | None, client: Any = None, squared: Rankings | None = None
) -> StandardErrors:
    """Standard errors of a fitted model with coefficients: of choices, or of shares.

    `squared` are the rankings with the weights that the middle of a sandwich has, where these are not counts.
    """
    mixture, rankings = model._mixture(), replace(rankings, ties=TIES[model._ties])
    check_columns(model._coefficients, rankings.covariates)
    terms, end = model._linear or (None, _of_shares(model, rankings.ties))
    data = (getattr(model, "about_", {}).get("data") or {}) if kind is None else {}
    chosen = kind or ("sandwich" if data.get("n_half") else "information")
    vector = end.layout.vector(end.point)
    prior = np.diag(end.layout.precision), -end.layout.precision * vector
    if terms is None and model.alpha:
        prior = _ghosts(mixture, model._ghosts, model.alpha, len(vector))
    with client_of(client) as place:
        totals = _totals(terms, end, rankings, place)
        if squared is not None:
            products = _totals(terms, end, replace(squared, ties=rankings.ties), place).products
            totals = totals._replace(products=products)
    n_covariates = end.layout.n_covariates
    names = getattr(model, "covariate_names_", None) or tuple(f"covariate {number}" for number in range(n_covariates))
    return _errors(totals, end, mixture, chosen, names, prior)


def _totals(terms: Any, end: LinearEnd, rankings: Rankings, client: Client | None) -> LinearInformation:
    rankings = rankings if terms is None else terms.of_rankings(rankings)
    with passes_over(rankings, client, "store") as passes:
        found: LinearInformation = ask(passes, Request(INFORMATION, end.point))
    return found


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
    design = contrasts(mixture.n_items)
    n, found, pull = design.shape[1], np.zeros((size, size)), np.zeros(size)
    for k, (worths, ghost) in enumerate(zip(mixture.log_worths, ghosts, strict=True)):
        beats, loses = probabilities_against_ghost(worths, float(ghost))
        seconds = 2 * alpha * beats * loses
        own = np.diag(seconds) - np.outer(seconds, seconds) / seconds.sum()
        place = slice(k * n, (k + 1) * n)
        found[place, place] = design.T @ own @ design
        pull[place] = design.T @ (alpha * (loses - beats))
    return found, pull


def _errors(
    totals: LinearInformation,
    end: LinearEnd,
    mixture: MixtureParams,
    kind: str,
    covariates: Sequence[str],
    prior: tuple[Floats, Floats],
) -> StandardErrors:
    """Standard errors from the sums over all rows, with warnings of what they do not tell."""
    point, layout = end.point, end.layout
    to, (held, pull) = layout.to_free, prior
    found = invert(to.T @ totals.observed @ to + held, np.zeros((len(held), 0)), totals.known @ to**2 + np.diag(held))
    covariance = found.covariance
    if kind == "sandwich":
        covariance = covariance @ (to.T @ totals.products @ to) @ covariance
    to_results = _to_results(layout, totals, mixture.n_items)
    results = to_results @ covariance @ to_results.T
    step = found.covariance @ (totals.gradient @ to + pull)
    warnings = far_from_maximum([(step, np.diag(found.covariance))])
    if found.singular.shape[1]:
        words = "the rankings say nothing about some coefficients: they have no standard error; choose a ridge above 0"
        warnings.append(NotIdentifiableWarning(words))
    give_warnings(warnings)
    shrinkage = (to_results @ (found.covariance @ pull))[: mixture.log_worths.size].reshape(mixture.log_worths.shape)
    everywhere = to @ covariance @ to.T
    split = layout.n_components * layout.columns.n_columns
    of_shares = None
    if layout.n_covariates:
        of_shares = _coefficients(("intercept", *covariates), point.share_coefficients, everywhere[split:, split:])
    moves = to_results @ found.singular
    largest = np.abs(moves).max(axis=0, initial=0.0)
    return StandardErrors(
        mixture,
        ((results + results.T) / 2,),
        (moves[:, largest > 0] / largest[largest > 0],),
        (),
        kind,
        0,
        shrinkage,
        coefficients=_coefficients(layout.columns.names, point.coefficients, everywhere[:split, :split]),
        share_coefficients=of_shares,
    )


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
