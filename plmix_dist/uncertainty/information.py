"""The observed information over all rows, as one pass; the order of its parameters, and its inverse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from plmix_dist.errors import NotConvergedWarning, SettingsError
from plmix_dist.kernels import Prepared
from plmix_dist.kernels.em_pass import component_logs
from plmix_dist.kernels.information import all_choice_sums, scores_of_persons
from plmix_dist.kernels.memberships import Memberships, memberships, row_logs
from plmix_dist.kernels.tied_choices import tie_information
from plmix_dist.passes import Aggregation
from plmix_dist.prediction.posteriors import prepared_of
from plmix_dist.rankings import Floats, RankingBlock, row_runs
from plmix_dist.rankings.ties import MOST_EXTENSIONS, TIES, extend_ties
from plmix_dist.solvers.davidson import outcomes
from plmix_dist.solvers.likelihood import probabilities_against_ghost
from plmix_dist.store import MixtureParams
from plmix_dist.threads import single_thread

# The parameters of a mixture as one vector: log-worths, ghosts of the prior, logits of the shares.


@dataclass(frozen=True)
class Layout:
    """Which parameters a vector has: log-worths component by component, ghosts, log-weights of ties, logits of shares.

    Results are centred log-worths, shares, and log-weights of ties.
    """

    n_components: int
    n_items: int
    ghosts: bool  # whether there is a prior, and so one ghost per component
    free_shares: bool  # whether shares were estimated; fixed shares are not parameters
    # Whether shares are among the results; they are not in the block of one component.
    shown_shares: bool = True
    # How many of the last components have held worths, which are not parameters: that of noise.
    n_held: int = 0
    # (n_components, n_orders - 1): log-weights of ties, where these are outcomes; and whether components share them.
    log_ties: Floats | None = None
    shared_ties: bool = True
    is_last_empty: bool = False  # whether the last share is zero, as that of noise may be: it has no logit

    @property
    def of_ties(self) -> Floats:
        """(n_components, n_orders - 1, n_ties): 1 where a parameter is the log-weight of an order of ties.

        An order that never occurs has none.
        """
        log_ties = np.zeros((self.n_components, 0)) if self.log_ties is None else self.log_ties
        free = np.eye(log_ties.shape[1])[:, np.isfinite(log_ties).all(axis=0)]
        lines = np.ones((self.n_components, 1)) if self.shared_ties else np.eye(self.n_components)
        found: Floats = np.einsum("kl,of->kolf", lines, free).reshape(*log_ties.shape, lines.shape[1] * free.shape[1])
        return found

    @property
    def n_ties(self) -> int:
        """The number of log-weights of ties."""
        return int(self.of_ties.shape[2])

    @property
    def n_worths(self) -> int:
        """The number of log-worths."""
        return self.n_components * self.n_items

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.n_worths + self.n_components * (int(self.ghosts) + int(self.free_shares)) + self.n_ties

    @property
    def of_data(self) -> NDArray[np.int64]:
        """Where the log-worths, the log-weights of ties and the logits stand."""
        ties = self.n_worths + self.n_components * int(self.ghosts)
        worths = np.append(np.arange(self.n_worths), np.arange(ties, ties + self.n_ties))
        if not self.free_shares:
            return worths
        return np.concatenate([worths, np.arange(self.size - self.n_components, self.size)])

    def from_data(self, information: Floats) -> Floats:
        """(size, size): the information in log-worths and logits, with rows for ghosts and none for fixed shares."""
        whole = np.zeros((self.size, self.size))
        n_known = len(self.of_data)
        whole[np.ix_(self.of_data, self.of_data)] = information[:n_known, :n_known]
        return whole

    def unfelt(self) -> Floats:
        """(size, n_unfelt): directions that change nothing: constants on a component, and on all logits."""
        shares = int(self.free_shares)
        n_worths = self.n_components if self.n_items else 0
        found = np.zeros((self.size, n_worths + shares))
        found[: self.n_worths, :n_worths] = np.repeat(np.eye(n_worths), self.n_items, axis=0)
        if self.ghosts:
            found[self.n_worths : self.n_worths + n_worths, :n_worths] = np.eye(n_worths)
        if shares:
            found[-self.n_components :, -1] = 1.0
        if shares and self.is_last_empty:
            found = np.column_stack([found, np.eye(self.size)[-1]])
        if not self.n_held:
            return found
        first = self.n_components - self.n_held
        held = [*range(first * self.n_items, self.n_worths)]
        held += [self.n_worths + k for k in range(first, self.n_components)] if self.ghosts else []
        # In place of its constant, every worth of a held component, and its ghost.
        return np.concatenate([np.delete(found, slice(first, n_worths), axis=1), np.eye(self.size)[:, held]], axis=1)

    def to_results(self, shares: Floats) -> Floats:
        """(n_results, size): derivatives of centred log-worths and of shares in the parameters."""
        n_shares = self.n_components if self.shown_shares else 0
        found = np.zeros((self.n_worths + n_shares + self.n_ties, self.size))
        centring = np.eye(self.n_items) - 1 / max(1, self.n_items)
        found[: self.n_worths, : self.n_worths] = np.kron(np.eye(self.n_components), centring)
        if self.free_shares:
            of_shares = slice(self.n_worths, self.n_worths + n_shares)
            found[of_shares, -self.n_components :] = np.diag(shares) - np.outer(shares, shares)
        ties = self.of_data[self.n_worths : self.n_worths + self.n_ties]
        found[self.n_worths + n_shares :, ties] = np.eye(self.n_ties)
        return found

    def prior(self, log_worths: Floats, ghosts: Floats, alpha: float) -> tuple[Floats, Floats, Floats]:
        """The prior's own information (size, size), its gradient (size,), and products of scores (size, size).

        Products are those of its comparisons with the ghost, as if they were rankings. An item far from the ghost has
        hardly any curvature there, but its score is plus or minus one.
        """
        if self.ghosts and self.n_ties:
            return _tied_prior(self, log_worths, ghosts, alpha)
        (information, products), gradient = np.zeros((2, self.size, self.size)), np.zeros(self.size)
        for k in range(self.n_components - self.n_held if self.ghosts else 0):
            beats, loses = probabilities_against_ghost(log_worths[k], float(ghosts[k]))
            items, ghost = np.arange(k * self.n_items, (k + 1) * self.n_items), self.n_worths + k
            gradient[items] += alpha * (loses - beats)
            gradient[ghost] -= alpha * float((loses - beats).sum())
            squares = squared_prior_scores(log_worths[k], float(ghosts[k]), alpha)
            for found, values in ((information, 2 * alpha * beats * loses), (products, squares)):
                # The sum of v (e_item - e_ghost)(e_item - e_ghost)'.
                found[items, items] += values
                found[items, ghost] -= values
                found[ghost, items] -= values
                found[ghost, ghost] += values.sum()
        return information, gradient, products


def _tied_prior(layout: Layout, log_worths: Floats, ghosts: Floats, alpha: float) -> tuple[Floats, Floats, Floats]:
    """Information, gradient and products of scores of the prior, where items and ghosts may tie."""
    assert layout.log_ties is not None
    (information, products), gradient = np.zeros((2, layout.size, layout.size)), np.zeros(layout.size)
    first_tie = layout.n_worths + layout.n_components
    for k in range(layout.n_components - layout.n_held):
        pairs = layout.of_ties[k, 0]
        found = outcomes(log_worths[k] - ghosts[k], layout.log_ties[k, 0]).T
        for item, chances in enumerate(found, layout.n_items * k):
            to = np.zeros((3, layout.size))  # from item, ghost and ties of two to all parameters
            to[0, item] = to[1, layout.n_worths + k] = 1.0
            to[2, first_tie : first_tie + layout.n_ties] = pairs
            seen = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 1.0], [0.0, 1.0, 0.0]])  # of win, tie and loss
            scores = (seen - chances @ seen) @ to
            information += 2 * alpha * scores.T @ (chances[:, None] * scores)
            gradient += alpha * (scores[0] + scores[2])
            products += alpha * (np.outer(scores[0], scores[0]) + np.outer(scores[2], scores[2]))
    return information, gradient, products


def squared_prior_scores(log_worths: Floats, ghost: float, alpha: float) -> Floats:
    """(n_items,): squared scores of `alpha` wins and `alpha` losses of each item against the ghost, summed."""
    beats, loses = probabilities_against_ghost(log_worths, ghost)
    return alpha * (beats**2 + loses**2)


# The inverse of an information matrix, without the directions in which it is singular.

# An eigenvalue is zero if it is at most this, where 1 is the information if all components were known.
_SINGULAR = 1e-9


class _Inverse(NamedTuple):
    """The inverse of an information matrix."""

    covariance: Floats  # (d, d): the inverse in all directions that are not singular
    # (d, n_singular): directions in which the information is zero or negative. A step along them changes the
    # parameters, not the fit.
    singular: Floats


class Solved(NamedTuple):
    """What the information and scores at a point say of its parameters, and of results that are made from them."""

    covariance: Floats  # (n_results, n_results)
    blind: Floats  # (n_results, n): how singular directions move results, as in `StandardErrors`
    shrinkage: Floats  # (n_results,): how far the prior has moved each result, to first order
    parameters: Floats  # (d, d): the covariance of the parameters
    inverse: Floats  # (d, d): of the information
    singular: Floats  # (d, n)
    step: Floats  # (d,): Newton's step: where the maximum of these rankings is


def solve_at(
    sums: tuple[Floats, Floats, Floats],
    prior: tuple[Floats, Floats],
    unfelt: Floats,
    middle: Floats | None,
    to_results: Floats,
) -> Solved:
    """Covariances from `sums` over rows: information (d, d), gradient (d,), and what would be known of parameters (d,).

    The prior has an information and a gradient too. `middle` (d, d) is that of a sandwich, or None; `to_results` are
    derivatives (n_results, d).
    """
    (information, gradient, known), (held, pull) = sums, prior
    inverse = invert(information + held, unfelt, known + np.diag(held))
    with single_thread():
        own = inverse.covariance
        parameters = own if middle is None else own @ middle @ own
        results = to_results @ parameters @ to_results.T
        blind, shrinkage = normalised(to_results @ inverse.singular), to_results @ (own @ pull)
        step = own @ (gradient + pull)
    return Solved((results + results.T) / 2, blind, shrinkage, parameters, own, inverse.singular, step)


def normalised(directions: Floats) -> Floats:
    """Directions whose largest entry is 1; those that change nothing are left out."""
    largest = np.abs(directions).max(axis=0, initial=0.0)
    found: Floats = directions[:, largest > 0] / largest[largest > 0]
    return found


def invert(information: Floats, unfelt: Floats, known: Floats, least: float | None = None) -> _Inverse:
    """Invert an information matrix (d, d) in all directions but `unfelt` (d, n_unfelt), which change nothing.

    Eigenvalues are measured by `known` (d,), the information of each parameter if all components were known. With
    `least`, smaller eigenvalues count as this, and no direction is singular: for steps, not for results.
    """
    scale = np.sqrt(np.where(known > 0, known, 1.0))
    with single_thread():
        scaled = information / np.outer(scale, scale)
        basis = _complement(unfelt * scale[:, None])
        values, vectors = np.linalg.eigh(basis.T @ (scaled + scaled.T) @ basis / 2)
        steps = (basis @ vectors) / scale[:, None]
        if least is not None:
            values = np.maximum(values, least)
        good = values > _SINGULAR * max(1.0, float(values.max(initial=0.0)))
        covariance = (steps[:, good] / values[good]) @ steps[:, good].T
    return _Inverse((covariance + covariance.T) / 2, steps[:, ~good])


def _complement(directions: Floats) -> Floats:
    """(d, d - r): an orthonormal basis of what is orthogonal to these directions (d, r)."""
    n_parameters, n_directions = directions.shape
    return np.eye(n_parameters) if not n_directions else np.linalg.qr(directions, mode="complete")[0][:, n_directions:]


# Scores of persons at the fitted parameters, and the information that the choices of a block hold.

# A leaf is cut into runs of rows with at most this many scores, which bounds the memory.
_MOST_SCORES = 1 << 19


class _PersonScores(NamedTuple):
    """Scores of some persons."""

    log_likelihoods: Floats  # (n_persons,)
    weights: Floats  # (n_persons,)
    posteriors: Floats  # (n_persons, n_components)
    scores: Floats  # (n_persons, n_components, n_items): q_k s_k
    # (n_components, n_items, n_items): the information in the log-worths if all components were known, times
    # posteriors and weights, added up.
    complete: Floats
    # (n_persons,) or None: with ties="expand", the linear extensions of one ranking are one unit; None if every
    # person is a unit.
    unit: NDArray[np.int64] | None
    n_sampled: int  # how many rows have more linear extensions than are used here
    n_half: int = 0  # how many rows have ties that count half


def person_scores(block: RankingBlock, params: Prepared, ties: str) -> Iterator[_PersonScores]:
    """The scores of all persons of a block, some persons at a time.

    With ties="expand", linear extensions count as rows of their own, with a part of the weight. Otherwise a row is the
    set of its orders: its second derivatives are exact for up to 24 orders, else estimated from 24 draws.
    """
    if block.covariates is not None or block.log_shares is not None:
        raise SettingsError(
            "standard errors are not made for shares that depend on covariates; fit without covariates, or use a "
            "bootstrap of your own with sample_weight"
        )
    for part in row_runs(block, max(1, _MOST_SCORES // (params.n_components * params.n_items))):
        if params.n_orders or not part.has_ties:
            yield _scores(part, params)
        elif TIES[ties].extends:
            extended = TIES[ties].extended(part)
            unit = extended.row[extended.block.group_starts] if part.groups is None else None
            yield _scores(extended.block, params)._replace(unit=unit, n_half=extended.block.n_half)
        else:
            yield _tied_scores(part, params)


def _scores(block: RankingBlock, params: Prepared) -> _PersonScores:
    """Without ties, or with ties that are outcomes: their log-weights stand behind the log-worths."""
    persons = memberships(block, component_logs(block, params), params)
    if params.n_orders:
        scores, complete = tie_information(block, params, persons.by_row)
    else:
        scores, complete = all_choice_sums(block, params, persons.by_row)
    own = scores_of_persons(block, scores)
    return _PersonScores(persons.log_likelihoods, persons.weights, persons.posteriors, own, complete, None, 0)


class _TiedOrders(NamedTuple):
    """The orders of rows with ties, each a row without, and what the parameters say of them."""

    persons: Memberships
    orders: RankingBlock
    row: NDArray[np.int64]  # (n_orders,)
    joint: Floats  # (n_orders, n_components): the probability of component and order, given the rows of the person


def tied_orders(block: RankingBlock, params: Prepared) -> _TiedOrders:
    """All orders of each row, or 24 draws of them."""
    persons = memberships(block, component_logs(block, params), params)
    extended = extend_ties(block)
    firsts = np.flatnonzero(np.diff(extended.row, prepend=-1))
    orders = extended.block.replace(weights=block.row_weights[extended.row])
    logs = row_logs(orders, params)
    logs -= np.maximum.reduceat(logs, firsts, axis=0)[extended.row]
    chances = np.exp(logs)
    chances /= np.add.reduceat(chances, firsts, axis=0)[extended.row]
    return _TiedOrders(persons, orders, extended.row, persons.by_row[extended.row] * chances)


def _tied_scores(block: RankingBlock, params: Prepared) -> _PersonScores:
    """A row is the set of its orders: the order is as unknown as the component (Louis 1982)."""
    persons, orders, row, joint = tied_orders(block, params)
    firsts, by_row = np.flatnonzero(np.diff(row, prepend=-1)), persons.by_row
    scores, complete = all_choice_sums(orders, params, joint)
    row_scores = np.add.reduceat(scores, firsts, axis=0)
    # The orders of a row differ in their scores: the variance of these is information that is missing.
    several = np.diff(np.append(firsts, len(row))) > 1
    tied = several[row]
    for k in range(params.n_components):
        within = _products(scores[tied, k], joint[tied, k], orders.row_weights[tied])
        complete[k] -= within - _products(row_scores[several, k], by_row[several, k], block.row_weights[several])
    own, n_sampled = scores_of_persons(block, row_scores), _n_sampled(block)
    return _PersonScores(persons.log_likelihoods, persons.weights, persons.posteriors, own, complete, None, n_sampled)


def _products(scores: Floats, posteriors: Floats, weights: Floats) -> Floats:
    """The sum of w (q s)(q s)' / q."""
    per_posterior = np.divide(weights, posteriors, out=np.zeros(len(weights)), where=posteriors > 0)
    return scores.T @ (scores * per_posterior[:, None])


