"""Random division of rows into parts: counts are split, groups stay whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plmix_dist.rankings.block import RankingBlock


def draw_portions(
    block: RankingBlock, shares: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """(n_parts, n_rankings): the weight of each row in each part.

    A row of integer weight w is divided as w rankings would be. A row of any other weight, and all rows of a
    group, go to one part undivided.

    Parameters
    ----------
    shares : (n_parts,)
        Expected share of each part; they sum to 1.

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


def _undivided(
    weights: NDArray[np.float64],
    unit: NDArray[np.int64],
    shares: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """(n_parts, n_rows): each unit of rows goes to one part. `unit` has the number of each row's unit."""
    n_units = int(unit.max(initial=-1)) + 1
    part = np.searchsorted(np.cumsum(shares)[:-1], rng.random(n_units), side="right")
    portions = np.zeros((len(shares), len(weights)))
    portions[part[unit], np.arange(len(weights))] = weights
    return portions
