"""Output of the command line: text or JSON on stdout, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any, Literal, cast

import click

from plmix_dist.display.progress import TerminalProgress, TimeLeft, terminal_console
from plmix_dist.errors import PlmixError, visible
from plmix_dist.settings import SETTINGS

# Standard streams that may be closed or full: progress is dropped, a result that is lost is an error.


def open_closed_streams() -> None:
    """Open streams that the caller has closed (`2>&-`) as the null device.

    Otherwise the next file that is opened would take their number, and messages would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the smallest free number, which is this one
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def print_line(text: str) -> None:
    """Print a line on stderr; one that cannot be printed is dropped, and so are all after it."""
    try:
        click.echo(text, err=True)
    except (OSError, ValueError):
        _drop(sys.stderr)


def print_result(text: str) -> None:
    """Print a line on stdout. If nobody reads any more (`| head`), it is dropped; if it is lost, that is an error."""
    try:
        click.echo(text)
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        _drop(sys.stdout)
        raise PlmixError(
            f"the result cannot be printed: {error.strerror}; what was written elsewhere is complete"
        ) from error


def at_terminal() -> bool:
    """Whether stderr is a terminal."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return sys.stderr.isatty()
    return False


class _ForgivingStderr:
    """What is written to it goes to stderr as it is now, or nowhere if that fails."""

    def __init__(self) -> None:
        self.stream = sys.stderr  # a progress bar puts itself in its place

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str, /) -> int:
        """Write text, or drop it."""
        try:
            self.stream.write(text)
        except (OSError, ValueError):
            _drop(self.stream)
        return len(text)

    def flush(self) -> None:
        """Send what was written, or drop it."""
        try:
            self.stream.flush()
        except (OSError, ValueError):
            _drop(self.stream)


def _drop(stream: IO[Any]) -> None:
    """Send all that is still written to a stream to the null device, also what Python writes at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


EXIT_ERROR = 1
EXIT_DAMAGED = 3
EXIT_NOT_CONVERGED = 4
EXIT_OUT_OF_TIME = 75
EXIT_INTERRUPTED = 130
# Verbs that write in parts print their first line after this time; most are done by then.
_FIRST_LINE_SECONDS = 0.8


def report_error(message: str) -> None:
    """Print an error on stderr, control characters escaped."""
    print_line(f"plmix: error: {_printable(message)}")


@contextlib.contextmanager
def warnings_as_lines(in_words: Callable[[str], str], *, as_json: bool, quiet: bool) -> Iterator[None]:
    """Print warnings on stderr as errors are: one line without a line of code, or JSON; nothing if quiet."""

    def print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        words = in_words(str(message))
        if as_json:
            print_line(json.dumps({"warning": words, "category": category.__name__}))
        elif not quiet:
            print_line(f"plmix: warning: {_printable(words)}")

    with warnings.catch_warnings():
        warnings.showwarning = print_warning
        yield


def without_python(message: str) -> str:
    """A message without what it says for Python alone, and without the remark that the rest is for the shell."""
    in_brackets = r" \([^()]*(?:\([^()]*\)[^()]*)* in (?:Python|the shell)\)"
    return re.sub(rf"{in_brackets}|[;,] in Python,? (?:(?!; |\. ).)*", "", message)


def in_shell_words(message: str) -> str:
    """A message of the package for somebody at a shell: parameters of Python are called by their options."""
    options = {"random_state": "--seed"} | {each.name: each.option for each in SETTINGS if each.text is not None}
    names = "|".join(name for name in options if "_" in name or name == "tol")  # others are English words too
    return re.sub(rf"(?<![\w.'\"`-])({names})\b(?!['\"])", lambda found: options[found[1]], without_python(message))


def _printable(text: str) -> str:
    r"""Text with control characters escaped, except line breaks."""
    return "\n".join(visible(line) for line in text.split("\n"))


