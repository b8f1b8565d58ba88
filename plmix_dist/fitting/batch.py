"""EM for many starts at once: the same steps as `Em` takes with MM, as array operations over all starts.

A pass over the rows serves all starts (`kernels/batch.py`); their M-steps, acceleration, safeguards and ends are
computed side by side. Starts do not influence each other, so they may be divided among threads or workers in any way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from plmix_dist.fitting.em import Em
from plmix_dist.fitting.point import SMALLEST_SHARE, WIDEST_POINT, Point, mend_collapsed
from plmix_dist.kernels import batch_statistics
from plmix_dist.rankings import Floats, RankingBlock
from plmix_dist.threads import StoppableThreads

_MEMORY = 5
# A fall of the objective within this share of it is rounding.
_ROUNDING = 1e-12
# What acceleration adds to the diagonal of its equations, which is 1.
_RIDGE = 1e-10
_LONGEST_GHOST_STEP = 100.0

# How a start stands: it runs, or has ended: at an optimum, after the most iterations, as one with another start, or
# where the objective is not finite.
RUNNING, CONVERGED, EXHAUSTED, MERGED, FAILED = range(5)
# Starts that are nearer to each other than this are taken to be on their way to the same optimum. Looked for every 4
# iterations, from the eighth on.
_SAME_WAY = 0.05
_LEG = 4
_FIRST_LOOK = 8
# A start that still runs alone when all others, at least 3, have reached one end is stopped after 20 iterations: it
# sits on a plateau.
_ALONE_AFTER = 20


class Batch(NamedTuple):
    """Starts under way; the first axis of every array is that of the starts.

    A vector holds the log-worths of all components, their ghosts and their log-shares. A component that was dropped has
    the share 0, and log-worths at the maximum of the prior.
    """

    # The number of each start, and how it stands: RUNNING, or why it has ended.
    number: NDArray[np.int64]
    status: NDArray[np.int64]
    # Evaluations so far, and how often components were seeded again.
    n_evaluations: NDArray[np.int64]
    n_reseeds: NDArray[np.int64]
    # vector (n_starts, n_parameters) is evaluated next; `is_safe` where it is the step that never lowers the objective.
    vector: Floats
    is_safe: NDArray[np.bool_]
    # The best point so far, where EM leads from there, its objective and its largest derivative per unit of weight.
    best: Floats
    image: Floats
    objective: Floats
    residual: Floats
    # What acceleration remembers: the last point and step, and differences of points and of steps (n_starts, 5, ...).
    last: Floats
    last_step: Floats
    moves: Floats
    changes: Floats
    n_remembered: NDArray[np.int64]

    @classmethod
    def start(cls, points: Sequence[Point], first_number: int) -> Batch:
        """Starts at points."""
        vectors, n_starts = np.array([point.flat() for point in points]), len(points)
        counts, unknown = np.zeros(n_starts, np.int64), np.full(n_starts, np.inf)
        standing = (np.arange(first_number, first_number + n_starts), counts, counts, counts)
        evaluated = (vectors, np.zeros(n_starts, np.bool_), vectors, vectors, -unknown, unknown)
        nothing = np.zeros((n_starts, _MEMORY, vectors.shape[1]))
        remembered = (vectors, np.zeros_like(vectors), nothing, nothing, np.full(n_starts, -1))
        parts: list[Any] = [*standing, *evaluated, *remembered]
        return cls(*parts)

    def take(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Batch:
        """Some of the starts."""
        return Batch(*(cast("Any", values)[chosen] for values in self))

    def put(self, chosen: NDArray[np.int64], part: Batch) -> Batch:
        """All starts, some of them as a part has them."""
        whole = [cast("Any", values).copy() for values in self]
        for values, own in zip(whole, part, strict=True):
            values[chosen] = own
        return Batch(*whole)


def _joined(batches: Sequence[Batch]) -> Batch:
    """All starts of several batches."""
    return Batch(*(np.concatenate(cast("Any", values)) for values in zip(*batches, strict=True)))


class BatchEm(NamedTuple):
    """How the starts of a batch run: EM fitted to rows, and the shape (n_components, n_items) of their log-worths."""

    em: Em
    rows: RankingBlock
    shape: tuple[int, int]
    # They divide the starts among themselves; None for little work.
    threads: StoppableThreads | None = None

    def run(self, batch: Batch, n_iterations: int) -> Batch:
        """The batch some iterations on; starts that have ended stay as they are."""
        for _ in range(n_iterations):
            chosen = np.flatnonzero(batch.status == RUNNING)
            if not len(chosen):
                break
            advanced = self._advanced(batch.take(chosen))
            batch = advanced if len(chosen) == len(batch.number) else batch.put(chosen, advanced)
        return batch

    def parts(self, vectors: Floats) -> tuple[Floats, Floats, Floats]:
        """Log-worths (n_starts, n_components, n_items), ghosts and log-shares (n_starts, n_components)."""
        n_components, n_items = self.shape
        n_worths = n_components * n_items
        worths = vectors[:, :n_worths].reshape(-1, n_components, n_items)
        return worths, vectors[:, n_worths : n_worths + n_components], vectors[:, n_worths + n_components :]

    def point(self, vector: Floats) -> Point:
        """The point of a vector, without the components that were dropped."""
        (worths,), (ghosts,), (log_shares,) = self.parts(vector[None])
        kept = np.isfinite(log_shares)
        return Point(worths[kept], ghosts[kept], log_shares[kept])

    def _advanced(self, batch: Batch) -> Batch:
        """One iteration of starts that all run."""
        objective, residual, image = self._evaluated(batch.vector)
        n_evaluations = batch.n_evaluations + 1
        with np.errstate(invalid="ignore"):
            change = objective - batch.objective
            taken = np.isfinite(objective) & (change >= -_ROUNDING * np.abs(batch.objective))
        failed = ~taken & (n_evaluations == 1)
        near = np.where(taken, residual, batch.residual) <= self.em.tol
        settled = taken & near & (np.abs(change) <= self.em.tol * self.em.weight)
        stalled = ~taken & batch.is_safe
        status = np.where(n_evaluations >= self.em.max_iter, EXHAUSTED, RUNNING)
        status = np.where(failed, FAILED, np.where(settled | stalled, CONVERGED, status))
        here = taken[:, None]
        batch = batch._replace(
            status=status,
            n_evaluations=n_evaluations,
            best=np.where(here, batch.vector, batch.best),
            image=np.where(here, image, batch.image),
            objective=np.where(taken, objective, batch.objective),
            residual=np.where(taken, residual, batch.residual),
        )
        batch = self._proposed(batch, taken)
        return batch if self.em.fixed_shares else self._mended(batch, taken)

    def _evaluated(self, vectors: Floats) -> tuple[Floats, Floats, Floats]:
        """The objective, the largest derivative per unit of weight, and where one step of MM leads."""
        worths, ghosts, log_shares = self.parts(vectors)
        alpha, weight = self.em.alpha, self.em.weight
        sums = batch_statistics(self.rows, worths, log_shares)
        difference = worths - ghosts[:, :, None]
        size = np.abs(difference)
        small = np.exp(-size)
        log_prior = -alpha * (size + 2 * np.log1p(small)).sum(axis=2)
        beats = np.where(difference >= 0, 1.0, small) / (1 + small)
        wins, expected = sums.wins + alpha, sums.expected_wins + 2 * alpha * beats
        ghost_wins = alpha * self.shape[1]
        ghost_expected = 2 * alpha * (1 - beats).sum(axis=2)
        shares = np.exp(log_shares)
        slopes = [
            np.abs(wins - expected).max(axis=(1, 2)),
            np.abs(ghost_wins - ghost_expected).max(axis=1),
            np.zeros(len(vectors)) if self.em.fixed_shares else np.abs(sums.shares - weight * shares).max(axis=1),
        ]
        with np.errstate(divide="ignore", invalid="ignore"):
            there = worths + np.log(wins / expected)
            ghost_ratio = np.log(ghost_wins / ghost_expected).clip(-_LONGEST_GHOST_STEP, _LONGEST_GHOST_STEP)
            new_shares = log_shares if self.em.fixed_shares else np.log(sums.shares / sums.shares.sum(axis=1)[:, None])
        image = self._vectors(there, ghosts + ghost_ratio, new_shares)
        return sums.log_likelihood + log_prior.sum(axis=1), np.max(slopes, axis=0) / weight, image

    def _vectors(self, worths: Floats, ghosts: Floats, log_shares: Floats) -> Floats:
        """Vectors of log-worths that are centred, with their ghosts."""
        centre = worths.mean(axis=2)
        worths = (worths - centre[:, :, None]).reshape(len(worths), -1)
        return np.concatenate([worths, ghosts - centre, log_shares], axis=1)

    def _proposed(self, batch: Batch, taken: NDArray[np.bool_]) -> Batch:
        """The next point of each start: accelerated, or the step of MM from its best point if the last was refused."""
        if not self.em.accelerate:
            return batch._replace(vector=batch.image, is_safe=~taken)
        held = np.isfinite(batch.best) & np.isfinite(batch.image)  # not so for shares of 0
        step = np.subtract(batch.image, batch.best, out=np.zeros_like(batch.best), where=held)
        again = taken & (batch.n_remembered >= 0)
        slot = np.where(again, batch.n_remembered % _MEMORY, 0)
        moves, changes = batch.moves.copy(), batch.changes.copy()
        rows = np.flatnonzero(again)
        moves[rows, slot[rows]] = np.subtract(batch.best, batch.last, out=np.zeros_like(step), where=held)[rows]
        changes[rows, slot[rows]] = (step - batch.last_step)[rows]
        moves[~taken] = changes[~taken] = 0.0
        lengths = np.sqrt((changes**2).sum(axis=2))
        scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        scaled = changes * scale[:, :, None]
        gram = scaled @ scaled.transpose(0, 2, 1) + np.where(lengths > 0, _RIDGE, 1.0)[:, :, None] * np.eye(_MEMORY)
        mixing = np.linalg.solve(gram, scaled @ step[:, :, None])[:, :, 0] * scale
        worths, ghosts, log_shares = self.parts(batch.image - (mixing[:, :, None] * (moves + changes)).sum(axis=1))
        with np.errstate(invalid="ignore"):
            log_shares = log_shares - np.logaddexp.reduce(log_shares, axis=1)[:, None]
            accelerated = self._vectors(worths, ghosts, log_shares)
            usable = taken & (np.ptp(worths, axis=2).max(axis=1) <= WIDEST_POINT) & np.isfinite(ghosts).all(axis=1)
        return batch._replace(
            vector=np.where(usable[:, None], accelerated, batch.image),
            is_safe=~taken,
            last=batch.best,
            last_step=step,
            moves=moves,
            changes=changes,
            n_remembered=np.where(taken, batch.n_remembered + 1, -1),
        )

    def _mended(self, batch: Batch, taken: NDArray[np.bool_]) -> Batch:
        """Starts of which a component has next to no share: it is seeded again a few times, then dropped."""
        log_shares = self.parts(batch.best)[2]
        with np.errstate(divide="ignore"):
            low = np.isfinite(log_shares) & (log_shares < np.log(SMALLEST_SHARE))
        for start in np.flatnonzero(low.any(axis=1) & taken):
            batch = self._mend(batch, int(start))
        return batch

    def _mend(self, batch: Batch, start: int) -> Batch:
        point = self.point(batch.best[start])
        events = [{"action": "reseed"}] * int(batch.n_reseeds[start])
        key = (self.em.seed, int(batch.number[start]))
        mended = mend_collapsed(point, events, int(batch.n_evaluations[start]), key)
        assert mended is not None
        left = mended.point.n_components
        worths, ghosts = np.zeros(self.shape), np.zeros(self.shape[0])
        log_shares = np.full(self.shape[0], -np.inf)
        worths[:left], ghosts[:left], log_shares[:left] = mended.point[:3]
        begun = Batch.start([Point(worths, ghosts, log_shares)], int(batch.number[start]))
        if batch.status[start] == EXHAUSTED:
            return batch
        begun = begun._replace(n_evaluations=batch.n_evaluations[[start]], n_reseeds=batch.n_reseeds[[start]] + 1)
        return batch.put(np.array([start]), begun)

    def ends(self, points: Sequence[Point], first_number: int) -> tuple[Batch, NDArray[np.int64]]:
        """Starts that have ended, and for each the place of the start that it ended with: its own, or one it joined."""
        batch = Batch.start(points, first_number)
        into = np.arange(len(points))
        while (batch.status == RUNNING).any():
            batch = self._leg(batch)
            if batch.n_evaluations.max() >= _FIRST_LOOK:
                batch, into = self._merged(batch, into)
                batch = self._without_straggler(batch, into)
        return batch, into

    def _without_straggler(self, batch: Batch, into: NDArray[np.int64]) -> Batch:
        """The batch in which a start that runs on alone is stopped, if all others are at the same, better end."""
        running = batch.status == RUNNING
        others = batch.objective[into][~running & (batch.status != FAILED)]
        if running.sum() != 1 or len(others) < 3 or batch.n_evaluations[running][0] < _ALONE_AFTER:
            return batch
        same = np.ptp(others) <= self.em.tol * self.em.weight
        if not same or batch.objective[running][0] > others.max():
            return batch
        return batch._replace(status=np.where(running, EXHAUSTED, batch.status))

    def _leg(self, batch: Batch) -> Batch:
        """A few iterations of all starts that run, divided among threads."""
        chosen = np.flatnonzero(batch.status == RUNNING)
        if self.threads is None or len(chosen) == 1:
            return self.run(batch, _LEG)
        groups = [batch.take(group) for group in np.array_split(chosen, self.threads.n_threads) if len(group)]
        return batch.put(chosen, _joined(list(self.threads.map(self.run, groups, [_LEG] * len(groups)))))

    def _merged(self, batch: Batch, into: NDArray[np.int64]) -> tuple[Batch, NDArray[np.int64]]:
        """The batch without the starts that are on the way of another one, and for each start the one it joined."""
        status, into = batch.status.copy(), into.copy()
        alive = np.flatnonzero((status != MERGED) & (status != FAILED))
        distances = self.distances(batch.best[alive])
        order = alive[np.argsort(-batch.objective[alive], kind="stable")]
        places = {int(start): place for place, start in enumerate(alive)}
        for rank, start in enumerate(order):
            if status[start] != RUNNING:
                continue
            for other in order[:rank]:
                if status[other] != MERGED and distances[places[int(start)], places[int(other)]] < _SAME_WAY:
                    status[start] = MERGED
                    into[into == start] = other
                    break
        return batch._replace(status=status), into

    def distances(self, vectors: Floats) -> Floats:
        """(n_starts, n_starts): how far mixtures are apart, each component compared with the nearest one of the other.

        Squared differences of log-worths count by the share of the component and the probability that the item is
        chosen first: the log-worths of items that nobody chooses mean little. Infinite where two components have the
        same nearest one.
        """
        worths, _, log_shares = self.parts(vectors)
        n_starts, n_components, n_items = worths.shape
        chances = np.exp(worths - worths.max(axis=2, keepdims=True))
        chances /= chances.sum(axis=2, keepdims=True)
        worths = worths - (chances * worths).sum(axis=2, keepdims=True)
        roots = np.exp(log_shares / 2).reshape(-1)
        weights = (np.exp(log_shares)[:, :, None] * chances).reshape(-1, n_items)
        worths = worths.reshape(-1, n_items)
        # The sum over items of (v + w) / 2 * (a - b)**2, for all pairs of components at once.
        square, product = worths**2, weights * worths
        one_way = (weights * square).sum(axis=1)[:, None] + square @ weights.T - 2 * (product @ worths.T)
        pairs = (one_way + one_way.T) / 2 + (roots[:, None] - roots[None]) ** 2 / 4
        pairs = pairs.reshape(n_starts, n_components, n_starts, n_components)
        found: Floats = np.sqrt(np.maximum(pairs.min(axis=3).sum(axis=1), 0.0))
        matches = np.sort(pairs.argmin(axis=3), axis=1) == np.arange(n_components)[None, :, None]
        return np.where(matches.all(axis=1), found, np.inf)
