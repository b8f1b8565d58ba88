"""The statistics of one EM pass over a block: wins, expected wins and, for LSR, the rates between items.

With q the probability of a component for a row of weight w, and S the sum of worths on offer at a choice:

- wins[k, i] adds w q for every choice that i won;
- expected_wins[k, i] adds w q worth_i / S for every choice that offered i, so that wins - expected_wins is the gradient
  of the log-likelihood in the log-worths, and the MM step multiplies worths by wins / expected_wins;
- rates[k, j, i] adds w q worth_j / S for every choice that j won while i was on offer: the rate from i to j times the
  worth of j. Scaled so, no entry exceeds the weight of the data, whatever the range of the worths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.kernels.jit import kernel, kernel_part
from plmix_dist.kernels.row import evaluate_row, longest_row, make_scratch, posterior_of_row
from plmix_dist.kernels.rows import rows_of
from plmix_dist.kernels.simd import load4, splat4, store4, where_greater4

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.kernels.prepared import Prepared
    from plmix_dist.rankings import RankingBlock

# A component that has less than this share of a row adds nothing to its rates: a bounded error, far below rounding.
NEGLIGIBLE = 1e-15
# Rows that list less than this share of all items are scattered pair by pair; longer ones sweep whole rows of rates.
_SWEEP_SHARE = 0.5
# Sums over unlisted items are formed in one go as long as no more than this share of digits is lost to cancellation.
_WORTH_SPREADING = 1e-4


class EmStatistics(NamedTuple):
    """Sums over rows; those of two blocks add up.

    Parameters
    ----------
    log_likelihood : ()
        Of the observed rows at the current parameters or, with frozen posteriors, at the frozen ones.
    expected_log_likelihood : (n_components,)
        Sum of w q log Pr(row | component) at the current parameters.
    shares : (n_components,)
        Sum of w q.
    wins, expected_wins : (n_components, n_items)
    rates : (n_components, n_items, n_items), or empty where not asked for
    """

    log_likelihood: NDArray[np.float64]
    expected_log_likelihood: NDArray[np.float64]
    shares: NDArray[np.float64]
    wins: NDArray[np.float64]
    expected_wins: NDArray[np.float64]
    rates: NDArray[np.float64]


def em_statistics(
    block: RankingBlock, current: Prepared, frozen: Prepared | None = None, *, with_rates: bool = False
) -> EmStatistics:
    """The statistics of a block at the current parameters.

    With `frozen` parameters the posteriors are those at `frozen`, as in the inner loop of an exact M-step.
    """
    n_items, width, n_components = current.n_items, current.width, current.n_components
    sums = np.zeros((n_items, 2, width))
    below_sums = np.zeros((n_items, width))
    shares = np.zeros(width)
    expected = np.zeros(width)
    # Rows of rates end on whole vectors; what lies beyond the last item is cut off below.
    padded = -(-n_items // 4) * 4 if with_rates else 0
    rates = np.zeros((n_components if with_rates else 0, n_items, padded))
    log_likelihood = _accumulate(
        rows_of(block),
        current,
        current if frozen is None else frozen,
        frozen is not None,
        sums.reshape(-1),
        below_sums.reshape(-1),
        rates.reshape(-1),
        padded,
        shares,
        expected,
    )
    if block.below.any():
        _spread_below(current, below_sums.reshape(-1), sums.reshape(-1))
    return EmStatistics(
        log_likelihood=np.array(log_likelihood),
        expected_log_likelihood=expected[:n_components],
        shares=shares[:n_components],
        wins=np.ascontiguousarray(sums[:, 1, :n_components].T),
        expected_wins=np.ascontiguousarray(sums[:, 0, :n_components].T),
        rates=np.ascontiguousarray(rates[:, :, :n_items]),
    )


@kernel
def _accumulate(
    rows: Any,
    current: Any,
    frozen: Any,
    is_frozen: bool,
    sums: Any,
    below_sums: Any,
    rates: Any,
    padded: int,
    shares: Any,
    expected: Any,
) -> float:
    """Run over all rows; gives the log-likelihood of the observed data."""
    items, offsets, n_ordered, below, weights = rows
    width, n_components, n_items = current.width, current.n_components, current.n_items
    longest = longest_row(offsets)
    scratch = make_scratch(longest, n_items, width)
    frozen_scratch = make_scratch(longest if is_frozen else 1, n_items, width)
    posterior = np.zeros(width)
    places = np.empty(max(padded, 4))
    log_likelihood = 0.0
    for row in range(offsets.shape[0] - 1):
        start, n_listed = offsets[row], offsets[row + 1] - offsets[row]
        ordered, is_below = np.int64(n_ordered[row]), below[row]
        n_choices = evaluate_row(items, row, start, n_listed, ordered, is_below, current, scratch)
        if is_frozen:
            evaluate_row(items, row, start, n_listed, ordered, is_below, frozen, frozen_scratch)
            of_row = posterior_of_row(frozen_scratch, frozen, posterior)
        else:
            of_row = posterior_of_row(scratch, current, posterior)
        weight = weights[row]
        log_likelihood += weight * of_row
        for component in range(n_components):
            posterior[component] *= weight
            shares[component] += posterior[component]
            expected[component] += posterior[component] * scratch.log_likelihood[component]
        _add_wins(items, start, n_listed, n_choices, current, scratch, posterior, sums)
        if is_below:
            _correct_below(
                items, row, start, n_listed, n_choices, current, scratch, posterior, sums, below_sums
            )
        if padded:
            _add_rates(
                items,
                start,
                n_listed,
                n_choices,
                is_below,
                weight,
                current,
                scratch,
                posterior,
                places,
                padded,
                rates,
            )
    return log_likelihood


@kernel_part
def _add_wins(
    items: Any,
    start: int,
    n_listed: int,
    n_choices: int,
    params: Any,
    scratch: Any,
    posterior: Any,
    sums: Any,
) -> None:
    """Wins of the ordered items, and expected wins of all listed ones."""
    width = params.width
    for lane in range(0, width, 4):
        share = load4(posterior, lane)
        offers = splat4(0.0)
        for place in range(n_choices):
            item = np.intp(items[start + place])
            offers = offers + load4(scratch.inverse, place * width + lane)
            entry = item * 2 * width + lane
            worth = load4(params.worths, item * width + lane)
            store4(sums, entry, load4(sums, entry) + share * (offers * worth))
            store4(sums, entry + width, load4(sums, entry + width) + share)
        for place in range(n_choices, n_listed):
            item = np.intp(items[start + place])
            entry = item * 2 * width + lane
            worth = load4(params.worths, item * width + lane)
            store4(sums, entry, load4(sums, entry) + share * (offers * worth))


@kernel_part
def _correct_below(
    items: Any,
    row: int,
    start: int,
    n_listed: int,
    n_choices: int,
    params: Any,
    scratch: Any,
    posterior: Any,
    sums: Any,
    below_sums: Any,
) -> None:
    """Offers to unlisted items: noted once for all of a component's order from the first unlisted item on.

    Listed items further down that order get the same in `_spread_below`; here it is taken off again. Where that would
    leave a small difference of large numbers, the unlisted items are gone through one by one instead.
    """
    width, n_items = params.width, params.n_items
    for component in range(params.n_components):
        offers = 0.0
        for place in range(n_choices):
            offers += scratch.inverse[place * width + component]
        share = posterior[component]
        if scratch.inverse[component] < _WORTH_SPREADING * offers:
            _add_to_unlisted(row, component, share, offers, params, scratch, sums)
            continue
        first = scratch.first_unlisted[component]
        leader = np.intp(params.order[component * n_items + first])
        below_sums[first * width + component] += share * (offers * params.worths[leader * width + component])
        for place in range(n_listed):
            item = np.intp(items[start + place])
            entry = item * width + component
            if params.rank[entry] >= first:
                sums[item * 2 * width + component] -= share * (offers * params.worths[entry])


@kernel_part
def _add_to_unlisted(
    row: int, component: int, share: float, offers: float, params: Any, scratch: Any, sums: Any
) -> None:
    """Offers to every item that the row does not list."""
    width = params.width
    for item in range(params.n_items):
        if scratch.stamp[item] != row:
            sums[item * 2 * width + component] += share * (offers * params.worths[item * width + component])


@kernel
def _spread_below(params: Any, below_sums: Any, sums: Any) -> None:
    """Give every item what was noted for the places at or before its own in the order by falling worth."""
    width, n_items = params.width, params.n_items
    for component in range(params.n_components):
        carried, worth_before = 0.0, 1.0
        for place in range(n_items):
            item = np.intp(params.order[component * n_items + place])
            worth = params.worths[item * width + component]
            carried = carried * (worth / worth_before) + below_sums[place * width + component]
            sums[item * 2 * width + component] += carried
            worth_before = worth


@kernel_part
def _add_rates(
    items: Any,
    start: int,
    n_listed: int,
    n_choices: int,
    below: bool,
    weight: float,
    params: Any,
    scratch: Any,
    posterior: Any,
    places: Any,
    padded: int,
    rates: Any,
) -> None:
    """Rates from everything still on offer to the winner of each choice."""
    width, n_items = params.width, params.n_items
    sweep = below or n_listed > _SWEEP_SHARE * n_items
    if sweep:
        # An item at place b is on offer at all choices up to b; an unlisted one at all or at none.
        for item in range(padded):
            places[item] = 1e9 if below else -1.0
        for place in range(n_listed):
            places[items[start + place]] = place
    for component in range(params.n_components):
        share = posterior[component]
        if share < NEGLIGIBLE * weight:
            continue
        for place in range(n_choices):
            winner = np.intp(items[start + place])
            rate = share * (
                scratch.inverse[place * width + component] * params.worths[winner * width + component]
            )
            base = (component * n_items + winner) * padded
            if sweep:
                here, added = splat4(np.float64(place)), splat4(rate)
                for loser in range(0, padded, 4):
                    beaten = where_greater4(load4(places, loser), here, added)
                    store4(rates, base + loser, load4(rates, base + loser) + beaten)
            else:
                for other in range(place + 1, n_listed):
                    rates[base + np.intp(items[start + other])] += rate
