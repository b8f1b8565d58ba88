"""The sums of a Gibbs sweep over a block: wins, and exponentials, with everything hidden drawn at given parameters.

Three things are hidden (Mollica & Tardella 2017): the component of each person; the order of tied items; and for every
choice an exponential number whose rate is the sum of worths on offer. All are drawn here. Given them, worths are
independent gamma numbers, and all that is needed of the rows are sums with the shapes of MM's.

A row of weight w stands for w persons: their components are multinomial, and the sum of exponentials of those in one
component is a gamma number. With groups all rows of a person share one component, and a row of weight w was given w
times. Tied rows are drawn one copy at a time, because each copy has an order of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import NonFiniteError
from plmix_dist.kernels import em_pass, prepared
from plmix_dist.kernels.loading import Kernel
from plmix_dist.kernels.memberships import Memberships
from plmix_dist.kernels.pairs import persons_of, without_ties
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.rankings import Floats, RankingBlock, unorder_last_ties


class SweepSums(NamedTuple):
    """Sums over rows. The sums of two blocks can be added."""

    # (): the log-likelihood of the rows at the parameters, with nothing hidden given.
    log_likelihood: Floats
    # (n_components,): how many persons were drawn into each component.
    shares: Floats
    # (n_components, n_items): the choices that each item won.
    wins: Floats
    # (n_components, n_items): the sums of exponentials of all choices that offered an item, times its worth. The
    # worths cancel: whatever constant the log-worths of a component were given with, these are the same.
    offers: Floats


class RandomNumbers(NamedTuple):
    """What a sweep is drawn with."""

    # (n_rows,) or 0: One per row, which decides its component.
    uniforms: Floats | int
    # (n_rows,) or 0: The component of each row where it was drawn already.
    given: NDArray[np.int32] | int
    # (n_choices,): one per choice, row by row: means of as many exponential numbers as the row has weight.
    exponentials: Floats


_add_draws = Kernel("add_draws", prepared.Rows, prepared.Prepared, prepared.Slots, em_pass.PassSums, RandomNumbers)


def sweep_sums(block: RankingBlock, params: prepared.Prepared, rng: np.random.Generator) -> SweepSums:
    """The sums of a block, everything hidden drawn; weights are whole numbers. `plain_sweep_sums` specifies them.

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
        random = RandomNumbers(rng.random(block.n_rankings), 0, rng.standard_exponential(_n_choices(block).sum()))
        return _summed(block, params, random)
    block = unorder_last_ties(block)
    at = em_pass.memberships_at(block, params)
    shares, rows, components, counts = _memberships_drawn(block, at, rng)
    drawn, components = _orders_drawn(block, params, rows, components, counts, rng)
    weights = np.repeat(drawn.row_weights, _n_choices(drawn))
    means = rng.standard_gamma(weights) / weights  # of as many exponential numbers as the row has weight
    found = _summed(drawn, params, RandomNumbers(0, components.astype(np.int32), means))
    log_likelihood = np.array((at.weights * at.log_likelihoods).sum())
    if not np.isfinite(log_likelihood):
        raise NonFiniteError("the log-likelihood is not finite")
    return found._replace(log_likelihood=log_likelihood, shares=shares)


def _memberships_drawn(
    block: RankingBlock, at: Memberships, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64], Floats]:
    """How many persons each component has; of all members the row, the component, and how many copies of the row."""
    if block.groups is None:
        counts = rng.multinomial(at.weights.astype(np.int64), at.posteriors)
        rows, components = np.nonzero(counts)
        return counts.sum(axis=0).astype(np.float64), rows, components, counts[rows, components].astype(np.float64)
    chosen = _components_drawn(at.posteriors, rng)
    shares = np.bincount(chosen, minlength=at.posteriors.shape[1]).astype(np.float64)
    rows = np.flatnonzero(block.row_weights > 0)
    return shares, rows, chosen[at.person[rows]], block.row_weights[rows]


def _orders_drawn(
    block: RankingBlock,
    params: prepared.Prepared,
    rows: NDArray[np.int64],
    components: NDArray[np.int64],
    counts: Floats,
    rng: np.random.Generator,
) -> tuple[RankingBlock, NDArray[np.int64]]:
    """Members as rows, tied items in an order drawn given the component. Copies of a tied row are drawn apart."""
    tied_rows = TiedRows.of(block)
    if tied_rows is not None:
        is_tied = np.isin(rows, tied_rows.numbers)
        copies = np.where(is_tied, counts, 1.0).astype(np.int64)
        counts = np.repeat(np.where(is_tied, 1.0, counts), copies)
        rows, components = np.repeat(rows, copies), np.repeat(components, copies)
    taken = block.replace(ids=None, groups=None).take(rows).replace(weights=counts)
    return _with_orders(taken, params, components, rng), components


