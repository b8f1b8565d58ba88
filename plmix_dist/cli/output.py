"""What the command line prints: text for people, JSON for machines, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from plmix_dist.errors import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXIT_ERROR = 1
EXIT_DAMAGED = 3
EXIT_NOT_CONVERGED = 4
EXIT_INTERRUPTED = 130


def report_error(message: str) -> None:
    """One error on stderr, with nothing in it that could steer a terminal."""
    click.echo(f"plmix: error: {printable(message)}", err=True)


def printable(text: str) -> str:
    r"""Text with control characters made visible.

    Examples
    --------
    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "\n".join(visible(line) for line in text.split("\n"))


def show(lines: list[tuple[str, Any]], record: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    """A result: the record as JSON, or lines of `name  value`."""
    if as_json:
        click.echo(json_text(record))
        return
    if quiet:
        return
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        click.echo(printable(f"{name:<{width}}  {value}".rstrip()))


def json_text(record: dict[str, Any]) -> str:
    """JSON in which every control character is escaped, also those that JSON itself would let pass."""
    text = json.dumps(record, indent=1, ensure_ascii=False, default=_plain)
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


@contextlib.contextmanager
def progress_bar(label: str, *, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr while something runs, where a person is there to see it."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def number(value: float) -> str:
    """A number with thousands separated, counts without a point."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.6g}"


def size(n_bytes: float) -> str:
    """A number of bytes in a unit that people read."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:,.3g} {unit}" if unit != "bytes" else f"{int(n_bytes)} bytes"
        n_bytes /= 1000
    return f"{n_bytes:,.3g} TB"


def few(values: list[Any], most: int = 10) -> str:
    """The first of many values, and how many there are."""
    if not values:
        return "none"
    more = f", ... ({len(values)} in all)" if len(values) > most else ""
    return ", ".join(map(str, values[:most])) + more


def _plain(value: Any) -> Any:
    """Numbers of numpy as numbers of Python."""
    return value.item() if hasattr(value, "item") else str(value)
