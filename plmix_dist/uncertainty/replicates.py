"""Replicates: all replicates of a bootstrap on their way from the fitted point to their own maxima, as one Algorithm.

In its passes every leaf is read once for all replicates, and each has its own weights and parameters. Every replicate
takes Newton steps with the information matrix of the fit, corrected by the gradients it has seen (L-BFGS). A step that
lowers the objective of its replicate is shortened. All vectors have the order of `Layout`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from plmix_dist.errors import SettingsError
from plmix_dist.fitting.algorithm import savable
from plmix_dist.kernels import EmStatistics, Prepared, em_statistics, memberships_at, prepare
from plmix_dist.kernels.em_pass import is_plain, reweighted_statistics, statistics_at, statistics_with_ties
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.passes import Aggregation, Answer, Request
from plmix_dist.prediction.posteriors import prepared_first
from plmix_dist.rankings import TIES, Floats, RankingBlock, generator
from plmix_dist.threads import single_thread
from plmix_dist.uncertainty.information import flat_scores, person_scores
from plmix_dist.uncertainty.standard_errors import FittedPoint

# Random weights of persons for one replicate of a bootstrap, keyed by seed, replicate and leaf.

WEIGHTS = ("poisson", "exponential")
# Inversion for Poisson numbers of mean 1: the unit interval in 2**16 cells. A cell holds its number, or -1 if numbers
# change inside it. 19 numbers reach up to 1 in float64.
_N_CELLS = 1 << 16
_CUMULATIVE = np.cumsum([math.exp(-1) / math.factorial(number) for number in range(19)])
_LOWEST, _HIGHEST = (
    np.searchsorted(_CUMULATIVE, (np.arange(_N_CELLS) + end) / _N_CELLS, side="right") for end in (0, 1)
)
_NUMBER_OF_CELL = np.where(_LOWEST == _HIGHEST, _LOWEST, -1).astype(np.int8)


def draw_weights(block: RankingBlock, kind: str, seed: int, replicate: int, leaf: int) -> Floats:
    """(n_persons,): the factor by which the weight of each person is multiplied in a replicate; its mean is 1.

    A person is a row, or the rows of a group. "poisson": the number of times that a person is drawn; a row of weight w
    stands for w persons, so its new weight is a Poisson number with mean w (if w is not whole, w times one with mean
    1). "exponential": weights of the Bayesian bootstrap, whose sums over w persons are gamma numbers.
    """
    rng = generator(seed, "bootstrap", replicate, leaf)
    if block.groups is not None or block.weights is None:
        n_persons = int(np.count_nonzero(block.group_starts))
        return _poisson_of_mean_one(rng, n_persons) if kind == "poisson" else rng.standard_exponential(n_persons)
    weights = block.weights
    if kind == "exponential":
        return rng.standard_gamma(weights) / weights
    means = np.where(weights == np.floor(weights), weights, 1.0)
    return rng.poisson(means) / means


def _poisson_of_mean_one(rng: np.random.Generator, size: int) -> Floats:
    """(size,): Poisson numbers with mean 1, ten times as fast as those of NumPy.

    Nearly all follow from 16 random bits. Where these do not decide, more bits do, so the distribution is exact.
    """
    cells = rng.integers(0, _N_CELLS, size, dtype=np.uint16)
    drawn = _NUMBER_OF_CELL.take(cells)
    undecided = np.flatnonzero(drawn < 0)
    uniform = (cells[undecided] + rng.random(len(undecided))) / _N_CELLS
    drawn[undecided] = np.searchsorted(_CUMULATIVE, uniform, side="right")
    return drawn.astype(np.float64)


def _weighted_statistics(block: RankingBlock, weightings: Iterable[tuple[Floats, Prepared]]) -> list[EmStatistics]:
    """The statistics of a block in which the weight of each person is multiplied by a factor."""
    if is_plain(block):
        weights = block.row_weights
        return reweighted_statistics(block, ((weights * factors, params) for factors, params in weightings))
    return [_weighted(block, factors, params) for factors, params in weightings]


def _weighted(block: RankingBlock, factors: Floats, params: Prepared) -> EmStatistics:
    """Statistics of rows with groups or ties."""
    if block.groups is None:
        return em_statistics(block.replace(weights=block.row_weights * factors), params)
    # The weight of a row is how often its person gave it. So factors come in after the memberships.
    at = memberships_at(block, params)
    scaled = block.replace(weights=block.row_weights * factors[at.person], groups=None)
    counts = factors * at.weights
    log_likelihood = float((counts * at.log_likelihoods).sum())
    shares = (counts[:, None] * at.posteriors).sum(axis=0)
    ties = TiedRows.of(scaled)
    if ties is None:
        return statistics_at(scaled, params, at.by_row, log_likelihood)._replace(shares=shares)
    sums = statistics_with_ties(scaled, ties, ties.places(params), params, at.by_row, log_likelihood)
    return sums._replace(shares=shares)


# Weights of persons, over all replicates, that are held at a time.
_MOST_WEIGHTS = 1 << 23


class Draws(NamedTuple):
    """Which weights: their kind, the seed, and the numbers of the replicates."""

    kind: str
    seed: int
    replicates: tuple[int, ...]


class _ReplicateSums(NamedTuple):
    """Sums over rows, for each replicate."""

    log_likelihood: Floats  # (n_replicates,)
    weight: Floats  # (n_replicates,)
    gradient: Floats  # (n_replicates, n_components * n_items): in the log-worths
    shares: Floats  # (n_replicates, n_components): sums of posteriors


def _prepare_later(params: tuple[Floats, Floats, Draws]) -> tuple[list[Prepared | None], int, Draws]:
    """Points ready for kernels, from log-worths (n_replicates, n_components, n_items) and log-shares."""
    log_worths, log_shares, draws = params
    return [_prepared(*point) for point in zip(log_worths, log_shares, strict=True)], log_shares.shape[1], draws


def _prepared(log_worths: Floats, log_shares: Floats) -> Prepared | None:
    """None for a point that cannot be computed with: the step that led there was too long."""
    try:
        return prepare(log_worths, log_shares)
    except SettingsError:
        return None


def _first_leaf(ties: str, number: int, block: RankingBlock, params: tuple[Prepared, Draws]) -> _ReplicateSums:
    point, (kind, seed, replicates) = params
    n_persons = int(np.count_nonzero(block.group_starts))
    at_once = max(1, _MOST_WEIGHTS // n_persons)
    parts = []
    with single_thread():
        for first in range(0, len(replicates), at_once):
            numbers = replicates[first : first + at_once]
            factors = np.empty((len(numbers), n_persons))
            for place, replicate in enumerate(numbers):
                factors[place] = draw_weights(block, kind, seed, replicate, number)
            parts.append(_at_fitted_point(ties, block, point, factors))
    return _ReplicateSums(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _at_fitted_point(ties: str, block: RankingBlock, point: Prepared, factors: Floats) -> _ReplicateSums:
    """The sums of some replicates, from factors (n_replicates, n_persons)."""
    n_components, n_items = point.n_components, point.n_items
    sums = np.zeros((len(factors), n_components * n_items + n_components + 2))
    first = 0
    for found in person_scores(block, point, ties):
        here: slice | NDArray[np.int64] = slice(first, first + len(found.weights))
        if found.unit is not None:
            here = first + found.unit
        own = factors[:, here]
        scores, ones = flat_scores(found, np.zeros(n_components)), np.ones((len(found.weights), 1))
        columns = np.concatenate([scores, found.log_likelihoods[:, None], ones], axis=1)
        sums += own @ (columns * found.weights[:, None])
        first += len(found.weights) if found.unit is None else int(found.unit[-1]) + 1
    gradient, shares = sums[:, : n_components * n_items], sums[:, n_components * n_items : -2]
    return _ReplicateSums(sums[:, -2].copy(), sums[:, -1].copy(), gradient.copy(), shares.copy())


def _later_leaf(
    ties: str, number: int, block: RankingBlock, params: tuple[list[Prepared | None], int, Draws]
) -> _ReplicateSums:
    points, n_components, (kind, seed, replicates) = params
    row, given = None, block
    if TIES[ties].extends and block.has_ties:
        block, extended_row = TIES[ties].extended(block)
        row = extended_row[block.group_starts] if given.groups is None else None
    n_replicates = len(replicates)
    # A point that cannot be computed with keeps a log-likelihood of minus infinity.
    log_likelihood, weight = np.full(n_replicates, -np.inf), np.zeros(n_replicates)
    gradient = np.zeros((n_replicates, n_components * block.n_items))
    shares = np.zeros((n_replicates, n_components))
    running = [place for place, point in enumerate(points) if point is not None]

    def weightings() -> Iterator[tuple[Floats, Prepared]]:
        for replicate, point in zip(replicates, points, strict=True):
            if point is not None:
                factors = draw_weights(given, kind, seed, replicate, number)
                yield factors if row is None else factors[row], point

    for place, sums in zip(running, _weighted_statistics(block, weightings()), strict=True):
        log_likelihood[place], weight[place] = sums.log_likelihood, sums.shares.sum()
        gradient[place] = (sums.wins - sums.expected_wins).ravel()
        shares[place] = sums.shares
    return _ReplicateSums(log_likelihood, weight, gradient, shares)


# The algorithm: steps of all replicates, from the sums of one pass to the next.

_MEMORY = 6
_LONGEST_STEP = 1.5
_SHORTER = 0.25
_SHORTEST = 1e-7
# Shares of the fit below this are begun from here: a logit of minus infinity cannot move.
_LEAST_SHARE = 1e-12
_RUNNING, _CONVERGED, _FAILED = 0, 1, 2


@savable
class Scales(NamedTuple):
    """The inverse of the information of the fit, in blocks: where each block stands, and its matrix."""

    places: tuple[NDArray[np.int64], ...]
    matrices: tuple[Floats, ...]
    n_free: int
    mostly_prior: NDArray[np.bool_]  # (n_components, n_items): items about which the prior says more than the rankings

    def times(self, vectors: Floats) -> Floats:
        """The product with vectors (n_vectors, d), one per row."""
        found = np.zeros_like(vectors)
        for place, matrix in zip(self.places, self.matrices, strict=True):
            found[:, place] = vectors[:, place] @ matrix
        return found


@savable
class ReplicatesState(NamedTuple):
    """Replicates under way."""

    point: Floats  # (n_replicates, d): the last points that were taken, and the gradients there
    gradient: Floats
    # (n_replicates,): the objective there, the total weight of the replicate, and the length of the last step, in
    # standard errors.
    objective: Floats
    weight: Floats
    distance: Floats
    step: Floats  # (n_replicates, d): the step that is tried
    share: Floats  # (n_replicates,): which part of it is tried
    # (n_stored, n_replicates, d): the last steps, and how they changed the gradient (with the sign turned).
    moves: Floats
    changes: Floats
    ended: NDArray[np.int64]  # (n_replicates,): 0 while running, 1 converged, 2 failed
    n_passes: int


@dataclass(frozen=True)
class Replicates:
    """How to bootstrap."""

    fitted: FittedPoint
    scales: Scales
    draws: Draws
    # A replicate ends when the error that is left is expected to be at most this many standard errors (root mean
    # square over parameters).
    tol: float
    max_iter: int  # the most passes

    def start(self) -> ReplicatesState:
        """All replicates at the fitted point."""
        layout, mixture = self.fitted.layout, self.fitted.mixture
        parts = [mixture.log_worths.ravel()]
        if layout.ghosts:
            parts.append(self.fitted.ghosts)
        if layout.free_shares:
            parts.append(np.log(np.maximum(mixture.shares, _LEAST_SHARE)))
        n_replicates = len(self.draws.replicates)
        point = np.tile(np.concatenate(parts), (n_replicates, 1))
        nothing, numbers = np.zeros_like(point), np.zeros(n_replicates)
        memory = np.zeros((0, *point.shape))
        ended = np.zeros(n_replicates, np.int64)
        return ReplicatesState(point, nothing, numbers, numbers, numbers, nothing, numbers, memory, memory, ended, 0)

    def ask(self, state: ReplicatesState) -> Sequence[Request]:
        """One request for all replicates that still run."""
        ties = self.fitted.ties
        if state.n_passes == 0:
            # Scores of persons are computed once for all replicates.
            first = Aggregation("bootstrap-first", leaf=partial(_first_leaf, ties), prepare=prepared_first)
            return (Request(first, (self.fitted.mixture.unnamed(), self.draws)),)
        active = self._active(state)
        if not len(active):
            return ()
        log_worths, _, log_shares = self.parts_of(_trial(state)[active])
        draws = self.draws._replace(replicates=tuple(self.draws.replicates[place] for place in active))
        later = Aggregation("bootstrap", leaf=partial(_later_leaf, ties), prepare=_prepare_later)
        return (Request(later, (log_worths, log_shares, draws)),)

    def tell(self, state: ReplicatesState, answers: Sequence[Answer]) -> ReplicatesState:
        """Steps that raise the objective are taken, and the next ones proposed; others are shortened."""
        sums: _ReplicateSums = answers[0].get()[0]
        with single_thread():
            if state.n_passes == 0:
                every = np.arange(len(state.point))
                found = self._evaluated(state.point, sums, sums.weight, every)
                state = state._replace(weight=sums.weight, objective=found[0], gradient=found[1], n_passes=1)
                return self._proposed(state, every)
            active = self._active(state)
            trial = _trial(state)[active]
            objective, gradient = self._evaluated(trial, sums, state.weight[active], active)
            slack = 1e-12 * np.abs(state.objective[active])
            taken = objective >= state.objective[active] - slack
            state = _shortened(state._replace(n_passes=state.n_passes + 1), active[~taken])
            if not taken.any():
                return state
            state = _taken(state, active[taken], trial[taken], objective[taken], gradient[taken])
            return self._proposed(state, active[taken])

    def score(self, state: ReplicatesState) -> float | None:
        """Replicates do not compete."""
        del state
        return None

    def parts_of(self, points: Floats) -> tuple[Floats, Floats, Floats]:
        """Log-worths (n, n_components, n_items), ghosts and log-shares (n, n_components) of points (n, d)."""
        layout = self.fitted.layout
        log_worths = points[:, : layout.n_worths].reshape(-1, layout.n_components, layout.n_items)
        ghosts = points[:, layout.n_worths :][:, : layout.n_components] if layout.ghosts else None
        if layout.free_shares:
            logits = points[:, -layout.n_components :]
            log_shares = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
        else:
            log_shares = np.tile(self.fitted.mixture.log_shares, (len(points), 1))
        return log_worths, np.zeros_like(log_shares) if ghosts is None else ghosts, log_shares

    @cached_property
    def _prior_weights(self) -> Floats:
        """(2, n_replicates, n_components, n_items): weights of the prior's wins and losses of each item.

        They are drawn as those of persons are, whose sums over w persons are gamma numbers: items about which the
        rankings say little vary as the prior lets them.
        """
        kept, (_, seed, replicates) = self.fitted.layout, self.draws
        size = (2, kept.n_components, kept.n_items)
        rngs = [generator(seed, "bootstrap-prior", number) for number in replicates]
        return np.stack([rng.standard_gamma(self.fitted.alpha, size) for rng in rngs], axis=1)

    def _active(self, state: ReplicatesState) -> NDArray[np.int64]:
        return np.zeros(0, np.int64) if state.n_passes >= self.max_iter else np.flatnonzero(state.ended == _RUNNING)

    def _evaluated(
        self, points: Floats, sums: _ReplicateSums, weight: Floats, active: NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Objective (n,) and gradient (n, d) at points of the replicates `active` (n,)."""
        layout = self.fitted.layout
        log_worths, ghosts, log_shares = self.parts_of(points)
        gradient = np.zeros_like(points)
        gradient[:, : layout.n_worths] = sums.gradient
        objective = sums.log_likelihood.copy()
        if layout.ghosts:
            above = log_worths - ghosts[:, :, None]
            wins, losses = self._prior_weights[:, active]
            objective -= (losses * np.logaddexp(0, above) + wins * np.logaddexp(0, -above)).sum(axis=(1, 2))
            slopes = wins * expit(-above) - losses * expit(above)
            gradient[:, : layout.n_worths] += slopes.reshape(len(points), -1)
            gradient[:, layout.n_worths : layout.n_worths + layout.n_components] = -slopes.sum(axis=2)
        if layout.free_shares:
            gradient[:, -layout.n_components :] = sums.shares - weight[:, None] * np.exp(log_shares)
        objective[~(np.isfinite(objective) & np.isfinite(gradient).all(axis=1))] = -np.inf
        return objective, gradient

    def _proposed(self, state: ReplicatesState, active: NDArray[np.int64]) -> ReplicatesState:
        """The next steps of some replicates. Those that are near enough take theirs and end."""
        gradient = state.gradient[active]
        step = self._direction(gradient, state.moves[:, active], state.changes[:, active])
        gain = (gradient * step).sum(axis=1)
        astray = gain <= 0  # what was remembered misleads
        if astray.any():
            step[astray] = self.scales.times(gradient[astray])
            gain[astray] = (gradient[astray] * step[astray]).sum(axis=1)
        distance = np.sqrt(np.maximum(gain, 0.0) / max(1, self.scales.n_free))
        before = state.distance[active]
        known = (before > 0) & (state.share[active] == 1)
        shrinking = np.where(known, np.minimum(1.0, distance / np.where(known, before, 1.0)), 1.0)
        longest = np.abs(step).max(axis=1)
        step *= np.minimum(1.0, _LONGEST_STEP / np.maximum(longest, 1e-300))[:, None]
        near = (distance * shrinking <= self.tol) & (longest <= _LONGEST_STEP)
        state, there = _put(state, active, step=step, share=1.0, distance=distance), active[near]
        return _put(state, there, ended=_CONVERGED, point=state.point[there] + step[near])

    def _direction(self, gradient: Floats, moves: Floats, changes: Floats) -> Floats:
        """L-BFGS: the inverse information of the fit, corrected by the last steps of each replicate."""
        left, kept = gradient.copy(), []
        for move, change in zip(moves[::-1], changes[::-1], strict=True):
            curved = (move * change).sum(axis=1)
            per_curved = np.divide(1.0, curved, out=np.zeros_like(curved), where=curved > 0)
            amount = per_curved * (move * left).sum(axis=1)
            left -= amount[:, None] * change
            kept.append((amount, per_curved))
        found = self.scales.times(left)
        for move, change, (amount, per_curved) in zip(moves, changes, kept[::-1], strict=True):
            found += (amount - per_curved * (change * found).sum(axis=1))[:, None] * move
        return found


