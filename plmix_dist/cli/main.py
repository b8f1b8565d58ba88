"""The group `plmix`, and `main`, which runs a verb: errors and Ctrl-C become one line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import click

from plmix_dist import __version__
from plmix_dist.cli import output
from plmix_dist.errors import PlmixError
from plmix_dist.threads import OutOfTime, save_before_the_end, threads_left_alone

if TYPE_CHECKING:
    from plmix_dist.store import Location


# The verbs in the order in which people meet them. One that is not named here comes under "More".
_HEADINGS = {
    "Data": ("example", "simulate", "formats", "ingest", "info", "verify", "split", "export"),
    "Fit": ("fit", "select", "elections", "bayes"),
    "Use": ("report", "leaderboard", "check", "predict", "score"),
    "Jobs": ("run", "resume", "status"),
    "Cluster and installation": ("scheduler", "worker", "certificates", "doctor", "compile", "completion"),
}


class _Verbs(click.Group):
    """The group of all verbs; `--help` lists them under headings, each with the whole first sentence of its help."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists."""
        del ctx
        named = {verb for verbs in _HEADINGS.values() for verb in verbs}
        width = max(map(len, self.commands), default=0)
        for heading, verbs in {**_HEADINGS, "More": sorted(self.commands.keys() - named)}.items():
            if rows := [(f"{verb:<{width}}", self.commands[verb]) for verb in verbs if verb in self.commands]:
                with formatter.section(heading):
                    formatter.write_dl([(verb, command.get_short_help_str(limit=1000)) for verb, command in rows])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="plmix")
def plmix() -> None:
    """Mixtures of Plackett-Luce models, fitted to millions of rankings on a Dask cluster."""


