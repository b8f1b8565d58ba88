"""The bootstrap: a fit is repeated with random weights of persons, many replicates in every pass."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from plmix_dist.cluster.clients import ClientLike, client_of
from plmix_dist.errors import NotConvergedWarning, SettingsError, ShrunkenWarning, give_warnings
from plmix_dist.fitting.algorithm import Together
from plmix_dist.fitting.fingerprint import data_fingerprint, digest_of
from plmix_dist.fitting.journal import open_journal
from plmix_dist.fitting.linear import INFORMATION, LinearFit
from plmix_dist.kernels.utilities import LinearPoint, linear_sums
from plmix_dist.metrics import match_components
from plmix_dist.passes import Aggregation, Rankings, Request, ask, passes_over
from plmix_dist.prediction.posteriors import check_columns
from plmix_dist.rankings import Floats, RankingBlock, Unranked, person_of_row, weights_within
from plmix_dist.settings import RandomState, one_of, real_number, seed_of, whole_number
from plmix_dist.store import Checkpoint, MixtureParams
from plmix_dist.uncertainty.information import InformationTotals, Layout, invert
from plmix_dist.uncertainty.replicates import WEIGHTS, Draws, Replicates, ReplicatesState, Scales, draw_weights
from plmix_dist.uncertainty.results import Estimates, Interval, PerParameter, compared, given_components, percentiles
from plmix_dist.uncertainty.standard_errors import FittedPoint, information_totals, mostly_prior, named_items, parts_of

# Numbers that all replicates of a pass sum together; more replicates take turns.
_MOST_NUMBERS = 1 << 23
# Steps count on at least this share of the information that there would be if all components were known.
_LEAST_INFORMATION = 1e-3
# Replicates of a fit with coefficients that share a pass.
_LINEAR_AT_ONCE = 16


@dataclass(frozen=True)
class Bootstrap:
    """Replicates of a fit. Components have the order of the fit.

    Parameters
    ----------
    mixture
        The fit.
    log_worths : (n_replicates, n_components, n_items)
        Centred.
    shares : (n_replicates, n_components)
    converged : (n_replicates,)
        Which replicates reached their maximum.
    n_passes
        Passes over the rankings, all replicates together.
    seed
        Gives the same replicates again, as `random_state`.
    coefficients : (n_replicates, n_components, n_columns)
        Where utilities are linear: those of all columns, as `standard_errors(X).coefficients` has them; else None.

    Examples
    --------
    >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10 + [[1, 0, 2]] * 10
    >>> model = plm.PlackettLuceMixture(1).fit(rankings)
    >>> found = plm.bootstrap(model, rankings, 50, random_state=0)
    >>> found.log_worths.shape, found.standard_errors().log_worths.shape
    ((50, 1, 3), (1, 3))
    """

    mixture: MixtureParams
    log_worths: Floats
    shares: Floats
    converged: NDArray[np.bool_]
    n_passes: int
    seed: int
    coefficients: Floats | None = None

    def __repr__(self) -> str:
        """A few lines: how many replicates, and how many of them reached their maximum."""
        n_replicates, n_components, n_items = self.log_worths.shape
        return (
            f"Bootstrap: {n_replicates} replicates of {n_components} x {n_items} log-worths, "
            f"{int(self.converged.sum())} converged, {self.n_passes} passes, seed {self.seed}\n"
            f"  {given_components(n_components)}\n"
            "  .standard_errors(), .intervals(), .differences(), .log_worths, .shares"
        )

    def standard_errors(self) -> PerParameter:
        """Standard deviations over replicates.

        Examples
        --------
        >>> rankings = [[0, 1]] * 60 + [[1, 0]] * 40
        >>> found = plm.bootstrap(plm.PlackettLuceMixture(1).fit(rankings), rankings, 50, random_state=0)
        >>> found.standard_errors().shares.tolist()
        [0.0]
        """
        return PerParameter(self.log_worths.std(axis=0, ddof=1), self.shares.std(axis=0, ddof=1))

    def intervals(self, level: float = 0.95) -> Interval:
        """Intervals between percentiles of the replicates.

        Examples
        --------
        >>> rankings = [[0, 1]] * 60 + [[1, 0]] * 40
        >>> found = plm.bootstrap(plm.PlackettLuceMixture(1).fit(rankings), rankings, 50, random_state=0)
        >>> lower, upper = found.intervals(0.9).log_worths
        >>> bool(lower[0, 0] < upper[0, 0])
        True
        """
        return percentiles(self.log_worths, self.shares, level, axis=0)

    def differences(self, component: int = 0) -> Estimates:
        """(n_items, n_items): log-worth of item i less that of item j in the fit, and standard deviations.

        NaN for items of different slates, whose worths do not compare.

        Examples
        --------
        >>> rankings = [[0, 1]] * 60 + [[1, 0]] * 40
        >>> found = plm.bootstrap(plm.PlackettLuceMixture(1).fit(rankings), rankings, 50, random_state=0)
        >>> found.differences().values.shape
        (2, 2)
        """
        whole_number("component", component)
        worths, drawn = self.mixture.log_worths[component], self.log_worths[:, component]
        spread = np.array([(drawn[:, [item]] - drawn).std(axis=0, ddof=1) for item in range(drawn.shape[1])])
        return compared(self.mixture, worths[:, None] - worths[None, :], spread)


def bootstrap(
    model: Any,
    X: Any,
    n_replicates: int = 200,
    *,
    weights: str = "exponential",
    sample_weight: ArrayLike | None = None,
    unranked: Unranked | None = None,
    random_state: RandomState = None,
    tol: float = 0.02,
    max_iter: int = 50,
    client: ClientLike = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    membership_covariates: ArrayLike | None = None,
    features: Any = None,
) -> Bootstrap:
    """Repeat a fit with random weights of persons (rows, or groups of rows). No row is copied.

    Every replicate begins at the fit and goes to the maximum of its own weighted likelihood, with the treatment of ties
    of the fit. The prior's `alpha` wins and losses of every item have random weights too, as persons have: gamma
    numbers of mean `alpha` (a posterior bootstrap).

    Parameters
    ----------
    model
        A fitted PlackettLuceMixture.
    X
        The rankings that it was fitted to.
    n_replicates
        The number of replicates.
    weights
        "exponential": weights of the Bayesian bootstrap (Rubin 1981); they are never zero, so that no item is lost from
        a replicate. "poisson": how often each person is drawn, as in drawing with replacement, but that the number of
        draws varies.
    sample_weight, unranked, client, membership_covariates, features
        As in `PlackettLuceMixture.fit`. Rows of weight w count as w persons.
    random_state
        Seed of the weights, as in PlackettLuceMixture.
    tol
        A replicate ends when the error left is expected to be at most this many standard errors.
    max_iter
        The most passes over the rankings.
    checkpoint
        Where the replicates are saved on their way, as in PlackettLuceMixture.

    Examples
    --------
    >>> rankings = [[0, 1]] * 300 + [[1, 0]] * 100
    >>> model = plm.PlackettLuceMixture(1, alpha=0.0).fit(rankings)
    >>> found = bootstrap(model, rankings, 400, random_state=0)
    >>> found.standard_errors().log_worths.round(2).tolist()  # half of sqrt(1/300 + 1/100): 0.06
    [[0.06, 0.06]]
    """
    one_of("weights", weights, WEIGHTS)
    whole_number("n_replicates", n_replicates, at_least=2)
    whole_number("max_iter", max_iter, at_least=2)
    real_number("tol", tol, above=0)
    if getattr(model, "tie_parameters_", None) is not None:
        raise SettingsError(
            f'a fit with ties={model.ties!r} has no bootstrap; take standard_errors(X, kind="sandwich")'
        )
    seed, place = seed_of(random_state), Checkpoint.of(checkpoint)
    of_rows = {"membership_covariates": membership_covariates, "features": features, "sample_weight": sample_weight}
    if model._linear is not None:
        rankings = model._rankings(X, unranked=unranked, ties=model._ties, **of_rows)
        with client_of(client) as chosen:
            how = n_replicates, weights, seed, tol, max_iter
            return _of_coefficients(model, rankings, chosen, place, how, any_seed=random_state is None)
    fitted = FittedPoint.of(model, "bootstrap replicates")
    rankings = model._rankings(X, unranked=unranked, **of_rows)
    check_columns(model._coefficients, rankings.covariates)
    at_once = max(1, _MOST_NUMBERS // (fitted.mixture.log_worths.size + 2 * fitted.mixture.n_components))
    settings = {"n_replicates": n_replicates, "weights": weights, "tol": tol, "max_iter": max_iter}
    ended, n_passes = [], 1
    with client_of(client) as chosen, passes_over(rankings, chosen, model.residency) as passes:

        def made_from() -> dict[str, Any]:
            return data_fingerprint(passes, rankings) | settings | {"seed": seed, "model": _digest_of_model(fitted)}

        with open_journal(place, made_from, free=("seed",) if random_state is None else ()) as journal:
            seed = journal.fingerprint.get("seed", seed)
            scales = journal.stage("scales", lambda: _scales_of(information_totals(passes, fitted), fitted))
            for first in range(0, n_replicates, at_once):
                numbers = tuple(range(first, min(first + at_once, n_replicates)))
                algorithm = Replicates(fitted, scales, Draws(weights, seed, numbers), tol, max_iter)
                state = journal.run(f"replicates-{first}", passes, algorithm, algorithm.start())
                n_passes += state.n_passes
                ended.append((algorithm, state))
    give_warnings([*journal.warnings, *_rare_warnings(scales, fitted)])
    return _gathered(fitted, ended, n_passes, seed)


def _of_coefficients(
    model: Any, rankings: Rankings, client: Any, place: Checkpoint | None, how: tuple[Any, ...], *, any_seed: bool
) -> Bootstrap:
    """Replicates of a fit whose utilities are linear: each goes to its maximum from the fit, many in one pass."""
    (terms, end), mixture, (n_replicates, kind, seed, tol, max_iter) = model._linear, model._mixture(), how
    with passes_over(terms.of_rankings(rankings), client, model.residency) as passes:

        def made_from() -> dict[str, Any]:
            of_model = digest_of(end.point.coefficients, end.point.share_coefficients)
            settings = {"n_replicates": n_replicates, "weights": kind, "tol": tol, "max_iter": max_iter}
            return data_fingerprint(passes, rankings) | settings | {"seed": seed, "model": of_model}

        with open_journal(place, made_from, free=("seed",) if any_seed else ()) as journal:
            seed = journal.fingerprint.get("seed", seed)
            totals = journal.stage("information", lambda: ask(passes, Request(INFORMATION, end.point)))
            weight, n_rows = float(totals.weight), rankings.n_rankings
            one = LinearFit(end.layout, weight, n_rows, max_iter=max_iter, always_renews=False)
            known = one.curvature_of(totals)
            # A gradient of this size moves no coefficient by more than `tol` of its standard error.
            one = replace(one, tol=tol * float(np.sqrt(known[1].min(initial=np.inf))) / weight)
            fits = tuple(
                replace(one, number=number, sums=Aggregation("linear", partial(_replicate_sums, kind, seed, number)))
                for number in range(n_replicates)
            )
            together = Together(fits, at_once=_LINEAR_AT_ONCE)
            begin = together.start([fit.start(end.layout.vector(end.point), known) for fit in fits])
            ended = journal.run("replicates", passes, together, begin)
    points = [end.layout.point(state.vector if state.good is None else state.good.vector) for state in ended.states]
    logits = np.array([point.share_coefficients[:, 0] for point in points])
    shares = np.array([state.good.shares for state in ended.states]) if end.layout.n_covariates else softmax(logits, 1)
    coefficients = np.array([point.coefficients for point in points])
    log_worths = np.array([terms.log_worths(own) for own in coefficients])
    converged = np.array([state.ended == "converged" for state in ended.states])
    return Bootstrap(mixture, log_worths, shares, converged, passes.n_passes, seed, coefficients)


def _replicate_sums(kind: str, seed: int, replicate: int, number: int, block: RankingBlock, point: LinearPoint) -> Any:
    """The sums of a leaf whose persons have random weights."""
    factors = draw_weights(block, kind, seed, replicate, number)[person_of_row(block)]
    within = None if block.groups is None else weights_within(block)
    return linear_sums(block.replace(weights=block.row_weights * factors, within=within), point)


def _rare_warnings(scales: Scales, fitted: FittedPoint) -> list[Warning]:
    """A warning for items whose replicates vary by the prior alone."""
    if not scales.mostly_prior.any():
        return []
    words = (
        f"the prior says more than the rankings about {named_items(fitted.mixture, scales.mostly_prior)}: few rankings "
        "choose them, so percentiles of the replicates are not intervals for them, nor for centred log-worths, which "
        "depend on them, and with alpha below 0.1 standard errors are too small; take model.standard_errors of a fit "
        "with alpha=0.1"
    )
    return [ShrunkenWarning(words)]


def _digest_of_model(fitted: FittedPoint) -> str:
    """A digest of all that replicates take from the fit."""
    mixture = fitted.mixture
    settings = f"{fitted.alpha} {fitted.free_shares} {fitted.ties}"
    return digest_of(mixture.log_worths, mixture.shares, fitted.ghosts, np.frombuffer(settings.encode(), np.uint8))


def _scales_of(totals: InformationTotals, fitted: FittedPoint) -> Scales:
    """The inverse of the information of the fit with its prior, for steps: small eigenvalues are raised."""
    layout, parts = fitted.layout, parts_of(totals, fitted)
    places = [np.arange(layout.size)] if len(parts) == 1 else _places_by_component(layout)
    matrices = []
    for _, (own, _, (observed, _, known), _, (prior, _, _)) in zip(places, parts, strict=False):  # without fixed shares
        matrices.append(invert(observed + prior, own.unfelt(), known + np.diag(prior), _LEAST_INFORMATION).covariance)
    return Scales(tuple(places), tuple(matrices), layout.size - layout.unfelt().shape[1], mostly_prior(totals, fitted))


def _places_by_component(layout: Layout) -> list[NDArray[np.int64]]:
    """Where the log-worths and the ghost of each component stand, then the logits."""
    places = []
    for k in range(layout.n_components):
        own = np.arange(k * layout.n_items, (k + 1) * layout.n_items)
        places.append(np.append(own, layout.n_worths + k) if layout.ghosts else own)
    if layout.free_shares:
        places.append(np.arange(layout.size - layout.n_components, layout.size))
    return places


def _gathered(
    fitted: FittedPoint, ended: list[tuple[Replicates, ReplicatesState]], n_passes: int, seed: int
) -> Bootstrap:
    mixture = fitted.mixture
    parts = [algorithm.parts_of(state.point) for algorithm, state in ended]
    log_worths = np.concatenate([part[0] for part in parts])
    log_worths -= log_worths.mean(axis=2, keepdims=True)
    shares = np.exp(np.concatenate([part[2] for part in parts]))
    converged = np.concatenate([state.ended for _, state in ended]) == 1
    for number in _out_of_order(log_worths, mixture.log_worths):
        order = np.arange(len(mixture.shares))
        free = order[: len(order) - fitted.n_held]  # noise stays last
        order[free] = match_components(log_worths[number][free], mixture.log_worths[free])
        log_worths[number], shares[number] = log_worths[number][order], shares[number][order]
    if not converged.all():
        loses = 'choose weights="exponential", which loses no item, ' if ended[0][0].draws.kind == "poisson" else ""
        words = (
            f"{np.count_nonzero(~converged)} of {len(converged)} replicates did not reach their maximum; raise "
            f"max_iter, {loses}or choose a larger alpha or fewer components"
        )
        give_warnings([NotConvergedWarning(words)])
    return Bootstrap(mixture, log_worths, shares, converged, n_passes, seed)


def _out_of_order(log_worths: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.int64]:
    """The replicates in which a component is nearer to another one of the fit than to its own."""
    wanted = reference - reference.mean(axis=1, keepdims=True)
    costs = ((wanted[None, :, None, :] - log_worths[:, None, :, :]) ** 2).sum(axis=3)
    return np.flatnonzero((costs.argmin(axis=2) != np.arange(len(wanted))).any(axis=1))
