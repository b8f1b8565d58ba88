"""Writing a store: begin -> partitions, by any number of workers at once -> finalise; and appending."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plmix_dist.errors import (
    DamagedStoreError,
    IngestError,
    StoreError,
    StoreExistsError,
    UnfinishedStoreError,
)
from plmix_dist.rankings.leaves import cut_leaves
from plmix_dist.store.arrays import CHUNK_BYTES, ColumnWriter, RecordingStore
from plmix_dist.store.lock import LOCK_KEYS, write_lock
from plmix_dist.store.manifest import (
    GROUP_KEYS,
    INDEX,
    MANIFEST,
    PLAN,
    ZARR_GROUP,
    Manifest,
    PartitionIndex,
    PartitionSummary,
    partition_name,
    read_index,
    read_manifest,
    seal,
    sha256,
    unseal,
    written_partitions,
)
from plmix_dist.store.reader import RankingStore
from plmix_dist.store.schema import COLUMNS, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from plmix_dist.rankings.block import RankingBlock
    from plmix_dist.store.location import Location


@dataclass(frozen=True)
class WritePlan:
    """All that decides what is written: the same plan gives the same bytes, so a second run can continue."""

    kind: str
    item_names: list[str]
    leaf_rows: int
    n_partitions: int
    settings: dict[str, Any]
    sources: list[dict[str, Any]] = field(default_factory=list)
    chunk_bytes: int = CHUNK_BYTES
    first_partition: int = 0

    @property
    def fingerprint(self) -> str:
        """A digest of everything in the plan but its place in the store."""
        content = asdict(self)
        del content["first_partition"]
        return sha256(json.dumps(content, sort_keys=True).encode())

    @property
    def partitions(self) -> range:
        """The numbers of the partitions to write."""
        return range(self.first_partition, self.first_partition + self.n_partitions)

    def to_bytes(self) -> bytes:
        """Sealed JSON."""
        return seal(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """From sealed JSON."""
        return cls(**unseal(data, where))


@dataclass(frozen=True)
class PartitionTask:
    """What a worker must know to write one partition."""

    location: Location
    number: int
    n_items: int
    leaf_rows: int
    chunk_bytes: int
    plan: str


class WriteSession:
    """A store being written by one driver, which holds its lock.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.rankings import RankingBlock
    >>> from plmix_dist.store import Location, WritePlan, WriteSession, write_partition
    >>> place = Location.of(tempfile.mkdtemp() + "/store")
    >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=1, settings={})
    >>> with WriteSession.begin(place, plan) as session:
    ...     for task in session.pending():
    ...         _ = write_partition(task, [RankingBlock.from_array([[0, 1], [1, 0]])])
    ...     store = session.finalise()
    >>> store.n_rankings
    2
    """

    def __init__(self, location: Location, plan: WritePlan, base: Manifest | None, done: bool) -> None:
        self.location = location
        self.plan = plan
        self.base = base
        self.already_done = done

    @classmethod
    @contextlib.contextmanager
    def begin(cls, location: Location, plan: WritePlan, *, append: bool = False) -> Iterator[Self]:
        """Take the lock and begin, continue where an earlier run of the same plan stopped, or find it all done."""
        base = _fit_to_add_to(location, plan, append)
        if base is not None and _contains(base, plan):
            yield cls(location, plan, base, done=True)
            return
        with write_lock(location):
            base = _fit_to_add_to(location, plan, append)  # another writer may just have finished
            if base is not None and _contains(base, plan):  # and with this very plan
                yield cls(location, plan, base, done=True)
                return
            if base is not None:
                plan = _after(base, plan)
                _tidy_after_crash(location, base)
            if location.exists(PLAN):
                _refuse_another_plan(location, plan)
            else:
                _refuse_leftovers(location, plan.first_partition)
                location.write_bytes(PLAN, plan.to_bytes())
            yield cls(location, plan, base, done=False)

    def pending(self) -> list[PartitionTask]:
        """The partitions still to write, in order."""
        if self.already_done:
            return []
        plan = self.plan
        written = written_partitions(self.location, plan.partitions)
        mine = {number for number in written if _made_by(self.location, number) == plan.fingerprint}
        return [
            PartitionTask(
                self.location,
                number,
                len(plan.item_names),
                plan.leaf_rows,
                plan.chunk_bytes,
                plan.fingerprint,
            )
            for number in plan.partitions
            if number not in mine
        ]

    def draft(self, extra: dict[str, Any] | None = None) -> RankingStore:
        """The store as it will be, to look at before it is published; `extra` goes into its history.

        Raises an error where a partition is missing or no ranking was found at all.
        """
        if self.already_done:
            assert self.base is not None
            return RankingStore(self.location, self.base)
        missing = [task.number for task in self.pending()]
        if missing:
            raise UnfinishedStoreError(
                f"{self.location.url}: partitions not written: {', '.join(map(str, missing))}"
            )
        indexes = [read_index(self.location, number) for number in self.plan.partitions]
        rejected = _total_counts(index.rejected for index in indexes)
        if not any(index.n_rankings for index in indexes):
            names = ", ".join(source["name"] for source in self.plan.sources[:3])
            raise IngestError(
                f"no valid ranking was found for {self.location.url}{f' in {names}' if names else ''}, so no store was "
                f"made; rejected rows by reason: {rejected or 'none'}"
            )
        summaries = [_summary(index) for index in indexes]
        event = _event(self.plan, rejected) | (extra or {})
        manifest = Manifest(
            item_names=self.plan.item_names,
            leaf_rows=self.plan.leaf_rows,
            partitions=(self.base.partitions if self.base else []) + summaries,
            history=(self.base.history if self.base else []) + [event],
            generation=self.base.generation + 1 if self.base else 1,
        )
        return RankingStore(self.location, manifest)

    def finalise(self, extra: dict[str, Any] | None = None) -> RankingStore:
        """Check that every partition is there, publish the manifest, and clear away unfinished work."""
        store = self.draft(extra)
        if self.already_done:
            return store
        for key in GROUP_KEYS:
            self.location.write_bytes(key, ZARR_GROUP)
        self.location.write_bytes(MANIFEST, store.manifest.to_bytes())
        _remove_work(self.location)
        return store

    def abandon(self) -> None:
        """Remove everything this plan wrote, so that another may begin."""
        for number in self.plan.partitions:
            self.location.remove(partition_name(number))
        _remove_work(self.location)


def write_partition(
    task: PartitionTask,
    blocks: Iterable[RankingBlock | tuple[RankingBlock, NDArray[np.integer]]],
    rejected: RejectedRows | None = None,
) -> PartitionIndex:
    """Write the rows of one partition as they come, and publish it whole.

    Parameters
    ----------
    blocks
        The rows, in order; each block alone or with the component its rows were drawn from.
    rejected
        Filled while `blocks` is consumed: rows that were turned away, to be listed in the partition.
    """
    final = partition_name(task.number)
    staged = task.location.staging(final)
    store = RecordingStore(task.location.zarr_store(staged, read_only=False), f"{task.location.url}/{staged}")
    writer = PartitionWriter(store, task)
    for block in blocks:
        if isinstance(block, tuple):
            writer.append(*block)
        else:
            writer.append(block)
    files: dict[str, bytes] = {"zarr.json": ZARR_GROUP}
    if rejected is not None and rejected.lines:
        files["rejected.jsonl"] = "".join(rejected.lines).encode()
    for key, data in files.items():
        task.location.write_bytes(f"{staged}/{key}", data)
        store.written[key] = (len(data), sha256(data))
    index = writer.close(rejected.counts if rejected is not None else {})
    if not _still_wanted(task):
        task.location.remove(staged)
        raise StoreError(
            f"the write to {task.location.url} was given up; partition {task.number} is not published"
        )
    task.location.write_bytes(f"{staged}/{INDEX}", index.to_bytes())
    if staged != final and task.location.exists(f"{final}/{INDEX}"):
        if (
            _made_by(task.location, task.number) == task.plan
        ):  # by another worker, a moment ago: the same bytes
            task.location.remove(staged)
            return index
        task.location.remove(final)  # left by a worker of a plan that was given up
    task.location.publish(staged, final)
    return index


@dataclass
class RejectedRows:
    """Rows that were turned away: how many for each reason, and one line of JSON for each."""

    counts: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def add(self, reason: str, record: dict[str, Any]) -> None:
        """Count a row and list it."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.lines.append(json.dumps({"reason": reason, **record}, ensure_ascii=False) + "\n")


