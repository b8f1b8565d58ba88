"""Verbs of plmix in processes of their own: started, waited for, ended."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.helpers.forked_python import ROOT, ForkedPython

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

PLMIX = [sys.executable, "-m", "plmix_dist"]


def example_job(folder: Path, components: int) -> Path:
    """The job file of deploy/ in a folder, with another number of components."""
    text = (ROOT / "deploy/job.toml").read_text()
    assert "components = 3\n" in text
    path = folder / "job.toml"
    path.write_text(text.replace("components = 3\n", f"components = {components}\n"))
    return path


class Started:
    """A process, and what it has printed so far."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None) -> None:
        self.process = ForkedPython(
            list(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | dict(environment),
            start_new_session=True,
        )
        self.errors: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, keep), daemon=True)
            for stream, keep in ((self.process.stdout, self._lines.put), (self.process.stderr, self.errors.append))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, keep: Callable[[str | None], Any]) -> None:
        with stream:
            for line in stream:
                keep(line)
        if stream is self.process.stdout:
            keep(None)

    def says(self, name: str, seconds: float = 150) -> str:
        """The value of the line `name  value`, waited for."""
        end = time.monotonic() + seconds
        while True:
            line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            assert line is not None, f"ended without a line {name!r}: {''.join(self.errors)}"
            if line.startswith(f"{name} "):
                return line[len(name) :].strip()

    def ends(self, seconds: float = 150) -> int:
        """The exit code, waited for, with all that was printed."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(60)
        return code

    def told(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def listens_at(self) -> set[str]:
        """The addresses, without ports, at which the process and its children listen."""
        family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        return {
            connection.laddr.ip
            for each in family
            for connection in each.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        }

    def end(self) -> None:
        """End the process and its children, whatever they do."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.ends(30)


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    """Starts a process; whatever still runs at the end of the test is killed, with its children."""
    started: list[Started] = []

    def run(*command: object, env: Mapping[str, str] | None = None, folder: Path | None = None) -> Started:
        words = [str(word) for word in command]
        started.append(Started(words, env or {}, folder))
        return started[-1]

    yield run
    for each in started:
        each.end()
