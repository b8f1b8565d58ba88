"""Threads that an interruption (Ctrl-C) ends: between two pieces of work, and without waiting for a long one.

Python raises KeyboardInterrupt in the main thread alone. Code that waits there for threads sets their stop event.
Threads look at it between two pieces of work (`check_stopped`). They are daemons, so a process ends although one of
them is still inside compiled code.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, TypeVar

from plmix_dist.errors import SettingsError

Result = TypeVar("Result")

# Threads that are asked to stop have 1 s to do so before they are left alone.
STOP_SECONDS = 1.0

_this_thread = threading.local()
_before_the_end: list[Callable[[], object]] = []
_left_alone: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class OutOfTime(KeyboardInterrupt):
    """The time of this process is over: a limit was reached, or the system asked it to end (SIGTERM)."""


class Stopped(BaseException):
    """Ends the work of a thread whose result is not wanted any more."""


def check_stopped() -> None:
    """End the work of this thread if it was asked to stop; to be called between two pieces of work."""
    stop: threading.Event | None = getattr(_this_thread, "stop", None)
    if stop is not None and stop.is_set():
        raise Stopped


def threads_left_alone() -> bool:
    """Whether threads that were asked to stop are still at work, inside compiled code."""
    return any(thread.is_alive() for thread in _left_alone)


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """While this is open, SIGTERM and the end of `seconds` raise OutOfTime in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        if seconds is not None:
            raise SettingsError("a limit of seconds needs the main thread of a process; run this there")
        yield
        return

    def stop(number: int, frame: object) -> None:
        del frame
        for each in before:  # a second one must not break what is put in order
            signal.signal(each, signal.SIG_IGN)
        raise OutOfTime(signal.Signals(number).name)

    # The alarm may belong to other code: it is set only where there is a limit.
    signals = (signal.SIGTERM,) if seconds is None else (signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.signal(number, stop) for number in signals}
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        if seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def called_before_the_end(save: Callable[[], object]) -> Iterator[None]:
    """While this is open, `save` is called before an interruption ends the process, from whatever thread ends it."""
    _before_the_end.append(save)
    try:
        yield
    finally:
        _before_the_end.remove(save)


def save_before_the_end(seconds: float) -> bool:
    """Call all that `called_before_the_end` was given, for at most `seconds`; whether that was enough."""

    def save_all() -> None:
        for save in _before_the_end:
            with contextlib.suppress(Exception):  # the process ends, and the checkpoint before is whole
                save()

    saver = threading.Thread(target=save_all, name="save", daemon=True)
    saver.start()
    saver.join(seconds)
    return not saver.is_alive()


# A signal that comes just before a thread begins to wait for a lock is not seen until the wait ends. So the main thread
# waits in slices, and Ctrl-C is never lost for longer than one.
_SLICE_SECONDS = 0.5


class _WaitInSlices(Future[Result]):
    """A future whose result can always be interrupted."""

    def result(self, timeout: float | None = None) -> Result:
        """The result, as soon as it is there."""
        while timeout is None and not self.done():
            with contextlib.suppress(TimeoutError):
                self.exception(_SLICE_SECONDS)
        return super().result(timeout)


class StoppableThreads(Executor):
    """A pool of threads that can be asked to stop. It does not keep a process alive."""

    def __init__(self, n_threads: int, name: str) -> None:
        self.n_threads = self._max_workers = n_threads  # Dask reads the second
        self._name = name
        self._threads: list[threading.Thread] = []
        self._work: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._dismiss = weakref.finalize(self, self._work.put, None)

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Give a call to the threads."""
        if not self._dismiss.alive:
            raise RuntimeError("these threads were dismissed; make new ones")
        future: Future[Result] = _WaitInSlices()
        self._work.put((future, partial(fn, *args, **kwargs)))
        if len(self._threads) < self._max_workers:
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=_serve, args=(self._work, self._stop), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Dismiss the threads after the work that was given to them."""
        if cancel_futures:
            self._cancel_waiting()
        self._dismiss()
        if wait:
            self._join(None)

    def stop(self, seconds: float | None = STOP_SECONDS) -> None:
        """Ask the threads to stop, cancel what has not begun, and wait a while for what has."""
        self._stop.set()
        self._cancel_waiting()
        self._dismiss()
        self._join(seconds)
        _left_alone.update(thread for thread in self._threads if thread.is_alive())

    def _cancel_waiting(self) -> None:
        try:
            while (job := self._work.get_nowait()) is not None:
                job[0].cancel()
            self._work.put(None)
        except queue.Empty:
            pass

    def _join(self, seconds: float | None) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))


_Job = tuple[Future[Any], "Callable[[], Any]"]


def _serve(work: queue.SimpleQueue[_Job | None], stop: threading.Event) -> None:
    """Do what comes until the threads are dismissed. The pool itself is not known here, so it can be forgotten."""
    _this_thread.stop = stop
    while (job := work.get()) is not None:
        future, call = job
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del job, future, call  # or they would live until the next work comes
    work.put(None)  # for the next thread


# BLAS and OpenMP limited to one thread: several threads add up in any order, which changes the last bits.


# The limit of this process: how many are inside, and how to lift it.
_limit = SimpleNamespace(lock=threading.Lock(), n_inside=0, lift=contextlib.ExitStack())


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """While this is open, the libraries that NumPy and SciPy call use one thread.

    The limit holds for the whole process, so the threads inside share it: the first sets it, the last lifts it.
    """
    with _limit.lock:
        if not _limit.n_inside:
            _limit.lift.enter_context(_controller().limit(limits=1))
        _limit.n_inside += 1
    try:
        yield
    finally:
        with _limit.lock:
            _limit.n_inside -= 1
            if not _limit.n_inside:
                _limit.lift.close()


@cache
def _controller() -> Any:
    """The libraries that are loaded; finding them takes milliseconds, so it is done once."""
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
