"""Newton's step with a Hessian estimated on a sample: gradients come from all rows, second derivatives from a part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from plmix_dist.data import rankings_of_block
from plmix_dist.engine.request import Aggregation, Request
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.inference.e_step import PassParams, e_step
from plmix_dist.inference.saved_state import savable
from plmix_dist.kernels import Information, Prepared, information, prepare
from plmix_dist.rankings.groups import membership_weight, n_memberships
from plmix_dist.rankings.linear_extensions import extend_ties
from plmix_dist.rankings.merge import merge_if_short
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.sampling import sample_rows
from plmix_dist.single_thread import single_thread
from plmix_dist.solvers import MM, MStep
from plmix_dist.solvers.ghost import probabilities_against_ghost, with_ghost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.inference.fixed_point import Evaluation
    from plmix_dist.inference.point import Point
    from plmix_dist.kernels import EmStatistics
    from plmix_dist.rankings import RankingBlock

# Up to this many parameters, a matrix of them is formed and factorised within the time of a few passes.
_MOST_PARAMETERS = 1_500
# Rows times parameters squared: about a second of one core.
_MOST_WORK = 1e10
# Up to so much work, and on all rows, a Hessian costs about as much as a pass.
_LITTLE_WORK = 1e7
# No parameter moves further than this in one step: beyond, second derivatives here say little about there.
_LONGEST_STEP = 1.5
# Where an item's expected wins in a sample are less than this share of those in all rows, the sample has not seen it.
_LEAST_KNOWN = 1e-3
# Sums of weights in another order differ by about this share.
_ROUNDING = 1e-9
_LEAST_DAMPING = 0.02
_MOST_DAMPING = 10.0


def _prepare_point(point: Point) -> Prepared:
    return prepare(point.log_worths, point.log_shares)


def _leaf_information(number: int, block: RankingBlock, params: Prepared) -> Information:
    del number
    return information(block, params)


INFORMATION = Aggregation("information", leaf=_leaf_information, prepare=_prepare_point)


@savable
class Hessian(NamedTuple):
    """Second derivatives at a point, divided by weight and with their sign turned, in the order of `Point.flat`.

    Parameters
    ----------
    observed, complete : (n_parameters, n_parameters)
        The observed information, and what it would be if the component of every row were known: EM's own steps go by
        that. Directions that change nothing (a factor on all worths of a component, a factor on all shares) are made
        stiff in `observed`.
    free : (n_parameters,)
        Which parameters may move.
    weight
        Of the rows it was computed on.
    doubt
        The share of the complete information that the number of these rows leaves uncertain.
    scale : (n_parameters,)
        Expected wins of these rows, divided by their weight, with those of the prior: to be compared with those of all
        rows.
    cheap
        Whether it is that of all rows and costs about as much as a pass, so that every step can have its own.
    """

    observed: NDArray[np.float64]
    complete: NDArray[np.float64]
    free: NDArray[np.bool_]
    weight: float
    doubt: float
    scale: NDArray[np.float64]
    cheap: bool = False


@dataclass(frozen=True)
class SampleHessian:
    """Hessians of an objective over all rows, estimated on a sample of them.

    Parameters
    ----------
    rows
        The sample, or all rows.
    alpha
        Strength of the prior, as for all rows.
    weight
        The weight of all rows; with groups, the number of persons.
    fixed_shares
        Whether the shares stay as they are.
    m_step
        The M-step of the fit: its sums give the expected wins.
    """

    rows: RankingBlock
    alpha: float
    weight: float
    fixed_shares: bool = False
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
            passes = ThreadedPasses(rankings_of_block(rows), residency="memory")
            answers = passes.run(
                [Request(INFORMATION, point), Request(e_step(self.m_step), PassParams(point, None))]
            )
            passes.release()
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        ((observed, complete),), (sums,) = (answer.results for answer in answers)
        weight = membership_weight(rows)
        scale, alpha = 1 / weight, self.alpha / self.weight
        with_prior = _with_prior(scale * observed, point, alpha)
        doubt = self._doubt(rows, point)
        return Hessian(
            observed=_stiffened(with_prior, point),
            complete=_with_prior(_all_components(scale * complete, point), point, alpha),
            free=self._free(point),
            weight=weight,
            doubt=doubt,
            scale=_scale_of(sums, point, alpha, weight),
            cheap=doubt == 0 and rows.n_rankings * point.n_parameters**2 <= _LITTLE_WORK,
        )

    def step(
        self, hessian: Hessian, point: Point, evaluation: Evaluation, damping: float
    ) -> tuple[Point, float] | None:
        """A step from a point that was evaluated on all rows, and the damping it took; None where none is found."""
        assert evaluation.gradient is not None
        assert evaluation.scale is not None
        return newton_step(
            hessian, point, evaluation.gradient / self.weight, evaluation.scale / self.weight, damping
        )

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
        free = np.ones(point.n_parameters, bool)
        n_components = point.n_components
        free[-n_components:] = not self.fixed_shares
        if not self.alpha:
            free[-2 * n_components : -n_components] = False  # without a prior there are no ghosts
        return free


def newton_step(
    hessian: Hessian,
    point: Point,
    gradient: NDArray[np.float64],
    scale: NDArray[np.float64],
    damping: float,
) -> tuple[Point, float] | None:
    """A step from a point with this gradient (n_parameters,), divided by weight, and the damping it took.

    `damping` times the complete information is added to the observed one: none gives Newton's step, much of it EM's.
    More is added where the sum is not positive definite, and at least as much as the size of the sample leaves
    uncertain. A parameter about which the sample says next to nothing, compared with the `scale` that all rows give,
    takes EM's step. None where no damping helps.
    """
    if not (np.isfinite(hessian.observed).all() and np.isfinite(hessian.complete).all()):
        return None  # EM goes on alone
    damping = max(damping, hessian.doubt)
    own = np.where(hessian.scale < _LEAST_KNOWN * scale, scale, 0.0)
    free = hessian.free & (np.diag(hessian.complete) + own > 0)
    chosen = np.ix_(free, free)
    observed, complete = hessian.observed[chosen] + np.diag(own[free]), hessian.complete[chosen]
    with single_thread():
        while damping <= _MOST_DAMPING:
            try:
                factor = cho_factor(observed + damping * complete, lower=True)
            except LinAlgError:
                damping = max(_LEAST_DAMPING, 3 * damping)
                continue
            move = np.zeros(point.n_parameters)
            move[free] = cho_solve(factor, gradient[free])
            longest = float(np.abs(move).max())
            moved = point.flat() + move * min(1.0, _LONGEST_STEP / max(longest, 1e-300))
            return point.like(moved), damping
    return None


def _scale_of(sums: EmStatistics, point: Point, alpha: float, weight: float) -> NDArray[np.float64]:
    """(n_parameters,): expected wins, divided by weight, and shares, in the order of `Point.flat`."""
    worths, ghosts = [], []
    for own, log_worths, ghost in zip(sums.expected_wins, point.log_worths, point.ghosts, strict=True):
        expected = with_ghost(np.zeros(len(own)), own / weight, log_worths, float(ghost), alpha)[1]
        worths.append(expected[:-1])
        ghosts.append(expected[-1])
    return np.concatenate([*worths, ghosts, np.exp(point.log_shares)])


def _all_components(complete: NDArray[np.float64], point: Point) -> NDArray[np.float64]:
    """The complete information, divided by weight, in the log-worths of all components and in the log-shares."""
    n_components, n_items = point.log_worths.shape
    n_worths = n_components * n_items
    whole = np.zeros((n_worths + n_components,) * 2)
    for k, own in enumerate(complete):
        place = slice(k * n_items, (k + 1) * n_items)
        whole[place, place] = own
    shares = np.exp(point.log_shares)
    whole[n_worths:, n_worths:] = np.diag(shares) - np.outer(shares, shares)
    return whole


def _with_prior(matrix: NDArray[np.float64], point: Point, alpha: float) -> NDArray[np.float64]:
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


def _stiffened(observed: NDArray[np.float64], point: Point) -> NDArray[np.float64]:
    """The information with directions that change nothing made stiff."""
    n_components, n_items = point.log_worths.shape
    unfelt = np.zeros((n_components + 1, len(observed)))
    for k in range(n_components):
        unfelt[k, k * n_items : (k + 1) * n_items] = 1.0
        unfelt[k, n_components * n_items + k] = 1.0
    unfelt[-1, -n_components:] = 1.0
    unfelt /= np.linalg.norm(unfelt, axis=1, keepdims=True)
    stiffness = float(np.trace(observed)) / len(observed)
    stiffened: NDArray[np.float64] = observed + stiffness * unfelt.T @ unfelt
    return stiffened
