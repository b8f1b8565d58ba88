"""Edges of stores: odd signs in rejected rows, partitions that differ, appends and crashes between two steps."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest
from ingest_helpers import labels_of, write
from oracle import all_damage, plan_for, snapshot, write_store

from plmix_dist import ingest, open_store
from plmix_dist.errors import StoreAccessError, StoreError, StoreExistsError
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.portions import draw_portions
from plmix_dist.store import Location, RankingStore, RejectedRows, WriteSession, write_partition
from plmix_dist.store.manifest import PLAN

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]])


@pytest.mark.promise(19)
@pytest.mark.parametrize("sign", ["\n", "\r", "\x0b", "\x1c", "\x85", "\u2028", "\u2029", "한", '"', "\\"])
def test_rejected_rows__any_sign_comes_back(tmp_path: Path, sign: str) -> None:
    rejected = RejectedRows()
    rejected.add("syntax", {"text": f"tea{sign}mate", "line": 3})
    rejected.add("empty", {"line": 4})
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 1)) as session:
        write_partition(session.pending()[0], [BLOCK], rejected)
        store = session.finalise()
    first, second = store.rejected_rows()
    assert first["text"] == f"tea{sign}mate"
    assert second["line"] == 4


def test_components__of_all_partitions_or_none(tmp_path: Path) -> None:
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 2)) as session:
        first, second = session.pending()
        write_partition(first, [(BLOCK, np.array([0, 1]))])
        write_partition(second, [BLOCK])
        assert session.finalise().components() is None


def test_append__counts_generations(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [[BLOCK]])
    assert store.manifest.generation == 1
    for generation in (2, 3):
        store = write_store(tmp_path / "store", [[BLOCK]], append=True, name=f"append {generation}")
        assert store.manifest.generation == generation
        assert len(store.manifest.history) == store.n_partitions == generation


def test_append__after_a_crash_between_publishing_and_tidying(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "store")
    with WriteSession.begin(place, plan_for(3, 1)) as session:
        write_partition(session.pending()[0], [BLOCK])
        plan = place.read_bytes(PLAN)
        session.finalise()
    # As if the writer had been killed after it published its manifest, before it removed its plan.
    place.write_bytes(PLAN, plan)
    store = write_store(place, [[BLOCK]], append=True, name="more")
    assert store.n_rankings == 4
    assert not place.exists(PLAN)
    assert all_damage(open_store(place)) == []


@pytest.mark.promise(13)
@pytest.mark.parametrize(("factor", "is_damage"), [(1 + 1e-6, True), (1 + 1e-9, True), (1 + 1e-15, False)])
def test_verify__weights_that_do_not_add_up(tmp_path: Path, factor: float, is_damage: bool) -> None:
    weighted = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]], weights=[1.5, 2.5])
    store = write_store(tmp_path / "store", [[weighted]])
    summary = dataclasses.replace(store.manifest.partitions[0], total_weight=4.0 * factor)
    claimed = RankingStore(store.location, dataclasses.replace(store.manifest, partitions=[summary]))
    assert [damage.kind for damage in all_damage(claimed)] == (["count"] if is_damage else [])


@pytest.mark.parametrize("weight", [2.0**53, 2.0**60, 2.0**70, 0.5])
def test_portions__weights_beyond_counts_stay_whole(weight: float) -> None:
    block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[weight, 1000.0])
    parts = draw_portions(block, np.array([0.5, 0.5]), np.random.default_rng(0))
    assert sorted(parts[:, 0].tolist()) == [0.0, weight]
    assert parts[:, 1].sum() == 1000
    assert 400 < parts[0, 1] < 600


@pytest.mark.promise(11)
def test_groups__that_go_on_in_the_next_block_stay_in_one_leaf(tmp_path: Path) -> None:
    groups = [np.array([1, 1, 2, 2]), np.array([2, 2, 3, 3]), np.array([3, 4, 4, 4])]
    rows = RankingBlock.from_array([[0, 1, 2]] * 4)
    store = write_store(tmp_path / "store", [[rows.replace(groups=part) for part in groups]], leaf_rows=3)
    leaves = [leaf.groups.tolist() for leaf in store.iter_leaves() if leaf.groups is not None]
    assert [group for leaf in leaves for group in leaf] == [1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    homes = {group: {number for number, leaf in enumerate(leaves) if group in leaf} for group in (1, 2, 3, 4)}
    assert all(len(numbers) == 1 for numbers in homes.values())
    assert len(leaves) > 1


def test_append__numbers_become_text_where_the_store_has_text(tmp_path: Path) -> None:
    first = write(tmp_path / "a.csv", "id,p1,p2\na,tea,mate\nb,mate,tea\n")
    more = write(tmp_path / "b.csv", "id,p1,p2\n7,tea,mate\n")
    ingest(first, tmp_path / "store")
    store = ingest(more, tmp_path / "store", append=True)
    assert labels_of(store, "ids") == ["a", "b", "7"]
    # The new partition is written as text too, not turned into text when it is read.
    assert [sorted(name for name in store.index(number).columns if "ids" in name) for number in (0, 1)] == [
        ["ids_lengths", "ids_utf8"]
    ] * 2


@pytest.mark.promise(16)
@pytest.mark.parametrize("append", [False, True])
def test_ingest__place_is_tried_before_rows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    source = write(tmp_path / "a.csv", "p1,p2\ntea,mate\nmate,tea\n")
    if append:
        ingest(source, tmp_path / "store")
        source = write(tmp_path / "b.csv", "p1,p2\ntea,mate\n")

    def refuse(self: Location) -> None:
        raise StoreAccessError(f"cannot write {self.url}")

    monkeypatch.setattr(Location, "check_writable", refuse)
    with pytest.raises(StoreAccessError, match=r"cannot write .*store"):
        ingest(source, tmp_path / "store", append=append)


def test_begin__beside_partitions_of_nobody(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [[BLOCK]])
    (tmp_path / "store/manifest.json").unlink()
    before = snapshot(tmp_path / "store")
    # They may be the last copy of someone's data.
    with pytest.raises(StoreExistsError, match=r"partitions/p000000 exists already, and no manifest or plan"):
        write_store(tmp_path / "store", [[BLOCK]], name="another")
    assert snapshot(tmp_path / "store") == before


def test_abandoned__a_late_worker_publishes_nothing(tmp_path: Path) -> None:
    place = Location.of(tmp_path / "store")
    with WriteSession.begin(place, plan_for(3, 1)) as session:
        (late,) = session.pending()
        session.abandon()
        with pytest.raises(StoreError, match="was abandoned; partition 0 is not published"):
            write_partition(late, [BLOCK])
    assert place.listing() == []
