"""Memberships of rankings as Zarr arrays: chunks by any number of workers, and what makes them arrays last.

Until `zarr.json` is there, no reader finds an array, so rows that are not written yet cannot be read as numbers.
"""

from __future__ import annotations

import contextlib
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import zarr
from zarr.storage import MemoryStore

from plmix_dist.errors import DamagedStoreError, StoreExistsError, UnfinishedStoreError
from plmix_dist.rankings import Floats
from plmix_dist.store import arrays, publication, sealed, targets
from plmix_dist.store.location import Location

CHUNK_ROWS = 1 << 16
_ARRAYS = ("probabilities", "component")
_GROUP = "zarr.json"


@dataclass(frozen=True)
class MembershipPlan(publication.Plan):
    """Everything that determines the bytes of memberships."""

    key: ClassVar[str] = targets.MEMBERSHIPS_PLAN
    verb: ClassVar[str] = "predict"

    n_rankings: int
    n_components: int
    chunk_rows: int
    of: dict[str, Any] = field(default_factory=dict)  # digests of the model and of the rankings

    def described(self) -> dict[str, Any]:
        """The entries by the names that a message uses."""
        plain = {name: value for name, value in self.content().items() if name != "of"}
        return plain | self.of

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """The first row and the end of each chunk."""
        ends = range(self.chunk_rows, self.n_rankings + self.chunk_rows, self.chunk_rows)
        return [(end - self.chunk_rows, min(end, self.n_rankings)) for end in ends]

    def files(self, first: int = 0, probabilities: Floats | None = None) -> dict[str, bytes]:
        """The files of the arrays by key: what describes them and, if some rows are given, their chunk."""
        memory: dict[str, Any] = {}
        attributes = {"plmix": {"fingerprint": self.fingerprint}}
        group = zarr.create_group(MemoryStore(memory), zarr_format=3, attributes=attributes)
        for name, shape, dtype in (
            ("probabilities", (self.n_rankings, self.n_components), "float64"),
            ("component", (self.n_rankings,), "int16"),
        ):
            array = group.create_array(
                name,
                shape=shape,
                chunks=(self.chunk_rows, *shape[1:]),
                dtype=dtype,
                compressors=arrays.codecs_for(np.dtype(dtype)),
                fill_value=-1,
                config={"write_empty_chunks": True},
            )
            if probabilities is not None:
                rows = probabilities if name == "probabilities" else probabilities.argmax(axis=1)
                array[first : first + len(rows)] = rows
        return {key: value.to_bytes() for key, value in memory.items()}


class MembershipSession(publication.Publication[MembershipPlan]):
    """Memberships that one driver is writing. Chunks are their parts; what makes arrays of them publishes them."""

    kind = "memberships"
    made_from = "model and rankings"

    @classmethod
    def begin(
        cls, location: Location, plan: MembershipPlan, *, overwrite: bool = False
    ) -> AbstractContextManager[Self]:
        """Begin or continue a plan. Another plan, or other arrays, are an error."""
        targets.check_target(location, "memberships", overwrite=overwrite)
        return cls(location, plan)._begun(overwrite=overwrite)

    def pending(self) -> list[tuple[int, int]]:
        """The chunks still to write: the first row and the end of each."""
        if self.already_done:
            return []
        there = {key for folder in ("wip", *_ARRAYS) for key in self.location.listing(folder)}
        return [
            (first, last)
            for first, last in self.plan.chunks
            if not there.issuperset({*_chunk_keys(self.plan, first), _done_key(self.plan, first)})
        ]

    def finalise(self) -> None:
        """Check that every chunk is there, and make arrays of them."""
        if self.lock is None:
            return
        missing = self.pending()
        if missing:
            rows = ", ".join(f"{first:,} to {last - 1:,}" for first, last in missing[:10])
            raise UnfinishedStoreError(f"{self.location.url}: rows not written: {rows}")
        described = self.plan.files()
        self.lock.check()
        self._remove_drafts()
        for key in sorted(described.keys() - {_GROUP}):
            self.location.write_bytes(key, described[key])
        self.location.create_bytes(_GROUP, described[_GROUP])
        self._remove_work()

    def _remove_drafts(self) -> None:
        """Remove files that a run left half-written when it was killed."""
        chunks = {key for first, _ in self.plan.chunks for key in _chunk_keys(self.plan, first)}
        described = {f"{folder}/zarr.json" for folder in _ARRAYS}
        for folder in _ARRAYS:
            for key in self.location.listing(folder):
                if key not in chunks | described:
                    self.location.remove(key)

    def _is_published(self) -> bool:
        return self.location.exists(_GROUP)

    def _is_finished(self) -> bool:
        if not self._is_published():
            return False
        with contextlib.suppress(ValueError, KeyError, TypeError, DamagedStoreError, RecursionError):
            group = json.loads(self.location.read_bytes(_GROUP))
            if group["attributes"]["plmix"]["fingerprint"] == self.plan.fingerprint:
                return True
        raise StoreExistsError(
            f"{self.location.url} already holds memberships of another model or of other rankings; "
            f"{targets.HOW_TO_REPLACE}"
        )

    def _refuse_leftovers(self) -> None:
        for folder in _ARRAYS:
            if self.location.listing(folder):
                raise StoreExistsError(
                    f"{self.location.url}/{folder} exists already, and no plan says what it is; "
                    f"{targets.HOW_TO_REPLACE}"
                )


def write_memberships(location: Location, plan: MembershipPlan, first: int, probabilities: Floats) -> None:
    """Write the rows of one chunk: their probabilities, and the component with the largest."""
    files = plan.files(first, probabilities)
    if not publication.is_wanted(location, MembershipPlan, plan.fingerprint):
        raise publication.abandoned(location, f"rows from {first:,} on are")
    for key in _chunk_keys(plan, first):
        location.write_bytes(key, files[key])
    location.write_bytes(_done_key(plan, first), sealed.seal({"plan": plan.fingerprint}))


def _chunk_keys(plan: MembershipPlan, first: int) -> tuple[str, str]:
    number = first // plan.chunk_rows
    return f"component/c/{number}", f"probabilities/c/{number}/0"


def _done_key(plan: MembershipPlan, first: int) -> str:
    """A key that is written after the chunk, so a chunk that was cut short does not count."""
    return f"wip/done-{first // plan.chunk_rows:06d}.json"
