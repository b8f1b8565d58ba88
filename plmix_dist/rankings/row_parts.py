"""Parts of the rows of a leaf, such as the rows outside a fold: drawn inside the leaf, so that no data are copied."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmix_dist.rankings.linear_extensions import extend_ties
from plmix_dist.rankings.portions import draw_portions
from plmix_dist.rankings.randomness import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings.block import RankingBlock


class Division(NamedTuple):
    """A random division of all rows into parts. Random numbers are keyed by seed, purpose and leaf.

    Parameters
    ----------
    purpose
        Names the stream of random numbers. "split" gives the parts that `split` writes.
    shares
        The expected share of each part; they sum to 1.
    seed
        The seed.
    """

    purpose: str
    shares: tuple[float, ...]
    seed: int


class RowPart(NamedTuple):
    """Which rows of every leaf a statistic takes.

    Parameters
    ----------
    division
        How rows are divided; None for all rows.
    numbers
        The parts of the division that are taken together.
    extends
        Whether rows with ties become linear extensions. All extensions of a row are in the same part.
    """

    division: Division | None = None
    numbers: tuple[int, ...] = ()
    extends: bool = False


def rows_of_part(part: RowPart | None, leaf: int, block: RankingBlock) -> RankingBlock:
    """The rows of a part, with their weights in it. A row of integer weight w is divided as w rankings would be.

    Parameters
    ----------
    part
        The part; None for all rows as they are.
    leaf
        The number of the leaf.
    block
        Its rows.

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
    portions: dict[Division, NDArray[np.float64]]

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
        return extend_ties(block).block if part.extends and block.has_ties else block


_LAST = _LastLeaf()
