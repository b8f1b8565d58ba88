"""simulate: one stream of random numbers for each leaf."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmix_dist import simulate
from plmix_dist.datasets import simulate as simulation
from plmix_dist.errors import StoreExistsError
from plmix_dist.rankings import sampling as randomness

Stream = tuple[int, str, tuple[int, ...]]


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[Stream]]:
    """Notes the streams of random numbers that a module asks for."""

    def noted_in(module: Any) -> list[Stream]:
        noted: list[Stream] = []

        def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
            noted.append((seed, purpose, key))
            return randomness.generator(seed, purpose, *key)

        monkeypatch.setattr(module, "generator", generator)
        return noted

    return noted_in


def test_simulate__one_stream_per_leaf(
    tmp_path: Path, streams: Callable[[Any], list[Stream]], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = streams(simulation)
    monkeypatch.setattr(simulation, "_PARTITION_ENTRIES", 60)
    store = simulate(tmp_path / "a", n_rankings=100, n_items=3, leaf_rows=10, random_state=7)
    assert store.n_partitions > 1
    assert sorted(noted) == [(7, "mixture", ()), *((7, "rankings", (leaf,)) for leaf in range(10))]


@pytest.mark.parametrize("other", [{"random_state": 8}, {"n_items": 4}])
def test_simulate__never_over_the_parameters_of_another_store(tmp_path: Path, other: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"n_rankings": 20, "n_items": 3, "random_state": 7}
    simulate(tmp_path / "a", **settings)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(StoreExistsError, match=r"a\.truth already holds other parameters"):
        simulate(tmp_path / "a", **(settings | other))
    assert simulate(tmp_path / "a", **settings).n_rankings == 20
