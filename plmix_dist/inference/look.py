"""A first look at the data: how much there is, and a sample of the rows, in one pass."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from plmix_dist.engine.request import Aggregation, Finish, Request
from plmix_dist.engine.tree import add_statistics
from plmix_dist.errors import NonFiniteError
from plmix_dist.inference.saved_state import savable
from plmix_dist.rankings.block import concatenate
from plmix_dist.rankings.groups import membership_weight
from plmix_dist.rankings.randomness import generator
from plmix_dist.rankings.row_parts import rows_of_part
from plmix_dist.rankings.sampling import sample_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plmix_dist.data import Rankings
    from plmix_dist.engine.passes import Passes
    from plmix_dist.rankings import RankingBlock
    from plmix_dist.rankings.row_parts import RowPart

_FEWEST_ROWS = 20_000
_ROWS_PER_ITEM = 200
_MOST_ROWS = 100_000
_SAMPLE_ROWS = 100_000
# A sample lists at most this many items, which bounds the memory of the process that holds it.
_MOST_LISTED = 1 << 24
# Samples of leaves are joined when there are so many of them: what is held does not grow with the number of leaves.
_MOST_BLOCKS = 64


@savable
class Extent(NamedTuple):
    """Sums over rows: weight (with groups, persons), rows, listed items, rows with unlisted items below, ties."""

    weight: float
    rows: int
    listed: int
    below: int
    tied: int = 0


@savable
class Look(NamedTuple):
    """What the first pass found.

    Parameters
    ----------
    extent
        How much there is.
    sample
        Rows enough to estimate a Hessian, or all.
    small_sample
        Rows enough to start from: a part of the sample, or all of it.
    share
        Which share of the rows the sample is.
    """

    extent: Extent
    sample: RankingBlock
    small_sample: RankingBlock
    share: float


class _Draw(NamedTuple):
    """How to sample: the share of the rows, and the seed."""

    share: float
    seed: int


class _Part(NamedTuple):
    """What some leaves give: their extent, and the rows sampled from them."""

    extent: Extent
    sampled: tuple[RankingBlock, ...]


def default_start_size(n_items: int) -> int:
    """How many rows a start looks at: 20,000, or 200 per item, and at most 100,000.

    Examples
    --------
    >>> default_start_size(10), default_start_size(200), default_start_size(10_000)
    (20000, 40000, 100000)
    """
    return min(max(_FEWEST_ROWS, _ROWS_PER_ITEM * n_items), _MOST_ROWS)


def take_look(passes: Passes, rankings: Rankings, seed: int) -> Look:
    """How much there is, and a sample drawn by row inside every leaf: files are often sorted, so whole leaves differ.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> rankings = as_rankings([[0, 1], [1, 0]])
    >>> take_look(ThreadedPasses(rankings), rankings, seed=0).extent
    Extent(weight=2.0, rows=2, listed=4, below=0, tied=0)
    """
    most_rows = min(_SAMPLE_ROWS, _MOST_LISTED / rankings.mean_listed)
    share = min(1.0, most_rows / rankings.n_weighted)
    (answer,) = passes.run([Request(LOOK, _Draw(share, seed), (Finish("sample", _joined),))])
    if answer.error is not None:
        raise answer.error
    ((extent, (sample,)),) = answer.results
    part = default_start_size(rankings.n_items) / sample.n_rankings
    small_sample = sample_rows(sample, part, generator(seed, "small-sample"))
    return Look(extent, sample, small_sample, sample.n_rankings / extent.rows)


def look_at_parts(
    passes: Passes, parts: Sequence[RowPart], share: float, seed: int
) -> list[tuple[Extent, RankingBlock]]:
    """How much there is in each part of the rows, and a sample of this share of it, in one pass.

    Examples
    --------
    >>> from plmix_dist.data import as_rankings
    >>> from plmix_dist.engine.threaded import ThreadedPasses
    >>> from plmix_dist.rankings.row_parts import RowPart
    >>> ((extent, sample),) = look_at_parts(ThreadedPasses(as_rankings([[0, 1], [1, 0]])), [RowPart()], 1.0, seed=0)
    >>> extent.weight, sample.n_rankings
    (2.0, 2)
    """
    answers = passes.run(
        [
            Request(
                replace(LOOK, leaf=partial(_look_at_part, part)),
                _Draw(share, seed),
                (Finish(f"sample-{number}", _joined),),
            )
            for number, part in enumerate(parts)
        ]
    )
    found = []
    for answer in answers:
        if answer.error is not None:
            raise answer.error
        ((extent, (sample,)),) = answer.results
        found.append((extent, sample))
    return found


def _look_at_part(part: RowPart, number: int, block: RankingBlock, draw: _Draw) -> _Part:
    return _look_at_leaf(number, rows_of_part(part, number, block), draw)


def _look_at_leaf(number: int, block: RankingBlock, draw: _Draw) -> _Part:
    extent = Extent(
        membership_weight(block), block.n_rankings, len(block.items), int(block.below.sum()), _n_tied(block)
    )
    if not math.isfinite(extent.weight):
        raise NonFiniteError("the weights are not finite")
    sampled = sample_rows(block.replace(ids=None), draw.share, generator(draw.seed, "sample", number))
    return _Part(extent, (sampled,))


def _n_tied(block: RankingBlock) -> int:
    return 0 if block.tied is None else int(block.tied.sum())


def _combine(left: _Part, right: _Part) -> _Part:
    extent: Extent = add_statistics(left.extent, right.extent)
    part = _Part(extent, left.sampled + right.sampled)
    return part if len(part.sampled) <= _MOST_BLOCKS else _joined(part)


def _joined(part: _Part) -> _Part:
    return part._replace(sampled=(concatenate(part.sampled),))


LOOK = Aggregation("look", leaf=_look_at_leaf, combine=_combine)
