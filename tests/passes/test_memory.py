"""Whether rows stay in memory, and sizes that do not fit into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plmix_dist.errors import SettingsError
from plmix_dist.passes import memory as memory_needed
from plmix_dist.passes.dask import _cut_into_parts
from plmix_dist.passes.memory import fits_every_worker, stays_in_memory
from plmix_dist.rankings import RankingBlock
from tests.helpers.fit_oracle import block_of, random_rows

N_ITEMS, N_ROWS, LEAF_ROWS, N_COMPONENTS = 6, 150, 4, 3


ROWS = random_rows(17, N_ITEMS, N_ROWS)


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
    ("limits", "stays"), [((1e9, 1e9), True), ((1e9, 1.2e8), False), ((1.2e8, 1e9), False), ((1.4e8, 1.4e8), True)]
)
def test_residency__holds_for_every_worker(limits: tuple[float, float], stays: bool) -> None:
    # 100 MB, half of them for each worker, which may take 40 % of its memory.
    source: Any = CountingLeaves(1e8)
    source.n_leaves = 100
    workers = {
        address: {"nthreads": 1, "memory_limit": limit, "host": "here"}
        for address, limit in zip("ab", limits, strict=True)
    }
    assert fits_every_worker("auto", source, _cut_into_parts(100, workers), workers) == stays
    assert fits_every_worker("memory", source, _cut_into_parts(100, workers), workers)
    assert not fits_every_worker("store", source, _cut_into_parts(100, workers), workers)


def test_residency__workers_without_a_limit_share_their_machine() -> None:
    import psutil

    source: Any = CountingLeaves(0.6 * psutil.virtual_memory().available)
    workers = {name: {"nthreads": 1, "memory_limit": 0, "host": "here"} for name in "abcd"}
    # Dask says 0 where a worker may use whatever there is; that is not no memory at all.
    assert not fits_every_worker("auto", source, _cut_into_parts(5, workers), workers)
    source.decoded_bytes /= 6
    assert fits_every_worker("auto", source, _cut_into_parts(5, workers), workers)


@pytest.mark.parametrize(("decoded", "stays"), [(39.9e6, True), (40.1e6, False)])
def test_residency__four_tenths_of_memory(decoded: float, stays: bool) -> None:
    assert stays_in_memory("auto", decoded, 100e6) is stays
    assert stays_in_memory("memory", decoded, 1.0)
    assert not stays_in_memory("store", decoded, 1e12)


@pytest.mark.promise(34)
@pytest.mark.parametrize(
    ("sizes", "needed"),
    [((1000,), 400_000), ((1000, 3), 800_000), ((1000, 3, 5), 1_088_000)],
    ids=["items", "components", "starts"],
)
def test_memory__refused_beyond_what_is_free(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], needed: int
) -> None:
    # 200 bytes for each name, 200 for each worth, 24 for each further start of it.
    monkeypatch.setattr(memory_needed, "free_memory", lambda: float(needed))
    memory_needed.check_memory(*sizes)
    monkeypatch.setattr(memory_needed, "free_memory", lambda: needed - 1.0)
    with pytest.raises(SettingsError, match=r"1,000 items .*need at least [\d.e-]+ GB") as caught:
        memory_needed.check_memory(*sizes)
    message = str(caught.value)
    assert ("3 components" in message) == (len(sizes) > 1)
    assert ("5 starts" in message) == (len(sizes) > 2)
    assert ("number the items from 0" in message) == (len(sizes) == 1)


@pytest.mark.parametrize(
    ("n_components", "fits"), [(1, True), (4, True), (5, False)], ids=["one", "one vector", "two vectors"]
)
def test_memory__worths_that_int32_can_number(monkeypatch: pytest.MonkeyPatch, n_components: int, fits: bool) -> None:
    monkeypatch.setattr(memory_needed, "free_memory", lambda: 1e15)
    n_items = 2**29 - 1
    if fits:
        memory_needed.check_memory(n_items, n_components)
        with pytest.raises(SettingsError, match="more than can be fitted"):
            memory_needed.check_memory(n_items + 1, n_components)
        return
    with pytest.raises(SettingsError, match="more than can be fitted"):
        memory_needed.check_memory(n_items, n_components)
