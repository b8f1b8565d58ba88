"""Memberships of rankings as Zarr arrays: chunks by any number of workers, and what makes them arrays last.

Until `zarr.json` is there, no reader finds an array, so rows that are not written yet cannot be read as numbers.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import zarr
from zarr.storage import MemoryStore

from plmix_dist.errors import DamagedStoreError, StoreError, StoreExistsError, UnfinishedStoreError
from plmix_dist.store.arrays import codecs_for
from plmix_dist.store.lock import HeldLock, is_lock, write_lock
from plmix_dist.store.manifest import seal, sha256, unseal
from plmix_dist.store.targets import HOW_TO_REPLACE, MEMBERSHIPS_PLAN, check_target, clear_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.store.location import Location

CHUNK_ROWS = 1 << 16
_ARRAYS = ("probabilities", "component")
_GROUP = "zarr.json"
_PLAN = MEMBERSHIPS_PLAN
_LARGEST_JSON = 1 << 28


@dataclass(frozen=True)
class MembershipPlan:
    """Everything that determines the bytes of memberships.

    Parameters
    ----------
    of
        Digests of the model and of the rankings.

    Examples
    --------
    >>> MembershipPlan(n_rankings=70_000, n_components=2, chunk_rows=1 << 16, of={}).chunks
    [(0, 65536), (65536, 70000)]
    """

    n_rankings: int
    n_components: int
    chunk_rows: int
    of: dict[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """A digest of the plan."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode())

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """The first row and the end of each chunk."""
        ends = range(self.chunk_rows, self.n_rankings + self.chunk_rows, self.chunk_rows)
        return [(end - self.chunk_rows, min(end, self.n_rankings)) for end in ends]

    def files(self, first: int = 0, probabilities: NDArray[np.float64] | None = None) -> dict[str, bytes]:
        """The files of the arrays by key: what describes them and, if some rows are given, their chunk.

        Parameters
        ----------
        first
            The first row of a chunk.
        probabilities : (rows, n_components)
            The rows of the chunk.

        Examples
        --------
        >>> plan = MembershipPlan(n_rankings=2, n_components=2, chunk_rows=2)
        >>> sorted(plan.files(0, np.array([[0.9, 0.1], [0.2, 0.8]])))
        ['component/c/0', 'component/zarr.json', 'probabilities/c/0/0', 'probabilities/zarr.json', 'zarr.json']
        """
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
                compressors=codecs_for(np.dtype(dtype)),
                fill_value=-1,
                config={"write_empty_chunks": True},
            )
            if probabilities is not None:
                rows = probabilities if name == "probabilities" else probabilities.argmax(axis=1)
                array[first : first + len(rows)] = rows
        return {key: value.to_bytes() for key, value in memory.items()}


class MembershipSession:
    """Memberships that one driver is writing. The driver holds their lock.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store.location import Location
    >>> place = Location.of(tempfile.mkdtemp() + "/out")
    >>> plan = MembershipPlan(n_rankings=2, n_components=2, chunk_rows=2)
    >>> with MembershipSession.begin(place, plan) as session:
    ...     for first, last in session.pending():
    ...         write_memberships(place, plan, first, np.array([[0.9, 0.1], [0.2, 0.8]]))
    ...     session.finalise()
    >>> zarr.open_group(place.url, mode="r")["component"][:].tolist()
    [0, 1]
    """

    def __init__(self, location: Location, plan: MembershipPlan, lock: HeldLock | None) -> None:
        self.location = location
        self.plan = plan
        self.lock = lock

    @property
    def already_done(self) -> bool:
        """Whether an earlier run has finished the plan, so that nothing is to be written."""
        return self.lock is None

    @classmethod
    @contextlib.contextmanager
    def begin(cls, location: Location, plan: MembershipPlan, *, overwrite: bool = False) -> Iterator[Self]:
        """Take the lock, and begin or continue a plan. Another plan, or other arrays, are an error.

        Parameters
        ----------
        location
            Where the memberships are, or will be.
        plan
            What to write.
        overwrite
            Whether to remove memberships that are there first, finished or not. An unfinished run of the same plan is
            continued nevertheless.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist.store.location import Location
        >>> plan = MembershipPlan(n_rankings=5, n_components=2, chunk_rows=3)
        >>> with MembershipSession.begin(Location.of(tempfile.mkdtemp() + "/out"), plan) as session:
        ...     session.pending()
        [(0, 3), (3, 5)]
        """
        check_target(location, "memberships", overwrite=overwrite)
        if not overwrite and _finished(location, plan) and not location.exists(_PLAN):
            yield cls(location, plan, lock=None)
            return
        with write_lock(location) as lock:
            if overwrite and not _has_begun(location, plan):
                clear_target(location, "memberships")
            if _finished(location, plan):
                _remove_work(location)  # left by a run that was stopped after it published
                yield cls(location, plan, lock=None)
                return
            if location.exists(_PLAN):
                _refuse_another_plan(location, plan)
            else:
                _refuse_leftovers(location)
                location.write_bytes(_PLAN, seal(asdict(plan)))
            yield cls(location, plan, lock)

    def pending(self) -> list[tuple[int, int]]:
        """The chunks still to write: the first row and the end of each.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist.store.location import Location
        >>> place, plan = Location.of(tempfile.mkdtemp() + "/out"), MembershipPlan(5, 2, chunk_rows=3)
        >>> with MembershipSession.begin(place, plan) as session:
        ...     write_memberships(place, plan, 0, np.full((3, 2), 0.5))
        ...     session.pending()
        [(3, 5)]
        """
        if self.already_done:
            return []
        there = {key for folder in ("wip", *_ARRAYS) for key in self.location.listing(folder)}
        return [
            (first, last)
            for first, last in self.plan.chunks
            if not there.issuperset({*_chunk_keys(self.plan, first), _done_key(self.plan, first)})
        ]

    def finalise(self) -> None:
        """Check that every chunk is there, and make arrays of them.

        Examples
        --------
        >>> import tempfile
        >>> from plmix_dist.store.location import Location
        >>> place, plan = Location.of(tempfile.mkdtemp() + "/out"), MembershipPlan(5, 2, chunk_rows=3)
        >>> with MembershipSession.begin(place, plan) as session:
        ...     session.finalise()
        Traceback (most recent call last):
        ...
        plmix_dist.errors.UnfinishedStoreError: ...: rows not written: 0 to 2, 3 to 4
        """
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
        _remove_work(self.location)

    def _remove_drafts(self) -> None:
        """Remove files that a run left half-written when it was killed."""
        chunks = {key for first, _ in self.plan.chunks for key in _chunk_keys(self.plan, first)}
        described = {f"{folder}/zarr.json" for folder in _ARRAYS}
        for folder in _ARRAYS:
            for key in self.location.listing(folder):
                if key not in chunks | described:
                    self.location.remove(key)