class PartitionWriter:
    """The columns of one partition, growing together. A column is begun when it first has something to say."""

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
        """Write what is left, and cut the rows into leaves."""
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
        labels = block.groups
        starts = np.ones(len(labels), np.bool_)
        starts[1:] = labels[1:] != labels[:-1]
        starts[0] = self._group_starts is None or labels[0] != self._last_group
        self._group_starts = [*(self._group_starts or []), starts]
        self._last_group = labels[-1]


def _still_wanted(task: PartitionTask) -> bool:
    """Whether the plan that a partition is written for is still under way: a worker may be the last to hear."""
    try:
        plan = WritePlan.from_bytes(task.location.read_bytes(PLAN), f"{task.location.url}/{PLAN}")
    except FileNotFoundError:
        return False
    return plan.fingerprint == task.plan


def _made_by(location: Location, number: int) -> str | None:
    """The fingerprint of the plan that a partition was written for; None where its index cannot be read."""
    try:
        return read_index(location, number).plan
    except DamagedStoreError:
        return None


def _fit_to_add_to(location: Location, plan: WritePlan, append: bool) -> Manifest | None:
    """What is finished at this place, if it may be added to or is what the plan would make; None where nothing is."""
    if not location.exists(MANIFEST):
        return None
    base = read_manifest(location)
    if not append and not _contains(base, plan):
        raise StoreExistsError(
            f"{location.url} already holds a store of {base.n_rankings:,} rankings made otherwise; "
            "choose another path, add to it with append, or remove it first"
        )
    return base


