"""Clients and blocks that several tests of starts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from distributed import Client, LocalCluster

from plmix_dist.rankings.simulate import draw_rankings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist import RankingBlock

    Table = NDArray[np.float64]


@pytest.fixture(scope="module")
def single_worker() -> Iterator[Client]:
    """A cluster of one worker with two threads, in this process to save the start of another."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def pair_block() -> RankingBlock:
    """Rankings of three components that fill two blocks of rows and part of a third."""
    rng = np.random.default_rng(11)
    return draw_rankings(rng.normal(0, 2, (3, 14)), np.array([0.5, 0.3, 0.2]), 9_000, rng)[0]