def _n_sampled(block: RankingBlock) -> int:
    """How many rows have more than 24 orders."""
    if block.tied is None:
        return 0
    starts = np.flatnonzero(~block.tied)
    sizes = np.diff(np.append(starts, len(block.items)))
    first_places = np.searchsorted(starts, block.offsets[:-1])
    log_orders = np.add.reduceat(gammaln(sizes + 1.0), first_places)
    return int(np.count_nonzero(log_orders > np.log(MOST_EXTENSIONS + 0.5)))


class InformationTotals(NamedTuple):
    """Sums over rows. Those of two leaves can be added."""

    # Each (d, d): minus the second derivatives of the log-likelihood, and the products of scores of units, times
    # weights. One matrix in all log-worths and logits of shares; or one per component in its log-worths, then one in
    # the logits.
    observed: tuple[Floats, ...]
    products: tuple[Floats, ...]
    # (n_components * n_items + n_components,): the sum of scores, and the diagonal of the information if all
    # components were known.
    gradient: Floats
    known: Floats
    weight: Floats  # (): of all persons
    n_sampled: NDArray[np.int64]  # (): rows with ties whose second derivatives are estimated from draws
    n_half: NDArray[np.int64]  # (): rows with ties that count half


@cache
def information_pass(ties: str, *, joint: bool) -> Aggregation:
    """The aggregation of `InformationTotals`, in all parameters together or component by component."""
    return Aggregation("information", leaf=partial(_leaf_totals, ties, joint), prepare=_with_shares)


