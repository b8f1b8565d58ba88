"""The columns of a partition: their registry, and their Zarr arrays, in which every byte is recorded or checked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import struct
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, WrapperStore

from plmix_dist.errors import DamagedStoreError
from plmix_dist.rankings import STRING, RankingBlock, item_dtype
from plmix_dist.store import access, sealed

if TYPE_CHECKING:
    from plmix_dist.store.manifest import ColumnDescription, PartitionIndex


_ALLOWED_DTYPES = frozenset({"bool", "uint8", "uint16", "uint32", "uint64", "int64", "float32", "float64"})

_Along = Literal["item", "row", "byte", "feature"]


class Column(NamedTuple):
    """One array of a partition.

    A column is not written if all its values are `default`. If `default` is None, the column is required
    (`optional=False`), or all rows have it or none.
    """

    name: str
    along: _Along
    default: int | float | bool | None = None
    optional: bool = True


COLUMNS = {
    column.name: column
    for column in (
        Column("items", "item", optional=False),
        Column("n_listed", "row", optional=False),
        Column("n_unordered", "row", default=0),
        Column("below", "row", default=False),
        Column("tied", "item", default=False),
        Column("weights", "row", default=1.0),
        Column("ids", "row"),
        Column("ids_lengths", "row"),
        Column("ids_utf8", "byte"),
        Column("groups", "row"),
        Column("groups_lengths", "row"),
        Column("groups_utf8", "byte"),
        Column("persons_lengths", "row"),
        Column("persons_utf8", "byte"),
        Column("component", "row"),
        Column("sides", "row", default=0),
        Column("features", "feature"),  # those of an item of a row one after the other
    )
}


def columns_of(block: RankingBlock, component: NDArray[np.integer] | None = None) -> dict[str, NDArray[Any]]:
    """A block as the arrays to store, without those that hold only their default."""
    count = item_dtype(block.n_items + 1)
    columns: dict[str, NDArray[Any] | None] = {
        "items": block.items.astype(item_dtype(block.n_items), copy=False),
        "n_listed": block.n_listed.astype(count, copy=False),
        "n_unordered": block.n_listed.astype(count) - block.n_ordered.astype(count),
        "below": block.below,
        "tied": block.tied,
        "weights": block.weights,
        "sides": None if block.sides is None else block.sides.astype(np.uint8, copy=False),
        "features": None if block.features is None else block.features.astype(np.float32, copy=False).ravel(),
        **_label_columns("ids", block.ids),
        **_label_columns("groups", block.groups),
        **_label_columns("persons", block.persons),
        "component": None if component is None else component.astype(np.uint16, copy=False),
    }
    defaults = {name: COLUMNS[name].default for name in columns}
    return {
        name: values
        for name, values in columns.items()
        if values is not None and (defaults[name] is None or (values != defaults[name]).any())
    }


def block_from(columns: dict[str, NDArray[Any]], n_items: int) -> RankingBlock:
    """The block that `columns_of` was given, from the stored arrays."""
    n_listed = columns["n_listed"]
    n_rankings = len(n_listed)
    n_unordered = columns.get("n_unordered")
    return RankingBlock(
        items=columns["items"],
        n_listed=n_listed,
        n_ordered=n_listed if n_unordered is None else n_listed - n_unordered,
        below=columns.get("below", np.zeros(n_rankings, np.bool_)),
        n_items=n_items,
        tied=columns.get("tied"),
        weights=columns.get("weights"),
        ids=_labels_from("ids", columns),
        groups=_labels_from("groups", columns),
        persons=_labels_from("persons", columns),
        sides=columns.get("sides"),
        features=columns.get("features"),
    )


def _label_columns(name: str, labels: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Integer labels as they are; text as its UTF-8 bytes and the length of each label."""
    if labels is None:
        return {}
    if labels.dtype.kind == "i":
        return {name: labels.astype(np.int64, copy=False)}
    starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))  # the rows of a person have one label
    times = np.diff(starts, append=len(labels))
    encoded = [label.encode() for label in labels[starts].tolist()]
    text = b"".join(label * count for label, count in zip(encoded, times.tolist(), strict=True))
    return {
        f"{name}_lengths": np.repeat(np.array([len(label) for label in encoded], np.uint32), times),
        f"{name}_utf8": np.frombuffer(text, np.uint8),
    }


