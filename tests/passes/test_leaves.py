"""Leaves of blocks, stores and Dask arrays: parts leave others behind."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from plmix_dist.datasets.given import as_rankings
from plmix_dist.datasets.plan import _ARRAY_PARTITION_ENTRIES
from plmix_dist.passes.dask_leaves import DaskLeaves, row_blocks
from plmix_dist.passes.rankings import Rankings
from plmix_dist.store import open_store
from tests.helpers.fit_oracle import block_of, random_rows
from tests.helpers.oracle import write_store

N_ITEMS, N_ROWS, LEAF_ROWS, N_COMPONENTS = 6, 150, 4, 3


ROWS = random_rows(17, N_ITEMS, N_ROWS)


def whole(total: Any) -> Any:
    return total


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of many tiny leaves in two partitions."""
    path = tmp_path_factory.mktemp("passes") / "store"
    block = block_of(ROWS, N_ITEMS)
    write_store(path, [[block[:88]], [block[88:]]], leaf_rows=LEAF_ROWS, chunk_bytes=1 << 16)
    return path


@pytest.fixture
def rankings(store_path: Path) -> Rankings:
    return as_rankings(open_store(store_path))


def many_rows(kind: str) -> Any:
    """Eight leaves of rows, in memory or as a Dask array."""
    table = np.argsort(np.random.default_rng(0).random((8 * 4096, 5)), axis=1)
    return table if kind == "array" else da.from_array(table, chunks=(4096, 5))


def test_only__leaves_others_behind() -> None:
    weights = np.random.default_rng(1).random(8 * 4096)
    whole = as_rankings(many_rows("array"), sample_weight=weights)
    assert whole.n_leaves == 8
    of_all, of_one = (len(pickle.dumps(rankings)) for rankings in (whole, whole.only(2, 3)))
    assert of_one <= of_all / 8 + 1_000


def test_lazy_rows__leave_others_behind() -> None:
    weights = np.random.default_rng(1).random(8 * 4096)
    whole = as_rankings(many_rows("Dask array"), n_items=5, sample_weight=weights)
    lazy = whole.lazy_rows(2, 3)
    assert lazy is not None
    assert lazy.array.shape == (4096, 5)
    assert len(pickle.dumps(lazy.leaves_of)) <= 8 * 4096 + 2_000


def test_only__part_of_a_store_names_its_own_partitions(tmp_path: Path) -> None:
    block = block_of(ROWS, N_ITEMS)
    partitions = [[block[start : start + 2]] for start in range(0, N_ROWS, 2)]
    store = write_store(tmp_path / "s", partitions, leaf_rows=1, chunk_bytes=1 << 16)
    whole = as_rankings(store)
    part = whole.only(51, 54)
    # 75 partitions and 150 leaves are behind, of which a task needs 3 and 3.
    assert len(pickle.dumps(part)) < len(pickle.dumps(store)) / 5
    again = pickle.loads(pickle.dumps(part))
    for start, stop in ((51, 54), (52, 53), (53, 54)):
        mine, theirs = list(again.iter_leaves(start, stop)), list(whole.iter_leaves(start, stop))
        assert len(mine) == stop - start
        assert all(one.equals(other) for one, other in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("kind", ["array", "Dask array"])
def test_only__same_rows_and_weights(kind: str) -> None:
    weights = np.random.default_rng(1).random(8 * 4096)
    whole = as_rankings(many_rows(kind), n_items=5, sample_weight=weights)
    lazy = whole.lazy_rows(3, 5)
    part = whole.only(3, 5) if lazy is None else lazy.leaves_of(lazy.array.compute(scheduler="synchronous"))
    mine = list(part.iter_leaves(3, 5))
    theirs = list(as_rankings(many_rows("array"), sample_weight=weights).iter_leaves(3, 5))
    assert [block.n_rankings for block in mine] == [4096, 4096]
    assert all(one.equals(other) for one, other in zip(mine, theirs, strict=True))
    assert next(part.iter_leaves(4, 5)).equals(theirs[1])
    assert math.fsum(block.total_weight for block in mine) == pytest.approx(weights[3 * 4096 : 5 * 4096].sum())


@pytest.mark.parametrize("n_items", [5, 256, 257, 1000])
def test_dask_leaves__bytes_of_blocks(n_items: int) -> None:
    table = np.argsort(np.random.default_rng(0).random((100, n_items)), axis=1)[:, :5]
    leaves = DaskLeaves(da.from_array(table), n_items, "below")
    (block,) = leaves.iter_leaves()
    # Rows may come with weights.
    n_bytes = block.replace(weights=np.ones(100)).nbytes
    assert n_bytes <= leaves.decoded_bytes <= 1.1 * n_bytes


@pytest.mark.parametrize(("n_rows", "n_partitions"), [(2**21, 1), (2**21 + 1, 2)])
def test_arrays__four_million_entries_per_partition(n_rows: int, n_partitions: int) -> None:
    array = np.broadcast_to(np.int8(0), (n_rows, 2))
    blocks = row_blocks(array, _ARRAY_PARTITION_ENTRIES)
    assert [block.first_row for block in blocks] == [0, 2**21][:n_partitions]
    assert sum(block.n_rows for block in blocks) == n_rows
