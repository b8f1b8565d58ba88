"""A first look at the data: how much there is, and a sample of the rows, in one pass."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from plmix_dist.errors import NonFiniteError
from plmix_dist.rankings.block import concatenate
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.sampling import sample_rows

if TYPE_CHECKING:
    from plmix_dist.data import Rankings
    from plmix_dist.engine.passes import Passes
    from plmix_dist.rankings import RankingBlock

_FEWEST_ROWS = 20_000
_ROWS_PER_ITEM = 200
_MOST_ROWS = 100_000
_SAMPLE_ROWS = 100_000
# A sample lists at most this many items, which bounds the memory of the process that looks at it.
_MOST_LISTED = 1 << 24


class Extent(NamedTuple):
    """Sums over rows: weight, rows, listed items, and rows whose unlisted items rank below."""

    weight: float
    rows: int
    listed: int
    below: int


class Look(NamedTuple):
    """What the first pass found.

    Parameters
    ----------
    extent
        How much there is.
    sample
        Rows enough to judge the curvature by, or all.
    small_sample
        Rows enough to start from: a part of the sample, or all of it.
    share
        Which share of the rows the sample is.
    """

    extent: Extent
    sample: RankingBlock
    small_sample: RankingBlock
    share: float


def default_start_size(n_items: int) -> int:
    """How many rows a start looks at: 20,000, or 200 an item, and at most 100,000.

    Examples
    --------
    >>> default_start_size(10), default_start_size(200), default_start_size(10_000)
    (20000, 40000, 100000)
    """
    return min(max(_FEWEST_ROWS, _ROWS_PER_ITEM * n_items), _MOST_ROWS)


def take_look(passes: Passes, rankings: Rankings, seed: int) -> Look:
    """How much there is, and a sample drawn inside every leaf: files come sorted, so whole leaves would be none."""
    most_rows = min(_SAMPLE_ROWS, _MOST_LISTED / rankings.mean_listed)
    share = min(1.0, most_rows / rankings.n_weighted)
    found = passes.gather("look", partial(_look_at_leaf, share, seed))
    extents, samples = zip(*found, strict=True)
    extent = Extent(*(sum(counts) for counts in zip(*extents, strict=True)))
    sample = concatenate(samples)
    part = default_start_size(rankings.n_items) / sample.n_rankings
    small_sample = sample_rows(sample, part, generator(seed, "small-sample"))
    return Look(extent, sample, small_sample, sample.n_rankings / extent.rows)


def _look_at_leaf(share: float, seed: int, leaf: int, block: RankingBlock) -> tuple[Extent, RankingBlock]:
    extent = Extent(block.total_weight, block.n_rankings, len(block.items), int(block.below.sum()))
    if not math.isfinite(extent.weight):
        raise NonFiniteError(f"leaf {leaf} ({block.n_rankings} rankings): the weights are not finite")
    return extent, sample_rows(block.replace(ids=None), share, generator(seed, "sample", leaf))