def _trial(state: ReplicatesState) -> Floats:
    return state.point + state.share[:, None] * state.step


def _put(state: ReplicatesState, chosen: NDArray[np.int64], **values: Any) -> ReplicatesState:
    """The state with other numbers of some replicates."""
    columns = {name: getattr(state, name).copy() for name in values}
    for name, own in values.items():
        columns[name][chosen] = own
    return state._replace(**columns)


def _shortened(state: ReplicatesState, refused: NDArray[np.int64]) -> ReplicatesState:
    share = state.share[refused] * _SHORTER
    return _put(_put(state, refused, share=share), refused[share < _SHORTEST], ended=_FAILED)


def _taken(
    state: ReplicatesState, active: NDArray[np.int64], trial: Floats, objective: Floats, gradient: Floats
) -> ReplicatesState:
    """The state with new points of some replicates; the others remember nothing of this pass."""
    move, change = np.zeros_like(state.point), np.zeros_like(state.point)
    move[active] = trial - state.point[active]
    change[active] = state.gradient[active] - gradient
    return _put(state, active, point=trial, objective=objective, gradient=gradient)._replace(
        moves=np.concatenate([state.moves, move[None]])[-_MEMORY:],
        changes=np.concatenate([state.changes, change[None]])[-_MEMORY:],
    )