def main(arguments: list[str] | None = None) -> None:
    """Run a verb and exit. Errors are one line on stderr; exit codes are those of docs/command-line.md."""
    output.open_closed_streams()
    with _ended_soon():
        code = _run(arguments)
        if code in (output.EXIT_INTERRUPTED, output.EXIT_OUT_OF_TIME) and (_signalled.is_set() or threads_left_alone()):
            _end_now(code)
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    """Run a verb; gives its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    # Job files have Python's names.
    in_words = output.without_python if given[:1] in (["run"], ["resume"]) else output.in_shell_words
    code: object
    try:
        with output.warnings_as_lines(in_words, as_json="--json" in given, quiet="--quiet" in given):
            code = plmix.main(arguments, prog_name="plmix", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        with contextlib.suppress(OSError, ValueError):  # a closed or full stderr
            error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt) as stop:
        code = _report_interruption(late=isinstance(stop.__cause__ or stop, OutOfTime))  # click makes an Abort of it
    except Exception as error:
        if "--debug" in given:
            raise
        words = f"{type(error).__name__}: {error} (an error of plmix itself; --debug shows where)"
        code = output.EXIT_ERROR
        if isinstance(error, PlmixError):
            words, code = in_words(str(error)), error.exit_code
        elif isinstance(error, OSError):
            where = "" if error.filename is None else f"{error.filename}: "
            words = f"{where}{error.strerror or error} (--debug shows where)"
        output.report_error(words)
    return code if isinstance(code, int) else 0


# --- Ctrl-C: the process ends within two seconds, and the last line shows what is left and how to continue ------

NOTHING_WRITTEN = "nothing was written; run the same command again to start over"
# After Ctrl-C a verb may take this many seconds to end in order. Whatever it writes survives a process that is killed.
_GRACE_SECONDS = 1.2
# Then its state is saved, if it keeps one.
_SAVE_SECONDS = 6.0
# A verb whose time is over (SIGTERM, a limit) may take this many seconds more to report how it ended.
_LATE_SECONDS = 6.5
_OUT_OF_TIME = (signal.SIGTERM, signal.SIGALRM)
_SHOW_CURSOR = "\x1b[?25h"

_what_is_left: list[Callable[[], str]] = []
_reported = threading.Event()
_signalled = threading.Event()  # Ctrl-C was pressed since the verb began


def on_interruption(what: Callable[[], str]) -> None:
    """Set the message for an interruption of this verb; `what` looks at the place that the verb writes to."""
    _what_is_left[:] = [what]


def written_so_far(location: Location, plan: str, mark: str) -> Callable[[], str]:
    """The message for a result that is written in parts, which a second run continues.

    The key `plan` is there while the result is not finished, `mark` when it is.
    """
    before = _stamp(location, mark)

    def words() -> str:
        if location.exists(plan):
            return f"what is finished of {location.url} is kept; run the same command again to continue"
        return NOTHING_WRITTEN if _stamp(location, mark) in (None, before) else f"but {location.url} is complete"

    return words


def file_written(path: str) -> Callable[[], str]:
    """The message for a file, local or behind a URL, that appears when it is complete."""

    def stamp() -> int | None:
        with contextlib.suppress(OSError):
            return os.stat(path).st_mtime_ns  # noqa: PTH116 - a URL is not a path, and has no stamp
        return None

    before = stamp()
    return lambda: NOTHING_WRITTEN if stamp() == before else f"but {path} is complete"


def _report_interruption(*, late: bool) -> int:
    """Print that the verb was interrupted, once; gives its exit code."""
    if not _reported.is_set():
        _reported.set()
        words = NOTHING_WRITTEN
        with contextlib.suppress(PlmixError, OSError):
            words = _what_is_left[0]() if _what_is_left else NOTHING_WRITTEN
        output.report_error(f"{'out of time' if late else 'interrupted'}; {words}")
    return output.EXIT_OUT_OF_TIME if late else output.EXIT_INTERRUPTED


@contextlib.contextmanager
def _ended_soon() -> Iterator[None]:
    """While this is open, Ctrl-C ends the process within two seconds, also inside long compiled code.

    Python raises KeyboardInterrupt when the main thread is back from compiled code. A thread watches whether that, and
    everything that is put in order afterwards, takes too long, and then ends the process. A second Ctrl-C ends it at
    once.
    """
    _what_is_left.clear()
    _reported.clear()
    _signalled.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    over = threading.Event()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading, over), name="interruption", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        over.set()
        os.close(writing)


def _end_now(code: int) -> NoReturn:
    """End the process without waiting for threads that are inside compiled code, or for clusters.

    Processes of a local cluster end when this one does.
    """
    with contextlib.suppress(Exception):
        from multiprocessing import util

        util._run_finalizers(0)  # type: ignore[attr-defined] # semaphores, or else there is a warning about them
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _watch(reading: int, over: threading.Event) -> None:
    """Wait for Ctrl-C, then for the end of the verb or a second Ctrl-C; then end the process."""
    with open(reading, "rb", buffering=0) as signals:
        while (received := signals.read(1)) not in {bytes([each]) for each in (signal.SIGINT, *_OUT_OF_TIME)}:
            if not received:
                return
        late = received[0] in _OUT_OF_TIME
        _signalled.set()
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
        if output.at_terminal():
            output.print_line(_SHOW_CURSOR)  # a progress bar may have hidden it
        _end_now(_report_interruption(late=late))


def _wait_for_second(signals: object, over: threading.Event) -> None:
    """Return at a second Ctrl-C, or when the verb has ended."""
    with contextlib.suppress(OSError, ValueError):
        while not over.is_set() and signals.read(1) not in (bytes([signal.SIGINT]), b""):  # type: ignore[attr-defined]
            pass


def _stamp(location: Location, key: str) -> int | bytes | None:
    """Something that changes when a key is written; None where it is not there."""
    with contextlib.suppress(PlmixError, OSError):
        if location.exists(key):
            return location.local_path(key).stat().st_mtime_ns if location.is_local else location.read_bytes(key)
    return None
