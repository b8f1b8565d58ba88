"""The Zarr arrays of a partition: codecs, chunk sizes, and wrappers that record or check every byte."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, WrapperStore

from plmix_dist.errors import DamagedStoreError
from plmix_dist.store.access import reading_permitted, writing_explained
from plmix_dist.store.manifest import sha256
from plmix_dist.store.remote import storage_seconds
from plmix_dist.store.schema import ALLOWED_DTYPES, COLUMNS

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from numpy.typing import NDArray
    from zarr.abc.store import ByteRequest, Store
    from zarr.core.buffer import Buffer, BufferPrototype

    from plmix_dist.store.manifest import ColumnDescription, PartitionIndex

_Value = TypeVar("_Value")

# Measured in benchmarks/codecs.py: Zarr has a cost per chunk, so smaller chunks are slower; larger ones gain little.
CHUNK_BYTES = 1 << 21
LARGEST_CHUNK_BYTES = 1 << 28


def codecs_for(dtype: np.dtype[Any]) -> list[Any]:
    """Compressors for a type of array. Each detects altered bytes by a checksum.

    Bytes: zstd at level 1 is within 3 % of n log2(n) bits for permutations. Wider numbers are bit-shuffled
    by blosc first. Blosc has no checksum, so crc32c follows it.

    Examples
    --------
    >>> [type(codec).__name__ for codec in codecs_for(np.dtype("uint16"))]
    ['BloscCodec', 'Crc32cCodec']
    """
    if dtype.itemsize == 1:
        return [ZstdCodec(level=1, checksum=True)]
    blosc = BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle", typesize=dtype.itemsize)
    return [blosc, Crc32cCodec()]


async def _within(store: Store, request: Awaitable[_Value], n_bytes: int) -> _Value:
    """What a request gives; a TimeoutError if the storage behind a URL takes longer than it may."""
    if isinstance(store, LocalStore):
        return await request
    return await asyncio.wait_for(request, storage_seconds(n_bytes))


class RecordingStore(WrapperStore["Store"]):
    """A Zarr store that remembers the size and the digest of every key that is written through it.

    Examples
    --------
    >>> from zarr.storage import MemoryStore
    >>> store = RecordingStore(MemoryStore())
    >>> _ = zarr.create_array(store, name="x", data=np.arange(3), compressors=None)
    >>> sorted(store.written), store.written["x/c/0"][0]
    (['x/c/0', 'x/zarr.json'], 24)
    """

    def __init__(self, store: Store, where: str = "") -> None:
        super().__init__(store)
        self.where = where
        self.written: dict[str, tuple[int, str]] = {}

    async def set(self, key: str, value: Buffer) -> None:
        """Write one key, and remember its size and digest.

        Examples
        --------
        >>> from zarr.core.buffer.cpu import Buffer
        >>> from zarr.storage import MemoryStore
        >>> store = RecordingStore(MemoryStore())
        >>> sync(store.set("x", Buffer.from_bytes(b"tea")))
        >>> store.written["x"][0]
        3
        """
        data = value.to_bytes()
        with writing_explained(f"{self.where}/{key}", len(data)):
            await _within(self._store, super().set(key, value), len(data))
        self.written[key] = (len(data), sha256(data))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write one key unless it is there. Zarr makes the groups above an array so; they are not remembered.

        Examples
        --------
        >>> from zarr.core.buffer.cpu import Buffer
        >>> from zarr.storage import MemoryStore
        >>> store = RecordingStore(MemoryStore())
        >>> sync(store.set_if_not_exists("x", Buffer.from_bytes(b"tea")))
        >>> store.written
        {}
        """
        with writing_explained(f"{self.where}/{key}", len(value)):
            await super().set_if_not_exists(key, value)


