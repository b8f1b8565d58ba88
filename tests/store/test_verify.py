"""Accidental and malicious damage: never wrong numbers, always found, no memory taken for false sizes."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import shutil
import struct
import tracemalloc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import open_store
from plmix_dist.datasets.inspect import _verify_partition, _verify_top
from plmix_dist.errors import DamagedStoreError, StoreError, StoreNotFoundError
from plmix_dist.rankings import RankingBlock
from plmix_dist.store import Location, RankingStore, WriteSession
from plmix_dist.store.manifest import Manifest
from tests.helpers.oracle import Forger, PlainRankings, all_damage, full, plan_for, single_bit_flips, write_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Files that can be lost without losing a row; verify must find the loss nevertheless.
NO_ROWS = re.compile(r"zarr\.json|partitions/zarr\.json|partitions/p\d+/(zarr\.json|rejected\.jsonl)")


# Files whose size is not recorded, so truncation is reported as alteration.
SIZE_UNKNOWN = re.compile(r"zarr\.json|partitions/zarr\.json|partitions/p\d+/index\.json")


CHUNK = re.compile(r"partitions/p(?P<partition>\d+)/(?P<column>\w+)/c/(?P<chunk>\d+)")


@pytest.fixture
def root(tmp_path: Path, finished_store: Path) -> Path:
    """A copy of the store with every column, to be damaged."""
    return Path(shutil.copytree(finished_store, tmp_path / "store"))


@pytest.fixture
def forger(root: Path) -> Forger:
    return Forger(root)


def keys_of(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def partition_of(key: str) -> int:
    """The partition of a file; the first partition for files outside all partitions."""
    match = re.match(r"partitions/p(\d+)/", key)
    return int(match[1]) if match else 0


def contents(store: RankingStore, number: int) -> list[Any]:
    """Everything a partition holds, in plain lists."""
    rows = [
        (row, id_, group)
        for leaf in store.partition(number)
        for row, id_, group in zip(leaf.rows(), leaf.ids.tolist(), leaf.groups.tolist(), strict=True)
    ]
    return [rows, store.column("component", number).tolist()]


def found_in(store: RankingStore, key: str) -> set[tuple[str, str]]:
    damage = _verify_top(store) + _verify_partition(store, partition_of(key))
    return {(found.kind, found.key) for found in damage}


class Inspector:
    """Alters one file after another, and collects every way in which the store did not notice."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = open_store(root)
        self.original = [contents(self.store, number) for number in range(self.store.n_partitions)]
        self.unnoticed: list[str] = []

    def damage(self, key: str, data: bytes | None, kinds: set[str], what: str) -> None:
        """Give a file other bytes, or none at all; see what is read and found; put it back."""
        path = self.root / key
        before = path.read_bytes()
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        try:
            self._inspect(key, kinds, what)
        finally:
            path.write_bytes(before)

    def _inspect(self, key: str, kinds: set[str], what: str) -> None:
        if key == "manifest.json":
            expected = StoreNotFoundError if kinds == {"missing"} else DamagedStoreError
            with pytest.raises(expected, match=re.escape(str(self.root))):
                open_store(self.root)
            return
        # Chunks are read from disk each time, all other files only when a store is opened.
        store = self.store if CHUNK.fullmatch(key) else open_store(self.root)
        number = partition_of(key)
        try:
            read = contents(store, number)
        except DamagedStoreError as error:
            if key not in str(error):
                self.unnoticed.append(f"{key}, {what}: the error names another file: {error}")
        else:
            if not NO_ROWS.fullmatch(key):
                same = "the same" if read == self.original[number] else "OTHER"
                self.unnoticed.append(f"{key}, {what}: {same} rows were read without an error")
            elif read != self.original[number]:
                self.unnoticed.append(f"{key}, {what}: OTHER rows were read")
        found = found_in(store, key)
        if found not in [{(kind, key)} for kind in kinds]:
            self.unnoticed.append(f"{key}, {what}: {kinds} was found as {found}")