def _with_shares(mixture: MixtureParams) -> tuple[Prepared, Floats]:
    """Parameters ready for kernels, and the shares (n_components,) as they are."""
    return prepared_of(mixture), mixture.shares


def flat_scores(found: _PersonScores, shares: Floats) -> Floats:
    """(n_persons, d): the scores in all log-worths, component by component, then in the logits of the shares."""
    return np.concatenate([found.scores.reshape(len(found.weights), -1), found.posteriors - shares], axis=1)


def _leaf_totals(
    ties: str, joint: bool, _number: int, block: RankingBlock, point: tuple[Prepared, Floats]
) -> InformationTotals:
    params, shares = point
    n_components, n_items = params.n_components, params.n_items + max(0, params.n_orders - 1)
    n_worths = n_components * n_items
    sizes = [n_worths + n_components] if joint else [n_items] * n_components + [n_components]
    bounds = [0, *np.cumsum(sizes).tolist()]
    observed, products = ([np.zeros((size, size)) for size in sizes] for _ in range(2))
    gradient, known = np.zeros((2, n_worths + n_components))
    weight, n_sampled, n_half = 0.0, 0, 0
    with single_thread():
        for found in person_scores(block, params, ties):
            flat = flat_scores(found, shares)
            of_units, unit_weights = by_unit(found, flat)
            for place, (first, last) in enumerate(pairwise(bounds)):
                own = flat[:, first:last]
                squares = own.T @ (own * found.weights[:, None])
                observed[place] += squares
                same = found.unit is None
                units = of_units[:, first:last]
                products[place] += squares if same else units.T @ (units * unit_weights[:, None])
            _add_second_derivatives(observed, found, shares, joint)
            gradient += found.weights @ flat
            known[:n_worths] += np.diagonal(found.complete, axis1=1, axis2=2).ravel()
            weight += float(found.weights.sum())
            n_sampled += found.n_sampled
            n_half += found.n_half
    known[n_worths:] = weight * shares * (1 - shares)
    counts = np.array(n_sampled), np.array(n_half)
    return InformationTotals(tuple(observed), tuple(products), gradient, known, np.array(weight), *counts)


