"""The description of a store: a sealed manifest, and a sealed index for each partition."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict

import numpy as np

from plmix_dist.errors import (
    DamagedStoreError,
    StoreNotFoundError,
    UnfinishedStoreError,
    UnsupportedFormatError,
)
from plmix_dist.store.near_names import near_path
from plmix_dist.store.schema import COLUMNS, FORMAT, READABLE_VERSIONS, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.store.location import Location

MANIFEST = "manifest.json"
INDEX = "index.json"
PLAN = "wip/plan.json"

# Any Zarr reader can open a store as a plain Zarr v3 group.
ZARR_GROUP = b'{"attributes": {}, "zarr_format": 3, "node_type": "group"}'
GROUP_KEYS = ("zarr.json", "partitions/zarr.json")


def partition_name(number: int) -> str:
    """The folder of a partition. It is made from the number, never read from a file.

    Examples
    --------
    >>> partition_name(3)
    'partitions/p000003'
    """
    return f"partitions/p{number:06d}"


class ColumnDescription(TypedDict):
    """What an index says about one array.

    Examples
    --------
    >>> ColumnDescription(dtype="uint8", length=5, chunk=4)["dtype"]
    'uint8'
    """

    dtype: str
    length: int
    chunk: int


@dataclass(frozen=True)
class PartitionIndex:
    """One immutable partition: its leaves, its columns, and the size and digest of each of its files.

    Parameters
    ----------
    leaf_rows, leaf_items
        The number of rows, and of listed items, of each leaf.
    columns
        The type, length and chunk length of each array.
    files
        Size and SHA-256 of each file.
    rejected
        The number of rejected rows for each reason.
    plan
        The fingerprint of the plan that the partition was written for.

    Examples
    --------
    >>> index = PartitionIndex(5, 5.0, [3, 2], [9, 6], {}, {}, {}, "")
    >>> PartitionIndex.from_bytes(index.to_bytes(), "index.json") == index
    True
    """

    n_rankings: int
    total_weight: float
    leaf_rows: list[int]
    leaf_items: list[int]
    columns: dict[str, ColumnDescription]
    files: dict[str, tuple[int, str]]
    rejected: dict[str, int]
    plan: str

    def row_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end.

        Examples
        --------
        >>> PartitionIndex(5, 5.0, [3, 2], [9, 6], {}, {}, {}, "").row_bounds().tolist()
        [0, 3, 5]
        """
        return np.concatenate([[0], np.cumsum(self.leaf_rows, dtype=np.int64)])

    def item_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first entry of each leaf in the item columns, and the end.

        Examples
        --------
        >>> PartitionIndex(5, 5.0, [3, 2], [9, 6], {}, {}, {}, "").item_bounds().tolist()
        [0, 9, 15]
        """
        return np.concatenate([[0], np.cumsum(self.leaf_items, dtype=np.int64)])

    def to_bytes(self) -> bytes:
        """Sealed JSON.

        Examples
        --------
        >>> json.loads(PartitionIndex(5, 5.0, [3, 2], [9, 6], {}, {}, {}, "").to_bytes())["leaf_rows"]
        [3, 2]
        """
        return seal(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """From sealed JSON; an error if a byte was altered.

        Examples
        --------
        >>> PartitionIndex.from_bytes(b"{}", "index.json")
        Traceback (most recent call last):
        ...
        plmix_dist.errors.DamagedStoreError: index.json was altered or cut short: it is not sealed JSON
        """
        record = unseal(data, where)
        with _complete(where):
            record["files"] = {
                key: (int(size), str(digest)) for key, (size, digest) in record["files"].items()
            }
            return cls(**record)

    def miscounts(self) -> list[str]:
        """The counts of this index that contradict each other, one sentence each.

        Examples
        --------
        >>> PartitionIndex(6, 5.0, [3, 2], [9, 6], {}, {}, {}, "").miscounts()
        ['its leaves have 5 rows, the index says 6']
        """
        rows, items = sum(self.leaf_rows), sum(self.leaf_items)
        found = []
        if (
            len(self.leaf_rows) != len(self.leaf_items)
            or min([*self.leaf_rows, *self.leaf_items], default=1) < 1
        ):
            found.append("the rows and items of its leaves do not fit together")
        if rows != self.n_rankings:
            found.append(f"its leaves have {rows:,} rows, the index says {self.n_rankings:,}")
        for name, column in self.columns.items():
            along = COLUMNS[name].along if name in COLUMNS else "byte"
            expected = {"row": rows, "item": items}.get(along, column["length"])
            if column["length"] != expected:
                found.append(f"array {name} has {column['length']:,} entries, its leaves have {expected:,}")
        return found


@dataclass(frozen=True)
class PartitionSummary:
    """What the manifest says about one partition.

    Examples
    --------
    >>> PartitionSummary(n_rankings=5, n_entries=15, n_leaves=2, total_weight=5.0, index_sha256="").n_leaves
    2
    """

    n_rankings: int
    n_entries: int
    n_leaves: int
    total_weight: float
    index_sha256: str


@dataclass(frozen=True)
class Manifest:
    """The whole store: items, sizes, origin of the data, and the digest of every partition's index.

    Examples
    --------
    >>> part = PartitionSummary(n_rankings=5, n_entries=10, n_leaves=2, total_weight=8.0, index_sha256="")
    >>> manifest = Manifest(["tea", "coffee"], leaf_rows=4096, partitions=[part, part], history=[])
    >>> manifest.n_rankings, manifest.total_weight
    (10, 16.0)
    >>> Manifest.from_bytes(manifest.to_bytes(), "manifest.json") == manifest
    True
    """

    item_names: list[str]
    leaf_rows: int
    partitions: list[PartitionSummary]
    history: list[dict[str, Any]]
    generation: int = 1
    format: str = FORMAT
    version: int = VERSION

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.item_names)

    @property
    def n_rankings(self) -> int:
        """The number of rows over all partitions."""
        return sum(partition.n_rankings for partition in self.partitions)

    @property
    def n_entries(self) -> int:
        """The number of listed items over all rows."""
        return sum(partition.n_entries for partition in self.partitions)

    @property
    def n_leaves(self) -> int:
        """The number of leaves over all partitions."""
        return sum(partition.n_leaves for partition in self.partitions)

    @property
    def total_weight(self) -> float:
        """The sum of weights over all partitions."""
        return sum(partition.total_weight for partition in self.partitions)

    def to_bytes(self) -> bytes:
        """Sealed JSON. It also has the totals over all partitions, for people who read it.

        Examples
        --------
        >>> json.loads(Manifest(["tea", "coffee"], 4096, partitions=[], history=[]).to_bytes())["n_items"]
        2
        """
        totals = {"n_rankings": self.n_rankings, "n_items": self.n_items, "total_weight": self.total_weight}
        return seal(asdict(self) | totals)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """From sealed JSON; an error for other formats, newer versions and altered bytes.

        Examples
        --------
        >>> Manifest.from_bytes(seal({"format": "other"}), "manifest.json")
        Traceback (most recent call last):
        ...
        plmix_dist.errors.UnsupportedFormatError: manifest.json is not a store of rankings: its format is 'other'
        """
        record = unseal(data, where)
        if record.get("format") != FORMAT:
            raise UnsupportedFormatError(
                f"{where} is not a store of rankings: its format is {record.get('format')!r}"
            )
        if record.get("version") not in READABLE_VERSIONS:
            raise UnsupportedFormatError(
                f"{where}: format version {record.get('version')} is not among those this version of plmix_dist reads "
                f"({', '.join(map(str, READABLE_VERSIONS))}); install a newer plmix_dist"
            )
        with _complete(where):
            totals = {name: record.pop(name) for name in ("n_rankings", "n_items", "total_weight")}
            record["partitions"] = [PartitionSummary(**partition) for partition in record["partitions"]]
            manifest = cls(**record)
        for name, total in totals.items():
            if total != getattr(manifest, name):
                raise DamagedStoreError(
                    f"{where}: {name} is {total}, its partitions add up to {getattr(manifest, name)}"
                )
        return manifest


def read_manifest(location: Location) -> Manifest:
    """The manifest of a finished store, or an error that says what is there instead.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
    >>> read_manifest(store.location).n_rankings
    100
    """
    try:
        data = location.read_bytes(MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        if location.exists(PLAN):
            raise UnfinishedStoreError(_what_is_missing(location)) from None
        raise StoreNotFoundError(f"there is no store at {location.url}{_what_is_there(location)}") from None
    return Manifest.from_bytes(data, f"{location.url}/{MANIFEST}")


def _what_is_there(location: Location) -> str:
    """What is there instead of a store, and what to do."""
    if location.is_local and Path(location.url).is_file():
        return (
            f": it is a file; read it into a store with `plmix ingest {location.url} STORE`, in Python "
            f"`plmix_dist.ingest({location.url!r}, 'STORE')`"
        )
    if location.exists("model.json"):
        return ": it holds a model; name the store of its rankings instead"
    return f"{near_path(location.url)}; make one with `plmix ingest` or `plmix simulate`"


def read_index(location: Location, number: int, expected_sha256: str | None = None) -> PartitionIndex:
    """The index of a partition, checked against the digest in the manifest.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
    >>> read_index(store.location, 0, store.manifest.partitions[0].index_sha256).leaf_rows
    [100]
    """
    key = f"{partition_name(number)}/{INDEX}"
    where = f"{location.url}/{key}"
    try:
        data = location.read_bytes(key)
    except FileNotFoundError:
        raise DamagedStoreError(
            f"{where} is missing: partition {number} is lost; make the store again from its source"
        ) from None
    if expected_sha256 is not None and sha256(data) != expected_sha256:
        raise DamagedStoreError(
            f"{where} was altered: its digest is not the one in {MANIFEST}; make the store again from its source"
        )
    return PartitionIndex.from_bytes(data, where)


def written_partitions(location: Location, numbers: range) -> list[int]:
    """Which of these partitions were published.

    Examples
    --------
    >>> import tempfile, plmix_dist
    >>> store = plmix_dist.simulate(tempfile.mkdtemp() + "/s", n_rankings=100, n_items=5)
    >>> written_partitions(store.location, range(3))
    [0]
    """
    return [number for number in numbers if location.exists(f"{partition_name(number)}/{INDEX}")]


def seal(record: dict[str, Any]) -> bytes:
    """JSON of a record, with the digest of that record in it.

    Examples
    --------
    >>> json.loads(seal({"a": 1})).keys()
    dict_keys(['a', 'sha256'])
    """
    return _canonical(record | {"sha256": sha256(_canonical(record))})


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """The record that `seal` was given; an error if any byte was altered.

    Examples
    --------
    >>> unseal(seal({"a": 1}), "a.json")
    {'a': 1}
    """
    try:
        record = json.loads(data)
        digest = record.pop("sha256")
        # Python reads some JSON that it cannot write: lone surrogates, huge numbers, NaN.
        intact = sha256(_canonical(record)) == digest and seal(record) == data
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise DamagedStoreError(f"{where} was altered or cut short: it is not sealed JSON") from None
    if not intact:
        raise DamagedStoreError(f"{where} was altered: its contents do not match their digest")
    return dict(record)


@contextlib.contextmanager
def _complete(where: str) -> Iterator[None]:
    """Turn a missing or wrong entry into an error that names the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedStoreError(f"{where} was altered: an entry is missing or wrong ({error!r})") from None


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256.

    Examples
    --------
    >>> sha256(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def _canonical(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _what_is_missing(location: Location) -> str:
    plan = unseal(location.read_bytes(PLAN), f"{location.url}/{PLAN}")
    planned = range(plan["first_partition"], plan["first_partition"] + plan["n_partitions"])
    written = set(written_partitions(location, planned))
    missing = [number for number in planned if number not in written]
    shown = ", ".join(map(str, missing[:20])) + (", ..." if len(missing) > 20 else "")
    state = (
        f"partitions not written: {shown}"
        if missing
        else "all partitions are written, but the manifest is not"
    )
    return f"the store at {location.url} is unfinished ({state}); run the same `plmix {plan['kind']}` again to continue"
