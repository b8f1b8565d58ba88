"""StandardErrors: how sure a fit is, with intervals and differences; values by the delta method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri, softmax

from plmix_dist.errors import SettingsError
from plmix_dist.rankings import Floats
from plmix_dist.settings import nearest, real_number, whole_number
from plmix_dist.store import MixtureParams
from plmix_dist.uncertainty.quasi_variances import QuasiVariances, quasi_variances

# A quantity has no standard error if a singular direction moves it by this, where the largest move is 1.
_MOVED = 1e-6
# Numbers of a covariance matrix that is put together from blocks.
_MOST_NUMBERS = 1 << 27


class Unidentified(NamedTuple):
    """Parameters about which the rankings say nothing."""

    component: int | None  # the component; None for the shares
    items: tuple[str, ...]  # names of the items. All of them may be moved together against the others


class Estimates(NamedTuple):
    """Values and their standard errors, of the same shape."""

    values: Floats
    standard_errors: Floats


class PerParameter(NamedTuple):
    """One number per parameter: of log-worths (n_components, n_items) and of shares (n_components,)."""

    log_worths: Floats
    shares: Floats


class Interval(NamedTuple):
    """Lower and upper ends of log-worths (n_components, n_items) and of shares (n_components,)."""

    log_worths: tuple[Floats, Floats]
    shares: tuple[Floats, Floats]


class _Ratios(NamedTuple):
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
        spread = float(ndtri((1 + _checked_level(level)) / 2)) * self.standard_errors
        return self.values - spread, self.values + spread

    def wald(self, column: str) -> tuple[float, int]:
        """The Wald statistic of a column over all components, and its degrees of freedom."""
        place = np.arange(len(self.values)) * len(self.names) + self._number(column)
        own = self.covariance[np.ix_(place, place)]
        free = np.flatnonzero(np.diag(own) > 0)
        values = self.values.ravel()[place][free]
        return float(values @ np.linalg.pinv(own[np.ix_(free, free)]) @ values), len(free)

    def willingness_to_pay(self, column: str, price: str, level: float = 0.95) -> _Ratios:
        """How much price one unit of a column is worth: minus the ratio of both coefficients, in each component.

        Examples
        --------
        >>> found = Coefficients(("price", "legroom"), np.array([[-0.5, 1.0]]), np.full((1, 2), 0.1), 0.01 * np.eye(2))
        >>> found.willingness_to_pay("legroom", "price").values.tolist()
        [2.0]
        """
        top, bottom = self._number(column), self._number(price)
        squared = float(ndtri((1 + _checked_level(level)) / 2)) ** 2
        found = np.empty((4, len(self.values)))
        for k, own in enumerate(self.values):
            place = [k * len(self.names) + top, k * len(self.names) + bottom]
            (v, c), (_, w) = self.covariance[np.ix_(place, place)]
            a, b = float(own[top]), float(own[bottom])
            ratio = -a / b if b else np.nan
            found[:2, k] = ratio, np.sqrt(v + 2 * ratio * c + ratio**2 * w) / abs(b) if b else np.inf
            # Fieller: ratios r for which a + r b is zero within its standard error.
            quadratic = np.array([b * b - squared * w, 2 * (a * b - squared * c), a * a - squared * v])
            found[2:, k] = np.sort(np.roots(quadratic).real) if quadratic[0] > 0 else np.array([-np.inf, np.inf])
        return _Ratios(*found)

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


@dataclass(frozen=True)
class StandardErrors:
    """How sure a fit is of its parameters.

    Parameters
    ----------
    mixture
        The parameters.
    blocks, blind : tuple of (d, d) and (d, n_singular)
        Covariances, and directions in which the information is singular: of all centred log-worths and shares
        together, or of each component and then of the shares.
    unidentified
        Parameters about which the rankings say nothing. Without a prior they have no standard error (NaN). With a
        prior the standard error is that of the prior.
    kind
        "information" or "sandwich".
    n_sampled
        How many rankings have ties with more than 24 orders: their second derivatives are estimated from 24 draws.
    shrinkage : (n_components, n_items)
        How far the prior has moved each centred log-worth towards the middle, to first order; zero without a prior.
    log_ties : (n_components, order - 1)
        Standard errors of the logarithms of `tie_parameters_`, where ties are outcomes; 0 for orders that never occur.
    coefficients, share_coefficients
        Those of the columns that utilities are made of, and of the logits of shares; None where there are none.

    All numbers hold given the number of components: they do not say whether there are this many. With a prior they
    are those of the posterior, so intervals are for values as the prior shrinks them; `notes` says it in words.

    Examples
    --------
    >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
    >>> errors = plm.PlackettLuceMixture(1, alpha=0.0).fit(rankings).standard_errors(rankings)
    >>> errors.log_worths.shape, errors.shares.tolist(), errors.covariance.shape
    ((1, 3), [0.0], (4, 4))
    """

    mixture: MixtureParams
    blocks: tuple[Floats, ...]
    blind: tuple[Floats, ...]
    unidentified: tuple[Unidentified, ...]
    kind: str
    n_sampled: int
    shrinkage: Floats
    log_ties: Floats | None = None
    coefficients: Coefficients | None = None
    share_coefficients: Coefficients | None = None

    @cached_property
    def slopes(self) -> Floats:
        """(n_components,): by how much values are shrunken: the slope of refitted on true values, if the fit were true.

        1 without a prior. It is of first order, and rough where items were never chosen (docs/uncertainty.md).
        """
        worths = self.mixture.log_worths
        squares = (worths**2).sum(axis=1)
        moved = (worths * self.shrinkage).sum(axis=1)
        found: Floats = 1 + np.divide(moved, squares, out=np.zeros_like(squares), where=squares > 0)
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know when reading these numbers, in sentences.

        Examples
        --------
        >>> rankings = [[0, 1]] * 30 + [[1, 0]] * 10
        >>> errors = plm.PlackettLuceMixture(1, alpha=1.0).fit(rankings).standard_errors(rankings)
        >>> for note in errors.notes:
        ...     print(note)
        Errors hold given 1 component: they do not say whether there are more.
        Values are shrunken towards the middle by the prior, to 97 % of their spread; intervals are for such values.
        """
        notes = [given_components(self.mixture.n_components)]
        if self.shrinkage.any():
            kept = f"{100 * self.slopes.min():.0f} % of their spread"
            words = f"Values are shrunken towards the middle by the prior, to {kept}; intervals are for such values."
            notes.append(words)
        return tuple(notes)

    def __repr__(self) -> str:
        """A few lines: what they are of, and how large they are."""
        n_components, n_items = self.mixture.log_worths.shape
        lost = f", {sum(len(one.items) for one in self.unidentified)} without data" if self.unidentified else ""
        return (
            f"StandardErrors ({self.kind}) of {n_components} x {n_items} log-worths: {_range(self.log_worths)}{lost}\n"
            + "\n".join([f"  of shares: {_range(self.shares)}", *(f"  {note}" for note in self.notes)])
        )

    @property
    def joint(self) -> bool:
        """Whether covariances between components are known; otherwise they are taken as zero."""
        return len(self.blocks) == 1

    @cached_property
    def log_worths(self) -> Floats:
        """(n_components, n_items): standard errors of the centred log-worths."""
        return self._roots[: self._n_worths].reshape(self.mixture.log_worths.shape)

    @cached_property
    def shares(self) -> Floats:
        """(n_components,): standard errors of the shares; 0 if these were fixed."""
        return self._roots[self._n_worths :]

    @cached_property
    def covariance(self) -> Floats:
        """(d, d), d = n_components * n_items + n_components: of centred log-worths by component, then of shares."""
        size = self._n_worths + self.mixture.n_components
        if size**2 > _MOST_NUMBERS:
            raise SettingsError(
                f"the covariance of {size} parameters has {size**2} numbers; use `blocks`, one per component"
            )
        whole, first = np.zeros((size, size)), 0
        for block, blind in zip(self.blocks, self.blind, strict=True):
            place = slice(first, first + len(block))
            whole[place, place] = block
            lost = first + np.flatnonzero(_moved(blind))
            whole[lost, :] = whole[:, lost] = np.nan
            first += len(block)
        return whole

    def intervals(self, level: float = 0.95) -> Interval:
        """Intervals by the normal distribution; those of shares on the scale of logits.

        Examples
        --------
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> errors = plm.PlackettLuceMixture(1, alpha=0.0).fit(rankings).standard_errors(rankings)
        >>> lower, upper = errors.intervals(0.9).log_worths
        >>> bool((lower < upper).all())
        True
        """
        factor = float(ndtri((1 + _checked_level(level)) / 2))
        worths, shares = self.mixture.log_worths, self.mixture.shares
        spread = factor * self.log_worths
        with np.errstate(divide="ignore", invalid="ignore"):
            on_logits = np.where(self.shares > 0, factor * self.shares / (shares * (1 - shares)), 0.0)
            centre = logit(shares)
            ends = expit(centre - on_logits), expit(centre + on_logits)
        unknown = np.isnan(self.shares)
        low, high = (np.where(unknown, np.nan, end) for end in ends)
        return Interval((worths - spread, worths + spread), (low, high))

    def differences(self, component: int = 0) -> Estimates:
        """(n_items, n_items): log-worth of item i less that of item j in a component, and their standard errors.

        NaN for items of different slates, whose worths do not compare.

        Examples
        --------
        >>> rankings = [[0, 1]] * 30 + [[1, 0]] * 10
        >>> errors = plm.PlackettLuceMixture(1, alpha=0.0).fit(rankings).standard_errors(rankings)
        >>> found = errors.differences()
        >>> found.values[0].round(3).tolist(), found.standard_errors[0].round(3).tolist()  # log(3), sqrt(1/30 + 1/10)
        ([0.0, 1.099], [0.0, 0.365])
        """
        component = self._component(component)
        worths = self.mixture.log_worths[component]
        block, blind = self._of_component(component)
        variances = _differences(block)
        variances[_moved_differences(blind)] = np.nan
        with np.errstate(invalid="ignore"):
            return compared(self.mixture, worths[:, None] - worths[None, :], np.sqrt(variances))

    def pairwise_probabilities(self, component: int | None = None) -> Estimates:
        """(n_items, n_items): the probability that item i ranks before item j, and their standard errors.

        NaN for items of different slates, for which worths do not say it.

        Parameters
        ----------
        component
            A component; None for the mixture.

        Examples
        --------
        >>> rankings = [[0, 1]] * 30 + [[1, 0]] * 10
        >>> errors = plm.PlackettLuceMixture(1, alpha=0.0).fit(rankings).standard_errors(rankings)
        >>> found = errors.pairwise_probabilities()
        >>> found.values[0].round(3).tolist(), found.standard_errors[0].round(4).tolist()  # sqrt(3/4 1/4 / 40)
        ([0.5, 0.75], [0.0, 0.0685])
        """
        if component is not None:
            values, errors = self.differences(component)
            chances = expit(values)
            return Estimates(chances, chances * (1 - chances) * errors)
        worths, shares = self.mixture.log_worths, self.mixture.shares
        chances = expit(worths[:, :, None] - worths[:, None, :])
        slopes = shares[:, None, None] * chances * (1 - chances)
        values = np.tensordot(shares, chances, 1)
        np.fill_diagonal(values, 0.5)
        with np.errstate(invalid="ignore"):
            errors = np.sqrt(self._mixture_variances(chances, slopes))
        return compared(self.mixture, values, errors)

    def shares_at(self, covariates: ArrayLike) -> Estimates:
        """(n, n_components): the shares of components among persons with these covariates (n, n_columns).

        So a table by precinct, district or age: covariates that are 0 and 1 give the mix of each, with its errors.

        Examples
        --------
        >>> rows, old = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 30, np.repeat([0, 1, 0], [20, 20, 20])
        >>> model = plm.PlackettLuceMixture(2, random_state=0).fit(rows, membership_covariates=old)
        >>> model.standard_errors(rows, membership_covariates=old).shares_at([[0], [1]]).values.round(1).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
        """
        own = self.share_coefficients
        if own is None:
            raise SettingsError("these shares do not depend on covariates; fit with membership_covariates")
        given = np.asarray(covariates, np.float64)
        if given.ndim != 2 or given.shape[1] != len(own.names) - 1:
            raise SettingsError(f"covariates must have the shape (n, {len(own.names) - 1}), but have {given.shape}")
        columns = np.column_stack([np.ones(len(given)), given])
        shares: Floats = softmax(columns @ own.values.T, axis=1)
        slopes = shares[:, :, None] * (np.eye(shares.shape[1]) - shares[:, None])  # by the logits of a person
        full = (slopes[..., None] * columns[:, None, None]).reshape(*shares.shape, -1)
        return Estimates(shares, np.sqrt(np.einsum("nki,ij,nkj->nk", full, own.covariance, full)))

    def linear(self, weights: ArrayLike) -> float:
        """The standard error of a linear combination of centred log-worths, component by component, and shares.

        Parameters
        ----------
        weights : (n_components * n_items + n_components,)

        Examples
        --------
        >>> rankings = [[0, 1]] * 30 + [[1, 0]] * 10
        >>> errors = plm.PlackettLuceMixture(1, alpha=0.0).fit(rankings).standard_errors(rankings)
        >>> round(errors.linear([1, -1, 0]), 3)
        0.365
        """
        given = np.asarray(weights, np.float64)
        size = self._n_worths + self.mixture.n_components
        if given.shape != (size,):
            raise SettingsError(
                f"weights must have one number for each of {self._n_worths} log-worths and "
                f"{self.mixture.n_components} shares, {size} in all, but have shape {given.shape}"
            )
        variance, first = 0.0, 0
        for block, blind in zip(self.blocks, self.blind, strict=True):
            own = given[first : first + len(block)]
            if np.linalg.norm(own @ blind) > _MOVED * np.abs(own).max(initial=0.0):
                return float("nan")
            variance += float(own @ block @ own)
            first += len(block)
        return float(np.sqrt(max(variance, 0.0)))

    def quasi_variances(self, component: int = 0) -> QuasiVariances:
        """One number per item, so that the variance of a difference of log-worths is nearly the sum of two of them.

        They are those of qvcalc in R (Firth and de Menezes 2004), for comparison intervals in plots.

        Examples
        --------
        >>> rankings = [[0, 1, 2]] * 30 + [[2, 1, 0]] * 10
        >>> errors = plm.PlackettLuceMixture(1, alpha=0.0).fit(rankings).standard_errors(rankings)
        >>> errors.quasi_variances().values.shape
        (3,)
        """
        block, blind = self._of_component(self._component(component))
        if _moved_differences(blind).any() or np.isnan(self.differences(component).values).any():
            block = np.full_like(block, np.nan)
        return quasi_variances(block)

    @property
    def _n_worths(self) -> int:
        return int(self.mixture.log_worths.size)

    @cached_property
    def _roots(self) -> Floats:
        roots: Floats = np.sqrt(np.maximum(np.concatenate([np.diag(block) for block in self.blocks]), 0.0))
        roots[np.concatenate([_moved(blind) for blind in self.blind])] = np.nan
        return roots

    def _component(self, component: int) -> int:
        number = whole_number("component", component)
        if number >= self.mixture.n_components:
            raise SettingsError(
                f"component must be below {self.mixture.n_components}, the number of components, but is {number}"
            )
        return number

    def _of_component(self, component: int) -> tuple[Floats, Floats]:
        """The covariance of the log-worths of a component, and what singular directions do to them."""
        if not self.joint:
            return self.blocks[component], self.blind[component]
        n_items = self.mixture.n_items
        place = slice(component * n_items, (component + 1) * n_items)
        return self.blocks[0][place, place], self.blind[0][place]

    def _mixture_variances(self, chances: Floats, slopes: Floats) -> Floats:
        """(n_items, n_items): variances of pairwise probabilities of the mixture."""
        n_components, n_items = self.mixture.log_worths.shape
        of_shares = self.blocks[-1][-n_components:, -n_components:]
        variances: Floats = np.einsum("kij,kl,lij->ij", chances, of_shares, chances)
        for k in range(n_components):
            for other in range(n_components) if self.joint else (k,):
                block = self._of_component(k)[0] if other == k else self._between(k, other)
                variances += slopes[k] * slopes[other] * _differences(block)
            if self.joint:
                with_shares = self.blocks[0][k * n_items : (k + 1) * n_items, -n_components:]
                moves = with_shares[:, None, :] - with_shares[None, :, :]
                variances += 2 * slopes[k] * np.einsum("ijl,lij->ij", moves, chances)
        lost = np.zeros((n_items, n_items))
        for k in range(n_components):
            lost = lost + slopes[k] * _moved_differences(self._of_component(k)[1])
        lost = lost + np.tensordot(_moved(self.blind[-1][-n_components:]) * 1.0, chances, 1)
        variances[lost > _MOVED] = np.nan
        np.fill_diagonal(variances, 0.0)
        return np.where(np.isnan(variances), np.nan, np.maximum(variances, 0.0))

    def _between(self, k: int, other: int) -> Floats:
        n_items = self.mixture.n_items
        return self.blocks[0][k * n_items : (k + 1) * n_items, other * n_items : (other + 1) * n_items]