def test_damage__every_column_is_there_to_be_damaged(root: Path) -> None:
    assert {match["column"] for key in keys_of(root) if (match := CHUNK.fullmatch(key))} == {
        "items", "n_listed", "n_unordered", "below", "tied", "weights", "ids_lengths", "ids_utf8", "groups",
        "component",
    }  # fmt: skip
    assert all_damage(open_store(root)) == []


@pytest.mark.promise(13)
def test_damage__one_bit_of_any_file(root: Path) -> None:
    inspector = Inspector(root)
    for key in keys_of(root):
        how_many = 6 if CHUNK.fullmatch(key) else 2
        for position, data in single_bit_flips((root / key).read_bytes(), how_many):
            inspector.damage(key, data, {"altered"}, f"one bit of byte {position}")
    assert inspector.unnoticed == []


@pytest.mark.promise(13)
def test_damage__any_file_cut_short_or_grown(root: Path) -> None:
    inspector = Inspector(root)
    for key in keys_of(root):
        data = (root / key).read_bytes()
        truncated = {"truncated", "altered"} if SIZE_UNKNOWN.fullmatch(key) else {"truncated"}
        inspector.damage(key, data[: len(data) // 2], truncated, "half of it")
        inspector.damage(key, b"", truncated, "nothing of it")
        inspector.damage(key, data + b"\0", {"altered"}, "a byte more")
    assert inspector.unnoticed == []


@pytest.mark.promise(14)
def test_damage__any_file_missing(root: Path) -> None:
    inspector = Inspector(root)
    for key in keys_of(root):
        inspector.damage(key, None, {"missing"}, "gone")
    assert inspector.unnoticed == []


@pytest.mark.promise(13)
def test_damage__chunks_exchanged(root: Path) -> None:
    # Each is a valid chunk with a right checksum, but at the wrong place.
    first, second = root / "partitions/p000000/weights/c/0", root / "partitions/p000000/weights/c/1"
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    with pytest.raises(DamagedStoreError, match=r"weights/c/[01] "):
        contents(open_store(root), 0)
    assert {found.key[-11:] for found in all_damage(open_store(root))} == {"weights/c/0", "weights/c/1"}


@pytest.mark.promise(13)
def test_damage__partition_of_another_store(tmp_path: Path, root: Path, every_column: PlainRankings) -> None:
    other = PlainRankings(6, every_column.rows, every_column.ids[::-1], every_column.groups)
    write_store(tmp_path / "other", [[other.block()]], leaf_rows=5)
    shutil.rmtree(root / "partitions/p000000")
    shutil.copytree(tmp_path / "other/partitions/p000000", root / "partitions/p000000")
    with pytest.raises(DamagedStoreError, match=r"p000000/index.json was altered: .* manifest.json"):
        open_store(root).block()


@pytest.mark.promise(13)
def test_damage__error_names_array_chunk_and_rows(root: Path) -> None:
    store = open_store(root)
    n_listed = [len(row.offered) + sum(map(len, row.ordered)) for row in store.block()[:17].rows()]
    row_of_entry = [row for row, count in enumerate(n_listed) for _ in range(count)]
    for key in keys_of(root / "partitions/p000000"):
        column, _, chunk = key.partition("/c/")
        if not chunk or column == "ids_utf8":
            continue
        described = store.index(0).columns[column]
        held = slice(int(chunk) * described["chunk"], (int(chunk) + 1) * described["chunk"])
        rows = row_of_entry[held] if column in ("items", "tied") else list(range(17))[held]
        path = root / "partitions/p000000" / key
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(DamagedStoreError, match=rf"p000000/{key} is missing") as caught:
            contents(store, 0)
        path.write_bytes(data)
        place = rf"\(array {column}, chunk {chunk}, within rows (\d+) to (\d+) of the partition\)"
        first, last = map(int, re.search(place, str(caught.value)).groups())
        if column in ("items", "tied"):  # to the leaf, because only the bounds of leaves are known
            assert first <= rows[0] <= rows[-1] <= last < 17
            assert first > rows[0] - 5
            assert last < rows[-1] + 5
        else:
            assert (first, last) == (rows[0], rows[-1])


def test_damage__error_says_what_to_do(root: Path) -> None:
    (root / "partitions/p000000/items/c/0").write_bytes(b"")
    with pytest.raises(DamagedStoreError, match=r"has 0 bytes where \d+ were written.*`plmix verify` lists all damage"):
        contents(open_store(root), 0)


@pytest.mark.promise(13)
def test_damage__every_byte_of_the_manifest(root: Path) -> None:
    data = (root / "manifest.json").read_bytes()
    for position, changed in single_bit_flips(data, len(data)):
        with pytest.raises(DamagedStoreError, match=rf"^byte {position} was altered"):
            Manifest.from_bytes(changed, f"byte {position}")


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    ("written", "found"),
    [
        # One altered bit turns Hangul into a surrogate, which Python's JSON reads but cannot write.
        ("한".encode(), b"\xed\xb5\x9c"),
        (b'"total_weight": 1', b'"total_weight": 1e999, "x": 1'),
        (b'"total_weight": 1', b'"total_weight": NaN, "x": 1'),
        (b'"total_weight": 1', b'"total_weight": ' + b"[" * 100_000 + b', "x": 1'),
        (b'"total_weight": 1', b'"total_weight": ' + b"1" * 5000 + b', "x": 1'),
    ],
    ids=["surrogate", "infinite", "nan", "deep", "long"],
)
def test_damage__what_python_reads_as_json_and_is_not(root: Path, written: bytes, found: bytes) -> None:
    data = (root / "manifest.json").read_bytes()
    assert written in data
    (root / "manifest.json").write_bytes(data.replace(written, found, 1))
    with pytest.raises(DamagedStoreError, match=r"manifest\.json was altered"):
        open_store(root)


@pytest.mark.parametrize(
    "key",
    [
        "stray.bin",
        "partitions/stray.bin",
        "partitions/p000002/index.json",
        "partitions/p000000/stray.bin",
        "partitions/p000000/items/c/7",
        "partitions/p000000/items/stray/deep.bin",
        "wip/partitions-p000001.0123/items/c/0",
    ],
)
@pytest.mark.parametrize("appending", [False, True])
def test_extra__found_wherever_it_lies(root: Path, key: str, appending: bool) -> None:
    store = open_store(root)
    if appending:
        names = list(store.item_names)
        plan = plan_for(6, 1, name="more", leaf_rows=5, item_names=names)
        with WriteSession.begin(Location.of(root), plan, append=True):
            pass
        assert all_damage(store) == [], "work in progress is not damage"
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"stray")
    # During an append the next partition and the folder wip/ belong to the writer.
    expected = [] if appending and key.startswith(("wip/", "partitions/p000002/")) else [("extra", key)]
    assert [(found.kind, found.key) for found in all_damage(store)] == expected


