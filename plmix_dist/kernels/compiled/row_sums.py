"""Parts that evaluate rows and add one row to the sums of an EM pass."""

from __future__ import annotations

from typing import Any

from plmix_dist.kernels.compiled.at_addresses import load, load4, load_index, store, store4
from plmix_dist.kernels.compiled.choices import (
    evaluate_row,
    is_listed,
    log_likelihood4,
    posterior_of_row,
    row_at,
    scratch_at,
)
from plmix_dist.kernels.compiled.jit import kernel_part
from plmix_dist.kernels.compiled.simd import splat4

# Offers to unlisted items are noted once if the first offer is at least this share of all offers of the row. Below
# that, subtracting them from listed items would lose too many digits.
_WORTH_SPREADING = 1e-4


@kernel_part
def evaluate_rows(first: int, end: int, rows: Any, params: Any, slots: Any, sums: Any) -> None:
    """Fill the scratch of some rows, with posteriors that are given or else those at the current parameters."""
    width = params.width
    for index in range(first, end):
        evaluate_row(row_at(index, rows), params, scratch_at(index - first, slots, width))
    for index in range(first, end):
        scratch, weight = scratch_at(index - first, slots, width), load(rows.weights, index)
        if sums.given != 0:
            _take_posterior(sums.given + 8 * index * width, weight, width, scratch)
        else:
            total, scale = posterior_of_row(weight, params, scratch)
            store(sums.totals, index, total)
            store(sums.scales, index, scale)


@kernel_part
def add_row(row: Any, params: Any, scratch: Any, sums: Any) -> None:
    """Add one row that was evaluated to all sums but the rates."""
    for lane in range(0, params.width, 4):
        share = load4(scratch.posterior, lane)
        store4(sums.shares, lane, load4(sums.shares, lane) + share)
        logs = log_likelihood4(scratch, lane)
        store4(sums.expected, lane, load4(sums.expected, lane) + share * logs)
        _add_wins(row, lane, params.width, share, scratch.inverse, sums.sums)
    if row.below:
        for component in range(params.n_components):
            _correct_below(row, component, params, scratch, sums.sums, sums.below)


@kernel_part
def add_member(row: Any, component: int, params: Any, scratch: Any, sums: Any) -> None:
    """Add one row that was evaluated, and is a member of one component, to shares, wins and offers."""
    lane = component // 4 * 4
    share = load4(scratch.posterior, lane)
    store4(sums.shares, lane, load4(sums.shares, lane) + share)
    _add_wins(row, lane, params.width, share, scratch.inverse, sums.sums)
    if row.below:
        _correct_below(row, component, params, scratch, sums.sums, sums.below)


@kernel_part
def _take_posterior(given: int, weight: float, width: int, scratch: Any) -> None:
    """The posterior of a row from where it is given."""
    for lane in range(0, width, 4):
        store4(scratch.posterior, lane, load4(given, lane) * splat4(weight))


@kernel_part
def _add_wins(row: Any, lane: int, width: int, share: Any, inverse: int, sums: int) -> None:
    """Offers to all listed items, and wins of the ordered ones, of four components."""
    offers = splat4(0.0)
    place = 0
    while place + 4 <= row.n_choices:
        # Four places at once: sums depend on each other only from one group to the next.
        entry = place * width + lane
        added_0 = share * load4(inverse, entry)
        added_1 = share * load4(inverse, entry + width)
        added_2 = share * load4(inverse, entry + 2 * width)
        added_3 = share * load4(inverse, entry + 3 * width)
        offers_0 = offers + added_0
        offers_1 = offers + (added_0 + added_1)
        offers_2 = offers_1 + added_2
        offers = offers_1 + (added_2 + added_3)
        _add_win(load_index(row.entries, place), lane, width, offers_0, share, sums)
        _add_win(load_index(row.entries, place + 1), lane, width, offers_1, share, sums)
        _add_win(load_index(row.entries, place + 2), lane, width, offers_2, share, sums)
        _add_win(load_index(row.entries, place + 3), lane, width, offers, share, sums)
        place += 4
    while place < row.n_choices:
        offers = offers + share * load4(inverse, place * width + lane)
        _add_win(load_index(row.entries, place), lane, width, offers, share, sums)
        place += 1
    while place < row.n_listed:
        entry = 2 * load_index(row.entries, place) + lane
        store4(sums, entry, load4(sums, entry) + offers)
        place += 1


@kernel_part
def _add_win(entry: int, lane: int, width: int, offers: Any, share: Any, sums: int) -> None:
    """One choice won by an item, after all its offers."""
    entry = 2 * entry + lane
    store4(sums, entry, load4(sums, entry) + offers)
    store4(sums, entry + width, load4(sums, entry + width) + share)


@kernel_part
def _correct_below(row: Any, component: int, params: Any, scratch: Any, sums: int, below_sums: int) -> None:
    """Offers to unlisted items: noted once, at the first unlisted item in a component's order by falling worth.

    The kernel `spread_below` gives them to that item and to all items after it. Listed items among these must not get
    them, so the offers are subtracted from theirs here. Where that would leave a small difference of large numbers,
    the offers are added to the unlisted items one by one instead.
    """
    width, n_items = params.width, params.n_items
    total = 0.0
    for place in range(row.n_choices):
        total += load(scratch.inverse, place * width + component)
    offers = load(scratch.posterior, component) * total
    if load(scratch.inverse, component) < _WORTH_SPREADING * total:
        for item in range(n_items):
            if not is_listed(row, item, scratch):
                _add(sums, item * 2 * width + component, offers)
    else:
        first = load_index(scratch.first_unlisted, component)
        _add(below_sums, first * width + component, offers)
        for place in range(row.n_listed):
            entry = load_index(row.entries, place)
            if load_index(params.rank, entry + component) >= first:
                _add(sums, 2 * entry + component, -offers)


@kernel_part
def _add(sums: int, entry: int, value: float) -> None:
    store(sums, entry, load(sums, entry) + value)
