"""Parameters as kernels need them: worths by item, with components side by side, padded to whole vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.kernels.pointers import aligned_zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES = 4
# Within this range of log-worths every sum, quotient and product of the kernels stays within float64.
WIDEST_LOG_RANGE = 700.0
_LOG_LARGEST = 690.0
_LONGEST_STRIDE = 64


class Prepared(NamedTuple):
    """Parameters of a mixture, ready for kernels.

    Worths are scaled so that the largest of each component is as far above 1 as the smallest is below. So neither
    sums of worths nor their inverses come near the limits of float64. Components are padded to `width`, a multiple of
    four, with worths of 1 and shares of 0. `order`, `rank` and `tails` are for rows whose unlisted items rank below:
    the items of each component by falling worth, the place of each item in that order, and the sum of worths from
    each place to the end.

    Parameters
    ----------
    worths : (n_items * width,)
    share_mantissas, share_exponents : (width,)
        Shares as mantissa * 2**exponent, so that none is too small to be held.
    order : (n_components * n_items,)
    rank : (n_items * width,)
    tails : ((n_items + 1) * width,)
    item_of : (n_items * width / 4,)
        The item of an entry of `worths`, by the number of its vector.
    stride
        How many chances of choices may be multiplied before their product must be rescaled: four or a multiple of it
        where the range of worths allows that.
    """

    worths: NDArray[np.float64]
    share_mantissas: NDArray[np.float64]
    share_exponents: NDArray[np.float64]
    order: NDArray[np.int32]
    rank: NDArray[np.int32]
    tails: NDArray[np.float64]
    item_of: NDArray[np.int32]
    n_items: int
    n_components: int
    width: int
    stride: int


def prepare(log_worths: NDArray[np.float64], log_shares: NDArray[np.float64]) -> Prepared:
    """Parameters for kernels, from log-worths (n_components, n_items) and log-shares (n_components,).

    Examples
    --------
    >>> params = prepare(np.log([[0.5, 0.25, 0.25]]), np.zeros(1))
    >>> params.n_components, params.n_items, params.width
    (1, 3, 4)
    """
    n_components, n_items = log_worths.shape
    log_range = float(np.max(np.ptp(log_worths, axis=1)))
    if not log_range <= WIDEST_LOG_RANGE:
        raise SettingsError(
            f"log-worths of one component range over {log_range:g}; at most {WIDEST_LOG_RANGE:g} can be told apart"
        )
    width = -(-n_components // LANES) * LANES
    middle = (log_worths.max(axis=1, keepdims=True) + log_worths.min(axis=1, keepdims=True)) / 2
    worths = aligned_zeros(n_items, width)
    worths[:] = 1.0
    worths[:, :n_components] = np.exp(log_worths - middle).T
    order = np.argsort(-log_worths, axis=1, kind="stable").astype(np.int32)
    components = np.arange(n_components)
    rank = np.zeros((n_items, width), np.int32)
    rank[order.T, components] = np.arange(n_items)[:, None]
    rising = worths[order[:, ::-1].T, components].astype(np.longdouble)
    tails = np.zeros((n_items + 1, width))
    # Summed from the smallest up, in extended precision: the worths of listed items are later subtracted.
    tails[-2::-1, :n_components] = np.cumsum(rising, axis=0)
    mantissas, exponents = _split_shares(np.asarray(log_shares, np.float64), width)
    return Prepared(
        worths=worths.reshape(-1),
        share_mantissas=mantissas,
        share_exponents=exponents,
        order=order.ravel(),
        rank=rank.ravel(),
        tails=tails.ravel(),
        item_of=np.repeat(np.arange(n_items, dtype=np.int32), width // LANES),
        n_items=n_items,
        n_components=n_components,
        width=width,
        stride=_stride(log_range, n_items),
    )


def _split_shares(
    log_shares: NDArray[np.float64], width: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mantissas and exponents of shares, padded with shares of 0."""
    mantissas, exponents = np.zeros(width), np.full(width, -np.inf)
    held = np.flatnonzero(log_shares != -np.inf)
    exponents[held] = np.floor(log_shares[held] / math.log(2))
    mantissas[held] = np.exp(log_shares[held] - exponents[held] * math.log(2))
    return mantissas, exponents


def _stride(log_range: float, n_items: int) -> int:
    """How many chances, none less than the least worth out of all at their largest, float64 can hold the product of."""
    most = int(_LOG_LARGEST / (log_range + math.log(n_items) + 1.0))
    return min(_LONGEST_STRIDE, most // LANES * LANES) if most >= LANES else 1
