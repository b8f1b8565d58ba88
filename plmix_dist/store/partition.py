"""Writing one partition: its columns, its index, and then its publication in one step."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import DamagedStoreError
from plmix_dist.rankings import RankingBlock
from plmix_dist.rankings.groups import cut_leaves
from plmix_dist.store import publication, sealed
from plmix_dist.store.arrays import CHUNK_BYTES, COLUMNS, ColumnWriter, RecordingStore, columns_of
from plmix_dist.store.location import Location
from plmix_dist.store.manifest import INDEX, PLAN, ZARR_GROUP, PartitionIndex, partition_name, read_index
from plmix_dist.threads import check_stopped


@dataclass(frozen=True)
class WritePlan(publication.Plan):
    """Everything that determines the bytes of a store, so that a second run can continue the first."""

    key: ClassVar[str] = PLAN

    kind: str
    item_names: list[str]
    leaf_rows: int
    n_partitions: int
    settings: dict[str, Any]
    sources: list[dict[str, Any]] = field(default_factory=list)
    chunk_bytes: int = CHUNK_BYTES
    first_partition: int = 0
    feature_names: list[str] = field(default_factory=list)
    # With levels that are known before rows are written.
    person_columns: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def verb(self) -> str:
        """The command that carries out the plan."""
        return self.kind

    def content(self) -> dict[str, Any]:
        """The entries without the number of the first partition, which depends on what was appended before."""
        unused = [name for name in ("feature_names", "person_columns") if not getattr(self, name)]
        left_out = {"first_partition", *unused}
        return {name: value for name, value in asdict(self).items() if name not in left_out}

    @property
    def partitions(self) -> range:
        """The numbers of the partitions to write."""
        return range(self.first_partition, self.first_partition + self.n_partitions)


@dataclass(frozen=True)
class PartitionTask:
    """What a worker must know to write one partition."""

    location: Location
    number: int
    n_items: int
    leaf_rows: int
    chunk_bytes: int
    plan: str


@dataclass
class RejectedRows:
    """Rejected rows: their number for each reason, and one line of JSON per row."""

    counts: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def add(self, reason: str, record: dict[str, Any]) -> None:
        """Count a row and list it."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.lines.append(json.dumps({"reason": reason, **record}, ensure_ascii=False) + "\n")


def write_partition(
    task: PartitionTask,
    blocks: Iterable[RankingBlock | tuple[RankingBlock, NDArray[np.integer]]],
    rejected: RejectedRows | None = None,
) -> PartitionIndex:
    """Write the rows of one partition block by block, then publish the partition in one step."""
    final = partition_name(task.number)
    staged = task.location.staging(final)
    store = RecordingStore(task.location.zarr_store(staged, read_only=False), f"{task.location.url}/{staged}")
    writer = _PartitionWriter(store, task)
    for block in blocks:
        check_stopped()
        writer.append(*(block if isinstance(block, tuple) else (block,)))
    files: dict[str, bytes] = {"zarr.json": ZARR_GROUP}
    if rejected is not None and rejected.lines:
        files["rejected.jsonl"] = "".join(rejected.lines).encode()
    for key, data in files.items():
        task.location.write_bytes(f"{staged}/{key}", data)
        store.written[key] = (len(data), sealed.sha256(data))
    index = writer.close(rejected.counts if rejected is not None else {})
    if not publication.is_wanted(task.location, WritePlan, task.plan):
        task.location.remove(staged)
        raise publication.abandoned(task.location, f"partition {task.number} is")
    task.location.write_bytes(f"{staged}/{INDEX}", index.to_bytes())
    if staged != final and task.location.exists(f"{final}/{INDEX}"):
        if made_by(task.location, task.number) == task.plan:
            task.location.remove(staged)  # another worker has just published the same bytes
            return index
        task.location.remove(final)  # left by a worker of an abandoned plan
    task.location.publish(staged, final)
    return index


class _PartitionWriter:
    """The columns of one partition, written together. A column is created when a value differs from its default."""

    def __init__(self, store: RecordingStore, task: PartitionTask) -> None:
        self.store = store
        self.task = task
        self.columns: dict[str, ColumnWriter] = {}
        self.total_weight = 0.0
        self._lengths = {"row": 0, "item": 0}
        self._n_listed: list[NDArray[Any]] = []
        self._group_starts: list[NDArray[np.bool_]] | None = None
        self._last_group: Any = None

    def append(self, block: RankingBlock, component: NDArray[np.integer] | None = None) -> None:
        """Add rows at the end."""
        if not block.n_rankings:
            return
        columns = columns_of(block, component)
        for name in columns.keys() | self.columns.keys():
            self._append_column(name, columns.get(name), block)
        self._note_groups(block)
        self._lengths["row"] += block.n_rankings
        self._lengths["item"] += len(block.items)
        self._n_listed.append(block.n_listed)
        self.total_weight += block.total_weight

    def close(self, rejected: dict[str, int]) -> PartitionIndex:
        """Write the rest, and cut the rows into leaves."""
        described = {name: self.columns[name].close() for name in sorted(self.columns)}
        n_rankings = self._lengths["row"]
        starts = None if self._group_starts is None else np.concatenate(self._group_starts)
        leaf_rows = cut_leaves(n_rankings, self.task.leaf_rows, starts)
        n_listed = np.concatenate(self._n_listed) if self._n_listed else np.empty(0, np.uint8)
        first_rows = np.cumsum([0, *leaf_rows[:-1]], dtype=np.int64)
        leaf_items = np.add.reduceat(n_listed.astype(np.int64), first_rows).tolist() if leaf_rows else []
        return PartitionIndex(
            n_rankings=n_rankings,
            total_weight=self.total_weight,
            leaf_rows=leaf_rows,
            leaf_items=leaf_items,
            columns=described,
            files=dict(sorted(self.store.written.items())),
            rejected=rejected,
            plan=self.task.plan,
        )

    def _append_column(self, name: str, values: NDArray[Any] | None, block: RankingBlock) -> None:
        column = COLUMNS[name]
        n_new = len(block.items) if column.along == "item" else block.n_rankings
        n_before = self._lengths.get(column.along, 0)
        if values is None:
            if column.default is None:
                raise DamagedStoreError(f"rows of one partition must all have {name}, or none of them")
            values = np.full(n_new, column.default, self.columns[name].dtype)
        if name not in self.columns:
            self.columns[name] = ColumnWriter(self.store, name, values.dtype, self.task.chunk_bytes)
            if n_before and column.default is None and column.along != "byte":
                raise DamagedStoreError(f"rows of one partition must all have {name}, or none of them")
            if column.default is not None:
                self.columns[name].append(np.full(n_before, column.default, values.dtype))
        self.columns[name].append(values)

    def _note_groups(self, block: RankingBlock) -> None:
        if block.groups is None:
            return
        starts = block.group_starts
        starts[0] = self._group_starts is None or block.groups[0] != self._last_group
        self._group_starts = [*(self._group_starts or []), starts]
        self._last_group = block.groups[-1]


def made_by(location: Location, number: int) -> str | None:
    """The fingerprint of the plan that a partition was written for; None if its index cannot be read."""
    try:
        return read_index(location, number).plan
    except DamagedStoreError:
        return None
