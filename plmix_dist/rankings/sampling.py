"""Seeded samples of the rows of a block."""

from __future__ import annotations

import threading
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.rankings.block import RankingBlock
from plmix_dist.rankings.columns import Floats
from plmix_dist.rankings.ties import TIES

# Random division of rows into parts: counts are split, groups stay whole.


def draw_portions(block: RankingBlock, shares: Floats, rng: np.random.Generator) -> Floats:
    """(n_parts, n_rankings): the weight of each row in each part.

    A row of integer weight w is divided as w rankings would be. A row of any other weight, and all rows of a
    group, go to one part undivided.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[1000, 0.5])
    >>> parts = draw_portions(block, np.array([0.8, 0.2]), np.random.default_rng(0))
    >>> parts.sum(axis=0).tolist()
    [1000.0, 0.5]
    """
    weights = block.row_weights
    if block.groups is not None:
        return _undivided(weights, np.cumsum(block.group_starts) - 1, shares, rng)
    whole = np.flatnonzero((weights == np.floor(weights)) & (weights < 2**53))
    rest = np.setdiff1d(np.arange(block.n_rankings), whole)
    portions = np.zeros((len(shares), block.n_rankings))
    portions[:, whole] = rng.multinomial(weights[whole].astype(np.int64), shares).T
    portions[:, rest] = _undivided(weights[rest], np.arange(len(rest)), shares, rng)
    return portions


def _undivided(weights: Floats, unit: NDArray[np.int64], shares: Floats, rng: np.random.Generator) -> Floats:
    """(n_parts, n_rows): each unit of rows goes to one part. `unit` has the number of each row's unit."""
    part = np.searchsorted(np.cumsum(shares)[:-1], rng.random(int(unit.max(initial=-1)) + 1), side="right")
    portions = np.zeros((len(shares), len(weights)))
    portions[part[unit], np.arange(len(weights))] = weights
    return portions


def sample_rows(block: RankingBlock, share: float, rng: np.random.Generator) -> RankingBlock:
    """About this share of the rows, in their order. A row of integer weight w is thinned as w rankings would be.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1]] * 50 + [[1, 0]] * 50)
    >>> sample_rows(block, 0.1, np.random.default_rng(0)).n_rankings
    10
    """
    if share >= 1:
        return block
    if block.weights is None and block.groups is None:
        # Round up or down at random, so that each row has the same chance of being drawn.
        n_rows = int(np.floor(share * block.n_rankings + rng.random()))
        return block.take(np.sort(rng.choice(block.n_rankings, n_rows, replace=False)))
    weights = draw_portions(block, np.array([share, 1 - share]), rng)[0]
    kept = np.flatnonzero(weights)
    return block.take(kept).replace(weights=weights[kept])


def thinned(block: RankingBlock, n_rankings: float, rng: np.random.Generator) -> RankingBlock:
    """About this many rankings, or all rows if there are fewer. An integer weight w counts as w rankings.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[1000.0, 3000.0])
    >>> thinned(block, 400, np.random.default_rng(0)).total_weight
    393.0
    """
    is_counts = block.weights is not None and bool((block.weights == np.floor(block.weights)).all())
    part = sample_rows(block, n_rankings / (block.total_weight if is_counts else block.n_rankings), rng)
    return part if part.n_rankings else block


# Random streams keyed by seed, purpose and place, so that results do not depend on the order of the work.


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """The stream of random numbers for one purpose and place, such as ("rankings", leaf number).

    Examples
    --------
    >>> bool(generator(0, "rankings", 7).random() == generator(0, "rankings", 7).random())
    True
    >>> bool(generator(0, "rankings", 7).random() == generator(0, "rankings", 8).random())
    False
    """
    spawn_key = (zlib.crc32(purpose.encode()), *key)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=spawn_key)))


# Parts of the rows of a leaf, such as the rows outside a fold: drawn inside the leaf, so that no data are copied.


class Division(NamedTuple):
    """A random division of all rows into parts. Random numbers are keyed by seed, purpose and leaf."""

    purpose: str  # Names the stream of random numbers. "split" gives the parts that `split` writes
    shares: tuple[float, ...]  # The expected share of each part; they sum to 1
    seed: int  # The seed


class RowPart(NamedTuple):
    """Which rows of every leaf a statistic takes."""

    division: Division | None = None  # How rows are divided; None for all rows
    numbers: tuple[int, ...] = ()  # The parts of the division that are taken together
    # The name of a treatment by which rows with ties become linear extensions; all of a row are in the same part
    extended_by: str = ""


def rows_of_part(part: RowPart | None, leaf: int, block: RankingBlock) -> RankingBlock:
    """The rows of a part, with their weights in it. A row of integer weight w is divided as w rankings would be.

    Examples
    --------
    >>> from plmix_dist.rankings.block import RankingBlock
    >>> block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[1000.0, 3.0])
    >>> halves = Division("folds", (0.5, 0.5), seed=0)
    >>> parts = [rows_of_part(RowPart(halves, (number,)), 0, block) for number in (0, 1)]
    >>> parts[0].total_weight + parts[1].total_weight
    1003.0
    """
    if part is None:
        return block
    last = _LastLeaf.of_thread(leaf, block)
    if part not in last.parts:
        last.parts[part] = last.taken(part)
    return last.parts[part]


class _LastLeaf(threading.local):
    """Parts of the leaf that this thread worked on last: many fits of a pass ask for the same ones."""

    leaf: int
    block: RankingBlock | None = None
    parts: dict[RowPart, RankingBlock]
    portions: dict[Division, Floats]

    @staticmethod
    def of_thread(leaf: int, block: RankingBlock) -> _LastLeaf:
        if _LAST.block is not block or _LAST.leaf != leaf:
            _LAST.leaf, _LAST.block, _LAST.parts, _LAST.portions = leaf, block, {}, {}
        return _LAST

    def taken(self, part: RowPart) -> RankingBlock:
        block, division = self.block, part.division
        assert block is not None
        if division is not None:
            if division not in self.portions:
                rng = generator(division.seed, division.purpose, self.leaf)
                self.portions[division] = draw_portions(block, np.array(division.shares), rng)
            weights = self.portions[division][list(part.numbers)].sum(axis=0)
            chosen = np.flatnonzero(weights)
            weighted = block.weights is not None
            block = block.take(chosen)
            if weighted:
                block = block.replace(weights=weights[chosen])
        return TIES[part.extended_by].extended(block).block if part.extended_by and block.has_ties else block


_LAST = _LastLeaf()
