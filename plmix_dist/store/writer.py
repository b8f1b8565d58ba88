"""Writing a store: begin, write partitions with any number of workers, finalise; and appending."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from plmix_dist.errors import (
    DamagedStoreError,
    IngestError,
    StoreExistsError,
    StoreLockedError,
    UnfinishedStoreError,
)
from plmix_dist.store.lock import HeldLock, is_lock, write_lock
from plmix_dist.store.manifest import (
    GROUP_KEYS,
    MANIFEST,
    PLAN,
    ZARR_GROUP,
    Manifest,
    PartitionIndex,
    PartitionSummary,
    partition_name,
    read_index,
    read_manifest,
    sha256,
    written_partitions,
)
from plmix_dist.store.partition import PartitionTask, made_by
from plmix_dist.store.reader import RankingStore
from plmix_dist.store.targets import HOW_TO_REPLACE, check_target, clear_target, differences
from plmix_dist.store.write_plan import WritePlan

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from plmix_dist.store.location import Location


class WriteSession:
    """A store that one driver is writing. The driver holds its lock.

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

    def __init__(
        self, location: Location, plan: WritePlan, base: Manifest | None, lock: HeldLock | None
    ) -> None:
        self.location = location
        self.plan = plan
        self.base = base
        self.lock = lock

    @property
    def already_done(self) -> bool:
        """Whether an earlier run has finished the plan, so that nothing is to be written."""
        return self.lock is None

    @classmethod
    @contextlib.contextmanager
    def begin(
        cls, location: Location, plan: WritePlan, *, append: bool = False, overwrite: bool = False
    ) -> Iterator[Self]:
        """Take the lock, and begin or continue a plan. A plan that is already finished needs no lock.

        Parameters
        ----------
        location
            Where the store is, or will be.
        plan
            What to write. An unfinished run of the same plan is continued; another plan is an error.
        append
            Whether to add to the store that is there.
        overwrite
            Whether to remove a store that is there first, finished or not. An unfinished run of the same plan is
            continued nevertheless.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist.rankings import RankingBlock
        >>> from plmix_dist.store import Location, WritePlan, write_partition
        >>> place = Location.of(tempfile.mkdtemp() + "/store")
        >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=1, settings={})
        >>> with WriteSession.begin(place, plan) as session:
        ...     session.already_done, len(session.pending())
        (False, 1)
        """
        if not overwrite:
            base = _fit_to_add_to(location, plan, append)
            if base is not None and _contains(base, plan):
                yield cls(location, plan, base, lock=None)
                return
        with write_lock(location) as lock:
            if overwrite and not _has_begun(location, plan):
                clear_target(location, "store")
            base = _fit_to_add_to(location, plan, append)  # another writer may have finished meanwhile
            if base is not None and _contains(base, plan):
                yield cls(location, plan, base, lock=None)
                return
            if base is not None:
                plan = _after(base, plan)
                _tidy_after_crash(location, base)
            if location.exists(PLAN):
                _refuse_another_plan(location, plan)
            else:
                _refuse_leftovers(location, plan.first_partition)
                location.write_bytes(PLAN, plan.to_bytes())
            yield cls(location, plan, base, lock)

    def pending(self) -> list[PartitionTask]:
        """The partitions still to write, in order.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist.rankings import RankingBlock
        >>> from plmix_dist.store import Location, WritePlan, write_partition
        >>> place = Location.of(tempfile.mkdtemp() + "/store")
        >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=1, settings={})
        >>> with WriteSession.begin(place, plan) as session:
        ...     [task.number for task in session.pending()]
        [0]
        """
        if self.already_done:
            return []
        plan = self.plan
        written = written_partitions(self.location, plan.partitions)
        mine = {number for number in written if made_by(self.location, number) == plan.fingerprint}
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
        """The store before it is published. `extra` is added to its history.

        It is an error if a partition is missing or no ranking was found.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist.rankings import RankingBlock
        >>> from plmix_dist.store import Location, WritePlan, write_partition
        >>> place = Location.of(tempfile.mkdtemp() + "/store")
        >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=1, settings={})
        >>> with WriteSession.begin(place, plan) as session:
        ...     _ = write_partition(session.pending()[0], [RankingBlock.from_array([[0, 1]])])
        ...     session.draft().n_rankings, place.exists("manifest.json")
        (1, False)
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
        """Check that every partition is there, publish the manifest, and remove temporary files.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist.rankings import RankingBlock
        >>> from plmix_dist.store import Location, WritePlan, write_partition
        >>> place = Location.of(tempfile.mkdtemp() + "/store")
        >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=1, settings={})
        >>> with WriteSession.begin(place, plan) as session:
        ...     _ = write_partition(session.pending()[0], [RankingBlock.from_array([[0, 1]])])
        ...     store = session.finalise({"note": "one ranking"})
        >>> store.manifest.history[0]["note"]
        'one ranking'
        """
        store = self.draft(extra)
        if self.lock is None:
            return store
        for key in GROUP_KEYS:
            self.location.write_bytes(key, ZARR_GROUP)
        self.lock.check()
        self._publish(store.manifest)
        _remove_work(self.location)
        return store

    def _publish(self, manifest: Manifest) -> None:
        """Write the manifest; an error if another writer has written one since this one began."""
        there = read_manifest(self.location) if self.location.exists(MANIFEST) else None
        try:
            if there != self.base:
                raise FileExistsError
            if self.base is None:
                self.location.create_bytes(MANIFEST, manifest.to_bytes())
            else:
                self.location.write_bytes(MANIFEST, manifest.to_bytes())
        except FileExistsError:
            raise StoreLockedError(
                f"another process has published rankings at {self.location.url} since this one began; "
                "nothing was published. Run the same command again"
            ) from None

    def abandon(self) -> None:
        """Remove everything that this plan wrote, so that another plan can begin.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist.rankings import RankingBlock
        >>> from plmix_dist.store import Location, WritePlan, write_partition
        >>> place = Location.of(tempfile.mkdtemp() + "/store")
        >>> plan = WritePlan("ingest", ["a", "b"], leaf_rows=4096, n_partitions=1, settings={})
        >>> with WriteSession.begin(place, plan) as session:
        ...     _ = write_partition(session.pending()[0], [RankingBlock.from_array([[0, 1]])])
        ...     session.abandon()
        >>> place.listing()
        []
        """
        for number in self.plan.partitions:
            self.location.remove(partition_name(number))
        _remove_work(self.location)


def check_output(
    location: Location,
    *,
    append: bool = False,
    overwrite: bool = False,
    sources: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """An error unless a store can be written here (the rule is in `targets.py`).

    A place with a finished store need not be writable: the same job again does nothing.

    Parameters
    ----------
    location
        Where the store is to be.
    append
        Whether rankings are added to the store that is there.
    overwrite
        Whether a store that is there may be replaced.
    sources
        Paths and URLs of what the store is made from.

    Examples
    --------
    >>> from plmix_dist.store import Location
    >>> check_output(Location.of("/dev/null/store"))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.StoreAccessError: cannot write /dev/null/store: /dev/null is not a folder; ...
    """
    if not append:
        check_target(location, "store", overwrite=overwrite, sources=sources)
    if append or overwrite or not location.exists(MANIFEST):
        location.check_writable()


def _fit_to_add_to(location: Location, plan: WritePlan, append: bool) -> Manifest | None:
    """The manifest of a finished store, if the plan may add to it or has made it; None if there is no store."""
    if not location.exists(MANIFEST):
        return None
    base = read_manifest(location)
    if not append and not _contains(base, plan):
        adding = ", or add to it with --append" if plan.kind == "ingest" else ""
        raise StoreExistsError(
            f"{location.url} already holds another store, of {base.n_rankings:,} rankings"
            f"{_how_it_differs(base, plan)}; {HOW_TO_REPLACE}{adding}"
        )
    return base


def _how_it_differs(base: Manifest, plan: WritePlan) -> str:
    """How the last run that wrote to a store differs from a plan, in words."""
    last = base.history[-1]
    if last["kind"] != plan.kind:
        return f", made by `{last['kind']}`"
    told = differences(_told_of(plan.settings, plan.sources), _told_of(last["settings"], last["sources"]))
    return f" ({told})" if told else ""


def _told_of(settings: dict[str, Any], sources: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of a plan that people know; long arrays are left out."""
    plain = {name: value for name, value in settings.items() if not isinstance(value, list | dict)}
    return plain | {"the source": ", ".join(str(source["name"]) for source in sources)}