def _components_drawn(posteriors: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """(n_persons,): one component of each person, from its posterior (n_persons, n_components)."""
    reached = np.cumsum(posteriors, axis=1)
    return np.argmax(reached > rng.random(len(reached))[:, None] * reached[:, -1:], axis=1)


def _with_orders(
    block: RankingBlock, params: prepared.Prepared, components: NDArray[np.int64], rng: np.random.Generator
) -> RankingBlock:
    """The block with an order drawn for every tie, given the component (n_rankings,) of each row."""
    ties = TiedRows.of(block)
    if ties is None:
        return block.replace(tied=None)
    items = block.items.copy()
    is_tied = np.zeros(block.n_rankings, np.bool_)
    is_tied[ties.numbers] = True
    items[np.repeat(is_tied, block.n_listed)] = ties.drawn(params, components[ties.numbers], rng)
    return block.replace(items=items, tied=None)


def _n_choices(block: RankingBlock) -> NDArray[np.int64]:
    """(n_rankings,): the choices of each row; the last of all items on offer is left over, and wins nothing."""
    return block.n_ordered.astype(np.int64) - ((block.n_ordered == block.n_listed) & ~block.below)


def _summed(block: RankingBlock, params: prepared.Prepared, random: RandomNumbers) -> SweepSums:
    """Run the kernel over all rows."""
    rows = prepared.rows_of(block, params.width)
    probabilities, sums = em_pass.room_for_pass(rows.n_rows, params)
    em_pass.run_pass(_add_draws, rows, params, sums, random)
    log_likelihood = probabilities.logs().sum() if isinstance(random.given, int) else 0.0
    found = em_pass.statistics_of(log_likelihood, sums, np.zeros(0), params)
    return SweepSums(found.log_likelihood, found.shares, found.wins, found.expected_wins)


# The statistics of an EM pass with memberships that are drawn: every person belongs to one component.

# Whole weights up to this are numbers of persons, each of whom is drawn. Above it float64 has no fractions.
_MOST_PERSONS = float(1 << 53)


def drawn_statistics(
    block: RankingBlock, current: prepared.Prepared, frozen: prepared.Prepared | None, rng: np.random.Generator
) -> em_pass.EmStatistics:
    """The statistics of a block, with rates, at memberships drawn from the posteriors.

    The log-likelihood is exact. Shares, wins and rates are those of the drawn clusters. The same random numbers give
    the same clusters, whatever the current parameters are, if those that give the posteriors are frozen.
    """
    block = without_ties(block)
    at = persons_of(block, current if frozen is None else frozen)
    drawn = _drawn_memberships(at.posteriors, at.weights, rng)
    log_likelihood = float((at.weights * at.log_likelihoods).sum())
    sums = em_pass.statistics_at(block, current, drawn[at.person], log_likelihood, with_rates=True)
    return sums._replace(shares=(at.weights[:, None] * drawn).sum(axis=0))


def _drawn_memberships(posteriors: Floats, weights: Floats, rng: np.random.Generator) -> Floats:
    """(n_persons, n_components): the share of each person's weight that falls to each component.

    A whole weight above 1 stands for this many persons, who are drawn one by one. Any other weight falls to one
    component as a whole. Posteriors are (n_persons, n_components), weights (n_persons,).

    Examples
    --------
    >>> _drawn_memberships(np.array([[0.5, 0.5]] * 2), np.array([4.0, 2.5]), np.random.default_rng(1)).tolist()
    [[0.25, 0.75], [0.0, 1.0]]
    """
    n_persons, n_components = posteriors.shape
    drawn = np.zeros((n_persons, n_components))
    # One number for every person, whatever its weight: what one person draws does not depend on the weights of others.
    chosen = (np.cumsum(posteriors[:, :-1], axis=1) <= rng.random((n_persons,))[:, None]).sum(axis=1)
    drawn[np.arange(n_persons), chosen] = 1.0
    several = np.flatnonzero((weights > 1) & (weights < _MOST_PERSONS) & (weights == np.floor(weights)))
    if len(several):
        persons = weights[several]
        drawn[several] = rng.multinomial(persons.astype(np.int64), posteriors[several]) / persons[:, None]
    return drawn


# One linear extension per row with ties, drawn from the current fit: first a component per person, then an order.


def draw_extensions(
    block: RankingBlock, params: prepared.Prepared, rng: np.random.Generator
) -> tuple[RankingBlock, float]:
    """The block with an order drawn for every tie, and the log-likelihood of the block with its ties."""
    block = unorder_last_ties(block)
    at = em_pass.memberships_at(block, params)
    log_likelihood = float((at.weights * at.log_likelihoods).sum())
    if not block.has_ties:
        return block.replace(tied=None), log_likelihood
    return _with_orders(block, params, _components_drawn(at.posteriors, rng)[at.person], rng), log_likelihood
