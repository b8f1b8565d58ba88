"""Reading a store: what was written comes back, whatever the chunks and leaves; other formats are refused by name."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from plmix_dist import open_store
from plmix_dist.errors import IngestError, PlmixError, StoreNotFoundError, UnsupportedFormatError
from plmix_dist.rankings import RankingBlock, concatenate
from plmix_dist.rankings.sampling import draw_portions
from plmix_dist.store import Location, RejectedRows, WriteSession, write_partition
from plmix_dist.store.arrays import _unpacked_size
from tests.helpers.oracle import (
    Forger,
    PlainRankings,
    Ranking,
    all_damage,
    full,
    index_digests,
    joined,
    plain,
    plain_rankings,
    plan_for,
    write_store,
)

if TYPE_CHECKING:
    from pathlib import Path


FIRST = RankingBlock.from_array([[0, 1, 2], [2, 1, 0], [1, 0, 2]])


SECOND = RankingBlock.from_array([[1, 2, 0], [2, 0, 1]], weights=[2.0, 0.5])


@st.composite
def stores(draw: st.DrawFn) -> tuple[list[list[PlainRankings]], dict[str, int]]:
    """Rows of several partitions, each in several blocks, and sizes of leaves and chunks to write them in."""
    rows = draw(plain_rankings(min_rows=1, max_rows=16))
    numbers = st.integers(0, len(rows.rows))
    cuts = sorted({0, len(rows.rows), *draw(st.lists(numbers, max_size=6))})
    pieces = [rows.pick(range(start, stop)) for start, stop in itertools.pairwise(cuts)]
    split = draw(st.integers(0, len(pieces) - 1))
    sizes = {"leaf_rows": draw(st.integers(1, 9)), "chunk_bytes": draw(st.sampled_from([8, 64, 1 << 21]))}
    return [part for part in (pieces[:split], pieces[split:]) if part], sizes


@settings(max_examples=15)
@given(case=stores())
def test_store__gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[list[PlainRankings]], dict[str, int]]
) -> None:
    partitions, sizes = case
    path = tmp_path_factory.mktemp("law") / "store"
    write_store(path, [[piece.block() for piece in pieces] for pieces in partitions], **sizes)
    store = open_store(path)
    rows = [joined(pieces) for pieces in partitions]
    everything = joined(rows)
    assert plain(store.block()) == everything
    assert plain(concatenate(list(store.iter_leaves()))) == everything
    for number, expected in enumerate(rows):
        assert plain(concatenate(list(store.partition(number)))) == expected
    # Ids are labels; groups decide how a fit reads the rows, and stay.
    unlabelled = PlainRankings(everything.n_items, everything.rows, groups=everything.groups)
    assert plain(store.leaves(0, store.n_leaves, labels=False)) == unlabelled
    assert (store.n_rankings, store.n_items) == (len(everything.rows), everything.n_items)
    assert store.total_weight == pytest.approx(math.fsum(row.weight for row in everything.rows))
    sizes_of_leaves = [leaf.n_rankings for leaf in store.iter_leaves()]
    assert store.leaf_bounds.tolist() == list(itertools.accumulate(sizes_of_leaves, initial=0))
    n_listed = (len(row.offered) + sum(map(len, row.ordered)) for row in everything.rows)
    assert store.n_entries == sum(n_listed)
    assert all_damage(store) == []


@settings(max_examples=15)
@given(rows=plain_rankings(min_rows=1, max_rows=16), leaf_rows=st.integers(1, 9), data=st.data())
def test_leaves__any_run_of_them(
    tmp_path_factory: pytest.TempPathFactory, rows: PlainRankings, leaf_rows: int, data: st.DataObject
) -> None:
    store = write_store(tmp_path_factory.mktemp("runs") / "store", [[rows.block()]], leaf_rows=leaf_rows)
    start = data.draw(st.integers(0, store.n_leaves))
    stop = data.draw(st.integers(start, store.n_leaves))
    sizes = store.index(0).leaf_rows
    chosen = rows.pick(range(sum(sizes[:start]), sum(sizes[:stop])))
    found = plain(store.leaves(start, stop))
    if chosen.rows:
        assert found == chosen
        assert [leaf.n_rankings for leaf in store.iter_leaves(start, stop)] == sizes[start:stop]
    else:
        assert (found.rows, found.n_items) == ([], rows.n_items)


def test_leaves__people_stay_whole(finished_store: Path, every_column: PlainRankings) -> None:
    store = open_store(finished_store)
    seen = [set(leaf.groups.tolist()) for leaf in store.iter_leaves()]
    # Each partition begins a new leaf; within a partition no person is in two leaves.
    for number in range(store.n_partitions):
        leaves = [set(leaf.groups.tolist()) for leaf in store.partition(number)]
        assert sum(map(len, leaves)) == len(set().union(*leaves))
    assert set().union(*seen) == set(every_column.groups)


def test_leaves__outside(finished_store: Path) -> None:
    store = open_store(finished_store)
    with pytest.raises(IndexError, match=f"leaves 0 to 99 are not within 0 to {store.n_leaves}"):
        store.leaves(0, 99)


def test_leaves__long_runs_are_read_in_parts(
    finished_store: Path, every_column: PlainRankings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plmix_dist.store.reader._READ_ENTRIES", 1)
    assert plain(open_store(finished_store).block()) == every_column
    # Features take room too.
    opened = open_store(finished_store)._open(0)
    monkeypatch.setattr("plmix_dist.store.reader._READ_ENTRIES", int(opened.item_bounds[4]))
    assert (opened.run_end(0, 5, 0), opened.run_end(0, 5, 10_000)) == (4, 1)


@pytest.mark.parametrize(
    "late",
    [
        full(1, 0, 2, weight=2.5),
        Ranking(((1, 0), (2,)), (), "absent", 1.0),
        Ranking(((1,),), (), "below", 1.0),
        Ranking(((1,),), (0, 2), "absent", 1.0),
    ],
    ids=["weights", "ties", "below", "slates"],
)
def test_store__columns_that_begin_late_or_end_early(tmp_path: Path, late: Ranking) -> None:
    plain_rows, special = PlainRankings(3, [full(0, 1, 2)] * 9), PlainRankings(3, [late] * 9)
    for number, order in enumerate([[plain_rows, special], [special, plain_rows]]):
        store = write_store(tmp_path / str(number), [[part.block() for part in order]], chunk_bytes=8)
        assert plain(store.block()) == joined(order)


def test_store__columns_in_some_partitions_only(tmp_path: Path) -> None:
    parts = [PlainRankings(3, [full(0, 1, 2)]), PlainRankings(3, [Ranking(((1, 0),), (2,), "absent", 4.0)])]
    store = write_store(tmp_path / "store", [[part.block()] for part in parts])
    assert plain(store.block()) == joined(parts)
    assert store.column("weights", 0) is None
    assert store.column("weights", 1).tolist() == [4.0]


def test_store__empty_labels(tmp_path: Path) -> None:
    rows = PlainRankings(2, [full(0, 1)] * 3, ids=["", "", ""])
    assert plain(write_store(tmp_path / "store", [[rows.block()]]).block()) == rows


@pytest.mark.parametrize("name", ["ids", "groups"])
def test_store__labels_for_some_rows_only_are_refused(tmp_path: Path, name: str) -> None:
    labelled = RankingBlock.from_rows([full(0, 1, 2)], n_items=3, **{name: ["a"]})
    numbered = RankingBlock.from_rows([full(0, 1, 2)], n_items=3, **{name: [1]})
    for number, blocks in enumerate([[FIRST, labelled], [labelled, FIRST], [numbered, FIRST]]):
        with pytest.raises(PlmixError, match=f"must all have {name}.*, or none"):
            write_store(tmp_path / str(number), [blocks])


@pytest.mark.parametrize("where", [0, 1, 2])
def test_store__empty_partition(tmp_path: Path, where: int) -> None:
    partitions: list[list[RankingBlock]] = [[FIRST], [SECOND]]
    partitions.insert(where, [FIRST[:0]] if where == 1 else [])
    store = write_store(tmp_path / "store", partitions)
    assert store.block().equals(concatenate([FIRST, SECOND]))
    assert list(store.partition(where)) == []
    assert all_damage(store) == []


def test_store__nothing_at_all_is_no_store(tmp_path: Path) -> None:
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 1)) as session:
        rejected = RejectedRows()
        rejected.add("empty", {"row": 4})
        write_partition(session.pending()[0], [], rejected)
        with pytest.raises(IngestError, match=r"no valid ranking was found.*'empty': 1"):
            session.finalise()


def test_store__rejected_rows_are_counted_and_listed(tmp_path: Path) -> None:
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 2)) as session:
        for task in session.pending():
            rejected = RejectedRows()
            # JSON does not escape every character that str.splitlines treats as a line end.
            rejected.add("empty", {"row": task.number, "text": "né\u2028\x85\n"})
            write_partition(task, [FIRST], rejected)
        store = session.finalise({"note": "kept"})
    assert store.manifest.history[0]["rejected"] == {"empty": 2}
    assert store.manifest.history[0]["note"] == "kept"
    listed = [{"reason": "empty", "row": number, "text": "né\u2028\x85\n"} for number in range(2)]
    file = (tmp_path / "store/partitions/p000001/rejected.jsonl").read_bytes()
    assert [json.loads(line) for line in file.split(b"\n")[:-1]] == listed[1:]
    assert list(open_store(tmp_path / "store").rejected_rows()) == listed
    assert all_damage(store) == []


@pytest.mark.parametrize("n_bytes", [1, 255, 256, 257, 65_791, 65_792, 70_000])
@pytest.mark.parametrize("column", ["items", "weights"])
def test_unpacked_size__every_width_of_header(tmp_path: Path, column: str, n_bytes: int) -> None:
    # One byte per item, eight per weight: the two compressors have different headers.
    n_rows = -(-n_bytes // (2 if column == "items" else 8))
    block = RankingBlock.from_array([[0, 1]] * n_rows, weights=np.arange(2.0, n_rows + 2))
    write_store(tmp_path / "store", [[block]], chunk_bytes=n_bytes, leaf_rows=1 << 20)
    chunk = (tmp_path / f"store/partitions/p000000/{column}/c/0").read_bytes()
    assert _unpacked_size(chunk) == (n_bytes if column == "items" else max(8, n_bytes // 8 * 8))


@pytest.mark.promise(11)
def test_store__other_chunks_same_leaves(tmp_path: Path, every_column: PlainRankings) -> None:
    block = every_column.block()
    stores = [
        write_store(tmp_path / str(size), [[block[:7], block[7:]]], chunk_bytes=size, leaf_rows=5)
        for size in (8, 64, 1 << 21)
    ]
    leaves = [list(store.iter_leaves()) for store in stores]
    for others in leaves[1:]:
        assert len(others) == len(leaves[0]) > 1
        assert all(mine.equals(theirs) for mine, theirs in zip(leaves[0], others, strict=True))
    assert len(set(map(tuple, map(index_digests, stores)))) == 3, "the chunks should really differ"


def test_store__block_boundaries_do_not_change_the_bytes(tmp_path: Path, every_column: PlainRankings) -> None:
    block = every_column.block()
    whole = write_store(tmp_path / "whole", [[block]])
    pieces = write_store(tmp_path / "pieces", [[block[:1], block[1:1], block[1:8], block[8:]]])
    assert index_digests(whole) == index_digests(pieces)


LABELS = st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8]), min_size=1, max_size=5)


@settings(max_examples=15)
@given(first=LABELS, second=LABELS, as_text=st.tuples(st.booleans(), st.booleans()))
def test_label_twice__law(
    tmp_path_factory: pytest.TempPathFactory, first: list[Any], second: list[Any], as_text: tuple[bool, bool]
) -> None:
    # One partition may have numbers as labels and the next one text.
    parts = [
        [str(label) if label < 5 else f"x{label}" for label in labels] if text else labels
        for labels, text in zip((first, second), as_text, strict=True)
    ]
    blocks = [PlainRankings(2, [full(0, 1)] * len(labels), ids=labels).block() for labels in parts]
    store = write_store(tmp_path_factory.mktemp("labels") / "store", [[block] for block in blocks], leaf_rows=2)
    for numbers in ([0], [1], [0, 1]):
        together = [str(label) for number in numbers for label in parts[number]]
        repeated = {label for label in together if together.count(label) > 1}
        found = store.label_twice("ids", numbers)
        assert str(found) in repeated if repeated else found is None


@pytest.mark.parametrize(("groups", "apart"), [([1, 1, 2, 3], None), ([1, 2, 2, 1], 1), (["a", "b", "a", "c"], "a")])
def test_label_twice__groups_that_do_not_stand_together(tmp_path: Path, groups: list[Any], apart: Any) -> None:
    rows = PlainRankings(2, [full(0, 1)] * 4, groups=groups)
    assert write_store(tmp_path / "store", [[rows.block()]], leaf_rows=2).label_twice("groups", [0]) == apart


def test_label_twice__no_labels(tmp_path: Path) -> None:
    assert write_store(tmp_path / "store", [[FIRST]]).label_twice("ids", [0]) is None


def test_store__any_zarr_reader_opens_it(finished_store: Path, every_column: PlainRankings) -> None:
    group = zarr.open_group(finished_store, mode="r")
    assert group.metadata.zarr_format == 3
    names = sorted(name for name, _ in group["partitions"].groups())
    assert names == ["p000000", "p000001"]
    weights = [number for name in names for number in group[f"partitions/{name}/weights"][:].tolist()]
    assert weights == [row.weight for row in every_column.rows]
    assert group[f"partitions/{names[0]}/items"].metadata.zarr_format == 3


def test_store__pickle(finished_store: Path, every_column: PlainRankings) -> None:
    store = open_store(finished_store)
    store.block()  # open arrays must not be pickled
    again = pickle.loads(pickle.dumps(store))
    assert again.manifest == store.manifest
    assert plain(again.block()) == every_column
    assert len(pickle.dumps(store)) < 10_000


def test_store__repr_says_what_it_holds(finished_store: Path) -> None:
    assert repr(open_store(finished_store)).endswith("store': 20 rankings of 6 items)")


def test_store__components_only_where_rows_were_drawn(tmp_path: Path, finished_store: Path) -> None:
    assert write_store(tmp_path / "store", [[FIRST]]).components() is None
    assert open_store(finished_store).components().tolist() == [number % 3 for number in range(20)]


def test_open_store__nothing_there(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=r"no store at .*nowhere; make one with `plmix"):
        open_store(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreNotFoundError, match=r"no store at .*file"):
        open_store(tmp_path / "file")


@pytest.mark.promise(18)
def test_open_store__newer_format_is_refused_by_name(tmp_path: Path, finished_store: Path) -> None:
    forger = Forger.copy(finished_store, tmp_path / "store")
    # A newer format may have any other entries.
    forger.change_manifest(lambda manifest: manifest.update(version=2, novelty=[1]))
    with pytest.raises(UnsupportedFormatError, match=r"format version 2, and .* reads 1; install a newer"):
        open_store(tmp_path / "store")
    forger.change_manifest(lambda manifest: manifest.update(format="something-else"))
    with pytest.raises(UnsupportedFormatError, match="not a store of rankings: its format is 'something-else'"):
        open_store(tmp_path / "store")


@pytest.mark.promise(18)
def test_open_store__version_one_is_read_for_ever(finished_store: Path, every_column: PlainRankings) -> None:
    # The present format in full. A change needs a new version that still reads this one.
    manifest = json.loads((finished_store / "manifest.json").read_bytes())
    assert (manifest["format"], manifest["version"]) == ("plmix-rankings", 1)
    group = zarr.open_group(finished_store / "partitions/p000000", mode="r")
    columns = {
        "items": "uint8",
        "n_listed": "uint8",
        "n_unordered": "uint8",
        "below": "bool",
        "tied": "bool",
        "weights": "float64",
        "ids_lengths": "uint32",
        "ids_utf8": "uint8",
        "groups": "int64",
        "component": "uint16",
    }
    folders = {path.name for path in (finished_store / "partitions/p000000").iterdir() if path.is_dir()}
    assert folders == set(columns)
    assert {name: str(group[name].dtype) for name in columns} == columns
    listed = [[item for place in row.ordered for item in place] + list(row.offered) for row in every_column.rows[:17]]
    assert group["items"][:].tolist() == [item for items in listed for item in items]
    assert group["n_listed"][:].tolist() == [len(items) for items in listed]
    assert group["n_unordered"][:].tolist() == [len(row.offered) for row in every_column.rows[:17]]
    assert bytes(group["ids_utf8"][:]).decode() == "".join(every_column.ids[:17])


BLOCK = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]])


def test_components__of_all_partitions_or_none(tmp_path: Path) -> None:
    with WriteSession.begin(Location.of(tmp_path / "store"), plan_for(3, 2)) as session:
        first, second = session.pending()
        write_partition(first, [(BLOCK, np.array([0, 1]))])
        write_partition(second, [BLOCK])
        assert session.finalise().components() is None


@pytest.mark.parametrize("weight", [2.0**53, 2.0**60, 2.0**70, 0.5])
def test_portions__weights_beyond_counts_stay_whole(weight: float) -> None:
    block = RankingBlock.from_array([[0, 1], [1, 0]], weights=[weight, 1000.0])
    parts = draw_portions(block, np.array([0.5, 0.5]), np.random.default_rng(0))
    assert sorted(parts[:, 0].tolist()) == [0.0, weight]
    assert parts[:, 1].sum() == 1000
    assert 400 < parts[0, 1] < 600
