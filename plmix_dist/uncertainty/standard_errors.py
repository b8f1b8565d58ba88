"""Standard errors of a fitted mixture from its observed information (Louis 1982), over all rows in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import NonFiniteError, NotIdentifiableWarning, SettingsError, ShrunkenWarning, give_warnings
from plmix_dist.passes import Passes, Rankings, Request, ask
from plmix_dist.rankings import TIES, Floats
from plmix_dist.settings import one_of
from plmix_dist.solvers import M_STEPS
from plmix_dist.store import MixtureParams
from plmix_dist.threads import single_thread
from plmix_dist.uncertainty import information
from plmix_dist.uncertainty.coefficients import coefficient_errors, sums_over
from plmix_dist.uncertainty.information import InformationTotals, Layout, Solved, far_from_maximum
from plmix_dist.uncertainty.results import StandardErrors, Unidentified

KINDS = ("information", "sandwich")
# Up to this many log-worths, ghosts and shares, all covariances are computed; beyond, those within components.
_MOST_PARAMETERS = 2_000
# Up to this many items, the covariances within a component are computed.
_MOST_ITEMS = 4_000
# The prior has moved a value far if it is by more than this many standard errors.
_FAR_BY_PRIOR = 0.5
# An item takes part in a direction if it moves by this, where the largest move is 1.
_TAKES_PART = 1e-3
_MOST_NAMES = 8


class FittedPoint(NamedTuple):
    """What is known of a fit."""

    mixture: MixtureParams
    ghosts: Floats  # (n_components,): log-worths of the ghosts of the prior
    alpha: float  # strength of the prior
    free_shares: bool  # whether shares were estimated
    ties: str  # how ties are treated
    n_held: int = 0  # how many of the last components have held worths: that of noise

    @classmethod
    def of(cls, model: Any, what: str) -> FittedPoint:
        """What is known of a fitted model; an error for one that is not a maximum of a likelihood."""
        mixture = model._mixture()
        if not hasattr(model, "_ghosts"):
            raise SettingsError(
                f"{what} are those of a maximum of the likelihood, and {type(model).__name__} is not one; fit a "
                "PlackettLuceMixture, with init=model to begin there"
            )
        m_step = getattr(model, "m_step_", None)  # parameters that were set by hand have none
        if m_step in M_STEPS and M_STEPS[m_step].objective is None:
            raise SettingsError(
                f'{what} are those of a maximum of the likelihood, and m_step="{m_step}" does not end there; '
                'fit with m_step="auto", and init=model to begin there'
            )
        if getattr(model, "share_coefficients_", None) is not None:
            raise SettingsError(
                f"{what} are not computed for shares that depend on membership_covariates; fit without these"
            )
        is_joint(mixture)  # refuses too many items before anything is read
        used = model.used_settings()
        return cls(mixture, model._ghosts, float(used["alpha"]), model.shares is None, used["ties"], int(used["noise"]))

    @property
    def has_free_shares(self) -> bool:
        """Whether shares are parameters: one share alone is not."""
        return self.free_shares and self.mixture.n_components > 1

    @property
    def layout(self) -> Layout:
        """The order of all parameters."""
        n_components, n_items = self.mixture.log_worths.shape
        layout = Layout(n_components, n_items, self.alpha > 0, self.has_free_shares, n_held=self.n_held)
        layout = replace(layout, is_last_empty=bool(self.n_held and self.mixture.shares[-1] == 0))
        return replace(layout, log_ties=self.mixture.log_ties, shared_ties=TIES[self.ties].shared)


# One block of parameters, and their order. Its singular directions are those about which the rankings say nothing.
_Block = tuple[Solved, Layout]


def standard_errors(model: Any, X: Any, *, kind: str | None = None, **how: Any) -> StandardErrors:
    """Standard errors of a fitted mixture; the same as `model.standard_errors(X)`.

    "information" inverts the observed information: right if the model is. "sandwich" puts the products of scores
    between two inverses: right for large data also if the model is not. With groups, scores are those of persons, so it
    is clustered by group. With a prior both are those of the posterior: the prior counts as `alpha` wins and `alpha`
    losses of every item.
    """
    if kind is not None:
        one_of("kind", kind, KINDS)
    client = how.pop("client", None)
    return errors_on(model, model._rankings(X, **how), kind, client)


def errors_on(
    model: Any,
    rankings: Rankings,
    kind: str | None,
    client: Any,
    squared: Rankings | None = None,
    what: str = "standard errors",
) -> StandardErrors:
    """Standard errors on rankings, with warnings of what they do not tell; `squared` are as in `sums_over`."""
    if model._linear is not None or model._coefficients is not None:
        return coefficient_errors(model, rankings, kind, client, squared)
    fitted = FittedPoint.of(model, what)
    totals = sums_over(rankings, squared, client, lambda passes: information_totals(passes, fitted))
    # Halves of wins are not counts: the inverse information of an objective is not a variance.
    kind = kind or KINDS[bool(totals.n_half)]
    blocks, mixture, n_ties = solve(totals, fitted, kind), fitted.mixture, fitted.layout.n_ties
    solved = [one for one, _ in blocks]
    found = _unidentified(blocks, mixture)
    shrinkage = np.concatenate([one.shrinkage for one in solved])[: mixture.log_worths.size]
    lasts = [len(one.covariance) - n_ties for one in solved]  # ties come last
    of_ties = fitted.layout.of_ties @ np.sqrt(np.diag(solved[-1].covariance)[lasts[-1] :])
    covariances = tuple(one.covariance[:last, :last] for one, last in zip(solved, lasts, strict=True))
    blind = tuple(one.blind[:last] for one, last in zip(solved, lasts, strict=True))
    about = found, kind, int(totals.n_sampled), shrinkage.reshape(mixture.log_worths.shape)
    errors = StandardErrors(mixture, covariances, blind, *about, None if mixture.tie_parameters is None else of_ties)
    far = mostly_prior(totals, fitted) & (np.abs(errors.shrinkage) > _FAR_BY_PRIOR * errors.log_worths)
    give_warnings([*_unidentified_warnings(found, fitted), *far_from_maximum(solved), *_shrunken_warnings(far, errors)])
    return errors


def is_joint(mixture: MixtureParams) -> bool:
    """Whether all parameters are taken together; an error if there are too many items even for one component."""
    n_components, n_items = mixture.log_worths.shape
    if n_items > _MOST_ITEMS:
        raise SettingsError(
            f"standard errors need a matrix of {n_items} x {n_items} numbers per component, and at most {_MOST_ITEMS} "
            "items are allowed; fit fewer items"
        )
    joint = bool(n_components * (n_items + 2) <= _MOST_PARAMETERS)
    if mixture.tie_parameters is not None and not joint:
        raise SettingsError(
            f"standard errors where ties are outcomes are computed for at most {_MOST_PARAMETERS} log-worths, ghosts "
            'and shares; fit fewer items, or take ties="half"'
        )
    return joint


def information_totals(passes: Passes, fitted: FittedPoint) -> InformationTotals:
    """The observed information over all rows."""
    request = Request(
        information.information_pass(fitted.ties, joint=is_joint(fitted.mixture)), fitted.mixture.unnamed()
    )
    totals: InformationTotals = ask(passes, request)
    if not all(np.isfinite(matrix).all() for matrix in totals.observed):
        raise NonFiniteError("the observed information is not finite: worths or weights are too far apart")
    return totals if fitted.mixture.tie_parameters is None else _with_tie_parameters(totals, fitted.layout)


def _with_tie_parameters(totals: InformationTotals, layout: Layout) -> InformationTotals:
    """The sums in log-worths, the free log-weights of ties, and logits, from those by component."""
    n_components, n_items, of_ties = layout.n_components, layout.n_items, layout.of_ties
    n_orders = of_ties.shape[1]
    to = np.zeros((n_components * (n_items + n_orders + 1), layout.n_worths + layout.n_ties + n_components))
    for k in range(n_components):
        first = k * (n_items + n_orders)
        to[first : first + n_items, k * n_items : (k + 1) * n_items] = np.eye(n_items)
        to[first + n_items : first + n_items + n_orders, layout.n_worths : layout.n_worths + layout.n_ties] = of_ties[k]
    to[-n_components:, -n_components:] = np.eye(n_components)
    with single_thread():
        observed, products = (to.T @ one[0] @ to for one in (totals.observed, totals.products))
        gradient, known = totals.gradient @ to, totals.known @ to
    return totals._replace(observed=(observed,), products=(products,), gradient=gradient, known=known)


def mostly_prior(totals: InformationTotals, fitted: FittedPoint) -> NDArray[np.bool_]:
    """(n_components, n_items): items about which the rankings say less than the prior, by squared scores."""
    of_data = np.concatenate([np.diag(matrix) for matrix in totals.products])[: fitted.mixture.log_worths.size]
    of_prior = [
        information.squared_prior_scores(worths, float(ghost), fitted.alpha)
        for worths, ghost in zip(fitted.mixture.log_worths, fitted.ghosts, strict=True)
    ]
    found: NDArray[np.bool_] = of_data.reshape(fitted.mixture.log_worths.shape) < np.array(of_prior)
    found[len(found) - fitted.n_held :] = False  # the prior says nothing of worths that are held
    return found


class _Part(NamedTuple):
    """Sums over rows, and the prior, for one block of parameters."""

    layout: Layout
    shares: Floats
    sums: tuple[Floats, Floats, Floats]  # information (size, size), gradient (size,), and what would be known (size,)
    products: Floats  # (size, size)
    prior: tuple[Floats, Floats, Floats]  # information, gradient and products of scores


def parts_of(totals: InformationTotals, fitted: FittedPoint) -> list[_Part]:
    """All parameters together, or those of each component and then the shares."""
    mixture, n_worths, n_items = fitted.mixture, fitted.mixture.log_worths.size, fitted.mixture.n_items
    if len(totals.observed) == 1:
        return [_part(totals, fitted, fitted.layout)]
    found, first_held = [], mixture.n_components - fitted.n_held
    for k in range(mixture.n_components):
        layout = Layout(1, n_items, fitted.alpha > 0, False, shown_shares=False, n_held=int(k >= first_held))
        own = fitted._replace(
            mixture=MixtureParams(mixture.log_worths[[k]], mixture.shares[:0]), ghosts=fitted.ghosts[[k]]
        )
        found.append(_part(totals, own, layout, k, k * n_items))
    layout = replace(fitted.layout, n_items=0, ghosts=False, n_held=0, log_ties=None)
    own = fitted._replace(mixture=MixtureParams(mixture.log_worths[:, :0], mixture.shares))
    return [*found, _part(totals, own, layout, -1, n_worths)]


def _part(totals: InformationTotals, fitted: FittedPoint, layout: Layout, block: int = 0, first: int = 0) -> _Part:
    """One block of the sums, whose numbers begin at `first` in the gradient."""
    gradient, known = np.zeros((2, layout.size))
    for whole, part in ((gradient, totals.gradient), (known, totals.known)):
        whole[layout.of_data] = part[first : first + len(layout.of_data)]
    observed, products = (layout.from_data(one[block]) for one in (totals.observed, totals.products))
    prior = layout.prior(fitted.mixture.log_worths, fitted.ghosts, fitted.alpha)
    return _Part(layout, fitted.mixture.shares, (observed, gradient, known), products, prior)


def solve(totals: InformationTotals, fitted: FittedPoint, kind: str) -> list[_Block]:
    """The covariances of all parameters together, or of each component and then of the shares."""
    blocks = []
    for layout, shares, sums, products, (held, pull, prior_products) in parts_of(totals, fitted):
        # The prior's comparisons count as data. Without their scores, items that are hardly ever chosen, whose values
        # come from the prior, would seem to be known exactly.
        middle = products + prior_products if kind == "sandwich" else None
        found = information.solve_at(sums, (held, pull), layout.unfelt(), middle, layout.to_results(shares))
        if layout.ghosts:
            # With a prior nothing is singular. Whether the rankings say anything is seen without it.
            found = found._replace(singular=_without_prior(layout, sums[0], sums[2]))
        blocks.append((found, layout))
    return blocks


def _without_prior(layout: Layout, observed: Floats, known: Floats) -> Floats:
    """Directions (layout.size, n) about which the rankings alone say nothing."""
    own = layout.of_data
    found = information.invert(observed[np.ix_(own, own)], replace(layout, ghosts=False).unfelt(), known[own]).singular
    whole = np.zeros((layout.size, found.shape[1]))
    whole[own] = found
    return whole


def _unidentified(blocks: Sequence[_Block], mixture: MixtureParams) -> tuple[Unidentified, ...]:
    """Which items of which components, and whether the shares, take part in singular directions."""
    found, n_items, names = [], mixture.n_items, mixture.item_names
    for block, (one, layout) in enumerate(blocks):
        moves = information.normalised(one.singular)
        for k in range(layout.n_components if layout.n_items else 0):
            sizes = _sizes(moves[k * n_items : (k + 1) * n_items])
            items = tuple(names[item] for item in np.flatnonzero(sizes > _TAKES_PART))
            if items:
                found.append(Unidentified(k if len(blocks) == 1 else block, items))
        if layout.free_shares and (_sizes(moves[-layout.n_components :]) > _TAKES_PART).any():
            found.append(Unidentified(None, ()))
    return tuple(found)


def _sizes(moves: Floats) -> Floats:
    """(n,): how far each parameter moves, measured from the median: the fewer are named, not the others."""
    if not moves.shape[1]:
        return np.zeros(len(moves))
    # A median of two differing values would name both; the lower of the middle ones names one.
    middle = np.sort(moves, axis=0)[(len(moves) - 1) // 2]
    found: Floats = np.abs(moves - middle).max(axis=1)
    return found


def _unidentified_warnings(found: Sequence[Unidentified], fitted: FittedPoint) -> list[Warning]:
    if not found:
        return []
    parts = ["the shares" if one.component is None else _named(*one) for one in found]
    result = (
        "their standard errors are those of the prior"
        if fitted.alpha > 0
        else "they have no standard error (NaN); choose alpha > 0, or fewer components"
    )
    return [NotIdentifiableWarning(f"the rankings say nothing about some parameters ({'; '.join(parts)}): {result}")]


def _named(component: int | None, items: Sequence[str]) -> str:
    """A component with the names of its items, of which the first are shown."""
    shown = ", ".join(repr(name) for name in items[:_MOST_NAMES])
    more = f" and {len(items) - _MOST_NAMES} more" if len(items) > _MOST_NAMES else ""
    return f"component {component}: {shown}{more}"


def named_items(mixture: MixtureParams, chosen: NDArray[np.bool_]) -> str:
    """The names of items that are chosen (n_components, n_items), component by component."""
    names = np.array(mixture.item_names, object)
    return "; ".join(_named(k, names[own].tolist()) for k, own in enumerate(chosen) if own.any())


def _shrunken_warnings(far: NDArray[np.bool_], errors: StandardErrors) -> list[Warning]:
    """A warning if the prior has moved values about which the rankings say less than it does."""
    if not far.any():
        return []
    words = (
        f"the prior says more than the rankings about {named_items(errors.mixture, far)}, and has moved them by up to "
        f"{np.abs(errors.shrinkage[far]).max():.2g}: their intervals are those of shrunken values (slope "
        f"{errors.slopes.min():.2f}) and hold the true ones less often than they say; fit with alpha=0.1 for intervals"
    )
    return [ShrunkenWarning(words)]
