"""Newton's step with the curvature of a sample: few passes over all rows, once a sample shows how the land lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from plmix_dist.data import as_rankings
from plmix_dist.engine.request import Aggregation
from plmix_dist.engine.passes import ThreadedPasses
from plmix_dist.kernels import Information, Prepared, information, prepare
from plmix_dist.rankings.merge import merge_if_short
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.sampling import sample_rows
from plmix_dist.single_thread import single_thread
from plmix_dist.solvers.ghost import odds_against_ghost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.inference.state import EmState
    from plmix_dist.rankings import RankingBlock

# Parameters up to which a matrix of them is formed and factored within a few passes' time.
_MOST_PARAMETERS = 1_500
# Rows times parameters squared: about a second of one core.
_MOST_WORK = 1e10
# No log-worth moves further than this at once: beyond, the curvature here says little about there.
_LONGEST_STEP = 1.5


def _prepare_state(state: EmState) -> Prepared:
    return prepare(state.log_worths, state.log_shares)


def _leaf_information(block: RankingBlock, params: Prepared) -> Information:
    return information(block, params)


INFORMATION = Aggregation("information", leaf=_leaf_information, prepare=_prepare_state)

_LEAST_DAMPING = 0.02
_MOST_DAMPING = 10.0


@dataclass(frozen=True)
class Curvature:
    """The curvature of an objective over all rows, judged by a sample of them.

    Parameters
    ----------
    sample
        Rows, or all of them.
    alpha
        Strength of the prior, as for all rows.
    unit
        The weight of all rows.
    fixed_shares
        Whether the shares stay as they are.
    """

    sample: RankingBlock
    alpha: float
    unit: float
    fixed_shares: bool = False

    @cached_property
    def _rows(self) -> RankingBlock:
        return merge_if_short(self.sample)

    def suits(self, state: EmState) -> bool:
        """Whether a matrix of all parameters is small enough to be worth its while."""
        return state.flat().size <= _MOST_PARAMETERS

    def at(self, state: EmState) -> Landscape:
        """The curvature at a state."""
        # Threads of BLAS would compete with those of the pass, and change the last bits.
        with single_thread():
            rows = self._rows_for(state)
            passes = ThreadedPasses(as_rankings(rows), residency="memory")
            ((observed, complete),), *_ = passes.run(INFORMATION, state, [("total", _itself)])
            passes.release()
            scale = 1 / rows.total_weight
            return Landscape.of(
                _with_prior(scale * observed, state, self.alpha / self.unit),
                _with_prior(_spread_out(scale * complete, state), state, self.alpha / self.unit),
                state,
                doubt=self._doubt(rows, state),
                free_shares=not self.fixed_shares,
            )

    def _rows_for(self, state: EmState) -> RankingBlock:
        """As many rows as can be looked at within the time of a few passes: more parameters, fewer rows."""
        share = _MOST_WORK / (self._rows.n_rankings * state.flat().size ** 2)
        return sample_rows(self._rows, share, generator(0, "curvature"))

    def _doubt(self, rows: RankingBlock, state: EmState) -> float:
        """The share of the information that the number of rows leaves in doubt; none where it is all of them."""
        if rows.total_weight >= self.unit:
            return 0.0
        return 0.5 * float(np.sqrt(state.flat().size / max(rows.n_rankings, rows.total_weight)))


def _itself(total: Information) -> Information:
    return total


def _spread_out(complete: NDArray[np.float64], state: EmState) -> NDArray[np.float64]:
    """The complete information, a unit of weight, of all components and of the shares."""
    n_components, n_items = state.log_worths.shape
    n_worths = n_components * n_items
    whole = np.zeros((n_worths + n_components,) * 2)
    for k, own in enumerate(complete):
        place = slice(k * n_items, (k + 1) * n_items)
        whole[place, place] = own
    shares = np.exp(state.log_shares)
    whole[n_worths:, n_worths:] = np.diag(shares) - np.outer(shares, shares)
    return whole


def _with_prior(matrix: NDArray[np.float64], state: EmState, alpha: float) -> NDArray[np.float64]:
    """The information in all parameters, as in `EmState.flat`: log-worths, ghosts, log-shares."""
    n_components, n_items = state.log_worths.shape
    n_worths = n_components * n_items
    ghosts = np.arange(n_worths, n_worths + n_components)
    known = np.concatenate([np.arange(n_worths), ghosts + n_components])
    whole = np.zeros((len(known) + n_components,) * 2)
    whole[np.ix_(known, known)] = matrix
    for k in range(n_components):
        own = np.arange(k * n_items, (k + 1) * n_items)
        beats, loses = odds_against_ghost(state.log_worths[k], float(state.ghosts[k]))
        stiffness = 2 * alpha * beats * loses
        whole[own, own] += stiffness
        whole[own, ghosts[k]] -= stiffness
        whole[ghosts[k], own] -= stiffness
        whole[ghosts[k], ghosts[k]] += stiffness.sum()
    return whole


@dataclass(frozen=True)
class Landscape:
    """Curvature around a state, a unit of weight: from slopes to the step that would level them.

    Parameters
    ----------
    observed, complete : (n_free, n_free)
        The information in the free parameters, and what it would be if components of rows were known.
    free : (n_parameters,)
        Which parameters may move.
    doubt
        The share of the complete information that is uncertain: the least that is added to the observed one.
    """

    observed: NDArray[np.float64]
    complete: NDArray[np.float64]
    free: NDArray[np.bool_]
    doubt: float

    @classmethod
    def of(
        cls,
        observed: NDArray[np.float64],
        complete: NDArray[np.float64],
        state: EmState,
        *,
        doubt: float,
        free_shares: bool,
    ) -> Landscape:
        """The landscape of parameters as in `EmState.flat`.

        Worths of a component are known up to a factor, and shares sum to one: these directions, which change nothing,
        are made stiff.
        """
        n_components, n_items = state.log_worths.shape
        free = np.diag(observed) > 0  # ghosts do not exist without a prior
        free[-n_components:] = free_shares
        unfelt = np.zeros((n_components + 1, len(observed)))
        for k in range(n_components):
            unfelt[k, k * n_items : (k + 1) * n_items] = 1.0
            unfelt[k, n_components * n_items + k] = 1.0
        unfelt[-1, -n_components:] = 1.0
        unfelt = unfelt[:, free]
        lengths = np.linalg.norm(unfelt, axis=1)
        unfelt = unfelt[lengths > 0] / lengths[lengths > 0, None]
        stiffness = float(np.trace(observed)) / len(observed)
        chosen = np.ix_(free, free)
        return cls(observed[chosen] + stiffness * unfelt.T @ unfelt, complete[chosen], free, doubt)

    def step(
        self, state: EmState, slopes: NDArray[np.float64], damping: float
    ) -> tuple[EmState, float] | None:
        """A step from a state with these slopes, a unit of weight, and the damping it took; None where none is found.

        `damping` times the complete information, by which EM steps, is added: none gives Newton's step, much of it
        EM's. More is added where the sum is not positive definite.
        """
        damping = max(damping, self.doubt)
        with single_thread():
            while damping <= _MOST_DAMPING:
                try:
                    factor = cho_factor(self.observed + damping * self.complete, lower=True)
                except LinAlgError:
                    damping = max(_LEAST_DAMPING, 3 * damping)
                    continue
                way = np.zeros(len(slopes))
                way[self.free] = cho_solve(factor, slopes[self.free])
                longest = float(np.abs(way).max())
                moved = state.flat() + way * min(1.0, _LONGEST_STEP / max(longest, 1e-300))
                return state.like(moved), damping
        return None
