"""Random numbers and runs have keys of everything that matters: no two places share a stream, no two runs a store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ingest_helpers import write

from plmix_dist import PlackettLuceMixture, ingest, simulate, simulation, split, splitting
from plmix_dist.data import as_rankings
from plmix_dist.engine.threaded import ThreadedPasses
from plmix_dist.engine.waiting import Patience
from plmix_dist.errors import NotConvergedWarning, StoreExistsError
from plmix_dist.inference import look
from plmix_dist.rankings import randomness
from plmix_dist.starts import make_starts
from plmix_dist.store import lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    monkeypatch.setattr(simulation, "PARTITION_ENTRIES", 60)
    store = simulate(tmp_path / "a", n_rankings=100, n_items=3, leaf_rows=10, random_state=7)
    assert store.n_partitions > 1
    assert sorted(noted) == [(7, "mixture", ()), *((7, "rankings", (leaf,)) for leaf in range(10))]


def test_split__one_stream_per_leaf(tmp_path: Path, streams: Callable[[Any], list[Stream]]) -> None:
    store = simulate(tmp_path / "a", n_rankings=100, n_items=3, leaf_rows=10)
    noted = streams(splitting)
    split(store, {tmp_path / "b": 0.5, tmp_path / "c": 0.5}, random_state=7)
    assert sorted(set(noted)) == [(7, "split", (leaf,)) for leaf in range(10)]


def test_look__one_stream_per_leaf(streams: Callable[[Any], list[Stream]]) -> None:
    rankings = as_rankings(np.tile([[0, 1, 2]], (20_000, 1)))
    noted = streams(look)
    look.take_look(ThreadedPasses(rankings, n_threads=1), rankings, seed=7)
    n_leaves = rankings.n_leaves
    assert n_leaves > 3
    assert sorted(noted) == [*((7, "sample", (leaf,)) for leaf in range(n_leaves)), (7, "small-sample", ())]


@pytest.mark.filterwarnings(f"ignore::{NotConvergedWarning.__module__}.{NotConvergedWarning.__name__}")
def test_random_starts__one_stream_per_start(streams: Callable[[Any], list[Stream]]) -> None:
    noted = streams(make_starts)
    rows = np.argsort(np.random.default_rng(0).random((60, 4)), axis=1)
    PlackettLuceMixture(2, init="random", n_init=3, random_state=7, max_iter=2).fit(rows)
    assert sorted(noted) == [(7, "start", (number,)) for number in range(3)]


TEXT = "id,first,second\n1,tea,mate\n2,mate,tea\n2,mate,tea\n"


@pytest.mark.parametrize(
    "options",
    [
        {"unranked": "below"},
        {"on_error": "drop"},
        {"merge": True},
        {"columns": {"id": "id"}},
        {"delimiter": ","},
        {"item_names": ["tea", "mate", "milk"]},
        {"leaf_rows": 8192},
        {"chunk_bytes": 1 << 12},
    ],
    ids=lambda options: next(iter(options)),
)
def test_ingest__each_setting_makes_another_run(tmp_path: Path, options: dict[str, Any]) -> None:
    source = write(tmp_path / "a.csv", TEXT.replace("id,", "").replace("1,", "").replace("2,", ""))
    if "columns" in options:
        source = write(tmp_path / "a.csv", TEXT)
    ingest(source, tmp_path / "store")
    assert ingest(source, tmp_path / "store").n_rankings == 3  # the same again: nothing to do
    with pytest.raises(StoreExistsError, match="already holds another store"):
        ingest(source, tmp_path / "store", **options)


def test_patience__how_often_to_look_and_to_report() -> None:
    assert (Patience(600, 60, 30).look_every, Patience(600, 60, 30).report_every) == (2.0, 5.0)
    assert (Patience(4, 60, 30).look_every, Patience(4, 60, 30).report_every) == (1.0, 1.0)
    assert Patience(600, 2, 30).look_every == 0.5
    assert Patience(600, 60, 1).look_every == 0.25


def test_lease__is_renewed_often_enough() -> None:
    # Two renewals may fail or be late before the lease ends.
    assert 3 * lock.RENEW_SECONDS < lock.LEASE_SECONDS
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return True

    lock._Lease.keep_renewing(SimpleNamespace(), SimpleNamespace(wait=wait))  # type: ignore[arg-type]
    assert waits == [lock.RENEW_SECONDS]