def _has_begun(location: Location, plan: WritePlan) -> bool:
    """Whether an unfinished run of this plan is here, and no finished store."""
    if location.exists(MANIFEST) or not location.exists(PLAN):
        return False
    try:
        begun = WritePlan.from_bytes(location.read_bytes(PLAN), f"{location.url}/{PLAN}")
    except (DamagedStoreError, TypeError):
        return False
    return begun.fingerprint == plan.fingerprint


def _refuse_leftovers(location: Location, first_partition: int) -> None:
    """Refuse to write beside partitions of no known plan: they may be the last copy of someone's data."""
    published = {partition_name(number) for number in range(first_partition)}
    for key in location.listing("partitions"):
        folder = "/".join(key.split("/")[:2])
        if key not in GROUP_KEYS and folder not in published:
            raise StoreExistsError(
                f"{location.url}/{folder} exists already, and no manifest or plan says what it is; "
                "choose another path, or remove it first"
            )


def _contains(manifest: Manifest, plan: WritePlan) -> bool:
    return any(event["fingerprint"] == plan.fingerprint for event in manifest.history)


def _remove_work(location: Location) -> None:
    """Remove all work in progress but the lock, which its holder removes."""
    for key in {"/".join(key.split("/")[:2]) for key in location.listing("wip")}:
        if not is_lock(key):
            location.remove(key)


def _after(base: Manifest, plan: WritePlan) -> WritePlan:
    """The plan with its partitions numbered after the existing ones."""
    if plan.item_names != base.item_names or plan.leaf_rows != base.leaf_rows:
        raise StoreExistsError("rankings to append must have the items and the leaf size of the store")
    return WritePlan(**(asdict(plan) | {"first_partition": len(base.partitions)}))


def _tidy_after_crash(location: Location, base: Manifest) -> None:
    """Remove the plan of a run that was stopped after it published its manifest."""
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
        f"finish it with its own settings and sources, or {HOW_TO_REPLACE}"
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
    """The entry for one run in the manifest's history."""
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
