"""The sums of a Gibbs sweep over a block: wins, and exponentials, with everything hidden drawn at given parameters.

Three things are hidden (Mollica & Tardella 2017): the component of each person; the order of tied items; and for every
choice an exponential number whose rate is the sum of worths on offer. All are drawn here. Given them, worths are
independent gamma numbers, and all that is needed of the rows are sums with the shapes of MM's.

A row of weight w stands for w persons: their components are multinomial, and the sum of exponentials of those in one
component is a gamma number. With groups all rows of a person share one component, and a row of weight w was given w
times. Tied rows are drawn one copy at a time, because each copy has an order of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.errors import NonFiniteError
from plmix_dist.kernels.e_step import memberships_at
from plmix_dist.kernels.em_pass import PassSums, pass_sums, spread_below, statistics_of
from plmix_dist.kernels.entries import Rows, rows_of
from plmix_dist.kernels.native import Kernel
from plmix_dist.kernels.pointers import pointers
from plmix_dist.kernels.prepared import Prepared
from plmix_dist.kernels.scratch import Slots, logs_of, probabilities_of, slots_for
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.kernels.workspace import Workspace
from plmix_dist.rankings.ties import unorder_last_ties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.memberships import Memberships
    from plmix_dist.rankings import RankingBlock


class SweepSums(NamedTuple):
    """Sums over rows. The sums of two blocks can be added.

    Parameters
    ----------
    log_likelihood : ()
        The log-likelihood of the rows at the parameters, with nothing hidden given.
    shares : (n_components,)
        How many persons were drawn into each component.
    wins : (n_components, n_items)
        The choices that each item won.
    offers : (n_components, n_items)
        The sums of exponentials of all choices that offered an item, times its worth. The worths cancel: whatever
        constant the log-worths of a component were given with, these are the same.
    """

    log_likelihood: NDArray[np.float64]
    shares: NDArray[np.float64]
    wins: NDArray[np.float64]
    offers: NDArray[np.float64]


class RandomNumbers(NamedTuple):
    """What a sweep is drawn with.

    Parameters
    ----------
    uniforms : (n_rows,) or 0
        One per row, which decides its component.
    given : (n_rows,) or 0
        The component of each row where it was drawn already.
    exponentials : (n_choices,)
        One per choice, row by row: means of as many exponential numbers as the row has weight.
    """

    uniforms: NDArray[np.float64] | int
    given: NDArray[np.int32] | int
    exponentials: NDArray[np.float64]


class _Drawn(NamedTuple):
    """Rows with everything but the exponentials drawn: no ties, one component (n_rows,) each, weights as counts."""

    block: RankingBlock
    components: NDArray[np.int32]


_add_draws = Kernel("add_draws", Rows, Prepared, Slots, PassSums, RandomNumbers)


def sweep_sums(block: RankingBlock, params: Prepared, rng: np.random.Generator) -> SweepSums:
    """The sums of a block, everything hidden drawn. `plain_sweep_sums` specifies them.

    Parameters
    ----------
    block
        The rankings. Weights are whole numbers.
    params
        The parameters.
    rng
        The stream of this block.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1, 2]] * 30 + [[2, 1, 0]] * 10)
    >>> params = prepare(np.array([[9.0, 0.0, -9.0], [-9.0, 0.0, 9.0]]), np.log([0.5, 0.5]))
    >>> found = sweep_sums(block, params, np.random.default_rng(0))
    >>> found.shares.tolist(), found.wins.tolist()
    ([30.0, 10.0], [[30.0, 30.0, 0.0], [0.0, 10.0, 10.0]])
    """
    if block.weights is None and block.groups is None and not block.has_ties:
        block = block if block.tied is None else block.replace(tied=None)
        random = RandomNumbers(
            rng.random(block.n_rankings), 0, rng.standard_exponential(_n_choices(block).sum())
        )
        return _summed(block, params, random)
    block = unorder_last_ties(block)
    at = memberships_at(block, params)
    shares, entries = _memberships_drawn(block, at, rng)
    drawn = _orders_drawn(block, params, entries, rng)
    found = _summed(
        drawn.block, params, RandomNumbers(0, drawn.components, _mean_exponentials(drawn.block, rng))
    )
    log_likelihood = np.array((at.weights * at.log_likelihoods).sum())
    if not np.isfinite(log_likelihood):
        raise NonFiniteError("the log-likelihood is not finite")
    return found._replace(log_likelihood=log_likelihood, shares=shares)


class _Entries(NamedTuple):
    """Members of components: the row (n_entries,) of each, its component, and how many copies of the row it has."""

    rows: NDArray[np.int64]
    components: NDArray[np.int64]
    counts: NDArray[np.float64]


def _memberships_drawn(
    block: RankingBlock, at: Memberships, rng: np.random.Generator
) -> tuple[NDArray[np.float64], _Entries]:
    """How many persons each component has, and which rows."""
    if block.groups is None:
        counts = rng.multinomial(at.weights.astype(np.int64), at.posteriors)
        rows, components = np.nonzero(counts)
        return counts.sum(axis=0).astype(np.float64), _Entries(
            rows, components, counts[rows, components].astype(np.float64)
        )
    reached = np.cumsum(at.posteriors, axis=1)
    chosen = np.argmax(reached > rng.random(len(reached))[:, None] * reached[:, -1:], axis=1)
    shares = np.bincount(chosen, minlength=at.posteriors.shape[1]).astype(np.float64)
    rows = np.flatnonzero(block.row_weights > 0)
    return shares, _Entries(rows, chosen[at.person[rows]], block.row_weights[rows])


def _orders_drawn(
    block: RankingBlock, params: Prepared, entries: _Entries, rng: np.random.Generator
) -> _Drawn:
    """The entries as rows, tied items in an order drawn given the component. Copies of a tied row are drawn apart."""
    rows, components, counts = entries
    tied_rows = TiedRows.of(block)
    if tied_rows is not None:
        is_tied = np.isin(rows, tied_rows.numbers)
        copies = np.where(is_tied, counts, 1.0).astype(np.int64)
        counts = np.repeat(np.where(is_tied, 1.0, counts), copies)
        rows, components = np.repeat(rows, copies), np.repeat(components, copies)
    taken = block.replace(ids=None, groups=None).take(rows).replace(weights=counts)
    ties = None if tied_rows is None else TiedRows.of(taken)
    if ties is not None:
        items = taken.items.copy()
        is_tied = np.zeros(taken.n_rankings, np.bool_)
        is_tied[ties.numbers] = True
        items[np.repeat(is_tied, taken.n_listed)] = ties.drawn(params, components[ties.numbers], rng)
        taken = taken.replace(items=items)
    return _Drawn(taken.replace(tied=None), components.astype(np.int32))


def _mean_exponentials(block: RankingBlock, rng: np.random.Generator) -> NDArray[np.float64]:
    """(n_choices,): means of exponential numbers, as many as the row of the choice has weight."""
    weights = np.repeat(block.row_weights, _n_choices(block))
    found: NDArray[np.float64] = rng.standard_gamma(weights) / weights
    return found


def _n_choices(block: RankingBlock) -> NDArray[np.int64]:
    """(n_rankings,): the choices of each row; the last of all items on offer is left over, and wins nothing."""
    n_ordered = block.n_ordered.astype(np.int64)
    return n_ordered - ((block.n_ordered == block.n_listed) & ~block.below)


def _summed(block: RankingBlock, params: Prepared, random: RandomNumbers) -> SweepSums:
    """Run the kernel over all rows."""
    workspace = Workspace.of_thread()
    rows = rows_of(block, params.width, workspace)
    probabilities = probabilities_of(rows.n_rows, workspace)
    sums = pass_sums(probabilities, None, params, workspace)
    fields = workspace.pointers_of(params), pointers(sums)
    slots = slots_for(rows, params, workspace)
    _add_draws(pointers(rows), fields[0], pointers(slots), fields[1], pointers(random))
    if block.below.any():
        spread_below(*fields)
    log_likelihood = logs_of(probabilities).sum() if isinstance(random.given, int) else 0.0
    found = statistics_of(np.array(log_likelihood), sums.sums.array, np.zeros(0), params)
    return SweepSums(found.log_likelihood, found.shares, found.wins, found.expected_wins)
