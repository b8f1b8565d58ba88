"""Pairwise wins: how often each item was ranked before each other, by component."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.kernels.em_pass import memberships_at, row_posteriors
from plmix_dist.kernels.loading import Kernel
from plmix_dist.kernels.memberships import Memberships
from plmix_dist.kernels.prepared import Prepared, Room, Rows, Workspace, pointers, rows_of
from plmix_dist.kernels.tied_rows import TiedRows
from plmix_dist.rankings import Floats, RankingBlock, unorder_last_ties


class WinSums(NamedTuple):
    """Memberships, the number of the last row that listed each item, and the wins being added up."""

    memberships: Floats
    listed: Room
    wins: Floats
    n_components: int
    n_items: int


_count_wins = Kernel("count_wins", Rows, WinSums)


def pairwise_wins(block: RankingBlock, memberships: Floats) -> Floats:
    """(n_components, n_items, n_items): entry [k, i, j] adds w q wherever i is ranked before j.

    An ordered item is before every item on offer that is not ordered, listed or not. `memberships` q are
    (n_rankings, n_components): probabilities, or 0 and 1 for clusters.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> pairwise_wins(RankingBlock.from_array([[1, 0]]), np.ones((1, 1))).tolist()
    [[[0.0, 0.0], [1.0, 0.0]]]
    """
    n_components, n_items = memberships.shape[1], block.n_items
    wins = np.zeros((n_components, n_items, n_items))
    given = np.ascontiguousarray(memberships, np.float64)
    rows, listed = rows_of(block, 1), Workspace.of_thread().zeros("listed", n_items, np.int32)
    _count_wins(pointers(rows), pointers(WinSums(given, listed, wins, n_components, n_items)))
    return wins


# Pairwise wins weighted by posteriors: what M-steps need that break rankings into pairs, in one pass.


class PairStatistics(NamedTuple):
    """Sums over rows. The statistics of two blocks can be added."""

    # (): of the rows, at the parameters that gave the posteriors.
    log_likelihood: Floats
    # (n_components,): sum of weight times posterior, over persons.
    shares: Floats
    # (n_components, n_items, n_items): entry [k, i, j] is the sum of weight times posterior over all rows that rank i
    # before j.
    wins: Floats


def pair_statistics(block: RankingBlock, current: Prepared, frozen: Prepared | None = None) -> PairStatistics:
    """The pairwise wins of a block, weighted by the posteriors at the current parameters, or at `frozen` ones.

    An ordered item wins against every item on offer that comes after it or is not ordered. All rows of a group have the
    posterior of their person.
    """
    block = without_ties(block)
    at = persons_of(block, current if frozen is None else frozen)
    return PairStatistics(
        np.array((at.weights * at.log_likelihoods).sum()),
        (at.weights[:, None] * at.posteriors).sum(axis=0),
        pairwise_wins(block, at.by_row),
    )


def without_ties(block: RankingBlock) -> RankingBlock:
    """The block, ties in last place unordered; an error if others are left."""
    if not block.has_ties:
        return block
    block = unorder_last_ties(block)
    if TiedRows.of(block) is not None:
        raise SettingsError('this M-step takes rankings without ties; choose m_step="mm", or ties="expand"')
    return block


def persons_of(block: RankingBlock, params: Prepared) -> Memberships:
    """The membership of every person: of every row without groups."""
    if block.groups is not None:
        return memberships_at(block, params)
    log_likelihoods, posteriors = row_posteriors(block, params)
    return Memberships(log_likelihoods, block.row_weights, posteriors, np.arange(block.n_rankings))


# How surprising each item's place is: the pairs it lost beyond what one model for all rankings expects.


class Surprises(NamedTuple):
    """Log-worths, and the surprises being added up."""

    log_worths: Floats
    surprises: Floats


_add_surprises = Kernel("add_surprises", Rows, Surprises)


def place_surprises(block: RankingBlock, log_worths: Floats) -> Floats:
    """(total listed,): for each listed item, how many listed items stand before it, less the number expected.

    Only pairs whose order the row gives count. Item j is expected before i with probability
    worth_j / (worth_i + worth_j), whatever else was on offer, so that what was offered leaves no trace.
    `log_worths` are (n_items,).

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[2, 0]], n_items=3, unranked="absent")
    >>> place_surprises(block, np.zeros(3)).tolist()
    [-0.5, 0.5]
    """
    rows, surprises = rows_of(block, 1), np.zeros(len(block.items))
    _add_surprises(pointers(rows), pointers(Surprises(np.ascontiguousarray(log_worths, np.float64), surprises)))
    return surprises
