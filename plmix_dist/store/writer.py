"""Writing a store: begin, write partitions with any number of workers, finalise; and appending."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self

from plmix_dist.errors import IngestError, StoreExistsError, StoreLockedError, UnfinishedStoreError
from plmix_dist.rankings.columns import levels_of
from plmix_dist.store import manifest, publication, sealed, targets
from plmix_dist.store.location import AnyPath, Location
from plmix_dist.store.partition import PartitionTask, WritePlan, made_by
from plmix_dist.store.reader import RankingStore


class WriteSession(publication.Publication[WritePlan]):
    """A store that one driver is writing, or adding to. Partitions are its parts, the manifest publishes it."""

    kind = "store"
    made_from = "settings and sources"

    def __init__(self, location: Location, plan: WritePlan, *, append: bool = False) -> None:
        super().__init__(location, plan)
        self._append = append
        self.base: manifest.Manifest | None = None  # of the store that is added to

    @classmethod
    def begin(
        cls, location: Location, plan: WritePlan, *, append: bool = False, overwrite: bool = False
    ) -> AbstractContextManager[Self]:
        """Begin or continue a plan; with `append` its partitions are added to the store that is there."""
        return cls(location, plan, append=append)._begun(overwrite=overwrite)

    def pending(self) -> list[PartitionTask]:
        """The partitions still to write, in order."""
        if self.already_done:
            return []
        plan = self.plan
        written = manifest.written_partitions(self.location, plan.partitions)
        mine = {number for number in written if made_by(self.location, number) == plan.fingerprint}
        how = (len(plan.item_names), plan.leaf_rows, plan.chunk_bytes, plan.fingerprint)
        return [PartitionTask(self.location, number, *how) for number in plan.partitions if number not in mine]

    def draft(self, extra: dict[str, Any] | None = None) -> RankingStore:
        """The store before it is published. `extra` is added to its history.

        It is an error if a partition is missing or no ranking was found.
        """
        if self.already_done:
            assert self.base is not None
            return RankingStore(self.location, self.base)
        missing = [task.number for task in self.pending()]
        if missing:
            raise UnfinishedStoreError(f"{self.location.url}: partitions not written: {', '.join(map(str, missing))}")
        indexes = [manifest.read_index(self.location, number) for number in self.plan.partitions]
        rejected = dict(sorted(sum((Counter(index.rejected) for index in indexes), Counter[str]()).items()))
        if not any(index.n_rankings for index in indexes):
            names = ", ".join(source["name"] for source in self.plan.sources[:3])
            raise IngestError(
                f"no valid ranking was found for {self.location.url}{f' in {names}' if names else ''}, so no store was "
                f"made; rejected rows by reason: {rejected or 'none'}"
            )
        summaries = [_summary(index) for index in indexes]
        event = _event(self.plan, rejected) | (extra or {})
        published = manifest.Manifest(
            item_names=self.plan.item_names,
            leaf_rows=self.plan.leaf_rows,
            partitions=(self.base.partitions if self.base else []) + summaries,
            history=(self.base.history if self.base else []) + [event],
            generation=self.base.generation + 1 if self.base else 1,
            feature_names=self.plan.feature_names,
        )
        return RankingStore(self.location, published)

    def finalise(self, extra: dict[str, Any] | None = None) -> RankingStore:
        """Check that every partition is there, publish the manifest, and remove temporary files."""
        store = self.draft(extra)
        if self.lock is None:
            return store
        for key in manifest.GROUP_KEYS:
            self.location.write_bytes(key, manifest.ZARR_GROUP)
        self.lock.check()
        if columns := self.plan.person_columns:
            found = levels_of([name for name, _ in columns], store.profiles()[0])
            levels = [(name, known or found[name]) for name, known in columns]
            store = RankingStore(self.location, replace(store.manifest, person_columns=levels))
        self._publish(store.manifest)
        self._remove_work()
        return store

    def _publish(self, published: manifest.Manifest) -> None:
        """Write the manifest; an error if another writer has written one since this one began."""
        there = manifest.read_manifest(self.location) if self.location.exists(manifest.MANIFEST) else None
        try:
            if there != self.base:
                raise FileExistsError
            if self.base is None:
                self.location.create_bytes(manifest.MANIFEST, published.to_bytes())
            else:
                self.location.write_bytes(manifest.MANIFEST, published.to_bytes())
        except FileExistsError:
            raise StoreLockedError(
                f"another process has published rankings at {self.location.url} since this one began; "
                "nothing was published. Run the same command again"
            ) from None

    def abandon(self) -> None:
        """Remove everything that this plan wrote, so that another plan can begin."""
        for number in self.plan.partitions:
            self.location.remove(manifest.partition_name(number))
        self._remove_work()

    def _is_published(self) -> bool:
        return self.location.exists(manifest.MANIFEST)

    def _is_finished(self) -> bool:
        self.base = manifest.read_manifest(self.location) if self._is_published() else None
        if self.base is None:
            return False
        finished = _contains(self.base, self.plan)
        if not finished and not self._append:
            adding = ", or add to it with --append" if self.plan.kind == "ingest" else ""
            raise StoreExistsError(
                f"{self.location.url} already holds another store, of {self.base.n_rankings:,} rankings"
                f"{_how_it_differs(self.base, self.plan)}; {targets.HOW_TO_REPLACE}{adding}"
            )
        return finished

    def _prepare(self) -> None:
        """Number the partitions after those that are there."""
        if self.base is None:
            return
        if self.plan.item_names != self.base.item_names or self.plan.leaf_rows != self.base.leaf_rows:
            raise StoreExistsError("rankings to append must have the items and the leaf size of the store")
        self.plan = replace(self.plan, first_partition=len(self.base.partitions))
        begun = WritePlan.at(self.location)
        if begun is not None and _contains(self.base, begun):  # of a run that was stopped after it published
            self.location.remove(manifest.PLAN)

    def _refuse_leftovers(self) -> None:
        published = {manifest.partition_name(number) for number in range(self.plan.first_partition)}
        for key in self.location.listing("partitions"):
            folder = "/".join(key.split("/")[:2])
            if key not in manifest.GROUP_KEYS and folder not in published:
                raise StoreExistsError(
                    f"{self.location.url}/{folder} exists already, and no manifest or plan says what it is; "
                    "choose another path, or remove it first"
                )


def check_output(
    location: Location, *, append: bool = False, overwrite: bool = False, sources: Iterable[AnyPath] = ()
) -> None:
    """An error unless a store can be written here (the rule is in `targets.py`).

    A place with a finished store need not be writable: the same job again does nothing.
    """
    if not append:
        targets.check_target(location, "store", overwrite=overwrite, sources=sources)
    if append or overwrite or not location.exists(manifest.MANIFEST):
        location.check_writable()


def _how_it_differs(base: manifest.Manifest, plan: WritePlan) -> str:
    """How the last run that wrote to a store differs from a plan, for a message."""
    last = base.history[-1]
    if last["kind"] != plan.kind:
        return f", made by `{last['kind']}`"
    found = targets.differences(_shown(plan.settings, plan.sources), _shown(last["settings"], last["sources"]))
    return f" ({found})" if found else ""


def _shown(settings: dict[str, Any], sources: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of a plan that people know; long arrays are left out."""
    plain = {name: value for name, value in settings.items() if not isinstance(value, list | dict)}
    return plain | {"the source": ", ".join(str(source["name"]) for source in sources)}


def _contains(published: manifest.Manifest, plan: WritePlan) -> bool:
    return any(event["fingerprint"] == plan.fingerprint for event in published.history)


def _summary(index: manifest.PartitionIndex) -> manifest.PartitionSummary:
    return manifest.PartitionSummary(
        n_rankings=index.n_rankings,
        n_entries=sum(index.leaf_items),
        n_leaves=len(index.leaf_rows),
        total_weight=index.total_weight,
        index_sha256=sealed.sha256(index.to_bytes()),
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