def _refuse_leftovers(location: Location, first_partition: int) -> None:
    """Refuse to write among partitions that belong to no plan: they are someone's, and may be all that is left."""
    published = {partition_name(number) for number in range(first_partition)}
    for key in location.listing("partitions"):
        folder = "/".join(key.split("/")[:2])
        if key not in GROUP_KEYS and folder not in published:
            raise StoreExistsError(
                f"{location.url}/{folder} is there already, and no manifest or plan says what it is; "
                "choose another path, or remove it first"
            )


def _contains(manifest: Manifest, plan: WritePlan) -> bool:
    return any(event["fingerprint"] == plan.fingerprint for event in manifest.history)


def _remove_work(location: Location) -> None:
    """Remove all work in progress but the lock, which is its holder's to give back."""
    for key in {"/".join(key.split("/")[:2]) for key in location.listing("wip")} - LOCK_KEYS:
        location.remove(key)


def _after(base: Manifest, plan: WritePlan) -> WritePlan:
    """The plan with its partitions numbered after those that are there."""
    if plan.item_names != base.item_names or plan.leaf_rows != base.leaf_rows:
        raise StoreExistsError("rankings to append must use the items and the leaf size of the store")
    return WritePlan(**(asdict(plan) | {"first_partition": len(base.partitions)}))


def _tidy_after_crash(location: Location, base: Manifest) -> None:
    """Remove the plan of a run that published its manifest and was stopped before it could tidy up."""
    if not location.exists(PLAN):
        return
    begun = WritePlan.from_bytes(location.read_bytes(PLAN), f"{location.url}/{PLAN}")
    if _contains(base, begun):
        location.remove(PLAN)


def _refuse_another_plan(location: Location, plan: WritePlan) -> None:
    begun = WritePlan.from_bytes(location.read_bytes(PLAN), f"{location.url}/{PLAN}")
    if begun.fingerprint == plan.fingerprint:
        return
    mine, theirs = asdict(plan), asdict(begun)
    differing = sorted(key for key in mine if mine[key] != theirs[key])
    raise UnfinishedStoreError(
        f"{location.url} holds an unfinished `{begun.kind}` with other {', '.join(differing)}; "
        "finish it with its own settings and sources, or remove the folder and begin anew"
    )


def _total_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part)
    return dict(sorted(total.items()))


def _summary(index: PartitionIndex) -> PartitionSummary:
    return PartitionSummary(
        n_rankings=index.n_rankings,
        n_entries=sum(index.leaf_items),
        n_leaves=len(index.leaf_rows),
        total_weight=index.total_weight,
        index_sha256=sha256(index.to_bytes()),
    )


def _event(plan: WritePlan, rejected: dict[str, int]) -> dict[str, Any]:
    """What the manifest's history says of one run."""
    return {
        "kind": plan.kind,
        "fingerprint": plan.fingerprint,
        "settings": plan.settings,
        "sources": plan.sources,
        "partitions": [plan.first_partition, plan.first_partition + plan.n_partitions],
        "rejected": rejected,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "software": {name: importlib.metadata.version(name) for name in ("plmix-dist", "zarr", "numpy")},
    }
