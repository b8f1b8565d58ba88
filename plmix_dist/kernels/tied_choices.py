"""Ties as outcomes of choices: log-probabilities of rows, the sums of an EM pass, scores and information.

A choice may end in a tie of up to D items, each order of ties with a weight of its own (compiled/ties.py). So all
listed items of a place count, in last place too, and an item that is left alone is not a choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import SettingsError
from plmix_dist.kernels.loading import Kernel
from plmix_dist.kernels.memberships import memberships
from plmix_dist.kernels.prepared import Prepared, Room, Rows, Workspace, pointers, rows_of
from plmix_dist.rankings import Floats, RankingBlock


class TieSums(NamedTuple):
    """What the kernel fills and adds up."""

    # (n_entries,): how many items share the place that begins with an entry.
    sizes: NDArray[np.int32]
    # logs, posteriors (n_rows, width): filled; and given, or 0 where only logs are wanted.
    logs: Floats
    posteriors: Floats | int
    # (n_items, 2, width), then (n_orders, 2, width): expected wins and wins, expected ties and ties.
    sums: Room
    # polynomials (n_items + 1, n_polynomials, 4), adjoints (n_polynomials, 4), offered, listed (n_items,): scratch.
    polynomials: Room
    adjoints: Room
    offered: Room
    listed: Room
    n_polynomials: int


class _TieStatistics(NamedTuple):
    """Sums over rows, as `EmStatistics` has them, and ties by their order. Those of two blocks can be added."""

    log_likelihood: Floats
    expected_log_likelihood: Floats
    shares: Floats
    wins: Floats
    expected_wins: Floats
    rates: Floats  # empty
    # (n_components, n_orders - 1) each: ties of 2, 3 ... items.
    ties: Floats
    expected_ties: Floats


_add_tied_rows = Kernel("add_tied_rows", Rows, Prepared, TieSums)


def place_sizes(block: RankingBlock) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n_places,): the first entry of each place that orders items, and how many items it has."""
    ordered = block.place_of_item() < np.repeat(block.n_ordered, block.n_listed)
    begins = ordered if block.tied is None else ordered & ~block.tied
    return np.flatnonzero(begins), np.bincount(np.cumsum(begins)[ordered] - 1, minlength=int(begins.sum()))


def _run(block: RankingBlock, params: Prepared, posteriors: Floats | None = None) -> tuple[Floats, Floats]:
    """Logs (n_rankings, n_components), and the sums (n_items + n_orders, 2, n_components) at posteriors."""
    places, sizes = place_sizes(block)
    if sizes.max(initial=0) > params.n_orders:
        raise SettingsError(
            f"a ranking ties {sizes.max()} items, but the model has ties of at most {params.n_orders}; fit it with "
            f"ties=Davidson(order={sizes.max()}), or leave the ranking out"
        )
    workspace, width = Workspace.of_thread(), params.width
    rows, logs = rows_of(block, width), np.empty((block.n_rankings, width))
    n_sums, n_polynomials = params.n_items + params.n_orders, params.n_orders * (params.n_orders + 1) // 2
    padded: Floats | int = 0
    if posteriors is not None:
        padded = np.zeros((block.n_rankings, width))
        padded[:, : params.n_components] = posteriors
    by_entry = np.zeros(len(block.items), np.int32)
    by_entry[places] = sizes
    sums = TieSums(
        by_entry,
        logs,
        padded,
        workspace.zeros("sums", 2 * n_sums * width),
        workspace.empty("polynomials", (params.n_items + 1) * n_polynomials * 4),
        workspace.empty("adjoints", n_polynomials * 4),
        workspace.empty("offered", params.n_items, np.int32),
        workspace.zeros("listed", params.n_items, np.int32),
        n_polynomials,
    )
    _add_tied_rows(pointers(rows), workspace.pointers_of(params), pointers(sums))
    found = sums.sums.array.reshape(n_sums, 2, width)
    return np.ascontiguousarray(logs[:, : params.n_components]), found[..., : params.n_components].copy()


def tie_logs(block: RankingBlock, params: Prepared) -> Floats:
    """(n_rankings, n_components): log Pr(row | component)."""
    return _run(block, params)[0]


def tie_statistics(block: RankingBlock, current: Prepared, frozen: Prepared | None = None) -> _TieStatistics:
    """The statistics of a block at the current parameters; posteriors at `frozen` ones, if given."""
    alone = frozen is None and current.n_components == 1  # everybody belongs to it
    at = None if alone else memberships(block, tie_logs(block, frozen or current), frozen or current)
    logs, sums = _run(block, current, np.ones((block.n_rankings, 1)) if at is None else at.by_row)
    at = at or memberships(block, logs, current)
    (expected, wins), n_items = np.moveaxis(sums, -1, 1).swapaxes(0, 2), current.n_items
    weighted = block.row_weights[:, None] * at.by_row
    return _TieStatistics(
        np.array((at.weights * at.log_likelihoods).sum()),
        np.where(weighted > 0, weighted * logs, 0.0).sum(axis=0),
        (at.weights[:, None] * at.posteriors).sum(axis=0),
        wins[:, :n_items].copy(),
        expected[:, :n_items].copy(),
        np.zeros((0, n_items, 0)),
        wins[:, n_items + 1 :].copy(),
        expected[:, n_items + 1 :].copy(),
    )


