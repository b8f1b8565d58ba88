"""Standard streams that may be closed or full: progress is dropped, a result that is lost is an error."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import IO, Any

import click

from plmix_dist.errors import PlmixError


def open_closed_streams() -> None:
    """Open streams that the caller has closed (`2>&-`) as the null device.

    Otherwise the next file that is opened would take their number, and messages would be written into it.

    Examples
    --------
    >>> open_closed_streams()
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the smallest free number, which is this one
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def say(text: str) -> None:
    """Print a line on stderr; one that cannot be printed is dropped, and so are all after it.

    Examples
    --------
    >>> say("iteration 1")  # prints iteration 1
    """
    try:
        click.echo(text, err=True)
    except (OSError, ValueError):
        _drop(sys.stderr)


def print_result(text: str) -> None:
    """Print a line on stdout. If nobody reads any more (`| head`), it is dropped; if it is lost, that is an error.

    Examples
    --------
    >>> print_result("score  -1.5")
    score  -1.5
    """
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
    """Whether stderr is a terminal.

    Examples
    --------
    >>> at_terminal()
    False
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return sys.stderr.isatty()
    return False


class ForgivingStderr(io.TextIOBase):
    """What is written to it goes to stderr as it is now, or nowhere if that fails.

    Examples
    --------
    >>> ForgivingStderr().write("tea")
    3
    """

    def __init__(self) -> None:
        self.stream = sys.stderr  # a progress bar puts itself in its place

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of stderr."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether stderr is a terminal.

        Examples
        --------
        >>> ForgivingStderr().isatty()
        False
        """
        return self.stream.isatty()

    def write(self, text: str, /) -> int:
        """Write text, or drop it.

        Examples
        --------
        >>> ForgivingStderr().write("")
        0
        """
        try:
            self.stream.write(text)
        except (OSError, ValueError):
            _drop(self.stream)
        return len(text)

    def flush(self) -> None:
        """Send what was written, or drop it.

        Examples
        --------
        >>> ForgivingStderr().flush()
        """
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
