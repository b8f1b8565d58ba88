"""Ctrl-C: the process ends within two seconds, and the last line says what is left and how to go on."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from plmix_dist.cli.output import EXIT_INTERRUPTED, EXIT_OUT_OF_TIME, report_error
from plmix_dist.cli.streams import at_terminal, say
from plmix_dist.errors import PlmixError
from plmix_dist.interruption import save_before_the_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plmix_dist.store import Location

NOTHING_WRITTEN = "nothing was written; run the same command again to start over"
# After Ctrl-C a verb has so many seconds to end in order. Whatever it writes survives a process that is killed.
_GRACE_SECONDS = 1.2
# Then its state is saved, if it keeps one.
_SAVE_SECONDS = 6.0
# A verb whose time is over (SIGTERM, a limit) has so many seconds more to say how it ended.
_LATE_SECONDS = 6.5
_OUT_OF_TIME = (signal.SIGTERM, signal.SIGALRM)
_SHOW_CURSOR = "\x1b[?25h"

_what_is_left: list[Callable[[], str]] = []
_said = threading.Event()
_heard = threading.Event()


def tell_if_interrupted(what: Callable[[], str]) -> None:
    """Set what is said if this verb is interrupted; `what` looks at the place that the verb writes to.

    Examples
    --------
    >>> tell_if_interrupted(lambda: "nothing was written")
    """
    _what_is_left[:] = [what]


def written_so_far(location: Location, plan: str, mark: str) -> Callable[[], str]:
    """What to say of a result that is written in parts, which a second run continues.

    Parameters
    ----------
    location
        Where it is written.
    plan
        The key that is there while the result is not finished.
    mark
        The key that is there when it is.

    Examples
    --------
    >>> from plmix_dist.store import Location
    >>> written_so_far(Location.of("/nowhere/store"), "wip/plan.json", "manifest.json")()
    'nothing was written; run the same command again to start over'
    """
    before = _stamp(location, mark)

    def words() -> str:
        if location.exists(plan):
            return f"what is finished of {location.url} is kept; run the same command again to continue"
        now = _stamp(location, mark)
        if now == before:
            return NOTHING_WRITTEN
        return f"but {location.url} is complete" if now is not None else NOTHING_WRITTEN

    return words


def file_written(path: str) -> Callable[[], str]:
    """What to say of a file that appears when it is complete.

    Parameters
    ----------
    path
        The file, on local disk or behind a URL.

    Examples
    --------
    >>> file_written("/nowhere/votes.csv")()
    'nothing was written; run the same command again to start over'
    """

    def stamp() -> int | None:
        with contextlib.suppress(OSError):
            return os.stat(path).st_mtime_ns  # noqa: PTH116 - a URL is no path, and has no stamp
        return None

    before = stamp()
    return lambda: NOTHING_WRITTEN if stamp() == before else f"but {path} is complete"


def report_interruption(what: str = "interrupted") -> None:
    """Say that the verb was interrupted, once.

    Examples
    --------
    >>> report_interruption()  # prints plmix: error: interrupted; nothing was written; ...
    """
    if _said.is_set():
        return
    _said.set()
    words = NOTHING_WRITTEN
    with contextlib.suppress(PlmixError, OSError):
        words = _what_is_left[0]() if _what_is_left else NOTHING_WRITTEN
    report_error(f"{what}; {words}")


@contextlib.contextmanager
def ended_soon() -> Iterator[None]:
    """While this is open, Ctrl-C ends the process within two seconds, also inside long compiled code.

    Python raises KeyboardInterrupt when the main thread is back from compiled code. A thread watches whether that, and
    everything that is put in order afterwards, takes too long, and then ends the process. A second Ctrl-C ends it at
    once.

    Examples
    --------
    >>> with ended_soon():
    ...     pass
    """
    _what_is_left.clear()
    _said.clear()
    _heard.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    over = threading.Event()
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(heard, over), name="interruption", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        over.set()
        os.close(told)


def was_signalled() -> bool:
    """Whether Ctrl-C was pressed since the verb began.

    Examples
    --------
    >>> was_signalled()
    False
    """
    return _heard.is_set()


def end_now(code: int = EXIT_INTERRUPTED) -> NoReturn:
    """End the process without waiting for threads that are inside compiled code, or for clusters.

    Processes of a local cluster end when this one does.
    """
    with contextlib.suppress(Exception):
        from multiprocessing import util

        util._run_finalizers(0)  # type: ignore[attr-defined] # semaphores, of which a warning would tell otherwise
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _watch(heard: int, over: threading.Event) -> None:
    """Wait for Ctrl-C, then for the end of the verb or a second Ctrl-C; then end the process."""
    with open(heard, "rb", buffering=0) as signals:
        while (received := signals.read(1)) not in {bytes([each]) for each in (signal.SIGINT, *_OUT_OF_TIME)}:
            if not received:
                return
        late = received[0] in _OUT_OF_TIME
        _heard.set()
        second = threading.Thread(target=_wait_for_second, args=(signals, over), daemon=True)
        second.start()
        second.join(_GRACE_SECONDS)
        if over.is_set():
            return
        if second.is_alive():
            save_before_the_end(_SAVE_SECONDS)
        second.join(_LATE_SECONDS if late else 0)
        if over.is_set():
            return
        if at_terminal():
            say(_SHOW_CURSOR)  # a progress bar may have hidden it
        report_interruption("out of time" if late else "interrupted")
        end_now(EXIT_OUT_OF_TIME if late else EXIT_INTERRUPTED)


def _wait_for_second(signals: object, over: threading.Event) -> None:
    """Return at a second Ctrl-C, or when the verb has ended."""
    with contextlib.suppress(OSError, ValueError):
        while not over.is_set() and signals.read(1) not in (bytes([signal.SIGINT]), b""):  # type: ignore[attr-defined]
            pass


def _stamp(location: Location, key: str) -> int | bytes | None:
    """Something that changes when a key is written; None where it is not there."""
    with contextlib.suppress(PlmixError, OSError):
        if location.exists(key):
            return (
                location.local_path(key).stat().st_mtime_ns if location.is_local else location.read_bytes(key)
            )
    return None