def asked_for(form: Literal["as_json", "quiet"]) -> bool:
    """Whether the verb that runs was given --json or --quiet."""
    verb = click.get_current_context(silent=True)
    return verb is not None and bool(verb.params.get(form))


def show(lines: list[tuple[str, Any]], record: dict[str, Any]) -> None:
    """Print a result: the record as JSON, or lines of `name  value`."""
    if asked_for("as_json"):
        print_result(json_text(record))
        return
    if asked_for("quiet"):
        return
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print_result(_printable(f"{name:<{width}}  {value}".rstrip()))


def json_text(record: dict[str, Any]) -> str:
    r"""JSON in which every control character is escaped, also those that JSON allows."""
    text = json.dumps(record, indent=1, ensure_ascii=False, default=_plain)
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Progress on stderr: a bar on a terminal, or lines of JSON; gives the function to call with (done, total)."""
    if asked_for("as_json"):
        lines = _JsonLines(label)
        try:
            yield lines
        finally:
            lines.timer.cancel()
        return
    if asked_for("quiet") or not at_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=cast("IO[str]", _ForgivingStderr())), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _JsonLines:
    """Prints a line of JSON within the first second and one per second; nothing where everything is done before."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._begun = self._latest = time.perf_counter()
        self.timer = threading.Timer(_FIRST_LINE_SECONDS, self._print, [0, None])
        self.timer.daemon = True
        self.timer.start()

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if done < total and now - self._latest >= 1:
            self._latest = now
            self._print(done, total)

    def _print(self, done: int, total: int | None) -> None:
        left = (time.perf_counter() - self._begun) * (total - done) / done if done and total is not None else None
        record = {"stage": self._label, "state": "running", "done": done, "total": total, "eta_seconds": left}
        print_line(json.dumps(record))


def number(value: float) -> str:
    """A number with thousands separators; integers without a decimal point."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def size(n_bytes: float) -> str:
    """A number of bytes with a suitable unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:,.3g} {unit}" if unit != "bytes" else f"{int(n_bytes)} bytes"
        n_bytes /= 1000
    return f"{n_bytes:,.3g} TB"


def few(values: list[Any], most: int = 10) -> str:
    """The first values of a list, and their number if there are more."""
    if not values:
        return "none"
    return ", ".join(map(str, values[:most])) + (f", ... ({len(values)} in all)" if len(values) > most else "")


def _plain(value: Any) -> Any:
    """NumPy numbers as Python numbers, everything else as text."""
    return value.item() if hasattr(value, "item") else str(value)


# Progress of `plmix fit` on stderr: text on a terminal, lines of JSON with --json.

# Iterations of fits to samples are printed at most this often, in seconds.
_SECONDS_BETWEEN = 1.0


class _JsonProgress:
    """Prints one line of JSON per stage and per iteration, with an estimate of the time left."""

    def __init__(self, left: TimeLeft) -> None:
        self._left = left
        self._latest = -math.inf

    def stage(self, event: dict[str, Any]) -> None:
        """Print that a stage has begun, goes on, or has ended."""
        now = time.monotonic()
        if event["state"] == "iteration":
            if now - self._latest < _SECONDS_BETWEEN:
                return
            self._latest = now
        print_line(json.dumps(event))

    def __call__(self, record: dict[str, Any]) -> None:
        """Print an iteration of the fit to all rows."""
        print_line(json.dumps(record | {"eta_seconds": self._left.after(record)}))


@contextlib.contextmanager
def fit_progress(tol: float, max_iter: int) -> Iterator[_JsonProgress | TerminalProgress | None]:
    """What shows the progress of a fit; nothing with --quiet, and no text if stderr is not a terminal."""
    left = TimeLeft(tol, max_iter)
    if asked_for("quiet") or not (asked_for("as_json") or at_terminal()):
        yield None
        return
    if asked_for("as_json"):
        yield _JsonProgress(left)
        return
    progress = TerminalProgress(left, terminal_console(cast("Any", _ForgivingStderr())))
    try:
        yield progress
    finally:
        progress.close()
