"""What a pass of EM or a Gibbs sweep computes, in plain NumPy: the specification of `em_statistics` and `sweep_sums`.

Read this file first.

A ranking is a sequence of choices. At each choice some items are on offer and one of them wins. Component k chooses
item j with probability worth[k, j] / (sum of worth[k, i] over all items i on offer). The winner then leaves.

Everything here is written for reading. The compiled kernels give the same numbers up to rounding, a thousand times as
fast; `tests/kernels/test_plain.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from plmix_dist.kernels.draws import SweepSums
from plmix_dist.kernels.em_pass import EmStatistics
from plmix_dist.rankings import Floats, RankingBlock


def plain_em_statistics(
    block: RankingBlock, log_worths: Floats, log_shares: Floats, posteriors: Floats | None = None
) -> EmStatistics:
    """The statistics of a block, with rates, from log-worths (n_components, n_items) and log-shares (n_components,).

    `posteriors` (n_rankings, n_components) replace those at the given parameters; the log-likelihood is that of the
    given parameters all the same.

    Examples
    --------
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[1, 0, 2]])
    >>> found = plain_em_statistics(block, np.log([[0.5, 0.25, 0.25]]), np.zeros(1))
    >>> found.wins.tolist(), found.expected_wins.round(3).tolist()
    ([[1.0, 1.0, 0.0]], [[1.167, 0.25, 0.583]])
    """
    n_components, n_items = log_worths.shape
    worths = np.exp(log_worths - log_worths.max(axis=1, keepdims=True))
    log_likelihood, expected, shares = 0.0, np.zeros(n_components), np.zeros(n_components)
    wins, expected_wins = np.zeros((2, n_components, n_items))
    rates = np.zeros((n_components, n_items, n_items))
    for row in range(block.n_rankings):
        logs = _plain_row_log_likelihood(block, row, worths)
        joint = logs + log_shares
        total = np.logaddexp.reduce(joint)
        posterior = np.exp(joint - total) if posteriors is None else posteriors[row]
        weight = block.row_weights[row]
        share = weight * posterior
        log_likelihood += weight * total
        expected += share * logs
        shares += share
        for winner, on_offer in plain_choices(block, row):
            chances = worths[:, on_offer] / worths[:, on_offer].sum(axis=1, keepdims=True)
            winner_chance = chances[:, on_offer.index(winner)]
            wins[:, winner] += share
            expected_wins[:, on_offer] += share[:, None] * chances
            rates[:, winner, [item for item in on_offer if item != winner]] += (share * winner_chance)[:, None]
    return EmStatistics(np.array(log_likelihood), expected, shares, wins, expected_wins, rates)


def plain_sweep_sums(
    block: RankingBlock, log_worths: Floats, log_shares: Floats, uniforms: Floats, exponentials: Floats
) -> SweepSums:
    """The sums of a Gibbs sweep over rows without weights, groups and ties.

    Log-worths are (n_components, n_items), log-shares (n_components,). `uniforms` (n_rankings,) decide the component of
    each row; `exponentials` (n_choices,) have rate 1, one per choice, row by row.
    """
    n_components, n_items = log_worths.shape
    worths = np.exp(log_worths - log_worths.max(axis=1, keepdims=True))
    log_likelihood, shares = 0.0, np.zeros(n_components)
    wins, offers = np.zeros((2, n_components, n_items))
    numbers = iter(exponentials)
    for row in range(block.n_rankings):
        joint = _plain_row_log_likelihood(block, row, worths) + log_shares
        total = np.logaddexp.reduce(joint)
        log_likelihood += total
        k = int(np.searchsorted(np.cumsum(np.exp(joint - total)), uniforms[row], side="right"))
        shares[k] += 1
        for winner, on_offer in plain_choices(block, row):
            exponential = next(numbers) / worths[k, on_offer].sum()
            wins[k, winner] += 1
            offers[k, on_offer] += exponential * worths[k, on_offer]
    return SweepSums(np.array(log_likelihood), shares, wins, offers)


def _plain_row_log_likelihood(block: RankingBlock, row: int, worths: Floats) -> Floats:
    """(n_components,): the log-probability of one row under each component, from worths (n_components, n_items)."""
    logs = np.zeros(len(worths))
    for winner, on_offer in plain_choices(block, row):
        logs += np.log(worths[:, winner] / worths[:, on_offer].sum(axis=1))
    return logs


def plain_choices(block: RankingBlock, row: int) -> Iterator[tuple[int, list[int]]]:
    """The choices of one row: the winner, and all items on offer, the winner first.

    Unlisted items are on offer at every choice if they rank below, and at none if they were absent. One item alone is
    no choice.
    """
    listed = block.items[block.offsets[row] : block.offsets[row + 1]].tolist()
    below = sorted(set(range(block.n_items)) - set(listed)) if block.below[row] else []
    for place in range(int(block.n_ordered[row])):
        on_offer = listed[place:] + below
        if len(on_offer) > 1:
            yield listed[place], on_offer
