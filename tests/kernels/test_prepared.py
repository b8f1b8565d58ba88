"""Memory that a thread uses again: when rooms are the same, when they are new, and that results never lie in them."""

from __future__ import annotations

import threading

import numpy as np

from plmix_dist.kernels import em_statistics, prepare, row_posteriors
from plmix_dist.kernels.prepared import _MOST_KEPT_BYTES, Workspace, address
from tests.helpers.fit_oracle import block_of, random_rows


def test_rooms__same_memory_as_long_as_it_is_large_enough() -> None:
    workspace = Workspace()
    first = workspace.empty("a", 100)
    assert first.array.shape == (100,)
    assert address(first.array) == first.address
    assert workspace.empty("a", 60).address == first.address
    assert workspace.empty("b", 60).address != first.address
    larger = workspace.empty("a", 1_000)
    assert larger.array.shape == (1_000,)
    assert workspace.empty("a", 100).address == larger.address


def test_rooms__aligned_and_of_any_type() -> None:
    workspace = Workspace()
    for number, dtype in enumerate((np.float64, np.int32, np.uint8) * 5):
        room = workspace.zeros(f"room {number}", 7 + number, dtype)
        assert room.address % 64 == 0
        assert room.array.dtype == dtype
        assert not room.array.any()


def test_rooms__very_large_ones_are_not_kept() -> None:
    workspace = Workspace()
    large = workspace.empty("a", _MOST_KEPT_BYTES // 8 + 1)
    assert workspace.empty("a", 10).array.base is not large.array.base


def test_workspace__one_per_thread() -> None:
    found: list[Workspace] = []
    threads = [threading.Thread(target=lambda: found.append(Workspace.of_thread())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Workspace.of_thread() is Workspace.of_thread()
    assert len({id(workspace) for workspace in (*found, Workspace.of_thread())}) == 3


def test_results__not_in_the_workspace() -> None:
    # With one component, or as many as lanes, a slice may be contiguous already.
    for n_items, n_components, n_rows in ((2, 1, 1), (4, 4, 9), (45, 1, 5), (44, 4, 5)):
        params = prepare(np.zeros((n_components, n_items)), np.log(np.full(n_components, 1 / n_components)))
        block = block_of(random_rows(n_rows, n_items, n_rows), n_items)
        results = [*em_statistics(block, params, with_rates=True), *em_statistics(block, params, params)]
        results += row_posteriors(block, params)
        rooms = [room.array for room in Workspace.of_thread()._kept.values()]
        assert not any(np.shares_memory(result, room) for result in results for room in rooms)


def test_blocks__shorter_ones_after_longer_ones() -> None:
    # What a longer block left in the workspace must not show in a shorter one.
    n_items = 45
    params = prepare(np.random.default_rng(0).normal(size=(5, n_items)), np.log(np.full(5, 0.2)))
    block = block_of(random_rows(5, n_items, 40), n_items)
    before = em_statistics(block[:3], params, with_rates=True)
    em_statistics(block, params, params, with_rates=True)
    for mine, theirs in zip(before, em_statistics(block[:3], params, with_rates=True), strict=True):
        assert np.array_equal(mine, theirs)