# Scores and information, in NumPy: choices that offer the same number of items side by side.


def _choices_by_size(block: RankingBlock) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Choices from sets of one size: their rows (n,), the items on offer (n, size), and how many were chosen (n,).

    Those that were chosen come first.
    """
    first, sizes = place_sizes(block)
    row, items = block.row_of_item()[first], block.items.astype(np.int64)
    n_left = block.offsets[1:][row] - first
    unlisted = np.ones((block.n_rankings, block.n_items), bool) & block.below[:, None]
    unlisted[block.row_of_item(), items] = False
    kinds = np.column_stack([n_left, unlisted.sum(axis=1)[row]])
    for left, rest in np.unique(kinds, axis=0).tolist():
        chosen = np.flatnonzero((kinds == (left, rest)).all(axis=1))
        if left + rest > 1:
            listed = items[first[chosen, None] + np.arange(left)]
            others = np.nonzero(unlisted[row[chosen]])[1].reshape(len(chosen), rest)
            yield row[chosen], np.concatenate([listed, others], axis=1), sizes[chosen]


def tie_information(block: RankingBlock, params: Prepared, posteriors: Floats) -> tuple[Floats, Floats]:
    """Scores q s of rows, and the information if components were known, in log-worths and logarithms of tie weights.

    Shapes: (n_rankings, n_components, n_items + n_orders - 1), and (n_components, ..., ...) with weights.
    """
    n_items, n_all = params.n_items, params.n_items + params.n_orders - 1
    scores = np.zeros((block.n_rankings, params.n_components, n_all))
    complete = np.zeros((params.n_components, n_all, n_all))
    powers, weights = params.tie_tables()
    for row, offered, n_chosen in _choices_by_size(block):
        size = offered.shape[1]
        of_ties = np.broadcast_to(n_items + np.arange(params.n_orders - 1), (len(row), params.n_orders - 1))
        entries = np.concatenate([offered, of_ties], axis=1)
        seen = np.zeros(entries.shape)
        seen[:, :size] = (np.arange(size) < n_chosen[:, None]) / n_chosen[:, None]
        seen[:, size:] = n_chosen[:, None] == np.arange(2, params.n_orders + 1)
        for k in range(params.n_components):
            mean, second = _moments(powers[1:, offered, k], weights[1, :, k])
            share = posteriors[row, k]
            np.add.at(scores[:, k], (row[:, None], entries), share[:, None] * (seen - mean))
            second -= mean[:, :, None] * mean[:, None, :]
            second *= (share * block.row_weights[row])[:, None, None]
            np.add.at(complete[k], (entries[:, :, None], entries[:, None, :]), second)
    return scores, complete


def _moments(powers: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """First and second moments of wins and ties, from powers (n_orders, n, size) of worths and weights (n_orders,).

    An item, or two, are taken out of a polynomial by subtraction: what that loses is small beside the sum of all sets.
    """
    n_orders, n, size = powers.shape
    total, first, tied = np.zeros(n), np.zeros((n_orders, n, size)), np.zeros((n_orders, n))
    second = np.zeros((n, size + n_orders - 1, size + n_orders - 1))
    own = np.arange(size)
    for order, (x, weight) in enumerate(zip(powers, weights, strict=True), start=1):
        whole = [np.ones(n), *np.zeros((order, n))]
        for item in x.T:
            for j in range(order, 0, -1):
                whole[j] = whole[j] + item * whole[j - 1]
        without_one, without_two = np.ones((n, size)), np.ones((n, size, size))
        for j in range(1, order):
            without_two = without_one[:, :, None] - x[:, None, :] * without_two if j > 1 else without_two
            without_one = whole[j][:, None] - x * without_one
        pairs = x[:, :, None] * x[:, None, :] * without_two if order > 1 else np.zeros((n, size, size))
        pairs[:, own, own] = x * without_one
        second[:, :size, :size] += weight * pairs / order**2
        first[order - 1], tied[order - 1] = weight * x * without_one / order, weight * whole[order]
        total += tied[order - 1]
    second[:, :size, size:] = first[1:].transpose(1, 2, 0)
    second[:, size:, :size] = first[1:].transpose(1, 0, 2)
    for place in range(n_orders - 1):
        second[:, size + place, size + place] = tied[place + 1]
    return np.concatenate([first.sum(axis=0), tied[1:].T], axis=1) / total[:, None], second / total[:, None, None]