def by_unit(found: _PersonScores, flat: Floats) -> tuple[Floats, Floats]:
    """The mean score (n_units, d) of each independent unit, and its weight."""
    if found.unit is None:
        return flat, found.weights
    firsts = np.flatnonzero(np.diff(found.unit, prepend=-1))
    weights = np.add.reduceat(found.weights, firsts)
    return np.add.reduceat(flat * found.weights[:, None], firsts, axis=0) / weights[:, None], weights


def _add_second_derivatives(observed: list[Floats], found: _PersonScores, shares: Floats, joint: bool) -> None:
    """All but the products of scores: the information of choices, less that of unknown components (Louis 1982)."""
    n_persons, n_components, n_items = found.scores.shape
    weights, posteriors = found.weights, found.posteriors
    n_worths = n_components * n_items
    for k in range(n_components):
        own = found.scores[:, k]
        per_posterior = np.divide(weights, posteriors[:, k], out=np.zeros(n_persons), where=posteriors[:, k] > 0)
        second = found.complete[k] - own.T @ (own * per_posterior[:, None])
        if joint:
            place = slice(k * n_items, (k + 1) * n_items)
            observed[0][place, place] += second
            # Products of scores have q - shares in place of q - [j = k].
            crossed = np.outer(weights @ own, shares)
            crossed[:, k] -= weights @ own
            observed[0][place, n_worths:] += crossed
            observed[0][n_worths:, place] += crossed.T
        else:
            observed[k] += second
    # Of the logits: the sum of w (diag(shares) - shares shares' - diag(q) + q q').
    total, sums = float(weights.sum()), weights @ posteriors
    own_logits = observed[-1][-n_components:, -n_components:]
    own_logits += np.outer(sums, shares) + np.outer(shares, sums) - 2 * total * np.outer(shares, shares)
    own_logits += np.diag(total * shares - sums)


# An estimate that would move by more than this many standard errors is not at its maximum.
_FAR = 0.25


def far_from_maximum(blocks: Iterable[Solved]) -> list[Warning]:
    """A warning if a Newton step is long, measured by the variances of what it moves: this is not the maximum."""
    furthest = 0.0
    for one in blocks:
        variances = np.diag(one.inverse)
        known = variances > 0
        furthest = max(furthest, float((np.abs(one.step[known]) / np.sqrt(variances[known])).max(initial=0.0)))
    if furthest <= _FAR:
        return []
    words = (
        f"these rankings would move the parameters by {furthest:.2g} standard errors, so the fit is not at its "
        "maximum here, and standard errors are those of another point; give the rankings of the fit and their "
        "sample_weight, or fit again with a smaller tol"
    )
    return [NotConvergedWarning(words)]