def write_memberships(
    location: Location, plan: MembershipPlan, first: int, probabilities: NDArray[np.float64]
) -> None:
    """Write the rows of one chunk: their probabilities, and the component with the largest.

    Parameters
    ----------
    first
        The first row of the chunk.
    probabilities : (rows, n_components)

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store.location import Location
    >>> place, plan = Location.of(tempfile.mkdtemp() + "/out"), MembershipPlan(2, 2, chunk_rows=2)
    >>> with MembershipSession.begin(place, plan):
    ...     write_memberships(place, plan, 0, np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> place.listing()
    ['component/c/0', 'probabilities/c/0/0', 'wip/done-000000.json', 'wip/predict.json']
    """
    files = plan.files(first, probabilities)
    _refuse_another_plan(location, plan)  # this worker may be late: its driver has ended, another has begun
    for key in _chunk_keys(plan, first):
        location.write_bytes(key, files[key])
    location.write_bytes(_done_key(plan, first), seal({"plan": plan.fingerprint}))


def _chunk_keys(plan: MembershipPlan, first: int) -> tuple[str, str]:
    number = first // plan.chunk_rows
    return f"component/c/{number}", f"probabilities/c/{number}/0"


def _done_key(plan: MembershipPlan, first: int) -> str:
    """A key that is written after the chunk, so a chunk that was cut short does not count."""
    return f"wip/done-{first // plan.chunk_rows:06d}.json"


def _finished(location: Location, plan: MembershipPlan) -> bool:
    """Whether the arrays of this plan are there; an error if there are others."""
    if not location.exists(_GROUP):
        return False
    with contextlib.suppress(ValueError, KeyError, TypeError, DamagedStoreError, RecursionError):
        group = json.loads(location.read_bytes(_GROUP, _LARGEST_JSON))
        if group["attributes"]["plmix"]["fingerprint"] == plan.fingerprint:
            return True
    raise StoreExistsError(
        f"{location.url} already holds memberships of another model or of other rankings; {HOW_TO_REPLACE}"
    )


def _has_begun(location: Location, plan: MembershipPlan) -> bool:
    """Whether an unfinished run of this plan is here, and no finished one."""
    if location.exists(_GROUP) or not location.exists(_PLAN):
        return False
    try:
        _refuse_another_plan(location, plan)
    except StoreError:
        return False
    return True


def _refuse_leftovers(location: Location) -> None:
    """Refuse to write among chunks of no known plan."""
    for folder in _ARRAYS:
        if location.listing(folder):
            raise StoreExistsError(
                f"{location.url}/{folder} exists already, and no plan says what it is; {HOW_TO_REPLACE}"
            )


def _refuse_another_plan(location: Location, plan: MembershipPlan) -> None:
    try:
        begun = unseal(location.read_bytes(_PLAN, _LARGEST_JSON), f"{location.url}/{_PLAN}")
    except FileNotFoundError:
        raise StoreError(f"the memberships at {location.url} were abandoned; nothing is published") from None
    mine = json.loads(json.dumps(asdict(plan)))
    if begun == mine:
        return
    flat = [{**record, **record.get("of", {})} for record in (mine, begun)]
    differing = sorted(key for key in flat[0] if key != "of" and flat[0][key] != flat[1].get(key))
    raise UnfinishedStoreError(
        f"{location.url} holds an unfinished `predict` with other {', '.join(differing)}; "
        f"finish it with its own model and rankings, or {HOW_TO_REPLACE}"
    )


def _remove_work(location: Location) -> None:
    """Remove the records of chunks, and the plan last; the lock is removed by its holder."""
    keys = [key for key in location.listing("wip") if not is_lock(key) and key != _PLAN]
    for key in [*keys, _PLAN]:
        location.remove(key)
