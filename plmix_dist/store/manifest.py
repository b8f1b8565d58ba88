"""The description of a store: a sealed manifest, and a sealed index for each partition."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import DamagedStoreError, StoreNotFoundError, UnfinishedStoreError, UnsupportedFormatError
from plmix_dist.settings.checks import near_path
from plmix_dist.store.arrays import COLUMNS
from plmix_dist.store.location import Location
from plmix_dist.store.sealed import VERSIONS, SealedRecord, check_version, seal, sha256, typed, unseal

FORMAT = "plmix-rankings"
MANIFEST = "manifest.json"
INDEX = "index.json"
PLAN = "wip/plan.json"
# A plan that claims more was altered: their entries would not fit into a manifest.
_MOST_PARTITIONS = 1_000_000
_AGAIN = "make the store again from its source"

# Labels that are text are in two arrays.
_HALVES = [(f"{name}_lengths", f"{name}_utf8") for name in ("ids", "groups", "persons")]
_OTHER_HALF = dict(_HALVES) | {second: first for first, second in _HALVES}
# Any Zarr reader can open a store as a plain Zarr v3 group.
ZARR_GROUP = b'{"attributes": {}, "zarr_format": 3, "node_type": "group"}'
GROUP_KEYS = ("zarr.json", "partitions/zarr.json")


def partition_name(number: int) -> str:
    """The folder of a partition. It is made from the number, never read from a file."""
    return f"partitions/p{number:06d}"


class ColumnDescription(TypedDict):
    """The entry of an index for one array."""

    dtype: str
    length: int
    chunk: int


@dataclass(frozen=True)
class PartitionIndex(SealedRecord):
    """One immutable partition: its leaves, its columns, and the size and digest of each of its files."""

    n_rankings: int
    total_weight: float
    leaf_rows: list[int]
    leaf_items: list[int]  # the number of listed items of each leaf
    columns: dict[str, ColumnDescription]
    files: dict[str, tuple[int, str]]  # size and SHA-256
    rejected: dict[str, int]  # the number of rejected rows for each reason
    plan: str  # the fingerprint of the plan that the partition was written for

    def row_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first row of each leaf, and the end."""
        return np.concatenate([[0], np.cumsum(self.leaf_rows, dtype=np.int64)])

    def item_bounds(self) -> NDArray[np.int64]:
        """(n_leaves + 1,): the first entry of each leaf in the item columns, and the end."""
        return np.concatenate([[0], np.cumsum(self.leaf_items, dtype=np.int64)])

    def miscounts(self) -> list[str]:
        """The counts of this index that contradict each other, one sentence each."""
        rows, items = sum(self.leaf_rows), sum(self.leaf_items)
        found = []
        if len(self.leaf_rows) != len(self.leaf_items) or min([*self.leaf_rows, *self.leaf_items], default=1) < 1:
            found.append("the rows and items of its leaves do not fit together")
        if rows != self.n_rankings:
            found.append(f"its leaves have {rows:,} rows, the index says {self.n_rankings:,}")
        needed = {name for name, column in COLUMNS.items() if rows and not column.optional}
        needed |= {_OTHER_HALF[name] for name in _OTHER_HALF if name in self.columns}
        found += [f"array {name} is missing" for name in sorted(needed - self.columns.keys())]
        for name, column in self.columns.items():
            along = COLUMNS[name].along if name in COLUMNS else "byte"
            expected = {"row": rows, "item": items}.get(along, column["length"])
            if along == "feature" and column["length"] % max(items, 1):
                expected = items
            if column["length"] != expected:
                found.append(f"array {name} has {column['length']:,} entries, its leaves have {expected:,}")
        return found


@dataclass(frozen=True)
class PartitionSummary:
    """The entry of the manifest for one partition."""

    n_rankings: int
    n_entries: int
    n_leaves: int
    total_weight: float
    index_sha256: str


