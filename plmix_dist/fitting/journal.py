"""Journal: the results that a computation has finished and the state it is in, kept in a folder and brought back.

A driver names what it does: `stage(name, compute)` for a step whose result is small, `run(name, passes, algorithm,
state)` for a loop. A second process with the same settings and data comes by the same names. It is handed what is
finished, and its loops go on from the saved state. All steps are pure, so the end has the same bits.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from plmix_dist import __version__, errors
from plmix_dist.cluster.clients import Client
from plmix_dist.fitting import algorithm as loops
from plmix_dist.fitting.algorithm import Algorithm, from_plain, to_plain
from plmix_dist.passes.dask import passes_over
from plmix_dist.passes.rankings import Rankings
from plmix_dist.passes.request import Passes
from plmix_dist.store.checkpoints import Checkpoint, CheckpointFolder, Loaded, Record
from plmix_dist.store.location import Location
from plmix_dist.store.lock import LEASE_SECONDS, write_lock
from plmix_dist.store.sealed import plain_json
from plmix_dist.store.targets import differences
from plmix_dist.threads import called_before_the_end

State = TypeVar("State")
Result = TypeVar("Result")
Settings = TypeVar("Settings", bound=Any)

logger = logging.getLogger("plmix_dist")

_LIBRARIES = ("plmix_dist", "numpy", "scipy", "sklearn", "dask", "dask_ml")


class Journal:
    """What is finished, and what runs. One without a folder keeps nothing.

    `every` is the least number of seconds between two saves, `fingerprint` what the computation is made from.
    """

    def __init__(
        self, folder: CheckpointFolder | None = None, every: float = 0.0, fingerprint: Mapping[str, Any] | None = None
    ) -> None:
        self.fingerprint = dict(fingerprint or {})
        self.resumed_from: int | None = None
        # The result of the computation carries these.
        self.warnings: list[Warning] = []
        self._folder = folder
        self._every = every
        self._finished: dict[str, Any] = {}
        self._written: set[str] = set()
        self._running: tuple[str, Any] | None = None
        self._stages: tuple[str, ...] = ()
        self._is_saved = True
        self._latest = time.monotonic()
        self._lock = threading.Lock()

    def stage(self, name: str, compute: Callable[[], Result]) -> Result:
        """The result of a step: the saved one, or computed now. No other step of the same stage has this name.

        Stages and loops inside `compute` are part of this stage, and are forgotten when it is finished. `compute` gives
        the same bits whenever it is called, made of what `to_plain` can write.
        """
        if self._folder is None:
            return compute()
        path = self._path(name)
        if path in self._finished:
            found: Result = self._finished[path]
            return found
        outer, self._stages = self._stages, (*self._stages, name)
        try:
            result = compute()
        finally:
            self._stages = outer
        self._finish(path, result)
        return result

    def begin(self, name: str, state: State) -> State:
        """The state that a loop goes on from: the saved one, or the one given."""
        path = self._path(name)
        if path in self._finished:
            state = self._finished[path]
        elif self._running is not None and self._running[0] == path:
            state = self._running[1]
        return state

    def run(
        self,
        name: str,
        passes: Passes,
        algorithm: Algorithm[State],
        state: State,
        after: Callable[[State], None] | None = None,
    ) -> State:
        """Drive an algorithm to its end, as `algorithm.run` does: from the saved state, or else from `state`."""
        state = self.begin(name, state)
        path = self._path(name)
        if self._folder is None or path in self._finished:
            return loops.run(passes, algorithm, state, after)

        def keep(new: State) -> None:
            with self._lock:
                self._running, self._is_saved = (path, new), False
            if after is not None:
                after(new)
            self._save_if_due()

        ended = loops.run(passes, algorithm, state, keep)
        self._finish(path, ended)
        return ended

    def save(self) -> None:
        """Save a checkpoint, unless nothing has changed since the last one. Any thread may call this."""
        with self._lock:
            if self._folder is None or self._is_saved:
                return
            begun = time.perf_counter()
            finished = {
                path: None if path in self._written else Record(*to_plain(value))
                for path, value in self._finished.items()
            }
            running = None if self._running is None else (self._running[0], Record(*to_plain(self._running[1])))
            self._folder.save(self.fingerprint, finished, running)
            self._written = set(finished)
            self._is_saved, self._latest = True, time.monotonic()
        logger.info("saved a checkpoint at %s in %.3f s", self._folder.location.url, time.perf_counter() - begun)

    def bring_back(self, loaded: Loaded) -> None:
        """Take over a checkpoint."""
        self.resumed_from = loaded.number
        self._finished = {name: from_plain(*record) for name, record in loaded.finished.items()}
        self._written = set(self._finished)
        if loaded.running is not None:
            name, record = loaded.running
            self._running = (name, from_plain(*record))
        for fault in loaded.damaged:
            words = f"a checkpoint is damaged, so the one before it is taken (number {loaded.number}): {fault}"
            self.warnings.append(errors.CheckpointWarning(words))

    def _finish(self, path: str, result: Any) -> None:
        with self._lock:
            inside = f"{path}/"
            for other in [name for name in self._finished if name.startswith(inside)]:
                del self._finished[other]
            self._written.intersection_update(self._finished)
            self._finished[path] = result
            self._running, self._is_saved = None, False
        self._save_if_due()

    def _save_if_due(self) -> None:
        if time.monotonic() - self._latest >= self._every:
            self.save()

    def _path(self, name: str) -> str:
        return "/".join((*self._stages, name))


NO_JOURNAL = Journal()


@contextlib.contextmanager
def open_journal(
    checkpoint: Checkpoint | None, made_from: Callable[[], Mapping[str, Any]], *, free: Collection[str] = ()
) -> Iterator[Journal]:
    """The journal of a computation, with what an earlier process saved; saved again at the end, also after an error.

    `made_from` gives the fingerprint: whatever changes a bit of the result. The version of the package is added. Its
    `free` entries are taken from a checkpoint that exists, such as a seed that nobody chose.

    Examples
    --------
    >>> import tempfile
    >>> from plmix_dist.store.checkpoints import Checkpoint
    >>> place = Checkpoint(tempfile.mkdtemp())
    >>> with open_journal(place, lambda: {"seed": 1}) as journal:
    ...     journal.stage("sum", lambda: 1 + 1)
    2
    >>> with open_journal(place, lambda: {"seed": 1}) as journal:
    ...     journal.stage("sum", lambda: 1 / 0)
    2
    >>> with open_journal(place, lambda: {"seed": 2}):
    ...     pass
    Traceback (most recent call last):
    ...
    plmix_dist.errors.OtherCheckpointError: ... is the checkpoint of another computation (seed is 1 there and 2 ...
    """
    if checkpoint is None:
        yield NO_JOURNAL
        return
    folder = CheckpointFolder(Location.of(checkpoint.path), checkpoint.keep)
    folder.check_own()
    with _patient_lock(folder.location):
        journal = Journal(folder, checkpoint.every, plain_json({"version": __version__, **made_from()}))
        there = folder.load()
        if there is not None:
            journal.fingerprint |= {name: there.fingerprint.get(name) for name in free}
            if found := differences(journal.fingerprint, there.fingerprint):
                raise errors.OtherCheckpointError(
                    f"{folder.location.url} is the checkpoint of another computation ({found}); choose another folder, "
                    "or remove this one to begin again"
                )
            journal.bring_back(there)
        with called_before_the_end(journal.save):
            try:
                yield journal
            except BaseException as error:
                if journal.resumed_from is not None and _of_the_state(error):
                    raise errors.DamagedStoreError(
                        f"the checkpoint at {folder.location.url} cannot be continued: its state is not that of this "
                        f"computation ({type(error).__name__}: {error}); remove the folder to begin again"
                    ) from error
                try:
                    journal.save()
                except errors.StoreError as error:
                    logger.warning("the last checkpoint could not be saved: %s", error)
                raise
            journal.save()


@contextlib.contextmanager
def begun(
    rankings: Rankings,
    settings: Settings,
    client: Client | None,
    checkpoint: Checkpoint | None,
    made_from: Callable[[Passes], Mapping[str, Any]],
    *,
    any_seed: bool,
) -> Iterator[tuple[Passes, Journal, Settings]]:
    """Passes over the rows of a fit, its journal, and its settings: with `any_seed`, with the checkpoint's seed."""
    with passes_over(rankings, client, settings.residency) as passes:
        free = ("seed",) if any_seed else ()
        with open_journal(checkpoint, lambda: made_from(passes), free=free) as journal:
            yield passes, journal, replace(settings, seed=journal.fingerprint.get("seed", settings.seed))


def _of_the_state(error: BaseException) -> bool:
    """Whether an error after a resumption is due to the saved state, rather than raised in a function of the user."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    module = "" if place is None else str(place.tb_frame.f_globals.get("__name__"))
    kinds = (ArithmeticError, AssertionError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
    return isinstance(error, kinds) and not isinstance(error, errors.PlmixError) and module.split(".")[0] in _LIBRARIES


@contextlib.contextmanager
def _patient_lock(location: Location) -> Iterator[None]:
    """The lock of a folder. Behind a URL that of a process that was killed ends after a minute: it is waited for."""
    deadline = time.monotonic() + (0 if location.is_local else LEASE_SECONDS + 5)
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(write_lock(location))
                break
            except errors.StoreLockedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)
        yield
