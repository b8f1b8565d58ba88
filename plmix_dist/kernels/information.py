"""The observed information of a block: minus the second derivatives of its log-likelihood.

For a row with posteriors q let s_k be its score under component k (wins less expected wins), and C_k the variance of
its choices, summed over them. Then the information in the log-worths is

    sum over k of q_k (C_k - s_k s_k')  in the blocks on the diagonal,  plus  q_k q_j s_k s_j'  in every block (k, j);

between the log-worths of k and the log-share of j it is q_k s_k (q_j - [j = k]), and between log-shares
beta - beta beta' - q + q q' (the first two terms of matrices diag(beta) and so on).
With groups the same holds for persons: their scores and variances are those of their rows, times weights, added up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plmix_dist.kernels.loading import Kernel
from plmix_dist.kernels.memberships import memberships, row_logs, single_posteriors
from plmix_dist.kernels.prepared import Prepared, Room, Rows, Slots, Workspace, rows_of, run_over
from plmix_dist.rankings import Floats, RankingBlock, weights_within


class Information(NamedTuple):
    """Sums over rows. The information of two blocks can be added."""

    # (d, d): with d = n_components * n_items + n_components: log-worths component by component, then log-shares.
    observed: Floats
    # (n_components, n_items, n_items): the sums of q_k C_k: what the information in the log-worths would be if the
    # components of rows were known.
    complete: Floats


class InformationSums(NamedTuple):
    """Posteriors, what is added up, and working memory for the place of each item in one row."""

    posteriors: Floats | int
    own: Floats | int
    shared: Floats | int
    scores: Floats | int
    places: Room | int
    padded: int


_add_information = Kernel("add_information", Rows, Prepared, Slots, InformationSums)


# The kernel leaves out posteriors below 1e-6. A second call has them times this, and its sums are divided by it.
_SCALED_UP = 2.0**40
_LEFT_OUT = 1e-6


def information(block: RankingBlock, params: Prepared) -> Information:
    """The information of a block without ties at given parameters. Rows of a group are one person.

    Examples
    --------
    >>> from plmix_dist.kernels import prepare
    >>> from plmix_dist.rankings import RankingBlock
    >>> block = RankingBlock.from_array([[1, 0]])
    >>> information(block, prepare(np.zeros((1, 2)), np.zeros(1))).complete.tolist()
    [[[0.25, -0.25], [-0.25, 0.25]]]
    """
    if block.groups is None:
        by_row = posteriors = single_posteriors(block, params)[1]
        weights = block.row_weights
    else:
        persons = memberships(block, row_logs(block, params), params)
        by_row, posteriors, weights = persons.by_row, persons.posteriors, persons.weights
    scores, complete = _choice_sums(block, params, by_row)
    return Information(_observed(scores_of_persons(block, scores), posteriors, weights, complete, params), complete)


def scores_of_persons(block: RankingBlock, scores: Floats) -> Floats:
    """(n_persons, ...): the score of a person, the sum of those of the rows (n_rankings, ...), times their weights."""
    if block.groups is None:
        return scores
    return np.add.reduceat(scores * weights_within(block)[:, None, None], np.flatnonzero(block.group_starts), axis=0)


def _choice_sums(block: RankingBlock, params: Prepared, posteriors: Floats) -> tuple[Floats, Floats]:
    """Scores q s of rows, and variances of choices: the sums of w q C, at posteriors (n_rankings, n_components).

    Shapes: (n_rankings, n_components, n_items), and (n_components, n_items, n_items). Rankings have no ties; groups are
    ignored.
    """
    n_items, n_components = params.n_items, params.n_components
    padded = -(-n_items // 4) * 4
    own = np.zeros((n_components, n_items))
    shared = np.zeros((n_components, n_items, padded))
    scores = np.zeros((block.n_rankings, n_components, n_items))
    given, places = np.ascontiguousarray(posteriors), Workspace.of_thread().empty("places", padded)
    sums = InformationSums(given, own, shared, scores, places, padded)
    run_over(_add_information, rows_of(block, params.width), params, sums)
    worths = params.worths.reshape(n_items, params.width)[:, :n_components].T
    between = shared[:, :, :n_items] * worths[:, None, :]
    complete: Floats = -(between + between.transpose(0, 2, 1))
    complete[:, np.arange(n_items), np.arange(n_items)] += own
    return scores, complete


def all_choice_sums(block: RankingBlock, params: Prepared, posteriors: Floats) -> tuple[Floats, Floats]:
    """As `_choice_sums`, which leaves out posteriors (n_rankings, n_components) below 1e-6; here none is left out.

    All count that float64 can add to the others.
    """
    scores, complete = _choice_sums(block, params, posteriors)
    small = posteriors < _LEFT_OUT
    rows = np.flatnonzero(small.any(axis=1))
    if len(rows):
        scaled = np.where(small[rows], posteriors[rows] * _SCALED_UP, 0.0)
        more_scores, more_complete = _choice_sums(block.take(rows), params, scaled)
        scores[rows] += more_scores / _SCALED_UP
        complete += more_complete / _SCALED_UP
    return scores, complete


def _observed(scores: Floats, posteriors: Floats, weights: Floats, complete: Floats, params: Prepared) -> Floats:
    """(d, d): the information, from the scores q s of all rows, their posteriors and weights."""
    n_rows, n_components, n_items = scores.shape
    n_worths = n_components * n_items
    roots = np.sqrt(weights)
    total = np.empty((n_worths + n_components,) * 2)
    flat = scores.reshape(n_rows, n_worths)
    # Products of a matrix with its own transpose: BLAS forms half of each.
    weighted = posteriors * weights[:, None]
    across = flat.T @ weighted
    rooted = flat * roots[:, None]
    total[:n_worths, :n_worths] = rooted.T @ rooted
    for k in range(n_components):
        place = slice(k * n_items, (k + 1) * n_items)
        held = posteriors[:, k] > 0
        per_root = np.divide(1.0, np.sqrt(posteriors[:, k]), out=np.zeros(n_rows), where=held)
        missing = rooted[:, place] * per_root[:, None]
        total[place, place] += complete[k] - missing.T @ missing
        across[place, k] -= weights @ flat[:, place]
    total[:n_worths, n_worths:] = across
    total[n_worths:, :n_worths] = across.T
    shares = (params.share_mantissas * 2.0**params.share_exponents)[:n_components]
    expected = (np.diag(shares) - np.outer(shares, shares)) * weights.sum()
    total[n_worths:, n_worths:] = expected - np.diag(weighted.sum(axis=0)) + posteriors.T @ weighted
    return total
