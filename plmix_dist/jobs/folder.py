"""The output folder of a job: what each file in it is called, and how it is written.

job.json           the checked job, from which `plmix resume` goes on
summary.json       how the job stands, or how it ended
history.jsonl      one line per iteration
log.jsonl          one line per event, with its time
environment.json   versions of everything
model/             the model
memberships/       the membership of every ranking, if the job asks for it
report.html        a report, if the job asks for it
choice.json        the table of a selection, and its choice
checkpoints/       the state of a fit that is not finished
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import os
import platform
import re
import socket
import sys
import warnings
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from plmix_dist import __version__
from plmix_dist.store import Location, access, sealed

JOB, SUMMARY, HISTORY, LOG, ENVIRONMENT = (
    "job.json", "summary.json", "history.jsonl", "log.jsonl", "environment.json",
)  # fmt: skip
MODEL, MEMBERSHIPS, REPORT, CHOICE = "model", "memberships", "report.html", "choice.json"
_DRAFT = re.compile(r".+\.[0-9a-f]{32}\.tmp")
_PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "dask", "distributed", "dask-ml", "scikit-learn", "zarr", "fsspec")


def now() -> str:
    """The time in UTC, as text with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class OutputFolder:
    """Writes the files of a job that people and machines read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = Location.of(path)

    def write(self, name: str, record: Any, *, private: bool = False) -> None:
        """Replace a file by a record as JSON, in one step. A `private` file can be read by its owner alone."""
        text = json.dumps(sealed.plain_json(record), indent=1, default=str)
        access.write_whole(self.path / name, (text + "\n").encode(), private=private)

    def remove_drafts(self) -> None:
        """Remove files that a job left half-written when it was killed. Whoever calls this holds the lock."""
        for key in self.location.listing():
            if _DRAFT.fullmatch(key):
                self.location.remove(key)

    def read(self, name: str) -> dict[str, Any] | None:
        """The record in a file; None if there is none."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = json.loads(self.location.read_bytes(name))
            return found if isinstance(found, dict) else None
        return None

    def last_summary(self, step: str) -> dict[str, Any]:
        """The part of a step in the last summary; empty if it has none, or is damaged."""
        found = (self.read(SUMMARY) or {}).get(step)
        return found if isinstance(found, dict) else {}

    def log(self, event: str, level: str = "info", **details: Any) -> None:
        """Add a line to the log."""
        self._add(LOG, {"time": now(), "level": level, "event": event, **details})

    def note_iteration(self, record: dict[str, Any]) -> None:
        """Add a line to the history."""
        self._add(HISTORY, record)

    def write_history(self, records: Iterable[dict[str, Any]]) -> None:
        """Replace the history: iterations that were repeated after a stop are in it once."""
        lines = [json.dumps(sealed.plain_json(record)) + "\n" for record in records]
        self.location.write_bytes(HISTORY, "".join(lines).encode())

    def history_once(self) -> list[dict[str, Any]]:
        """The history with each iteration once, as it was last written: of 1, 2, 3, 2 the last 1 and 2 remain."""
        found: dict[int, dict[str, Any]] = {}
        for record in self._history_backwards():
            if not found or record["iteration"] < min(found):
                found[record["iteration"]] = record
        return list(reversed(found.values()))

    def last_iteration(self) -> dict[str, Any] | None:
        """The last whole line of the history."""
        return next(self._history_backwards(), None)

    def _history_backwards(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            for line in reversed(self.location.read_bytes(HISTORY).splitlines()):
                with contextlib.suppress(ValueError):
                    record = json.loads(line)
                    if isinstance(record, dict) and "iteration" in record:
                        yield record

    def write_environment(self) -> None:
        """Write the versions of everything, and where it runs."""
        versions = {}
        for name in _PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
        self.write(
            ENVIRONMENT,
            {
                "plmix_dist": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "processors": os.cpu_count(),
                "host": socket.gethostname(),
                "command": sys.argv,
                "packages": versions,
            },
        )

    @contextlib.contextmanager
    def logging_messages(self) -> Iterator[None]:
        """While this is open, messages of the package and warnings are lines of the log too."""
        handler, logger = _LogLines(self), logging.getLogger("plmix_dist")
        show, level = warnings.showwarning, logger.level

        def noted(message: Warning | str, category: type[Warning], *more: Any, **options: Any) -> None:
            self.log("warning", "warning", message=str(message), category=category.__name__)
            show(message, category, *more, **options)

        logger.addHandler(handler)
        logger.setLevel(min(level or logging.INFO, logging.INFO))
        warnings.showwarning = noted
        try:
            yield
        finally:
            warnings.showwarning = show
            logger.removeHandler(handler)
            logger.setLevel(level)

    def _add(self, name: str, record: dict[str, Any]) -> None:
        path = self.path / name
        with access.writing_explained(str(path), 0):
            self.path.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                line = json.dumps(sealed.plain_json(record), default=str).encode() + b"\n"
                file.write(line if _ends_with_a_line(file) else b"\n" + line)


def _ends_with_a_line(file: IO[bytes]) -> bool:
    """Whether the last line of a file is whole, or there is none. A disk that was full may have cut it."""
    if not file.seek(0, os.SEEK_END):
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


class _LogLines(logging.Handler):
    """Messages of the package as lines of the log."""

    def __init__(self, folder: OutputFolder) -> None:
        super().__init__(logging.INFO)
        self._folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            self._folder.log("message", record.levelname.lower(), message=record.getMessage())


class JobProgress:
    """Passes progress on: a line of history per iteration, a line of log per stage, and both to `shown` if any.

    Iterations of the stage `history` become lines of history too.
    """

    def __init__(self, folder: OutputFolder, shown: Any = None, history: str | None = None) -> None:
        self._folder = folder
        self._shown = shown
        self._history = history

    def stage(self, event: dict[str, Any]) -> None:
        """Pass on that a stage has begun, continues, or has ended."""
        if event["state"] != "iteration":
            self._folder.log("stage", **event)
        elif event["stage"] == self._history:
            self._folder.note_iteration({name: event[name] for name in ("iteration", "log_likelihood")})
        if self._shown is not None:
            self._shown.stage(event)

    def __call__(self, record: dict[str, Any]) -> None:
        """Pass on an iteration of the fit to all rows."""
        self._folder.note_iteration(record)
        if self._shown is not None:
            self._shown(record)