@dataclass(frozen=True)
class Manifest:
    """The whole store: items, sizes, origin of the data, and the digest of every partition's index."""

    item_names: list[str]
    leaf_rows: int
    partitions: list[PartitionSummary]
    history: list[dict[str, Any]]
    generation: int = 1
    feature_names: list[str] = field(default_factory=list)
    # Columns about persons, in the order of their cells: the levels of each, none of numbers.
    person_columns: list[tuple[str, list[str]]] = field(default_factory=list)
    format: str = FORMAT
    version: int = VERSIONS[FORMAT]

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.item_names)

    @property
    def n_rankings(self) -> int:
        """The number of rows over all partitions."""
        return sum(partition.n_rankings for partition in self.partitions)

    @property
    def total_weight(self) -> float:
        """The sum of weights over all partitions."""
        return sum(partition.total_weight for partition in self.partitions)

    def to_bytes(self) -> bytes:
        """Sealed JSON. It also has the totals over all partitions, for people who read it."""
        totals = {"n_rankings": self.n_rankings, "n_items": self.n_items, "total_weight": self.total_weight}
        record = asdict(self) | totals
        unused = [name for name in ("feature_names", "person_columns") if not record[name]]
        return seal({name: value for name, value in record.items() if name not in unused})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """From sealed JSON; an error for other formats, newer versions and altered bytes."""
        record = unseal(data, where)
        if record.get("format") != FORMAT:
            raise UnsupportedFormatError(f"{where} is not a store of rankings: its format is {record.get('format')!r}")
        check_version(FORMAT, record.get("version"), where)
        totals = {name: record.pop(name, None) for name in ("n_rankings", "n_items", "total_weight")}
        manifest = typed(cls, record, where)
        for name, total in totals.items():
            if total != (added := getattr(manifest, name)):
                raise DamagedStoreError(f"{where}: {name} is {total}, its partitions add up to {added}")
        return manifest


def read_manifest(location: Location) -> Manifest:
    """The manifest of a finished store, or an error that says what is there instead."""
    try:
        data = location.read_bytes(MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        if location.exists(PLAN):
            raise UnfinishedStoreError(_what_is_missing(location)) from None
        raise StoreNotFoundError(f"no store at {location.url}{_what_is_there(location)}") from None
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
    """The index of a partition, checked against the digest in the manifest."""
    key = f"{partition_name(number)}/{INDEX}"
    where = f"{location.url}/{key}"
    try:
        data = location.read_bytes(key)
    except FileNotFoundError:
        raise DamagedStoreError(f"{where} is missing: partition {number} is lost; {_AGAIN}") from None
    if expected_sha256 is not None and sha256(data) != expected_sha256:
        raise DamagedStoreError(f"{where} was altered: its digest is not the one in {MANIFEST}; {_AGAIN}")
    return PartitionIndex.from_bytes(data, where)


def written_partitions(location: Location, numbers: range) -> list[int]:
    """Which of these partitions were published."""
    return [number for number in numbers if location.exists(f"{partition_name(number)}/{INDEX}")]


def _what_is_missing(location: Location) -> str:
    kind, planned = planned_partitions(location)
    # No more are looked for than are shown.
    unwritten = (number for number in planned if not written_partitions(location, range(number, number + 1)))
    missing = list(itertools.islice(unwritten, 21))
    shown = ", ".join(map(str, missing[:20])) + (", ..." if len(missing) > 20 else "")
    state = f"partitions not written: {shown}" if missing else "all partitions are written, but the manifest is not"
    return f"the store at {location.url} is unfinished ({state}); run the same `plmix {kind}` again to continue"


class _Planned(TypedDict):
    """What a reader needs to know of a plan."""

    kind: str
    first_partition: int
    n_partitions: int


def planned_partitions(location: Location) -> tuple[str, range]:
    """What is writing to a store, and the numbers of the partitions that it writes."""
    where = f"{location.url}/{PLAN}"
    plan = typed(_Planned, unseal(location.read_bytes(PLAN), where), where)
    if plan["n_partitions"] > _MOST_PARTITIONS:
        raise DamagedStoreError(f"{where} was altered: n_partitions is {plan['n_partitions']:,}")
    return plan["kind"], range(plan["first_partition"], plan["first_partition"] + plan["n_partitions"])