@pytest.mark.promise(33)
@pytest.mark.parametrize("linked", ["items/c/0", "items/c", "items", "items/zarr.json", "zarr.json", "index.json", "."])
def test_link__refused_though_it_leads_to_the_right_bytes(tmp_path: Path, root: Path, linked: str) -> None:
    path = root / "partitions/p000000" / linked
    outside = tmp_path / "outside"
    shutil.move(path, outside)
    path.symlink_to(outside)
    if linked != "zarr.json":  # Zarr's group files are not read with the rows
        with pytest.raises(DamagedStoreError, match="is a symbolic link, and links are not followed"):
            contents(open_store(root), 0)
    assert any(found.key.startswith("partitions/p000000") for found in all_damage(open_store(root)))


@pytest.mark.promise(33)
def test_link__to_the_whole_store_is_followed(tmp_path: Path, root: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert open_store(tmp_path / "link").block().equals(open_store(root).block())
    assert all_damage(open_store(tmp_path / "link")) == []


MEGABYTE = 1 << 20


@contextmanager
def little_memory() -> Iterator[None]:
    """Fails if more than a few megabytes of memory are taken at any moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * MEGABYTE, f"{peak:,} bytes were taken"


def refused(root: Path, column: str) -> None:
    """Reading is an error that names the array and takes no memory; and checking finds it."""
    with little_memory(), pytest.raises(DamagedStoreError, match=rf"partitions/p000000/.*{re.escape(column)}"):
        contents(open_store(root), 0)
    assert any(column in found.key + found.message for found in _verify_partition(open_store(root), 0))


def test_forger__leaves_no_trace_of_its_own(root: Path, forger: Forger, every_column: PlainRankings) -> None:
    # The tests below are meaningful only if a rewritten store without false claims is accepted.
    forger.change_array(0, "items", lambda array: array.update(attributes={"note": "harmless"}))
    assert open_store(root).block().equals(every_column.block())
    assert all_damage(open_store(root)) == []


@pytest.mark.promise(34)
@pytest.mark.parametrize("told", ["zarr", "index", "both", "both, as one chunk"])
def test_claim__shape_of_a_thousand_billions(root: Path, forger: Forger, told: str) -> None:
    huge = 10**15
    if told != "index":
        forger.change_array(0, "items", lambda array: array.update(shape=[huge]))
    if told != "zarr":
        forger.change_index(0, lambda index: index["columns"]["items"].update(length=huge))
    if told == "both, as one chunk":
        grid = {"name": "regular", "configuration": {"chunk_shape": [huge]}}
        forger.change_array(0, "items", lambda array: array.update(chunk_grid=grid))
        forger.change_index(0, lambda index: index["columns"]["items"].update(chunk=huge))
    refused(root, "items")


@pytest.mark.promise(34)
@pytest.mark.parametrize("field", ["leaf_rows", "leaf_items"])
def test_claim__leaf_of_a_thousand_billions(root: Path, forger: Forger, field: str) -> None:
    forger.change_index(0, lambda index: index[field].__setitem__(-1, 10**15))
    with little_memory(), pytest.raises(DamagedStoreError, match="partitions/p000000"):
        contents(open_store(root), 0)
    assert {found.kind for found in _verify_partition(open_store(root), 0)} == {"count"}


def zstd_frame(claimed: int, n_blocks: int) -> bytes:
    """A Zstandard frame of blocks that each repeat a zero 128 Ki times, under any claim of its size."""
    header = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", claimed)
    blocks = []
    for number in range(n_blocks):
        last = number == n_blocks - 1
        blocks.append(struct.pack("<I", last | 1 << 1 | (1 << 17) << 3)[:3] + b"\0")
    return header + b"".join(blocks)


GIGABYTE_FRAME = zstd_frame(1 << 30, 1 << 13)


def small_frame(size: int) -> bytes:
    """A Zstandard frame of some zeros, stored as they are."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + struct.pack("<I", size << 3 | 1)[:3] + bytes(size)


BOMBS: dict[str, Callable[[int], bytes]] = {
    "says so": lambda size: GIGABYTE_FRAME,
    "says it is small": lambda size: zstd_frame(size, 1 << 13),
    "does not say": lambda size: b"\x28\xb5\x2f\xfd\x00\x58" + GIGABYTE_FRAME[13:],
    "behind a small frame": lambda size: small_frame(size) + GIGABYTE_FRAME,
    # A skippable frame has its length where the header of another compressor has its size.
    "behind a frame to skip": lambda size: b"\x50\x2a\x4d\x18" + struct.pack("<I", size) + bytes(size) + GIGABYTE_FRAME,
}


@pytest.mark.promise(34)
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_claim__zstd_bomb(root: Path, forger: Forger, bomb: Callable[[int], bytes]) -> None:
    size = open_store(root).index(0).columns["items"]["chunk"]
    forger.replace_file(0, "items/c/0", bomb(size))
    refused(root, "items")


def test_claim__the_parts_of_the_bombs_are_good_zstd(root: Path, forger: Forger) -> None:
    # Otherwise they would be refused for the wrong reason.
    from numcodecs.zstd import Zstd

    assert bytes(Zstd().decode(small_frame(64))) == bytes(64)
    assert bytes(Zstd().decode(zstd_frame(1 << 18, 2))) == bytes(1 << 18)


@pytest.mark.promise(34)
def test_claim__blosc_bomb(root: Path, forger: Forger) -> None:
    chunk = bytearray((root / "partitions/p000000/weights/c/0").read_bytes())
    chunk[4:8] = struct.pack("<I", 2**31 - 1)
    forger.replace_file(0, "weights/c/0", bytes(chunk))
    refused(root, "weights")


@pytest.mark.promise(32)
@pytest.mark.parametrize("column", ["items", "weights"])
def test_claim__codec_that_is_not_ours(root: Path, forger: Forger, column: str) -> None:
    described = open_store(root).index(0).columns[column]
    size = described["chunk"] * np.dtype(described["dtype"]).itemsize
    # A gzip header has its time where our codecs have the size, so a forged time could pass the check.
    bomb = bytearray(gzip.compress(bytes(64 * MEGABYTE), 9))
    bomb[4:8] = struct.pack("<I", size)
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip", "configuration": {"level": 9}}]
    forger.change_array(0, column, lambda array: array.update(codecs=codecs))
    forger.replace_file(0, f"{column}/c/0", bytes(bomb))
    refused(root, column)


@pytest.mark.promise(32)
@pytest.mark.parametrize("stacked", ["zstd over zstd", "sharding"])
def test_claim__codecs_within_codecs(root: Path, forger: Forger, stacked: str) -> None:
    zstd = {"name": "zstd", "configuration": {"level": 1, "checksum": True}}
    raw = {"name": "bytes"}
    chunk = open_store(root).index(0).columns["items"]["chunk"]
    shards = {"chunk_shape": [chunk], "codecs": [raw, zstd], "index_codecs": [raw], "index_location": "end"}
    codecs = (
        [raw, zstd, zstd] if stacked == "zstd over zstd" else [{"name": "sharding_indexed", "configuration": shards}]
    )
    forger.change_array(0, "items", lambda array: array.update(codecs=codecs))
    refused(root, "items")


@pytest.mark.promise(32)
@pytest.mark.parametrize("dtype", ["object", "float32", "<U1000000", "no such type"])
def test_claim__type_that_is_not_ours(root: Path, forger: Forger, dtype: str) -> None:
    forger.change_index(0, lambda index: index["columns"]["items"].update(dtype=dtype))
    refused(root, "items")


@pytest.mark.promise(32)
def test_claim__zarr_of_another_version(root: Path, forger: Forger) -> None:
    forger.change_array(0, "items", lambda array: array.update(zarr_format=2))
    refused(root, "items")


@pytest.mark.promise(34)
@pytest.mark.parametrize("change", [{"chunk": 0}, {"chunk": -5}, {"length": -1}, {"chunk": "5"}])
def test_claim__sizes_that_are_none(root: Path, forger: Forger, change: dict[str, Any]) -> None:
    forger.change_index(0, lambda index: index["columns"]["items"].update(change))
    refused(root, "items")


@pytest.mark.promise(33)
@pytest.mark.parametrize("name", ["../p000001/items", "../../outside", "/outside", "unknown"])
def test_claim__column_elsewhere(tmp_path: Path, root: Path, forger: Forger, name: str) -> None:
    shutil.copytree(root / "partitions/p000000/items", tmp_path / "outside")

    def add_column(index: dict[str, Any]) -> None:
        index["columns"][name] = index["columns"]["items"]
        files = {key: record for key, record in index["files"].items() if key.startswith("items/")}
        index["files"].update({name + key.removeprefix("items"): record for key, record in files.items()})

    forger.change_index(0, add_column)
    refused(root, name)


@pytest.mark.promise(33)
@pytest.mark.parametrize("key", ["../../../outside", "/outside", "a\nb", "items"])
def test_claim__file_elsewhere(tmp_path: Path, root: Path, forger: Forger, key: str) -> None:
    (tmp_path / "outside").write_bytes(b"outside")
    forger.change_index(0, lambda index: index["files"].update({key: [7, "0" * 64]}))
    found = _verify_partition(open_store(root), 0)
    assert found, "a file that cannot be there was not noticed"
    assert all(key in damage.key for damage in found)


@pytest.mark.parametrize("column", ["items", "weights"])
def test_claim__chunk_that_cannot_be_unpacked(root: Path, forger: Forger, column: str) -> None:
    chunk = (root / f"partitions/p000000/{column}/c/0").read_bytes()
    # The header is kept, so its size is right; the rest is random bytes.
    forger.replace_file(0, f"{column}/c/0", chunk[:16] + bytes(reversed(chunk[16:])))
    refused(root, column)


@pytest.mark.parametrize("key", ["files", "columns", "leaf_rows"])
def test_claim__index_without_a_part(root: Path, forger: Forger, key: str) -> None:
    forger.change_index(0, lambda index: index.pop(key))
    refused(root, "index.json")


@pytest.mark.parametrize("key", ["version", "partitions", "item_names"])
def test_claim__manifest_without_a_part(root: Path, forger: Forger, key: str) -> None:
    forger.change_manifest(lambda manifest: manifest.pop(key))
    with pytest.raises(StoreError, match=r"manifest\.json"):
        open_store(root)


@pytest.mark.parametrize("field", ["n_rankings", "n_leaves", "n_entries", "total_weight"])
@pytest.mark.parametrize("change", [1, -1])
def test_count__manifest_of_a_partition(root: Path, forger: Forger, field: str, change: int) -> None:
    def miscount(manifest: dict[str, Any]) -> None:
        manifest["partitions"][0][field] += change
        if field in manifest:
            manifest[field] += change

    forger.change_manifest(miscount)
    found = _verify_partition(open_store(root), 0)
    assert {(damage.kind, damage.key) for damage in found} == {("count", "partitions/p000000")}


@pytest.mark.parametrize("field", ["n_rankings", "n_items", "total_weight"])
def test_count__totals_of_the_manifest(root: Path, forger: Forger, field: str) -> None:
    forger.change_manifest(lambda manifest: manifest.update({field: manifest[field] + 1}))
    with pytest.raises(DamagedStoreError, match=rf"manifest\.json.*{field}"):
        open_store(root)


@pytest.mark.parametrize(
    "miscount",
    [
        lambda index: index.update(n_rankings=index["n_rankings"] + 1),
        lambda index: index.update(total_weight=index["total_weight"] + 1),
        lambda index: index["leaf_rows"].append(1),
        lambda index: index["leaf_rows"].pop(),
        lambda index: index["leaf_rows"].__setitem__(0, 1),
        lambda index: index["leaf_items"].__setitem__(0, 1),
        lambda index: index["leaf_items"].__setitem__(-1, 1),
        lambda index: index["leaf_items"].append(1),
        lambda index: index["leaf_items"].pop(),
        lambda index: index["leaf_rows"].__setitem__(0, 0),
    ],
)
def test_count__index(root: Path, forger: Forger, miscount: Callable[[dict[str, Any]], None]) -> None:
    forger.change_index(0, miscount)
    kinds = {damage.kind for damage in _verify_partition(open_store(root), 0)}
    assert kinds == {"count"}


def test_invalid__rows_that_are_no_rankings(tmp_path: Path) -> None:
    good = RankingBlock.from_rows([full(0, 1, 2)] * 6, n_items=3)
    items = good.items.copy()
    items[3 * 5] = 77  # the first item of the last row, which is the second of its leaf
    store = write_store(tmp_path / "store", [[good.replace(items=items)]], leaf_rows=4)
    (damage,) = all_damage(store)
    assert (damage.kind, damage.key) == ("invalid", "partitions/p000000")
    assert "row 5: item 77 is out of range: there are 3 items, numbered from 0" in damage.message
    # What kernels do not mind is found by `verify` alone.
    items[3 * 5 :] = [0, 0, 2]
    twice = write_store(tmp_path / "twice", [[good.replace(items=items)]], leaf_rows=4)
    assert [tuple(damage) for damage in all_damage(twice)] == [
        ("invalid", "partitions/p000000", "leaf 1, row 1: item 0 is listed twice")
    ]


def test_verify__partition_written_again_is_told_from_the_manifest(root: Path) -> None:
    index = root / "partitions/p000001/index.json"
    record = json.loads(index.read_bytes())
    record["rejected"] = {"empty": 2}
    index.write_bytes(Forger.sealed(record))
    assert found_in(open_store(root), "partitions/p000001/index.json") == {("altered", "partitions/p000001/index.json")}


@pytest.mark.promise(13)
@pytest.mark.parametrize(("factor", "is_damage"), [(1 + 1e-6, True), (1 + 1e-9, True), (1 + 1e-15, False)])
def test_verify__weights_that_do_not_add_up(tmp_path: Path, factor: float, is_damage: bool) -> None:
    weighted = RankingBlock.from_array([[0, 1, 2], [2, 1, 0]], weights=[1.5, 2.5])
    store = write_store(tmp_path / "store", [[weighted]])
    summary = dataclasses.replace(store.manifest.partitions[0], total_weight=4.0 * factor)
    claimed = RankingStore(store.location, dataclasses.replace(store.manifest, partitions=[summary]))
    assert [damage.kind for damage in all_damage(claimed)] == (["count"] if is_damage else [])


SPARSE_BYTES = 20 << 30


def made_sparse(path: Path) -> None:
    """Append 20 GB of nothing to a file; on disk they take no room."""
    with path.open("rb+") as file:
        file.truncate(SPARSE_BYTES)


def words_of(root: Path) -> Iterator[str]:
    """Whatever is found wrong with a store."""
    try:
        store = open_store(root)
        yield from (damage.message for damage in _verify_partition(store, 0))
        _verify_top(store)
    except DamagedStoreError as error:
        yield str(error)


@pytest.mark.promise(34)
@pytest.mark.parametrize("key", ["manifest.json", "partitions/p000000/index.json", "wip/plan.json"])
def test_sparse__records_of_20_gb_are_not_read(root: Path, key: str) -> None:
    (root / "wip").mkdir(exist_ok=True)
    (root / key).touch()
    made_sparse(root / key)
    with little_memory():
        assert f"{key} has 21,474,836,480 bytes, where at most 268,435,456 are expected" in "".join(words_of(root))


@pytest.mark.promise(34)
@pytest.mark.parametrize("key", ["items/c/0", "items/zarr.json", "rejected.jsonl"])
def test_sparse__files_of_20_gb_are_not_read(root: Path, forger: Forger, key: str) -> None:
    path = forger.partition(0) / key
    made_sparse(path)
    with little_memory():
        assert "has 21,474,836,480 bytes" in _verify_partition(open_store(root), 0)[0].message
        with pytest.raises(DamagedStoreError, match="has 21,474,836,480 bytes where"):
            list(open_store(root).rejected_rows() if key == "rejected.jsonl" else open_store(root).partition(0))
    # The same with an index that says so.
    forger.change_index(0, lambda index: index["files"].update({key: [SPARSE_BYTES, "0" * 64]}))
    with little_memory():
        assert "at most 1,073,741,824 are expected" in _verify_partition(open_store(root), 0)[0].message
        with pytest.raises(DamagedStoreError, match="claims to have 21,474,836,480 bytes"):
            list(open_store(root).rejected_rows() if key == "rejected.jsonl" else open_store(root).partition(0))