def _labels_from(name: str, columns: dict[str, NDArray[Any]]) -> NDArray[Any] | None:
    if name in columns:
        return columns[name]
    if f"{name}_lengths" not in columns:
        return None
    texts, codes = coded_labels(name, columns)
    found: NDArray[Any] = np.array(texts, STRING)[codes]
    return found


def coded_labels(name: str, columns: dict[str, NDArray[Any]]) -> tuple[list[str], NDArray[Any]]:
    """The different labels that are text, and which of them each row has."""
    import pyarrow as pa  # here, because most stores have no text

    lengths = columns[f"{name}_lengths"]

    bounds = pa.py_buffer(np.append(0, np.cumsum(lengths, dtype=np.int64)))
    text = pa.LargeStringArray.from_buffers(len(lengths), bounds, pa.py_buffer(columns[f"{name}_utf8"]))
    encoded = text.dictionary_encode()  # all rows of a person have one label
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


_Value = TypeVar("_Value")

# Measured in benchmarks/codecs.py: Zarr has a cost per chunk, so smaller chunks are slower; larger ones gain little.
CHUNK_BYTES = 1 << 21
_LARGEST_CHUNK_BYTES = 1 << 28
# A file of a partition that claims to be larger is not read.
LARGEST_FILE = 1 << 30


def codecs_for(dtype: np.dtype[Any]) -> list[Any]:
    """Compressors for a type of array. Each detects altered bytes by a checksum.

    Bytes: zstd at level 1 is within 3 % of n log2(n) bits for permutations. Wider numbers are bit-shuffled
    by blosc first. Blosc has no checksum, so crc32c follows it.
    """
    if dtype.itemsize == 1:
        return [ZstdCodec(level=1, checksum=True)]
    blosc = BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle", typesize=dtype.itemsize)
    return [blosc, Crc32cCodec()]


async def _within(store: Store, request: Awaitable[_Value], n_bytes: int) -> _Value:
    """What a request gives; a TimeoutError if the storage behind a URL takes longer than it may."""
    if isinstance(store, LocalStore):
        return await request
    return await asyncio.wait_for(request, access.storage_seconds(n_bytes))


class RecordingStore(WrapperStore["Store"]):
    """A Zarr store that remembers the size and the digest of every key that is written through it."""

    def __init__(self, store: Store, where: str = "") -> None:
        super().__init__(store)
        self.where = where
        self.written: dict[str, tuple[int, str]] = {}

    async def set(self, key: str, value: Buffer) -> None:
        """Write one key, and remember its size and digest."""
        data = value.to_bytes()
        with access.writing_explained(f"{self.where}/{key}", len(data)):
            await _within(self._store, super().set(key, value), len(data))
        self.written[key] = (len(data), sealed.sha256(data))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write one key unless it is there. Zarr makes the groups above an array so; they are not remembered."""
        with access.writing_explained(f"{self.where}/{key}", len(value)):
            await _within(self._store, super().set_if_not_exists(key, value), len(value))


class CheckedStore(WrapperStore["Store"]):
    """A Zarr store that is read only, and in which every key must match the index of its partition.

    A key that is missing or altered is an error, never a wrong number.
    """

    def __init__(self, store: Store, index: PartitionIndex, where: str) -> None:
        super().__init__(store)
        self.index = index
        self.where = where

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read one whole key. It is an error if the key is missing, altered, or unpacks to another size."""
        assert byte_range is None, "a chunk is read whole, because its digest is that of all its bytes"
        expected = self.index.files.get(key)
        if expected is None:
            if _CHUNK_KEY.fullmatch(key):
                raise self.damaged(key, "is not in the index of its partition")
            return None
        size, digest = expected
        if size > LARGEST_FILE:
            raise self.damaged(key, f"claims to have {size:,} bytes, where at most {LARGEST_FILE:,} are allowed")
        self._refuse_others(key, size)
        with access.reading_permitted(f"{self.where}/{key}"):
            # One byte more than there should be is enough to see that there are too many.
            value = await _within(self._store, super().get(key, prototype, RangeByteRequest(0, size + 1)), size)
        if value is None:
            raise self.damaged(key, "is missing")
        if len(value) != size:
            found = f"{len(value):,}" if len(value) < size else "more"
            raise self.damaged(key, f"has {found} bytes where {size:,} were written")
        data = value.to_bytes()
        # Hashing releases the interpreter lock, so other reads continue meanwhile.
        if await asyncio.to_thread(sealed.sha256, data) != digest:
            raise self.damaged(key, "was altered: its digest is not the one recorded when it was written")
        if _CHUNK_KEY.fullmatch(key):
            self._check_unpacked_size(key, data)
        return value

    def read_whole(self, key: str) -> bytes:
        """The contents of a file that is not part of an array."""
        value = sync(self.get(key, default_buffer_prototype()))
        assert value is not None, f"{key} is in the index"
        return value.to_bytes()

    def _refuse_others(self, key: str, size: int) -> None:
        if isinstance(self._store, LocalStore):
            path = os.path.join(os.path.realpath(self._store.root), *key.split("/"))  # noqa: PTH118
            if os.path.realpath(Path(self._store.root) / key) != path:
                raise self.damaged(key, "is a symbolic link, and links are not followed")
            with contextlib.suppress(FileNotFoundError), access.reading_permitted(path):
                found = os.stat(path)  # noqa: PTH116
                if not stat.S_ISREG(found.st_mode):  # a pipe would wait for a writer forever
                    raise self.damaged(key, "is not a plain file")
                if found.st_size != size:
                    raise self.damaged(key, f"has {found.st_size:,} bytes where {size:,} were written")

    def _check_unpacked_size(self, key: str, data: bytes) -> None:
        column = self.index.columns[key.split("/")[0]]
        expected = column["chunk"] * np.dtype(column["dtype"]).itemsize
        if _unpacked_size(data) != expected:
            raise self.damaged(key, f"claims to unpack to {_unpacked_size(data):,} bytes where {expected:,} fit")

    def damaged(self, key: str, what: str) -> DamagedStoreError:
        """An error that names the array, the chunk and the rows."""
        return DamagedStoreError(
            f"{self.where}/{key} {what}{_rows_of_chunk(self.index, key)}; "
            "`plmix verify` lists all damage; make the store again from its source"
        )


