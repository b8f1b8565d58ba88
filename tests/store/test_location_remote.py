"""Stores behind a URL: a mock S3 server on loopback, and fsspec's memory."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import pytest

import plmix_dist
from plmix_dist import open_store
from plmix_dist.cluster.executor import ThreadedExecutor, _DistributedExecutor
from plmix_dist.datasets import simulate as simulation
from plmix_dist.errors import (
    DamagedStoreError,
    SettingsError,
    StoreExistsError,
    StoreLockedError,
    StoreNotFoundError,
    UnfinishedStoreError,
)
from plmix_dist.store import Location, WriteSession, write_partition
from plmix_dist.store.lock import is_lock
from plmix_dist.store.mixture import MixtureParams
from tests.helpers.oracle import PlainRankings, all_damage, full, index_digests, plain, plan_for, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client


# Two columns of one chunk each, because every file costs one or two requests.
PLAIN = PlainRankings(3, [full(0, 1, 2), full(2, 1, 0), full(1, 2, 0), full(2, 0, 1)])


@pytest.fixture(params=["s3", "memory"])
def place(request: pytest.FixtureRequest) -> Location:
    """An empty location behind a URL of either kind."""
    found: Location = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "_PARTITION_ENTRIES", 1 << 11)


def test_cycle__write_read_append_verify(place: Location) -> None:
    block = PLAIN.block()
    with pytest.raises(StoreNotFoundError, match=f"no store at {place.url}"):
        open_store(place)
    write_store(place, [[block[:3]]])
    old = open_store(place)
    assert plain(old.block()) == PLAIN.pick(range(3))
    write_store(place, [[block[3:]]], append=True, name="more")
    new = open_store(place)
    assert plain(new.block()) == PLAIN
    assert plain(old.block()) == PLAIN.pick(range(3))
    assert (new.manifest.generation, new.n_partitions) == (2, 2)
    assert all_damage(new) == []
    assert [key for key in place.listing() if key.startswith("wip")] == []


def test_cycle__same_bytes_as_on_local_disk(tmp_path: Path, place: Location, every_column: PlainRankings) -> None:
    block = every_column.block()
    remote = write_store(place, [[block[:7], block[7:]]])
    local = write_store(tmp_path / "store", [[block[:7], block[7:]]])
    assert index_digests(remote) == index_digests(local)
    assert place.listing() == local.location.listing()
    different = [
        key
        for key in place.listing()
        if key != "manifest.json" and place.read_bytes(key) != local.location.read_bytes(key)
    ]
    assert different == []


def test_cycle__rerun_unfinished_and_another_plan(place: Location) -> None:
    block = PLAIN.block()
    with WriteSession.begin(place, plan_for(3, 2)) as session:
        write_partition(session.pending()[1], [block[3:]])
    with pytest.raises(UnfinishedStoreError, match=r"unfinished \(partitions not written: 0\)"):
        open_store(place)
    finished = write_store(place, [[block[:3]], [block[3:]]])
    assert plain(finished.block()) == PLAIN
    before = {key: place.read_bytes(key) for key in place.listing()}
    assert write_store(place, [[block]] * 2).manifest == finished.manifest
    with pytest.raises(StoreExistsError, match="already holds another store, of 4 rankings"):
        write_store(place, [[block]], name="other")
    assert {key: place.read_bytes(key) for key in place.listing()} == before


@pytest.mark.promise(13)
def test_damage__found(place: Location) -> None:
    write_store(place, [[PLAIN.block()]])
    key = "partitions/p000000/items/c/0"
    data = place.read_bytes(key)
    for found, kind, message in (
        (bytes([data[0] ^ 4]) + data[1:], "altered", "was altered"),
        (data[:-1], "truncated", f"has {len(data) - 1} bytes where {len(data)} were written"),
        (None, "missing", "is missing"),
    ):
        place.remove(key) if found is None else place.write_bytes(key, found)
        store = open_store(place)
        with pytest.raises(DamagedStoreError, match=f"{place.url}/{key} {message}.*array items, chunk 0"):
            store.block()
        assert [(damage.kind, damage.key) for damage in all_damage(store)] == [(kind, key)]
    place.write_bytes(key, data)
    place.write_bytes("partitions/p000000/stray", b"stray")
    place.remove("partitions/zarr.json")
    damage = {(found.kind, found.key) for found in all_damage(open_store(place))}
    assert damage == {("missing", "partitions/zarr.json"), ("extra", "partitions/p000000/stray")}


@pytest.mark.promise(14)
def test_damage__index_missing(place: Location) -> None:
    write_store(place, [[PLAIN.block()]])
    place.remove("partitions/p000000/index.json")
    store = open_store(place)
    with pytest.raises(DamagedStoreError, match=r"p000000/index\.json is missing: partition 0 is lost"):
        store.block()
    assert [damage.kind for damage in all_damage(store)] == ["missing"]


@pytest.mark.promise(17)
def test_lease__second_writer_refused_and_stale_one_forgotten(place: Location) -> None:
    with WriteSession.begin(place, plan_for(3, 1)):
        with pytest.raises(StoreLockedError, match=f"is writing to {place.url}"):
            write_store(place, [[PLAIN.block()]])
        (key,) = (key for key in place.listing("wip") if is_lock(key))
        lease = json.loads(place.read_bytes(key))
        place.write_bytes(key, json.dumps(lease | {"renewed": lease["renewed"] - 61}).encode())
        assert write_store(place, [[PLAIN.block()]]).n_rankings == 4
    assert place.listing("wip") == []


@pytest.mark.promise(33)
@pytest.mark.parametrize("key", ["../x", "/x", "a/../../x"])
def test_keys__never_leave_the_root(place: Location, key: str) -> None:
    for action in (place.read_bytes, place.exists, place.remove, place.child, place.listing):
        with pytest.raises(SettingsError, match="is not a key of a store"):
            action(key)
    with pytest.raises(SettingsError, match="is not a key of a store"):
        place.write_bytes(key, b"")


def test_listing__of_a_prefix_that_is_not_there(place: Location) -> None:
    assert place.listing() == []
    place.write_bytes("ab/c", b"")
    assert place.listing("a") == []
    place.remove("a")
    assert place.listing() == ["ab/c"]


@pytest.mark.usefixtures("small_partitions")
def test_simulate__from_threads_and_from_processes(tmp_path: Path, s3_place: Location, client: Client) -> None:
    settings = {"n_rankings": 500, "n_items": 5, "n_components": 2, "leaf_rows": 64, "random_state": 4}
    digests = {}
    for name, executor in {"threads": ThreadedExecutor(4), "processes": _DistributedExecutor(client)}.items():
        place = Location(f"{s3_place.url}-{name}", s3_place.storage_options)
        store = plmix_dist.simulate(place, executor=executor, **settings)
        assert store.n_partitions > 1
        assert store.n_rankings == 500
        assert MixtureParams.load(place.sibling(".truth")).n_components == 2
        digests[name] = index_digests(store)
    local = plmix_dist.simulate(tmp_path / "store", **settings)
    assert digests["threads"] == digests["processes"] == index_digests(local)


@pytest.mark.usefixtures("small_partitions")
def test_pickle__takes_what_is_needed_to_reach_the_place(s3_place: Location, client: Client) -> None:
    store = plmix_dist.simulate(s3_place, n_rankings=100, n_items=4)
    store.block()
    assert pickle.loads(pickle.dumps(store)).block().equals(store.block())
    there = client.submit(lambda opened: opened.block().to_array().tolist(), store).result()
    assert there == store.block().to_array().tolist()


def test_open_store__by_url_and_options(s3_place: Location) -> None:
    write_store(s3_place, [[PLAIN.block()]])
    assert plain(open_store(s3_place.url, s3_place.storage_options).block()) == PLAIN
