"""Kendall and Mallows kernels between partial rankings (Jiao and Vert 2015).

A ranking is seen as its pairs of items: +1 where the first of a pair is before the second, -1 where it is after, and
0 where the ranking does not say: both unordered, tied, or one of them not on offer. Kernels are products of such
rows of signs, so they are positive semidefinite whatever the kinds of rankings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from plmix_dist.errors import RankingError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.rankings.block import RankingBlock

Over = Literal["known", "extensions"]

# Signs held at once, of a slab of rows: some tens of megabytes.
_SLAB_CELLS = 1 << 23
# Sums of signs are whole numbers, which single precision holds up to here.
_EXACT_IN_FLOAT32 = 1 << 24
# Centres are rounded to multiples of this, which makes sums of products exact in double precision (up to about 1,000
# items), and results the same whatever the slabs and threads.
_CENTRE_STEP = 2.0**-16


class _Signs(NamedTuple):
    """Rows of pairs: their products, over the root of the product of their sizes, are the kernel."""

    values: NDArray[np.floating]
    sizes: NDArray[np.float64]


def kendall_kernel(
    left: RankingBlock,
    right: RankingBlock,
    *,
    over: Over = "known",
    centre: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """(n_left, n_right): Kendall's tau between rankings, 1 for the same order and -1 for the opposite.

    For full rankings both ways below are Kendall's tau.

    Parameters
    ----------
    left, right
        Rankings of any kind, of the same items. Weights are not looked at.
    over
        "known": the sum over pairs that both rankings know, divided by the root of the product of the numbers that
        each knows; a ranking has 1 with itself however short it is, and nothing is supposed about items not on offer.
        "extensions": the mean of tau over all full rankings that agree with each of the two, the convolution kernel
        of Jiao and Vert. A top-k ranking has zeros for what it does not say, as before. One where items were not
        on offer is interleaved with these in all ways: its a-th of k items is before an absent one with
        probability (k + 1 - a) / (k + 1). To be first of few then looks like being good, and to be on offer or
        not becomes part of the likeness, which is why clusters should not be sought this way.
    centre : (n_pairs,)
        With "known": the mean sign of each pair, as `mean_preferences` gives it, taken away from the known signs, so
        that a pair that a ranking does not know takes the mean and counts for nothing. To be given where clusters
        are sought among rankings of different offers: without it, rankings are alike because everyone agrees
        on the pairs that both were offered, and clusters show what was on offer. Where all know the same
        pairs it takes the same from all, which changes no clusters; top-k rankings are better without it, since
        there what a ranking does not say is its own choice.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> full = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]])
    >>> best = RankingBlock.from_array([[0]], n_items=3, unranked="below")
    >>> kendall_kernel(full, full).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    >>> kendall_kernel(full, best, over="extensions").round(4).tolist()
    [[0.6667], [-0.6667]]
    """
    if left.n_items != right.n_items:
        raise RankingError(
            f"kernels need rankings of the same items, but these have {left.n_items} and {right.n_items}"
        )
    if over not in ("known", "extensions"):
        raise SettingsError(f'over must be "known" or "extensions", but got {over!r}')
    middle = None if centre is None else _checked_centre(centre, left.n_items, over)
    kernel = np.empty((left.n_rankings, right.n_rankings))
    for rows, slab in _slabs(left):
        mine = _signs(slab, over, middle)
        for columns, other_slab in _slabs(right):
            theirs = _signs(other_slab, over, middle)
            sizes = np.sqrt(np.outer(mine.sizes, theirs.sizes))
            # A ranking that knows no pair is like no other.
            sizes[sizes == 0.0] = 1.0
            np.divide(mine.values @ theirs.values.T, sizes, out=kernel[rows, columns])
    return kernel


def mallows_kernel(
    left: RankingBlock,
    right: RankingBlock,
    bandwidth: float | None = None,
    *,
    over: Over = "known",
    centre: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """(n_left, n_right): exp(-bandwidth * discordant pairs), where partial rankings have the number to be expected.

    That number is n_pairs * (1 - tau) / 2 with tau from `kendall_kernel`. Over extensions it is the mean over all full
    rankings that agree; over known pairs, the number that full rankings would have that differ as much as these do
    where both are known. Since tau is positive semidefinite, so is the exponential of any multiple of it. Over known
    pairs and without a centre this is a Gaussian of the distance between rows of signs, each of length one.

    Parameters
    ----------
    bandwidth
        For each discordant pair; by default 2 / n_pairs, which gives rankings that have nothing to do with each other
        exp(-1).
    over, centre
        As for `kendall_kernel`.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1, 2], [0, 2, 1]])
    >>> mallows_kernel(block, block, bandwidth=1.0).round(4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """
    n_pairs = _count_pairs(left.n_items)
    rate = 2.0 / max(n_pairs, 1) if bandwidth is None else float(bandwidth)
    if not (rate > 0 and np.isfinite(rate)):
        raise SettingsError(f"bandwidth must be a positive number, but is {bandwidth}")
    kernel = kendall_kernel(left, right, over=over, centre=centre)
    kernel -= 1.0
    kernel *= rate * n_pairs / 2
    return np.exp(kernel, out=kernel)


def mean_preferences(block: RankingBlock) -> NDArray[np.float64]:
    """(n_pairs,): the weighted mean sign of each pair over the rankings that know it, 0 where none does.

    Pairs (i, j) with i < j stand in the order of `numpy.triu_indices(n_items, 1)`.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1, 2], [1, 0, 2]], weights=[3, 1])
    >>> mean_preferences(block).tolist()
    [0.5, 1.0, 1.0]
    """
    sums = np.zeros(_count_pairs(block.n_items))
    known = np.zeros_like(sums)
    for _, slab in _slabs(block):
        signs = _signs(slab, "known", None).values
        weights = np.ones(slab.n_rankings) if slab.weights is None else slab.weights
        # einsum adds in an order of its own, never by threads: the bits do not depend on the machine's cores.
        sums += np.einsum("r,rp->p", weights, signs)
        known += np.einsum("r,rp->p", weights, np.abs(signs))
    return np.divide(sums, known, out=np.zeros_like(sums), where=known > 0)


def _checked_centre(centre: ArrayLike, n_items: int, over: Over) -> NDArray[np.float64]:
    if over != "known":
        raise SettingsError(
            'a centre is for over="known"; extensions have no unknown pairs that could take the mean'
        )
    means = np.asarray(centre, np.float64)
    if means.shape != (_count_pairs(n_items),):
        raise SettingsError(
            f"expected a centre of {_count_pairs(n_items)} mean signs, one a pair of {n_items} items, "
            f"but got shape {means.shape}; use mean_preferences(block)"
        )
    if not (np.abs(means) <= 1.0).all():
        raise SettingsError("a centre holds mean signs, between -1 and 1; use mean_preferences(block)")
    steps: NDArray[np.float64] = np.rint(means / _CENTRE_STEP) * _CENTRE_STEP
    return steps


def _count_pairs(n_items: int) -> int:
    return n_items * (n_items - 1) // 2


def _slabs(block: RankingBlock) -> Iterator[tuple[slice, RankingBlock]]:
    """Runs of rows whose signs may be held at once."""
    size = max(1, _SLAB_CELLS // max(_count_pairs(block.n_items), 1))
    for start in range(0, block.n_rankings, size):
        rows = slice(start, min(start + size, block.n_rankings))
        yield rows, block[rows]


def _signs(block: RankingBlock, over: Over, centre: NDArray[np.float64] | None) -> _Signs:
    """The signs of every pair in every row, as whole numbers where there is no centre."""
    levels, offered = _levels(block)
    n_rows, n_items = levels.shape
    n_pairs = _count_pairs(n_items)
    whole = over == "known" and centre is None and n_pairs < _EXACT_IN_FLOAT32
    values = np.empty((n_rows, n_pairs), np.float32 if whole else np.float64)
    # Rows count in steps of 1 / (k + 1), the chance to be in one of the gaps between k items.
    steps, lead = _leads(block, levels, offered) if over == "extensions" else (None, None)
    all_offered = bool(offered.all())
    start = 0
    for first in range(n_items - 1):
        pairs = values[:, start : start + n_items - 1 - first]
        start += n_items - 1 - first
        np.sign(levels[:, first + 1 :] - levels[:, first, None], out=pairs, casting="unsafe")
        if not all_offered:
            pairs *= offered[:, first, None] & offered[:, first + 1 :]
        if steps is not None and lead is not None:
            pairs *= steps[:, None]
            one_offered = offered[:, first, None] ^ offered[:, first + 1 :]
            pairs += one_offered * (lead[:, first, None] - lead[:, first + 1 :])
    if steps is not None:
        return _Signs(values, n_pairs * steps**2)
    n_known = np.count_nonzero(values, axis=1).astype(np.float64)
    if centre is not None:
        values -= np.abs(values) * centre
    return _Signs(values, n_known)


def _levels(block: RankingBlock) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """(n_rankings, n_items) twice: how many items are before each, tied ones alike; and whether it was on offer.

    Items that were on offer and not ordered share the last level, listed or not.
    """
    row, place = block.row_of_item(), block.place_of_item()
    if block.tied is not None:
        # The place of the first of each tie: firsts have their own, and the others the largest so far.
        entry = np.arange(len(place))
        place = place[np.maximum.accumulate(np.where(block.tied, 0, entry))]
    n_ordered = block.n_ordered.astype(np.int64)
    levels = np.repeat(n_ordered[:, None].astype(np.int32), block.n_items, axis=1)
    levels[row, block.items] = np.minimum(place, n_ordered[row])
    offered = np.repeat(block.below[:, None], block.n_items, axis=1)
    offered[row, block.items] = True
    return levels, offered


def _leads(
    block: RankingBlock, levels: NDArray[np.int32], offered: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of k items on offer: k + 1, and for each item how many more of the k + 1 gaps are after it than before it.

    (n_rankings,) and (n_rankings, n_items). Tied items have the mean of the places that they share.
    """
    n_offered = np.count_nonzero(offered, axis=1).astype(np.float64)
    n_before = levels.astype(np.float64)
    n_tied = np.ones_like(n_before)
    n_unordered = n_offered - block.n_ordered
    last = levels >= block.n_ordered[:, None].astype(np.int32)
    n_tied[last] = np.broadcast_to(n_unordered[:, None], last.shape)[last]
    if block.has_ties and block.tied is not None:
        row = block.row_of_item()
        group = np.cumsum(~block.tied) - 1
        size = np.bincount(group)[group]
        ordered = block.place_of_item() < block.n_ordered[row]
        n_tied[row[ordered], block.items[ordered]] = size[ordered]
    twice_place = 2.0 * n_before + n_tied + 1.0
    return n_offered + 1.0, np.where(offered, n_offered[:, None] + 1.0 - twice_place, 0.0)


# To add a kernel, add a function of two blocks here.
KERNELS = {"kendall": kendall_kernel, "mallows": mallows_kernel}
