"""The Zarr arrays of a partition: codecs, chunk sizes, and stores that record or check every byte."""

from __future__ import annotations

import asyncio
import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, WrapperStore

from plmix_dist.errors import DamagedStoreError
from plmix_dist.store.location import disk_full_explained
from plmix_dist.store.manifest import sha256
from plmix_dist.store.schema import ALLOWED_DTYPES, COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from zarr.abc.store import ByteRequest, Store
    from zarr.core.buffer import Buffer, BufferPrototype

    from plmix_dist.store.manifest import PartitionIndex

# Measured in benchmarks/codecs.py: smaller chunks pay for Zarr's handling of each, larger ones gain little.
CHUNK_BYTES = 1 << 21
LARGEST_CHUNK_BYTES = 1 << 28


def codecs_for(dtype: np.dtype[Any]) -> list[Any]:
    """Compressors by item size, each with a checksum of its own.

    Bytes: zstd at level 1 is within 3 % of n log2(n) bits for permutations. Wider numbers need their bits
    sorted first; blosc has no checksum, so crc32c follows it.
    """
    if dtype.itemsize == 1:
        return [ZstdCodec(level=1, checksum=True)]
    blosc = BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle", typesize=dtype.itemsize)
    return [blosc, Crc32cCodec()]


class RecordingStore(WrapperStore["Store"]):
    """Writes to another store and remembers size and digest of every key written."""

    def __init__(self, store: Store, where: str = "") -> None:
        super().__init__(store)
        self.where = where
        self.written: dict[str, tuple[int, str]] = {}

    async def set(self, key: str, value: Buffer) -> None:
        """Write one key."""
        data = value.to_bytes()
        with disk_full_explained(f"{self.where}/{key}", len(data)):
            await super().set(key, value)
        self.written[key] = (len(data), sha256(data))


