"""Publication: one driver plans a result, any number of workers write its parts, and one last file makes it readable.

While a result is written, `wip/` holds its plan. A second run of the same plan continues the first; another plan is
refused. The plan is removed last, so a run that is killed at any moment can be continued.
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from plmix_dist.errors import DamagedStoreError, StoreError, UnfinishedStoreError
from plmix_dist.store import sealed, targets
from plmix_dist.store.location import Location
from plmix_dist.store.lock import HeldLock, is_lock, write_lock


@dataclass(frozen=True)
class Plan(sealed.SealedRecord):
    """Everything that determines the bytes of a result. The same plan gives the same bytes."""

    key: ClassVar[str]  # where the plan is while the result is written

    @property
    def verb(self) -> str:
        """The command that carries out the plan."""
        raise NotImplementedError

    def content(self) -> dict[str, Any]:
        """The entries that determine the bytes."""
        return asdict(self)

    def described(self) -> dict[str, Any]:
        """The entries by the names that a message uses."""
        return self.content()

    @property
    def fingerprint(self) -> str:
        """A digest of the content."""
        return sealed.sha256(json.dumps(self.content(), sort_keys=True).encode())

    @classmethod
    def at(cls, location: Location) -> Self | None:
        """The plan that is carried out at a place; None if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return cls.from_bytes(location.read_bytes(cls.key), f"{location.url}/{cls.key}")
        return None


_AnyPlan = TypeVar("_AnyPlan", bound=Plan)


def is_wanted(location: Location, plan_type: type[Plan], fingerprint: str) -> bool:
    """Whether a plan is still carried out. A worker may be late: its driver has ended, and another has begun."""
    plan = plan_type.at(location)
    return plan is not None and plan.fingerprint == fingerprint


def abandoned(location: Location, what: str) -> StoreError:
    """The error of a worker that is late."""
    return StoreError(f"the write to {location.url} was abandoned; {what} not published")


class Publication(ABC, Generic[_AnyPlan]):
    """A result that one driver is writing. The driver holds its lock, unless an earlier run has finished the plan."""

    kind: ClassVar[targets.Kind]
    made_from: ClassVar[str]  # what a run must be given to continue another, in words

    lock: HeldLock | None = None

    def __init__(self, location: Location, plan: _AnyPlan) -> None:
        self.location = location
        self.plan = plan

    @property
    def already_done(self) -> bool:
        """Whether an earlier run has finished the plan, so that nothing is to be written."""
        return self.lock is None

    @contextlib.contextmanager
    def _begun(self, *, overwrite: bool) -> Iterator[Self]:
        """Take the lock, and begin or continue the plan. A plan that is finished already needs no lock.

        With `overwrite`, what is there is removed first, finished or not, unless it is an unfinished run of this plan.
        """
        if not overwrite and self._is_finished() and not self._is_planned():
            yield self
            return
        with write_lock(self.location) as lock:
            if overwrite and (self._is_published() or not self._is_planned()):
                targets.clear_target(self.location, self.kind)
            if self._is_finished():  # by another writer meanwhile, or by a run that was stopped after it published
                if self._is_planned():
                    self._remove_work()
                yield self
                return
            self._prepare()
            if self.location.exists(self.plan.key):
                self._refuse_another_plan()
            else:
                self._refuse_leftovers()
                self.location.write_bytes(self.plan.key, self.plan.to_bytes())
            self.lock = lock
            yield self

    @abstractmethod
    def _is_published(self) -> bool:
        """Whether any finished result is there."""

    @abstractmethod
    def _is_finished(self) -> bool:
        """Whether the result of this plan is there; an error if another one is in the way."""

    @abstractmethod
    def _refuse_leftovers(self) -> None:
        """An error if files are there that no plan explains: they may be the last copy of someone's data."""

    def _prepare(self) -> None:
        """Fit the plan to what is there, with the lock held."""

    def _is_planned(self) -> bool:
        """Whether the plan that is there is this one."""
        with contextlib.suppress(DamagedStoreError):
            return is_wanted(self.location, type(self.plan), self.plan.fingerprint)
        return False

    def _refuse_another_plan(self) -> None:
        begun = type(self.plan).at(self.location)
        if begun is None or begun.fingerprint == self.plan.fingerprint:
            return
        mine, theirs = self.plan.described(), begun.described()
        differing = sorted(key for key in mine if mine[key] != theirs.get(key))
        raise UnfinishedStoreError(
            f"{self.location.url} holds an unfinished `{begun.verb}` with other {', '.join(differing)}; "
            f"finish it with its own {self.made_from}, or {targets.HOW_TO_REPLACE}"
        )

    def _remove_work(self) -> None:
        """Remove all work in progress, the plan last; the lock is removed by its holder."""
        keys = {"/".join(key.split("/")[:2]) for key in self.location.listing("wip")}
        for key in sorted(keys, key=lambda key: key == self.plan.key):
            if not is_lock(key):
                self.location.remove(key)
