"""Writing a store: second runs, unfinished runs, appending, and files of others that are left alone."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import ingest, open_store
from plmix_dist.errors import StoreAccessError, StoreError, StoreExistsError, UnfinishedStoreError
from plmix_dist.rankings import RankingBlock, concatenate
from plmix_dist.store import Location, RejectedRows, WriteSession, write_partition
from plmix_dist.store.manifest import PLAN
from tests.helpers.ingest_helpers import labels_of, write
from tests.helpers.oracle import all_damage, index_digests, plan_for, snapshot, write_store

if TYPE_CHECKING:
    from pathlib import Path


FIRST = RankingBlock.from_array([[0, 1, 2], [2, 1, 0], [1, 0, 2]])


SECOND = RankingBlock.from_array([[1, 2, 0], [2, 0, 1]], weights=[2.0, 0.5])


@pytest.mark.promise(40)
@pytest.mark.parametrize("append", [False, True])
def test_rerun__of_a_finished_plan_does_nothing(tmp_path: Path, append: bool) -> None:
    first = write_store(tmp_path / "store", [[FIRST], [SECOND]])
    before = snapshot(tmp_path)
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 2), append=append) as session:
        assert (session.already_done, session.pending()) == (True, [])
        assert session.finalise().manifest == first.manifest
    assert snapshot(tmp_path) == before


def test_another_plan__refused_where_a_store_is(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [[FIRST]])
    before = snapshot(tmp_path)
    with pytest.raises(StoreExistsError, match="store already holds another store, of 3 rankings"):
        write_store(tmp_path / "store", [[SECOND]], name="other")
    assert snapshot(tmp_path) == before


def test_another_plan__refused_where_one_is_unfinished(tmp_path: Path) -> None:
    begin_and_stop(tmp_path / "store", written=[0])
    with pytest.raises(UnfinishedStoreError, match="unfinished `ingest` with other leaf_rows, settings"):
        write_store(tmp_path / "store", [[FIRST]] * 3, name="other", leaf_rows=7)


@pytest.mark.parametrize("left_behind", ["partitions", "everything but the manifest"])
def test_another_plan__never_adopts_partitions_it_did_not_write(tmp_path: Path, left_behind: str) -> None:
    write_store(tmp_path / "store", [[FIRST]])
    (tmp_path / "store/manifest.json").unlink()
    if left_behind == "partitions":
        for key in ("zarr.json", "partitions/zarr.json"):
            (tmp_path / "store" / key).unlink()
    before = snapshot(tmp_path)
    with pytest.raises(StoreExistsError, match=r"partitions/p000000 exists already, and no manifest or plan says"):
        write_store(tmp_path / "store", [[SECOND]], name="other")
    assert snapshot(tmp_path) == before


def test_begun_plan__never_adopts_a_partition_of_another_plan(tmp_path: Path) -> None:
    begin_and_stop(tmp_path / "store", written=[0])
    write_store(tmp_path / "other", [[SECOND]] * 3, name="other")
    planted = tmp_path / "store/partitions/p000001"
    shutil.rmtree(planted, ignore_errors=True)
    shutil.copytree(tmp_path / "other/partitions/p000001", planted)
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 3)) as session:
        assert [task.number for task in session.pending()] == [1, 2]


def test_begin__leaves_files_of_others_alone(tmp_path: Path) -> None:
    others = tmp_path / "store/partitions"
    others.mkdir(parents=True)
    (others / "notes.txt").write_text("not ours")
    (others / "january").mkdir()
    (others / "january/sales.csv").write_text("not ours either")
    # Both are right: an error, or writing beside them.
    with suppress(StoreExistsError):
        write_store(tmp_path / "store", [[FIRST]])
    assert (others / "notes.txt").exists()
    assert (others / "january/sales.csv").exists()


@pytest.mark.promise(15)
def test_unfinished__refused_with_what_is_missing(tmp_path: Path) -> None:
    begin_and_stop(tmp_path / "store", written=[0, 1, 2, 4, 5, 6], n_partitions=8)
    with pytest.raises(
        UnfinishedStoreError, match=r"store is unfinished \(partitions not written: 3, 7\); .*`plmix ingest`"
    ):
        open_store(tmp_path / "store")
    for name, n_partitions, last in (("many", 21, "19, 20"), ("more", 22, "19, 20, ...")):
        begin_and_stop(tmp_path / name, written=[0], n_partitions=n_partitions)
        with pytest.raises(UnfinishedStoreError, match=rf", 18, {re.escape(last)}\)"):
            open_store(tmp_path / name)


@pytest.mark.promise(15)
def test_unfinished__all_written_but_not_finalised(tmp_path: Path) -> None:
    begin_and_stop(tmp_path / "store", written=[0, 1, 2])
    with pytest.raises(UnfinishedStoreError, match="all partitions are written, but the manifest is not"):
        open_store(tmp_path / "store")


@pytest.mark.promise(15)
def test_unfinished__cannot_be_finalised(tmp_path: Path) -> None:
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 3)) as session:
        write_partition(session.pending()[1], [FIRST])
        with pytest.raises(UnfinishedStoreError, match=r"partitions not written: 0, 2$"):
            session.finalise()


def test_unfinished__can_be_abandoned_for_another_plan(tmp_path: Path) -> None:
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 3)) as session:
        write_partition(session.pending()[1], [FIRST])
        session.abandon()
    store = write_store(tmp_path / "store", [[SECOND]], name="other")
    assert store.block().equals(SECOND)
    assert all_damage(store) == []


def test_append__old_reader_undisturbed_and_new_one_sees_more(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [[FIRST]])
    # The store is open but nothing was read yet; later reads must still give the old contents.
    old = open_store(tmp_path / "store")
    appended = write_store(tmp_path / "store", [[SECOND], [FIRST]], append=True, name="more")
    new = open_store(tmp_path / "store")
    assert old.block().equals(FIRST)
    assert new.block().equals(concatenate([FIRST, SECOND, FIRST]))
    assert appended.manifest == new.manifest
    assert (old.manifest.generation, new.manifest.generation) == (1, 2)
    assert (new.n_rankings, new.total_weight) == (8, 8.5)
    assert [event["partitions"] for event in new.manifest.history] == [[0, 1], [1, 3]]
    assert index_digests(new)[:1] == index_digests(old)
    assert all_damage(new) == []


@pytest.mark.promise(40)
def test_append__the_same_twice_is_appended_once(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [[FIRST]])
    write_store(tmp_path / "store", [[SECOND]], append=True, name="more")
    before = snapshot(tmp_path)
    again = write_store(tmp_path / "store", [[SECOND]], append=True, name="more")
    assert again.n_rankings == 5
    assert snapshot(tmp_path) == before


def test_append__where_there_is_nothing_begins_a_store(tmp_path: Path) -> None:
    assert write_store(tmp_path / "store", [[FIRST]], append=True).block().equals(FIRST)


def test_append__unfinished_one_leaves_the_old_store_as_it_was(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [[FIRST]])
    plan = plan_for(3, 2, name="more")
    with WriteSession.begin(Location.of(tmp_path / "store"), plan, append=True) as session:
        write_partition(session.pending()[0], [SECOND])
        with pytest.raises(UnfinishedStoreError, match="partitions not written: 2"):
            session.finalise()
    assert open_store(tmp_path / "store").block().equals(FIRST)
    with pytest.raises(UnfinishedStoreError, match="unfinished `ingest` with other"):
        write_store(tmp_path / "store", [[SECOND]], append=True, name="yet more")
    finished = write_store(tmp_path / "store", [[FIRST], [SECOND]], append=True, name="more")
    # The finished partition is kept, so it holds the rows of the first attempt.
    assert finished.block().equals(concatenate([FIRST, SECOND, SECOND]))


@pytest.mark.parametrize("change", [{"item_names": ["a", "b", "c"]}, {"leaf_rows": 5}])
def test_append__other_items_or_leaves_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write_store(tmp_path / "store", [[FIRST]])
    before = snapshot(tmp_path)
    with pytest.raises(StoreExistsError, match="must have the items and the leaf size of the store"):
        write_store(tmp_path / "store", [[SECOND]], append=True, name="more", **change)
    assert snapshot(tmp_path) == before


def test_append__after_a_crash_between_manifest_and_tidying(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with WriteSession.begin(Location.of(root), plan_for(3, 1)) as session:
        write_partition(session.pending()[0], [FIRST])
        plan = (root / "wip/plan.json").read_bytes()
        session.finalise()
    # The manifest is published but the plan is still there, as after a kill at that moment.
    (root / "wip").mkdir()
    (root / "wip/plan.json").write_bytes(plan)
    store = write_store(root, [[SECOND]], append=True, name="more")
    assert store.block().equals(concatenate([FIRST, SECOND]))
    assert not (root / "wip").exists()


def begin_and_stop(path: Path, *, written: list[int], n_partitions: int = 3) -> None:
    """A store of which only some partitions were written before the writer stopped."""
    with WriteSession.begin(Location.of(path), plan_for(3, n_partitions)) as session:
        for task in session.pending():
            if task.number in written:
                write_partition(task, [FIRST])


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
