"""An overview of the data: how much there is, and a sample of the rows, in one pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from plmix_dist.cluster.clients import Client
from plmix_dist.errors import NonFiniteError, WeightWarning
from plmix_dist.fitting.algorithm import savable
from plmix_dist.passes import Aggregation, Finish, Passes, Rankings, Request, add_statistics, ask, passes_over
from plmix_dist.rankings import RankingBlock, RowPart, concatenate, generator, rows_of_part, sample_rows
from plmix_dist.rankings.checks import n_without_information
from plmix_dist.rankings.groups import membership_weight, merge_equal_rows
from plmix_dist.rankings.ties import KEPT, TIES

# Starts are made from at least 20,000 rows, 200 per item, and at most 100,000.
_FEWEST_ROWS = 20_000
_ROWS_PER_ITEM = 200
_MOST_ROWS = 100_000
# A Hessian is estimated on at most this many rows.
_SAMPLE_ROWS = 100_000
# A sample lists at most this many items, which bounds the memory of the process that holds it.
_MOST_LISTED = 1 << 24
# Samples of leaves are joined when there are this many: what is held does not grow with the number of leaves.
_MOST_BLOCKS = 64


@savable
class Extent(NamedTuple):
    """Sums over rows: weight (with groups, persons), rows, listed items, rows with unlisted items below, ties."""

    weight: float
    rows: int
    listed: int
    below: int
    tied: int = 0
    silent: int = 0  # rows that carry no information
    half: int = 0  # rankings with ties that count half


@savable
class Overview(NamedTuple):
    """What the first pass found."""

    # How much there is.
    extent: Extent
    # Rows enough to estimate a Hessian, or all.
    sample: RankingBlock
    # Rows enough to start from: a part of the sample, or all of it.
    small_sample: RankingBlock
    # Which share of the rows the sample is.
    share: float

    def extended(self, ties: str, **counts: int) -> Overview:
        """The same with linear extensions in the samples, by a treatment of ties, and other counts in the extent."""
        small, large = (TIES[ties].extended(rows).block for rows in (self.small_sample, self.sample))
        return Overview(self.extent._replace(**counts), large, small, self.share)


class _Part(NamedTuple):
    """What some leaves give: their extent, and the rows sampled from them."""

    extent: Extent
    sampled: tuple[RankingBlock, ...]


def take_overview(passes: Passes, rankings: Rankings, seed: int) -> Overview:
    """How much there is, and a sample drawn by row inside every leaf: files are often sorted, so leaves differ."""
    share = min(1.0, min(_SAMPLE_ROWS, _MOST_LISTED / rankings.mean_listed) / rankings.n_weighted)
    extent, (sample,) = ask(passes, _overview_of(None, share, seed, "sample"))
    part = min(max(_FEWEST_ROWS, _ROWS_PER_ITEM * rankings.n_items), _MOST_ROWS) / sample.n_rankings
    small_sample = sample_rows(sample, part, generator(seed, "small-sample"))
    return Overview(extent, sample, small_sample, sample.n_rankings / extent.rows)


# How to mend weights that are shares or probabilities.
TO_COUNTS = "multiply them so that they sum to the number of rankings"


def weight_warnings(overview: Overview, n_rankings: int) -> list[Warning]:
    """A warning for weights that are not counts: they sum to less than the number of items, and are below 1."""
    sample = overview.sample
    if sample.weights is None or not sample.n_rankings:
        return []
    total = float(sample.weights.sum()) / overview.share  # of rankings, or of the orders of those with ties
    if total >= min(0.999 * n_rankings, sample.n_items):
        return []
    words = (
        f"the weights of {n_rankings:,} rankings sum to about {total:.3g}, but weights are counts of rankings: the "
        f"prior (alpha) outweighs them, and the penalty of BIC vanishes; {TO_COUNTS}"
    )
    return [WeightWarning(words)]


def overviews_of_parts(
    passes: Passes, parts: Sequence[RowPart], share: float, seed: int
) -> list[tuple[Extent, RankingBlock]]:
    """How much there is in each part of the rows, and a sample of this share of it, in one pass."""
    requests = [_overview_of(part, share, seed, f"sample-{number}") for number, part in enumerate(parts)]
    return [(extent, sample) for answer in passes.run(requests) for extent, (sample,) in answer.get()]


def _overview_of(part: RowPart | None, share: float, seed: int, name: str) -> Request:
    look = Aggregation("look", leaf=partial(_leaf, part), combine=_combine)
    return Request(look, (share, seed), (Finish(name, _joined),))


def _leaf(part: RowPart | None, number: int, block: RankingBlock, draw: tuple[float, int]) -> _Part:
    share, seed = draw
    block = rows_of_part(part, number, block)
    weight, n_tied = membership_weight(block), 0 if block.tied is None else int(block.tied.sum())
    if not math.isfinite(weight):
        raise NonFiniteError("the weights are not finite")
    n_below, silent = int(block.below.sum()), n_without_information(block)
    extent = Extent(weight, block.n_rankings, len(block.items), n_below, n_tied, silent, block.n_half)
    return _Part(extent, (sample_rows(block.replace(ids=None), share, generator(seed, "sample", number)),))


def _combine(left: _Part, right: _Part) -> _Part:
    extent: Extent = add_statistics(left.extent, right.extent)
    part = _Part(extent, left.sampled + right.sampled)
    return part if len(part.sampled) <= _MOST_BLOCKS else _joined(part)


def _joined(part: _Part) -> _Part:
    return part._replace(sampled=(concatenate(part.sampled),))


# Rows that repeat. Pairs of a hundred items, or orders of five, are the same few rows again and again.

# Rows are merged where at most a quarter of those of some leaves are different from each other, or could be of all; of
# very many rows a sixty-fourth: what is merged is held by one process.
_TRIED_LEAVES = 8
_MOST_DIFFERENT = 0.25
_MANY_ROWS, _MOST_DIFFERENT_OF_MANY = 10_000_000, 1 / 64


def merge_if_few(
    passes: Passes, rankings: Rankings, extent: Extent, client: Client | None
) -> tuple[RankingBlock | None]:
    """All different rows with their weights, if there are few; None if there are many, or if rows are of persons."""
    if rankings.covariates is not None or rankings.n_leaves < 2:
        return (None,)
    tried = sorted({number * (rankings.n_leaves - 1) // (_TRIED_LEAVES - 1) for number in range(_TRIED_LEAVES)})
    with ExitStack() as stack:
        if extent.tied or extent.half:  # rows as they are, before their ties are treated
            passes = stack.enter_context(passes_over(replace(rankings, ties=KEPT), client, "store"))
        most = _MOST_DIFFERENT if rankings.n_rankings <= _MANY_ROWS else _MOST_DIFFERENT_OF_MANY
        # First as many leaves as settle it where all of their rows are different, then all that are tried.
        for leaves in (tried[: int(most * len(tried)) + 1], tried):
            some: _Merged = ask(passes, _merge_of(tuple(leaves)))
            if some.blocks is None:
                return (None,)
            n_different, n_tried = some.blocks[0].n_rankings, some.n_rankings * len(tried) / len(leaves)
            if n_different > most * n_tried and _at_most(some.blocks[0]) > most * rankings.n_rankings:
                return (None,)
        found: _Merged = ask(passes, _merge_of(None))
    return (None if found.blocks is None else found.blocks[0],)


def _at_most(block: RankingBlock) -> int:
    """How many different rows there can be that list as many items as these."""
    longest = min(int(block.n_listed.max(initial=1)), 12)  # more are too many for any number of items
    return math.perm(block.n_items, longest) << (longest - 1)  # with ties or without, at each place


class _Merged(NamedTuple):
    """Of some leaves: their rows, and blocks of different rows; None if rows are of persons, or have features."""

    n_rankings: int
    blocks: tuple[RankingBlock, ...] | None


def _merge_of(leaves: tuple[int, ...] | None) -> Request:
    return Request(_MERGE, None, (Finish("merged", _all_merged),), leaves)


def _merged_leaf(_number: int, block: RankingBlock, _params: None) -> _Merged:
    if block.groups is not None or block.features is not None:
        return _Merged(block.n_rankings, None)
    return _Merged(block.n_rankings, (merge_equal_rows(block.replace(ids=None, sides=None)),))


def _merged_parts(left: _Merged, right: _Merged) -> _Merged:
    n_rankings = left.n_rankings + right.n_rankings
    if left.blocks is None or right.blocks is None:
        return _Merged(n_rankings, None)
    both = _Merged(n_rankings, left.blocks + right.blocks)
    return _all_merged(both) if len(left.blocks + right.blocks) > _MOST_BLOCKS else both


def _all_merged(found: _Merged) -> _Merged:
    if found.blocks is None or len(found.blocks) == 1:
        return found
    return found._replace(blocks=(merge_equal_rows(concatenate(found.blocks)),))


_MERGE = Aggregation("merge", leaf=_merged_leaf, combine=_merged_parts)
