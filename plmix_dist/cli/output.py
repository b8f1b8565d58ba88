"""Output of the command line: text or JSON on stdout, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import warnings
from typing import IO, TYPE_CHECKING, Any, cast

from plmix_dist.cli.streams import ForgivingStderr, at_terminal, print_result, say
from plmix_dist.errors import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXIT_ERROR = 1
EXIT_DAMAGED = 3
EXIT_NOT_CONVERGED = 4
EXIT_OUT_OF_TIME = 75
EXIT_INTERRUPTED = 130
# Verbs that write in parts say nothing before; most are done by then.
_FIRST_LINE_SECONDS = 0.8


def report_error(message: str) -> None:
    """Print an error on stderr, control characters escaped.

    Examples
    --------
    >>> report_error("there is no store at /nowhere")  # prints plmix: error: there is no store at /nowhere
    """
    say(f"plmix: error: {printable(message)}")


@contextlib.contextmanager
def warnings_in_words(*, as_json: bool, quiet: bool) -> Iterator[None]:
    """Print warnings on stderr as errors are: one line without a line of code, or JSON; nothing if quiet.

    Examples
    --------
    >>> with warnings_in_words(as_json=False, quiet=False):
    ...     warnings.showwarning("few rankings", UserWarning, "a.py", 1)  # prints plmix: warning: few rankings
    """

    def told(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if as_json:
            say(json.dumps({"warning": str(message), "category": category.__name__}))
        elif not quiet:
            say(f"plmix: warning: {printable(str(message))}")

    with warnings.catch_warnings():
        warnings.showwarning = told
        yield


def printable(text: str) -> str:
    r"""Text with control characters escaped, except line breaks.

    Examples
    --------
    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "\n".join(visible(line) for line in text.split("\n"))


def show(lines: list[tuple[str, Any]], record: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    """Print a result: the record as JSON, or lines of `name  value`.

    Examples
    --------
    >>> show([("items", 5), ("rankings", 100)], {"n_items": 5}, as_json=False, quiet=False)
    items     5
    rankings  100
    """
    if as_json:
        print_result(json_text(record))
        return
    if quiet:
        return
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print_result(printable(f"{name:<{width}}  {value}".rstrip()))


def json_text(record: dict[str, Any]) -> str:
    r"""JSON in which every control character is escaped, also those that JSON allows.

    Examples
    --------
    >>> print(json_text({"name": "a\x7f"}))
    {
     "name": "a\u007f"
    }
    """
    text = json.dumps(record, indent=1, ensure_ascii=False, default=_plain)
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


@contextlib.contextmanager
def progress_bar(
    label: str, *, shown: bool, as_json: bool = False
) -> Iterator[Callable[[int, int], None] | None]:
    """Progress on stderr: a bar on a terminal, or lines of JSON; gives the function to call with (done, total).

    Examples
    --------
    >>> with progress_bar("ingest", shown=False) as progress:
    ...     print(progress)
    None
    """
    if as_json:
        lines = _JsonLines(label)
        try:
            yield lines
        finally:
            lines.timer.cancel()
        return
    if not shown or not at_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=cast("IO[str]", ForgivingStderr())), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _JsonLines:
    """Prints a line of JSON within the first second and one per second; nothing where everything is done before."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._begun = self._latest = time.perf_counter()
        self.timer = threading.Timer(_FIRST_LINE_SECONDS, self._say, [0, None])
        self.timer.daemon = True
        self.timer.start()

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if done < total and now - self._latest >= 1:
            self._latest = now
            self._say(done, total)

    def _say(self, done: int, total: int | None) -> None:
        seconds = time.perf_counter() - self._begun
        left = seconds * (total - done) / done if done and total is not None else None
        record = {"stage": self._label, "state": "running", "done": done, "total": total, "eta_seconds": left}
        say(json.dumps(record))


def number(value: float) -> str:
    """A number with thousands separators; integers without a decimal point.

    Examples
    --------
    >>> number(12345.0), number(0.5)
    ('12,345', '0.5')
    """
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def size(n_bytes: float) -> str:
    """A number of bytes with a suitable unit.

    Examples
    --------
    >>> size(123), size(4_500_000_000)
    ('123 bytes', '4.5 GB')
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:,.3g} {unit}" if unit != "bytes" else f"{int(n_bytes)} bytes"
        n_bytes /= 1000
    return f"{n_bytes:,.3g} TB"


def few(values: list[Any], most: int = 10) -> str:
    """The first values of a list, and their number if there are more.

    Examples
    --------
    >>> few([1, 2, 3], most=2), few([])
    ('1, 2, ... (3 in all)', 'none')
    """
    if not values:
        return "none"
    more = f", ... ({len(values)} in all)" if len(values) > most else ""
    return ", ".join(map(str, values[:most])) + more


def _plain(value: Any) -> Any:
    """NumPy numbers as Python numbers, everything else as text."""
    return value.item() if hasattr(value, "item") else str(value)
