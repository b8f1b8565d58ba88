"""Replicates: all replicates of a bootstrap on their way from the fitted point to their own maxima, as one Algorithm.

Every replicate takes Newton steps with the information matrix of the fit, corrected by the gradients it has seen
(L-BFGS). A step that lowers the objective of its replicate is shortened. All vectors have the order of `Layout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from plmix_dist.fitting.algorithm import savable
from plmix_dist.passes.request import Answer, Request
from plmix_dist.rankings.sampling import generator
from plmix_dist.store.mixture import Floats
from plmix_dist.threads import single_thread
from plmix_dist.uncertainty.replicate_passes import Draws, ReplicateSums, first_pass, later_pass
from plmix_dist.uncertainty.standard_errors import FittedPoint

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
            return (Request(first_pass(ties), (self.fitted.mixture.unnamed(), self.draws)),)
        active = self._active(state)
        if not len(active):
            return ()
        log_worths, _, log_shares = self.parts_of(_trial(state)[active])
        draws = self.draws._replace(replicates=tuple(self.draws.replicates[place] for place in active))
        return (Request(later_pass(ties), (log_worths, log_shares, draws)),)

    def tell(self, state: ReplicatesState, answers: Sequence[Answer]) -> ReplicatesState:
        """Steps that raise the objective are taken, and the next ones proposed; others are shortened."""
        sums: ReplicateSums = answers[0].get()[0]
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
        drawn = [
            generator(seed, "bootstrap-prior", number).standard_gamma(self.fitted.alpha, size) for number in replicates
        ]
        return np.stack(drawn, axis=1)

    def _active(self, state: ReplicatesState) -> NDArray[np.int64]:
        if state.n_passes >= self.max_iter:
            return np.zeros(0, np.int64)
        return np.flatnonzero(state.ended == _RUNNING)

    def _evaluated(
        self, points: Floats, sums: ReplicateSums, weight: Floats, active: NDArray[np.int64]
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
