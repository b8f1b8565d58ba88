"""Passes in threads: what is read, and how many threads there are."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from plmix_dist.datasets.given import as_rankings
from plmix_dist.kernels import EmStatistics, Prepared, em_statistics, prepare
from plmix_dist.passes import Aggregation, Finish, Passes, Request, ThreadedPasses
from plmix_dist.rankings import RankingBlock
from tests.helpers.fit_oracle import block_of, random_rows

N_ITEMS, N_ROWS, LEAF_ROWS, N_COMPONENTS = 6, 150, 4, 3


ROWS = random_rows(17, N_ITEMS, N_ROWS)


LOG_WORTHS = np.random.default_rng(18).normal(size=(N_COMPONENTS, N_ITEMS))


LOG_SHARES = np.log([0.5, 0.3, 0.2])


def e_step_leaf(number: int, block: RankingBlock, prepared: Prepared) -> EmStatistics:
    return em_statistics(block, prepared, with_rates=True)


def prepare_both(params: tuple[Any, Any]) -> Prepared:
    return prepare(*params)


def total_wins(total: EmStatistics, component: int) -> float:
    return float(total.wins[component].sum())


def whole(total: Any) -> Any:
    return total


E_STEP = Aggregation("e-step", leaf=e_step_leaf, prepare=prepare_both)


FINISH = (
    Finish("summary", whole),
    *(Finish(f"m-step-{k}", partial(total_wins, component=k)) for k in range(N_COMPONENTS)),
)


REQUEST = Request(E_STEP, (LOG_WORTHS, LOG_SHARES), FINISH)


def bits_of(value: Any) -> Any:
    return [np.asarray(part).tobytes() for part in value]


def bits(passes: Passes) -> list[bytes]:
    """The bits of all statistics of one pass."""
    (answer,) = passes.run([REQUEST])
    return bits_of(answer.results[0])


def number_in_list(number: int, block: RankingBlock, params: Any) -> list[int]:
    return [number]


NUMBERS = Aggregation("numbers", leaf=number_in_list, combine=operator.add)


class CountingLeaves:
    """A source of leaves in memory that counts how often each was asked for."""

    def __init__(self, decoded_bytes: float) -> None:
        self.block = block_of(ROWS, N_ITEMS)
        self.n_leaves = 5
        self.n_entries = 1_000_000
        self.decoded_bytes = decoded_bytes
        self.n_reads = [0] * 5

    def iter_leaves(self, start: int = 0, stop: int | None = None, *, labels: bool = True) -> Iterator[RankingBlock]:
        assert not labels, "a pass needs no ids"
        for leaf in range(start, self.n_leaves if stop is None else stop):
            self.n_reads[leaf] += 1
            yield self.block[leaf * 30 : (leaf + 1) * 30]


@pytest.mark.parametrize(
    ("residency", "decoded_bytes", "n_reads"),
    [("memory", 1e30, 1), ("store", 0.0, 3), ("auto", 1e30, 3), ("auto", 1.0, 1)],
)
def test_threaded_passes__residency(residency: Any, decoded_bytes: float, n_reads: int) -> None:
    source: Any = CountingLeaves(decoded_bytes)
    passes = ThreadedPasses(source, residency=residency, n_threads=2)
    found = {tuple(bits(passes)) for _ in range(3)}
    assert len(found) == 1
    assert source.n_reads == [n_reads] * 5


def test_threaded_passes__reads_what_is_asked_for() -> None:
    source: Any = CountingLeaves(1.0)
    passes = ThreadedPasses(source, residency="memory", n_threads=2)
    passes.run([Request(NUMBERS, leaves=(1, 4))])
    assert source.n_reads == [0, 1, 0, 0, 1]
    passes.run([Request(NUMBERS)])
    assert source.n_reads == [1] * 5
    passes.release()
    passes.run([Request(NUMBERS)])
    assert source.n_reads == [2] * 5


@pytest.mark.parametrize(("n_rows", "little"), [(50_000, True), (50_001, False)])
def test_threads__one_where_there_is_little_work(n_rows: int, little: bool) -> None:
    rankings = as_rankings(np.tile([[0, 1]], (n_rows, 1)))
    passes = ThreadedPasses(rankings)
    assert passes.n_threads == (1 if little else os.cpu_count())
    assert ThreadedPasses(rankings, n_threads=3).n_threads == 3