class CheckedStore(WrapperStore["Store"]):
    """Reads from another store, and gives no byte that differs from what the partition's index promises."""

    def __init__(self, store: Store, index: PartitionIndex, where: str) -> None:
        super().__init__(store)
        self.index = index
        self.where = where

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read one key, whole; an error where it is missing, altered, or would unpack to an unexpected size."""
        assert byte_range is None, "chunks are read whole, so that their digest can be checked"
        expected = self.index.files.get(key)
        if expected is None:
            if _CHUNK_KEY.fullmatch(key):
                raise self.damaged(key, "is not in the index of its partition")
            return None
        self._refuse_links(key)
        value = await super().get(key, prototype)
        if value is None:
            raise self.damaged(key, "is missing")
        size, digest = expected
        if len(value) != size:
            raise self.damaged(key, f"has {len(value):,} bytes where {size:,} were written")
        data = value.to_bytes()
        # Hashing lets go of the interpreter lock, so other reads go on meanwhile.
        if await asyncio.to_thread(sha256, data) != digest:
            raise self.damaged(key, "was altered: its digest is not the one recorded when it was written")
        if _CHUNK_KEY.fullmatch(key):
            self._check_unpacked_size(key, data)
        return value

    def read_whole(self, key: str) -> bytes:
        """A file that is no array."""
        value = sync(self.get(key, default_buffer_prototype()))
        assert value is not None, f"{key} is in the index"
        return value.to_bytes()

    def _refuse_links(self, key: str) -> None:
        if isinstance(self._store, LocalStore):
            root = os.path.realpath(self._store.root)
            if os.path.realpath(Path(self._store.root) / key) != os.path.join(root, *key.split("/")):  # noqa: PTH118
                raise self.damaged(key, "is a symbolic link, and links are not followed")

    def _check_unpacked_size(self, key: str, data: bytes) -> None:
        column = self.index.columns[key.split("/")[0]]
        expected = column["chunk"] * np.dtype(column["dtype"]).itemsize
        if unpacked_size(data) != expected:
            raise self.damaged(
                key, f"claims to unpack to {unpacked_size(data):,} bytes where {expected:,} fit"
            )

    def damaged(self, key: str, what: str) -> DamagedStoreError:
        """An error that names the array, the chunk and the rows."""
        return DamagedStoreError(
            f"{self.where}/{key} {what}{rows_of_chunk(self.index, key)}; "
            "see `plmix verify` for all damage, and write the store anew from its source"
        )


def rows_of_chunk(index: PartitionIndex, key: str) -> str:
    """Which rows of its partition a chunk holds, in words."""
    match = _CHUNK_KEY.fullmatch(key)
    if match is None or match["column"] not in index.columns:
        return ""
    chunk, column = int(match["chunk"]), match["column"]
    start, stop = chunk * index.columns[column]["chunk"], (chunk + 1) * index.columns[column]["chunk"]
    if COLUMNS[column].along == "item":
        bounds = index.item_bounds()
        rows = index.row_bounds()
        first = int(np.searchsorted(bounds, start, side="right")) - 1
        last = min(int(np.searchsorted(bounds, stop, side="left")), len(rows) - 1)
        start, stop = int(rows[min(first, len(rows) - 1)]), int(rows[last])
    elif COLUMNS[column].along == "byte":
        return f" (array {column}, chunk {chunk})"
    stop = min(stop, index.n_rankings)
    return f" (array {column}, chunk {chunk}, within rows {start:,} to {stop - 1:,} of the partition)"


def unpacked_size(data: bytes) -> int:
    """What a compressed chunk says it will unpack to, read from its header before any memory is taken.

    -1 where more follows than one frame: a second could unpack to anything.
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
    """Where the frame whose blocks begin at `start` ends."""
    last = False
    while not last and start + 3 <= len(data):
        header = int.from_bytes(data[start : start + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        start += 3 + (1 if kind == 1 else size)
    return start + (4 if checksum else 0)


def open_column(store: CheckedStore, name: str) -> zarr.Array[Any]:
    """An array of a partition, if its shape and type are those in the index."""
    expected = store.index.columns[name]
    if name not in COLUMNS or not _sensible(expected):
        raise store.damaged(f"{name}/zarr.json", f"claims to be {expected}, which is refused")
    dtype = np.dtype(expected["dtype"])
    try:
        array = zarr.open_array(store, path=name, mode="r", zarr_format=3)
    except (KeyError, TypeError, ValueError) as error:
        raise store.damaged(f"{name}/zarr.json", f"describes no array ({error!r})") from None
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


def _sensible(column: dict[str, Any]) -> bool:
    """Whether an array as its index describes it is of an allowed type and size."""
    length, chunk = column.get("length"), column.get("chunk")
    return (
        column.get("dtype") in ALLOWED_DTYPES
        and type(length) is type(chunk) is int
        and length >= 0
        and 1 <= chunk <= LARGEST_CHUNK_BYTES // np.dtype(column["dtype"]).itemsize
    )


def read_column(store: CheckedStore, name: str, array: zarr.Array[Any], entries: slice) -> NDArray[Any]:
    """Some entries of an array; an error that names it where a chunk cannot be unpacked."""
    try:
        return np.asarray(array[entries])
    except (RuntimeError, ValueError) as error:
        raise store.damaged(name, f"cannot be unpacked ({error})") from error


class ColumnWriter:
    """One growing array of one partition: whole chunks are written as soon as they are full."""

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

    def close(self) -> dict[str, Any]:
        """Write what is left; a column smaller than a chunk makes one chunk of its own size."""
        if self._array is None:
            self.chunk = max(1, min(self.chunk, self.length))
        self._write(self._n_pending)
        return {"dtype": self.dtype.name, "length": self.length, "chunk": self.chunk}

    def _write(self, count: int) -> None:
        values = np.concatenate(self._pending) if self._pending else np.empty(0, self.dtype)
        start = self.length - self._n_pending
        if self._array is None:
            self._array = self._create(start + count)
        else:
            self._array.resize((start + count,))
        if count:
            self._array[start : start + count] = values[:count]
        # A copy, so that the part still waiting does not keep the written part in memory.
        self._pending = [values[count:].copy()]
        self._n_pending = len(values) - count

    def _create(self, length: int) -> zarr.Array[Any]:
        return zarr.create_array(
            self.store,
            name=self.name,
            shape=(length,),
            chunks=(self.chunk,),
            dtype=self.dtype,
            compressors=codecs_for(self.dtype),
            fill_value=0,
            dimension_names=(COLUMNS[self.name].along,),
            config={"write_empty_chunks": True},
            overwrite=True,  # behind a URL a writer that was killed leaves a part of the same array
        )


_CHUNK_KEY = re.compile(r"(?P<column>[a-z0-9_]+)/c/(?P<chunk>[0-9]+)")