def _rows_of_chunk(index: PartitionIndex, key: str) -> str:
    """The rows of its partition that a chunk holds, as words for a message."""
    match = _CHUNK_KEY.fullmatch(key)
    if match is None or match["column"] not in index.columns:
        return ""
    chunk, column = int(match["chunk"]), match["column"]
    start, stop = chunk * index.columns[column]["chunk"], (chunk + 1) * index.columns[column]["chunk"]
    if COLUMNS[column].along in ("item", "feature"):
        bounds = index.item_bounds() * (index.columns[column]["length"] // max(1, index.item_bounds()[-1]))
        rows = index.row_bounds()
        first = int(np.searchsorted(bounds, start, side="right")) - 1
        last = min(int(np.searchsorted(bounds, stop, side="left")), len(rows) - 1)
        start, stop = int(rows[min(first, len(rows) - 1)]), int(rows[last])
    elif COLUMNS[column].along == "byte":
        return f" (array {column}, chunk {chunk})"
    stop = min(stop, index.n_rankings)
    return f" (array {column}, chunk {chunk}, within rows {start:,} to {stop - 1:,} of the partition)"


def _unpacked_size(data: bytes) -> int:
    """The size in bytes that a compressed chunk claims to unpack to, read from its header.

    It is -1 if the chunk is neither zstd nor blosc, or if a second zstd frame follows, whose size is not known.
    """
    if data[:4] == b"\x28\xb5\x2f\xfd":
        descriptor = data[4]
        single_segment = bool(descriptor & 0x20)
        size_flag = descriptor >> 6
        width = (1 if single_segment else 0, 2, 4, 8)[size_flag]
        start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
        if _zstd_frame_end(data, start + width, bool(descriptor & 4)) != len(data):
            return -1
        size = int.from_bytes(data[start : start + width], "little")
        return size + 256 if width == 2 else size
    if data[:1] != b"\x02" or len(data) < 16:  # neither zstd nor blosc
        return -1
    return int(struct.unpack("<I", data[4:8])[0])


def _zstd_frame_end(data: bytes, start: int, checksum: bool) -> int:
    """The end of the zstd frame whose blocks begin at `start`."""
    last = False
    while not last and start + 3 <= len(data):
        header = int.from_bytes(data[start : start + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        start += 3 + (1 if kind == 1 else size)
    return start + (4 if checksum else 0)


def open_column(store: CheckedStore, name: str) -> zarr.Array[Any]:
    """Open an array of a partition. It is an error if its shape, type or codecs are not those expected."""
    expected = store.index.columns[name]
    if name not in COLUMNS or not _sensible(expected):
        raise store.damaged(f"{name}/zarr.json", f"claims to be {expected}, which is not allowed")
    dtype = np.dtype(expected["dtype"])
    try:
        array = zarr.open_array(store, path=name, mode="r", zarr_format=3)
    except (KeyError, TypeError, ValueError) as error:
        raise store.damaged(f"{name}/zarr.json", f"does not describe an array ({error!r})") from None
    described: Any = array.metadata.to_dict()["codecs"]
    codecs = [codec["name"] for codec in described]
    allowed = ["bytes", *(codec.to_dict()["name"] for codec in codecs_for(dtype))]
    if codecs != allowed:
        raise store.damaged(f"{name}/zarr.json", f"uses codecs {codecs}, and only {allowed} are allowed")
    found = (array.shape, array.chunks, array.dtype)
    if found != ((expected["length"],), (expected["chunk"],), dtype):
        raise store.damaged(f"{name}/zarr.json", f"says {found}, the index says {expected}")
    n_chunks = -(-expected["length"] // expected["chunk"])
    listed = sum(key.startswith(f"{name}/c/") for key in store.index.files)
    if listed != n_chunks:
        raise store.damaged(f"{name}/zarr.json", f"needs {n_chunks:,} chunks, the index has {listed:,}")
    return array


def _sensible(column: ColumnDescription) -> bool:
    """Whether the index describes an array of an allowed type and size."""
    length, chunk = column.get("length"), column.get("chunk")
    return (
        column.get("dtype") in _ALLOWED_DTYPES
        and type(length) is type(chunk) is int
        and length >= 0
        and 1 <= chunk <= _LARGEST_CHUNK_BYTES // np.dtype(column["dtype"]).itemsize
    )


def read_column(store: CheckedStore, name: str, array: zarr.Array[Any], entries: slice) -> NDArray[Any]:
    """Some entries of an array. If a chunk cannot be unpacked, the error names the array."""
    try:
        return np.asarray(array[entries])
    except (RuntimeError, ValueError) as error:
        raise store.damaged(name, f"cannot be unpacked ({error})") from error


class ColumnWriter:
    """An array of a partition that grows at its end. A chunk is written as soon as it is full."""

    def __init__(self, store: RecordingStore, name: str, dtype: np.dtype[Any], chunk_bytes: int) -> None:
        self.store = store
        self.name = name
        self.dtype = dtype
        self.chunk = max(1, chunk_bytes // dtype.itemsize)
        self.length = 0
        self._array: zarr.Array[Any] | None = None
        self._pending: list[np.ndarray[Any, Any]] = []
        self._n_pending = 0

    def append(self, values: np.ndarray[Any, Any]) -> None:
        """Add values at the end."""
        self._pending.append(values)
        self._n_pending += len(values)
        self.length += len(values)
        if self._n_pending >= self.chunk:
            self._write(self._n_pending - self._n_pending % self.chunk)

    def close(self) -> ColumnDescription:
        """Write the rest, and describe the array. A short array is one chunk of its own length."""
        if self._array is None:
            self.chunk = max(1, min(self.chunk, self.length))
        self._write(self._n_pending)
        return {"dtype": self.dtype.name, "length": self.length, "chunk": self.chunk}

    def _write(self, count: int) -> None:
        values = np.concatenate(self._pending) if self._pending else np.empty(0, self.dtype)
        start = self.length - self._n_pending
        if self._array is None:
            self._array = zarr.create_array(
                self.store,
                name=self.name,
                shape=(start + count,),
                chunks=(self.chunk,),
                dtype=self.dtype,
                compressors=codecs_for(self.dtype),
                fill_value=0,
                dimension_names=(COLUMNS[self.name].along,),
                config={"write_empty_chunks": True},
                overwrite=True,  # behind a URL, a writer that was killed may have left a part of this array
            )
        else:
            self._array.resize((start + count,))
        if count:
            self._array[start : start + count] = values[:count]
        # A copy, so that the values still to write do not keep the written ones in memory.
        self._pending = [values[count:].copy()]
        self._n_pending = len(values) - count


_CHUNK_KEY = re.compile(r"(?P<column>[a-z0-9_]+)/c/(?P<chunk>[0-9]+)")
