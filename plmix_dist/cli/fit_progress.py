"""Progress of `plmix fit` on stderr: text on a terminal, lines of JSON with --json."""

from __future__ import annotations

import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any

from plmix_dist.cli.streams import ForgivingStderr, at_terminal, say
from plmix_dist.progress import ProgressText, TimeLeft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plmix_dist.cli.options import Talk

# Iterations of fits to samples are told at most this often.
_SECONDS_BETWEEN = 1.0


class JsonProgress:
    """Prints one line of JSON per stage and per iteration, with an estimate of the time left.

    Parameters
    ----------
    left
        Estimates the time left.

    Examples
    --------
    >>> JsonProgress(TimeLeft(tol=1e-8, max_iter=500)).stage({"stage": "look", "state": "begun"})
    """

    def __init__(self, left: TimeLeft) -> None:
        self._left = left
        self._latest = -math.inf

    def stage(self, event: dict[str, Any]) -> None:
        """Print that a stage has begun, goes on, or has ended.

        Parameters
        ----------
        event
            "stage" is its name, "state" is "begun", "iteration" or "ended".
        """
        now = time.monotonic()
        if event["state"] == "iteration":
            if now - self._latest < _SECONDS_BETWEEN:
                return
            self._latest = now
        say(json.dumps(event))

    def __call__(self, record: dict[str, Any]) -> None:
        """Print an iteration of the fit to all rows."""
        say(json.dumps(record | {"eta_seconds": self._left.after(record)}))


@contextlib.contextmanager
def fit_progress(talk: Talk, tol: float, max_iter: int) -> Iterator[JsonProgress | ProgressText | None]:
    """What is told of a fit while it runs; nothing with --quiet, and nothing in words if nobody watches.

    Examples
    --------
    >>> from plmix_dist.cli.options import Talk
    >>> with fit_progress(Talk(as_json=False, quiet=True), 1e-8, 500) as progress:
    ...     print(progress)
    None
    """
    left = TimeLeft(tol, max_iter)
    if talk.quiet or not (talk.as_json or at_terminal()):
        yield None
        return
    if talk.as_json:
        yield JsonProgress(left)
        return
    stderr = ForgivingStderr()

    def write(text: str) -> None:
        stderr.write(text)
        stderr.flush()

    progress = ProgressText(left, write, renewed=True)
    try:
        yield progress
    finally:
        progress.close()
