"""Records of the stages of a fit: seconds, passes over the rows, and memory of each."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Stages:
    """Records of the stages that have run, in order.

    Parameters
    ----------
    listener
        Called with an event when a stage begins, goes on and ends: its "stage" and "state" ("begun", "iteration",
        "ended"), and what is known of it.

    Examples
    --------
    >>> stages = Stages()
    >>> with stages.stage("sample", passes=1):
    ...     pass
    >>> stages.records[0]["stage"], stages.records[0]["passes"]
    ('sample', 1)
    """

    def __init__(self, listener: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self._listener = listener
        self._current = ""

    @contextmanager
    def stage(self, name: str, passes: float = 0, **details: Any) -> Iterator[dict[str, Any]]:
        """Record a stage. The record may be changed until the stage ends.

        Parameters
        ----------
        name
            The name of the stage.
        passes
            How many passes over all rows it takes; a fraction if it reads a part of the rows.
        **details
            More entries of the record.

        Examples
        --------
        >>> stages = Stages()
        >>> with stages.stage("search", n_starts=8) as record:
        ...     record["rows"] = 10_000
        >>> sorted(stages.records[0])
        ['n_starts', 'passes', 'peak_memory', 'rows', 'seconds', 'stage']
        """
        record: dict[str, Any] = {"stage": name, "passes": passes, **details}
        self._current = name
        begun = time.perf_counter()
        self.tell("begun", stage=name, **details)
        yield record
        record["seconds"] = time.perf_counter() - begun
        record["peak_memory"] = peak_memory()
        self.records.append(record)
        self.tell("ended", **record)

    def iteration(self, record: dict[str, Any]) -> None:
        """Tell of an iteration of the stage that runs, such as a search; `record` is as in `history_`.

        Examples
        --------
        >>> stages = Stages(print)
        >>> with stages.stage("search"):
        ...     stages.iteration({"iteration": 1, "log_likelihood": -2.5})
        {'state': 'begun', 'stage': 'search'}
        {'state': 'iteration', 'stage': 'search', 'iteration': 1, 'log_likelihood': -2.5}
        {'state': 'ended', 'stage': 'search', ...}
        """
        self.tell("iteration", **({"stage": self._current} | record))

    def tell(self, state: str, **event: Any) -> None:
        """Tell the listener, if there is one.

        Parameters
        ----------
        state
            "begun", "iteration" or "ended".
        **event
            The "stage", and what is known of it.

        Examples
        --------
        >>> Stages(print).tell("begun", stage="compile")
        {'state': 'begun', 'stage': 'compile'}
        """
        if self._listener is not None:
            self._listener({"state": state, **event})


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes.

    Examples
    --------
    >>> peak_memory() > 1_000_000
    True
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
