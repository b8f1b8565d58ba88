"""One row at given parameters: the sums over what was on offer, and its log-likelihood under each component.

A choice is won by an ordered item out of the items still on offer, with probability worth / sum of worths. The sums are
formed from the last place backwards: subtracting from a running total would lose all digits where one item dominates.
For rows whose unlisted items rank below, the sum over these is taken from the tail of the items by falling worth that
begins with the first unlisted one, so that it too is never the small difference of two large numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plmix_dist.kernels.jit import kernel, kernel_part
from plmix_dist.kernels.simd import load4, splat4, store4

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Scratch(NamedTuple):
    """Working memory for one row.

    `inverse[a * width + k]` is 1 / (sum of worths on offer at choice a) for component k; `log_likelihood[k]` that of
    the row under component k; `unlisted[k]` the sum over unlisted items, and `first_unlisted[k]` the place of the first
    such item by falling worth; `stamp[item]` is the number of the last row that listed it.
    """

    inverse: NDArray[np.float64]
    log_likelihood: NDArray[np.float64]
    product: NDArray[np.float64]
    unlisted: NDArray[np.float64]
    first_unlisted: NDArray[np.int64]
    stamp: NDArray[np.int64]


@kernel
def make_scratch(longest: int, n_items: int, width: int) -> Any:
    """Working memory for rows of up to `longest` items."""
    return Scratch(
        np.empty(max(1, longest) * width),
        np.empty(width),
        np.empty(width),
        np.zeros(width),
        np.zeros(width, np.int64),
        np.full(n_items, -1, np.int64),
    )


@kernel
def longest_row(offsets: Any) -> int:
    """The largest number of items that a row lists."""
    longest = 0
    for row in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return longest


@kernel_part
def evaluate_row(
    items: Any, row: int, start: int, n_listed: int, n_ordered: int, below: bool, params: Any, scratch: Any
) -> int:
    """Fill the scratch for one row; gives its number of choices."""
    width = params.width
    has_tail = below or n_ordered < n_listed
    n_choices = n_ordered if has_tail else n_ordered - 1
    if below:
        _sum_unlisted(items, row, start, n_listed, params, scratch)
    one = splat4(1.0)
    for lane in range(0, width, 4):
        if has_tail:
            total = load4(scratch.unlisted, lane) if below else splat4(0.0)
            for place in range(n_ordered, n_listed):
                total = total + load4(params.worths, np.intp(items[start + place]) * width + lane)
        else:
            total = load4(params.worths, np.intp(items[start + n_ordered - 1]) * width + lane)
        end = min(lane + 4, params.n_components)
        for component in range(lane, lane + 4):
            scratch.log_likelihood[component] = 0.0
        place = n_choices - 1
        while place >= 0:
            stop = max(place - params.stride, -1)
            product = one
            while place > stop:
                worth = load4(params.worths, np.intp(items[start + place]) * width + lane)
                total = total + worth
                inverse = one / total
                store4(scratch.inverse, place * width + lane, inverse)
                product = product * (worth * inverse)
                place -= 1
            store4(scratch.product, lane, product)
            for component in range(lane, end):
                scratch.log_likelihood[component] += np.log(scratch.product[component])
    return n_choices


@kernel_part
def _sum_unlisted(items: Any, row: int, start: int, n_listed: int, params: Any, scratch: Any) -> None:
    """The sum of worths over all items that a row does not list, for each component."""
    width, n_items = params.width, params.n_items
    for place in range(n_listed):
        scratch.stamp[items[start + place]] = row
    for component in range(params.n_components):
        first = 0
        while scratch.stamp[params.order[component * n_items + first]] == row:
            first += 1
        scratch.first_unlisted[component] = first
        total = params.tails[first * width + component]
        for place in range(n_listed):
            entry = np.intp(items[start + place]) * width + component
            if params.rank[entry] >= first:
                total -= params.worths[entry]
        scratch.unlisted[component] = total


@kernel_part
def posterior_of_row(scratch: Any, params: Any, posterior: Any) -> float:
    """Fill the probability of each component for a row that was evaluated; gives the row's log-likelihood."""
    highest = -np.inf
    for component in range(params.n_components):
        posterior[component] = scratch.log_likelihood[component] + params.log_shares[component]
        highest = max(highest, posterior[component])
    total = 0.0
    for component in range(params.n_components):
        posterior[component] = np.exp(posterior[component] - highest)
        total += posterior[component]
    for component in range(params.n_components):
        posterior[component] /= total
    return highest + np.log(total)