def compared(mixture: MixtureParams, values: Floats, errors: Floats) -> Estimates:
    """Comparisons (n_items, n_items) of all items; NaN for items of different slates, whose worths do not compare."""
    slate_of = np.array(getattr(getattr(mixture.rows, "choices", None), "slate_of", [0] * mixture.n_items))
    apart = slate_of[:, None] != slate_of
    return Estimates(np.where(apart, np.nan, values), np.where(apart, np.nan, errors))


def given_components(number: int) -> str:
    """What errors of this many components do not say, in a sentence."""
    several = number != 1
    counted = "this many" if several else "more"
    return f"Errors hold given {number} component{'s'[:several]}: they do not say whether there are {counted}."


def _range(errors: Floats) -> str:
    known = errors[np.isfinite(errors)]
    return f"{known.min():.3g} to {known.max():.3g}" if known.size else "not known"


def percentiles(log_worths: Floats, shares: Floats, level: float, axis: int | tuple[int, int]) -> Interval:
    """Intervals between quantiles of draws, which lie along an axis of log-worths and of shares."""
    tail = (1 - _checked_level(level)) / 2
    worths, of_shares = (np.quantile(part, [tail, 1 - tail], axis=axis) for part in (log_worths, shares))
    return Interval((worths[0], worths[1]), (of_shares[0], of_shares[1]))


def _checked_level(level: float) -> float:
    """The level of an interval, checked."""
    value = real_number("level", level)
    if not 0 < value < 1:
        raise SettingsError(f"level must lie between 0 and 1, but is {value:g}; 0.95 gives 95 % intervals")
    return value


def _differences(block: Floats) -> Floats:
    """(n, n): the covariance of the differences i - j, from that of two vectors (n, n)."""
    diagonal = np.diag(block)
    return diagonal[:, None] + diagonal[None, :] - block - block.T


def _moved(blind: Floats) -> NDArray[np.bool_]:
    """(d,): which quantities singular directions move."""
    found: NDArray[np.bool_] = np.linalg.norm(blind, axis=1) > _MOVED
    return found


def _moved_differences(blind: Floats) -> NDArray[np.bool_]:
    """(n, n): which differences singular directions move."""
    moved = np.zeros((len(blind), len(blind)), bool)
    for column in blind.T:
        moved |= np.abs(column[:, None] - column[None, :]) > _MOVED
    return moved
