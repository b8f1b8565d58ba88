"""Newton's step with a Hessian estimated on a sample: gradients come from all rows, second derivatives from a part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, block_diag, cho_factor, cho_solve

from plmix_dist.datasets.given import rankings_of_block
from plmix_dist.fitting.e_step import PassParams, e_step
from plmix_dist.fitting.fixed_point import Evaluation
from plmix_dist.fitting.newton import Hessian
from plmix_dist.fitting.point import Point
from plmix_dist.kernels import EmStatistics, Information, Prepared, information
from plmix_dist.passes import Aggregation, Request, passes_over
from plmix_dist.rankings import Floats, RankingBlock, RowPart, extend_ties, generator, rows_of_part, sample_rows
from plmix_dist.rankings.groups import membership_weight, merge_if_short, n_memberships
from plmix_dist.solvers import MM, MStep
from plmix_dist.solvers.likelihood import probabilities_against_ghost, with_ghost
from plmix_dist.threads import single_thread

# Up to this many parameters, a matrix of them is formed and factorised within the time of a few passes.
_MOST_PARAMETERS = 1_500
# Rows times parameters squared: about a second of one core.
_MOST_WORK = 1e10
# Up to this much work, and on all rows, a Hessian costs about as much as a pass.
_LITTLE_WORK = 1e7
# The same for a pass over all rows by all workers: some ten seconds of one core (1.2 ns each).
_MOST_WORK_OF_A_PASS = 1e10
# No parameter moves further than this in one step: beyond, second derivatives may be quite different.
_LONGEST_STEP = 1.5
# How long a bend may be, as a share of the move that it bends.
_MOST_BENT = 0.375
_LEAST_PART = 0.5
# Where an item's expected wins in a sample are less than this share of those in all rows, the sample has not seen it.
_LEAST_KNOWN = 1e-3
# Sums of weights in another order differ by about this share.
_ROUNDING = 1e-9
_LEAST_DAMPING = 0.02
_MOST_DAMPING = 10.0


def _leaf_information(part: RowPart | None, number: int, block: RankingBlock, params: Prepared) -> Information:
    # With ties, that of the linear extensions: near enough for steps that go by the exact gradient.
    rows = extend_ties(rows_of_part(part, number, block)).block
    # Each thread of the pass would wake all of BLAS: ten times the work, and other last bits.
    with single_thread():
        return information(rows, params)


@cache
def information_of(part: RowPart | None = None) -> Aggregation:
    """The aggregation of observed and complete information, over all rows or a part of them."""
    return Aggregation("information", leaf=partial(_leaf_information, part), prepare=Point.prepared)


@dataclass(frozen=True)
class SampleHessian:
    """Hessians of an objective over all rows, estimated on a sample of them."""

    # The sample, or all rows.
    rows: RankingBlock
    # Strength of the prior, as for all rows.
    alpha: float
    # The weight of all rows; with groups, the number of persons.
    weight: float
    fixed_shares: bool = False
    # The M-step of the fit: its sums give the expected wins.
    m_step: MStep = MM

    @cached_property
    def _merged(self) -> RankingBlock:
        # With ties, the Hessian of the linear extensions: near enough for steps that go by the exact gradient.
        return merge_if_short(extend_ties(self.rows).block)

    def suits(self, point: Point) -> bool:
        """Whether a matrix of all parameters is small enough to pay."""
        return point.n_parameters <= _MOST_PARAMETERS

    def at(self, point: Point) -> Hessian:
        """The Hessian at a point."""
        # Threads of BLAS would compete with those of the pass, and change the last bits.
        with single_thread():
            rows = self._rows_for(point)
            requests = [Request(information_of(), point), Request(e_step(self.m_step), PassParams(point))]
            with passes_over(rankings_of_block(rows), residency="memory") as passes:
                (found,), (sums,) = (answer.get() for answer in passes.run(requests))
        weight, doubt = membership_weight(rows), self._doubt(rows, point)
        scale = _scale_of(sums, point, self.alpha / self.weight, weight)
        cheap = doubt == 0 and rows.n_rankings * point.n_parameters**2 <= _LITTLE_WORK
        return self._assembled(point, found, weight, scale, doubt, cheap=cheap)

    def can_be_asked_for(self, point: Point, n_rankings: int) -> bool:
        """Whether a pass over all rows can afford to compute the Hessian too."""
        return self.suits(point) and n_rankings * point.n_parameters**2 <= _MOST_WORK_OF_A_PASS

    def of_all(self, point: Point, found: Information, scale: Floats) -> Hessian:
        """The Hessian from the information of all rows and the `scale` (n_parameters,) of an evaluation there."""
        return self._assembled(point, found, self.weight, scale / self.weight, 0.0, cheap=False)

    def _assembled(
        self, point: Point, found: Information, weight: float, scale: Floats, doubt: float, *, cheap: bool
    ) -> Hessian:
        observed, complete = (1 / weight * matrix for matrix in found)
        alpha = self.alpha / self.weight
        observed = _stiffened(_with_prior(observed, point, alpha), point)
        shares = np.exp(point.log_shares)
        # In the log-worths of all components and in the log-shares.
        complete = np.asarray(block_diag(*complete, np.diag(shares) - np.outer(shares, shares)))
        complete = _with_prior(complete, point, alpha)
        return Hessian(observed, complete, self._free(point), weight, doubt, scale, cheap)

    def step(self, hessian: Hessian, point: Point, evaluation: Evaluation, damping: float) -> _NewtonStep | None:
        """A step from a point that was evaluated on all rows; None where none is found."""
        assert evaluation.gradient is not None
        assert evaluation.scale is not None
        return _newton_step(hessian, point, evaluation.gradient / self.weight, evaluation.scale / self.weight, damping)

    def bent_step(
        self, hessian: Hessian, point: Point, evaluation: Evaluation, there: Point, refused: Evaluation, damping: float
    ) -> _NewtonStep | None:
        """A step on the curve that a refused step has shown: its gradient shows how the ridge bends."""
        assert evaluation.gradient is not None
        assert evaluation.scale is not None
        if refused.gradient is None or not np.isfinite(refused.gradient).all():
            return None
        free, observed, complete = _known(hessian, evaluation.scale / self.weight)
        start, end = (gradient[free] / self.weight for gradient in (evaluation.gradient, refused.gradient))
        move = (there.flat() - point.flat())[free]
        with single_thread():
            try:
                factor = cho_factor(observed + damping * complete, lower=True)
            except LinAlgError:
                return None
            bend = cho_solve(factor, end - damping * complete @ move)
            # The bend must stay small beside the move: beyond, the third derivatives say nothing either.
            lengths = [float(np.sqrt(one @ complete @ one)) for one in (move, bend)]
            part = min(1.0, _MOST_BENT * lengths[0] / max(lengths[1], 1e-300))
            if part < _LEAST_PART:
                return None
            whole = np.zeros(point.n_parameters)
            whole[free] = part * move + part**2 * bend
            gain = float(part * (start @ move) - part**2 * (move @ observed @ move) / 2)
        return _NewtonStep(point.like(point.flat() + whole), damping, gain)

    def _doubt(self, rows: RankingBlock, point: Point) -> float:
        """The share of the information that the number of rows leaves uncertain; none where it is all of them."""
        weight = membership_weight(rows)
        if weight >= self.weight * (1 - _ROUNDING):
            return 0.0
        return 0.5 * float(np.sqrt(point.n_parameters / max(n_memberships(rows), weight)))

    def _rows_for(self, point: Point) -> RankingBlock:
        """As many rows as take the time of a few passes: more parameters, fewer rows."""
        share = _MOST_WORK / (self._merged.n_rankings * point.n_parameters**2)
        return sample_rows(self._merged, share, generator(0, "curvature"))

    def _free(self, point: Point) -> NDArray[np.bool_]:
        free, n_components = np.ones(point.n_parameters, bool), point.n_components
        free[-n_components:] = not self.fixed_shares
        if not self.alpha:
            free[-2 * n_components : -n_components] = False  # ghosts come with a prior
        return free


class _NewtonStep(NamedTuple):
    """Where a step leads, the damping it took, and the gain that the Hessian promises, divided by weight."""

    point: Point
    damping: float
    gain: float


def _newton_step(hessian: Hessian, point: Point, gradient: Floats, scale: Floats, damping: float) -> _NewtonStep | None:
    """A step from a point with this gradient (n_parameters,), divided by weight.

    `damping` times the complete information is added to the observed one: none gives Newton's step, much of it EM's.
    More is added where the sum is not positive definite, and at least as much as the size of the sample leaves
    uncertain. A parameter about which the sample has next to no information, compared with the `scale` that all rows
    give, takes EM's step. None where no damping helps.
    """
    if not (np.isfinite(hessian.observed).all() and np.isfinite(hessian.complete).all()):
        return None  # EM goes on alone
    damping = max(damping, hessian.doubt)
    free, observed, complete = _known(hessian, scale)
    with single_thread():
        while damping <= _MOST_DAMPING:
            try:
                factor = cho_factor(observed + damping * complete, lower=True)
            except LinAlgError:
                damping = max(_LEAST_DAMPING, 3 * damping)
                continue
            move = np.zeros(point.n_parameters)
            move[free] = cho_solve(factor, gradient[free])
            move = move * min(1.0, _LONGEST_STEP / max(float(np.abs(move).max()), 1e-300))
            gain = float(gradient[free] @ move[free] - move[free] @ observed @ move[free] / 2)
            return _NewtonStep(point.like(point.flat() + move), damping, gain)
    return None


def _known(hessian: Hessian, scale: Floats) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """(n_parameters,): which parameters move; and the observed and complete information in those."""
    own = np.where(hessian.scale < _LEAST_KNOWN * scale, scale, 0.0)
    free = hessian.free & (np.diag(hessian.complete) + own > 0)
    chosen = np.ix_(free, free)
    return free, hessian.observed[chosen] + np.diag(own[free]), hessian.complete[chosen]


def _scale_of(sums: EmStatistics, point: Point, alpha: float, weight: float) -> Floats:
    """(n_parameters,): expected wins, divided by weight, and shares, in the order of `Point.flat`."""
    expected = np.array(
        [
            with_ghost(np.zeros(len(own)), own / weight, worths.log_worths, worths.ghost, alpha)[1]
            for own, worths in zip(sums.expected_wins, point.components(), strict=True)
        ]
    )
    return np.concatenate([expected[:, :-1].ravel(), expected[:, -1], np.exp(point.log_shares)])


def _with_prior(matrix: Floats, point: Point, alpha: float) -> Floats:
    """The information in all parameters, as in `Point.flat`: log-worths, ghosts, log-shares."""
    n_components, n_items = point.log_worths.shape
    n_worths = n_components * n_items
    ghosts = np.arange(n_worths, n_worths + n_components)
    known = np.concatenate([np.arange(n_worths), ghosts + n_components])
    whole = np.zeros((len(known) + n_components,) * 2)
    whole[np.ix_(known, known)] = matrix
    for k in range(n_components):
        own = np.arange(k * n_items, (k + 1) * n_items)
        beats, loses = probabilities_against_ghost(point.log_worths[k], float(point.ghosts[k]))
        stiffness = 2 * alpha * beats * loses
        whole[own, own] += stiffness
        whole[own, ghosts[k]] -= stiffness
        whole[ghosts[k], own] -= stiffness
        whole[ghosts[k], ghosts[k]] += stiffness.sum()
    return whole


def _stiffened(observed: Floats, point: Point) -> Floats:
    """The information with directions that change nothing made stiff."""
    n_components, n_items = point.log_worths.shape
    unfelt = np.zeros((n_components + 1, len(observed)))
    for k in range(n_components):
        unfelt[k, k * n_items : (k + 1) * n_items] = 1.0
        unfelt[k, n_components * n_items + k] = 1.0
    unfelt[-1, -n_components:] = 1.0
    unfelt /= np.linalg.norm(unfelt, axis=1, keepdims=True)
    stiffness = float(np.trace(observed)) / len(observed)
    stiffened: Floats = observed + stiffness * unfelt.T @ unfelt
    return stiffened