class CheckedStore(WrapperStore["Store"]):
    """A Zarr store that is read only, and in which every key must match the index of its partition.

    A key that is missing or altered is an error, never a wrong number.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
    >>> files = store.location.zarr_store("partitions/p000000", read_only=True)
    >>> checked = CheckedStore(files, store.index(0), "p000000")
    >>> store.location.write_bytes("partitions/p000000/items/c/0", b"altered")
    >>> checked.read_whole("items/c/0")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.DamagedStoreError: p000000/items/c/0 has 7 bytes where ... were written (array items, ...
    """

    def __init__(self, store: Store, index: PartitionIndex, where: str) -> None:
        super().__init__(store)
        self.index = index
        self.where = where

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read one whole key. It is an error if the key is missing, altered, or unpacks to another size.

        Examples
        --------
        >>> import tempfile, plmix_dist
        >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
        >>> files = store.location.zarr_store("partitions/p000000", read_only=True)
        >>> checked = CheckedStore(files, store.index(0), "p000000")
        >>> len(sync(checked.get("items/c/0", default_buffer_prototype()))) == store.index(0).files["items/c/0"][0]
        True
        """
        assert byte_range is None, "a chunk is read whole, because its digest is that of all its bytes"
        expected = self.index.files.get(key)
        if expected is None:
            if _CHUNK_KEY.fullmatch(key):
                raise self.damaged(key, "is not in the index of its partition")
            return None
        self._refuse_others(key)
        with reading_permitted(f"{self.where}/{key}"):
            value = await _within(self._store, super().get(key, prototype), expected[0])
        if value is None:
            raise self.damaged(key, "is missing")
        size, digest = expected
        if len(value) != size:
            raise self.damaged(key, f"has {len(value):,} bytes where {size:,} were written")
        data = value.to_bytes()
        # Hashing releases the interpreter lock, so other reads continue meanwhile.
        if await asyncio.to_thread(sha256, data) != digest:
            raise self.damaged(key, "was altered: its digest is not the one recorded when it was written")
        if _CHUNK_KEY.fullmatch(key):
            self._check_unpacked_size(key, data)
        return value

    def read_whole(self, key: str) -> bytes:
        """The contents of a file that is not part of an array.

        Examples
        --------
        >>> import tempfile, plmix_dist
        >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
        >>> files = store.location.zarr_store("partitions/p000000", read_only=True)
        >>> checked = CheckedStore(files, store.index(0), "p000000")
        >>> checked.read_whole("zarr.json")[:17]
        b'{"attributes": {}'
        """
        value = sync(self.get(key, default_buffer_prototype()))
        assert value is not None, f"{key} is in the index"
        return value.to_bytes()

    def _refuse_others(self, key: str) -> None:
        if isinstance(self._store, LocalStore):
            path = os.path.join(os.path.realpath(self._store.root), *key.split("/"))  # noqa: PTH118
            if os.path.realpath(Path(self._store.root) / key) != path:
                raise self.damaged(key, "is a symbolic link, and links are not followed")
            with contextlib.suppress(FileNotFoundError), reading_permitted(path):
                if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a pipe would wait for a writer forever
                    raise self.damaged(key, "is not a plain file")

    def _check_unpacked_size(self, key: str, data: bytes) -> None:
        column = self.index.columns[key.split("/")[0]]
        expected = column["chunk"] * np.dtype(column["dtype"]).itemsize
        if unpacked_size(data) != expected:
            raise self.damaged(
                key, f"claims to unpack to {unpacked_size(data):,} bytes where {expected:,} fit"
            )

    def damaged(self, key: str, what: str) -> DamagedStoreError:
        """An error that names the array, the chunk and the rows.

        Examples
        --------
        >>> import tempfile, plmix_dist
        >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
        >>> files = store.location.zarr_store("partitions/p000000", read_only=True)
        >>> checked = CheckedStore(files, store.index(0), "p000000")
        >>> print(checked.damaged("items/c/0", "is missing"))
        p000000/items/c/0 is missing (array items, chunk 0, within rows 0 to 99 of the partition); ...
        """
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
    """The size in bytes that a compressed chunk claims to unpack to, read from its header.

    It is -1 if the chunk is neither zstd nor blosc, or if a second zstd frame follows, whose size is not known.

    Examples
    --------
    >>> from numcodecs.zstd import Zstd
    >>> unpacked_size(Zstd().encode(bytes(1000)))
    1000
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
    """Open an array of a partition. It is an error if its shape, type or codecs are not those expected.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
    >>> files = store.location.zarr_store("partitions/p000000", read_only=True)
    >>> checked = CheckedStore(files, store.index(0), "p000000")
    >>> open_column(checked, "n_listed").shape
    (100,)
    """
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
        column.get("dtype") in ALLOWED_DTYPES
        and type(length) is type(chunk) is int
        and length >= 0
        and 1 <= chunk <= LARGEST_CHUNK_BYTES // np.dtype(column["dtype"]).itemsize
    )


def read_column(store: CheckedStore, name: str, array: zarr.Array[Any], entries: slice) -> NDArray[Any]:
    """Some entries of an array. If a chunk cannot be unpacked, the error names the array.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
    >>> files = store.location.zarr_store("partitions/p000000", read_only=True)
    >>> checked = CheckedStore(files, store.index(0), "p000000")
    >>> read_column(checked, "n_listed", open_column(checked, "n_listed"), slice(0, 3)).tolist()
    [5, 5, 5]
    """
    try:
        return np.asarray(array[entries])
    except (RuntimeError, ValueError) as error:
        raise store.damaged(name, f"cannot be unpacked ({error})") from error


class ColumnWriter:
    """An array of a partition that grows at its end. A chunk is written as soon as it is full.

    Examples
    --------
    >>> from zarr.storage import MemoryStore
    >>> column = ColumnWriter(RecordingStore(MemoryStore()), "items", np.dtype("uint8"), chunk_bytes=4)
    >>> column.append(np.array([3, 1, 2], np.uint8))
    >>> column.append(np.array([0, 5], np.uint8))
    >>> column.close()
    {'dtype': 'uint8', 'length': 5, 'chunk': 4}
    """

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
        """Add values at the end.

        Examples
        --------
        >>> from zarr.storage import MemoryStore
        >>> column = ColumnWriter(RecordingStore(MemoryStore()), "items", np.dtype("uint8"), chunk_bytes=4)
        >>> column.append(np.array([3, 1, 2], np.uint8))
        >>> column.length
        3
        """
        self._pending.append(values)
        self._n_pending += len(values)
        self.length += len(values)
        if self._n_pending >= self.chunk:
            self._write(self._n_pending - self._n_pending % self.chunk)

    def close(self) -> ColumnDescription:
        """Write the rest, and describe the array. A short array is one chunk of its own length.

        Examples
        --------
        >>> from zarr.storage import MemoryStore
        >>> column = ColumnWriter(RecordingStore(MemoryStore()), "items", np.dtype("uint8"), chunk_bytes=4)
        >>> column.append(np.array([3, 1, 2], np.uint8))
        >>> column.close()
        {'dtype': 'uint8', 'length': 3, 'chunk': 3}
        """
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
        # A copy, so that the values still to write do not keep the written ones in memory.
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
            overwrite=True,  # behind a URL, a writer that was killed may have left a part of this array
        )


_CHUNK_KEY = re.compile(r"(?P<column>[a-z0-9_]+)/c/(?P<chunk>[0-9]+)")
