"""Parameters as kernels want them: worths by item with components side by side, padded to whole vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.errors import SettingsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES = 4
# Within this range of log-worths every sum, quotient and product of the kernels stays within float64.
WIDEST_LOG_RANGE = 700.0
_LOG_LARGEST = 690.0


class Prepared(NamedTuple):
    """Parameters of a mixture, ready for kernels.

    Worths are scaled so that the largest of each component is 1. Components are padded to `width`, a multiple of
    four, with worths of 1. `order`, `rank` and `tails` serve rows whose unlisted items rank below: the items of each
    component by falling worth, the place of each item in that order, and the sum of worths from each place on.

    Parameters
    ----------
    worths : (n_items * width,)
    log_shares : (n_components,)
    order : (n_components * n_items,)
    rank : (n_items * width,)
    tails : ((n_items + 1) * width,)
    stride
        How many factors may be multiplied before a logarithm must be taken.
    """

    worths: NDArray[np.float64]
    log_shares: NDArray[np.float64]
    order: NDArray[np.int32]
    rank: NDArray[np.int32]
    tails: NDArray[np.float64]
    n_items: int
    n_components: int
    width: int
    stride: int


def prepare(log_worths: NDArray[np.float64], log_shares: NDArray[np.float64]) -> Prepared:
    """Parameters for kernels, from log-worths (n_components, n_items) and log-shares (n_components,)."""
    n_components, n_items = log_worths.shape
    log_range = float(np.max(np.ptp(log_worths, axis=1)))
    if not log_range <= WIDEST_LOG_RANGE:
        raise SettingsError(
            f"log-worths of one component range over {log_range:g}; at most {WIDEST_LOG_RANGE:g} can be told apart"
        )
    width = -(-n_components // LANES) * LANES
    worths = np.ones((n_items, width))
    worths[:, :n_components] = np.exp(log_worths - log_worths.max(axis=1, keepdims=True)).T
    order = np.argsort(-log_worths, axis=1, kind="stable").astype(np.int32)
    rank = np.zeros((n_items, width), np.int32)
    tails = np.zeros((n_items + 1, width))
    for component in range(n_components):
        rank[order[component], component] = np.arange(n_items)
        falling = worths[order[component], component].astype(np.longdouble)
        # Summed from the smallest up, in extended precision: these sums are later freed from listed items.
        tails[:-1, component] = np.cumsum(falling[::-1])[::-1].astype(np.float64)
    smallest_factor = log_range + np.log(n_items) + 1.0
    return Prepared(
        worths=worths.ravel(),
        log_shares=np.ascontiguousarray(log_shares, np.float64),
        order=order.ravel(),
        rank=rank.ravel(),
        tails=tails.ravel(),
        n_items=n_items,
        n_components=n_components,
        width=width,
        stride=max(1, min(64, int(_LOG_LARGEST / smallest_factor))),
    )
